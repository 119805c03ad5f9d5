// Layers of a pipeline's stages: no layout gives the busiest rank less to do than "auto".
#include "parallel/layout.h"
#include "parallel/parallel.h"
#include "support/checkpoint.h"

#include <math.h>

struct setting {
    int stages, layers, vocab_size;
    const char *schedule, *mode;
};

static void resolve(struct parallel *out, const struct setting *s, const char *layout) {
    char *text[] = {mem_printf("parallelism.pipeline_parallel_degree=%d", s->stages),
                    mem_printf("parallelism.pipeline_parallel_layout=%s", layout),
                    mem_printf("parallelism.pipeline_parallel_schedule=%s", s->schedule),
                    mem_printf("activation_checkpoint.mode=%s", s->mode),
                    mem_strdup("training.global_batch_size=8"),
                    mem_strdup("training.micro_batch_size=1"),
                    mem_strdup("training.seq_len=64")};
    struct config config;
    trireme_error error = {0};
    assert_ok(config_load(&config, NULL, (const char *const *)text, ARRAY_LENGTH(text), &error), &error);
    char *json =
        mem_printf("{\"architectures\": [\"GPT2LMHeadModel\"], \"n_layer\": %d, \"n_embd\": 32, \"n_head\": 2, "
                   "\"n_positions\": 64, \"vocab_size\": %d}",
                   s->layers, s->vocab_size);
    struct model_config model;
    assert_ok(model_config_parse(&model, json, strlen(json), "a model", &error), &error);
    assert_ok(parallel_resolve(out, &config, &model, &error), &error);
    config_release(&config);
    free(json);
    for (size_t i = 0; i < ARRAY_LENGTH(text); i++)
        free(text[i]);
}

// In layers: of width 32 one has 12 x 32 x 32 weights and, at 64 tokens, 64 x 32 multiplications with other tokens, the
// head 32 for each word.
static double head_of(const struct setting *s) {
    double layer = 6.0 * 12 * 32 * 32 + 12.0 * 32 * 64;
    return 6.0 * 32 * s->vocab_size / layer / (strcmp(s->mode, "full") == 0 ? 4.0 / 3 : 1);
}

static double busiest(const struct parallel *p, const int *first, double head) {
    double most = 0;
    const struct schedule *s = p->schedule;
    for (int r = 0; r < s->stages; r++) {
        double work = s->place[s->stages * s->chunks - 1].rank == r ? head : 0;
        for (int c = 0; c < s->chunks; c++) {
            int v = s->virtual_stage[r * s->chunks + c];
            work += first[v + 1] - first[v];
        }
        most = work > most ? work : most;
    }
    return most;
}

// The least work that the busiest rank can have, by trying all layouts from virtual stage `v` on.
static double best(const struct parallel *p, int *first, int v, int layers, double head) {
    int stages = p->schedule->stages * p->schedule->chunks;
    if (v == stages - 1) {
        first[stages] = layers;
        return busiest(p, first, head);
    }
    double least = 1e9;
    for (first[v + 1] = first[v] + 1; first[v + 1] <= layers - (stages - 1 - v); first[v + 1]++) {
        double one = best(p, first, v + 1, layers, head);
        least = one < least ? one : least;
    }
    return least;
}

static void check(const struct setting *s) {
    struct parallel p;
    resolve(&p, s, "auto");
    int first[32] = {0}, stages = p.schedule->stages * p.schedule->chunks;
    double got = busiest(&p, p.first_layer, head_of(s)), least = best(&p, first, 0, s->layers, head_of(s));
    if (got > least * (1 + 1e-9))
        fail_msg("%d stages, %d layers, vocabulary %d: %g layers on the busiest rank, possible are %g", s->stages,
                 s->layers, s->vocab_size, got, least);
    assert_int_equal(p.first_layer[stages], s->layers);
    for (int v = 0; v < stages; v++)
        assert_true(p.first_layer[v] < p.first_layer[v + 1]);
    parallel_release(&p);
}

