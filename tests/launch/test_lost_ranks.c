// A rank that hangs or dies: the run ends within seconds, says where every rank stands, and can be continued.
#include "support/runs.h"
#include "support/streams.h"

#include "base/clock.h"
#include "launch/rank_file.h"
#include "launch/ranks.h"
#include "run/run_directory.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS = 6, FAULT_STEP = 3 };

#define TIMEOUT "comm.train_timeout_seconds="

#define COMMON RUNS_LLAMA, "training.steps=6", "training.threads=1", "training.kernels=reference"
static const char *const OVERRIDES[] = {COMMON, "checkpoint.interval=1", NULL};

// Which fault happens before step FAULT_STEP, and on which rank of the child; written before its threads start.
static struct {
    int rank;
    void (*happen)(void);
    _Atomic int64_t *time; // clock_now, in memory that child and parent share
} fault;

static void at_step(void *user, int rank, int64_t step) {
    (void)user;
    if (rank == fault.rank && step == FAULT_STEP) {
        atomic_store(fault.time, clock_now());
        fault.happen();
    }
}

static void hang(void) {
    for (;;)
        pause();
}

static void die(void) {
    pthread_exit(NULL);
}

// The message of a run in a process of its own, as the command line prints it, and the exit status.
struct ended {
    char message[1200];
    int status;
    double seconds; // since the fault
};

static pid_t begin(const char *folder, const char *const *mesh, int rank, void (*happen)(void), int *output) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(60); // what waits for ever fails
        trireme_error error = {0};
        struct train_result result;
        struct runs_watch watch = {.rank_step = happen ? at_step : NULL};
        fault.rank = rank;
        fault.happen = happen;
        trireme_status status = runs_train(folder, OVERRIDES, mesh, &watch, &result, &error);
        ssize_t written = status == TRIREME_OK ? 0 : write(ends[1], error.message, strlen(error.message));
        _exit(status == TRIREME_OK ? 0 : status == TRIREME_ERROR_LOST && written > 0 ? 1 : 3);
    }
    close(ends[1]);
    *output = ends[0];
    return child;
}

static struct ended run(const char *folder, const char *const *mesh, int rank, void (*happen)(void)) {
    struct ended e = {0};
    int output, status = 0;
    pid_t child = begin(folder, mesh, rank, happen, &output);
    size_t length = 0;
    for (ssize_t n; (n = read(output, e.message + length, sizeof e.message - 1 - length)) > 0;)
        length += (size_t)n;
    close(output);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    e.status = WEXITSTATUS(status);
    e.seconds = 1e-9 * (double)(clock_now() - atomic_load(fault.time));
    return e;
}

static struct rank_view look(const char *folder) {
    struct rank_view view;
    trireme_error error = {0};
    assert_ok(rank_view_read(&view, path_in(folder, "run"), &error), &error);
    return view;
}

static void check_continues(const char *folder, const char *const *mesh) {
    struct ended e = run(folder, mesh, 0, NULL);
    if (e.status != 0)
        fail_msg("the run does not go on: %s", e.message);
    struct rank_view view = look(folder);
    for (int r = 0; r < view.ranks; r++) {
        assert_int_equal(view.record[r].activity, RANK_ENDED);
        assert_int_equal(view.record[r].step, STEPS);
    }
    rank_view_release(&view);
}

// A disk may take longer than ranks are to wait for one another, which saving counts for except in the first step. So
// this run does all but one step before the fault.
static void train_before_the_fault(const char *folder, const char *const *mesh) {
    runs_prepare(folder);
    runs_train_until(folder, OVERRIDES, mesh, FAULT_STEP - 2);
}

// Begun on `mesh`, and gone on with on `impatient`, whose other ranks end.
static struct ended hang_in_run(const char *folder, const char *const *mesh, const char *const *impatient, int rank) {
    train_before_the_fault(folder, mesh);
    struct ended e = run(folder, impatient, rank, hang);
    assert_int_equal(e.status, 1);
    assert_true(e.seconds < 20);
    return e;
}

