#include "parallel/data.h"

#include "parallel/rewrite.h"
#include "parallel/rows.h"
#include "program/slices.h"

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
        .rows = parallel->split.row_ranks > 1,
    };
}

// Of each buffer the unit whose one of `buffer` it is, or lies in; NONE of others.
static int *units_of(const struct program *program, const int *buffer, int units) {
    int *unit = mem_alloc(program->buffers.count * sizeof *unit);
    for (size_t i = 0; i < program->buffers.count; i++)
        unit[i] = NONE;
    for (int u = 0; u < units; u++)
        unit[buffer[u]] = u;
    for (size_t i = 0; i < program->buffers.count; i++)
        if (program->buffers.item[i].parent != NONE)
            unit[i] = unit[program->buffers.item[i].parent];
    return unit;
}

// The units among some operands of an instruction, in order, each once; their number.
static int units_among(const struct operand *operand, int operands, const int *unit_of, int unit[OP_MAX_IN]) {
    int count = 0;
    for (int i = 0; i < operands; i++) {
        const int u = operand[i].buffer != NONE ? unit_of[operand[i].buffer] : NONE;
        int at = count;
        while (at > 0 && unit[at - 1] > u)
            at--;
        if (u == NONE || (at > 0 && unit[at - 1] == u))
            continue;
        memmove(&unit[at + 1], &unit[at], (size_t)(count++ - at) * sizeof *unit);
        unit[at] = u;
    }
    return count;
}

// ---- parameters

// Of each unit the template's first instruction that reads it; their number where none does.
static size_t *first_reads(const struct program *program, int template, const int *unit_of, int units) {
    const struct template *t = &program->templates.item[template];
    size_t *first = mem_alloc((size_t)units * sizeof *first);
    for (int u = 0; u < units; u++)
        first[u] = t->instructions.count;
    for (size_t i = t->instructions.count; i-- > 0;) {
        const struct instruction *in = &t->instructions.item[i];
        int unit[OP_MAX_IN];
        for (int k = units_among(in->in, in->inputs, unit_of, unit); k-- > 0;)
            first[unit[k]] = i;
    }
    return first;
}

// A second buffer for a gathered unit, with the same slices; `again` maps buffers to it.
static int clone_unit(struct program *program, const struct slices *slices, int root, int *again) {
    again[root] = program_again(program, root, NONE);
    FOR_SLICES(slices, s, root)
        again[s] = program_again(program, s, again[root]);
    return again[root];
}

struct use {
    int unit, gathered;
    size_t first; // instruction that reads it first
    size_t at;    // instruction that its gathering stands before
};

