// The bytes that live while each instruction of a step runs.
#include "memory/live_ranges.h"
#include "memory/memory_plan.h"

static int compare_sizes(const void *a, const void *b) {
    const struct memory_holder *x = a, *y = b;
    return COMPARE(y->bytes, x->bytes) ?: COMPARE(x->buffer, y->buffer);
}

// [allocations]: which are in use at a moment, for the microbatch at work there.
static bool *find_in_use(const struct program *program, const struct lifetimes *l, const struct live_ranges *ranges,
                         int moment, const struct memory_moment *at) {
    bool *in_use = mem_alloc(l->allocations.count * sizeof *in_use);
    struct invocation now = program->schedule.item[at->invocation];
    int time = l->start[now.template] + at->instruction;
    for (size_t i = 0; i < l->allocations.count; i++) {
        const struct allocation *a = &l->allocations.item[i];
        bool of_all = a->lingers && !a->once && program->pools.item[a->pool].chunk != a->pool;
        in_use[i] = (a->scope == SCOPE_LOCAL || of_all) && a->first <= time && time <= a->last;
    }
    for (size_t i = 0; i < ranges->items.count; i++) {
        const struct live_range *r = &ranges->items.item[i];
        bool mine = r->microbatch == NONE || r->microbatch == now.microbatch;
        if (l->allocations.item[r->allocation].scope == SCOPE_SLOT)
            in_use[r->allocation] |= mine && r->first <= moment && moment <= r->last;
    }
    return in_use;
}

// [allocations]: of the buffers that share an allocation one after another, the one that was written last, at `time` or
// before; the first of them where none was.
static int *find_holders(const struct program *program, const struct lifetimes *l, int time) {
    int *holder = mem_alloc(l->allocations.count * sizeof *holder);
    int *written = mem_alloc(l->allocations.count * sizeof *written);
    for (size_t i = 0; i < l->allocations.count; i++)
        holder[i] = written[i] = NONE;
    for (int i = (int)program->buffers.count - 1; i >= 0; i--)
        if (l->allocation[i] != NONE)
            holder[l->allocation[i]] = i;
    for (size_t t = 0; t < program->templates.count; t++) {
        const struct template *template = &program->templates.item[t];
        for (size_t i = 0; i < template->instructions.count && l->start[t] >= 0; i++) {
            const struct instruction *instruction = &template->instructions.item[i];
            const int when = l->start[t] + (int)i;
            for (int o = 0; o < instruction->outputs && when <= time; o++) {
                if (instruction->out[o].buffer == NONE)
                    continue;
                int root = program_root(program, instruction->out[o].buffer), a = l->allocation[root];
                if (a == NONE || when < written[a])
                    continue;
                holder[a] = root;
                written[a] = when;
            }
        }
    }
    free(written);
    return holder;
}

static void find_at_peak(struct memory_profile *profile, const struct program *program, const struct lifetimes *l,
                         const struct live_ranges *ranges) {
    if (profile->moments.count == 0)
        return;
    const struct memory_moment *peak = &profile->moments.item[profile->peak];
    bool *in_use = find_in_use(program, l, ranges, (int)profile->peak, peak);
    int *holder =
        find_holders(program, l, l->start[program->schedule.item[peak->invocation].template] + peak->instruction);
    for (size_t i = 0; i < program->buffers.count; i++) {
        const struct buffer *b = &program->buffers.item[i];
        bool fixed =
            b->parent == NONE && b->space == l->space && (b->scope == SCOPE_STEP || b->scope == SCOPE_MICROBATCH);
        int64_t bytes = align_up(buffer_bytes(b));
        if (fixed)
            VEC_PUSH(&profile->at_peak,
                     (struct memory_holder){(int)i, b->scope == SCOPE_STEP ? bytes : bytes * program->microbatches});
    }
    for (size_t i = 0; i < l->allocations.count; i++)
        if (in_use[i] && holder[i] != NONE) // else its buffers moved to another allocation
            VEC_PUSH(&profile->at_peak, (struct memory_holder){holder[i], l->allocations.item[i].bytes});
    VEC_SORT(&profile->at_peak, compare_sizes);
    free(in_use);
    free(holder);
}

void program_memory_profile(const struct program *program, const struct op_table *table,
                            struct memory_profile *profile) {
    *profile = (struct memory_profile){0};
    struct lifetimes l;
    struct live_ranges ranges;
    lifetimes_create(&l, program, table, SPACE_DEVICE, false);
    live_ranges_create(&ranges, &l, program);
    int64_t *live = live_bytes(program, &l, &ranges);
    for (size_t k = 0; k < program->schedule.count; k++) {
        int count = (int)program->templates.item[program->schedule.item[k].template].instructions.count;
        for (int i = 0; i < count; i++) {
            size_t moment = profile->moments.count;
            if (live[moment] > live[profile->peak])
                profile->peak = moment;
            VEC_PUSH(&profile->moments, (struct memory_moment){(int)k, i, live[moment]});
        }
    }
    find_at_peak(profile, program, &l, &ranges);
    free(live);
    live_ranges_release(&ranges);
    lifetimes_release(&l);
}

void memory_profile_release(struct memory_profile *profile) {
    VEC_RELEASE(&profile->moments);
    VEC_RELEASE(&profile->at_peak);
}

int64_t program_held_bytes(const struct program *program, const struct op_table *table, enum phase phase) {
    int end = 0;
    for (size_t k = 0; k < program->schedule.count; k++) {
        struct invocation v = program->schedule.item[k];
        const struct template *t = &program->templates.item[v.template];
        end += (int)t->instructions.count;
        if (v.microbatch == 0 && t->chunk == 0 && t->phase == phase)
            break;
    }
    struct lifetimes l;
    struct live_ranges ranges;
    lifetimes_create(&l, program, table, SPACE_DEVICE, false);
    live_ranges_create(&ranges, &l, program);
    int64_t bytes = 0;
    for (size_t i = 0; i < ranges.items.count; i++) {
        const struct live_range *r = &ranges.items.item[i];
        const struct allocation *a = &l.allocations.item[r->allocation];
        if (r->microbatch == 0 && a->pool == 0 && !a->lingers && r->first < end && r->last >= end)
            bytes += a->bytes;
    }
    live_ranges_release(&ranges);
    lifetimes_release(&l);
    return bytes;
}
