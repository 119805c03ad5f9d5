// Proves what communication does to what the ranks hold (verify_placement.c): a collective takes what is split, or a
// partial sum, along its own group, as whole blocks in the order of the group's ranks; messages arrive placed as they
// were sent, between stages and around rings.
#include "program/channels.h"
#include "verify/tally.h"
#include "verify/verify_placement.h"

static trireme_status check_group(const struct placement_check *c, const struct instruction *i) {
    trireme_error *error = c->error;
    char text[AXES_TEXT];
    int size = mesh_group_size(&c->program->mesh, i->group);
    bool one_axis = (i->group & (i->group - 1)) == 0;
    if (i->group == AXES_NONE || (i->group & ~c->placement.axes))
        REFUSE("%s: its group, %s, has axes without ranks", placement_site(c).text, axes_print(i->group, text));
    if ((op_is_message(i->op) || i->peer) && (!one_axis || i->peer % size == 0))
        REFUSE("%s: has no peer %d along %s", placement_site(c).text, i->peer, axes_print(i->group, text));
    bool tied = op_traffic[i->op].takes == HOLDING_SUM && i->group == AXES(AXIS_PP) &&
                c->program->buffers.item[i->in[0].buffer].kind == KIND_GRAD;
    if (instruction_is_pair(i) && size > 2 && !tied)
        REFUSE("%s: leaves out ranks along %s that have something else", placement_site(c).text,
               axes_print(i->group, text));
    bool root = i->peer % size == 0;
    if (op_is_rooted(i->op) &&
        (i->group != AXES(AXIS_PP) || root != ((op_gives_away(i->op) ? i->out : i->in)[0].buffer != NONE)))
        REFUSE("%s: %s", placement_site(c).text,
               i->group != AXES(AXIS_PP) ? "is not between stages"
               : root                    ? "has nothing at its root"
                                         : "has an operand on a rank that is not its root");
    return TRIREME_OK;
}

// What a collective's input must be along its group, and what ranks hold of its output there.
struct collective {
    enum seen_as takes;
    enum holds gives;
};

static struct collective collective_of(const struct op_table *table, const struct instruction *i) {
    const struct op_traffic *traffic = &op_traffic[i->op];
    const int max = traffic->call ? op_attribute_find(&table->op[i->op], "max") : -1;
    const bool maximum = max >= 0 && i->attribute[max].i;
    return (struct collective){traffic->takes == HOLDING_PART  ? SEEN_SPLIT
                               : traffic->takes == HOLDING_SUM ? maximum ? SEEN_MAX : SEEN_SUM
                                                               : SEEN_SAME,
                               traffic->gives == HOLDING_PART ? HOLDS_BLOCK : HOLDS_SAME};
}

static trireme_status check_input(const struct placement_check *c, const struct instruction *i, enum seen_as takes) {
    trireme_error *error = c->error;
    struct seen seen[AXIS_COUNT];
    PREFIXED(placement_read(&c->placement, &i->in[0], "n", seen, error));
    FOR_AXES(a, i->group & c->placement.axes) {
        const char *name = placement_name(c, &i->in[0]), *along = axis_name((enum axis)a);
        if (seen[a].as == takes)
            continue;
        if (seen[a].as == SEEN_ZERO && takes != SEEN_SPLIT && takes != SEEN_MAX)
            continue;
        if (takes == SEEN_SPLIT)
            REFUSE("%s: %s is not split along %s: there is nothing to gather", placement_site(c).text, name, along);
        if (takes == SEEN_SAME)
            REFUSE("%s: %s is not the same on all ranks along %s", placement_site(c).text, name, along);
        if (seen[a].as == SEEN_SAME)
            REFUSE("%s: %s is the same on all ranks along %s already: reduced twice", placement_site(c).text, name,
                   along);
        REFUSE("%s: %s is %s along %s and cannot be reduced", placement_site(c).text, name,
               seen[a].as == SEEN_SPLIT ? "split"
               : seen[a].as == SEEN_MAX ? "a partial maximum"
                                        : "a partial sum",
               along);
    }
    return TRIREME_OK;
}

