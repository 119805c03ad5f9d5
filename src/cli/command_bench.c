// trireme bench peak|step|calibrate: what the machine can do, and what a training step does.
#include "base/clock.h"
#include "base/json.h"
#include "base/parallel_for.h"
#include "cli/cli.h"
#include "cli/command_calibrate.h"
#include "engine/tuning.h"
#include "kernels/machine.h"
#include "launch/processes.h"
#include "launch/ranks.h"
#include "measure/synthetic.h"

#include <math.h>

// Steps are measured for so long and so often at least, unless training.steps is less.
static const int64_t BENCH_NANOSECONDS = 8000000000;
enum { BENCH_STEPS = 5, PEAK_ROUNDS = 3 }; // rounds: whatever else the machine does only slows one

static trireme_status bench_peak(const struct arguments *a, const struct config *config, struct text *out,
                                 trireme_error *error) {
    int cores = usable_cores(), threads = stages_threads(config, 1);
    threads = MIN(threads, cores);
    double f32 = 0, bf16 = 0, bandwidth = 0;
    for (int i = 0; i < PEAK_ROUNDS; i++) {
        double now = peak_flops(DTYPE_F32, threads, INFINITY);
        f32 = MAX(f32, now);
        now = peak_flops(DTYPE_BF16, threads, INFINITY);
        bf16 = MAX(bf16, now);
        TRY(memory_bandwidth(threads, &now, error));
        bandwidth = MAX(bandwidth, now);
    }
    if (a->json) {
        json_begin_object(out, NULL);
        json_add_integer(out, "threads", threads);
        json_add_number(out, "f32_flops", f32);
        json_add_number(out, "bf16_flops", bf16);
        json_add_number(out, "memory_bandwidth", bandwidth);
        json_end_object(out);
        text_add(out, "\n");
    } else {
        text_add(out, "peak of %s: f32 %.1f GFLOP/s, bf16 %.1f GFLOP/s, memory %.1f GB/s\n",
                 counted(threads, "thread").text, 1e-9 * f32, 1e-9 * bf16, 1e-9 * bandwidth);
    }
    return TRIREME_OK;
}

// What some instructions took in a step. `limit` is what the machine would need at least: for each instruction the
// longer of its operations at the peak and of its bytes at the memory's bandwidth. Operands that lie in a cache may
// come faster than that.
struct share {
    enum op op;
    int64_t calls;
    double seconds, flops, bytes, limit;
};

struct step {
    double seconds;
    struct share op[OP_COUNT];       // of rank 0, on all streams
    struct share part[FAMILY_COUNT]; // on the computing stream
    double communication;            // seconds on other streams, while others compute
    double between; // seconds in which compute ran no instruction; its waits for other streams are in here
};

struct measured {
    VEC(struct step) steps; // by time; rank 0's alone, as are speeds
    int ranks;
    double tokens_per_second, mfu;
    double peak, bandwidth;     // FLOP/s and bytes/s of all threads that the ranks have
    size_t predicted, resident; // of all ranks
    double saved;               // seconds a step that the chosen ways to run kernels save
};

static int compare_shares(const void *a, const void *b) {
    const struct share *x = a, *y = b;
    return COMPARE(y->seconds, x->seconds);
}

static int compare_steps(const void *a, const void *b) {
    const struct step *x = a, *y = b;
    return COMPARE(x->seconds, y->seconds);
}

static const struct step *median_step(const struct measured *m) {
    return &m->steps.item[m->steps.count / 2];
}

static void add_share(struct share *to, const struct share *more) {
    to->calls += more->calls;
    to->seconds += more->seconds;
    to->flops += more->flops;
    to->bytes += more->bytes;
    to->limit += more->limit;
}

