#include "parallel/embedding_rows.h"

#include "optim/optimizer.h"
#include "parallel/rewrite.h"

static const size_t GATHERED = SIZE_MAX;

struct gatherer {
    struct rewrite rewrite;
    axis_set group;
    const bool *tables;
    bool always;
    // [buffers before the rewrite]
    int *all;        // the buffer for the rows of all ranks; NONE where they are not gathered
    size_t *made;    // how many instructions of the template come before the rank's own rows are there; or GATHERED
    VEC(int) wanted; // buffers whose rows are gathered, ascending
};

static bool rows_is_whole(const struct program *program, const struct operand *operand) {
    const struct operand whole = operand_whole(program, operand->buffer);
    return program->buffers.item[operand->buffer].parent == NONE && operand_equal(operand, &whole);
}

static bool adds_rows(const struct gatherer *g, const struct instruction *in) {
    return in->op == OP_EMBED_DW && g->tables[in->out[OUTPUT(EMBED_DW, dw)].buffer] &&
           rows_is_whole(g->rewrite.program, &in->in[INPUT(EMBED_DW, ids)]) &&
           rows_is_whole(g->rewrite.program, &in->in[INPUT(EMBED_DW, dy)]);
}

// Whether gathering the rows takes at most half of the time of reducing the table: a rank receives the rows of all
// others, or, in an all_reduce, twice the table without its own part.
static bool are_few(const struct gatherer *g, const struct instruction *in) {
    const struct program *p = g->rewrite.program;
    const int ranks = mesh_group_size(&p->mesh, g->group);
    double rows = (double)buffer_bytes(&p->buffers.item[in->in[INPUT(EMBED_DW, dy)].buffer]) * (ranks - 1);
    double table =
        2.0 * (double)buffer_bytes(&p->buffers.item[in->out[OUTPUT(EMBED_DW, dw)].buffer]) * (ranks - 1) / ranks;
    return 2 * rows <= table;
}

// Has the rows in `buffer` gathered, for an instruction that `before` others precede.
static void rows_want(struct gatherer *g, int buffer, size_t before) {
    struct program *p = g->rewrite.program;
    const struct template *t = &p->templates.item[g->rewrite.template];
    if (g->all[buffer] != NONE)
        return;
    struct buffer own = p->buffers.item[buffer];
    char *name = mem_printf("%s.all", own.name);
    own.dim[0] *= mesh_group_size(&p->mesh, g->group);
    g->all[buffer] = program_buffer(p, name, own.dtype, KIND_ACT, SCOPE_LOCAL, own.ndim, own.dim);
    free(name);
    VEC_PUSH(&g->wanted, buffer);
    for (size_t i = 0; i < before; i++)
        for (int o = 0; o < t->instructions.item[i].outputs; o++) {
            int written = t->instructions.item[i].out[o].buffer;
            if (written != NONE && program_root(p, written) == buffer)
                g->made[buffer] = i + 1;
        }
}

// Finds the rows to gather; returns how many instructions use them. Rows of gradients that are gathered for a large
// table also serve a small one.
static size_t find_rows(struct gatherer *g) {
    const struct template *t = &g->rewrite.program->templates.item[g->rewrite.template];
    size_t found = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < t->instructions.count; i++) {
            const struct instruction *in = &t->instructions.item[i];
            if (!adds_rows(g, in) ||
                (pass == 0 ? !g->always && !are_few(g, in) : g->all[in->in[INPUT(EMBED_DW, dy)].buffer] == NONE))
                continue;
            rows_want(g, in->in[INPUT(EMBED_DW, ids)].buffer, i);
            rows_want(g, in->in[INPUT(EMBED_DW, dy)].buffer, i);
            found++;
        }
    sort_ints(g->wanted.item, g->wanted.count);
    return found;
}

// With several microbatches only the last one's rows are gathered.
static enum when rows_when(const struct gatherer *g) {
    return g->rewrite.program->microbatches > 1 ? WHEN_LAST : WHEN_ALWAYS;
}

static void emit_gathers(struct gatherer *g, size_t made) {
    struct program *p = g->rewrite.program;
    for (size_t i = 0; i < g->wanted.count; i++) {
        const int b = g->wanted.item[i];
        if (g->made[b] != made)
            continue;
        program_communicate(p, g->rewrite.template, OP_ALL_GATHER, PHASE_WEIGHT, reduce_stream(p), g->group,
                            operand_whole(p, b), operand_whole(p, g->all[b]))
            ->when = rows_when(g);
        g->made[b] = GATHERED;
        rewrite_take_last(&g->rewrite);
    }
}

// Emits the addition of all ranks' rows in place of the rank's own. With several microbatches the rank's own rows are
// added until the last one, before which that sum is reduced.
static void add_all(struct gatherer *g, struct instruction in) {
    struct program *p = g->rewrite.program;
    if (rows_when(g) == WHEN_LAST) {
        in.when = WHEN_NOT_LAST;
        VEC_PUSH(&g->rewrite.out, in);
        program_give_operands(p, &in, in.inputs, in.in, in.outputs, in.out);
    }
    in.when = rows_when(g);
    struct operand *ids = &in.in[INPUT(EMBED_DW, ids)], *dy = &in.in[INPUT(EMBED_DW, dy)];
    *ids = operand_whole(p, g->all[ids->buffer]);
    *dy = operand_whole(p, g->all[dy->buffer]);
    VEC_PUSH(&g->rewrite.out, in);
}

static void rows_rewrite(struct gatherer *g, int template) {
    struct program *program = g->rewrite.program;
    rewrite_begin(&g->rewrite, program, template);
    if (!find_rows(g))
        return;
    for (size_t i = 0; i < program->templates.item[template].instructions.count; i++) {
        emit_gathers(g, i);
        const struct instruction in = program->templates.item[template].instructions.item[i];
        if (adds_rows(g, &in) && g->all[in.in[INPUT(EMBED_DW, dy)].buffer] != NONE)
            add_all(g, in);
        else
            VEC_PUSH(&g->rewrite.out, in);
    }
    rewrite_finish(&g->rewrite);
}

bool *rows_gather(struct program *program, const int *template, int templates, axis_set group, const bool *tables,
                  bool always) {
    const size_t buffers = program->buffers.count;
    struct gatherer g = {.rewrite = {.program = program}, .group = group, .tables = tables, .always = always};
    g.all = mem_alloc(buffers * sizeof *g.all);
    g.made = mem_alloc(buffers * sizeof *g.made);
    for (size_t b = 0; b < buffers; b++)
        g.all[b] = NONE;
    for (int k = 0; k < templates; k++)
        rows_rewrite(&g, template[k]);
    bool *all = mem_alloc(program->buffers.count * sizeof *all);
    for (size_t b = 0; b < buffers; b++)
        if (g.all[b] != NONE)
            all[g.all[b]] = true;
    free(g.all);
    free(g.made);
    VEC_RELEASE(&g.wanted);
    return all;
}

bool rows_are_of_all(const struct instruction *in, const bool *all) {
    return in->op == OP_EMBED_DW && all[in->in[INPUT(EMBED_DW, dy)].buffer];
}
