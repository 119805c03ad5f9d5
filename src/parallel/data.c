#include "parallel/data.h"

#include "parallel/rewrite.h"
#include "parallel/units.h"
#include "program/slices.h"

struct state_layout state_layout_of(const struct parallel *parallel, const struct model_config *model) {
    bool is_spread = parallel->split.vocabulary_stages > 1;
    struct state_layout layout = {
        .zero_stage = parallel->zero_stage,
        .tied_ends =
            model->tie_word_embeddings && parallel->schedule && schedule_ends_apart(parallel->schedule) && !is_spread,
        .vocabulary = is_spread,
        .rows = parallel->split.row_ranks > 1,
    };
    memcpy(layout.shards, parallel->shards, sizeof layout.shards);
    return layout;
}

// ---- streams

int gather_stream(struct program *program) {
    return program_stream(program, "gather", STREAM_BULK);
}

int replicas_stream(struct program *program) {
    return program_stream(program, "replicas", STREAM_BULK);
}

// ---- parameters

// For each unit the template's first instruction that reads it; the number of instructions where none does.
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

// Makes a second buffer for a gathered unit, with the same slices; `again` maps the old buffers to the new ones.
static int clone_unit(struct program *program, const struct slices *slices, int root, int *again) {
    again[root] = program_again(program, root, NONE);
    FOR_SLICES(slices, s, root)
        again[s] = program_again(program, s, again[root]);
    return again[root];
}

struct use {
    int unit, gathered;
    size_t first; // the first instruction that reads it
    size_t at;    // the instruction before which it is gathered
};

struct uses {
    VEC(struct use);
};

static int compare_uses(const void *a, const void *b) {
    const struct use *x = a, *y = b;
    return COMPARE(x->first, y->first) ?: COMPARE(x->unit, y->unit);
}

static void replace_reads(struct template *t, const int *again, size_t known) {
    for (size_t i = 0; i < t->instructions.count; i++)
        for (int k = 0; k < t->instructions.item[i].inputs; k++) {
            int *buffer = &t->instructions.item[i].in[k].buffer;
            if (*buffer != NONE && (size_t)*buffer < known && again[*buffer] != NONE)
                *buffer = again[*buffer];
        }
}

// Gathers a fixed number of units ahead.
static void place_by_distance(struct use *use, size_t uses, size_t distance) {
    for (size_t k = 0; k < uses; k++)
        use[k].at = use[k - MIN(k, distance)].first;
}

// Gathers as late as possible, assuming a link just so fast that all bytes take as long as all work: of equal layers
// each is gathered during the one before, and a large head during as many layers as its bytes are worth. A faster link
// hides as much, and a slower one is busy all the time anyway.
static void place_by_bytes(const struct program *program, const struct op_table *ops, const struct template *t,
                           struct use *use, size_t uses) {
    size_t count = t->instructions.count;
    double *work = mem_alloc((count + 1) * sizeof *work), bytes = 0;
    for (size_t i = 0; i < count; i++)
        work[i + 1] = work[i] + instruction_flops(program, ops, &t->instructions.item[i]);
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

// Keeps in slots what is gathered for two templates at once.
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
            gathered[in->out[OUTPUT(ALL_GATHER, y)].buffer] = true;
    return gathered;
}

// Gives the template buffers of its own for units that another template gathers too, so that buffers are in use only
// while one template runs.
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

// The units that the template reads, in order, then those of ahead[units] that have to be there when it ends, each with
// the place where it is gathered.
static struct uses data_find_uses(const struct program *program, int template, const struct model_state *model,
                                  const struct parallel *parallel, const struct op_table *ops, const int *ahead,
                                  int units) {
    const struct template *t = &program->templates.item[template];
    int *unit_of = units_of(program, model->gathered, model->units);
    size_t *first = first_reads(program, template, unit_of, model->units);
    struct uses uses = {0};
    for (int u = 0; u < model->units; u++)
        if (model->axes[u].zero_stage == 3 && first[u] < t->instructions.count)
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
                        gather_stream(r->program), model->axes[use->unit].shards,
                        operand_whole(r->program, model->unit[use->unit]), operand_whole(r->program, use->gathered));
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
    struct uses uses = data_find_uses(program, template, model, parallel, ops, NULL, 0);
    clone_units(program, template, uses.item, uses.count);
    emit_uses(program, template, model, uses.item, uses.count);
    VEC_RELEASE(&uses);
}

void data_gather_both(struct program *program, int forward, int backward, const struct model_state *model,
                      const struct parallel *parallel, const struct op_table *ops) {
    if (parallel->zero_stage < 3)
        return;
    struct uses back = data_find_uses(program, backward, model, parallel, ops, NULL, 0);
    VEC(int) ahead = {0};
    for (size_t k = 0; k < back.count && back.item[k].at == 0; k++)
        VEC_PUSH(&ahead, back.item[k].unit);
    struct uses there = data_find_uses(program, forward, model, parallel, ops, ahead.item, (int)ahead.count);
    clone_units(program, forward, there.item, there.count);
    emit_uses(program, forward, model, there.item, there.count);
    keep_gathered(program, back.item, ahead.count);
    if (ahead.count < back.count) {
        clone_units(program, backward, back.item + ahead.count, back.count - ahead.count);
        emit_uses(program, backward, model, back.item + ahead.count, back.count - ahead.count);
    }
    VEC_RELEASE(&ahead);
    VEC_RELEASE(&there);
    VEC_RELEASE(&back);
}

// Appends to `uses` the units that the template is the first to read.
static void find_new_uses(const struct program *program, int template, const struct model_state *model,
                          const int *unit_of, bool *found, struct uses *uses) {
    size_t before = uses->count, *first = first_reads(program, template, unit_of, model->units);
    for (int u = 0; u < model->units; u++) {
        if (found[u] || !unit_own(&model->axes[u]) || first[u] == program->templates.item[template].instructions.count)
            continue;
        found[u] = true;
        VEC_PUSH(uses, (struct use){.unit = u, .gathered = model->unit[u], .first = first[u]});
    }
    free(first);
    if (uses->count > before)
        qsort(uses->item + before, uses->count - before, sizeof *uses->item, compare_uses);
}

static void gather_own(struct program *program, int template, int buffer, axis_set along) {
    const struct operand whole = operand_whole(program, buffer);
    program_communicate(program, template, OP_ALL_GATHER, PHASE_FORWARD, gather_stream(program), along,
                        operand_part(program, whole, along), whole);
}

// For a unit in whose parts rows are looked up first: the whole unit is gathered after those lookups.
static void gather_behind_rows(struct program *program, struct operand rows, axis_set along) {
    for (size_t t = 0; t < program->templates.count; t++) {
        struct rewrite r;
        rewrite_begin(&r, program, (int)t);
        for (size_t i = 0; i < program->templates.item[t].instructions.count; i++) {
            const struct instruction in = program->templates.item[t].instructions.item[i];
            VEC_PUSH(&r.out, in);
            if (in.op != OP_EMBED || !operand_equal(&in.in[INPUT(EMBED, w)], &rows))
                continue;
            gather_own(program, (int)t, rows.buffer, along);
            rewrite_take_last(&r);
        }
        rewrite_finish(&r);
    }
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
    for (size_t k = 0; k < all.count; k++)
        if (all.item[k].gathered == model->own_rows.buffer)
            gather_behind_rows(program, model->own_rows, model->own_rows_along);
        else
            gather_own(program, program->schedule.item[0].template, all.item[k].gathered,
                       model->axes[all.item[k].unit].shards);
    free(found);
    free(seen);
    free(unit_of);
    VEC_RELEASE(&all);
}
