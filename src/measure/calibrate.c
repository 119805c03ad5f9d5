#include "measure/calibrate.h"

#include "base/clock.h"
#include "base/parallel_for.h"
#include "kernels/machine.h"
#include "launch/ranks.h"
#include "measure/synthetic.h"
#include "sim/cost.h"
#include "sim/fit.h"

#include <math.h>

// Shapes as they occur in training: two families, several widths, lengths and batches. The smallest model comes first.
static const char *const MODELS[CALIBRATE_SHAPES][12] = {
    {"model.family=llama", "model.num_hidden_layers=2", "model.hidden_size=256", "model.num_attention_heads=4",
     "model.intermediate_size=704", "model.vocab_size=256", "training.seq_len=256", "training.micro_batch_size=8",
     "model.qk_norm=true"},
    {"model.family=llama", "model.num_hidden_layers=2", "model.hidden_size=512", "model.num_attention_heads=8",
     "model.num_key_value_heads=4", "model.intermediate_size=1408", "model.vocab_size=32000", "training.seq_len=512",
     "training.micro_batch_size=4", "model.attention_bias=true"},
    {"model.family=gpt2", "model.num_hidden_layers=2", "model.hidden_size=768", "model.num_attention_heads=12",
     "model.vocab_size=50257", "training.seq_len=1024", "training.micro_batch_size=2"},
    {"model.family=gpt2", "model.num_hidden_layers=1", "model.hidden_size=768", "model.num_attention_heads=12",
     "model.vocab_size=50257", "training.seq_len=1024", "training.micro_batch_size=4"},
    {"model.family=llama", "model.num_hidden_layers=1", "model.hidden_size=1024", "model.num_attention_heads=16",
     "model.num_key_value_heads=4", "model.intermediate_size=2816", "model.vocab_size=32000", "training.seq_len=1024",
     "training.micro_batch_size=1"},
};
// The number that a model's settings give for a key.
static int64_t calibrate_number_of(const char *const *settings, const char *key) {
    size_t length = strlen(key);
    for (; *settings; settings++)
        if (strncmp(*settings, key, length) == 0 && (*settings)[length] == '=')
            return strtol(*settings + length + 1, NULL, 10);
    return 0;
}

// Whether a model is also measured split over so many ranks.
static bool is_split(int model, int ranks) {
    return model % 2 == 0 && ranks > 1 && ranks <= calibrate_number_of(MODELS[model], "model.num_attention_heads");
}

// A collective within a layer on one rank. `seconds` are for its bytes and for waiting, since ranks never arrive at the
// same time; `apart` are the seconds that the rank has computed since the collective before.
struct timed_collective {
    enum op op;
    double bytes, seconds, apart;
};

// A model on some number of ranks: replicas of it, or one that is split over them. Trials are measured in rounds, each
// round going through all of them: so a time when the machine is slow falls on all, and is left out of all.
struct trial {
    const char *const *settings;
    enum dtype dtype;
    int ranks;
    bool split;
    int device; // whose ranks these are
    struct config config;
    struct model_config model;
    struct parallel plan;
    const struct op_table *table;
    int steps, done, all;                     // steps of this round, of the rounds before, of all rounds
    bool left_out;                            // there is not enough memory for it
    double *step, *seconds;                   // [all], [all][events]
    struct fit_samples samples;               // once all steps are done
    VEC(struct timed_collective) collectives; // of rank 0, where the model is split
    double between;                           // seconds from one instruction to the next
    int64_t beside;                           // bytes that the process takes besides the arenas of its ranks
};
struct trials {
    VEC(struct trial);
};

// The typical one of several times of the same thing, a low one: other programs of the machine only make it longer.
static double calibrate_typical(double *seconds, int count) {
    sort_doubles(seconds, (size_t)count);
    return seconds[count / 3];
}

// Chooses the steps that count: the middle third, as measured steps are judged by their median. The means of all
// instructions over the same steps add up to the mean step; typical times, each from another step, would not.
static int choose_steps(const double *steps, int count, bool *chosen) {
    double *sorted = mem_alloc((size_t)count * sizeof *sorted);
    memcpy(sorted, steps, (size_t)count * sizeof *sorted);
    sort_doubles(sorted, (size_t)count);
    const double least = sorted[count / 3], most = sorted[count - 1 - count / 3];
    int kept = 0;
    for (int s = 0; s < count; s++)
        kept += chosen[s] = steps[s] >= least && steps[s] <= most;
    free(sorted);
    return kept;
}