// Divides a step by the times of its instructions. `peak` and `bandwidth` are those of a rank's part of the machine.
static void divide_step(const struct engine *e, const struct trace *trace, double peak, double bandwidth,
                        struct step *out) {
    const struct program *p = &engine_compiled(e, PROGRAM_TRAIN)->program;
    double computing = 0;
    for (int op = 0; op < OP_COUNT; op++)
        out->op[op] = (struct share){.op = (enum op)op};
    for (size_t i = 0; i < trace->events.count; i++) {
        struct trace_event event = trace->events.item[i];
        const struct invocation *v = &p->schedule.item[event.invocation];
        const struct instruction *instruction = &p->templates.item[v->template].instructions.item[event.instruction];
        if (when_skips(instruction->when, v))
            continue;
        struct share one = {.calls = 1,
                            .seconds = 1e-9 * (double)(event.end - event.begin),
                            .flops = instruction_flops(p, e->ops, instruction),
                            .bytes = instruction_bytes(p, e->ops, instruction, v)};
        one.limit = MAX(one.flops / peak, one.bytes / bandwidth);
        add_share(&out->op[instruction->op], &one);
        if (instruction->stream == STREAM_COMPUTE) {
            add_share(&out->part[e->ops->op[instruction->op].family], &one);
            computing += one.seconds;
        } else {
            out->communication += one.seconds;
        }
    }
    out->between = MAX(0, out->seconds - computing);
    qsort(out->op, OP_COUNT, sizeof *out->op, compare_shares);
}

// Called by all ranks before any of them releases memory; they meet at the end, so that none does while another looks.
static trireme_status bench_measure_memory(const struct engine *e, struct communicator *all, struct measured *m,
                                           trireme_error *error) {
    const struct program *p = &engine_compiled(e, PROGRAM_TRAIN)->program;
    double predicted = (double)(p->arena[SPACE_DEVICE].state_bytes + p->arena[SPACE_DEVICE].step_bytes);
    TRY(ranks_sum(all, &predicted, 1, error));
    m->predicted = (size_t)predicted;
    double resident = (double)memory_resident();
    if (world_place(e->member.world))
        TRY(ranks_sum(all, &resident, 1, error));
    m->resident = (size_t)resident;
    return ranks_meet(all, error);
}

static trireme_status measure_steps(struct engine *e, struct communicator *all, int64_t most, struct trace *trace,
                                    struct measured *m, trireme_error *error) {
    bool leads = e->member.rank == 0, processes = world_place(e->member.world) != NULL;
    int threads = processes ? e->stages->options.threads : m->ranks * e->stages->options.threads;
    struct engine_result result;
    // Before anything of the arenas is touched: it takes memory of its own.
    m->bandwidth = m->peak = 0;
    if (leads || processes)
        TRY(memory_bandwidth(threads, &m->bandwidth, error));
    if (processes)
        TRY(ranks_sum(all, &m->bandwidth, 1, error));
    TRY(ranks_meet(all, error));
    engine_initialise(e, 1, NULL);
    synthetic_fill(e, engine_find(e, PROGRAM_TRAIN), 1);
    if (leads) { // whose events alone are looked at
        executor_trace_reserve(engine_executor(e, PROGRAM_TRAIN), trace);
        progress_line("a first step, which does not count");
    }
    TRY(engine_step(e, 1e-4, NULL, &result, error));
    // The peak is measured between the steps: a machine that is busy with something else then is so for both.
    int64_t start = clock_now();
    for (bool more = true; more;) {
        double peak;
        TRY(engine_peak(e, all, INT64_MAX, &peak, error));
        m->peak = MAX(m->peak, peak);
        if (leads)
            progress_line("step %zu", m->steps.count + 1);
        trace->events.count = 0;
        TRY(ranks_meet(all, error));
        int64_t begin = clock_now();
        TRY(engine_step(e, 1e-4, leads ? trace : NULL, &result, error));
        int64_t end = clock_now();
        TRY(ranks_meet(all, error));
        if (leads) {
            struct step step = {.seconds = 1e-9 * (double)((all ? clock_now() : end) - begin)};
            divide_step(e, trace, m->peak / m->ranks, m->bandwidth / m->ranks, &step);
            VEC_PUSH(&m->steps, step);
        }
        int64_t count = (int64_t)m->steps.count;
        more = count < most && (count < BENCH_STEPS || clock_now() - start < BENCH_NANOSECONDS);
        TRY(ranks_share(all, &more, sizeof more, error)); // rank 0 decides
    }
    if (leads)
        progress_clear();
    return bench_measure_memory(e, all, m, error);
}

