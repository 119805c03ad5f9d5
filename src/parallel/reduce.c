// Reduces gradients (data.h). Besides placing the reductions, it bounds the scratch memory of gradients: backward waits
// before it writes a gradient whose memory an earlier one still takes because it is being reduced (`hold_back`).
#include "parallel/data.h"
#include "parallel/embedding_rows.h"
#include "parallel/rewrite.h"
#include "parallel/units.h"
#include "program/slices.h"

struct reducer {
    struct rewrite rewrite;
    const struct model_state *model;
    const struct optimizer_state *optimizer;
    const struct parameter_table *table;
    const struct parallel *parallel;
    const struct op_table *ops;
    const struct slices *slices;
    const int *unit_of; // [buffers]: the unit whose whole gradient the buffer is or lies in
    bool *all_rows;     // [buffers]: holds rows of all ranks; contributions made of it are not reduced
    bool *complete;     // [buffers]: a gradient with no other contributions
    int stream;         // of reductions
    const int *last;    // [units]: the last template that adds to the unit's gradient, by its place in backward's list
};

// The units to whose gradients the instruction adds contributions of this rank alone.
static int written_units(const struct reducer *r, const struct instruction *instruction, int unit[OP_MAX_IN]) {
    return rows_are_of_all(instruction, r->all_rows)
               ? 0
               : units_among(instruction->out, instruction->outputs, r->unit_of, unit);
}

// The axes along which the sum is still to be made, once it is scattered over the unit's shards.
static axis_set unscattered(const struct unit_axes *axes) {
    return axes->terms & ~axes->shards;
}

// Appends a reduction. Sharded gradients are summed between replicas on a stream of their own: that goes over other
// links, while the next unit's gradient is being scattered.
static void reduce_emit(struct reducer *r, enum op op, axis_set group, bool replicas, enum when when, struct operand in,
                        struct operand out) {
    struct program *program = r->rewrite.program;
    const int stream = replicas ? replicas_stream(program) : r->stream;
    struct instruction *i = program_communicate(program, r->rewrite.template, op, PHASE_WEIGHT, stream, group, in, out);
    i->attribute[op_wire(op)].i = r->parallel->reduce_bf16;
    i->when = when;
    if (when == WHEN_ALWAYS)
        i->accumulate = ACCUMULATE_AFTER_FIRST;
    rewrite_take_last(&r->rewrite);
}

static void emit_zero(struct reducer *r, int root, int64_t from, int64_t to, enum when when) {
    if (from == to)
        return;
    struct operand gap = {.buffer = root, .offset = from, .ndim = 1, .dim = {to - from}, .stride = {1}};
    program_emit(r->rewrite.program, r->rewrite.template, OP_ZERO, PHASE_WEIGHT, NONE, 0, NULL, 1, &gap, NULL)->when =
        when;
    rewrite_take_last(&r->rewrite);
}

// The gaps between a unit's tensors are reduced with the rest of it: they must be zero.
static void zero_gaps(struct reducer *r, int root, enum when when) {
    const struct program *program = r->rewrite.program;
    int64_t at = 0;
    FOR_SLICES(r->slices, s, root) {
        const struct buffer *b = &program->buffers.item[s];
        emit_zero(r, root, at, b->parent_offset, when);
        at = b->parent_offset + buffer_count(b);
    }
    emit_zero(r, root, at, buffer_count(&program->buffers.item[root]), when);
}

// Whether the unit's gradient is kept whole until the step's last microbatch.
static bool reduced_once(const struct reducer *r, int unit) {
    int whole = r->optimizer->whole_gradient[unit];
    return r->rewrite.program->buffers.item[whole].scope != SCOPE_LOCAL;
}

