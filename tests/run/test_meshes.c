// Training on any mesh is training on one rank. In f64, over several steps with clipping: losses, gradient norms, every
// gradient and every parameter agree to rounding, for each strategy alone, in pairs, and for a seeded sample of
// everything together. In f32 the losses of long runs agree; and any run has the same bits when it is repeated.
//
// Without arguments the program tries a part of the table; `test_run_meshes all` tries and prints all of it (`make
// equal`). As one of several processes (support/team.h) it tries a handful of rows with that many ranks.
#include "support/meshes.h"
#include "support/sanitized.h"
#include "support/team.h"

#include "base/rng.h"
#include "model/lora.h"

#include <math.h>

#define TOLERANCE 1e-9

// ---- models

struct model {
    const char *name, *json;
    struct model_config config;
};

#define GPT2 "{\"architectures\": [\"GPT2LMHeadModel\"], "
#define LLAMA "{\"architectures\": [\"LlamaForCausalLM\"], \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, "
#define QWEN3 "{\"architectures\": [\"Qwen3ForCausalLM\"], \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, "

// In addition to the small models of every family: models whose numbers have few divisors.
static struct model models[] = {
    {.name = "gpt2 5 heads",
     .json = GPT2
     "\"n_layer\": 5, \"n_embd\": 15, \"n_head\": 5, \"n_inner\": 22, \"n_positions\": 40, \"vocab_size\": 53}"},
    {.name = "gpt2 7 heads",
     .json = GPT2 "\"n_layer\": 7, \"n_embd\": 14, \"n_head\": 7, "
                  "\"n_inner\": 9, \"n_positions\": 40, \"vocab_size\": 130, \"tie_word_embeddings\": false}"},
    {.name = "llama 6/3 heads",
     .json = LLAMA "\"num_hidden_layers\": 3, \"hidden_size\": 18, \"intermediate_size\": 23, "
                   "\"num_attention_heads\": 6, \"num_key_value_heads\": 3, \"head_dim\": 4, \"vocab_size\": 37, "
                   "\"tie_word_embeddings\": false}"},
    {.name = "llama 8/1 heads",
     .json = LLAMA "\"num_hidden_layers\": 3, \"hidden_size\": 24, \"intermediate_size\": 19, "
                   "\"num_attention_heads\": 8, \"num_key_value_heads\": 1, \"head_dim\": 2, \"vocab_size\": 101, "
                   "\"attention_bias\": true, \"mlp_bias\": true, \"tie_word_embeddings\": true}"},
    {.name = "qwen3 8/2 heads",
     .json = QWEN3 "\"num_hidden_layers\": 5, \"hidden_size\": 20, \"intermediate_size\": 10, "
                   "\"num_attention_heads\": 8, \"num_key_value_heads\": 2, \"head_dim\": 8, \"vocab_size\": 70, "
                   "\"tie_word_embeddings\": true}"},
    {.name = "qwen3 9/3 heads",
     .json = QWEN3 "\"num_hidden_layers\": 3, \"hidden_size\": 10, \"intermediate_size\": 11, "
                   "\"num_attention_heads\": 9, \"num_key_value_heads\": 3, \"head_dim\": 4, \"vocab_size\": 129, "
                   "\"tie_word_embeddings\": false}"},
    {.name = "qwen3 windows",
     .json = QWEN3 "\"num_hidden_layers\": 5, \"hidden_size\": 12, \"intermediate_size\": 10, "
                   "\"num_attention_heads\": 6, \"num_key_value_heads\": 2, \"head_dim\": 4, \"vocab_size\": 70, "
                   "\"tie_word_embeddings\": true, \"use_sliding_window\": true, \"sliding_window\": 3, "
                   "\"layer_types\": [\"sliding_attention\", \"sliding_attention\", \"full_attention\", "
                   "\"sliding_attention\", \"full_attention\"]}"},
};

// A vocabulary so large that rows of the table travel instead of the table.
static struct model many_words[] = {
    {.name = "gpt2 3050 words",
     .json = GPT2 "\"n_layer\": 4, \"n_embd\": 12, \"n_head\": 4, \"n_positions\": 40, \"vocab_size\": 3050}"},
    {.name = "gpt2 3050 positions",
     .json = GPT2 "\"n_layer\": 4, \"n_embd\": 12, \"n_head\": 4, \"n_positions\": 3050, \"vocab_size\": 3050}"},
    {.name = "llama 3050 words",
     .json = LLAMA "\"num_hidden_layers\": 4, \"hidden_size\": 16, \"intermediate_size\": 20, "
                   "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": 3050, "
                   "\"tie_word_embeddings\": false}"}};

enum { OWN_MODELS = ARRAY_LENGTH(models), MODELS = OWN_MODELS + SMALL_COUNT };

static struct model all_models[MODELS];

static void prepare_models(void) {
    for (int i = 0; i < MODELS; i++) {
        if (i < SMALL_COUNT)
            all_models[i] = (struct model){.name = small_models[i].name, .json = small_models[i].json};
        else
            all_models[i] = models[i - SMALL_COUNT];
        small_config(&all_models[i].config, all_models[i].json);
    }
    for (size_t m = 0; m < ARRAY_LENGTH(many_words); m++)
        small_config(&many_words[m].config, many_words[m].json);
}

