// Proves that what the ranks hold fits together: runs the program on what each part of each buffer is along each axis
// of the mesh (placement.h), by the letters of the rows of ops.def.
//
// A split letter that the output has splits the output; one that it does not have leaves a partial sum. Partial sums go
// into reductions, into sums of partial sums, and through what is linear: a backward row is, in the gradients that it
// reads. Nothing else takes them, so a reduction that is missing, done twice or done over other axes leaves a gradient
// that is not placed as its parameter, a norm of parts, or a denominator of one rank's targets, each of which is
// refused where it is read.
//
// Stages of a pipeline have different parameters: along that axis parameters, their gradients and states are each
// stage's own, with which it works as if there were no other. What both ends have is declared to be the same; then a
// gradient is a partial sum, for each end makes its own. A vocabulary that is spread over the stages is split as any
// dim is, over stages and tensor ranks together.
//
// Islands have different values of the same parameters: whatever is made of something that is an island's own is its
// own. No collective takes that: a `weigh` row makes terms of a sum of it, and what a `compress` row makes are the rows
// of what an all_gather gives, one for each island. What one island receives of another is its own then.
#include "verify/verify_placement.h"

#include <ctype.h>

struct site placement_site(const struct placement_check *c) {
    return program_site(c->program, c->table, c->now.template, c->instruction, c->now.microbatch);
}

const char *placement_name(const struct placement_check *c, const struct operand *operand) {
    return program_buffer_name(c->program, operand->buffer);
}

static const struct op_info *info_of(const struct placement_check *c, const struct instruction *i) {
    return &c->table->op[i->op];
}

// ---- rows

// What one row makes of its operands along one axis.
struct row_axis {
    const struct instruction *instruction;
    const struct op_info *info;
    int axis;
    const struct seen (*in)[AXIS_COUNT];
    bool split[DIM_LETTERS]; // letters
    axis_order joint[DIM_LETTERS];
    bool any;
    bool stages_own; // an input is the stage's own
};

static bool placement_present(const struct row_axis *s, int input) {
    return s->instruction->in[input].buffer != NONE;
}

static trireme_status refuse_partial(const struct placement_check *c, const struct row_axis *s, int input) {
    trireme_error *error = c->error;
    REFUSE("%s: %s is a partial %s along %s; an all_reduce is missing", placement_site(c).text,
           placement_name(c, &s->instruction->in[input]), s->in[input][s->axis].as == SEEN_MAX ? "maximum" : "sum",
           axis_name((enum axis)s->axis));
}

static bool is_partial(const struct row_axis *s, int input) {
    return s->in[input][s->axis].as == SEEN_SUM || s->in[input][s->axis].as == SEEN_MAX;
}

static trireme_status split_letter(const struct placement_check *c, struct row_axis *s, char letter, axis_order joint,
                                   const struct operand *operand) {
    trireme_error *error = c->error;
    const char *along = axis_name((enum axis)s->axis);
    if (!islower((unsigned char)letter))
        REFUSE("%s: %s is split along %s, but its %c must be whole", placement_site(c).text, placement_name(c, operand),
               along, letter);
    for (int l = 'a'; l <= 'z'; l++)
        if (s->split[l] && c->base[s->info->op][l] != c->base[s->info->op][(int)letter] &&
            c->belongs[s->info->op][l] != letter && c->belongs[s->info->op][(int)letter] != l)
            REFUSE("%s: %s is split along %s by its %c, another operand by its %c", placement_site(c).text,
                   placement_name(c, operand), along, letter, l);
    if (s->split[(int)letter] && s->joint[(int)letter] != joint)
        REFUSE("%s: %s and another operand are split along %s in different orders of ranks", placement_site(c).text,
               placement_name(c, operand), along);
    s->split[(int)letter] = s->any = true;
    s->joint[(int)letter] = joint;
    return TRIREME_OK;
}

// The axes along which ranks have parts that begin where the operand says (`first:I[@v]`): those along which it is
// declared to differ. One that is declared the same is of a table that tensor ranks split, with the stages where each
// has its own.
static axis_set begins_along(const struct placement_check *c, const struct operand *first) {
    const struct mesh *mesh = &c->program->mesh;
    axis_set along = AXES_NONE;
    if (first->buffer == NONE)
        return AXES_NONE;
    const struct buffer *b = &c->program->buffers.item[first->buffer];
    for (int a = 0; a < AXIS_COUNT; a++)
        if (b->placement[a] >= PLACE_SHARD(0))
            along |= AXES(a);
    if (along)
        return mesh_present(mesh, along);
    return mesh_present(mesh, AXES_TENSOR | (b->placement[AXIS_PP] == PLACE_OWN ? AXES(AXIS_PP) : AXES_NONE));
}

