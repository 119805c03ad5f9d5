// Where tensors will lie in safetensors files: known from their names, dtypes and shapes alone, so that every rank
// knows it, and each can write its own bytes of a file (saver.h).
//
// One file STEM.safetensors, or, when the tensors take more than `shard_bytes`, STEM-00001-of-0000N.safetensors and so
// on. Wide elements come before narrow ones, so that every tensor is aligned to its element in the file; otherwise the
// order of declaration is kept. A tensor is never split.
#ifndef CKPT_SAFETENSORS_LAYOUT_H
#define CKPT_SAFETENSORS_LAYOUT_H

#include "base/text.h"
#include "ckpt/safetensors.h"

struct safetensors_declared {
    char *name;
    enum safetensors_dtype dtype;
    int ndim;
    int64_t shape[SAFETENSORS_DIMS];
    uint64_t bytes;
    size_t number; // in the order of declaration
    // Set by safetensors_layout_place.
    size_t file;
    uint64_t position; // of its data in that file
};

struct safetensors_planned {
    char *name;         // of the file
    struct text header; // with the 8 bytes of its length before it: a multiple of 8 bytes in all
    uint64_t bytes;     // of the file
};

struct safetensors_metadata {
    char *key, *value;
};

struct safetensors_layout {
    char *stem;
    uint64_t shard_bytes, total; // total: bytes of all tensors
    VEC(struct safetensors_metadata) metadata;
    VEC(struct safetensors_declared) tensor; // in order of declaration; once placed, in the order of the files
    VEC(struct safetensors_planned) file;    // once placed
};

// shard_bytes 0: SAFETENSORS_SHARD_BYTES. `stem` may have folders before it; it also stands for the files in messages.
void safetensors_layout_create(struct safetensors_layout *layout, const char *stem, uint64_t shard_bytes);
void safetensors_layout_release(struct safetensors_layout *layout);
// `__metadata__` of every file; "format" = "pt" is what transformers asks for. A key given twice takes the last value.
void safetensors_layout_metadata(struct safetensors_layout *layout, const char *key, const char *value);
// Tensors are numbered 0, 1, ... as they are declared. Refuses names and shapes that the format does not have.
trireme_status safetensors_layout_declare(struct safetensors_layout *layout, const char *name,
                                          enum safetensors_dtype dtype, int ndim, const int64_t *shape,
                                          trireme_error *error);
// After all declarations, once: makes the headers. Refuses a name declared twice, and headers that are too long.
trireme_status safetensors_layout_place(struct safetensors_layout *layout, trireme_error *error);
// STEM.safetensors.index.json of placed tensors, which maps names to files. Appends to *out.
void safetensors_layout_index(const struct safetensors_layout *layout, struct text *out);

#endif
