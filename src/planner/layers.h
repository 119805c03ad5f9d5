// Internal to planner/: how many layers each stage has and how many of them are recomputed, so that the slowest stage
// is as fast as memory allows. Galvatron (Miao et al., 2023) searches for strategies of layers in the same way.
#ifndef PLANNER_LAYERS_H
#define PLANNER_LAYERS_H

#include "parallel/recompute.h"

// One of a stage's chunks. Those of which most microbatches are held come first, in the deepest modes.
struct layers_chunk {
    int index;    // in the order of the model
    int layers;   // that it is given, where that is so
    double share; // what a layer of it holds, over what a layer of the stage holds on average
};

// What a stage takes beside its layers, and what each layer takes.
struct layers_stage {
    double seconds;
    double bytes[RECOMPUTE_MODES]; // where that is the deepest mode of any of its layers; rise, but for corrections
    double room;                   // bytes
    double layer[RECOMPUTE_MODES]; // seconds, of a microbatch; rise
    double held[RECOMPUTE_MODES];  // bytes, of all microbatches; fall
    int layers;                    // how many it must have; 0: any number
    struct layers_chunk *chunk;    // [chunks], by falling share
};

struct layers_problem {
    int stages, layers;
    int chunks;   // of a stage
    bool given;   // how many layers each chunk has; otherwise their numbers differ by one at most
    int least;    // layers of a stage
    double state; // bytes of a layer, whatever its mode
    struct layers_stage *stage;
};

struct layers_choice {
    int of[RECOMPUTE_MODES];
};

int layers_count(const struct layers_choice *choice);
int layers_deepest(const struct layers_choice *choice); // mode; 0 without layers
double layers_seconds(const struct layers_problem *problem, int stage, const struct layers_choice *choice);
double layers_bytes(const struct layers_problem *problem, int stage, const struct layers_choice *choice);
// The choice's layers over the stage's chunks, to of_chunk[chunks] in the order of the model.
void layers_spread(const struct layers_problem *problem, int stage, const struct layers_choice *choice,
                   struct layers_choice *of_chunk);

// The least seconds of a stage with so many layers, and to `out` (NULL: not wanted) the choice that takes them.
// INFINITY where none fits, or where the stage must have another number.
//     least(r, n) = min over f + s <= n with bytes(r, n, f, s) <= room of seconds(r, n, f, s)
double layers_least(const struct layers_problem *problem, int stage, int layers, struct layers_choice *out);

// False where nothing fits. O(stages).
bool layers_may_fit(const struct layers_problem *problem);

// Deals all layers to all stages, at least `least` to each, so that the slowest stage is as fast as can be:
//     slowest(r, k) = min over n of max(slowest(r - 1, k - n), least(r, n))
// and, among all ways in which no stage is slower than that, with the least sum, the time to fill the pipeline:
//     sum(r, k) = min over n with least(r, n) <= slowest(stages, layers) of sum(r - 1, k - n) + least(r, n)
// to out[stages]. Returns the slowest stage's seconds, INFINITY where nothing fits; then `out` is not set.
// O(stages x layers^2 x chunks x log layers).
double layers_choose(const struct layers_problem *problem, struct layers_choice *out);

#endif
