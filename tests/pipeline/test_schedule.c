// Pipeline schedules: the orders themselves, their text, and what the verifier refuses.
#include "test_schedule.h"
#include "base/rng.h"
#include "base/text.h"

#include <math.h>
#include <unistd.h>

// ---- help

static void assert_refused(trireme_status status, trireme_status expected, const trireme_error *error,
                           const char *message) {
    if (status == TRIREME_OK)
        fail_msg("accepted, expected: %s", message);
    assert_int_equal(status, expected);
    assert_int_equal(error->status, expected);
    assert_string_equal(error->message, message);
}

static void assert_prints(const struct schedule *s, const char *expected) {
    struct text text = {0};
    schedule_print(s, &text);
    assert_string_equal(text.text, expected);
    text_release(&text);
}

static void assert_reads_back(const struct schedule *s) {
    struct text text = {0};
    schedule_print(s, &text);
    struct schedule back = parsed(text.text);
    assert_int_equal(back.stages, s->stages);
    assert_int_equal(back.chunks, s->chunks);
    assert_int_equal(back.microbatches, s->microbatches);
    for (int i = 0; i < s->stages * s->chunks; i++) {
        assert_int_equal(back.place[i].rank, s->place[i].rank);
        assert_int_equal(back.place[i].chunk, s->place[i].chunk);
        assert_int_equal(back.virtual_stage[i], s->virtual_stage[i]);
    }
    assert_prints(&back, text.text);
    schedule_release(&back);
    text_release(&text);
}

// ---- orders

static void orders_are_the_published_ones(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int stages, microbatches;
        const char *text;
    } cases[] = {
        {"gpipe", 2, 3, "F0 F1 F2 B0 B1 B2\nF0 F1 F2 B0 B1 B2\n"},
        {"gpipe", 1, 1, "F0 B0\n"},
        {"1f1b", 1, 3, "F0 B0 F1 B1 F2 B2\n"},
        {"1f1b", 4, 6,
         "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5\n"
         "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5\n"
         "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5\n"
         "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5\n"},
        {"1f1b", 4, 2, "F0 F1 B0 B1\nF0 F1 B0 B1\nF0 F1 B0 B1\nF0 B0 F1 B1\n"},
        {"1f1b", 3, 1, "F0 B0\nF0 B0\nF0 B0\n"},
        {"zb-h1", 3, 5,
         "F0 F1 F2 I0 W0 F3 I1 W1 F4 I2 W2 I3 W3 I4 W4\n"
         "F0 F1 I0 F2 I1 W0 F3 I2 W1 F4 I3 W2 I4 W3 W4\n"
         "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 F4 I4 W2 W3 W4\n"},
        {"zb-h2", 3, 5,
         "F0 F1 F2 F3 F4 I0 W0 I1 W1 I2 W2 I3 W3 I4 W4\n"
         "F0 F1 F2 I0 F3 I1 F4 I2 W0 I3 W1 I4 W2 W3 W4\n"
         "F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 W0 W1 W2 W3 W4\n"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct schedule s = created(cases[i].name, cases[i].stages, cases[i].microbatches);
        assert_int_equal(s.stages, cases[i].stages);
        assert_int_equal(s.microbatches, cases[i].microbatches);
        assert_int_equal(s.chunks, 1);
        assert_prints(&s, cases[i].text);
        assert_reads_back(&s);
        schedule_release(&s);
    }
    struct schedule s = interleaved(2, 4, 2);
    assert_prints(&s, "placement 0 1 0 1\n"
                      "F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1 B2.0 B3.0\n"
                      "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0\n");
    schedule_release(&s);
    s = interleaved(2, 5, 2); // groups of 2 and of 3
    assert_prints(&s, "placement 0 1 0 1\n"
                      "F0.0 F1.0 F0.1 F1.1 F2.0 F3.0 B0.1 F4.0 B1.1 F2.1 B0.0 F3.1 B1.0 F4.1 B2.1 B3.1 B4.1 B2.0 "
                      "B3.0 B4.0\n"
                      "F0.0 F1.0 F0.1 F1.1 B0.1 F2.0 B1.1 F3.0 B0.0 F4.0 B1.0 F2.1 B2.1 F3.1 B3.1 F4.1 B4.1 B2.0 "
                      "B3.0 B4.0\n");
    schedule_release(&s);
}

