// Long collectives of groups that have several members on each of several nodes. What can stay on a node stays there,
// and every byte that must leave crosses the network once: the members of a node reduce what they have for another node
// before it is sent, and share what arrives (two-level collectives, as in MPI libraries and NCCL's trees). Member (n,
// l) is the l-th of node n; it exchanges data with the members of its node and with its peers, the l-th members of all
// other nodes. Segments are pipelined, so that the network and the node's memory work at the same time.
//
// A result is the sum of the nodes' sums, each in the order of indices: the same bits each time, but not those that the
// same ranks would get on one node. Values that travel as bf16 are rounded once more on their way between nodes.
#include "comm/messages/messages.h"

enum { PIECE = 1 << 20 }; // bytes: blocks are gathered in pieces

static int nodes_at(const struct process_communicator *c, int node, int local) {
    return c->nodes.member[node * c->nodes.locals + local];
}

// The k-th other member of this node, k from 1, beginning with the next in the circle.
static int local_to(const struct process_communicator *c, int k) {
    return (c->nodes.local + k) % c->nodes.locals;
}

static int local_from(const struct process_communicator *c, int k) {
    return (c->nodes.local + c->nodes.locals - k) % c->nodes.locals;
}

static int nodes_neighbour(const struct process_communicator *c, int local) {
    return nodes_at(c, c->nodes.node, local);
}

static int peer_to(const struct process_communicator *c, int k) {
    return nodes_at(c, (c->nodes.node + k) % c->nodes.count, c->nodes.local);
}

static int peer_from(const struct process_communicator *c, int k) {
    return nodes_at(c, (c->nodes.node + c->nodes.count - k) % c->nodes.count, c->nodes.local);
}

// ---- giving all members what each has: first to its peers, then each of them to the members of its node

// Where piece `number` of what `member` gives lies on every member.
typedef char *piece_function(const struct process_communicator *c, int member, int number, int64_t *bytes);

static void share_across(struct process_communicator *c, int number, piece_function *piece) {
    int64_t bytes;
    for (int k = 1; k < c->nodes.count; k++) {
        char *to = piece(c, peer_from(c, k), number, &bytes);
        round_receive(c, peer_from(c, k), MESSAGE_DATA, to, bytes);
    }
    const char *own = piece(c, c->base.index, number, &bytes);
    for (int k = 1; k < c->nodes.count; k++)
        round_send(c, peer_to(c, k), MESSAGE_DATA, own, bytes);
}

static void share_within(struct process_communicator *c, int number, piece_function *piece) {
    const struct group_nodes *g = &c->nodes;
    int64_t bytes;
    for (int k = 1; k < g->locals; k++)
        for (int n = 0; n < g->count; n++) {
            char *to = piece(c, nodes_at(c, n, local_from(c, k)), number, &bytes);
            round_receive(c, nodes_neighbour(c, local_from(c, k)), MESSAGE_DATA, to, bytes);
        }
    for (int k = 1; k < g->locals; k++)
        for (int n = 0; n < g->count; n++) {
            const char *from = piece(c, nodes_at(c, n, g->local), number, &bytes);
            round_send(c, nodes_neighbour(c, local_to(c, k)), MESSAGE_DATA, from, bytes);
        }
}

// ---- reductions

static int64_t part_bytes(const struct process_communicator *c, int member, int number) {
    int64_t begin;
    return part_segment(c, member, number, &begin) * dtype_size(c->call->wire);
}

// Sends each member of this node the contributions to its own part and to those of all its peers.
static void post_within(struct process_communicator *c, int number) {
    const struct group_nodes *g = &c->nodes;
    for (int k = 1; k < g->locals; k++)
        for (int n = 0; n < g->count; n++) {
            int from = local_from(c, k), of = nodes_at(c, n, g->local);
            round_receive(c, nodes_neighbour(c, from), MESSAGE_DATA,
                          part_staging(c, STAGING_RECEIVED, nodes_at(c, n, from)), part_bytes(c, of, number));
        }
    for (int k = 1; k < g->locals; k++)
        for (int n = 0; n < g->count; n++) {
            int to = local_to(c, k), of = nodes_at(c, n, to);
            const void *data = part_contribution(c, of, number, part_staging(c, STAGING_SENT, of));
            round_send(c, nodes_neighbour(c, to), MESSAGE_DATA, data, part_bytes(c, of, number));
        }
}

// Makes the node's sums for the parts of this member and of its peers.
static void reduce_within(struct process_communicator *c, int number) {
    const struct group_nodes *g = &c->nodes;
    for (int n = 0; n < g->count; n++) {
        int of = nodes_at(c, n, g->local);
        int64_t begin, count = part_segment(c, of, number, &begin);
        for (int l = 0; l < g->locals; l++)
            c->contribution[l] = part_staging(c, STAGING_RECEIVED, nodes_at(c, n, l));
        c->contribution[g->local] = part_contribution(c, of, number, part_staging(c, STAGING_RECEIVED, of));
        part_reduce(c, g->locals, count, part_staging(c, STAGING_SENT, of));
    }
}

static void post_across(struct process_communicator *c, int number) {
    for (int k = 1; k < c->nodes.count; k++) {
        int from = peer_from(c, k);
        round_receive(c, from, MESSAGE_DATA, part_staging(c, STAGING_ACROSS, from),
                      part_bytes(c, c->base.index, number));
    }
    for (int k = 1; k < c->nodes.count; k++) {
        int to = peer_to(c, k);
        round_send(c, to, MESSAGE_DATA, part_staging(c, STAGING_SENT, to), part_bytes(c, to, number));
    }
}