static void a_rank_that_hangs_is_named(void **state) {
    static const char *const MESH[] = {"parallelism.data_parallel_replicate_degree=2", NULL};
    static const char *const IMPATIENT[] = {"parallelism.data_parallel_replicate_degree=2", TIMEOUT "1", NULL};
    struct ended e = hang_in_run(*state, MESH, IMPATIENT, 1);
    assert_says(e.message, "rank 0, last step done 2: stream ");
    assert_says(e.message, "all_reduce over dp");
    assert_says(e.message, "rank 0 waited 1 s in all_reduce");
    assert_says(e.message, "for rank 1");

    struct rank_view view = look(*state);
    struct text text = {0};
    assert_false(run_directory_is_busy(path_in(*state, "run")));
    assert_int_equal(view.ranks, 2);
    assert_int_equal(view.mesh.degree[AXIS_DP], 2);
    assert_int_equal(view.record[0].activity, RANK_FAILED);
    assert_string_equal(view.record[0].error, e.message);
    assert_int_equal(view.record[1].activity, RANK_STEPPING);
    assert_int_equal(view.record[0].step, FAULT_STEP - 1);
    assert_int_equal(view.record[1].step, FAULT_STEP - 1);
    rank_view_print(&view, view.latest, false, &text);
    assert_non_null(strstr(text.text, "waiting for rank 1\n"));
    assert_non_null(strstr(text.text, "rank 1: in a step for"));
    text_release(&text);
    rank_view_release(&view);
    check_continues(*state, MESH);
}

// The compute thread runs a collective itself that it would only wait for.
static void a_tensor_rank_that_hangs_is_named(void **state) {
    static const char *const MESH[] = {"parallelism.tensor_parallel_degree=2", NULL};
    static const char *const IMPATIENT[] = {"parallelism.tensor_parallel_degree=2", TIMEOUT "1", NULL};
    struct ended e = hang_in_run(*state, MESH, IMPATIENT, 1);
    assert_says(e.message, "rank 0, last step done 2: stream tensor");
    assert_says(e.message, "rank 0 waited 1 s in ");
    assert_says(e.message, "for rank 1");
}

static void every_rank_says_whom_it_waits_for(void **state) {
    static const char *const MESH[] = {"parallelism.tensor_parallel_degree=2", "parallelism.pipeline_parallel_degree=2",
                                       NULL};
    static const char *const IMPATIENT[] = {"parallelism.tensor_parallel_degree=2",
                                            "parallelism.pipeline_parallel_degree=2", TIMEOUT "1", NULL};
    struct ended e = hang_in_run(*state, MESH, IMPATIENT, 3);
    assert_says(e.message, "last step done 2");
    assert_says(e.message, " waited 1 s in ");
    struct rank_view view = look(*state);
    assert_int_equal(view.record[3].activity, RANK_STEPPING);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(view.record[r].activity, RANK_FAILED);
        assert_says(view.record[r].error, "last step done 2: stream ");
        assert_says(view.record[r].error, " over ");
        assert_says(view.record[r].error, "rank");
    }
    // Its neighbour in the tensor group waits for it, whichever rank reported it first.
    assert_says(view.record[2].error, "rank 2, last step done 2: stream tensor");
    assert_says(view.record[2].error, "over tp");
    assert_says(view.record[2].error, "for rank 3");
    rank_view_release(&view);
}

static void a_rank_that_dies_ends_the_run_at_once(void **state) {
    static const char *const MESH[] = {"parallelism.ranks=2", NULL};
    runs_prepare(*state);
    for (int rank = 0; rank < 2; rank++) {
        struct ended e = run(*state, MESH, rank, die);
        assert_int_equal(e.status, 1);
        assert_true(e.seconds < 10);
        char says[80];
        snprintf(says, sizeof says, "the thread of rank %d has died", rank);
        assert_says(e.message, says);
        struct rank_view view = look(*state);
        assert_int_equal(view.record[!rank].activity, RANK_FAILED);
        assert_says(view.record[!rank].error, says);
        rank_view_release(&view);
        check_continues(*state, MESH);
        assert_int_equal(rename(path_in(*state, "run"), path_in(*state, rank ? "second" : "first")), 0);
    }
}

// What `trireme show ranks` says while a run starts.
struct start {
    struct runs_watch watch;
    const char *folder;
    char passed_over[400], accepted[400];
};

static void show(const char *folder, char text[400]) {
    char *command = mem_printf("'" TRIREME_BINARY "' show ranks '%s'", path_in(folder, "run"));
    FILE *shown = popen(command, "r");
    size_t n = shown ? fread(text, 1, 399, shown) : 0;
    text[n] = 0;
    if (shown)
        pclose(shown);
    free(command);
}

