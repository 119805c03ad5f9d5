// Memory that is taken, and when, for many entries that come in any order of time: a segment tree (Bentley 1977) over
// the times at which anything begins. Each node knows what is taken during all of its times, and what begins at one of
// them, as pieces of memory that do not touch one another: much memory that lies side by side makes few pieces, where
// span_list.h looks at every entry. Internal to memory/.
#ifndef MEMORY_SEGMENT_TREE_H
#define MEMORY_SEGMENT_TREE_H

#include "base/base.h"

struct piece {
    int64_t begin, end;
};
struct pieces {
    struct piece *item; // by place
    int count, capacity;
};
// Whatever is searched for or added begins at one of the times `start`.
struct taken {
    int *start; // ascending, each once
    size_t starts;
    size_t leaves;                       // a power of two
    struct pieces *covering, *beginning; // [2 leaves]: of nodes; 1 is the root, 2n and 2n + 1 are the halves of n
};

// With nothing taken. times[count], on the heap, becomes its own.
void taken_create(struct taken *taken, int *times, size_t count);
void taken_release(struct taken *taken);
// The lowest offset at which `bytes` bytes are free from `first` to `last`, inclusive.
int64_t taken_lowest(const struct taken *taken, int first, int last, int64_t bytes);
void taken_add(struct taken *taken, int first, int last, int64_t offset, int64_t bytes);

#endif
