// The slices of each buffer.
#ifndef PROGRAM_SLICES_H
#define PROGRAM_SLICES_H

#include "program/program.h"

// [buffers]. `first`: the first buffer that has this one as its parent; `next`: the next one with the same parent. In
// order of number; NONE where there is none.
struct slices {
    int *first, *next;
};

void slices_create(struct slices *slices, const struct program *program);
void slices_release(struct slices *slices);

#define FOR_SLICES(slices, s, buffer) for (int s = (slices)->first[buffer]; (s) != NONE; s = (slices)->next[s])

#endif
