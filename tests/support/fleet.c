#include "support/fleet.h"

#include "launch/ranks.h"
#include "memory/memory_plan.h"
#include "support/test.h"
#include "verify/verify.h"

#include <math.h>

enum { DEADLINE = 20, STEPS_BEFORE = 2 };

const struct program *fleet_program(const struct fleet *f, int stage) {
    return stages_program(&f->stages, stage, f->evaluates ? PROGRAM_EVALUATE : PROGRAM_TRAIN);
}

static int stage_of(const struct fleet *f, int rank) {
    return rank / (f->ranks / f->stages.count);
}

void fleet_create(struct fleet *f, const char *name, const char *const *overrides) {
    *f = (struct fleet){.name = name, .stride = 1};
    size_t count = 0;
    while (overrides[count])
        count++;
    trireme_error error = {0};
    trireme_status status = config_load(&f->config, NULL, overrides, count, &error);
    if (status == TRIREME_OK)
        status = model_config_resolve(&f->model, &f->config, f->config.model.vocab_size, &error);
    if (status == TRIREME_OK)
        status = stages_create(&f->stages, &f->config, &f->model, NULL, TRAIN_AND_EVALUATE, NULL, &error);
    if (status == TRIREME_OK)
        status = stages_compile(&f->stages, EVERY_STAGE, &error);
    if (status == TRIREME_OK)
        status = stages_verify(&f->stages, &error);
    if (status != TRIREME_OK)
        fail_msg("%s: %s", name, error.message);
    f->ranks = f->stages.ranks;
    f->first = mem_alloc((size_t)f->ranks * sizeof *f->first);
    f->result = mem_alloc((size_t)f->ranks * sizeof *f->result);
    f->result_bytes = mem_alloc((size_t)f->ranks * sizeof *f->result_bytes);
}

void fleet_release(struct fleet *f) {
    for (int r = 0; r < f->ranks; r++) {
        free(f->first[r]);
        free(f->result[r]);
    }
    free(f->first);
    free(f->result);
    free(f->result_bytes);
    stages_release(&f->stages);
    config_release(&f->config);
}

// ---- running

static void fill(const struct fleet *f, int rank, struct executor *executor) {
    small_model_batch(stage_program(&f->stages.stage[stage_of(f, rank)], stages_find(&f->stages, PROGRAM_TRAIN)),
                      executor, 7, mesh_index(&f->stages.plan.mesh, rank, AXES_DATA));
}

struct job {
    struct fleet *fleet;
    const struct program **program; // [ranks]
    char **result;                  // [ranks]
};

static trireme_status prepare(void *user, const struct member *member, trireme_error *error) {
    struct fleet *f = ((struct job *)user)->fleet;
    struct engine e;
    TRY(engine_create(&e, &f->config, &f->model, &f->stages.plan, TRAIN_AND_EVALUATE, member, error));
    engine_initialise(&e, 5, NULL);
    trireme_status status = TRIREME_OK;
    for (int step = 0; step < STEPS_BEFORE && status == TRIREME_OK; step++) {
        struct engine_result result;
        fill(f, member->rank, engine_executor(&e, PROGRAM_TRAIN));
        status = engine_step(&e, 0.01, NULL, &result, error);
    }
    size_t bytes = (size_t)engine_compiled(&e, PROGRAM_TRAIN)->program.arena[SPACE_DEVICE].state_bytes;
    f->first[member->rank] = mem_alloc(bytes);
    memcpy(f->first[member->rank], e.state, bytes);
    engine_release(&e);
    return status;
}

static void keep_result(const struct program *p, const struct executor *executor, const char *state, char *result) {
    memcpy(result, state, (size_t)p->arena[SPACE_DEVICE].state_bytes);
    double *output = (double *)(result + p->arena[SPACE_DEVICE].state_bytes);
    for (size_t i = 0; i < p->buffers.count; i++)
        if (p->buffers.item[i].kind == KIND_OUTPUT) {
            const void *at = executor_address(executor, (int)i, 0);
            *output++ = p->buffers.item[i].dtype == DTYPE_I32 ? *(const int32_t *)at : *(const double *)at;
        }
}

