// The planner: compared with an exhaustive search, and its answers with what is compiled from them.
#include "support/checkpoint.h"

#include "planner/space.h"
#include "support/sanitized.h"
#include "verify/verify.h"

#include <math.h>

static const char CLUSTER[] = "devices:\n"
                              "  d:\n"
                              "    peak: {f32: 2 TFLOP/s, bf16: 10 TFLOP/s}\n"
                              "    memory: 300 MB\n"
                              "    bandwidth: 100 GB/s\n"
                              "    launch: 2 us\n"
                              "    efficiency: {other: {memory: 0.8}, matmul: {compute: 0.7, half: {m: 20}}}\n"
                              "nodes: [{device: d, nodes: 4, devices: 2}]\n"
                              "links:\n"
                              "  - {name: inner, spans: node, latency: 2 us, bandwidth: 20 GB/s}\n"
                              "  - {name: outer, spans: all, latency: 10 us, bandwidth: 2 GB/s}\n";

// Two ranks share a device, and have the rates that were measured for two.
static const char SHARED[] = "devices:\n"
                             "  whole:\n"
                             "    peak: {f32: 2 TFLOP/s, bf16: 10 TFLOP/s}\n"
                             "    memory: 8 GB\n"
                             "    bandwidth: 100 GB/s\n"
                             "    cores: 2\n"
                             "    efficiency: {other: {memory: 0.8}, matmul: {compute: 0.7}}\n"
                             "    shared: {2: half}\n"
                             "  half:\n"
                             "    peak: {f32: 1 TFLOP/s, bf16: 5 TFLOP/s}\n"
                             "    memory: 8 GB\n"
                             "    runtime_memory: 1 GB\n"
                             "    bandwidth: 50 GB/s\n"
                             "    efficiency: {other: {memory: 0.8}, matmul: {compute: 0.7}}\n"
                             "nodes: [{device: whole, nodes: 1, devices: 1}]\n"
                             "links: [{name: bus, spans: all, latency: 1 us, bandwidth: 20 GB/s}]\n";

struct fixture {
    struct op_table *ops;
    struct cluster cluster;
    struct config config;
    struct model_config model;
    struct plan_request request;
};

static void open_fixture(struct fixture *f, const char *const *settings, size_t count, int ranks) {
    trireme_error error = {0};
    f->ops = op_table_create();
    assert_ok(cluster_parse(&f->cluster, f->ops, "test", CLUSTER, strlen(CLUSTER), &error), &error);
    assert_ok(config_load(&f->config, NULL, settings, count, &error), &error);
    assert_ok(model_config_resolve(&f->model, &f->config, NO_TOKENS, &error), &error);
    f->request = (struct plan_request){.config = &f->config,
                                       .model = &f->model,
                                       .ops = f->ops,
                                       .cluster = &f->cluster,
                                       .ranks = ranks,
                                       .threads = 2,
                                       .seconds = SANITIZED ? 4 : 0};
}

static void share_device(struct fixture *f) {
    trireme_error error = {0};
    cluster_release(&f->cluster);
    assert_ok(cluster_parse(&f->cluster, f->ops, "test", SHARED, strlen(SHARED), &error), &error);
}

static void close_fixture(struct fixture *f) {
    config_release(&f->config);
    cluster_release(&f->cluster);
    free(f->ops);
}

static const char *const SMALL[] = {"model.preset=llama-5m",
                                    "training.dtype=bf16",
                                    "training.seq_len=256",
                                    "training.global_batch_size=16",
                                    "parallelism.pipeline_parallel_schedule=1f1b",
                                    "activation_checkpoint.mode=selective",
                                    "parallelism.vocabulary_parallel=false",
                                    "training.micro_batch_size=2"};

