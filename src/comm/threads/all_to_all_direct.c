// Long all-to-all: every member reads its blocks out of the memory of all, beginning with the member after it.
#include "comm/threads/threads.h"

trireme_status all_to_all_direct(struct thread_communicator *c, const struct comm_call *call, trireme_error *error) {
    const void *const *in;
    TRY(call_share(c, call, &in, NULL, error));
    int ranks = c->base.size;
    bool streamed = is_streamed(ranks * ranks * call->count);
    for (int k = 1; k <= ranks; k++) {
        int from = (c->base.index + k) % ranks;
        copy_bytes((char *)call->out + from * call->count, (const char *)in[from] + c->base.index * call->count,
                   call->count, streamed);
    }
    stream_end();
    return call_leave(c, call, error);
}
