// Long reduce-scatter: every member reduces its block out of the memory of all.
#include "comm/threads/threads.h"

trireme_status reduce_scatter_direct(struct thread_communicator *c, const struct comm_call *call,
                                     trireme_error *error) {
    const void *const *in;
    TRY(call_share(c, call, &in, NULL, error));
    int64_t size = dtype_size(call->dtype), begin = c->base.index * call->count;
    bool in_place = call->out == (const char *)call->in + begin * size;
    bool streamed = !call->accumulate && !in_place && is_streamed(c->base.size * call->count * size);
    reduce_elements(call, false, in, c->base.size, begin, call->count, call->out, streamed, c->chunk);
    stream_end();
    return call_leave(c, call, error);
}
