// Tests of src/config/: what is accepted, where values come from, every kind of refusal, and the resolved print.
#include "config/key.h"

#include <locale.h>
#include <setjmp.h>
#include <unistd.h>

#include <cmocka.h>

// ---- helpers

static struct config load(const char *yaml, const char *const *overrides, size_t count) {
    struct config config;
    trireme_error error = {0};
    trireme_status status = config_load_text(&config, "run.yaml", yaml, strlen(yaml), overrides, count, &error);
    if (status != TRIREME_OK)
        fail_msg("refused: %s", error.message);
    return config;
}

static void expect_message(trireme_status status, const trireme_error *error, const char *expected) {
    assert_int_equal(status, TRIREME_ERROR_USAGE);
    assert_int_equal(error->status, TRIREME_ERROR_USAGE);
    assert_string_equal(error->message, expected);
    assert_null(strchr(error->message, '\n'));
}

static void expect_refused_bytes(const char *yaml, size_t length, const char *expected) {
    struct config config, untouched;
    memset(&config, 0x5a, sizeof config);
    memcpy(&untouched, &config, sizeof config);
    trireme_error error = {0};
    trireme_status status = config_load_text(&config, "run.yaml", yaml, length, NULL, 0, &error);
    expect_message(status, &error, expected);
    assert_memory_equal(&config, &untouched, sizeof config);
}

static void expect_refused(const char *yaml, const char *expected) {
    expect_refused_bytes(yaml, strlen(yaml), expected);
}

// Up to four arguments, NULL after the last.
static trireme_status load_arguments(struct config *config, const char *bare, const char *const *argument,
                                     trireme_error *error) {
    int count = 0;
    while (argument[count])
        count++;
    return config_load_arguments(config, NULL, bare, count, (char *const *)argument, error);
}

static void expect_argument_refused(const char *bare, const char *const *argument, const char *expected) {
    struct config config;
    trireme_error error = {0};
    trireme_status status = load_arguments(&config, bare, argument, &error);
    expect_message(status, &error, expected);
}

#define ARGUMENTS(...)      \
    (const char *const[]) { \
        __VA_ARGS__, NULL   \
    }

static char *print(const struct config *config) {
    struct text text = {0};
    config_print(&text, config);
    return text.text;
}

// ---- what is accepted

static void test_defaults(void **state) {
    (void)state;
    const char *const nothing[] = {"", "# a comment\n", "---\n", "training:\n# steps: 3\noptimizer:\n",
                                   "\xef\xbb\xbf\n"};
    for (size_t i = 0; i < ARRAY_LENGTH(nothing); i++) {
        struct config config = load(nothing[i], NULL, 0);
        assert_int_equal(config.training.steps, 1000);
        assert_int_equal(config.training.dtype, CONFIG_DTYPE_F32);
        assert_int_equal(config.training.micro_batch_size, 0); // as the mesh asks for
        assert_true(config.optimizer.lr == 3e-4);
        assert_true(config.generate.cache);
        assert_true(config.data.split[0] == 1 && config.data.split[1] == 0);
        assert_string_equal(config.data.path, "");
        assert_string_equal(config.run.directory, "run");
        assert_string_equal(config_origin(&config, "training.steps"), "default");
        assert_false(config_is_set(&config, "training.steps"));
        config_release(&config);
    }
}

static void test_file(void **state) {
    (void)state;
    struct config config = load("%YAML 1.1\n"
                                "---\n"
                                "training:\n"
                                "  steps: 12\n"
                                "  dtype: bf16\n"
                                "  max_norm: 2\n"
                                "  global_batch_size: 8\n"
                                "optimizer: {lr: 1e-3, beta2: .5}\n"
                                "data:\n"
                                "  path: \"t\\u00e9xt \\\"x\\\"\"\n"
                                "  split:\n"
                                "    - 0.75\n"
                                "    - 0.25\n"
                                "model:\n"
                                "  tie_word_embeddings: true\n"
                                "generate:\n"
                                "  cache: false\n"
                                "  prompt: 12:30\n"
                                "...\n",
                                NULL, 0);
    assert_int_equal(config.training.steps, 12);
    assert_int_equal(config.training.dtype, CONFIG_DTYPE_BF16);
    assert_true(config.training.max_norm == 2);
    assert_int_equal(config.training.micro_batch_size, 0);
    assert_true(config.optimizer.lr == 1e-3 && config.optimizer.beta2 == 0.5);
    assert_string_equal(config.data.path, "t\xc3\xa9xt \"x\"");
    assert_true(config.data.split[0] == 0.75 && config.data.split[1] == 0.25);
    assert_int_equal(config.model.tie_word_embeddings, CONFIG_TRUE);
    assert_false(config.generate.cache);
    assert_string_equal(config.generate.prompt, "12:30");
    assert_string_equal(config_origin(&config, "training.steps"), "run.yaml:4");
    assert_string_equal(config_origin(&config, "data.split"), "run.yaml:11");
    assert_true(config_is_set(&config, "optimizer.lr"));
    assert_false(config_is_set(&config, "optimizer.beta1"));
    config_release(&config);
}

