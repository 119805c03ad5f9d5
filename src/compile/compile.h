// compile/: from a model and a plan to verified, planned step programs, by ordered passes: emit, differentiate,
// recompute, split backward, fuse, gather and reduce, schedule, scopes, waits, workspaces, memory plan; then verify.
// Includes the folders before it (ARCHITECTURE.md has the order); runs nothing.
#ifndef COMPILE_COMPILE_H
#define COMPILE_COMPILE_H

#include "compile/outer.h"
#include "kernels/kernels.h"
#include "memory/memory_plan.h"
#include "model/emit.h"
#include "model/state.h"
#include "optim/optimizer.h"
#include "parallel/data.h"
#include "parallel/recompute.h"

// Head and loss are made in chunks of rows (head_loss.h). The rows of a chunk, for a microbatch of `rows` rows and a
// rank that has `columns` of the words of the vocabulary: chunks are of about the same size, in whole blocks of 64
// rows, with logits of at most 128 MiB, but there are no more than 1,000 of them. In a stage of a `pipeline`, chunks as
// large as many layers' activations would leave holes in memory: there they take 8 times the bytes of a microbatch's
// residual stream if that is less, but no less than 48 MiB (for the whole vocabulary; a rank with a share of it takes
// that share), since products with fewer rows are slow.
int64_t logits_chunk_rows(int64_t rows, int64_t hidden_size, int64_t vocab_size, int64_t columns, enum dtype dtype,
                          bool pipeline);

// ---- what a program depends on

enum program_kind {
#define PROGRAM(symbol, name, title, keep, compile, wanted, after, beside) PROGRAM_##symbol,
#include "compile/programs.def"
#undef PROGRAM
    PROGRAM_KINDS
};

// How many kinds run beside others.
enum {
    PROGRAMS_BESIDE = 0
#define BESIDE(symbol) +1
#define PROGRAM(symbol, name, title, keep, compile, wanted, after, beside) +((0 beside) > 0)
#include "compile/programs.def"
#undef PROGRAM
#undef BESIDE
};

// The shape of a program. It is made of these, of the configuration, the model and the plan of a stage, and of the
// stage's state.
struct program_spec {
    enum program_kind kind;
    struct batch_shape batch; // GENERATE: the tokens that are fed at once of each sequence
    int64_t context;          // GENERATE: tokens of each sequence's cache; 0: there is none, all are fed at once
    int64_t picked;           // GENERATE: of how many rows the logits are wanted
    int part; // of those that a run has several of (programs.def): OUTER_...: the fragment; where pairs meet, and the
              // number of fragments times that of the distance (outer_distances)
};

// What ranks of one stage keep between steps: made before their programs, which share it.
struct stage_state {
    struct state_table table;
    struct parameter_table local; // parameters of the stage's first rank
    struct model_units units;
    enum dtype dtype;
    struct model_entries model;
    bool trains;                        // whether there are gradients and optimizer states
    struct optimizer_entries optimizer; // if so
    struct outer_entries outer;         // if islands meet
    struct emit_cache caches;           // entries, if something is generated
};
// Makes the state for programs of all `specs`, which agree on seq_len where they train or evaluate. `whole`: parameters
// of the whole model; plan->stage is the stage. More entries may be added to the table before programs are compiled.
// *out refers to itself: it must stay in its place.
void stage_state_create(struct stage_state *out, const struct config *config, const struct model_config *model,
                        const struct parameter_table *whole, const struct parallel *plan,
                        const struct program_spec *specs, size_t count);
void stage_state_release(struct stage_state *state);
// What rank `rank` of the plan has of the parameters `whole`.
void local_parameters(struct parameter_table *local, const struct parameter_table *whole, const struct config *config,
                      const struct model_config *model, const struct parallel *plan, int rank);