static void reduce_across(struct process_communicator *c, int number) {
    const struct group_nodes *g = &c->nodes;
    for (int n = 0; n < g->count; n++)
        c->contribution[n] = part_staging(c, n == g->node ? STAGING_SENT : STAGING_ACROSS, nodes_at(c, n, g->local));
    part_finish(c, g->count, number);
}

static bool is_under_way(int number, int count) {
    return number >= 0 && number < count;
}

void reduce_scatter_nodes(struct process_communicator *c) {
    int number = c->round++, count = part_segments(c);
    // This comes before the node's sums of the next segment, which take the same place.
    if (is_under_way(number - 2, count))
        reduce_across(c, number - 2);
    if (is_under_way(number - 1, count))
        reduce_within(c, number - 1);
    round_begin(c, number <= count ? reduce_scatter_nodes : NULL);
    if (is_under_way(number, count))
        post_within(c, number);
    if (is_under_way(number - 1, count))
        post_across(c, number - 1);
}

void all_reduce_nodes(struct process_communicator *c) {
    int number = c->round++, count = part_segments(c);
    if (is_under_way(number - 4, count))
        part_widen(c, number - 4);
    if (is_under_way(number - 2, count))
        reduce_across(c, number - 2);
    if (is_under_way(number - 1, count))
        reduce_within(c, number - 1);
    round_begin(c, number <= count + 2 ? all_reduce_nodes : NULL);
    if (is_under_way(number, count))
        post_within(c, number);
    if (is_under_way(number - 1, count))
        post_across(c, number - 1);
    if (is_under_way(number - 2, count))
        share_across(c, number - 2, part_result);
    if (is_under_way(number - 3, count))
        share_within(c, number - 3, part_result);
}

// ---- all-gather

static char *piece_of(const struct process_communicator *c, int member, int number, int64_t *bytes) {
    int64_t block = comm_call_bytes(c->call), begin = (int64_t)number * PIECE;
    *bytes = MIN(block - begin, PIECE);
    return (char *)c->call->out + member * block + begin;
}

void all_gather_nodes(struct process_communicator *c) {
    int64_t block = comm_call_bytes(c->call);
    int number = c->round++, count = (int)divide_up(block, PIECE);
    char *own = (char *)c->call->out + c->base.index * block;
    if (number == 0 && own != c->call->in) // from here on it is sent
        copy_bytes(own, c->call->in, block, false);
    round_begin(c, number < count ? all_gather_nodes : NULL);
    if (is_under_way(number, count))
        share_across(c, number, piece_of);
    if (is_under_way(number - 1, count))
        share_within(c, number - 1, piece_of);
}

// ---- broadcast: the root sends one part to each member of its node, these send it to their peers, and all members of
// a node exchange their parts

static char *nodes_part(const struct process_communicator *c, int local, int64_t *bytes) {
    int64_t begin = part_begin(c->call->count, 1, c->nodes.locals, local);
    *bytes = part_begin(c->call->count, 1, c->nodes.locals, local + 1) - begin;
    return (char *)c->call->out + begin;
}

static int root_node(const struct process_communicator *c) {
    int i = 0;
    while (c->nodes.member[i] != c->call->peer)
        i++;
    return i / c->nodes.locals;
}

static void nodes_deal(struct process_communicator *c) {
    int64_t bytes;
    if (root_node(c) != c->nodes.node)
        return;
    if (c->base.index != c->call->peer) {
        char *own = nodes_part(c, c->nodes.local, &bytes);
        round_receive(c, c->call->peer, MESSAGE_DATA, own, bytes);
        return;
    }
    for (int k = 1; k < c->nodes.locals; k++) {
        const char *theirs = nodes_part(c, local_to(c, k), &bytes);
        round_send(c, nodes_neighbour(c, local_to(c, k)), MESSAGE_DATA, theirs, bytes);
    }
}

static void hand_on(struct process_communicator *c) {
    int64_t bytes;
    char *own = nodes_part(c, c->nodes.local, &bytes);
    if (root_node(c) != c->nodes.node) {
        round_receive(c, nodes_at(c, root_node(c), c->nodes.local), MESSAGE_DATA, own, bytes);
        return;
    }
    for (int k = 1; k < c->nodes.count; k++)
        round_send(c, peer_to(c, k), MESSAGE_DATA, own, bytes);
}

static void nodes_exchange(struct process_communicator *c) {
    int64_t bytes;
    for (int k = 1; k < c->nodes.locals; k++) {
        int from = local_from(c, k), to = nodes_neighbour(c, local_to(c, k));
        if (c->base.index != c->call->peer) {
            char *theirs = nodes_part(c, from, &bytes);
            round_receive(c, nodes_neighbour(c, from), MESSAGE_DATA, theirs, bytes);
        }
        if (to != c->call->peer) {
            const char *own = nodes_part(c, c->nodes.local, &bytes);
            round_send(c, to, MESSAGE_DATA, own, bytes);
        }
    }
}

void broadcast_nodes(struct process_communicator *c) {
    static void (*const STEP[])(struct process_communicator * c) = {nodes_deal, hand_on, nodes_exchange};
    int number = c->round++;
    round_begin(c, number < (int)ARRAY_LENGTH(STEP) ? broadcast_nodes : NULL);
    if (number < (int)ARRAY_LENGTH(STEP))
        STEP[number](c);
}
