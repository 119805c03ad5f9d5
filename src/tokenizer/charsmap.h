// sentencepiece's compiled normalization rules ("precompiled_charsmap"): a trie over the bytes of what is replaced, as
// a double array of Darts (https://github.com/s-yata/darts-clone), and a block of replacements, each ended by a NUL.
#ifndef TOKENIZER_CHARSMAP_H
#define TOKENIZER_CHARSMAP_H

#include "base/text.h"

struct charsmap;

// From base64. USAGE says what is malformed. The caller frees *out.
trireme_status charsmap_create(struct charsmap **out, const char *base64, trireme_error *error);
// From now on the rules are applied as the library itself applies them: at each place, from left to right, the rule of
// the longest beginning.
void charsmap_use_longest(struct charsmap *m);
// That, and none to this text, wherever it stands. False where it is empty, or kept already, or too much is kept.
bool charsmap_keep(struct charsmap *m, const char *text, size_t length);
void charsmap_free(struct charsmap *m);
// Appends the text by the rules, as `tokenizers` applies them: to a grapheme cluster of fewer than 6 bytes as a whole,
// or else to each of its characters; the rule of the shortest beginning counts, and replaces all of it. Or as the
// library does, above. Stops where *out is longer than `limit`.
void charsmap_add(const struct charsmap *m, const char *text, size_t length, size_t limit, struct text *out);

#endif
