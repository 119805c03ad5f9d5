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
#include "program/placement.h"
#include "program/verify.h"

#include <ctype.h>

struct placement_check {
    const struct program *program;
    const struct op_table *table;
    struct placement placement;
    char base[OP_COUNT][128]; // letter of each op -> the letter that it is split with, or itself
    struct invocation now;
    int instruction;
    VEC(int) local;        // roots that live inside the invocation
    struct messages *sent; // what was sent and received, once for each instruction
    trireme_error *error;
};

static struct site here(const struct placement_check *c) {
    return verify_site(c->program, c->table, c->now.template, c->instruction, c->now.microbatch);
}

static const char *name_of(const struct placement_check *c, const struct operand *operand) {
    return verify_buffer_name(c->program, operand->buffer);
}

#define PREFIXED(expression)                                           \
    do {                                                               \
        trireme_status status = (expression);                          \
        if (status != TRIREME_OK)                                      \
            return error_prefix(c->error, status, "%s", here(c).text); \
    } while (0)

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
    bool split[128]; // letters
    axis_set joint[128];
    bool any;
};

static bool present(const struct row_axis *s, int input) {
    return s->instruction->in[input].buffer != NONE;
}

static trireme_status refuse_partial(const struct placement_check *c, const struct row_axis *s, int input) {
    trireme_error *error = c->error;
    REFUSE("%s: %s is a partial %s along %s; an all_reduce is missing", here(c).text,
           name_of(c, &s->instruction->in[input]), s->in[input][s->axis].as == SEEN_MAX ? "maximum" : "sum",
           axis_name((enum axis)s->axis));
}

static bool is_partial(const struct row_axis *s, int input) {
    return s->in[input][s->axis].as == SEEN_SUM || s->in[input][s->axis].as == SEEN_MAX;
}

static trireme_status split_letter(const struct placement_check *c, struct row_axis *s, char letter, axis_set joint,
                                   const struct operand *operand) {
    trireme_error *error = c->error;
    const char *along = axis_name((enum axis)s->axis);
    if (!islower((unsigned char)letter))
        REFUSE("%s: %s is split along %s, but its %c must be whole", here(c).text, name_of(c, operand), along, letter);
    for (int l = 'a'; l <= 'z'; l++)
        if (s->split[l] && c->base[s->info->op][l] != c->base[s->info->op][(int)letter])
            REFUSE("%s: %s is split along %s by its %c, another operand by its %c", here(c).text, name_of(c, operand),
                   along, letter, l);
    if (s->split[(int)letter] && s->joint[(int)letter] != joint)
        REFUSE("%s: %s and another operand are split along %s in different orders of ranks", here(c).text,
               name_of(c, operand), along);
    s->split[(int)letter] = s->any = true;
    s->joint[(int)letter] = joint;
    return TRIREME_OK;
}

// In rows that look something up in a table, `first` is where the rank's part of it begins. Without it the table is
// whole.
static trireme_status split_first(const struct placement_check *c, struct row_axis *s) {
    trireme_error *error = c->error;
    const axis_set tensor = mesh_present(&c->program->mesh, AXES_TENSOR);
    for (int i = 0; i < s->info->inputs; i++) {
        if (strcmp(s->info->in[i].name, "first") != 0)
            continue;
        if (s->split['v'] && !present(s, i))
            REFUSE("%s: a table is split along %s, but nothing says where this rank's part begins", here(c).text,
                   axis_name((enum axis)s->axis));
        // Each stage has its own `first` where the stages share the table, each shard where shards are parts of it.
        const struct buffer *first = present(s, i) ? &c->program->buffers.item[s->instruction->in[i].buffer] : NULL;
        axis_set joint = !first                                          ? AXES_NONE
                         : first->placement[AXIS_PP] == PLACE_STAGE      ? tensor | AXES(AXIS_PP)
                         : first->placement[AXIS_FSDP] >= PLACE_SHARD(0) ? AXES(AXIS_FSDP)
                                                                         : tensor;
        if (present(s, i) && (joint & AXES(s->axis)))
            return split_letter(c, s, 'v', joint, &s->instruction->in[i]);
        if (s->split['v'])
            REFUSE("%s: a table is split along %s, but nothing says where this rank's part begins", here(c).text,
                   axis_name((enum axis)s->axis));
    }
    return TRIREME_OK;
}

