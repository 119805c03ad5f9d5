// Processes of one machine: which ranks are on this node, which cores they may use, what the system lets their
// processes do with one another, and whether they are alive. Knows no way to send anything: what ranks tell one another
// is for the caller to exchange.
#ifndef COMM_NEAR_NEIGHBOURS_H
#define COMM_NEAR_NEIGHBOURS_H

#include "comm/transport.h"

// Nanoseconds between seeing that another rank's process or memory is gone and failing for that reason. It may be gone
// because the world is already broken: then the reason was sent to this rank too, and may not have been received yet.
enum { NEIGHBOUR_GRACE = 100000000 };
#define NEIGHBOUR_HAS_DIED "the process of rank %d on %s has died"

struct pollfd;
struct presence; // what each rank tells the others about itself

struct neighbours {
    int *node;              // [ranks]: numbered by their first ranks
    int64_t *process_id;    // [ranks]
    bool shares, reads;     // whether this rank can share memory with all others of its node, and read theirs
    struct pollfd *watched; // pidfds of the other ranks of this machine
    int *watched_rank, watched_count;
};

// What this rank has to tell. `node` (may be NULL): ranks that differ in it are on nodes of their own, on one machine,
// too. It must stay in place until all ranks have called neighbours_find.
struct presence *presence_create(const char *node);
void presence_free(struct presence *presence);
size_t presence_bytes(void);
// Fills in the place, in which ranks and rank are given already, from what all[ranks] ranks tell. The caller releases
// *out, frees place->host, and sees to it that all ranks have the same `shares` and `reads`.
void neighbours_find(struct neighbours *out, struct world_place *place, const struct presence *all);
void neighbours_release(struct neighbours *neighbours);
// A rank of this machine whose process has died, or -1.
int neighbours_dead(struct neighbours *neighbours);

#endif
