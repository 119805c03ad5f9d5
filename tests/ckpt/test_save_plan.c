// What ranks give for the blocks of a checkpoint's files is put together to the files that one rank makes, however the
// values are spread over ranks, and whatever blocks there are.
#include "support/spread.h"

#include "support/checkpoint.h"

// The tensors of files made in one block each are those of the whole values.
static void check_whole(const struct spread *s, const struct image *image, const char *files) {
    trireme_error error = {0};
    for (size_t i = 0; i < image_files(image); files += image_file(image, i++)->bytes) {
        struct safetensors *read;
        assert_ok(safetensors_open_memory(files, image_file(image, i)->bytes, "file", &read, &error), &error);
        for (size_t t = 0; t < read->tensor.count; t++) {
            const struct safetensors_tensor *tensor = &read->tensor.item[t];
            if (strncmp(tensor->name, "adamw.m.", 8) != 0)
                continue;
            const int number = parameter_find(&s->table, tensor->name + 8);
            assert_memory_equal(tensor->data, s->whole[1][number], tensor->bytes);
        }
        safetensors_close(read);
    }
}

static void check_model(const char *json, enum dtype dtype) {
    static const int SPREADS[][3] = {{2, 1, 1}, {1, 2, 1}, {1, 3, 2}, {2, 2, 1}, {4, 1, 2}, {2, 3, 2}};
    static const int64_t BLOCKS[] = {8, 56, 1000, 4096, 1 << 20};
    struct spread s;
    struct image image;
    size_t bytes, again;
    spread_create(&s, json, dtype);
    spread_image(&s, &image);
    assert_true(image_files(&image) > 2);
    spread_over(&s, 1, 1, 1);
    char *whole = spread_files(&s, &image, 1 << 30, &bytes);
    check_whole(&s, &image, whole);
    for (size_t k = 0; k < ARRAY_LENGTH(SPREADS); k++) {
        if (SPREADS[k][0] > s.config.num_attention_heads)
            continue;
        spread_over(&s, SPREADS[k][0], SPREADS[k][1], SPREADS[k][2]);
        for (size_t b = k == 3 ? 0 : 2; b < ARRAY_LENGTH(BLOCKS); b++) { // tiny blocks take long
            char *files = spread_files(&s, &image, BLOCKS[b], &again);
            assert_int_equal(again, bytes);
            for (size_t i = 0; i < bytes; i++)
                if (files[i] != whole[i])
                    fail_msg("spread %zu, blocks of %lld: byte %zu differs", k, (long long)BLOCKS[b], i);
            free(files);
        }
    }
    free(whole);
    image_release(&image);
    spread_release(&s);
}

// Transposed matrices, a padded vocabulary, fused projections.
static void files_of_gpt2(void **state) {
    (void)state;
    check_model(small_models[SMALL_GPT2].json, DTYPE_F32);
}

static void files_of_gpt2_without_biases(void **state) {
    (void)state;
    check_model(small_models[SMALL_GPT2_PLAIN].json, DTYPE_BF16);
}

static void files_of_a_llama(void **state) {
    (void)state;
    check_model(small_models[SMALL_LLAMA].json, DTYPE_BF16);
}

// A rank that has all terms of a mean has no block in order: the mean is to be made.
static void files_of_a_mean(void **state) {
    static const int GROUPS[] = {0, 1};
    static const double WEIGHTS[] = {0.5, 0.5};
    struct spread s;
    struct image image;
    size_t bytes;
    (void)state;
    spread_create(&s, small_models[SMALL_LLAMA].json, DTYPE_F32);
    for (int g = 0; g < SPREAD_GROUPS; g++)
        for (size_t i = 0; i < s.table.parameters.count; i++)
            for (int64_t k = 0; k < parameter_count(&s.table.parameters.item[i]); k++)
                ((float *)(void *)s.whole[g][i])[k] = g == 0 ? 1.0f : 4.0f;
    spread_image(&s, &image);
    spread_over(&s, 1, 1, 1);
    s.values[0] = (struct save_values){.dtype = DTYPE_F32, .terms = 2, .group = GROUPS, .weight = WEIGHTS};
    char *files = spread_files(&s, &image, 4096, &bytes);
    const uint64_t model = image_file(&image, 0)->bytes;
    struct safetensors *read;
    trireme_error error = {0};
    assert_ok(safetensors_open_memory(files, model, "file", &read, &error), &error);
    assert_true(read->tensor.count > 0);
    for (size_t t = 0; t < read->tensor.count; t++)
        for (size_t k = 0; k < read->tensor.item[t].bytes / sizeof(float); k++)
            assert_true(((const float *)read->tensor.item[t].data)[k] == 2.5f);
    safetensors_close(read);
    free(files);
    image_release(&image);
    spread_release(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_of_gpt2),
        cmocka_unit_test(files_of_gpt2_without_biases),
        cmocka_unit_test(files_of_a_llama),
        cmocka_unit_test(files_of_a_mean),
    };
    return cmocka_run_group_tests_name("save_plan", tests, NULL, NULL);
}
