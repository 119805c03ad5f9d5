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

// What a seam between two characters of a normalized text is: whether a text that is cut there becomes the same pieces
// as when it is whole, which end there; or the one piece there becomes two, and whether that matters is left to the
// model. The pre-tokenizer turns the characters at the end of *left and at the beginning of *right into those that the
// pieces have there.
enum piece_seam { PIECE_SEAM_UNKNOWN, PIECE_SEAM_WITHIN, PIECE_SEAM_BETWEEN };
enum piece_seam pre_tokenizer_seam(const struct pre_tokenizer *p, struct text_work *work, struct text *left,
                                   struct text *right);

#endif