static void look_at_start(void *user, const char *text) {
    struct start *start = user;
    if (strstr(text, "is passed over"))
        show(start->folder, start->passed_over);
    else if (strstr(text, "with other settings from here on"))
        show(start->folder, start->accepted);
}

static void a_start_does_not_tell_of_the_run_before_it(void **state) {
    static const char *const BEFORE[] = {"parallelism.ranks=2", NULL};
    static const char *const AFTER[] = {"parallelism.tensor_parallel_degree=2", "optimizer.weight_decay=0", NULL};
    runs_prepare(*state);
    check_continues(*state, BEFORE);
    assert_int_equal(truncate(path_in(*state, "run/checkpoint/step-6/training/state.safetensors"), 100), 0);
    trireme_error error = {0};
    struct train_result result = {0};
    struct start start = {.watch = {.message = look_at_start}, .folder = *state};
    assert_ok(runs_train(*state, OVERRIDES, AFTER, &start.watch, &result, &error), &error);
    const char *const before = "fsdp 2, another run is just starting; the one before it was process ";
    assert_memory_equal(start.passed_over, before, strlen(before));
    assert_memory_equal(start.accepted, "tp 2, running as process ", 25);
    assert_non_null(strstr(start.accepted, "rank 0: starting for"));
    assert_non_null(strstr(start.accepted, "rank 1: starting for"));
    assert_non_null(strstr(start.accepted, "last step done 5"));
    show(*state, start.accepted);
    assert_memory_equal(start.accepted, "tp 2, not running; was process ", 31);
}

static void sleep_when_saved(void *user, const char *text) {
    (void)user;
    if (strstr(text, "saved "))
        sleep(6); // more than ranks have when another has failed
}

static void a_stopped_run_waits_for_a_slow_rank(void **state) {
    static const char *const SAVED_AT_END[] = {COMMON, "parallelism.ranks=2", "checkpoint.interval=0", NULL};
    runs_prepare(*state);
    trireme_error error = {0};
    struct train_result result = {0};
    struct runs_watch watch = {.stop_at = FAULT_STEP, .message = sleep_when_saved};
    trireme_status status = runs_train(*state, SAVED_AT_END, NULL, &watch, &result, &error);
    assert_refused(status, TRIREME_ERROR_INTERRUPTED, &error, "stopped after step 3 of 6");
    assert_int_equal(result.step, FAULT_STEP);
    assert_string_equal(result.checkpoint, path_in(*state, "run/checkpoint/step-3"));
    assert_false(run_directory_is_busy(path_in(*state, "run")));
    struct rank_view view = look(*state);
    assert_int_equal(view.record[0].activity, RANK_ENDED);
    rank_view_release(&view);
}

static void sleep_before_the_first_step(void *user, int rank, int64_t step) {
    (void)user;
    if (rank == 1 && step == 1)
        usleep(1500000);
}

static void a_rank_may_be_late_in_the_first_step(void **state) {
    static const char *const IMPATIENT[] = {"parallelism.ranks=2", TIMEOUT "1", NULL};
    runs_prepare(*state);
    trireme_error error = {0};
    struct train_result result = {0};
    struct runs_watch watch = {.rank_step = sleep_before_the_first_step, .stop_at = 1};
    trireme_status status = runs_train(*state, OVERRIDES, IMPATIENT, &watch, &result, &error);
    assert_refused(status, TRIREME_ERROR_INTERRUPTED, &error, "stopped after step 1 of 6");
}

static void a_killed_run_leaves_its_counters(void **state) {
    static const char *const MESH[] = {"parallelism.tensor_parallel_degree=2", TIMEOUT "0", NULL};
    runs_prepare(*state);
    int output, status;
    pid_t child = begin(*state, MESH, 1, hang, &output);
    struct rank_view view = {0};
    trireme_error error;
    bool there = false;
    while (!there && waitpid(child, &status, WNOHANG) == 0) {
        usleep(10000);
        if (rank_view_read(&view, path_in(*state, "run"), &error) != TRIREME_OK)
            continue;
        there = view.record[0].step == FAULT_STEP - 1 && view.record[1].step == FAULT_STEP - 1 &&
                view.record[0].streams[0].of[STREAM_TENSOR].state == COUNTER_MEETING;
        rank_view_release(&view);
    }
    assert_true(there);
    usleep(100000);
    assert_true(run_directory_is_busy(path_in(*state, "run")));
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    close(output);
    assert_false(run_directory_is_busy(path_in(*state, "run")));
    view = look(*state);
    assert_int_equal(view.pid, child);
    assert_int_equal(view.record[0].step, FAULT_STEP - 1);
    assert_int_equal(view.record[0].activity, RANK_STEPPING);
    struct text text = {0};
    rank_view_print(&view, view.latest, false, &text);
    assert_non_null(strstr(text.text, "waiting for rank 1\n"));
    text_release(&text);
    rank_view_release(&view);
}

