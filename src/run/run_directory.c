#include "run/run_directory.h"

#include "base/amount.h"
#include "base/clock.h"
#include "ckpt/directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST_TRIES = 100 }; // to make a directory that other processes make and remove, too
static const int64_t PATIENCE = RUN_DIRECTORY_PATIENCE * (int64_t)1000000000, // nanoseconds
    LOOK_LEAST = 5000000, LOOK_MOST = 100000000;

static char *directory_join(const struct run_directory *run, const char *name) {
    return mem_printf("%s/%s", run->path, name);
}

static bool directory_holds(const char *path, const char *name) {
    char *full = mem_printf("%s/%s", path, name);
    struct stat st;
    bool there = lstat(full, &st) == 0;
    free(full);
    return there;
}

// Whether this is an empty directory, or a link to one: somebody has made it so that checkpoints go to another disk.
static bool is_prepared(const char *path, const char *name) {
    char *full = mem_printf("%s/%s", path, name);
    DIR *open = opendir(full);
    int entries = 0;
    while (open && readdir(open))
        entries++;
    if (open)
        closedir(open);
    free(full);
    return open && entries <= 2; // "." and ".."
}

// Checks that a run may use the directory. A run's has config.yaml, and a lock or, in copies that lack it,
// metrics.jsonl; after a start that was cut short, a lock, perhaps with ranks.bin. Other files do no harm unless they
// have a name that the run will use. A user who names a checkpoint, or the directory of checkpoints, meant its run.
static trireme_status check_ours(const char *path, trireme_error *error) {
    static const char *const OWN[] = {"checkpoint",    "config.yaml", "data.json", "kernels.json",
                                      "metrics.jsonl", "ranks.bin",   "tb",        "trace"};
    if (directory_holds(path, "config.yaml") &&
        (directory_holds(path, "lock") || directory_holds(path, "metrics.jsonl")))
        return TRIREME_OK;
    if (directory_holds(path, "config.json") && directory_holds(path, MANIFEST_NAME))
        FAIL(TRIREME_ERROR_USAGE,
             "run.directory %s holds a model: to go on with a run name its directory, to start from the model another, "
             "with model.init_from=%s",
             path, path);
    if (directory_before(path, INT64_MAX) >= 0)
        FAIL(TRIREME_ERROR_USAGE, "run.directory %s holds the checkpoints of a run: name the directory above it", path);
    for (size_t i = 0; i < ARRAY_LENGTH(OWN); i++)
        if (directory_holds(path, OWN[i]) && !(strcmp(OWN[i], "ranks.bin") == 0 && directory_holds(path, "lock")) &&
            !(strcmp(OWN[i], "checkpoint") == 0 && is_prepared(path, OWN[i])))
            FAIL(TRIREME_ERROR_USAGE,
                 "run.directory %s holds %s, but is no run's (that would have config.yaml, and lock or metrics.jsonl): "
                 "name another, or mend it",
                 path, OWN[i]);
    return TRIREME_OK;
}

