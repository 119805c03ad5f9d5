// What one thread encodes texts with: a tokenizer, memory between its steps, and the tokens of pieces that were met.
#ifndef TOKENIZER_ENCODER_H
#define TOKENIZER_ENCODER_H

#include "tokenizer/tokenizer.h"

struct encoder;

enum encoder_specials {
    ENCODER_TEXT_ALONE, // no tokens but those of the text
    ENCODER_SPECIALS,   // with the special tokens that the tokenizer puts around a text
    ENCODER_PROMPT,     // with those before it: the text goes on
    ENCODER_DOCUMENT,   // the same, and the token that ends texts at the end, once, if the tokenizer has one
};

// The tokenizer must outlive it. The caller frees.
struct encoder *encoder_create(const struct tokenizer *t);
void encoder_free(struct encoder *e);
// Appends the tokens of text[0, length), which is at most 1 GiB long. What is not UTF-8 is read as U+FFFD, one for each
// maximal part of an ill-formed sequence (Unicode 15, chapter 3.9, as Python's "replace" does), but by the kind
// "bytes" as it is. Special tokens that stand in the text count as such. After an error some tokens may have been
// appended.
trireme_status encoder_encode(struct encoder *e, const char *text, size_t length, enum encoder_specials specials,
                              struct token_list *out, trireme_error *error);

// Long documents are encoded in parts, cut at seams. Together the parts have the tokens of the document.
struct encoder_part {
    bool begins, ends; // with the document
};
// The same for a part of a text.
trireme_status encoder_encode_part(struct encoder *e, const char *text, size_t length, struct encoder_part part,
                                   enum encoder_specials specials, struct token_list *out, trireme_error *error);
// The last seam in text[0, length), which is UTF-8, of which more may follow: the length of the part before it. 0: none
// was found. For the kind "bytes" everything is a seam, but special tokens. Else seams lie between a letter and a
// space, or a line end, that has another letter behind it, where each step of the tokenizer is known to have the same
// result for the parts as for the whole (encoder_seam_holds). Pre-tokenizers with unknown expressions have none, nor
// has a Unigram model that gets no pieces.
size_t encoder_seam(struct encoder *e, const char *text, size_t length);

// A place in a text, in bytes.
struct encoder_place {
    size_t at;
    size_t ended; // how many tokens end at it or before it
    size_t begun; // how many begin before it
};
// encoder_encode, which also tells where tokens lie: place[count].at
// ascends, is at most `length`, and is no place inside of a character; the rest of place[] is filled in, counted from
// out->count. A character that several tokens are made of belongs to all of them, white space that the
// post-processor trims to none. USAGE where that cannot be told:
// tokens stand for characters that are not in the vocabulary.
trireme_status encoder_encode_places(struct encoder *e, const char *text, size_t length, enum encoder_specials specials,
                                     struct encoder_place *place, size_t count, struct token_list *out,
                                     trireme_error *error);

#endif
