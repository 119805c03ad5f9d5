// What happens to a checkpoint between a save and a resume: bits that change, and calls that fail while it is read. It
// is refused, with the file and what is wrong; or the same bits are loaded.
#include "support/faults.h"
#include "support/runs.h"
#include "support/sanitized.h"

#include "base/reserve.h"
#include "base/rng.h"
#include "ckpt/tree.h"
#include "engine/engine.h"
#include "run/checkpoint.h"

#include <errno.h>
#include <math.h>
#include <sys/stat.h>

enum { FLIPS = SANITIZED ? 700 : 10000, SHARE_OF_HEAD = 3 };

static const char *const OVERRIDES[] = {RUNS_LLAMA, "model.num_hidden_layers=1", "training.steps=2",
                                        "training.threads=1", NULL};

// The state of a run that has loaded a checkpoint.
struct loaded {
    struct config config;
    struct model_config model;
    struct engine engine;
    size_t bytes;
    char *state; // as the checkpoint has it
    struct state_progress progress;
    char *path;
    const char *parent;
};

static trireme_status load_into(struct loaded *l, const char *path, struct state_progress *progress,
                                trireme_error *error) {
    memset(l->engine.state, 0x5a, l->bytes);
    TRY(state_files_progress(path, progress, error));
    const trireme_status status = checkpoint_load(&l->engine, NULL, path, progress, error);
    if (status != TRIREME_OK)
        state_progress_release(progress);
    return status;
}

static void loaded_create(struct loaded *l, const char *folder) {
    trireme_error error = {0};
    size_t count = 0;
    while (OVERRIDES[count])
        count++;
    runs_prepare(folder);
    runs_train_until(folder, OVERRIDES, NULL, 0);
    *l = (struct loaded){.parent = path_in(folder, "run/checkpoint")};
    l->path = mem_printf("%s/step-2", l->parent);
    assert_ok(config_load(&l->config, NULL, OVERRIDES, count, &error), &error);
    assert_ok(model_config_read(&l->model, l->path, &error), &error);
    assert_ok(engine_create(&l->engine, &l->config, &l->model, NULL, TRAIN_AND_EVALUATE, NULL, &error), &error);
    l->bytes = (size_t)l->engine.stage->state.table.bytes[SPACE_DEVICE];
    l->state = mem_alloc(l->bytes);
    assert_ok(load_into(l, l->path, &l->progress, &error), &error);
    memcpy(l->state, l->engine.state, l->bytes);
}

static void loaded_release(struct loaded *l) {
    engine_release(&l->engine);
    config_release(&l->config);
    state_progress_release(&l->progress);
    free(l->state);
    free(l->path);
}

// As a run resumes. A checkpoint that is damaged is found to be so, and there is none but it.
static trireme_status resume(struct loaded *l, struct state_progress *progress, trireme_error *error) {
    struct directory_search search;
    TRY(directory_newest(l->parent, MANIFEST_CONTENT, NULL, &search, error));
    trireme_status status = TRIREME_OK;
    if (!search.path)
        status = error_set(error, TRIREME_ERROR_CORRUPT, "%s",
                           search.skipped.count ? search.skipped.item[0].reason : "there is none");
    else
        status = load_into(l, search.path, progress, error);
    directory_search_release(&search);
    return status;
}

static void assert_same_state(const struct loaded *l, const struct state_progress *p) {
    assert_memory_equal(l->engine.state, l->state, l->bytes);
    assert_true(p->step == l->progress.step && p->tokens == l->progress.tokens && p->updates == l->progress.updates);
    assert_string_equal(p->config, l->progress.config);
    assert_string_equal(p->data, l->progress.data);
}

// ---- bits

// One bit of the file; what it is.
static void flip_one(struct loaded *l, const char *name, off_t at, int bit, int *refused, int *loaded) {
    const char *path = mem_printf("%s/%s", l->path, name);
    struct state_progress progress = {0};
    trireme_error error = {0};
    path_flip_bit(path, at, bit);
    const trireme_status status = resume(l, &progress, &error);
    path_flip_bit(path, at, bit);
    if (status == TRIREME_OK) {
        assert_same_state(l, &progress);
        state_progress_release(&progress);
        ++*loaded;
    } else {
        assert_refused(status, TRIREME_ERROR_CORRUPT, &error, name);
        assert_false(strstr(error.message, "there is none"));
        ++*refused;
    }
    free((char *)path);
}

