// Training programs of one rank that tests make op by op: some forward ops between inputs and logits; loss, backward
// pass and update are added to them. All in f64, on reference kernels, unless a test sets another dtype.
#ifndef SUPPORT_GRAPH_H
#define SUPPORT_GRAPH_H

#include "compile/differentiate.h"

enum { GRAPH_ROWS = 4, GRAPH_CLASSES = 5 };

struct graph {
    struct op_table *table;
    struct program program;
    struct gradients gradients;
    enum dtype dtype;
    int forward, backward;                    // templates
    int targets, scale, loss;                 // buffers
    int losses;                               // graph_loss has emitted
    VEC(int) parameters, parameter_gradients; // buffers
    int named;
};

void graph_create(struct graph *graph, int microbatches);
void graph_release(struct graph *graph);
// A parameter, and an input of each microbatch.
struct operand graph_parameter(struct graph *graph, int ndim, const int64_t *dim);
struct operand graph_input(struct graph *graph, int64_t rows, int64_t columns);
// An input of GRAPH_ROWS integers, of which the i-th is from 0 to i.
struct operand graph_indices(struct graph *graph);
// A new activation, for graph_emit to write.
struct operand graph_tensor(struct graph *graph, int ndim, const int64_t *dim);
void graph_emit(struct graph *graph, enum op op, int inputs, const struct operand *in, int outputs,
                const struct operand *out, const union attribute *attribute);
// Emits an op of one output, [rows, columns], and returns that.
struct operand graph_op(struct graph *graph, enum op op, int inputs, const struct operand *in, int64_t rows,
                        int64_t columns, const union attribute *attribute);
// Columns [first, first + columns) of a matrix.
struct operand graph_columns(struct operand matrix, int64_t first, int64_t columns);
// Emits the loss of logits [GRAPH_ROWS, GRAPH_CLASSES]; several losses add up.
void graph_loss(struct graph *graph, struct operand logits);
// Derives the backward pass.
trireme_status graph_differentiate(struct graph *graph, trireme_error *error);
// Emits the update and plans; graph_compile also verifies. To be called once, after graph_differentiate.
trireme_status graph_plan(struct graph *graph, trireme_error *error);
trireme_status graph_compile(struct graph *graph, trireme_error *error);
// Compares the gradients of all parameters along random directions with finite differences, and fails the test where
// they differ. The graph has been planned.
void graph_check_gradients(struct graph *graph, uint64_t seed);
// How many instructions of that op the backward template has.
int graph_count(const struct graph *graph, enum op op);

#endif
