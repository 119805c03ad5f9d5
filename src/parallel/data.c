#include "parallel/data.h"

// Whether the first and the last virtual stage are on different ranks.
static bool ends_apart(const struct parallel *parallel) {
    const struct schedule *s = parallel->schedule;
    return s && s->place[0].rank != s->place[s->stages * s->chunks - 1].rank;
}

struct state_layout state_layout_of(const struct parallel *parallel, const struct model_config *model) {
    bool is_spread = parallel->split.vocabulary_stages > 1;
    axis_set shards = parallel->zero_stage ? mesh_present(&parallel->mesh, AXES(AXIS_FSDP)) : AXES_NONE;
    return (struct state_layout){
        .shards = shards,
        .sharded = parallel->zero_stage == 3,
        .own = parallel->zero_stage < 3 ? shards : AXES_NONE,
        .tied_ends = model->tie_word_embeddings && ends_apart(parallel) && !is_spread,
        .vocabulary = is_spread,
    };
}

// A template whose instructions are put together anew.
struct rewrite {
    struct program *program;
    int template;
    VEC(struct instruction) out;
};

static void begin(struct rewrite *r, struct program *program, int template) {
    *r = (struct rewrite){.program = program, .template = template};
}

// Moves what program_emit has just appended to the template to the end of what is put together.
static void take_last(struct rewrite *r) {
    struct template *t = &r->program->templates.item[r->template];
    VEC_PUSH(&r->out, t->instructions.item[t->instructions.count - 1]);
    t->instructions.count--;
}

static void finish(struct rewrite *r) {
    struct template *t = &r->program->templates.item[r->template];
    free(t->instructions.item);
    t->instructions.item = r->out.item;
    t->instructions.count = r->out.count;
    t->instructions.capacity = r->out.capacity;
}

// ---- parameters

static bool reads_root(const struct program *program, const struct instruction *instruction, int root) {
    for (int i = 0; i < instruction->inputs; i++)
        if (instruction->in[i].buffer != NONE && program_root(program, instruction->in[i].buffer) == root)
            return true;
    return false;
}

// The template's first instruction that reads `root`; their number where none does.
static size_t first_read(const struct program *program, int template, int root) {
    const struct template *t = &program->templates.item[template];
    size_t i = 0;
    while (i < t->instructions.count && !reads_root(program, &t->instructions.item[i], root))
        i++;
    return i;
}

// A second buffer for a gathered unit, with the same slices; `again` maps buffers to it.
static int clone_unit(struct program *program, int root, int *again, size_t known) {
    for (size_t i = 0; i < known; i++) {
        const struct buffer b = program->buffers.item[i];
        if ((int)i != root && b.parent != root)
            continue;
        char *name = mem_printf("%s.again", b.name);
        again[i] = (int)i == root ? program_buffer(program, name, b.dtype, b.kind, b.scope, b.ndim, b.dim)
                                  : program_slice(program, again[root], name, b.parent_offset, b.ndim, b.dim);
        free(name);
        struct buffer *copy = &program->buffers.item[again[i]];
        copy->recomputes = (int)i;
        memcpy(copy->placement, b.placement, sizeof b.placement);
    }
    return again[root];
}

struct use {
    int unit, gathered;
    size_t first; // instruction that reads it first
    size_t at;    // instruction that its gathering stands before
};

struct uses {
    VEC(struct use) uses;
};

static int compare_uses(const void *a, const void *b) {
    const struct use *x = a, *y = b;
    return x->first != y->first ? (x->first > y->first) - (x->first < y->first) : x->unit - y->unit;
}

static void replace_reads(struct template *t, const int *again, size_t known) {
    for (size_t i = 0; i < t->instructions.count; i++)
        for (int k = 0; k < t->instructions.item[i].inputs; k++) {
            int *buffer = &t->instructions.item[i].in[k].buffer;
            if (*buffer != NONE && (size_t)*buffer < known && again[*buffer] != NONE)
                *buffer = again[*buffer];
        }
}

