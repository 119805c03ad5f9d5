// The member "normalizer" of tokenizer.json: what becomes of a text before it is cut.
#ifndef TOKENIZER_NORMALIZER_H
#define TOKENIZER_NORMALIZER_H

#include "base/json.h"
#include "tokenizer/text_work.h"

struct normalizer;

// `description` may be NULL or JSON's null: then *out is NULL. A type, or a setting, that is not known is refused by
// name (USAGE); `where` names the file. The caller frees *out.
trireme_status normalizer_create(struct normalizer **out, const json_t *description, const char *where,
                                 trireme_error *error);
void normalizer_free(struct normalizer *n);
// Appends the normalized text of text[0, length), which is UTF-8, to *out; as it is where `n` is NULL. `continues`: the
// text was cut from another one, at a seam, and nothing is put in front. Fails where a pattern takes too long.
trireme_status normalizer_apply(const struct normalizer *n, struct text_work *work, const char *text, size_t length,
                                bool continues, struct text *out, trireme_error *error);
// Whether a text that is cut between a letter and the ASCII character behind it becomes the same as when it is whole.
bool normalizer_has_seams(const struct normalizer *n);

#endif