// The input must be blocks along the group, in the order of its ranks; along parts of sequences and other sequences
// each by itself.
static trireme_status check_blocks(const struct placement_check *c, const struct instruction *i) {
    trireme_error *error = c->error;
    const int root = program_root(c->program, i->in[0].buffer);
    const struct parts *parts = &c->placement.of[root];
    struct footprint where;
    footprint_of(c->program, &i->in[0], &where);
    for (size_t k = 0; k < parts->count && !i->in[0].along; k++)
        FOR_AXES(a, i->group) {
            const struct held held = part_held(&c->placement, &parts->item[k], a);
            const axis_set group =
                i->group & ~AXES_DATA ? i->group : i->group & placement_family(&c->placement, root, a);
            if (footprint_overlap(&parts->item[k].where, &where) &&
                (held.holds != HOLDS_BLOCK || !order_ends_with(held.joint, group)))
                REFUSE("%s: the parts of %s along %s are not blocks in the order of the group's ranks",
                       placement_site(c).text, placement_name(c, &i->in[0]), axis_name((enum axis)a));
        }
    if (i->in[0].along && i->in[0].along != i->group)
        REFUSE("%s: the parts of %s are of another group of ranks", placement_site(c).text,
               placement_name(c, &i->in[0]));
    return TRIREME_OK;
}

// The ranks' blocks along parts of sequences make up one sequence, or a sequence is split into them: so each rank's are
// of one sequence. Blocks of several would lie rank by rank then, not sequence by sequence. (Where rows are gathered
// only to be added up, their order is left to the gradients' proof: gathers_rows.)
static trireme_status check_one_sequence(const struct placement_check *c, const struct instruction *i,
                                         const struct operand *block) {
    trireme_error *error = c->error;
    const struct program *p = c->program;
    const int root = program_root(p, block->buffer);
    const int64_t run = c->parts.run, count = buffer_count(&p->buffers.item[root]);
    if (!(i->group & AXES_PARTS) || run == 0 || i->phase == PHASE_WEIGHT || !placement_of_rows(&c->placement, root))
        return TRIREME_OK;
    const int64_t width = count / c->parts.all, at = program_root_offset(p, block->buffer) + block->offset;
    if (count % c->parts.all || operand_count(block) != run * width || at % (run * width))
        REFUSE("%s: the parts of %s are not of one sequence", placement_site(c).text, placement_name(c, block));
    return TRIREME_OK;
}

// The operand must be all of a buffer, or ranks' own parts of it along `along`.
static trireme_status check_whole(const struct placement_check *c, const struct operand *operand, axis_set along) {
    trireme_error *error = c->error;
    const struct operand whole = operand_whole(c->program, operand->buffer);
    if (operand_count(operand) * mesh_group_size(&c->program->mesh, along) != operand_count(&whole) ||
        operand->along != along)
        REFUSE("%s: does not take all of %s", placement_site(c).text, placement_name(c, operand));
    return TRIREME_OK;
}

static void note_message(struct placement_check *c, const struct instruction *i, int buffer,
                         const struct seen seen[AXIS_COUNT]) {
    struct message message = {c->now.template, c->instruction, buffer, {{SEEN_SAME, 0, 0}}};
    FOR_AXES(a, c->placement.axes & ~i->group)
        message.seen[a] = seen[a];
    if (!messages_find(c->sent, message.template, message.instruction))
        VEC_PUSH(c->sent, message);
}