// A fixed number of units ahead.
static void place_by_distance(struct use *use, size_t uses, size_t distance) {
    for (size_t k = 0; k < uses; k++)
        use[k].at = use[k - MIN(k, distance)].first;
}

// As late as can be when a link is taken to be so fast that all bytes need as long as all work: of equal layers each is
// gathered during the one before, a large head during the several layers that its bytes are worth. A faster link
// hides the same, a slower one is busy all the time anyway.
static void place_by_bytes(const struct program *program, const struct op_table *ops, const struct template *t,
                           struct use *use, size_t uses) {
    size_t count = t->instructions.count;
    double *work = mem_alloc((count + 1) * sizeof *work), bytes = 0;
    for (size_t i = 0; i < count; i++)
        work[i + 1] = work[i] + instruction_flops(ops, &t->instructions.item[i]);
    for (size_t k = 0; k < uses; k++)
        bytes += (double)buffer_bytes(&program->buffers.item[use[k].gathered]);
    double start = work[count];
    size_t at = count;
    for (size_t k = uses; k-- > 0;) {
        double own = (double)buffer_bytes(&program->buffers.item[use[k].gathered]) / bytes;
        at = MIN(at, use[k].first);
        start = MIN(start, work[use[k].first]) - own * work[count];
        while (at > 0 && work[at] > start)
            at--;
        use[k].at = at;
    }
    free(work);
}

// The first units that backward reads: those that would be gathered before all else. Where it follows its forward at
// once, that leaves them to it.
static size_t leave_gathered(struct program *program, const struct use *use, size_t uses, int forward) {
    const size_t count = program->templates.item[forward].instructions.count;
    size_t kept = 0;
    for (; kept < uses && use[kept].at == 0; kept++) {
        const int root = use[kept].gathered;
        if (first_read(program, forward, root) == count)
            break;
        for (size_t i = 0; i < program->buffers.count; i++)
            if ((int)i == root || program->buffers.item[i].parent == root)
                program->buffers.item[i].scope = SCOPE_SLOT;
    }
    return kept;
}

// Another template gathers it into that buffer.
static bool is_gathered(const struct program *program, int root) {
    for (size_t t = 0; t < program->templates.count; t++)
        for (size_t i = 0; i < program->templates.item[t].instructions.count; i++) {
            const struct instruction *in = &program->templates.item[t].instructions.item[i];
            if (in->op == OP_ALL_GATHER && in->out[0].buffer == root)
                return true;
        }
    return false;
}

// Each template has buffers of its own for what it gathers, which are in use while it runs, and not between.
static void clone_units(struct program *program, int template, struct use *use, size_t uses) {
    size_t known = program->buffers.count;
    int *clone = mem_alloc(known * sizeof *clone);
    for (size_t i = 0; i < known; i++)
        clone[i] = NONE;
    for (size_t k = 0; k < uses; k++)
        if (is_gathered(program, use[k].gathered))
            use[k].gathered = clone_unit(program, use[k].gathered, clone, known);
    replace_reads(&program->templates.item[template], clone, known);
    free(clone);
}

