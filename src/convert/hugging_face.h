// A Hugging Face directory as another one: with other dtypes and other shards, without a training state. No family of
// models need be known: tensors keep names and shapes, and what lies beside them is copied.
#ifndef CONVERT_HUGGING_FACE_H
#define CONVERT_HUGGING_FACE_H

#include "base/text.h"
#include "convert/conversion.h"

// Opens the weights of a directory. USAGE where they are of another kind than safetensors: says what is there, and the
// way out.
trireme_status hugging_face_open(const char *directory, struct safetensors **out, trireme_error *error);

// What a new directory holds beside its weights: a config.json, and the other files of a directory; and how the
// weights lie.
struct hugging_face_beside {
    const struct text *config; // NULL: that of the directory; with the dtype that the weights get
    const char *directory;     // NULL: there are none
    // Whether a matrix becomes transposed; NULL: none does.
    bool (*turns)(const char *name);
};
// Writes the directory `out` with the weights of `files`; it must not exist, or be empty. It is there when it is whole.
trireme_status hugging_face_write(const struct safetensors *files, const struct hugging_face_beside *beside,
                                  const char *out, const struct conversion_options *options,
                                  struct conversion_watch *watch, trireme_error *error);

#endif
