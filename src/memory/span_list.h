// Memory that is taken, and when, as an array by offset: greedy placement searches it so often that its entries lie
// side by side. Internal to memory/.
#ifndef MEMORY_SPAN_LIST_H
#define MEMORY_SPAN_LIST_H

#include "base/base.h"

struct span {
    int64_t offset, end;
    int first, last; // in use from one time to another, inclusive
};
typedef VEC(struct span) spans;

// The lowest offset at which `bytes` bytes are free from `first` to `last`, inclusive.
int64_t spans_lowest(const spans *by_offset, int first, int last, int64_t bytes);
void spans_insert(spans *by_offset, struct span span);
// Inserts many at once, in about the time that one takes, and leaves `more` empty.
void spans_merge(spans *by_offset, spans *more);

#endif
