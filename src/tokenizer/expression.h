// Regular expressions of tokenizers, which are written for Oniguruma (expression_syntax.h), matched by PCRE2: compiled
// to machine code where it can. Files may be hostile: length and nesting of a pattern, what it compiles to, the memory
// of a match and the time for a text are bounded.
#ifndef TOKENIZER_EXPRESSION_H
#define TOKENIZER_EXPRESSION_H

#include "base/base.h"
#include "tokenizer/spans.h"

struct expression;
// What matching needs, for one thread.
struct expression_memory;

// USAGE says what is wrong with the pattern. The caller frees *out.
trireme_status expression_create(struct expression **out, const char *pattern, size_t length, trireme_error *error);
void expression_free(struct expression *e);

struct expression_memory *expression_memory_create(void);
void expression_memory_free(struct expression_memory *memory);

// Appends the spans of text[0, length), which is UTF-8: matches from left to right that do not overlap, and none that
// is empty where the last one ended (as rust-onig's find_iter). An empty text has none. Fails where the pattern takes
// too long: more than 10 million steps back at one place, or a second of processor time and one for each megabyte.
trireme_status expression_find(const struct expression *e, struct expression_memory *memory, const char *text,
                               size_t length, struct spans *out, trireme_error *error);

// The version of Unicode that \p{...} knows: "14.0.0". The caller frees.
char *expression_unicode_version(void);

#endif