static void auto_is_best(void **unused) {
    (void)unused;
    static const char *const MODES[] = {"none", "full"};
    for (int stages = 2; stages <= 4; stages++)
        for (int layers = stages; layers <= 9; layers += 1 + layers / 6)
            for (int vocab = 50; vocab < 20000; vocab = vocab * 5 + 3)
                for (int m = 0; m < 2; m++)
                    check(&(struct setting){stages, layers, vocab, "1f1b", MODES[m]});
}

// ---- unlike layers

enum { UNLIKE_LAYERS = 9 };

// A model of which the layers in `sliding` have a window so small that they take much less time.
static void unlike_model(struct model_config *out, int layers, unsigned sliding) {
    struct text json = {0};
    trireme_error error = {0};
    text_add(&json,
             "{\"architectures\": [\"MinistralForCausalLM\"], \"num_hidden_layers\": %d, \"hidden_size\": 16, "
             "\"intermediate_size\": 16, \"num_attention_heads\": 2, \"num_key_value_heads\": 2, \"vocab_size\": 50, "
             "\"max_position_embeddings\": 64, \"sliding_window\": 1, \"layer_types\": [",
             layers);
    for (int i = 0; i < layers; i++)
        text_add(&json, "%s\"%s\"", i ? ", " : "", sliding >> i & 1 ? "sliding_attention" : "full_attention");
    text_add(&json, "]}");
    assert_ok(model_config_parse(out, json.text, json.length, "a model", &error), &error);
    text_release(&json);
}

// Floating-point operations of the busiest stage, one to a rank.
static double busiest_unlike(const struct model_config *model, const int *first, int stages) {
    double most = 0;
    for (int v = 0; v < stages; v++) {
        double work = v == stages - 1 ? model_flops(model, 1, 64) - model_layers_flops(model, 1, 64) : 0;
        for (int i = first[v]; i < first[v + 1]; i++)
            work += model_layer_flops(model, i, 64);
        most = fmax(most, work);
    }
    return most;
}

static double best_unlike(const struct model_config *model, int *first, int v, int stages) {
    if (v == stages - 1)
        return busiest_unlike(model, first, stages);
    double least = INFINITY;
    for (first[v + 1] = first[v] + 1; first[v + 1] <= UNLIKE_LAYERS - (stages - 1 - v); first[v + 1]++)
        least = fmin(least, best_unlike(model, first, v + 1, stages));
    return least;
}

// Where some layers take longer than others, it is their time that is balanced.
static void auto_knows_unlike_layers(void **unused) {
    (void)unused;
    for (int stages = 2; stages <= 4; stages++)
        for (unsigned sliding = 1; sliding < (1u << UNLIKE_LAYERS) - 1; sliding += 5) {
            struct model_config model;
            struct config config;
            struct parallel p;
            trireme_error error = {0};
            char *degree = mem_printf("parallelism.pipeline_parallel_degree=%d", stages);
            const char *text[] = {degree, "parallelism.pipeline_parallel_layout=auto", "training.global_batch_size=8",
                                  "training.micro_batch_size=1", "training.seq_len=64"};
            unlike_model(&model, UNLIKE_LAYERS, sliding);
            assert_ok(config_load(&config, NULL, text, ARRAY_LENGTH(text), &error), &error);
            assert_ok(parallel_resolve(&p, &config, &model, &error), &error);
            int first[8] = {[0] = 0};
            first[stages] = UNLIKE_LAYERS;
            double got = busiest_unlike(&model, p.first_layer, stages), least = best_unlike(&model, first, 0, stages);
            if (got > least * (1 + 1e-9))
                fail_msg("%d stages, layers %#x: %g, possible are %g", stages, sliding, got, least);
            parallel_release(&p);
            config_release(&config);
            free(degree);
        }
}

