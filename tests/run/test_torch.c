// Loss, every gradient and fifty steps of training against tools/reference, a plain PyTorch implementation, on the same
// weights and batches. Skipped where no Python has PyTorch.
#include "support/models.h"
#include "support/sanitized.h"
#include "support/tensors.h"

#include "base/json.h"
#include "ckpt/safetensors.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SEQUENCES = 8, SEQ_LEN = 40, STEPS = 50 };

// Wider than the small models: in bf16 a gradient that is the sum of few rounded numbers says little.
#define LLAMA_SIZES                                                                                           \
    "\"num_hidden_layers\": 2, \"hidden_size\": 64, \"intermediate_size\": 160, \"num_attention_heads\": 4, " \
    "\"num_key_value_heads\": 2, \"max_position_embeddings\": 64, \"vocab_size\": 100, \"rms_norm_eps\": 1e-5, "

static const struct family_model MODELS[] = {
    {"gpt2", "{\"architectures\": [\"GPT2LMHeadModel\"], \"n_layer\": 2, \"n_embd\": 64, \"n_head\": 4, "
             "\"n_positions\": 64, \"vocab_size\": 100}"},
    {"llama3",
     "{\"architectures\": [\"LlamaForCausalLM\"], " LLAMA_SIZES
     "\"rope_theta\": 500000.0, \"tie_word_embeddings\": false, \"rope_scaling\": {\"rope_type\": \"llama3\", "
     "\"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
     "\"original_max_position_embeddings\": 32}}"},
    {"qwen3", "{\"architectures\": [\"Qwen3ForCausalLM\"], " LLAMA_SIZES
              "\"head_dim\": 32, \"rope_theta\": 1000000.0, \"tie_word_embeddings\": true}"},
};

// tools/reference/run.py, one process for all comparisons, since loading PyTorch takes longer than these. It prints a
// line for each command.
static struct {
    pid_t process;
    FILE *commands, *lines;
} reference;

static bool has_torch(const char *python) {
    char *command = mem_printf("%s -c 'import importlib.util as u, sys; "
                               "sys.exit(not (u.find_spec(\"torch\") and u.find_spec(\"numpy\")))' 2>/dev/null",
                               python);
    bool has = system(command) == 0;
    free(command);
    return has;
}

static const char *find_python(void) {
    static const char *const CANDIDATES[] = {"python3", "/usr/bin/python3"};
    for (size_t i = 0; i < ARRAY_LENGTH(CANDIDATES); i++)
        if (has_torch(CANDIDATES[i]))
            return CANDIDATES[i];
    return NULL;
}

static bool reference_start(const char *python) {
    char *const argv[] = {(char *)python, TRIREME_SOURCE "/tools/reference/run.py", "-", NULL};
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC))
        return false;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    bool started = posix_spawnp(&reference.process, python, &actions, NULL, argv, environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    reference.commands = fdopen(in[1], "w");
    reference.lines = fdopen(out[0], "r");
    return started;
}

// Ends it; whether nothing was wrong with it.
static bool reference_end(void) {
    int status;
    fclose(reference.commands);
    fclose(reference.lines);
    return waitpid(reference.process, &status, 0) == reference.process && status == 0;
}

static void reference_run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void reference_run(const char *format, ...) {
    char line[256];
    va_list args;
    va_start(args, format);
    vfprintf(reference.commands, format, args);
    va_end(args);
    fputc('\n', reference.commands);
    if (fflush(reference.commands) || !fgets(line, sizeof line, reference.lines))
        fail_msg("the reference has failed");
}

// The arrays of `count` batches as one file; more than one batch adds a first dimension.
static void save_batches(const char *folder, const struct batch *batch, int64_t count) {
    static const char *const NAMES[] = {"tokens", "targets", "starts", "positions"};
    const size_t elements = (size_t)(batch->sequences * batch->seq_len);
    trireme_error error = {0};
    struct sample_tensor tensor[ARRAY_LENGTH(NAMES)];
    struct safetensors_layout layout;
    int32_t *all = mem_alloc(ARRAY_LENGTH(NAMES) * (size_t)count * elements * sizeof *all), *to = all;
    for (size_t k = 0; k < ARRAY_LENGTH(NAMES); k++) {
        tensor[k] = (struct sample_tensor){.name = NAMES[k], .dtype = SAFETENSORS_I32, .data = to};
        const int64_t shape[] = {count, batch->sequences, batch->seq_len};
        tensor[k].ndim = count > 1 ? 3 : 2;
        memcpy(tensor[k].shape, count > 1 ? shape : shape + 1, (size_t)tensor[k].ndim * sizeof *shape);
        for (int64_t i = 0; i < count; i++, to += elements) {
            const int32_t *const data[] = {batch[i].tokens, batch[i].targets, batch[i].starts, batch[i].positions};
            memcpy(to, data[k], elements * sizeof *to);
        }
    }
    tensors_declare(&layout, "batch", 0, tensor, ARRAY_LENGTH(NAMES));
    assert_ok(tensors_write(&layout, folder, tensor, NULL, 0, &error), &error);
    free(all);
}