// A letter of which something says where the rank's part begins is split accordingly, and not else.
static trireme_status split_begun(const struct placement_check *c, struct row_axis *s) {
    trireme_error *error = c->error;
    for (int i = 0; i < s->info->inputs; i++) {
        const char letter = s->info->in[i].begins;
        const axis_set along = letter ? begins_along(c, &s->instruction->in[i]) : AXES_NONE;
        if (along & AXES(s->axis))
            TRY(split_letter(c, s, letter, order_of(along), &s->instruction->in[i]));
        else if (s->split[(int)letter])
            REFUSE("%s: its %c is split along %s, but nothing says where this rank's part begins",
                   placement_site(c).text, letter, axis_name((enum axis)s->axis));
    }
    return TRIREME_OK;
}

// Where the row has the whole of letter `part`, in upper case, the ranks' parts must make it up.
static trireme_status check_begun(const struct placement_check *c, const struct instruction *i, int input) {
    trireme_error *error = c->error;
    const int part = info_of(c, i)->in[input].begins, whole = toupper(part);
    const int64_t ranks = mesh_group_size(&c->program->mesh, begins_along(c, &i->in[input]));
    int64_t extent[DIM_LETTERS];
    const char *what;
    CHECK(instruction_extents(c->table, i, extent, &what));
    if (extent[whole] > 0 && extent[whole] != extent[part] * ranks)
        REFUSE("%s: %lld ranks have %lld of its %c each, but the whole is %lld", placement_site(c).text,
               (long long)ranks, (long long)extent[part], part, (long long)extent[whole]);
    return TRIREME_OK;
}

// Rows of parts of sequences lie in blocks, so that the first dim of an operand is split. But where a further dim goes
// over the positions of a sequence, these are split as well: it must not be one that is whole.
static trireme_status check_positions(const struct placement_check *c, const struct row_axis *s, int input) {
    trireme_error *error = c->error;
    const struct operand *o = &s->instruction->in[input];
    const int root = program_root(c->program, o->buffer);
    const struct buffer *b = &c->program->buffers.item[root];
    if (!(AXES(s->axis) & AXES_PARTS) || s->in[input][s->axis].dim != 0 || !placement_of_rows(&c->placement, root))
        return TRIREME_OK;
    int64_t row = 1; // elements of a position
    for (int d = 1 + MAX(0, b->placement[s->axis] - PLACE_SHARD(0)); d < b->ndim; d++)
        row *= b->dim[d];
    for (int d = 1; d < o->ndim; d++)
        if (o->dim[d] > 1 && o->stride[d] >= row && o->stride[d] < c->parts.run * row &&
            isupper((unsigned char)s->info->in[input].dim[d]))
            REFUSE("%s: %s is split along %s, but its %c must be whole", placement_site(c).text, placement_name(c, o),
                   axis_name((enum axis)s->axis), s->info->in[input].dim[d]);
    return TRIREME_OK;
}

static trireme_status find_split(const struct placement_check *c, struct row_axis *s) {
    trireme_error *error = c->error;
    for (int i = 0; i < s->info->inputs; i++) {
        const struct seen *seen = &s->in[i][s->axis];
        if (!placement_present(s, i) || seen->as != SEEN_SPLIT || s->info->in[i].begins || s->info->in[i].counts)
            continue;
        TRY(split_letter(c, s, s->info->in[i].dim[seen->dim], seen->joint, &s->instruction->in[i]));
        TRY(check_positions(c, s, i));
    }
    TRY(split_begun(c, s));
    for (int l = 'a'; l <= 'z' && s->any; l++) {
        const int rows = c->belongs[s->info->op][l];
        if (s->split[l] && rows && !s->split[rows])
            REFUSE("%s: its %c is split along %s, but not the rows of %c that belong to it", placement_site(c).text, l,
                   axis_name((enum axis)s->axis), rows);
    }
    // An operand that has a split letter, or a letter that follows one, must be split so itself.
    for (int i = 0; i < s->info->inputs && s->any; i++) {
        const struct seen *seen = &s->in[i][s->axis];
        for (int d = 0; d < s->info->in[i].ndim && placement_present(s, i) && !s->info->in[i].counts; d++) {
            int letter = s->info->in[i].dim[d], follows = s->info->in[i].follows[d];
            if (!s->split[letter] && !(follows && s->split[follows]))
                continue;
            if (is_partial(s, i))
                return refuse_partial(c, s, i);
            if (seen->as == SEEN_SAME || (seen->as == SEEN_SPLIT && s->info->in[i].dim[seen->dim] != letter))
                REFUSE("%s: %s is not split along %s by its %c, as other operands are", placement_site(c).text,
                       placement_name(c, &s->instruction->in[i]), axis_name((enum axis)s->axis), letter);
        }
    }
    return TRIREME_OK;
}

