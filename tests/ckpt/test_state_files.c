// Training state in files: every bit survives, and what does not fit is named.
#include "test_model_files.h"

#include "ckpt/state_files.h"

static struct state_progress progress_of(int64_t step) {
    return (struct state_progress){.step = step,
                                   .tokens = step * 1000,
                                   .updates = step - 2,
                                   .skipped = 2,
                                   .skipped_in_a_row = 1,
                                   .config = "a: 1\n# \"b\"\n"};
}

struct moments {
    void **m, **v;
    struct holdings own[2];
    struct sample_group saved[2];
    struct state_group group[2];
};

static void moments_create(struct moments *x, const struct parameter_table *table, enum dtype m, enum dtype v) {
    x->m = allocate(table, m);
    x->v = allocate(table, v);
    x->own[0] = holdings_of_whole(table, x->m);
    x->own[1] = holdings_of_whole(table, x->v);
    x->saved[0] = (struct sample_group){"adamw.m", m, x->m, NULL};
    x->saved[1] = (struct sample_group){"adamw.v", v, x->v, NULL};
    x->group[0] = (struct state_group){"adamw.m", {m, &x->own[0], 0}, NULL, 1};
    x->group[1] = (struct state_group){"adamw.v", {v, &x->own[1], 0}, NULL, 1};
}

static void moments_release(struct moments *x, const struct parameter_table *table) {
    release_all(table, x->m);
    release_all(table, x->v);
    holdings_release(&x->own[0]);
    holdings_release(&x->own[1]);
}

static void save_state(struct fixture *f, const struct moments *x, size_t groups, int64_t step) {
    trireme_error error = {0};
    struct directory *d;
    struct state_progress progress = progress_of(step);
    assert_ok(directory_begin(f->path, DIRECTORY_REFUSE, &d, &error), &error);
    state_write(d, &f->table, x->saved, groups, &progress);
    assert_ok(directory_commit(d, &error), &error);
    assert_ok(directory_verify(f->path, MANIFEST_CONTENT, NULL, &error), &error);
}

static void state_survives_to_the_bit(void **state) {
    (void)state;
    struct fixture f;
    struct moments before, after;
    trireme_error error = {0};
    setup(&f, LLAMA "}", DTYPE_F32, false);
    moments_create(&before, &f.table, DTYPE_F64, DTYPE_U16);
    moments_create(&after, &f.table, DTYPE_F64, DTYPE_U16);
    for (size_t i = 0; i < f.table.parameters.count; i++) {
        const struct parameter *p = &f.table.parameters.item[i];
        int64_t logical = parameter_rows(p) * p->dim[1];
        for (int64_t j = 0; j < logical; j++) { // any bits: NaNs, subnormals
            struct rng_block bits = rng_philox(1, i, (uint64_t)j);
            memcpy((double *)before.m[i] + j, &bits, 8);
            memcpy((uint16_t *)before.v[i] + j, &bits, 2);
        }
        memset((double *)before.m[i] + logical, 0, (size_t)(parameter_count(p) - logical) * 8);
        memset((uint16_t *)before.v[i] + logical, 0, (size_t)(parameter_count(p) - logical) * 2);
    }
    save_state(&f, &before, 2, 12345);
    assert_ok(state_files_load(f.path, &f.table, after.group, 2, NULL, &error), &error);
    for (size_t i = 0; i < f.table.parameters.count; i++) {
        assert_memory_equal(before.m[i], after.m[i], parameter_bytes(&f.table.parameters.item[i], DTYPE_F64));
        assert_memory_equal(before.v[i], after.v[i], parameter_bytes(&f.table.parameters.item[i], DTYPE_U16));
    }
    struct state_progress progress, expected = progress_of(12345);
    assert_ok(state_files_progress(f.path, &progress, &error), &error);
    assert_true(progress.step == 12345 && progress.tokens == 12345000 && progress.updates == 12343);
    assert_true(progress.skipped == 2 && progress.skipped_in_a_row == 1);
    assert_string_equal(progress.config, expected.config);
    state_progress_release(&progress);
    moments_release(&before, &f.table);
    moments_release(&after, &f.table);
    teardown(&f);
}