// Called by each rank. `all` is a communicator of all of them, NULL if there is only one; they wait while rank 0
// measures the machine. Measures at most `most` steps.
static trireme_status bench_measure(struct engine *e, struct communicator *all, int64_t most, struct measured *m,
                                    trireme_error *error) {
    struct trace trace = {0};
    m->ranks = mesh_ranks(&e->parallel->mesh);
    trireme_status status = measure_steps(e, all, most, &trace, m, error);
    VEC_RELEASE(&trace.events);
    TRY(status);
    const bool leads = e->member.rank == 0;
    double rate = 0;
    if (leads) {
        VEC_SORT(&m->steps, compare_steps);
        const struct compiled *step = engine_compiled(e, PROGRAM_TRAIN);
        m->tokens_per_second = (double)engine_tokens(e, step) / median_step(m)->seconds;
        rate = engine_flops(e, step) / median_step(m)->seconds;
    }
    for (int i = 0; i < PEAK_ROUNDS; i++) {
        bool more = rate > m->peak;
        double peak;
        TRY(ranks_share(all, &more, sizeof more, error));
        if (!more)
            break;
        TRY(engine_peak(e, all, INT64_MAX, &peak, error));
        m->peak = MAX(m->peak, peak);
    }
    if (leads)
        m->mfu = rate / m->peak;
    return TRIREME_OK;
}

static void bench_print_step(const struct engine *e, const struct measured *m, struct text *out) {
    const struct step *step = median_step(m);
    if (m->ranks > 1) {
        char *mesh = mesh_print(&e->parallel->mesh);
        text_add(out, "%d ranks (%s), %s each; speed, MFU and memory are those of all, the rest is rank 0's\n",
                 m->ranks, mesh, counted(e->stages->options.threads, "thread").text);
        free(mesh);
    }
    text_add(out, "%.3f s a step, %.0f tokens/s, MFU %.1f%% of %.1f GFLOP/s, %s predicted, %s resident\n",
             step->seconds, m->tokens_per_second, 100 * m->mfu, 1e-9 * m->peak, amount((int64_t)m->predicted).text,
             amount((int64_t)m->resident).text);
    static const char *const PARTS[] = {"matrix products", "attention", "everything else"};
    for (int i = 0; i < FAMILY_COUNT; i++) {
        const struct share *s = &step->part[i];
        text_add(out, "%s %.1f%%", PARTS[i], 100 * s->seconds / step->seconds);
        if (s->seconds > 0)
            text_add(out, " (at %.0f%% of the limit)", 100 * s->limit / s->seconds);
        text_add(out, ", ");
    }
    text_add(out, "%s %.2f%%\n", m->ranks > 1 ? "waits for others and between instructions" : "between instructions",
             100 * step->between / step->seconds);
    text_add(
        out,
        "limit: the longer of operations at %.1f GFLOP/s and bytes at %.1f GB/s; more than 100%% is due to a cache\n",
        1e-9 * m->peak, 1e-9 * m->bandwidth);
    text_add(out, "%-20s %7s %9s %7s %10s %8s %9s\n", "op", "calls", "ms", "share", "GFLOP/s", "GB/s", "of limit");
    for (int i = 0; i < OP_COUNT; i++) {
        const struct share *s = &step->op[i];
        if (s->calls && s->seconds > 0)
            text_add(out, "%-20s %7lld %9.2f %6.1f%% %10.1f %8.1f %8.1f%%\n", e->ops->op[s->op].name,
                     (long long)s->calls, 1e3 * s->seconds, 100 * s->seconds / step->seconds,
                     1e-9 * s->flops / s->seconds, 1e-9 * s->bytes / s->seconds, 100 * s->limit / s->seconds);
    }
}

// Which kernels do not run by their rules, and what that gains.
static void print_choices(const struct choices *choices, const struct measured *m, struct text *out) {
    size_t others = 0;
    for (size_t i = 0; i < choices->item.count; i++)
        others += choices->item.item[i].way != WAY_RULE;
    text_add(out, "%s timed in every way that there is: %zu not run by the rule",
             counted((int64_t)choices->item.count, "shape").text, others);
    if (others)
        text_add(out, ", which by these times saves %.2f%% of a step",
                 100 * m->saved / (median_step(m)->seconds + m->saved));
    text_add(out, "\n");
    for (size_t i = 0; i < choices->item.count; i++) {
        const struct choice *c = &choices->item.item[i];
        if (c->way != WAY_RULE)
            text_add(out, "%s: %s, %.3f ms instead of %.3f\n", c->call, kernel_way_name(c->way),
                     1e3 * c->seconds[c->way], 1e3 * c->seconds[WAY_RULE]);
    }
}

