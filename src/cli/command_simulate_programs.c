// trireme simulate CONFIG cluster=CLUSTER: a step of the programs that the ranks would run.
#include "base/clock.h"
#include "base/json.h"
#include "base/parallel_for.h"
#include "cli/command_simulate.h"
#include "measure/synthetic.h"
#include "sim/exchanges.h"
#include "sim/memory.h"
#include "sim/run_simulation.h"
#include "sim/sim_trace.h"

#include <math.h>

struct prediction {
    const struct config *config;
    struct model_config model;
    struct parallel plan;
    struct op_table *ops;
    struct cluster cluster;
    bool devices_given; // then the output says if not all of them are used
    int ranks_per_device;
    struct stages programs;
    struct run_simulation run;
    struct exchanges exchanges[PROGRAM_KINDS];
    struct sim_memory *memory;            // of each stage's program
    double compiled, verified, simulated; // seconds that each took
};

static double programs_seconds_since(int64_t *begin) {
    int64_t before = *begin;
    *begin = clock_now();
    return 1e-9 * (double)(*begin - before);
}

struct measuring {
    struct prediction *prediction;
    const struct program **of_stage;
};

static void measure_stage(void *argument, int stage) {
    const struct measuring *m = argument;
    memory_of_stage(&m->prediction->memory[stage], &m->prediction->programs.stage[stage], m->of_stage[stage],
                    m->prediction->ops);
}

static void programs_measure_memory(struct prediction *p) {
    struct measuring m = {.prediction = p};
    m.of_stage = mem_alloc((size_t)p->programs.count * sizeof *m.of_stage);
    for (int c = 0; c < p->run.step.classes; c++) {
        const struct sim_class *who = &p->run.step.of_class[c];
        m.of_stage[mesh_coordinate(&p->plan.mesh, who->rank, AXIS_PP)] = who->program;
    }
    p->memory = mem_alloc((size_t)p->programs.count * sizeof *p->memory);
    parallel_for(usable_cores(), p->programs.count, measure_stage, &m);
    free(m.of_stage);
}

static void programs_find_exchanges(struct prediction *p) {
    for (size_t k = 0; k < p->programs.specs.count; k++)
        for (int i = 0; i < p->programs.count; i++)
            exchanges_add(&p->exchanges[p->programs.specs.item[k].kind],
                          &p->programs.stage[i].programs.item[k]->program);
}

// What a trace or a picture has: a step, or the parts of a period.
static const struct simulation *programs_shown(const struct prediction *p) {
    return p->run.parts ? &p->run.of_parts : &p->run.step;
}

// Islands may have links of their own.
static trireme_status join_islands(struct prediction *p, const struct command_value *values, trireme_error *error) {
    const char *bandwidth = values[SIMULATE_PROGRAM_ISLAND_BANDWIDTH].given;
    TRY(cluster_join_islands(&p->cluster, bandwidth, values[SIMULATE_PROGRAM_ISLAND_LATENCY].given, error));
    if (bandwidth && mesh_group_size(&p->plan.mesh, AXES_WITHIN) == mesh_ranks(&p->plan.mesh))
        FAIL(TRIREME_ERROR_USAGE, "island_bandwidth=%.80s: there is one island alone", bandwidth);
    return TRIREME_OK;
}