static void stages_are_placed_in_a_loop_or_as_told(void **state) {
    (void)state;
    struct schedule s;
    schedule_begin(&s, 3, 1, 2, NULL);
    for (int stage = 0; stage < 6; stage++) {
        assert_int_equal(s.place[stage].rank, stage % 3);
        assert_int_equal(s.place[stage].chunk, stage / 3);
        assert_int_equal(s.virtual_stage[stage % 3 * 2 + stage / 3], stage);
    }
    schedule_release(&s);

    static const int folded[] = {0, 1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0}; // two waves
    static const int chunk[] = {0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3};
    schedule_begin(&s, 3, 1, 4, folded);
    for (int stage = 0; stage < 12; stage++) {
        assert_int_equal(s.place[stage].rank, folded[stage]);
        assert_int_equal(s.place[stage].chunk, chunk[stage]);
        assert_int_equal(s.virtual_stage[folded[stage] * 4 + chunk[stage]], stage);
    }
    schedule_release(&s);
}

static void what_cannot_be_is_refused(void **state) {
    (void)state;
    static const char *const NAMES = "gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v, v-half, v-min, hanayo, auto";
    static const struct {
        const char *name;
        int stages, microbatches;
        struct schedule_options options;
        const char *message; // behind "pipeline schedule NAME"
    } cases[] = {
        {"1f1b", 0, 2, {0}, ": stages (0) and microbatches (2) must be at least 1"},
        {"gpipe", 2, -1, {0}, ": stages (2) and microbatches (-1) must be at least 1"},
        {"1f1b", 2, 2, {.chunks = 3}, " has 1 chunk to a rank, not 3"},
        {"zb-v", 2, 2, {.chunks = 1}, " has 2 chunks to a rank, not 1"},
        {"interleaved", 2, 2, {.chunks = -1}, ": chunks (-1) and waves (0) cannot be negative"},
        {"zb-v", 2, 2, {.waves = 1}, " has no waves, which hanayo has"},
        {"hanayo", 2, 2, {.chunks = 3}, " has an even number of chunks to a rank, not 3"},
        {"hanayo",
         2,
         2,
         {.chunks = 2, .waves = 2},
         " has two chunks to a rank and wave, so that they are even: 2 waves, 2 chunks"},
        {"hanayo", 2, 2, {.chunks = 1}, " has an even number of chunks to a rank, not 1"},
        {"zb-h1", 2, 2, {.activation_limit = 2}, " has no activation limit to be set, which auto has"},
        {"zb-v", 2, 2, {.weight_share = .5}, " has no activation limit to be set, which auto has"},
        {"auto",
         2,
         2,
         {.activation_limit = -2},
         ": activation limit -2, weight share 0: at least 1 microbatch and up to 1 are needed"},
        {"auto",
         2,
         2,
         {.weight_share = 1.5},
         ": activation limit 0, weight share 1.5: at least 1 microbatch and up to 1 are needed"},
        {"auto", 2, 2, {.search_passes = -1}, ": -1 passes to try are fewer than 0"},
        {"auto", 2, 2, {.chunks = 513}, " is searched for, which takes too long for more than 512 chunks"},
        {"hanayo", 2, 2, {.waves = 257}, " is searched for, which takes too long for more than 512 chunks"},
        {"hanayo", 2, 2, {.chunks = 2048}, " is searched for, which takes too long for more than 512 chunks"},
        {"zb-v",
         2,
         2,
         {.times = {.forward = 1e-300, .latency = 1e12}},
         ": the latency is too many times what a microbatch takes"},
        {"auto",
         2,
         2,
         {.times = {.forward = 1, .backward_input = -1, .backward_weight = 1}},
         ": times 1 (forward), -1 (backward for the input), 1 (for the weights) and 0 (latency) must be at least 0, "
         "one of the first three above"},
        {"auto",
         2,
         2,
         {.times = {.latency = 1}},
         ": times 0 (forward), 0 (backward for the input), 0 (for the weights) and 1 (latency) must be at least 0, "
         "one of the first three above"},
        {"auto",
         2,
         2,
         {.times = {.forward = INFINITY, .backward_input = 1, .backward_weight = 1}},
         ": times inf (forward), 1 (backward for the input), 1 (for the weights) and 0 (latency) must be at least 0, "
         "one of the first three above"},
        {"1f1b",
         INT32_MAX,
         INT32_MAX,
         {0},
         ": 2147483647 stages of 1 chunks with 2147483647 microbatches are more than the 16777216 passes that fit"},
    };
    assert_string_equal(schedule_names(), NAMES);
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct schedule s;
        trireme_error error = {0};
        trireme_status status =
            schedule_create(&s, cases[i].name, cases[i].stages, cases[i].microbatches, &cases[i].options, &error);
        char *message = mem_printf("pipeline schedule %s%s", cases[i].name, cases[i].message);
        assert_refused(status, TRIREME_ERROR_USAGE, &error, message);
        free(message);
    }
    struct schedule s;
    trireme_error error = {0};
    char *message = mem_printf("no pipeline schedule is called \"2f2b\"; there are: %s; did you mean 1f1b?", NAMES);
    assert_refused(schedule_create(&s, "2f2b", 2, 2, NULL, &error), TRIREME_ERROR_USAGE, &error, message);
    free(message);
}