static void winner_is_that_of_all(void **unused) {
    (void)unused;
    if (SANITIZED) // it compiles every choice there is
        skip();
    struct fixture f;
    trireme_error error = {0};
    open_fixture(&f, SMALL, ARRAY_LENGTH(SMALL), 4);
    struct plan_result result;
    assert_ok(plan_search(&result, &f.request, &error), &error);
    assert_true(result.complete);
    assert_true(result.answers.count > 0);

    struct estimator estimator;
    struct candidates all = {0};
    estimator_create(&estimator, &f.request, false);
    assert_ok(space_list(&all, &estimator, &error), &error);
    assert_true(all.count > 20);
    double best = INFINITY;
    for (size_t i = 0; i < 2 * all.count; i++) {
        struct plan_choice choice = all.item[i / 2].choice;
        struct plan_answer answer;
        if (i % 2 && choice.tensor > 1)
            choice.sequence = !choice.sequence;
        if (plan_evaluate(&answer, &f.request, &choice, PLAN_LEAST_MEMORY, &error) == TRIREME_OK &&
            answer.memory <= answer.room)
            best = MIN(best, answer.seconds);
    }
    VEC_RELEASE(&all);
    estimator_release(&estimator);
    if (result.answers.item[0].seconds > 1.03 * best)
        fail_msg("%g s, but there is %g s", result.answers.item[0].seconds, best);
    plan_result_release(&result);
    close_fixture(&f);
}

// How far estimates are off from what is compiled, in logarithms.
struct offs {
    double sum, least, most; // of the first without its sign
    int count;
};

static double off_bytes(const struct candidate *c, const struct plan_answer *answer) {
    return log(c->estimate.bytes / (double)answer->memory);
}

static double off_seconds(const struct candidate *c, const struct plan_answer *answer) {
    return log(c->estimate.seconds / answer->seconds);
}

// Checks some forty of all choices.
static struct offs compare_estimates(const struct fixture *f,
                                     double (*off_of)(const struct candidate *, const struct plan_answer *)) {
    struct estimator estimator;
    struct candidates all = {0};
    struct offs offs = {0};
    trireme_error error = {0};
    estimator_create(&estimator, &f->request, false);
    assert_ok(space_list(&all, &estimator, &error), &error);
    assert_true(all.count > 20);
    for (size_t i = 0; i < all.count; i += MAX(1, all.count / 40)) {
        struct plan_answer answer;
        if (all.item[i].choice.micro_batch_size > 4 || all.item[i].choice.mixed ||
            plan_evaluate(&answer, &f->request, &all.item[i].choice, PLAN_LEAST_MEMORY, &error) != TRIREME_OK)
            continue;
        double off = off_of(&all.item[i], &answer);
        offs.most = MAX(offs.most, off);
        offs.least = MIN(offs.least, off);
        offs.sum += fabs(off);
        offs.count++;
    }
    assert_true(offs.count > 15);
    print_message("%d estimates, off by e^%.3f in the mean, by e^%.3f to e^%.3f\n", offs.count, offs.sum / offs.count,
                  offs.least, offs.most);
    VEC_RELEASE(&all);
    estimator_release(&estimator);
    return offs;
}

static void assert_near(const struct offs *offs, const char *what, double mean, double least, double most) {
    if (!(offs->sum <= mean * offs->count) || offs->least < least || offs->most > most)
        fail_msg("of %d estimates of %s the mean is off by a factor of e^%.3f, the worst by e^%.3f and e^%.3f",
                 offs->count, what, offs->sum / offs->count, offs->least, offs->most);
}

// Checks pipelines of all schedules.
static void memory_estimates_are_near(void **unused) {
    (void)unused;
    if (SANITIZED) // a search has its time
        skip();
    static const char *const LARGER[] = {"model.preset=llama-42m", "training.dtype=bf16", "training.seq_len=512",
                                         "training.global_batch_size=32", "parallelism.pipeline_parallel_degree=4"};
    struct fixture f;
    open_fixture(&f, LARGER, ARRAY_LENGTH(LARGER), 8);
    const struct offs offs = compare_estimates(&f, off_bytes);
    // Estimates are lowest for stages of tensor ranks that share the vocabulary.
    assert_near(&offs, "memory", .07, -.3, .1);
    close_fixture(&f);
}