static const struct model *model_called(const char *name) {
    for (int i = 0; i < MODELS; i++)
        if (strcmp(all_models[i].name, name) == 0)
            return &all_models[i];
    fail_msg("no model %s", name);
    return NULL;
}

// ---- the table

struct table {
    bool all;           // else every `step`-th row (0: all), and only what is wrong is printed
    const char *filter; // rows with these words alone, or NULL
    int step, rows, tried, wrong;
    struct distance worst;
};

static struct table table;

// Whether this row is tried now.
static bool chosen(const struct model *model, const struct spec *spec) {
    char text[SPEC_TEXT], *row;
    spec_print(spec, text);
    row = mem_printf("%s  %s", model->name, text);
    bool yes =
        table.filter ? strstr(row, table.filter) != NULL : table.all || table.step == 0 || table.rows % table.step == 0;
    free(row);
    table.rows++;
    return yes;
}

static void print_row(const struct model *model, const struct spec *spec, const struct distance *d, bool good,
                      const char *refusal) {
    char text[SPEC_TEXT];
    spec_print(spec, text);
    printf("%-19s  %-60s  ", model->name, text);
    if (refusal)
        printf("REFUSED: %s\n", refusal);
    else
        printf("%.1e  %.1e  %.1e  %s%s%s%s%s\n", d->loss, d->gradient, d->parameter, good ? "ok" : "DIFFERS",
               d->gradient <= TOLERANCE ? "" : ": gradient of ", d->gradient <= TOLERANCE ? "" : d->where[0],
               d->parameter <= TOLERANCE ? "" : ", values of ", d->parameter <= TOLERANCE ? "" : d->where[1]);
    fflush(stdout);
}

static void try(const struct model *model, const struct spec *spec) {
    if (!spec_possible(spec, &model->config) || !chosen(model, spec))
        return;
    trireme_error error = {0};
    struct distance d = {0};
    trireme_status status = mesh_compare(model->name, &model->config, spec, &d, &error);
    bool good = status == TRIREME_OK && d.loss <= TOLERANCE && d.gradient <= TOLERANCE && d.parameter <= TOLERANCE;
    table.tried++;
    table.wrong += !good;
    table.worst.loss = fmax(table.worst.loss, d.loss);
    table.worst.gradient = fmax(table.worst.gradient, d.gradient);
    table.worst.parameter = fmax(table.worst.parameter, d.parameter);
    if (!good || table.all)
        print_row(model, spec, &d, good, status == TRIREME_OK ? NULL : error.message);
}

static void begin(int step) {
    table.step = (SANITIZED ? 8 * step : step) * MODELS / 10; // as many, however many models there are
    table.rows = table.tried = table.wrong = 0;
    table.worst = (struct distance){0};
    if (table.all)
        printf("\n%-19s  %-60s  loss     gradient parameter\n", "model", "mesh");
}

static void end(void) {
    printf("%d of %d meshes tried, %d differ; at most loss %.1e, gradient %.1e, parameter %.1e\n", table.tried,
           table.rows, table.wrong, table.worst.loss, table.worst.gradient, table.worst.parameter);
    assert_true(table.tried > 0 || table.filter);
    assert_int_equal(table.wrong, 0);
}

// ---- strategies, alone and in pairs

enum strategy {
    DP,
    ZERO1,
    ZERO2,
    ZERO3,
    CP,
    CP_ZERO1,
    CP_ZERO3,
    CP_ZIGZAG,
    CP_STRIPED_ZERO3,
    CP_ULYSSES,
    CP_HYBRID,
    CP_BURST,
    CP_TOKENRING_ZERO3,
    CP_LIGHTSEQ,
    TP,
    TP_SEQUENCE,
    GPIPE,
    ONE_F_ONE_B,
    SCHEDULE_FILE,
    UNEVEN,
    SPLIT,
    LOOP,
    WAVE,
    LOOP_SPLIT,
    WAVE_SPLIT,
    INTERLEAVED,
    ZB_H1,
    ZB_H2,
    ZB_V,
    V_HALF,
    V_MIN,
    HANAYO,
    AUTO,
    AUTO_TWO,
    STRATEGIES
};

static const char *const SCHEDULES[STRATEGIES] = {[GPIPE] = "gpipe",
                                                  [SCHEDULE_FILE] = "pairs",
                                                  [SPLIT] = "split",
                                                  [LOOP] = "loop",
                                                  [WAVE] = "wave",
                                                  [LOOP_SPLIT] = "loop split",
                                                  [WAVE_SPLIT] = "wave split",
                                                  [INTERLEAVED] = "interleaved",
                                                  [ZB_H1] = "zb-h1",
                                                  [ZB_H2] = "zb-h2",
                                                  [ZB_V] = "zb-v",
                                                  [V_HALF] = "v-half",
                                                  [V_MIN] = "v-min",
                                                  [HANAYO] = "hanayo",
                                                  [AUTO] = "auto",
                                                  [AUTO_TWO] = AUTO_OF_TWO};

// A layout with one layer on each stage, and the rest on the last.
static void uneven_layout(struct spec *spec, int layers) {
    int at = 0;
    for (int s = 0; s < spec->pp; s++)
        at += snprintf(spec->layout + at, sizeof spec->layout - (size_t)at, "%s%d", s ? "," : "",
                       s < spec->pp - 1 ? 1 : layers - spec->pp + 1);
}

