#include "memory/live_ranges.h"

// Where in a template an allocation is in use.
struct stretch {
    int allocation, first, last;
};

typedef VEC(struct stretch) stretches;

static void ranges_stretch(stretches *s, int *at, const struct lifetimes *l, const struct program *program, int buffer,
                           int i, int until) {
    int a = buffer == NONE ? NONE : l->allocation[program_root(program, buffer)];
    if (a == NONE)
        return;
    if (at[a] == NONE) {
        at[a] = (int)s->count;
        VEC_PUSH(s, (struct stretch){a, i, until});
    }
    s->item[at[a]].last = MAX(s->item[at[a]].last, until);
}

static stretches stretches_of(const struct lifetimes *l, const struct program *program, const struct template *t) {
    stretches s = {0};
    int *at = mem_alloc(l->allocations.count * sizeof *at);
    for (size_t a = 0; a < l->allocations.count; a++)
        at[a] = NONE;
    int *awaited = lifetime_awaited(t);
    for (int i = 0; i < (int)t->instructions.count; i++) {
        const struct instruction *in = &t->instructions.item[i];
        for (int k = 0; k < instruction_buffers(in); k++)
            ranges_stretch(&s, at, l, program, instruction_buffer_at(program, in, k), i, awaited[i]);
    }
    free(awaited);
    free(at);
    return s;
}

// Something is in use in instructions `first` to `last` of the step, invocations `from` to `to`; last < 0: not yet.
struct stay {
    int first, last, from, to;
};

static struct stay *empty_stays(size_t count) {
    struct stay *all = mem_alloc(count * sizeof *all);
    for (size_t i = 0; i < count; i++)
        all[i].last = -1;
    return all;
}

static void ranges_extend(struct stay *r, int invocation, int first, int last) {
    if (r->last < 0) {
        r->first = first;
        r->from = invocation;
    }
    r->last = last;
    r->to = invocation;
}

// Notes what one invocation uses, in all[microbatches + 1][allocations]; the last row is for what is no microbatch's.
static void note_invocation(struct stay *all, int microbatches, const struct lifetimes *l, const stretches *s,
                            int microbatch, int invocation, int start) {
    for (size_t i = 0; i < s->count; i++) {
        const struct allocation *a = &l->allocations.item[s->item[i].allocation];
        bool mine = a->scope == SCOPE_SLOT && !a->once && microbatch != NONE;
        size_t row = (size_t)(mine ? microbatch : microbatches);
        ranges_extend(&all[row * l->allocations.count + (size_t)s->item[i].allocation], invocation,
                      start + s->item[i].first, start + s->item[i].last);
    }
}

// held[microbatches + 1][pools]: from the chunk's first invocation for the microbatch to its last, for what lingers
// there. Returns the step's length in instructions.
static int note_schedule(struct stay *all, struct stay *held, const struct lifetimes *l,
                         const struct program *program) {
    size_t templates = program->templates.count;
    stretches *of = mem_alloc(templates * sizeof *of);
    for (size_t t = 0; t < templates; t++)
        of[t] = stretches_of(l, program, &program->templates.item[t]);
    int start = 0;
    for (size_t k = 0; k < program->schedule.count; k++) {
        struct invocation v = program->schedule.item[k];
        const struct template *t = &program->templates.item[v.template];
        int count = (int)t->instructions.count;
        note_invocation(all, program->microbatches, l, &of[v.template], v.microbatch, (int)k, start);
        if (v.microbatch != NONE && count)
            ranges_extend(&held[(size_t)v.microbatch * program->pools.count + (size_t)t->chunk], (int)k, start,
                          start + count - 1);
        start += count;
    }
    for (size_t t = 0; t < templates; t++)
        VEC_RELEASE(&of[t]);
    free(of);
    return start;
}

void live_ranges_create(struct live_ranges *out, const struct lifetimes *l, const struct program *program) {
    *out = (struct live_ranges){0};
    size_t rows = (size_t)program->microbatches + 1, allocations = l->allocations.count;
    struct stay *all = empty_stays(rows * allocations), *held = empty_stays(rows * program->pools.count);
    int length = note_schedule(all, held, l, program);
    for (size_t i = 0; i < allocations; i++) {
        const struct allocation *a = &l->allocations.item[i];
        for (size_t m = 0; m < rows && a->bytes; m++) {
            struct stay s = all[m * allocations + i];
            if (s.last < 0)
                continue;
            if (a->lingers && a->scope == SCOPE_SLOT && !a->once) {
                const struct stay *whole = &held[m * program->pools.count + (size_t)a->pool];
                s.first = whole->first;
                s.last = whole->last;
            }
            if (a->lingers && (a->scope == SCOPE_LOCAL || a->once))
                s = (struct stay){0, length - 1, 0, (int)program->schedule.count - 1};
            if (s.last >= 0)
                VEC_PUSH(&out->items, (struct live_range){.allocation = (int)i,
                                                          .microbatch = m + 1 < rows ? (int)m : NONE,
                                                          .first = s.first,
                                                          .last = s.last,
                                                          .from = s.from,
                                                          .to = s.to,
                                                          .offset = -1});
        }
    }
    free(held);
    free(all);
}

void live_ranges_release(struct live_ranges *ranges) {
    VEC_RELEASE(&ranges->items);
}

// [length + 1]: the bytes of LOCAL allocations at each time of one microbatch (lifetime.h).
static int64_t *local_bytes(const struct lifetimes *l) {
    int64_t *live = mem_alloc(((size_t)l->length + 1) * sizeof *live);
    for (size_t i = 0; i < l->allocations.count; i++) {
        const struct allocation *a = &l->allocations.item[i];
        if (a->scope != SCOPE_LOCAL)
            continue;
        live[a->first] += a->bytes;
        live[a->last + 1] -= a->bytes;
    }
    for (int t = 1; t <= l->length; t++)
        live[t] += live[t - 1];
    return live;
}

int64_t *live_bytes(const struct program *program, const struct lifetimes *l, const struct live_ranges *ranges) {
    int64_t *live = mem_alloc(((size_t)program_length(program) + 1) * sizeof *live), *local = local_bytes(l);
    live[0] = program->arena[l->space].fixed_bytes;
    // Messages may be under way to any slot of a pool that is not a chunk's own.
    for (size_t i = 0; i < l->allocations.count; i++) {
        const struct allocation *a = &l->allocations.item[i];
        if (a->scope == SCOPE_SLOT && a->lingers && !a->once && program->pools.item[a->pool].chunk != a->pool)
            live[0] += a->bytes * program->pools.item[a->pool].slots;
    }
    for (size_t i = 0; i < ranges->items.count; i++) {
        const struct live_range *r = &ranges->items.item[i];
        const struct allocation *a = &l->allocations.item[r->allocation];
        if (a->scope != SCOPE_SLOT)
            continue;
        live[r->first] += a->bytes;
        live[r->last + 1] -= a->bytes;
    }
    int64_t now = 0;
    for (size_t k = 0, at = 0; k < program->schedule.count; k++) {
        int template = program->schedule.item[k].template;
        for (size_t i = 0; i < program->templates.item[template].instructions.count; i++, at++) {
            now += live[at];
            live[at] = now + local[(size_t)l->start[template] + i];
        }
    }
    free(local);
    return live;
}

int64_t most_live_bytes(const struct program *program, const struct lifetimes *l, const struct live_ranges *ranges) {
    int64_t *live = live_bytes(program, l, ranges), length = program_length(program), most = 0;
    for (int64_t i = 0; i < length; i++)
        most = MAX(most, live[i]);
    free(live);
    return most;
}
