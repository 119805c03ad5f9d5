// All ranks verify a checkpoint's content together: each reads its share, and what is damaged is found wherever it is.
#include "support/models.h"
#include "support/tensors.h"

#include "base/text.h"
#include "run/verification.h"

#include <unistd.h>

enum { RANKS = 5, BLOCK = 1 << 16, BLOCKS = 23, BYTES = BLOCKS * BLOCK - 1000 };

struct trial {
    const char *path; // of a directory; NULL: rank 0 searches for the newest one in `parent`
    const char *parent;
    struct directory_search found;
    int ranks;
    // What each rank has come to.
    trireme_error error[RANKS];
    int64_t read[RANKS]; // bytes, or -1 where the system does not say
};

static trireme_status search(struct trial *t, struct communicator *all, trireme_error *error) {
    if (all && communicator_index(all) > 0) {
        const struct ranks_part part = verification_part(all);
        return ranks_await_end(all, &part, error);
    }
    const struct directory_verifier verifier = verification_lead(all);
    TRY(directory_newest(t->parent, MANIFEST_CONTENT, &verifier, &t->found, error));
    ranks_tell_more(all);
    return ranks_tell_end(all, error);
}

static trireme_status verify_on_rank(void *user, const struct member *member, trireme_error *error) {
    struct trial *t = user;
    const int rank = member ? member->rank : 0;
    struct communicator *all;
    trireme_error *own = &t->error[rank];
    *own = (trireme_error){0};
    TRY(ranks_control(&all, member, t->ranks, error));
    const int64_t before = thread_bytes_read();
    trireme_status status = t->path ? verification_together(t->path, MANIFEST_CONTENT, all, own) : search(t, all, own);
    t->read[rank] = before < 0 ? -1 : thread_bytes_read() - before;
    communicator_free(all);
    return status == own->status ? TRIREME_OK : error_set(error, TRIREME_ERROR_USAGE, "no message");
}

static void verify(struct trial *t, int ranks) {
    trireme_error error = {0};
    t->ranks = ranks;
    assert_ok(ranks_run(ranks, 30, verify_on_rank, t, &error), &error);
}

// A directory with a file of one tensor in many blocks.
static void save_large(const char *path) {
    trireme_error error = {0};
    struct directory *d;
    struct safetensors_layout layout;
    char *data = mem_alloc(BYTES);
    for (int i = 0; i < BYTES; i++)
        data[i] = (char)(i * 7 + i / 251);
    const struct sample_tensor tensor = {"large", SAFETENSORS_U8, 1, {BYTES}, data};
    assert_ok(directory_begin(path, DIRECTORY_REFUSE, &d, &error), &error);
    tensors_declare(&layout, "model", 0, &tensor, 1);
    assert_ok(tensors_write(&layout, directory_path(d), &tensor, d, BLOCK, &error), &error);
    assert_ok(directory_commit(d, &error), &error);
    free(data);
}

static void each_rank_reads_its_share(void **state) {
    struct trial t = {.path = path_in(*state, "step-1")};
    save_large(t.path);
    for (int ranks = 1; ranks <= RANKS; ranks++) {
        enum { MORE = 5 * BLOCK / 4 }; // a block more than others, and the manifest
        int64_t all = 0;
        verify(&t, ranks);
        if (t.read[0] < 0)
            skip();
        for (int r = 0; r < ranks; r++) {
            assert_ok(t.error[r].status, &t.error[r]);
            assert_in_range(t.read[r], BYTES / ranks - BLOCK, BYTES / ranks + MORE);
            all += t.read[r];
        }
        assert_in_range(all, BYTES, BYTES + ranks * BLOCK / 4);
    }
}

// Whichever rank reads it, all ranks say the same of it; and of several, of the first.
static void damage_is_found_wherever_it_is(void **state) {
    struct trial t = {.path = path_in(*state, "step-1")};
    const char *file = path_in(t.path, "model.safetensors");
    save_large(t.path);
    for (int block = BLOCKS - 2; block >= 0; block--) { // the last one is shorter
        char *says = mem_printf("/model.safetensors: bytes %d to %d, tensor \"large\", are damaged: XXH3 expected ",
                                block * BLOCK, (block + 1) * BLOCK);
        path_flip_bit(file, block * BLOCK + 999, 3);
        for (int ranks = 1; ranks <= RANKS; ranks += 2) {
            verify(&t, ranks);
            for (int r = 0; r < ranks; r++) {
                assert_int_equal(t.error[r].status, TRIREME_ERROR_CORRUPT);
                assert_says(t.error[r].message, says);
                assert_string_equal(t.error[r].message, t.error[0].message);
            }
        }
        free(says);
    }
}

