// Send and receive: the sender says where its data lie, and waits until the receiver has copied them.
#include "comm/deadline.h"
#include "comm/threads/threads.h"

static trireme_status mail_late(struct thread_communicator *c, const struct comm_call *call, int64_t limit,
                                trireme_error *error) {
    char text[COMM_CALL_TEXT];
    const int peer = c->group->rank[call->peer];
    return call_fail(c, call, error, COMM_LOST, peer, "rank %d waited %.3g s in %s for rank %d",
                     c->group->rank[c->base.index], (double)limit * 1e-9, comm_call_print(call, text), peer);
}

static trireme_status mail_broken(struct thread_communicator *c, const struct comm_call *call, trireme_error *error) {
    struct missing missing = {0};
    missing_add(&missing, c->group->rank[call->peer]);
    return call_lost(c, call, &missing, error);
}

// Waits until the word is `wanted`.
static trireme_status mail_await(struct thread_communicator *c, const struct comm_call *call, struct gate *mail,
                                 uint32_t wanted, trireme_error *error) {
    struct deadline deadline = comm_call_deadline(&c->world->base, call);
    int64_t spin = c->world->spin;
    uint32_t word;
    while ((word = atomic_load_explicit(&mail->word, memory_order_acquire)) != wanted) {
        if (word & BROKEN)
            return mail_broken(c, call, error);
        // This thread may have been kept from looking: what was late when it last looked may have come meanwhile.
        if (!gate_wait(mail, word, spin, deadline_sleep(&deadline)) && deadline_ended(&deadline) &&
            atomic_load(&mail->word) == word)
            return mail_late(c, call, deadline.limit, error);
        spin = 0;
    }
    return TRIREME_OK;
}

trireme_status send_mail(struct thread_communicator *c, const struct comm_call *call, trireme_error *error) {
    struct thread_member *member = &c->group->member[c->base.index];
    member->mail_data = call->in;
    member->mail_bytes = call->count;
    uint32_t empty = 0;
    if (!atomic_compare_exchange_strong(&member->mail.word, &empty, (uint32_t)call->peer + 1))
        return mail_broken(c, call, error);
    gate_wake(&member->mail);
    return mail_await(c, call, &member->mail, 0, error);
}

trireme_status receive_mail(struct thread_communicator *c, const struct comm_call *call, trireme_error *error) {
    struct thread_member *sender = &c->group->member[call->peer];
    uint32_t mine = (uint32_t)c->base.index + 1;
    TRY(mail_await(c, call, &sender->mail, mine, error));
    if (sender->mail_bytes != call->count)
        return call_fail(c, call, error, COMM_DIFFERS, c->group->rank[call->peer],
                         "rank %d sends %lld bytes to rank %d, which expects %lld", c->group->rank[call->peer],
                         (long long)sender->mail_bytes, c->group->rank[c->base.index], (long long)call->count);
    TRY(call_enter(c, call, &sender->mail, error));
    copy_bytes(call->out, sender->mail_data, call->count, false);
    call_abandon(c);
    if (!atomic_compare_exchange_strong(&sender->mail.word, &mine, 0))
        return mail_broken(c, call, error);
    gate_wake(&sender->mail);
    return TRIREME_OK;
}