// On a cluster where stages wait for messages longer than they compute.
static void time_estimates_know_of_slow_links(void **unused) {
    (void)unused;
    if (SANITIZED)
        skip();
    static const char *const PIPELINES[] = {"model.preset=llama-42m",
                                            "training.dtype=bf16",
                                            "training.seq_len=512",
                                            "training.global_batch_size=16",
                                            "activation_checkpoint.mode=none",
                                            "parallelism.tensor_parallel_degree=1",
                                            "parallelism.pipeline_parallel_degree=8"};
    struct fixture f;
    open_fixture(&f, PIPELINES, ARRAY_LENGTH(PIPELINES), 8);
    f.cluster.level[1].bandwidth /= 20;
    const struct offs offs = compare_estimates(&f, off_seconds);
    assert_near(&offs, "time", .1, -.25, .25);
    close_fixture(&f);
}

static void time_estimates_know_of_shared_devices(void **unused) {
    (void)unused;
    if (SANITIZED)
        skip();
    static const char *const PAIR[] = {"model.preset=llama-42m", "training.dtype=bf16", "training.seq_len=512",
                                       "training.global_batch_size=16"};
    struct fixture f;
    open_fixture(&f, PAIR, ARRAY_LENGTH(PAIR), 2);
    share_device(&f);
    const struct offs offs = compare_estimates(&f, off_seconds);
    assert_near(&offs, "time", .1, -.25, .25);
    close_fixture(&f);
}

// On a cluster where communication that hides behind computing is not free.
static void time_estimates_know_what_communication_costs(void **unused) {
    (void)unused;
    if (SANITIZED)
        skip();
    static const char *const DATA[] = {"model.preset=llama-42m",
                                       "training.dtype=bf16",
                                       "training.seq_len=512",
                                       "training.global_batch_size=16",
                                       "activation_checkpoint.mode=none",
                                       "parallelism.pipeline_parallel_degree=1",
                                       "parallelism.tensor_parallel_degree=1"};
    struct fixture f;
    open_fixture(&f, DATA, ARRAY_LENGTH(DATA), 8);
    f.cluster.devices.item[0].communication = 1;
    f.cluster.level[1].bandwidth *= 5;
    const struct offs offs = compare_estimates(&f, off_seconds);
    assert_near(&offs, "time", .08, -.2, .1);
    close_fixture(&f);
}

// Where no recomputation does not fit and full recomputation takes more time: some layers are recomputed, not equally
// many on all stages.
static void layers_differ_where_memory_ends(void **unused) {
    (void)unused;
    // Workspaces of fast kernels differ between processors, and so does what just fits.
    static const char *const TIGHT[] = {"model.preset=llama-5m",
                                        "training.kernels=reference",
                                        "training.dtype=bf16",
                                        "training.seq_len=512",
                                        "training.global_batch_size=128",
                                        "training.micro_batch_size=16",
                                        "parallelism.tensor_parallel_degree=1",
                                        "parallelism.pipeline_parallel_degree=2",
                                        "parallelism.pipeline_parallel_schedule=1f1b",
                                        "parallelism.vocabulary_parallel=false",
                                        "activation_checkpoint.mode=none"};
    enum { FREE = ARRAY_LENGTH(TIGHT) - 1 };
    struct fixture f;
    trireme_error error = {0};
    open_fixture(&f, TIGHT, FREE, 2);
    struct plan_result result, one;
    assert_ok(plan_search(&result, &f.request, &error), &error);
    assert_true(result.answers.count > 0);
    const struct plan_answer *best = &result.answers.item[0];
    char *plan = plan_choice_print(&f.request, &best->choice);
    if (!best->choice.mixed || best->memory > best->room || (double)best->memory < .8 * (double)best->room)
        fail_msg("%s: %lld of %lld bytes", plan, (long long)best->memory, (long long)best->room);
    assert_non_null(strstr(plan, " recompute of "));
    free(plan);
    for (int mode = 0; mode < 3 && !SANITIZED; mode++) { // a search has its time
        static const char *const MODES[] = {"none", "selective", "full"};
        struct config config;
        config_copy(&config, &f.config);
        assert_ok(config_set(&config, "activation_checkpoint.mode", MODES[mode], "test", &error), &error);
        struct plan_request request = f.request;
        request.config = &config;
        assert_ok(plan_search(&one, &request, &error), &error);
        if (one.answers.count && one.answers.item[0].seconds < 1.005 * best->seconds)
            fail_msg("%s: %g s, mixed %g s", MODES[mode], one.answers.item[0].seconds, best->seconds);
        assert_true(mode < 2 || one.answers.count > 0);
        plan_result_release(&one);
        config_release(&config);
    }
    // The saved configuration is the plan that was chosen.
    struct plan_choice lists = best->choice;
    struct config saved;
    lists.full_layers = "1,0";
    lists.selective_layers = "0,2";
    lists.layout = "4,2";
    assert_ok(plan_config(&saved, &f.request, &lists, &error), &error);
    assert_string_equal(saved.activation_checkpoint.full_layers, "1,0");
    assert_string_equal(saved.activation_checkpoint.selective_layers, "0,2");
    assert_string_equal(saved.parallelism.pipeline_parallel_layout, "4,2");
    config_release(&saved);
    plan = plan_choice_print(&f.request, &lists);
    assert_non_null(strstr(plan, "full recompute of 1 layer, selective recompute of 2 layers"));
    free(plan);
    struct text megatron = {0};
    plan_export_megatron(&megatron, &f.request, best);
    assert_non_null(strstr(megatron.text, "--recompute-granularity full"));
    text_release(&megatron);
    plan_result_release(&result);
    close_fixture(&f);
}