static trireme_status run_step(void *user, const struct member *member, trireme_error *error) {
    struct job *job = user;
    const struct fleet *f = job->fleet;
    int rank = member->rank;
    const struct program *p = job->program[rank];
    char *state = aligned_alloc(BUFFER_ALIGNMENT, (size_t)p->arena[SPACE_DEVICE].state_bytes),
         *step = aligned_alloc(BUFFER_ALIGNMENT, (size_t)p->arena[SPACE_DEVICE].step_bytes);
    memcpy(state, f->first[rank], (size_t)p->arena[SPACE_DEVICE].state_bytes);
    memset(step, 0xff,
           (size_t)p->arena[SPACE_DEVICE].step_bytes); // not a number, wherever something is read that nobody wrote
    struct streams *streams = streams_create(member, 1);
    struct executor *executor = NULL;
    trireme_status status =
        executor_create(&executor, streams, p, f->stages.options.ops, compile_kernels(&f->config), state, step, error);
    if (status == TRIREME_OK) {
        fill(f, rank, executor);
        status = executor_run(executor, NULL, error);
    }
    if (status == TRIREME_OK)
        keep_result(p, executor, state, job->result[rank]);
    executor_free(executor);
    streams_free(streams);
    free(state);
    free(step);
    return status;
}

static size_t bytes_of(const struct program *p) {
    size_t bytes = (size_t)p->arena[SPACE_DEVICE].state_bytes;
    for (size_t i = 0; i < p->buffers.count; i++)
        bytes += p->buffers.item[i].kind == KIND_OUTPUT ? sizeof(double) : 0;
    return bytes;
}

static char **results_alloc(const struct fleet *f) {
    char **result = mem_alloc((size_t)f->ranks * sizeof *result);
    for (int r = 0; r < f->ranks; r++)
        result[r] = mem_alloc(f->result_bytes[r]);
    return result;
}

static void results_free(const struct fleet *f, char **result) {
    for (int r = 0; r < f->ranks; r++)
        free(result[r]);
    free(result);
}

// The programs of all ranks, `mutant` in place of some.
static const struct program **programs(const struct fleet *f, int stage, int rank, const struct program *mutant) {
    const struct program **program = mem_alloc((size_t)f->ranks * sizeof *program);
    for (int r = 0; r < f->ranks; r++) {
        bool changed = mutant && stage_of(f, r) == stage && (rank == FLEET_STAGE || r == rank);
        program[r] = changed ? mutant : fleet_program(f, stage_of(f, r));
    }
    return program;
}

void fleet_run(struct fleet *f) {
    struct job job = {.fleet = f, .result = f->result};
    trireme_error error = {0};
    if (ranks_run(f->ranks, DEADLINE, prepare, &job, &error) != TRIREME_OK)
        fail_msg("%s: %s", f->name, error.message);
    job.program = programs(f, 0, FLEET_STAGE, NULL);
    for (int r = 0; r < f->ranks; r++) {
        f->result_bytes[r] = bytes_of(job.program[r]);
        f->result[r] = mem_alloc(f->result_bytes[r]);
    }
    char **again = results_alloc(f);
    for (int twice = 0; twice < 2; twice++) {
        job.result = twice ? again : f->result;
        if (ranks_run(f->ranks, DEADLINE, run_step, &job, &error) != TRIREME_OK)
            fail_msg("%s: %s", f->name, error.message);
    }
    for (int r = 0; r < f->ranks; r++)
        assert_memory_equal(again[r], f->result[r], f->result_bytes[r]);
    results_free(f, again);
    free(job.program);
}

// ---- mutants

