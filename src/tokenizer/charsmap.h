// sentencepiece's compiled normalization rules ("precompiled_charsmap"): a trie over the bytes of what is replaced, as
// a double array of Darts (https://github.com/s-yata/darts-clone), and a block of replacements, each ended by a NUL.
#ifndef TOKENIZER_CHARSMAP_H
#define TOKENIZER_CHARSMAP_H

#include "base/text.h"

struct charsmap;

// From base64. USAGE says what is malformed. The caller frees *out.
trireme_status charsmap_create(struct charsmap **out, const char *base64, trireme_error *error);
void charsmap_free(struct charsmap *m);
// Appends the text by the rules, as `tokenizers` applies them: to a grapheme cluster of fewer than 6 bytes as a whole,
// or else to each of its characters; the rule of the shortest beginning counts, and replaces all of it. Stops where
// *out is longer than `limit`.
void charsmap_add(const struct charsmap *m, const char *text, size_t length, size_t limit, struct text *out);

#endif
