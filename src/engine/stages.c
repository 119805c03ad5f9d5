#include "engine/stages.h"

#include "base/crew.h"
#include "base/hash.h"
#include "launch/ranks.h"
#include "verify/verify.h"

struct engines_job {
    const struct config *config;
    const struct model_config *model;
    enum engine_use use;
    struct stages *stages;
};

static trireme_status compile_engine(void *argument, int stage, trireme_error *error) {
    const struct engines_job *c = argument;
    struct stages *s = c->stages;
    if (s->of[stage])
        return TRIREME_OK;
    const int rank = mesh_member(&s->plan.mesh, 0, AXES(AXIS_PP), stage);
    TRY(engine_compile(&s->compiled[stage], c->config, c->model, &s->plan, c->use, rank, error));
    s->of[stage] = &s->compiled[stage];
    return TRIREME_OK;
}

trireme_status stages_compile(struct stages *out, const struct config *config, const struct model_config *model,
                              enum engine_use use, const struct engine *own, trireme_error *error) {
    struct stages s = {0};
    if (own)
        s.plan = parallel_copy(&own->parallel);
    else
        TRY(parallel_resolve(&s.plan, config, model, error));
    s.count = s.plan.mesh.degree[AXIS_PP];
    s.ranks = mesh_ranks(&s.plan.mesh);
    s.of = mem_alloc((size_t)s.count * sizeof *s.of);
    s.compiled = mem_alloc((size_t)s.count * sizeof *s.compiled);
    if (own)
        s.of[own->parallel.stage] = own;
    struct engines_job c = {config, model, use, &s};
    const trireme_status status = crew_try(usable_cores(), s.count, compile_engine, &c, error);
    if (status == TRIREME_OK)
        *out = s;
    else
        stages_release(&s);
    return status;
}

static void release_lender(void *lender) {
    engine_release(lender);
    free(lender);
}

// Compiles the programs of a stage on its first rank; *out is NULL on others.
static trireme_status compile_lender(struct engine **out, const struct mesh *mesh, const struct config *config,
                                     const struct model_config *model, const struct parallel *plan, enum engine_use use,
                                     const struct member *member, trireme_error *error) {
    *out = NULL;
    if (member->rank % (mesh_ranks(mesh) / mesh->degree[AXIS_PP]) != 0)
        return TRIREME_OK;
    struct engine *lender = mem_alloc(sizeof *lender);
    trireme_status status = engine_compile(lender, config, model, plan, use, member->rank, error);
    if (status != TRIREME_OK) {
        free(lender);
        return status;
    }
    world_keep(member->world, lender, release_lender);
    *out = lender;
    return TRIREME_OK;
}

static trireme_status stages_share_programs(struct stages *out, struct communicator **all, const struct mesh *mesh,
                                            const struct config *config, const struct model_config *model,
                                            const struct parallel *plan, enum engine_use use,
                                            const struct member *member, trireme_error *error) {
    struct engine *own;
    struct stages s = {.count = mesh->degree[AXIS_PP], .ranks = mesh_ranks(mesh)};
    TRY(compile_lender(&own, mesh, config, model, plan, use, member, error));
    TRY(ranks_control(all, member, s.ranks, error));
    const struct engine **of_rank = mem_alloc((size_t)s.ranks * sizeof *of_rank);
    trireme_status status = comm_all_gather_bytes(*all, &own, of_rank, sizeof own, error);
    if (status == TRIREME_OK) {
        s.of = mem_alloc((size_t)s.count * sizeof *s.of);
        for (int stage = 0; stage < s.count; stage++)
            s.of[stage] = of_rank[s.ranks / s.count * stage];
        *out = s;
    } else {
        communicator_free(*all);
    }
    free(of_rank);
    return status;
}

trireme_status stages_share(struct stages *out, struct communicator **all, const struct config *config,
                            const struct model_config *model, const struct parallel *plan, enum engine_use use,
                            const struct member *member, trireme_error *error) {
    struct parallel parallel;
    if (plan)
        return stages_share_programs(out, all, &plan->mesh, config, model, plan, use, member, error);
    TRY(parallel_resolve(&parallel, config, model, error));
    trireme_status status = stages_share_programs(out, all, &parallel.mesh, config, model, NULL, use, member, error);
    parallel_release(&parallel);
    return status;
}

void stages_release(struct stages *s) {
    for (int stage = 0; stage < s->count && s->compiled; stage++)
        if (s->of[stage] == &s->compiled[stage])
            engine_release(&s->compiled[stage]);
    free(s->of);
    free(s->compiled);
    parallel_release(&s->plan);
    *s = (struct stages){0};
}

