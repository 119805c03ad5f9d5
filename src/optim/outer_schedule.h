// When islands meet, and with which part of the model: a pure function of the configuration and the step. The model is
// cut into outer.fragments parts, which take turns.
#ifndef OPTIM_OUTER_SCHEDULE_H
#define OPTIM_OUTER_SCHEDULE_H

#include "config/config.h"

// Which of the fragments the layer belongs to; NONE stands for the embedding and the head. Layers are dealt out one by
// one (Douillard et al. 2025, "Streaming DiLoCo with overlapping communication", section 2.2: strided), so that each
// fragment has some of every depth.
int outer_fragment_of(const struct config *config, int layer);

// How a fragment arrives.
enum outer_arrival {
    ARRIVAL_NEVER,   // islands do not meet
    ARRIVAL_AT_ONCE, // steps wait
    ARRIVAL_LATER,   // some steps later, before the next fragment sets out
    ARRIVAL_A_ROUND  // when the next one has been taken: what islands have come in between is not lost, but late
};
enum outer_arrival outer_arrival(const struct config *config);
// How many steps run while a fragment is on its way, as far as that is known without the step.
int64_t outer_delay(const struct config *config);

// Whether islands have outer parameters of their own.
bool outer_anchors_own(const struct config *config);
// Where pairs meet, an island hears the one 2^k places before it around the ring, for k from 0 in turn, so that what
// one has learnt is with all after as many meetings as there are such k: this many. 1 where all meet.
int outer_distances(const struct config *config);

// Refuses what no schedule can be made of. `layers`: of the model.
trireme_status outer_schedule_check(const struct config *config, int layers, trireme_error *error);

struct outer_schedule {
    const struct config *config;
    // Where intervals differ: the steps of the last meeting and the one behind it, and how many were before that.
    int64_t met, next, before;
};
struct outer_schedule outer_schedule_create(const struct config *config);
// The fragment that sets out after the step; NONE: none does. Steps are asked for in order, from any step on.
int outer_schedule_at(struct outer_schedule *schedule, int64_t step);
// Which program (struct program_spec, `part`) that fragment has then.
int outer_schedule_part(const struct outer_schedule *schedule, int64_t step, int fragment);

#endif
