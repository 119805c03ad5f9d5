// Tests of src/base/: errors, text, files, random numbers, memory.
#include "base/base.h"
#include "base/clock.h"
#include "base/region.h"
#include "base/rng.h"
#include "base/text.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

// ---- a directory of its own for each test that wants one ----

static int directory_setup(void **state) {
    const char *top = getenv("TMPDIR");
    char *path = mem_printf("%s/trireme-base-XXXXXX", top && *top ? top : "/tmp");
    if (!mkdtemp(path))
        return -1;
    *state = path;
    return 0;
}

static int directory_teardown(void **state) {
    char *command = mem_printf("rm -rf '%s'", (char *)*state);
    int status = system(command);
    free(command);
    free(*state);
    return status;
}

static bool exists(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0;
}

static void assert_content(const char *path, const char *expected) {
    char *bytes;
    size_t length;
    assert_int_equal(file_read(path, 1 << 20, &bytes, &length, NULL), TRIREME_OK);
    assert_int_equal(length, strlen(expected));
    assert_string_equal(bytes, expected);
    free(bytes);
}

// ---- errors and bookkeeping memory ----

static void error_is_filled_and_prefixed(void **state) {
    (void)state;
    trireme_error error = {0};
    assert_int_equal(error_set(&error, TRIREME_ERROR_IO, "no %s at %d", "bread", 7), TRIREME_ERROR_IO);
    assert_int_equal(error.status, TRIREME_ERROR_IO);
    assert_string_equal(error.message, "no bread at 7");
    assert_int_equal(error_prefix(&error, TRIREME_ERROR_IO, "%s.yaml", "run"), TRIREME_ERROR_IO);
    assert_string_equal(error.message, "run.yaml: no bread at 7");
    error_set(&error, TRIREME_ERROR_USAGE, "no way %s", "one\n\x1b[2Jtwo");
    assert_string_equal(error.message, "no way one??[2Jtwo");
    assert_int_equal(error_set(NULL, TRIREME_ERROR_USAGE, "nobody listens"), TRIREME_ERROR_USAGE);
    assert_int_equal(error_prefix(NULL, TRIREME_ERROR_CORRUPT, "nobody"), TRIREME_ERROR_CORRUPT);
}

static void error_message_is_cut_not_overrun(void **state) {
    (void)state;
    struct {
        trireme_error error;
        char guard[16];
    } a;
    memset(&a, 'g', sizeof a);
    char *longest = mem_alloc(5000);
    memset(longest, 'x', 4999);
    error_set(&a.error, TRIREME_ERROR_IO, "%s", longest);
    assert_int_equal(strlen(a.error.message), sizeof a.error.message - 1);
    error_prefix(&a.error, TRIREME_ERROR_IO, "%s", longest);
    assert_int_equal(strlen(a.error.message), sizeof a.error.message - 1);
    for (size_t i = 0; i < sizeof a.guard; i++)
        assert_int_equal(a.guard[i], 'g');
    free(longest);
}

static void vec_grows_and_keeps_its_items(void **state) {
    (void)state;
    VEC(int) v = {0};
    for (int i = 0; i < 1000; i++)
        VEC_PUSH(&v, i * i);
    assert_int_equal(v.count, 1000);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(v.item[i], i * i);
    VEC_RELEASE(&v);
    assert_null(v.item);
    assert_int_equal(v.count, 0);
}

static void clock_advances(void **state) {
    (void)state;
    int64_t before = clock_now();
    usleep(2000);
    int64_t passed = clock_now() - before;
    assert_true(passed >= 2000000);
    assert_true(passed < 60000000000);
}

// ---- text ----