static trireme_status find_split(const struct placement_check *c, struct row_axis *s) {
    trireme_error *error = c->error;
    for (int i = 0; i < s->info->inputs; i++) {
        const struct seen *seen = &s->in[i][s->axis];
        if (present(s, i) && seen->as == SEEN_SPLIT && strcmp(s->info->in[i].name, "first") != 0)
            TRY(split_letter(c, s, s->info->in[i].dim[seen->dim], seen->joint, &s->instruction->in[i]));
    }
    TRY(split_first(c, s));
    // An operand that has a split letter, or a letter that follows one, must be split so itself.
    for (int i = 0; i < s->info->inputs && s->any; i++) {
        const struct seen *seen = &s->in[i][s->axis];
        for (int d = 0; d < s->info->in[i].ndim && present(s, i); d++) {
            int letter = s->info->in[i].dim[d], follows = s->info->in[i].follows[d];
            if (!s->split[letter] && !(follows && s->split[follows]))
                continue;
            if (is_partial(s, i))
                return refuse_partial(c, s, i);
            if (seen->as == SEEN_SAME || (seen->as == SEEN_SPLIT && s->info->in[i].dim[seen->dim] != letter))
                REFUSE("%s: %s is not split along %s by its %c, as other operands are", here(c).text,
                       name_of(c, &s->instruction->in[i]), axis_name((enum axis)s->axis), letter);
        }
    }
    return TRIREME_OK;
}

// Whether the input is a term of the sum that the first output is.
static bool is_term(const struct op_info *info, int input) {
    bool head = info->role == ROLE_HEAD && input < 2; // linear in both
    return head || info->identity[input] || (info->in[input].optional && strchr("PAS", info->in[input].dtype));
}

// Whether the row is linear in all of its inputs together.
static bool is_linear(const struct op_info *info) {
    bool linear = info->role == ROLE_FORWARD;
    for (int i = 0; i < info->inputs; i++)
        linear &= info->identity[i];
    return linear || info->role == ROLE_NORM_SUM;
}

static struct seen output_of(const struct row_axis *s, int output) {
    const struct op_operand *row = &s->info->out[output];
    for (int d = 0; d < row->ndim && s->any; d++)
        if (s->split[(int)row->dim[d]])
            return (struct seen){SEEN_SPLIT, d, s->joint[(int)row->dim[d]]};
    for (int d = 0; d < row->ndim && s->any; d++)
        if (row->follows[d] && s->split[(int)row->follows[d]])
            return (struct seen){SEEN_SPLIT, d, s->joint[(int)row->follows[d]]};
    return (struct seen){!s->any ? SEEN_SAME : s->info->maximum ? SEEN_MAX : SEEN_SUM, NONE, AXES_NONE};
}