// Whether the input is a term of the sum that the first output is.
static bool is_term(const struct op_info *info, int input) {
    return info->identity[input] || (info->in[input].optional && strchr("PAS", info->in[input].dtype));
}

// Whether the row is linear in all of its inputs together.
static bool is_linear(const struct op_info *info) {
    bool linear = info->role == ROLE_FORWARD || info->role == ROLE_SUM;
    for (int i = 0; i < info->inputs; i++)
        linear &= info->identity[i];
    return linear || info->role == ROLE_NORM_SUM;
}

static struct seen output_of(const struct placement_check *c, const struct row_axis *s, int output) {
    const struct op_operand *row = &s->info->out[output];
    const int buffer = s->instruction->out[output].buffer;
    for (int d = 0; d < row->ndim && s->any; d++)
        if (s->split[(int)row->dim[d]])
            return (struct seen){SEEN_SPLIT, d, s->joint[(int)row->dim[d]]};
    for (int d = 0; d < row->ndim && s->any; d++)
        if (row->follows[d] && s->split[(int)row->follows[d]])
            return (struct seen){SEEN_SPLIT, d, s->joint[(int)row->follows[d]]};
    for (int d = 0; d < row->ndim && s->any && buffer != NONE; d++)
        if (row->belongs[d] && s->split[(int)row->belongs[d]] &&
            c->program->buffers.item[buffer].placement[s->axis] == PLACE_SHARD(d))
            return (struct seen){SEEN_SPLIT, d, placement_declared(&c->placement, buffer, s->axis).joint};
    return (struct seen){!s->any ? SEEN_SAME : s->info->maximum ? SEEN_MAX : SEEN_SUM, NONE, 0};
}

// Whether the row takes partial sums and hands them on: then all inputs that it is linear in must be partial sums.
static trireme_status passes_sum(const struct placement_check *c, const struct row_axis *s, bool *passes) {
    trireme_error *error = c->error;
    int partial = NONE, whole = NONE;
    bool linear = is_linear(s->info), backward = s->info->role == ROLE_BACKWARD;
    bool contracts = s->any && s->info->outputs && output_of(c, s, 0).as == SEEN_SUM;
    *passes = false;
    for (int i = 0; i < s->info->inputs; i++) {
        if (!placement_present(s, i))
            continue;
        const struct seen *seen = &s->in[i][s->axis];
        bool gradient = linear || (backward && s->info->reads[i].gradient) ||
                        ((s->info->op == OP_WEIGH || s->info->op == OP_WEIGH_SQUARES) && i == INPUT(WEIGH, weight));
        bool term = contracts && is_term(s->info, i);
        if (is_partial(s, i) && (seen->as == SEEN_MAX || (!term && (!gradient || s->any))))
            return refuse_partial(c, s, i);
        if (term && (seen->as == SEEN_SAME || seen->as == SEEN_SPLIT))
            REFUSE("%s: %s is added on every rank along %s to what is a partial sum there", placement_site(c).text,
                   placement_name(c, &s->instruction->in[i]), axis_name((enum axis)s->axis));
        if (gradient && is_partial(s, i) && !s->any)
            partial = i;
        else if (gradient && seen->as != SEEN_ZERO)
            whole = i;
    }
    if (partial != NONE && whole != NONE)
        return refuse_partial(c, s, partial);
    *passes = partial != NONE;
    return TRIREME_OK;
}

