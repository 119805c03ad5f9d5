// Bytes that nobody holds: what is left over when others take the rest of what held them. Who takes these, too, must
// come behind what that did. Internal to program/.
#ifndef PROGRAM_LEFTOVERS_H
#define PROGRAM_LEFTOVERS_H

#include "program/program.h"

struct leftover {
    int64_t begin, end;
    int root; // buffer that held it
    int32_t touched[STREAM_COUNT];
};

struct leftovers {
    VEC(struct leftover) list; // by address, disjoint
};

// Adds [begin, end), unless that is empty; it is nobody's yet.
void leftovers_add(struct leftovers *leftovers, int root, int64_t begin, int64_t end,
                   const int32_t touched[STREAM_COUNT]);
// Takes what there is of [begin, end). NONE, or a root that held some of it and was touched later than is known.
int leftovers_take(struct leftovers *leftovers, int64_t begin, int64_t end, const int32_t known[STREAM_COUNT]);
void leftovers_release(struct leftovers *leftovers);

#endif