// ---- text

static void text_may_be_written_by_hand(void **state) {
    (void)state;
    struct schedule s =
        parsed("# two ranks\r\n\r\n\tF0  F1\tB0 B1 # the first\r\n   # nothing here\nF0 I0 F1 W0 I1 W1");
    assert_prints(&s, "F0 F1 B0 B1\nF0 I0 F1 W0 I1 W1\n");
    assert_int_equal(s.rank[0].line, 3);
    assert_int_equal(s.rank[1].line, 5);
    schedule_release(&s);

    s = parsed(V_TEXT);
    assert_int_equal(s.stages, 2);
    assert_int_equal(s.chunks, 2);
    assert_int_equal(s.microbatches, 2);
    assert_int_equal(s.place[3].rank, 0);
    assert_int_equal(s.place[3].chunk, 1);
    assert_prints(&s, V_TEXT);
    assert_reads_back(&s);
    schedule_release(&s);

    // One chunk to a rank, but not in the order of ranks.
    static const char backwards[] = "placement 2 1 0\nF0 B0\nF0 B0\nF0 B0\n";
    s = parsed(backwards);
    assert_int_equal(s.virtual_stage[2], 0);
    assert_prints(&s, backwards);
    schedule_release(&s);

    s = parsed("placement 0 1\nF0 B0\nF0 B0\n");
    assert_prints(&s, "F0 B0\nF0 B0\n");
    schedule_release(&s);
}

