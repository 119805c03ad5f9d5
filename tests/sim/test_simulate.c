// The simulator (sim/simulate.h): programs in simulated time.
#include "support/models.h"
#include "support/streams.h"

#include "compile/stages.h"
#include "sim/simulate.h"

#include <math.h>

// Links that cost nothing, so that only passes take time.
static const char FREE_LINKS[] = "devices:\n"
                                 "  d:\n"
                                 "    peak: {f64: 1 GFLOP/s}\n"
                                 "    memory: 1 GB\n"
                                 "    bandwidth: 1 GB/s\n"
                                 "    efficiency: {other: {memory: 1, compute: 1}}\n"
                                 "nodes: [{device: d, nodes: 8, devices: 8}]\n"
                                 "links: [{name: l, spans: all, latency: 0 s, bandwidth: 1e6 GB/s}]\n";

struct fixture {
    struct op_table *ops;
    struct cluster cluster;
    struct config config;
    struct model_config model;
    struct parallel plan;
    struct stages programs;
    const struct program **program; // of each stage
};

static void open_fixture(struct fixture *f, const char *cluster, const char *const *settings, size_t count) {
    trireme_error error = {0};
    f->ops = op_table_create();
    assert_ok(cluster_parse(&f->cluster, f->ops, "test", cluster, strlen(cluster), &error), &error);
    assert_ok(config_load(&f->config, NULL, settings, count, &error), &error);
    assert_ok(model_config_resolve(&f->model, &f->config, NO_TOKENS, &error), &error);
    assert_ok(parallel_resolve(&f->plan, &f->config, &f->model, &error), &error);
    const struct stages_options how = {.ops = f->ops, .threads = 1, .jobs = 1};
    assert_ok(stages_create(&f->programs, &f->config, &f->model, &f->plan, TRAIN_ALONE, &how, &error), &error);
    assert_ok(stages_compile(&f->programs, EVERY_STAGE, &error), &error);
    f->program = stages_programs(&f->programs, PROGRAM_TRAIN);
}

static void close_fixture(struct fixture *f) {
    free(f->program);
    stages_release(&f->programs);
    parallel_release(&f->plan);
    config_release(&f->config);
    cluster_release(&f->cluster);
    free(f->ops);
}

// Gives all of a pass's time to its first computing instruction.
static double seconds_of_pass(void *user, const struct program *program, int template, int instruction) {
    const struct schedule_times *times = user;
    const struct template *t = &program->templates.item[template];
    for (int i = 0; i < instruction; i++)
        if (t->instructions.item[i].stream == STREAM_COMPUTE)
            return 0;
    switch (t->phase) {
    case PHASE_FORWARD:
        return times->forward;
    case PHASE_BACKWARD:
        for (size_t k = 0; k < program->templates.count; k++)
            if (program->templates.item[k].phase == PHASE_WEIGHT)
                return times->backward_input;
        return times->backward_input + times->backward_weight;
    case PHASE_WEIGHT:
        return times->backward_weight;
    default:
        return 0;
    }
}

static void compare_schedule(const char *name, int stages, int microbatches, struct schedule_times times) {
    char text[6][96];
    const char *settings[16] = {"model.preset=llama-5m", "training.dtype=f64", "training.seq_len=4",
                                "training.micro_batch_size=1", "model.num_hidden_layers=16"};
    snprintf(text[0], sizeof text[0], "training.global_batch_size=%d", microbatches);
    snprintf(text[1], sizeof text[1], "parallelism.pipeline_parallel_degree=%d", stages);
    snprintf(text[2], sizeof text[2], "parallelism.pipeline_parallel_schedule=%s", name);
    for (int i = 0; i < 3; i++)
        settings[5 + i] = text[i];
    struct fixture f;
    open_fixture(&f, FREE_LINKS, settings, 8);
    struct simulation_options options = {.seconds = seconds_of_pass, .user = &times};
    struct simulation s;
    trireme_error error = {0};
    assert_ok(simulate(&s, f.program, f.ops, &f.cluster, &options, &error), &error);
    struct schedule_cost cost;
    schedule_cost(f.plan.schedule, &times, &cost);
    double end = 0;
    for (int i = 0; i < stages; i++)
        end = fmax(end, cost.rank[i].end);
    print_message("%s p %d m %d: simulated %.9g, schedule %.9g\n", name, stages, microbatches, s.seconds, end);
    assert_true(fabs(s.seconds - end) < 1e-6 * end);
    schedule_cost_release(&cost);
    simulation_release(&s);
    close_fixture(&f);
}

static struct schedule_times times(double forward, double backward_input, double backward_weight) {
    return (struct schedule_times){
        .forward = forward, .backward_input = backward_input, .backward_weight = backward_weight};
}

