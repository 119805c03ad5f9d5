// Checksums of token files: bits that flip are found wherever they are, and other tokens are told from the same ones.
#include "test_data.h"

#include "base/rng.h"
#include "data/block_sums.h"
#include "data/token_set.h"

// Three blocks of tokens, the last one short.
enum { TOKENS = 2 * BLOCK_BYTES / 2 + 1000 };

static void make_set(void **state, const char *name) {
    int lengths[101];
    for (size_t i = 0; i < ARRAY_LENGTH(lengths); i++)
        lengths[i] = i == 0 ? TOKENS - 100 * 7 : 7;
    assert_ok(write_documents(in(state, name), 50000, 0, lengths, ARRAY_LENGTH(lengths), &error));
}

static void flip(const char *path, int64_t bit) {
    char byte;
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, bit / 8, SEEK_SET), 0);
    assert_int_equal(fread(&byte, 1, 1, file), 1);
    byte ^= (char)(1 << bit % 8);
    assert_int_equal(fseek(file, bit / 8, SEEK_SET), 0);
    assert_int_equal(fwrite(&byte, 1, 1, file), 1);
    assert_int_equal(fclose(file), 0);
}

// Opens a set and reads all of it.
static trireme_status read_all(const char *path, trireme_error *error) {
    struct token_set *set;
    static int32_t tokens[TOKENS];
    TRY(token_set_open(path, &set, error));
    trireme_status status = token_set_read(set, 0, token_set_tokens(set), 1 << 17, tokens, error);
    token_set_close(set);
    return status;
}

static void test_flipped_bits(void **state) {
    static const char *const ENDINGS[] = {".bin", ".idx", ".sums"};
    enum { EACH = 150 };
    make_set(state, "t");
    assert_ok(read_all(in(state, "t"), &error));
    struct stat info;
    for (size_t i = 0; i < ARRAY_LENGTH(ENDINGS); i++) {
        char *name = mem_printf("t%s", ENDINGS[i]);
        const char *path = in(state, name);
        assert_int_equal(stat(path, &info), 0);
        for (uint64_t k = 0; k < EACH; k++) {
            const int64_t bit = (int64_t)(rng_philox(1, i, k).word[0] % (uint64_t)(8 * info.st_size));
            flip(path, bit);
            assert_refused(read_all(in(state, "t"), &error), TRIREME_ERROR_CORRUPT, "/t.");
            flip(path, bit);
        }
        free(name);
    }
    assert_ok(read_all(in(state, "t"), &error));
}

static void test_where(void **state) {
    struct token_set *set;
    int32_t token;
    make_set(state, "t");
    flip(in(state, "t.bin"), 8 * (BLOCK_BYTES + 5));
    assert_refused(read_all(in(state, "t"), &error), TRIREME_ERROR_CORRUPT,
                   "t.bin: bytes 1048576 to 2097152 are not those that ");
    // What a run does not read is not looked at.
    assert_ok(token_set_open(in(state, "t"), &set, &error));
    assert_ok(token_set_read(set, BLOCK_BYTES / 2 - 1, BLOCK_BYTES / 2, 50000, &token, &error));
    assert_refused(token_set_read(set, BLOCK_BYTES / 2, BLOCK_BYTES / 2 + 1, 50000, &token, &error),
                   TRIREME_ERROR_CORRUPT, "t.sums has the checksum of");
    assert_ok(token_set_read(set, BLOCK_BYTES, BLOCK_BYTES + 1, 50000, &token, &error));
    token_set_close(set);
    // Files of other sizes than the list tells of.
    make_set(state, "t");
    make_set(state, "u");
    assert_ok(write_documents(in(state, "u"), 50000, 0, (int[]){9}, 1, &error));
    assert_int_equal(rename(in(state, "u.sums"), in(state, "t.sums")), 0);
    assert_refused(read_all(in(state, "t"), &error), TRIREME_ERROR_CORRUPT, "t.sums tells of 18");
    assert_int_equal(unlink(in(state, "t.sums")), 0);
    assert_ok(read_all(in(state, "t"), &error));
}

static void expect_difference(void **state, const char *name, const struct sums_list *before, const char *part) {
    struct token_set *set;
    struct text differs = {0};
    int reads = 0;
    assert_ok(token_set_open(in(state, name), &set, &error));
    assert_ok(token_set_compare(set, before, "the list", NULL, &reads, &differs, &error));
    if (!part && differs.length)
        fail_msg("differs: %s", differs.text);
    if (part && (!differs.length || !strstr(differs.text, part)))
        fail_msg("expected \"%s\", got \"%s\"", part, differs.length ? differs.text : "");
    token_set_close(set);
    text_release(&differs);
}

static void count_reads(void *user) {
    ++*(int *)user;
}

