// What ranks are said to send one another in a step and in an outer step, against what a wire between them counts.
#include "support/checkpoint.h"
#include "support/fake_wire.h"
#include "support/test.h"

#include "comm/messages/messages.h"
#include "engine/outer_step.h"
#include "measure/synthetic.h"
#include "run/traffic.h"
#include "sim/exchanges.h"

#include <math.h>
#include <pthread.h>

enum { RANKS = 4, DEADLINE = 100, MESSAGE = 1 << 16 };

struct spread {
    const char *name;
    int locals; // ranks of a node
    const char *keys[5];
};

struct trial {
    struct config config;
    struct model_config model;
    pthread_barrier_t all;
    struct fake_wire_count before, after;
    int64_t most[AXIS_COUNT]; // as a run says it
    double by_axis[RANKS][AXIS_COUNT];
};

static void read_config(struct config *out, struct model_config *model, const struct spread *spread) {
    const char *keys[20] = {"model.family=llama",           "model.num_hidden_layers=4",   "model.hidden_size=64",
                            "model.num_attention_heads=4",  "model.vocab_size=512",        "training.seq_len=32",
                            "training.global_batch_size=4", "training.micro_batch_size=1", "run.directory=unused",
                            "training.threads=1",           "training.kernels=reference"};
    size_t n = 11;
    for (size_t i = 0; i < ARRAY_LENGTH(spread->keys) && spread->keys[i]; i++)
        keys[n++] = spread->keys[i];
    trireme_error error = {0};
    assert_ok(config_load(out, NULL, keys, n, &error), &error);
    assert_ok(synthetic_model(model, out, &error), &error);
}

static trireme_status traffic_step(struct engine *e, trireme_error *error) {
    struct engine_result result;
    TRY(engine_step(e, 1e-3, NULL, &result, error));
    if (e->stages->config->outer.method == CONFIG_OUTER_NONE)
        return TRIREME_OK;
    TRY(outer_step_begin(e, 0, 1, error));
    return outer_step_end(e, 0, error);
}

static trireme_status traffic_measure(struct trial *t, struct teammate *mate, struct engine *e,
                                      struct communicator *control, trireme_error *error) {
    struct traffic traffic = {0};
    int64_t most[AXIS_COUNT];
    TRY(traffic_create(&traffic, e, control, error));
    pthread_barrier_wait(&t->all);
    if (mate->rank == 0)
        t->before = fake_wire_so_far(mate);
    pthread_barrier_wait(&t->all);
    TRY(traffic_step(e, error));
    pthread_barrier_wait(&t->all);
    if (mate->rank == 0)
        t->after = fake_wire_so_far(mate);
    pthread_barrier_wait(&t->all);
    traffic_take(&traffic, e, most);
    for (size_t i = 0; i < e->programs.count; i++) {
        double sent[AXIS_COUNT];
        program_sends(&e->programs.item[i].compiled->program, sent);
        for (int a = 0; a < AXIS_COUNT; a++)
            t->by_axis[mate->rank][a] += sent[a];
    }
    if (mate->rank == 0)
        memcpy(t->most, most, sizeof most);
    traffic_take(&traffic, e, most);
    for (int a = 0; a < AXIS_COUNT; a++)
        if (most[a])
            teammate_wrong(mate, "the same step counts twice");
    traffic_release(&traffic);
    return TRIREME_OK;
}

static void traffic_rank(struct teammate *mate) {
    struct trial *t = mate->context;
    struct engine e;
    trireme_error error = {0};
    const struct member member = {.world = mate->world, .rank = mate->rank};
    struct communicator *control = teammate_open(mate);
    if (control &&
        !teammate_failed(mate, engine_create(&e, &t->config, &t->model, NULL, TRAIN_ALONE, &member, &error), &error)) {
        engine_initialise(&e, 1, NULL);
        engine_constants(&e);
        if (t->config.outer.method != CONFIG_OUTER_NONE)
            outer_step_start(&e, t->config.parallelism.island_degree);
        teammate_failed(mate, traffic_measure(t, mate, &e, control, &error), &error);
        engine_release(&e);
    }
    communicator_free(control);
}

static void check_spread(const struct spread *spread) {
    struct trial t = {.most = {0}};
    read_config(&t.config, &t.model, spread);
    pthread_barrier_init(&t.all, NULL, RANKS);
    fake_wire_run(RANKS, spread->locals, MESSAGE, DEADLINE, traffic_rank, &t);
    pthread_barrier_destroy(&t.all);
    config_release(&t.config);
    const double headers = (double)(t.after.messages - t.before.messages) * offsetof(struct header, data),
                 bytes = (double)(t.after.bytes - t.before.bytes);
    double said = 0;
    for (int a = 0; a < AXIS_COUNT; a++) {
        double most = 0;
        for (int r = 0; r < RANKS; r++) {
            said += t.by_axis[r][a];
            most = MAX(most, t.by_axis[r][a]);
        }
        assert_int_equal(t.most[a], llround(most));
    }
    print_message("%s: %.0f bytes said, %.0f counted, at most %.0f of them of headers\n", spread->name, said, bytes,
                  headers);
    // What comes with the headers goes whole to every rank.
    assert_true(bytes >= said && bytes - headers <= 1.01 * said);
}

static void test_wire_counts_what_is_said(void **state) {
    static const struct spread SPREADS[] = {
        {"replicas", 1, {"parallelism.data_parallel_replicate_degree=4"}},
        {"replicas on two nodes", 2, {"parallelism.data_parallel_replicate_degree=4"}},
        {"shards", 1, {"parallelism.data_parallel_shard_degree=4", "parallelism.zero_stage=3"}},
        {"shards and replicas",
         1,
         {"parallelism.data_parallel_shard_degree=2", "parallelism.data_parallel_replicate_degree=2"}},
        {"bf16", 1, {"parallelism.data_parallel_replicate_degree=4", "parallelism.reduce_dtype=bf16"}},
        {"tensor", 1, {"parallelism.tensor_parallel_degree=4"}},
        {"rows whole", 1, {"parallelism.tensor_parallel_degree=4", "parallelism.sequence_parallel=false"}},
        {"sequences", 1, {"parallelism.context_parallel_degree=4"}},
        {"ring", 1, {"parallelism.context_parallel_degree=4", "parallelism.context_parallel_method=ring"}},
        {"burst", 1, {"parallelism.context_parallel_degree=4", "parallelism.context_parallel_method=burst"}},
        {"tokenring", 1, {"parallelism.context_parallel_degree=4", "parallelism.context_parallel_method=tokenring"}},
        {"lightseq", 1, {"parallelism.context_parallel_degree=4", "parallelism.context_parallel_method=lightseq"}},
        {"stages", 1, {"parallelism.pipeline_parallel_degree=4"}},
        {"vocabulary", 1, {"parallelism.pipeline_parallel_degree=4", "parallelism.vocabulary_parallel=true"}},
        {"islands", 1, {"parallelism.island_degree=4", "outer.method=diloco"}},
        {"codes", 1, {"parallelism.island_degree=4", "outer.method=diloco", "outer.codec=int8"}},
        {"islands later",
         1,
         {"parallelism.island_degree=2", "parallelism.tensor_parallel_degree=2", "outer.method=local_sgd",
          "outer.delay_steps=1"}},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(SPREADS); i++)
        check_spread(&SPREADS[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_wire_counts_what_is_said)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
