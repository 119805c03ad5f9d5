// engine/: the programs of one model, the memory they share, and the values in it. Includes the folders before it, up
// to launch/.
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "base/region.h"
#include "compile/compile.h"
#include "exec/exec.h"

#include <stdatomic.h>

// An engine for training steps and evaluations, for steps alone, or for evaluations alone. What it is not for takes no
// time and no memory.
enum engine_use { ENGINE_TRAIN, ENGINE_STEP, ENGINE_EVALUATE };

struct engine {
    struct op_table *ops;
    struct model_config model;
    struct parameter_table table; // of the whole model
    struct parameter_table local; // of what this rank has
    struct parallel parallel;     // its tables are those of the plan that the engine was created with
    bool owns_plan;               // the engine was created without a plan, and owns those tables
    struct member member;
    // The engine that owns tables, plan and programs, where ranks of a stage are threads and have these once; or NULL.
    const struct engine *lender;
    struct optimizer_config optimizer;
    enum dtype dtype;
    enum kernel_set kernels;
    int threads;
    int64_t micro_batch_size, seq_len;
    int microbatches;                // of this rank's part of the global batch
    bool trains, evaluates;          // which of the programs are there
    struct compiled train, evaluate; // share the model's part of the state arena
    char *state, *step;              // both arenas
    struct region memory;            // holds them, where ranks are not threads: else the world keeps it
    struct streams *streams;
    struct executor *train_executor, *evaluate_executor;
};

// Threads of each of `ranks` ranks: training.threads, or an equal share of the cores that this process may use; no more
// than OpenMP gives.
int engine_threads(const struct config *config, int ranks);

// Compiles the programs of `config` for `model`, and checks that the machine has enough memory before taking any.
// Values are zero until engine_initialise or a checkpoint sets them. `plan` is what `config` resolves to
// (parallel_resolve), and must outlive engine and world; NULL: it is resolved here. `member` is the rank's (NULL where
// the plan has one rank). All ranks of a world create their engines in the same order, and rank 0 proves the programs
// of all of them first (engine/stages.h). On failure there is nothing to release.
trireme_status engine_create(struct engine *engine, const struct config *config, const struct model_config *model,
                             const struct parallel *plan, enum engine_use use, const struct member *member,
                             trireme_error *error);
void engine_release(struct engine *engine);
// Measures the FLOP/s that all threads of all ranks reach together; rank 0 gets the result. It takes as long as is
// adequate for a run of `steps` steps (kernels/machine.h). `control` has all ranks (NULL with one rank); ranks that
// are processes measure at the same time.
trireme_status engine_peak(const struct engine *engine, struct communicator *control, int64_t steps, double *out,
                           trireme_error *error);
// Compiles only the programs of rank `rank`, to look at them: no memory is taken and nothing can run.
trireme_status engine_compile(struct engine *engine, const struct config *config, const struct model_config *model,
                              const struct parallel *plan, enum engine_use use, int rank, trireme_error *error);
// The first of the rank's sequences in a global batch; it has microbatches * micro_batch_size of them.
int64_t engine_first_sequence(const struct engine *engine);
// Bytes of both arenas of this rank, which all its programs share: what the rank is predicted to take.
size_t engine_bytes(const struct engine *engine);

// Sets fresh weights, a pure function of the seed, and zero optimizer state. False where *stop (may be NULL) became
// true before all weights were made: then they are not to be used.
bool engine_initialise(struct engine *engine, uint64_t seed, const atomic_bool *stop);
// Sets what follows from model and plan and is not saved: rotary table, first rows, decayed counts. engine_initialise
// and loading a checkpoint call it.
void engine_constants(struct engine *engine);

// Where a buffer of the training program (without one, of the evaluation program) lies.
void *engine_address(const struct engine *engine, int buffer, int microbatch);

// The elements [begin, end) of one local parameter, which this rank keeps at `data` in a unit's flat buffer.
struct engine_part {
    void *data;
    enum dtype dtype;
    int64_t begin, end;
};
enum engine_values { ENGINE_PARAMETERS, ENGINE_GRADIENTS, ENGINE_REMAINDERS, ENGINE_M, ENGINE_V };
// The rank's part of parameter `local` of engine->local. Empty where there are no such values. Where every rank has
// parameters or gradients whole, the part is the whole.
struct engine_part engine_part(const struct engine *engine, enum engine_values what, size_t local);

struct engine_result {
    double loss, count; // nats per target; how many targets
    double grad_norm;   // training only
    bool finite;        // whether the update was done
};
// Runs one step. The inputs must be in the MICROBATCH buffers of the program (compiled.tokens, ...). Fails where a rank
// is lost.
trireme_status engine_step(struct engine *engine, double lr, struct trace *trace, struct engine_result *out,
                           trireme_error *error);
trireme_status engine_evaluate(struct engine *engine, struct engine_result *out, trireme_error *error);

#endif