static void wrong_text_is_refused_with_its_line(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "a pipeline schedule without passes: one line per rank is expected"},
        {"# nothing\n\n", "a pipeline schedule without passes: one line per rank is expected"},
        {"placement 0 1\n", "a pipeline schedule without passes: one line per rank is expected"},
        {"F0 X0\n", "line 1: expected a pass such as F0, B0, I0 or W0, found \"X0\""},
        {"\nF0 B\n", "line 2: expected a pass such as F0, B0, I0 or W0, found \"B\""},
        {"F0 B-1\n", "line 1: expected a pass such as F0, B0, I0 or W0, found \"B-1\""},
        {"F0 B0x\n", "line 1: expected a pass such as F0, B0, I0 or W0, found \"B0x\""},
        {"F0,B0\n", "line 1: expected a pass such as F0, B0, I0 or W0, found \"F0,B0\""},
        {"F0 B0\x01\n", "line 1: expected a pass such as F0, B0, I0 or W0, found \"B0\\u0001\""},
        {"F0 B0\xC3\xA9\n", "line 1: expected a pass such as F0, B0, I0 or W0, found \"B0\xC3\xA9\""},
        {"F0 B0\xC3\n", "line 1: expected a pass such as F0, B0, I0 or W0, found \"B0\xEF\xBF\xBD\""},
        {"F16777216\n", "line 1: expected a pass such as F0, B0, I0 or W0, found \"F16777216\""},
        {"F99999999999999999999999999\n",
         "line 1: expected a pass such as F0, B0, I0 or W0, found \"F99999999999999999999999999\""},
        {"F0.0 B0.0\n", "line 1: expected passes without chunks, or before the ranks a line \"placement\" with the "
                        "rank of each virtual stage, found \"F0.0\""},
        {"placement 0 1\nF0.0 B0\n",
         "line 2: expected passes without chunks, since a rank has but one, found \"F0.0\""},
        {"placement 0 0\nF0 B0\n", "line 2: expected a pass such as F0.0, B0.0, I0.0 or W0.0, found \"F0\""},
        {"placement 0 0\nF0. B0\n", "line 2: expected a pass such as F0.0, B0.0, I0.0 or W0.0, found \"F0.\""},
        {"placement\nF0 B0\n", "line 1: \"placement\" needs the rank of each virtual stage"},
        {"placement 0 a\nF0 B0\n", "line 1: expected the rank of a virtual stage, found \"a\""},
        {"placement 0 1.0\nF0 B0\n", "line 1: expected the rank of a virtual stage, found \"1.0\""},
        {"placement 0 2\nF0 B0\n", "line 1: 2 virtual stages do not reach rank 2"},
        {"placement 0 1 1\nF0 B0\n", "line 1: rank 1 has 2 of 3 virtual stages; each of 2 ranks needs as many"},
        {"placement 1 1\nF0 B0\n", "line 1: rank 0 has 0 of 2 virtual stages; each of 2 ranks needs as many"},
        {"placement 0\nplacement 0\nF0 B0\n", "line 2: \"placement\" comes once, before the ranks"},
        {"F0 B0\nplacement 0 1\n", "line 2: \"placement\" comes once, before the ranks"},
        {"placement 0 1\nF0 B0\n# end\n", "line 3: the text ends after 1 of 2 ranks"},
        {"placement 0\nF0 B0\nF0 B0\n", "line 3: a line too many: \"placement\" names 1 ranks, one line each"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct schedule s;
        trireme_error error = {0};
        trireme_status status = schedule_parse(&s, cases[i].text, strlen(cases[i].text), &error);
        assert_refused(status, TRIREME_ERROR_CORRUPT, &error, cases[i].message);
    }
    struct schedule s;
    trireme_error error = {0};
    assert_refused(schedule_parse(&s, "F0 B0\0", 6, &error), TRIREME_ERROR_CORRUPT, &error,
                   "line 1: expected a pass such as F0, B0, I0 or W0, found \"B0\\u0000\"");
}

