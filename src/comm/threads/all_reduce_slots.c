// Short all-reduce: every member reduces all copies itself.
#include "comm/threads/threads.h"

trireme_status all_reduce_slots(struct thread_communicator *c, const struct comm_call *call, trireme_error *error) {
    copy_bytes(posted_by(c, c->base.index)->data, call->in, call->count * dtype_size(call->dtype), false);
    TRY(call_post(c, call, error));
    reduce_elements(call, true, posted_copies(c), c->base.size, 0, call->count, call->out, false, c->chunk);
    return TRIREME_OK;
}
