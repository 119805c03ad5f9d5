#include "train/stages.h"

static trireme_status compile(struct stages *s, const struct config *config, const struct model_config *model,
                              const struct parallel *plan, enum engine_use use, const struct engine *own, int stage,
                              trireme_error *error) {
    if (own && own->parallel.stage == stage) {
        s->of[stage] = own;
        return TRIREME_OK;
    }
    // Stages are what ranks are counted along last.
    int rank = s->ranks / s->count * stage;
    TRY(engine_compile(&s->compiled[stage], config, model, plan, use, rank, error));
    s->of[stage] = &s->compiled[stage];
    return TRIREME_OK;
}

trireme_status stages_compile(struct stages *out, const struct config *config, const struct model_config *model,
                              enum engine_use use, const struct engine *own, trireme_error *error) {
    struct parallel parallel;
    if (own)
        parallel = parallel_copy(&own->parallel);
    else
        TRY(parallel_resolve(&parallel, config, model, error));
    struct stages s = {.count = parallel.mesh.degree[AXIS_PP], .ranks = mesh_ranks(&parallel.mesh)};
    s.of = mem_alloc((size_t)s.count * sizeof *s.of);
    s.compiled = mem_alloc((size_t)s.count * sizeof *s.compiled);
    trireme_status status = TRIREME_OK;
    for (int stage = 0; stage < s.count && status == TRIREME_OK; stage++)
        status = compile(&s, config, model, &parallel, use, own, stage, error);
    parallel_release(&parallel);
    if (status == TRIREME_OK)
        *out = s;
    else
        stages_release(&s);
    return status;
}

void stages_release(struct stages *s) {
    for (int stage = 0; stage < s->count; stage++)
        if (s->of[stage] == &s->compiled[stage])
            engine_release(&s->compiled[stage]);
    free(s->of);
    free(s->compiled);
    *s = (struct stages){0};
}

const struct program *stages_program(const struct stages *s, int stage, bool train) {
    return train ? &s->of[stage]->train.program : &s->of[stage]->evaluate.program;
}

trireme_status stages_verify(const struct stages *s, bool train, trireme_error *error) {
    const struct program **program = mem_alloc((size_t)s->ranks * sizeof *program);
    for (int rank = 0; rank < s->ranks; rank++)
        program[rank] = stages_program(s, rank / (s->ranks / s->count), train);
    trireme_status status = programs_verify(program, s->ranks, s->of[0]->ops, error);
    free(program);
    return status;
}