// What an output is along the stages of a pipeline.
static struct seen output_of_stage(const struct placement_check *c, const struct row_axis *s, int output,
                                   struct seen inferred) {
    enum op_role role = s->info->role;
    const struct buffer *b = &c->program->buffers.item[s->instruction->out[output].buffer];
    if (role == ROLE_TOTAL || role == ROLE_NORM || (role == ROLE_OUTER && output == OUTPUT(OUTER_SGD, moved)))
        return (struct seen){SEEN_SUM, NONE, 0};
    if (role == ROLE_DERIVE && s->stages_own)
        return (struct seen){SEEN_SPLIT, 0, 0};
    if (b->kind != KIND_GRAD || role == ROLE_UPDATE)
        return inferred;
    if (b->placement[AXIS_PP] >= PLACE_SHARD(0))
        return inferred;
    return b->placement[AXIS_PP] == PLACE_OWN ? (struct seen){SEEN_SPLIT, 0, 0} : (struct seen){SEEN_SUM, NONE, 0};
}

_Static_assert(INPUT(WEIGH, weight) == INPUT(WEIGH_CODES, weight) && OUTPUT(WEIGH, total) == OUTPUT(WEIGH_CODES, total),
               "the same places");
_Static_assert(INPUT(WEIGH, weight) == INPUT(WEIGH_SQUARES, weight) &&
                   OUTPUT(WEIGH, total) == OUTPUT(WEIGH_SQUARES, total),
               "the same places");

// Rows that need one another meet in a set that exchanges between all ranks that have some.
static trireme_status check_together(const struct placement_check *c, const struct row_axis *s) {
    trireme_error *error = c->error;
    const struct set *set = sets_find(c->sets, s->instruction);
    if (s->info->together && s->split[(int)s->info->together] && !(set && set->group & AXES(s->axis)))
        REFUSE("%s: its %c is split along %s, and nothing exchanges it there", placement_site(c).text,
               s->info->together, axis_name((enum axis)s->axis));
    return TRIREME_OK;
}

static trireme_status run_axis(const struct placement_check *c, struct row_axis *s,
                               struct seen out[OP_MAX_OUT][AXIS_COUNT]) {
    bool passes;
    TRY(find_split(c, s));
    TRY(check_together(c, s));
    TRY(passes_sum(c, s, &passes));
    for (int o = 0; o < s->info->outputs; o++) {
        struct seen *seen = &out[o][s->axis];
        *seen = passes ? (struct seen){SEEN_SUM, NONE, 0} : output_of(c, s, o);
        if (s->info->role == ROLE_ZERO)
            seen->as = SEEN_ZERO;
        else if (s->info->role == ROLE_WEIGH && o == OUTPUT(WEIGH, total)) // is the weight, or the sum of all
            *seen = s->in[INPUT(WEIGH, weight)][s->axis];
        else if (s->info->op == OP_WEIGH_SQUARES && o == OUTPUT(WEIGH_SQUARES, squares1)) // stays the island's own
            *seen = s->in[INPUT(WEIGH_SQUARES, squares)][s->axis];
        else if (s->axis == AXIS_PP && s->instruction->out[o].buffer != NONE)
            *seen = output_of_stage(c, s, o, *seen);
    }
    return TRIREME_OK;
}

// What is added to what is there must be placed as that is.
static trireme_status check_sum(const struct placement_check *c, const struct operand *out, const char *letters,
                                struct seen seen[AXIS_COUNT]) {
    trireme_error *error = c->error;
    struct seen there[AXIS_COUNT];
    PREFIXED(placement_read(&c->placement, out, letters, there, error));
    FOR_AXES(a, c->placement.axes) {
        if (there[a].as == SEEN_ZERO)
            continue;
        if (seen[a].as == SEEN_ZERO)
            seen[a] = there[a];
        if (seen[a].as == SEEN_MAX || there[a].as != seen[a].as || there[a].dim != seen[a].dim ||
            there[a].joint != seen[a].joint)
            REFUSE("%s: adds to %s what is placed differently along %s: one of them is a partial sum or split",
                   placement_site(c).text, placement_name(c, out), axis_name((enum axis)a));
    }
    return TRIREME_OK;
}

// The letter of a row of which an operand says where the rank's part begins, 0 if none does, and for which axes.
struct begun {
    char letter;
    axis_set along;
};

