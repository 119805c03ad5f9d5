// What text is split at, or replaced: the member "pattern" of tokenizer.json, {"String": ...} or {"Regex": ...}.
#ifndef TOKENIZER_PATTERN_H
#define TOKENIZER_PATTERN_H

#include "base/json.h"
#include "tokenizer/spans.h"
#include "tokenizer/text_work.h"

struct pattern;

// The caller frees *out. USAGE, with `where` in front, says what is wrong with it.
trireme_status pattern_create(struct pattern **out, const json_t *description, const char *where, trireme_error *error);
// The same for a Regex that the program has itself.
trireme_status pattern_create_regex(struct pattern **out, const char *regex, trireme_error *error);
void pattern_free(struct pattern *p);
// Whether it is one character as it is.
bool pattern_is_character(const struct pattern *p);
// What a seam is for a pattern: nothing that is known; or else a place at which a text may be cut without a change of
// any match, where the characters before and behind it belong to no match (SEAM_WITHIN), or one of them does, or each
// to one of its own.
enum pattern_seam { SEAM_UNKNOWN, SEAM_WITHIN, SEAM_LEFT, SEAM_RIGHT, SEAM_BOTH };
enum pattern_seam pattern_seam(const struct pattern *p, uint32_t left, uint32_t right);
// Appends the spans of text[0, length), which is UTF-8, to *out, as expression_find does.
trireme_status pattern_find(const struct pattern *p, struct text_work *work, const char *text, size_t length,
                            struct spans *out, trireme_error *error);

#endif
