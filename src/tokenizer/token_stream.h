// The text of tokens that come one after the other. What a decoder makes of a token depends on those before it: blanks
// that begin a text are taken away, those inside stay.
#ifndef TOKENIZER_TOKEN_STREAM_H
#define TOKENIZER_TOKEN_STREAM_H

#include "tokenizer/tokenizer.h"

// Zero-initialise, but for the tokenizer; token_stream_release frees.
struct token_stream {
    const struct tokenizer *tokenizer;
    struct token_list tokens; // the last ones
    size_t told;              // bytes of their text that were appended
    struct text text;
};

// Appends the text by which the tokens so far become longer, without special tokens. It may begin and end inside a
// character. USAGE as tokenizer_decode.
trireme_status token_stream_add(struct token_stream *s, const int32_t *tokens, size_t count, struct text *out,
                                trireme_error *error);
void token_stream_release(struct token_stream *s);

#endif