static trireme_status programs_predict(struct prediction *p, const struct command_value *values, trireme_error *error) {
    struct simulation_options options = {.events = values[SIMULATE_PROGRAM_TRACE].given ||
                                                   values[SIMULATE_PROGRAM_SVG].given};
    int64_t clock = clock_now();
    p->ops = op_table_create();
    TRY(cluster_load(&p->cluster, p->ops, values[SIMULATE_PROGRAM_CLUSTER].given, error));
    p->devices_given = values[SIMULATE_PROGRAM_DEVICES].given;
    if (p->devices_given)
        TRY(cluster_resize(&p->cluster, (int)values[SIMULATE_PROGRAM_DEVICES].integer, error));
    TRY(synthetic_model(&p->model, p->config, error));
    TRY(parallel_resolve(&p->plan, p->config, &p->model, error));
    TRY(topology_check(&p->cluster, &p->plan.mesh, &p->ranks_per_device, error));
    TRY(join_islands(p, values, error));
    TRY(check_dtype_on(p->config, &p->cluster, mesh_ranks(&p->plan.mesh), error));
    progress_line("compiling %d programs", p->plan.mesh.degree[AXIS_PP]);
    const int threads = topology_threads(&p->cluster, p->config->training.threads, p->ranks_per_device);
    const struct stages_options how = {.ops = p->ops, .threads = threads};
    TRY(stages_create(&p->programs, p->config, &p->model, &p->plan, TRAIN_ALONE, &how, error));
    TRY(stages_compile(&p->programs, EVERY_STAGE, error));
    p->compiled = programs_seconds_since(&clock);
    progress_line("verifying %d ranks", mesh_ranks(&p->plan.mesh));
    TRY(stages_verify(&p->programs, error));
    p->verified = programs_seconds_since(&clock);
    progress_line("simulating %d ranks", mesh_ranks(&p->plan.mesh));
    TRY(simulate_run(&p->run, &p->programs, &p->cluster, &options, error));
    TRY(simulate_run_period(&p->run, p->config, &options, error));
    programs_measure_memory(p);
    programs_find_exchanges(p);
    p->simulated = programs_seconds_since(&clock);
    progress_clear();
    return TRIREME_OK;
}

static void prediction_release(struct prediction *p) {
    run_simulation_release(&p->run);
    for (int kind = 0; kind < PROGRAM_KINDS; kind++)
        VEC_RELEASE(&p->exchanges[kind]);
    stages_release(&p->programs);
    parallel_release(&p->plan);
    cluster_release(&p->cluster);
    free(p->memory);
    free(p->ops);
}

// ---- what comes out

static int64_t tokens_of(const struct prediction *p) {
    const struct batch_shape *batch = &p->plan.batch;
    return batch->sequences * batch->microbatches * batch->seq_len * mesh_group_size(&p->plan.mesh, AXES_BATCH);
}

// Model FLOPs over what all devices could do.
static double mfu_of(const struct prediction *p) {
    const double peak = simulation_peak(&p->run.step, model_dtype(p->config));
    return model_flops(&p->model, tokens_of(p), p->config->training.seq_len) / (p->run.step.seconds * peak);
}

static int programs_stage_of(const struct prediction *p, const struct sim_class *who) {
    return mesh_coordinate(&p->plan.mesh, who->rank, AXIS_PP);
}

static struct sim_memory programs_memory_of(const struct prediction *p, const struct sim_class *who) {
    return memory_on(&p->memory[programs_stage_of(p, who)], who->station.device);
}

static int64_t room_left(const struct prediction *p, const struct sim_class *who) {
    return who->station.room - programs_memory_of(p, who).total;
}

// The class that has least room left.
static const struct sim_class *programs_fullest(const struct prediction *p) {
    const struct sim_class *worst = p->run.step.of_class;
    for (int c = 1; c < p->run.step.classes; c++) {
        const struct sim_class *who = &p->run.step.of_class[c];
        if (room_left(p, who) < room_left(p, worst))
            worst = who;
    }
    return worst;
}

static bool has_axis(const struct prediction *p, int axis) {
    return p->plan.mesh.degree[axis] > 1;
}

// The groups of a program's exchanges, each once.
static int exchange_groups(const struct exchanges *e, axis_set group[]) {
    int groups = 0;
    for (size_t i = 0; i < e->count; i++) {
        bool seen = false;
        for (int g = 0; g < groups; g++)
            seen |= group[g] == e->item[i].group;
        if (!seen)
            group[groups++] = e->item[i].group;
    }
    return groups;
}

// Tokens per second in all of a period.
static double period_rate(const struct prediction *p) {
    return (double)(tokens_of(p) * p->run.period.steps) / p->run.period_seconds;
}