// As Python and other programs write them.
static void test_forms_of_numbers_and_switches(void **state) {
    (void)state;
    struct config config = load("training:\n  steps: 1e3\n  seed: +7\n  seq_len: 1.28e2\n"
                                "optimizer: {lr: +3e-4, weight_decay: +.1}\n"
                                "generate:\n  cache: FALSE\n"
                                "model:\n  tie_word_embeddings: True\n",
                                NULL, 0);
    assert_int_equal(config.training.steps, 1000);
    assert_int_equal(config.training.seed, 7);
    assert_int_equal(config.training.seq_len, 128);
    assert_true(config.optimizer.lr == 3e-4 && config.optimizer.weight_decay == .1);
    assert_false(config.generate.cache);
    assert_int_equal(config.model.tie_word_embeddings, CONFIG_TRUE);
    config_release(&config);
}

static void test_overrides(void **state) {
    (void)state;
    const char *const overrides[] = {"training.steps=7", "data.split=[0.5, 0.5]", "generate.prompt=a: [b=\"c\"]# ",
                                     "data.path="};
    struct config config = load("training:\n  steps: 12\n", overrides, ARRAY_LENGTH(overrides));
    assert_int_equal(config.training.steps, 7);
    assert_true(config.data.split[1] == 0.5);
    assert_string_equal(config.generate.prompt, "a: [b=\"c\"]# ");
    assert_string_equal(config.data.path, "");
    assert_string_equal(config_origin(&config, "training.steps"), "settings");
    assert_true(config_is_set(&config, "data.path"));
    config_release(&config);
}

// Of several values the last counts; a name alone is enough where no other section has it.
static void test_repeated_and_bare_arguments(void **state) {
    (void)state;
    struct config config;
    trireme_error error = {0};
    const char *const *arguments = ARGUMENTS("--training.steps=7", "global_batch_size=12", "--training.steps", "8",
                                             "--seq_len", "64", "--training.global_batch_size=24");
    assert_int_equal(load_arguments(&config, NULL, arguments, &error), TRIREME_OK);
    assert_int_equal(config.training.steps, 8);
    assert_int_equal(config.training.global_batch_size, 24);
    assert_int_equal(config.training.seq_len, 64);
    assert_string_equal(config_origin(&config, "training.seq_len"), "command line");
    config_release(&config);
}

// All keys that are wrong are told at once, whatever lies below them; a few, if there are very many.
static void test_several_wrong_keys(void **state) {
    (void)state;
    struct config config;
    trireme_error error = {0};
    static const char YAML[] = "training:\n  stepps: 3\n  batch: {a: 1, b: [2, {c: 3}]}\nnosuch:\n  a: {b: [1]}\n"
                               "run: {directory: z, directory: y}\n";
    const char *const wrong[] = {"optimizer.lr=-1", "optimizer.momemtum=1", "training.seq_len=16", "lr=x"};
    assert_int_equal(config_load_text(&config, "run.yaml", YAML, strlen(YAML), wrong, 1, &error), TRIREME_ERROR_USAGE);
    static const char *const TOLD[] = {
        "run.yaml:2: training.stepps: unknown key, given 3",
        "; also run.yaml:3: training.batch: unknown key, given a mapping", "; also run.yaml:4: nosuch: unknown section",
        "; also run.yaml:6: run.directory: given twice", "; also settings: optimizer.lr: given -1, accepts"};
    const char *at = error.message;
    for (size_t i = 0; i < ARRAY_LENGTH(TOLD); i++) {
        at = strstr(at, TOLD[i]);
        assert_non_null(at);
    }
    assert_null(strstr(error.message, " more"));
    assert_int_equal(config_load_text(&config, "run.yaml", YAML, strlen(YAML), wrong, ARRAY_LENGTH(wrong), &error),
                     TRIREME_ERROR_USAGE);
    assert_true(text_ends(error.message, "; and 2 more"));
    // What is not YAML ends the reading, after what was wrong before.
    expect_refused(
        "training:\n  stepps: 3\n  steps: [\n",
        "run.yaml:2: training.stepps: unknown key, given 3; the nearest is training.steps: a whole number from "
        "1 to 1000000000 (steps); also run.yaml:4: not YAML: while parsing a flow node, "
        "did not find expected node content");
}

static void expect_without_effect(const char *const *settings, size_t count, const char *expected) {
    struct config config;
    trireme_error error = {0};
    struct text keys = {0};
    assert_int_equal(config_load(&config, NULL, settings, count, &error), TRIREME_OK);
    config_without_effect(&config, &keys);
    assert_string_equal(keys.length ? keys.text : "", expected);
    text_release(&keys);
    config_release(&config);
}

// Keys that do nothing beside others are told, but not the defaults that a run's own file spells out.
static void test_keys_without_effect(void **state) {
    (void)state;
    const char *const idle[] = {"optimizer.momentum=0.5", "optimizer.offload_directory=x", "outer.sync_steps=8",
                                "lr_scheduler.decay_ratio=0.5", "lr_scheduler.min_lr_factor=0"};
    expect_without_effect(idle, ARRAY_LENGTH(idle),
                          "optimizer.momentum 0.5 (optimizer.name is adamw), optimizer.offload_directory x "
                          "(optimizer.offload is none), lr_scheduler.decay_ratio 0.5 "
                          "(lr_scheduler.decay_type is cosine), outer.sync_steps 8 (outer.method is none)");
    const char *const used[] = {"optimizer.name=sgd", "optimizer.momentum=0.5", "outer.method=diloco",
                                "outer.sync_steps=8", "outer.offload=file",     "optimizer.offload_directory=x"};
    expect_without_effect(used, ARRAY_LENGTH(used), "");
    struct config config;
    trireme_error error = {0};
    struct text whole = {0}, keys = {0};
    assert_int_equal(config_load(&config, NULL, NULL, 0, &error), TRIREME_OK);
    config_print(&whole, &config);
    config_release(&config);
    assert_int_equal(config_load_text(&config, "config.yaml", whole.text, whole.length, NULL, 0, &error), TRIREME_OK);
    config_without_effect(&config, &keys);
    assert_int_equal(keys.length, 0);
    config_release(&config);
    text_release(&whole);
}

