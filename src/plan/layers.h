// Internal to plan/: how many layers each stage has and how many of them are computed again, so that the slowest stage
// is as fast as memory allows. Galvatron (Miao et al., 2023) searches strategies of layers likewise.
#ifndef PLAN_LAYERS_H
#define PLAN_LAYERS_H

#include "base/base.h"

enum { LAYERS_MODES = 3 }; // none, selective, full

// What a stage has beside its layers, and what it holds of each.
struct layers_stage {
    double seconds, bytes;
    double room;                // bytes
    double layer[LAYERS_MODES]; // seconds, of a microbatch; rise
    double held[LAYERS_MODES];  // bytes, of all microbatches; fall
    int layers;                 // 0: as suits
};

struct layers_problem {
    int stages, layers;
    int least;    // layers of a stage
    double state; // bytes of a layer, whatever its mode
    struct layers_stage *stage;
};

struct layers_choice {
    int of[LAYERS_MODES];
};

int layers_count(const struct layers_choice *choice);
double layers_seconds(const struct layers_problem *problem, int stage, const struct layers_choice *choice);
double layers_bytes(const struct layers_problem *problem, int stage, const struct layers_choice *choice);

// Least seconds of one stage of `layers` layers, as many as it may have: INFINITY where none fits.
//     least(r, n) = min over f + s <= n with bytes(r, n, f, s) <= room of seconds(r, n, f, s)
double layers_least(const struct layers_problem *problem, int stage, int layers, struct layers_choice *out);

// False where not even all layers in the last mode fit. O(stages).
bool layers_may_fit(const struct layers_problem *problem);

// All layers over all stages, `least` or more to each:
//     slowest(r, k) = min over n of max(slowest(r - 1, k - n), least(r, n))
// and among those as slow as slowest(stages, layers) allows, the least sum, which filling the pipeline takes:
//     sum(r, k) = min over n with least(r, n) <= slowest(stages, layers) of sum(r - 1, k - n) + least(r, n)
// to out[stages]. Returns the slowest stage's seconds, INFINITY where nothing fits. O(stages x layers^2).
double layers_choose(const struct layers_problem *problem, struct layers_choice *out);

#endif
