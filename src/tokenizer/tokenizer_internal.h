// What a tokenizer is made of. Private to tokenizer/.
#ifndef TOKENIZER_TOKENIZER_INTERNAL_H
#define TOKENIZER_TOKENIZER_INTERNAL_H

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/decoder.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unigram.h"

enum tokenizer_type { TOKENIZER_BYTES, TOKENIZER_BPE, TOKENIZER_UNIGRAM };

struct tokenizer {
    enum tokenizer_type type;
    struct tokenizer_parts parts;
    struct bpe *bpe; // of its type, these are there; of bytes, none
    struct unigram *unigram;
    struct normalizer *normalizer;
    struct pre_tokenizer *pre_tokenizer;
    struct decoder *decoder;
    struct added_tokens *added;
    struct token_template template;
    int32_t vocab_size;
    int32_t bos, eos;    // -1: none
    int32_t *text_bytes; // of each id
    // Whether places of tokens (encoder_place) are without the white space in them, as the post-processor says.
    enum { TRIMS_NOTHING, TRIMS_ALL, TRIMS_ALL_BUT_FIRST } trims_offsets; // but one space that the text begins with
    char *chat_template;
    struct tokenizer_files files;
};

// Whether a tokenizer that was read is one of the kind "bytes".
bool tokenizer_is_bytes(const struct tokenizer *t);
// The bytes of text that each id stands for. The caller frees.
int32_t *tokenizer_measure(const struct tokenizer *t);
// Whether a token is spelt <0xNN>, as bytes are where there is byte fallback.
bool token_spells_byte(struct token_bytes token);

#endif
