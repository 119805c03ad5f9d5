// A pipeline on the real executor, its streams, waits and messages, with sleeps in place of kernels, so that few cores
// show many stages: the time of a step and the bubble, against the closed form where there is one, and against what the
// schedule's own table says. All passes of all chunks take equally long: F = B = W.
//
//   pipeline [STAGES [MICROBATCHES [MILLISECONDS-OF-A-PASS [SCHEDULE ...]]]]     default: 4 8 10, every schedule
//
// Fails when the median step is more than 1% off, or its bubble more than .01. A schedule that misses is measured
// again, up to three times in all, since other processes on the machine may have been in the way.
#include "engine/engine.h"
#include "launch/ranks.h"
#include "measure/synthetic.h"

#include <math.h>

enum { STEPS = 5, TRIES = 3 };

struct run {
    struct config config;
    struct model_config model;
    struct parallel plan;
    double pass; // seconds of a forward of one chunk; each half of backward is as long
    int stages;
    struct {
        int64_t begin, end;
    } * span[STEPS]; // [stages]
};

struct rank {
    const struct run *run;
    const struct engine *engine;
    bool split;
};

static double seconds(void *user, int template, int microbatch) {
    const struct rank *rank = user;
    const struct template *t = &engine_compiled(rank->engine, PROGRAM_TRAIN)->program.templates.item[template];
    double one = rank->run->pass;
    if (microbatch == NONE)
        return 0;
    return t->phase == PHASE_BACKWARD && !rank->split ? 2 * one : one;
}

static bool has_phase(const struct program *p, enum phase phase) {
    for (size_t t = 0; t < p->templates.count; t++)
        if (p->templates.item[t].phase == phase)
            return true;
    return false;
}

// First start and last end of passes.
static void span_of(const struct program *p, const struct trace *trace, int64_t *begin, int64_t *end) {
    *begin = INT64_MAX;
    *end = 0;
    for (size_t i = 0; i < trace->events.count; i++) {
        struct trace_event event = trace->events.item[i];
        const struct invocation *v = &p->schedule.item[event.invocation];
        const struct instruction *in = &p->templates.item[v->template].instructions.item[event.instruction];
        if (v->microbatch == NONE || in->stream != STREAM_COMPUTE)
            continue;
        *begin = MIN(*begin, event.begin);
        *end = MAX(*end, event.end);
    }
}

static trireme_status run_rank(void *user, const struct member *member, trireme_error *error) {
    struct run *run = user;
    struct engine e;
    TRY(engine_create(&e, &run->config, &run->model, &run->plan, TRAIN_AND_EVALUATE, member, error));
    const struct program *p = &engine_compiled(&e, PROGRAM_TRAIN)->program;
    struct rank rank = {run, &e, has_phase(p, PHASE_WEIGHT)};
    executor_pace(engine_executor(&e, PROGRAM_TRAIN), seconds, &rank);
    struct trace trace = {0};
    executor_trace_reserve(engine_executor(&e, PROGRAM_TRAIN), &trace);
    struct communicator *all;
    trireme_status status = ranks_control(&all, member, run->stages, error);
    for (int i = 0; i < STEPS && status == TRIREME_OK; i++) {
        status = comm_barrier(all, error);
        if (status == TRIREME_OK)
            status = executor_run(engine_executor(&e, PROGRAM_TRAIN), &trace, error);
        span_of(p, &trace, &run->span[i][member->rank].begin, &run->span[i][member->rank].end);
    }
    communicator_free(all);
    VEC_RELEASE(&trace.events);
    engine_release(&e);
    return status;
}

// Of a step in passes of a chunk; 0: none is known.
static double closed_form(const char *name, const struct schedule *s) {
    int p = s->stages, m = s->microbatches, v = s->chunks;
    if (strcmp(name, "gpipe") == 0 || strcmp(name, "1f1b") == 0)
        return 3 * (m + p - 1);
    if (strcmp(name, "interleaved") == 0 && m % p == 0)
        return 3 * (v * m + p - 1);
    if (strcmp(name, "zb-h1") == 0 && m > p)
        return 3 * m + p - 1;
    if ((strcmp(name, "zb-h2") == 0 || strcmp(name, "zb-v") == 0) && m >= 2 * p - 1)
        return 3 * v * m;
    return 0;
}

