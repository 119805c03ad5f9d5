// Patterns of tokenizers are written for Oniguruma, the library behind `tokenizers`, and matched here by PCRE2. The two
// read the same text differently; this writes in PCRE2's syntax what Oniguruma would understand:
//   - a class may have classes in it, and intersections: [a-z&&[^aeiou]], [^(\s|[.,!?])];
//   - {2,3}+ is not possessive but a repeated repetition, {2}? is optional;
//   - ^ and $ stand at line ends, (?m) lets a dot match them, (?i) inside a group reaches over its alternatives;
//   - \h is a hexadecimal digit, \w has marks, connectors and all that is alphabetic, \s is White_Space alone,
//     \p{Han} is the script of a character, not one of its script extensions.
// Two differences are left: where case is ignored, Oniguruma also folds properties and pairs of letters (\p{Lu} is all
// that folds to such a letter, "ss" is \u00df), which no tokenizer is known to want; and it may skip repetitions within
// repetitions that make PCRE2 give up.
// Source: doc/RE of Oniguruma 6.9 (syntax ONIG_SYNTAX_ONIGURUMA), pcre2pattern(3).
#ifndef TOKENIZER_EXPRESSION_SYNTAX_H
#define TOKENIZER_EXPRESSION_SYNTAX_H

#include "base/text.h"

// The longest pattern, in bytes, and the deepest nesting of groups and classes.
enum { EXPRESSION_BYTES_MAX = 32768, EXPRESSION_DEPTH_MAX = 100 };

// Appends the translation of pattern[0, length), which is UTF-8, to *out. USAGE names what is malformed or has no
// counterpart (references to groups, (?x), \K, \X), and at which byte it stands.
trireme_status expression_translate(const char *pattern, size_t length, struct text *out, trireme_error *error);

#endif
