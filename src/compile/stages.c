#include "compile/stages.h"

#include "base/parallel_for.h"
#include "base/reserve.h"
#include "kernels/machine.h"
#include "verify/verify.h"

static const struct program_spec SPECS[] = {{.kind = PROGRAM_TRAIN}, {.kind = PROGRAM_EVALUATE}};
const struct program_specs TRAIN_AND_EVALUATE = {SPECS, 2, false}, TRAIN_ALONE = {SPECS, 1, false},
                           EVALUATE_ALONE = {SPECS + 1, 1, false};

int stages_threads(const struct config *config, int ranks) {
    int given = (int)config->training.threads, wanted = given > 0 ? given : MAX(1, usable_cores() / ranks);
    int most = threads_most();
    return MIN(wanted, most);
}

// Adds what a run that trains has besides what is asked for.
static void add_wanted(struct stages *s) {
    bool trains = false, evaluates = false;
    for (size_t i = 0; i < s->specs.count; i++) {
        trains |= s->specs.item[i].kind == PROGRAM_TRAIN;
        evaluates |= s->specs.item[i].kind == PROGRAM_EVALUATE;
    }
    for (int kind = 0; kind < PROGRAM_KINDS && trains; kind++)
        for (int part = 0; program_kinds[kind].wanted && part < program_kinds[kind].wanted(s->config, evaluates);
             part++)
            VEC_PUSH(&s->specs,
                     (struct program_spec){.kind = (enum program_kind)kind, .batch = s->plan.batch, .part = part});
}

static bool same_spec(const struct program_spec *a, const struct program_spec *b) {
    return a->kind == b->kind && a->part == b->part && a->context == b->context && a->picked == b->picked &&
           a->batch.sequences == b->batch.sequences && a->batch.seq_len == b->batch.seq_len &&
           a->batch.microbatches == b->batch.microbatches;
}

// Whether the first virtual stage of a pipeline has frozen parameters alone: then no gradient would have to come to it.
static bool is_idle_at_first(const struct stages *s) {
    if (!s->plan.schedule || !s->table.frozen)
        return false;
    const int sections = 1 + s->plan.first_layer[1], first = s->plan.split.vocabulary_stages > 1 ? 1 : 0;
    for (size_t i = 0; i < s->table.parameters.count; i++) {
        const struct parameter *p = &s->table.parameters.item[i];
        if (!p->frozen && p->section >= first && p->section < sections)
            return false;
    }
    return true;
}

trireme_status stages_create(struct stages *out, const struct config *config, const struct model_config *model,
                             const struct parallel *plan, struct program_specs specs,
                             const struct stages_options *options, trireme_error *error) {
    struct stages s = {.config = config, .model = *model, .owns_plan = !plan, .saves = specs.saves};
    if (plan)
        s.plan = *plan;
    else
        TRY(parallel_resolve(&s.plan, config, model, error));
    if (options)
        s.options = *options;
    if (!s.options.ops)
        s.options.ops = s.own_ops = op_table_create();
    s.ranks = mesh_ranks(&s.plan.mesh);
    s.count = s.plan.mesh.degree[AXIS_PP];
    s.options.threads = s.options.threads ?: stages_threads(config, s.ranks);
    s.options.jobs = s.options.jobs ?: usable_cores();
    for (size_t i = 0; i < specs.count; i++) {
        struct program_spec spec = specs.item[i];
        if (spec.batch.microbatches == 0)
            spec.batch = s.plan.batch;
        for (size_t k = 0; k < s.specs.count; k++)
            CHECK(!same_spec(&s.specs.item[k], &spec)); // programs are numbered as their specs
        VEC_PUSH(&s.specs, spec);
    }
    add_wanted(&s);
    parameter_table_create(&s.table, model);
    s.stage = mem_alloc((size_t)s.count * sizeof *s.stage);
    for (int i = 0; i < s.count; i++) {
        s.stage[i].parallel = s.plan;
        s.stage[i].parallel.stage = i;
    }
    trireme_status status = parameter_table_freeze(&s.table, config->training.freeze, error);
    if (status == TRIREME_OK && is_idle_at_first(&s))
        status =
            error_set(error, TRIREME_ERROR_USAGE,
                      "the first stage of the pipeline has nothing to train: leave it something, such as its norms, "
                      "or use a mesh without a pipeline");
    if (status != TRIREME_OK) {
        stages_release(&s);
        const char *key = *config->training.freeze || model->lora.rank == 0 ? "training.freeze" : "lora.target_modules";
        return error_prefix(error, status, "%s: %s", config_origin(config, key), key);
    }
    *out = s;
    return TRIREME_OK;
}

