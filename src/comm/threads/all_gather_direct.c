// Long all-gather: every member writes its data to all, so that data are read from memory only once.
#include "comm/threads/threads.h"

enum { PIECE = 16384 };

trireme_status all_gather_direct(struct thread_communicator *c, const struct comm_call *call, trireme_error *error) {
    const void *const *in;
    void *const *out;
    TRY(call_share(c, call, &in, &out, error));
    int64_t bytes = comm_call_bytes(call);
    bool streamed = is_streamed(c->base.size * c->base.size * bytes);
    for (int64_t at = 0; at < bytes; at += PIECE)
        for (int i = 0; i < c->base.size; i++)
            copy_bytes((char *)out[i] + c->base.index * bytes + at, (const char *)call->in + at, MIN(bytes - at, PIECE),
                       streamed);
    stream_end();
    return call_leave(c, call, error);
}
