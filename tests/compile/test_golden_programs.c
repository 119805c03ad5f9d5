// The programs that strategies make, as `trireme show program` prints them, are files below tests/golden/programs, and
// parse back to the same programs. A change that is meant to alter them writes them anew, so that a reader of the
// change sees the difference:
//
//     TRIREME_WRITE_GOLDEN=1 build/tests/test_compile_golden_programs
#include "support/checkpoint.h"
#include "support/mesh_keys.h"

#include "engine/engine.h"

struct subject {
    const char *name;
    const char *overrides[10];
};

// Reference kernels: their workspaces are the same on every machine.
static const char *const COMMON[] = {"run.directory=unused", "training.kernels=reference", "training.threads=1",
                                     "training.seq_len=8", "training.micro_batch_size=1"};
#define BATCH "training.global_batch_size=" // 8 where a strategy does not say

static const struct subject FAMILIES[] = {
    {"gpt2",
     {"model.family=gpt2", "model.hidden_size=12", "model.num_attention_heads=3", "model.vocab_size=50",
      "training.dtype=f32"}},
    {"llama",
     {"model.family=llama", "model.hidden_size=16", "model.num_attention_heads=4", "model.num_key_value_heads=2",
      "model.intermediate_size=20", "model.vocab_size=50", "training.dtype=bf16"}},
    {"gla",
     {"model.family=llama", "model.hidden_size=16", "model.num_attention_heads=2", "model.intermediate_size=20",
      "model.vocab_size=50", "model.layer_types=linear_attention,full_attention", "training.dtype=bf16"}},
};

#define GPT2 (&FAMILIES[0])
#define LLAMA (&FAMILIES[1])
#define GLA (&FAMILIES[2])
#define NARROW "parallelism.reduce_dtype=bf16"
#define SEQUENCE "parallelism.sequence_parallel="
#define VOCABULARY "parallelism.vocabulary_parallel=true"
#define SCHEDULE "parallelism.pipeline_parallel_schedule="
#define ISLANDS "parallelism.island_degree=2", "outer.method=local_sgd", "outer.delay_steps=1"

struct strategy {
    const struct subject *family;
    const char *name;
    int rank;
    const char *overrides[10];
    int layers; // 0: 2
};

// Each is shown once, of the family that shows more of it: GPT-2's ends share a table, Llama's model is bf16.
static const struct strategy STRATEGIES[] = {
    {GPT2, "dp", 1, {DP "2"}, 0},
    {LLAMA, "dp", 1, {DP "2"}, 0},
    {GPT2, "dp-rows", 1, {DP "2", BATCH "2"}, 0},
    {LLAMA, "zero1", 1, {FSDP "2", ZERO "1"}, 0},
    {LLAMA, "zero1-rows", 1, {FSDP "2", ZERO "1", BATCH "2"}, 0},
    {GPT2, "zero2-halves", 1, {FSDP "2", ZERO "2", UNIT "0"}, 0},
    {LLAMA, "zero3", 1, {FSDP "2", ZERO "3"}, 0},
    {GPT2, "zero3-units", 1, {FSDP "2", ZERO "3", UNIT "2"}, 3},
    {GPT2, "tp", 1, {TP "2", SEQUENCE "false"}, 0},
    {LLAMA,
     "tp-overlap",
     1,
     {TP "2", "parallelism.tensor_parallel_overlap=true", "activation_checkpoint.mode=selective"},
     0},
    {LLAMA, "cp", 1, {CP "2", ZERO "0"}, 0},
    {LLAMA, "ring", 1, {CP "3", ZERO "0", "parallelism.context_parallel_method=ring", "training.seq_len=6"}, 0},
    {GLA, "lasp2", 1, {CP "3", ZERO "0", "training.seq_len=6"}, 0},
    {LLAMA, "lightseq", 1, {CP "4", ZERO "0", "parallelism.context_parallel_method=lightseq"}, 0},
    {LLAMA, "cp-zero3", 3, {CP "2", FSDP "2", ZERO "3", TP "2", "activation_checkpoint.mode=selective"}, 0},
    {GPT2, "1f1b-first", 0, {PP "2"}, 0},
    {GPT2, "1f1b-last", 1, {PP "2"}, 0},
    {LLAMA, "interleaved", 1, {PP "2", SCHEDULE "interleaved"}, 4},
    {GPT2, "zb-h1", 1, {PP "2", SCHEDULE "zb-h1"}, 0},
    {LLAMA, "zb-v", 0, {PP "2", SCHEDULE "zb-v"}, 4},
    {LLAMA, "hanayo-zero2", 2, {PP "2", SCHEDULE "hanayo", FSDP "2", ZERO "2"}, 4},
    {GPT2, "parts", 3, {PP "2", TP "2", SEQUENCE "false"}, 0},
    {GPT2, "vocabulary-first", 0, {PP "2", VOCABULARY}, 0},
    {LLAMA, "vocabulary-last", 3, {PP "2", TP "2", VOCABULARY}, 0},
    {LLAMA, "vocabulary-rows", 0, {PP "2", VOCABULARY, FSDP "2", ZERO "3", "training.logits_rows=5"}, 0},
    {GPT2,
     "layers",
     1,
     {PP "2", "activation_checkpoint.full_layers=1", "activation_checkpoint.selective_layers=0,1"},
     6},
    {LLAMA, "islands", 3, {ISLANDS, PP "2", FSDP "2", ZERO "1"}, 0},
    {LLAMA, "outer_take", 3, {ISLANDS, FSDP "2", ZERO "1"}, 0},
    {LLAMA, "outer_exchange", 3, {ISLANDS, FSDP "2", ZERO "1"}, 0},
    {LLAMA, "outer_settle", 3, {ISLANDS, FSDP "2", ZERO "1"}, 0},
};