static void text_grows(void **state) {
    (void)state;
    struct text t = {0}, expected = {0};
    text_add(&t, "%s", "");
    assert_string_equal(t.text, "");
    for (int i = 0; i < 500; i++) {
        char number[16];
        snprintf(number, sizeof number, "%d,", i);
        text_add(&t, "%d,", i);
        text_add_bytes(&expected, number, strlen(number));
    }
    assert_int_equal(t.length, 10 * 2 + 90 * 3 + 400 * 4);
    assert_int_equal(strlen(t.text), t.length);
    assert_string_equal(t.text, expected.text);
    text_add_bytes(&t, "a\0b", 3);
    assert_memory_equal(t.text + t.length - 3, "a\0b", 4);
    text_release(&t);
    text_release(&expected);
    assert_null(t.text);
    assert_int_equal(t.capacity, 0);
}

static void text_distance_counts_edits(void **state) {
    (void)state;
    const struct {
        const char *a, *b;
        size_t distance;
    } cases[] = {
        {"", "", 0},
        {"", "abc", 3},
        {"steps", "steps", 0},
        {"steps", "step", 1},
        {"steps", "stesp", 1},
        {"seq_len", "seqlen", 1},
        {"kitten", "sitting", 3},
        {"ab", "ba", 1},
        {"ca", "abc", 3}, // 2 if a swapped pair could be edited again
        {"learning_rate", "lr", 11},
        {"abcdef", "badcfe", 3},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        assert_int_equal(text_distance(cases[i].a, cases[i].b), cases[i].distance);
        assert_int_equal(text_distance(cases[i].b, cases[i].a), cases[i].distance);
    }
}

static void text_nearest_finds_what_was_meant(void **state) {
    (void)state;
    static const struct {
        int number;
        const char *name;
    } KNOWN[] = {{1, "train"}, {2, "verify"}, {3, "tree"}, {4, "generate"}};
    static const char *const CASES[][2] = {{"trian", "train"}, {"trie", "tree"},        {"", NULL},
                                           {"show", NULL},     {"gnerate", "generate"}, {"verify", "verify"}};
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        const char *nearest = text_nearest(CASES[i][0], &KNOWN[0].name, ARRAY_LENGTH(KNOWN), sizeof KNOWN[0]);
        assert_string_equal(nearest ? nearest : "none", CASES[i][1] ? CASES[i][1] : "none");
    }
    char long_word[300] = "";
    memset(long_word, 'x', sizeof long_word - 1);
    assert_null(text_nearest(long_word, &KNOWN[0].name, ARRAY_LENGTH(KNOWN), sizeof KNOWN[0]));
}

// ---- files ----

static void file_read_gives_what_was_written(void **state) {
    char *path = mem_printf("%s/file", (char *)*state);
    assert_int_equal(file_write_atomic(path, "some\0bytes", 10, NULL), TRIREME_OK);
    char *bytes;
    size_t length;
    assert_int_equal(file_read(path, 10, &bytes, &length, NULL), TRIREME_OK);
    assert_int_equal(length, 10);
    assert_memory_equal(bytes, "some\0bytes", 11);
    free(bytes);

    size_t large = 300001;
    char *content = mem_alloc(large);
    for (size_t i = 0; i < large; i++)
        content[i] = (char)(i * 2654435761u >> 13);
    assert_int_equal(file_write_atomic(path, content, large, NULL), TRIREME_OK);
    assert_int_equal(file_read(path, SIZE_MAX / 4, &bytes, &length, NULL), TRIREME_OK);
    assert_int_equal(length, large);
    assert_memory_equal(bytes, content, large);
    free(bytes);
    free(content);

    assert_int_equal(file_write_atomic(path, "", 0, NULL), TRIREME_OK);
    assert_content(path, "");
    free(path);
}

static void file_read_reads_what_has_no_size(void **state) {
    (void)state;
    char *bytes;
    size_t length;
    assert_int_equal(file_read("/proc/self/status", 1 << 20, &bytes, &length, NULL), TRIREME_OK);
    assert_true(length > 100);
    assert_non_null(strstr(bytes, "Name:"));
    free(bytes);

    // More than the first guess, under the largest limit there is.
    enum { LARGE = 20000 };
    int ends[2];
    char content[LARGE];
    memset(content, 'x', LARGE);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(file_write(ends[1], content, LARGE), LARGE);
    close(ends[1]);
    char *path = mem_printf("/dev/fd/%d", ends[0]);
    assert_int_equal(file_read(path, SIZE_MAX, &bytes, &length, NULL), TRIREME_OK);
    assert_int_equal(length, LARGE);
    assert_memory_equal(bytes, content, LARGE);
    close(ends[0]);
    free(path);
    free(bytes);
}

