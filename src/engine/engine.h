// engine/: the programs of one rank, the memory they share, and the values in it. Includes the folders before it, up to
// launch/.
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "base/region.h"
#include "compile/stages.h"
#include "exec/exec.h"

#include <pthread.h>
#include <stdatomic.h>

// A program that can run.
struct engine_program {
    const struct compiled *compiled;
    struct executor *executor; // NULL where the engine is only looked at
    struct streams *streams;   // its kind's own, where it runs beside others; else NULL: the engine's
    int64_t runs;              // how often it has begun
    // Where it runs beside others: whether it has begun and not been waited for, the thread that runs it, and what that
    // came to.
    bool under_way;
    pthread_t thread;
    struct trace *trace;
    trireme_status status;
    trireme_error error;
};

struct engine {
    struct stages *stages; // ranks that are threads share it, and the world keeps it; else it is the engine's
    bool owns_stages;
    const struct stage *stage; // this rank's
    // Of the stages: ops, the whole model, its parameters, and the plan with this rank's stage.
    const struct op_table *ops;
    const struct model_config *model;
    const struct parameter_table *table;
    const struct parallel *parallel;
    struct parameter_table local; // parameters of this rank
    struct member member;
    VEC(struct engine_program) programs; // in the order of stages->specs; all share the state
    const struct compiled *last;         // the program that began last; NULL: the host has set the state
    const struct compiled *shown;        // what has made parameters others for a while (outer_step.h), or NULL
    char *state, *step;                  // both arenas
    struct region memory;                // holds them, where ranks are not threads: else the world keeps it
    struct unnamed_file file;            // of the arenas outside of memory, if there are any
    struct streams *streams;
};

// Makes the programs `specs` of `config` for `model`, and checks that the machine has enough memory before taking any.
// Values are zero until engine_initialise or a checkpoint sets them. `plan` is what `config` resolves to
// (parallel_resolve); NULL: it is resolved here. Plan and config must outlive engine and world. `member` is the rank's
// (NULL where the plan has one rank). All ranks of a world create their engines in the same order, and rank 0 proves
// the programs of all of them first. On failure there is nothing to release.
trireme_status engine_create(struct engine *engine, const struct config *config, const struct model_config *model,
                             const struct parallel *plan, struct program_specs specs, const struct member *member,
                             trireme_error *error);
void engine_release(struct engine *engine);
// Compiles only the programs of rank `rank`, to look at them: no memory is taken and nothing can run.
trireme_status engine_compile(struct engine *engine, const struct config *config, const struct model_config *model,
                              const struct parallel *plan, struct program_specs specs, int rank, trireme_error *error);
// Measures the FLOP/s that all threads of all ranks reach together, of an engine that trains; rank 0 gets the result.
// It takes as long as is adequate for a run of `steps` steps (kernels/machine.h). `control` has all ranks (NULL with
// one rank); ranks that are processes measure at the same time.
trireme_status engine_peak(const struct engine *engine, struct communicator *control, int64_t steps, double *out,
                           trireme_error *error);
// The engine's first program of a kind, or that for a part (struct program_spec); NULL: it has none.
struct engine_program *engine_find(const struct engine *engine, enum program_kind kind);
struct engine_program *engine_find_part(const struct engine *engine, enum program_kind kind, int part);
// The same where it is known to have one.
const struct compiled *engine_compiled(const struct engine *engine, enum program_kind kind);
struct executor *engine_executor(const struct engine *engine, enum program_kind kind);
// The first of the rank's sequences in a global batch of the program; it has as many as the program's batch says.
int64_t engine_first_sequence(const struct engine *engine, const struct compiled *compiled);
// Which tokens the rank has of each sequence: rows [first, first + rows) of those of a part. Ranks that exchange tokens
// for heads share one; of the starts each has all.
struct engine_rows {
    struct places places;
    int64_t part, first, rows;
};
struct engine_rows engine_rows(const struct engine *engine, const struct compiled *compiled);
// Tokens of a global batch of the program, and the model's operations on them in a training step (model_flops).
int64_t engine_tokens(const struct engine *engine, const struct compiled *compiled);
double engine_flops(const struct engine *engine, const struct compiled *compiled);
// Bytes of both arenas of this rank, which all its programs share: what the rank is predicted to take.
size_t engine_bytes(const struct engine *engine);

