// optim/: optimizers, clipping and learning-rate schedules: emit instructions. Includes base/, config/, mesh/,
// program/, model/.
#ifndef OPTIM_OPTIMIZER_H
#define OPTIM_OPTIMIZER_H

#include "model/state.h"

enum optimizer { OPTIMIZER_ADAMW, OPTIMIZER_LION, OPTIMIZER_SGD };

struct optimizer_config {
    enum optimizer name;
    double beta1, beta2, eps, weight_decay, momentum;
    double max_norm; // of the global gradient; 0: no clipping
};

// The optimizer's part of the `state` arena; arrays have one buffer per unit.
struct optimizer_state {
    int zero_stage;      // what a rank has only its own part of, unit by unit: 0 nothing, 1 moments and remainders, 2
                         // and 3 gradients too
    axis_set shards;     // the axes over whose ranks those parts are spread
    int *remainder;      // u16: low half of the f32 master weight (bf16 models), else NULL
    int *gradient;       // flat accumulated gradients
    int *whole_gradient; // where these are parts: LOCAL, the whole gradient of one microbatch; else `gradient`
    int *gradient_slice; // slice of whole_gradient for each parameter of the table
    int *m, *v;          // moments; v is NULL for lion and sgd
    int *decayed;        // f64[1]: how many of the unit's first elements decay (data: it differs between shards)
    int t;               // f64[1]: updates done
};

struct optimizer_outputs {
    int norm, factor, finite; // f64[1], f64[1], i32[1]
};

// The stream on which gradients are reduced, and what the update needs of all ranks.
int reduce_stream(struct program *program);
// Declares all of this for the units of `model`; `dtype` is that of the parameters.
void optimizer_state_declare(struct optimizer_state *state, const struct model_state *model, struct program *program,
                             const struct parameter_table *table, const struct state_layout *layout, int zero_stage,
                             const struct optimizer_config *config, enum dtype dtype);
void optimizer_state_release(struct optimizer_state *state);
// Appends to `template` the norm of all gradients, each counted once over all ranks, clipping, and the update of every
// unit, or of the rank's part of it. All updates are skipped if loss or norm is not finite. `lr` and `loss` are f64[1]
// buffers. *outputs are STEP buffers of kind OUTPUT. `counted_elsewhere` is the unit whose gradient another stage
// counts in the norm (a tied embedding), or NONE.
void optimizer_emit(const struct optimizer_state *state, const struct model_state *model,
                    const struct parameter_table *table, struct program *program, int template,
                    const struct optimizer_config *config, int lr, int loss, int counted_elsewhere,
                    struct optimizer_outputs *outputs);

// The optimizer that a run's configuration asks for.
struct optimizer_config optimizer_config_resolve(const struct config *config);
// The learning rate of step `step` (from 1): linear warm-up, then the decay that `config->lr_scheduler` names.
double learning_rate(const struct config *config, int64_t step);
// The last step before that decay begins, and the one after which the learning rate stays constant.
int64_t learning_rate_decay_begin(const struct config *config);
int64_t learning_rate_decay_end(const struct config *config);

#endif