// The program of that name, else (NULL, too) a training step.
static const struct program *program_shown(const struct engine *engine, const char *name) {
    for (size_t i = 0; name && i < engine->programs.count; i++)
        if (strcmp(engine->programs.item[i].compiled->program.name, name) == 0)
            return &engine->programs.item[i].compiled->program;
    return &engine_compiled(engine, PROGRAM_TRAIN)->program;
}

static char *print(const struct strategy *strategy) {
    const struct subject *family = strategy->family;
    const char *overrides[32];
    char layers[40];
    size_t count = 0;
    snprintf(layers, sizeof layers, "model.num_hidden_layers=%d", strategy->layers ? strategy->layers : 2);
    overrides[count++] = layers;
    for (size_t i = 0; i < ARRAY_LENGTH(COMMON); i++)
        overrides[count++] = COMMON[i];
    for (size_t i = 0; i < ARRAY_LENGTH(family->overrides) && family->overrides[i]; i++)
        overrides[count++] = family->overrides[i];
    bool says = false;
    for (size_t i = 0; i < ARRAY_LENGTH(strategy->overrides) && strategy->overrides[i]; i++) {
        overrides[count++] = strategy->overrides[i];
        says |= strncmp(strategy->overrides[i], BATCH, strlen(BATCH)) == 0;
    }
    if (!says)
        overrides[count++] = BATCH "8";
    trireme_error error = {0};
    struct config config;
    struct model_config model;
    struct engine engine;
    assert_ok(config_load(&config, NULL, overrides, count, &error), &error);
    assert_ok(model_config_resolve(&model, &config, NO_TOKENS, &error), &error);
    assert_ok(engine_compile(&engine, &config, &model, NULL, TRAIN_AND_EVALUATE, strategy->rank, &error), &error);
    struct text text = {0};
    program_print(program_shown(&engine, strategy->name), engine.ops, &text);
    engine_release(&engine);
    config_release(&config);
    return text.text;
}

static char *read_text(const char *path) {
    FILE *file = fopen(path, "r");
    if (!file)
        return NULL;
    struct text text = {0};
    char part[4096];
    for (size_t n; (n = fread(part, 1, sizeof part - 1, file)) > 0;) {
        part[n] = 0;
        text_add(&text, "%s", part);
    }
    fclose(file);
    return text.text;
}

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    if (!file || fputs(text, file) < 0 || fclose(file))
        fail_msg("%s cannot be written", path);
}

// Fails naming the first line that differs.
static void assert_same_lines(const char *path, const char *expected, const char *found) {
    for (int line = 1; *expected || *found; line++) {
        size_t a = strcspn(expected, "\n"), b = strcspn(found, "\n");
        if (a != b || memcmp(expected, found, a) != 0)
            fail_msg("%s:%d: the file has\n  %.*s\nand the program is now\n  %.*s\nIf that is meant, "
                     "TRIREME_WRITE_GOLDEN=1 with the same command writes the file anew",
                     path, line, (int)a, expected, (int)b, found);
        expected += a + (expected[a] == '\n');
        found += b + (found[b] == '\n');
    }
}