// Asserts for whom ranks 1 and 2 wait in their groups.
static void assert_waits(const char *folder, const char *first, const char *second) {
    struct rank_view view = look(folder);
    struct text text = {0};
    rank_view_print(&view, view.latest, false, &text);
    const char *at = text.text;
    for (int r = 1; r < 3; r++) {
        at = strstr(at, r == 1 ? "rank 1:" : "rank 2:");
        assert_non_null(at);
        at = strstr(at, " over pp, 0.0 s, waiting for ");
        assert_non_null(at);
        at += strlen(" over pp, 0.0 s, waiting for ");
        const char *whom = r == 1 ? first : second;
        if (strncmp(at, whom, strlen(whom)) != 0)
            fail_msg("rank %d waits for %.20s, expected %s", r, at, whom);
    }
    text_release(&text);
    rank_view_release(&view);
}

// What runs beside steps has streams of its own, and meets whatever step each rank has come to.
static void check_beside(const char *directory, struct rank_record *record[3]) {
    for (int r = 0; r < 3; r++) {
        record[r]->streams[0].of[STREAM_TENSOR].state = COUNTER_IDLE;
        strcpy(record[r]->streams[1].program, "outer_exchange");
        strcpy(record[r]->streams[1].name[STREAM_TENSOR], "outer");
        record[r]->streams[1].of[STREAM_TENSOR] = (struct counter){.since = clock_now(),
                                                                   .state = COUNTER_MEETING,
                                                                   .op = OP_ALL_REDUCE,
                                                                   .layer = NONE,
                                                                   .microbatch = NONE,
                                                                   .group = AXES(AXIS_PP)};
        record[r]->step += r;
    }
    strcpy(record[2]->streams[1].program, "another");
    struct rank_view view;
    struct text text = {0}, json = {0};
    trireme_error error = {0};
    assert_ok(rank_view_read(&view, path_in(directory, "run"), &error), &error);
    rank_view_print(&view, view.latest, false, &text);
    rank_view_print(&view, view.latest, true, &json);
    const char *line = strstr(text.text, "    outer     communicating all_reduce (outer_exchange, ");
    assert_non_null(line);
    assert_true(strncmp(strstr(line, ", waiting"), ", waiting for rank 2\n", 21) == 0);
    assert_non_null(strstr(json.text, "\"program\":\"outer_exchange\",\"stream\":\"outer\""));
    text_release(&text);
    text_release(&json);
    rank_view_release(&view);
}