// Whether the row takes partial sums and hands them on: then all inputs that it is linear in must be partial sums.
static trireme_status passes_sum(const struct placement_check *c, const struct row_axis *s, bool *passes) {
    trireme_error *error = c->error;
    int partial = NONE, whole = NONE;
    bool linear = is_linear(s->info), backward = s->info->role == ROLE_BACKWARD;
    bool contracts = s->any && s->info->outputs && output_of(s, 0).as == SEEN_SUM;
    *passes = false;
    for (int i = 0; i < s->info->inputs; i++) {
        if (!present(s, i))
            continue;
        const struct seen *seen = &s->in[i][s->axis];
        bool gradient = linear || (backward && s->info->reads[i].gradient);
        bool term = contracts && is_term(s->info, i);
        if (is_partial(s, i) && (seen->as == SEEN_MAX || (!term && (!gradient || s->any))))
            return refuse_partial(c, s, i);
        if (term && (seen->as == SEEN_SAME || seen->as == SEEN_SPLIT))
            REFUSE("%s: %s is added on every rank along %s to what is a partial sum there", here(c).text,
                   name_of(c, &s->instruction->in[i]), axis_name((enum axis)s->axis));
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
    if (role == ROLE_TOTAL || role == ROLE_NORM)
        return (struct seen){SEEN_SUM, NONE, AXES_NONE};
    if (b->kind != KIND_GRAD || role == ROLE_UPDATE)
        return inferred;
    if (b->placement[AXIS_PP] >= PLACE_SHARD(0))
        return inferred;
    return b->placement[AXIS_PP] == PLACE_STAGE ? (struct seen){SEEN_SPLIT, 0, AXES_NONE}
                                                : (struct seen){SEEN_SUM, NONE, AXES_NONE};
}

static trireme_status run_axis(const struct placement_check *c, struct row_axis *s,
                               struct seen out[OP_MAX_OUT][AXIS_COUNT]) {
    bool passes;
    TRY(find_split(c, s));
    TRY(passes_sum(c, s, &passes));
    for (int o = 0; o < s->info->outputs; o++) {
        struct seen *seen = &out[o][s->axis];
        *seen = passes ? (struct seen){SEEN_SUM, NONE, AXES_NONE} : output_of(s, o);
        if (s->info->role == ROLE_ZERO)
            seen->as = SEEN_ZERO;
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
    for (int a = 0; a < AXIS_COUNT; a++) {
        if (!(c->placement.axes & AXES(a)) || there[a].as == SEEN_ZERO)
            continue;
        if (seen[a].as == SEEN_ZERO)
            seen[a] = there[a];
        if (seen[a].as == SEEN_MAX || there[a].as != seen[a].as || there[a].dim != seen[a].dim ||
            there[a].joint != seen[a].joint)
            REFUSE("%s: adds to %s what is placed differently along %s: one of them is a partial sum or split",
                   here(c).text, name_of(c, out), axis_name((enum axis)a));
    }
    return TRIREME_OK;
}

static trireme_status run_row(struct placement_check *c, const struct instruction *i) {
    const struct op_info *info = info_of(c, i);
    struct seen in[OP_MAX_IN][AXIS_COUNT], out[OP_MAX_OUT][AXIS_COUNT];
    // Each stage works with what it has.
    bool stages_apart = info->role != ROLE_NORM && info->role != ROLE_UPDATE;
    for (int k = 0; k < info->inputs; k++) {
        if (i->in[k].buffer == NONE)
            continue;
        PREFIXED(placement_read(&c->placement, &i->in[k], info->in[k].dim, in[k], c->error));
        if (stages_apart && in[k][AXIS_PP].as == SEEN_SPLIT && in[k][AXIS_PP].joint == AXES_NONE)
            in[k][AXIS_PP] = (struct seen){SEEN_SAME, NONE, AXES_NONE};
    }
    for (int a = 0; a < AXIS_COUNT; a++) {
        struct row_axis along = {.instruction = i, .info = info, .axis = a, .in = in};
        if (c->placement.axes & AXES(a))
            TRY(run_axis(c, &along, out));
    }
    for (int o = 0; o < info->outputs; o++) {
        if (i->out[o].buffer == NONE)
            continue;
        if (instruction_accumulates(i, &c->now) && info->out[o].adds)
            TRY(check_sum(c, &i->out[o], info->out[o].dim, out[o]));
        PREFIXED(placement_write(&c->placement, &i->out[o], out[o], c->error));
    }
    return TRIREME_OK;
}

// ---- communication

static trireme_status check_group(const struct placement_check *c, const struct instruction *i) {
    trireme_error *error = c->error;
    char text[AXES_TEXT];
    int size = mesh_group_size(&c->program->mesh, i->group);
    bool one_axis = (i->group & (i->group - 1)) == 0;
    if (i->group == AXES_NONE || (i->group & ~c->placement.axes))
        REFUSE("%s: its group, %s, has axes without ranks", here(c).text, axes_print(i->group, text));
    if ((op_is_message(i->op) || i->peer) && (!one_axis || i->peer % size == 0))
        REFUSE("%s: has no peer %d along %s", here(c).text, i->peer, axes_print(i->group, text));
    if (instruction_is_pair(i) && size > 2 && (i->op != OP_ALL_REDUCE || i->group != AXES(AXIS_PP)))
        REFUSE("%s: leaves out ranks along %s that have something else", here(c).text, axes_print(i->group, text));
    bool root = i->peer % size == 0;
    if (op_is_rooted(i->op) &&
        (i->group != AXES(AXIS_PP) || root != ((i->op == OP_REDUCE ? i->out : i->in)[0].buffer != NONE)))
        REFUSE("%s: %s", here(c).text,
               i->group != AXES(AXIS_PP) ? "is not between stages"
               : root                    ? "has nothing at its root"
                                         : "has an operand on a rank that is not its root");
    return TRIREME_OK;
}

static trireme_status check_predicate(const struct placement_check *c, const struct instruction *i) {
    trireme_error *error = c->error;
    if (i->predicate == NONE)
        return TRIREME_OK;
    struct operand predicate = operand_whole(c->program, i->predicate);
    struct seen seen[AXIS_COUNT];
    PREFIXED(placement_read(&c->placement, &predicate, "1", seen, error));
    for (int a = 0; a < AXIS_COUNT; a++)
        if ((c->placement.axes & AXES(a)) && seen[a].as != SEEN_SAME)
            REFUSE("%s: its predicate %s is not the same on all ranks along %s", here(c).text, name_of(c, &predicate),
                   axis_name((enum axis)a));
    return TRIREME_OK;
}

// What a collective's input must be along its group, and what ranks hold of its output there.
struct collective {
    enum seen_as takes;
    enum holds gives;
};

static struct collective collective_of(const struct instruction *i) {
    switch (i->op) {
    case OP_ALL_GATHER:
        return (struct collective){SEEN_SPLIT, HOLDS_SAME};
    case OP_REDUCE_SCATTER:
        return (struct collective){SEEN_SUM, HOLDS_BLOCK};
    case OP_ALL_REDUCE:
        return (struct collective){i->attribute[0].i ? SEEN_MAX : SEEN_SUM, HOLDS_SAME};
    case OP_REDUCE:
        return (struct collective){SEEN_SUM, HOLDS_SAME};
    default:
        return (struct collective){SEEN_SAME, HOLDS_SAME};
    }
}

static trireme_status check_input(const struct placement_check *c, const struct instruction *i, enum seen_as takes) {
    trireme_error *error = c->error;
    struct seen seen[AXIS_COUNT];
    PREFIXED(placement_read(&c->placement, &i->in[0], "n", seen, error));
    for (int a = 0; a < AXIS_COUNT; a++) {
        const char *name = name_of(c, &i->in[0]), *along = axis_name((enum axis)a);
        if (!(i->group & c->placement.axes & AXES(a)) || seen[a].as == takes)
            continue;
        if (seen[a].as == SEEN_ZERO && takes != SEEN_SPLIT && takes != SEEN_MAX)
            continue;
        if (takes == SEEN_SPLIT)
            REFUSE("%s: %s is not split along %s: there is nothing to gather", here(c).text, name, along);
        if (takes == SEEN_SAME)
            REFUSE("%s: %s is not the same on all ranks along %s", here(c).text, name, along);
        if (seen[a].as == SEEN_SAME)
            REFUSE("%s: %s is the same on all ranks along %s already: reduced twice", here(c).text, name, along);
        REFUSE("%s: %s is %s along %s and cannot be reduced", here(c).text, name,
               seen[a].as == SEEN_SPLIT ? "split"
               : seen[a].as == SEEN_MAX ? "a partial maximum"
                                        : "a partial sum",
               along);
    }
    return TRIREME_OK;
}

// The input must be blocks along the group, in the order of its ranks.
static trireme_status check_blocks(const struct placement_check *c, const struct instruction *i) {
    trireme_error *error = c->error;
    const struct parts *parts = &c->placement.of[program_root(c->program, i->in[0].buffer)];
    struct footprint where;
    footprint_of(c->program, &i->in[0], &where);
    for (size_t k = 0; k < parts->count && !i->in[0].along; k++)
        for (int a = 0; a < AXIS_COUNT; a++) {
            const struct held *held = &parts->item[k].along[a];
            if ((i->group & AXES(a)) && footprint_overlap(&parts->item[k].where, &where) &&
                (held->holds != HOLDS_BLOCK ||
                 (held->joint != i->group && ((i->group & ~held->joint) || !placement_nests(i->group, held->joint)))))
                REFUSE("%s: the parts of %s along %s are not blocks in the order of the group's ranks", here(c).text,
                       name_of(c, &i->in[0]), axis_name((enum axis)a));
        }
    if (i->in[0].along && i->in[0].along != i->group)
        REFUSE("%s: the parts of %s are of another group of ranks", here(c).text, name_of(c, &i->in[0]));
    return TRIREME_OK;
}

static trireme_status run_collective(struct placement_check *c, const struct instruction *i) {
    trireme_error *error = c->error;
    struct collective what = collective_of(i);
    const struct operand *in = &i->in[0], *out = &i->out[0];
    int64_t size = mesh_group_size(&c->program->mesh, i->group), from = operand_count(in), to = operand_count(out);
    bool accumulates = instruction_accumulates(i, &c->now);
    TRY(check_input(c, i, what.takes));
    if (what.takes == SEEN_SPLIT)
        TRY(check_blocks(c, i));
    if (from != (what.takes == SEEN_SPLIT    ? to / size
                 : what.gives == HOLDS_BLOCK ? to * size
                                             : to) ||
        (what.takes == SEEN_SPLIT && to % size))
        REFUSE("%s: %lld elements of %s cannot become %lld of %s on %lld ranks", here(c).text, (long long)from,
               name_of(c, in), (long long)to, name_of(c, out), (long long)size);
    if (out->along && (what.gives != HOLDS_BLOCK || out->along != i->group) && out->along != in->along)
        REFUSE("%s: the parts of %s are of another group of ranks", here(c).text, name_of(c, out));
    struct seen there[AXIS_COUNT], now[AXIS_COUNT];
    if (accumulates)
        PREFIXED(placement_read(&c->placement, out, "n", there, error));
    PREFIXED(placement_copy(&c->placement, in, out, i->op == OP_FAN_OUT ? AXES_NONE : i->group, what.gives, error));
    if (!accumulates)
        return TRIREME_OK;
    PREFIXED(placement_read(&c->placement, out, "n", now, error));
    for (int a = 0; a < AXIS_COUNT; a++)
        if ((c->placement.axes & AXES(a)) && there[a].as != SEEN_ZERO &&
            (there[a].as != now[a].as || there[a].joint != now[a].joint))
            REFUSE("%s: adds to %s what is placed differently along %s", here(c).text, name_of(c, out),
                   axis_name((enum axis)a));
    return TRIREME_OK;
}

// ---- messages

// How the buffer is sent or received; NULL: it is not.
static const struct seen *sent_as(const struct placement_check *c, int buffer) {
    for (size_t k = 0; k < c->sent->count; k++)
        if (c->sent->item[k].buffer == buffer)
            return c->sent->item[k].seen;
    return NULL;
}

static void note_message(struct placement_check *c, const struct instruction *i, int buffer,
                         const struct seen seen[AXIS_COUNT]) {
    struct message message = {c->now.template, c->instruction, buffer, {{SEEN_SAME, NONE, AXES_NONE}}};
    for (int a = 0; a < AXIS_COUNT; a++)
        message.seen[a] =
            (c->placement.axes & AXES(a) & ~i->group) ? seen[a] : (struct seen){SEEN_SAME, NONE, AXES_NONE};
    if (!messages_find(c->sent, message.template, message.instruction))
        VEC_PUSH(c->sent, message);
}

// The operand must be all of a buffer, or ranks' own parts of it along `along`.
static trireme_status check_whole(const struct placement_check *c, const struct operand *operand, axis_set along) {
    trireme_error *error = c->error;
    const struct operand whole = operand_whole(c->program, operand->buffer);
    if (operand_count(operand) * mesh_group_size(&c->program->mesh, along) != operand_count(&whole) ||
        operand->along != along)
        REFUSE("%s: does not take all of %s", here(c).text, name_of(c, operand));
    return TRIREME_OK;
}

// What is received is placed as declared; a gradient, as the activation that was sent. Where several ranks all have
// what is sent, each may send its own part of it: the receiver then has only that part.
static trireme_status run_message(struct placement_check *c, const struct instruction *i) {
    trireme_error *error = c->error;
    const struct operand *operand = i->op == OP_SEND ? &i->in[0] : &i->out[0];
    const struct operand whole = operand_whole(c->program, operand->buffer);
    TRY(check_whole(c, operand, operand->along & ~i->group));
    struct seen seen[AXIS_COUNT];
    if (i->op == OP_RECEIVE)
        placement_write_buffer(&c->placement, operand->buffer,
                               sent_as(c, c->program->buffers.item[operand->buffer].gradient_of));
    PREFIXED(placement_read(&c->placement, &whole, "abcd", seen, error));
    note_message(c, i, operand->buffer, seen);
    for (int a = 0; a < AXIS_COUNT; a++)
        if ((operand->along & AXES(a)) && seen[a].as != SEEN_SAME)
            REFUSE("%s: %s is no part of one along %s", here(c).text, name_of(c, operand), axis_name((enum axis)a));
    const struct operand flat = operand_part(c->program, whole, AXES_NONE);
    if (i->op == OP_RECEIVE && operand->along)
        PREFIXED(placement_copy(&c->placement, &flat, operand, operand->along, HOLDS_BLOCK, error));
    return TRIREME_OK;
}

// ---- to and from a root

// Only the root has the sum of what the stages have; elsewhere nobody may look at it.
static trireme_status run_reduce(struct placement_check *c, const struct instruction *i) {
    struct seen seen[AXIS_COUNT];
    TRY(check_whole(c, &i->in[0], AXES_NONE));
    TRY(check_input(c, i, SEEN_SUM));
    struct operand whole = operand_whole(c->program, i->in[0].buffer);
    PREFIXED(placement_read(&c->placement, &whole, "abcd", seen, c->error));
    note_message(c, i, i->in[0].buffer, seen);
    if (i->out[0].buffer != NONE)
        return run_collective(c, i);
    placement_clear(&c->placement, program_root(c->program, i->in[0].buffer));
    return TRIREME_OK;
}

// What comes from another rank is placed as declared; a gradient, as the activation that was reduced.
static trireme_status run_broadcast(struct placement_check *c, const struct instruction *i) {
    struct seen seen[AXIS_COUNT];
    struct operand whole = operand_whole(c->program, i->out[0].buffer);
    TRY(check_whole(c, &i->out[0], AXES_NONE));
    if (i->in[0].buffer != NONE) {
        TRY(check_whole(c, &i->in[0], AXES_NONE));
        TRY(run_collective(c, i));
    } else {
        placement_write_buffer(&c->placement, i->out[0].buffer,
                               sent_as(c, c->program->buffers.item[i->out[0].buffer].gradient_of));
    }
    PREFIXED(placement_read(&c->placement, &whole, "abcd", seen, c->error));
    note_message(c, i, i->out[0].buffer, seen);
    return TRIREME_OK;
}

// ---- the schedule

static trireme_status run(struct placement_check *c, const struct instruction *i) {
    if (when_skips(i->when, &c->now))
        return TRIREME_OK;
    for (int o = 0; o < i->outputs; o++)
        if (i->out[o].buffer != NONE && c->program->buffers.item[i->out[o].buffer].scope == SCOPE_LOCAL)
            VEC_PUSH(&c->local, program_root(c->program, i->out[o].buffer));
    TRY(check_predicate(c, i));
    bool communicates = info_of(c, i)->role == ROLE_COMMUNICATION;
    if (communicates)
        TRY(check_group(c, i));
    if (op_is_message(i->op))
        return run_message(c, i);
    if (i->op == OP_REDUCE)
        return run_reduce(c, i);
    if (i->op == OP_BROADCAST)
        return run_broadcast(c, i);
    return communicates || i->op == OP_FAN_OUT ? run_collective(c, i) : run_row(c, i);
}

static trireme_status run_invocation(struct placement_check *c) {
    const struct template *t = &c->program->templates.item[c->now.template];
    for (c->instruction = 0; c->instruction < (int)t->instructions.count; c->instruction++)
        TRY(run(c, &t->instructions.item[c->instruction]));
    for (size_t k = 0; k < c->local.count; k++)
        placement_clear(&c->placement, c->local.item[k]);
    c->local.count = 0;
    return TRIREME_OK;
}

// An invocation that changed nothing would change nothing again: invocations that are alike are run until that holds.
static trireme_status run_schedule(struct placement_check *c) {
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
        }
    }
}

trireme_status verify_messages(const struct program *program, const struct op_table *table, struct messages *messages,
                               trireme_error *error) {
    struct placement_check c = {.program = program, .table = table, .sent = messages, .error = error};
    find_bases(&c);
    placement_create(&c.placement, program);
    trireme_status status = run_schedule(&c);
    if (status == TRIREME_OK)
        status = check_end(&c);
    placement_release(&c.placement);
    VEC_RELEASE(&c.local);
    return status;
}

trireme_status verify_placement(const struct program *program, const struct op_table *table, trireme_error *error) {
    struct messages messages = {0};
    trireme_status status = verify_messages(program, table, &messages, error);
    VEC_RELEASE(&messages);
    return status;
}
