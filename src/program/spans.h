// Memory that is taken, and when: what greedy placing looks at, so often that it lies side by side. Internal to
// program/.
#ifndef PROGRAM_SPANS_H
#define PROGRAM_SPANS_H

#include "base/base.h"

struct span {
    int64_t offset, end;
    int first, last; // in use from one time to another, inclusive
};
typedef VEC(struct span) spans;

// The lowest offset for so many bytes where, of spans by offset, nothing stands that is in use from `first` to `last`.
int64_t spans_lowest(const spans *by_offset, int first, int last, int64_t bytes);
void spans_insert(spans *by_offset, struct span span);
// Many at once, in the time that one takes; `more` is empty then.
void spans_merge(spans *by_offset, spans *more);

#endif
