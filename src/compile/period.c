#include "compile/period.h"

static void period_add(struct period *p, enum program_kind kind, enum period_action action) {
    VEC_PUSH(&p->parts, ((struct period_part){kind, action}));
}

struct period period_of(const struct config *config) {
    struct period p = {.steps = 1};
    int under_way = NONE;
    int64_t beside = 0;
    for (int k = 0; k < PROGRAM_KINDS; k++) {
        const enum program_kind kind = (enum program_kind)k;
        if (!program_kinds[kind].wanted || !program_kinds[kind].wanted(config))
            continue;
        p.steps = config->outer.sync_steps;
        if (under_way != NONE)
            period_add(&p, (enum program_kind)under_way, PERIOD_END);
        under_way = program_is_beside(kind) ? k : NONE;
        period_add(&p, kind, program_is_beside(kind) ? PERIOD_BEGIN : PERIOD_RUN);
        for (; under_way != NONE && beside < config->outer.delay_steps; beside++)
            period_add(&p, PROGRAM_TRAIN, PERIOD_RUN);
    }
    if (under_way != NONE)
        period_add(&p, (enum program_kind)under_way, PERIOD_END);
    if (beside == 0)
        period_add(&p, PROGRAM_TRAIN, PERIOD_RUN);
    p.further = p.steps - MAX(beside, 1);
    return p;
}

void period_shorten(struct period *p, int64_t steps) {
    size_t kept = 0;
    for (size_t i = 0; i < p->parts.count; i++) {
        const bool step = p->parts.item[i].kind == PROGRAM_TRAIN, more = step && steps-- <= 0;
        p->further += more;
        if (!more)
            p->parts.item[kept++] = p->parts.item[i];
    }
    p->parts.count = kept;
}
