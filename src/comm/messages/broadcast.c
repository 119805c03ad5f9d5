// Long broadcast: the root sends each member one part, and all exchange their parts.
#include "comm/messages/messages.h"

static char *broadcast_part(const struct process_communicator *c, int member, int64_t *bytes) {
    int64_t begin = part_begin(c->call->count, 1, c->base.size, member);
    *bytes = part_begin(c->call->count, 1, c->base.size, member + 1) - begin;
    return (char *)c->call->out + begin;
}

static void broadcast_is_whole(struct process_communicator *c) {
    round_begin(c, NULL);
}

static void broadcast_exchange(struct process_communicator *c) {
    int size = c->base.size, index = c->base.index, root = c->call->peer;
    int64_t bytes;
    round_begin(c, broadcast_is_whole);
    for (int k = 1; k < size; k++) {
        int from = (index + size - k) % size, to = (index + k) % size;
        if (index != root) {
            char *theirs = broadcast_part(c, from, &bytes);
            round_receive(c, from, MESSAGE_DATA, theirs, bytes);
        }
        if (to != root) {
            const char *own = broadcast_part(c, index, &bytes);
            round_send(c, to, MESSAGE_DATA, own, bytes);
        }
    }
}

void broadcast_parts(struct process_communicator *c) {
    int64_t bytes;
    round_begin(c, broadcast_exchange);
    if (c->base.index != c->call->peer) {
        char *own = broadcast_part(c, c->base.index, &bytes);
        round_receive(c, c->call->peer, MESSAGE_DATA, own, bytes);
        return;
    }
    for (int k = 1; k < c->base.size; k++) {
        int to = (c->base.index + k) % c->base.size;
        const char *theirs = broadcast_part(c, to, &bytes);
        round_send(c, to, MESSAGE_DATA, theirs, bytes);
    }
}