static void add_choices(struct text *out, const struct choices *choices, const struct measured *m) {
    json_add_number(out, "saved_seconds", m->saved);
    json_begin_array(out, "kernels");
    for (size_t i = 0; i < choices->item.count; i++) {
        const struct choice *c = &choices->item.item[i];
        json_begin_object(out, NULL);
        json_add_string(out, "call", c->call);
        json_add_string(out, "way", kernel_way_name(c->way));
        json_add_number(out, "seconds", c->seconds[c->way]);
        json_add_number(out, "rule_seconds", c->seconds[WAY_RULE]);
        json_end_object(out);
    }
    json_end_array(out);
}

static void add_rates(struct text *out, const struct share *s, double step_seconds) {
    json_add_number(out, "seconds", s->seconds);
    json_add_number(out, "share", s->seconds / step_seconds);
    double seconds = MAX(s->seconds, 1e-9);
    json_add_number(out, "flops_per_second", s->flops / seconds);
    json_add_number(out, "bytes_per_second", s->bytes / seconds);
    json_add_number(out, "of_limit", s->limit / seconds);
}

static void print_step_json(const struct engine *e, const struct measured *m, const struct choices *choices,
                            struct text *out) {
    static const char *const PARTS[] = {"matmul", "attention", "rest"};
    const struct step *step = median_step(m);
    json_begin_object(out, NULL);
    json_add_number(out, "tokens_per_second", m->tokens_per_second);
    json_add_number(out, "mfu", m->mfu);
    json_add_number(out, "peak_flops", m->peak);
    json_add_number(out, "memory_bandwidth", m->bandwidth);
    json_add_integer(out, "ranks", m->ranks);
    json_add_integer(out, "threads", e->stages->options.threads);
    json_add_integer(out, "predicted_bytes", (int64_t)m->predicted);
    json_add_integer(out, "resident_bytes", (int64_t)m->resident);
    json_add_integer(out, "steps", (int64_t)m->steps.count);
    json_add_number(out, "step_seconds", step->seconds);
    json_begin_object(out, "parts");
    for (int i = 0; i < FAMILY_COUNT; i++) {
        json_begin_object(out, PARTS[i]);
        add_rates(out, &step->part[i], step->seconds);
        json_end_object(out);
    }
    json_end_object(out);
    json_add_number(out, "between_seconds", step->between);
    json_add_number(out, "between_share", step->between / step->seconds);
    json_add_number(out, "communication_seconds", step->communication);
    json_begin_array(out, "ops");
    for (int i = 0; i < OP_COUNT; i++) {
        const struct share *s = &step->op[i];
        if (!s->calls)
            continue;
        json_begin_object(out, NULL);
        json_add_string(out, "op", e->ops->op[s->op].name);
        json_add_integer(out, "calls", s->calls);
        add_rates(out, s, step->seconds);
        json_end_object(out);
    }
    json_end_array(out);
    if (choices)
        add_choices(out, choices, m);
    json_end_object(out);
    text_add(out, "\n");
}

// Data parallel ranks, as far as degrees tell.
static int64_t replicas_of(const struct config_parallelism *p) {
    int64_t others = MAX(1, p->tensor_parallel_degree) * MAX(1, p->pipeline_parallel_degree);
    int64_t said = MAX(1, p->data_parallel_replicate_degree) * MAX(1, p->data_parallel_shard_degree);
    return p->ranks > 0 ? MAX(1, p->ranks / others) : said;
}

// Without a model it is the usual yardstick. A step is one microbatch of each replica, unless a global batch is asked
// for.
static trireme_status choose_work(struct config *config, trireme_error *error) {
    int64_t microbatch = config->training.micro_batch_size;
    bool named = *config->model.preset || *config->model.config || *config->model.init_from ||
                 config_is_set(config, "model.family");
    if (!named)
        TRY(config_set(config, "model.preset", "gpt2-124m", "bench step", error));
    if (config_is_set(config, "training.global_batch_size") || (named && microbatch == 0))
        return TRIREME_OK;
    char batch[24];
    long long sequences = microbatch > 0 ? (long long)(microbatch * replicas_of(&config->parallelism)) : 4;
    snprintf(batch, sizeof batch, "%lld", sequences);
    return config_set(config, "training.global_batch_size", batch, "bench step", error);
}