static void stage_release(struct stage *stage) {
    for (size_t i = 0; i < stage->programs.count; i++) {
        compiled_release(stage->programs.item[i]);
        free(stage->programs.item[i]);
    }
    VEC_RELEASE(&stage->programs);
    stage_state_release(&stage->state);
}

void stages_release(struct stages *s) {
    for (int i = 0; i < s->count; i++)
        stage_release(&s->stage[i]);
    free(s->stage);
    VEC_RELEASE(&s->specs);
    parameter_table_release(&s->table);
    if (s->owns_plan)
        parallel_release(&s->plan);
    free(s->own_ops);
    *s = (struct stages){0};
}

void stages_drop_others(struct stages *s, int stage) {
    for (int i = 0; i < s->count; i++)
        if (i != stage)
            stage_release(&s->stage[i]);
}

// ---- compiling

struct stage_state *stages_state(struct stages *s, int number) {
    struct stage *stage = &s->stage[number];
    if (!stage->state.units.count)
        stage_state_create(&stage->state, s->config, &s->model, &s->table, &stage->parallel, s->specs.item,
                           s->specs.count);
    return &stage->state;
}

trireme_status stages_get(struct stages *s, int number, const struct program_spec *spec, const struct compiled **out,
                          trireme_error *error) {
    struct stage *stage = &s->stage[number];
    for (size_t i = 0; i < stage->programs.count; i++)
        if (same_spec(&stage->programs.item[i]->spec, spec)) {
            *out = stage->programs.item[i];
            return TRIREME_OK;
        }
    const struct compile_options options = {.config = s->config,
                                            .model = &s->model,
                                            .ops = s->options.ops,
                                            .parallel = &stage->parallel,
                                            .state = stages_state(s, number),
                                            .threads = s->options.threads,
                                            .aim = s->options.aim,
                                            .unproved = s->options.unproved};
    TRY(reserve_check(error));
    struct compiled *made = mem_alloc(sizeof *made);
    trireme_status status = program_kinds[spec->kind].compile(made, &options, spec, error);
    if (status != TRIREME_OK) {
        free(made);
        return status;
    }
    VEC_PUSH(&stage->programs, made);
    *out = made;
    return TRIREME_OK;
}

static trireme_status compile_stage(void *argument, int stage, trireme_error *error) {
    struct stages *s = argument;
    const struct compiled *made;
    for (size_t i = 0; i < s->specs.count; i++)
        TRY(stages_get(s, stage, &s->specs.item[i], &made, error));
    return TRIREME_OK;
}

trireme_status stages_compile(struct stages *s, int stage, trireme_error *error) {
    return stage == EVERY_STAGE ? parallel_try(s->options.jobs, s->count, compile_stage, s, error)
                                : compile_stage(s, stage, error);
}

// ---- what was compiled

int stages_find_part(const struct stages *s, enum program_kind kind, int part) {
    for (size_t i = 0; i < s->specs.count; i++)
        if (s->specs.item[i].kind == kind && s->specs.item[i].part == part)
            return (int)i;
    return NONE;
}

int stages_find(const struct stages *s, enum program_kind kind) {
    return stages_find_part(s, kind, 0);
}

const struct program *stages_program(const struct stages *s, int stage, enum program_kind kind) {
    return &stage_program(&s->stage[stage], stages_find(s, kind))->program;
}

const struct program **stages_programs(const struct stages *s, int number) {
    const struct program **program = mem_alloc((size_t)s->count * sizeof *program);
    for (int i = 0; i < s->count; i++)
        program[i] = &stage_program(&s->stage[i], number)->program;
    return program;
}

int64_t stage_state_bytes(const struct stage *stage, enum memory_space space) {
    return stage->state.table.bytes[space];
}

int64_t stage_step_bytes(const struct stage *stage, enum memory_space space) {
    return stage_step_offset(stage, stage->programs.count, space);
}

// The most that a program of the kind needs.
static int64_t kind_step_bytes(const struct stage *stage, enum program_kind kind, enum memory_space space) {
    int64_t most = 0;
    for (size_t i = 0; i < stage->programs.count; i++)
        if (stage->programs.item[i]->spec.kind == kind)
            most = MAX(most, stage->programs.item[i]->program.arena[space].step_bytes);
    return most;
}

