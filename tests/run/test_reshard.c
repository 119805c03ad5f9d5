// Checkpoints of one mesh continue on another: files are the same on every mesh, a run that changes its mesh trains as
// one rank does, and a run that keeps its mesh keeps every bit.
#include "support/mesh_keys.h"
#include "support/runs.h"

#include "ckpt/tree.h"
#include "launch/ranks.h"
#include "run/checkpoint.h"

#include <math.h>
#include <sys/stat.h>

enum { STEPS = 6, STOP_AT = 3 };

#define LLAMA RUNS_LLAMA, "model.tie_word_embeddings=false", "training.max_norm=0.5"
// A model in which nothing divides: heads, columns of the MLP, layers.
#define GPT2                                                                                                          \
    "model.family=gpt2", "model.num_hidden_layers=3", "model.hidden_size=30", "model.num_attention_heads=3",          \
        "model.intermediate_size=50", "model.vocab_size=261", "training.seq_len=24", "training.global_batch_size=12", \
        "training.micro_batch_size=1", "optimizer.lr=1e-2", "training.max_norm=0.5"
#define COMMON "training.threads=1", "training.steps=6"
#define EXACT "training.dtype=f64", "training.kernels=reference"

#define PLAIN "parallelism.sequence_parallel=false"

struct mesh_choice {
    const char *name, *key[6];
};

static const struct mesh_choice MESHES[] = {
    {"one", {NULL}},
    {"dp 2", {DP "2"}},
    {"zero-1 over 2", {FSDP "2", ZERO "1"}},
    {"zero-2 over 2", {FSDP "2", ZERO "2"}},
    {"zero-3 over 2", {FSDP "2"}},
    {"zero-3 over 4", {FSDP "4"}},
    {"zero-3 over 2, units of 2 layers", {FSDP "2", UNIT "2"}},
    {"zero-1 over 2 x tp 2, units of half layers", {FSDP "2", ZERO "1", TP "2", UNIT "0"}},
    {"tp 2", {TP "2"}},
    {"tp 3 without sequence parallel", {TP "3", PLAIN}},
    {"tp 4", {TP "4"}},
    {"pp 2", {PP "2"}},
    {"pp 3", {PP "3"}},
    {"tp 2 x pp 2, vocabulary spread", {TP "2", PP "2", "parallelism.vocabulary_parallel=true"}},
    {"dp 2 x tp 2 x pp 2", {DP "2", TP "2", PP "2"}},
    {"zero-3 over 2 x tp 2 x pp 2", {FSDP "2", TP "2", PP "2"}},
    {"dp 2 x zero-1 over 3", {DP "2", FSDP "3", ZERO "1"}},
    {"cp 2", {CP "2", ZERO "0"}},
    {"zero-3 over cp 2", {CP "2"}},
    {"zero-1 over cp 3 x 2", {CP "3", FSDP "2", ZERO "1"}},
    {"zero-3 over cp 2 x 2, tp 2", {CP "2", FSDP "2", TP "2"}},
    {"cp 2 x pp 2", {CP "2", PP "2", ZERO "0"}},
    {"zero-2 over 2 x tp 4", {FSDP "2", ZERO "2", TP "4"}},
};

static const char *const *mesh(const char *name) {
    for (size_t i = 0; i < ARRAY_LENGTH(MESHES); i++)
        if (strcmp(MESHES[i].name, name) == 0)
            return MESHES[i].key;
    fail_msg("no mesh %s", name);
    return NULL;
}

// ---- continuing

static void move(const char *folder, const char *to) {
    assert_int_equal(tree_remove(path_in(folder, to), NULL), TRIREME_OK);
    assert_int_equal(rename(path_in(folder, "run"), path_in(folder, to)), 0);
}

// The largest max|a - b| / max(max|b|, floor) over the tensors of two files.
static double apart(const char *a, const char *b, double floor) {
    struct safetensors *x, *y;
    trireme_error error = {0};
    double worst = 0;
    assert_ok(safetensors_open(a, &x, &error), &error);
    assert_ok(safetensors_open(b, &y, &error), &error);
    assert_int_equal(x->tensor.count, y->tensor.count);
    for (size_t i = 0; i < x->tensor.count; i++) {
        const struct safetensors_tensor *t = &x->tensor.item[i], *u = &y->tensor.item[i];
        assert_string_equal(t->name, u->name);
        assert_int_equal(t->bytes, u->bytes);
        assert_int_equal(t->dtype, SAFETENSORS_F64);
        double largest = floor, difference = 0;
        for (uint64_t k = 0; k < t->bytes / sizeof(double); k++) {
            double p, q;
            memcpy(&p, (const char *)t->data + k * sizeof p, sizeof p);
            memcpy(&q, (const char *)u->data + k * sizeof q, sizeof q);
            largest = fmax(largest, fabs(q));
            difference = farther(difference, fabs(p - q));
        }
        worst = farther(worst, difference / largest);
    }
    safetensors_close(x);
    safetensors_close(y);
    return worst;
}

