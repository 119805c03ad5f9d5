// Derives the backward pass from the forward pass: the adjoint column of ops.def, walked in reverse.
#ifndef COMPILE_DIFFERENTIATE_H
#define COMPILE_DIFFERENTIATE_H

#include "program/program.h"

// What is known of each buffer's gradient while backward instructions are emitted.
struct gradients {
    struct program *program;
    const struct op_table *table;
    VEC(int) of;             // buffer -> the buffer that holds its gradient, or NONE
    VEC(int) passed;         // buffer -> a gradient that passes to it unchanged and waits to be added, or NONE
    VEC(bool) contributed;   // buffer -> something was written to its gradient in this microbatch
    VEC(bool) in_part;       // buffer -> something was written to the gradient of a slice of it
    VEC(bool) wanted;        // buffer -> it is a parameter, or depends on one
    int stream[STREAMS_MAX]; // stream -> the one that the gradients of what is communicated on it go on
};

void gradients_init(struct gradients *gradients, struct program *program, const struct op_table *table);
void gradients_release(struct gradients *gradients);
// Declares that gradients of what is communicated on stream `from` go on `to`; else they go on the same stream.
void gradients_stream(struct gradients *gradients, int from, int to);
// Declares that buffer `gradient` accumulates the gradient of `parameter`.
void gradients_add_parameter(struct gradients *gradients, int parameter, int gradient);
// Returns the buffer for the gradient of `buffer`, to which the caller will emit a contribution.
int gradients_contribute(struct gradients *gradients, int buffer);
// Appends to template `into` the backward instructions of instructions [first, last) of template `from` (which may be
// `into`), last to first. Calls go from the end of the forward pass to its beginning.
void differentiate(struct gradients *gradients, int from, size_t first, size_t last, int into);
// Marks the outputs of instructions [first, last) of `from` that depend on parameters. Calls go in the order of the
// forward pass, before differentiate is called for these instructions or any that follow them.
void gradients_want(struct gradients *gradients, int from, size_t first, size_t last);

#endif