// Files without blocks, and what no rank reads: sizes, the manifest.
static void all_kinds_of_damage_are_found(void **state) {
    static const char *const SAYS[] = {"/a.txt: content is damaged", "/below/b.txt: missing", "/a.txt: longer than",
                                       "/model-00001-of-00002.safetensors: truncated", "/manifest.json: "};
    for (int kind = 0; kind < (int)ARRAY_LENGTH(SAYS); kind++) {
        struct trial t = {.path = path_in(*state, "step-1")};
        assert_sample_saved(t.path, 1);
        if (kind == 0)
            path_flip_bit(path_in(t.path, "a.txt"), 0, 0);
        else if (kind == 1)
            assert_int_equal(unlink(path_in(t.path, "below/b.txt")), 0);
        else if (kind == 2)
            path_write(path_in(t.path, "a.txt"), "12");
        else if (kind == 3)
            assert_int_equal(truncate(path_in(t.path, "model-00001-of-00002.safetensors"), 80), 0);
        else
            path_flip_bit(path_in(t.path, "manifest.json"), 50, 0);
        for (int ranks = 1; ranks <= RANKS; ranks++) {
            verify(&t, ranks);
            for (int r = 0; r < ranks; r++)
                assert_says(t.error[r].message, SAYS[kind]);
        }
    }
}

// A config.json that somebody has edited is accepted where it is still the model's. All else is read none the less.
static void an_edited_configuration_hides_nothing(void **state) {
    struct trial t = {.path = path_in(*state, "step-1")};
    const char *file = path_in(t.path, "config.json"), *index = path_in(t.path, "model.safetensors.index.json");
    struct model_config config;
    struct parameter_table table;
    struct directory *d;
    trireme_error error = {0};
    char *text;
    size_t length;
    small_config(&config, small_models[SMALL_GPT2].json);
    parameter_table_create(&table, &config);
    void **data = mem_alloc(table.parameters.count * sizeof *data);
    for (size_t i = 0; i < table.parameters.count; i++)
        data[i] = mem_alloc((size_t)parameter_count(&table.parameters.item[i]) * sizeof(float));
    assert_ok(directory_begin(t.path, DIRECTORY_REFUSE, &d, &error), &error);
    path_write(path_in(directory_path(d), "a.txt"), "so that rank 1 of 2 reads config.json and the index");
    model_write(d, &config, &table, DTYPE_F32, data, 0);
    assert_ok(directory_commit(d, &error), &error);
    assert_ok(file_read(file, 1 << 16, &text, &length, &error), &error);
    char *end = strrchr(text, '}');
    assert_non_null(end);
    end[-1] = ' '; // one space for another
    path_write(file, text);
    for (int damaged = 0; damaged < 2; damaged++) {
        for (int ranks = 1; ranks <= RANKS; ranks++) {
            verify(&t, ranks);
            for (int r = 0; r < ranks; r++)
                if (damaged)
                    assert_says(t.error[r].message, "/model.safetensors.index.json: content is damaged");
                else
                    assert_ok(t.error[r].status, &t.error[r]);
        }
        path_flip_bit(index, 10, 0);
    }
    for (size_t i = 0; i < table.parameters.count; i++)
        free(data[i]);
    free(data);
    free(text);
    parameter_table_release(&table);
}

// Rank 0 searches, and all read.
static void a_search_passes_over_what_is_damaged(void **state) {
    struct trial t = {.parent = *state};
    save_large(path_in(*state, "step-7"));
    save_large(path_in(*state, "step-8"));
    save_large(path_in(*state, "step-9"));
    path_flip_bit(path_in(*state, "step-9/model.safetensors"), 11 * BLOCK, 0);
    path_flip_bit(path_in(*state, "step-8/model.safetensors"), 4 * BLOCK, 0);
    for (int ranks = 1; ranks <= RANKS; ranks += 2) {
        verify(&t, ranks);
        for (int r = 0; r < ranks; r++)
            assert_ok(t.error[r].status, &t.error[r]);
        for (int r = 1; r < ranks && t.read[0] >= 0; r++)
            assert_true(t.read[r] > BYTES / ranks);
        assert_int_equal(t.found.number, 7);
        assert_int_equal(t.found.skipped.count, 2);
        assert_says(t.found.skipped.item[0].reason, "/step-9/model.safetensors: bytes 720896 to 786432, tensor");
        assert_says(t.found.skipped.item[1].reason, "/step-8/model.safetensors: bytes 262144 to 327680, tensor");
        assert_says(t.found.skipped.item[1].reason, "\"large\", are damaged: XXH3 expected ");
        directory_search_release(&t.found);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(each_rank_reads_its_share),
        IN_FOLDER(damage_is_found_wherever_it_is),
        IN_FOLDER(all_kinds_of_damage_are_found),
        IN_FOLDER(an_edited_configuration_hides_nothing),
        IN_FOLDER(a_search_passes_over_what_is_damaged),
    };
    return cmocka_run_group_tests_name("verification", tests, NULL, NULL);
}
