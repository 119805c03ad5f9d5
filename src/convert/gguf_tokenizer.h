// A tokenizer as the keys tokenizer.* of a GGUF file: byte-level BPE as "gpt2", sentencepiece's BPE as "llama".
#ifndef CONVERT_GGUF_TOKENIZER_H
#define CONVERT_GGUF_TOKENIZER_H

#include "convert/gguf_file.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

// Adds them. Ids that no token has, up to the model's vocab_size, become unused ones. What llama.cpp does not do is
// refused by name (USAGE): other kinds, normalizers, ways of cutting text. NFC and sentencepiece's normal forms, which
// text mostly has already, are left out. `directory` is where the tokenizer was loaded.
trireme_status gguf_add_tokenizer(struct gguf_file *f, const struct tokenizer *t, const char *directory,
                                  const struct model_config *model, trireme_error *error);

#endif