static trireme_status run_collective(struct placement_check *c, const struct instruction *i) {
    trireme_error *error = c->error;
    struct collective what = collective_of(c->table, i);
    const struct operand *in = &i->in[0], *out = &i->out[0];
    int64_t size = mesh_group_size(&c->program->mesh, i->group), from = operand_count(in), to = operand_count(out);
    bool accumulates = instruction_accumulates(i, &c->now);
    TRY(check_input(c, i, what.takes));
    if (what.takes == SEEN_SPLIT) {
        TRY(check_blocks(c, i));
        TRY(check_one_sequence(c, i, in));
    }
    if (what.gives == HOLDS_BLOCK)
        TRY(check_one_sequence(c, i, out));
    if (what.takes == SEEN_SPLIT || what.gives == HOLDS_BLOCK) { // part of a block is no block
        TRY(check_whole(c, in, in->along));
        TRY(check_whole(c, out, out->along));
    }
    if (i->group & AXES(AXIS_PP) && c->now.microbatch == NONE) { // of all stages, which have programs of their own
        struct seen seen[AXIS_COUNT];
        PREFIXED(placement_read(&c->placement, in, "n", seen, error));
        note_message(c, i, in->buffer, seen);
    }
    if (from != (what.takes == SEEN_SPLIT    ? to / size
                 : what.gives == HOLDS_BLOCK ? to * size
                                             : to) ||
        (what.takes == SEEN_SPLIT && to % size))
        REFUSE("%s: %lld elements of %s cannot become %lld of %s on %lld ranks", placement_site(c).text,
               (long long)from, placement_name(c, in), (long long)to, placement_name(c, out), (long long)size);
    if (out->along && (what.gives != HOLDS_BLOCK || out->along != i->group) && out->along != in->along)
        REFUSE("%s: the parts of %s are of another group of ranks", placement_site(c).text, placement_name(c, out));
    struct seen there[AXIS_COUNT], now[AXIS_COUNT];
    if (accumulates)
        PREFIXED(placement_read(&c->placement, out, "n", there, error));
    const axis_set over = op_traffic[i->op].call == CALL_NONE ? AXES_NONE : i->group;
    PREFIXED(placement_copy(&c->placement, in, out, over, what.gives, error));
    if (!accumulates)
        return TRIREME_OK;
    PREFIXED(placement_read(&c->placement, out, "n", now, error));
    FOR_AXES(a, c->placement.axes)
        if (there[a].as != SEEN_ZERO && (there[a].as != now[a].as || there[a].joint != now[a].joint))
            REFUSE("%s: adds to %s what is placed differently along %s", placement_site(c).text, placement_name(c, out),
                   axis_name((enum axis)a));
    return TRIREME_OK;
}

// ---- exchanges

// Both operands lie as they are counted: the ranks' own and contiguous.
static trireme_status check_lies(const struct placement_check *c, const struct operand *o) {
    trireme_error *error = c->error;
    const struct operand lies = operand_shape(*o, o->ndim, o->dim);
    if (o->along || memcmp(lies.stride, o->stride, (size_t)o->ndim * sizeof *o->stride) != 0)
        REFUSE("%s: %s is not contiguous, or only a rank's own part", placement_site(c).text, placement_name(c, o));
    return TRIREME_OK;
}

// `give`: what is split along the group is split along another dim then, or among other rows; false where it is not
// split as the exchange says.
static trireme_status exchange(struct placement_check *c, const struct instruction *i, const char *letters,
                               bool (*give)(const struct placement_check *, const struct instruction *,
                                            struct seen[AXIS_COUNT])) {
    trireme_error *error = c->error;
    struct seen seen[AXIS_COUNT];
    char text[AXES_TEXT];
    TRY(check_lies(c, &i->in[0]));
    TRY(check_lies(c, &i->out[0]));
    PREFIXED(placement_read(&c->placement, &i->in[0], letters, seen, error));
    if (!give(c, i, seen))
        REFUSE("%s: %s is not split along %s as its exchange says", placement_site(c).text,
               placement_name(c, &i->in[0]), axes_print(i->group, text));
    PREFIXED(placement_write(&c->placement, &i->out[0], seen, error));
    return TRIREME_OK;
}