// Adds a strategy, unless the table has one like it or the same one.
static bool add(struct spec *spec, enum strategy strategy, int degree, const struct model_config *model) {
    int *axis = strategy == DP     ? &spec->dp
                : strategy < CP    ? &spec->fsdp
                : strategy < TP    ? &spec->cp
                : strategy < GPIPE ? &spec->tp
                                   : &spec->pp;
    if (*axis > 1)
        return false;
    *axis = degree;
    if (strategy > DP && strategy < CP)
        spec->zero = 1 + (int)strategy - ZERO1;
    if (strategy == CP_ZERO1 || strategy == CP_ZERO3 || strategy == CP_STRIPED_ZERO3 || strategy == CP_TOKENRING_ZERO3)
        spec->zero = strategy == CP_ZERO1 ? 1 : 3;
    if (strategy == CP_ZIGZAG || strategy == CP_STRIPED_ZERO3)
        spec->ring = strategy == CP_ZIGZAG ? "zigzag" : "striped";
    if (strategy == CP_HYBRID || strategy == CP_BURST || strategy == CP_TOKENRING_ZERO3)
        spec->ring = "zigzag";
    if (strategy == CP_LIGHTSEQ)
        spec->ring = "contiguous";
    if (strategy >= CP_BURST && strategy <= CP_LIGHTSEQ)
        spec->way = strategy == CP_BURST ? "burst" : strategy == CP_LIGHTSEQ ? "lightseq" : "tokenring";
    if (strategy == CP_ULYSSES || strategy == CP_HYBRID)
        spec->exchange = 2;
    if (strategy == TP)
        spec->no_sequence = true;
    if (strategy >= GPIPE)
        spec->schedule = SCHEDULES[strategy];
    if (strategy == UNEVEN) {
        if (model->num_hidden_layers <= degree)
            return false;
        uneven_layout(spec, (int)model->num_hidden_layers);
    }
    return spec_ranks(spec) <= MESH_RANKS;
}

static void test_alone(void **state) {
    (void)state;
    begin(19);
    for (int m = 0; m < MODELS; m++)
        for (int s = 0; s < STRATEGIES; s++)
            for (int degree = 2; degree <= MESH_RANKS; degree++) {
                struct spec spec = {0};
                if (add(&spec, s, degree, &all_models[m].config))
                    try(&all_models[m], &spec);
            }
    end();
}

static void test_pairs(void **state) {
    (void)state;
    static const int DEGREES[][2] = {{2, 2}, {2, 3}, {3, 2}, {2, 4}, {4, 2}};
    begin(67);
    for (int m = 0; m < MODELS; m++)
        for (int a = 0; a < STRATEGIES; a++)
            for (int b = a + 1; b < STRATEGIES; b++)
                for (size_t d = 0; d < ARRAY_LENGTH(DEGREES); d++) {
                    struct spec spec = {0};
                    // The order of a pipeline's passes does not depend on the degrees.
                    if (d > 0 && b >= GPIPE && b != ONE_F_ONE_B)
                        continue;
                    if (add(&spec, a, DEGREES[d][0], &all_models[m].config) &&
                        add(&spec, b, DEGREES[d][1], &all_models[m].config))
                        try(&all_models[m], &spec);
                }
    end();
}

static const int UNITS[] = {-1, 2, 3};

// Units of several layers, and of half a layer, together with everything that they affect.
static void test_units(void **state) {
    (void)state;
    begin(61);
    for (int m = 0; m < MODELS; m++)
        for (int s = DP; s < TP; s++)
            for (int beside = TP; beside <= STRATEGIES; beside++)
                for (size_t u = 0; u < ARRAY_LENGTH(UNITS); u++) {
                    struct spec spec = {.unit_layers = UNITS[u]};
                    bool both = beside == STRATEGIES || add(&spec, beside, 2, &all_models[m].config);
                    if (both && add(&spec, s, 2, &all_models[m].config))
                        try(&all_models[m], &spec);
                }
    end();
}

// A table so large, with so few rows looked up, that in the last microbatch rows travel instead of the table and of its
// gradient; also in pipelines, where the tied head is on another rank or on the same one.
static void test_rows(void **state) {
    (void)state;
    static const char *const ends[] = {"1f1b", "interleaved", "zb-h1", "zb-v", "v-half", "pairs", "loop", "wave split"};
    begin(3);
    for (size_t m = 0; m < ARRAY_LENGTH(many_words); m++) {
        for (int degree = 2; degree <= 4; degree++)
            for (int tp = 1; tp <= 2; tp++)
                for (int apart = 0; apart < tp; apart++)
                    try(&many_words[m], &(struct spec){.dp = degree,
                                                       .tp = tp,
                                                       .no_sequence = apart,
                                                       .micro_batch_size = 12,
                                                       .recompute = degree == 3 ? "full" : NULL});
        for (int degree = 2; degree <= 3; degree++)
            for (int size = 2; size <= 6; size += 2)
                try(&many_words[m], &(struct spec){.dp = degree, .micro_batch_size = size});
        for (size_t s = 0; s < ARRAY_LENGTH(ends); s++)
            for (int spread = 0; spread <= 1; spread++)
                try(&many_words[m],
                    &(struct spec){.dp = 2, .pp = 2, .schedule = ends[s], .vocabulary = spread, .micro_batch_size = 2});
        for (int degree = 2; degree <= 4; degree++)
            for (int once = 0; once <= 1; once++)
                for (int zero = 1; zero <= 3; zero += 2)
                    try(&many_words[m], &(struct spec){.fsdp = degree,
                                                       .zero = zero,
                                                       .unit_layers = once ? 2 : -1,
                                                       .micro_batch_size = once ? 12 : 2,
                                                       .prefetch = degree == 4 ? 1 : 0});
        for (int replicas = 2; replicas <= 3; replicas++)
            for (int degree = 2; degree + replicas <= 5; degree++)
                for (int once = 0; once <= 1; once++)
                    for (int zero = 1; zero <= 3; zero += 2)
                        try(&many_words[m], &(struct spec){.dp = replicas,
                                                           .fsdp = degree,
                                                           .zero = zero,
                                                           .micro_batch_size = once ? 36 / replicas / degree : 2});
    }
    end();
}

