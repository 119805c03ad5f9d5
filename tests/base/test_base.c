// Tests of src/base/: errors, text, time, random numbers.
#include "base/base.h"
#include "base/base64.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/text.h"
#include "base/utf8.h"

#include "support/sanitized.h"
#include "support/test.h"

#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

// ---- errors and bookkeeping memory

static void error_is_filled_and_prefixed(void **state) {
    (void)state;
    trireme_error error = {0};
    assert_int_equal(error_set(&error, TRIREME_ERROR_IO, "no %s at %d", "bread", 7), TRIREME_ERROR_IO);
    assert_int_equal(error.status, TRIREME_ERROR_IO);
    assert_string_equal(error.message, "no bread at 7");
    assert_int_equal(error_prefix(&error, TRIREME_ERROR_IO, "%s.yaml", "run"), TRIREME_ERROR_IO);
    assert_string_equal(error.message, "run.yaml: no bread at 7");
    error_set(&error, TRIREME_ERROR_USAGE, "no way %s", "one\n\x1b[2Jtwo");
    assert_string_equal(error.message, "no way one\\x0a\\x1b[2Jtwo");
    error_prefix(&error, TRIREME_ERROR_USAGE, "\xff");
    assert_string_equal(error.message, "\\xff: no way one\\x0a\\x1b[2Jtwo");
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
    // The beginning and the end are kept, and no character is cut.
    for (int i = 0; i < 4998; i += 2)
        memcpy(longest + i, "\xc3\xa4", 2);
    for (int begin = 0; begin < 2; begin++) {
        error_set(&a.error, TRIREME_ERROR_IO, "%.*s%s: cannot open: too long", begin, "a", longest);
        assert_true(utf8_is_valid(a.error.message));
        assert_in_range(strlen(a.error.message), sizeof a.error.message - 4, sizeof a.error.message - 1);
        assert_non_null(strstr(a.error.message, "x: cannot open: too long"));
    }
    error_prefix(&a.error, TRIREME_ERROR_IO, "%s", longest);
    assert_non_null(strstr(a.error.message, "x: cannot open: too long"));
    // Nor is what stands for a byte.
    memset(longest, '\n', 4998);
    error_set(&a.error, TRIREME_ERROR_IO, "%s: cannot open", longest);
    assert_in_range(strlen(a.error.message), sizeof a.error.message - 8, sizeof a.error.message - 1);
    for (const char *at = strchr(a.error.message, '\\'); at; at = strchr(at + 1, '\\'))
        assert_memory_equal(at, "\\x0a", 4);
    assert_non_null(strstr(a.error.message, "\\x0a ... \\x0a"));
    assert_non_null(strstr(a.error.message, "\\x0ax: cannot open"));
    trireme_error *kept = error_copy(&a.error), again;
    assert_int_equal(error_repeat(&again, kept), TRIREME_ERROR_IO);
    assert_string_equal(again.message, a.error.message);
    free(kept);
    for (size_t i = 0; i < sizeof a.guard; i++)
        assert_int_equal(a.guard[i], 'g');
    free(longest);
}

static void who_reports_an_error_is_kept_with_it(void **state) {
    (void)state;
    trireme_error error;
    memset(&error, 'g', sizeof error);
    error_set(&error, TRIREME_ERROR_IO, "no bread");
    assert_true(error_is_reported_here(&error));
    error_leave_to_other(&error);
    error_prefix(&error, error.status, "rank 1");
    assert_false(error_is_reported_here(&error));
    assert_string_equal(error.message, "rank 1: no bread");
    trireme_error again;
    error_repeat(&again, &error);
    assert_false(error_is_reported_here(&again));
    error_set(&again, TRIREME_ERROR_LOST, "another one");
    assert_true(error_is_reported_here(&again));
    error_leave_to(&again, ERROR_REPORTED_BY_LAUNCHER);
    assert_false(error_is_reported_here(&again));
    // Callers that were compiled with an older header own as many bytes.
    assert_int_equal(sizeof error, sizeof(trireme_status) + 1000);
}

static void print_trace(int number) {
    (void)number;
    fputs("a trace\n", stderr); // as MPI does
}

