// The member "pre_tokenizer" of tokenizer.json: how a normalized text is cut into the pieces of which the model makes
// tokens, each for itself.
#ifndef TOKENIZER_PRE_TOKENIZER_H
#define TOKENIZER_PRE_TOKENIZER_H

#include "base/json.h"
#include "tokenizer/pieces.h"
#include "tokenizer/text_work.h"

struct pre_tokenizer;

// As normalizer_create.
trireme_status pre_tokenizer_create(struct pre_tokenizer **out, const json_t *description, const char *where,
                                    trireme_error *error);
void pre_tokenizer_free(struct pre_tokenizer *p);
// Appends the pieces of text[0, length), which is UTF-8, to *out, none of them empty, spelt as tokens are (ByteLevel:
// in GPT-2's characters). `first`: the text begins where the whole one did, before added tokens were taken out. Where
// `p` is NULL there is one piece. Fails where a pattern takes too long.
trireme_status pre_tokenizer_cut(const struct pre_tokenizer *p, struct text_work *work, const char *text, size_t length,
                                 bool first, struct pieces *out, trireme_error *error);

#endif
