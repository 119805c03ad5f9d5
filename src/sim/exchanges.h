// What a run of a program communicates, by group and op.
#ifndef SIM_EXCHANGES_H
#define SIM_EXCHANGES_H

#include "program/program.h"

struct exchange {
    axis_set group; // of axes with more than one rank
    enum op op;
    int64_t count; // instructions that run, counting those that a predicate may skip
    double bytes;  // of the whole tensors that they communicate (communicated_bytes)
};
struct exchanges {
    VEC(struct exchange);
};
// Adds those of a program. Where there is an entry of the same group and op, that with more bytes stays: so programs of
// all stages come to what the busiest rank has. The caller releases the vector.
void exchanges_add(struct exchanges *out, const struct program *program);
// Sets the bytes that each rank of the program sends to others, by the outermost axis of the group: the mean of the
// group's ranks. As comm/ sends them: of n ranks each sends the n - 1 others their parts of a tensor that is gathered,
// scattered or exchanged, both ways in a sum; one that sends a message, all of it. Of rows whose number depends on
// values, as many as there is room for. What comm/ says besides, such as which call this is, does not count.
void program_sends(const struct program *program, double sent[AXIS_COUNT]);
// The bytes of all ops over a group.
double exchanges_bytes(const struct exchanges *exchanges, axis_set group);
// Whether the program exchanges messages with the rank at this distance along the pipeline.
bool exchanges_reach(const struct program *program, int distance);

#endif
