// From a configuration, a model and a plan to the options with which the programs of one rank are compiled.
#ifndef COMPILE_OPTIONS_H
#define COMPILE_OPTIONS_H

#include "compile/compile.h"

enum kernel_set options_kernels(const struct config *config);

// The parameters of the whole model, and what a rank of the plan has of them. The caller releases both. The second
// function makes the rank's table alone.
void options_tables(struct parameter_table *whole, struct parameter_table *local, const struct model_config *model,
                    const struct parallel *plan, int rank);
void options_local_table(struct parameter_table *local, const struct parameter_table *whole,
                         const struct model_config *model, const struct parallel *plan, int rank);
// plan->stage must be the rank's. The result borrows all that it is made from, the plan's schedule and layers too.
struct compile_options options_create(const struct config *config, const struct model_config *model,
                                      const struct parameter_table *local, const struct op_table *ops,
                                      const struct parallel *plan, int threads);

// The training program of each stage of a plan, to be looked at: their arenas are not allocated.
struct stage_programs {
    int count;
    struct compiled *of;            // [count]
    const struct program **program; // [count]: &of[stage].program
};
// Compiles for kernels of `threads` threads, `jobs` stages at a time, each with the aim `aim`. With
// `proved` each program is proved by itself, but not all together (stage_programs_meet).
trireme_status stage_programs_compile(struct stage_programs *out, const struct config *config,
                                      const struct model_config *model, const struct parallel *plan,
                                      const struct op_table *ops, int threads, int jobs, const struct plan_aim *aim,
                                      bool proved, trireme_error *error);
void stage_programs_release(struct stage_programs *programs);

#endif