static void test_arguments(void **state) {
    (void)state;
    struct config config;
    trireme_error error = {0};
    const char *const *arguments = ARGUMENTS("--training.steps=7", "--training.seq_len", "64", "training.seed=3",
                                             "--prompt", "-1 = --x", "--temperature=0.5", "--generate.seed", "4");
    assert_int_equal(load_arguments(&config, "generate", arguments, &error), TRIREME_OK);
    assert_int_equal(config.training.steps, 7);
    assert_int_equal(config.training.seq_len, 64);
    assert_int_equal(config.training.seed, 3);
    assert_string_equal(config.generate.prompt, "-1 = --x");
    assert_true(config.generate.temperature == 0.5);
    assert_int_equal(config.generate.seed, 4);
    config_release(&config);

    assert_int_equal(config_load_arguments(&config, NULL, NULL, 0, NULL, &error), TRIREME_OK);
    config_release(&config);
}

static void test_load_from_disk(void **state) {
    (void)state;
    const char *top = getenv("TMPDIR");
    char *path = mem_printf("%s/trireme-config-XXXXXX", top && *top ? top : "/tmp");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    const char *yaml = "training:\n  steps: 5\n";
    assert_int_equal(write(fd, yaml, strlen(yaml)), (ssize_t)strlen(yaml));
    struct config config;
    trireme_error error = {0};
    assert_int_equal(config_load(&config, path, NULL, 0, &error), TRIREME_OK);
    assert_int_equal(config.training.steps, 5);
    char *origin = mem_printf("%s:2", path);
    assert_string_equal(config_origin(&config, "training.steps"), origin);
    free(origin);
    config_release(&config);

    assert_int_equal(ftruncate(fd, 9 << 20), 0);
    assert_true(config_load(&config, path, NULL, 0, &error) != TRIREME_OK);
    assert_non_null(strstr(error.message, path));
    close(fd);
    unlink(path);
    assert_int_equal(config_load(&config, path, NULL, 0, &error), TRIREME_ERROR_USAGE);
    assert_non_null(strstr(error.message, path));
    free(path);
}

// ---- what is refused

static void test_unknown_names(void **state) {
    (void)state;
    expect_refused(
        "training:\n  sep_len: 512\n",
        "run.yaml:2: training.sep_len: unknown key, given 512; the nearest is training.seq_len: a whole number "
        "from 1 to 16777216 (tokens)");
    expect_refused(
        "training:\n  seq-len: 512\n",
        "run.yaml:2: training.seq-len: unknown key, given 512; use training.seq_len: a whole number from 1 to "
        "16777216 (tokens)");
    expect_refused(
        "training:\n  block_size: 64\n",
        "run.yaml:2: training.block_size: unknown key, given 64; use training.seq_len: a whole number from 1 to "
        "16777216 (tokens)");
    expect_refused("learning_rate: 3e-4\n",
                   "run.yaml:1: learning_rate: unknown key, given 3e-4; use optimizer.lr: a number from 0 to 1000");
    expect_refused("training:\n  lr: 3e-4\n",
                   "run.yaml:2: training.lr: unknown key, given 3e-4; use optimizer.lr: a number from 0 to 1000");
    expect_refused("training:\n  batch_size: 4\n", "run.yaml:2: training.batch_size: unknown key, given 4; use "
                                                   "training.global_batch_size or training.micro_batch_size");
    expect_refused("run:\n  xylophone: {a: 1}\n",
                   "run.yaml:2: run.xylophone: unknown key, given a mapping; the section has run.directory");
    expect_refused("steps: [1, 2, 3, 4, 5]\n", "run.yaml:1: steps: unknown key, given [1, 2, 3, 4, ...]; use "
                                               "training.steps or validation.steps");
    expect_refused("trainin:\n  steps: 5\n", "run.yaml:1: trainin: unknown section; the nearest is training");
    expect_refused(
        "xylophone:\n  steps: 5\n",
        "run.yaml:1: xylophone: unknown section; there are model, training, lora, optimizer, lr_scheduler, data, "
        "activation_checkpoint, checkpoint, validation, metrics, profiling, parallelism, outer, comm, eval, generate, "
        "tokenizer, convert, show, run");
    expect_refused("training.steps: 5\n", "run.yaml:1: training.steps: write `training:` on a line, and below it, "
                                          "indented, `steps:` with its value");
    expect_refused("training:\n  \"st\\e[2Jeps\\n\": 5\n",
                   "run.yaml:2: training.st\\x1b[2Jeps\\x0a: unknown key, given 5; the section has training.steps, "
                   "training.seq_len, training.global_batch_size, ... (`trireme help training` has all)");
    expect_refused(
        "training:\n  steps: 5\u00a0\n",
        "run.yaml:2: training.steps: given 5\\u00a0, accepts a whole number from 1 to 1000000000 (steps), in "
        "digits alone without a unit or separator");
}