static void pipelines_cost_what_their_schedule_does(void **unused) {
    (void)unused;
    compare_schedule("1f1b", 4, 8, times(1, 1, 1));
    compare_schedule("1f1b", 8, 24, times(1, 1.5, 0.7));
    compare_schedule("gpipe", 4, 8, times(1, 2, 1));
    compare_schedule("interleaved", 4, 8, times(1, 2, 1));
    compare_schedule("zb-h1", 4, 12, times(1, 1.1, 0.9));
    compare_schedule("zb-h2", 4, 12, times(1, 1.1, 0.9));
    compare_schedule("zb-v", 4, 12, times(1, 1.1, 0.9));
    compare_schedule("v-half", 4, 12, times(1, 1.1, 0.9));
    compare_schedule("hanayo", 4, 8, times(1, 1.1, 0.9));
}

// Nodes of three devices, so that groups lie across them in several ways; what else is said of the device, of all, and
// of links.
static const char UNEVEN[] = "devices:\n"
                             "  d:\n"
                             "    peak: {f64: 1 GFLOP/s}\n"
                             "    memory: 1 GB\n"
                             "    bandwidth: 10 GB/s\n"
                             "    launch: 1 us\n%s"
                             "    efficiency: {other: {memory: 1}, matmul: {compute: 0.5, half: {m: 4}}}\n%s"
                             "nodes: [{device: d, nodes: 8, devices: 3}]\n"
                             "links:\n"
                             "  - {name: bus, spans: node, latency: 2 us, bandwidth: 1 GB/s%s}\n"
                             "  - {name: net, spans: all, latency: 20 us, bandwidth: 0.1 GB/s, adapters: 1%s}\n";

static void compare_every_rank(const char *cluster, const char *const *more, size_t count, int most_classes) {
    const char *settings[24] = {"model.preset=llama-5m",     "training.dtype=f64",
                                "training.seq_len=8",        "training.micro_batch_size=1",
                                "model.num_hidden_layers=4", "training.global_batch_size=16"};
    for (size_t i = 0; i < count; i++)
        settings[6 + i] = more[i];
    struct fixture f;
    open_fixture(&f, cluster, settings, 6 + count);
    struct simulation few, all;
    trireme_error error = {0};
    assert_ok(simulate(&few, f.program, f.ops, &f.cluster, NULL, &error), &error);
    struct simulation_options every = {.every_rank = true};
    assert_ok(simulate(&all, f.program, f.ops, &f.cluster, &every, &error), &error);
    assert_int_equal(all.classes, mesh_ranks(&f.plan.mesh));
    assert_true(few.classes <= most_classes);
    assert_true(fabs(few.seconds - all.seconds) <= 1e-12 * all.seconds);
    assert_true(fabs(few.bubble - all.bubble) <= 1e-12);
    for (int a = 0; a < AXIS_COUNT; a++)
        assert_true(fabs(few.exposed[a] - all.exposed[a]) <= 1e-12 &&
                    (f.plan.mesh.degree[a] > 1 || few.exposed[a] == 0));
    for (int c = 0; c < few.classes; c++) {
        const struct sim_class *one = &few.of_class[c], *same = &all.of_class[one->rank];
        assert_true(fabs(one->computing - same->computing) <= 1e-12 * all.seconds);
        assert_true(fabs(one->end - same->end) <= 1e-12 * all.seconds);
        // The parts add up to the step.
        double sum = one->computing + one->bubble;
        for (int a = 0; a < AXIS_COUNT; a++)
            sum += one->exposed[a];
        assert_true(fabs(sum - few.seconds) <= 1e-9 * few.seconds);
    }
    simulation_release(&few);
    simulation_release(&all);
    close_fixture(&f);
}

