// Short broadcast: every member reads the root's copy.
#include "comm/threads/threads.h"

trireme_status broadcast_slots(struct thread_communicator *c, const struct comm_call *call, trireme_error *error) {
    bool is_root = c->base.index == call->peer;
    if (is_root)
        copy_bytes(posted_by(c, call->peer)->data, call->in, call->count, false);
    TRY(call_post(c, call, error));
    if (!is_root)
        copy_bytes(call->out, posted_by(c, call->peer)->data, call->count, false);
    return TRIREME_OK;
}