// Slow links leave the last gradients bare: smaller units win, and the configuration says so.
static void units_of_the_best_are_searched(void **unused) {
    (void)unused;
    static const char *const DATA[] = {"model.preset=llama-5m",
                                       "training.dtype=bf16",
                                       "training.seq_len=256",
                                       "training.global_batch_size=16",
                                       "activation_checkpoint.mode=none",
                                       "training.micro_batch_size=2",
                                       "parallelism.data_parallel_shard_degree=2",
                                       "parallelism.zero_stage=3"};
    struct fixture f;
    trireme_error error = {0};
    open_fixture(&f, DATA, ARRAY_LENGTH(DATA), 2);
    struct plan_result result;
    assert_ok(plan_search(&result, &f.request, &error), &error);
    const struct plan_answer *best = &result.answers.item[0];
    assert_int_not_equal(best->choice.unit_layers, 0);
    static const int WAYS[] = {HALF_LAYERS, 1, 2, 4};
    for (size_t i = 0; i < ARRAY_LENGTH(WAYS); i++) {
        struct plan_choice choice = best->choice;
        struct plan_answer answer;
        choice.unit_layers = WAYS[i];
        assert_ok(plan_evaluate(&answer, &f.request, &choice, PLAN_LEAST_MEMORY, &error), &error);
        assert_true(best->seconds <= answer.seconds);
    }
    struct config config;
    assert_ok(plan_config(&config, &f.request, &best->choice, &error), &error);
    assert_int_equal(config.parallelism.data_parallel_unit_layers, MAX(best->choice.unit_layers, 0));
    config_release(&config);
    plan_result_release(&result);
    close_fixture(&f);
}

// The programs of a configuration, as text.
static void print_programs(struct text *out, const struct fixture *f, const struct config *config, int64_t *most) {
    trireme_error error = {0};
    struct parallel plan;
    const struct stages_options how = {.ops = f->ops, .threads = 1, .jobs = 1};
    struct stages programs;
    assert_ok(parallel_resolve(&plan, config, &f->model, &error), &error);
    assert_int_equal(mesh_ranks(&plan.mesh), f->request.ranks);
    assert_ok(stages_create(&programs, config, &f->model, &plan, TRAIN_ALONE, &how, &error), &error);
    assert_ok(stages_compile(&programs, EVERY_STAGE, &error), &error);
    assert_ok(stages_verify(&programs, &error), &error);
    for (int i = 0; i < programs.count; i++) {
        const struct program *p = stages_program(&programs, i, PROGRAM_TRAIN);
        program_print(p, f->ops, out);
        *most = MAX(*most, p->arena[SPACE_DEVICE].state_bytes + p->arena[SPACE_DEVICE].step_bytes);
    }
    stages_release(&programs);
    parallel_release(&plan);
}

