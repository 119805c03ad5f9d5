// Mistral's tekken.json as the parts of a byte-level BPE tokenizer: tiktoken's ranks, each token in base64, with the
// pattern by which text is cut, and special tokens, which have the first ids.
#ifndef TOKENIZER_TEKKEN_H
#define TOKENIZER_TEKKEN_H

#include "tokenizer/tokenizer_parts.h"

// Whether a file is one.
bool tekken_is(const char *bytes, size_t length);
// Reads a file. The text that a special token is spelt with becomes that token, which mistral_common leaves to chats;
// else ids are those that it gives. CORRUPT names the member at fault. The caller releases *out; there is nothing to
// release after an error.
trireme_status tekken_parse(struct tokenizer_parts *out, const char *bytes, size_t length, const char *where,
                            trireme_error *error);

#endif
