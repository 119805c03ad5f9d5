// All-to-all of blocks of any size: every member reads its blocks out of the memory of all.
#include "comm/threads/threads.h"

trireme_status all_to_all_v(struct thread_communicator *c, const struct comm_call *call, trireme_error *error) {
    TRY(call_post(c, call, error));
    TRY(call_enter(c, call, &c->group->meeting, error));
    int ranks = c->base.size, index = c->base.index;
    for (int k = 1; k <= ranks; k++) {
        int from = (index + k) % ranks;
        const struct comm_call *theirs = &posted_by(c, from)->call;
        int64_t sent = theirs->in_bytes[index], expected = call->out_bytes[from];
        if (sent != expected) {
            call_abandon(c);
            return call_fail(c, call, error, COMM_DIFFERS, c->group->rank[from],
                             "rank %d sends %lld bytes to rank %d, which expects %lld, in all_to_all_v",
                             c->group->rank[from], (long long)sent, c->group->rank[index], (long long)expected);
        }
        copy_bytes((char *)call->out + call->out_offset[from], (const char *)theirs->in + theirs->in_offset[index],
                   sent, false);
    }
    return call_leave(c, call, error);
}
