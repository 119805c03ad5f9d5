// In which tensors two sets of safetensors files differ, whatever files they lie in and whatever their dtypes.
//
// Values are compared as numbers where the dtypes differ, else bit by bit, so that -0 differs from 0, by 0; a NaN
// equals a NaN where dtypes differ. GPT-2's names may have the prefix "transformer." or not.
#ifndef CKPT_TENSOR_DIFFERENCE_H
#define CKPT_TENSOR_DIFFERENCE_H

#include "ckpt/safetensors.h"

struct tensor_type {
    enum safetensors_dtype dtype;
    int ndim;
    int64_t shape[SAFETENSORS_DIMS];
};

// One of the reasons is given, or several: `only` excludes all others, a shape that differs excludes values.
struct tensor_difference {
    char *name;              // in the first set, unless it is only in the second
    int only;                // 0: in both; 1, 2: only in that set
    bool shape, dtype;       // these differ
    bool incomparable;       // dtypes that differ, and one of which is not of plain numbers
    struct tensor_type a, b; // of the sets that have it
    int64_t elements, different;
    // Over the elements that differ: infinite where only one of two is finite, NaN where dtypes are not of plain
    // numbers. Relative: to the larger of the two.
    double absolute, relative;
    int64_t first; // the first element that differs, in row-major order
    double first_a, first_b;
};

struct tensor_differences {
    VEC(struct tensor_difference); // by name
    size_t tensors;                // in either set
};

// Paths as for safetensors_open; NULL: a set without tensors. `read` (may be NULL) is told now and then how many bytes
// of the first set are compared, by one thread at a time. Caller releases *out.
trireme_status tensors_compare(const char *a, const char *b, int threads,
                               void (*read)(void *user, uint64_t done, uint64_t total), void *user,
                               struct tensor_differences *out, trireme_error *error);
void tensor_differences_release(struct tensor_differences *differences);

#endif
