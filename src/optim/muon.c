// Muon (kernels/ref/ref_muon.c says whose it is): momentum gives a direction, in which a matrix is moved once it is
// orthogonal. Matrices are those of Hugging Face, several of which may lie in one tensor. Where tensor ranks have parts
// of a matrix, all of them gather it and make it orthogonal, and each updates its part.
//
// A rank that keeps its part of a unit alone has momentum of that part, and all ranks gather the directions of the
// whole unit, since a part may begin and end within a matrix. Where ranks keep whole units, one matrix is under way
// while the next is gathered.
#include "optim/optimizer.h"

#include <math.h>

enum { ITERATIONS = 5 };

// An update is as large as those of AdamW are: its root mean square is about this.
static const double UPDATE_SIZE = 0.2;

bool takes_matrices(const struct parameter *parameter) {
    return parameter->ndim == 2 && !parameter->embedding && !parameter->is_vocabulary;
}

static enum dtype muon_dtype(const struct optimizer_update *u, int unit) {
    return u->program->buffers.item[u->state->gradient[unit]].dtype;
}

static int muon_buffer(const struct optimizer_update *u, int unit, const char *owner, const char *what, int64_t count) {
    char *name = mem_printf("%s.%s", owner, what);
    const int buffer = program_buffer(u->program, name, muon_dtype(u, unit), KIND_ACT, SCOPE_LOCAL, 1, &count);
    free(name);
    return buffer;
}

static void muon_gather(const struct optimizer_update *u, axis_set group, int from, int to) {
    program_communicate(u->program, u->template, OP_ALL_GATHER, PHASE_OPTIMIZER, reduce_stream(u->program), group,
                        operand_whole(u->program, from), operand_whole(u->program, to))
        ->predicate = u->outputs.finite;
}

// Whether the rank updates only its own part of the unit.
static bool muon_is_cut(const struct optimizer_update *u, int unit) {
    const struct optimizer_operands operands = optimizer_operands(u, unit);
    return operand_count(&operands.g) < u->units->count[unit];
}

static void muon_momentum(const struct optimizer_update *u, int unit, const struct optimizer_operands *operands,
                          int direction) {
    const struct operand made = operand_whole(u->program, direction);
    optimizer_emit_op(u, unit, OP_MUON_MOMENTUM, operands, 1, &made);
}

void begin_directions(const struct optimizer_update *u, int unit) {
    const char *name = u->units->table->units.item[unit];
    const struct optimizer_operands operands = optimizer_operands(u, unit);
    if (!muon_is_cut(u, unit))
        return;
    const int part = muon_buffer(u, unit, name, "direction", operand_count(&operands.g));
    muon_momentum(u, unit, &operands, part);
    u->direction[unit] = muon_buffer(u, unit, name, "direction.whole", u->units->count[unit]);
    muon_gather(u, u->units->axes[unit].shards, part, u->direction[unit]);
}

// A matrix on its way.
struct muon_matrix {
    const struct parameter *parameter;
    const struct parameter_matrix *of;
    axis_set group;                     // of ranks that have parts of it
    int64_t dim[3];                     // of all of it: blocks of columns, rows, columns of a block
    struct optimizer_operands operands; // of the rank's part
    int direction, update;              // of the rank's part; no update where the group's is enough
    int whole, whole_update;            // of all of it, where ranks have parts
};

static struct operand muon_range(struct operand whole, int64_t at, int64_t count) {
    if (whole.buffer != NONE) {
        whole.offset += at;
        whole.dim[0] = count;
    }
    return whole;
}

static struct optimizer_operands muon_operands(const struct optimizer_update *u, int unit, int64_t at, int64_t count) {
    struct optimizer_operands o = optimizer_operands(u, unit);
    o.p = muon_range(o.p, at, count);
    o.rem = muon_range(o.rem, at, count);
    o.g = muon_range(o.g, at, count);
    for (int k = 0; k < OPTIMIZER_STATES; k++)
        o.state[k] = muon_range(o.state[k], at, count);
    return o;
}

// The rank's part of the direction, and a place for its part of the update.
static void muon_place(const struct optimizer_update *u, int unit, struct muon_matrix *m, const char *name, int64_t at,
                       int updates) {
    const int64_t count = m->of->rows * m->parameter->dim[1];
    if (updates != NONE) {
        char *slice = mem_printf("%s.direction", name);
        m->direction = program_slice(u->program, u->direction[unit], slice, at, 1, &count);
        free(slice);
        slice = mem_printf("%s.update", name);
        m->update = program_slice(u->program, updates, slice, at, 1, &count);
        free(slice);
        return;
    }
    m->operands = muon_operands(u, unit, at, count);
    m->direction = muon_buffer(u, unit, name, "direction", count);
    muon_momentum(u, unit, &m->operands, m->direction);
    m->update = m->group ? NONE : muon_buffer(u, unit, name, "update", count);
}