static bool splits_along(const struct placement_check *c, const struct seen seen[AXIS_COUNT], int axis) {
    return (c->placement.axes & AXES(axis)) && seen[axis].as == SEEN_SPLIT;
}

enum { PIECES, PIECE_ROWS, PIECE_COLUMNS }; // dims of what is exchanged

// Whether what is split along another axis is of the same dim as what the group splits now, or will: but other
// sequences are apart from parts of sequences, and what is an island's own is no part.
static bool is_joined(const struct placement_check *c, const struct instruction *i, const struct seen seen[AXIS_COUNT],
                      int axis) {
    if ((i->group & AXES(axis)) || !splits_along(c, seen, axis) || !seen[axis].joint)
        return false;
    return seen[axis].dim == PIECE_COLUMNS || !(i->group & AXES_PARTS) || !(AXES(axis) & AXES_SEQUENCES);
}

// Along other axes the dims stay split: what the group splits too, it splits within these. Pieces are rows where
// columns become rows: there blocks of them are blocks of rows.
static bool give_pieces(const struct placement_check *c, const struct instruction *i, struct seen seen[AXIS_COUNT]) {
    axis_order outer = 0; // of the axes that split the other dim already
    int from = NONE;
    for (int a = 0; a < AXIS_COUNT; a++) {
        if (!(i->group & AXES(a)))
            continue;
        if (!splits_along(c, seen, a) || seen[a].dim == PIECES || (from != NONE && seen[a].dim != from) ||
            !order_ends_with(seen[a].joint, i->group))
            return false;
        from = seen[a].dim;
    }
    for (int a = 0; a < AXIS_COUNT; a++) {
        if (!is_joined(c, i, seen, a))
            continue;
        if ((seen[a].dim == PIECES && from == PIECE_ROWS) || (seen[a].dim != from && outer && outer != seen[a].joint))
            return false;
        outer = seen[a].dim == from ? outer : seen[a].joint;
    }
    if (outer & ROWS_SENT || order_levels(outer) + order_levels(order_of(i->group)) > LEVELS_MAX)
        return false;
    for (int a = 0; a < AXIS_COUNT; a++) {
        if (i->group & AXES(a))
            seen[a] = (struct seen){SEEN_SPLIT, PIECE_ROWS + PIECE_COLUMNS - from, order_within(outer, i->group)};
        else if (is_joined(c, i, seen, a))
            seen[a].joint =
                seen[a].dim == from ? order_without(seen[a].joint, i->group) : order_within(outer, i->group);
    }
    return true;
}

// The axes of a dim's split, whether rows have been sent or not.
static axis_set axes_of(axis_order joint) {
    axis_set axes = AXES_NONE;
    for (int a = 0; a < AXIS_COUNT && !(joint & ROWS_SENT); a++)
        if (order_without(joint, AXES(a)) != joint)
            axes |= AXES(a);
    return joint & ROWS_SENT ? (axis_set)(joint & UINT32_MAX) : axes;
}

// Rows of all ranks that split them, in the order of their axes, are among others then, or back in their place.
static bool give_rows(const struct placement_check *c, const struct instruction *i, struct seen seen[AXIS_COUNT]) {
    const int sends = i->in[INPUT(ALL_TO_ALL_V, sends)].buffer, receives = i->in[INPUT(ALL_TO_ALL_V, receives)].buffer,
              root = program_root(c->program, i->out[0].buffer);
    axis_set all = AXES_NONE; // axes that split the rows
    bool back = true;
    for (int a = 0; a < AXIS_COUNT; a++)
        if (i->group & AXES(a)) {
            if (!splits_along(c, seen, a) || seen[a].dim != 0)
                return false;
            all |= axes_of(seen[a].joint);
            back &= (seen[a].joint & ROWS_SENT) != 0;
        }
    if (i->group & ~all)
        return false;
    for (int a = 0; a < AXIS_COUNT; a++) {
        if (!(all & AXES(a)))
            continue;
        const axis_order there = joint_sent(all, back ? receives : sends),
                         home = order_of(all & placement_family(&c->placement, root, a));
        if (!splits_along(c, seen, a) || seen[a].dim != 0 || seen[a].joint != (back ? there : home))
            return false;
        seen[a].joint = back ? home : there;
    }
    return true;
}

