// Bytes that nobody holds: what is left over when others take the rest of what held them. Who takes these, too, must
// come behind what that did. Internal to program/.
#ifndef PROGRAM_LEFTOVERS_H
#define PROGRAM_LEFTOVERS_H

#include "program/number_set.h"

struct leftover {
    int64_t end;
    int root; // buffer that held it
    int32_t touched[STREAM_COUNT];
};

// All of them begin and end at edges, and no two overlap.
struct leftovers {
    int64_t *edge; // addresses, ascending
    int edges;
    struct leftover *from;   // [edges]: what begins there,
    struct number_set begun; // if anything does
};

// Of memory whose holders begin and end at addresses edge[count], in any order.
void leftovers_create(struct leftovers *leftovers, const int64_t *edge, size_t count);
void leftovers_release(struct leftovers *leftovers);
// Adds [begin, end), unless that is empty; it is nobody's yet.
void leftovers_add(struct leftovers *leftovers, int root, int64_t begin, int64_t end,
                   const int32_t touched[STREAM_COUNT]);
// Takes what there is of [begin, end). NONE, or the lowest root that held some of it and was touched later than is
// known.
int leftovers_take(struct leftovers *leftovers, int64_t begin, int64_t end, const int32_t known[STREAM_COUNT]);

#endif