struct uses {
    VEC(struct use);
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

// What is gathered for two templates that follow each other.
static void keep_gathered(struct program *program, const struct use *use, size_t uses) {
    struct slices slices;
    slices_create(&slices, program);
    for (size_t k = 0; k < uses; k++) {
        program->buffers.item[use[k].gathered].scope = SCOPE_SLOT;
        FOR_SLICES(&slices, s, use[k].gathered)
            program->buffers.item[s].scope = SCOPE_SLOT;
    }
    slices_release(&slices);
}

// The buffers that templates gather into.
static bool *find_gathered(const struct program *program) {
    bool *gathered = mem_alloc(program->buffers.count * sizeof *gathered);
    FOR_INSTRUCTIONS(in, program)
        if (in->op == OP_ALL_GATHER)
            gathered[in->out[0].buffer] = true;
    return gathered;
}

// Each template has buffers of its own for what it gathers, which are in use while it runs, and not between.
static void clone_units(struct program *program, int template, struct use *use, size_t uses) {
    size_t known = program->buffers.count;
    int *again = mem_alloc(known * sizeof *again);
    bool *gathered = find_gathered(program);
    struct slices slices;
    slices_create(&slices, program);
    for (size_t i = 0; i < known; i++)
        again[i] = NONE;
    for (size_t k = 0; k < uses; k++)
        if (gathered[use[k].gathered])
            use[k].gathered = clone_unit(program, &slices, use[k].gathered, again);
    replace_reads(&program->templates.item[template], again, known);
    slices_release(&slices);
    free(gathered);
    free(again);
}

// The units that the template reads, and behind those what is to be there when it ends, in order, with where they are
// to be gathered.
static struct uses find_uses(const struct program *program, int template, const struct model_state *model,
                             const struct parallel *parallel, const struct op_table *ops, const int *ahead, int units) {
    const struct template *t = &program->templates.item[template];
    int *unit_of = units_of(program, model->gathered, model->units);
    size_t *first = first_reads(program, template, unit_of, model->units);
    struct uses uses = {0};
    for (int u = 0; u < model->units; u++)
        if (first[u] < t->instructions.count)
            VEC_PUSH(&uses, (struct use){.unit = u, .gathered = model->gathered[u], .first = first[u]});
    for (int k = 0; k < units; k++)
        if (first[ahead[k]] == t->instructions.count)
            VEC_PUSH(&uses, (struct use){ahead[k], model->gathered[ahead[k]], t->instructions.count, 0});
    VEC_SORT(&uses, compare_uses);
    if (parallel->prefetch >= 0)
        place_by_distance(uses.item, uses.count, (size_t)parallel->prefetch);
    else
        place_by_bytes(program, ops, t, uses.item, uses.count);
    free(unit_of);
    free(first);
    return uses;
}

static void emit_use(struct rewrite *r, const struct model_state *model, const struct use *use) {
    program_communicate(r->program, r->template, OP_ALL_GATHER, r->program->templates.item[r->template].phase,
                        STREAM_GATHER, AXES(AXIS_FSDP), operand_whole(r->program, model->unit[use->unit]),
                        operand_whole(r->program, use->gathered));
    rewrite_take_last(r);
}

static void emit_uses(struct program *program, int template, const struct model_state *model, const struct use *use,
                      size_t uses) {
    struct rewrite r;
    size_t next = 0;
    rewrite_begin(&r, program, template);
    for (size_t i = 0; i < program->templates.item[template].instructions.count; i++) {
        for (; next < uses && use[next].at <= i; next++)
            emit_use(&r, model, &use[next]);
        VEC_PUSH(&r.out, program->templates.item[template].instructions.item[i]);
    }
    for (; next < uses; next++)
        emit_use(&r, model, &use[next]);
    rewrite_finish(&r);
}

void data_gather(struct program *program, int template, const struct model_state *model,
                 const struct parallel *parallel, const struct op_table *ops) {
    if (parallel->zero_stage < 3)
        return;
    struct uses uses = find_uses(program, template, model, parallel, ops, NULL, 0);
    clone_units(program, template, uses.item, uses.count);
    emit_uses(program, template, model, uses.item, uses.count);
    VEC_RELEASE(&uses);
}

void data_gather_both(struct program *program, int forward, int backward, const struct model_state *model,
                      const struct parallel *parallel, const struct op_table *ops) {
    if (parallel->zero_stage < 3)
        return;
    struct uses back = find_uses(program, backward, model, parallel, ops, NULL, 0);
    VEC(int) ahead = {0};
    for (size_t k = 0; k < back.count && back.item[k].at == 0; k++)
        VEC_PUSH(&ahead, back.item[k].unit);
    struct uses there = find_uses(program, forward, model, parallel, ops, ahead.item, (int)ahead.count);
    clone_units(program, forward, there.item, there.count);
    emit_uses(program, forward, model, there.item, there.count);
    keep_gathered(program, back.item, ahead.count);
    clone_units(program, backward, back.item + ahead.count, back.count - ahead.count);
    emit_uses(program, backward, model, back.item + ahead.count, back.count - ahead.count);
    VEC_RELEASE(&ahead);
    VEC_RELEASE(&there);
    VEC_RELEASE(&back);
}

// Appends to `uses` the units that the template is the first to read.
static void find_new_uses(const struct program *program, int template, const struct model_state *model,
                          const int *unit_of, bool *found, struct uses *uses) {
    size_t before = uses->count, *first = first_reads(program, template, unit_of, model->units);
    for (int u = 0; u < model->units; u++) {
        if (found[u] || first[u] == program->templates.item[template].instructions.count)
            continue;
        found[u] = true;
        VEC_PUSH(uses, (struct use){.unit = u, .gathered = model->unit[u], .first = first[u]});
    }
    free(first);
    if (uses->count > before)
        qsort(uses->item + before, uses->count - before, sizeof *uses->item, compare_uses);
}

void data_gather_once(struct program *program, const struct model_state *model, const struct parallel *parallel) {
    if (parallel->zero_stage != 1 && parallel->zero_stage != 2)
        return;
    bool *found = mem_alloc((size_t)model->units * sizeof *found);
    bool *seen = mem_alloc(program->templates.count * sizeof *seen);
    int *unit_of = units_of(program, model->unit, model->units);
    struct uses all = {0};
    for (size_t k = 0; k < program->schedule.count; k++) {
        int template = program->schedule.item[k].template;
        if (!seen[template])
            find_new_uses(program, template, model, unit_of, found, &all);
        seen[template] = true;
    }
    for (size_t k = 0; k < all.count; k++) {
        struct operand whole = operand_whole(program, all.item[k].gathered);
        program_communicate(program, program->schedule.item[0].template, OP_ALL_GATHER, PHASE_FORWARD, STREAM_GATHER,
                            AXES(AXIS_FSDP), operand_part(program, whole, AXES(AXIS_FSDP)), whole);
    }
    free(found);
    free(seen);
    free(unit_of);
    VEC_RELEASE(&all);
}

// ---- gradients

struct reducer {
    struct rewrite rewrite;
    const struct model_state *model;
    const struct optimizer_state *optimizer;
    const struct parameter_table *table;
    const struct parallel *parallel;
    const struct slices *slices;
    const int *unit_of; // whose whole gradient a buffer is or lies in
    bool *all_rows;     // [buffers]: rows of all ranks, of which gradients are made that are reduced no more
    bool *complete;     // [buffers]: a gradient that nothing else adds to
    const int *last;    // template, by its place among those of backward, that adds to a unit's gradient
};

// The units to whose gradients it adds what is this rank's.
static int written_units(const struct reducer *r, const struct instruction *instruction, int unit[OP_MAX_IN]) {
    return rows_are_of_all(instruction, r->all_rows)
               ? 0
               : units_among(instruction->out, instruction->outputs, r->unit_of, unit);
}

// Axes along which a unit's gradient is a sum of what ranks have, beside the data axes.
static axis_set shared_axes(const struct parameter_table *table, int unit, const struct parallel *parallel) {
    enum parameter_class split = table->parameters.item[table->first[unit]].split;
    axis_set set = split == CLASS_SHARE ? AXES_TENSOR : split == CLASS_KV ? AXES(AXIS_KV) : AXES_NONE;
    return mesh_present(&parallel->mesh, set);
}

static void emit(struct reducer *r, enum op op, axis_set group, bool only_last, struct operand in, struct operand out) {
    struct program *program = r->rewrite.program;
    struct instruction *i =
        program_communicate(program, r->rewrite.template, op, PHASE_WEIGHT, STREAM_REDUCE, group, in, out);
    i->attribute[op == OP_ALL_REDUCE].i = r->parallel->reduce_bf16;
    i->only_last = only_last;
    if (!only_last)
        i->accumulate = ACCUMULATE_AFTER_FIRST;
    rewrite_take_last(&r->rewrite);
}

static void emit_zero(struct reducer *r, int root, int64_t from, int64_t to, bool only_last) {
    if (from == to)
        return;
    struct operand gap = {.buffer = root, .offset = from, .ndim = 1, .dim = {to - from}, .stride = {1}};
    program_emit(r->rewrite.program, r->rewrite.template, OP_ZERO, PHASE_WEIGHT, NONE, 0, NULL, 1, &gap, NULL)
        ->only_last = only_last;
    rewrite_take_last(&r->rewrite);
}

// What lies between the tensors of a unit goes the way of the rest: it must be zero.
static void zero_gaps(struct reducer *r, int root, bool only_last) {
    const struct program *program = r->rewrite.program;
    int64_t at = 0;
    FOR_SLICES(r->slices, s, root) {
        const struct buffer *b = &program->buffers.item[s];
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

static void reduce_unit(struct reducer *r, int unit) {
    const struct program *program = r->rewrite.program;
    struct operand whole = operand_whole(program, r->optimizer->whole_gradient[unit]), part = whole;
    int stage = r->optimizer->zero_stage;
    axis_set rest = AXES_DATA & ~r->optimizer->shards;
    rest = mesh_present(&r->parallel->mesh, rest | shared_axes(r->table, unit, r->parallel));
    if (stage == 1)
        part = operand_part(program, whole, r->optimizer->shards);
    else if (stage >= 2)
        part = operand_whole(program, r->optimizer->gradient[unit]);
    bool once = reduced_once(r, unit);
    if (stage >= 2 && once)
        zero_gaps(r, whole.buffer, true);
    if (stage >= 1)
        emit(r, OP_REDUCE_SCATTER, r->optimizer->shards, once, whole, part);
    if (!rest)
        return;
    bool complete = false;
    FOR_SLICES(r->slices, s, whole.buffer)
        complete |= r->complete[s];
    if (!complete)
        emit(r, OP_ALL_REDUCE, rest, true, part, part);
    FOR_SLICES(r->slices, s, whole.buffer)
        if (complete && !r->complete[s])
            emit(r, OP_ALL_REDUCE, rest, true, operand_whole(program, s), operand_whole(program, s));
}

static int *last_writers(const struct reducer *r, const int *backward, int templates) {
    int *last = mem_alloc((size_t)r->model->units * sizeof *last);
    for (int k = 0; k < templates; k++) {
        const struct template *t = &r->rewrite.program->templates.item[backward[k]];
        for (size_t i = 0; i < t->instructions.count; i++) {
            int unit[OP_MAX_IN];
            for (int n = written_units(r, &t->instructions.item[i], unit); n-- > 0;)
                last[unit[n]] = k;
        }
    }
    return last;
}

// Where a step has one microbatch and all ranks keep whole gradients: what the rows of all ranks are added to is
// reduced before. Sets r->all_rows and r->complete.
static void gather_rows(struct reducer *r, const int *backward, int templates) {
    struct program *program = r->rewrite.program;
    const axis_set group = mesh_present(&program->mesh, AXES_DATA);
    const bool apply = group && program->microbatches == 1 && r->optimizer->zero_stage == 0;
    bool *tables = mem_alloc(program->buffers.count * sizeof *tables);
    for (int u = 0; u < r->model->units; u++)
        FOR_SLICES(r->slices, s, r->optimizer->whole_gradient[u])
            tables[s] = apply && shared_axes(r->table, u, r->parallel) == AXES_NONE;
    r->all_rows = rows_gather(program, backward, templates, group, tables);
    r->complete = mem_alloc(program->buffers.count * sizeof *r->complete);
    bool *adds = mem_alloc(program->buffers.count * sizeof *adds); // what is the rank's own
    for (int k = 0; k < templates; k++) {
        const struct template *t = &program->templates.item[backward[k]];
        for (size_t i = 0; i < t->instructions.count; i++) {
            const struct instruction *in = &t->instructions.item[i];
            bool *is = rows_are_of_all(in, r->all_rows) ? r->complete : adds;
            for (int o = 0; o < in->outputs; o++)
                if (in->out[o].buffer != NONE)
                    is[in->out[o].buffer] = true;
        }
    }
    for (size_t i = 0; i < program->buffers.count; i++)
        r->complete[i] &= !adds[i];
    free(adds);
    free(tables);
}

// Gradients that are reduced from scratch: of two sets of units, one that is made while the other is on its way. A set
// is what of a layer, or of several that are one, is split alike; whose units are made and reduced together.
enum { REDUCE_BUFFERS = 2 };

// Of the unit's parameters.
static int set_of(const struct reducer *r, int unit) {
    return r->table->parameters.item[r->table->first[unit]].set;
}

// Lets the computing before the i-th instruction wait for the template's first `count` reductions, of `done` before it:
// what is then written may take their memory.
static void wait_before(struct reducer *r, size_t i, int done, int count) {
    struct instruction *item = r->rewrite.out.item;
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

static void hold_back(struct reducer *r) {
    const int units = r->model->units;
    int most = 0, sets = 0, done = 0, unit[OP_MAX_IN];
    for (int u = 0; u < units; u++)
        most = MAX(most, 1 + set_of(r, u));
    bool *begun = mem_alloc((size_t)units * sizeof *begun);
    int *number = mem_alloc((size_t)most * sizeof *number);    // of each set: in order, from 1 on
    int *reduced = mem_alloc((size_t)units * sizeof *reduced); // by order of sets: instructions up to its last
    for (size_t i = 0; i < r->rewrite.out.count; i++) {
        const struct instruction *in = &r->rewrite.out.item[i];
        done += in->stream == STREAM_REDUCE;
        int count = in->stream == STREAM_REDUCE ? units_among(in->in, in->inputs, r->unit_of, unit) : 0;
        for (int k = 0; k < count; k++)
            if (!reduced_once(r, unit[k]))
                reduced[number[set_of(r, unit[k])] - 1] = done;
        count = in->stream == STREAM_COMPUTE ? written_units(r, in, unit) : 0;
        for (int k = 0; k < count; k++) {
            if (begun[unit[k]] || reduced_once(r, unit[k]))
                continue;
            begun[unit[k]] = true;
            int *own = &number[set_of(r, unit[k])];
            *own = *own ? *own : ++sets;
            int awaited = *own <= REDUCE_BUFFERS ? 0 : reduced[*own - 1 - REDUCE_BUFFERS];
            if (awaited)
                wait_before(r, i, done, awaited);
        }
    }
    free(begun);
    free(number);
    free(reduced);
}

// Of each unit the template's first and last instruction that writes its gradient; their number where none does.
static void find_writes(const struct reducer *r, size_t *first, size_t *last) {
    const struct template *t = &r->rewrite.program->templates.item[r->rewrite.template];
    for (int u = 0; u < r->model->units; u++)
        first[u] = last[u] = t->instructions.count;
    for (size_t i = 0; i < t->instructions.count; i++) {
        int unit[OP_MAX_IN];
        for (int k = written_units(r, &t->instructions.item[i], unit); k-- > 0;) {
            first[unit[k]] = MIN(first[unit[k]], i);
            last[unit[k]] = i;
        }
    }
}

// `at`: the template's place among those of backward.
static void rewrite_backward(struct reducer *r, int at) {
    struct program *program = r->rewrite.program;
    const int units = r->model->units, template = r->rewrite.template;
    const size_t count = program->templates.item[template].instructions.count;
    size_t *first = mem_alloc((size_t)units * sizeof *first), *last = mem_alloc((size_t)units * sizeof *last);
    find_writes(r, first, last);
    for (size_t i = 0; i < count; i++) {
        const struct instruction in = program->templates.item[template].instructions.item[i];
        int unit[OP_MAX_IN];
        const int written = written_units(r, &in, unit);
        for (int k = 0; k < written; k++)
            if (first[unit[k]] == i && !reduced_once(r, unit[k]))
                zero_gaps(r, r->optimizer->whole_gradient[unit[k]], false);
        VEC_PUSH(&r->rewrite.out, in);
        for (int k = 0; k < written; k++)
            if (last[unit[k]] == i && r->last[unit[k]] == at)
                reduce_unit(r, unit[k]);
    }
    hold_back(r);
    rewrite_finish(&r->rewrite);
    free(first);
    free(last);
}

void data_reduce(struct program *program, const int *backward, int templates, const struct model_state *model,
                 const struct optimizer_state *optimizer, const struct parameter_table *table,
                 const struct parallel *parallel) {
    if (mesh_ranks(&parallel->mesh) == 1)
        return;
    struct slices slices;
    slices_create(&slices, program);
    struct reducer r = {.rewrite = {.program = program},
                        .model = model,
                        .optimizer = optimizer,
                        .table = table,
                        .parallel = parallel,
                        .slices = &slices};
    gather_rows(&r, backward, templates);
    int *unit_of = units_of(program, optimizer->whole_gradient, model->units);
    r.unit_of = unit_of;
    int *last = last_writers(&r, backward, templates);
    r.last = last;
    for (int k = 0; k < templates; k++) {
        rewrite_begin(&r.rewrite, program, backward[k]);
        rewrite_backward(&r, k);
    }
    slices_release(&slices);
    free(r.all_rows);
    free(r.complete);
    free(last);
    free(unit_of);
}