static struct begun begun_of(const struct placement_check *c, const struct instruction *i) {
    const struct op_info *info = info_of(c, i);
    for (int k = 0; k < info->inputs; k++)
        if (info->in[k].begins)
            return (struct begun){info->in[k].begins, begins_along(c, &i->in[k])};
    return (struct begun){0, AXES_NONE};
}

// Only along these axes may a dim of that letter be split, or of one that is split with it. Rows of parts of sequences
// lie in blocks, as other rows do: in an operand that has sequences and positions as dims, it is the latter that is
// split.
static trireme_status read_begun(const struct placement_check *c, const struct instruction *i, int input,
                                 const struct begun *begun, struct seen seen[AXIS_COUNT]) {
    const struct op_operand *row = &info_of(c, i)->in[input];
    char whole[OP_MAX_DIMS];
    struct seen part[AXIS_COUNT];
    for (int d = 0; d < row->ndim; d++) {
        const bool begins = begun->letter && (row->dim[d] == begun->letter || row->follows[d] == begun->letter);
        whole[d] = (char)(begins ? toupper(row->dim[d]) : row->dim[d]);
    }
    PREFIXED(placement_read(&c->placement, &i->in[input], whole, seen, c->error));
    if (!begun->along)
        return TRIREME_OK;
    PREFIXED(placement_read(&c->placement, &i->in[input], row->dim, part, c->error));
    FOR_AXES(a, begun->along) {
        seen[a] = part[a];
        for (int d = 1; d < row->ndim && (AXES(a) & AXES_PARTS); d++)
            if (seen[a].as == SEEN_SPLIT && seen[a].dim == 0 && row->dim[d] == begun->letter)
                seen[a].dim = d;
    }
    return TRIREME_OK;
}

// And back.
static void write_begun(const struct op_operand *row, const struct begun *begun, struct seen seen[AXIS_COUNT]) {
    FOR_AXES(a, begun->along & AXES_PARTS)
        if (seen[a].as == SEEN_SPLIT && seen[a].dim == 1 && row->dim[1] == begun->letter)
            seen[a].dim = 0;
}

// The dim of an operand, behind the first, that goes over positions of a sequence; NONE: none does. Rows of parts of
// sequences lie in blocks, as other rows do, but in such an operand these positions are what is split.
static int positions_dim(const struct placement_check *c, const struct operand *o) {
    const int root = program_root(c->program, o->buffer);
    const int64_t count = buffer_count(&c->program->buffers.item[root]);
    if (c->parts.all == 0 || count % c->parts.all || !placement_of_rows(&c->placement, root))
        return NONE;
    const int64_t row = count / c->parts.all, end = MAX(c->parts.run * row, row + 1);
    for (int d = 1; d < o->ndim && o->stride[0] >= c->parts.run * row; d++)
        if (o->stride[d] >= row && o->stride[d] < end)
            return d;
    return NONE;
}

// Puts the first dim for that one, or that one for the first.
static void exchange_positions(const struct placement_check *c, int from, int to, struct seen seen[AXIS_COUNT]) {
    FOR_AXES(a, AXES_PARTS & c->placement.axes)
        if (seen[a].as == SEEN_SPLIT && seen[a].joint && seen[a].dim == from)
            seen[a].dim = to;
}

// On islands that is also one that might be gathered from all of them.
static bool is_own(const struct seen *seen, int axis) {
    const bool row = (AXES_ISLAND & AXES(axis)) && seen->joint == order_of(AXES(axis));
    return seen->as == SEEN_SPLIT && (seen->joint == AXES_NONE || row);
}