static void state_that_does_not_fit_is_named(void **state) {
    (void)state;
    struct fixture f, other;
    struct moments x, y;
    trireme_error error = {0};
    setup(&f, LLAMA "}", DTYPE_F32, false);
    moments_create(&x, &f.table, DTYPE_F32, DTYPE_F32);
    save_state(&f, &x, 1, 3);
    assert_says(state_files_load(f.path, &f.table, x.group, 2, NULL, &error), &error,
                "\"adamw.v.embed.weight\" is missing");
    assert_says(state_files_load(f.path, &f.table, x.group, 0, NULL, &error), &error,
                "\"adamw.m.embed.weight\" is unexpected");
    moments_create(&y, &f.table, DTYPE_F64, DTYPE_F32);
    assert_says(state_files_load(f.path, &f.table, y.group, 1, NULL, &error), &error,
                "expected F64 [70, 16], found F32 [70, 16]");
    moments_release(&y, &f.table);
    setup(&other, QWEN2 "}", DTYPE_F32, false);
    moments_create(&y, &other.table, DTYPE_F32, DTYPE_F32);
    assert_says(state_files_load(f.path, &other.table, y.group, 1, NULL, &error), &error,
                "expected F32 [64, 16], found F32 [70, 16]");
    moments_release(&y, &other.table);
    teardown(&other);

    char *command = mem_printf("truncate -s -1 '%s/training/state.safetensors'", f.path);
    assert_int_equal(system(command), 0);
    free(command);
    assert_says(state_files_load(f.path, &f.table, x.group, 1, NULL, &error), &error,
                "training/state.safetensors: trunc");
    moments_release(&x, &f.table);
    teardown(&f);
}

// Writes state.safetensors as it was before there was a folder for it, with one moment and the progress.
static void save_old(const char *folder, const struct sample_tensor *tensor, size_t tensors,
                     const char *const (*metadata)[2], size_t pairs) {
    trireme_error error = {0};
    struct safetensors_layout layout;
    tensors_declare(&layout, "state", 0, tensor, tensors);
    for (size_t i = 0; i < pairs; i++)
        safetensors_layout_metadata(&layout, metadata[i][0], metadata[i][1]);
    assert_ok(tensors_write(&layout, folder, tensor, NULL, 0, &error), &error);
}

static void old_state_still_loads(void **state) {
    (void)state;
    static const char *const METADATA[][2] = {{"trireme_state", "1"}, {"step", "12"},   {"tokens", "34"},
                                              {"updates", "5"},       {"skipped", "6"}, {"skipped_in_a_row", "0"},
                                              {"config", "a: 1\n"}};
    struct fixture f;
    struct moments x;
    struct state_progress progress;
    trireme_error error = {0};
    setup(&f, LLAMA "}", DTYPE_F32, false);
    moments_create(&x, &f.table, DTYPE_F32, DTYPE_F32);
    const size_t tensors = f.table.parameters.count;
    struct sample_tensor *tensor = mem_alloc(tensors * sizeof *tensor);
    for (size_t i = 0; i < tensors; i++) {
        const struct parameter *p = &f.table.parameters.item[i];
        float *data = x.v[i];
        for (int64_t k = 0; k < parameter_count(p); k++)
            data[k] = (float)(i + 1) / (float)(k + 1);
        tensor[i] = (struct sample_tensor){
            mem_printf("adamw.m.%s", p->name), SAFETENSORS_F32, p->ndim, {parameter_rows(p), p->dim[1]}, data};
    }
    save_old(f.root, tensor, tensors, METADATA, ARRAY_LENGTH(METADATA));
    assert_ok(state_files_load(f.root, &f.table, x.group, 1, NULL, &error), &error);
    for (size_t i = 0; i < tensors; i++) {
        const struct parameter *p = &f.table.parameters.item[i];
        assert_memory_equal(x.m[i], x.v[i], (size_t)(parameter_rows(p) * p->dim[1]) * sizeof(float));
        free((char *)tensor[i].name);
    }
    assert_ok(state_files_progress(f.root, &progress, &error), &error);
    assert_true(progress.step == 12 && progress.tokens == 34 && progress.updates == 5 && progress.skipped == 6);
    assert_true(progress.data_step == 0 && !progress.data);
    state_progress_release(&progress);
    free(tensor);
    moments_release(&x, &f.table);
    teardown(&f);
}