static void answers_are_what_is_saved(void **unused) {
    (void)unused;
    struct fixture f;
    trireme_error error = {0};
    open_fixture(&f, SMALL, 4, 8);
    f.request.seconds = 2;
    struct plan_result result;
    assert_ok(plan_search(&result, &f.request, &error), &error);
    assert_true(result.answers.count > 0);
    for (size_t i = 0; i < result.answers.count; i++) {
        const struct plan_answer *a = &result.answers.item[i];
        struct config config, again;
        struct text saved = {0}, programs[2] = {{0}, {0}};
        int64_t most = 0;
        assert_true(i == 0 || a->seconds >= a[-1].seconds);
        assert_true(a->memory <= a->room);
        assert_ok(plan_config(&config, &f.request, &a->choice, &error), &error);
        config_print(&saved, &config);
        assert_ok(config_load_text(&again, "saved", saved.text, saved.length, NULL, 0, &error), &error);
        print_programs(&programs[0], &f, &config, &most);
        assert_int_equal(most + a->of_tightest.part[MEMORY_RUNTIME], a->memory);
        print_programs(&programs[1], &f, &again, &most);
        assert_string_equal(programs[0].text, programs[1].text);
        double parts = a->computing + a->bubble;
        for (int axis = 0; axis < AXIS_COUNT; axis++)
            parts += a->exposed[axis];
        assert_true(fabs(parts - a->seconds) < 1e-9 * a->seconds);
        for (int k = 0; k < 2; k++)
            text_release(&programs[k]);
        text_release(&saved);
        config_release(&again);
        config_release(&config);
    }
    plan_result_release(&result);
    close_fixture(&f);
}

static void exports_have_the_degrees(void **unused) {
    (void)unused;
    struct fixture f;
    open_fixture(&f, SMALL, 4, 8);
    struct plan_answer a = {.choice = {.replicas = 1,
                                       .parts = 1,
                                       .shards = 2,
                                       .zero_stage = 1,
                                       .tensor = 2,
                                       .sequence = true,
                                       .stages = 2,
                                       .chunks = 3,
                                       .schedule = "interleaved",
                                       .micro_batch_size = 2,
                                       .recompute = CONFIG_RECOMPUTE_FULL}};
    struct text megatron = {0}, titan = {0};
    plan_export_megatron(&megatron, &f.request, &a);
    plan_export_torchtitan(&titan, &f.request, &a);
    static const char *const FLAGS[] = {"--tensor-model-parallel-size 2",
                                        "--pipeline-model-parallel-size 2",
                                        "--sequence-parallel",
                                        "--num-virtual-stages-per-pipeline-rank 3",
                                        "--use-distributed-optimizer",
                                        "--recompute-granularity full",
                                        "--micro-batch-size 2",
                                        "--global-batch-size 16"};
    static const char *const LINES[] = {"data_parallel_replicate_degree = 1",
                                        "data_parallel_shard_degree = 2",
                                        "tensor_parallel_degree = 2",
                                        "pipeline_parallel_degree = 2",
                                        "\"Interleaved1F1B\"",
                                        "pipeline_parallel_microbatch_size = 2",
                                        "local_batch_size = 8",
                                        "mode = \"full\"",
                                        "# not available: ZeRO-1"};
    for (size_t i = 0; i < ARRAY_LENGTH(FLAGS); i++)
        if (!strstr(megatron.text, FLAGS[i]))
            fail_msg("no %s in\n%s", FLAGS[i], megatron.text);
    for (size_t i = 0; i < ARRAY_LENGTH(LINES); i++)
        if (!strstr(titan.text, LINES[i]))
            fail_msg("no %s in\n%s", LINES[i], titan.text);
    a.choice.schedule = "zb-h1";
    a.choice.chunks = 1;
    megatron.length = 0;
    plan_export_megatron(&megatron, &f.request, &a);
    assert_non_null(strstr(megatron.text, "# not available: the schedule zb-h1"));
    // Parameters that are sharded go after forward; others are there for backward.
    static const char *const RESHARD[] = {NULL, "= \"never\"", "= \"never\"", "= \"always\""};
    for (int zero = 0; zero < 4; zero++) {
        a.choice.zero_stage = zero;
        a.choice.replicas = zero ? 1 : 2;
        a.choice.shards = zero ? 2 : 1;
        titan.length = 0;
        plan_export_torchtitan(&titan, &f.request, &a);
        const char *key = strstr(titan.text, "fsdp_reshard_after_forward ");
        assert_true(RESHARD[zero] ? key && strstr(key, RESHARD[zero]) == strchr(key, '=') : !key);
    }
    text_release(&megatron);
    text_release(&titan);
    close_fixture(&f);
}

