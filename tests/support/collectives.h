// Collectives against plain sums in order of index, bit by bit, for teams on any transport.
#ifndef SUPPORT_COLLECTIVES_H
#define SUPPORT_COLLECTIVES_H

#include "support/team.h"

enum { COLLECTIVES_RANKS = 10 }; // at most

enum { COLLECTIVE_KINDS = 10 };
extern const struct collective_kind {
    enum dtype dtype, wire;
    enum reduction reduction;
} collective_kinds[COLLECTIVE_KINDS];
// Elements [first, first + count) of what `rank` gives.
void collective_fill(char *to, enum dtype dtype, int rank, int64_t first, int64_t count);

// Bodies of a team.
void collectives_reduce(struct teammate *mate);
void collectives_move(struct teammate *mate);
// Data that go in several pieces: the context is a const int64_t, the elements.
void collectives_large(struct teammate *mate);
// Several calls under way at a time, ended in another order.
void collectives_begin(struct teammate *mate);

#endif