// For a feature that is not there, no near key is suggested.
static void test_what_is_not_there(void **state) {
    (void)state;
    expect_refused(
        "parallelism:\n  Expert-Model-Parallel-Size: 2\n",
        "run.yaml:2: parallelism.Expert-Model-Parallel-Size: unknown key, given 2; mixture of experts is not "
        "supported");
    expect_refused("model:\n  num_experts: 8\n",
                   "run.yaml:2: model.num_experts: unknown key, given 8; mixture of experts is not supported");
    expect_refused("model:\n  dropout: 0.1\n", "run.yaml:2: model.dropout: given 0.1, accepts one of configured, none");
    expect_refused("device: cuda\n", "run.yaml:1: device: unknown key, given cuda; GPUs are not supported");
    expect_refused("overlap-grad-reduce: true\n",
                   "run.yaml:1: overlap-grad-reduce: unknown key, given true; communication runs beside computing "
                   "wherever the program allows");
    expect_refused(
        "checkpoint:\n  async_mode: async\n",
        "run.yaml:2: checkpoint.async_mode: unknown key, given async; a run waits for its checkpoints, which "
        "are in training.dtype");
    expect_refused("training:\n  resume: true\n",
                   "run.yaml:2: training.resume: unknown key, given true; the same command resumes the run in "
                   "run.directory");
    for (size_t i = 0; i < CONFIG_KEY_COUNT; i++) {
        trireme_error error = {0};
        assert_int_equal(key_refuse_unknown("", "", key_table[i].name, NULL, &error), TRIREME_ERROR_USAGE);
        assert_null(strstr(error.message, "is not supported"));
    }
}

