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
    struct state_group group[2];
};

static void moments_create(struct moments *x, const struct parameter_table *table, enum dtype m, enum dtype v) {
    x->m = allocate(table, m);
    x->v = allocate(table, v);
    x->group[0] = (struct state_group){"adamw.m", parameter_values_at(m, x->m), NULL};
    x->group[1] = (struct state_group){"adamw.v", parameter_values_at(v, x->v), NULL};
}

static void moments_release(struct moments *x, const struct parameter_table *table) {
    release_all(table, x->m);
    release_all(table, x->v);
}

static void save_state(struct fixture *f, const struct moments *x, size_t groups, int64_t step) {
    trireme_error error = {0};
    struct directory *d;
    struct state_progress progress = progress_of(step);
    assert_ok(directory_begin(f->path, DIRECTORY_REFUSE, &d, &error), &error);
    assert_ok(state_files_save(d, &f->table, x->group, groups, &progress, &error), &error);
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
    assert_ok(state_files_load(f.path, &f.table, after.group, 2, &error), &error);
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
    assert_says(state_files_load(f.path, &f.table, x.group, 2, &error), &error, "\"adamw.v.embed.weight\" is missing");
    assert_says(state_files_load(f.path, &f.table, x.group, 0, &error), &error,
                "\"adamw.m.embed.weight\" is unexpected");
    moments_create(&y, &f.table, DTYPE_F64, DTYPE_F32);
    assert_says(state_files_load(f.path, &f.table, y.group, 1, &error), &error,
                "expected F64 [70, 16], found F32 [70, 16]");
    moments_release(&y, &f.table);
    setup(&other, QWEN2 "}", DTYPE_F32, false);
    moments_create(&y, &other.table, DTYPE_F32, DTYPE_F32);
    assert_says(state_files_load(f.path, &other.table, y.group, 1, &error), &error,
                "expected F32 [64, 16], found F32 [70, 16]");
    moments_release(&y, &other.table);
    teardown(&other);

    char *command = mem_printf("truncate -s -1 '%s/state.safetensors'", f.path);
    assert_int_equal(system(command), 0);
    free(command);
    struct state_progress progress;
    assert_says(state_files_progress(f.path, &progress, &error), &error, "state.safetensors");
    moments_release(&x, &f.table);
    teardown(&f);

    setup(&f, LLAMA "}", DTYPE_F32, false); // a file of the right name with something else in it
    struct safetensors_writer *w = safetensors_writer_create(f.root, "state", 0);
    assert_ok(safetensors_writer_begin(w, &error), &error);
    assert_ok(safetensors_writer_finish(w, &error), &error);
    safetensors_writer_free(w);
    assert_says(state_files_progress(f.root, &progress, &error), &error, "holds no training state");
    static const char *const STEP[] = {"", "-1", " 1", "1x", "9223372036854775808"};
    for (size_t i = 0; i < ARRAY_LENGTH(STEP); i++) {
        w = safetensors_writer_create(f.root, "state", 0);
        safetensors_writer_metadata(w, "trireme_state", "1");
        safetensors_writer_metadata(w, "step", STEP[i]);
        assert_ok(safetensors_writer_begin(w, &error), &error);
        assert_ok(safetensors_writer_finish(w, &error), &error);
        safetensors_writer_free(w);
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
        x.group[k].has = y.group[k].has = has[k];
    save_state(&f, &x, 2, 3);
    assert_ok(state_files_load(f.path, &f.table, y.group, 2, &error), &error);
    for (size_t i = 0; i < parameters; i++) {
        const struct parameter *p = &f.table.parameters.item[i];
        assert_memory_equal(i % 2 ? y.v[i] : y.m[i], i % 2 ? x.v[i] : x.m[i],
                            (size_t)(parameter_rows(p) * p->dim[1]) * sizeof(float)); // without padding
    }
    y.group[0].has = NULL;
    assert_says(state_files_load(f.path, &f.table, y.group, 2, &error), &error, "is missing");
    y.group[0].has = has[0];
    has[0][0] = false;
    assert_says(state_files_load(f.path, &f.table, y.group, 2, &error), &error,
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
    assert_ok(state_files_load(f.path, &f.table, x.group, 1, &error), &error);
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
        cmocka_unit_test(state_survives_to_the_bit),
        cmocka_unit_test(state_that_does_not_fit_is_named),
        cmocka_unit_test(groups_of_some_parameters),
        cmocka_unit_test(large_states_go_in_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