static void files_and_names_load_alike(void **state) {
    (void)state;
    const char *top = getenv("TMPDIR");
    char *path = mem_printf("%s/trireme-schedule-XXXXXX", top && *top ? top : "/tmp");
    int file = mkstemp(path);
    assert_true(file >= 0);
    static const char text[] = "F0 F1 B0 B1\nF0 B0 F1 B1\n";
    assert_int_equal(write(file, text, strlen(text)), strlen(text));
    struct schedule s;
    trireme_error error = {0};
    assert_ok(schedule_load(&s, path, 2, 2, NULL, &error), &error);
    assert_prints(&s, text);
    schedule_release(&s);
    assert_ok(schedule_load(&s, "1f1b", 2, 2, NULL, &error), &error);
    assert_prints(&s, text);
    schedule_release(&s);

    const char *message = "this pipeline schedule is for 2 stages, the run has 4";
    assert_refused(schedule_load(&s, path, 4, 2, NULL, &error), TRIREME_ERROR_USAGE, &error, message);
    message = "this pipeline schedule is for 2 microbatches, the run has 3";
    assert_refused(schedule_load(&s, path, 2, 3, NULL, &error), TRIREME_ERROR_USAGE, &error, message);
    message = "this pipeline schedule is for 1 chunk to a rank, the run has 2";
    assert_refused(schedule_load(&s, path, 2, 2, &(struct schedule_options){.chunks = 2}, &error), TRIREME_ERROR_USAGE,
                   &error, message);
    assert_int_equal(write(file, "F0\n", 3), 3);
    message = "rank 2 (line 3) has no B0 (microbatches: 2)";
    assert_refused(schedule_load(&s, path, 3, 2, NULL, &error), TRIREME_ERROR_CORRUPT, &error, message);
    close(file);
    unlink(path);
    free(path);
    assert_refused(schedule_load(&s, "1F1B", 2, 2, NULL, &error), TRIREME_ERROR_USAGE, &error,
                   "no pipeline schedule is called \"1F1B\" (there are: gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v, "
                   "v-half, v-min, hanayo, auto; did you mean 1f1b?), and as a file: 1F1B: cannot open: No such file "
                   "or directory");
    // PyTorch's names of them.
    static const char *const TORCH[][2] = {
        {"GPipe", "gpipe"}, {"Interleaved1F1B", "interleaved"}, {"ZBVZeroBubble", "zb-v"}, {"zbvzerobubble", "zb-v"}};
    for (size_t i = 0; i < ARRAY_LENGTH(TORCH); i++) {
        char *meant = mem_printf("; did you mean %s?)", TORCH[i][1]);
        assert_int_equal(schedule_load(&s, TORCH[i][0], 2, 2, NULL, &error), TRIREME_ERROR_USAGE);
        assert_non_null(strstr(error.message, meant));
        free(meant);
    }
    static const char *const UNLIKE[] = {"InterleavedZeroBubble", ""};
    for (size_t i = 0; i < ARRAY_LENGTH(UNLIKE); i++) {
        assert_int_equal(schedule_load(&s, UNLIKE[i], 2, 2, NULL, &error), TRIREME_ERROR_USAGE);
        assert_null(strstr(error.message, "did you mean"));
    }
}

// ---- verification

