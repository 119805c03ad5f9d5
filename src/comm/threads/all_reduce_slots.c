// Short all-reduce: every member reduces all copies itself.
#include "comm/threads/threads.h"

trireme_status all_reduce_slots(struct thread_communicator *c, const struct comm_call *call, trireme_error *error) {
    int64_t size = dtype_size(call->dtype);
    copy_bytes(posted_by(c, c->base.index)->data, call->in, call->count * size, false);
    TRY(call_post(c, call, error));
    posted_slots(c);
    const struct reduction_loops *loops = cpu_reduction_loops(call->dtype, call->wire);
    for (int64_t at = 0; at < call->count; at += CHUNK) {
        int64_t n = MIN(call->count - at, CHUNK);
        const void *result =
            reduce_chunk(loops, call->reduction == REDUCE_MAX, true, c->in, c->base.size, at, n, NULL, &c->chunk);
        copy_bytes((char *)call->out + at * size, result, n * size, false);
    }
    return TRIREME_OK;
}
