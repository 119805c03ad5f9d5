// convert/: models as other formats and other numbers: other dtypes and shards, GGUF, llm.c's .bin. Includes base/,
// model/, tokenizer/, ckpt/. Tensors stream from file to file in blocks, so that memory does not depend on the model.
//
// Here: what all of them share. A tensor of the result is a matrix whose rows come from one of the source.
#ifndef CONVERT_CONVERSION_H
#define CONVERT_CONVERSION_H

#include "ckpt/adapters.h"

#include <stdatomic.h>

// How numbers are stored. Q8_0 is GGUF's: blocks of 32 in a row, each a scale (f16) and 32 signed bytes.
enum stored { STORED_F32, STORED_F16, STORED_BF16, STORED_Q8_0, STORED_KINDS };
enum { Q8_0_NUMBERS = 32, Q8_0_BYTES = 34 };
const char *stored_name(enum stored stored); // "f32"
// Bytes of `count` numbers; of Q8_0 it must be whole blocks.
uint64_t stored_bytes(enum stored stored, int64_t count);
// The one that keeps numbers of a dtype of files as they are; of F64 it is F32.
enum stored stored_like(enum safetensors_dtype dtype);
// Stores count numbers, rounded to nearest, ties to even (F16 and BF16 by way of f32); Q8_0 as ggml's reference does.
// False where a finite number is beyond the range of F16.
bool stored_encode(enum stored stored, const double *in, int64_t count, void *out);

// Which row of the source a row of the result is.
enum row_order {
    ROWS_IN_ORDER,
    ROWS_TRANSPOSED, // it is a column
    ROWS_IN_PAIRS,   // of queries or keys: in each head the two elements that RoPE turns together lie side by side
    ROWS_BY_PART     // of q, k and v: all heads of q come first; in the source the three lie together, head by head
};

struct conversion_tensor {
    const char *name; // for messages
    const struct safetensors_tensor *from;
    const char *path; // of its file
    bool copied;      // its bytes are taken as they are, and the rest does not matter
    // [rows, columns] of the result; beyond the rows of the source there are zeros. A vector has one column.
    int64_t rows, columns;
    enum row_order order;
    int64_t heads;                 // of the last two orders
    double added;                  // to every number, in f32
    const struct adapter_sum *sum; // is added to the source first; NULL: nothing
    enum stored stored;
    uint64_t position; // of its first byte in the file that is written
};

struct conversion_tensors {
    VEC(struct conversion_tensor);
};

struct conversion_watch {
    void (*progress)(void *user, uint64_t done, uint64_t total); // bytes of the source; may be NULL
    void *user;
    const atomic_bool *cancel; // may be NULL: ends with TRIREME_ERROR_INTERRUPTED
    uint64_t done, total;
};

// Writes tensors, whose sources are in `files`, into an open file, on all cores. `path` is for messages.
trireme_status conversion_write(const struct safetensors *files, const struct conversion_tensors *tensors, int file,
                                const char *path, struct conversion_watch *watch, trireme_error *error);

// What is asked for.
struct conversion_options {
    bool keeps; // each tensor its own dtype; else `stored`
    enum stored stored;
    uint64_t shard_bytes;           // of safetensors; 0: the default
    const struct adapter_sum *sums; // [tensors of the source]: what is added to each; NULL: nothing
};
// What is added to a tensor of the source; NULL: nothing.
const struct adapter_sum *conversion_sum(const struct conversion_options *options, const struct safetensors *files,
                                         const struct safetensors_tensor *tensor);
// Lets that be added to all of these.
void conversion_add_sums(const struct conversion_options *options, const struct safetensors *files,
                         struct conversion_tensors *tensors);

// A file that replaces none: it is written as PATH.tmp and gets its name when it is whole.
struct new_file {
    char *path, *temporary;
    int file;
};
// USAGE where something of that name exists, BUSY where another process writes it. To be followed by one of the others.
trireme_status new_file_begin(struct new_file *f, const char *path, trireme_error *error);
trireme_status new_file_add(struct new_file *f, const void *bytes, size_t length, uint64_t position,
                            trireme_error *error);
// Makes the file that long: what was not written is zero.
trireme_status new_file_size(struct new_file *f, uint64_t bytes, trireme_error *error);
trireme_status new_file_end(struct new_file *f, trireme_error *error);
void new_file_abort(struct new_file *f);

#endif
