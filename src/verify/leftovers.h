// Bytes that nobody holds: what is left of a buffer's memory when others have taken the rest of it. Whoever takes these
// bytes later must be ordered after what was done with that buffer. Internal to verify/.
#ifndef VERIFY_LEFTOVERS_H
#define VERIFY_LEFTOVERS_H

#include "verify/number_set.h"

struct leftover {
    int64_t end;
    int root;                     // the buffer that held it
    int32_t touched[STREAMS_MAX]; // clocks of its last access on each stream
};

// Leftovers begin and end at edges, and no two overlap.
struct leftovers {
    int64_t *edge; // addresses, ascending
    int edges;
    struct leftover *from;   // [edges]: the one that begins there, where `begun` has the edge
    struct number_set begun; // numbers of edges
};

// edge[count]: the addresses at which holders of memory begin and end, in any order.
void leftovers_create(struct leftovers *leftovers, const int64_t *edge, size_t count);
void leftovers_release(struct leftovers *leftovers);
// Adds [begin, end), unless that is empty; it is nobody's yet.
void leftovers_add(struct leftovers *leftovers, int root, int64_t begin, int64_t end,
                   const int32_t touched[STREAMS_MAX]);
// Takes all that is left over in [begin, end). Returns the root that held the lowest piece of it that was touched later
// than `known` says, or NONE.
int leftovers_take(struct leftovers *leftovers, int64_t begin, int64_t end, const int32_t known[STREAMS_MAX]);

#endif