static void open_model(struct engine *e, struct config *config, const struct family_model *small, const char *dtype,
                       const char *kernels) {
    struct model_config model;
    small_config(&model, small->json);
    const char *overrides[] = {dtype,
                               kernels,
                               "training.seq_len=40",
                               "training.global_batch_size=8",
                               "training.micro_batch_size=4",
                               "training.steps=50",
                               "optimizer.lr=2e-3",
                               "lr_scheduler.warmup_steps=5",
                               NULL};
    engine_open(e, config, &model, overrides);
}

// Compares a tensor of transformers with the rows of our parameter that correspond to it.
static void compare_piece(const struct engine *e, size_t number, const struct parameter_piece *piece,
                          const struct safetensors *file, double rms, double tolerance) {
    const struct parameter *p = &e->table->parameters.item[number];
    const struct safetensors_tensor *t = safetensors_find(file, piece->name);
    if (!t)
        fail_msg("the reference has no gradient of %s", piece->name);
    int64_t rows = piece->rows, columns = p->dim[1], count = rows * columns;
    assert_int_equal(t->dtype, SAFETENSORS_F32);
    assert_int_equal(t->bytes, count * 4);
    struct tensor_values g = engine_gradient(e, number);
    double *ours = mem_alloc((size_t)count * sizeof *ours), *theirs = mem_alloc((size_t)count * sizeof *theirs);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) {
            int64_t at = piece->transposed ? c * rows + r : r * columns + c;
            float value;
            memcpy(&value, (const char *)t->data + at * 4, sizeof value);
            theirs[r * columns + c] = value;
            ours[r * columns + c] = value_at(g.data, g.dtype, (piece->row + r) * columns + c);
        }
    assert_close(piece->name, ours, theirs, count, tolerance, rms);
    free(ours);
    free(theirs);
}

struct comparison {
    const char *dtype, *kernels;
    double tolerance;
};

static void check_gradients(const char *folder, const struct family_model *small, const struct comparison *c) {
    trireme_error error = {0};
    struct config config;
    struct engine e;
    char *dtype = mem_printf("training.dtype=%s", c->dtype), *kernels = mem_printf("training.kernels=%s", c->kernels);
    open_model(&e, &config, small, dtype, kernels);
    free(dtype);
    free(kernels);
    engine_scatter(&e, 32);
    const char *model = path_in(folder, c->dtype);
    char *name = mem_printf("gradients_%s.safetensors", c->dtype);
    const char *out = path_in(folder, name);
    free(name);
    struct batch batch = batch_create(SEQUENCES, SEQ_LEN, e.model->vocab_size, 37);
    if (access(out, F_OK) != 0) { // the same for all kernels
        engine_save(&e, model);
        save_batches(folder, &batch, 1);
        reference_run("grads --model '%s' --batch '%s' --out '%s' --dtype %s", model,
                      path_in(folder, "batch.safetensors"), out, c->dtype);
    }
    struct engine_result r = batch_train(&e, &batch, 0);
    assert_true(r.finite);
    struct safetensors *file;
    assert_ok(safetensors_open(out, &file, &error), &error);
    const struct safetensors_tensor *loss = safetensors_find(file, "loss");
    double expected;
    assert_true(loss && loss->dtype == SAFETENSORS_F64 && loss->bytes == sizeof expected);
    memcpy(&expected, loss->data, sizeof expected);
    assert_close("loss", &r.loss, &expected, 1, c->tolerance, 0);
    // The gradient is clipped within the update, never where it is accumulated.
    double rms = engine_gradient_rms(&e);
    size_t compared = 1;
    for (size_t i = 0; i < e.table->parameters.count; i++)
        for (int j = 0; j < e.table->parameters.item[i].pieces; j++, compared++)
            compare_piece(&e, i, &e.table->parameters.item[i].piece[j], file, rms, c->tolerance);
    assert_int_equal(compared, file->tensor.count);
    safetensors_close(file);
    batch_release(&batch);
    engine_release(&e);
    config_release(&config);
}