static void print_other(const struct prediction *p, enum program_kind kind, struct text *out) {
    if (p->run.seconds[kind] == 0)
        return;
    text_add(out, "%s: %.4g s", program_kinds[kind].name, p->run.seconds[kind]);
    axis_set *group = mem_alloc(p->exchanges[kind].count * sizeof *group);
    const int groups = exchange_groups(&p->exchanges[kind], group);
    for (int g = 0; g < groups; g++) {
        char axes[AXES_TEXT];
        text_add(out, ", %s over %s", amount((int64_t)exchanges_bytes(&p->exchanges[kind], group[g])).text,
                 axes_print(group[g], axes));
    }
    free(group);
    text_add(out, "%s\n", program_is_beside(kind) ? ", which may be beside steps" : "");
}

static void print_summary(const struct prediction *p, struct text *out) {
    const struct simulation *s = &p->run.step;
    text_add(out, "%s", counted(s->ranks, "rank").text);
    if (s->ranks > 1) {
        char *mesh = mesh_print(&p->plan.mesh);
        text_add(out, " (%s)", mesh);
        free(mesh);
    }
    text_add(out, " on ");
    text_add_line(out, p->cluster.name); // perhaps a path
    text_add(out, ": %.4g s a step, %.0f tokens/s, MFU %.1f%%\n", s->seconds, (double)tokens_of(p) / s->seconds,
             100 * mfu_of(p));
    if (p->devices_given && s->ranks < p->cluster.total_devices)
        text_add(out, "that is %d of the %d devices: --ranks=%d asks for all\n", s->ranks, p->cluster.total_devices,
                 p->cluster.total_devices);
    double computing = 1 - s->bubble;
    for (int a = 0; a < AXIS_COUNT; a++)
        computing -= s->exposed[a];
    text_add(out, "mean of the ranks: computing %.2f%%, bubble %.2f%%", 100 * computing, 100 * s->bubble);
    for (int a = 0; a < AXIS_COUNT; a++)
        if (has_axis(p, a))
            text_add(out, ", exposed %s %.2f%%", axis_name((enum axis)a), 100 * s->exposed[a]);
    text_add(out, "\n");
    for (int kind = 0; kind < PROGRAM_KINDS; kind++)
        print_other(p, (enum program_kind)kind, out);
    if (p->run.parts)
        text_add(out, "%lld steps with all this: %.4g s, %.0f tokens/s, computing %.2f%%\n",
                 (long long)p->run.period.steps, p->run.period_seconds, period_rate(p), 100 * p->run.compute_share);
}

static void print_memory(const struct prediction *p, struct text *out) {
    const struct sim_class *worst = programs_fullest(p);
    const struct sim_memory m = programs_memory_of(p, worst);
    text_add(out, "memory of rank %d: %s of %s%s:", worst->rank, amount(m.total).text, amount(worst->station.room).text,
             room_left(p, worst) < 0 ? ", which does NOT fit" : "");
    for (int i = 0; i < MEMORY_PARTS; i++)
        if (m.part[i] > 0)
            text_add(out, " %s %s,", memory_part_name((enum memory_part)i), amount(m.part[i]).text);
    const struct template *t =
        &worst->program->templates.item[worst->program->schedule.item[m.peak.invocation].template];
    text_add(out, " the peak at %s[%d]\n", t->name, m.peak.instruction);
}

static void programs_print_table(const struct prediction *p, struct text *out) {
    const struct simulation *s = &p->run.step;
    text_add(out, "\n%5s %7s %6s %10s", "stage", "rank", "ranks", "computing");
    for (int i = 0; i < SIM_PARTS; i++)
        text_add(out, " %9s", sim_part_name((enum sim_part)i));
    text_add(out, " %8s", "bubble");
    for (int a = 0; a < AXIS_COUNT; a++)
        if (has_axis(p, a))
            text_add(out, " %8s", axis_name((enum axis)a));
    text_add(out, " %10s\n", "memory");
    for (int c = 0; c < s->classes; c++) {
        const struct sim_class *who = &s->of_class[c];
        text_add(out, "%5d %7d %6d %8.4g s", programs_stage_of(p, who), who->rank, who->members, who->computing);
        for (int i = 0; i < SIM_PARTS; i++)
            text_add(out, " %8.2f%%", 100 * who->part[i] / s->seconds);
        text_add(out, " %7.2f%%", 100 * who->bubble / s->seconds);
        for (int a = 0; a < AXIS_COUNT; a++)
            if (has_axis(p, a))
                text_add(out, " %7.2f%%", 100 * who->exposed[a] / s->seconds);
        text_add(out, " %10s\n", amount(programs_memory_of(p, who).total).text);
    }
    text_add(out, "compiled in %.2f s, verified in %.2f s, simulated in %.2f s\n", p->compiled, p->verified,
             p->simulated);
}