static void reduce_unit(struct reducer *r, int unit) {
    const struct program *program = r->rewrite.program;
    struct operand whole = operand_whole(program, r->optimizer->whole_gradient[unit]), part = whole;
    const struct unit_axes *axes = &r->optimizer->axes[unit];
    const int stage = axes->zero_stage;
    const axis_set rest = unscattered(axes);
    if (stage == 1)
        part = operand_part(program, whole, axes->shards);
    else if (stage >= 2)
        part = operand_whole(program, r->optimizer->gradient[unit]);
    bool once = reduced_once(r, unit);
    if (stage >= 2 && once)
        zero_gaps(r, whole.buffer, WHEN_LAST);
    if (stage >= 1)
        reduce_emit(r, OP_REDUCE_SCATTER, axes->shards, false, once ? WHEN_LAST : WHEN_ALWAYS, whole, part);
    if (!rest)
        return;
    bool complete = false;
    FOR_SLICES(r->slices, s, whole.buffer)
        complete |= r->complete[s];
    if (!complete)
        reduce_emit(r, OP_ALL_REDUCE, rest, stage >= 1, WHEN_LAST, part, part);
    FOR_SLICES(r->slices, s, whole.buffer)
        if (complete && !r->complete[s])
            reduce_emit(r, OP_ALL_REDUCE, rest, stage >= 1, WHEN_LAST, operand_whole(program, s),
                        operand_whole(program, s));
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

// Gathers the rows of all ranks for gradients of tables (rows.h): where all ranks keep whole gradients, and, where each
// looks up rows in its own part of the embedding, between the replicas of that part. Sets r->all_rows and r->complete.
static void gather_rows(struct reducer *r, const int *backward, int templates) {
    struct program *program = r->rewrite.program;
    const int table = parameter_embedding(r->table);
    const axis_set group =
        table == NONE ? AXES_NONE : unscattered(&r->optimizer->axes[r->table->parameters.item[table].unit]);
    const bool parts = r->model->own_rows.buffer != NONE;
    bool *tables = mem_alloc(program->buffers.count * sizeof *tables);
    for (int u = 0; group && u < r->model->units; u++) {
        const struct unit_axes *axes = &r->optimizer->axes[u];
        const bool joins = unscattered(axes) == group && !(group & ~AXES_DATA);
        if (r->optimizer->gradient[u] == NONE)
            continue;
        tables[r->optimizer->gradient[u]] = parts && r->model->unit[u] == r->model->own_rows.buffer;
        FOR_SLICES(r->slices, s, r->optimizer->whole_gradient[u])
            tables[s] = axes->zero_stage == 0 && joins;
    }
    r->all_rows = rows_gather(program, backward, templates, group, tables, parts);
    r->complete = mem_alloc(program->buffers.count * sizeof *r->complete);
    bool *adds = mem_alloc(program->buffers.count * sizeof *adds); // whether the rank's own contributions are added
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

// ---- how many gradients wait in scratch
//
// A set: the units of a layer, or of several layers that are joined, which are split alike (struct parameter's `set`).
// Its gradients lie in scratch, and are made and reduced together.
struct set {
    int64_t bytes;
    size_t begins;  // the first instruction that writes to it
    int reduced;    // how many reductions the template has up to the set's last
    int64_t beside; // the most bytes of other scratch that live until the next set is begun
    // When it is begun, and when it is reduced, in flops of the template; assuming a link just so fast that all bytes
    // take as long as all work.
    double begun, done;
};
struct sets {
    VEC(struct set); // in the order in which they are begun
    int *number;     // [sets of the parameter table]: the place in that order; or NONE
    int64_t room;    // bytes for sets and what else lives in scratch
};
enum { REDUCE_BUFFERS = 2 }; // sets that have room in any case: one is made while the one before is on its way

// The set of the unit's parameters.
static int set_of(const struct reducer *r, int unit) {
    return r->table->parameters.item[r->table->first[unit]].set;
}

// Makes computing wait before the i-th instruction for the template's first `count` reductions, where `done` of them
// come before it: later instructions may then write to the memory of those reductions.
static void wait_before(struct reducer *r, size_t i, int done, int count) {
    struct instruction *item = r->rewrite.out.item;
    size_t at = i;
    for (int left = done; at > 0 && left >= count; at--) {
        left -= item[at - 1].stream == r->stream;
        if (item[at - 1].stream == STREAM_COMPUTE) {
            item[at - 1].wait[r->stream] = wait_for_all_but(left - count);
            return;
        }
    }
    item[i].wait[r->stream] = wait_for_all_but(done - count);
}

// Adds to live[i], for each instruction, the bytes of scratch other than gradients that live while it runs. With
// several slots what forward has left is not in scratch.
static void reduce_add_live(const struct reducer *r, int64_t *live) {
    const struct program *p = r->rewrite.program;
    const size_t count = r->rewrite.out.count;
    size_t *first = mem_alloc(p->buffers.count * sizeof *first), *last = mem_alloc(p->buffers.count * sizeof *last);
    bool *made = mem_alloc(p->buffers.count * sizeof *made); // by this template
    for (size_t i = 0; i < count; i++) {
        const struct instruction *in = &r->rewrite.out.item[i];
        for (int k = 0; k < in->inputs + in->outputs; k++) {
            const int buffer = instruction_operand_at(in, k)->buffer;
            if (buffer == NONE)
                continue;
            const int root = program_root(p, buffer);
            if (last[root] == 0) {
                made[root] = k >= in->inputs;
                first[root] = made[root] ? i : 0;
            }
            last[root] = i + 1;
        }
    }
    for (size_t b = 0; b < p->buffers.count; b++) {
        const struct buffer *buffer = &p->buffers.item[b];
        if (!last[b] || buffer->scope != SCOPE_LOCAL || buffer->kind == KIND_GRAD ||
            (!made[b] && r->parallel->schedule))
            continue;
        live[first[b]] += buffer_bytes(buffer);
        live[last[b]] -= buffer_bytes(buffer);
    }
    // An output that takes over the memory of an input that dies there.
    for (size_t i = 0; i < count; i++) {
        const struct instruction *in = &r->rewrite.out.item[i];
        for (int o = 0; o < in->outputs; o++) {
            const int input = r->ops->op[in->op].inplace[o];
            if (input < 0 || in->in[input].buffer == NONE || in->out[o].buffer == NONE)
                continue;
            const int dies = program_root(p, in->in[input].buffer), born = program_root(p, in->out[o].buffer);
            const int64_t bytes = buffer_bytes(&p->buffers.item[born]);
            if (dies == born || last[dies] != i + 1 || first[born] != i || !made[born] ||
                bytes != buffer_bytes(&p->buffers.item[dies]))
                continue;
            live[i] -= bytes;
            live[i + 1] += bytes;
        }
    }
    for (size_t i = 0; i < count; i++)
        live[i + 1] += live[i];
    free(first);
    free(last);
    free(made);
}

static void time_sets(const struct reducer *r, struct sets *sets) {
    double work = 0, all = 0, bytes = 0;
    for (size_t n = 0; n < sets->count; n++)
        bytes += (double)sets->item[n].bytes;
    for (size_t i = 0; i < r->rewrite.out.count; i++)
        all += instruction_flops(r->rewrite.program, r->ops, &r->rewrite.out.item[i]);
    for (size_t i = 0, n = 0; i < r->rewrite.out.count && n < sets->count; i++) {
        for (; n < sets->count && sets->item[n].begins == i; n++)
            sets->item[n].begun = work;
        work += instruction_flops(r->rewrite.program, r->ops, &r->rewrite.out.item[i]);
    }
    for (size_t n = 0; n < sets->count; n++) {
        struct set *set = &sets->item[n];
        const double made = n + 1 < sets->count ? set[1].begun : all, before = n > 0 ? set[-1].done : 0;
        set->done = MAX(made, before) + all * (double)set->bytes / bytes;
    }
}

// Finds the sets. Room is what they take if each waits until the last but one before it is reduced.
static void find_sets(const struct reducer *r, struct sets *sets) {
    const size_t count = r->rewrite.out.count;
    const int units = r->model->units;
    int most = 0, unit[OP_MAX_IN];
    for (int u = 0; u < units; u++)
        most = MAX(most, 1 + set_of(r, u));
    *sets = (struct sets){.number = mem_alloc((size_t)most * sizeof(int))};
    for (int k = 0; k < most; k++)
        sets->number[k] = NONE;
    bool *begun = mem_alloc((size_t)units * sizeof *begun);
    int64_t *live = mem_alloc((count + 1) * sizeof *live);
    reduce_add_live(r, live);
    for (size_t i = 0; i < count; i++) {
        const struct instruction *in = &r->rewrite.out.item[i];
        const int written = in->stream == STREAM_COMPUTE ? written_units(r, in, unit) : 0;
        for (int k = 0; k < written; k++) {
            int *number = &sets->number[set_of(r, unit[k])];
            if (begun[unit[k]] || reduced_once(r, unit[k]))
                continue;
            if (*number == NONE) {
                *number = (int)sets->count;
                VEC_PUSH(sets, (struct set){.begins = i});
            }
            begun[unit[k]] = true;
            const int whole = r->optimizer->whole_gradient[unit[k]];
            sets->item[*number].bytes += buffer_bytes(&r->rewrite.program->buffers.item[whole]);
        }
    }
    for (size_t n = 0; n < sets->count; n++) {
        struct set *set = &sets->item[n];
        const size_t end = n + 1 < sets->count ? set[1].begins : count;
        for (size_t i = set->begins; i < end; i++)
            set->beside = MAX(set->beside, live[i]);
        const int64_t before = n > 0 ? set[-1].bytes : 0;
        sets->room = MAX(sets->room, set->beside + set->bytes + before);
    }
    time_sets(r, sets);
    free(begun);
    free(live);
}

// How many of the first sets have to be reduced when set n is begun: all before it, except those that are still on
// their way then and for which there is room.
static int awaited_sets(const struct sets *sets, int n) {
    int64_t taken = sets->item[n].beside + sets->item[n].bytes;
    int awaited = n;
    while (awaited > 0 && (awaited > n + 1 - REDUCE_BUFFERS || (sets->item[awaited - 1].done > sets->item[n].begun &&
                                                                taken + sets->item[awaited - 1].bytes <= sets->room)))
        taken += sets->item[--awaited].bytes;
    return awaited;
}

static void hold_back(struct reducer *r) {
    struct sets sets;
    find_sets(r, &sets);
    int done = 0, known = 0, unit[OP_MAX_IN];
    size_t next = 0;
    for (size_t i = 0; i < r->rewrite.out.count; i++) {
        const struct instruction *in = &r->rewrite.out.item[i];
        done += in->stream == r->stream;
        const int reduced = in->stream == r->stream ? units_among(in->in, in->inputs, r->unit_of, unit) : 0;
        for (int k = 0; k < reduced; k++)
            if (!reduced_once(r, unit[k]))
                sets.item[sets.number[set_of(r, unit[k])]].reduced = done;
        for (; next < sets.count && sets.item[next].begins == i; next++) {
            const int before = awaited_sets(&sets, (int)next), awaited = before ? sets.item[before - 1].reduced : 0;
            if (awaited > known)
                wait_before(r, i, done, awaited);
            known = MAX(known, awaited);
        }
    }
    VEC_RELEASE(&sets);
    free(sets.number);
}

// For each unit, sets first[] to how many of the template's instructions come before the first that writes its
// gradient, and last[] to how many there are up to the last that does so in a last invocation (0: none does). Where no
// instruction writes it, both are larger than the number of instructions.
static void find_writes(const struct reducer *r, size_t *first, size_t *last) {
    const struct template *t = &r->rewrite.program->templates.item[r->rewrite.template];
    for (int u = 0; u < r->model->units; u++)
        first[u] = last[u] = t->instructions.count + 1;
    for (size_t i = 0; i < t->instructions.count; i++) {
        int unit[OP_MAX_IN];
        const bool now = t->instructions.item[i].when != WHEN_NOT_LAST;
        for (int k = written_units(r, &t->instructions.item[i], unit); k-- > 0;) {
            const size_t before = first[unit[k]] < i ? last[unit[k]] : 0;
            first[unit[k]] = MIN(first[unit[k]], i);
            last[unit[k]] = now ? i + 1 : before;
        }
    }
}

// `at`: the template's place in the list of backward templates.
static void rewrite_backward(struct reducer *r, int at) {
    struct program *program = r->rewrite.program;
    const int units = r->model->units, template = r->rewrite.template;
    const size_t count = program->templates.item[template].instructions.count;
    size_t *first = mem_alloc((size_t)units * sizeof *first), *last = mem_alloc((size_t)units * sizeof *last);
    find_writes(r, first, last);
    for (int u = 0; u < units; u++)
        if (last[u] == 0 && r->last[u] == at)
            reduce_unit(r, u);
    for (size_t i = 0; i < count; i++) {
        const struct instruction in = program->templates.item[template].instructions.item[i];
        int unit[OP_MAX_IN];
        const int written = written_units(r, &in, unit);
        for (int k = 0; k < written; k++)
            if (first[unit[k]] == i && !reduced_once(r, unit[k]))
                zero_gaps(r, r->optimizer->whole_gradient[unit[k]], WHEN_ALWAYS);
        VEC_PUSH(&r->rewrite.out, in);
        for (int k = 0; k < written; k++)
            if (last[unit[k]] == i + 1 && r->last[unit[k]] == at)
                reduce_unit(r, unit[k]);
    }
    hold_back(r);
    rewrite_finish(&r->rewrite);
    free(first);
    free(last);
}

void data_reduce(struct program *program, const int *backward, int templates, const struct model_state *model,
                 const struct optimizer_state *optimizer, const struct parameter_table *table,
                 const struct parallel *parallel, const struct op_table *ops) {
    if (mesh_ranks(&parallel->mesh) == 1)
        return;
    struct slices slices;
    slices_create(&slices, program);
    struct reducer r = {.rewrite = {.program = program},
                        .stream = reduce_stream(program),
                        .model = model,
                        .optimizer = optimizer,
                        .table = table,
                        .parallel = parallel,
                        .ops = ops,
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
