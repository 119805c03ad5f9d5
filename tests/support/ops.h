// One harness for all ops: makes operands of any op from a line of text, runs a kernel on them, and checks it in three
// ways.
//   compare    any kernel against the reference kernel, under everything that a caller may ask for: dtype, threads,
//              strides, outputs in the memory of inputs, accumulation, absent operands
//   gradient   a backward op against finite differences of its forward op in f64, as the adjoint in ops.def pairs them
//   time       how long a kernel takes
// Every operand and the workspace lie between guard zones; whatever must not be written is compared byte for byte
// afterwards. Guards, gaps between rows, and outputs that will be overwritten are filled with NaN beforehand.
// Functions return an error whose message says what differs; they assert nothing, so that the harness itself can be
// tested.
#ifndef SUPPORT_OPS_H
#define SUPPORT_OPS_H

#include "kernels/kernels.h"

// What a case is used for: sums of these.
enum { OPS_COMPARE = 1, OPS_GRADIENT = 2, OPS_TIME = 4 };

// "matmul m=5 k=7 n=3": the op, the extent of each dim letter of its row, its attributes and those of its forward op,
// and the value of an operand `first` (else 0).
struct op_case {
    const char *spec;
    unsigned uses;
};

// The one table of cases (ops_cases.c).
extern const struct op_case op_cases[];
extern const size_t op_case_count;

struct op_options {
    enum dtype model;
    int threads;
    bool accumulate; // outputs that can be added to are, onto random values
    bool strided;    // rows lie apart, where the op must accept that
    bool inplace;    // outputs take the memory of inputs, where ops.def says so
    unsigned absent; // bit i: optional input i, bit 16 + i: optional output i is absent
    uint64_t seed;
    double accepted; // difference of f32 outputs, as a part of the largest; 0: that of sums in f32
};

struct op_memory {
    uint8_t *base, *before; // as allocated; a copy of it from before the run
    size_t bytes;
    struct op_memory *shared; // where the memory is another operand's
};

struct op_instance {
    const struct op_info *info;
    struct call call;
    struct op_memory in[OP_MAX_IN], out[OP_MAX_OUT], workspace;
};

// The op that a case is about; OP_COUNT when its first word is not an op.
enum op op_case_op(const struct op_table *table, const struct op_case *c);
// Bits (as in op_options.absent) of the operands that a case may leave out in a model of that dtype.
unsigned op_optional(const struct op_info *info);

// Makes operands; those of backward ops come from a run of the forward op's reference kernel. Caller releases, also
// after a failure.
trireme_status op_instance_create(struct op_instance *instance, const struct op_table *table, const char *spec,
                                  const struct op_options *options, trireme_error *error);
// Copies the operands of an instance that has not run.
void op_instance_copy(struct op_instance *to, const struct op_instance *from);
void op_instance_release(struct op_instance *instance);
// Prepares and runs the kernel, then checks that it wrote its outputs and nothing else. May be called again, on what
// the first run has left.
trireme_status op_instance_run(struct op_instance *instance, const struct kernel *kernel, trireme_error *error);

// Runs `kernel` twice under `options`, which must give the same bits, and the reference kernel on plain operands.
// `exact`: the two must agree bit for bit; else within a tolerance that depends on the dtype of each output alone.
trireme_status op_compare(const struct op_table *table, const char *spec, const struct op_options *options,
                          const struct kernel *kernel, bool exact, trireme_error *error);
// Compares the reference kernel in dtype `model` with itself in f64 on the same (rounded) operands.
trireme_status op_compare_dtypes(const struct op_table *table, const char *spec, enum dtype model,
                                 trireme_error *error);
// Compares the gradients of backward, loss and identity-adjoint ops, as `kernel` computes them, with finite
// differences. *checked becomes the number of elements that were compared: 0 for all other ops.
trireme_status op_gradient(const struct op_table *table, const char *spec, unsigned absent, const struct kernel *kernel,
                           int64_t *checked, trireme_error *error);

struct op_timing {
    double seconds; // median of several runs
    double flops;   // of one run
};
trireme_status op_time(const struct op_table *table, const char *spec, const struct op_options *options,
                       const struct kernel *kernel, struct op_timing *timing, trireme_error *error);

#endif