static trireme_status run_pieces(struct placement_check *c, const struct instruction *i) {
    trireme_error *error = c->error;
    const int64_t size = mesh_group_size(&c->program->mesh, i->group);
    if (i->in[0].dim[0] != size)
        REFUSE("%s: has %lld pieces for %lld ranks", placement_site(c).text, (long long)i->in[0].dim[0],
               (long long)size);
    TRY(check_one_sequence(c, i, &i->in[0]));
    TRY(check_one_sequence(c, i, &i->out[0]));
    return exchange(c, i, "prc", give_pieces);
}

// Whether one of the numbers of rows is what the ranks have exchanged of the other.
static bool counts_exchanged(const struct placement_check *c, const struct instruction *rows) {
    struct tally sends, receives;
    return tally_of_ranks(c->program, c->table, &rows->in[INPUT(ALL_TO_ALL_V, sends)], &sends) &&
           tally_of_ranks(c->program, c->table, &rows->in[INPUT(ALL_TO_ALL_V, receives)], &receives) &&
           sends.of == receives.of && (sends.exchanged ^ receives.exchanged) == rows->group &&
           (sends.exchanged == AXES_NONE || receives.exchanged == AXES_NONE);
}

static trireme_status run_rows(struct placement_check *c, const struct instruction *i) {
    trireme_error *error = c->error;
    const int64_t size = mesh_group_size(&c->program->mesh, i->group);
    const struct operand *sends = &i->in[INPUT(ALL_TO_ALL_V, sends)], *receives = &i->in[INPUT(ALL_TO_ALL_V, receives)];
    if (sends->dim[0] != size)
        REFUSE("%s: has counts for %lld ranks, not for the %lld of its group", placement_site(c).text,
               (long long)sends->dim[0], (long long)size);
    if (!counts_exchanged(c, i))
        REFUSE("%s: what it receives by %s is not what the ranks send by %s: no all_to_all has exchanged these counts",
               placement_site(c).text, placement_name(c, receives), placement_name(c, sends));
    return exchange(c, i, "nC", give_rows);
}

// ---- messages

// How the buffer is sent or received; NULL: it is not.
static const struct seen *sent_as(const struct placement_check *c, int buffer) {
    for (size_t k = 0; k < c->sent->count; k++)
        if (c->sent->item[k].buffer == buffer)
            return c->sent->item[k].seen;
    return NULL;
}

// What is received is placed as declared; a gradient, as the activation that was sent. Where several ranks all have
// what is sent, each may send its own part of it: the receiver then has only that part.
static trireme_status run_message(struct placement_check *c, const struct instruction *i) {
    trireme_error *error = c->error;
    const bool receives = op_takes_in(i->op);
    const struct operand *operand = receives ? &i->out[0] : &i->in[0];
    const struct operand whole = operand_whole(c->program, operand->buffer);
    TRY(check_whole(c, operand, operand->along & ~i->group));
    struct seen seen[AXIS_COUNT];
    if (receives)
        placement_write_buffer(&c->placement, operand->buffer,
                               sent_as(c, c->program->buffers.item[operand->buffer].gradient_of));
    PREFIXED(placement_read(&c->placement, &whole, "abcd", seen, error));
    note_message(c, i, operand->buffer, seen);
    for (int a = 0; a < AXIS_COUNT; a++)
        if ((operand->along & AXES(a)) && seen[a].as != SEEN_SAME)
            REFUSE("%s: %s is no part of one along %s", placement_site(c).text, placement_name(c, operand),
                   axis_name((enum axis)a));
    const struct operand flat = operand_part(c->program, whole, AXES_NONE);
    if (receives && operand->along)
        PREFIXED(placement_copy(&c->placement, &flat, operand, operand->along, HOLDS_BLOCK, error));
    return TRIREME_OK;
}

