// What happens between two steps of a run, whatever the number of its ranks: it is asked to stop, or the next batch
// cannot be read.
#include "support/runs.h"

#include "base/text.h"
#include "run/corpus.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { STEPS = 8, AT = 3, TOKEN_BYTES = 2 };

static const char *const OVERRIDES[] = {RUNS_LLAMA, "training.steps=8", "training.threads=1", "validation.freq=0",
                                        NULL};
static const char *const MESHES[][2] = {{"parallelism.ranks=1", NULL}, {"parallelism.ranks=2", NULL}};

// What a run of a test works on; `watch` first.
struct between {
    struct runs_watch watch;
    const char *folder;
    int64_t recorded; // the last step
};

static void count_steps(void *user, const struct train_step *step) {
    struct between *b = user;
    assert_int_equal(step->step, b->recorded + 1);
    b->recorded = step->step;
}

static void put_aside(const char *folder, size_t run) {
    char *aside = mem_printf("aside-%zu", run);
    assert_int_equal(rename(path_in(folder, "run"), path_in(folder, aside)), 0);
    free(aside);
}

// Runs on one rank, and then on two. Each run ends with an error that says `says`, with all saved after these steps.
static void check_ends(struct between b, trireme_status expected, const char *says, const int64_t steps[2]) {
    for (size_t i = 0; i < ARRAY_LENGTH(MESHES); i++) {
        struct train_result result = {0};
        trireme_error error = {0};
        struct between run = b;
        runs_prepare(b.folder);
        trireme_status status = runs_train(b.folder, OVERRIDES, MESHES[i], &run.watch, &result, &error);
        assert_refused(status, expected, &error, says);
        assert_int_equal(run.recorded, steps[i]);
        char *checkpoint = mem_printf("run/checkpoint/step-%d", (int)steps[i]);
        assert_true(path_exists(path_in(b.folder, checkpoint)));
        assert_int_equal(folder_count(path_in(b.folder, "run/checkpoint")), 1);
        put_aside(b.folder, i);
        free(checkpoint);
    }
}

static void stop_after_step(void *user, const struct train_step *step) {
    struct between *b = user;
    count_steps(user, step);
    b->watch.stop = step->step == AT;
}

// A single rank stops at once, since it need ask no other. Many have agreed on the next step during the last one.
static void many_ranks_do_one_more_step(void **state) {
    check_ends((struct between){.watch = {.stepped = stop_after_step}, .folder = *state}, TRIREME_ERROR_INTERRUPTED,
               "all is saved", (const int64_t[]){AT, AT + 1});
}

static void stop_in_step(void *user, int rank, int64_t step) {
    struct between *b = user;
    if (rank == 0 && step == AT)
        b->watch.stop = true;
}

static void they_stop_after_the_step_that_begins(void **state) {
    check_ends((struct between){.watch = {.stepped = count_steps, .rank_step = stop_in_step}, .folder = *state},
               TRIREME_ERROR_INTERRUPTED, "all is saved", (const int64_t[]){AT, AT});
}

static void cut_tokens_short(void *user, int rank, int64_t step) {
    struct between *b = user;
    if (rank == 0 && step == AT)
        assert_int_equal(truncate(path_in(b->folder, "tokens.bin"), 10), 0);
}

// The batch of the step that begins has been read.
static void what_was_done_before_tokens_were_cut_short_is_saved(void **state) {
    check_ends((struct between){.watch = {.stepped = count_steps, .rank_step = cut_tokens_short}, .folder = *state},
               TRIREME_ERROR_CORRUPT, "tokens.bin became shorter while it was read", (const int64_t[]){AT, AT});
}

static void remove_tokens(void *user, int rank, int64_t step) {
    struct between *b = user;
    if (rank == 0 && step == AT)
        assert_int_equal(unlink(path_in(b->folder, "tokens.bin")), 0);
}