struct compile_options {
    const struct config *config;
    const struct model_config *model;
    const struct op_table *ops;
    const struct parallel *parallel; // with the stage's number
    const struct stage_state *state;
    int threads;                // of a rank
    const struct plan_aim *aim; // for program_plan; may be NULL
    bool unproved;              // do not verify it: it is only looked at, never run
};

enum kernel_set compile_kernels(const struct config *config);

// ---- programs

// A program with the numbers of the buffers that the host reads and writes. Absent ones are NONE.
struct compiled {
    struct program_spec spec;
    struct program program;
    struct model_state model;
    struct optimizer_state optimizer;       // training only
    int tokens, targets, positions, starts; // inputs, an i32 for each row (struct emitter), one instance per microbatch
    int lr;                                 // input, f64[1]
    int weight;                             // exchange, meeting of islands: input, f64[1], of this rank's island
    int count;                              // output, f64[1]: targets that are not masked
    int loss;                               // output, f64[1]: mean negative log-likelihood over them, nats
    struct optimizer_outputs outputs;
    int at;                  // generation: input, i32[sequences]: the position of the first row of each
    int given;               // the same: how many of its rows are tokens; NONE where that is the same to all layers
    int picked;              // generation: input, i32[spec.picked]: the rows whose logits are wanted
    int logits;              // generation: output, [spec.picked, padded_vocab_size]
    struct emit_cache cache; // generation
};

void compiled_release(struct compiled *compiled);
// What all of them begin and end with: an empty program for the plan's mesh; the passes after emission, and the proof.
// On failure compiled_finish has released it.
void compiled_begin(struct compiled *compiled, const struct compile_options *options, const struct program_spec *spec);
// Declares the streams of all that communicates. They do not depend on the stage, so that all ranks have the same; nor
// on the program, so that programs which do not run beside others share them.
void compile_streams(struct program *program, const struct compile_options *options);
// The unit that the first stage counts in sums over all units: a tied embedding, which this stage has as well; or NONE.
int compile_counted_elsewhere(const struct compile_options *options);
trireme_status compiled_finish(struct compiled *compiled, const struct compile_options *options, trireme_error *error);

// What a row's `keep` does. An entry that another program keeps, too, is there once.
typedef void keep_entries(struct stage_state *state, const struct config *config, const struct model_config *model,
                          const struct program_spec *spec);
// What a row's `compile` does: makes a program that compiled_release frees; on failure nothing is left to free. The
// state must outlive it.
//   compile_train     a training step: all microbatches, then the update
//   compile_evaluate  the loss of a batch
//   compile_generate  a decoding step: each sequence's tokens enter its cache from position `at` on; the logits of the
//                     rows `picked` come out. Without a cache all tokens go through as in training.
//   compile_outer_...  the parts of an outer step (outer.h)
typedef trireme_status compile_program(struct compiled *out, const struct compile_options *options,
                                       const struct program_spec *spec, trireme_error *error);
#define PROGRAM(symbol, name, title, keep, compile, wanted, after, beside) \
    keep_entries keep;                                                     \
    compile_program compile;
#include "compile/programs.def"
#undef PROGRAM

struct program_info {
    const char *name, *title;
    keep_entries *keep;
    compile_program *compile;
    int (*wanted)(const struct config *config, bool evaluates);
    unsigned after, beside; // a bit for each kind
};
extern const struct program_info program_kinds[PROGRAM_KINDS];
// Whether a program of one kind may run after one of another has begun.
bool program_may_follow(enum program_kind before, enum program_kind after);
// Whether programs of one kind may run while one of another is under way; and whether any may.
bool program_may_run_beside(enum program_kind kind, enum program_kind under_way);
bool program_is_beside(enum program_kind kind);
// Whether it belongs to evaluations.
static inline bool program_evaluates(enum program_kind kind) {
    return kind == PROGRAM_EVALUATE || kind == PROGRAM_OUTER_SHOW || kind == PROGRAM_OUTER_HIDE;
}

#endif
