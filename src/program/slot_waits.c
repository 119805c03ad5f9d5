// How many instructions of a stream must be done before an instruction that waits for it: those before it, those for
// the same microbatch (WAIT_OWN), or those for the microbatch that had the slot (WAIT_SLOT).
#include "program/program.h"

// The microbatch that has a slot, its last invocation, and the last one of the microbatch that had the slot before.
struct tenant {
    int microbatch, last, before;
};

// [templates]: whether the template touches a buffer of the pool.
static bool *find_takers(const struct program *program, int pool) {
    bool *takes = mem_alloc(program->templates.count * sizeof *takes);
    for (size_t t = 0; t < program->templates.count; t++)
        for (size_t i = 0; i < program->templates.item[t].instructions.count; i++) {
            const struct instruction *in = &program->templates.item[t].instructions.item[i];
            for (int k = 0; k < in->inputs + in->outputs; k++) {
                int buffer = instruction_operand_at(in, k)->buffer;
                takes[t] |= buffer != NONE && program->buffers.item[buffer].scope == SCOPE_SLOT &&
                            program->buffers.item[buffer].pool == pool;
            }
        }
    return takes;
}

// [invocation]: the last invocation of the microbatch that had this one's slot before, or NONE.
static int *find_previous(const struct program *program, int number) {
    const struct pool *pool = &program->pools.item[number];
    bool *takes = find_takers(program, number);
    int *previous = mem_alloc(program->schedule.count * sizeof *previous);
    struct tenant *tenant = mem_alloc((size_t)pool->slots * sizeof *tenant);
    for (int s = 0; s < pool->slots; s++)
        tenant[s] = (struct tenant){NONE, NONE, NONE};
    for (size_t k = 0; k < program->schedule.count; k++) {
        const struct invocation *v = &program->schedule.item[k];
        previous[k] = NONE;
        if (v->microbatch == NONE || program->templates.item[v->template].chunk != pool->chunk || !takes[v->template])
            continue;
        struct tenant *t = &tenant[pool->slot[v->microbatch]];
        if (t->microbatch != v->microbatch)
            *t = (struct tenant){v->microbatch, NONE, t->last};
        t->last = (int)k;
        previous[k] = t->before;
    }
    free(tenant);
    free(takes);
    return previous;
}

// The pool for whose slot the instruction waits; NONE: it waits for no slot.
static int waited_pool(const struct program *program, const struct instruction *in) {
    for (int s = 0; s < STREAMS_MAX; s++)
        if (in->wait[s] == WAIT_SLOT)
            return program->buffers.item[in->out[0].buffer].pool;
    return NONE;
}

static bool waits_for_own(const struct program *program) {
    FOR_INSTRUCTIONS(in, program)
        for (int s = 0; s < STREAMS_MAX; s++)
            if (in->wait[s] == WAIT_OWN)
                return true;
    return false;
}

static void slots_find_own(struct slot_waits *w, const struct program *program) {
    const size_t columns = (size_t)w->columns;
    int64_t *done = mem_alloc((size_t)program->microbatches * columns * sizeof *done);
    w->own = mem_alloc(program->schedule.count * columns * sizeof *w->own);
    for (size_t k = 0; k < program->schedule.count; k++) {
        const int m = program->schedule.item[k].microbatch;
        if (m == NONE)
            continue;
        int64_t *of = done + (size_t)m * columns;
        const int64_t *before = w->before + k * columns, *behind = before + columns;
        memcpy(w->own + k * columns, of, columns * sizeof *of);
        for (size_t c = 0; c < columns; c++)
            if (behind[c] > before[c])
                of[c] = behind[c];
    }
    free(done);
}

static void find_columns(struct slot_waits *w, const struct program *program) {
    for (int s = 0; s < STREAMS_MAX; s++)
        w->column[s] = NONE;
    FOR_INSTRUCTIONS(in, program)
        if (w->column[in->stream] == NONE)
            w->column[in->stream] = w->columns++;
}

void slot_waits_create(struct slot_waits *w, const struct program *program) {
    *w = (struct slot_waits){.pools = program->pools.count};
    find_columns(w, program);
    const size_t columns = (size_t)w->columns;
    w->before = mem_alloc((program->schedule.count + 1) * columns * sizeof *w->before);
    for (size_t k = 0; k < program->schedule.count; k++) {
        const struct template *t = &program->templates.item[program->schedule.item[k].template];
        int64_t *before = w->before + k * columns, *behind = before + columns;
        memcpy(behind, before, columns * sizeof *before);
        for (size_t i = 0; i < t->instructions.count; i++)
            behind[w->column[t->instructions.item[i].stream]]++;
    }
    if (waits_for_own(program))
        slots_find_own(w, program);
    w->previous = mem_alloc(w->pools * sizeof *w->previous);
    FOR_INSTRUCTIONS(in, program) {
        int pool = waited_pool(program, in);
        if (pool != NONE && !w->previous[pool])
            w->previous[pool] = find_previous(program, pool);
    }
}

void slot_waits_release(struct slot_waits *w) {
    for (size_t i = 0; i < w->pools; i++)
        free(w->previous[i]);
    free(w->previous);
    free(w->before);
    free(w->own);
    *w = (struct slot_waits){0};
}

int64_t slot_waits_count(const struct slot_waits *w, const struct program *program, size_t invocation,
                         const struct instruction *instruction, int stream, int64_t before) {
    const int wait = instruction->wait[stream], column = w->column[stream];
    if (wait_counts(wait))
        return before - wait_lag(wait);
    if (wait == WAIT_OWN)
        return column == NONE ? 0 : w->own[invocation * (size_t)w->columns + (size_t)column];
    int pool = program->buffers.item[instruction->out[0].buffer].pool;
    return slot_waits_before(w, (size_t)(w->previous[pool][invocation] + 1), stream);
}
