// Internal to plan/: which layers of a choice are computed again, each stage as few as its memory allows; and how many
// each stage has, that alone where the user says what is computed again. First by estimate, then by its programs.
#ifndef PLAN_MIX_H
#define PLAN_MIX_H

#include "plan/estimate.h"
#include "plan/layers.h"

struct mix {
    struct layers_problem problem;
    struct layers_choice *of;       // [stages]: what is chosen
    struct layers_choice *by_speed; // [stages], where devices differ: as if memory were no matter; else NULL
    const struct shape *shape;      // NULL: no pipeline
    bool given;                     // the user says which layers a stage has
    bool mode_set;                  // and how much of all is computed again: what the first mode then stands for
    bool balanced;                  // for the least memory of the fullest stage
    int *first_layer;               // of each virtual stage, the user's or as even as can be; owned
    struct load *load;              // [stages]
    double *fixed;                  // [stages]: bytes that no choice changes
    struct probe_part layer, rest;  // of ranks of the first kind
    struct probe_forward {
        double layer, head; // seconds of a microbatch
    } * forward;            // [stages]
};

// False: impossible (estimator->why). Releases nothing of the estimator's, which has to stay.
bool mix_create(struct mix *out, struct estimator *estimator, const struct plan_choice *choice);
void mix_release(struct mix *mix);

// Chooses for the memory that the choice's data parallel ranks leave; `quickly` leaves as many layers to each stage as
// it has, if that fits and devices are equal. False where nothing fits, and, on equal devices, where all layers of all
// stages are in one mode that is not set, or may stay as even as can be: that is another choice.
bool mix_choose(struct mix *mix, const struct plan_choice *choice, const struct pipe_estimate *pipe, bool quickly);
// The same for the stage that has least room left to have most, whatever time that takes: how full it is then, which is
// more than 1 where nothing fits.
double mix_balance(struct mix *mix, const struct plan_choice *choice, const struct pipe_estimate *pipe);
// `pipe` as the mix makes it.
struct pipe_estimate mix_pipe(const struct mix *mix, const struct pipe_estimate *pipe);
// Bytes of the stage that has least room left, as if all had `room`.
double mix_bytes(const struct mix *mix, double room);

// Compiles what is chosen, corrects the estimates by what each stage takes, and chooses again until all fit, or nothing
// can. Sets the lists of the choice; the caller owns them.
trireme_status mix_fit(struct mix *mix, const struct plan_request *request, struct plan_choice *choice,
                       trireme_error *error);

#endif