// Locks the directory itself. Held while the run's lock is put into the directory, or removed together with it, so that
// no lock gets into a directory that is about to go. Returns a descriptor, or -1 with errno: EWOULDBLOCK where another
// process holds it, ENOENT where the directory has just gone.
static int hold_directory(const char *path, bool wait) {
    struct stat held, found;
    int hold = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (hold < 0)
        return -1;
    int code = flock(hold, wait ? LOCK_EX : LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK ? EWOULDBLOCK : 0;
    if (!code && (fstat(hold, &held) != 0 || stat(path, &found) != 0))
        code = errno;
    if (!code && (held.st_dev != found.st_dev || held.st_ino != found.st_ino))
        code = ENOENT;
    if (!code)
        return hold;
    close(hold);
    errno = code;
    return -1;
}

static trireme_status refuse_busy(const struct run_directory *run, trireme_error *error) {
    FAIL(TRIREME_ERROR_BUSY, "run.directory %s is in use by another run", run->path);
}

static trireme_status lock_held(struct run_directory *run, trireme_error *error) {
    char *path = directory_join(run, "lock");
    run->lock = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    run->fresh = run->lock >= 0;
    if (run->lock < 0 && errno == EEXIST)
        run->lock = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    free(path);
    if (run->lock < 0)
        FAIL(TRIREME_ERROR_IO, "run.directory %s: cannot be written: %s", run->path, strerror(errno));
    struct stat st;
    if (!file_lock(run->lock)) {
        run->fresh = false;                     // the process that holds it will tidy up
        if (errno == EAGAIN || errno == EACCES) // file systems differ in what they say
            return refuse_busy(run, error);
        FAIL(TRIREME_ERROR_IO, "run.directory %s: cannot be locked: %s", run->path, strerror(errno));
    }
    if (fstat(run->lock, &st) != 0)
        FAIL(TRIREME_ERROR_IO, "run.directory %s: its lock cannot be examined: %s", run->path, strerror(errno));
    return st.st_nlink == 0 ? refuse_busy(run, error) : TRIREME_OK; // it was just removed by its run
}

static trireme_status take_lock(struct run_directory *run, trireme_error *error) {
    int hold = hold_directory(run->path, false);
    if (hold < 0 && (errno == EWOULDBLOCK || errno == ENOENT))
        return refuse_busy(run, error);
    if (hold < 0 && errno != EACCES) // a directory that may not be listed may still be written to
        FAIL(TRIREME_ERROR_IO, "run.directory %s: cannot be opened: %s", run->path, strerror(errno));
    trireme_status status = lock_held(run, error);
    if (hold >= 0)
        close(hold);
    return status;
}

// The path, next to the run's, of a directory that is not the run's yet, or not any more.
static char *path_beside(const struct run_directory *run) {
    size_t length = strlen(run->path);
    while (length > 1 && run->path[length - 1] == '/')
        length--;
    return mem_printf("%.*s.tmp-%ld", (int)length, run->path, (long)gettid());
}

// Removes a directory with its lock; false where something else is in it.
static bool remove_with_lock(const char *path) {
    char *lock = mem_printf("%s/lock", path);
    unlink(lock);
    free(lock);
    return rmdir(path) == 0;
}

// Removes what is left of a process that was killed while it made the directory, or removed it: a directory of such a
// name with nothing but a lock, which nobody holds. Who is about to lock one that goes tries again.
static void sweep_beside(const struct run_directory *run) {
    char *beside = path_beside(run), *slash = strrchr(beside, '/');
    const char *name = slash ? slash + 1 : beside;
    const int stem = (int)(strrchr(name, '-') - name) + 1;
    char *parent = slash ? mem_printf("%.*s", (int)MAX(slash - beside, 1), beside) : mem_strdup(".");
    DIR *dir = opendir(parent);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        const char *digits = e->d_name + stem;
        if (strncmp(e->d_name, name, (size_t)stem) != 0 || !*digits || digits[strspn(digits, "0123456789")])
            continue;
        char *path = mem_printf("%s/%s", parent, e->d_name), *lock = mem_printf("%s/lock", path);
        const int hold = hold_directory(path, false);
        if (hold >= 0 && !file_is_locked(lock))
            remove_with_lock(path);
        if (hold >= 0)
            close(hold);
        free(lock);
        free(path);
    }
    if (dir)
        closedir(dir);
    free(parent);
    free(beside);
}

// Makes the directory with the lock already in it and held: of several processes that want it at once, one makes it and
// the others find it in use. False where it could not, for one because another was faster.
static bool make_locked(struct run_directory *run) {
    char *beside = path_beside(run);
    struct run_directory made = {.path = beside, .lock = -1};
    trireme_error ignored;
    bool done = directory_create(beside, &ignored) == TRIREME_OK && take_lock(&made, &ignored) == TRIREME_OK &&
                rename(beside, run->path) == 0;
    if (done) {
        run->lock = made.lock;
        run->made = run->fresh = true;
        file_sync_directory(beside, &ignored);
    } else {
        remove_with_lock(beside);
        if (made.lock >= 0)
            close(made.lock);
    }
    free(beside);
    return done;
}

