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
        const bool of_stages = stream_is_end(program, i->stream) && (i->group & AXES_STAGE);
        for (size_t s = 0; of_stages && s < program->streams.count; s++)
            if (stream_is_end(program, (int)s))
                channels_add(c, (struct channel){i->group, stream_channel(program, (int)s), 0});
    }
    VEC_SORT(&c->list, channels_compare);
}

void channels_release(struct channels *c) {
    VEC_RELEASE(&c->list);
}

int message_other_end(const struct program *p, int template, int message) {
    const struct template *t = &p->templates.item[template];
    const struct instruction *of = &t->instructions.item[message];
    const int channel = stream_channel(p, of->stream), size = mesh_group_size(&p->mesh, of->group);
    int before = 0, other = NONE; // ends of its kind that come before it
    for (int pass = 0; pass < 2; pass++)
        for (int k = 0; k < (pass == 0 ? message : (int)t->instructions.count) && other == NONE; k++) {
            const struct instruction *i = &t->instructions.item[k];
            if (!op_is_message(i->op) || i->group != of->group || stream_channel(p, i->stream) != channel)
                continue;
            if (pass == 0)
                before += i->op == of->op;
            else if (i->op != of->op && before-- == 0)
                other = k;
        }
    const struct instruction *to = other == NONE ? NULL : &t->instructions.item[other];
    if (!to || to->when != of->when || to->open != of->open)
        return NONE;
    return (of->open ? to->peer + of->peer : (to->peer + of->peer) % size) == 0 ? other : NONE;
}

bool message_is_of(const struct mesh *mesh, const struct instruction *message, int rank) {
    const int end = mesh_index(mesh, rank, message->group) + message->peer;
    return !message->open || (end >= 0 && end < mesh_group_size(mesh, message->group));
}