static void add_axes(const struct prediction *p, struct text *out, const char *key, const double seconds[AXIS_COUNT]) {
    json_begin_object(out, key);
    for (int a = 0; a < AXIS_COUNT; a++)
        if (has_axis(p, a))
            json_add_number(out, axis_name((enum axis)a), seconds[a]);
    json_end_object(out);
}

static void add_class(const struct prediction *p, struct text *out, const struct sim_class *who) {
    const struct sim_memory m = programs_memory_of(p, who);
    json_begin_object(out, NULL);
    json_add_integer(out, "stage", programs_stage_of(p, who));
    json_add_integer(out, "rank", who->rank);
    json_add_integer(out, "ranks", who->members);
    json_add_string(out, "device", who->station.device->name);
    json_add_number(out, "step_seconds", p->run.step.seconds);
    json_add_number(out, "computing_seconds", who->computing);
    for (int i = 0; i < SIM_PARTS; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s_seconds", sim_part_name((enum sim_part)i));
        json_add_number(out, name, who->part[i]);
    }
    json_add_number(out, "bubble_seconds", who->bubble);
    add_axes(p, out, "exposed_seconds", who->exposed);
    add_axes(p, out, "communication_seconds", who->moving);
    json_add_integer(out, "memory_bytes", m.total);
    json_add_integer(out, "device_bytes", who->station.room);
    json_begin_object(out, "memory");
    for (int i = 0; i < MEMORY_PARTS; i++)
        json_add_integer(out, memory_part_name((enum memory_part)i), m.part[i]);
    json_end_object(out);
    json_end_object(out);
}

static void add_sent(const struct prediction *p, struct text *out, const double sent[AXIS_COUNT]) {
    json_begin_object(out, "sent_bytes");
    for (int a = 0; a < AXIS_COUNT; a++)
        if (has_axis(p, a))
            json_add_integer(out, axis_name((enum axis)a), llround(sent[a]));
    json_end_object(out);
}

static void add_exchanges(const struct prediction *p, struct text *out) {
    json_begin_object(out, "communicated_bytes");
    for (int kind = 0; kind < PROGRAM_KINDS; kind++) {
        const struct exchanges *e = &p->exchanges[kind];
        axis_set *group = mem_alloc(e->count * sizeof *group);
        const int groups = exchange_groups(e, group);
        if (groups)
            json_begin_object(out, program_kinds[kind].name);
        for (int g = 0; g < groups; g++) {
            char axes[AXES_TEXT];
            json_add_number(out, axes_print(group[g], axes), exchanges_bytes(e, group[g]));
        }
        if (groups)
            json_end_object(out);
        free(group);
    }
    json_end_object(out);
    double sent[AXIS_COUNT];
    run_simulation_sends(&p->run, stages_find(&p->programs, PROGRAM_TRAIN), sent);
    add_sent(p, out, sent);
    if (!p->run.parts)
        return;
    json_begin_object(out, "period");
    json_add_integer(out, "steps", p->run.period.steps);
    add_sent(p, out, p->run.sent);
    json_add_number(out, "seconds", p->run.period_seconds);
    json_add_number(out, "tokens_per_second", period_rate(p));
    json_end_object(out);
}

