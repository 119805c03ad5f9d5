// The programs of all stages of a plan, with the state that the programs of a stage share: made once for each shape,
// for whoever runs, proves, simulates or shows them. All ranks of a stage have the same programs.
#ifndef COMPILE_STAGES_H
#define COMPILE_STAGES_H

#include "compile/compile.h"

struct stage {
    struct parallel parallel; // the plan, with the stage's number
    struct stage_state state;
    VEC(struct compiled *) programs; // those of stages.specs first, in that order
};

// How programs are compiled.
struct stages_options {
    const struct op_table *ops; // NULL: the container makes its own
    int threads;                // of a rank; 0: stages_threads
    int jobs;                   // stages that are compiled at one time; 0: as many as there are cores
    const struct plan_aim *aim; // for all programs; may be NULL
    bool unproved;              // the programs are only looked at
};

struct stages {
    const struct config *config;
    struct stages_options options;
    struct op_table *own_ops;
    struct model_config model;
    struct parameter_table table; // of the whole model
    struct parallel plan;
    bool owns_plan;
    VEC(struct program_spec) specs;
    bool saves; // as in struct program_specs
    int count, ranks;
    struct stage *stage; // [count]
};

// Programs that are made from the start, no two of them alike. A batch of zeros is the plan's.
struct program_specs {
    const struct program_spec *item;
    size_t count;
    bool saves; // what they train is saved in checkpoints, for which processes need memory
};
// Training and evaluation, or one of them alone, which save nothing. What is not asked for takes no time and no memory,
// except what a run that trains needs as it is configured (programs.def).
extern const struct program_specs TRAIN_AND_EVALUATE, TRAIN_ALONE, EVALUATE_ALONE;

// Threads of each of `ranks` ranks: training.threads, or an equal share of the cores that this process may use; no more
// than OpenMP gives.
int stages_threads(const struct config *config, int ranks);

// `plan` is what `config` resolves to (parallel_resolve); NULL: it is resolved here. It and `config` must outlive the
// container; `options` may be NULL. Nothing is compiled yet. On failure there is nothing to release.
trireme_status stages_create(struct stages *out, const struct config *config, const struct model_config *model,
                             const struct parallel *plan, struct program_specs specs,
                             const struct stages_options *options, trireme_error *error);
void stages_release(struct stages *stages);
// Compiles the programs of stages.specs for one stage, or for all (EVERY_STAGE), where they are not there yet. On
// failure the container is still to be released.
enum { EVERY_STAGE = -1 };
trireme_status stages_compile(struct stages *stages, int stage, trireme_error *error);
// The state of a stage, made by the first call; more entries may be added until the stage's programs are compiled.
struct stage_state *stages_state(struct stages *stages, int stage);
// The program of a stage for a shape, compiled where it is not there yet; it stays where it is as long as the
// container. Not for two threads at one time.
trireme_status stages_get(struct stages *stages, int stage, const struct program_spec *spec,
                          const struct compiled **out, trireme_error *error);
// Releases the programs of all stages but one.
void stages_drop_others(struct stages *stages, int stage);

// The number of the first of stages.specs that is of a kind, and, in the second case, for a part of it; NONE: there is
// none.
int stages_find(const struct stages *stages, enum program_kind kind);
int stages_find_part(const struct stages *stages, enum program_kind kind, int part);
// How many programs of a kind each unit has: where pairs meet, one for each distance.
int stages_rounds(const struct stages *stages, enum program_kind kind);
// A stage's program of that number, which is compiled.
static inline struct compiled *stage_program(const struct stage *stage, int number) {
    return stage->programs.item[number];
}
// The same of a container that has one of the kind.
const struct program *stages_program(const struct stages *stages, int stage, enum program_kind kind);
// [count]: that of each stage, by its number. The caller frees.
const struct program **stages_programs(const struct stages *stages, int number);
// Bytes of a space's arenas that a rank of the stage needs for all its programs. The state's holds the whole table.
int64_t stage_state_bytes(const struct stage *stage, enum memory_space space);
int64_t stage_step_bytes(const struct stage *stage, enum memory_space space);
// Where the step arena of the stage's program `number` begins in it: all begin at 0, but those that run beside others,
// of which those of a kind share one.
int64_t stage_step_offset(const struct stage *stage, size_t number, enum memory_space space);

// Proves that the programs of each of stages.specs are sound together, on all ranks, that each leaves the state as
// those that may follow it expect it, and that those which may run at one time do not meet.
trireme_status stages_verify(const struct stages *stages, trireme_error *error);

#endif