static void check_change(const char *folder, const char *const *model, const char *first, const char *second) {
    runs_train_until(folder, model, mesh(first), STOP_AT);
    assert_int_equal(runs_train_until(folder, model, mesh(second), 0), STOP_AT + 1);
    double difference = apart(path_in(folder, "run/checkpoint/step-6/model.safetensors"),
                              path_in(folder, "straight/checkpoint/step-6/model.safetensors"), 1e-2);
    if (!(difference <= 1e-9))
        fail_msg("%s, then %s: %g away from one rank", first, second, difference);
    move(folder, "done");
}

static void a_llama_changes_its_mesh(void **state) {
    static const char *const MODEL[] = {LLAMA, COMMON, EXACT, NULL};
    runs_prepare(*state);
    runs_train_until(*state, MODEL, NULL, 0);
    move(*state, "straight");
    check_change(*state, MODEL, "one", "dp 2");
    check_change(*state, MODEL, "dp 2", "tp 4");
    check_change(*state, MODEL, "tp 4", "zero-3 over 2");
    check_change(*state, MODEL, "zero-3 over 2", "tp 2");
    check_change(*state, MODEL, "zero-3 over 2 x tp 2 x pp 2", "one");
    check_change(*state, MODEL, "zero-3 over 2, units of 2 layers", "zero-1 over 2 x tp 2, units of half layers");
    check_change(*state, MODEL, "zero-1 over 2 x tp 2, units of half layers", "zero-3 over 2");
    check_change(*state, MODEL, "zero-3 over 2", "cp 2");
    check_change(*state, MODEL, "cp 2", "zero-3 over cp 2 x 2, tp 2");
    check_change(*state, MODEL, "zero-3 over cp 2 x 2, tp 2", "cp 2 x pp 2");
}

static void a_gpt2_changes_its_mesh(void **state) {
    static const char *const MODEL[] = {GPT2, COMMON, EXACT, NULL};
    runs_prepare(*state);
    runs_train_until(*state, MODEL, NULL, 0);
    move(*state, "straight");
    check_change(*state, MODEL, "pp 3", "zero-2 over 2");
    check_change(*state, MODEL, "zero-1 over 2", "pp 2");
    check_change(*state, MODEL, "tp 3 without sequence parallel", "dp 2 x zero-1 over 3");
    check_change(*state, MODEL, "dp 2 x tp 2 x pp 2", "pp 3");
    check_change(*state, MODEL, "zero-1 over cp 3 x 2", "zero-3 over cp 2");
}

// Matrices have a momentum of their own, and all else has the states of AdamW.
static void matrices_change_their_mesh(void **state) {
    static const char *const MODEL[] = {LLAMA, COMMON, EXACT, "optimizer.name=muon", NULL};
    runs_prepare(*state);
    runs_train_until(*state, MODEL, NULL, 0);
    move(*state, "straight");
    check_change(*state, MODEL, "zero-3 over 2", "tp 4");
    check_change(*state, MODEL, "zero-1 over 2 x tp 2, units of half layers", "one");
    check_change(*state, MODEL, "zero-3 over cp 2 x 2, tp 2", "zero-3 over 2 x tp 2 x pp 2");
    check_change(*state, MODEL, "one", "zero-2 over 2 x tp 4");
}

static void check_same_mesh(const char *folder, const char *const *model, const char *name) {
    static const char *const FILES[] = {"model.safetensors", "training/state.safetensors", "config.json"};
    runs_train_until(folder, model, mesh(name), 0);
    move(folder, "straight");
    runs_train_until(folder, model, mesh(name), STOP_AT);
    assert_int_equal(runs_train_until(folder, model, mesh(name), 0), STOP_AT + 1);
    for (size_t i = 0; i < ARRAY_LENGTH(FILES); i++)
        assert_same_file(folder, "straight/checkpoint/step-6", "run/checkpoint/step-6", FILES[i]);
    move(folder, "done");
}