// Islands that average after every step are data parallel, whatever mesh each of them is.
static void test_islands(void **state) {
    (void)state;
    begin(23);
    for (int m = 0; m < MODELS; m++)
        for (int islands = 2; islands <= 4; islands++) {
            struct spec alone = {.island = islands};
            try(&all_models[m], &alone);
            for (int s = 0; s < STRATEGIES; s++)
                for (int beside = -1; beside < TP; beside++) {
                    struct spec spec = {.island = islands, .vocabulary = s >= GPIPE && beside == ZERO1};
                    if ((beside < 0 || add(&spec, beside, 2, &all_models[m].config)) &&
                        add(&spec, s, 2, &all_models[m].config))
                        try(&all_models[m], &spec);
                }
        }
    end();
}

// Every schedule with the vocabulary spread over its stages, with logits in one piece or several, alone and together
// with other strategies.
static void test_vocabulary(void **state) {
    (void)state;
    begin(29);
    for (int m = 0; m < MODELS; m++)
        for (int s = GPIPE; s < STRATEGIES; s++)
            for (int degree = 2; degree <= 4; degree++)
                for (int beside = -1; beside < GPIPE; beside++) {
                    struct spec spec = {.vocabulary = true, .logits_rows = degree == 3 ? 5 : 0};
                    if ((beside < 0 || add(&spec, beside, 2, &all_models[m].config)) &&
                        add(&spec, s, degree, &all_models[m].config))
                        try(&all_models[m], &spec);
                }
    end();
}

// One layer of each stage recomputed in full, the others not or selectively, under every strategy.
static void test_recomputed_layers(void **state) {
    (void)state;
    begin(17);
    for (int m = 0; m < MODELS; m++)
        for (int s = 0; s < STRATEGIES; s++)
            for (int more = 0; more < 4; more++) {
                struct spec spec = {.full_layers = "1", .recompute = more & 1 ? "selective" : NULL};
                spec.vocabulary = (more & 2) && s >= GPIPE;
                if (add(&spec, s, 2, &all_models[m].config))
                    try(&all_models[m], &spec);
            }
    end();
}

// All layers in one unit: nothing is gathered twice, and gathers use no scratch. Backwards may come in any order that
// both sides of a link share.
static void test_odd_ones(void **state) {
    (void)state;
    begin(0);
    try(model_called("qwen2"), &(struct spec){.fsdp = 2, .zero = 3, .unit_layers = 3});
    try(model_called("llama 8/1 heads"), &(struct spec){.fsdp = 2, .zero = 3, .unit_layers = 3});
    try(&all_models[0], &(struct spec){.pp = 2, .schedule = "reversed"});
    try(&all_models[SMALL_COUNT], &(struct spec){.pp = 3, .tp = 2, .schedule = "reversed"});
    end();
    const struct spec crossed = {.pp = 2, .schedule = "crossed"};
    struct distance d;
    trireme_error error = {0};
    assert_int_equal(mesh_compare(all_models[0].name, &all_models[0].config, &crossed, &d, &error),
                     TRIREME_ERROR_USAGE);
    assert_says(error.message, "the same order is needed");
}

// Muon takes whole matrices, which shards of units and tensor ranks cut, alone and together.
static void test_matrices(void **state) {
    (void)state;
    static const int DEGREES[][2] = {{2, 2}, {3, 2}, {2, 4}};
    begin(37);
    for (int m = 0; m < MODELS; m++)
        for (int a = DP; a < STRATEGIES; a++) {
            for (int degree = 2; degree <= MESH_RANKS; degree++) {
                struct spec spec = {.optimizer = "muon"};
                if (add(&spec, a, degree, &all_models[m].config))
                    try(&all_models[m], &spec);
            }
            for (int b = TP; a < TP && b <= ONE_F_ONE_B; b++)
                for (size_t d = 0; d < ARRAY_LENGTH(DEGREES); d++) {
                    struct spec spec = {.optimizer = "muon", .unit_layers = d == 1 ? -1 : 0};
                    if (add(&spec, a, DEGREES[d][0], &all_models[m].config) &&
                        add(&spec, b, DEGREES[d][1], &all_models[m].config))
                        try(&all_models[m], &spec);
                }
            for (int tp = 2; a >= ZERO1 && a < CP && tp <= 4; tp += 2)
                for (int cp = 1; cp <= 2; cp++) {
                    struct spec spec = {.optimizer = "muon", .tp = tp, .cp = cp, .pp = 3 - cp, .dp = tp == 2 ? 1 : 0};
                    if (add(&spec, a, 2, &all_models[m].config))
                        try(&all_models[m], &spec);
                }
        }
    end();
}

