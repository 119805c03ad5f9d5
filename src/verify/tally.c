#include "verify/tally.h"

// The one instruction that writes a buffer, all of it at once, and as which output; NULL where there is none, or
// another.
static const struct instruction *tally_maker(const struct program *p, int buffer, int *output) {
    const struct instruction *maker = NULL;
    FOR_INSTRUCTIONS(i, p)
        for (int o = 0; o < i->outputs; o++) {
            if (i->out[o].buffer == NONE || program_root(p, i->out[o].buffer) != buffer)
                continue;
            if (maker || i->predicate != NONE || i->when != WHEN_ALWAYS || i->accumulate != ACCUMULATE_NO ||
                operand_count(&i->out[o]) != buffer_count(&p->buffers.item[buffer]))
                return NULL;
            maker = i;
            *output = o;
        }
    return maker;
}

// Whether the operand has all of a buffer whose numbers do not change once they are there.
static bool tally_is_fixed(const struct program *p, const struct operand *operand) {
    const struct buffer *b = &p->buffers.item[operand->buffer];
    int output;
    return b->parent == NONE && b->extent == NONE && operand_count(operand) == buffer_count(b) &&
           (b->kind == KIND_INPUT || (b->kind == KIND_ACT && tally_maker(p, operand->buffer, &output)));
}

// Takes a step back, to what numbers are sums of, or were before they were exchanged; NULL where they are neither.
static const struct instruction *tally_step(const struct program *p, const struct op_table *table,
                                            struct tally *tally) {
    int output = NONE;
    const struct instruction *i = tally_maker(p, tally->of, &output);
    const bool exchanges = i && op_traffic[i->op].takes == HOLDING_BAND && i->peer == 0 &&
                           (tally->exchanged == AXES_NONE || tally->exchanged == i->group);
    if (!i || output > 0 || (!exchanges && !table->op[i->op].tallies) || !tally_is_fixed(p, &i->in[0]))
        return NULL;
    if (exchanges)
        tally->exchanged ^= i->group;
    tally->of = i->in[0].buffer;
    return i;
}

bool tally_total(const struct program *p, const struct op_table *table, const struct operand *operand,
                 struct tally *tally) {
    *tally = (struct tally){operand->buffer, AXES_NONE};
    if (!tally_is_fixed(p, operand))
        return false;
    for (size_t steps = 0; steps < p->buffers.count && tally_step(p, table, tally); steps++)
        ; // no more than there are buffers: what is made of itself has no beginning
    return true;
}

bool tally_of_ranks(const struct program *p, const struct op_table *table, const struct operand *operand,
                    struct tally *tally) {
    const struct instruction *by;
    *tally = (struct tally){operand->buffer, AXES_NONE};
    if (operand->ndim != 1 || !tally_is_fixed(p, operand))
        return false;
    for (size_t steps = 0; steps < p->buffers.count && (by = tally_step(p, table, tally)); steps++) {
        const int64_t *dim = by->in[0].dim; // pieces first; of what is added up in parts [a,r,P,c] all of each
        const bool sums = table->op[by->op].tallies;
        if ((sums ? dim[0] * dim[1] : dim[0]) != operand->dim[0] || (sums && dim[3] != 1))
            return false;
    }
    return true;
}
