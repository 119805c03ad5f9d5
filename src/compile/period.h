// What a run that trains does over and over, as a list of its programs: a step; where islands meet, all from one
// meeting to the next. It follows from the table of programs: of what a run has besides steps (programs.def, `wanted`),
// each runs in the order of the rows. One that may run beside steps begins where its row stands, steps run meanwhile,
// and it has ended before what comes behind its row.
#ifndef COMPILE_PERIOD_H
#define COMPILE_PERIOD_H

#include "compile/compile.h"

enum period_action {
    PERIOD_RUN,   // from its beginning to its end
    PERIOD_BEGIN, // what follows runs beside it,
    PERIOD_END    // up to here
};
struct period_part {
    enum program_kind kind;
    enum period_action action;
};
struct period {
    VEC(struct period_part) parts; // has at least one step
    int64_t steps;                 // of the whole period
    int64_t further;               // of these, how many follow behind the parts, with nothing beside them
};
// The caller releases `parts`.
struct period period_of(const struct config *config);
// Leaves no more than `steps` (at least one) among the parts; the others become further ones.
void period_shorten(struct period *period, int64_t steps);
static inline bool period_has(const struct period *period, enum program_kind kind) {
    for (size_t i = 0; i < period->parts.count; i++)
        if (period->parts.item[i].kind == kind)
            return true;
    return false;
}

#endif
