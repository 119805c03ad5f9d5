// Short reduce-scatter: every member reduces its block of all copies.
#include "comm/threads/threads.h"

trireme_status reduce_scatter_slots(struct thread_communicator *c, const struct comm_call *call, trireme_error *error) {
    int64_t size = dtype_size(call->dtype), begin = c->base.index * call->count;
    copy_bytes(posted_by(c, c->base.index)->data, call->in, c->base.size * call->count * size, false);
    TRY(call_post(c, call, error));
    posted_slots(c);
    const struct reduction_loops *loops = cpu_reduction_loops(call->dtype, call->wire);
    for (int64_t at = 0; at < call->count; at += CHUNK) {
        int64_t n = MIN(call->count - at, CHUNK);
        char *out = (char *)call->out + at * size;
        const void *result = reduce_chunk(loops, call->reduction == REDUCE_MAX, false, c->in, c->base.size, begin + at,
                                          n, call->accumulate ? out : NULL, &c->chunk);
        copy_bytes(out, result, n * size, false);
    }
    return TRIREME_OK;
}