// Each stage has its own program, and each machine its own clock.
static void meetings_of_unlike_ranks_are_told(void **state) {
    trireme_error error = {0};
    struct mesh mesh = mesh_single();
    struct op_table *ops = op_table_create();
    struct rank_file file[3];
    struct rank_record *record[3];
    int lock;
    uint64_t identity;
    mesh.degree[AXIS_PP] = 3;
    assert_ok(directory_create(path_in(*state, "run"), &error), &error);
    assert_ok(rank_file_create(&lock, &identity, path_in(*state, "run"), &mesh, ops, &error), &error);
    for (int r = 0; r < 3; r++) {
        assert_ok(rank_file_open(&file[r], path_in(*state, "run"), identity, r, &record[r], &error), &error);
        assert_int_equal((uintptr_t)record[r] % 4096, 0); // whose rest no other rank writes
        assert_true(file[r].bytes <= RANK_FILE_RECORD || sysconf(_SC_PAGESIZE) > 4096); // nothing of others is mapped
        rank_record_set(record[r], RANK_STEPPING);
        record[r]->streams[0].of[STREAM_TENSOR] = (struct counter){.since = clock_now(),
                                                                   .state = r ? COUNTER_MEETING : COUNTER_IDLE,
                                                                   .invocation = 10 + r,
                                                                   .instruction = 20 - r,
                                                                   .op = OP_ALL_REDUCE,
                                                                   .phase = PHASE_OPTIMIZER,
                                                                   .layer = NONE,
                                                                   .microbatch = NONE,
                                                                   .group = AXES(AXIS_PP)};
    }
    const int64_t hour = INT64_C(3600000000000);
    record[2]->epoch -= hour; // its machine has been up for an hour longer
    record[2]->changed += hour;
    record[2]->streams[0].of[STREAM_TENSOR].since += hour;
    record[1]->epoch -= hour; // it has slept since, for as long
    rank_record_set(record[1], RANK_STEPPING);
    static const enum op OPS[] = {OP_ALL_REDUCE, OP_REDUCE, OP_BROADCAST};
    for (size_t i = 0; i < ARRAY_LENGTH(OPS); i++) {
        for (int r = 1; r < 3; r++) {
            record[r]->streams[0].of[STREAM_TENSOR].op = OPS[i];
            record[r]->streams[0].of[STREAM_TENSOR].peer = i ? 2 - r : 0; // the last rank is the root
        }
        assert_waits(*state, "rank 0\n", "rank 0\n");
    }
    // The meeting of another step or of another layer is another.
    record[1]->step++;
    assert_waits(*state, "rank 0 2\n", "rank 0 1\n");
    record[2]->step++;
    assert_waits(*state, "rank 0\n", "rank 0\n");
    record[2]->streams[0].of[STREAM_TENSOR].layer = 1;
    assert_waits(*state, "rank 0 2\n", "rank 0 1\n");
    check_beside(*state, record);
    for (int r = 0; r < 3; r++)
        rank_file_close(&file[r]);
    close(lock);
    free(ops);
}

static void damaged_counters_are_refused(void **state) {
    static const char *const MESH[] = {"parallelism.ranks=2", NULL};
    runs_prepare(*state);
    check_continues(*state, MESH);
    trireme_error error = {0};
    char *bytes;
    size_t length;
    assert_ok(file_read(path_in(*state, "run/" RANK_FILE_NAME), 1 << 20, &bytes, &length, &error), &error);
    struct rank_view view;
    for (size_t cut = 0; cut < length; cut += cut < 200 ? 1 : 61)
        assert_true(rank_view_parse(&view, bytes, cut, "cut", &error) != TRIREME_OK);
    size_t header = sizeof(struct rank_file_header);
    for (size_t i = 0; i < length; i += i < header ? 1 : 5) {
        char kept = bytes[i];
        bytes[i] = (char)(kept ^ 0x91);
        if (rank_view_parse(&view, bytes, length, "damaged", &error) == TRIREME_OK) {
            struct text text = {0};
            rank_view_print(&view, view.latest, i % 2, &text);
            text_release(&text);
        }
        bytes[i] = kept;
    }
    // A rank that would write into it.
    struct rank_file file;
    struct rank_record *record;
    const char *directory = path_in(*state, "run"), *path = path_in(*state, "run/" RANK_FILE_NAME);
    const uint64_t identity = ((const struct rank_file_header *)bytes)->identity;
    assert_ok(rank_file_open(&file, directory, identity, 1, &record, &error), &error);
    assert_int_equal(record->activity, RANK_ENDED);
    rank_file_close(&file);
    assert_refused(rank_file_open(&file, directory, identity, 2, &record, &error), TRIREME_ERROR_CORRUPT, &error,
                   "not this run's");
    assert_refused(rank_file_open(&file, directory, identity + 1, 0, &record, &error), TRIREME_ERROR_CORRUPT, &error,
                   "not this run's");
    assert_refused(rank_file_open(&file, *state, identity, 0, &record, &error), TRIREME_ERROR_CORRUPT, &error,
                   "cannot open");
    for (size_t cut = 1; cut < length; cut += cut < 200 ? 40 : 997) {
        assert_ok(file_write_atomic(path, bytes, cut, &error), &error);
        assert_refused(rank_file_open(&file, directory, identity, 0, &record, &error), TRIREME_ERROR_CORRUPT, &error,
                       path);
    }
    bytes[12] ^= 64; // header_bytes
    assert_ok(file_write_atomic(path, bytes, length, &error), &error);
    assert_refused(rank_file_open(&file, directory, identity, 0, &record, &error), TRIREME_ERROR_CORRUPT, &error, path);
    bytes[12] ^= 64;
    assert_ok(rank_view_parse(&view, bytes, length, "whole", &error), &error);
    rank_view_release(&view);
    // The seeds of the fuzzer have the known form.
    assert_ok(file_read(TRIREME_SOURCE "/fuzz/seeds/ranks/two.bin", 1 << 20, &bytes, &length, &error), &error);
    assert_ok(rank_view_parse(&view, bytes, length, "seed", &error), &error);
    rank_view_release(&view);
}

