#include "program/channels.h"

// Pairs come after what all of a group open: their two ranks give the peer by different distances.
static int channels_compare(const void *a, const void *b) {
    const struct channel *x = a, *y = b;
    return COMPARE(x->group, y->group)
               ?: COMPARE(x->number, y->number) ?: COMPARE(!y->peer, !x->peer) ?: COMPARE(x->peer, y->peer);
}

struct channel channel_of(const struct program *program, const struct instruction *i) {
    return (struct channel){i->group, stream_channel(program, i->stream), instruction_is_pair(i) ? i->peer : 0};
}

int channels_find(const struct channels *c, struct channel channel) {
    for (size_t k = 0; k < c->list.count; k++)
        if (channels_compare(&c->list.item[k], &channel) == 0)
            return (int)k;
    return NONE;
}

static void channels_add(struct channels *c, struct channel channel) {
    if (channels_find(c, channel) == NONE)
        VEC_PUSH(&c->list, channel);
}

void channels_create(struct channels *c, const struct program *program, const struct op_table *table) {
    *c = (struct channels){0};
    FOR_INSTRUCTIONS(i, program) {
        if (table->op[i->op].role != ROLE_COMMUNICATION)
            continue;
        channels_add(c, channel_of(program, i));
        for (size_t s = 0; stream_is_end(program, i->stream) && s < program->streams.count; s++)
            if (stream_is_end(program, (int)s))
                channels_add(c, (struct channel){i->group, stream_channel(program, (int)s), 0});
    }
    VEC_SORT(&c->list, channels_compare);
}

void channels_release(struct channels *c) {
    VEC_RELEASE(&c->list);
}