static void file_read_refuses(void **state) {
    char *path = mem_printf("%s/file", (char *)*state), *bytes = "untouched";
    size_t length = 99;
    trireme_error error = {0};
    assert_int_equal(file_read(path, 10, &bytes, &length, &error), TRIREME_ERROR_IO);
    assert_non_null(strstr(error.message, path));
    assert_non_null(strstr(error.message, "No such file"));

    assert_int_equal(file_read(*state, 10, &bytes, &length, &error), TRIREME_ERROR_IO);
    assert_non_null(strstr(error.message, "directory"));

    assert_int_equal(file_write_atomic(path, "12345678901", 11, NULL), TRIREME_OK);
    assert_int_equal(file_read(path, 10, &bytes, &length, &error), TRIREME_ERROR_CORRUPT);
    assert_non_null(strstr(error.message, "10 bytes"));
    // A file without a size is bounded too.
    assert_int_equal(file_read("/dev/zero", 100000, &bytes, &length, &error), TRIREME_ERROR_CORRUPT);
    assert_string_equal(bytes, "untouched");
    assert_int_equal(length, 99);
    free(path);
}

static void file_write_replaces_and_leaves_nothing_else(void **state) {
    char *path = mem_printf("%s/file", (char *)*state), *temporary = mem_printf("%s.tmp", path);
    assert_int_equal(file_write_atomic(path, "old", 3, NULL), TRIREME_OK);
    assert_int_equal(file_write_atomic(path, "newer", 5, NULL), TRIREME_OK);
    assert_content(path, "newer");
    assert_false(exists(temporary));

    // A leftover of a killed writer, longer than what comes now, is in nobody's way.
    int file = open(temporary, O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(file, "leftover", 8), 8);
    close(file);
    assert_int_equal(file_write_atomic(path, "new", 3, NULL), TRIREME_OK);
    assert_content(path, "new");
    assert_false(exists(temporary));
    free(temporary);
    free(path);
}

// A relative path without a slash: its directory, which is synced, is the working directory.
static void file_write_in_the_working_directory(void **state) {
    char before[4096];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(*state), 0);
    assert_int_equal(file_write_atomic("bare", "x", 1, NULL), TRIREME_OK);
    assert_content("bare", "x");
    assert_int_equal(chdir(before), 0);
}

// The size limit of files stands for a disk that fills up after some bytes; it would last, hence the child process.
static void file_write_keeps_the_old_file_when_the_disk_fills(void **state) {
    char *path = mem_printf("%s/file", (char *)*state), *temporary = mem_printf("%s.tmp", path);
    assert_int_equal(file_write_atomic(path, "old", 3, NULL), TRIREME_OK);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){1000, 1000});
        char content[5000] = {1};
        trireme_error error = {0};
        trireme_status status = file_write_atomic(path, content, sizeof content, &error);
        _exit(status != TRIREME_ERROR_IO ? 1 : !strstr(error.message, "at byte 1000 of 5000") ? 2 : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_content(path, "old");
    assert_false(exists(temporary));
    free(temporary);
    free(path);
}