static void what_does_not_fit_is_told(void **unused) {
    (void)unused;
    if (SANITIZED) // advice has its time
        skip();
    static const char *const LARGE[] = {"model.preset=llama-42m", "parallelism.zero_stage=1", "training.dtype=bf16",
                                        "training.seq_len=1024", "training.global_batch_size=8"};
    struct fixture f;
    trireme_error error = {0};
    open_fixture(&f, LARGE, ARRAY_LENGTH(LARGE), 2);
    struct plan_result result;
    assert_ok(plan_search(&result, &f.request, &error), &error);
    assert_false(result.fits);
    assert_int_equal(result.answers.count, 0);
    assert_true(result.closest.memory > result.closest.room);
    struct text advice = {0};
    plan_advise(&advice, &f.request);
    assert_non_null(advice.text);
    assert_non_null(strstr(advice.text, "fits with cluster="));
    text_release(&advice);
    plan_result_release(&result);
    close_fixture(&f);
}

// If time is up before anything was evaluated, there is one answer: the plan that is compiled soonest.
static void one_plan_takes_what_it_takes(void **unused) {
    (void)unused;
    static const char *const FREE[] = {"model.preset=llama-5m", "training.dtype=bf16", "training.seq_len=64",
                                       "training.global_batch_size=64"};
    struct fixture f;
    trireme_error error = {0};
    open_fixture(&f, FREE, ARRAY_LENGTH(FREE), 2);
    f.cluster.devices.item[0].memory = 8000000000;
    f.request.seconds = 1e-6;
    struct plan_result result;
    assert_ok(plan_search(&result, &f.request, &error), &error);
    assert_int_equal(result.evaluated, 1);
    assert_int_equal(result.answers.count, 1);
    assert_false(result.complete);
    assert_int_equal(result.answers.item[0].choice.stages, 1);
    assert_true(result.answers.item[0].choice.micro_batch_size >= 32);
    plan_result_release(&result);
    close_fixture(&f);
}

// Where an even layout does not fit, one with fewer layers on the stage that holds most of each may: that counts for
// whether anything fits, and for what lacks least.
static void layers_go_where_there_is_room(void **unused) {
    (void)unused;
    static const char *const STAGES[] = {"model.preset=llama-5m",
                                         "training.dtype=bf16",
                                         "training.seq_len=1024",
                                         "training.global_batch_size=32",
                                         "training.micro_batch_size=2",
                                         "parallelism.pipeline_parallel_degree=2",
                                         "parallelism.pipeline_parallel_schedule=1f1b",
                                         "parallelism.vocabulary_parallel=false",
                                         "activation_checkpoint.mode=none"};
    struct fixture f;
    trireme_error error = {0};
    open_fixture(&f, STAGES, ARRAY_LENGTH(STAGES), 2);
    struct plan_choice choice = {.parts = 1,
                                 .schedule = "1f1b",
                                 .chunks = 1,
                                 .replicas = 1,
                                 .shards = 1,
                                 .tensor = 1,
                                 .stages = 2,
                                 .micro_batch_size = 2,
                                 .recompute = CONFIG_RECOMPUTE_NONE};
    struct plan_answer even, uneven;
    assert_ok(plan_evaluate(&even, &f.request, &choice, PLAN_LEAST_MEMORY, &error), &error);
    choice.layout = "2,4";
    assert_ok(plan_evaluate(&uneven, &f.request, &choice, PLAN_LEAST_MEMORY, &error), &error);
    assert_true(uneven.memory < even.memory);
    enum { FITS, ONLY_FIT, LACKS, CASES };
    for (int i = 0; i < CASES; i++) {
        struct plan_result result;
        f.cluster.devices.item[0].memory = i == LACKS ? uneven.memory / 2 : uneven.memory;
        f.request.only_fit = i == ONLY_FIT;
        assert_ok(plan_search(&result, &f.request, &error), &error);
        assert_int_equal(result.fits, i != LACKS);
        const struct plan_answer *found = i == LACKS ? &result.closest : &result.answers.item[0];
        assert_non_null(found->choice.layout);
        assert_string_equal(found->choice.layout, "2,4");
        plan_result_release(&result);
    }
    close_fixture(&f);
}

