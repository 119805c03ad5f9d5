// Whole runs in which a call of the system or of the allocator fails, once or from then on, or at which a process ends:
// while the run starts, or while it saves. Afterwards it has gone on, or ended as docs/checkpoints.md says; its newest
// checkpoint is whole, and the last one or a newer one; and the same command goes on from there to the bits of a run
// that was never disturbed.
//
// Tries a sample of the calls of each kind of run; with a number as its first argument so many of them, with `all` all
// of a save, and many of a start.
// The words behind that start ranks as processes: "mpirun", "-n", "2" (test_mpi_faults.py); else they are threads.
#include "support/faults.h"
#include "support/runs.h"
#include "support/sanitized.h"

#include "base/reserve.h"
#include "base/rng.h"
#include "base/text.h"
#include "ckpt/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS = 6, HALF = 2, LAST = 4, HANGS = 120, NOT_STARTED = 127, START_TRIES = 200, SAMPLE = SANITIZED ? 2 : 5 };

// Saves after steps 2, 4 and 6, of which two stay; and every log that there is.
static const char *const OVERRIDES[] = {RUNS_LLAMA,
                                        "model.num_hidden_layers=1",
                                        "training.steps=6",
                                        "training.threads=1",
                                        "training.kernels=reference",
                                        "data.split=[0.9, 0.1]",
                                        "validation.freq=3",
                                        "validation.steps=1",
                                        "profiling.trace_step=5",
                                        NULL};

// When calls begin to count.
enum phase {
    PHASE_FRESH,  // the run begins
    PHASE_RESUME, // it goes on from step 2
    PHASE_SAVE,   // it goes on, and does step 4, after which it saves, for the second time
    PHASES
};
static const char *const phase_names[PHASES] = {"begins", "goes on", "saves"};

enum {
    CALLS = FAULT_ALL & ~(1 << FAULT_ALLOCATE | 1 << FAULT_MAP | 1 << FAULT_THREAD),
    MEMORY = 1 << FAULT_ALLOCATE | 1 << FAULT_MAP,
    CHANGES = 1 << FAULT_OPEN | 1 << FAULT_WRITE | 1 << FAULT_TRANSFER | 1 << FAULT_SYNC | 1 << FAULT_RESERVE |
              1 << FAULT_RENAME | 1 << FAULT_NAME | 1 << FAULT_CLOSE
};
static const struct way {
    const char *name;
    int kinds, code;
    bool lasting;
} WAYS[] = {
    {"a call fails", CALLS, EIO, false},
    {"a call finds the disk full", CALLS, ENOSPC, false},
    {"all calls fail from then on", CALLS, EIO, true},
    {"memory is refused", MEMORY, ENOMEM, false},
    {"threads are refused", 1 << FAULT_THREAD, EAGAIN, false},
    {"the process ends", CHANGES, 0, false},
};

// Besides the runs that are tried, those with which they are compared.
enum purpose {
    PURPOSE_TRIAL,
    PURPOSE_WHOLE, // keeps a checkpoint of each step
    PURPOSE_HALF,  // is stopped after step 2
};

// A run, as this program is told about it where it starts itself again.
struct trial {
    int phase, way, nth, purpose;
    int async, ranks, rank; // the rank whose process has the fault, where ranks are processes
};
enum { TRIAL_NUMBERS = sizeof(struct trial) / sizeof(int) };

// What it came to, in a file that all its processes map.
struct outcome {
    atomic_bool reached;
    atomic_int passed;
    trireme_status status; // of the rank that says how the run ends
    trireme_error error;
};

static struct {
    const char *folder;
    char **launcher; // NULL: ranks are threads
    int processes;
    int tries;               // of the calls of a kind of run; 0: as many as `all` means
    struct outcome *outcome; // of the run under way
} suite;

// ---- the run itself, in a process of its own

static const struct trial *trial_now;

static void trial_arm(void) {
    const struct way *w = &WAYS[trial_now->way];
    if (w->lasting)
        faults_set_lasting((unsigned)w->kinds, trial_now->nth, w->code);
    else
        faults_set((unsigned)w->kinds, trial_now->nth, w->code);
}

static bool trial_is_here(int rank) {
    return rank == (suite.processes ? trial_now->rank : 0);
}

static void trial_step(void *user, int rank, int64_t step) {
    (void)user;
    if (trial_now->phase == PHASE_SAVE && step == LAST && trial_is_here(rank))
        trial_arm();
}