static trireme_status directory_take(struct run_directory *run, trireme_error *error) {
    struct stat st;
    sweep_beside(run);
    int tries = 0; // the process that was faster may be gone already
    for (; tries < MOST_TRIES && stat(run->path, &st) != 0; tries++)
        if (make_locked(run))
            return TRIREME_OK;
    if (tries == MOST_TRIES || !S_ISDIR(st.st_mode)) {
        TRY(directory_create(run->path, error));
        run->made = true;
    }
    TRY(check_ours(run->path, error));
    return take_lock(run, error);
}

// A process that was killed, or whose launcher was, holds its locks until it has ended.
trireme_status run_directory_open(struct run_directory *run, const char *path, trireme_error *error) {
    const int64_t until = clock_now() + PATIENCE;
    for (int64_t look = LOOK_LEAST;; look = MIN(2 * look, LOOK_MOST)) {
        *run = (struct run_directory){.path = mem_strdup(path), .lock = -1};
        const trireme_status status = directory_take(run, error);
        if (status == TRIREME_OK)
            return TRIREME_OK;
        run_directory_close(run);
        if (status != TRIREME_ERROR_BUSY || clock_now() >= until)
            return status;
        nanosleep(&(struct timespec){.tv_nsec = look}, NULL);
    }
}

trireme_status run_directory_check(const struct run_directory *run, trireme_error *error) {
    char *path = directory_join(run, "lock");
    struct stat found, held;
    int missing = stat(path, &found) == 0 ? 0 : errno;
    free(path);
    if (missing && missing != ENOENT && missing != ENOTDIR && missing != ESTALE)
        FAIL(TRIREME_ERROR_IO, "run.directory %s: cannot be examined: %s", run->path, strerror(missing));
    if (missing || fstat(run->lock, &held) != 0 || found.st_dev != held.st_dev || found.st_ino != held.st_ino)
        FAIL(TRIREME_ERROR_IO,
             "run.directory %s is no longer this run's: it, or the lock in it, was removed, renamed or replaced while "
             "the run was at work; nothing more is written there",
             run->path);
    return TRIREME_OK;
}

void run_directory_identify(const char *path, char hex[CHECKSUM_HEX]) {
    char *real = realpath(path, NULL);
    *hex = 0;
    if (real)
        checksum_of(real, strlen(real), hex);
    free(real);
}

bool run_directory_is_busy(const char *path) {
    char *lock = mem_printf("%s/lock", path);
    bool busy = file_is_locked(lock);
    free(lock);
    return busy;
}

void run_directory_close(struct run_directory *run) {
    metrics_close(&run->metrics);
    event_file_close(&run->events);
    if (run->fresh && run->lock >= 0 && run_directory_check(run, NULL) == TRIREME_OK) {
        char *lock = directory_join(run, "lock"), *ranks = directory_join(run, "ranks.bin"), *beside = path_beside(run);
        int hold = hold_directory(run->path, true);
        if (!directory_holds(run->path, "config.yaml"))
            unlink(ranks);
        // Renamed first, so that nobody finds it without its lock.
        if (!run->made || rename(run->path, beside) != 0)
            unlink(lock);
        else if (!remove_with_lock(beside))
            rename(beside, run->path);
        if (hold >= 0)
            close(hold);
        free(lock);
        free(ranks);
        free(beside);
    }
    if (run->lock >= 0)
        close(run->lock);
    free(run->path);
    *run = (struct run_directory){.lock = -1};
}

static trireme_status run_directory_open_events(struct run_directory *run, trireme_error *error) {
    char *events = directory_join(run, "tb");
    const trireme_status status = event_file_open(&run->events, events, run->from, error);
    free(events);
    return status;
}

static void tell_of_log(struct run_directory *run, trireme_status status, const trireme_error *why) {
    if (status != TRIREME_OK)
        metrics_tell(&run->metrics, mem_printf("%s: it is tried again with the next step", why->message));
}