trireme_status fleet_verify(const struct fleet *f, int stage, int rank, const struct program *mutant,
                            trireme_error *error) {
    const struct op_table *ops = f->stages.options.ops;
    const struct program **program = programs(f, stage, rank, mutant);
    trireme_status status = programs_verify(program, f->ranks, ops, error);
    trireme_error other;
    // Runs prove stages, each by itself and then together.
    if (rank == FLEET_STAGE && program_verify(mutant, ops, &other) == TRIREME_OK) {
        const struct program **of_stage = mem_alloc((size_t)f->stages.count * sizeof *of_stage);
        for (int s = 0; s < f->stages.count; s++)
            of_stage[s] = s == stage ? mutant : fleet_program(f, s);
        assert_int_equal(stage_programs_meet(of_stage, ops, &other), status);
        free(of_stage);
    }
    free(program);
    return status;
}

static bool all_near(const double *a, const double *b, size_t bytes) {
    for (size_t i = 0; i < bytes / sizeof *a; i++)
        if (!(fabs(a[i] - b[i]) <= 1e-12 * (1 + fabs(b[i]))))
            return false;
    return true;
}

// Whether all ranks come to what the originals do.
static bool same_results(struct fleet *f, int stage, int rank, const struct program *mutant) {
    struct job job = {.fleet = f, .program = programs(f, stage, rank, mutant), .result = results_alloc(f)};
    trireme_error error = {0};
    bool same = ranks_run(f->ranks, DEADLINE, run_step, &job, &error) == TRIREME_OK;
    if (!same)
        print_error("%s\n", error.message);
    for (int r = 0; r < f->ranks && same; r++)
        same = f->reorders ? all_near((const double *)job.result[r], (const double *)f->result[r], f->result_bytes[r])
                           : memcmp(job.result[r], f->result[r], f->result_bytes[r]) == 0;
    results_free(f, job.result);
    free(job.program);
    return same;
}

bool fleet_begin(struct fleet *f, int stage, struct program *mutant) {
    if (f->generated++ % (f->stride * mutant_stride()) != 0)
        return false;
    f->tried++;
    *mutant = mutant_copy(fleet_program(f, stage));
    return true;
}

void fleet_end(struct fleet *f, int stage, struct program *mutant, const char *format, ...) {
    const struct op_table *ops = f->stages.options.ops;
    int per_stage = f->ranks / f->stages.count;
    bool accepted = false, harmful = false;
    for (int planned = 0; planned <= 1 && !harmful; planned++) {
        trireme_error error = {0};
        if (planned && program_plan(mutant, ops, NULL, &error) != TRIREME_OK)
            break;
        for (int alone = 0; alone <= (per_stage > 1) && !harmful; alone++) {
            int rank = alone ? (stage + 1) * per_stage - 1 : FLEET_STAGE;
            if (fleet_verify(f, stage, rank, mutant, &error) != TRIREME_OK) {
                assert_true(error.message[0] != 0);
                // A program that is wrong by itself is wrong on one rank, too.
                if (alone || program_verify(mutant, ops, &error) != TRIREME_OK)
                    break;
                continue;
            }
            accepted = true;
            harmful = !same_results(f, stage, rank, mutant);
        }
    }
    if (harmful) {
        va_list args;
        va_start(args, format);
        char *what = mem_vprintf(format, args);
        va_end(args);
        print_error("%s: accepted, and changes the results: stage %d, %s\n", f->name, stage, what);
        free(what);
    }
    f->harmful += harmful;
    f->harmless += accepted && !harmful;
    f->refused += !accepted;
    mutant_release(mutant);
}

void fleet_end_unseen(struct fleet *f, int stage, struct program *mutant) {
    trireme_error error = {0};
    bool accepted = fleet_verify(f, stage, FLEET_STAGE, mutant, &error) == TRIREME_OK;
    assert_true(accepted || error.message[0] != 0);
    f->harmless += accepted;
    f->refused += !accepted;
    mutant_release(mutant);
}