static void test_synonyms(void **state) {
    (void)state;
    const struct {
        const char *theirs, *ours;
    } cases[] = {
        {"--block_size", "use training.seq_len:"},
        {"--n_layer", "use model.num_hidden_layers:"},
        {"--n_embd", "use model.hidden_size:"},
        {"--max_iters", "use training.steps:"},
        {"--learning-rate", "use optimizer.lr:"},
        {"--seq-length", "use training.seq_len:"},
        {"--micro-batch-size", "use training.micro_batch_size:"},
        {"--global-batch-size", "use training.global_batch_size:"},
        {"--num-layers", "use model.num_hidden_layers:"},
        {"--tensor-model-parallel-size", "use parallelism.tensor_parallel_degree:"},
        {"--num-layers-per-virtual-pipeline-stage", "use parallelism.pipeline_parallel_chunks:"},
        {"--clip-grad", "use training.max_norm:"},
        {"--per_device_train_batch_size", "use training.micro_batch_size:"},
        {"--training.local_batch_size", "use training.micro_batch_size:"},
        {"--model.name", "use model.preset:"},
        {"--validation.interval", "use validation.freq:"},
        {"--training.n_ctx", "use training.seq_len:"},
        {"--model.n_ctx", "use model.max_position_embeddings:"},
        {"--n_ctx", "use model.max_position_embeddings or training.seq_len"},
        {"--checkpoint.folder", "the section has checkpoint.interval, checkpoint.keep_latest_k"},
        {"--out_dir", "use run.directory:"},
        {"--prompt", "use generate.prompt:"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct config config;
        trireme_error error = {0};
        char *with_value = mem_printf("%s=1", cases[i].theirs);
        const char *const *forms[] = {ARGUMENTS(cases[i].theirs, "1"), ARGUMENTS(with_value),
                                      ARGUMENTS(cases[i].theirs)};
        for (size_t form = 0; form < ARRAY_LENGTH(forms); form++) {
            assert_int_equal(load_arguments(&config, NULL, forms[form], &error), TRIREME_ERROR_USAGE);
            if (!strstr(error.message, cases[i].ours))
                fail_msg("%s: \"%s\" lacks \"%s\"", cases[i].theirs, error.message, cases[i].ours);
        }
        free(with_value);
    }
}

static void test_wrong_values(void **state) {
    (void)state;
#define STEPS "accepts a whole number from 1 to 1000000000 (steps)"
    expect_refused("training:\n  steps: 1.5\n", "run.yaml:2: training.steps: given 1.5, " STEPS);
    expect_refused("training:\n  steps: many\n", "run.yaml:2: training.steps: given many, " STEPS);
    expect_refused("training:\n  steps: true\n", "run.yaml:2: training.steps: given true, " STEPS);
    expect_refused("training:\n  steps: 0\n", "run.yaml:2: training.steps: given 0, " STEPS);
    expect_refused("training:\n  steps: -3\n", "run.yaml:2: training.steps: given -3, " STEPS);
    expect_refused("training:\n  steps: 99999999999999999999\n",
                   "run.yaml:2: training.steps: given 99999999999999999999, " STEPS);
    expect_refused("training:\n  steps: '12'\n",
                   "run.yaml:2: training.steps: given the text \"12\", " STEPS ", without quotes");
    expect_refused("training:\n  steps: 1e-3\n", "run.yaml:2: training.steps: given 1e-3, " STEPS);
    expect_refused("training:\n  steps: 1e18\n", "run.yaml:2: training.steps: given 1e18, " STEPS);
    expect_refused("training:\n  steps: 010\n",
                   "run.yaml:2: training.steps: given 010, " STEPS ", without a leading zero");
    for (size_t i = 0; i < 4; i++) {
        const char *const suffixed[] = {"1k", "10GB", "1_000", "0x10"};
        char *yaml = mem_printf("training:\n  steps: %s\n", suffixed[i]);
        char *message =
            mem_printf("run.yaml:2: training.steps: given %s, %s, in digits alone without a unit or separator",
                       suffixed[i], STEPS);
        expect_refused(yaml, message);
        free(yaml);
        free(message);
    }
    expect_refused("training:\n  steps:\n", "run.yaml:2: training.steps: given nothing, " STEPS);
    expect_refused("training:\n  steps: [3]\n", "run.yaml:2: training.steps: given [3], " STEPS);
    expect_refused("training:\n  steps: {a: 3}\n", "run.yaml:2: training.steps: given a mapping, " STEPS);
#undef STEPS
    expect_refused("optimizer:\n  lr: 1e-3x\n", "run.yaml:2: optimizer.lr: given 1e-3x, accepts a number from 0 to "
                                                "1000, in digits alone without a unit or separator");
    expect_refused("optimizer:\n  lr: .inf\n", "run.yaml:2: optimizer.lr: given .inf, accepts a number from 0 to 1000");
    expect_refused("optimizer:\n  lr: 1e-400\n",
                   "run.yaml:2: optimizer.lr: given 1e-400, accepts a number from 0 to 1000");
    expect_refused("optimizer:\n  lr: nan\n", "run.yaml:2: optimizer.lr: given nan, accepts a number from 0 to 1000");
    expect_refused("optimizer:\n  lr: -1e-3\n",
                   "run.yaml:2: optimizer.lr: given -1e-3, accepts a number from 0 to 1000");
    expect_refused("optimizer:\n  beta1: 1\n",
                   "run.yaml:2: optimizer.beta1: given 1, accepts a number from 0, below 1");
    expect_refused("optimizer:\n  eps: 0\n",
                   "run.yaml:2: optimizer.eps: given 0, accepts a number from 1e-20, below 1");
    expect_refused("optimizer:\n  eps: 9e-21\n",
                   "run.yaml:2: optimizer.eps: given 9e-21, accepts a number from 1e-20, below 1");
    expect_refused("optimizer:\n  eps: 1e-999\n",
                   "run.yaml:2: optimizer.eps: given 1e-999, accepts a number from 1e-20, below 1");
    expect_refused("generate:\n  top_p: 0\n", "run.yaml:2: generate.top_p: given 0, accepts a number above 0, up to 1");
    expect_refused("generate:\n  cache: yes\n", "run.yaml:2: generate.cache: given yes, accepts true or false");
    expect_refused("generate:\n  cache: yes\n", "run.yaml:2: generate.cache: given yes, accepts true or false");
    expect_refused("training:\n  dtype: fp32\n",
                   "run.yaml:2: training.dtype: given fp32, accepts one of f32, bf16, f64");
    expect_refused("data:\n  path: ~\n",
                   "run.yaml:2: data.path: given nothing, accepts text (path); \"\" is the empty text");
    expect_refused("data:\n  path: [a, b]\n", "run.yaml:2: data.path: given [a, b], accepts text (path)");
    expect_refused("parallelism:\n  zero_stage: 4\n",
                   "run.yaml:2: parallelism.zero_stage: given 4, accepts a whole number from 0 to 3");
}

static void test_wrong_fractions(void **state) {
    (void)state;
    const char *const wrong[] = {"0.9",          "[0.9]",       "[0.9, 0.1, 0]", "[0.9, 0.2]",
                                 "[0.9, 0.095]", "[1.5, -0.5]", "[a, 1]",        "[]"};
    for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++) {
        char *yaml = mem_printf("data:\n  split: %s\n", wrong[i]);
        char *expected = mem_printf("run.yaml:2: data.split: given %s, accepts a list of 2 fractions that sum to 1, as "
                                    "[0.9, 0.1] (train, validation)",
                                    wrong[i]);
        expect_refused(yaml, expected);
        free(yaml);
        free(expected);
    }
    expect_refused("data:\n  split: [[1], 0]\n",
                   "run.yaml:2: split: expected a plain word or number, not a list or mapping");
    expect_argument_refused(
        NULL, ARGUMENTS("--data.split=[0.9, 0.1] x"),
        "command line: data.split: given [0.9, 0.1] x, accepts a list of 2 fractions that sum to 1, "
        "as [0.9, 0.1] (train, validation)");
}

#define TO_UTF8 "; convert the file; what names a file may be !!binary and base64"

