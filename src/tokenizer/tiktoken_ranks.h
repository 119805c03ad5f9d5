// A file of tiktoken's ranks as the parts of a byte-level BPE tokenizer: a line for each token, its bytes in base64 and
// its rank, which is its id. tiktoken merges whichever two neighbours spell a token, that with the lowest rank first.
#ifndef TOKENIZER_TIKTOKEN_RANKS_H
#define TOKENIZER_TIKTOKEN_RANKS_H

#include "tokenizer/tokenizer_parts.h"

// Whether a file is one, by its first line.
bool tiktoken_ranks_are(const char *bytes, size_t length);
// Reads a file. It has neither a pattern nor special tokens: the number of its ranks tells those of gpt2, p50k, cl100k,
// o200k, llama3 and qwen. Of another file `pattern` is asked for (NULL: none was given; else a name or a regular
// expression, which then counts), and it has no special tokens. CORRUPT names the line at fault; USAGE: the pattern.
// The caller releases *out; there is nothing to release after an error.
trireme_status tiktoken_ranks_parse(struct tokenizer_parts *out, const char *bytes, size_t length, const char *pattern,
                                    const char *where, trireme_error *error);

#endif