struct bench {
    const struct config *config;
    struct model_config model;
    struct parallel plan;
    int64_t most; // steps
    bool json;
    struct tuning *tuning; // of the ranks of this process; NULL: kernels run by their rules
    struct text *out;      // rank 0 adds to it
};

static trireme_status bench_rank(void *user, const struct member *member, trireme_error *error) {
    const struct bench *b = user;
    struct engine e;
    struct measured measured = {0};
    struct communicator *all = NULL;
    TRY(engine_create(&e, b->config, &b->model, &b->plan, TRAIN_ALONE, member, error));
    trireme_status status = ranks_control(&all, member, mesh_ranks(&e.parallel->mesh), error);
    const struct choices *choices = b->tuning ? &b->tuning->choices : NULL;
    if (e.member.rank == 0 && b->tuning)
        progress_line("timing the ways to run kernels");
    if (status == TRIREME_OK && b->tuning)
        tuning_choose(b->tuning, &e, NULL, INT64_MAX, &measured.saved);
    if (status == TRIREME_OK)
        status = bench_measure(&e, all, b->most, &measured, error);
    if (status == TRIREME_OK && e.member.rank == 0) {
        if (b->tuning && b->tuning->untimed)
            fprintf(stderr, "kernels run by their rules: %s\n", b->tuning->untimed);
        if (measured.mfu > 1)
            fprintf(stderr, "the steps exceeded the machine's peak, which was timed between and after them, when it "
                            "was busy with something else: measure again\n");
        if (b->json)
            print_step_json(&e, &measured, choices, b->out);
        else
            bench_print_step(&e, &measured, b->out);
        if (!b->json && choices)
            print_choices(choices, &measured, b->out);
    }
    VEC_RELEASE(&measured.steps);
    communicator_free(all);
    engine_release(&e);
    return status;
}

static trireme_status bench_prepare(void *user, trireme_error *error) {
    struct bench *b = user;
    TRY(synthetic_model(&b->model, b->config, error));
    return parallel_resolve(&b->plan, b->config, &b->model, error);
}

static trireme_status bench_step(const struct arguments *a, struct config *config, struct text *out,
                                 trireme_error *error) {
    TRY(choose_work(config, error));
    struct tuning tuning;
    struct bench b = {.config = config, .most = INT64_MAX, .json = a->json, .out = out};
    if (config->training.kernel_choice == CONFIG_KERNEL_CHOICE_MEASURED)
        b.tuning = &tuning;
    tuning_create(&tuning);
    if (config_is_set(config, "training.steps"))
        b.most = MAX(config->training.steps, 1);
    struct launcher launcher = launcher_find();
    const struct processes_work work = {&b, bench_prepare, NULL, bench_rank};
    trireme_status status = processes_or_threads_run(&launcher, launcher_means_processes(&launcher, config), config,
                                                     &work, &b.plan.mesh, NULL, error);
    parallel_release(&b.plan);
    tuning_release(&tuning);
    return status;
}

trireme_status command_bench(const struct arguments *a, trireme_error *error) {
    if (a->operands.count && strcmp(a->operands.item[0], "calibrate") == 0)
        return bench_calibrate(a, error);
    TRY(arguments_expect(a, 1, 2, error));
    const char *what = a->operands.item[0];
    bool peak = strcmp(what, "peak") == 0;
    if (!peak && strcmp(what, "step") != 0)
        return arguments_refuse(
            a, error_set(error, TRIREME_ERROR_USAGE, "what to measure is peak, step or calibrate, not \"%s\"", what),
            error);
    struct config config;
    TRY(arguments_config(a, a->operands.count > 1 ? a->operands.item[1] : NULL, &config, error));
    struct text out = {0};
    trireme_status status = peak ? bench_peak(a, &config, &out, error) : bench_step(a, &config, &out, error);
    if (status == TRIREME_OK)
        status = print_text(&out, error);
    text_release(&out);
    config_release(&config);
    return status;
}