static void file_write_fails_cleanly(void **state) {
    char *path = mem_printf("%s/file", (char *)*state), *temporary = mem_printf("%s.tmp", path);
    char *inside = mem_printf("%s/inside", path);
    trireme_error error = {0};

    // The temporary name is taken by a directory.
    assert_int_equal(file_write_atomic(path, "old", 3, NULL), TRIREME_OK);
    assert_int_equal(mkdir(temporary, 0700), 0);
    assert_int_equal(file_write_atomic(path, "new", 3, &error), TRIREME_ERROR_IO);
    assert_non_null(strstr(error.message, temporary));
    assert_content(path, "old");
    assert_int_equal(rmdir(temporary), 0);

    // The last name is: the rename fails after everything was written.
    assert_int_equal(unlink(path), 0);
    assert_int_equal(directory_create(inside, NULL), TRIREME_OK);
    assert_int_equal(file_write_atomic(path, "new", 3, &error), TRIREME_ERROR_IO);
    assert_non_null(strstr(error.message, "rename"));
    assert_true(exists(inside));
    assert_false(exists(temporary));

    // No such directory.
    char *nowhere = mem_printf("%s/no/such/file", (char *)*state);
    assert_int_equal(file_write_atomic(nowhere, "new", 3, &error), TRIREME_ERROR_IO);
    free(nowhere);
    free(inside);
    free(temporary);
    free(path);
}

// What stands at the temporary name may be somebody's link: it is not followed.
static void file_write_follows_no_link(void **state) {
    char *path = mem_printf("%s/file", (char *)*state), *temporary = mem_printf("%s.tmp", path);
    char *victim = mem_printf("%s/victim", (char *)*state);
    assert_int_equal(file_write_atomic(victim, "mine", 4, NULL), TRIREME_OK);
    assert_int_equal(symlink(victim, temporary), 0);
    assert_int_equal(file_write_atomic(path, "new", 3, NULL), TRIREME_ERROR_IO);
    assert_content(victim, "mine");
    free(victim);
    free(temporary);
    free(path);
}

static void directory_create_makes_parents(void **state) {
    const char *forms[] = {"%s/a/b/c", "%s/d/", "%s//e//f//", "%s", "/", "%s/a/./../g"};
    for (size_t i = 0; i < ARRAY_LENGTH(forms); i++) {
        struct text path = {0};
        const char *hole = strstr(forms[i], "%s");
        text_add(&path, "%s%s", hole ? (char *)*state : forms[i], hole ? forms[i] + 2 : "");
        for (int twice = 0; twice < 2; twice++)
            assert_int_equal(directory_create(path.text, NULL), TRIREME_OK);
        struct stat info;
        assert_int_equal(stat(path.text, &info), 0);
        assert_true(S_ISDIR(info.st_mode));
        text_release(&path);
    }
}

static void directory_create_refuses(void **state) {
    char *file = mem_printf("%s/file", (char *)*state), *below = mem_printf("%s/below/it", file);
    trireme_error error = {0};
    assert_int_equal(file_write_atomic(file, "x", 1, NULL), TRIREME_OK);
    assert_int_equal(directory_create(file, &error), TRIREME_ERROR_IO);
    assert_non_null(strstr(error.message, "a file of that name"));
    assert_int_equal(directory_create(below, &error), TRIREME_ERROR_IO);
    assert_non_null(strstr(error.message, file));
    assert_int_equal(directory_create("", &error), TRIREME_ERROR_USAGE);
    assert_content(file, "x");
    free(below);
    free(file);
}

// ---- random numbers ----

// The vectors that come with the authors' Random123.
static void philox_gives_the_known_answers(void **state) {
    (void)state;
    const struct {
        uint64_t key, stream, index;
        uint32_t expected[4];
    } cases[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct rng_block block = rng_philox(cases[i].key, cases[i].stream, cases[i].index);
        assert_memory_equal(block.word, cases[i].expected, sizeof block.word);
    }
}

static void uniform_is_uniform(void **state) {
    (void)state;
    enum { COUNT = 100000, BINS = 20 };
    size_t bins[BINS] = {0};
    double sum = 0, product = 0, last = 0.5;
    for (uint64_t i = 0; i < COUNT; i++) {
        double u = rng_uniform(1234, rng_stream("test"), i);
        assert_true(u >= 0 && u < 1);
        bins[(int)(u * BINS)]++;
        sum += u;
        product += (u - 0.5) * (last - 0.5);
        last = u;
    }
    // Five standard deviations each; the numbers are fixed, so this cannot fail by chance.
    assert_true(fabs(sum / COUNT - 0.5) < 5 * sqrt(1.0 / 12 / COUNT));
    assert_true(fabs(product / COUNT) < 5 * (1.0 / 12) / sqrt(COUNT));
    for (int b = 0; b < BINS; b++)
        assert_true(fabs((double)bins[b] - COUNT / BINS) < 5 * sqrt(COUNT / BINS));
}