// A file of the right name with something else in it.
static void old_state_that_is_none_is_named(void **state) {
    (void)state;
    static const char *const STEP[] = {"", "-1", " 1", "1x", "9223372036854775808"};
    struct fixture f;
    struct state_progress progress;
    trireme_error error = {0};
    setup(&f, LLAMA "}", DTYPE_F32, false);
    save_old(f.root, NULL, 0, NULL, 0);
    assert_says(state_files_progress(f.root, &progress, &error), &error, "holds no training state");
    for (size_t i = 0; i < ARRAY_LENGTH(STEP); i++) {
        const char *const metadata[][2] = {{"trireme_state", "1"}, {"step", STEP[i]}};
        save_old(f.root, NULL, 0, metadata, ARRAY_LENGTH(metadata));
        assert_says(state_files_progress(f.root, &progress, &error), &error, "\"step\": expected a count, found ");
        assert_non_null(strstr(error.message, STEP[i]));
    }
    teardown(&f);
}

// Parameters of different optimizers: each is in the groups of its own alone.
static void groups_of_some_parameters(void **state) {
    (void)state;
    struct fixture f;
    struct moments x, y;
    trireme_error error = {0};
    setup(&f, LLAMA "}", DTYPE_F32, false);
    const size_t parameters = f.table.parameters.count;
    bool *has[2] = {mem_alloc(parameters * sizeof *has[0]), mem_alloc(parameters * sizeof *has[1])};
    moments_create(&x, &f.table, DTYPE_F32, DTYPE_F32);
    moments_create(&y, &f.table, DTYPE_F32, DTYPE_F32);
    for (size_t i = 0; i < parameters; i++) {
        const struct parameter *p = &f.table.parameters.item[i];
        has[i % 2][i] = true;
        for (int64_t j = 0; j < parameter_rows(p) * p->dim[1]; j++)
            ((float *)x.m[i])[j] = ((float *)x.v[i])[j] = (float)(j + (int64_t)i);
    }
    for (int k = 0; k < 2; k++)
        x.saved[k].has = y.group[k].has = has[k];
    save_state(&f, &x, 2, 3);
    assert_ok(state_files_load(f.path, &f.table, y.group, 2, NULL, &error), &error);
    for (size_t i = 0; i < parameters; i++) {
        const struct parameter *p = &f.table.parameters.item[i];
        assert_memory_equal(i % 2 ? y.v[i] : y.m[i], i % 2 ? x.v[i] : x.m[i],
                            (size_t)(parameter_rows(p) * p->dim[1]) * sizeof(float)); // without padding
    }
    y.group[0].has = NULL;
    assert_says(state_files_load(f.path, &f.table, y.group, 2, NULL, &error), &error, "is missing");
    y.group[0].has = has[0];
    has[0][0] = false; // what is saved stays
    assert_says(state_files_load(f.path, &f.table, y.group, 2, NULL, &error), &error,
                "\"adamw.m.embed.weight\" is unexpected");
    moments_release(&x, &f.table);
    moments_release(&y, &f.table);
    free(has[0]);
    free(has[1]);
    teardown(&f);
}

static float moment_of(size_t parameter, int64_t index) {
    return (float)(index + (int64_t)parameter);
}

// Parameters that are larger than what is asked for or read at once.
static void large_states_go_in_pieces(void **state) {
    (void)state;
    struct fixture f;
    struct moments x;
    trireme_error error = {0};
    setup(&f, LARGE, DTYPE_F32, false);
    moments_create(&x, &f.table, DTYPE_F32, DTYPE_U16);
    for (size_t i = 0; i < f.table.parameters.count; i++)
        for (int64_t j = 0; j < parameter_count(&f.table.parameters.item[i]); j++)
            ((float *)x.m[i])[j] = moment_of(i, j);
    save_state(&f, &x, 1, 3);
    for (size_t i = 0; i < f.table.parameters.count; i++)
        memset(x.m[i], 0xa5, parameter_bytes(&f.table.parameters.item[i], DTYPE_F32));
    assert_ok(state_files_load(f.path, &f.table, x.group, 1, NULL, &error), &error);
    for (size_t i = 0; i < f.table.parameters.count; i++) {
        const struct parameter *p = &f.table.parameters.item[i];
        for (int64_t j = 0; j < parameter_rows(p) * p->dim[1]; j++)
            if (((float *)x.m[i])[j] != moment_of(i, j))
                fail_msg("%s[%lld]: found %g", p->name, (long long)j, (double)((float *)x.m[i])[j]);
    }
    moments_release(&x, &f.table);
    teardown(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(state_survives_to_the_bit), cmocka_unit_test(state_that_does_not_fit_is_named),
        cmocka_unit_test(old_state_still_loads),     cmocka_unit_test(old_state_that_is_none_is_named),
        cmocka_unit_test(groups_of_some_parameters), cmocka_unit_test(large_states_go_in_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
