// The member "decoder" of tokenizer.json: how the texts of tokens become text.
#ifndef TOKENIZER_DECODER_H
#define TOKENIZER_DECODER_H

#include "base/json.h"
#include "tokenizer/pieces.h"

struct decoder;

// As normalizer_create.
trireme_status decoder_create(struct decoder **out, const json_t *description, const char *where, trireme_error *error);
void decoder_free(struct decoder *d);
// Appends the text of the tokens, one piece each, as the model spells them. Where `d` is NULL they are put together
// with a space between, as `tokenizers` does. What is not UTF-8 afterwards stays as it is.
void decoder_apply(const struct decoder *d, const struct pieces *tokens, struct text *out);

#endif