const struct program *stages_program(const struct stages *s, int stage, bool train) {
    return train ? &s->of[stage]->train.program : &s->of[stage]->evaluate.program;
}

trireme_status stages_verify(const struct stages *s, bool train, trireme_error *error) {
    const struct program **program = mem_alloc((size_t)s->count * sizeof *program);
    for (int stage = 0; stage < s->count; stage++)
        program[stage] = stages_program(s, stage, train);
    trireme_status status = stage_programs_meet(program, s->of[0]->ops, error);
    free(program);
    return status;
}

// ---- processes

enum { PROGRAM_TRAIN, PROGRAM_EVALUATE, PROGRAMS, HOST_BYTES = 64 };

// What a rank has made.
struct derived {
    uint64_t hash[PROGRAMS];
    char host[HOST_BYTES];
};

// A hash of the operations, their order, their streams and the ranks that take part; not of offsets in memory, since
// the scratch space that kernels ask for may depend on the processor.
static uint64_t hash_program(const struct program *program, const struct op_table *ops) {
    static const char *const OMITTED[] = {"buffer ", "arena ", "pool "};
    static const char WORKSPACE[] = " workspace %";
    struct text text = {0};
    program_print(program, ops, &text);
    uint64_t hash = HASH_NOTHING;
    for (const char *line = text.text; line && *line; line += strcspn(line, "\n") + 1) {
        bool omitted = false;
        for (size_t i = 0; i < ARRAY_LENGTH(OMITTED); i++)
            omitted |= strncmp(line, OMITTED[i], strlen(OMITTED[i])) == 0;
        const char *end = line + strcspn(line, "\n");
        for (const char *c = omitted ? end : line; c < end; c++) {
            if (strncmp(c, WORKSPACE, sizeof WORKSPACE - 1) == 0)
                c += sizeof WORKSPACE - 2 + strspn(c + sizeof WORKSPACE - 1, "0123456789");
            else
                hash = hash_add(hash, (unsigned char)*c);
        }
        hash = hash_add(hash, '\n');
    }
    text_release(&text);
    return hash;
}

static void hash_engine(const struct engine *e, uint64_t hash[PROGRAMS]) {
    hash[PROGRAM_TRAIN] = e->trains ? hash_program(&e->train.program, e->ops) : 0;
    hash[PROGRAM_EVALUATE] = e->evaluates ? hash_program(&e->evaluate.program, e->ops) : 0;
}

static trireme_status stages_compare_hashes(const struct derived *all, const uint64_t (*made)[PROGRAMS],
                                            const struct mesh *mesh, int own, trireme_error *error) {
    for (int r = 0; r < mesh_ranks(mesh); r++)
        for (int p = 0; p < PROGRAMS; p++) {
            uint64_t has = all[r].hash[p], meant = made[mesh_coordinate(mesh, r, AXIS_PP)][p];
            if (has == meant)
                continue;
            error_set(error, TRIREME_ERROR_USAGE,
                      "the ranks disagree: rank %d on %s has made another program of the %s (%016llx) than rank 0 has "
                      "for it (%016llx); start the same build of trireme on all",
                      r, all[r].host, p == PROGRAM_TRAIN ? "training step" : "evaluation", (unsigned long long)has,
                      (unsigned long long)meant);
            if (own > 0)
                error_leave_to_other(error);
            return TRIREME_ERROR_USAGE;
        }
    return TRIREME_OK;
}

trireme_status stages_compare(const struct stages *stages, const struct engine *own, trireme_error *error) {
    const struct mesh *mesh = &own->parallel.mesh;
    int ranks = mesh_ranks(mesh), count = mesh->degree[AXIS_PP];
    struct communicator *all;
    TRY(ranks_control(&all, &own->member, ranks, error));
    struct derived mine = {0}, *theirs = mem_alloc((size_t)ranks * sizeof *theirs);
    uint64_t(*made)[PROGRAMS] = mem_alloc((size_t)count * sizeof *made);
    snprintf(mine.host, sizeof mine.host, "%s", world_place(own->member.world)->host);
    hash_engine(own, mine.hash);
    for (int stage = 0; stage < count && stages; stage++)
        hash_engine(stages->of[stage], made[stage]);
    trireme_status status = comm_broadcast(all, made, count * (int64_t)sizeof *made, 0, error);
    if (status == TRIREME_OK)
        status = comm_all_gather_bytes(all, &mine, theirs, sizeof mine, error);
    if (status == TRIREME_OK)
        status = stages_compare_hashes(theirs, (const uint64_t(*)[PROGRAMS])made, mesh, own->member.rank, error);
    communicator_free(all);
    free(made);
    free(theirs);
    return status;
}