// What is frozen has neither gradients nor states, is in no norm, and is the same afterwards.
static void test_frozen(void **state) {
    (void)state;
    static const char *const FREEZE[] = {"*.mlp.*", "*.attention.*", "*embed*", "*.mlp.*,*embed*"};
    begin(97);
    for (int m = 0; m < MODELS; m++)
        for (int a = DP; a < STRATEGIES; a++)
            for (int b = a; b < STRATEGIES; b++)
                for (size_t f = 0; f < ARRAY_LENGTH(FREEZE); f++) {
                    struct spec spec = {.freeze = FREEZE[f], .optimizer = (a + b) % 3 == 0 ? "muon" : NULL};
                    if (add(&spec, a, 2, &all_models[m].config) && (a == b || add(&spec, b, 2, &all_models[m].config)))
                        try(&all_models[m], &spec);
                }
    try(&all_models[0], &(struct spec){.island = 2, .freeze = "*.mlp.*"});
    try(&all_models[0], &(struct spec){.tp = 2, .pp = 2, .freeze = "*.weight"});
    try(&all_models[0], &(struct spec){.fsdp = 2, .zero = 3, .freeze = "*.c_attn.weight,*.ln_1.weight"});
    try(&all_models[SMALL_COUNT], &(struct spec){.island = 2, .fsdp = 2, .zero = 2, .freeze = "*embed*"});
    end();
}

// Adapters, of all linear layers and of some, alone are trained.
static void test_adapters(void **state) {
    (void)state;
    static const char *const SOME[] = {"q_proj,v_proj,down_proj", "c_attn,mlp.c_proj", "k_proj,o_proj,up_proj"};
    begin(113);
    for (int m = 0; m < MODELS; m++)
        for (int a = DP; a < STRATEGIES; a++)
            for (int b = a; b < STRATEGIES; b++)
                for (int all = 0; all < 2; all++) {
                    struct model_config own = all_models[m].config;
                    trireme_error error;
                    const char *some = SOME[own.family == FAMILY_GPT2 ? 1 : (a + b) % 2 * 2];
                    struct spec spec = {.lora = all ? "all-linear" : some,
                                        .optimizer = (a + b) % 3 == 0 ? "muon" : NULL,
                                        .recompute = a % 2 ? "selective" : NULL};
                    if (lora_set_targets(&own, spec.lora, &error) == TRIREME_OK &&
                        add(&spec, a, 2 + 2 * (m % 2), &own) && (a == b || add(&spec, b, 2, &own)))
                        try(&all_models[m], &spec);
                }
    try(&all_models[SMALL_LLAMA], &(struct spec){.island = 2, .lora = "all-linear"});
    try(&all_models[SMALL_GEMMA2], &(struct spec){.tp = 2, .overlap = true, .lora = "all-linear"});
    try(&all_models[SMALL_PHI3],
        &(struct spec){.tp = 4, .fsdp = 2, .zero = 3, .unit_layers = -1, .lora = "all-linear"});
    try(&all_models[SMALL_LLAMA_BIAS], &(struct spec){.tp = 4, .lora = "q_proj,down_proj"});
    end();
}

// Every way of attending over parts, in every layout, on every degree; for models with windows, sinks, caps and grouped
// heads.
static void test_ways(void **state) {
    (void)state;
    static const char *const WAYS[] = {NULL, "burst", "tokenring", "lightseq"}, *const LAYOUTS[] = {
                                                                                    "contiguous", "zigzag", "striped"};
    begin(37);
    for (int m = 0; m < MODELS; m++)
        for (size_t way = 0; way < ARRAY_LENGTH(WAYS); way++)
            for (size_t layout = 0; layout < ARRAY_LENGTH(LAYOUTS); layout++)
                for (int degree = 2; degree <= 6; degree++)
                    for (int beside = 0; beside < 3 && (beside == 0 || degree <= 4); beside++)
                        try(&all_models[m], &(struct spec){.cp = degree,
                                                           .tp = beside == 1 ? 2 : 1,
                                                           .pp = beside == 2 ? 2 : 1,
                                                           .ring = LAYOUTS[layout],
                                                           .way = WAYS[way],
                                                           .zero = degree % 4,
                                                           .recompute = degree % 2 ? "full" : NULL});
    end();
}

// Rings within rings.
static void test_inner_rings(void **state) {
    (void)state;
    static const struct spec RINGS[] = {{.cp = 4, .inner_ring = 2},
                                        {.cp = 6, .inner_ring = 2},
                                        {.cp = 6, .inner_ring = 3},
                                        {.cp = 8, .inner_ring = 4},
                                        {.cp = 8, .inner_ring = 2},
                                        {.cp = 4, .inner_ring = 2, .tp = 2},
                                        {.cp = 4, .inner_ring = 2, .fsdp = 2, .zero = 3, .recompute = "full"},
                                        {.cp = 4, .inner_ring = 2, .pp = 2, .schedule = "zb-h1"}};
    static const char *const LAYOUTS[] = {"contiguous", "zigzag", "striped"};
    begin(17);
    for (int m = 0; m < MODELS; m++)
        for (size_t r = 0; r < ARRAY_LENGTH(RINGS); r++)
            for (int way = 0; way < 2; way++)
                for (size_t layout = 0; layout < ARRAY_LENGTH(LAYOUTS); layout++) {
                    struct spec spec = RINGS[r];
                    spec.way = way ? "burst" : NULL;
                    spec.ring = LAYOUTS[layout];
                    try(&all_models[m], &spec);
                }
    end();
}

