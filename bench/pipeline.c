// A pipeline on the real executor, its streams, waits and messages, with sleeps in place of kernels, so that few cores
// show many stages: the time of a step and the bubble, against what the schedule's own table says.
//
//   pipeline [STAGES [MICROBATCHES [MILLISECONDS-OF-A-PASS [SCHEDULE ...]]]]     default: 4 8 10, every schedule
//
// Fails when a step is more than 1% off, or a bubble more than .01.
#include "base/clock.h"
#include "train/engine.h"
#include "train/ranks.h"
#include "train/synthetic.h"

#include <math.h>

enum { STEPS = 3, CHUNKS_MAX = 64 };

struct run {
    struct config config;
    struct model_config model;
    double pass; // seconds of a forward of a whole stage; each half of backward is as long
    int stages, microbatches;
    int chunks;
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
    const struct template *t = &rank->engine->train.program.templates.item[template];
    double one = rank->run->pass / rank->run->chunks;
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
    TRY(engine_create(&e, &run->config, &run->model, ENGINE_TRAIN, member, error));
    const struct program *p = &e.train.program;
    struct rank rank = {run, &e, has_phase(p, PHASE_WEIGHT)};
    executor_pace(e.train_executor, seconds, &rank);
    struct trace trace = {0};
    executor_trace_reserve(e.train_executor, &trace);
    struct communicator *all;
    trireme_status status = ranks_control(&all, member, run->stages, error);
    for (int i = 0; i < STEPS && status == TRIREME_OK; i++) {
        status = comm_barrier(all, error);
        if (status == TRIREME_OK)
            status = executor_run(e.train_executor, &trace, error);
        span_of(p, &trace, &run->span[i][member->rank].begin, &run->span[i][member->rank].end);
    }
    communicator_free(all);
    VEC_RELEASE(&trace.events);
    engine_release(&e);
    return status;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Returns whether the schedule keeps to its table.
static bool measure(const char *name, int stages, int microbatches, double pass) {
    trireme_error error = {0};
    struct run run = {.pass = pass, .stages = stages, .microbatches = microbatches};
    struct schedule schedule;
    if (schedule_load(&schedule, name, stages, microbatches, NULL, &error) != TRIREME_OK) {
        printf("%-12s %s\n", name, error.message);
        return false;
    }
    run.chunks = schedule.chunks;
    char *text[] = {mem_printf("parallelism.pipeline_parallel_degree=%d", stages),
                    mem_printf("parallelism.pipeline_parallel_schedule=%s", name),
                    mem_printf("training.global_batch_size=%d", microbatches),
                    mem_strdup("training.micro_batch_size=1"),
                    mem_strdup("training.seq_len=8"),
                    mem_strdup("training.threads=1"),
                    mem_strdup("model.family=llama"),
                    mem_printf("model.num_hidden_layers=%d", stages * schedule.chunks),
                    mem_strdup("model.hidden_size=16"),
                    mem_strdup("model.num_attention_heads=2"),
                    mem_strdup("model.vocab_size=64")};
    trireme_status status = config_load(&run.config, NULL, (const char *const *)text, ARRAY_LENGTH(text), &error);
    for (size_t i = 0; i < ARRAY_LENGTH(text); i++)
        free(text[i]);
    if (status == TRIREME_OK)
        status = synthetic_model(&run.model, &run.config, &error);
    for (int i = 0; i < STEPS; i++)
        run.span[i] = mem_alloc((size_t)stages * sizeof *run.span[i]);
    if (status == TRIREME_OK)
        status = ranks_run(stages, 60, run_rank, &run, &error);
    if (status != TRIREME_OK) {
        printf("%-12s %s\n", name, error.message);
        return false;
    }
    double one = pass / schedule.chunks, cost[STEPS];
    struct schedule_times times = {one, one, one, 0};
    struct schedule_cost table;
    schedule_cost(&schedule, &times, &table);
    for (int i = 0; i < STEPS; i++) {
        int64_t longest = 0;
        for (int r = 0; r < stages; r++)
            longest = MAX(longest, run.span[i][r].end - run.span[i][r].begin);
        cost[i] = 1e-9 * (double)longest;
        free(run.span[i]);
    }
    qsort(cost, STEPS, sizeof *cost, compare);
    double median = cost[STEPS / 2], bubble = 1 - 3 * pass * microbatches / median;
    bool good = fabs(median / table.cost - 1) <= 0.01 && fabs(bubble - table.bubble) <= 0.01;
    printf("%-12s %9.1f %9.1f %+8.2f%% %9.4f %9.4f   %s\n", name, 1e3 * table.cost, 1e3 * median,
           100 * (median / table.cost - 1), table.bubble, bubble, good ? "ok" : "OFF");
    fflush(stdout);
    schedule_cost_release(&table);
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
    printf("%d stages, %d microbatches, F = B = W = %g ms of a whole stage; step in ms\n", stages, microbatches,
           1e3 * pass);
    printf("%-12s %9s %9s %9s %9s %9s\n", "schedule", "table", "measured", "apart", "bubble", "measured");
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