// Of files without checksums, what was read of them before.
static void test_without_sums(void **state) {
    struct token_set *set;
    struct sums_list before = {0};
    struct text differs = {0}, json = {0};
    int32_t token;
    int reads = 0;
    make_set(state, "t");
    assert_int_equal(unlink(in(state, "t.sums")), 0);
    assert_ok(token_set_open(in(state, "t"), &set, &error));
    assert_false(token_set_is_known(set));
    assert_int_equal(token_set_known_blocks(set), 1); // the index
    assert_ok(token_set_read(set, 5, 6, 50000, &token, &error));
    token_set_list(set, &before);
    assert_int_equal(token_set_known_blocks(set), 2);
    atomic_bool stop = true;
    token_set_learn(set, &stop);
    assert_false(token_set_is_known(set));
    stop = false;
    token_set_learn(set, &stop);
    assert_true(token_set_is_known(set));
    token_set_close(set);
    // The list as it is kept in a file.
    sums_list_print(&before, &json);
    sums_list_release(&before);
    put(in(state, "list"), json.text, json.length);
    bool found;
    assert_ok(sums_list_read(&before, in(state, "list"), &found, &error));
    assert_true(found && sums_list_recognise(in(state, "list")));
    assert_int_equal(before.count, 2);
    expect_difference(state, "t", &before, NULL);
    // A block that was not read may be another now; one that was read is refused when it is read, if nothing tells
    // before that the file was written to.
    flip(in(state, "t.bin"), 8 * (BLOCK_BYTES + 5));
    expect_difference(state, "t", &before, NULL);
    flip(in(state, "t.bin"), 8);
    assert_ok(token_set_open(in(state, "t"), &set, &error));
    struct stat info;
    assert_int_equal(stat(in(state, "t.bin"), &info), 0);
    before.item[0].modified = (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec;
    assert_ok(token_set_compare(set, &before, "the list", count_reads, &reads, &differs, &error));
    assert_int_equal(differs.length + (size_t)reads, 0);
    assert_refused(token_set_read(set, 5, 6, 50000, &token, &error), TRIREME_ERROR_CORRUPT,
                   "are not those that the list has the checksum of");
    token_set_close(set);
    // Else it is read at once.
    before.item[0].modified--;
    assert_ok(token_set_open(in(state, "t"), &set, &error));
    assert_ok(token_set_compare(set, &before, "the list", count_reads, &reads, &differs, &error));
    assert_int_equal(reads, 1);
    assert_non_null(strstr(differs.text, "bytes 0 to 1048576 of "));
    token_set_close(set);
    flip(in(state, "t.bin"), 8);
    expect_difference(state, "t", &before, NULL);
    // The index and sizes.
    flip(in(state, "t.idx"), 8 * 34); // a length, with the pointers that follow from it, would do as well
    assert_refused(token_set_open(in(state, "t"), &set, &error), TRIREME_ERROR_CORRUPT, "t.idx");
    make_set(state, "t");
    expect_difference(state, "t", &before, NULL);
    assert_ok(write_documents(in(state, "t"), 50000, 0, (int[]){TOKENS - 700, 700}, 2, &error));
    expect_difference(state, "t", &before, "t.idx has ");
    assert_ok(write_documents(in(state, "t"), 50000, 0, (int[]){9}, 1, &error));
    expect_difference(state, "t", &before, "t.bin has 18 bytes, before 2099152");
    make_set(state, "tt");
    make_set(state, "t");
    expect_difference(state, "t*.bin", &before, "there are 4 files of tokens, before 2");
    sums_list_release(&before);
    text_release(&differs);
    text_release(&json);
}

// One checksum of a whole set: however it is found, and another for other documents.
static void test_checksum(void **state) {
    struct token_set *set;
    uint64_t known, learnt, some, other;
    make_set(state, "t");
    assert_ok(token_set_open(in(state, "t"), &set, &error));
    assert_true(token_set_is_known(set));
    assert_ok(token_set_checksum(set, true, &known, &error));
    token_set_close(set);
    assert_int_equal(unlink(in(state, "t.sums")), 0);
    assert_ok(token_set_open(in(state, "t"), &set, &error));
    assert_ok(token_set_checksum(set, false, &some, &error)); // of a set as small as this, all
    assert_ok(token_set_checksum(set, true, &learnt, &error));
    token_set_close(set);
    assert_true(known == learnt && known == some);
    int lengths[101];
    for (size_t i = 0; i < ARRAY_LENGTH(lengths); i++)
        lengths[i] = i == 0 ? TOKENS - 100 * 7 : i == 5 ? 6 : i == 6 ? 8 : 7;
    assert_ok(write_documents(in(state, "t"), 50000, 0, lengths, ARRAY_LENGTH(lengths), &error));
    assert_ok(token_set_open(in(state, "t"), &set, &error));
    assert_ok(token_set_checksum(set, true, &other, &error));
    token_set_close(set);
    assert_true(other != known);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, folder_setup, folder_teardown)
    const struct CMUnitTest tests[] = {TEST(test_flipped_bits), TEST(test_where), TEST(test_without_sums),
                                       TEST(test_checksum)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