void data_gather(struct program *program, int template, int forward, const struct model_state *model,
                 const struct parallel *parallel, const struct op_table *ops) {
    if (parallel->zero_stage < 3)
        return;
    const struct template *t = &program->templates.item[template];
    VEC(struct use) uses = {0};
    for (int u = 0; u < model->units; u++) {
        size_t first = first_read(program, template, model->gathered[u]);
        if (first < t->instructions.count)
            VEC_PUSH(&uses, (struct use){.unit = u, .gathered = model->gathered[u], .first = first});
    }
    if (uses.count)
        qsort(uses.item, uses.count, sizeof *uses.item, compare_uses);
    if (parallel->prefetch >= 0)
        place_by_distance(uses.item, uses.count, (size_t)parallel->prefetch);
    else
        place_by_bytes(program, ops, t, uses.item, uses.count);
    size_t next = 0;
    if (forward != NONE && !parallel->schedule)
        next = leave_gathered(program, uses.item, uses.count, forward);
    clone_units(program, template, uses.item + next, uses.count - next);
    struct rewrite r;
    begin(&r, program, template);
    size_t count = program->templates.item[template].instructions.count;
    for (size_t i = 0; i < count; i++) {
        for (; next < uses.count && uses.item[next].at <= i; next++) {
            const struct use *use = &uses.item[next];
            program_communicate(program, template, OP_ALL_GATHER, forward != NONE ? PHASE_BACKWARD : PHASE_FORWARD,
                                STREAM_GATHER, AXES(AXIS_FSDP), operand_whole(program, model->unit[use->unit]),
                                operand_whole(program, use->gathered));
            take_last(&r);
        }
        VEC_PUSH(&r.out, program->templates.item[template].instructions.item[i]);
    }
    finish(&r);
    VEC_RELEASE(&uses);
}

// Appends to `uses` the units that the template is the first to read.
static void find_new_uses(const struct program *program, int template, const struct model_state *model, bool *found,
                          struct uses *uses) {
    size_t before = uses->uses.count;
    for (int u = 0; u < model->units; u++) {
        size_t first = first_read(program, template, model->unit[u]);
        if (found[u] || first == program->templates.item[template].instructions.count)
            continue;
        found[u] = true;
        VEC_PUSH(&uses->uses, (struct use){.unit = u, .gathered = model->unit[u], .first = first});
    }
    if (uses->uses.count > before)
        qsort(uses->uses.item + before, uses->uses.count - before, sizeof *uses->uses.item, compare_uses);
}

void data_gather_once(struct program *program, const struct model_state *model, const struct parallel *parallel) {
    if (parallel->zero_stage != 1 && parallel->zero_stage != 2)
        return;
    bool *found = mem_alloc((size_t)model->units * sizeof *found);
    bool *seen = mem_alloc(program->templates.count * sizeof *seen);
    struct uses all = {0};
    for (size_t k = 0; k < program->schedule.count; k++) {
        int template = program->schedule.item[k].template;
        if (!seen[template])
            find_new_uses(program, template, model, found, &all);
        seen[template] = true;
    }
    for (size_t k = 0; k < all.uses.count; k++) {
        struct operand whole = operand_whole(program, all.uses.item[k].gathered);
        program_communicate(program, program->schedule.item[0].template, OP_ALL_GATHER, PHASE_FORWARD, STREAM_GATHER,
                            AXES(AXIS_FSDP), operand_part(program, whole, AXES(AXIS_FSDP)), whole);
    }
    free(found);
    free(seen);
    VEC_RELEASE(&all.uses);
}

// ---- gradients

struct reducer {
    struct rewrite rewrite;
    const struct model_state *model;
    const struct optimizer_state *optimizer;
    const struct parallel *parallel;
};

static bool writes_root(const struct program *program, const struct instruction *instruction, int root) {
    for (int i = 0; i < instruction->outputs; i++)
        if (instruction->out[i].buffer != NONE && program_root(program, instruction->out[i].buffer) == root)
            return true;
    return false;
}

// Axes along which a unit's gradient is a sum of what ranks have, beside the data axes.
static axis_set shared_axes(const struct parameter_table *table, int unit, const struct parallel *parallel) {
    for (size_t i = 0; i < table->parameters.count; i++) {
        const struct parameter *p = &table->parameters.item[i];
        if (p->unit != unit)
            continue;
        axis_set set = p->split == CLASS_SHARE ? AXES_TENSOR : p->split == CLASS_KV ? AXES(AXIS_KV) : AXES_NONE;
        return mesh_present(&parallel->mesh, set);
    }
    return AXES_NONE;
}

