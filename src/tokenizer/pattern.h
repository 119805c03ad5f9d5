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
// Appends the spans of text[0, length), which is UTF-8, to *out, as expression_find does.
trireme_status pattern_find(const struct pattern *p, struct text_work *work, const char *text, size_t length,
                            struct spans *out, trireme_error *error);

#endif