// Makes samples of a trial's steps. The time between instructions is the step's less that of its instructions.
static void take_samples(struct trial *t, const struct engine *e, size_t events, const struct trace *trace) {
    const struct program *p = &engine_compiled(e, PROGRAM_TRAIN)->program;
    bool *chosen = mem_alloc((size_t)t->all * sizeof *chosen);
    int kept = choose_steps(t->step, t->all, chosen);
    double rest = 0, computed = 0;
    for (int s = 0; s < t->all; s++)
        rest += chosen[s] ? t->step[s] : 0;
    for (size_t i = 0; i < events; i++) {
        const struct trace_event *event = &trace->events.item[i];
        const struct invocation *v = &p->schedule.item[event->invocation];
        const struct instruction *in = &p->templates.item[v->template].instructions.item[event->instruction];
        double sum = 0;
        for (int s = 0; s < t->all; s++)
            sum += chosen[s] ? t->seconds[(size_t)s * events + i] : 0;
        bool communicates = t->table->op[in->op].role == ROLE_COMMUNICATION;
        if (communicates && t->split && stream_is(p, in->stream, STREAM_PROMPT)) {
            VEC_PUSH(&t->collectives,
                     (struct timed_collective){in->op, communicated_bytes(p, in), sum / kept, computed});
            computed = 0;
        }
        if (in->stream != STREAM_COMPUTE)
            continue;
        rest -= sum;
        computed += sum / kept;
        if (!when_skips(in->when, v) && !communicates)
            VEC_PUSH(&t->samples, fit_sample_of(p, t->table, in, v, sum / kept));
    }
    t->between = MAX(0, rest / kept) / (double)MAX(events, (size_t)1);
    free(chosen);
}

static trireme_status calibrate_measure(struct trial *t, struct engine *e, struct communicator *all,
                                        struct trace *trace, trireme_error *error) {
    struct engine_result result;
    engine_initialise(e, 1, NULL);
    synthetic_fill(e, engine_find(e, PROGRAM_TRAIN), 1);
    executor_trace_reserve(engine_executor(e, PROGRAM_TRAIN), trace);
    TRY(engine_step(e, 1e-4, NULL, &result, error));
    size_t events = (size_t)program_length(&engine_compiled(e, PROGRAM_TRAIN)->program);
    double *seconds = mem_alloc((size_t)t->steps * events * sizeof *seconds);
    double *steps = mem_alloc((size_t)t->steps * sizeof *steps);
    trireme_status status = TRIREME_OK;
    for (int s = 0; s < t->steps && status == TRIREME_OK; s++) {
        trace->events.count = 0;
        status = ranks_meet(all, error);
        int64_t begin = clock_now();
        if (status == TRIREME_OK)
            status = engine_step(e, 1e-4, trace, &result, error);
        steps[s] = 1e-9 * (double)(clock_now() - begin);
        for (size_t i = 0; i < events && status == TRIREME_OK; i++)
            seconds[(size_t)s * events + i] = 1e-9 * (double)(trace->events.item[i].end - trace->events.item[i].begin);
    }
    // All ranks stand still here, and have touched all of their memory.
    if (status == TRIREME_OK)
        status = ranks_meet(all, error);
    if (e->member.rank == 0 && t->done == 0) // in later rounds the C library still holds memory
        t->beside = (int64_t)memory_resident() - mesh_ranks(&e->parallel->mesh) * (int64_t)engine_bytes(e);
    if (status == TRIREME_OK)
        status = ranks_meet(all, error);
    if (status == TRIREME_OK && e->member.rank == 0) {
        if (!t->seconds)
            t->seconds = mem_alloc((size_t)t->all * events * sizeof *seconds);
        memcpy(t->seconds + (size_t)t->done * events, seconds, (size_t)t->steps * events * sizeof *seconds);
        memcpy(t->step + t->done, steps, (size_t)t->steps * sizeof *steps);
        t->done += t->steps;
        if (t->done == t->all)
            take_samples(t, e, events, trace);
    }
    free(steps);
    free(seconds);
    return status;
}