static void faults_are_named(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"F0 F1 B0\n", "rank 0 (line 1) has no B1 (microbatches: 2)"},
        {"F0 B0 F1 B1\nF0 B0\n", "rank 1 (line 2) has no F1 (microbatches: 2)"},
        {"F0 B0 F900000 B900000\n", "rank 0 (line 1) has no F1 (microbatches: 900001)"},
        {"F0 F1 I0 I1 W1\n", "rank 0 (line 1) has I0, but no W0 after it"},
        {"F0 B0 B0\n", "rank 0 (line 1): B0 does what was done before it"},
        {"F0 F0 B0\n", "rank 0 (line 1): F0 does what was done before it"},
        {"F0 B0 W0\n", "rank 0 (line 1): W0 does what was done before it"},
        {"F0 I0 B0\n", "rank 0 (line 1): B0 does what was done before it"},
        {"F0 B0\nB0 F0\n", "rank 1 (line 2): B0 comes before F0"},
        {"I0 F0 W0\n", "rank 0 (line 1): I0 comes before F0"},
        {"F0 W0 I0\n", "rank 0 (line 1): W0 comes before I0"},
        {"placement 0 0\nF0.0 F0.2 B0.2 B0.0\n", "rank 0 (line 2): F0.2 is of chunk 2; a rank has chunks 0 to 1"},
        {"placement 0 0\nF0.0 B0.0\n", "rank 0 (line 2) has no F0.1 (microbatches: 1)"},
        {"placement 0 0\nF0.0 F0.1 B0.0 B0.1\n",
         "the schedule cannot finish: rank 0 (line 2) waits at B0.0 for B0.1 of its own"},
        {"placement 0 0\nF0.1 F0.0 B0.1 B0.0\n",
         "the schedule cannot finish: rank 0 (line 2) waits at F0.1 for F0.0 of its own"},
        {"F0 B0 F1 B1\n\nF0 F1 I0 I1 W0 W1\n",
         "the schedule cannot finish: rank 0 (line 1) waits at B0 for I0 of rank 1; rank 1 (line 3) waits at F1 for F1 "
         "of rank 0"},
        // A cycle is described from its lowest rank on, ...
        {"F0 B0 F1 B1\nF0 F1 B0 B1\nF0 B0 F1 B1\n",
         "the schedule cannot finish: rank 0 (line 1) waits at B0 for B0 of rank 1; rank 1 (line 2) waits at F1 for F1 "
         "of rank 0"},
        // ... which is not rank 0 here: that one waits for the cycle.
        {"F0 F1 B0 B1\nF0 B0 F1 B1\nF1 B1 F0 B0\n",
         "the schedule cannot finish: rank 1 (line 2) waits at B0 for B0 of rank 2; rank 2 (line 3) waits at F1 for F1 "
         "of rank 1"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct schedule s;
        trireme_error error = {0};
        trireme_status status = schedule_parse(&s, cases[i].text, strlen(cases[i].text), &error);
        assert_refused(status, TRIREME_ERROR_CORRUPT, &error, cases[i].message);
    }
}

static void a_long_circle_is_cut(void **state) {
    (void)state;
    // Every rank waits for the next, the last for the first.
    struct schedule s;
    schedule_begin(&s, 9, 1, 2, NULL);
    for (int r = 0; r < 9; r++) {
        schedule_add(&s, r, PASS_FORWARD, 1, 0);
        schedule_add(&s, r, PASS_FORWARD, 0, 0);
        schedule_add(&s, r, PASS_BACKWARD, 1, 0);
        schedule_add(&s, r, PASS_BACKWARD, 0, 0);
    }
    trireme_error error = {0};
    // Stage 9 (rank 0, chunk 1) needs stage 8 (rank 8, chunk 0), which is behind stage 17, which needs stage 16, ...
    assert_refused(
        schedule_verify(&s, &error), TRIREME_ERROR_CORRUPT, &error,
        "the schedule cannot finish: rank 0 waits at F0.1 for F0.0 of rank 8; rank 8 waits at F0.1 for F0.1 "
        "of rank 7; rank 7 waits at F0.1 for F0.1 of rank 6; rank 6 waits at F0.1 for F0.1 of rank 5; rank 5 "
        "waits at F0.1 for F0.1 of rank 4; rank 4 waits at F0.1 for F0.1 of rank 3; and so on through 9 "
        "ranks");
    schedule_release(&s);
}

static void every_lost_and_doubled_pass_is_refused(void **state) {
    (void)state;
    struct schedule all[] = {created("1f1b", 3, 4), created("zb-h2", 3, 5), interleaved(2, 4, 2), parsed(V_TEXT)};
    for (size_t k = 0; k < ARRAY_LENGTH(all); k++) {
        struct schedule *s = &all[k];
        trireme_error error = {0};
        assert_ok(schedule_verify(s, &error), &error);
        for (int r = 0; r < s->stages; r++) {
            struct schedule_rank whole = s->rank[r];
            struct pass *item = mem_alloc((whole.count + 1) * sizeof *item);
            s->rank[r].item = item;
            for (size_t i = 0; i < whole.count; i++) {
                memcpy(item, whole.item, i * sizeof *item);
                memcpy(item + i, whole.item + i + 1, (whole.count - i - 1) * sizeof *item);
                s->rank[r].count = whole.count - 1;
                assert_int_equal(schedule_verify(s, &error), TRIREME_ERROR_CORRUPT);
                for (size_t at = 0; at <= whole.count; at++) {
                    memcpy(item, whole.item, at * sizeof *item);
                    item[at] = whole.item[i];
                    memcpy(item + at + 1, whole.item + at, (whole.count - at) * sizeof *item);
                    s->rank[r].count = whole.count + 1;
                    assert_int_equal(schedule_verify(s, &error), TRIREME_ERROR_CORRUPT);
                }
            }
            free(item);
            s->rank[r] = whole;
        }
        assert_ok(schedule_verify(s, &error), &error);
        schedule_release(s);
    }
}

