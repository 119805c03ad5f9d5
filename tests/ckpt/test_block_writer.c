// Blocks reach their places in files and come back, through io_uring and by plain calls, past the system's cache and
// through it; and what goes wrong is told for the block it happened to.
#include "support/checkpoint.h"
#include "support/faults.h"

#include "ckpt/block_writer.h"
#include "ckpt/uring.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { DEPTH = 3, FILES = 2, BLOCK = 3 * BLOCK_ALIGNMENT, BLOCKS = 7, LAST = 5000, ROOM = BLOCK + BLOCK_ALIGNMENT };
static const uint64_t BYTES = (uint64_t)BLOCK * (BLOCKS - 1) + LAST; // of each file

struct case_of {
    bool plain;
    int apart; // bytes that data lie behind an aligned place
};
static const struct case_of CASES[] = {{false, 0}, {true, 0}, {false, 512}, {true, 512}, {false, 1}, {true, 1}};

static char *memory; // [DEPTH][ROOM], and a page

static int create(void **state) {
    if (folder_create(state) != 0)
        return -1;
    for (int i = 0; i < FILES; i++) {
        char name[8];
        snprintf(name, sizeof name, "%d", i);
        const int file = open(path_in(*state, name), O_WRONLY | O_CREAT, 0600);
        assert_int_equal(ftruncate(file, (off_t)BYTES), 0);
        close(file);
    }
    memory = mem_aligned(BLOCK_ALIGNMENT, DEPTH * ROOM + BLOCK_ALIGNMENT);
    return 0;
}

static int destroy(void **state) {
    free(memory);
    return folder_remove(state);
}
#define WITH_FILES(test) cmocka_unit_test_setup_teardown(test, create, destroy)

static void empty_files(const char *folder) {
    for (int i = 0; i < FILES; i++) {
        const char *path = path_in(folder, i ? "1" : "0");
        assert_true(truncate(path, 0) == 0 && truncate(path, (off_t)BYTES) == 0);
    }
}

static int64_t block_bytes(int block) {
    return block == BLOCKS - 1 ? LAST : BLOCK;
}

static char content(int file, int64_t at) {
    return (char)(at * 7 + at / 251 + 31 * file);
}

static char *slot(int number, int apart) {
    return memory + number % DEPTH * ROOM + apart;
}

static struct block_writer *opened(const char *folder, bool plain) {
    trireme_error error = {0};
    struct block_writer *w = block_writer_create(FILES, DEPTH, plain ? BLOCK_PLAIN : BLOCK_URING);
    for (size_t i = 0; i < FILES; i++) {
        char name[8];
        snprintf(name, sizeof name, "%zu", i);
        assert_false(block_writer_is_open(w, i));
        assert_ok(block_writer_open(w, i, path_in(folder, name), &error), &error);
        assert_true(block_writer_is_open(w, i));
    }
    return w;
}

// Writes all blocks, of both files in turn; returns how many failed, and the last one's message.
static int write_all(struct block_writer *w, int apart, trireme_error *error) {
    int failed = 0;
    for (int n = 0; n < FILES * BLOCKS || block_writer_under_way(w) > 0; n++) {
        if (n >= FILES * BLOCKS || block_writer_under_way(w) == DEPTH)
            failed += block_writer_end(w, error) != TRIREME_OK;
        if (n >= FILES * BLOCKS)
            continue;
        const int file = n % FILES, block = n / FILES;
        char *data = slot(n, apart);
        for (int64_t i = 0; i < block_bytes(block); i++)
            data[i] = content(file, (int64_t)block * BLOCK + i);
        block_writer_write(w, (size_t)file, (uint64_t)block * BLOCK, data, block_bytes(block));
    }
    return failed;
}

