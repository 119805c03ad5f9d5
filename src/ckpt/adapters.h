// The adapters of a directory, as PEFT has them, to be added to the weights of the model that they adapt:
// W + scale B A, where W x is adapted to W x + scale B (A x).
#ifndef CKPT_ADAPTERS_H
#define CKPT_ADAPTERS_H

#include "ckpt/safetensors.h"
#include "model/model.h"

struct adapters;

// Opens adapter_config.json and adapter_model.safetensors of the directory `path`, which adapt the model in the
// directory `base` (empty: the one that they name). Adapters that do not fit that model, or of a kind that is not
// supported, are refused, naming file and member or tensor.
trireme_status adapters_open(const char *path, const char *base, struct adapters **out, trireme_error *error);
// The directory of the model that they adapt, and that model, with the adapters.
const char *adapters_base(const struct adapters *adapters);
const struct model_config *adapters_model(const struct adapters *adapters);
// How many layers have adapters.
size_t adapters_count(const struct adapters *adapters);
void adapters_close(struct adapters *adapters);

// What is added to one tensor [rows, columns] of the model's files: scale x left x right. Of a tensor that lies as
// [out, in] these are B and A, of one that lies as [in, out] the transposes of A and B.
struct adapter_sum {
    double *left, *right; // [rows, rank], [rank, columns]; NULL: the tensor has no adapter
    int64_t rows, rank, columns;
    double scale;
};
// That of the tensor `name`; adapter_sum_release frees it. Reads the adapters' file: for one thread at a time.
trireme_status adapter_sum_read(struct adapters *adapters, const char *name, struct adapter_sum *out,
                                trireme_error *error);
// Adds it to elements [first, first + count) of the tensor, as it lies in the file.
void adapter_sum_add(const struct adapter_sum *sum, int64_t first, int64_t count, double *values);
void adapter_sum_release(struct adapter_sum *sum);

#endif