// Not a bug at some line, nor anything of those who catch the signal.
static void without_memory_one_line_tells(void **state) {
    (void)state;
    if (SANITIZED)
        skip(); // allocators of sanitizers end the process themselves
    int ends[2], status;
    char said[256] = "";
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGABRT, print_trace);
        dup2(ends[1], STDERR_FILENO);
        mem_alloc(SIZE_MAX / 4);
        _exit(0);
    }
    close(ends[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_true(read(ends[0], said, sizeof said - 1) > 0);
    close(ends[0]);
    assert_ptr_equal(strstr(said, "trireme: out of memory: "), said);
    assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
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

// ---- text

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
    static const char *const CASES[][2] = {
        {"trian", "train"},      {"trie", "tree"},     {"", NULL},          {"show", NULL},
        {"gnerate", "generate"}, {"verify", "verify"}, {"gen", "generate"}, {"ge", NULL}};
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        const char *nearest = text_nearest(CASES[i][0], &KNOWN[0].name, ARRAY_LENGTH(KNOWN), sizeof KNOWN[0]);
        assert_string_equal(nearest ? nearest : "none", CASES[i][1] ? CASES[i][1] : "none");
    }
    assert_int_equal(text_misspelt_distance("v"), 0);
    assert_int_equal(text_misspelt_distance("trie"), 2);
    assert_int_equal(text_misspelt_distance("learning_rate"), 4);
    char long_word[300] = "";
    memset(long_word, 'x', sizeof long_word - 1);
    assert_null(text_nearest(long_word, &KNOWN[0].name, ARRAY_LENGTH(KNOWN), sizeof KNOWN[0]));
}

// ---- random numbers

// The test vectors of the authors' Random123 library.
static void lists_of_numbers_are_read(void **state) {
    (void)state;
    const struct {
        const char *list;
        int count, number[3];
    } cases[] = {{"3", 1, {3}},      {"3,0,2", 3, {3, 0, 2}}, {"2147483647", 1, {2147483647}},
                 {"", 0, {0}},       {",", 0, {0}},           {"3,", 0, {0}},
                 {"3,,2", 0, {0}},   {"-1", 0, {0}},          {"2147483648", 0, {0}},
                 {"3;2", 0, {0}},    {"x", 0, {0}},           {"3,x", 0, {0}},
                 {"1,2,3,4", 0, {0}}};
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        int number[3];
        const int count = numbers_read(cases[i].list, 3, number);
        assert_int_equal(count, cases[i].count);
        if (count == 0)
            continue;
        assert_memory_equal(number, cases[i].number, (size_t)count * sizeof *number);
        assert_int_equal(numbers_count(cases[i].list), count);
        struct text printed = {0};
        text_add_numbers(&printed, number, count);
        assert_string_equal(printed.text, cases[i].list);
        text_release(&printed);
    }
    assert_int_equal(numbers_count(""), 0);
}

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
        double pair[2];
        rng_uniform_pair(8, 9, index / 2, pair);
        assert_true(rng_uniform(8, 9, index) == expected && pair[index % 2] == expected);
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

static void assert_shown(const char *bytes, size_t length, const char *expected, size_t left) {
    for (int ends = 0; ends <= 1; ends++) {
        struct text t = {0};
        text_add(&t, "<");
        assert_int_equal(text_add_shown(&t, bytes, length - (ends ? left : 0), ends), length - left);
        assert_string_equal(t.text + 1, expected);
        text_release(&t);
    }
}

