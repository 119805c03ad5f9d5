// optim/: optimizers, clipping and learning-rate schedules: emit instructions. Includes base/, config/, mesh/,
// program/, state/, model/.
#ifndef OPTIM_OPTIMIZER_H
#define OPTIM_OPTIMIZER_H

#include "config/config.h"
#include "model/state.h"

// ---- the table (optimizers.def)

// The states of all optimizers.
enum optimizer_state_id {
#define STATE(symbol, optimizer, operand, saved, role) OPTIMIZER_##symbol,
#define OPTIMIZER(symbol, op, begin, emit, takes, rest, states, attributes) states
#include "optim/optimizers.def"
#undef OPTIMIZER
#undef STATE
    OPTIMIZER_STATES
};
struct optimizer_state_info {
    enum config_optimizer_name optimizer;
    const char *operand; // of its op
    const char *saved;   // what checkpoints call it: "adamw.m"
    enum state_role role;
};
extern const struct optimizer_state_info optimizer_states[OPTIMIZER_STATES];

// The optimizer of a parameter, where the configuration asks for `name`: an enum config_optimizer_name, or
// OPTIMIZER_NONE, which frozen parameters have.
enum { OPTIMIZER_NONE = -1 };
int optimizer_of(enum config_optimizer_name name, const struct parameter *parameter);
// Whether each parameter of a whole table has another one than `name`, as parameter_table_split takes it; NULL: none
// has. The caller frees.
int *optimizer_apart(enum config_optimizer_name name, const struct parameter_table *whole);
// That of each unit, [units]. The caller frees.
int *optimizer_of_units(enum config_optimizer_name name, const struct model_units *units);

// ---- the optimizer's part of the state

// Entries, per unit where they are arrays; NONE for units that have none, as those without an optimizer.
struct optimizer_entries {
    int *of;                      // the unit's optimizer
    int *remainder;               // u16: low half of the f32 master weight (bf16 models), else NULL
    int *gradient;                // flat accumulated gradients
    int *state[OPTIMIZER_STATES]; // NULL: no unit has the state
    int *decayed;                 // f64[1]: how many of the unit's first elements decay (it differs between shards)
    int t;                        // f64[1]: updates done
};
// Adds all of this for parameters of `dtype`, the states in `space`; takes over of[units], which it frees.
void optimizer_entries_add(struct optimizer_entries *entries, struct state_table *state,
                           const struct model_units *units, const struct model_entries *model, int *of,
                           enum dtype dtype, enum memory_space space);
void optimizer_entries_release(struct optimizer_entries *entries);

// The buffers of these in one program.
struct optimizer_state {
    const struct optimizer_entries *entries;
    const struct unit_axes *axes; // [units]: of struct model_units
    int *remainder;               // as in struct optimizer_entries
    int *gradient;                // "
    int *whole_gradient;          // where these are parts: LOCAL, the whole gradient of one microbatch; else `gradient`
    int *gradient_slice;          // slice of whole_gradient for each parameter of the table; NONE if it is frozen
    int *state[OPTIMIZER_STATES], *decayed, t;
    int *here[OPTIMIZER_STATES]; // where updates find the states: LOCAL copies of those that kernels cannot reach
};
// Declares the buffers of the entries, which must outlive *out, as must the units, for parameters of `dtype`.
void optimizer_state_declare(struct optimizer_state *out, struct program *program, const struct state_table *state,
                             const struct optimizer_entries *entries, const struct model_units *units,
                             const struct model_state *model, enum dtype dtype);
void optimizer_state_release(struct optimizer_state *state);
// The part of a unit's gradient that this rank has once it is reduced.
struct operand optimizer_reduced(const struct program *program, const struct optimizer_state *state, int unit);

// ---- the update

struct optimizer_outputs {
    int norm, factor, finite; // f64[1], f64[1], i32[1]
};
// What an update is made of.
struct optimizer_update {
    struct program *program;
    int template;
    const struct op_table *ops;
    const struct config *config;
    const struct optimizer_state *state;
    const struct model_state *model;
    const struct model_units *units;
    struct optimizer_outputs outputs;
    int lr;         // f64[1]
    int *direction; // [units]: the buffer that a row's `begin` has left for its `emit`
};
// The operands that updates of a unit have; absent ones are operand_none.
struct optimizer_operands {
    struct operand p, rem, g; // what this rank updates of the unit, the low halves of it, and its gradient
    struct operand o;         // what has been derived of the gradient
    struct operand lr, factor, t, decayed;
    struct operand state[OPTIMIZER_STATES];
};
struct optimizer_operands optimizer_operands(const struct optimizer_update *update, int unit);
// Appends an op of the unit's optimizer, with the operands of the names that it has and the attributes that the
// optimizer gives it, under the predicate that norm and loss are finite. Its first `outputs` outputs are those of
// `out`; the others are in place.
void optimizer_emit_op(const struct optimizer_update *update, int unit, enum op op,
                       const struct optimizer_operands *operands, int outputs, const struct operand *out);
// A row's `emit` emits the update of one unit, or of the rank's part of it, under the same predicate. Its `begin` has
// emitted what belongs before the update of the unit before it. Its `takes` says whether the optimizer is for a
// parameter. States that lie where no kernel reaches them are brought before `begin` and taken back after `emit`.
typedef void optimizer_emit_unit(const struct optimizer_update *update, int unit);
#define OPTIMIZER(symbol, op, begin, emit, takes, rest, states, attributes) \
    optimizer_emit_unit begin, emit;                                        \
    bool takes(const struct parameter *parameter);
#include "optim/optimizers.def"
#undef OPTIMIZER

// Appends to update->template the norm of all gradients, each counted once over all ranks, clipping, and the update of
// every unit. All updates are skipped if loss or norm is not finite. `loss` is a f64[1] buffer. update->outputs becomes
// STEP buffers of kind OUTPUT. `counted_elsewhere` is the unit whose gradient another stage counts in the norm (a tied
// embedding), or NONE.
void optimizer_emit(struct optimizer_update *update, int loss, int counted_elsewhere);

// The stream on which gradients are reduced, and what the update needs of all ranks.
int reduce_stream(struct program *program);
// The stream on which states are brought and taken back. It is declared where states are offloaded.
int transfer_stream(struct program *program);

// ---- learning rates

// The highest learning rate: optimizer.lr, scaled from lr_scheduler.base_batch_size to training.global_batch_size, if
// it is given, by their ratio (Goyal et al. 2017) or its root.
double learning_rate_peak(const struct config *config);
// The learning rate of step `step` (from 1): step / warmup_steps of that in the warm-up, all of it until the
// decay that `config->lr_scheduler` names begins. With p = (step - 1 - begin) / (end - begin), at most 1, a decay has
// the factor min_lr_factor + (1 - min_lr_factor) * f, f = (1 + cos(pi * p)) / 2 for cosine and 1 - p for linear and
// wsd.
double learning_rate(const struct config *config, int64_t step);
// The last step before that decay begins, and the one after which the learning rate stays constant.
int64_t learning_rate_decay_begin(const struct config *config);
int64_t learning_rate_decay_end(const struct config *config);

#endif