static void tokens_that_are_open_may_be_removed(void **state) {
    for (size_t i = 0; i < ARRAY_LENGTH(MESHES); i++) {
        struct between b = {.watch = {.stepped = count_steps, .rank_step = remove_tokens}, .folder = *state};
        struct train_result result = {0};
        trireme_error error = {0};
        runs_prepare(*state);
        assert_ok(runs_train(*state, OVERRIDES, MESHES[i], &b.watch, &result, &error), &error);
        assert_int_equal(b.recorded, STEPS);
        put_aside(*state, i);
    }
}

static void plant(const char *folder, int64_t position, uint16_t token) {
    int file = open(path_in(folder, "tokens.bin"), O_WRONLY);
    assert_int_equal(pwrite(file, &token, TOKEN_BYTES, (off_t)position * TOKEN_BYTES), TOKEN_BYTES);
    assert_int_equal(close(file), 0);
    assert_int_equal(unlink(path_in(folder, "tokens.sums")), 0); // which would tell of any other token
}

// The row of the global batch that meets a bad token first, and the batch, from 0; the batch is STEPS where none does.
struct meeting_point {
    int64_t batch, row;
};

static struct meeting_point find_bad_token(const char *folder) {
    char *path = mem_printf("data.path=%s/tokens", folder);
    const char *const overrides[] = {path, RUNS_LLAMA};
    struct config config;
    struct corpus corpus;
    trireme_error error = {0};
    int32_t values[4][32];
    struct meeting_point at = {STEPS, 0};
    assert_ok(config_load(&config, NULL, overrides, ARRAY_LENGTH(overrides), &error), &error);
    assert_ok(corpus_open(&corpus, &config, &error), &error);
    assert_ok(corpus_sample(&corpus, &config, 256, false, &error), &error);
    const int64_t rows = config.training.global_batch_size;
    for (int64_t i = 0; i < STEPS * rows && at.batch == STEPS; i++) {
        const struct sampler_batch to = {
            {PLACES_CONTIGUOUS, 1, config.training.seq_len}, 0, values[0], values[1], values[2], values[3]};
        if (sampler_fill(&corpus.train, SAMPLER_TRAIN, i / rows, i % rows, 1, &to, NULL, &error) != TRIREME_OK)
            at = (struct meeting_point){i / rows, i % rows};
    }
    corpus_close(&corpus);
    config_release(&config);
    free(path);
    return at;
}

static void check_bad_token(const char *folder, const char *const *mesh, const char *says, const char *also,
                            int64_t recorded, size_t run) {
    struct between b = {.watch = {.stepped = count_steps}, .folder = folder};
    struct train_result result = {0};
    trireme_error error = {0};
    trireme_status status = runs_train(folder, OVERRIDES, mesh, &b.watch, &result, &error);
    assert_refused(status, TRIREME_ERROR_CORRUPT, &error, says);
    assert_says(error.message, also);
    assert_int_equal(b.recorded, recorded);
    put_aside(folder, run);
}

// Of two ranks the second, which has the last rows, meets it.
static void a_bad_token_ends_the_run_at_the_step_that_meets_it(void **state) {
    struct meeting_point at = {0};
    int64_t position = 0;
    for (bool found = false; !found; found = at.batch >= 2 && at.batch < STEPS && at.row >= 2) {
        runs_prepare(*state);
        plant(*state, ++position, 1000);
        at = find_bad_token(*state);
    }
    char *says = mem_printf("tokens.bin: token 1000 at position %d ", (int)position);
    for (size_t i = 0; i < ARRAY_LENGTH(MESHES); i++)
        check_bad_token(*state, MESHES[i], says, "", at.batch, i);
    // An island alone that meets it ends the run. What came before is not recorded where islands have not met.
    check_bad_token(*state, (const char *[]){"parallelism.island_degree=2", "outer.method=diloco", NULL}, says,
                    "is not saved (nothing is saved, the same command begins again)", 1, 2);
    free(says);
}

// ---- islands

enum { ISLAND_STEPS = 12, ISLANDS = 2, AWAIT_SECONDS = 30 };

