// Messages that share links (struct link_level, wiring). Those that are under way at one time have equal parts of a
// link's bandwidth; of two links that a message goes over, the one with more of them decides how fast it is. Bandwidth
// that this leaves on the other link is not used by others: among equal messages there is none.
//
// Whoever simulates adds a message when both of its ends have come, and takes the one that ends next when nothing else
// can be simulated before. All that comes later then begins later, and what a message shares is known until it ends.
// Internal to sim/.
#ifndef SIM_TRANSFERS_H
#define SIM_TRANSFERS_H

#include "sim/topology.h"

// A message from one class of ranks to another, by their streams.
struct transfer {
    int use; // of links, as the sender knows it: an index of the topology's
    int sender, sender_stream, receiver, receiver_stream;
    double begin;   // when both ends have come
    double latency; // seconds from then on in which nothing travels
    double left;    // seconds that the rest of it would take alone
};

struct transfers {
    double now;
    VEC(struct transfer) waiting;   // nothing of them travels yet
    VEC(struct transfer) under_way; // what they have left is that of `now`
    int classes;
    int (*link)[2]; // [uses][classes]: what a message goes over; NONE. The same one twice: it counts as two messages
    int *load;      // of each link: messages
};

// After topology_classify.
void transfers_create(struct transfers *out, const struct topology *topology);
void transfers_release(struct transfers *transfers);
// Whether messages of a use that the class sends share links with any others.
bool transfers_share(const struct transfers *transfers, int use, int sender);
void transfers_add(struct transfers *transfers, const struct transfer *transfer);
// Takes out the message that ends next, at `now`; false: there is none.
bool transfers_next(struct transfers *transfers, struct transfer *out);

#endif
