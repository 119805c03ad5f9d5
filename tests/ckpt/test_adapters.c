// Adapters merged into the weights of the model that they adapt: the loss is the same.
#include "support/models.h"
#include "support/tensors.h"

#include "ckpt/adapters.h"
#include "model/lora.h"
#include "run/checkpoint.h"

#include <fcntl.h>
#include <math.h>
#include <unistd.h>

static const char *const OVERRIDES[] = {"training.dtype=f64", "training.seq_len=12", "training.global_batch_size=4",
                                        NULL};

static double loss_of(struct engine *e) {
    struct batch batch = batch_create(4, 12, e->model->vocab_size, 3);
    const double loss = batch_evaluate(e, &batch).loss;
    batch_release(&batch);
    return loss;
}

// Adds adapters to the file of the base model, in pieces that begin within rows. Returns how many tensors have some.
static int merge(struct adapters *a, const char *path) {
    enum { PIECE = 37 };
    trireme_error error = {0};
    struct safetensors *files;
    int adapted = 0;
    assert_ok(safetensors_open(path, &files, &error), &error);
    const int file = open(files->file.item[0].path, O_WRONLY);
    for (size_t i = 0; i < files->tensor.count; i++) {
        const struct safetensors_tensor *t = &files->tensor.item[i];
        struct adapter_sum sum;
        assert_ok(adapter_sum_read(a, t->name, &sum, &error), &error);
        adapted += sum.left != NULL;
        const int64_t count = (int64_t)(t->bytes / sizeof(double));
        for (int64_t first = 0; first < count; first += PIECE) {
            double values[PIECE];
            const int64_t now = MIN((int64_t)PIECE, count - first);
            const uint64_t from = (uint64_t)first * sizeof(double), bytes = (uint64_t)now * sizeof(double);
            assert_ok(safetensors_read(files, t, from, bytes, values, &error), &error);
            adapter_sum_add(&sum, first, now, values);
            assert_int_equal(pwrite(file, values, bytes, (off_t)(t->position + from)), bytes);
        }
        adapter_sum_release(&sum);
    }
    close(file);
    safetensors_close(files);
    return adapted;
}

static void check_merged(const char *folder, enum small number, const char *targets, int tensors) {
    struct model_config model;
    struct config config;
    struct engine e;
    struct adapters *adapters;
    trireme_error error = {0};
    char *base = mem_strdup(path_in(folder, "base")), *adapted = mem_strdup(path_in(folder, "adapters"));
    small_config(&model, small_models[number].json);
    engine_open(&e, &config, &model, OVERRIDES);
    engine_scatter(&e, 5);
    engine_save(&e, base);
    const double before = loss_of(&e);
    engine_release(&e);
    config_release(&config);

    struct model_config with = model;
    with.lora = (struct lora){.rank = 3, .alpha = 2, .rslora = number == SMALL_GPT2, .base = base};
    assert_ok(lora_set_targets(&with, targets, &error), &error);
    engine_open(&e, &config, &with, OVERRIDES);
    engine_scatter(&e, 5);
    engine_save(&e, adapted);
    const double expected = loss_of(&e);
    engine_release(&e);
    config_release(&config);
    assert_true(fabs(expected - before) > 1e-3);

    assert_ok(adapters_open(adapted, "", &adapters, &error), &error);
    assert_string_equal(adapters_base(adapters), base);
    assert_int_equal(adapters_model(adapters)->lora.rank, 3);
    assert_int_equal(merge(adapters, base), tensors);
    adapters_close(adapters);
    engine_open(&e, &config, &model, OVERRIDES);
    assert_ok(checkpoint_load_model(&e, NULL, base, true, &error), &error);
    const double merged = loss_of(&e);
    assert_close(small_models[number].name, &merged, &expected, 1, 1e-12, 0);
    engine_release(&e);
    config_release(&config);
    free(base);
    free(adapted);
}

static void llama(void **state) {
    check_merged(*state, SMALL_LLAMA, "all-linear", 14);
}

static void gpt2(void **state) {
    check_merged(*state, SMALL_GPT2, "c_attn,h.1.mlp.c_proj", 3);
}

static void neox(void **state) {
    check_merged(*state, SMALL_NEOX, "query_key_value,dense", 4);
}

static void refused(void **state) {
    struct adapters *a;
    trireme_error error = {0};
    assert_int_equal(adapters_open(*state, "", &a, &error), TRIREME_ERROR_USAGE);
    assert_says(error.message, "holds no config.json");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(llama),
        IN_FOLDER(gpt2),
        IN_FOLDER(neox),
        IN_FOLDER(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
