#include "sim/exchanges.h"

#include "sim/cost.h"

// Adds to an entry, or makes it.
static void exchanges_note(struct exchanges *out, const struct exchange *more, bool largest) {
    for (size_t i = 0; i < out->count; i++) {
        struct exchange *t = &out->item[i];
        if (t->group != more->group || t->op != more->op)
            continue;
        if (largest) {
            *t = more->bytes > t->bytes ? *more : *t;
        } else {
            t->count += more->count;
            t->bytes += more->bytes;
        }
        return;
    }
    VEC_PUSH(out, *more);
}

static bool moves(const struct program *p, const struct instruction *in) {
    return op_traffic[in->op].call != CALL_NONE && mesh_present(&p->mesh, in->group) != AXES_NONE;
}

// Calls `note` for each instruction that communicates, as often as it runs.
static void for_exchanges(const struct program *p,
                          void (*note)(void *user, const struct program *p, const struct instruction *in), void *user) {
    for (size_t k = 0; k < p->schedule.count; k++) {
        const struct invocation *v = &p->schedule.item[k];
        const struct template *t = &p->templates.item[v->template];
        for (size_t i = 0; i < t->instructions.count; i++) {
            const struct instruction *in = &t->instructions.item[i];
            if (!when_skips(in->when, v) && moves(p, in))
                note(user, p, in);
        }
    }
}

static void note_own(void *user, const struct program *p, const struct instruction *in) {
    exchanges_note(user, &(struct exchange){mesh_present(&p->mesh, in->group), in->op, 1, communicated_bytes(p, in)},
                   false);
}

void exchanges_add(struct exchanges *out, const struct program *p) {
    struct exchanges own = {0};
    for_exchanges(p, note_own, &own);
    for (size_t i = 0; i < own.count; i++)
        exchanges_note(out, &own.item[i], true);
    VEC_RELEASE(&own);
}

static void note_sent(void *user, const struct program *p, const struct instruction *in) {
    double *sent = user;
    const axis_set group = mesh_present(&p->mesh, in->group);
    const double ranks = instruction_is_pair(in) ? 2 : mesh_group_size(&p->mesh, group),
                 bytes = communicated_bytes(p, in);
    if (!op_is_message(in->op))
        sent[axes_outermost(group)] += op_traffic[in->op].times * bytes * (ranks - 1) / ranks;
    else if (op_gives_away(in->op)) // of the ranks, some have nobody to send to where messages do not wrap around
        sent[axes_outermost(group)] += in->open ? bytes * (ranks - abs(in->peer)) / ranks : bytes;
}

void program_sends(const struct program *p, double sent[AXIS_COUNT]) {
    memset(sent, 0, AXIS_COUNT * sizeof *sent);
    for_exchanges(p, note_sent, sent);
}

double exchanges_bytes(const struct exchanges *exchanges, axis_set group) {
    double bytes = 0;
    for (size_t i = 0; i < exchanges->count; i++)
        bytes += exchanges->item[i].group == group ? exchanges->item[i].bytes : 0;
    return bytes;
}

bool exchanges_reach(const struct program *p, int distance) {
    const int stages = mesh_group_size(&p->mesh, AXES_STAGE);
    FOR_INSTRUCTIONS(in, p) {
        if (!op_is_message(in->op) || !(in->group & AXES_STAGE))
            continue;
        // Of two stages, each is before and after the other: there only what lies between the ends counts.
        if (in->peer == distance || (stages > 2 && (in->peer - distance) % stages == 0))
            return true;
    }
    return false;
}