static trireme_status run_row(struct placement_check *c, const struct instruction *i) {
    const struct op_info *info = info_of(c, i);
    struct seen in[OP_MAX_IN][AXIS_COUNT], out[OP_MAX_OUT][AXIS_COUNT];
    // Each stage, and each island, works with what it has.
    const struct begun begun = begun_of(c, i);
    const bool stages_apart = info->role != ROLE_NORM && info->role != ROLE_UPDATE;
    const axis_set works_alone = AXES_ISLAND | (stages_apart ? AXES_STAGE : AXES_NONE);
    axis_set own = AXES_NONE;
    for (int k = 0; k < info->inputs; k++) {
        if (i->in[k].buffer == NONE)
            continue;
        TRY(read_begun(c, i, k, &begun, in[k]));
        if (positions_dim(c, &i->in[k]) != NONE)
            exchange_positions(c, 0, positions_dim(c, &i->in[k]), in[k]);
        FOR_AXES(a, AXES_OWN & c->placement.axes)
            if (is_own(&in[k][a], a)) {
                own |= AXES(a);
                if (works_alone & AXES(a))
                    in[k][a] = (struct seen){SEEN_SAME, NONE, 0};
            }
    }
    for (int k = 0; k < i->inputs; k++)
        if (info->in[k].begins)
            TRY(check_begun(c, i, k));
    FOR_AXES(a, c->placement.axes) {
        struct row_axis along = {
            .instruction = i, .info = info, .axis = a, .in = in, .stages_own = (own & AXES_STAGE) != AXES_NONE};
        TRY(run_axis(c, &along, out));
        for (int o = 0; o < info->outputs && (own & AXES_ISLAND & AXES(a)); o++)
            if (out[o][a].as == SEEN_SAME)
                out[o][a] = (struct seen){SEEN_SPLIT, 0, info->role == ROLE_COMPRESS ? order_of(AXES(a)) : 0};
    }
    for (int o = 0; o < info->outputs; o++) {
        if (i->out[o].buffer == NONE)
            continue;
        write_begun(&info->out[o], &begun, out[o]);
        if (positions_dim(c, &i->out[o]) != NONE)
            exchange_positions(c, positions_dim(c, &i->out[o]), 0, out[o]);
        if (instruction_accumulates(i, &c->now) && info->out[o].adds)
            TRY(check_sum(c, &i->out[o], info->out[o].dim, out[o]));
        PREFIXED(placement_write(&c->placement, &i->out[o], out[o], c->error));
    }
    return TRIREME_OK;
}

// ---- the schedule

// Whether all stages have the same value of a predicate, though each has a program of its own: the host gives it to
// all, or they have exchanged it.
static bool stages_agree_on(const struct placement_check *c, int predicate) {
    const int root = program_root(c->program, predicate);
    bool made = false;
    FOR_INSTRUCTIONS(i, c->program)
        for (int o = 0; o < i->outputs; o++) {
            if (i->out[o].buffer == NONE || program_root(c->program, i->out[o].buffer) != root)
                continue;
            if (info_of(c, i)->role != ROLE_COMMUNICATION || !(i->group & AXES(AXIS_PP)) || op_is_message(i->op))
                return false;
            made = true;
        }
    return made || c->program->buffers.item[root].kind == KIND_INPUT;
}

// All ranks of an island skip an instruction, or none of them; of communication all ranks of a group. `varies`: the
// axes along which some of its groups may skip it and others not.
static trireme_status placement_check_predicate(const struct placement_check *c, const struct instruction *i,
                                                axis_set *varies) {
    trireme_error *error = c->error;
    *varies = AXES_NONE;
    if (i->predicate == NONE)
        return TRIREME_OK;
    struct operand predicate = operand_whole(c->program, i->predicate);
    struct seen seen[AXIS_COUNT];
    const bool communicates = info_of(c, i)->role == ROLE_COMMUNICATION;
    const axis_set together = communicates ? i->group : AXES_WITHIN;
    PREFIXED(placement_read(&c->placement, &predicate, "n", seen, error));
    FOR_AXES(a, c->placement.axes) {
        if (seen[a].as == SEEN_SAME)
            continue;
        if (seen[a].as != SEEN_SPLIT || (together & AXES(a)))
            REFUSE("%s: its predicate %s is not the same on all ranks along %s", placement_site(c).text,
                   placement_name(c, &predicate), axis_name((enum axis)a));
        *varies |= AXES(a);
    }
    if (communicates && (i->group & AXES(AXIS_PP)) && !stages_agree_on(c, i->predicate))
        REFUSE("%s: its predicate %s is not exchanged between the stages, which may have different ones",
               placement_site(c).text, placement_name(c, &predicate));
    return TRIREME_OK;
}

