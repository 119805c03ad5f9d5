// The GGUF format, version 3 (ggml's docs/gguf.md): a header, keys with values, descriptions of tensors, then their
// numbers, each tensor at a multiple of 32 bytes. All numbers are little-endian.
#ifndef CONVERT_GGUF_FILE_H
#define CONVERT_GGUF_FILE_H

#include "base/text.h"
#include "convert/conversion.h"

struct gguf_tensor {
    char *name;
    enum stored stored;
    int ndim;
    int64_t rows, columns; // as of Hugging Face: the columns of a row lie side by side
    uint64_t position;     // once placed: of its first byte in the file
};

struct gguf_file {
    struct text values; // of the keys
    uint64_t keys;
    VEC(struct gguf_tensor) tensors;
    struct text head;    // once placed: all that comes before the numbers
    uint64_t file_bytes; // once placed
};

// Keys. Arrays take `count` values.
void gguf_add_string(struct gguf_file *f, const char *key, const char *value, size_t length);
void gguf_add_u32(struct gguf_file *f, const char *key, int64_t value);
void gguf_add_f32(struct gguf_file *f, const char *key, double value);
void gguf_add_bool(struct gguf_file *f, const char *key, bool value);
void gguf_add_bools(struct gguf_file *f, const char *key, const bool *value, size_t count);
void gguf_add_i32s(struct gguf_file *f, const char *key, const int32_t *value, size_t count);
void gguf_add_f32s(struct gguf_file *f, const char *key, const float *value, size_t count);
// To be followed by `count` calls of gguf_add_item.
void gguf_begin_strings(struct gguf_file *f, const char *key, size_t count);
void gguf_add_item(struct gguf_file *f, const char *value, size_t length);

// Takes over the name.
void gguf_add_tensor(struct gguf_file *f, struct gguf_tensor tensor);
// After all keys and tensors, once.
void gguf_place(struct gguf_file *f);
void gguf_release(struct gguf_file *f);

#endif
