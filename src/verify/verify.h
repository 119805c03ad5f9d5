// verify/: proves planned programs sound, each by itself and those of all ranks together, from the programs alone.
// Includes program/ and the folders before it; knows neither the model nor how a program came to be.
#ifndef VERIFY_VERIFY_H
#define VERIFY_VERIFY_H

#include "program/program.h"

// Proves the planned program sound or refuses it, naming template, instruction and buffer:
//   memory     every read has a write before it; no buffer is overwritten or its memory reused while it is needed, and
//              in training none changes once it has been read, and only gradients are changed in place; what other
//              streams touch is ordered by waits; shapes and dtypes obey ops.def
//   extents    numbers of rows that an instruction goes by add up to the rows that there are
//   placement  on many ranks: partial sums are reduced once, over the right axes, before anything but sums takes them;
//              what is split is split alike where it meets; every parameter ends up placed as it began
//   gradients  the backward pass is the transpose of the forward pass: each use of each tensor contributes exactly once
//              per microbatch, and no gradient is read before it is complete
//   update     the loss is the mean over all targets of the global batch; the norm counts every gradient once; each
//              parameter is updated exactly once, from its own gradient and states, clipped by that norm
//   outer      where islands meet, each parameter is taken, weighed and set once, as itself
trireme_status program_verify(const struct program *program, const struct op_table *table, trireme_error *error);
// Proves that the programs of all ranks of a mesh, each sound by itself, are sound together: one program for each
// coordinate along AXIS_PP. In every group all members make the same calls in the same order, with equal counts and
// types; sends meet receives of equal size, placed alike; the whole set runs to its end. A refusal names the rank, the
// instruction, the buffer, the group and the other rank.
trireme_status stage_programs_meet(const struct program *const *program_of_stage, const struct op_table *table,
                                   trireme_error *error);
// Proves of two sound programs of one rank that `after` may run on the state that `before` leaves, whatever other
// programs that are proved so run in between: what `after` takes to be there is the same thing to both, lies where it
// lies in `before`, and is as current and placed as `after` expects; and nothing that `before` writes lies over it.
trireme_status program_follows(const struct program *before, const struct program *after, trireme_error *error);
// Proves of two sound programs of one rank that they may run at one time: what one of them writes to the state, the
// other neither reads nor writes, and they communicate on streams of different names, between other groups or on other
// channels. (Their step arenas are the caller's to keep apart.)
trireme_status program_beside(const struct program *a, const struct program *b, const struct op_table *table,
                              trireme_error *error);
// program_verify of each program, and that they are sound together, whatever a rank's program depends on; ranks that
// share a program share the pointer.
trireme_status programs_verify(const struct program *const *program_of_rank, int ranks, const struct op_table *table,
                               trireme_error *error);

#endif
