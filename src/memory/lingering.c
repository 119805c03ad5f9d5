#include "memory/lingering.h"

// What is known of an allocation.
struct lingerer {
    int user, outlasts; // the template that uses it, and the one whose end a use of it outlasts; NONE, or SEVERAL
    unsigned streams;   // of such uses
    bool known;         // compute knows such uses to be over when it uses the allocation in a later template
    bool early;         // communication writes it before its template's first arithmetic
};
enum { SEVERAL = -2 };

struct lingerers {
    const struct program *program;
    const int *allocation; // [buffers]
    struct lingerer *of;   // [allocations]
    int *position;         // [microbatches][templates]: invocation, NONE
};

// The instruction that is looked at.
struct look {
    int template;
    const struct instruction *in;
    unsigned known; // streams of which compute has waited, by now, for all that was invoked before
};

// Calls for every allocation that the instruction touches.
static void lingering_each_touched(struct lingerers *s, const struct look *look,
                                   void (*visit)(struct lingerers *, struct lingerer *, const struct look *)) {
    for (int k = 0; k < instruction_buffers(look->in); k++) {
        int buffer = instruction_buffer_at(s->program, look->in, k);
        int a = buffer == NONE ? NONE : s->allocation[program_root(s->program, buffer)];
        if (a != NONE)
            visit(s, &s->of[a], look);
    }
}

static int one_or_several(int so_far, int template) {
    return so_far == NONE || so_far == template ? template : SEVERAL;
}

static void note_user(struct lingerers *s, struct lingerer *l, const struct look *look) {
    (void)s;
    l->user = one_or_several(l->user, look->template);
}

static void note_outlasts(struct lingerers *s, struct lingerer *l, const struct look *look) {
    (void)s;
    l->outlasts = one_or_several(l->outlasts, instruction_arrives(look->in) ? SEVERAL : look->template);
    l->streams |= 1U << look->in->stream;
}

static void note_early(struct lingerers *s, const struct instruction *in) {
    for (int o = 0; o < in->outputs; o++) {
        int a = in->out[o].buffer == NONE ? NONE : s->allocation[program_root(s->program, in->out[o].buffer)];
        if (a != NONE)
            s->of[a].early = true;
    }
}

static void lingering_find_uses(struct lingerers *s, int template) {
    const struct template *t = &s->program->templates.item[template];
    int *waits = template_waits(t);
    bool computes = false;
    for (int i = 0; i < (int)t->instructions.count; i++) {
        struct look look = {template, &t->instructions.item[i], 0};
        lingering_each_touched(s, &look, note_user);
        computes |= look.in->stream == STREAM_COMPUTE;
        if (!instruction_lingers(s->program, look.in))
            continue;
        if (!computes)
            note_early(s, look.in);
        if (instruction_arrives(look.in) || waits[i] == NONE)
            lingering_each_touched(s, &look, note_outlasts);
    }
    free(waits);
}

static bool always_before(const struct lingerers *s, int template, int other) {
    for (int m = 0; m < s->program->microbatches; m++) {
        const int *position = s->position + (size_t)m * s->program->templates.count;
        if (position[template] == NONE || position[other] <= position[template])
            return false;
    }
    return true;
}

static void note_known(struct lingerers *s, struct lingerer *l, const struct look *look) {
    l->known |= l->outlasts >= 0 && (l->streams & ~look->known) == 0 && always_before(s, l->outlasts, look->template);
}

static void find_known(struct lingerers *s, int template) {
    const struct template *t = &s->program->templates.item[template];
    struct look look = {.template = template};
    int done[STREAMS_MAX] = {0};
    for (size_t i = 0; i < t->instructions.count; i++) {
        look.in = &t->instructions.item[i];
        done[look.in->stream]++;
        if (look.in->stream != STREAM_COMPUTE)
            continue;
        for (int k = 0; k < STREAMS_MAX; k++)
            if (look.in->wait[k] == WAIT_OWN ||
                (wait_counts(look.in->wait[k]) && wait_lag(look.in->wait[k]) <= done[k]))
                look.known |= 1U << k;
        lingering_each_touched(s, &look, note_known);
    }
}

static int *find_positions(const struct program *p) {
    size_t cells = (size_t)p->microbatches * p->templates.count;
    int *position = mem_alloc(cells * sizeof *position);
    for (size_t i = 0; i < cells; i++)
        position[i] = NONE;
    for (size_t k = 0; k < p->schedule.count; k++) {
        const struct invocation *v = &p->schedule.item[k];
        if (v->microbatch != NONE)
            position[(size_t)v->microbatch * p->templates.count + (size_t)v->template] = (int)k;
    }
    return position;
}

int *template_waits(const struct template *t) {
    const int count = (int)t->instructions.count;
    int *at = mem_alloc((size_t)count * sizeof *at);
    struct {
        VEC(int); // the stream's instructions so far
        size_t done;
    } of[STREAMS_MAX] = {0};
    for (int k = 0; k < count; k++) {
        const struct instruction *in = &t->instructions.item[k];
        at[k] = in->stream == STREAM_COMPUTE ? k : NONE;
        for (int s = 0; s < STREAMS_MAX && in->stream == STREAM_COMPUTE; s++)
            while (s != STREAM_COMPUTE && wait_counts(in->wait[s]) &&
                   of[s].done + (size_t)wait_lag(in->wait[s]) < of[s].count)
                at[of[s].item[of[s].done++]] = k;
        VEC_PUSH(&of[in->stream], k);
    }
    for (int s = 0; s < STREAMS_MAX; s++)
        VEC_RELEASE(&of[s]);
    return at;
}

bool *find_lingering(const struct program *program, const int *allocation, size_t allocations) {
    bool *lingers = mem_alloc(allocations * sizeof *lingers);
    struct lingerers s = {program, allocation, mem_alloc(allocations * sizeof *s.of), find_positions(program)};
    for (size_t i = 0; i < allocations; i++)
        s.of[i] = (struct lingerer){.user = NONE, .outlasts = NONE};
    for (size_t t = 0; t < program->templates.count; t++)
        lingering_find_uses(&s, (int)t);
    for (size_t t = 0; t < program->templates.count; t++)
        find_known(&s, (int)t);
    for (size_t i = 0; i < allocations; i++)
        lingers[i] = (s.of[i].outlasts != NONE && !s.of[i].known) || (s.of[i].early && s.of[i].user != SEVERAL);
    free(s.of);
    free(s.position);
    return lingers;
}