static void test_wrong_yaml(void **state) {
    (void)state;
    expect_refused("training:\n  steps: 5\n  seed: 1\n  steps: 6\n",
                   "run.yaml:4: training.steps: given twice (before: run.yaml:2)");
    expect_refused("training:\n  steps: 5\nrun:\ntraining:\n  seed: 6\n",
                   "run.yaml:4: training: a second section of this name; join the two");
    expect_refused("training: 5\n", "run.yaml:1: training: is a section; its keys go below it, indented");
    expect_refused("- training\n", "run.yaml:1: expected sections such as `training:` with keys below them");
    expect_refused("words\n", "run.yaml:1: expected sections such as `training:` with keys below them");
    expect_refused("training:\n  ? [steps]\n  : 5\n",
                   "run.yaml:2: training: expected a plain word or number, not a list or mapping");
    expect_refused("{[a]: b}\n", "run.yaml:1: section: expected a plain word or number, not a list or mapping");
    expect_refused("training:\n  steps: &a 5\n", "run.yaml:2: &a: anchors are not accepted, write the value out");
    expect_refused("training:\n  steps: *a\n", "run.yaml:2: *a: aliases are not accepted, write the value out");
    expect_refused("training: !!map\n  steps: 5\n",
                   "run.yaml:1: tag:yaml.org,2002:map: tags are not accepted, write the value alone");
    static const char BINARY[] = ": tag:yaml.org,2002:binary: tags are not accepted, write the value alone";
    char expected[128];
    snprintf(expected, sizeof expected, "run.yaml:1%s", BINARY);
    expect_refused("!!binary ZGF0YQ==: {}\n", expected);
    expect_refused("training: {!!binary c3RlcHM=: 5}\n", expected);
    expect_refused("data: {split: [!!binary MQ==, 0]}\n", expected);
    expect_refused("data: {path: !!binary Zm9=v}\n", "run.yaml:1: !!binary: not base64");
    expect_refused("data: {path: !!binary Zm8}\n", "run.yaml:1: !!binary: not base64");
    expect_refused("data: {path: !!binary YQBi}\n", "run.yaml:1: path: the text holds a NUL character");
    expect_refused("training: {steps: !!binary NQ==}\n",
                   "run.yaml:1: training.steps: given the text \"5\", accepts a whole number from 1 to 1000000000 "
                   "(steps), without quotes");
    expect_refused("data: {text_field: !!binary /w==}\n",
                   "run.yaml:1: data.text_field: given the text \"\\xff\", accepts text (name), in UTF-8");
    expect_refused("training:\n  steps: 5\n---\nrun:\n",
                   "run.yaml:3: a second document begins; a configuration is one");
    expect_refused("training:\n  steps: 5\n seed: 6\n",
                   "run.yaml:3: not YAML: while parsing a block mapping that begins in line 1, did not find expected "
                   "key");
    expect_refused(
        "training:\n  steps: 5\nrun:\n  directory: \"a\nb: 1\n",
        "run.yaml:6: not YAML: while scanning a quoted scalar that begins in line 4, found unexpected end of "
        "stream");
    static const char TABS[] = "run.yaml:2: not YAML: while scanning for the next token, found character that cannot "
                               "start any token; indent with blanks, not tabs";
    expect_refused("training:\n\tsteps: 5\n", TABS);
    expect_refused("training:\n  \tsteps: 5\n", TABS);
    expect_refused(
        "training:\n  steps: @5\n",
        "run.yaml:2: not YAML: while scanning for the next token, found character that cannot start any token");
    expect_refused("data:\n  path: \"a\\0b\"\n", "run.yaml:2: path: the text holds a NUL character");
    expect_refused("run:\n  directory: \xe9t\xe9\n", "run.yaml:2: not UTF-8 text: byte 0xe9 at offset 18" TO_UTF8);
    expect_refused("run:\n  directory: \xed\xa0\x80\n", "run.yaml:2: not UTF-8 text: byte 0xed at offset 18" TO_UTF8);
    expect_refused("run:\n  directory: a\x01\n", "run.yaml:2: the character U+0001 at offset 19 may not stand in YAML");
    expect_refused_bytes("\xff\xfer\0u\0n\0", 8, "run.yaml:1: not UTF-8 text: byte 0xff at offset 0" TO_UTF8);

    struct text list = {0};
    text_add(&list, "data:\n  split: [0");
    for (int i = 0; i < 64; i++)
        text_add(&list, ", 0");
    text_add(&list, "]\n");
    expect_refused(list.text, "run.yaml:2: split: a list of more than 64");
    text_release(&list);

    size_t deep = 100000;
    char *nested = mem_alloc(deep + 1);
    memset(nested, '[', deep);
    expect_refused(nested, "run.yaml:1: expected sections such as `training:` with keys below them");
    memset(nested, ' ', deep);
    free(nested);

    size_t huge = (16 << 20) + 1;
    char *blanks = mem_alloc(huge + 1);
    memset(blanks, '\n', huge);
    expect_refused(blanks, "run.yaml: 16777217 bytes, a configuration has at most 16777216");
    free(blanks);
}

static void test_wrong_arguments(void **state) {
    (void)state;
    expect_argument_refused(NULL, ARGUMENTS("steps"), "command line: steps: expected --section.key=value");
    expect_argument_refused(NULL, ARGUMENTS("-x=5"), "command line: -x=5: expected --section.key=value");
    expect_argument_refused(NULL, ARGUMENTS("--"), "command line: --: expected --section.key=value");
    expect_argument_refused(NULL, ARGUMENTS("--=5"), "command line: =5: expected section.key=value");
    expect_argument_refused(NULL, ARGUMENTS("--training.steps"),
                            "command line: --training.steps: needs a value (one that begins with -- goes after an =)");
    expect_argument_refused(NULL, ARGUMENTS("--training.steps", "--training.seed=3"),
                            "command line: --training.steps: needs a value (one that begins with -- goes after an =)");
    expect_argument_refused(NULL, ARGUMENTS("--training.steps="),
                            "command line: training.steps: given nothing, accepts a whole number from 1 to 1000000000 "
                            "(steps)");
    expect_argument_refused(NULL, ARGUMENTS("--data.text_field=a\xff"),
                            "command line: data.text_field: given the text \"a\\xff\", accepts text (name), in UTF-8");
    expect_argument_refused(NULL, ARGUMENTS("--training.\xff=\xfe"),
                            "command line: training.\\xff: unknown key, given \\xfe; the section has training.steps, "
                            "training.seq_len, training.global_batch_size, ... (`trireme help training` has all)");
    // A name alone is a key where it is the only one, or where the command says which section it means.
    expect_argument_refused("generate", ARGUMENTS("--steps=5"),
                            "command line: steps: unknown key, given 5; use training.steps or validation.steps");
    struct config config;
    trireme_error error = {0};
    char *prompt = mem_printf("generate.prompt=%0*d", 65537, 0);
    const char *overrides[] = {prompt};
    assert_int_equal(config_load(&config, NULL, overrides, 1, &error), TRIREME_ERROR_USAGE);
    assert_non_null(strstr(error.message, ", of at most 65536 bytes"));
    assert_true(strlen(error.message) < 300);
    free(prompt);
}