static void test_bits(void **state) {
    struct loaded l;
    struct tree tree;
    trireme_error error = {0};
    size_t files = 0;
    loaded_create(&l, *state);
    assert_ok(tree_list(l.path, &tree, &error), &error);
    for (size_t i = 0; i < tree.entry.count; i++)
        files += !tree.entry.item[i].directory;
    assert_true(files >= 9); // model, state, their indices, configuration, two of the tokenizer, progress, manifest
    for (size_t i = 0; i < tree.entry.count; i++) {
        const char *name = tree.entry.item[i].name, *path = path_in(l.path, name);
        int refused = 0, loaded = 0;
        struct stat info;
        if (tree.entry.item[i].directory)
            continue;
        assert_int_equal(stat(path, &info), 0);
        const size_t flips = divide_up(FLIPS, (int64_t)files);
        for (size_t n = 0; n < flips; n++) {
            // Headers and what else stands first are short, and full of what can go wrong.
            const double bytes = n % SHARE_OF_HEAD ? (double)info.st_size : fmin(3000, (double)info.st_size);
            const off_t at = (off_t)(rng_uniform(17, i, 2 * n) * bytes);
            flip_one(&l, name, at, (int)(rng_uniform(17, i, 2 * n + 1) * 8), &refused, &loaded);
        }
        print_message("%s: %d refused, %d without effect\n", name, refused, loaded);
        // What a config.json says beside the model is nobody's but its reader's; all else is known to the bit.
        assert_true(loaded == 0 || strcmp(name, "config.json") == 0);
    }
    tree_release(&tree);
    loaded_release(&l);
}

// Of blocks the tensors are named, whichever bit it is.
static void test_tensors_are_named(void **state) {
    static const char *const FILES[] = {"model.safetensors", "training/state.safetensors"};
    struct loaded l;
    loaded_create(&l, *state);
    for (size_t i = 0; i < ARRAY_LENGTH(FILES); i++) {
        const char *path = path_in(l.path, FILES[i]);
        struct state_progress progress;
        struct stat info;
        trireme_error error = {0};
        assert_int_equal(stat(path, &info), 0);
        path_flip_bit(path, info.st_size - 1, 3);
        assert_refused(resume(&l, &progress, &error), TRIREME_ERROR_CORRUPT, &error, FILES[i]);
        assert_says(error.message, i ? "adamw.m." : "model.");
        path_flip_bit(path, info.st_size - 1, 3);
    }
    loaded_release(&l);
}

// ---- calls

// The nth call of a kind fails while the checkpoint is read; then it is read.
static void test_calls(void **state) {
    static const struct {
        enum fault_kind kind;
        int code, least;
    } KINDS[] = {{FAULT_OPEN, EIO, 9}, {FAULT_READ, EIO, 9}, {FAULT_MAP, ENOMEM, 2}, {FAULT_ALLOCATE, ENOMEM, 50}};
    struct loaded l;
    loaded_create(&l, *state);
    for (size_t k = 0; k < ARRAY_LENGTH(KINDS); k++) {
        int failures = 0;
        bool reached = true;
        for (int nth = 1; reached; nth += KINDS[k].kind == FAULT_ALLOCATE ? 1 + nth / 20 : 1) {
            struct state_progress progress;
            trireme_error error = {0};
            assert_ok(reserve_take(&error), &error);
            faults_set(1u << KINDS[k].kind, nth, KINDS[k].code);
            trireme_status status = resume(&l, &progress, &error);
            reached = faults_clear();
            if (status == TRIREME_OK) {
                assert_same_state(&l, &progress);
                state_progress_release(&progress);
                status = reserve_check(&error); // as whoever goes on asks
            }
            if (status != TRIREME_OK) {
                assert_true(reached && error.message[0] && !strchr(error.message, '\n'));
                assert_true(status == TRIREME_ERROR_IO || status == TRIREME_ERROR_MEMORY);
                assert_says(error.message, KINDS[k].kind == FAULT_ALLOCATE ? "" : strerror(KINDS[k].code));
                failures++;
            }
            reserve_give();
            assert_ok(resume(&l, &progress, &error), &error);
            assert_same_state(&l, &progress);
            state_progress_release(&progress);
        }
        print_message("%s: %d\n", fault_kind_names[KINDS[k].kind], failures);
        assert_true(failures >= KINDS[k].least);
    }
    loaded_release(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_bits),
        IN_FOLDER(test_tensors_are_named),
        IN_FOLDER(test_calls),
    };
    return cmocka_run_group_tests_name("damage", tests, NULL, NULL);
}