// Whether the schedule runs to its end, found the slow way: again and again over all ranks, looking for what a pass
// needs among all passes done.
static bool runs_to_the_end(const struct schedule *s) {
    size_t next[16] = {0};
    int stages = s->stages * s->chunks;
    bool done[16][16][3] = {0}; // [virtual stage][microbatch][F, input, weight]
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < s->stages; r++) {
            if (next[r] == s->rank[r].count)
                continue;
            struct pass p = s->rank[r].item[next[r]];
            int v = 0;
            while (s->place[v].rank != r || s->place[v].chunk != p.chunk)
                v++;
            bool(*at)[3] = &done[v][p.microbatch];
            bool ready = p.kind == PASS_FORWARD ? v == 0 || done[v - 1][p.microbatch][0]
                         : p.kind == PASS_BACKWARD_WEIGHT
                             ? (*at)[1]
                             : (*at)[0] && (v == stages - 1 || done[v + 1][p.microbatch][1]);
            if (!ready)
                continue;
            (*at)[0] |= p.kind == PASS_FORWARD;
            (*at)[1] |= p.kind == PASS_BACKWARD || p.kind == PASS_BACKWARD_INPUT;
            (*at)[2] |= p.kind == PASS_BACKWARD || p.kind == PASS_BACKWARD_WEIGHT;
            next[r]++;
            moved = true;
        }
    }
    for (int r = 0; r < s->stages; r++)
        if (next[r] < s->rank[r].count)
            return false;
    return true;
}

static void shuffled_orders_are_judged_rightly(void **state) {
    (void)state;
    int sound = 0, stuck = 0;
    for (uint64_t seed = 0; seed < 4000; seed++) {
        struct schedule s = seed % 3 == 0   ? parsed(V_TEXT)
                            : seed % 3 == 1 ? interleaved(2, 2, 2)
                                            : created("zb-h1", 3, 3);
        // Neighbours change places, a few times.
        for (uint64_t i = 0; i < 1 + seed % 7; i++) {
            int r = (int)(rng_uniform(seed, 1, 2 * i) * s.stages);
            size_t at = (size_t)(rng_uniform(seed, 1, 2 * i + 1) * (double)(s.rank[r].count - 1));
            struct pass first = s.rank[r].item[at];
            s.rank[r].item[at] = s.rank[r].item[at + 1];
            s.rank[r].item[at + 1] = first;
        }
        bool ends = runs_to_the_end(&s);
        trireme_error error = {0};
        trireme_status status = schedule_verify(&s, &error);
        if (ends != (status == TRIREME_OK))
            fail_msg("seed %d: %s", (int)seed, ends ? error.message : "accepted, but cannot finish");
        if (ends)
            assert_reads_back(&s);
        *(ends ? &sound : &stuck) += 1;
        schedule_release(&s);
    }
    assert_true(sound > 500 && stuck > 500);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders_are_the_published_ones),
        cmocka_unit_test(stages_are_placed_in_a_loop_or_as_told),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(text_may_be_written_by_hand),
        cmocka_unit_test(wrong_text_is_refused_with_its_line),
        cmocka_unit_test(files_and_names_load_alike),
        cmocka_unit_test(faults_are_named),
        cmocka_unit_test(a_long_circle_is_cut),
        cmocka_unit_test(every_lost_and_doubled_pass_is_refused),
        cmocka_unit_test(shuffled_orders_are_judged_rightly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