static void said_is_done(void **unused) {
    (void)unused;
    static const struct setting S = {3, 8, 50, "gpipe", "none"};
    static const int EVEN[] = {0, 3, 6, 8}, OWN[] = {0, 1, 6, 8};
    struct parallel p;
    resolve(&p, &S, "");
    assert_memory_equal(p.first_layer, EVEN, sizeof EVEN);
    parallel_release(&p);
    resolve(&p, &S, "1,5,2");
    assert_memory_equal(p.first_layer, OWN, sizeof OWN);
    parallel_release(&p);
}

// Two layers at a time, from each stage's first one on. No other stage's layers are among them.
static void units_begin_with_their_stage(void **unused) {
    (void)unused;
    static const struct setting S = {3, 8, 50, "gpipe", "none"};
    static const int JOINED[3][10] = {{0, 1, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE},
                                      {NONE, NONE, 2, 2, 4, 4, 6, NONE, NONE, NONE},
                                      {NONE, NONE, NONE, NONE, NONE, NONE, NONE, 7, 7, 9}};
    struct parallel p;
    resolve(&p, &S, "1,5,2");
    p.unit_layers = 2;
    for (p.stage = 0; p.stage < 3; p.stage++) {
        int *joined = parallel_joined(&p, 10);
        assert_memory_equal(joined, JOINED[p.stage], sizeof JOINED[0]);
        free(joined);
    }
    parallel_release(&p);
}

// ---- layers that are computed again

static trireme_status resolve_modes(struct parallel *out, const char *layout, const char *mode, const char *full,
                                    const char *selective, trireme_error *error) {
    char *text[] = {mem_printf("parallelism.pipeline_parallel_layout=%s", layout),
                    mem_printf("activation_checkpoint.mode=%s", mode),
                    mem_printf("activation_checkpoint.full_layers=%s", full),
                    mem_printf("activation_checkpoint.selective_layers=%s", selective)};
    const char *all[] = {text[0],
                         text[1],
                         text[2],
                         text[3],
                         "parallelism.pipeline_parallel_degree=3",
                         "training.global_batch_size=8",
                         "training.micro_batch_size=1",
                         "training.seq_len=64",
                         "model.family=gpt2",
                         "model.num_hidden_layers=10",
                         "model.hidden_size=32",
                         "model.num_attention_heads=2",
                         "model.vocab_size=50"};
    struct config config;
    struct model_config model;
    assert_ok(config_load(&config, NULL, all, ARRAY_LENGTH(all), error), error);
    assert_ok(model_config_resolve(&model, &config, NO_TOKENS, error), error);
    trireme_status status = parallel_resolve(out, &config, &model, error);
    config_release(&config);
    for (size_t i = 0; i < ARRAY_LENGTH(text); i++)
        free(text[i]);
    return status;
}

static void modes_of_layers(void **unused) {
    (void)unused;
    static const int FULL[] = {4, 0, 1}, SELECTIVE[] = {0, 3, 2}, CAPPED[] = {3, 3, 2}, LEFT[] = {1, 0, 0};
    struct parallel p;
    trireme_error error = {0};
    assert_ok(resolve_modes(&p, "4,3,3", "none", "4,0,1", "0,3,2", &error), &error);
    assert_memory_equal(p.full_layers, FULL, sizeof FULL);
    assert_memory_equal(p.selective_layers, SELECTIVE, sizeof SELECTIVE);
    struct parallel copy = parallel_copy(&p);
    assert_memory_equal(copy.full_layers, FULL, sizeof FULL);
    parallel_release(&copy);
    parallel_release(&p);
    assert_ok(resolve_modes(&p, "5,3,2", "selective", "3", "", &error), &error);
    assert_memory_equal(p.full_layers, CAPPED, sizeof CAPPED);
    assert_null(p.selective_layers);
    parallel_release(&p);
    assert_ok(resolve_modes(&p, "4,3,3", "none", "3", "1", &error), &error);
    assert_memory_equal(p.selective_layers, LEFT, sizeof LEFT);
    parallel_release(&p);
    // A stage whose layers take longer gets fewer.
    assert_ok(resolve_modes(&p, "auto", "none", "", "", &error), &error);
    assert_int_equal(p.first_layer[1], 4);
    parallel_release(&p);
    assert_ok(resolve_modes(&p, "auto", "none", "3,0,0", "", &error), &error);
    assert_int_equal(p.first_layer[1], 3);
    parallel_release(&p);
}