// ---- everything together

struct dice {
    uint64_t throw, next;
};

static int roll(struct dice *dice, int sides) {
    return (int)(rng_uniform(20, dice->throw, dice->next++) * sides);
}

// A random layout with at least one layer on each stage.
static void random_layout(struct dice *dice, struct spec *spec, int layers) {
    int left = layers, at = 0;
    for (int s = 0; s < spec->pp; s++) {
        int most = left - (spec->pp - 1 - s), n = s == spec->pp - 1 ? left : 1 + roll(dice, most);
        at += snprintf(spec->layout + at, sizeof spec->layout - (size_t)at, "%s%d", s ? "," : "", n);
        left -= n;
    }
}

static bool has_key_bias(const struct model_config *model) {
    return model->family == FAMILY_GPT2 ? model->bias
                                        : model->attention_bias && model_rotary_dim(model) < model->head_dim;
}

static bool random_spec(struct dice *dice, const struct model_config *model, struct spec *spec) {
    static const char *const RECOMPUTE[] = {NULL, "selective", "full"}, *const OPTIMIZERS[] = {NULL, "lion", "sgd",
                                                                                               "muon"};
    static const char *const RINGS[] = {NULL, "contiguous", "zigzag", "striped"}, *const WAYS[] = {NULL, "burst",
                                                                                                   "tokenring",
                                                                                                   "lightseq"};
    *spec = (struct spec){.dp = 1 + roll(dice, 4), .fsdp = 1 + roll(dice, 4)};
    spec->tp = 1 + roll(dice, 8);
    spec->pp = 1 + roll(dice, 5);
    if (spec_ranks(spec) > MESH_RANKS || spec_ranks(spec) < 4 || !spec_possible(spec, model))
        return false;
    spec->zero = spec->fsdp > 1 ? 1 + roll(dice, 3) : 0;
    spec->no_sequence = roll(dice, 2);
    spec->schedule = SCHEDULES[roll(dice, STRATEGIES)];
    if (!spec_possible(spec, model))
        spec->schedule = NULL;
    spec->recompute = RECOMPUTE[roll(dice, 3)];
    spec->optimizer = OPTIMIZERS[roll(dice, ARRAY_LENGTH(OPTIMIZERS))];
    spec->prefetch = spec->zero == 3 ? roll(dice, 5) - 1 : 0;
    spec->unit_layers = roll(dice, 3) ? 0 : UNITS[roll(dice, ARRAY_LENGTH(UNITS))];
    spec->micro_batch_size = 1 + roll(dice, 4);
    spec->logits_rows = roll(dice, 2) ? 1 + roll(dice, 20) : 0;
    if (spec->pp > 1 && spec_chunks(spec) == 1 && roll(dice, 2))
        random_layout(dice, spec, (int)model->num_hidden_layers);
    else if (spec->pp > 1 && roll(dice, 2))
        strcpy(spec->layout, "auto");
    spec->vocabulary = spec->pp > 1 && roll(dice, 3) == 0;
    // Where nothing rotates keys, the gradient of a key's bias is zero except for rounding: its sign means nothing.
    if (spec->optimizer && strcmp(spec->optimizer, "lion") == 0 && has_key_bias(model))
        spec->optimizer = NULL;
    if (roll(dice, 3) == 0 && (!spec->recompute || strcmp(spec->recompute, "full") != 0))
        spec->full_layers = "1";
    spec->overlap = spec->tp > 1 && roll(dice, 2);
    spec->cp = 1 + roll(dice, 4);
    spec->ring = RINGS[roll(dice, ARRAY_LENGTH(RINGS))];
    spec->exchange = roll(dice, 3);
    if (!spec_possible(spec, model))
        spec->exchange = 0;
    if (spec->ring && !spec->exchange)
        spec->way = WAYS[roll(dice, ARRAY_LENGTH(WAYS) - (strcmp(spec->ring, "contiguous") != 0))];
    if (spec_ranks(spec) > MESH_RANKS || !spec_possible(spec, model))
        spec->cp = 1;
    if (spec->cp == 1)
        spec->ring = spec->way = NULL;
    if (spec->cp > 1 && spec->fsdp == 1)
        spec->zero = roll(dice, 4);
    return true;
}

static void test_sample(void **state) {
    (void)state;
    begin(19);
    for (int n = 0; n < 12000; n++) {
        struct dice dice = {.throw = (uint64_t)n};
        const struct model *model =
            roll(&dice, 6) ? &all_models[roll(&dice, MODELS)] : &many_words[roll(&dice, ARRAY_LENGTH(many_words))];
        struct spec spec;
        if (random_spec(&dice, &model->config, &spec))
            try(model, &spec);
    }
    end();
}

// ---- units that are sharded over other axes than others

#define UNITS_OF(class) (1u << CLASS_##class)

