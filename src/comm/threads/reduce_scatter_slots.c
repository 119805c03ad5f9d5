// Short reduce-scatter: every member reduces its block of all copies.
#include "comm/threads/threads.h"

trireme_status reduce_scatter_slots(struct thread_communicator *c, const struct comm_call *call, trireme_error *error) {
    int64_t size = dtype_size(call->dtype), begin = c->base.index * call->count;
    copy_bytes(posted_by(c, c->base.index)->data, call->in, c->base.size * call->count * size, false);
    TRY(call_post(c, call, error));
    reduce_elements(call, false, posted_copies(c), c->base.size, begin, call->count, call->out, false, c->chunk);
    return TRIREME_OK;
}
