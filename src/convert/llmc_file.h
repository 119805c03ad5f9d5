// llm.c's model files (train_gpt2.py, write_model): a GPT-2 whose head is its embedding. A header of 256 i32: 20240326,
// version 3 (all in f32) or 5 (all in bf16), positions, vocabulary, layers, heads, width, padded vocabulary. Then the
// tensors, one kind after the other for all layers; matrices are [out, in]; the embedding has the padded rows.
#ifndef CONVERT_LLMC_FILE_H
#define CONVERT_LLMC_FILE_H

#include "base/text.h"
#include "convert/conversion.h"

// Whether a file begins like one.
bool llmc_file_is(const char *path);
// Opens one as if it were a safetensors file with the names and shapes of Hugging Face, but for its matrices, which are
// llm.c's. Appends the config.json of the model. CORRUPT names what is wrong; the caller closes *out.
trireme_status llmc_file_open(const char *path, struct safetensors **out, struct text *config, trireme_error *error);
// Whether the matrix of that name lies the other way round than Hugging Face's.
bool llmc_file_turns(const char *name);
// Writes the model of a directory, whose weights are `files`. USAGE where it is no such GPT-2.
trireme_status llmc_file_write(const char *directory, struct safetensors *files, const char *out,
                               const struct conversion_options *options, struct conversion_watch *watch,
                               trireme_error *error);

#endif
