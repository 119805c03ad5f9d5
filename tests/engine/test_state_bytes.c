// What a rank keeps between steps is what the closed forms say, at 16 bytes per parameter: f32 has 4 of parameter, 4 of
// gradient and 8 of moments, bf16 has 2, 4, 8 and a remainder of 2. With d shards (Rajbhandari et al., "ZeRO", 2020,
// section 5) zero 1 divides moments and remainder by d, zero 2 gradients too, zero 3 everything. Tensor ranks divide
// matrices, stages divide layers.
//
// Padding: every tensor to 64 elements, every unit (all tensors of a layer that are split alike) to 64 for each shard.
#include "support/checkpoint.h"

#include "engine/engine.h"

struct mesh_choice {
    int zero, shards, tp, pp; // zero 0: `shards` replicas
};

struct state_bytes {
    int64_t parameters, gradients, optimizer; // flat buffers
    int64_t others;                           // all else, as the arena has it
};

static void compile(struct engine *engine, struct config *config, const char *const *model_keys, const char *dtype,
                    struct mesh_choice mesh, int rank) {
    char *keys[6] = {
        mem_printf("training.dtype=%s", dtype),
        mem_printf("parallelism.data_parallel_%s_degree=%d", mesh.zero ? "shard" : "replicate", mesh.shards),
        mem_printf("parallelism.zero_stage=%d", mesh.zero),
        mem_printf("parallelism.tensor_parallel_degree=%d", mesh.tp),
        mem_printf("parallelism.pipeline_parallel_degree=%d", mesh.pp),
        mem_strdup("run.directory=unused"),
    };
    const char *all[32] = {"training.seq_len=16", "training.global_batch_size=32", "training.micro_batch_size=1"};
    size_t count = 3;
    for (size_t i = 0; i < ARRAY_LENGTH(keys); i++)
        all[count++] = keys[i];
    for (size_t i = 0; model_keys[i]; i++)
        all[count++] = model_keys[i];
    trireme_error error = {0};
    struct model_config model;
    assert_ok(config_load(config, NULL, all, count, &error), &error);
    assert_ok(model_config_resolve(&model, config, NO_TOKENS, &error), &error);
    assert_ok(engine_compile(engine, config, &model, NULL, TRAIN_AND_EVALUATE, rank, &error), &error);
    for (size_t i = 0; i < ARRAY_LENGTH(keys); i++)
        free(keys[i]);
}

static struct state_bytes measure(const struct program *p) {
    struct state_bytes sum = {0};
    for (size_t i = 0; i < p->buffers.count; i++) {
        const struct buffer *b = &p->buffers.item[i];
        if (b->scope != SCOPE_STATE || b->parent != NONE)
            continue;
        if (text_ends(b->name, ".parameters"))
            sum.parameters += buffer_bytes(b);
        else if (text_ends(b->name, ".gradients"))
            sum.gradients += buffer_bytes(b);
        else if (text_ends(b->name, ".m") || text_ends(b->name, ".v") || text_ends(b->name, ".remainder"))
            sum.optimizer += buffer_bytes(b);
        else
            sum.others += align_up(buffer_bytes(b));
    }
    assert_int_equal(p->arena[SPACE_DEVICE].state_bytes, sum.parameters + sum.gradients + sum.optimizer + sum.others);
    return sum;
}

// The closed forms, for the `n` parameters that the rank has by its tensor and pipeline coordinates.
static struct state_bytes expected(int64_t n, const char *dtype, struct mesh_choice mesh) {
    int64_t size = strcmp(dtype, "bf16") == 0 ? 2 : 4, d = mesh.shards;
    struct state_bytes bytes = {size * n, 4 * n, (12 - size) * n, 0};
    if (mesh.zero >= 1)
        bytes.optimizer /= d;
    if (mesh.zero >= 2)
        bytes.gradients /= d;
    if (mesh.zero >= 3)
        bytes.parameters /= d;
    return bytes;
}

static void assert_bytes(struct state_bytes found, struct state_bytes want, const char *dtype, struct mesh_choice mesh,
                         int rank) {
    if (found.parameters != want.parameters || found.gradients != want.gradients || found.optimizer != want.optimizer)
        fail_msg("%s, zero %d of %d, tp %d, pp %d, rank %d: parameters %lld (expected %lld), gradients %lld (%lld), "
                 "optimizer %lld (%lld)",
                 dtype, mesh.zero, mesh.shards, mesh.tp, mesh.pp, rank, (long long)found.parameters,
                 (long long)want.parameters, (long long)found.gradients, (long long)want.gradients,
                 (long long)found.optimizer, (long long)want.optimizer);
}

static const struct mesh_choice MESHES[] = {
    {0, 1, 1, 1}, {0, 4, 1, 1}, {1, 4, 1, 1}, {2, 4, 1, 1}, {3, 4, 1, 1}, {1, 2, 1, 1}, {2, 2, 1, 1}, {3, 2, 1, 1},
    {0, 1, 2, 1}, {0, 1, 4, 1}, {0, 1, 1, 2}, {0, 1, 1, 4}, {0, 2, 2, 2}, {1, 2, 2, 2}, {2, 4, 4, 1}, {3, 4, 2, 4},
};
static const char *const DTYPES[] = {"f32", "bf16"};