static void test_rules_over_several_keys(void **state) {
    (void)state;
    expect_refused(
        "training:\n  global_batch_size: 12\n  micro_batch_size: 5\n",
        "run.yaml:3: training.micro_batch_size: given 5, must divide training.global_batch_size, which is 12 "
        "(run.yaml:2)");
    expect_refused(
        "model:\n  preset: gpt2\n  config: a/config.json\n",
        "run.yaml:3: model.config: given a/config.json, but model.preset (run.yaml:2) names the model already: leave "
        "one of them out");
    expect_refused("model:\n  config: a/config.json\n  family: gpt2\n",
                   "run.yaml:3: model.family: given gpt2, but model.config (run.yaml:2) names the model already: leave "
                   "one of them out");
    expect_refused("validation:\n  freq: 10\n",
                   "run.yaml:2: validation.freq: given 10, but nothing is set apart to validate on: set data.split, as "
                   "[0.9, 0.1], or data.validation_path");
    expect_refused("data:\n  split: [0.9, 0.1]\n  validation_path: v\n",
                   "run.yaml:2: data.split: given [0.9, 0.1], sets a validation part apart, but data.validation_path "
                   "(run.yaml:3) names one already");
    struct config config = load("data:\n  validation_path: v\nvalidation:\n  freq: 10\nlr_scheduler:\n"
                                "  warmup_steps: 5\n  decay_steps: 5\n",
                                NULL, 0);
    config_release(&config);
}

// ---- print

static void test_print_round_trip(void **state) {
    (void)state;
    const char *const overrides[] = {
        "training.steps=77",
        "training.freeze=*.mlp.*, a",
        "optimizer.lr=0.1234567890123456789",
        "optimizer.eps=1e-20",
        "data.split=[0.7, 0.3]",
        "generate.prompt=a\n\"b\\\t\x7f\xc2\x85 \xe2\x80\xa8 \xf0\x9f\x9a\xa3 # c: [d]",
        "generate.cache=false",
        "data.path=/a/b.c",
        "run.directory=NULL",
        "model.rope_theta=500000",
        "lr_scheduler.decay_type=wsd",
        "model.init_from= x ",
    };
    const char *yaml = "data:\n  text_field: \"\\x07\\x7f\\uFEFF\\u2028\\n\"\n";
    struct config config = load(yaml, overrides, ARRAY_LENGTH(overrides));
    char *first = print(&config);
    struct config again = load(first, NULL, 0);
    char *second = print(&again);
    assert_string_equal(first, second);
    assert_memory_equal(&config.training, &again.training, offsetof(struct config_training, freeze));
    assert_string_equal(config.training.freeze, again.training.freeze);
    assert_memory_equal(&config.optimizer, &again.optimizer, offsetof(struct config_optimizer, offload_directory));
    assert_string_equal(config.optimizer.offload_directory, again.optimizer.offload_directory);
    assert_memory_equal(&config.lr_scheduler, &again.lr_scheduler, sizeof config.lr_scheduler);
    assert_memory_equal(config.data.split, again.data.split, sizeof config.data.split);
    assert_string_equal(config.generate.prompt, again.generate.prompt);
    assert_string_equal(config.data.text_field, again.data.text_field);
    assert_string_equal(config.model.init_from, again.model.init_from);
    assert_string_equal(again.run.directory, "NULL");
    for (size_t i = 0; i < CONFIG_KEY_COUNT; i++)
        assert_non_null(again.origin[i]);
    assert_non_null(strstr(first, "\n  steps: 77                             # [steps] "));
    assert_non_null(strstr(first, "\n  dtype: f32                            # [f32 | bf16 | f64] "));
    assert_non_null(strstr(first, "\n  directory: \"NULL\" "));
    free(first);
    free(second);
    config_release(&config);
    config_release(&again);
}

