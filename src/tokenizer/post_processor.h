// The member "post_processor" of tokenizer.json, for one text: which special tokens come before and after it.
#ifndef TOKENIZER_POST_PROCESSOR_H
#define TOKENIZER_POST_PROCESSOR_H

#include "base/json.h"
#include "tokenizer/token_list.h"

// The tokens of a text with special ones around it; TEMPLATE_TEXT stands for the text. Zero-initialise.
struct token_template {
    struct token_list steps;
};
enum { TEMPLATE_TEXT = -1 };

// `description` may be NULL or JSON's null: then the text stands alone. Ids may be anything below `vocab_size`. A type,
// or a setting, that is not known is refused by name (USAGE). token_template_release frees.
trireme_status token_template_create(struct token_template *out, const json_t *description, int32_t vocab_size,
                                     const char *where, trireme_error *error);
void token_template_release(struct token_template *t);
// The first token before the text, and the last one after it; -1: there is none.
int32_t token_template_first(const struct token_template *t);
int32_t token_template_last(const struct token_template *t);

#endif
