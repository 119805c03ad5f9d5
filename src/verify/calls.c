#include "verify/calls.h"

#include "verify/history.h"

static void add_call(struct calls *c, const struct invocation *v, int index, const int32_t known[STREAMS_MAX]) {
    const struct program *p = c->program;
    const struct instruction *i = &p->templates.item[v->template].instructions.item[index];
    const struct operand *operand = i->inputs && i->in[0].buffer != NONE ? &i->in[0] : &i->out[0];
    struct rank_call call = {.instruction = i,
                             .template = v->template,
                             .index = index,
                             .microbatch = v->microbatch,
                             .channel = channels_find(&c->channels, channel_of(p, i)),
                             .count = operand_count(operand),
                             .dtype = p->buffers.item[operand->buffer].dtype};
    bool rare = op_is_message(i->op) || op_is_rooted(i->op) || v->microbatch == NONE;
    if (rare && (i->group & AXES(AXIS_PP)))
        call.message = messages_find(&c->messages, v->template, index);
    memcpy(call.after, known, sizeof call.after);
    call.after[i->stream] = 0; // its own stream runs in order
    VEC_PUSH(&c->of[i->stream], call);
}

// Adds to `own` what is known to be done once an instruction's waits are over; false where it waits for nothing.
static bool calls_run_waits(const struct program *p, const struct slot_waits *waits, const struct history *history,
                            size_t invocation, const struct instruction *i, int32_t own[STREAMS_MAX]) {
    bool waited = false;
    for (int s = 0; s < STREAMS_MAX; s++) {
        if (!i->wait[s] || s == i->stream)
            continue;
        int64_t which = slot_waits_count(waits, p, invocation, i, s, history[s].steps) - 1;
        if (which < 0)
            continue;
        waited = true;
        const int32_t *theirs = history_at(&history[s], which);
        for (int of = 0; of < STREAMS_MAX; of++)
            own[of] = MAX(own[of], theirs[of]);
    }
    return waited;
}

// A wait may reach a call through other instructions that wait for it in turn, so that all have to be looked at.
static void calls_run_schedule(struct calls *c, const struct op_table *table) {
    const struct program *p = c->program;
    struct history history[STREAMS_MAX] = {0}; // calls of each stream that were done when its n-th instruction was
    struct slot_waits waits;
    slot_waits_create(&waits, p);
    int32_t known[STREAMS_MAX][STREAMS_MAX] = {0};
    for (size_t k = 0; k < p->schedule.count; k++) {
        const struct invocation *v = &p->schedule.item[k];
        const struct template *t = &p->templates.item[v->template];
        for (int n = 0; n < (int)t->instructions.count; n++) {
            const struct instruction *i = &t->instructions.item[n];
            int32_t *own = known[i->stream];
            bool same = !calls_run_waits(p, &waits, history, k, i, own) && history[i->stream].steps > 0;
            if (table->op[i->op].role == ROLE_COMMUNICATION && !when_skips(i->when, v)) {
                add_call(c, v, n, own);
                own[i->stream] = (int32_t)c->of[i->stream].count;
                same = false;
            }
            history_add(&history[i->stream], same ? NULL : own);
        }
    }
    for (int s = 0; s < STREAMS_MAX; s++)
        history_release(&history[s]);
    slot_waits_release(&waits);
}

trireme_status calls_create(struct calls *calls, const struct program *program, const struct op_table *table,
                            trireme_error *error) {
    *calls = (struct calls){.program = program};
    struct sets sets;
    trireme_status status = sets_create(&sets, program, table, error);
    if (status == TRIREME_OK)
        status = verify_messages(program, table, &sets, &calls->messages, error);
    sets_release(&sets);
    if (status != TRIREME_OK) {
        calls_release(calls);
        return status;
    }
    channels_create(&calls->channels, program, table);
    calls_run_schedule(calls, table);
    return TRIREME_OK;
}

void calls_release(struct calls *c) {
    for (int s = 0; s < STREAMS_MAX; s++)
        VEC_RELEASE(&c->of[s]);
    channels_release(&c->channels);
    VEC_RELEASE(&c->messages);
}
