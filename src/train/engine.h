// train/: the loop around the programs: data in, steps run, checkpoints and metrics out. Includes all folders above it.
//
// engine: the programs of one model, the memory they share, and the values in it.
#ifndef TRAIN_ENGINE_H
#define TRAIN_ENGINE_H

#include "base/region.h"
#include "compile/compile.h"
#include "exec/exec.h"

#include <stdatomic.h>

// Training steps and evaluations, or the one or the other alone: what is not there takes no time and no memory.
enum engine_use { ENGINE_TRAIN, ENGINE_STEP, ENGINE_EVALUATE };

struct engine {
    struct op_table *ops;
    struct model_config model;
    struct parameter_table table; // of the whole model
    struct parameter_table local; // of what this rank has
    struct parallel parallel;     // with tables of the plan that it was created with
    bool owns_plan;               // since there was none
    struct member member;
    // Where the tables above and the programs are another engine's: ranks that are threads have those of a stage once.
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
    struct region memory;            // that they are in, where it is not the world's
    struct streams *streams;
    struct executor *train_executor, *evaluate_executor;
};

// Threads of each of `ranks` ranks: training.threads, or the ranks' share of the cores that this process may use; no
// more than OpenMP gives.
int engine_threads(const struct config *config, int ranks);

// Compiles the programs of `config` for `model`, and makes sure that the machine has the memory
// before any is taken. Values are zero until engine_initialise or a checkpoint sets them. `plan` is what the
// configuration asks for, which must outlive engine and world, or NULL to have it resolved. `member` is the rank's
// (NULL where the plan has one rank); all ranks of its world create their engines in the same order, and rank 0 proves
// the programs of all of them first (train/stages.h).
trireme_status engine_create(struct engine *engine, const struct config *config, const struct model_config *model,
                             const struct parallel *plan, enum engine_use use, const struct member *member,
                             trireme_error *error);
void engine_release(struct engine *engine);
// Measures FLOP/s of all threads of all ranks, known to rank 0, as long as it should for so many steps
// (kernels/cpu/peak.h). `control` (NULL where there is one) has all ranks; those that are processes measure at once.
trireme_status engine_peak(const struct engine *engine, struct communicator *control, int64_t steps, double *out,
                           trireme_error *error);
// Only the programs of rank `rank`, for looking at: no memory is taken and nothing can run.
trireme_status engine_compile(struct engine *engine, const struct config *config, const struct model_config *model,
                              const struct parallel *plan, enum engine_use use, int rank, trireme_error *error);
// The first of the rank's sequences in a global batch; it has microbatches * micro_batch_size.
int64_t engine_first_sequence(const struct engine *engine);
// Both arenas of this rank, which all its programs share: what it is predicted to take.
size_t engine_bytes(const struct engine *engine);

// Fresh weights: a pure function of the seed. Optimizer state zero. False where *stop (may be NULL) has become true
// before all were made: then they are not to be used.
bool engine_initialise(struct engine *engine, uint64_t seed, const atomic_bool *stop);
// What follows from the parameters and is not saved: rotary table, decayed counts. engine_initialise calls it.
void engine_constants(struct engine *engine);

// Where a buffer of the training (else evaluation) program lies.
void *engine_address(const struct engine *engine, int buffer, int microbatch);

// The elements of one local parameter that this rank keeps in a flat buffer per unit: [begin, end) of it, at `data`.
struct engine_part {
    void *data;
    enum dtype dtype;
    int64_t begin, end;
};
enum engine_values { ENGINE_PARAMETERS, ENGINE_GRADIENTS, ENGINE_REMAINDERS, ENGINE_M, ENGINE_V };
// Parameter `local` of engine->local. Empty where there are no such values. Of parameters and gradients that every rank
// has whole, the part is the whole.
struct engine_part engine_part(const struct engine *engine, enum engine_values what, size_t local);

struct engine_result {
    double loss, count; // nats per target, targets
    double grad_norm;   // training only
    bool finite;        // the update was done
};
// Runs one step. Inputs must stand in the MICROBATCH buffers of the program (compiled.tokens, ...).
// Fails where a rank is lost.
trireme_status engine_step(struct engine *engine, double lr, struct trace *trace, struct engine_result *out,
                           trireme_error *error);
trireme_status engine_evaluate(struct engine *engine, struct engine_result *out, trireme_error *error);

#endif
