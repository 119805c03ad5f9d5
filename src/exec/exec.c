// Makes a program ready to run: resolves each instruction once, and shares instructions out to the streams' threads,
// which run them (streams.c).
#include "exec/executor.h"

static void count_before(const struct executor *e, struct resolved_template *t) {
    const size_t columns = (size_t)e->slot_waits.columns;
    t->before = mem_alloc((size_t)(t->count + 1) * columns * sizeof *t->before);
    for (int i = 0; i < t->count; i++) {
        int *before = t->before + (size_t)i * columns, *behind = before + columns;
        memcpy(behind, before, columns * sizeof *before);
        behind[e->slot_waits.column[t->item[i].instruction->stream]]++;
    }
}

static bool waits_for_others(const struct instruction *in) {
    for (int s = 0; s < STREAMS_MAX; s++)
        if (s != in->stream && in->wait[s])
            return true;
    return false;
}

// The compute instruction that waits for this collective of tensor ranks, if compute does nothing that takes long
// between what the collective waits for and that instruction; else NONE. Compute's thread then runs the collective
// itself, right before that instruction: to wake another thread for it and be woken when it is done takes longer than
// small collectives do.
//
// Nothing waits for more than before, so that what the verifier proved of the order of calls still holds: all that
// compute does before the collective is either what the collective waits for, or waits for nobody itself.
static int find_awaiter(const struct executor *e, const struct resolved_template *t, int index) {
    const struct instruction *in = t->item[index].instruction;
    if (!stream_is(e->program, in->stream, STREAM_PROMPT) || e->table->op[in->op].role != ROLE_COMMUNICATION ||
        in->wait[STREAM_COMPUTE] != wait_for_all_but(0))
        return NONE;
    for (int i = index + 1; i < t->count; i++) {
        const struct instruction *next = t->item[i].instruction;
        if (next->stream != STREAM_COMPUTE)
            continue;
        const int wait = next->wait[in->stream],
                  between = resolved_before(e, t, i, in->stream) - resolved_before(e, t, index, in->stream);
        if (wait_counts(wait) && between > wait_lag(wait))
            return i;
        if (e->table->op[next->op].family != FAMILY_REST || waits_for_others(next))
            return NONE;
    }
    return NONE;
}

static void share_out(const struct executor *e, struct resolved_template *t) {
    struct waiting {
        int index, awaiter;
    };
    VEC(struct waiting) waiting = {0}; // for compute's thread to come to their awaiter
    size_t next = 0;
    for (int i = 0; i < t->count; i++) {
        const int stream = t->item[i].instruction->stream, awaiter = find_awaiter(e, t, i);
        t->item[i].computes = awaiter != NONE;
        if (t->item[i].computes) {
            VEC_PUSH(&waiting, (struct waiting){i, awaiter});
            continue;
        }
        while (stream == STREAM_COMPUTE && next < waiting.count && waiting.item[next].awaiter == i)
            VEC_PUSH(&t->of[stream], waiting.item[next++].index);
        VEC_PUSH(&t->of[stream], i);
    }
    VEC_RELEASE(&waiting);
}

static trireme_status resolve_template(struct executor *e, int number, enum kernel_set set, trireme_error *error) {
    const struct template *template = &e->program->templates.item[number];
    struct resolved_template *t = &e->templates[number];
    t->item = mem_alloc(template->instructions.count * sizeof *t->item);
    for (size_t i = 0; i < template->instructions.count; i++) {
        t->count++; // executor_free releases one that is refused, too
        trireme_status status = instruction_resolve(e, &t->item[i], &template->instructions.item[i], set, error);
        if (status != TRIREME_OK)
            return error_prefix(error, status, "template %s, instruction %zu", template->name, i);
    }
    count_before(e, t);
    share_out(e, t);
    return TRIREME_OK;
}

trireme_status executor_create(struct executor **out, struct streams *streams, const struct program *program,
                               const struct op_table *table, enum kernel_set set, void *state, void *step,
                               trireme_error *error) {
    struct executor *e = mem_alloc(sizeof *e);
    e->streams = streams;
    e->program = program;
    e->table = table;
    e->state = state;
    e->step = step;
    e->templates = mem_alloc(program->templates.count * sizeof *e->templates);
    slot_waits_create(&e->slot_waits, program);
    trireme_status status = channels_open(streams, program, table, error);
    for (size_t t = 0; t < program->templates.count && status == TRIREME_OK; t++)
        status = resolve_template(e, (int)t, set, error);
    if (status == TRIREME_OK)
        status = streams_start(e, error);
    if (status != TRIREME_OK) {
        executor_free(e);
        return status;
    }
    *out = e;
    return TRIREME_OK;
}

void executor_free(struct executor *e) {
    if (!e)
        return;
    for (size_t t = 0; t < e->program->templates.count; t++) {
        struct resolved_template *template = &e->templates[t];
        for (int i = 0; i < template->count; i++)
            if (template->item[i].release && template->item[i].prepared)
                template->item[i].release(template->item[i].prepared);
        for (int s = 0; s < STREAMS_MAX; s++)
            VEC_RELEASE(&template->of[s]);
        free(template->item);
        free(template->before);
    }
    free(e->templates);
    slot_waits_release(&e->slot_waits);
    free(e);
}

trireme_status executor_run(struct executor *e, struct trace *trace, trireme_error *error) {
    e->trace = trace;
    snprintf(e->streams->counters->program, COUNTERS_PROGRAM, "%s", e->program->name);
    kernels_pin(e->streams);
    trireme_status status = streams_run(e, error);
    kernels_unpin(e->streams);
    if (trace)
        trace->events.count = (size_t)program_length(e->program);
    return status;
}

void executor_trace_reserve(const struct executor *e, struct trace *trace) {
    trace->events.count = 0;
    VEC_RESERVE(&trace->events, (size_t)program_length(e->program) + 1);
}

void executor_before_update(struct executor *e, trireme_status (*call)(void *user, trireme_error *error), void *user) {
    e->before_update.call = call;
    e->before_update.user = user;
}