static trireme_status calibrate_run_rank(void *user, const struct member *member, trireme_error *error) {
    struct trial *t = user;
    struct engine e;
    struct communicator *all = NULL;
    struct trace trace = {0};
    TRY(engine_create(&e, &t->config, &t->model, &t->plan, TRAIN_ALONE, member, error));
    trireme_status status = ranks_control(&all, member, mesh_ranks(&e.parallel->mesh), error);
    if (status == TRIREME_OK)
        status = calibrate_measure(t, &e, all, &trace, error);
    VEC_RELEASE(&trace.events);
    communicator_free(all);
    engine_release(&e);
    return status;
}

// Runs a round of `steps` steps of a trial.
static trireme_status run_trial(struct trial *t, int steps, trireme_error *error) {
    const char *settings[18];
    char more[4][80];
    size_t count = 0;
    int64_t sequences = calibrate_number_of(t->settings, "training.micro_batch_size");
    for (; t->settings[count]; count++)
        settings[count] = t->settings[count];
    snprintf(more[0], sizeof more[0], "training.dtype=%s", dtype_name(t->dtype));
    snprintf(more[1], sizeof more[1], "parallelism.%s=%d",
             t->split ? "tensor_parallel_degree" : "data_parallel_replicate_degree", t->ranks);
    snprintf(more[2], sizeof more[2], "training.global_batch_size=%d", (int)sequences * (t->split ? 1 : t->ranks));
    snprintf(more[3], sizeof more[3], "parallelism.sequence_parallel=true");
    for (size_t i = 0; i < ARRAY_LENGTH(more); i++)
        settings[count++] = more[i];
    t->steps = steps;
    TRY(config_load(&t->config, NULL, settings, count, error));
    trireme_status status = model_config_resolve(&t->model, &t->config, NO_TOKENS, error);
    if (status == TRIREME_OK)
        status = parallel_resolve(&t->plan, &t->config, &t->model, error);
    if (status == TRIREME_OK) {
        status = ranks_run(t->ranks, 300, calibrate_run_rank, t, error);
        parallel_release(&t->plan);
    }
    config_release(&t->config);
    return status;
}

static void release_trials(struct trials *trials) {
    for (size_t i = 0; i < trials->count; i++) {
        struct trial *t = &trials->item[i];
        free(t->step);
        free(t->seconds);
        VEC_RELEASE(&t->samples);
        VEC_RELEASE(&t->collectives);
    }
    VEC_RELEASE(trials);
}

// ---- links

enum { LINK_SIZES = 6, LINK_TRIES = 15 };
static const int64_t SIZES[LINK_SIZES] = {1 << 10, 1 << 14, 1 << 18, 1 << 21, 1 << 24, 1 << 26};

struct link_trial {
    struct link_level *level;
    int ranks;
};

static trireme_status calibrate_call(struct communicator *c, enum op op, char *in, char *out, int64_t bytes,
                                     trireme_error *error) {
    int64_t count = bytes / 4, ranks = communicator_size(c);
    switch (op) {
    case OP_ALL_REDUCE:
        return comm_all_reduce(c, in, out, count, DTYPE_F32, REDUCE_SUM, DTYPE_F32, error);
    case OP_ALL_GATHER:
        return comm_all_gather(c, in, out, count / ranks, DTYPE_F32, error);
    case OP_REDUCE_SCATTER:
        return comm_reduce_scatter(c, in, out, count / ranks, DTYPE_F32, REDUCE_SUM, DTYPE_F32, false, error);
    default:
        if (communicator_index(c) > 1)
            return TRIREME_OK;
        return communicator_index(c) == 0 ? comm_send(c, in, bytes, 1, error) : comm_receive(c, out, bytes, 0, error);
    }
}

static trireme_status time_calls(struct communicator *c, struct link_trial *t, enum op op, char *in, char *out,
                                 trireme_error *error) {
    for (int size = 0; size < LINK_SIZES; size++) {
        double seconds[LINK_TRIES];
        for (int i = -2; i < LINK_TRIES; i++) {
            TRY(comm_barrier(c, error));
            int64_t begin = clock_now();
            TRY(calibrate_call(c, op, in, out, SIZES[size], error));
            if (i >= 0)
                seconds[i] = 1e-9 * (double)(clock_now() - begin);
        }
        if (communicator_index(c) == 0)
            VEC_PUSH(&t->level->points, (struct link_point){op, op == OP_SEND ? 2 : t->ranks, (double)SIZES[size],
                                                            MAX(1e-9, calibrate_typical(seconds, LINK_TRIES))});
    }
    return TRIREME_OK;
}

