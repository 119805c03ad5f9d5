// The slices of each buffer.
#ifndef PROGRAM_SLICES_H
#define PROGRAM_SLICES_H

#include "program/program.h"

// Of buffers that have this one as parent, the first; of a slice, the next of its parent. In order of number; NONE at
// the end.
struct slices {
    int *first, *next;
};

void slices_create(struct slices *slices, const struct program *program);
void slices_release(struct slices *slices);

#define FOR_SLICES(slices, s, buffer) for (int s = (slices)->first[buffer]; (s) != NONE; s = (slices)->next[s])

#endif
