// plan/: searches what Trireme can do with a model on a cluster for what takes least time and fits. Includes what
// stands above it: sim/ and compile/; runs nothing.
//
//   space      all choices that a configuration leaves open
//   layers     how many of each stage, and which are computed again
//   mix        the same for a choice, until its programs fit
//   estimate   seconds and bytes of a choice from a few layers, in microseconds
//   logits     how many of them are made at once
//   shapes     schedules for few microbatches, which estimates for many stand on
//   evaluate   the same from the programs that its ranks would run: the truth
//   learn      how wrong estimates were of what was evaluated
//   search     the promising first, until what is left cannot be better
//   move       layers of the best from stage to stage
//   listing    which of them are told apart
//   smallest   what needs least memory, where nothing that is promising fits
//   advise     what would have to change where nothing fits
//   export     a choice in words of other systems
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include "compile/options.h"
#include "sim/memory.h"
#include "sim/simulate.h"

// What is chosen. All else is the configuration's.
struct plan_choice {
    int replicas, shards, zero_stage; // data parallel; stage 0 with one shard
    int tensor;
    bool sequence, overlap;
    int stages, chunks;   // chunks 0: without a pipeline
    const char *schedule; // a name of schedule.h, or the user's file
    bool balanced;        // layout auto, else as even as can be, or the user's
    bool vocabulary;      // spread over the stages
    int64_t micro_batch_size;
    enum config_recompute recompute;
    // Layer by layer, beside `recompute` (none, or what the user says): the values of
    // activation_checkpoint.full_layers, selective_layers and pipeline_parallel_layout, NULL as long as they are not
    // chosen. The plan_result owns them.
    bool mixed;
    const char *full_layers, *selective_layers, *layout;
    // 0: as the configuration has it. Layers of a unit, HALF_LAYERS; units gathered ahead; training.logits_rows.
    int unit_layers, prefetch;
    int64_t logits_rows;
};

enum { HALF_LAYERS = -1 };

// Whether some layers alone are computed again.
static inline bool plan_choice_mixes(const struct plan_choice *c) {
    return c->full_layers || c->selective_layers;
}

struct plan_request {
    const struct config *config; // keys that are set are kept, the others of struct plan_choice searched
    const struct model_config *model;
    const struct op_table *ops;
    const struct cluster *cluster;
    struct schedule_store *schedules; // that were made for it or one like it; NULL: each is made anew
    int ranks;                        // all take part, on the first devices
    bool only_fit;                    // whether any fits, and no more: the result's answers are those that tell so
    int threads;                      // that search
    double seconds;                   // after which the search, or advice in 4/3 of it, begins no more; 0: never
    void (*progress)(void *user, int evaluated, int promising, double best); // best 0: none yet; or NULL
    void *user;
};

// A choice as its compiled programs and their simulation have it.
struct plan_answer {
    struct plan_choice choice;
    double estimate; // seconds
    double seconds;  // of a step
    // Means over ranks; together `seconds`.
    double computing, bubble, exposed[AXIS_COUNT];
    double mfu, tokens_per_second;
    int64_t memory, room; // bytes, of the rank that has least room left
    bool least_memory;    // as small as can be, as `train` has it
    int tightest;         // its stage
    struct sim_memory of_tightest;
    char largest[64]; // buffer there when most is held
    // In a list: plans of its family (listing.h) that it stands for and that are at most PLAN_NEAR slower, and by what
    // share they are; and the place of the one whose time it trades for more free memory, or NONE.
    int variants;
    double within;
    int traded;
};

struct plan_result {
    VEC(struct plan_answer) answers; // best first, at most PLAN_ANSWERS, those that listing.h tells apart
    int choices, pipelines;          // in the space, and those of them that are pipelines
    int promising;                   // that may fit, by estimate
    int evaluated;                   // compiled and simulated
    int ways;                        // to better these, beside the space: the same
    bool fits;                       // one at least
    bool complete;              // none can be better than the best, as far as estimates are right within PLAN_SLACK
    struct plan_answer closest; // where nothing fits: the one that lacks least
    VEC(char *) lists;          // of choices
};

enum { PLAN_ANSWERS = 10 };
// How far below what it takes a choice may be estimated.
#define PLAN_SLACK .9
// Of the device's memory: so much more of it free is worth some time.
#define PLAN_TRADE .1
// Of a step: what is so little slower is nearly as fast, or as fast.
#define PLAN_NEAR .01
#define PLAN_ALIKE 1e-6

// TRIREME_ERROR_USAGE: no choice is possible at all, with the reason of one of them.
trireme_status plan_search(struct plan_result *out, const struct plan_request *request, trireme_error *error);
void plan_result_release(struct plan_result *result);

// The configuration that a choice makes: trains, verifies and simulates unchanged. The caller releases it.
trireme_status plan_config(struct config *out, const struct plan_request *request, const struct plan_choice *choice,
                           trireme_error *error);
// As `train` has it; or, sooner known, in what the smallest device leaves a rank, where it fits there; or as is known
// soonest, which is rarely more, and of programs that are not proved.
enum plan_memory { PLAN_LEAST_MEMORY, PLAN_WITHIN_ROOM, PLAN_SOON };
// Compiles and simulates it, layers that are not chosen yet as if nothing was computed again. TRIREME_ERROR_USAGE where
// it is impossible.
trireme_status plan_evaluate(struct plan_answer *out, const struct plan_request *request,
                             const struct plan_choice *choice, enum plan_memory memory, trireme_error *error);
// "tp 8 x pp 4 x fsdp 16 (zero 1), interleaved of 5 chunks, ..."; `config` as in the request. The caller frees.
char *plan_choice_print(const struct config *config, const struct plan_choice *choice);
// The same of an answer, with its lists where another one's words are the same. The caller frees.
char *plan_answer_print(const struct config *config, const struct plan_result *result, size_t number);
// What of a step takes longer in `worse` than in `better`, most of all: "bubble +0.31 s"; "as fast" where nothing
// does. The caller frees.
char *plan_difference_print(const struct plan_answer *better, const struct plan_answer *worse);

// Appends what would make the model fit, a line for each change, smallest first, each tried out: nothing where nothing
// helps. False where time was up before all were.
bool plan_advise(struct text *out, const struct plan_request *request);

// Appends the flags of Megatron-LM, or the TOML of TorchTitan, with a comment for each thing that it cannot do.
void plan_export_megatron(struct text *out, const struct plan_request *request, const struct plan_answer *answer);
void plan_export_torchtitan(struct text *out, const struct plan_request *request, const struct plan_answer *answer);

#endif