// `updates`: of the whole unit, NONE where matrices are updated one by one.
static struct muon_matrix muon_begin(const struct optimizer_update *u, int unit, int parameter, int number,
                                     int updates) {
    const struct parameter *of = &u->units->table->parameters.item[parameter];
    struct muon_matrix m = {.parameter = of, .of = &of->matrix[number], .group = u->units->axes[unit].split};
    const int64_t ranks = mesh_group_size(&u->program->mesh, m.group);
    const bool columns = of->split_dim == 1;
    m.dim[0] = columns ? ranks : 1;
    m.dim[1] = columns ? m.of->rows : ranks * m.of->rows;
    m.dim[2] = of->dim[1];
    char *name = mem_printf("%s.%d", of->name, number);
    muon_place(u, unit, &m, name, u->units->at[parameter] + m.of->row * of->dim[1], updates);
    if (m.group) {
        const int64_t count = m.dim[0] * m.dim[1] * m.dim[2];
        m.whole = muon_buffer(u, unit, name, "direction.whole", count);
        m.whole_update = muon_buffer(u, unit, name, "update.whole", count);
        muon_gather(u, m.group, m.direction, m.whole);
    }
    free(name);
    return m;
}

static void muon_orthogonalise(const struct optimizer_update *u, const struct muon_matrix *m) {
    struct program *p = u->program;
    const double size = sqrt((double)MAX(m->of->whole_rows, m->of->whole_columns));
    const struct operand in = operand_shape(operand_whole(p, m->group ? m->whole : m->direction), 3, m->dim),
                         out = operand_shape(operand_whole(p, m->group ? m->whole_update : m->update), 3, m->dim);
    program_emit(p, u->template, OP_NEWTON_SCHULZ, PHASE_OPTIMIZER, NONE, 1, &in, 1, &out,
                 (union attribute[OP_MAX_ATTRIBUTES]){[ATTRIBUTE(NEWTON_SCHULZ, iterations)] = {.i = ITERATIONS},
                                                      [ATTRIBUTE(NEWTON_SCHULZ, scale)] = {.f = UPDATE_SIZE * size}})
        ->predicate = u->outputs.finite;
}

static void muon_copy(const struct optimizer_update *u, const struct muon_matrix *m, struct operand own) {
    const int64_t dim[] = {1, m->of->rows, m->parameter->dim[1]};
    const struct operand from = operand_shape(own, 3, dim),
                         to = operand_shape(operand_whole(u->program, m->update), 3, dim);
    program_emit(u->program, u->template, OP_COPY_DERIVED, PHASE_OPTIMIZER, NONE, 1, &from, 1, &to, NULL)->predicate =
        u->outputs.finite;
}

static void muon_end(const struct optimizer_update *u, int unit, struct muon_matrix *m, bool apart) {
    muon_orthogonalise(u, m);
    struct operand own = operand_whole(u->program, m->group ? m->whole_update : m->update);
    if (m->group)
        own = operand_part(u->program, own, m->group);
    if (apart) {
        m->operands.o = own;
        optimizer_emit_op(u, unit, OP_MUON, &m->operands, 0, NULL);
    } else if (m->group) {
        muon_copy(u, m, own);
    }
}

// Elements [from, to) of the updates, between tensors.
static void muon_zero(const struct optimizer_update *u, int updates, int64_t from, int64_t to) {
    if (from == to)
        return;
    const struct operand gap = {.buffer = updates, .offset = from, .ndim = 1, .dim = {to - from}, .stride = {1}};
    // Also where the step is skipped: islands skip steps of their own, but these zeros are the same on all.
    program_emit(u->program, u->template, OP_ZERO, PHASE_OPTIMIZER, NONE, 0, NULL, 1, &gap, NULL);
}

// Zeros between the unit's tensors.
static void muon_zero_gaps(const struct optimizer_update *u, int unit, int updates) {
    const struct parameter_table *table = u->units->table;
    int64_t end = 0;
    FOR_UNIT(table, i, unit) {
        muon_zero(u, updates, end, u->units->at[i]);
        end = u->units->at[i] + parameter_count(&table->parameters.item[i]);
    }
    muon_zero(u, updates, end, u->units->count[unit]);
}

void update_by_matrices(const struct optimizer_update *u, int unit) {
    const struct parameter_table *table = u->units->table;
    const bool cut = muon_is_cut(u, unit);
    const int updates = cut ? muon_buffer(u, unit, table->units.item[unit], "update", u->units->count[unit]) : NONE;
    struct muon_matrix last = {0};
    FOR_UNIT(table, i, unit)
        for (int k = 0; k < table->parameters.item[i].matrices; k++) {
            const struct muon_matrix next = muon_begin(u, unit, i, k, updates);
            if (last.parameter)
                muon_end(u, unit, &last, !cut);
            last = next;
        }
    muon_end(u, unit, &last, !cut);
    if (!cut)
        return;
    muon_zero_gaps(u, unit, updates);
    struct optimizer_operands operands = optimizer_operands(u, unit);
    operands.o = operand_part(u->program, operand_whole(u->program, updates), u->units->axes[unit].shards);
    optimizer_emit_op(u, unit, OP_MUON, &operands, 0, NULL);
}