static void the_same_mesh_keeps_every_bit(void **state) {
    static const char *const F32[] = {LLAMA, COMMON, "training.dtype=f32", NULL};
    static const char *const BF16[] = {GPT2, COMMON, "training.dtype=bf16", NULL};
    static const char *const MUON[] = {LLAMA, COMMON, "training.dtype=bf16", "optimizer.name=muon", NULL};
    runs_prepare(*state);
    check_same_mesh(*state, F32, "zero-3 over 2 x tp 2 x pp 2");
    check_same_mesh(*state, F32, "tp 4");
    check_same_mesh(*state, F32, "zero-3 over cp 2 x 2, tp 2");
    check_same_mesh(*state, BF16, "zero-1 over 2");
    check_same_mesh(*state, MUON, "zero-3 over 2 x tp 2 x pp 2");
    check_same_mesh(*state, MUON, "tp 4");
    check_same_mesh(*state, BF16, "dp 2 x tp 2 x pp 2");
}

// ---- narrow gradients

// test_meshes.c checks that gradients that travel as bf16 are near enough; this checks that they do travel so.
static void narrow_gradients_are_others(void **state) {
    static const char *const WIDE[] = {LLAMA, COMMON, "training.dtype=f32", NULL};
    static const char *const NARROW[] = {LLAMA, COMMON, "training.dtype=f32", "parallelism.reduce_dtype=bf16", NULL};
    static const char *const NAMES[] = {"dp 2", "zero-2 over 2"};
    runs_prepare(*state);
    for (size_t i = 0; i < ARRAY_LENGTH(NAMES); i++) {
        char *wide, *narrow;
        size_t length, same;
        trireme_error error = {0};
        runs_train_until(*state, WIDE, mesh(NAMES[i]), 1);
        move(*state, "straight");
        runs_train_until(*state, NARROW, mesh(NAMES[i]), 1);
        const char *file = path_in(*state, "straight/checkpoint/step-1/model.safetensors");
        assert_ok(file_read(file, 1 << 24, &wide, &length, &error), &error);
        file = path_in(*state, "run/checkpoint/step-1/model.safetensors");
        assert_ok(file_read(file, 1 << 24, &narrow, &same, &error), &error);
        assert_int_equal(length, same);
        assert_memory_not_equal(wide, narrow, length);
        free(wide);
        free(narrow);
        move(*state, "done");
    }
}

// ---- files

struct copying {
    const char *from, *to;
    const char *const *model, *const *mesh;
    int64_t read[8]; // bytes that each rank has read while it loaded; -1 where the system does not say
};

// Loads a checkpoint on one rank of a mesh and saves it again.
static trireme_status copy(void *user, const struct member *member, trireme_error *error) {
    struct copying *c = user;
    const char *all[40];
    size_t count = 0;
    for (const char *const *p = c->model; *p; p++)
        all[count++] = *p;
    for (const char *const *p = c->mesh; *p; p++)
        all[count++] = *p;
    struct config config;
    struct model_config model;
    struct engine engine;
    struct state_progress progress;
    TRY(config_load(&config, NULL, all, count, error));
    TRY(model_config_read(&model, c->from, error));
    TRY(state_files_progress(c->from, &progress, error));
    TRY(engine_create(&engine, &config, &model, NULL, TRAIN_AND_EVALUATE, member, error));
    const int64_t before = thread_bytes_read();
    TRY(checkpoint_load(&engine, NULL, c->from, &progress, error));
    c->read[member ? member->rank : 0] = before < 0 ? -1 : thread_bytes_read() - before;
    struct communicator *control;
    const struct tokenizer_files none = {0};
    TRY(ranks_control(&control, member, mesh_ranks(&engine.parallel->mesh), error));
    TRY(checkpoint_save(&engine, &none, c->to, &progress, error));
    communicator_free(control);
    engine_release(&engine);
    state_progress_release(&progress);
    config_release(&config);
    return TRIREME_OK;
}

static int ranks_of(const char *const *mesh_keys) {
    int ranks = 1;
    for (; *mesh_keys; mesh_keys++)
        if (strstr(*mesh_keys, "degree="))
            ranks *= atoi(strstr(*mesh_keys, "degree=") + strlen("degree="));
    return ranks;
}