// Text that somebody has put into a file does not control the terminal.
static void words_of_the_file_are_shown(void **state) {
    (void)state;
    trireme_error error = {0};
    struct rank_view view;
    struct text text = {0};
    char *bytes;
    size_t length;
    assert_ok(file_read(TRIREME_SOURCE "/fuzz/seeds/ranks/two.bin", 1 << 20, &bytes, &length, &error), &error);
    const struct rank_file_header *header = (const void *)bytes;
    struct rank_record *record = (void *)(bytes + header->header_bytes);
    record->activity = RANK_FAILED;
    strcpy(record->error, "\x1b]0;a title\x07");
    record->streams[0].of[STREAM_COMPUTE].state = COUNTER_RUNNING;
    record->streams[0].of[STREAM_COMPUTE].op = 1;
    strcpy(bytes + sizeof *header + RANK_FILE_OP_BYTES, "\x1b[2J");
    strcpy(record->streams[0].name[STREAM_COMPUTE], "\x1b[1m");
    strcpy(record->streams[0].program, "\x1b[3m");
    assert_ok(rank_view_parse(&view, bytes, length, "seed", &error), &error);
    rank_view_print(&view, view.latest, false, &text);
    assert_null(strchr(text.text, '\x1b'));
    assert_non_null(strstr(text.text, "    \\x1b]0;a title\\x07\n"));
    assert_non_null(strstr(text.text, "    \\x1b[1m "));
    assert_non_null(strstr(text.text, " \\x1b[2J (\\x1b[3m, invocation "));
    text_release(&text);
    rank_view_release(&view);
}

// Each rank has its part of some work; that of rank 1 takes longer than ranks wait for one another.
static trireme_status work_at_own_pace(void *user, const struct member *member, trireme_error *error) {
    enum { PIECES = 25, OTHERS_PIECES = 3 };
    atomic_int *done = user;
    struct communicator *all;
    TRY(ranks_control(&all, member, 3, error));
    struct ranks_work work = ranks_work_begin(all);
    for (int i = 0; i < (member->rank == 1 ? PIECES : OTHERS_PIECES); i++) {
        usleep(100000);
        ranks_work_on(&work);
    }
    atomic_fetch_add(done, 1);
    trireme_status status = ranks_work_end(&work, error);
    if (status == TRIREME_OK && atomic_load(done) < 3)
        status = error_set(error, TRIREME_ERROR_USAGE, "rank %d did not wait for all", member->rank);
    communicator_free(all);
    return status;
}

static void a_rank_may_take_longer_with_its_part(void **state) {
    (void)state;
    atomic_int done = 0;
    trireme_error error = {0};
    assert_ok(ranks_run(3, 1, work_at_own_pace, &done, &error), &error);
}

int main(void) {
    fault.time = mmap(NULL, sizeof *fault.time, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (fault.time == MAP_FAILED)
        return 1;
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_rank_that_hangs_is_named),
        IN_FOLDER(a_tensor_rank_that_hangs_is_named),
        IN_FOLDER(every_rank_says_whom_it_waits_for),
        IN_FOLDER(a_rank_that_dies_ends_the_run_at_once),
        IN_FOLDER(a_start_does_not_tell_of_the_run_before_it),
        cmocka_unit_test(a_rank_may_take_longer_with_its_part),
        IN_FOLDER(a_stopped_run_waits_for_a_slow_rank),
        IN_FOLDER(a_rank_may_be_late_in_the_first_step),
        IN_FOLDER(a_killed_run_leaves_its_counters),
        IN_FOLDER(meetings_of_unlike_ranks_are_told),
        IN_FOLDER(damaged_counters_are_refused),
        cmocka_unit_test(words_of_the_file_are_shown),
    };
    return cmocka_run_group_tests_name("lost_ranks", tests, NULL, NULL);
}
