// Short all-to-all: every member reads its block of all copies.
#include "comm/threads/threads.h"

trireme_status all_to_all_slots(struct thread_communicator *c, const struct comm_call *call, trireme_error *error) {
    copy_bytes(posted_by(c, c->base.index)->data, call->in, c->base.size * call->count, false);
    TRY(call_post(c, call, error));
    for (int i = 0; i < c->base.size; i++)
        copy_bytes((char *)call->out + i * call->count, posted_by(c, i)->data + c->base.index * call->count,
                   call->count, false);
    return TRIREME_OK;
}
