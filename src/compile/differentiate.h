// Derives the backward pass from the forward pass: the adjoint column of ops.def, walked in reverse.
#ifndef COMPILE_DIFFERENTIATE_H
#define COMPILE_DIFFERENTIATE_H

#include "program/footprint.h"

// A part of the gradient of `to`, a view of a tensor of the forward pass, that is in `from` and waits to be added.
struct gradient_term {
    struct operand from, to;
    bool passes; // it is the gradient of a sum that `to` enters, else a buffer of its own
};

// What is known of each buffer's gradient while backward instructions are emitted.
struct gradients {
    struct program *program;
    const struct op_table *table;
    VEC(int) of;                     // buffer -> the buffer that holds its gradient, or NONE
    VEC(bool) wanted;                // buffer -> it is a parameter, or depends on one
    VEC(struct written) contributed; // gradient -> what of it this microbatch has contributed to
    int stream[STREAMS_MAX];         // stream -> the one that the gradients of what is communicated on it go on
    VEC(struct gradient_term) terms;
    int named; // terms that have got buffers
    trireme_status status;
    trireme_error error; // why there is no gradient
};

void gradients_init(struct gradients *gradients, struct program *program, const struct op_table *table);
// Says whether all gradients that were asked for could be derived, and releases what init has made. A model that cannot
// be differentiated is TRIREME_ERROR_PROGRAM; the message names the instruction and what lacks a gradient.
trireme_status gradients_finish(struct gradients *gradients, trireme_error *error);
// Declares that gradients of what is communicated on stream `from` go on `to`; else they go on the same stream.
void gradients_stream(struct gradients *gradients, int from, int to);
// Declares that buffer `gradient` accumulates the gradient of `parameter`.
void gradients_add_parameter(struct gradients *gradients, int parameter, int gradient);
// Returns the buffer for the gradient of `buffer`, to all of which the caller will emit a contribution.
int gradients_contribute(struct gradients *gradients, int buffer);
// Marks the outputs of instructions [first, last) of `from` that depend on parameters. Calls go in the order of the
// forward pass, before differentiate is called for these instructions or any that follow them.
void gradients_want(struct gradients *gradients, int from, size_t first, size_t last);
// Appends to template `into` the backward instructions of instructions [first, last) of template `from` (which may be
// `into`), last to first. Calls go from the end of the forward pass to its beginning. After a failure, which
// gradients_finish reports, it does nothing.
void differentiate(struct gradients *gradients, int from, size_t first, size_t last, int into);
// The same for the gradients of parameters alone: those of the instructions' other inputs are the caller's to make.
void differentiate_parameters(struct gradients *gradients, int from, size_t first, size_t last, int into);
// Appends to template `into` what completes the gradient of a buffer, if it has one: for a buffer that another template
// reads the gradient of, so that it reads nothing else of this one.
void gradients_complete(struct gradients *gradients, int buffer, int into);

#endif
