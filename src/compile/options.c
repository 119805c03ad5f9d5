#include "compile/options.h"

#include "base/crew.h"

enum kernel_set options_kernels(const struct config *config) {
    return config->training.kernels == CONFIG_KERNELS_REFERENCE ? KERNELS_REFERENCE : KERNELS_FAST;
}

void options_tables(struct parameter_table *whole, struct parameter_table *local, const struct model_config *model,
                    const struct parallel *plan, int rank) {
    parameter_table_create(whole, model);
    options_local_table(local, whole, model, plan, rank);
}

void options_local_table(struct parameter_table *local, const struct parameter_table *whole,
                         const struct model_config *model, const struct parallel *plan, int rank) {
    struct parallel own = *plan;
    own.stage = mesh_coordinate(&plan->mesh, rank, AXIS_PP);
    int *joined = parallel_joined(&own, whole->units.count);
    parameter_table_split(local, whole, model, &plan->split, mesh_index(&plan->mesh, rank, AXES_TENSOR),
                          parallel_vocabulary_index(plan, rank), joined, plan->unit_layers == 0);
    free(joined);
}

struct compile_options options_create(const struct config *config, const struct model_config *model,
                                      const struct parameter_table *local, const struct op_table *ops,
                                      const struct parallel *plan, int threads) {
    const struct config_training *t = &config->training;
    return (struct compile_options){.model = model,
                                    .table = local,
                                    .ops = ops,
                                    .dtype = model_dtype(config),
                                    .micro_batch_size = plan->micro_batch_size,
                                    .seq_len = t->seq_len,
                                    .microbatches = plan->microbatches,
                                    .logits_rows = t->logits_rows,
                                    .recompute = config->activation_checkpoint.mode,
                                    .optimizer = optimizer_config_resolve(config),
                                    .kernels = options_kernels(config),
                                    .threads = threads,
                                    .parallel = *plan};
}

// What threads that compile stages share.
struct compiling {
    const struct config *config;
    const struct model_config *model;
    const struct parallel *plan;
    const struct op_table *ops;
    int threads;
    const struct plan_aim *aim;
    bool unproved;
    struct stage_programs *programs;
};

static trireme_status compile_stage(void *argument, int stage, trireme_error *error) {
    const struct compiling *c = argument;
    struct parameter_table whole, local;
    struct parallel own = *c->plan;
    own.stage = stage;
    options_tables(&whole, &local, c->model, c->plan, mesh_member(&own.mesh, 0, AXES(AXIS_PP), stage));
    struct compile_options options = options_create(c->config, c->model, &local, c->ops, &own, c->threads);
    options.aim = c->aim;
    options.unproved = c->unproved;
    trireme_status status = compile_train(&c->programs->of[stage], &options, error);
    parameter_table_release(&whole);
    parameter_table_release(&local);
    return status;
}

trireme_status stage_programs_compile(struct stage_programs *out, const struct config *config,
                                      const struct model_config *model, const struct parallel *plan,
                                      const struct op_table *ops, int threads, int jobs, const struct plan_aim *aim,
                                      bool proved, trireme_error *error) {
    int stages = plan->mesh.degree[AXIS_PP];
    struct stage_programs programs = {.count = stages};
    programs.of = mem_alloc((size_t)stages * sizeof *programs.of);
    programs.program = mem_alloc((size_t)stages * sizeof *programs.program);
    struct compiling c = {.config = config,
                          .model = model,
                          .plan = plan,
                          .ops = ops,
                          .threads = threads,
                          .aim = aim,
                          .unproved = !proved,
                          .programs = &programs};
    for (int stage = 0; stage < stages; stage++)
        programs.program[stage] = &programs.of[stage].program;
    trireme_status status = crew_try(jobs, stages, compile_stage, &c, error);
    if (status == TRIREME_OK)
        *out = programs;
    else
        stage_programs_release(&programs);
    return status;
}

void stage_programs_release(struct stage_programs *p) {
    for (int stage = 0; stage < p->count; stage++)
        compiled_release(&p->of[stage]);
    free(p->of);
    free(p->program);
    *p = (struct stage_programs){0};
}
