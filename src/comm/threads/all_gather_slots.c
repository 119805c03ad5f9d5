// Short all-gather: every member reads all copies.
#include "comm/threads/threads.h"

trireme_status all_gather_slots(struct thread_communicator *c, const struct comm_call *call, trireme_error *error) {
    int64_t bytes = comm_call_bytes(call);
    copy_bytes(posted_by(c, c->base.index)->data, call->in, bytes, false);
    TRY(call_post(c, call, error));
    for (int i = 0; i < c->base.size; i++)
        copy_bytes((char *)call->out + i * bytes, posted_by(c, i)->data, bytes, false);
    return TRIREME_OK;
}
