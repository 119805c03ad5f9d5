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
// The bytes of all ops over a group.
double exchanges_bytes(const struct exchanges *exchanges, axis_set group);
// Whether the program exchanges messages with the rank at this distance along the pipeline.
bool exchanges_reach(const struct program *program, int distance);

#endif