static void uniform_takes_two_numbers_from_a_block(void **state) {
    (void)state;
    for (uint64_t index = 0; index < 6; index++) {
        struct rng_block block = rng_philox(8, 9, index / 2);
        const uint32_t *word = block.word + 2 * (index % 2);
        double expected = (double)(((uint64_t)word[1] << 32 | word[0]) >> 11) / 9007199254740992.0;
        assert_true(rng_uniform(8, 9, index) == expected);
    }
}

static void uniform_depends_on_each_argument(void **state) {
    (void)state;
    double u = rng_uniform(1, 2, 3);
    assert_true(u == rng_uniform(1, 2, 3));
    assert_true(u != rng_uniform(2, 2, 3));
    assert_true(u != rng_uniform(1, 3, 3));
    assert_true(u != rng_uniform(1, 2, 2));
    assert_true(u != rng_uniform(1, 2, 4));
    assert_true(u != rng_uniform(1, 2, 3 + ((uint64_t)1 << 40)));
}

static void streams_differ(void **state) {
    (void)state;
    assert_true(rng_stream("shuffle") == rng_stream("shuffle"));
    assert_true(rng_stream("shuffle") != rng_stream("shufflf"));
    assert_true(rng_stream("") != rng_stream("a"));
    assert_true(rng_stream("ab") != rng_stream("ba"));
}

static void permutation_is_a_bijection(void **state) {
    (void)state;
    const uint64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 31, 32, 33, 100, 127, 128, 129, 1000, 4096, 4097, 65535, 100003};
    for (size_t s = 0; s < ARRAY_LENGTH(sizes); s++) {
        for (uint64_t key = 0; key < 3; key++) {
            uint64_t n = sizes[s], fixed = 0;
            char *seen = mem_alloc(n);
            for (uint64_t i = 0; i < n; i++) {
                uint64_t p = rng_permute(key, n, i);
                assert_true(p < n);
                assert_int_equal(seen[p], 0);
                seen[p] = 1;
                fixed += p == i;
            }
            if (n >= 31)
                assert_true(fixed < 10);
            free(seen);
        }
    }
}

// Huge sizes cannot be walked: there, a sample of values stays in range and does not collide.
static void permutation_of_a_huge_set(void **state) {
    (void)state;
    const uint64_t sizes[] = {((uint64_t)1 << 40) - 87, ((uint64_t)1 << 40) + 1, UINT64_MAX / 2 + 2, UINT64_MAX};
    enum { SAMPLE = 2000 };
    uint64_t values[SAMPLE];
    for (size_t s = 0; s < ARRAY_LENGTH(sizes); s++) {
        for (uint64_t i = 0; i < SAMPLE; i++) {
            values[i] = rng_permute(5, sizes[s], i % 2 ? sizes[s] - 1 - i : i);
            assert_true(values[i] < sizes[s]);
            for (uint64_t j = 0; j < i; j++)
                assert_true(values[i] != values[j]);
        }
    }
}

// Over many keys, each element of a small set comes first, and each pair follows one another, equally often.
static void permutation_favours_nothing(void **state) {
    (void)state;
    enum { N = 7, KEYS = 42000 };
    size_t at[N][N] = {{0}}, pair[N][N] = {{0}};
    for (uint64_t key = 0; key < KEYS; key++) {
        uint64_t p[N];
        for (uint64_t i = 0; i < N; i++) {
            p[i] = rng_permute(key, N, i);
            at[i][p[i]]++;
        }
        pair[p[0]][p[1]]++;
    }
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < N; j++) {
            assert_true(fabs((double)at[i][j] - KEYS / N) < 5 * sqrt(KEYS / N));
            if (i != j)
                assert_true(fabs((double)pair[i][j] - KEYS / N / (N - 1)) < 5 * sqrt(KEYS / N / (N - 1)));
        }
    }
}