// Of all layers, what schedules are fitted to.
static void share_of_full_layers(void **unused) {
    (void)unused;
    static const struct {
        const char *mode, *full;
        double share;
    } SAID[] = {{"none", "", 0},        {"full", "", 1},   {"none", "4,0,1", .5},
                {"selective", "3", .9}, {"none", "9", 1.}, {"selective", "", 0}};
    for (size_t i = 0; i < ARRAY_LENGTH(SAID); i++) {
        char *text[] = {mem_printf("activation_checkpoint.mode=%s", SAID[i].mode),
                        mem_printf("activation_checkpoint.full_layers=%s", SAID[i].full)};
        struct config config;
        trireme_error error = {0};
        assert_ok(config_load(&config, NULL, (const char *const *)text, 2, &error), &error);
        double share[RECOMPUTE_MODES];
        layout_shares(&config, 3, 10, share);
        assert_true(share[CONFIG_RECOMPUTE_FULL] == SAID[i].share);
        assert_true(fabs(share[0] + share[1] + share[2] - 1) < 1e-12);
        config_release(&config);
        free(text[0]);
        free(text[1]);
    }
}

// Where they are said of each stage, those of the schedule's own chunks, said or not.
static void schedules_are_fitted_to_full_layers(void **unused) {
    (void)unused;
    static const char *const SCHEDULES[] = {"zb-v", "hanayo"};
    for (size_t i = 0; i < ARRAY_LENGTH(SCHEDULES); i++) {
        struct parallel p[3];
        for (int k = 0; k < 3; k++) {
            char *schedule = mem_printf("parallelism.pipeline_parallel_schedule=%s", SCHEDULES[i]);
            const char *text[] = {schedule,
                                  "parallelism.pipeline_parallel_degree=2",
                                  "training.global_batch_size=8",
                                  "training.micro_batch_size=1",
                                  "model.preset=gpt2-124m",
                                  k == 2 ? "activation_checkpoint.mode=full"
                                         : "activation_checkpoint.full_layers=3,3,3,3",
                                  "parallelism.pipeline_parallel_chunks=2"};
            struct config config;
            struct model_config model;
            trireme_error error = {0};
            size_t count = k == 1 ? ARRAY_LENGTH(text) : ARRAY_LENGTH(text) - 1;
            assert_ok(config_load(&config, NULL, text, count, &error), &error);
            assert_ok(model_config_resolve(&model, &config, NO_TOKENS, &error), &error);
            assert_ok(parallel_resolve(&p[k], &config, &model, &error), &error);
            config_release(&config);
            free(schedule);
        }
        for (int k = 1; k < 3; k++)
            for (int rank = 0; rank < 2; rank++) {
                const struct schedule_rank *a = &p[0].schedule->rank[rank], *b = &p[k].schedule->rank[rank];
                assert_int_equal(a->count, b->count);
                for (size_t j = 0; j < a->count; j++)
                    assert_true(a->item[j].kind == b->item[j].kind && a->item[j].chunk == b->item[j].chunk &&
                                a->item[j].microbatch == b->item[j].microbatch);
            }
        for (int k = 0; k < 3; k++)
            parallel_release(&p[k]);
    }
}