static void check_files(const char *folder) {
    for (int i = 0; i < FILES; i++) {
        char name[8], *got = mem_alloc(BYTES + 1);
        snprintf(name, sizeof name, "%d", i);
        const int file = open(path_in(folder, name), O_RDONLY);
        assert_int_equal(read(file, got, BYTES + 1), BYTES);
        for (int64_t at = 0; at < (int64_t)BYTES; at++)
            assert_int_equal(got[at], content(i, at));
        close(file);
        free(got);
    }
}

static void test_every_way(void **state) {
    for (size_t k = 0; k < ARRAY_LENGTH(CASES); k++) {
        trireme_error error = {0};
        struct block_writer *w = opened(*state, CASES[k].plain);
        const long calls = faults_count(FAULT_WRITE), transfers = faults_count(FAULT_TRANSFER);
        assert_int_equal(write_all(w, CASES[k].apart, &error), 0);
        // The way that was asked for is the one that was gone.
        struct uring *u = CASES[k].plain ? NULL : uring_create(1);
        assert_true((faults_count(FAULT_TRANSFER) - transfers >= FILES * BLOCKS) == (u != NULL));
        assert_true((faults_count(FAULT_WRITE) == calls) == (u != NULL));
        uring_free(u);
        for (size_t i = 0; i < FILES; i++)
            assert_ok(block_writer_sync(w, i, &error), &error);
        check_files(*state);
        for (int block = BLOCKS - 1; block >= 0; block--) {
            char *data = slot(block, CASES[k].apart);
            block_writer_read(w, 1, (uint64_t)block * BLOCK, data, block_bytes(block));
            assert_int_equal(block_writer_under_way(w), 1);
            assert_ok(block_writer_end(w, &error), &error);
            for (int64_t i = 0; i < block_bytes(block); i++)
                assert_int_equal(data[i], content(1, (int64_t)block * BLOCK + i));
        }
        assert_ok(block_writer_close(w, &error), &error);
        block_writer_free(w);
        empty_files(*state);
    }
}

// How many pages of a file the system's cache has.
static int pages_cached(const char *path) {
    unsigned char in_cache[BYTES / BLOCK_ALIGNMENT + 1];
    const int file = open(path, O_RDONLY);
    void *map = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, file, 0);
    assert_true(map != MAP_FAILED);
    assert_int_equal(mincore(map, BYTES, in_cache), 0);
    munmap(map, BYTES);
    close(file);
    int count = 0;
    for (size_t i = 0; i < (size_t)divide_up((int64_t)BYTES, BLOCK_ALIGNMENT); i++)
        count += in_cache[i] & 1;
    return count;
}

// What is aligned goes past the system's cache, on file systems that have such a way; of a last block all but what is
// left of a page.
static void test_past_the_cache(void **state) {
    const int direct = open(path_in(*state, "0"), O_RDWR | O_DIRECT);
    const bool goes = direct >= 0 && pwrite(direct, memory, BLOCK, 0) == BLOCK;
    close(direct);
    if (!goes || pages_cached(path_in(*state, "0")) > 0)
        skip();
    for (size_t k = 0; k < ARRAY_LENGTH(CASES); k++) {
        trireme_error error = {0};
        struct block_writer *w = opened(*state, CASES[k].plain);
        assert_int_equal(write_all(w, CASES[k].apart, &error), 0);
        assert_ok(block_writer_close(w, &error), &error);
        block_writer_free(w);
        const int cached = pages_cached(path_in(*state, "0"));
        assert_true(CASES[k].apart ? cached > 1 : cached == 1);
        empty_files(*state);
    }
}