// ---- memory ----

static void region_is_zeroed_aligned_and_writable(void **state) {
    (void)state;
    for (int touch = 0; touch < 2; touch++) {
        struct region region = {0};
        size_t resident = memory_resident();
        assert_int_equal(region_create(&region, 5000001, touch, "a test", NULL), TRIREME_OK);
        assert_int_equal(region.bytes, 6 << 20);
        assert_int_equal((uintptr_t)region.base % (2 << 20), 0);
        if (touch)
            assert_true(memory_resident() >= resident + (5 << 20));
        unsigned char *bytes = region.base;
        for (size_t i = 0; i < region.bytes; i += 997)
            assert_int_equal(bytes[i], 0);
        memset(bytes, 1, region.bytes);
        region_release(&region);
        assert_null(region.base);
        region_release(&region);
    }
    struct region empty = {0};
    assert_int_equal(region_create(&empty, 0, false, "nothing", NULL), TRIREME_OK);
    assert_non_null(empty.base);
    region_release(&empty);
}

static void region_too_large_is_refused(void **state) {
    (void)state;
    const size_t sizes[] = {SIZE_MAX, SIZE_MAX - (1 << 20), (size_t)1 << 50, 2 * memory_available()};
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        struct region region = {0};
        trireme_error error = {0};
        assert_int_equal(region_create(&region, sizes[i], false, "the arena", &error), TRIREME_ERROR_MEMORY);
        assert_null(region.base);
        char *needed = mem_printf("the arena needs %zu bytes", sizes[i]);
        assert_non_null(strstr(error.message, needed));
        free(needed);
    }
}

// Writes `content` to root/name, with the directories it needs.
static void plant(const char *root, const char *name, const char *content) {
    char *path = mem_printf("%s%s", root, name), *directory = mem_strdup(path);
    *strrchr(directory, '/') = '\0';
    assert_int_equal(directory_create(directory, NULL), TRIREME_OK);
    assert_int_equal(file_write_atomic(path, content, strlen(content), NULL), TRIREME_OK);
    free(directory);
    free(path);
}

static void available_memory_is_the_least_of_all_limits(void **state) {
    const char *root = *state;
    assert_true(memory_below(root, MEMORY_LEFT) == SIZE_MAX);
    plant(root, "/proc/meminfo", "MemTotal:  9000 kB\nMemFree: 10 kB\nMemAvailable:    8000 kB\nBuffers: 0 kB\n");
    assert_int_equal(memory_below(root, MEMORY_LEFT), 8000 * 1024);

    // Version 2: a group without a limit of its own below one that has it.
    assert_int_equal(memory_below(root, MEMORY_WHOLE), 9000 * 1024);
    plant(root, "/proc/self/cgroup", "0::/user/job\n");
    assert_int_equal(memory_below(root, MEMORY_LEFT), 8000 * 1024);
    plant(root, "/sys/fs/cgroup/user/job/memory.max", "max\n");
    plant(root, "/sys/fs/cgroup/user/job/memory.current", "1000\n");
    assert_int_equal(memory_below(root, MEMORY_LEFT), 8000 * 1024);
    plant(root, "/sys/fs/cgroup/user/memory.max", "5000000\n");
    plant(root, "/sys/fs/cgroup/user/memory.current", "3000000\n");
    assert_int_equal(memory_below(root, MEMORY_LEFT), 2000000);
    plant(root, "/sys/fs/cgroup/user/memory.stat", "anon 1\nactive_file 7\ninactive_file 500000\n");
    assert_int_equal(memory_below(root, MEMORY_LEFT), 2500000);
    plant(root, "/sys/fs/cgroup/user/memory.high", "4000000\n");
    assert_int_equal(memory_below(root, MEMORY_LEFT), 1500000);
    assert_int_equal(memory_below(root, MEMORY_WHOLE), 4000000);
    plant(root, "/sys/fs/cgroup/memory.max", "100\n");
    plant(root, "/sys/fs/cgroup/memory.current", "100\n");
    assert_int_equal(memory_below(root, MEMORY_LEFT), 0);
}

