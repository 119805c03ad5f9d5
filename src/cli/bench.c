#include "base/clock.h"
#include "base/json.h"
#include "cli/cli.h"
#include "kernels/cpu/peak.h"
#include "train/ranks.h"
#include "train/synthetic.h"

enum { BENCH_STEPS = 5 };

static trireme_status bench_peak(const struct arguments *a, const struct config *config, struct text *out) {
    int threads = engine_threads(config, 1);
    double f32 = peak_flops(DTYPE_F32, threads), bf16 = peak_flops(DTYPE_BF16, threads);
    if (a->json) {
        json_begin_object(out, NULL);
        json_add_integer(out, "threads", threads);
        json_add_number(out, "f32_flops", f32);
        json_add_number(out, "bf16_flops", bf16);
        json_end_object(out);
        text_add(out, "\n");
    } else {
        text_add(out, "peak of %d thread%s: f32 %.1f GFLOP/s, bf16 %.1f GFLOP/s\n", threads, threads == 1 ? "" : "s",
                 1e-9 * f32, 1e-9 * bf16);
    }
    return TRIREME_OK;
}

// What one op took in a step.
struct share {
    enum op op;
    int64_t calls, nanoseconds;
    double flops, bytes;
};

static int compare_shares(const void *a, const void *b) {
    const struct share *x = a, *y = b;
    return (x->nanoseconds < y->nanoseconds) - (x->nanoseconds > y->nanoseconds);
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct measured {
    double seconds; // median of the steps
    double tokens_per_second, mfu, peak;
    size_t predicted, resident;
    struct share share[OP_COUNT];
};

static void add_shares(const struct engine *e, const struct trace *trace, struct share share[OP_COUNT]) {
    const struct program *p = &e->train.program;
    for (int op = 0; op < OP_COUNT; op++)
        share[op] = (struct share){.op = (enum op)op};
    for (size_t i = 0; i < trace->events.count; i++) {
        struct trace_event event = trace->events.item[i];
        int template = p->schedule.item[event.invocation].template;
        const struct instruction *instruction = &p->templates.item[template].instructions.item[event.instruction];
        struct share *s = &share[instruction->op];
        s->calls++;
        s->nanoseconds += event.end - event.begin;
        s->flops += instruction_flops(e->ops, instruction);
        s->bytes += instruction_bytes(p, instruction);
    }
    qsort(share, OP_COUNT, sizeof *share, compare_shares);
}

static trireme_status meet(struct communicator *all, trireme_error *error) {
    return all ? comm_barrier(all, error) : TRIREME_OK;
}

// On each rank; `all` (NULL where there is one) has every rank, which wait while rank 0 measures the peak.
static trireme_status measure(struct engine *e, struct communicator *all, struct measured *out, trireme_error *error) {
    struct trace trace = {0};
    bool leads = e->member.rank == 0;
    int ranks = mesh_ranks(&e->parallel.mesh);
    int threads = ranks > 1 ? MIN(ranks * e->threads, engine_cores()) : e->threads;
    engine_initialise(e, 1);
    synthetic_fill(e, 1);
    executor_trace_reserve(e->train_executor, &trace);
    double seconds[BENCH_STEPS];
    struct engine_result result;
    TRY(engine_step(e, 1e-4, NULL, &result, error));
    // The peak is measured between the steps: a machine that is busy with something else then is so for both.
    out->peak = 0;
    for (int i = 0; i < BENCH_STEPS; i++) {
        if (leads) {
            out->peak = MAX(out->peak, peak_flops(e->dtype, threads));
            progress_line("step %d of %d", i + 1, BENCH_STEPS);
        }
        trace.events.count = 0;
        TRY(meet(all, error));
        int64_t begin = clock_now();
        TRY(engine_step(e, 1e-4, &trace, &result, error));
        TRY(meet(all, error));
        seconds[i] = 1e-9 * (double)(clock_now() - begin);
    }
    if (leads)
        progress_clear();
    add_shares(e, &trace, out->share);
    VEC_RELEASE(&trace.events);
    qsort(seconds, BENCH_STEPS, sizeof *seconds, compare_doubles);
    const struct program *p = &e->train.program;
    int64_t tokens = e->micro_batch_size * e->microbatches * e->seq_len;
    tokens *= mesh_group_size(&e->parallel.mesh, AXES_DATA);
    out->seconds = seconds[BENCH_STEPS / 2];
    out->tokens_per_second = (double)tokens / out->seconds;
    out->mfu = model_flops(&e->model, tokens, e->seq_len) / (out->seconds * out->peak);
    out->predicted = (size_t)(p->state_bytes + p->step_bytes);
    out->resident = memory_resident();
    return TRIREME_OK;
}

static void print_step(const struct engine *e, const struct measured *m, struct text *out) {
    char predicted[16], resident[16];
    bytes_text((double)m->predicted, predicted);
    bytes_text((double)m->resident, resident);
    if (mesh_ranks(&e->parallel.mesh) > 1) {
        char *mesh = mesh_print(&e->parallel.mesh);
        text_add(out, "%d ranks (%s), %d thread%s each; all but speed and MFU is that of rank 0\n",
                 mesh_ranks(&e->parallel.mesh), mesh, e->threads, e->threads == 1 ? "" : "s");
        free(mesh);
    }
    text_add(out, "%.3f s a step, %.0f tokens/s, MFU %.1f%% of %.1f GFLOP/s, %s predicted, %s resident\n", m->seconds,
             m->tokens_per_second, 100 * m->mfu, 1e-9 * m->peak, predicted, resident);
    text_add(out, "%-20s %7s %9s %7s %10s %8s %8s\n", "op", "calls", "ms", "share", "GFLOP/s", "of peak", "GB/s");
    for (int i = 0; i < OP_COUNT; i++) {
        const struct share *s = &m->share[i];
        double seconds = 1e-9 * (double)s->nanoseconds;
        if (s->calls)
            text_add(out, "%-20s %7lld %9.2f %6.1f%% %10.1f %7.1f%% %8.1f\n", e->ops->op[s->op].name,
                     (long long)s->calls, 1e3 * seconds, 100 * seconds / m->seconds, 1e-9 * s->flops / seconds,
                     100 * s->flops / seconds / m->peak, 1e-9 * s->bytes / seconds);
    }
}

static void print_step_json(const struct engine *e, const struct measured *m, struct text *out) {
    json_begin_object(out, NULL);
    json_add_number(out, "tokens_per_second", m->tokens_per_second);
    json_add_number(out, "mfu", m->mfu);
    json_add_number(out, "peak_flops", m->peak);
    json_add_integer(out, "predicted_bytes", (int64_t)m->predicted);
    json_add_integer(out, "resident_bytes", (int64_t)m->resident);
    json_add_number(out, "step_seconds", m->seconds);
    json_begin_array(out, "ops");
    for (int i = 0; i < OP_COUNT; i++) {
        const struct share *s = &m->share[i];
        if (!s->calls)
            continue;
        double seconds = 1e-9 * (double)s->nanoseconds;
        json_begin_object(out, NULL);
        json_add_string(out, "op", e->ops->op[s->op].name);
        json_add_integer(out, "calls", s->calls);
        json_add_number(out, "seconds", seconds);
        json_add_number(out, "share", seconds / m->seconds);
        json_add_number(out, "flops_per_second", s->flops / seconds);
        json_add_number(out, "bytes_per_second", s->bytes / seconds);
        json_end_object(out);
    }
    json_end_array(out);
    json_end_object(out);
    text_add(out, "\n");
}

// Without a model, the usual yardstick.
static void choose_model(struct config *config) {
    if (*config->model.preset || *config->model.config || *config->model.init_from ||
        config_is_set(config, "model.family"))
        return;
    free(config->model.preset);
    config->model.preset = mem_strdup("gpt2-124m");
    if (!config_is_set(config, "training.global_batch_size") && !config_is_set(config, "training.micro_batch_size"))
        config->training.global_batch_size = config->training.micro_batch_size = 4;
}

struct bench {
    const struct config *config;
    struct model_config model;
    bool json;
    struct text *out; // rank 0 adds to it
};

static trireme_status bench_rank(void *user, const struct member *member, trireme_error *error) {
    const struct bench *b = user;
    struct engine e;
    struct measured measured;
    struct communicator *all = NULL;
    TRY(engine_create(&e, b->config, &b->model, ENGINE_TRAIN, member, error));
    trireme_status status = member ? ranks_control(&all, member, mesh_ranks(&e.parallel.mesh), error) : TRIREME_OK;
    if (status == TRIREME_OK)
        status = measure(&e, all, &measured, error);
    if (status == TRIREME_OK && e.member.rank == 0) {
        if (b->json)
            print_step_json(&e, &measured, b->out);
        else
            print_step(&e, &measured, b->out);
    }
    communicator_free(all);
    engine_release(&e);
    return status;
}

static trireme_status bench_step(const struct arguments *a, struct config *config, struct text *out,
                                 trireme_error *error) {
    choose_model(config);
    // One microbatch is a step here, unless a global batch is asked for.
    if (config_is_set(config, "training.micro_batch_size") && !config_is_set(config, "training.global_batch_size"))
        config->training.global_batch_size = config->training.micro_batch_size;
    struct bench b = {.config = config, .json = a->json, .out = out};
    TRY(synthetic_model(&b.model, config, error));
    struct parallel parallel;
    TRY(parallel_resolve(&parallel, config, &b.model, error));
    int ranks = mesh_ranks(&parallel.mesh);
    parallel_release(&parallel);
    double deadline = (double)config->comm.train_timeout_seconds;
    return ranks > 1 ? ranks_run(ranks, deadline, bench_rank, &b, error) : bench_rank(&b, NULL, error);
}

trireme_status command_bench(const struct arguments *a, trireme_error *error) {
    TRY(arguments_expect(a, 1, 2, error));
    const char *what = a->operands.item[0];
    bool peak = strcmp(what, "peak") == 0;
    if (!peak && strcmp(what, "step") != 0)
        FAIL(TRIREME_ERROR_USAGE, "what to measure is peak or step, not \"%s\"", what);
    struct config config;
    TRY(arguments_config(a, a->operands.count > 1 ? a->operands.item[1] : NULL, "parallelism", &config, error));
    struct text out = {0};
    trireme_status status = peak ? bench_peak(a, &config, &out) : bench_step(a, &config, &out, error);
    if (status == TRIREME_OK)
        status = print_text(&out, error);
    text_release(&out);
    config_release(&config);
    return status;
}