// What ranks hold must not depend on whether they have skipped the instruction. `passed`: what passes through it.
static trireme_status check_skipped(const struct placement_check *c, const struct instruction *i, axis_set varies,
                                    const struct seen passed[AXIS_COUNT]) {
    trireme_error *error = c->error;
    const struct op_info *info = info_of(c, i);
    for (int o = 0; o < info->outputs && i->predicate != NONE; o++) {
        struct seen seen[AXIS_COUNT];
        if (i->out[o].buffer == NONE)
            continue;
        PREFIXED(placement_read(&c->placement, &i->out[o], info->out[o].dim, seen, error));
        FOR_AXES(a, c->placement.axes) {
            if ((varies & AXES(a)) && (seen[a].as == SEEN_SAME || seen[a].as == SEEN_ZERO))
                REFUSE("%s: its predicate %s is not the same on all ranks along %s, but %s is", placement_site(c).text,
                       program_buffer_name(c->program, i->predicate), axis_name((enum axis)a),
                       placement_name(c, &i->out[o]));
            if (o == 0 && i->passes &&
                (seen[a].as != passed[a].as || seen[a].dim != passed[a].dim || seen[a].joint != passed[a].joint))
                REFUSE("%s: where it is skipped, %s is placed differently along %s", placement_site(c).text,
                       placement_name(c, &i->out[o]), axis_name((enum axis)a));
        }
    }
    return TRIREME_OK;
}

// Where ranks have numbers of rows of their own, so are the rows: `seen` is what they are.
static trireme_status placement_check_extent(const struct placement_check *c, int buffer,
                                             const struct seen seen[AXIS_COUNT]) {
    trireme_error *error = c->error;
    const int extent = c->program->buffers.item[buffer].extent;
    const struct operand rows = operand_shape(operand_whole(c->program, extent), 1, (int64_t[]){1});
    struct seen number[AXIS_COUNT];
    TRY(placement_read(&c->placement, &rows, "n", number, error));
    FOR_AXES(a, c->placement.axes) {
        if (number[a].as == SEEN_SAME || number[a].as == SEEN_ZERO)
            continue;
        const char *name = program_buffer_name(c->program, buffer),
                   *number_name = program_buffer_name(c->program, extent), *along = axis_name((enum axis)a);
        if (number[a].as != SEEN_SPLIT)
            REFUSE("%s: %s is the extent of %s, but a partial sum along %s", placement_site(c).text, number_name, name,
                   along);
        if (seen[a].as != SEEN_ZERO && (seen[a].as != SEEN_SPLIT || seen[a].dim != 0))
            REFUSE("%s: ranks along %s have as many rows of %s each as their own %s says, but not rows of their own",
                   placement_site(c).text, along, name, number_name);
    }
    return TRIREME_OK;
}

static trireme_status placement_check_extents(const struct placement_check *c, const struct instruction *i) {
    for (int k = 0; k < i->inputs + i->outputs; k++) {
        const struct operand *operand = instruction_operand_at(i, k);
        struct seen seen[AXIS_COUNT];
        if (instruction_extent_at(c->program, i, k) == NONE)
            continue;
        PREFIXED(placement_read(&c->placement, operand, op_operand_at(info_of(c, i), k)->dim, seen, c->error));
        TRY(placement_check_extent(c, operand->buffer, seen));
    }
    return TRIREME_OK;
}

static trireme_status placement_run_once(struct placement_check *c, const struct instruction *i) {
    axis_set varies;
    struct seen passed[AXIS_COUNT];
    const struct set *set = sets_find(c->sets, i);
    if (when_skips(i->when, &c->now))
        return TRIREME_OK;
    for (int o = 0; o < i->outputs; o++)
        if (i->out[o].buffer != NONE && c->program->buffers.item[i->out[o].buffer].scope == SCOPE_LOCAL)
            VEC_PUSH(&c->local, program_root(c->program, i->out[o].buffer));
    if (set && set_is_placed_whole(set, c->table))
        return !set_ends(set, i)       ? TRIREME_OK
               : set_communicates(set) ? verify_communication(c, &set->row)
                                       : run_row(c, &set->row);
    TRY(placement_check_predicate(c, i, &varies));
    if (i->passes)
        PREFIXED(placement_read(&c->placement, &i->in[instruction_otherwise(i)], info_of(c, i)->out[0].dim, passed,
                                c->error));
    // Or it moves what the rank has, element for element.
    bool communicates = info_of(c, i)->role == ROLE_COMMUNICATION || i->op == OP_FAN_OUT || i->op == OP_TRANSFER;
    TRY(communicates ? verify_communication(c, i) : run_row(c, i));
    TRY(placement_check_extents(c, i));
    return check_skipped(c, i, varies, passed);
}