// Whatever names a file may hold any bytes, in a file as base64; people read them escaped.
static void test_paths_of_any_bytes(void **state) {
    (void)state;
    static const char *const KEYS[] = {"data.path",
                                       "data.validation_path",
                                       "model.config",
                                       "run.directory",
                                       "model.init_from",
                                       "optimizer.offload_directory",
                                       "parallelism.pipeline_parallel_schedule"};
    for (size_t i = 0; i < ARRAY_LENGTH(KEYS); i++) {
        char *override = mem_printf("%s=\xff\"\n\\", KEYS[i]);
        struct config config = load("", (const char *const[]){override}, 1);
        char *printed = print(&config), *line = strstr(printed, ": !!binary \"/yIKXA==\" ");
        assert_non_null(line);
        struct config again = load(printed, NULL, 0);
        struct text shown = {0};
        config_print_value(&shown, &again, KEYS[i]);
        assert_string_equal(shown.text, "\"\\xff\\\"\\n\\\\\"");
        text_release(&shown);
        config_add_value(&shown, NULL, &again, KEYS[i]);
        assert_string_equal(shown.text, "{\"base64\":\"/yIKXA==\"}");
        text_release(&shown);
        trireme_error error;
        assert_int_equal(config_refuse(&config, KEYS[i], &error, "no"), TRIREME_ERROR_USAGE);
        assert_non_null(strstr(error.message, ": given \"\\xff\\\"\\n\\\\\", no"));
        config_release(&config);
        config_release(&again);
        free(printed);
        free(override);
    }
    // As PyYAML and others write them, too: over several lines, and what is UTF-8.
    static const char FOLDED[] = "data: {path: !!binary Zm9v}\nrun:\n  directory: !!binary |\n    /w\n    ==\n";
    struct config config = load(FOLDED, NULL, 0);
    assert_string_equal(config.data.path, "foo");
    assert_string_equal(config.run.directory, "\xff");
    config_release(&config);
}

// With every text as long as possible and every character escaped, what is printed can still be loaded.
static void test_print_longest(void **state) {
    (void)state;
    char *longest = mem_alloc(65537);
    memset(longest, 7, 65536);
    char *overrides[CONFIG_KEY_COUNT];
    size_t count = 0;
    for (size_t i = 0; i < CONFIG_KEY_COUNT; i++)
        if (key_table[i].type == KEY_TEXT && strcmp(key_table[i].name, "preset") != 0)
            overrides[count++] = mem_printf("%s.%s=%s", key_table[i].section, key_table[i].name, longest);
    struct config config = load("", (const char *const *)overrides, count);
    char *printed = print(&config);
    struct config again = load(printed, NULL, 0);
    assert_string_equal(again.generate.prompt, longest);
    config_release(&config);
    config_release(&again);
    free(printed);
    free(longest);
    while (count > 0)
        free(overrides[--count]);
}

static void test_numbers_in_any_locale(void **state) {
    (void)state;
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8") && !setlocale(LC_NUMERIC, "fr_FR.UTF-8"))
        skip();
    struct config config = load("optimizer:\n  lr: 0.25\n", NULL, 0);
    char *printed = print(&config);
    setlocale(LC_NUMERIC, "C");
    assert_true(config.optimizer.lr == 0.25);
    assert_non_null(strstr(printed, "lr: 0.25 "));
    free(printed);
    config_release(&config);
}

// A default that depends on another key holds as long as nobody sets the key, however often that other one changes.
static void test_defaults_beside_others(void **state) {
    (void)state;
    struct config config, again;
    trireme_error error = {0};
    struct text text = {0};
    const char *const muon[] = {"optimizer.name=muon"}, *const set[] = {"optimizer.momentum=0.5",
                                                                        "optimizer.name=muon"};
    assert_int_equal(config_load(&config, NULL, NULL, 0, &error), TRIREME_OK);
    assert_true(config.optimizer.momentum == 0.9);
    config_release(&config);
    assert_int_equal(config_load(&config, NULL, set, ARRAY_LENGTH(set), &error), TRIREME_OK);
    assert_true(config.optimizer.momentum == 0.5);
    config_forget(&config, "optimizer.momentum");
    assert_true(config.optimizer.momentum == 0.95);
    config_release(&config);
    assert_int_equal(config_load(&config, NULL, muon, ARRAY_LENGTH(muon), &error), TRIREME_OK);
    assert_true(config.optimizer.momentum == 0.95);
    assert_false(config_is_set(&config, "optimizer.momentum"));
    config_print(&text, &config);
    assert_int_equal(config_load_text(&again, "printed", text.text, text.length, NULL, 0, &error), TRIREME_OK);
    assert_true(again.optimizer.momentum == 0.95);
    assert_int_equal(config_set(&config, "optimizer.name", "sgd", "test", &error), TRIREME_OK);
    assert_true(config.optimizer.momentum == 0.9);
    assert_int_equal(config_set(&again, "optimizer.name", "sgd", "test", &error), TRIREME_OK);
    assert_true(again.optimizer.momentum == 0.95);
    text_release(&text);
    config_release(&config);
    config_release(&again);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_defaults_beside_others),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_forms_of_numbers_and_switches),
        cmocka_unit_test(test_overrides),
        cmocka_unit_test(test_repeated_and_bare_arguments),
        cmocka_unit_test(test_several_wrong_keys),
        cmocka_unit_test(test_keys_without_effect),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_load_from_disk),
        cmocka_unit_test(test_unknown_names),
        cmocka_unit_test(test_what_is_not_there),
        cmocka_unit_test(test_synonyms),
        cmocka_unit_test(test_wrong_values),
        cmocka_unit_test(test_wrong_fractions),
        cmocka_unit_test(test_wrong_yaml),
        cmocka_unit_test(test_wrong_arguments),
        cmocka_unit_test(test_rules_over_several_keys),
        cmocka_unit_test(test_print_round_trip),
        cmocka_unit_test(test_paths_of_any_bytes),
        cmocka_unit_test(test_print_longest),
        cmocka_unit_test(test_numbers_in_any_locale),
    };
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