static int own_rank(void) {
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    return rank ? atoi(rank) : 0;
}

static struct outcome *outcome_map(const char *folder) {
    const int file = open(path_in(folder, "outcome"), O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof(struct outcome)) != 0)
        abort();
    void *at = mmap(NULL, sizeof(struct outcome), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return at == MAP_FAILED ? NULL : at;
}

static void tell(void *user, const char *text) {
    (void)user;
    fprintf(stderr, "%s\n", text);
}

static int trial_run(const struct trial *t) {
    char ranks[40], async[40];
    const bool whole = t->purpose == PURPOSE_WHOLE;
    const char *extra[] = {async, ranks, whole ? "checkpoint.interval=1" : "checkpoint.interval=2",
                           whole ? "checkpoint.keep_latest_k=0" : "checkpoint.keep_latest_k=2", NULL};
    struct runs_watch watch = {
        .rank_step = trial_step, .message = tell, .stop_at = t->purpose == PURPOSE_HALF ? HALF : 0};
    struct train_result result;
    trireme_error error = {0};
    snprintf(ranks, sizeof ranks, "parallelism.ranks=%d", t->ranks);
    snprintf(async, sizeof async, "checkpoint.async_save=%s", t->async ? "true" : "false");
    trial_now = t;
    faults_note(&suite.outcome->reached);
    if (reserve_take(&error) != TRIREME_OK)
        return 1;
    if (t->phase != PHASE_SAVE && trial_is_here(own_rank()))
        trial_arm();
    trireme_status status = runs_train(suite.folder, OVERRIDES, extra, &watch, &result, &error);
    if (trial_is_here(own_rank()))
        suite.outcome->passed = faults_passed();
    faults_clear();
    if (status == TRIREME_OK)
        status = reserve_check(&error); // as whoever calls the library is told
    if (error.message[0])
        fprintf(stderr, "ends: %s\n", error.message);
    if (status == TRIREME_OK ? own_rank() == 0 : error_is_reported_here(&error)) {
        suite.outcome->error = error;
        suite.outcome->status = status;
    }
    return status != TRIREME_OK;
}

// ---- around it