static void check_training(const char *folder, const struct family_model *small, const char *optimizer) {
    trireme_error error = {0};
    struct config config;
    struct engine e;
    open_model(&e, &config, small, "training.dtype=f32", optimizer);
    const char *model = path_in(folder, optimizer), *out = path_in(folder, "log.json");
    engine_save(&e, model);
    struct batch batch[STEPS];
    for (int i = 0; i < STEPS; i++) // few batches, many times: there is something to learn
        batch[i] = batch_create(SEQUENCES, SEQ_LEN, e.model->vocab_size, (uint64_t)(41 + i % 4));
    save_batches(folder, batch, STEPS);
    reference_run("train --model '%s' --batch '%s' --out '%s' training.steps=50 optimizer.lr=2e-3 "
                  "lr_scheduler.warmup_steps=5 %s",
                  model, path_in(folder, "batch.safetensors"), out, optimizer);
    json_t *log;
    assert_ok(json_parse_file(out, 1000000, &log, &error), &error);
    double first = 0, last = 0;
    for (int i = 0; i < STEPS; i++) {
        double lr = learning_rate(&config, i + 1);
        struct engine_result r = batch_train(&e, &batch[i], lr);
        double loss = json_number_value(json_array_get(json_object_get(log, "loss"), (size_t)i));
        double norm = json_number_value(json_array_get(json_object_get(log, "grad_norm"), (size_t)i));
        double their_lr = json_number_value(json_array_get(json_object_get(log, "lr"), (size_t)i));
        if (!(fabs(r.loss - loss) <= 1e-4) || !(fabs(r.grad_norm - norm) <= 1e-3 * norm) ||
            !(fabs(lr - their_lr) <= 1e-12 * lr))
            fail_msg("step %d: loss %.8f and %.8f, gradient norm %.8g and %.8g, learning rate %.12g and %.12g", i + 1,
                     r.loss, loss, r.grad_norm, norm, lr, their_lr);
        first = i == 0 ? r.loss : first;
        last = r.loss;
        batch_release(&batch[i]);
    }
    assert_true(last < first - 0.1);
    json_decref(log);
    engine_release(&e);
    config_release(&config);
}

static const enum small OTHERS[] = {SMALL_GPT2_PLAIN, SMALL_LLAMA_BIAS, SMALL_MISTRAL, SMALL_QWEN2, SMALL_WINDOWS};
static size_t current; // of MODELS, then of OTHERS; cmocka's state is the folder

static void test_model(void **state) {
    const struct family_model *small = &MODELS[current++];
    if (SANITIZED && current > 1) // most of the time is PyTorch's
        skip();
    static const struct comparison COMPARISONS[] = {
        {"f32", "fast", 1e-5}, {"bf16", "fast", 2e-2}, {"bf16", "reference", 2e-2}};
    for (size_t i = 0; i < ARRAY_LENGTH(COMPARISONS); i++)
        check_gradients(*state, small, &COMPARISONS[i]);
    check_training(*state, small, "optimizer.name=adamw");
    check_training(*state, small, "optimizer.name=muon");
}

static void test_other(void **state) {
    static const struct comparison F32 = {"f32", "fast", 1e-5};
    if (SANITIZED)
        skip();
    check_gradients(*state, &small_models[OTHERS[current++ - ARRAY_LENGTH(MODELS)]], &F32);
}

int main(void) {
    const char *python = find_python();
    if (!python) {
        puts("skipped: no python3 has PyTorch (Debian: python3-torch)");
        return 77;
    }
    signal(SIGPIPE, SIG_IGN); // where the reference has ended, that is told
    if (!reference_start(python)) {
        puts("python3 cannot be started");
        return 1;
    }
    struct CMUnitTest tests[ARRAY_LENGTH(MODELS) + ARRAY_LENGTH(OTHERS)];
    for (size_t i = 0; i < ARRAY_LENGTH(tests); i++) {
        size_t other = i - ARRAY_LENGTH(MODELS);
        tests[i] =
            i < ARRAY_LENGTH(MODELS)
                ? (struct CMUnitTest){MODELS[i].name, test_model, folder_create, folder_remove, NULL}
                : (struct CMUnitTest){small_models[OTHERS[other]].name, test_other, folder_create, folder_remove, NULL};
    }
    int failed = cmocka_run_group_tests_name("torch", tests, NULL, NULL);
    return reference_end() ? failed : 1;
}