static void base64_is_what_others_write(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t length;
        const char *digits;
    } KNOWN[] = {// RFC 4648, section 10
                 {"", 0, ""},
                 {"f", 1, "Zg=="},
                 {"fo", 2, "Zm8="},
                 {"foo", 3, "Zm9v"},
                 {"foob", 4, "Zm9vYg=="},
                 {"fooba", 5, "Zm9vYmE="},
                 {"foobar", 6, "Zm9vYmFy"},
                 {"\xff\xfe\0\xfb", 4, "//4A+w=="}};
    size_t length;
    for (size_t i = 0; i < ARRAY_LENGTH(KNOWN); i++) {
        struct text t = {0};
        text_add(&t, "<");
        base64_add(&t, KNOWN[i].bytes, KNOWN[i].length);
        assert_string_equal(t.text + 1, KNOWN[i].digits);
        char *bytes = base64_decode(t.text + 1, &length);
        assert_int_equal(length, KNOWN[i].length);
        assert_memory_equal(bytes, KNOWN[i].bytes, length + 1);
        free(bytes);
        text_release(&t);
    }
    char *folded = base64_decode(" Zm9v\r\nYm\tFy\n", &length);
    assert_string_equal(folded, "foobar");
    free(folded);
    static const char *const WRONG[] = {"Z",    "Zg",    "Zg=",  "Zm9",  "Z===", "====", "=",     "Zg==Zg==",
                                        "Zg=a", "Zm9v=", "Zh==", "Zm9=", "Zm9-", "Zm9_", "Zm9v!", "Zm9vZg==="};
    for (size_t i = 0; i < ARRAY_LENGTH(WRONG); i++)
        assert_null(base64_decode(WRONG[i], &length));
}

static void terminals_are_sent_no_controls(void **state) {
    (void)state;
#define SHOWN(bytes, expected, left) assert_shown(bytes, sizeof(bytes) - 1, expected, left)
    SHOWN("plain\ttext\n", "plain\ttext\n", 0);
    SHOWN("\033]0;title\007\033[2J", "\\x1b]0;title\\x07\\x1b[2J", 0);
    SHOWN("a\0b\x7f\b", "a\\x00b\\x7f\\x08", 0);
    SHOWN("gr\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80", "gr\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80", 0);
    SHOWN("\xc2\x9b"
          "2J\xc2\xa0",
          "\\xc2\\x9b2J\xc2\xa0", 0); // U+009B is CSI, U+00A0 a space
    SHOWN("\x9b"
          "2J\xff\xc3(\xed\xa0\x80",
          "\\x9b2J\\xff\\xc3(\\xed\\xa0\\x80", 0);
    SHOWN("DOS\r\nover\rwritten\r\r\n", "DOS\r\nover\\x0dwritten\\x0d\r\n", 0);
    // Bytes at the end that only the next bytes decide are left over.
    SHOWN("a\xe2\x82", "a", 2);
    SHOWN("a\xf0", "a", 1);
    SHOWN("a\r", "a", 1);
#undef SHOWN
    struct text t = {0};
    assert_int_equal(text_add_shown(&t, "a\xe2\x82", 3, true), 3);
    assert_int_equal(text_add_shown(&t, "\r", 1, true), 1);
    assert_string_equal(t.text, "a\\xe2\\x82\\x0d");
    text_release(&t);
    text_add_line(&t, "a\tb\r\nc\xc3\xa9\xff\xc2\x85 ");
    assert_string_equal(t.text, "a\\x09b\\x0d\\x0ac\xc3\xa9\\xff\\xc2\\x85 ");
    text_release(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_is_filled_and_prefixed),
        cmocka_unit_test(error_message_is_cut_not_overrun),
        cmocka_unit_test(who_reports_an_error_is_kept_with_it),
        cmocka_unit_test(without_memory_one_line_tells),
        cmocka_unit_test(vec_grows_and_keeps_its_items),
        cmocka_unit_test(clock_advances),
        cmocka_unit_test(text_grows),
        cmocka_unit_test(base64_is_what_others_write),
        cmocka_unit_test(terminals_are_sent_no_controls),
        cmocka_unit_test(text_distance_counts_edits),
        cmocka_unit_test(text_nearest_finds_what_was_meant),
        cmocka_unit_test(lists_of_numbers_are_read),
        cmocka_unit_test(philox_gives_the_known_answers),
        cmocka_unit_test(uniform_is_uniform),
        cmocka_unit_test(uniform_takes_two_numbers_from_a_block),
        cmocka_unit_test(uniform_depends_on_each_argument),
        cmocka_unit_test(streams_differ),
        cmocka_unit_test(permutation_is_a_bijection),
        cmocka_unit_test(permutation_of_a_huge_set),
        cmocka_unit_test(permutation_favours_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
