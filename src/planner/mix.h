// Internal to planner/: for one choice, which layers are recomputed on each stage, as few as its memory allows, and how
// many layers each stage has; only the latter where the user sets the mode of recomputation, only the former where the
// user or the choice lists the layers of stages. First by estimates, then by the compiled programs.
#ifndef PLANNER_MIX_H
#define PLANNER_MIX_H

#include "planner/estimate.h"
#include "planner/layers.h"

struct mix {
    struct layers_problem problem;
    struct layers_choice *of;         // [stages]: what is chosen
    struct layers_choice *by_speed;   // [stages]: what would be chosen if all fitted; NULL where devices are equal
    const struct shape *shape;        // NULL: no pipeline
    bool mode_set;                    // the user sets the mode of all layers: mode 0 of the problem then stands for it
    bool moved;                       // the choice lists the layers of stages, which are then no other choice's
    bool balanced;                    // the aim is that the fullest stage needs least memory, not that the step is fast
    struct layers_chunk *chunk;       // [stages x chunks]: the problem's; owned
    struct load *load;                // [stages]
    double (*fixed)[RECOMPUTE_MODES]; // [stages]: bytes beside layers and states, by the deepest mode of its layers
    struct probe_part layer, rest;    // of ranks of the first kind
    struct probe_forward {
        double layer, head; // seconds of a microbatch
    } * forward;            // [stages]
};

// TRIREME_ERROR_USAGE where the choice is impossible. The mix points to what the estimator owns, which has to outlive
// it.
trireme_status mix_create(struct mix *out, struct estimator *estimator, const struct plan_choice *choice,
                          trireme_error *error);
void mix_release(struct mix *mix);

// Chooses for the memory that the choice's data parallel ranks leave. `quickly` leaves the number of layers of each
// stage as it is, if that fits and devices are equal. False where nothing fits even if estimates are too high, and
// where what surely fits would be another choice of the search: nothing recomputed, with layers that are given or as
// even as can be, or, on equal devices and unless the choice lists the layers, all in one mode that the user has not
// set.
bool mix_choose(struct mix *mix, const struct plan_choice *choice, const struct pipe_estimate *pipe, bool quickly);
// Chooses so that the stage with the least room left has as much as possible, however slow that is. Returns how full
// that stage is then: more than 1 where nothing fits, INFINITY where there is no choice at all.
double mix_balance(struct mix *mix, const struct plan_choice *choice, const struct pipe_estimate *pipe);
// `pipe` with what the mix changes.
struct pipe_estimate mix_pipe(const struct mix *mix, const struct pipe_estimate *pipe);
// The bytes of the stage with the least room left, as if all stages had `room`.
double mix_bytes(const struct mix *mix, double room);

// Compiles what is chosen, corrects the estimates by what each stage takes, and chooses again, until all stages fit or
// nothing more can be gained. Sets those lists of `choice` that are not given; the caller owns them.
trireme_status mix_fit(struct mix *mix, const struct plan_request *request, struct plan_choice *choice,
                       trireme_error *error);

#endif
