// Reads of safetensors files what this rank has of their tensors, and no more: a tensor is gone through piece by piece,
// and of each piece the stretches are read in which something lies that the rank has. Besides the values' own memory
// that takes a few MiB.
#ifndef CKPT_TENSOR_READER_H
#define CKPT_TENSOR_READER_H

#include "ckpt/image.h"
#include "ckpt/values.h"

struct tensor_reader {
    struct safetensors *files;
    bool finite;                        // refuse numbers that are not
    double share;                       // of what is read (f32 and f64 alone) in what it becomes with what is there
    const struct checksum_watch *watch; // told after each piece; NULL: none
    char *piece;
    VEC(struct tensor_stretch) stretch; // of a piece
    struct image_spans spans;           // of a piece
    struct tensor_run *run;             // numbers that are being converted; NULL: none were yet
};

// `files` and `watch` must outlive the reader.
void tensor_reader_create(struct tensor_reader *reader, struct safetensors *files, const struct checksum_watch *watch);
void tensor_reader_release(struct tensor_reader *reader);
// Puts a tensor into the values of its parameter; `source` says what it is, all but group and size. Either the tensor
// has the values' dtype, or both are dtypes of convert.h. `remainders` (for bf16 values; NULL: none) get the low halves
// of f32 master weights; they are left as they are where the tensor has the values' dtype.
trireme_status tensor_reader_take(struct tensor_reader *reader, const struct safetensors_tensor *tensor,
                                  const struct image_source *source, const struct parameter_values *values,
                                  const struct parameter_values *remainders, trireme_error *error);
// Puts row[source->columns] into each of the rows of `source`, which no file has.
void tensor_reader_fill(struct tensor_reader *reader, const struct image_source *source, const double *row,
                        const struct parameter_values *values, const struct parameter_values *remainders);

#endif