// Where streams of the rank stand: of all its programs, then of each that runs beside them.
enum { ENGINE_COUNTERS = 1 + PROGRAMS_BESIDE };
// Keeps them in counters[ENGINE_COUNTERS], which must outlive the engine. Not during a run.
void engine_count_in(struct engine *engine, struct stream_counters counters[]);

// Sets fresh weights, a pure function of the seed, and zero optimizer state. False where *stop (may be NULL) became
// true before all weights were made: then they are not to be used.
bool engine_initialise(struct engine *engine, uint64_t seed, const atomic_bool *stop);
// To be called once the host has set values of the state, as engine_initialise and loading a checkpoint do: sets what
// follows from model and plan and is not saved (rotary table, first rows, decayed counts). Any program may run then.
void engine_constants(struct engine *engine);

// Where the host finds an entry of the state (stage->state.table): in memory, or in a file that is mapped.
void *engine_state(const struct engine *engine, int entry);
// Where a buffer of the engine's first program lies.
void *engine_address(const struct engine *engine, int buffer, int microbatch);

// The elements [begin, end) of one local parameter, which this rank keeps at `data` in a unit's flat entry.
struct engine_part {
    void *data;
    enum dtype dtype;
    int64_t begin, end;
};
// Values that there are for parameters: ENGINE_STATES + k is the optimizer state k (enum optimizer_state_id);
// ENGINE_OUTER_... are those of outer steps (compile/outer.h).
enum engine_values {
    ENGINE_PARAMETERS,
    ENGINE_GRADIENTS,
    ENGINE_REMAINDERS,
    ENGINE_OUTER_ANCHOR,
    ENGINE_OUTER_VELOCITY,
    ENGINE_OUTER_TAKEN,
    ENGINE_OUTER_VALUE,
    ENGINE_STATES,
    ENGINE_VALUES = ENGINE_STATES + OPTIMIZER_STATES
};
// The rank's part of parameter `local` of engine->local. Empty where there are no such values. Where every rank has
// parameters or gradients whole, the part is the whole.
struct engine_part engine_part(const struct engine *engine, enum engine_values what, size_t local);

// Runs a program of the engine, which must be one that may follow the last one. The inputs must be in its buffers
// (compiled.tokens, ...). Fails where a rank is lost.
trireme_status engine_run(struct engine *engine, const struct engine_program *program, struct trace *trace,
                          trireme_error *error);
// The same for a program that may run beside others (programs.def): it has begun when engine_begin returns, and may
// have failed when engine_end does, which waits for its end. In between, its buffers are not to be touched, and
// engine_run is only for programs that may run beside it. What it does to the state does not depend on how long that
// takes.
trireme_status engine_begin(struct engine *engine, struct engine_program *program, struct trace *trace,
                            trireme_error *error);
trireme_status engine_end(struct engine_program *program, trireme_error *error);
struct engine_result {
    double loss, count; // nats per target; how many targets
    double grad_norm;   // training only
    bool finite;        // whether the update was done
};
// executor_before_update of all programs.
void engine_before_update(struct engine *engine, trireme_status (*call)(void *user, trireme_error *error), void *user);
// streams_patience of all programs.
void engine_patience(const struct engine *engine, axis_set axes, int64_t times);
// Runs one step, or one evaluation.
trireme_status engine_step(struct engine *engine, double lr, struct trace *trace, struct engine_result *out,
                           trireme_error *error);
trireme_status engine_evaluate(struct engine *engine, struct engine_result *out, trireme_error *error);

#endif
