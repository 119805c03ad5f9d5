// kernels/: arithmetic of one op on tensors in memory. Knows no ranks, no model, no schedule. Includes base/ and
// program/.
//   ref/   every op in plain C, any floating dtype, computed in double: slow, obvious, the same bits on every machine
//   cpu/   the fast versions (f32 and bf16), OpenMP
//   choices.h   which of a kernel's ways to run a call is the fastest here, by measurement
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include "program/program.h"

struct tensor {
    void *data; // NULL: absent optional operand
    enum dtype dtype;
    int ndim;
    int64_t dim[OP_MAX_DIMS], stride[OP_MAX_DIMS]; // elements
};

// Ways in which a kernel may run a call, all with the same bits. They are named for what they mean in matrix products
// (cpu/gemm.c).
enum kernel_way {
    WAY_RULE,         // the kernel chooses, by shape alone
    WAY_BY_ROWS,      // threads share the rows of what they make
    WAY_BY_COLUMNS,   // or its columns
    WAY_SMALL_BLOCKS, // half of what a thread packs at a time by the rule
    WAY_LARGE_BLOCKS, // twice that
    WAY_NARROW,       // a quarter of what all threads together pack at a time
    KERNEL_WAYS
};

// One instruction with its operands resolved to memory.
struct call {
    enum op op;
    int inputs, outputs;
    struct tensor in[OP_MAX_IN], out[OP_MAX_OUT];
    union attribute attribute[OP_MAX_ATTRIBUTES];
    bool accumulate; // add to the outputs that ops.def marks, instead of overwriting them
    void *workspace; // as large as `prepare` asked for, 64-byte aligned; contents arbitrary
    int64_t workspace_bytes;
    int threads;
    enum kernel_way way; // one of those that the kernel has for the call
    void *prepared;      // what `prepare` made
};

// A kernel. `run` allocates nothing, cannot fail, and gives the same bits for the same call and thread count.
// `prepare` (may be NULL) sees the call without data pointers, before the run: it may make something to keep in
// *prepared (released by `release`, which may be NULL) and says how much workspace a run needs, in any way. Where rows
// are counted at run time it sees as many as there may be, and a run has fewer, but one at least; what is kept in
// *prepared and needs `release` has to serve for these. `ways` (NULL: the rule alone) sees the same and says which ways
// there are: bit w for way w.
struct kernel {
    void (*run)(const struct call *call);
    trireme_status (*prepare)(const struct call *call, void **prepared, int64_t *workspace_bytes, trireme_error *error);
    void (*release)(void *prepared);
    unsigned (*ways)(const struct call *call);
};

enum kernel_set { KERNELS_FAST, KERNELS_REFERENCE };

// The kernel that runs `op` on a model of dtype `model`. KERNELS_FAST falls back to ref/ where cpu/ has none
// (scalars; all of f64).
struct kernel kernel_find(enum op op, enum dtype model, enum kernel_set set);

#endif
