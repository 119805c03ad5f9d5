// From a configuration, a model and a plan to what the programs of one of its ranks are compiled with.
#ifndef COMPILE_OPTIONS_H
#define COMPILE_OPTIONS_H

#include "compile/compile.h"

enum dtype options_dtype(const struct config *config);
enum kernel_set options_kernels(const struct config *config);

// The parameters of the whole model, and what a rank of the plan has of them. The caller releases both.
void options_tables(struct parameter_table *whole, struct parameter_table *local, const struct model_config *model,
                    const struct parallel *plan, int rank);
void options_local_table(struct parameter_table *local, const struct parameter_table *whole,
                         const struct model_config *model, const struct parallel *plan, int rank);
// Everything is borrowed: the plan's schedule and layers, too, whose `stage` is that of the rank.
struct compile_options options_create(const struct config *config, const struct model_config *model,
                                      const struct parameter_table *local, const struct op_table *ops,
                                      const struct parallel *plan, int threads);

// The training program of each stage of a plan, for looking at: no memory is taken for what is in them.
struct stage_programs {
    int count;
    struct compiled *of;            // [count]
    const struct program **program; // [count]: that of each
};
// With kernels of so many threads; `jobs` stages are compiled at a time, each into so much room (struct
// compile_options). Programs are proved one by one, not together (stage_programs_meet), or not at all.
trireme_status stage_programs_compile(struct stage_programs *out, const struct config *config,
                                      const struct model_config *model, const struct parallel *plan,
                                      const struct op_table *ops, int threads, int jobs, int64_t room, bool proved,
                                      trireme_error *error);
void stage_programs_release(struct stage_programs *programs);

#endif