static void ranks_that_are_alike_are_simulated_once(void **unused) {
    (void)unused;
    static const char *const MESHES[][5] = {
        {"parallelism.tensor_parallel_degree=2", "parallelism.pipeline_parallel_degree=2",
         "parallelism.data_parallel_replicate_degree=4"},
        {"parallelism.tensor_parallel_degree=4", "parallelism.pipeline_parallel_degree=2",
         "parallelism.data_parallel_shard_degree=2", "parallelism.zero_stage=3"},
        {"parallelism.tensor_parallel_degree=2", "parallelism.data_parallel_replicate_degree=2",
         "parallelism.data_parallel_shard_degree=4", "parallelism.zero_stage=2", "model.tie_word_embeddings=true"},
        {"parallelism.pipeline_parallel_degree=4", "parallelism.pipeline_parallel_schedule=zb-h1",
         "parallelism.data_parallel_shard_degree=4", "parallelism.zero_stage=1", "model.tie_word_embeddings=true"},
        {"parallelism.pipeline_parallel_degree=2", "parallelism.data_parallel_replicate_degree=8",
         "model.tie_word_embeddings=true"},
        // Arithmetic on a stream of its own, which computing waits for.
        {"parallelism.pipeline_parallel_degree=2", "parallelism.vocabulary_parallel=true",
         "parallelism.pipeline_parallel_schedule=zb-v", "model.vocab_size=53"},
        {"parallelism.pipeline_parallel_degree=2", "parallelism.tensor_parallel_degree=2",
         "parallelism.tensor_parallel_overlap=true", "parallelism.data_parallel_shard_degree=2",
         "parallelism.zero_stage=3"},
        // Messages in rings.
        {"parallelism.context_parallel_degree=4", "parallelism.context_parallel_method=ring",
         "parallelism.data_parallel_shard_degree=2"},
        {"parallelism.context_parallel_degree=2", "parallelism.context_parallel_method=ring",
         "parallelism.context_parallel_layout=contiguous", "parallelism.pipeline_parallel_degree=2"},
    };
    // What the file says about a device, about collectives, and about links.
    static const char *const MORE[][3] = {
        {"", "", ""},
        {"    communication: cores\n", "", ", wiring: switch"},
        {"    jitter: 0.1\n    meeting: 10 us\n", "collectives: pipelined\n", ", wiring: direct, duplex: half"}};
    for (size_t i = 0; i < ARRAY_LENGTH(MESHES); i++) {
        size_t count = MESHES[i][4] ? 5 : MESHES[i][3] ? 4 : 3;
        struct text slow = {0};
        text_add(&slow, "%sstragglers: [{device: 6, slower: 1.7}]\n", FREE_LINKS);
        compare_every_rank(FREE_LINKS, MESHES[i], count, 4);
        compare_every_rank(slow.text, MESHES[i], count, 16);
        for (size_t k = 0; k < ARRAY_LENGTH(MORE); k++) {
            char *uneven = mem_printf(UNEVEN, MORE[k][0], MORE[k][1], MORE[k][2], MORE[k][2]);
            compare_every_rank(uneven, MESHES[i], count, 16);
            free(uneven);
        }
        text_release(&slow);
    }
}

// No rank comes late: a gather waits only for the rank's own reductions on the same link.
static void ranks_that_are_alike_have_no_bubble(void **unused) {
    (void)unused;
    const char *settings[] = {"model.preset=llama-5m",        "training.dtype=f64",
                              "training.seq_len=8",           "training.micro_batch_size=1",
                              "training.global_batch_size=8", "parallelism.data_parallel_shard_degree=4",
                              "parallelism.zero_stage=3",     "parallelism.data_parallel_prefetch=0"};
    struct fixture f;
    char *cluster = mem_printf(UNEVEN, "", "", "", "");
    open_fixture(&f, cluster, settings, ARRAY_LENGTH(settings));
    struct simulation s;
    trireme_error error = {0};
    assert_ok(simulate(&s, f.program, f.ops, &f.cluster, NULL, &error), &error);
    assert_true(s.exposed[AXIS_FSDP] > 0.1 * s.seconds && s.bubble <= 1e-12);
    simulation_release(&s);
    close_fixture(&f);
    free(cluster);
}

static void a_slow_device_slows_all(void **unused) {
    (void)unused;
    const char *settings[] = {"model.preset=llama-5m", "training.dtype=f64", "training.seq_len=8",
                              "training.global_batch_size=4", "parallelism.data_parallel_replicate_degree=4"};
    struct fixture f;
    open_fixture(&f, FREE_LINKS, settings, ARRAY_LENGTH(settings));
    struct simulation even, uneven;
    trireme_error error = {0};
    assert_ok(simulate(&even, f.program, f.ops, &f.cluster, NULL, &error), &error);
    VEC_PUSH(&f.cluster.stragglers, (struct straggler){2, 1.25});
    assert_ok(simulate(&uneven, f.program, f.ops, &f.cluster, NULL, &error), &error);
    assert_int_equal(even.classes, 1);
    assert_int_equal(uneven.classes, 2);
    assert_true(fabs(uneven.seconds / even.seconds - 1.25) < 1e-3);
    assert_true(uneven.of_class[0].bubble > 0.19 * uneven.seconds && uneven.of_class[1].bubble < 0.01 * uneven.seconds);
    simulation_release(&even);
    simulation_release(&uneven);
    close_fixture(&f);
}

// All computing instructions of passes take a second; those of the update take none.
static double a_second(void *user, const struct program *program, int template, int instruction) {
    (void)user;
    const struct template *t = &program->templates.item[template];
    return t->phase != PHASE_OPTIMIZER && t->instructions.item[instruction].stream == STREAM_COMPUTE;
}