static trireme_status run_links(void *user, const struct member *member, trireme_error *error) {
    struct link_trial *t = user;
    struct communicator *all;
    static const enum op OPS[] = {OP_ALL_REDUCE, OP_ALL_GATHER, OP_REDUCE_SCATTER, OP_SEND};
    TRY(ranks_control(&all, member, t->ranks, error));
    char *in = mem_alloc((size_t)SIZES[LINK_SIZES - 1]), *out = mem_alloc((size_t)SIZES[LINK_SIZES - 1]);
    memset(in, 0, (size_t)SIZES[LINK_SIZES - 1]);
    memset(out, 0, (size_t)SIZES[LINK_SIZES - 1]);
    trireme_status status = TRIREME_OK;
    for (size_t i = 0; i < ARRAY_LENGTH(OPS) && status == TRIREME_OK; i++)
        // Messages take the same time for any number of ranks: two are enough.
        if (OPS[i] != OP_SEND || t->ranks == 2)
            status = time_calls(all, t, OPS[i], in, out, error);
    free(in);
    free(out);
    communicator_free(all);
    return status;
}

// Fits the line that is used for sizes and numbers of ranks without points: through the times of the smallest and the
// largest message.
static void calibrate_fit_level(struct link_level *level) {
    double small = 0, large = 0;
    for (size_t i = 0; i < level->points.count; i++)
        if (level->points.item[i].op == OP_SEND) {
            if (level->points.item[i].bytes == (double)SIZES[0])
                small = level->points.item[i].seconds;
            if (level->points.item[i].bytes == (double)SIZES[LINK_SIZES - 1])
                large = level->points.item[i].seconds;
        }
    level->latency = MIN(small, 1);
    level->bandwidth = large > small ? (double)SIZES[LINK_SIZES - 1] / (large - small) : 1e9;
}

// ---- the machine

enum { CORES_MOST = 4096, ROUNDS = 3 };
static const double LAUNCH_MOST = 20e-6;

struct work {
    const struct op_table *table;
    const struct calibrate_options *options;
    struct cluster *cluster;
    int cores, models, steps, links, done, of;
    int64_t resident; // bytes, before anything was measured
    bool left_out;    // some trial was left out
    struct trials trials;
};

static void calibrate_say(struct work *w, const char *what) {
    if (w->options->say)
        w->options->say(what, w->done++, w->of);
}

// Measures the peaks; called between trials, it keeps the best of all.
static void measure_peaks(struct work *w) {
    struct device *whole = &w->cluster->devices.item[0];
    const double f32 = peak_flops(DTYPE_F32, w->cores, INFINITY), bf16 = peak_flops(DTYPE_BF16, w->cores, INFINITY);
    whole->peak[DTYPE_F32] = MAX(whole->peak[DTYPE_F32], f32);
    whole->peak[DTYPE_BF16] = MAX(whole->peak[DTYPE_BF16], bf16);
}

static void list_trials(struct work *w, int device, int ranks) {
    for (int t = 0; t < 2; t++)
        for (int m = 0; m < w->models; m++)
            for (int split = 0; split < (is_split(m, ranks) ? 2 : 1); split++) {
                struct trial trial = {.settings = MODELS[m],
                                      .dtype = t ? DTYPE_BF16 : DTYPE_F32,
                                      .ranks = ranks,
                                      .split = split,
                                      .device = device,
                                      .table = w->table,
                                      .all = w->steps};
                trial.step = mem_alloc((size_t)w->steps * sizeof *trial.step);
                VEC_PUSH(&w->trials, trial);
            }
}

static int rounds_of(const struct work *w) {
    return MIN(ROUNDS, w->steps);
}

// How many steps of a model are measured before this round.
static int steps_before(const struct work *w, int round) {
    return w->steps * round / rounds_of(w);
}