trireme_status run_directory_begin(struct run_directory *run, const struct config *config, int64_t step,
                                   trireme_error *error) {
    TRY(run_directory_check(run, error));
    struct text yaml = {0};
    config_print(&yaml, config);
    char *path = directory_join(run, "config.yaml");
    trireme_status status = file_write_atomic(path, yaml.text, yaml.length, error);
    text_release(&yaml);
    free(path);
    run->fresh &= !directory_holds(run->path, "config.yaml"); // it is there even if only syncing the directory failed
    TRY(status);
    trireme_error why;
    run->from = step;
    run->wants_events = config->metrics.enable_tensorboard;
    tell_of_log(run, metrics_open(&run->metrics, run->path, step, &why), &why);
    if (run->wants_events)
        tell_of_log(run, run_directory_open_events(run, &why), &why);
    return TRIREME_OK;
}

static trireme_status run_directory_add_events(struct run_directory *run, const struct train_step *s,
                                               trireme_error *error) {
    if (!run->events.file)
        TRY(run_directory_open_events(run, error));
    return event_file_add(&run->events, s, error);
}

// Keeps count of the steps in a row that a log lacks, and tells of the first and of the one after the last.
static void log_count(struct run_directory *run, int64_t *lacks, const char *path, int64_t step, trireme_status status,
                      const trireme_error *why) {
    if (status != TRIREME_OK && (*lacks)++ == 0)
        metrics_tell(&run->metrics, mem_printf("%s: left out from step %lld on", why->message, (long long)step));
    if (status != TRIREME_OK || *lacks == 0)
        return;
    metrics_tell(&run->metrics, mem_printf("%s: goes on with step %lld, without the %s before it", path,
                                           (long long)step, counted(*lacks, "step").text));
    *lacks = 0;
}

trireme_status run_directory_add(struct run_directory *run, const struct train_step *s, trireme_error *error) {
    trireme_error why;
    TRY(run_directory_check(run, error));
    log_count(run, &run->unlogged, run->metrics.path, s->step, metrics_add(&run->metrics, s, &why), &why);
    if (run->wants_events) {
        const trireme_status status = run_directory_add_events(run, s, &why);
        log_count(run, &run->untold, run->events.path, s->step, status, &why);
    }
    return TRIREME_OK;
}

trireme_status run_directory_add_validation(struct run_directory *run, int64_t step, double val_loss,
                                            trireme_error *error) {
    trireme_error why;
    TRY(run_directory_check(run, error));
    if (metrics_add_validation(&run->metrics, step, val_loss, &why) != TRIREME_OK)
        metrics_tell(&run->metrics, mem_printf("%s: it lacks val_loss of step %lld", why.message, (long long)step));
    if (run->events.file && event_file_add_validation(&run->events, step, val_loss, &why) != TRIREME_OK)
        metrics_tell(&run->metrics, mem_printf("%s: it lacks val_loss of step %lld", why.message, (long long)step));
    return TRIREME_OK;
}

trireme_status run_directory_add_sample(struct run_directory *run, int64_t step, int number, const struct text *sample,
                                        trireme_error *error) {
    return run->events.file ? event_file_add_sample(&run->events, step, number, sample, error) : TRIREME_OK;
}

#define TRACE_PATH "trace/step-%lld.json"

bool run_directory_has_trace(const struct run_directory *run, int64_t step) {
    char name[64];
    snprintf(name, sizeof name, TRACE_PATH, (long long)step);
    return directory_holds(run->path, name);
}

trireme_status run_directory_trace(const struct run_directory *run, int64_t step, const struct text *trace,
                                   trireme_error *error) {
    TRY(run_directory_check(run, error));
    char *directory = directory_join(run, "trace"), *path = mem_printf("%s/" TRACE_PATH, run->path, (long long)step);
    trireme_status status = directory_create(directory, error);
    if (status == TRIREME_OK)
        status = file_write_atomic(path, trace->text, trace->length, error);
    free(directory);
    free(path);
    return status;
}
