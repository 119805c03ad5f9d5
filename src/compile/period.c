#include "compile/period.h"

#include "optim/outer_schedule.h"

static void period_add(struct period *p, enum program_kind kind, int part, enum period_action action) {
    VEC_PUSH(&p->parts, ((struct period_part){kind, part, action}));
}

// All that a run has for one fragment; returns how many of the steps are among it.
static int64_t period_add_part(struct period *p, const struct config *config, int part) {
    int under_way = NONE;
    int64_t beside = 0;
    for (int k = 0; k < PROGRAM_KINDS; k++) {
        const enum program_kind kind = (enum program_kind)k;
        if (!program_kinds[kind].wanted || program_kinds[kind].wanted(config, false) <= part)
            continue;
        if (under_way != NONE)
            period_add(p, (enum program_kind)under_way, part, PERIOD_END);
        under_way = program_is_beside(kind) ? k : NONE;
        period_add(p, kind, part, program_is_beside(kind) ? PERIOD_BEGIN : PERIOD_RUN);
        for (; under_way != NONE && beside < outer_delay(config); beside++)
            period_add(p, PROGRAM_TRAIN, 0, PERIOD_RUN);
    }
    if (under_way != NONE)
        period_add(p, (enum program_kind)under_way, part, PERIOD_END);
    if (beside == 0)
        period_add(p, PROGRAM_TRAIN, 0, PERIOD_RUN);
    return MAX(beside, 1);
}

struct period period_of(const struct config *config) {
    const bool meets = outer_arrival(config) != ARRIVAL_NEVER;
    const int rounds = meets ? outer_distances(config) : 1;
    struct period p = {.steps = meets ? rounds * config->outer.sync_steps : 1};
    p.further = p.steps;
    for (int part = 0; part < (meets ? rounds * config->outer.fragments : 1); part++)
        p.further -= period_add_part(&p, config, part);
    return p;
}

void period_shorten(struct period *p, int64_t steps) {
    size_t kept = 0;
    int64_t left = steps;
    for (size_t i = 0; i < p->parts.count; i++) {
        const struct period_part part = p->parts.item[i];
        left = part.action == PERIOD_BEGIN ? steps : left;
        const bool step = part.kind == PROGRAM_TRAIN, more = step && left-- <= 0;
        p->further += more;
        if (!more)
            p->parts.item[kept++] = part;
    }
    p->parts.count = kept;
}