// Starts the processes of a run; returns their status, as of one.
static int trial_start(const struct trial *t) {
    *suite.outcome = (struct outcome){.status = TRIREME_ERROR_LOST}; // unless the run says something else
    const pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        const int log = open(path_in(suite.folder, "log"), O_WRONLY | O_CREAT | O_APPEND, 0600);
        dup2(log, STDERR_FILENO);
        alarm(HANGS);
        if (!suite.processes)
            _exit(trial_run(t));
        const char *words[32];
        int count = 0;
        while (suite.launcher[count]) {
            words[count] = suite.launcher[count];
            count++;
        }
        words[count++] = realpath("/proc/self/exe", NULL);
        words[count++] = "one";
        words[count++] = suite.folder;
        for (int i = 0; i < TRIAL_NUMBERS; i++)
            words[count++] = mem_printf("%d", ((const int *)t)[i]);
        words[count] = NULL;
        execvp(words[0], (char *const *)words);
        _exit(NOT_STARTED);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

// The program that the launcher starts.
static int one_of_many(char **argv) {
    struct trial t;
    suite.folder = argv[2];
    suite.processes = 1;
    for (int i = 0; i < TRIAL_NUMBERS; i++)
        ((int *)&t)[i] = atoi(argv[3 + i]);
    suite.outcome = outcome_map(suite.folder);
    return trial_run(&t);
}

static _Noreturn void trial_fail(const struct trial *t, const char *format, ...) {
    char *log = NULL;
    size_t length = 0;
    trireme_error error;
    va_list args;
    va_start(args, format);
    char *text = mem_vprintf(format, args);
    va_end(args);
    if (file_read(path_in(suite.folder, "log"), 1 << 20, &log, &length, &error) != TRIREME_OK)
        log = mem_strdup("");
    print_message("%s", log);
    fail_msg("call %d, %d ranks, %s, of a run that %s, where %s: %s", t->nth, t->ranks, t->async ? "async" : "sync",
             phase_names[t->phase], WAYS[t->way].name, text);
    abort();
}

static bool shell_succeeds(const char *command) {
    char *words = mem_printf("cd '%s' && %s", suite.folder, command);
    const bool succeeds = system(words) == 0;
    free(words);
    return succeeds;
}

// ---- what is there afterwards

static void assert_as_undisturbed(int64_t step) {
    static const char *const FILES[] = {"model.safetensors", "training/state.safetensors", "config.json"};
    char own[64], expected[64];
    snprintf(own, sizeof own, "run/checkpoint/step-%lld", (long long)step);
    snprintf(expected, sizeof expected, "whole/checkpoint/step-%lld", (long long)step);
    for (size_t i = 0; i < ARRAY_LENGTH(FILES); i++)
        assert_same_file(suite.folder, own, expected, FILES[i]);
}

// The newest checkpoint, which must be whole; -1: there is none.
static int64_t newest(const struct trial *t) {
    struct directory_search found = {0};
    trireme_error error = {0};
    const char *parent = path_in(suite.folder, "run/checkpoint");
    if (!path_exists(parent))
        return -1;
    if (directory_newest(parent, MANIFEST_CONTENT, NULL, &found, &error) != TRIREME_OK)
        trial_fail(t, "%s", error.message);
    if (found.skipped.count)
        trial_fail(t, "it leaves a damaged checkpoint: %s", found.skipped.item[0].reason);
    const int64_t number = found.path ? found.number : -1;
    directory_search_release(&found);
    if (number >= 0)
        assert_as_undisturbed(number);
    return number;
}

// Ends as documented: with one line, which says from where the same command goes on where that is not where it ended.
static void assert_ended_well(const struct trial *t, const struct outcome *o, int64_t found) {
    static const char *const LOGS[] = {"metrics.jsonl", "/tb", "/trace"};
    const char *message = o->error.message, *from = strstr(message, "goes on from step ");
    const bool memory = WAYS[t->way].kinds & MEMORY;
    if (!message[0] || strchr(message, '\n'))
        trial_fail(t, "it ends with \"%s\"", message);
    if (o->status != TRIREME_ERROR_IO && !(memory && o->status == TRIREME_ERROR_MEMORY) &&
        !(t->phase == PHASE_RESUME && o->status == TRIREME_ERROR_CORRUPT) &&
        !(suite.processes && o->status == TRIREME_ERROR_LOST)) // they map files of one another
        trial_fail(t, "it ends with status %d: %s", (int)o->status, message);
    if (from && atoi(from + strlen("goes on from step ")) > found)
        trial_fail(t, "it is to go on from step %lld: %s", (long long)found, message);
    for (size_t i = 0; i < ARRAY_LENGTH(LOGS); i++)
        if (strstr(message, LOGS[i]))
            trial_fail(t, "a log ends it: %s", message);
    // What passes does not end a run that is under way.
    if (t->phase == PHASE_SAVE && !WAYS[t->way].lasting && !memory)
        trial_fail(t, "it ends: %s", message);
}

static void trial_prepare(const struct trial *t) {
    assert_ok(tree_remove(path_in(suite.folder, "run"), NULL), NULL);
    unlink(path_in(suite.folder, "log"));
    if (t->phase != PHASE_FRESH)
        assert_true(shell_succeeds("cp -a half run"));
}

static void assert_nothing_temporary(const struct trial *t) {
    if (shell_succeeds("ls -A run/checkpoint | grep -q '^[.]'"))
        trial_fail(t, "it leaves temporaries");
}

// Returns whether the call was reached.
static bool trial_check(const struct trial *t, int *ends, int *news) {
    const struct outcome *o = suite.outcome;
    trial_prepare(t);
    const int status = trial_start(t);
    const bool reached = o->reached, killed = reached && WAYS[t->way].code == 0;
    const struct outcome first = *o;
    const int64_t before = t->phase == PHASE_FRESH ? -1 : HALF, found = newest(t);
    if (!WIFEXITED(status) || WEXITSTATUS(status) > FAULT_ENDED)
        trial_fail(t, "it hangs or crashes: status %x", (unsigned)status);
    if (found < before)
        trial_fail(t, "the newest checkpoint is that of step %lld", (long long)found);
    if (!reached && WEXITSTATUS(status))
        trial_fail(t, "it fails by itself: %s", first.error.message);
    if (!killed && WEXITSTATUS(status))
        assert_ended_well(t, &first, found);
    if (!killed && !WEXITSTATUS(status) && found != STEPS)
        trial_fail(t, "all is well, but the newest checkpoint is that of step %lld", (long long)found);
    *ends += WEXITSTATUS(status) != 0;
    *news += found > before;
    if (!WEXITSTATUS(status))
        return reached;
    struct trial again = *t;
    again.nth = INT_MAX;
    if (trial_start(&again) != 0)
        trial_fail(t, "the same command then fails: %s", o->error.message);
    if (newest(t) != STEPS)
        trial_fail(t, "the same command then ends with step %lld", (long long)newest(t));
    assert_nothing_temporary(t);
    return reached;
}

// How many calls there are, in a run that none of them disturbs.
static int calls_of(const struct trial *like) {
    struct trial t = *like;
    t.nth = INT_MAX;
    trial_prepare(&t);
    if (trial_start(&t) != 0)
        trial_fail(&t, "it fails by itself: %s", suite.outcome->error.message);
    return suite.outcome->passed;
}

static void check_kind(struct trial t) {
    int tried = 0, reached = 0, ends = 0, news = 0;
    const int most = suite.tries ?: t.phase == PHASE_SAVE ? INT_MAX : START_TRIES;
    const int calls = calls_of(&t), tries = MIN(calls, most);
    for (int i = 0; i < tries; i++) {
        const double place = i + rng_uniform(5, (uint64_t)(t.phase * 100 + t.way), (uint64_t)i);
        t.nth = tries == calls ? i + 1 : 1 + (int)(place / tries * calls);
        reached += trial_check(&t, &ends, &news);
        tried++;
    }
    print_message(
        "%d rank%s, %s, %s, where %s: %d calls, %d tried, %d reached; %d runs end, %d with a new checkpoint\n", t.ranks,
        t.ranks == 1 ? "" : "s", t.async ? "async" : "sync", phase_names[t.phase], WAYS[t.way].name, calls, tried,
        reached, ends, news);
    assert_true(calls == 0 || reached > 0);
}

// The checkpoints of all steps, and where a run stands after step 2.
static void prepare_runs(int ranks) {
    static const struct {
        enum purpose purpose;
        const char *name;
    } RUNS[] = {{PURPOSE_WHOLE, "whole"}, {PURPOSE_HALF, "half"}};
    runs_prepare(suite.folder);
    for (size_t i = 0; i < ARRAY_LENGTH(RUNS); i++) {
        const struct trial t = {.phase = PHASE_FRESH, .purpose = RUNS[i].purpose, .nth = INT_MAX, .ranks = ranks};
        assert_ok(tree_remove(path_in(suite.folder, "run"), NULL), NULL);
        trial_start(&t);
        if (suite.outcome->status != (t.purpose == PURPOSE_HALF ? TRIREME_ERROR_INTERRUPTED : TRIREME_OK))
            trial_fail(&t, "it fails by itself: %s", suite.outcome->error.message);
        assert_int_equal(rename(path_in(suite.folder, "run"), path_in(suite.folder, RUNS[i].name)), 0);
    }
}

static void check_runs(const char *folder, int ranks) {
    suite.folder = folder;
    suite.outcome = outcome_map(folder);
    prepare_runs(ranks);
    for (int phase = 0; phase < PHASES; phase++)
        for (size_t way = 0; way < ARRAY_LENGTH(WAYS); way++)
            for (int async = phase == PHASE_SAVE ? 0 : 1; async < 2; async++)
                for (int rank = 0; rank < (suite.processes ? ranks : 1); rank++)
                    check_kind(
                        (struct trial){.phase = phase, .way = (int)way, .async = async, .ranks = ranks, .rank = rank});
    munmap(suite.outcome, sizeof *suite.outcome);
}

static void one_rank(void **state) {
    check_runs(*state, 1);
}

static void two_ranks(void **state) {
    check_runs(*state, 2);
}

int main(int argc, char **argv) {
    const struct CMUnitTest threads[] = {IN_FOLDER(one_rank), IN_FOLDER(two_ranks)},
                            processes[] = {IN_FOLDER(two_ranks)};
    if (argc == 3 + TRIAL_NUMBERS && strcmp(argv[1], "one") == 0)
        return one_of_many(argv);
    const bool all = argc > 1 && strcmp(argv[1], "all") == 0, counts = argc > 1 && atoi(argv[1]) > 0;
    suite.tries = all ? 0 : counts ? atoi(argv[1]) : SAMPLE;
    suite.launcher = argv + 1 + (all || counts);
    suite.processes = *suite.launcher != NULL;
    return suite.processes ? cmocka_run_group_tests_name("faults", processes, NULL, NULL)
                           : cmocka_run_group_tests_name("faults", threads, NULL, NULL);
}