static void emit(struct reducer *r, enum op op, axis_set group, bool only_last, struct operand in, struct operand out) {
    struct program *program = r->rewrite.program;
    struct instruction *i =
        program_communicate(program, r->rewrite.template, op, PHASE_WEIGHT, STREAM_REDUCE, group, in, out);
    i->attribute[op == OP_ALL_REDUCE].i = r->parallel->reduce_bf16;
    i->only_last = only_last;
    if (!only_last)
        i->accumulate = ACCUMULATE_AFTER_FIRST;
    take_last(&r->rewrite);
}

static void emit_zero(struct reducer *r, int root, int64_t from, int64_t to, bool only_last) {
    if (from == to)
        return;
    struct operand gap = {.buffer = root, .offset = from, .ndim = 1, .dim = {to - from}, .stride = {1}};
    program_emit(r->rewrite.program, r->rewrite.template, OP_ZERO, PHASE_WEIGHT, NONE, 0, NULL, 1, &gap, NULL)
        ->only_last = only_last;
    take_last(&r->rewrite);
}

// What lies between the tensors of a unit goes the way of the rest: it must be zero.
static void zero_gaps(struct reducer *r, int root, bool only_last) {
    const struct program *program = r->rewrite.program;
    int64_t at = 0;
    for (size_t i = 0; i < program->buffers.count; i++) {
        const struct buffer *b = &program->buffers.item[i];
        if (b->parent != root)
            continue;
        emit_zero(r, root, at, b->parent_offset, only_last);
        at = b->parent_offset + buffer_count(b);
    }
    emit_zero(r, root, at, buffer_count(&program->buffers.item[root]), only_last);
}

// Whether the unit's gradient is kept whole until the step's last microbatch.
static bool reduced_once(const struct reducer *r, int unit) {
    int whole = r->optimizer->whole_gradient[unit];
    return r->rewrite.program->buffers.item[whole].scope != SCOPE_LOCAL;
}

static void reduce_unit(struct reducer *r, const struct parameter_table *table, int unit) {
    const struct program *program = r->rewrite.program;
    struct operand whole = operand_whole(program, r->optimizer->whole_gradient[unit]), part = whole;
    int stage = r->optimizer->zero_stage;
    axis_set rest = AXES_DATA & ~r->optimizer->shards;
    rest = mesh_present(&r->parallel->mesh, rest | shared_axes(table, unit, r->parallel));
    if (stage == 1)
        part = operand_part(program, whole, r->optimizer->shards);
    else if (stage >= 2)
        part = operand_whole(program, r->optimizer->gradient[unit]);
    bool once = reduced_once(r, unit);
    if (stage >= 2 && once)
        zero_gaps(r, whole.buffer, true);
    if (stage >= 1)
        emit(r, OP_REDUCE_SCATTER, r->optimizer->shards, once, whole, part);
    if (rest)
        emit(r, OP_ALL_REDUCE, rest, true, part, part);
}

// Whether a later template adds to the unit's gradient too.
static bool written_later(const struct reducer *r, int unit, const int *later, int count) {
    const struct program *program = r->rewrite.program;
    for (int k = 0; k < count; k++) {
        const struct template *t = &program->templates.item[later[k]];
        for (size_t i = 0; i < t->instructions.count; i++)
            if (writes_root(program, &t->instructions.item[i], r->optimizer->whole_gradient[unit]))
                return true;
    }
    return false;
}

// Gradients that are reduced from scratch: of two sets of units, one that is made while the other is on its way. A set
// is what of a layer, or of several that are one, is split alike; whose units are made and reduced together.
enum { REDUCE_BUFFERS = 2 };

// Lets the computing before the i-th instruction wait for the template's first `count` reductions: what is then written
// may take their memory.
static void wait_before(struct reducer *r, size_t i, int count) {
    struct instruction *item = r->rewrite.out.item;
    int done = 0;
    for (size_t k = 0; k < i; k++)
        done += item[k].stream == STREAM_REDUCE;
    size_t at = i;
    for (int left = done; at > 0 && left >= count; at--) {
        left -= item[at - 1].stream == STREAM_REDUCE;
        if (item[at - 1].stream == STREAM_COMPUTE) {
            item[at - 1].wait[STREAM_REDUCE] = (uint16_t)(1 + MIN(left - count, WAIT_MAX_LAG));
            return;
        }
    }
    item[i].wait[STREAM_REDUCE] = (uint16_t)(1 + MIN(done - count, WAIT_MAX_LAG));
}