static void test_classes(void **state) {
    (void)state;
    static const struct spec CUT[] = {
        {.fsdp = 4, .node = 2}, // a mesh of two factors, on which nothing is different
        {.fsdp = 4, .node = 2, .inner = UNITS_OF(WHOLE)},
        {.fsdp = 6, .node = 3, .inner = UNITS_OF(WHOLE)},
        {.fsdp = 4, .node = 2, .whole = UNITS_OF(WHOLE)},
        {.fsdp = 4, .tp = 2, .node = 2, .inner = UNITS_OF(SPLIT)},
        {.fsdp = 4, .tp = 2, .node = 2, .inner = UNITS_OF(SHARE) | UNITS_OF(WHOLE)},
        {.fsdp = 4, .tp = 2, .node = 2, .inner = UNITS_OF(SHARE), .whole = UNITS_OF(SPLIT)},
        {.fsdp = 2, .tp = 4, .node = 2, .whole = UNITS_OF(KV)},
        {.fsdp = 4, .dp = 2, .node = 2, .inner = UNITS_OF(WHOLE)},
        {.fsdp = 2, .cp = 4, .node = 2, .inner = UNITS_OF(WHOLE)},
        {.fsdp = 2, .cp = 2, .tp = 2, .node = 2, .inner = UNITS_OF(SPLIT)},
        {.fsdp = 4, .pp = 2, .node = 2, .inner = UNITS_OF(WHOLE)},
        {.fsdp = 2, .tp = 2, .pp = 2, .node = 2, .whole = UNITS_OF(SHARE), .schedule = "zb-v"},
        {.fsdp = 4, .pp = 2, .node = 2, .inner = UNITS_OF(VOCABULARY), .vocabulary = true},
        {.fsdp = 2,
         .tp = 2,
         .pp = 2,
         .node = 2,
         .whole = UNITS_OF(VOCABULARY),
         .inner = UNITS_OF(SPLIT),
         .vocabulary = true},
    };
    static const char *const RECOMPUTE[] = {NULL, "selective", "full"}, *const OPTIMIZERS[] = {NULL, "sgd", "muon"};
    begin(7);
    for (size_t i = 0; i < ARRAY_LENGTH(CUT); i++)
        for (int zero = 1; zero <= 3; zero++)
            for (int m = 0; m < MODELS; m++) {
                struct spec spec = CUT[i];
                spec.zero = zero;
                spec.recompute = RECOMPUTE[(i + (size_t)m) % ARRAY_LENGTH(RECOMPUTE)];
                spec.optimizer = OPTIMIZERS[(size_t)m % ARRAY_LENGTH(OPTIMIZERS)];
                spec.no_sequence = spec.tp > 1 && (m + zero) % 3 == 0;
                spec.micro_batch_size = (m + zero) % 2;
                try(&all_models[m], &spec);
            }
    end();
}

// ---- the dtypes that people train in

static const struct spec SOME[] = {
    {.dp = 2},
    {.fsdp = 3, .zero = 1},
    {.fsdp = 2, .zero = 2},
    {.fsdp = 4, .zero = 3},
    {.dp = 2, .fsdp = 2, .zero = 3},
    {.tp = 2},
    {.tp = 4, .no_sequence = true},
    {.tp = 4, .no_sequence = true, .overlap = true},
    {.tp = 2, .overlap = true, .recompute = "selective"},
    {.pp = 2, .schedule = "gpipe"},
    {.pp = 3},
    {.tp = 2, .pp = 2, .no_sequence = true},
    {.fsdp = 2, .zero = 3, .tp = 2, .pp = 2, .recompute = "selective"},
    {.dp = 2, .fsdp = 2, .zero = 2, .tp = 2},
};

enum { LONG_STEPS = 100 };

// The largest difference of two runs' losses.
static double losses_apart(const struct model *model, const struct spec *spec, int steps, const double *expected) {
    double losses[LONG_STEPS], apart = 0;
    trireme_error error = {0};
    trireme_status status = mesh_losses(&model->config, spec, steps, losses, &error);
    if (status != TRIREME_OK)
        fail_msg("%s: %s", model->name, error.message);
    for (int i = 0; i < steps; i++)
        apart = farther(apart, fabs(losses[i] - expected[i]));
    return apart;
}

// The meshes of SOME in one dtype against one rank's losses in another.
static void follow(const char *name, const char *dtype, const char *reduce, const char *one_dtype, int steps,
                   double tolerance, int step) {
    const struct model *model = model_called(name);
    double expected[LONG_STEPS];
    trireme_error error = {0};
    assert_ok(mesh_losses(&model->config, &(struct spec){.dtype = one_dtype}, steps, expected, &error), &error);
    assert_true(expected[steps - 1] < expected[0] - 0.2);
    int wrong = 0;
    for (size_t i = 0; i < ARRAY_LENGTH(SOME); i += (size_t)(table.all ? 1 : SANITIZED ? 3 * step : step)) {
        struct spec spec = SOME[i];
        spec.dtype = dtype;
        spec.reduce = reduce;
        double apart = losses_apart(model, &spec, steps, expected);
        bool good = apart <= tolerance;
        wrong += !good;
        char text[SPEC_TEXT];
        spec_print(&spec, text);
        if (!good || table.all)
            printf("%-19s  %-60s  loss %.1e of one rank's (%s, %d steps)  %s\n", name, text, apart, one_dtype, steps,
                   good ? "ok" : "DIFFERS");
    }
    assert_int_equal(wrong, 0);
}