// They meet after steps 4, 8 and 12: at once, or so that what they exchange arrives after step 6, 10, ...
#define MEETING "parallelism.island_degree=2", "outer.sync_steps=4", "training.steps=12"
static const char *const AT_ONCE[] = {MEETING, "outer.method=diloco", NULL};
static const char *const LATER[] = {MEETING, "outer.method=streaming_diloco", "outer.fragments=1",
                                    "outer.delay_steps=2", NULL};

// One island does not begin `step` before the other has begun `until`.
struct held {
    struct between between;
    int island;
    int64_t step, until;
    _Atomic int64_t begun[ISLANDS];     // the last step of each
    bool in_vain;                       // it waited too long
    int64_t recorded[ISLAND_STEPS + 1]; // before island 0 begins a step
};

static void hold_island(void *user, int rank, int64_t step) {
    struct held *h = user;
    h->begun[rank] = step;
    if (rank == 0)
        h->recorded[step] = h->between.recorded;
    if (rank != h->island || step != h->step)
        return;
    for (int i = 0; h->begun[!rank] < h->until && !h->in_vain; i++) {
        usleep(1000);
        h->in_vain = i == 1000 * AWAIT_SECONDS;
    }
}

static void check_held(const char *folder, size_t run, const char *const *way, struct held h, const int64_t *recorded) {
    struct train_result result = {0};
    trireme_error error = {0};
    h.between.watch = (struct runs_watch){.stepped = count_steps, .rank_step = hold_island};
    runs_prepare(folder);
    assert_ok(runs_train(folder, OVERRIDES, way, &h.between.watch, &result, &error), &error);
    assert_false(h.in_vain);
    assert_int_equal(h.between.recorded, ISLAND_STEPS);
    for (int64_t step = 1; step <= ISLAND_STEPS; step++)
        if (h.recorded[step] != recorded[step - 1])
            fail_msg("before step %d, step %d is the last one recorded", (int)step, (int)h.recorded[step]);
    put_aside(folder, run);
}

// Whichever is late, the other goes on until it needs what that one gives; then all steps since the last time are
// recorded. The first step is recorded at once.
static void no_inner_step_waits_for_another_island(void **state) {
    static const int64_t WHEN_MET[] = {0, 1, 1, 1, 4, 4, 4, 4, 8, 8, 8, 8},
                         WHEN_ARRIVED[] = {0, 1, 1, 1, 1, 1, 4, 4, 4, 4, 8, 8};
    for (int island = 0; island < ISLANDS; island++) {
        const struct held inner = {.island = island, .step = 5, .until = 8},
                          later = {.island = island, .step = 7, .until = 10};
        check_held(*state, 2 * (size_t)island, AT_ONCE, inner, WHEN_MET);
        check_held(*state, 2 * (size_t)island + 1, LATER, later, WHEN_ARRIVED);
    }
}

// A save needs all islands, and so does what is traced.
static void islands_meet_where_all_do_something_together(void **state) {
    static const int64_t WHEN_SAVED[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 9, 9, 9};
    static const char *const SAVES[] = {MEETING, "outer.method=diloco", "outer.sync_steps=100", "checkpoint.interval=3",
                                        NULL};
    static const int64_t WHEN_TRACED[] = {0, 1, 1, 1, 1, 5, 6, 6, 6, 6, 6, 6};
    static const char *const TRACES[] = {MEETING, "outer.method=diloco", "outer.sync_steps=100",
                                         "profiling.trace_step=6", NULL};
    check_held(*state, 0, SAVES, (struct held){.island = 1, .step = 5, .until = 6}, WHEN_SAVED);
    check_held(*state, 1, TRACES, (struct held){.island = 1, .step = 8, .until = 12}, WHEN_TRACED);
}

// By then both islands have told one another of step 4.
static void stop_between(void *user, int rank, int64_t step) {
    struct between *b = user;
    if (rank == 0 && step == 7)
        b->watch.stop = true;
}