static void hold_back(struct reducer *r, const struct parameter_table *table) {
    const struct program *program = r->rewrite.program;
    int units = r->model->units, sets = 0, done = 0;
    int *set_of = mem_alloc((size_t)units * sizeof *set_of), *number = mem_alloc((size_t)units * sizeof *number);
    int *reduced = mem_alloc((size_t)units * sizeof *reduced); // by order of sets: instructions up to its last
    for (size_t i = table->parameters.count; i-- > 0;)
        set_of[table->parameters.item[i].unit] = table->parameters.item[i].set;
    for (int u = 0; u < units; u++)
        number[u] = NONE;
    for (size_t i = 0; i < r->rewrite.out.count; i++) {
        struct instruction *in = &r->rewrite.out.item[i];
        done += in->stream == STREAM_REDUCE;
        if (in->stream != STREAM_REDUCE && in->stream != STREAM_COMPUTE)
            continue;
        for (int u = 0; u < units; u++) {
            int root = r->optimizer->whole_gradient[u];
            if (reduced_once(r, u))
                continue;
            if (in->stream == STREAM_REDUCE && reads_root(program, in, root))
                reduced[number[u]] = done;
            if (number[u] != NONE || !writes_root(program, in, root))
                continue;
            int before = sets;
            for (int k = 0; k < units; k++)
                if (set_of[k] == set_of[u] && number[k] != NONE)
                    before = number[k];
            number[u] = before;
            sets += before == sets;
            int awaited = before < REDUCE_BUFFERS ? 0 : reduced[before - REDUCE_BUFFERS];
            if (awaited)
                wait_before(r, i, awaited);
        }
    }
    free(set_of);
    free(number);
    free(reduced);
}

static void rewrite_backward(struct reducer *r, const struct parameter_table *table, const int *later,
                             int count_later) {
    struct program *program = r->rewrite.program;
    int template = r->rewrite.template, units = r->model->units;
    size_t count = program->templates.item[template].instructions.count;
    size_t *first = mem_alloc((size_t)units * sizeof *first), *last = mem_alloc((size_t)units * sizeof *last);
    for (int u = 0; u < units; u++) {
        first[u] = last[u] = count;
        for (size_t i = 0; i < count; i++)
            if (writes_root(program, &program->templates.item[template].instructions.item[i],
                            r->optimizer->whole_gradient[u])) {
                first[u] = MIN(first[u], i);
                last[u] = i;
            }
    }
    for (size_t i = 0; i < count; i++) {
        for (int u = 0; u < units; u++)
            if (first[u] == i && !reduced_once(r, u))
                zero_gaps(r, r->optimizer->whole_gradient[u], false);
        VEC_PUSH(&r->rewrite.out, program->templates.item[template].instructions.item[i]);
        for (int u = 0; u < units; u++)
            if (last[u] == i && !written_later(r, u, later, count_later))
                reduce_unit(r, table, u);
    }
    hold_back(r, table);
    finish(&r->rewrite);
    free(first);
    free(last);
}

void data_reduce(struct program *program, const int *backward, int templates, const struct model_state *model,
                 const struct optimizer_state *optimizer, const struct parameter_table *table,
                 const struct parallel *parallel) {
    if (mesh_ranks(&parallel->mesh) == 1)
        return;
    for (int k = 0; k < templates; k++) {
        struct reducer r = {.model = model, .optimizer = optimizer, .parallel = parallel};
        begin(&r.rewrite, program, backward[k]);
        rewrite_backward(&r, table, backward + k + 1, templates - k - 1);
    }
}