// ---- nothing to pad

enum { LAYERS = 4, WIDTH = 256, HEADS = 8, KV_HEADS = 4, HEAD = 32, INNER = 512, VOCAB = 512 };

static const char *const EVEN[] = {"model.family=llama",
                                   "model.num_hidden_layers=4",
                                   "model.hidden_size=256",
                                   "model.num_attention_heads=8",
                                   "model.num_key_value_heads=4",
                                   "model.head_dim=32",
                                   "model.intermediate_size=512",
                                   "model.vocab_size=512",
                                   "model.tie_word_embeddings=false",
                                   NULL};

// How many parameters a rank of a stage has. Norms are whole on every tensor rank.
static int64_t even_parameters(struct mesh_choice mesh, int stage) {
    int64_t attention = WIDTH * HEAD * (2 * HEADS + 2 * KV_HEADS), mlp = 3 * (int64_t)WIDTH * INNER;
    int64_t n = LAYERS / mesh.pp * ((attention + mlp) / mesh.tp + 2 * WIDTH);
    if (stage == 0)
        n += VOCAB / mesh.tp * WIDTH;
    if (stage == mesh.pp - 1)
        n += VOCAB / mesh.tp * WIDTH + WIDTH;
    return n;
}

static void test_even(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(MESHES); i++)
        for (size_t d = 0; d < ARRAY_LENGTH(DTYPES); d++)
            for (int stage = 0; stage < MESHES[i].pp; stage++) {
                struct mesh_choice mesh = MESHES[i];
                int rank = (stage + 1) * mesh.shards * mesh.tp - 1; // the last of the stage's
                struct engine engine;
                struct config config;
                compile(&engine, &config, EVEN, DTYPES[d], mesh, rank);
                struct state_bytes found = measure(&engine_compiled(&engine, PROGRAM_TRAIN)->program);
                assert_bytes(found, expected(even_parameters(mesh, stage), DTYPES[d], mesh), DTYPES[d], mesh, rank);
                // The rotary table in f32, and a line of the cache for each of: updates done, how much of a unit
                // decays, the first row of a split vocabulary or of an embedding in parts.
                int lines = 1 + engine_compiled(&engine, PROGRAM_TRAIN)->model.units + (mesh.tp > 1) +
                            (engine.parallel->split.row_ranks > 1);
                assert_int_equal(found.others, 16 * HEAD * 4 + lines * BUFFER_ALIGNMENT);
                engine_release(&engine);
                config_release(&config);
            }
}

// 16 bytes per parameter, whatever the dtype, on one rank and divided by zero 3.
static void test_sixteen(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(MESHES); i++)
        for (size_t d = 0; d < ARRAY_LENGTH(DTYPES); d++) {
            if (MESHES[i].zero != 0 && MESHES[i].zero != 3)
                continue;
            struct engine engine;
            struct config config;
            compile(&engine, &config, EVEN, DTYPES[d], MESHES[i], 0);
            struct state_bytes found = measure(&engine_compiled(&engine, PROGRAM_TRAIN)->program);
            int64_t shards = MESHES[i].zero ? MESHES[i].shards : 1;
            assert_int_equal((found.parameters + found.gradients + found.optimizer) * shards,
                             16 * even_parameters(MESHES[i], 0));
            engine_release(&engine);
            config_release(&config);
        }
}

// ---- what is padded

static const char *const UNEVEN[] = {"model.family=gpt2",           "model.num_hidden_layers=5", "model.hidden_size=35",
                                     "model.num_attention_heads=5", "model.vocab_size=101",      NULL};

static int64_t up(int64_t n, int64_t by) {
    return (n + by - 1) / by * by;
}

static void test_uneven(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(MESHES); i++)
        for (size_t d = 0; d < ARRAY_LENGTH(DTYPES); d++)
            for (int stage = 0; stage < MESHES[i].pp; stage++) {
                struct mesh_choice mesh = MESHES[i];
                int rank = stage * mesh.shards * mesh.tp;
                int64_t shards = mesh.zero ? mesh.shards : 1;
                struct engine engine;
                struct config config;
                compile(&engine, &config, UNEVEN, DTYPES[d], mesh, rank);
                int64_t padded = 0, least = 0;
                for (size_t u = 0; u < engine.local.units.count; u++) {
                    int64_t unit = 0;
                    for (size_t k = 0; k < engine.local.parameters.count; k++) {
                        const struct parameter *p = &engine.local.parameters.item[k];
                        int64_t elements = p->unit == (int)u ? parameter_count(p) : 0;
                        least += elements;
                        unit += up(elements, PARAMETER_ALIGNMENT);
                    }
                    padded += up(unit, PARAMETER_ALIGNMENT * shards);
                }
                struct state_bytes found = measure(&engine_compiled(&engine, PROGRAM_TRAIN)->program);
                assert_bytes(found, expected(padded, DTYPES[d], mesh), DTYPES[d], mesh, rank);
                assert_true(padded > least);
                assert_true(padded < least + 64 * (int64_t)engine.local.parameters.count +
                                         64 * shards * (int64_t)engine.local.units.count);
                engine_release(&engine);
                config_release(&config);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_even), cmocka_unit_test(test_sixteen),
                                       cmocka_unit_test(test_uneven)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