int64_t stage_step_offset(const struct stage *stage, size_t number, enum memory_space space) {
    const int own = number < stage->programs.count ? (int)stage->programs.item[number]->spec.kind : PROGRAM_KINDS;
    int64_t shared = 0, behind = 0;
    if (own < PROGRAM_KINDS && !program_is_beside((enum program_kind)own))
        return 0;
    for (int kind = 0; kind < PROGRAM_KINDS; kind++) {
        const int64_t bytes = kind_step_bytes(stage, (enum program_kind)kind, space);
        if (!program_is_beside((enum program_kind)kind))
            shared = MAX(shared, bytes);
        else if (kind < own)
            behind += align_up(bytes);
    }
    return behind || own < PROGRAM_KINDS ? align_up(shared) + behind : shared;
}

// Proves of each two programs of a stage that the second may follow the first, or run beside it, where it is said to;
// and of each that it keeps what the state has.
static trireme_status verify_state(const struct stages *s, const struct stage *stage, trireme_error *error) {
    for (size_t k = 0; k < s->specs.count; k++)
        for (size_t n = 0; n < s->specs.count; n++)
            if (program_may_follow(s->specs.item[k].kind, s->specs.item[n].kind))
                TRY(program_follows(&stage->programs.item[k]->program, &stage->programs.item[n]->program, error));
    for (size_t k = 0; k < s->specs.count; k++)
        for (size_t n = 0; n < s->specs.count; n++)
            if (program_may_run_beside(s->specs.item[n].kind, s->specs.item[k].kind))
                TRY(program_beside(&stage->programs.item[k]->program, &stage->programs.item[n]->program, s->options.ops,
                                   error));
    for (size_t k = 0; k < s->specs.count; k++)
        TRY(state_check(&stage->state.table, &stage->programs.item[k]->program, error));
    return TRIREME_OK;
}

static int round_of(const struct stages *s, size_t spec) {
    return s->specs.item[spec].part / (int)s->config->outer.fragments;
}

int stages_rounds(const struct stages *s, enum program_kind kind) {
    int rounds = 0;
    for (size_t k = 0; k < s->specs.count; k++)
        if (s->specs.item[k].kind == kind)
            rounds = MAX(rounds, 1 + round_of(s, k));
    return rounds;
}

// Proves of programs of which a run has one for each part of the model that each unit has its part in one of them;
// where pairs meet, in one of each distance.
static trireme_status verify_parts(const struct stages *s, const struct stage *stage, enum program_kind kind,
                                   trireme_error *error) {
    const struct state_table *table = &stage->state.table;
    for (size_t i = 0; i < table->entries.count; i++) {
        const struct state_entry *entry = &table->entries.item[i];
        for (int round = 0; round < stages_rounds(s, kind) && entry->role == STATE_PARAMETERS; round++) {
            int in = 0;
            for (size_t k = 0; k < s->specs.count; k++)
                in += s->specs.item[k].kind == kind && round_of(s, k) == round &&
                      program_find(&stage->programs.item[k]->program, entry->name) != NONE;
            if (in != 1)
                FAIL(TRIREME_ERROR_PROGRAM, "%s is in %d programs %s, expected one", entry->name, in,
                     program_kinds[kind].name);
        }
    }
    return TRIREME_OK;
}

trireme_status stages_verify(const struct stages *s, trireme_error *error) {
    const struct program **program = mem_alloc((size_t)s->count * sizeof *program);
    trireme_status status = TRIREME_OK;
    for (size_t k = 0; k < s->specs.count && status == TRIREME_OK; k++) {
        for (int i = 0; i < s->count; i++)
            program[i] = &s->stage[i].programs.item[k]->program;
        status = stage_programs_meet(program, s->options.ops, error);
    }
    free(program);
    for (int i = 0; i < s->count && status == TRIREME_OK; i++)
        status = verify_state(s, &s->stage[i], error);
    for (int kind = 0; kind < PROGRAM_KINDS && status == TRIREME_OK; kind++)
        for (int i = 0; i < s->count && status == TRIREME_OK && stages_find(s, (enum program_kind)kind) != NONE &&
                        program_kinds[kind].wanted;
             i++)
            status = verify_parts(s, &s->stage[i], (enum program_kind)kind, error);
    return status;
}