static void assert_parses_back(const char *path, const char *printed) {
    struct op_table *ops = op_table_create();
    struct program program;
    struct text again = {0};
    trireme_error error = {0};
    if (program_parse(&program, ops, printed, strlen(printed), &error) != TRIREME_OK)
        fail_msg("%s: %s", path, error.message);
    program_print(&program, ops, &again);
    assert_string_equal(again.text, printed);
    text_release(&again);
    program_release(&program);
    free(ops);
}

static void test_strategies(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(STRATEGIES); i++) {
        const struct strategy *strategy = &STRATEGIES[i];
        char *path =
            mem_printf("%s/tests/golden/programs/%s-%s.txt", TRIREME_SOURCE, strategy->family->name, strategy->name);
        char *found = print(strategy);
        if (getenv("TRIREME_WRITE_GOLDEN"))
            write_text(path, found);
        char *expected = read_text(path);
        if (!expected)
            fail_msg("%s is missing; TRIREME_WRITE_GOLDEN=1 with the same command writes it", path);
        assert_same_lines(path, expected, found);
        assert_parses_back(path, found);
        free(expected);
        free(found);
        free(path);
    }
}

// Settings arrive where they are used, though they change no line of the files above.
static void test_settings(void **state) {
    (void)state;
#define BETAS "optimizer.beta1=0.5", "optimizer.beta2=0.75", "optimizer.weight_decay=0.125"
    static const struct {
        struct strategy strategy;
        const char *op, *attributes;
    } SETTINGS[] = {
        {{GPT2, .overrides = {BETAS, "optimizer.eps=0.25"}},
         " adamw ",
         " beta1 0.5 beta2 0.75 eps 0.25 weight_decay 0.125 "},
        {{GPT2, .overrides = {BETAS, "optimizer.name=lion"}}, " lion ", " beta1 0.5 beta2 0.75 weight_decay 0.125 "},
        {{GPT2, .overrides = {BETAS, "optimizer.name=sgd", "optimizer.momentum=0.25"}},
         " sgd ",
         " momentum 0.25 weight_decay 0.125 "},
        {{GPT2, .overrides = {BETAS, "optimizer.name=muon", "optimizer.momentum=0.25"}},
         " muon_momentum ",
         " momentum 0.25 "},
        {{GPT2, .overrides = {BETAS, "optimizer.name=muon"}}, " muon ", "[1] weight_decay 0.125 "},
        {{GPT2, .overrides = {BETAS, "optimizer.name=muon", "optimizer.eps=0.25"}},
         " adamw ",
         " beta1 0.5 beta2 0.75 eps 0.25 weight_decay 0.125 "},
        {{GPT2, .overrides = {"training.max_norm=0.5"}}, " clip ", " max_norm 0.5 "},
        {{GPT2, .overrides = {DP "2", NARROW}}, " all_reduce ", " max 0 wire 1 phase weight "},
        {{GPT2, .overrides = {FSDP "2", ZERO "2", NARROW}}, " reduce_scatter ", " wire 1 phase weight "},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(SETTINGS); i++) {
        char *text = print(&SETTINGS[i].strategy), *with = strstr(text, SETTINGS[i].attributes);
        while (with > text && with[-1] != '\n')
            with--;
        if (!with || !strstr(with, SETTINGS[i].op) || strstr(with, SETTINGS[i].op) > strchr(with, '\n'))
            fail_msg("no%swith \"%s\"", SETTINGS[i].op, SETTINGS[i].attributes);
        free(text);
    }
    // Units are gathered together with the one before them, or not before they are used.
    static const struct strategy AHEAD[] = {
        {GPT2, .overrides = {FSDP "2", ZERO "3", "parallelism.data_parallel_prefetch=0"}},
        {GPT2, .overrides = {FSDP "2", ZERO "3", "parallelism.data_parallel_prefetch=1"}},
        {GPT2, .overrides = {FSDP "2", ZERO "3"}}};
    char *text[ARRAY_LENGTH(AHEAD)];
    for (size_t i = 0; i < ARRAY_LENGTH(AHEAD); i++)
        text[i] = print(&AHEAD[i]);
    assert_string_not_equal(text[0], text[1]);
    assert_string_not_equal(text[0], text[2]);
    for (size_t i = 0; i < ARRAY_LENGTH(AHEAD); i++)
        free(text[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_strategies), cmocka_unit_test(test_settings)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
