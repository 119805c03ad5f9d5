// ref/: every op of ops.def in plain C: one obvious loop nest, any floating dtype, computed in double and rounded when
// stored, sums in the order of their index. The same bits on every machine and for any number of threads: nothing is
// contracted (the folder is compiled with -ffp-contract=off) and no function of the C library but sqrt is used
// (math.h). Fast kernels are tested against these; small models train on them in f64. Includes nothing of cpu/.
//
//   math       elementary functions          tensor.h   elements of any dtype as doubles
//   linear     embed, matmul, add            norm       layer norm, RMS norm, the norm of queries and keys
//   attention  attention, rope               cache      filling the key-value cache
//   activation GELU, SwiGLU, GEGLU, soft cap loss       cross entropy, scalars from targets to the clipping factor
//   optimizer  AdamW, Lion, SGD; each of several steps has a file of its own
//   codec      values as bytes, and back
#ifndef KERNELS_REF_REF_H
#define KERNELS_REF_REF_H

#include "kernels/kernels.h"

#define OP(id, name, signature, adjoint, attributes, flops, inplace, kernel) void kernel(const struct call *call);
#define PREPARED(id, name, signature, adjoint, attributes, flops, inplace, kernel, prepare) \
    void kernel(const struct call *call);                                                   \
    trireme_status prepare(const struct call *call, void **prepared, int64_t *workspace_bytes, trireme_error *error);
#define COMMUNICATION(...)
#define TRANSFER(...)
#include "program/ops.def"
#undef OP

#endif