static trireme_status run_rounds(struct work *w, trireme_error *error) {
    int rounds = rounds_of(w);
    w->of = rounds * (int)w->trials.count + w->links;
    for (int round = 0; round < rounds; round++)
        for (size_t i = 0; i < w->trials.count; i++) {
            struct trial *t = &w->trials.item[i];
            calibrate_say(w, w->cluster->devices.item[t->device].name);
            if (t->left_out)
                continue;
            measure_peaks(w);
            trireme_status status = run_trial(t, steps_before(w, round + 1) - t->done, error);
            t->left_out = status == TRIREME_ERROR_MEMORY && t->settings != MODELS[0];
            if (!t->left_out)
                TRY(status);
            w->left_out |= t->left_out;
        }
    return TRIREME_OK;
}

// Fits a device from its trials, once the peaks are known.
static void fit_trials(struct work *w, int device, int ranks) {
    struct device *d = &w->cluster->devices.item[device];
    struct fit_samples samples = {0};
    double between = 0;
    int trials = 0;
    for (size_t i = 0; i < w->trials.count; i++) {
        const struct trial *t = &w->trials.item[i];
        if (t->device != device || t->left_out)
            continue;
        for (size_t k = 0; k < t->samples.count; k++)
            VEC_PUSH(&samples, t->samples.item[k]);
        d->runtime_memory = MAX(d->runtime_memory, t->beside / ranks);
        between += t->between;
        trials++;
    }
    d->launch = ranks == 1 ? MIN(LAUNCH_MOST, between / trials) : w->cluster->devices.item[0].launch;
    for (int t = 0; t < DTYPE_COUNT && ranks > 1; t++)
        d->peak[t] = w->cluster->devices.item[0].peak[t] / (double)ranks;
    fit_device(d, w->table, &samples, true);
    VEC_RELEASE(&samples);
}

static struct device calibrate_describe(const struct work *w, const char *name, int ranks, double bandwidth) {
    return (struct device){.name = mem_strdup(name),
                           .bandwidth = bandwidth / ranks,
                           .memory = (int64_t)memory_whole() / ranks,
                           .runtime_memory = w->resident / ranks,
                           .cores = w->cores / ranks,
                           .communication = 1};
}

// Fits how long ranks waited in the collectives of their steps: beyond what these take by themselves, as was measured.
static void calibrate_find_waits(const struct work *w, struct device *d, int device, int ranks) {
    const struct route route = {.ranks = ranks, .parts = {ranks}, .bandwidth = {w->cluster->level[0].bandwidth}};
    VEC(struct fit_wait) waits = {0};
    for (size_t i = 0; i < w->trials.count; i++) {
        const struct trial *t = &w->trials.item[i];
        if (t->device != device)
            continue;
        struct fit_wait wait = {.meetings = (double)t->collectives.count};
        for (size_t k = 0; k < t->collectives.count; k++) {
            const struct timed_collective *m = &t->collectives.item[k];
            wait.computed += m->apart;
            wait.waited += m->seconds - cost_communicate(w->cluster, &route, m->op, m->bytes);
        }
        VEC_PUSH(&waits, wait);
    }
    fit_waits(d, waits.item, waits.count);
    VEC_RELEASE(&waits);
}

static trireme_status calibrate_measure_links(struct work *w, int device, int ranks, trireme_error *error) {
    struct link_trial links = {&w->cluster->level[0], ranks};
    calibrate_say(w, "links");
    TRY(ranks_run(ranks, 300, run_links, &links, error));
    calibrate_find_waits(w, &w->cluster->devices.item[device], device, ranks);
    return TRIREME_OK;
}

static trireme_status measure_all(struct work *w, trireme_error *error) {
    struct cluster *c = w->cluster;
    double bandwidth;
    TRY(memory_bandwidth(w->cores, &bandwidth, error));
    VEC_PUSH(&c->devices, calibrate_describe(w, "cpu", 1, bandwidth));
    VEC_PUSH(&c->groups, (struct node_group){0, 1, 1});
    c->total_devices = 1;
    c->level[c->levels++] = (struct link_level){.name = mem_strdup("threads"),
                                                .span = SPAN_ALL,
                                                .algorithm = LINK_DIRECT,
                                                .latency = 1e-6,
                                                .bandwidth = bandwidth / 2};
    list_trials(w, 0, 1);
    for (int ranks = 2; ranks <= w->cores; ranks *= 2) {
        char name[32];
        snprintf(name, sizeof name, "cpu-of-%d", ranks);
        int number = (int)c->devices.count;
        VEC_PUSH(&c->devices, calibrate_describe(w, name, ranks, bandwidth));
        VEC_PUSH(&c->devices.item[0].shared, (struct shared){ranks, number});
        list_trials(w, number, ranks);
        w->links++;
    }
    TRY(run_rounds(w, error));
    for (int device = 0, ranks = 1; device < (int)c->devices.count; device++, ranks *= 2)
        fit_trials(w, device, ranks);
    for (int device = 1, ranks = 2; ranks <= w->cores; device++, ranks *= 2)
        TRY(calibrate_measure_links(w, device, ranks, error));
    if (w->cores > 1)
        calibrate_fit_level(&c->level[0]);
    return TRIREME_OK;
}