static void check_files(const char *folder, const char *const *model, const char *const *meshes) {
    static const char *const FILES[] = {"model.safetensors", "training/state.safetensors", "config.json"};
    runs_train_until(folder, model, NULL, STOP_AT);
    const char *from = path_in(folder, "run/checkpoint/step-3");
    for (; *meshes; meshes++) {
        struct copying c = {.from = from, .to = path_in(folder, "copy"), .model = model, .mesh = mesh(*meshes)};
        trireme_error error = {0};
        int ranks = ranks_of(c.mesh);
        assert_ok(ranks_run(ranks, 30, copy, &c, &error), &error);
        for (size_t i = 0; i < ARRAY_LENGTH(FILES); i++)
            assert_same_file(folder, "copy/checkpoint/step-3", "run/checkpoint/step-3", FILES[i]);
        assert_int_equal(tree_remove(c.to, NULL), TRIREME_OK);
    }
    move(folder, "done");
}

static void files_are_the_same_on_every_mesh(void **state) {
    static const char *const LLAMA_MODEL[] = {LLAMA, COMMON, "training.dtype=bf16", "training.kernels=reference", NULL};
    static const char *const LLAMA_MESHES[] = {"one",
                                               "zero-1 over 2",
                                               "zero-3 over 2",
                                               "zero-3 over 2, units of 2 layers",
                                               "tp 4",
                                               "pp 2",
                                               "zero-3 over 2 x tp 2 x pp 2",
                                               "zero-3 over cp 2",
                                               "zero-3 over cp 2 x 2, tp 2",
                                               NULL};
    static const char *const GPT2_MODEL[] = {GPT2, COMMON, "training.dtype=bf16", "training.kernels=reference", NULL};
    static const char *const GPT2_MESHES[] = {"dp 2", "zero-2 over 2",      "tp 3 without sequence parallel",
                                              "pp 3", "dp 2 x tp 2 x pp 2", NULL};
    runs_prepare(*state);
    check_files(*state, LLAMA_MODEL, LLAMA_MESHES);
    check_files(*state, GPT2_MODEL, GPT2_MESHES);
}

// Ranks whose states are sharded read all of a checkpoint once between them, and not each all of it.
static void ranks_read_what_they_have(void **state) {
    static const char *const MODEL[] = {LLAMA,
                                        COMMON,
                                        "model.hidden_size=128",
                                        "training.dtype=f32",
                                        "training.global_batch_size=8",
                                        "training.kernels=reference",
                                        NULL};
    static const struct {
        const char *mesh;
        double times; // that all bytes are read
    } CASES[] = {{"one", 1}, {"zero-3 over 2", 1}, {"zero-3 over 4", 1}, {"dp 2", 2}, {"pp 2", 1}};
    runs_prepare(*state);
    runs_train_until(*state, MODEL, NULL, STOP_AT);
    const char *from = path_in(*state, "run/checkpoint/step-3");
    struct stat weights, states;
    assert_int_equal(stat(path_in(from, "model.safetensors"), &weights), 0);
    assert_int_equal(stat(path_in(from, "training/state.safetensors"), &states), 0);
    const double bytes = (double)(weights.st_size + states.st_size);
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        struct copying c = {.from = from, .to = path_in(*state, "copy"), .model = MODEL, .mesh = mesh(CASES[i].mesh)};
        const int ranks = ranks_of(c.mesh);
        double all = 0;
        trireme_error error = {0};
        assert_ok(ranks_run(ranks, 30, copy, &c, &error), &error);
        assert_int_equal(tree_remove(c.to, NULL), TRIREME_OK);
        for (int r = 0; r < ranks; r++) {
            if (c.read[r] < 0)
                skip();
            all += (double)c.read[r];
        }
        if (!(all >= 0.95 * CASES[i].times * bytes && all <= 1.1 * CASES[i].times * bytes))
            fail_msg("%s: %g bytes are read of %g", CASES[i].mesh, all, bytes);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(files_are_the_same_on_every_mesh), IN_FOLDER(a_llama_changes_its_mesh),
        IN_FOLDER(a_gpt2_changes_its_mesh),          IN_FOLDER(matrices_change_their_mesh),
        IN_FOLDER(the_same_mesh_keeps_every_bit),    IN_FOLDER(narrow_gradients_are_others),
        IN_FOLDER(ranks_read_what_they_have),
    };
    return cmocka_run_group_tests_name("reshard", tests, NULL, NULL);
}