// Ranks that share a device take the runtime memory that its file gives for that many; what just fits, fits.
static void room_is_that_of_shared_devices(void **unused) {
    (void)unused;
    static const char *const PAIR[] = {"model.preset=llama-42m", "training.dtype=f32", "training.seq_len=512",
                                       "training.global_batch_size=16", "activation_checkpoint.mode=none"};
    struct fixture f;
    trireme_error error = {0};
    open_fixture(&f, PAIR, ARRAY_LENGTH(PAIR), 2);
    share_device(&f);
    struct plan_choice choice = {.parts = 1,
                                 .schedule = "zb-v",
                                 .chunks = 2,
                                 .replicas = 1,
                                 .shards = 1,
                                 .tensor = 1,
                                 .stages = 2,
                                 .micro_batch_size = 1,
                                 .recompute = CONFIG_RECOMPUTE_NONE};
    struct plan_answer most, least, within;
    assert_ok(plan_evaluate(&most, &f.request, &choice, PLAN_WITHIN_ROOM, &error), &error);
    assert_ok(plan_evaluate(&least, &f.request, &choice, PLAN_LEAST_MEMORY, &error), &error);
    assert_true(least.memory > 1000000000 && least.memory < most.memory && most.memory <= most.room);
    f.cluster.devices.item[0].memory = 2 * least.memory;
    assert_ok(plan_evaluate(&within, &f.request, &choice, PLAN_WITHIN_ROOM, &error), &error);
    assert_true(within.memory <= within.room);
    struct estimator estimator; // has the same
    estimator_create(&estimator, &f.request, false);
    assert_true(estimator.room == (double)(least.memory - f.cluster.devices.item[1].runtime_memory));
    estimator_release(&estimator);
    close_fixture(&f);
}

// Not halved in estimates, either.
static void gradients_in_f64_do_not_travel_as_bf16(void **unused) {
    (void)unused;
    static const char *const WRONG[] = {"model.preset=llama-5m", "training.dtype=f64", "training.seq_len=64",
                                        "training.global_batch_size=4", "parallelism.reduce_dtype=bf16"};
    struct fixture f;
    struct plan_result result;
    trireme_error error = {0};
    open_fixture(&f, WRONG, ARRAY_LENGTH(WRONG), 2);
    assert_int_equal(plan_search(&result, &f.request, &error), TRIREME_ERROR_USAGE);
    assert_non_null(strstr(error.message, "parallelism.reduce_dtype: given bf16, but training.dtype is f64"));
    close_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(winner_is_that_of_all),
        cmocka_unit_test(memory_estimates_are_near),
        cmocka_unit_test(time_estimates_know_of_slow_links),
        cmocka_unit_test(time_estimates_know_of_shared_devices),
        cmocka_unit_test(time_estimates_know_what_communication_costs),
        cmocka_unit_test(layers_differ_where_memory_ends),
        cmocka_unit_test(units_of_the_best_are_searched),
        cmocka_unit_test(answers_are_what_is_saved),
        cmocka_unit_test(exports_have_the_degrees),
        cmocka_unit_test(what_does_not_fit_is_told),
        cmocka_unit_test(one_plan_takes_what_it_takes),
        cmocka_unit_test(layers_go_where_there_is_room),
        cmocka_unit_test(room_is_that_of_shared_devices),
        cmocka_unit_test(gradients_in_f64_do_not_travel_as_bf16),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
