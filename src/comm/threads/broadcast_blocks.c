// Long broadcast: member i writes part i of the root's data to all, so that all share the work.
#include "comm/threads/threads.h"

enum { PIECE = 16384 };

trireme_status broadcast_blocks(struct thread_communicator *c, const struct comm_call *call, trireme_error *error) {
    const void *const *in;
    void *const *out;
    TRY(call_share(c, call, &in, &out, error));
    int ranks = c->base.size;
    int64_t end = part_begin(call->count, 1, ranks, c->base.index + 1);
    bool streamed = is_streamed(ranks * call->count);
    for (int64_t at = part_begin(call->count, 1, ranks, c->base.index); at < end; at += PIECE)
        for (int i = 0; i < ranks; i++)
            copy_bytes((char *)out[i] + at, (const char *)in[call->peer] + at, MIN(end - at, PIECE), streamed);
    stream_end();
    return call_leave(c, call, error);
}