static void wrong_modes_are_refused(void **unused) {
    (void)unused;
    static const struct {
        const char *mode, *full, *selective, *says;
    } WRONG[] = {
        {"full", "1", "", "activation_checkpoint.full_layers: given \"1\", but activation_checkpoint.mode"},
        {"full", "", "1", "activation_checkpoint.selective_layers: given \"1\", but activation_checkpoint.mode"},
        {"selective", "", "1", "activation_checkpoint.selective_layers: given \"1\", but activation_checkpoint.mode"},
        {"none", "1,2", "", "expected a number of layers for each of the pipeline's stages, of which there are 3"},
        {"none", "1,2,3,4", "", "full_layers: given \"1,2,3,4\", expected"},
        {"none", "1,,2", "", "full_layers: given \"1,,2\", expected"},
        {"none", "1,2,", "", "full_layers: given \"1,2,\", expected"},
        {"none", "3,", "", "full_layers: given \"3,\", expected"},
        {"none", "-1", "", "full_layers: given \"-1\", expected"},
        {"none", "all", "", "full_layers: given all, expected"},
        {"none", "99999999999", "", "full_layers: given \"99999999999\", expected"},
        {"none", "5,0,0", "", "full_layers: given \"5,0,0\", but stage 0 has 4 layers"},
        {"none", "5", "", "full_layers: given \"5\", but no stage has more than 4 layers"},
        {"none", "4,3,3", "1,0,0", "selective_layers: given \"1,0,0\", but stage 0 has 0 layers outside mode full"},
        {"none", "3", "2", "selective_layers: given \"2\", but no stage has more than 1 layer outside mode full"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(WRONG); i++) {
        struct parallel p;
        trireme_error error = {0};
        assert_int_equal(resolve_modes(&p, "4,3,3", WRONG[i].mode, WRONG[i].full, WRONG[i].selective, &error),
                         TRIREME_ERROR_USAGE);
        if (!strstr(error.message, WRONG[i].says))
            fail_msg("%s\nwithout %s", error.message, WRONG[i].says);
    }
}

// Gradients in f64 cannot travel as bf16, nor others as f64: asking for it is refused.
static void wrong_reduce_dtype_is_refused(void **unused) {
    (void)unused;
    static const char *const DTYPES[] = {"f32", "bf16", "f64"};
    for (int i = 0; i < 9; i++) {
        const char *dtype = DTYPES[i / 3], *reduce = DTYPES[i % 3];
        bool is_f64 = strcmp(dtype, "f64") == 0;
        const char *wrong = is_f64 && i % 3 == 1    ? "given bf16, but training.dtype is f64"
                            : !is_f64 && i % 3 == 2 ? "given f64, but gradients are accumulated in f32"
                                                    : NULL;
        char *text[] = {mem_printf("training.dtype=%s", dtype), mem_printf("parallelism.reduce_dtype=%s", reduce),
                        mem_strdup("parallelism.data_parallel_replicate_degree=2"),
                        mem_strdup("training.global_batch_size=8"), mem_strdup("model.preset=llama-5m")};
        struct config config;
        struct model_config model;
        struct parallel p;
        trireme_error error = {0};
        assert_ok(config_load(&config, NULL, (const char *const *)text, ARRAY_LENGTH(text), &error), &error);
        assert_ok(model_config_resolve(&model, &config, NO_TOKENS, &error), &error);
        trireme_status status = parallel_resolve(&p, &config, &model, &error);
        if (wrong) {
            assert_int_equal(status, TRIREME_ERROR_USAGE);
            assert_non_null(strstr(error.message, wrong));
        } else {
            assert_ok(status, &error);
            assert_true(p.reduce_bf16 == (i % 3 == 1));
            parallel_release(&p);
        }
        config_release(&config);
        for (size_t k = 0; k < ARRAY_LENGTH(text); k++)
            free(text[k]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(auto_is_best),
                                       cmocka_unit_test(auto_knows_unlike_layers),
                                       cmocka_unit_test(said_is_done),
                                       cmocka_unit_test(units_begin_with_their_stage),
                                       cmocka_unit_test(modes_of_layers),
                                       cmocka_unit_test(share_of_full_layers),
                                       cmocka_unit_test(schedules_are_fitted_to_full_layers),
                                       cmocka_unit_test(wrong_modes_are_refused),
                                       cmocka_unit_test(wrong_reduce_dtype_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
