// planner/: searches the ways in which Trireme can train a model on a cluster for those that fit and take least time.
// Includes all folders above it, among them sim/ and compile/; runs nothing.
//
//   space      all choices that a configuration leaves open
//   layers     how many layers each stage has, and which are recomputed
//   mix        the same for one choice, until its programs fit
//   estimate   seconds and bytes of a choice, from programs of a few layers; takes microseconds
//   devices    kinds of ranks, where they are not all alike
//   logits     how many rows of logits are made at once
//   shapes     schedules for few microbatches, from which estimates for many are made
//   evaluate   seconds and bytes of a choice, from the programs that its ranks would run: the truth
//   learn      how far off the estimates of evaluated choices were
//   search     the most promising choices first, until none of the rest can be better
//   move       moves layers of the best plans from stage to stage
//   listing    which plans are listed
//   smallest   the plans that need least memory, for when nothing promising fits
//   advise     what would have to change, for when nothing fits
//   islands    one island, for which all of this is; and how often several meet
//   context_plans  how ranks attend together, where that is left open
//   export     a choice in the words of other systems
#ifndef PLANNER_PLANNER_H
#define PLANNER_PLANNER_H

#include "compile/stages.h"
#include "sim/memory.h"
#include "sim/simulate.h"

// What is chosen. Everything else is as the configuration says.
struct plan_choice {
    int parts; // ranks that have parts of the same sequences: not chosen, but as the configuration says
    int replicas, shards, zero_stage; // data parallel; stage 0 with one shard, unless sequences have parts
    int tensor;
    bool sequence, overlap;
    int stages, chunks;   // chunks 0: without a pipeline
    const char *schedule; // a schedule's name, or the user's file
    bool balanced;        // layout `auto`; else as even as possible, or the user's
    bool vocabulary;      // spread over the stages
    int64_t micro_batch_size;
    enum config_recompute recompute;
    // Whether recomputation is chosen layer by layer; `recompute` is then none, or what the user says. The lists are
    // the values of activation_checkpoint.full_layers and selective_layers and of pipeline_parallel_layout, NULL as
    // long as they are not chosen. The plan_result owns them.
    bool mixed;
    const char *full_layers, *selective_layers, *layout;
    // 0: as the configuration has it.
    int unit_layers;     // layers of a unit, or HALF_LAYERS
    int prefetch;        // units gathered ahead
    int64_t logits_rows; // training.logits_rows
};

enum { HALF_LAYERS = -1 };

// Whether only some layers are recomputed.
static inline bool plan_choice_mixes(const struct plan_choice *c) {
    return c->full_layers || c->selective_layers;
}

struct plan_request {
    // Of one island (islands.h). Keys that are set are kept; the other keys of struct plan_choice are searched.
    const struct config *config;
    const struct model_config *model;
    const struct op_table *ops;
    const struct cluster *cluster;
    struct schedule_store *schedules; // made for this request or one like it; NULL: each schedule is made anew
    int ranks;                        // all take part, on the first devices
    int islands;                      // how many there are of the same; 0: this is all
    bool only_fit;                    // find out only whether any choice fits: the result's answers are those that do
    int threads;                      // of the search
    double seconds; // after which the search begins nothing more (advice: after 4/3 of it); 0: no limit
    void (*progress)(void *user, int evaluated, int promising, double best); // best 0: none yet; may be NULL
    void *user;
};

// What the compiled programs of a choice and their simulation say.
struct plan_answer {
    struct plan_choice choice;
    double estimate;   // seconds
    double seconds;    // of a step
    int64_t simulated; // microbatches of a rank that were simulated: all, or the rest follows from these
    // Seconds, means over ranks; their sum is `seconds`.
    double computing, bubble, exposed[AXIS_COUNT];
    double mfu, tokens_per_second;
    int64_t memory, room; // bytes, of the rank with the least room left
    bool least_memory;    // whether memory is planned as small as possible, as `train` does
    int tightest;         // the stage of that rank
    struct sim_memory of_tightest;
    char largest[64]; // the largest buffer there when most is held
    // In a list: how many plans of its family (listing.h) it stands for that are at most PLAN_NEAR slower, and by what
    // share they are slower at most; and the place in the list of the faster plan of its family that it beats in free
    // memory, or NONE.
    int variants;
    double within;
    int traded;
};