// How much longer the same steps took in the slowest round than in the fastest, as a share.
static double calibrate_unsteadiness(const struct work *w, const struct trial *t) {
    double least = INFINITY, most = 0;
    for (int round = 0; round < rounds_of(w); round++) {
        const int begin = steps_before(w, round), end = steps_before(w, round + 1);
        double sum = 0;
        for (int s = begin; s < end; s++)
            sum += t->step[s];
        least = fmin(least, sum / (end - begin));
        most = fmax(most, sum / (end - begin));
    }
    return most / least - 1;
}

// What the file says about its measurement: no prediction is better than the machine was steady. The caller frees.
static char *describe_measurement(const struct work *w) {
    struct text about = {0};
    VEC(double) each = {0};
    for (size_t i = 0; i < w->trials.count; i++)
        if (!w->trials.item[i].left_out)
            VEC_PUSH(&each, calibrate_unsteadiness(w, &w->trials.item[i]));
    sort_doubles(each.item, each.count);
    text_add(&about, "measured by trireme bench calibrate%s",
             w->left_out ? ", without models that memory was too small for" : "");
    if (rounds_of(w) > 1)
        text_add(&about,
                 "; the same steps took %.1f%% longer in the slowest of %d rounds than in the fastest, %.1f%% at most",
                 100 * each.item[each.count / 2], rounds_of(w), 100 * each.item[each.count - 1]);
    VEC_RELEASE(&each);
    return about.text;
}

trireme_status calibrate(struct cluster *out, const struct op_table *table, const struct calibrate_options *options,
                         trireme_error *error) {
    struct cluster cluster = {.name = mem_strdup("this machine")};
    struct work work = {.table = table, .options = options, .cluster = &cluster, .cores = usable_cores()};
    work.resident = (int64_t)memory_resident();
    work.models = options->models ? options->models : CALIBRATE_SHAPES;
    work.steps = options->steps ? options->steps : 6;
    work.cores = MIN(work.cores, CORES_MOST);
    trireme_status status = measure_all(&work, error);
    if (status == TRIREME_OK)
        cluster.about = describe_measurement(&work);
    release_trials(&work.trials);
    if (status == TRIREME_OK)
        *out = cluster;
    else
        cluster_release(&cluster);
    return status;
}

// ---- processes

static void add_nodes(struct cluster *c, int nodes) {
    c->groups.count = 0;
    VEC_PUSH(&c->groups, (struct node_group){0, nodes, 1});
    c->total_devices = nodes;
    c->stragglers.count = 0;
    if (c->levels == 0)
        c->level[c->levels++] = (struct link_level){.span = SPAN_ALL, .latency = 20e-6, .bandwidth = 1e9};
    struct link_level *last = &c->level[c->levels - 1];
    free(last->name);
    last->name = mem_strdup("processes");
    if (nodes == 1 || c->levels == CLUSTER_LEVELS_MAX)
        return;
    last->span = SPAN_NODE;
    c->level[c->levels++] = (struct link_level){.name = mem_strdup("network"),
                                                .span = SPAN_ALL,
                                                .algorithm = LINK_RING,
                                                .latency = 20e-6,
                                                .bandwidth = 1e9,
                                                .adapters = 1};
}

trireme_status calibrate_processes(struct cluster *cluster, const struct member *member, int ranks,
                                   trireme_error *error) {
    struct link_level measured = {0};
    struct link_trial links = {&measured, ranks};
    trireme_status status = run_links(&links, member, error);
    if (status == TRIREME_OK && member->rank == 0) {
        const struct world_place *place = world_place(member->world);
        add_nodes(cluster, place ? place->nodes : 1);
        status = fit_links(cluster, measured.points.item, measured.points.count, error);
    }
    VEC_RELEASE(&measured.points);
    return status;
}