static int meetings_within_layers(const struct program *p) {
    int count = 0;
    for (size_t v = 0; v < p->schedule.count; v++) {
        const struct template *t = &p->templates.item[p->schedule.item[v].template];
        for (size_t i = 0; i < t->instructions.count; i++)
            count += t->instructions.item[i].stream == STREAM_TENSOR;
    }
    return count;
}

// Ranks that meet within layers wait for the slowest; replicas meet after all layers, when differences have evened out.
static void ranks_wait_for_the_slowest(void **unused) {
    (void)unused;
    const char *settings[] = {"model.preset=llama-5m", "training.dtype=f64", "training.seq_len=8",
                              "training.global_batch_size=2", NULL};
    static const char *const MESHES[] = {"parallelism.tensor_parallel_degree=2",
                                         "parallelism.data_parallel_replicate_degree=2"};
    for (size_t mesh = 0; mesh < ARRAY_LENGTH(MESHES); mesh++) {
        settings[ARRAY_LENGTH(settings) - 1] = MESHES[mesh];
        struct fixture f;
        open_fixture(&f, FREE_LINKS, settings, ARRAY_LENGTH(settings));
        struct simulation even, uneven;
        struct simulation_options options = {.seconds = a_second};
        trireme_error error = {0};
        assert_ok(simulate(&even, f.program, f.ops, &f.cluster, &options, &error), &error);
        for (int part = 0; part < 2; part++) {
            f.cluster.devices.item[0].jitter = part ? 0 : .1;
            f.cluster.devices.item[0].meeting = part ? .5 : 0;
            assert_ok(simulate(&uneven, f.program, f.ops, &f.cluster, &options, &error), &error);
            double more = uneven.seconds - even.seconds;
            // Weights' gradients are computed while the input's is reduced: ranks wait for less than all.
            double most = part ? .5 * meetings_within_layers(f.program[0]) : .1 * even.seconds;
            if (mesh == 0 ? more < .4 * most || more > most : more != 0)
                fail_msg("%s: %g of %g s", MESHES[mesh], more, even.seconds);
            assert_true(fabs(uneven.of_class[0].bubble - even.of_class[0].bubble - more) < 1e-9 * even.seconds);
            simulation_release(&uneven);
        }
        simulation_release(&even);
        close_fixture(&f);
    }
}

// What ZeRO-3 gathers and reduces goes over one link, and takes no less time than its bytes.
static void a_link_is_not_faster_than_itself(void **unused) {
    (void)unused;
    static const char SLOW[] = "devices:\n"
                               "  d:\n"
                               "    peak: {f32: 1 PFLOP/s}\n"
                               "    memory: 80 GB\n"
                               "    bandwidth: 1e5 GB/s\n"
                               "    efficiency: {other: {memory: 1, compute: 1}}\n"
                               "nodes: [{device: d, nodes: 4, devices: 1}]\n"
                               "links: [{name: l, spans: all, latency: 0 s, bandwidth: 0.1 GB/s}]\n";
    static const char *const SHARDED[] = {"model.preset=llama-5m",        "training.dtype=f32",
                                          "training.seq_len=64",          "training.micro_batch_size=1",
                                          "training.global_batch_size=4", "parallelism.data_parallel_shard_degree=4",
                                          "parallelism.zero_stage=3"};
    struct fixture f;
    open_fixture(&f, SLOW, SHARDED, ARRAY_LENGTH(SHARDED));
    struct simulation s;
    struct simulation_options options = {0};
    trireme_error error = {0};
    assert_ok(simulate(&s, f.program, f.ops, &f.cluster, &options, &error), &error);
    struct parameter_table whole;
    parameter_table_create(&whole, &f.model);
    // Backward has the last layer and the head from forward.
    const struct program *p = f.program[0];
    int64_t kept = buffer_count(&p->buffers.item[program_find(p, "layers.5.gathered")]) +
                   buffer_count(&p->buffers.item[program_find(p, "head.gathered")]);
    double bytes = .75 * 4 * (double)(3 * whole.total - kept), seconds = bytes / .1e9;
    parameter_table_release(&whole);
    if (s.seconds < .99 * seconds || s.seconds > 1.05 * seconds) // the last beside the first of the next template
        fail_msg("%g s for bytes that take %g s", s.seconds, seconds);
    simulation_release(&s);
    close_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pipelines_cost_what_their_schedule_does),
        cmocka_unit_test(ranks_that_are_alike_are_simulated_once),
        cmocka_unit_test(ranks_that_are_alike_have_no_bubble),
        cmocka_unit_test(a_slow_device_slows_all),
        cmocka_unit_test(ranks_wait_for_the_slowest),
        cmocka_unit_test(a_link_is_not_faster_than_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
