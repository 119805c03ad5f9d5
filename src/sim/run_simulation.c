#include "sim/run_simulation.h"

#include "sim/exchanges.h"
#include "sim/sequence.h"

// Simulates what the run does besides steps, each by itself.
static trireme_status simulate_others(struct run_simulation *r, trireme_error *error) {
    const struct stages *programs = r->programs;
    for (size_t i = 0; i < programs->specs.count; i++) {
        const enum program_kind kind = programs->specs.item[i].kind;
        struct simulation other;
        if (kind == PROGRAM_TRAIN)
            continue;
        const struct program **program = stages_programs(programs, (int)i);
        trireme_status status = simulate(&other, program, programs->options.ops, r->cluster, NULL, error);
        if (status == TRIREME_OK) {
            r->seconds[kind] += other.seconds / stages_rounds(programs, kind);
            simulation_release(&other);
        }
        free(program);
        TRY(status);
    }
    return TRIREME_OK;
}

trireme_status simulate_run(struct run_simulation *out, const struct stages *programs, const struct cluster *cluster,
                            const struct simulation_options *options, trireme_error *error) {
    *out = (struct run_simulation){.programs = programs, .cluster = cluster};
    const struct program **step = stages_programs(programs, stages_find(programs, PROGRAM_TRAIN));
    const trireme_status status = simulate(&out->step, step, programs->options.ops, cluster, options, error);
    free(step);
    TRY(status);
    return simulate_others(out, error);
}

// ---- the period

static trireme_status make_parts(struct run_simulation *r, trireme_error *error) {
    const struct stages *programs = r->programs;
    struct program *parts = mem_alloc((size_t)programs->count * sizeof *parts);
    const struct program **of_part = mem_alloc(r->period.parts.count * sizeof *of_part);
    trireme_status status = TRIREME_OK;
    int made = 0;
    for (; made < programs->count && status == TRIREME_OK; made++) {
        for (size_t k = 0; k < r->period.parts.count; k++) {
            const struct period_part *part = &r->period.parts.item[k];
            of_part[k] =
                &stage_program(&programs->stage[made], stages_find_part(programs, part->kind, part->part))->program;
        }
        status = sequence_create(&parts[made], &r->period, of_part, error);
    }
    if (status == TRIREME_OK)
        r->parts = parts;
    for (int i = 0; i < made - 1 && status != TRIREME_OK; i++)
        program_release(&parts[i]);
    if (status != TRIREME_OK)
        free(parts);
    free(of_part);
    return status;
}

static void release_period(struct run_simulation *r) {
    simulation_release(&r->of_parts);
    for (int i = 0; r->parts && i < r->programs->count; i++)
        program_release(&r->parts[i]);
    free(r->parts);
    r->parts = NULL;
    VEC_RELEASE(&r->period.parts);
}

enum { STEPS_BESIDE_MOST = 64 };

static double seconds_beside(const struct run_simulation *r) {
    double seconds = 0;
    for (int kind = 0; kind < PROGRAM_KINDS; kind++)
        seconds += program_is_beside((enum program_kind)kind) ? r->seconds[kind] : 0;
    return seconds;
}

// More steps than there can be beside anything, as the others are as one by itself; or as many as are simulated.
static int64_t steps_beside(const struct run_simulation *r) {
    return 2 + (int64_t)MIN(seconds_beside(r) / MAX(r->step.seconds, 1e-12), STEPS_BESIDE_MOST - 2);
}

// What is saved where the last `cut` of the further steps are beside something after all, as long as that lasts: all
// of their time, but for what the device loses of it.
static double hidden_seconds(const struct run_simulation *r, int64_t cut) {
    double left = seconds_beside(r);
    for (size_t i = 0; i < r->period.parts.count; i++)
        left -= r->period.parts.item[i].kind == PROGRAM_TRAIN ? r->step.seconds : 0;
    const double lost = r->step.of_class[0].station.device->communication;
    return (1 - lost) * MAX(0, MIN(left, (double)cut * r->step.seconds));
}

void run_simulation_sends(const struct run_simulation *r, int number, double sent[AXIS_COUNT]) {
    memset(sent, 0, AXIS_COUNT * sizeof *sent);
    for (int i = 0; i < r->programs->count; i++) {
        double own[AXIS_COUNT];
        program_sends(&stage_program(&r->programs->stage[i], number)->program, own);
        for (int a = 0; a < AXIS_COUNT; a++)
            sent[a] = MAX(sent[a], own[a]);
    }
}

// Each program of the run but the step runs once in a period.
static void add_sent(struct run_simulation *r) {
    const struct stages *programs = r->programs;
    memset(r->sent, 0, sizeof r->sent);
    for (size_t k = 0; k < programs->specs.count; k++) {
        const bool step = programs->specs.item[k].kind == PROGRAM_TRAIN;
        double sent[AXIS_COUNT];
        run_simulation_sends(r, (int)k, sent);
        for (int a = 0; a < AXIS_COUNT; a++)
            r->sent[a] += (step ? (double)r->period.steps : 1) * sent[a];
    }
}

static double computing_seconds(const struct simulation *s) {
    double share = 1 - s->bubble;
    for (int a = 0; a < AXIS_COUNT; a++)
        share -= s->exposed[a];
    return share * s->seconds;
}

// The parts of the period are simulated with what runs beside steps. Its further steps are as the one by itself.
trireme_status simulate_run_period(struct run_simulation *r, const struct config *config,
                                   const struct simulation_options *options, trireme_error *error) {
    release_period(r);
    r->period = period_of(config);
    const struct simulation *parts = &r->step;
    int64_t further = r->period.steps - 1;
    double hidden = 0;
    if (r->period.parts.count > 1) {
        further = r->period.further;
        period_shorten(&r->period, steps_beside(r));
        hidden = hidden_seconds(r, r->period.further - further);
        TRY(make_parts(r, error));
        const struct program **program = mem_alloc((size_t)r->programs->count * sizeof *program);
        for (int i = 0; i < r->programs->count; i++)
            program[i] = &r->parts[i];
        const trireme_status status =
            simulate(&r->of_parts, program, r->programs->options.ops, r->cluster, options, error);
        free(program);
        TRY(status);
        parts = &r->of_parts;
        further = r->period.further;
    }
    r->period_seconds = parts->seconds + (double)further * r->step.seconds - hidden;
    add_sent(r);
    const double computing = computing_seconds(parts) + (double)further * computing_seconds(&r->step);
    r->compute_share = MIN(1, computing / MAX(r->period_seconds, 1e-300));
    return TRIREME_OK;
}

void run_simulation_release(struct run_simulation *r) {
    simulation_release(&r->step);
    release_period(r);
}