// All stop after the same step: that after which they hear of it.
static void islands_stop_where_they_meet(void **state) {
    const struct {
        const char *const *way;
        int64_t stops;
    } trials[] = {{AT_ONCE, 8}, {LATER, 10}};
    for (size_t i = 0; i < ARRAY_LENGTH(trials); i++) {
        struct between b = {.watch = {.stepped = count_steps, .rank_step = stop_between}, .folder = *state};
        struct train_result result = {0};
        trireme_error error = {0};
        runs_prepare(*state);
        trireme_status status = runs_train(*state, OVERRIDES, trials[i].way, &b.watch, &result, &error);
        assert_refused(status, TRIREME_ERROR_INTERRUPTED, &error, "all is saved");
        assert_int_equal(b.recorded, trials[i].stops);
        assert_int_equal(result.step, trials[i].stops);
        put_aside(*state, i);
    }
}

// Island 1 is late by half a second in each of three steps, and island 0 waits for it longer than ranks wait otherwise:
// for what it tells, and for the exchange that has begun.
static void be_late(void *user, int rank, int64_t step) {
    (void)user;
    if (rank == 1 && step >= 6 && step <= 8)
        usleep(500000);
}

static void islands_wait_for_as_many_steps_as_are_missing(void **state) {
    struct between b = {.watch = {.stepped = count_steps, .rank_step = be_late}, .folder = *state};
    const char *extra[8] = {"comm.train_timeout_seconds=1"};
    struct train_result result = {0};
    trireme_error error = {0};
    for (size_t i = 0; LATER[i]; i++)
        extra[i + 1] = LATER[i];
    runs_prepare(*state);
    assert_ok(runs_train(*state, OVERRIDES, extra, &b.watch, &result, &error), &error);
    assert_int_equal(b.recorded, ISLAND_STEPS);
}

// What files and directories of the run were synced and renamed, and which lines were written by then.
static struct {
    bool watched;
    _Atomic int64_t lines, synced; // of metrics.jsonl: how many there were when it was last synced
    int checkpoints, behind;       // of those, without the lines of their steps
} disk;

static const char *descriptor_path(int file, char path[static 500]) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    const ssize_t length = readlink(link, path, 499);
    path[MAX(length, 0)] = 0;
    return path;
}

int fsync(int file) {
    char path[500];
    if (disk.watched && text_ends(descriptor_path(file, path), "/run/metrics.jsonl"))
        disk.synced = disk.lines;
    return (int)syscall(SYS_fsync, file);
}

int rename(const char *from, const char *to) {
    if (disk.watched && strstr(to, "/run/checkpoint/step-")) {
        disk.behind += disk.synced < strtoll(strrchr(to, '-') + 1, NULL, 10);
        disk.checkpoints++;
    }
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

static void note_line(void *user, const struct train_step *step) {
    (void)user;
    disk.lines = step->step;
}

// Else a power failure could leave a checkpoint without the lines of its steps.
static void lines_reach_the_disk_before_their_checkpoint(void **state) {
    static const char *const OFTEN[] = {"checkpoint.interval=3", NULL};
    struct runs_watch watch = {.stepped = note_line};
    struct train_result result = {0};
    trireme_error error = {0};
    runs_prepare(*state);
    disk.watched = true;
    assert_ok(runs_train(*state, OVERRIDES, OFTEN, &watch, &result, &error), &error);
    disk.watched = false;
    assert_int_equal(disk.checkpoints, 3);
    assert_int_equal(disk.behind, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(many_ranks_do_one_more_step),
        IN_FOLDER(they_stop_after_the_step_that_begins),
        IN_FOLDER(what_was_done_before_tokens_were_cut_short_is_saved),
        IN_FOLDER(tokens_that_are_open_may_be_removed),
        IN_FOLDER(a_bad_token_ends_the_run_at_the_step_that_meets_it),
        IN_FOLDER(lines_reach_the_disk_before_their_checkpoint),
        IN_FOLDER(no_inner_step_waits_for_another_island),
        IN_FOLDER(islands_meet_where_all_do_something_together),
        IN_FOLDER(islands_stop_where_they_meet),
        IN_FOLDER(islands_wait_for_as_many_steps_as_are_missing),
    };
    return cmocka_run_group_tests_name("run_loop", tests, NULL, NULL);
}
