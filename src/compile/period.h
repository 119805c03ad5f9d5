// What a run that trains does over and over, as a list of its programs: a step; where islands meet, all of an interval
// (of those that differ, the shortest), in which each fragment of the model meets once, and where pairs meet as many
// intervals as they have distances. It follows from the table of
// programs: of what a run has besides steps (programs.def, `wanted`), each runs in the order of the rows, once for each
// fragment. One that may run beside steps begins where its row stands, steps run meanwhile, and it has ended before
// what comes behind its row.
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
    int part; // as in struct program_spec
    enum period_action action;
};
struct period {
    VEC(struct period_part) parts; // has at least one step
    int64_t steps;                 // of the whole period
    int64_t further;               // of these, how many are not among the parts: they have nothing beside them
};
// The caller releases `parts`.
struct period period_of(const struct config *config);
// Leaves no more than `steps` (at least one) beside each of the others among the parts; the rest become further ones.
void period_shorten(struct period *period, int64_t steps);
static inline bool period_has(const struct period *period, enum program_kind kind, int part) {
    for (size_t i = 0; i < period->parts.count; i++)
        if (period->parts.item[i].kind == kind && period->parts.item[i].part == part)
            return true;
    return false;
}
// The first of the parts that is a step.
static inline size_t period_step(const struct period *period) {
    size_t step = 0;
    while (period->parts.item[step].kind != PROGRAM_TRAIN)
        step++;
    return step;
}

#endif