static void available_memory_knows_version_1(void **state) {
    const char *root = *state;
    plant(root, "/proc/meminfo", "MemAvailable:    8000 kB\n");
    // In a container the path is that of the host; only the mount itself is there.
    plant(root, "/proc/self/cgroup",
          "12:cpu,cpuacct:/docker/12ab\n4:blkio,memory:/docker/12ab\n1:name=systemd:/\n0::/\n");
    plant(root, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "6000000\n");
    plant(root, "/sys/fs/cgroup/memory/memory.usage_in_bytes", "2000000\n");
    plant(root, "/sys/fs/cgroup/memory/memory.stat", "inactive_file 9\ntotal_inactive_file 1000000\n");
    assert_int_equal(memory_below(root, MEMORY_LEFT), 5000000);
    plant(root, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(memory_below(root, MEMORY_LEFT), 8000 * 1024);
}

static void available_memory_survives_nonsense(void **state) {
    const char *root = *state;
    plant(root, "/proc/meminfo", "MemAvailable:");
    plant(root, "/proc/self/cgroup", ":::::\n\n0\n0:\nnothing here\n:memory:\n3:memory,:/x/../..//\n");
    assert_true(memory_below(root, MEMORY_LEFT) == SIZE_MAX);
    struct text deep = {0};
    text_add(&deep, "0::");
    for (int i = 0; i < 5000; i++)
        text_add(&deep, "/d");
    plant(root, "/proc/self/cgroup", deep.text);
    assert_true(memory_below(root, MEMORY_LEFT) == SIZE_MAX);
    text_release(&deep);
}

static void own_memory_is_plausible(void **state) {
    (void)state;
    assert_true(memory_resident() > 100000);
    assert_true(memory_available() > 1000000);
    assert_true(memory_available() < (size_t)1 << 50);
}

#define IN_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_is_filled_and_prefixed),
        cmocka_unit_test(error_message_is_cut_not_overrun),
        cmocka_unit_test(vec_grows_and_keeps_its_items),
        cmocka_unit_test(clock_advances),
        cmocka_unit_test(text_grows),
        cmocka_unit_test(text_distance_counts_edits),
        cmocka_unit_test(text_nearest_finds_what_was_meant),
        IN_DIRECTORY(file_read_gives_what_was_written),
        cmocka_unit_test(file_read_reads_what_has_no_size),
        IN_DIRECTORY(file_read_refuses),
        IN_DIRECTORY(file_write_replaces_and_leaves_nothing_else),
        IN_DIRECTORY(file_write_in_the_working_directory),
        IN_DIRECTORY(file_write_keeps_the_old_file_when_the_disk_fills),
        IN_DIRECTORY(file_write_fails_cleanly),
        IN_DIRECTORY(file_write_follows_no_link),
        IN_DIRECTORY(directory_create_makes_parents),
        IN_DIRECTORY(directory_create_refuses),
        cmocka_unit_test(philox_gives_the_known_answers),
        cmocka_unit_test(uniform_is_uniform),
        cmocka_unit_test(uniform_takes_two_numbers_from_a_block),
        cmocka_unit_test(uniform_depends_on_each_argument),
        cmocka_unit_test(streams_differ),
        cmocka_unit_test(permutation_is_a_bijection),
        cmocka_unit_test(permutation_of_a_huge_set),
        cmocka_unit_test(permutation_favours_nothing),
        cmocka_unit_test(region_is_zeroed_aligned_and_writable),
        cmocka_unit_test(region_too_large_is_refused),
        IN_DIRECTORY(available_memory_is_the_least_of_all_limits),
        IN_DIRECTORY(available_memory_knows_version_1),
        IN_DIRECTORY(available_memory_survives_nonsense),
        cmocka_unit_test(own_memory_is_plausible),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