static trireme_status prepare(struct run *run, const struct schedule *schedule, const char *name,
                              trireme_error *error) {
    char *text[] = {mem_printf("parallelism.pipeline_parallel_degree=%d", schedule->stages),
                    mem_printf("parallelism.pipeline_parallel_schedule=%s", name),
                    mem_printf("training.global_batch_size=%d", schedule->microbatches),
                    mem_strdup("training.micro_batch_size=1"),
                    mem_strdup("training.seq_len=8"),
                    mem_strdup("training.threads=1"),
                    mem_strdup("model.family=llama"),
                    mem_printf("model.num_hidden_layers=%d", schedule->stages * schedule->chunks),
                    mem_strdup("model.hidden_size=16"),
                    mem_strdup("model.num_attention_heads=2"),
                    mem_strdup("model.vocab_size=64")};
    trireme_status status = config_load(&run->config, NULL, (const char *const *)text, ARRAY_LENGTH(text), error);
    for (size_t i = 0; i < ARRAY_LENGTH(text); i++)
        free(text[i]);
    if (status == TRIREME_OK)
        status = synthetic_model(&run->model, &run->config, error);
    if (status == TRIREME_OK)
        status = parallel_resolve(&run->plan, &run->config, &run->model, error);
    if (status != TRIREME_OK)
        return status;
    // The one that is fitted to equal passes, in place of one for the model's.
    schedule_release(run->plan.schedule);
    *run->plan.schedule = schedule_copy(schedule);
    return TRIREME_OK;
}

static double median_step(const struct run *run) {
    double cost[STEPS];
    for (int i = 0; i < STEPS; i++) {
        int64_t longest = 0;
        for (int r = 0; r < run->stages; r++)
            longest = MAX(longest, run->span[i][r].end - run->span[i][r].begin);
        cost[i] = 1e-9 * (double)longest;
    }
    sort_doubles(cost, STEPS);
    return cost[STEPS / 2];
}

// Prints a line; whether the schedule keeps to its table and its closed form.
static bool judge(const char *name, const struct schedule *s, double pass, double step) {
    struct schedule_times times = {.forward = pass, .backward_input = pass, .backward_weight = pass};
    struct schedule_cost table;
    schedule_cost(s, &times, &table);
    double form = pass * closed_form(name, s), wanted = form > 0 ? form : table.cost;
    double work = 3 * pass * s->chunks * s->microbatches, bubble = 1 - work / step;
    bool good = true;
    for (int i = 0; i < 2; i++) {
        double aim = i ? wanted : table.cost;
        good &= fabs(step / aim - 1) <= 0.01 && fabs(bubble - (1 - work / aim)) <= 0.01;
    }
    printf("%-12s ", name);
    if (form > 0)
        printf("%9.1f", 1e3 * form);
    else
        printf("%9s", "-");
    printf(" %9.1f %9.1f %+8.2f%% %9.4f %9.4f   %s\n", 1e3 * table.cost, 1e3 * step, 100 * (step / wanted - 1),
           1 - work / wanted, bubble, good ? "met" : "missed");
    fflush(stdout);
    schedule_cost_release(&table);
    return good;
}

static bool measure(const char *name, int stages, int microbatches, double pass) {
    trireme_error error = {0};
    struct run run = {.pass = pass, .stages = stages};
    // What is held until the weights' backward counts whole, as in training.
    struct schedule_options options = {.weight_share = strcmp(name, "auto") == 0};
    struct schedule schedule = {0};
    trireme_status status = schedule_load(&schedule, name, stages, microbatches, &options, &error);
    for (int i = 0; i < STEPS; i++)
        run.span[i] = mem_alloc((size_t)stages * sizeof *run.span[i]);
    if (status == TRIREME_OK)
        status = prepare(&run, &schedule, name, &error);
    bool good = false;
    for (int i = 0; i < TRIES && !good && status == TRIREME_OK; i++) {
        status = ranks_run(stages, 60, run_rank, &run, &error);
        good = status == TRIREME_OK && judge(name, &schedule, pass, median_step(&run));
    }
    if (status != TRIREME_OK)
        printf("%-12s %s\n", name, error.message);
    for (int i = 0; i < STEPS; i++)
        free(run.span[i]);
    parallel_release(&run.plan);
    schedule_release(&schedule);
    config_release(&run.config);
    return good;
}

int main(int argc, char **argv) {
    int stages = argc > 1 ? atoi(argv[1]) : 4, microbatches = argc > 2 ? atoi(argv[2]) : 8;
    double pass = 1e-3 * (argc > 3 ? atof(argv[3]) : 10);
    if (stages < 2 || microbatches < 1 || pass <= 0) {
        fprintf(stderr, "usage: pipeline [STAGES [MICROBATCHES [MILLISECONDS [SCHEDULE ...]]]]\n");
        return 2;
    }
    printf("%d stages, %d microbatches, F = B = W = %g ms of a chunk; median of %d steps, in ms\n", stages,
           microbatches, 1e3 * pass, STEPS);
    printf("%-12s %9s %9s %9s %9s %9s %9s\n", "schedule", "form", "table", "measured", "apart", "bubble", "measured");
    bool good = true;
    for (int i = 4; i < argc; i++)
        good &= measure(argv[i], stages, microbatches, pass);
    char *names = mem_strdup(schedule_names()), *rest = names;
    for (char *name; argc <= 4 && (name = strsep(&rest, ", "));)
        if (*name)
            good &= measure(name, stages, microbatches, pass);
    free(names);
    return good ? 0 : 1;
}