// The nth call fails: one block does, with the file, the bytes and the reason, whatever else is under way; all others
// are written.
static void test_failed_calls(void **state) {
    for (int plain = 0; plain < 2; plain++) {
        const unsigned kind = plain ? 1 << FAULT_WRITE : 1 << FAULT_TRANSFER;
        bool reached = true;
        int failures = 0;
        struct uring *u = plain ? NULL : uring_create(1);
        uring_free(u);
        if (!plain && !u)
            continue;
        for (int nth = 1; reached; nth++) {
            trireme_error error = {0};
            struct block_writer *w = opened(*state, plain);
            faults_set(kind, nth, ENOSPC);
            const int failed = write_all(w, 0, &error);
            reached = faults_clear();
            assert_int_equal(failed, reached);
            failures += failed;
            if (reached) {
                assert_says(error.message, ": cannot write bytes ");
                assert_says(error.message, ": No space left on device");
            }
            assert_ok(block_writer_close(w, &error), &error);
            block_writer_free(w);
        }
        assert_true(failures >= FILES * BLOCKS);
        check_files(*state);
    }
}

// A system that refuses the way, and not the block, gets it by another one; a call that is interrupted is made again.
static void test_refused_ways(void **state) {
    static const int CODES[] = {EINVAL, EOPNOTSUPP, ENOSYS, EAGAIN, EINTR};
    struct uring *u = uring_create(1);
    uring_free(u);
    for (size_t k = 0; k < ARRAY_LENGTH(CASES); k++)
        for (size_t c = 0; c < ARRAY_LENGTH(CODES); c++) {
            trireme_error error = {0};
            if (CASES[k].plain && CASES[k].apart && CODES[c] != EINTR)
                continue; // there is no other way
            if (!CASES[k].plain && !u)
                continue;
            struct block_writer *w = opened(*state, CASES[k].plain);
            faults_set(CASES[k].plain ? 1 << FAULT_WRITE : 1 << FAULT_TRANSFER, 4, CODES[c]);
            const int failed = write_all(w, CASES[k].apart, &error);
            assert_true(faults_clear());
            if (failed)
                fail_msg("case %zu, %s: %s", k, strerror(CODES[c]), error.message);
            check_files(*state);
            assert_ok(block_writer_close(w, &error), &error);
            block_writer_free(w);
            empty_files(*state);
        }
}

static void test_other_failures(void **state) {
    trireme_error error = {0};
    struct block_writer *w = block_writer_create(FILES, DEPTH, BLOCK_URING);
    assert_refused(block_writer_open(w, 0, path_in(*state, "none"), &error), TRIREME_ERROR_IO, &error,
                   "/none: cannot open: No such file or directory");
    assert_false(block_writer_is_open(w, 0));
    assert_ok(block_writer_open(w, 0, path_in(*state, "0"), &error), &error);
    // Behind the file's end.
    block_writer_read(w, 0, (uint64_t)BLOCK * BLOCKS, memory, 100);
    assert_refused(block_writer_end(w, &error), TRIREME_ERROR_IO, &error, "/0: cannot read bytes 86016 to 86116: ");
    // What lies across it.
    block_writer_read(w, 0, (uint64_t)BLOCK * (BLOCKS - 1), memory, LAST + 1);
    assert_refused(block_writer_end(w, &error), TRIREME_ERROR_IO, &error, "/0: cannot read bytes 73728 to 78729: ");
    faults_set(1 << FAULT_SYNC, 1, EIO);
    assert_refused(block_writer_sync(w, 0, &error), TRIREME_ERROR_IO, &error, "/0: cannot sync: Input/output error");
    faults_set(1 << FAULT_SYNC, 1, EINTR);
    assert_ok(block_writer_sync(w, 0, &error), &error);
    faults_set(1 << FAULT_CLOSE, 1, EIO);
    assert_refused(block_writer_close(w, &error), TRIREME_ERROR_IO, &error, "/0: cannot close: Input/output error");
    assert_true(faults_clear());
    assert_false(block_writer_is_open(w, 0));
    block_writer_free(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_FILES(test_every_way),    WITH_FILES(test_past_the_cache), WITH_FILES(test_failed_calls),
        WITH_FILES(test_refused_ways), WITH_FILES(test_other_failures),
    };
    return cmocka_run_group_tests_name("block_writer", tests, NULL, NULL);
}