static void programs_print_json(const struct prediction *p, struct text *out) {
    const struct simulation *s = &p->run.step;
    const struct sim_class *worst = programs_fullest(p);
    char *mesh = mesh_print(&p->plan.mesh);
    json_begin_object(out, NULL);
    json_add_path(out, "cluster", p->cluster.name);
    json_add_string(out, "mesh", mesh);
    json_add_integer(out, "ranks", s->ranks);
    json_add_number(out, "step_seconds", s->seconds);
    for (int kind = 0; kind < PROGRAM_KINDS; kind++) {
        char key[48];
        snprintf(key, sizeof key, "%s_seconds", program_kinds[kind].name);
        if (p->run.seconds[kind] > 0)
            json_add_number(out, key, p->run.seconds[kind]);
    }
    json_add_number(out, "tokens_per_second", (double)tokens_of(p) / s->seconds);
    json_add_number(out, "mfu", mfu_of(p));
    json_add_number(out, "compute_share", p->run.compute_share);
    add_exchanges(p, out);
    json_add_number(out, "bubble", s->bubble);
    add_axes(p, out, "exposed", s->exposed);
    json_add_integer(out, "tightest_rank", worst->rank);
    json_add_integer(out, "peak_bytes", programs_memory_of(p, worst).total);
    json_add_integer(out, "device_bytes", worst->station.room);
    json_add_integer(out, "headroom_bytes", room_left(p, worst));
    json_add_boolean(out, "fits", room_left(p, worst) >= 0);
    json_add_integer(out, "microbatches", p->plan.batch.microbatches);
    json_add_number(out, "compile_seconds", p->compiled);
    json_add_number(out, "verify_seconds", p->verified);
    json_add_number(out, "simulate_seconds", p->simulated);
    json_begin_array(out, "classes");
    for (int c = 0; c < s->classes; c++)
        add_class(p, out, &s->of_class[c]);
    json_end_array(out);
    json_end_object(out);
    text_add(out, "\n");
    free(mesh);
}

// Writes the first rank of each class, unless others are asked for.
static trireme_status programs_write_trace(const struct prediction *p, const struct command_value *values,
                                           trireme_error *error) {
    const struct simulation *s = programs_shown(p);
    const char *asked = values[SIMULATE_PROGRAM_RANKS].given;
    bool *wanted = asked ? ranks_parse(asked, s->ranks) : mem_alloc((size_t)s->ranks * sizeof *wanted);
    if (!wanted)
        FAIL(TRIREME_ERROR_USAGE, "trace_ranks=%.80s: expected ranks from 0 to %d, as 0,1, or all", asked,
             s->ranks - 1);
    for (int i = 0; i < s->classes && !asked; i++)
        wanted[s->of_class[i].rank] = true;
    struct text text = {0};
    trireme_status status = sim_trace_print(s, p->ops, wanted, &text, error);
    if (status == TRIREME_OK)
        status = file_write_atomic(values[SIMULATE_PROGRAM_TRACE].given, text.text, text.length, error);
    text_release(&text);
    free(wanted);
    return status;
}

static trireme_status write_picture(const struct prediction *p, const char *path, trireme_error *error) {
    struct text text = {0};
    char *mesh = mesh_print(&p->plan.mesh), *title = mem_printf("%s on %s", mesh, p->cluster.name);
    trireme_status status = sim_picture_print(programs_shown(p), title, &text, error);
    if (status == TRIREME_OK)
        status = file_write_atomic(path, text.text, text.length, error);
    text_release(&text);
    free(title);
    free(mesh);
    return status;
}

trireme_status simulate_programs(const struct command_value *values, const struct arguments *a, trireme_error *error) {
    struct config config;
    TRY(arguments_expect(a, 0, 1, error));
    TRY(arguments_config(a, a->operands.count ? a->operands.item[0] : NULL, &config, error));
    struct prediction p = {.config = &config};
    struct text out = {0};
    trireme_status status = programs_predict(&p, values, error);
    if (status == TRIREME_OK && values[SIMULATE_PROGRAM_TRACE].given)
        status = programs_write_trace(&p, values, error);
    if (status == TRIREME_OK && values[SIMULATE_PROGRAM_SVG].given)
        status = write_picture(&p, values[SIMULATE_PROGRAM_SVG].given, error);
    if (status == TRIREME_OK && a->json) {
        programs_print_json(&p, &out);
    } else if (status == TRIREME_OK) {
        print_summary(&p, &out);
        print_memory(&p, &out);
        programs_print_table(&p, &out);
    }
    if (status == TRIREME_OK)
        status = print_text(&out, error);
    text_release(&out);
    prediction_release(&p);
    config_release(&config);
    return status;
}