struct plan_result {
    VEC(struct plan_answer) answers; // best first, at most PLAN_ANSWERS, chosen as listing.h says
    int choices, pipelines;          // choices in the space, and how many of them are pipelines
    int promising;                   // choices that may fit, by estimate
    int evaluated;                   // choices that were compiled and simulated
    int ways;                        // compiled and simulated too: ways to better plans, which are not in the space
    bool fits;                       // at least one does
    bool complete;                   // nothing can be better than the best, provided estimates are within PLAN_SLACK
    struct plan_answer closest;      // where nothing fits: the plan that lacks least memory
    VEC(char *) lists;               // the lists that choices point to
};

enum { PLAN_ANSWERS = 10 };
// The true time may be as low as this part of an estimate.
#define PLAN_SLACK .9
// A slower plan is listed too where it leaves this part of the device's memory more free.
#define PLAN_TRADE .1
// Plans are nearly as fast, or as fast, when they are slower by at most this part of a step.
#define PLAN_NEAR .01
#define PLAN_ALIKE 1e-6

// Searches; the caller releases *out. TRIREME_ERROR_USAGE where no choice is possible at all, with the reason why one
// of them is not.
trireme_status plan_search(struct plan_result *out, const struct plan_request *request, trireme_error *error);
void plan_result_release(struct plan_result *result);

// The configuration of a choice, which can be trained, verified and simulated as it is. The caller releases it.
// TRIREME_ERROR_USAGE where a key of the choice is refused; then there is nothing to release.
trireme_status plan_config(struct config *out, const struct plan_request *request, const struct plan_choice *choice,
                           trireme_error *error);
// How hard to try to plan a program's memory small.
enum plan_memory {
    PLAN_LEAST_MEMORY, // as `train` does
    PLAN_WITHIN_ROOM,  // quicker: only until it fits into what the smallest device leaves a rank
    PLAN_SOON          // quickest, and rarely larger; programs are not proved
};
// Compiles and simulates a choice. A mixed choice without lists is taken as if nothing were recomputed layer by layer.
// TRIREME_ERROR_USAGE where the choice is impossible.
trireme_status plan_evaluate(struct plan_answer *out, const struct plan_request *request,
                             const struct plan_choice *choice, enum plan_memory memory, trireme_error *error);
// Microbatches of a rank.
int64_t plan_microbatches(const struct plan_request *request, const struct plan_choice *choice);
// Seconds of the step in which ranks with other rows wait for one another.
double plan_answer_waiting(const struct plan_answer *answer);
// "dp 2 x fsdp 16 (zero 1) x tp 8 x pp 4, interleaved of 5 chunks, ..."; the caller frees.
char *plan_choice_print(const struct plan_request *request, const struct plan_choice *choice);
// The same for answer `number`, followed by its lists where another answer would print alike. The caller frees.
char *plan_answer_print(const struct plan_request *request, const struct plan_result *result, size_t number);
// The part of a step that takes most more time in `worse` than in `better`: "bubble +0.31 s"; "as fast" where none
// does. The caller frees.
char *plan_difference_print(const struct plan_answer *better, const struct plan_answer *worse);

// Appends what would make the model fit: a line for each change that was tried and helps, the smallest first; nothing
// where none does. False where time was up before all changes were tried.
bool plan_advise(struct text *out, const struct plan_request *request);

// Appends the flags of Megatron-LM, or the TOML of TorchTitan, for an answer, with a comment for everything that the
// other system cannot do.
void plan_export_megatron(struct text *out, const struct plan_request *request, const struct plan_answer *answer);
void plan_export_torchtitan(struct text *out, const struct plan_request *request, const struct plan_answer *answer);

#endif