static trireme_status run_invocation(struct placement_check *c) {
    const struct template *t = &c->program->templates.item[c->now.template];
    for (c->instruction = 0; c->instruction < (int)t->instructions.count; c->instruction++)
        TRY(placement_run_once(c, &t->instructions.item[c->instruction]));
    for (size_t k = 0; k < c->local.count; k++)
        placement_clear(&c->placement, c->local.item[k]);
    c->local.count = 0;
    return TRIREME_OK;
}

// An invocation that changed nothing would change nothing again: invocations that are alike are run until that holds.
static trireme_status placement_run_schedule(struct placement_check *c) {
    struct steady {
        bool known;
        uint64_t hash;
    } *steady = mem_alloc(4 * c->program->templates.count * sizeof *steady);
    trireme_status status = TRIREME_OK;
    for (size_t k = 0; k < c->program->schedule.count && status == TRIREME_OK; k++) {
        c->now = c->program->schedule.item[k];
        struct steady *s = &steady[4 * c->now.template + 2 * c->now.first + c->now.last];
        uint64_t before = c->placement.hash;
        if (s->known && s->hash == before)
            continue;
        status = run_invocation(c);
        s->known = c->placement.hash == before;
        s->hash = before;
    }
    free(steady);
    return status;
}

static trireme_status check_end(const struct placement_check *c) {
    trireme_error *error = c->error;
    int axis;
    for (size_t i = 0; i < c->program->buffers.count; i++) {
        const struct buffer *b = &c->program->buffers.item[i];
        bool kept = b->scope == SCOPE_STATE && (b->kind == KIND_PARAM || b->kind == KIND_OPTIM);
        if (b->parent != NONE || (!kept && b->kind != KIND_OUTPUT) ||
            placement_as_declared(&c->placement, (int)i, &axis))
            continue;
        if (axis == AXIS_COUNT)
            REFUSE("at the end of the step each rank has its own part of %s only: an all_gather is missing", b->name);
        REFUSE("at the end of the step %s is not placed along %s as it is declared%s", b->name,
               axis_name((enum axis)axis), b->kind == KIND_OUTPUT ? ": a reduction is missing" : "");
    }
    return TRIREME_OK;
}

static void find_bases(struct placement_check *c) {
    for (int op = 0; op < OP_COUNT; op++) {
        const struct op_info *info = &c->table->op[op];
        for (int l = 0; l < 128; l++)
            c->base[op][l] = (char)l;
        for (int k = 0; k < info->inputs + info->outputs; k++) {
            const struct op_operand *row = op_operand_at(info, k);
            for (int d = 0; d < row->ndim; d++)
                if (row->follows[d])
                    c->base[op][(int)row->dim[d]] = row->follows[d];
                else if (row->belongs[d])
                    c->belongs[op][(int)row->dim[d]] = row->belongs[d];
        }
    }
}

static struct sequence_parts find_parts(const struct program *p) {
    for (size_t i = 0; i < p->buffers.count; i++) {
        const struct buffer *b = &p->buffers.item[i];
        for (int a = 0; a < AXIS_COUNT && b->kind == KIND_INPUT; a++) {
            const int dim = b->placement[a] - PLACE_SHARD(0);
            if (!(AXES(a) & AXES_PARTS) || dim < 0)
                continue;
            struct sequence_parts parts = {1, buffer_count(b)};
            for (int d = dim; d < b->ndim; d++)
                parts.run *= b->dim[d];
            return parts;
        }
    }
    return (struct sequence_parts){0, 0};
}

trireme_status verify_messages(const struct program *program, const struct op_table *table, const struct sets *sets,
                               struct messages *messages, trireme_error *error) {
    struct placement_check c = {.program = program, .table = table, .sets = sets, .sent = messages, .error = error};
    find_bases(&c);
    c.parts = find_parts(program);
    placement_create(&c.placement, program);
    trireme_status status = placement_run_schedule(&c);
    if (status == TRIREME_OK)
        status = check_end(&c);
    placement_release(&c.placement);
    VEC_RELEASE(&c.local);
    return status;
}

trireme_status verify_placement(const struct program *program, const struct op_table *table, const struct sets *sets,
                                trireme_error *error) {
    struct messages messages = {0};
    trireme_status status = verify_messages(program, table, sets, &messages, error);
    VEC_RELEASE(&messages);
    return status;
}