// Along other axes than that of the stages all ranks run one program. What a rank receives there is placed as it was
// sent, but along that axis: there it is the same for all, or something of its own, which another rank had.
static trireme_status run_ring_send(struct placement_check *c, const struct instruction *i) {
    trireme_error *error = c->error;
    const struct operand *x = &i->in[INPUT(SEND, x)], whole = operand_whole(c->program, x->buffer);
    struct message message = {c->now.template, c->instruction, x->buffer, {{SEEN_SAME, 0, 0}}};
    if (i->open)
        REFUSE("%s: some ranks along %s send nothing, which only a set that stands for a row can make up for",
               placement_site(c).text, axis_name(axes_outermost(i->group)));
    if (message_other_end(c->program, c->now.template, c->instruction) == NONE)
        REFUSE("%s: %s is nothing that the peer receives behind it", placement_site(c).text, placement_name(c, x));
    TRY(check_whole(c, x, AXES_NONE));
    PREFIXED(placement_read(&c->placement, &whole, "abcd", message.seen, error));
    FOR_AXES(a, i->group) {
        struct seen *seen = &message.seen[a];
        if (seen->as == SEEN_SUM || seen->as == SEEN_MAX)
            REFUSE("%s: %s is a partial %s along %s and cannot be sent", placement_site(c).text, placement_name(c, x),
                   seen->as == SEEN_SUM ? "sum" : "maximum", axis_name((enum axis)a));
        *seen = (struct seen){seen->as == SEEN_SPLIT ? SEEN_SPLIT : SEEN_SAME, 0, 0};
    }
    for (size_t k = 0; k < c->sent->count; k++)
        if (c->sent->item[k].template == message.template && c->sent->item[k].instruction == message.instruction) {
            c->sent->item[k] = message;
            return TRIREME_OK;
        }
    VEC_PUSH(c->sent, message);
    return TRIREME_OK;
}

static trireme_status run_ring_receive(struct placement_check *c, const struct instruction *i) {
    trireme_error *error = c->error;
    const struct operand *x = &i->out[OUTPUT(RECEIVE, x)];
    const int send = message_other_end(c->program, c->now.template, c->instruction);
    const struct message *message = send == NONE ? NULL : messages_find(c->sent, c->now.template, send);
    if (!message)
        REFUSE("%s: %s is nothing that the peer has sent before", placement_site(c).text, placement_name(c, x));
    const struct buffer *to = &c->program->buffers.item[x->buffer], *from = &c->program->buffers.item[message->buffer];
    TRY(check_whole(c, x, AXES_NONE));
    if (to->dtype != from->dtype || to->ndim != from->ndim ||
        memcmp(to->dim, from->dim, (size_t)to->ndim * sizeof *to->dim) != 0)
        REFUSE("%s: %s has another shape than %s, which the peer sends", placement_site(c).text, placement_name(c, x),
               from->name);
    placement_write_buffer(&c->placement, x->buffer, message->seen);
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

trireme_status verify_communication(struct placement_check *c, const struct instruction *i) {
    if (op_traffic[i->op].call != CALL_NONE)
        TRY(check_group(c, i));
    if (op_is_message(i->op) && (i->group & AXES_STAGE))
        return run_message(c, i);
    if (op_is_message(i->op))
        return op_gives_away(i->op) ? run_ring_send(c, i) : run_ring_receive(c, i);
    if (op_is_rooted(i->op))
        return op_gives_away(i->op) ? run_reduce(c, i) : run_broadcast(c, i);
    if (op_traffic[i->op].takes == HOLDING_BAND)
        return run_pieces(c, i);
    if (op_traffic[i->op].takes == HOLDING_ROWS)
        return run_rows(c, i);
    return run_collective(c, i);
}
