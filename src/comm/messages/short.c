// Calls whose data have come with the headers: the rest of the call needs no other rank.
#include "comm/messages/messages.h"

static void short_reduce(struct process_communicator *c, bool all) {
    const struct comm_call *call = c->call;
    int64_t own = all ? 0 : c->base.index * call->count;
    c->contribution[c->base.index] = (const char *)call->in + own * dtype_size(call->dtype);
    reduce_elements(call, all, c->contribution, c->base.size, 0, call->count, call->out, false, c->chunk);
    round_begin(c, NULL);
}

void all_reduce_headers(struct process_communicator *c) {
    short_reduce(c, true);
}

void reduce_scatter_headers(struct process_communicator *c) {
    short_reduce(c, false);
}

static void short_gather(struct process_communicator *c, int64_t bytes, int64_t own) {
    for (int i = 0; i < c->base.size; i++)
        copy_bytes((char *)c->call->out + i * bytes,
                   i == c->base.index ? (const char *)c->call->in + own : c->contribution[i], bytes, false);
    round_begin(c, NULL);
}

void all_gather_headers(struct process_communicator *c) {
    short_gather(c, comm_call_bytes(c->call), 0);
}

void all_to_all_headers(struct process_communicator *c) {
    short_gather(c, c->call->count, c->base.index * c->call->count);
}

void broadcast_headers(struct process_communicator *c) {
    if (c->call->peer != c->base.index)
        copy_bytes(c->call->out, c->contribution[c->call->peer], c->call->count, false);
    round_begin(c, NULL);
}

void barrier_headers(struct process_communicator *c) {
    round_begin(c, NULL);
}
