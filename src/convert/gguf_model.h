// A model as a GGUF file, as llama.cpp opens it. Of the families that are known here, those are written that are known
// there; what a family has here and cannot say there is refused by name (USAGE).
#ifndef CONVERT_GGUF_MODEL_H
#define CONVERT_GGUF_MODEL_H

#include "convert/conversion.h"

// Writes the model of a directory, whose weights are `files`. A matrix whose rows are no multiple of 32 numbers becomes
// f16 in place of Q8_0; vectors and embeddings of positions are f32.
trireme_status gguf_write(const char *directory, struct safetensors *files, const char *out,
                          const struct conversion_options *options, struct conversion_watch *watch,
                          trireme_error *error);

#endif
