// Long reduce-scatter: every member reduces its block out of the memory of all.
#include "comm/threads/threads.h"

trireme_status reduce_scatter_direct(struct thread_communicator *c, const struct comm_call *call,
                                     trireme_error *error) {
    TRY(call_post(c, call, error));
    TRY(call_enter(c, call, &c->group->meeting, error));
    posted_pointers(c);
    int64_t size = dtype_size(call->dtype), begin = c->base.index * call->count;
    bool in_place = call->out == (const char *)call->in + begin * size;
    bool streamed = !call->accumulate && !in_place && is_streamed(c->base.size * call->count * size);
    const struct reduction_loops *loops = cpu_reduction_loops(call->dtype, call->wire);
    for (int64_t at = 0; at < call->count; at += CHUNK) {
        int64_t n = MIN(call->count - at, CHUNK);
        char *out = (char *)call->out + at * size;
        const void *result = reduce_chunk(loops, call->reduction == REDUCE_MAX, false, c->in, c->base.size, begin + at,
                                          n, call->accumulate ? out : NULL, &c->chunk);
        copy_bytes(out, result, n * size, streamed);
    }
    stream_end();
    return call_leave(c, call, error);
}