static void test_f32(void **state) {
    (void)state;
    follow("gpt2 5 heads", "f32", NULL, "f32", LONG_STEPS, 1e-4, 4);
    follow("llama 6/3 heads", "f32", NULL, "f32", LONG_STEPS, 1e-4, 5);
}

static void test_bf16(void **state) {
    (void)state;
    follow("gpt2 5 heads", "bf16", NULL, "bf16", 30, 2e-2, 4);
    follow("llama 6/3 heads", "bf16", "bf16", "bf16", 30, 2e-2, 4);
    follow("llama 6/3 heads", "f32", "bf16", "f32", 30, 2e-2, 4);
}

static void test_repeats(void **state) {
    (void)state;
    static const char *const DTYPES[] = {"f32", "bf16", NULL};
    const struct model *model = model_called("qwen3 8/2 heads");
    for (size_t d = 0; d < ARRAY_LENGTH(DTYPES); d++)
        for (size_t i = d; i < ARRAY_LENGTH(SOME); i += table.all ? 1 : ARRAY_LENGTH(DTYPES)) {
            struct spec spec = SOME[i];
            spec.dtype = DTYPES[d];
            bool same;
            trireme_error error = {0};
            assert_ok(mesh_repeats(&model->config, &spec, &same, &error), &error);
            char text[SPEC_TEXT];
            spec_print(&spec, text);
            if (!same)
                fail_msg("%s, %s: two runs differ", model->name, text);
            if (table.all)
                printf("%-19s  %-60s  the same bits twice\n", model->name, text);
        }
}

// ---- ranks that are processes

static const struct {
    const char *model;
    struct spec spec;
} FOUR[] = {
    {"gpt2 5 heads", {.dp = 2, .tp = 2}},
    {"gpt2 7 heads", {.tp = 4, .no_sequence = true}},
    {"gpt2 7 heads", {.fsdp = 2, .zero = 1, .pp = 2, .schedule = "interleaved"}},
    {"gpt2 5 heads", {.pp = 4, .schedule = "gpipe"}},
    {"gpt2 7 heads", {.pp = 4, .schedule = "zb-h2"}},
    {"llama 6/3 heads", {.dp = 2, .fsdp = 2, .zero = 3}},
    {"llama 6/3 heads", {.fsdp = 2, .zero = 3, .tp = 2, .recompute = "full"}},
    {"llama 8/1 heads", {.fsdp = 4, .zero = 1}},
    {"llama 8/1 heads", {.fsdp = 2, .zero = 3, .pp = 2, .recompute = "selective", .optimizer = "lion"}},
    {"qwen3 8/2 heads", {.fsdp = 4, .zero = 2}},
    {"qwen3 8/2 heads", {.tp = 4, .overlap = true}},
    {"qwen3 8/2 heads", {.tp = 2, .pp = 2, .schedule = "zb-v"}},
    {"qwen3 8/2 heads", {.tp = 2, .pp = 2, .no_sequence = true}},
    {"qwen3 8/2 heads", {.dp = 2, .pp = 2, .schedule = "hanayo"}},
    {"mistral", {.fsdp = 2, .zero = 2, .tp = 2}},
    {"qwen3", {.tp = 2, .pp = 2, .vocabulary = true, .schedule = "zb-h1"}},
    {"qwen2", {.fsdp = 2, .zero = 1, .pp = 2, .schedule = "zb-h1"}},
    {"qwen3", {.island = 4}},
    {"llama 6/3 heads", {.island = 2, .fsdp = 2, .zero = 2}},
};

static void test_four_processes(void **state) {
    (void)state;
    begin(0);
    for (size_t i = 0; i < ARRAY_LENGTH(FOUR); i += SANITIZED ? 3 : 1)
        try(model_called(FOUR[i].model), &FOUR[i].spec);
    end();
}

static int forget(void **state) {
    (void)state;
    mesh_forget();
    return 0;
}

int main(int argc, char **argv) {
    table.all = argc > 1 && strcmp(argv[1], "all") == 0;
    table.filter = argc > 2 ? argv[2] : NULL;
    prepare_models();
    if (team_processes()) {
        const struct CMUnitTest four = cmocka_unit_test(test_four_processes);
        int failed = _cmocka_run_group_tests("processes", &four, 1, NULL, forget);
        team_end();
        return failed;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),       cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_units),       cmocka_unit_test(test_rows),
        cmocka_unit_test(test_classes),     cmocka_unit_test(test_islands),
        cmocka_unit_test(test_vocabulary),  cmocka_unit_test(test_ways),
        cmocka_unit_test(test_inner_rings), cmocka_unit_test(test_sample),
        cmocka_unit_test(test_matrices),    cmocka_unit_test(test_frozen),
        cmocka_unit_test(test_adapters),    cmocka_unit_test(test_recomputed_layers),
        cmocka_unit_test(test_odd_ones),    cmocka_unit_test(test_f32),
        cmocka_unit_test(test_bf16),        cmocka_unit_test(test_repeats),
    };
    // A single row is looked for only in the tables of f64.
    return _cmocka_run_group_tests("ranks", tests, table.filter ? 13 : ARRAY_LENGTH(tests), NULL, forget);
}
