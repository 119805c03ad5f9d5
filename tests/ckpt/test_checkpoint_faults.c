// ckpt/directory.h when things go wrong. The system calls that change files go through this program, which counts them
// and can make the Nth of them fail, or end the process there, for every N.
#include "base/text.h"
#include "ckpt/output.h"
#include "ckpt/temporary.h"
#include "ckpt/tree.h"
#include "support/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CRASHED = 99 };

static struct {
    int countdown;    // 0: nothing happens
    int code;         // errno of the fault; 0: the process ends
    bool no_exchange; // a file system that cannot swap names
    bool discards;    // what is written goes nowhere
    int write_back;   // errno of what asks the disk to take a file; 0: it can
    bool loses;       // what the system no longer keeps in memory is gone
    bool no_locks;    // a file system without
    int life;         // errno of whether a process lives; 0: it does
    int examines;     // errno of what examines a name; 0: it can
    // Are called before, with the path.
    void (*renames)(const char *from), (*locks)(const char *directory);
    struct text *trace;
} fault;

static bool fault_now(void) {
    if (!fault.countdown || --fault.countdown)
        return false;
    if (!fault.code)
        _exit(CRASHED);
    errno = fault.code;
    return true;
}

static void trace(const char *what, int fd, const char *path) {
    char link[64], target[500] = "";
    if (!fault.trace)
        return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (!path && readlink(link, target, sizeof target - 1) < 0)
        target[0] = 0;
    text_add(fault.trace, "%s %s\n", what, path ? path : target);
}

ssize_t write(int fd, const void *bytes, size_t length) {
    trace("write", fd, NULL);
    if (fault.countdown == 1 && !fault.code)
        syscall(SYS_write, fd, bytes, length / 2);
    if (fault_now())
        return -1;
    return fault.discards ? (ssize_t)length : syscall(SYS_write, fd, bytes, length);
}

int fsync(int fd) {
    trace("fsync", fd, NULL);
    return fault_now() ? -1 : 0;
}

int sync_file_range(int fd, off_t begin, off_t bytes, unsigned flags) {
    (void)fd, (void)flags;
    assert_true(begin >= 0 && bytes > 0); // 0 bytes mean all that follow
    errno = fault.write_back;
    return fault_now() || fault.write_back ? -1 : 0;
}

int posix_fadvise(int fd, off_t begin, off_t bytes, int advice) {
    char link[64];
    (void)begin, (void)bytes, (void)advice;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return fault.loses ? truncate(link, 0) : 0;
}

int close(int fd) {
    bool failed = fault_now();
    int code = errno, result = (int)syscall(SYS_close, fd);
    errno = failed ? code : errno;
    return failed ? -1 : result;
}

int open(const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    unsigned mode = flags & O_CREAT ? va_arg(args, unsigned) : 0;
    va_end(args);
    return fault_now() ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int mkdir(const char *path, mode_t mode) {
    return fault_now() ? -1 : (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

int rename(const char *from, const char *to) {
    trace("rename", -1, from);
    if (fault.renames)
        fault.renames(from);
    return fault_now() ? -1 : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags) {
    trace("rename", -1, from);
    if (fault.no_exchange) {
        errno = EINVAL;
        return -1;
    }
    return fault_now() ? -1 : (int)syscall(SYS_renameat2, from_at, from, to_at, to, flags);
}

int unlink(const char *path) {
    return fault_now() ? -1 : (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

int unlinkat(int at, const char *path, int flags) {
    return fault_now() ? -1 : (int)syscall(SYS_unlinkat, at, path, flags);
}

int flock(int fd, int operation) {
    char link[64], path[500] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (fault.locks && readlink(link, path, sizeof path - 1) > 0)
        fault.locks(path);
    errno = ENOLCK;
    return fault_now() || fault.no_locks ? -1 : (int)syscall(SYS_flock, fd, operation);
}

int lstat(const char *path, struct stat *out) {
    errno = fault.examines;
    return errno ? -1 : (int)syscall(SYS_newfstatat, AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}

int kill(pid_t process, int number) {
    (void)process, (void)number;
    errno = fault.life;
    return fault.life ? -1 : 0;
}

// That the disk does not answer does not mean that somebody else is at work.
static void test_name_that_cannot_be_examined(void **state) {
    struct directory *d;
    trireme_error error = {0};
    for (int i = 0; i < 2; i++) {
        fault.examines = EIO;
        const trireme_status status = directory_begin(path_in(*state, "step-1"), DIRECTORY_SET_ASIDE, &d, &error);
        fault.examines = 0;
        assert_refused(status, TRIREME_ERROR_IO, &error, "cannot examine: Input/output error");
    }
    assert_int_equal(folder_count(*state), 0);
    assert_ok(sample_save(path_in(*state, "step-1"), 1, DIRECTORY_SET_ASIDE, &error), &error);
}

static void test_every_file_is_synced_before_the_rename(void **state) {
    const char *folder = *state;
    trireme_error error = {0};
    struct text calls = {0};
    struct directory *d = NULL;
    fault.trace = &calls;
    assert_ok(sample_save(path_in(folder, "step-1"), 1, DIRECTORY_REFUSE, &error), &error);
    fault.trace = NULL;
    char *renamed = strstr(calls.text, "rename ");
    assert_non_null(renamed);
    size_t writes = 0;
    for (char *line = calls.text; (line = strstr(line, "write ")) != NULL; line++, writes++) {
        char *path = mem_printf("\nfsync %.*s\n", (int)strcspn(line + 6, "\n"), line + 6);
        char *synced = strstr(line, path);
        if (!synced || synced > renamed)
            fail_msg("no%sbetween\n%.*sin\n%s", path, (int)strcspn(line, "\n") + 1, line, calls.text);
        free(path);
    }
    assert_int_equal(writes, 6); // a.txt, b.txt, two shards, index, manifest
    // The directories: the one below, then the temporary itself after the manifest, then the parent after the rename.
    char *manifest = strstr(calls.text, "/manifest.json\nfsync ");
    char *below = strstr(calls.text, "/below\n");
    assert_true(manifest && below && below < manifest && manifest < renamed);
    char *self = mem_printf("\nfsync %s/.tmp-step-1-%d\nrename ", folder, (int)getpid());
    assert_non_null(strstr(manifest, self));
    char *parent = mem_printf("\nfsync %s\n", folder);
    assert_non_null(strstr(renamed, parent));
    free(self);
    free(parent);

    // Files that came by other ways.
    assert_ok(directory_begin(path_in(folder, "step-2"), DIRECTORY_REFUSE, &d, &error), &error);
    path_write(path_in(directory_path(d), "other"), "x");
    text_release(&calls);
    fault.trace = &calls;
    assert_ok(directory_commit(d, &error), &error);
    fault.trace = NULL;
    char *other = strstr(calls.text, "/other\n"), *named = strstr(calls.text, "rename ");
    assert_true(other && named && other < named);
    text_release(&calls);
}

// Old: step-1 of version 1, or step-1 damaged; the child saves version 2 as `name` and ends at the Nth call.
static void crash_everywhere(const char *folder, const char *name, bool no_exchange) {
    trireme_error error = {0};
    int crashes = 0, olds = 0;
    for (int n = 1;; n++) {
        assert_ok(tree_remove(folder, &error), &error);
        assert_sample_saved(path_in(folder, "step-1"), 1);
        pid_t child = fork();
        assert_true(child >= 0);
        if (!child) {
            fault.countdown = n;
            fault.no_exchange = no_exchange;
            _exit(sample_save(path_in(folder, name), 2, DIRECTORY_SET_ASIDE, NULL) != TRIREME_OK);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        bool crashed = WEXITSTATUS(status) == CRASHED;
        assert_true(crashed || WEXITSTATUS(status) == 0);
        struct directory_search found = {0};
        assert_ok(directory_newest(folder, MANIFEST_CONTENT, NULL, &found, &error), &error);
        assert_non_null(found.path);
        assert_int_equal(found.skipped.count, 0);
        int version = sample_version(found.path);
        assert_true(version == 2 || (version == 1 && crashed));
        olds += version == 1;
        directory_search_release(&found);
        // The next save clears up.
        struct directory *d = NULL;
        assert_ok(directory_begin(path_in(folder, "step-7"), DIRECTORY_REFUSE, &d, &error), &error);
        directory_abort(d);
        assert_int_equal(folder_count(folder), path_exists(path_in(folder, "step-2")) ? 2 : 1);
        if (!crashed)
            break;
        crashes++;
    }
    assert_true(crashes > 40);
    assert_true(olds > 30 && olds < crashes);
}

static void test_crash_anywhere(void **state) {
    char *folder = mem_printf("%s/checkpoint", (char *)*state);
    crash_everywhere(folder, "step-2", false);
    crash_everywhere(folder, "step-1", false);
    crash_everywhere(folder, "step-1", true);
    free(folder);
}

// As long as it is not certain that the new directory has the name step-1, the old one is there, too.
static void assert_old_stays(const char *folder, bool no_exchange) {
    char old[64];
    snprintf(old, sizeof old, no_exchange ? ".old-step-1-%d" : ".tmp-step-1-%d", (int)getpid());
    if (path_exists(path_in(folder, "step-1")) && sample_version(path_in(folder, "step-1")) == 2)
        assert_int_equal(sample_version(path_in(folder, old)), 1);
}

static void fail_everywhere(const char *folder, const char *name, int code, bool no_exchange) {
    int failures = 0;
    for (int n = 1;; n++) {
        trireme_error error = {0};
        fault.no_exchange = false;
        assert_ok(tree_remove(folder, &error), &error);
        assert_sample_saved(path_in(folder, "step-1"), 1);
        fault.no_exchange = no_exchange;
        fault.code = code;
        fault.countdown = n;
        trireme_status status = sample_save(path_in(folder, name), 2, DIRECTORY_SET_ASIDE, &error);
        bool reached = fault.countdown == 0;
        fault.countdown = 0;
        struct directory_search found = {0};
        if (status != TRIREME_OK) {
            assert_int_equal(status, TRIREME_ERROR_IO);
            assert_int_equal(error.status, TRIREME_ERROR_IO);
            assert_true(reached && error.message[0] && !strchr(error.message, '\n'));
            failures++;
            assert_old_stays(folder, no_exchange);
        }
        assert_ok(directory_newest(folder, MANIFEST_CONTENT, NULL, &found, &error), &error);
        assert_non_null(found.path);
        assert_int_equal(found.skipped.count, 0);
        assert_true(sample_version(found.path) == 2 || status != TRIREME_OK);
        directory_search_release(&found);
        struct directory *d = NULL;
        assert_ok(directory_begin(path_in(folder, "step-7"), DIRECTORY_REFUSE, &d, &error), &error);
        directory_abort(d);
        // An old one that could not be examined is set aside rather than deleted.
        assert_int_equal(folder_count(folder),
                         1 + path_exists(path_in(folder, "step-2")) + path_exists(path_in(folder, "step-1.aside-1")));
        if (!reached)
            break;
    }
    assert_true(failures > 30);
}

static void test_failure_anywhere(void **state) {
    char *folder = mem_printf("%s/checkpoint", (char *)*state);
    fail_everywhere(folder, "step-2", ENOSPC, false);
    fail_everywhere(folder, "step-1", EIO, false);
    fail_everywhere(folder, "step-1", ENOSPC, true);
    free(folder);
}

// What is set aside is not lost, wherever saving fails.
static void test_failure_keeps_what_is_not_ours(void **state) {
    const char *folder = *state, *path = path_in(folder, "step-1");
    char content[8];
    for (int n = 1;; n++) {
        assert_int_equal(mkdir(path, 0700), 0);
        path_write(path_in(path, "notes"), "mine");
        fault.code = EIO;
        fault.countdown = n;
        trireme_status status = sample_save(path, 1, DIRECTORY_SET_ASIDE, NULL);
        bool reached = fault.countdown == 0;
        fault.countdown = 0;
        bool aside = path_exists(path_in(folder, "step-1.aside-1"));
        assert_true(aside || status != TRIREME_OK);
        FILE *file = fopen(path_in(folder, aside ? "step-1.aside-1/notes" : "step-1/notes"), "r");
        assert_non_null(file);
        assert_non_null(fgets(content, sizeof content, file));
        assert_string_equal(content, "mine");
        fclose(file);
        // Either the old one has the name, or the new one, complete.
        assert_true(!aside || directory_verify(path, MANIFEST_CONTENT, NULL, NULL) == TRIREME_OK);
        assert_int_equal(tree_remove(path, NULL), TRIREME_OK);
        assert_int_equal(tree_remove(path_in(folder, "step-1.aside-1"), NULL), TRIREME_OK);
        if (!reached)
            break;
    }
}

static void test_output_that_fails_is_removed(void **state) {
    struct checksum_file file;
    for (int n = 1;; n++) {
        struct output *o = NULL;
        trireme_error error = {0};
        fault.code = EIO;
        fault.countdown = n;
        trireme_status status = output_create(*state, "a", 3, &o, &error);
        if (status == TRIREME_OK && output_add(o, "abc", 3, &error) == TRIREME_OK)
            status = output_finish(o, &file, &error);
        fault.countdown = 0;
        if (status == TRIREME_OK)
            break;
        assert_says(error.message, "/a: cannot ");
        assert_int_equal(folder_count(*state), 0);
    }
    assert_string_equal(file.hex, "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
    checksum_file_release(&file);
}

static trireme_status write_pieces(const char *folder, const void *piece, size_t bytes, trireme_error *error) {
    struct output *o = NULL;
    struct checksum_file file = {0};
    trireme_status status = output_create(folder, "a", 0, &o, error);
    if (status != TRIREME_OK)
        return status;
    for (int i = 0; i < 2 && status == TRIREME_OK; i++)
        status = output_add(o, piece, bytes, error);
    if (status != TRIREME_OK) {
        output_abort(o);
        return status;
    }
    status = output_finish(o, &file, error);
    checksum_file_release(&file);
    return status;
}

// That the disk could not take part of a large file while it was written is reported once, whether fsync then succeeds
// or not.
static void test_disk_that_fails_behind(void **state) {
    enum { PIECE = 1 << 26 };
    void *piece = mem_alloc(PIECE);
    int failures = 0;
    fault.discards = true;
    for (bool reached = true; reached; failures += reached) {
        trireme_error error = {0};
        fault.code = EIO;
        fault.countdown = failures + 1;
        trireme_status status = write_pieces(*state, piece, PIECE, &error);
        reached = fault.countdown == 0;
        fault.countdown = 0;
        assert_int_equal(status, reached ? TRIREME_ERROR_IO : TRIREME_OK);
        assert_true(!reached || strstr(error.message, "/a: cannot "));
        assert_int_equal(folder_count(*state), !reached);
    }
    assert_int_equal(failures, 8); // open, write, begin; write, end, begin; sync, close
    for (fault.write_back = EPERM; fault.write_back; fault.write_back = fault.write_back == EPERM ? ENOSYS : 0) {
        trireme_error error = {0};
        assert_ok(write_pieces(*state, piece, PIECE, &error), &error);
    }
    fault.discards = false;
    free(piece);
}

// Also without anybody to be told why.
static void test_disk_that_loses_what_it_took(void **state) {
    trireme_error error = {0};
    fault.loses = true;
    const trireme_status told = sample_save(path_in(*state, "step-1"), 1, DIRECTORY_REFUSE, &error);
    const trireme_status untold = sample_save(path_in(*state, "step-1"), 1, DIRECTORY_REFUSE, NULL);
    fault.loses = false;
    assert_refused(told, TRIREME_ERROR_IO, &error, "the disk gives back other bytes than were written: check the disk");
    assert_int_equal(error.status, TRIREME_ERROR_IO);
    assert_int_equal(untold, TRIREME_ERROR_IO);
    assert_int_equal(folder_count(*state), 0);
}

static int fill_disk(const char *folder) {
    trireme_error error = {0};
    struct directory *d = NULL;
    struct output *o = NULL;
    static char zeros[200000];
    if (directory_begin(path_in(folder, "step-1"), DIRECTORY_REFUSE, &d, &error) != TRIREME_OK ||
        output_create(directory_path(d), "big", sizeof zeros, &o, &error) != TRIREME_OK)
        return 3;
    if (output_add(o, zeros, sizeof zeros, &error) != TRIREME_ERROR_IO ||
        !strstr(error.message, "/big: cannot write: File too large after 100000 of 200000 bytes"))
        return 4;
    output_abort(o);
    if (folder_count(directory_path(d)))
        return 5;
    directory_abort(d);
    return 0;
}

static void test_full_disk(void **state) {
    assert_sample_saved(path_in(*state, "step-1"), 1);
    assert_on_full_disk(100000, fill_disk, *state);
    assert_int_equal(sample_version(path_in(*state, "step-1")), 1);
    assert_int_equal(folder_count(*state), 1);
}

static void test_replaces_without_swap(void **state) {
    const char *folder = *state, *path = path_in(folder, "step-1");
    trireme_error error = {0};
    assert_sample_saved(path, 1);
    fault.no_exchange = true;
    trireme_status status = sample_save(path, 2, DIRECTORY_REFUSE, &error);
    fault.no_exchange = false;
    assert_ok(status, &error);
    assert_int_equal(sample_version(path), 2);
    assert_int_equal(folder_count(folder), 1);
}

static const char *looked_at;

// Another process may look when the old directory has lost its name and the new one has not got it yet.
static void look_in_between(const char *from) {
    struct directory_search found = {0};
    if (!strstr(from, "/.tmp-") || path_exists(path_in(looked_at, "step-1")))
        return;
    fault.renames = NULL;
    assert_ok(directory_newest(looked_at, MANIFEST_SIZES, NULL, &found, NULL), NULL);
    assert_null(found.path);
    directory_search_release(&found);
}

static void test_replaces_without_swap_while_others_look(void **state) {
    const char *path = path_in(*state, "step-1");
    trireme_error error = {0};
    assert_sample_saved(path, 1);
    looked_at = *state;
    fault.no_exchange = true;
    fault.renames = look_in_between;
    trireme_status status = sample_save(path, 2, DIRECTORY_REFUSE, &error);
    assert_null(fault.renames);
    fault.no_exchange = false;
    assert_ok(status, &error);
    assert_int_equal(sample_version(path), 2);
    assert_int_equal(folder_count(*state), 1);
}

static void test_a_name_that_is_taken_back_is_synced(void **state) {
    const char *folder = *state;
    trireme_error error = {0};
    struct directory_search found = {0};
    struct text calls = {0};
    char old[64];
    snprintf(old, sizeof old, ".old-step-5-%d", INT32_MAX);
    assert_sample_saved(path_in(folder, "step-5"), 5);
    assert_int_equal(rename(path_in(folder, "step-5"), path_in(folder, old)), 0);
    fault.trace = &calls;
    assert_ok(directory_newest(folder, MANIFEST_SIZES, NULL, &found, &error), &error);
    fault.trace = NULL;
    assert_int_equal(found.number, 5);
    char *expected = mem_printf("rename %s/%s\nfsync %s\n", folder, old, folder);
    assert_string_equal(calls.text, expected);
    free(expected);
    text_release(&calls);
    directory_search_release(&found);
}

// Where there are no locks, what a living process may be saving stays, whatever that process is.
static void test_sweeps_without_locks(void **state) {
    static const int LIVES[] = {0, EPERM, ESRCH};
    const char *folder = *state;
    char other[64];
    snprintf(other, sizeof other, ".tmp-step-6-%d", INT32_MAX);
    assert_int_equal(mkdir(path_in(folder, other), 0700), 0);
    fault.no_locks = true;
    for (size_t i = 0; i < ARRAY_LENGTH(LIVES); i++) {
        trireme_error error = {0};
        struct directory *d = NULL;
        fault.life = LIVES[i];
        assert_ok(directory_begin(path_in(folder, "step-7"), DIRECTORY_REFUSE, &d, &error), &error);
        directory_abort(d);
        assert_int_equal(path_exists(path_in(folder, other)), LIVES[i] != ESRCH);
    }
    fault.no_locks = false;
    // Where there are some they decide: the number may be another container's.
    assert_int_equal(mkdir(path_in(folder, other), 0700), 0);
    int fd = open(path_in(folder, other), O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    temporary_sweep(folder, "step-", true);
    assert_true(path_exists(path_in(folder, other)));
    close(fd);
    fault.life = 0;
}

static int locks_left;

static void sweep(const char *directory) {
    if (--locks_left == 0)
        fault.locks = NULL;
    assert_int_equal(rmdir(directory), 0);
}

// Another thread's sweep may take a new directory for a dead one, as long as it is not locked.
static void test_swept_before_it_is_locked(void **state) {
    locks_left = 3;
    fault.locks = sweep;
    assert_sample_saved(path_in(*state, "step-1"), 1);
    assert_int_equal(locks_left, 0);
    assert_int_equal(folder_count(*state), 1);
}

static int replacement;

static void replace(const char *directory) {
    fault.locks = NULL;
    assert_int_equal(rmdir(directory), 0);
    assert_int_equal(mkdir(directory, 0700), 0);
    replacement = open(directory, O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(replacement, LOCK_EX), 0);
}

// The same, and the thread has made another of that name when a second sweep gets the lock of the first one.
static void test_replaced_before_it_is_swept(void **state) {
    char *path = temporary_path(*state, TEMPORARY_TMP, "step-1");
    assert_int_equal(mkdir(path, 0700), 0);
    fault.locks = replace;
    temporary_sweep(*state, "step-", true);
    assert_null(fault.locks);
    assert_true(path_exists(path));
    close(replacement);
    temporary_sweep(*state, "step-", true);
    assert_false(path_exists(path));
    free(path);
}

static void go_on(const char *directory) {
    fault.locks = NULL;
    assert_sample_saved(path_in(looked_at, "step-3"), 3);
    assert_ok(tree_remove(directory, NULL), NULL);
}

// A directory that its run removes before it is held is passed over without a word: there is a newer one.
static void test_pruned_before_it_is_held(void **state) {
    trireme_error error = {0};
    struct directory_search found = {0};
    looked_at = *state;
    assert_sample_saved(path_in(*state, "step-1"), 1);
    assert_sample_saved(path_in(*state, "step-2"), 2);
    fault.locks = go_on;
    assert_ok(directory_newest(*state, MANIFEST_CONTENT, NULL, &found, &error), &error);
    assert_null(fault.locks);
    assert_int_equal(found.number, 3);
    assert_int_equal(found.skipped.count, 0);
    directory_search_release(&found);
}

// Wherever a removal of old directories ends, those that have a name are whole.
static void test_prune_crashes_anywhere(void **state) {
    static const char *const NAME[] = {"step-1", "step-2", "step-3"};
    const char *folder = *state;
    trireme_error error = {0};
    int crashes = 0;
    for (bool crashed = true; crashed; crashes += crashed) {
        for (size_t i = 0; i < ARRAY_LENGTH(NAME); i++)
            assert_sample_saved(path_in(folder, NAME[i]), 1);
        pid_t child = fork();
        assert_true(child >= 0);
        if (!child) {
            fault.code = 0;
            fault.countdown = crashes + 1;
            _exit(sample_prune(folder, 3, 1, &error) != TRIREME_OK);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        crashed = status == CRASHED << 8;
        assert_true(crashed || !status);
        for (size_t i = 0; i < ARRAY_LENGTH(NAME); i++)
            if (i + 1 == ARRAY_LENGTH(NAME) || path_exists(path_in(folder, NAME[i])))
                assert_ok(directory_verify(path_in(folder, NAME[i]), MANIFEST_CONTENT, NULL, &error), &error);
    }
    assert_true(crashes > 30);
}

struct saver {
    const char *folder;
    int first;
    int failures;
};

static void *save_many(void *argument) {
    struct saver *s = argument;
    char path[500];
    for (int i = 0; i < 10; i++) {
        snprintf(path, sizeof path, "%s/step-%d", s->folder, s->first + 4 * (i / 2));
        s->failures += sample_save(path, 1 + i, DIRECTORY_SET_ASIDE, NULL) != TRIREME_OK;
    }
    return NULL;
}

// Threads that save different steps do not sweep one another's temporaries away.
static void test_threads(void **state) {
    pthread_t thread[4];
    struct saver saver[4];
    for (int i = 0; i < 4; i++) {
        saver[i] = (struct saver){*state, i, 0};
        assert_int_equal(pthread_create(&thread[i], NULL, save_many, &saver[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(saver[i].failures, 0);
    }
    assert_int_equal(folder_count(*state), 20);
    for (int i = 0; i < 20; i++) {
        char name[32];
        snprintf(name, sizeof name, "step-%d", i);
        assert_int_equal(sample_version(path_in(*state, name)), 2 + 2 * (i / 4));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_every_file_is_synced_before_the_rename),
        IN_FOLDER(test_crash_anywhere),
        IN_FOLDER(test_failure_anywhere),
        IN_FOLDER(test_failure_keeps_what_is_not_ours),
        IN_FOLDER(test_output_that_fails_is_removed),
        IN_FOLDER(test_disk_that_fails_behind),
        IN_FOLDER(test_disk_that_loses_what_it_took),
        IN_FOLDER(test_full_disk),
        IN_FOLDER(test_replaces_without_swap),
        IN_FOLDER(test_replaces_without_swap_while_others_look),
        IN_FOLDER(test_a_name_that_is_taken_back_is_synced),
        IN_FOLDER(test_sweeps_without_locks),
        IN_FOLDER(test_swept_before_it_is_locked),
        IN_FOLDER(test_replaced_before_it_is_swept),
        IN_FOLDER(test_pruned_before_it_is_held),
        IN_FOLDER(test_prune_crashes_anywhere),
        IN_FOLDER(test_threads),
        IN_FOLDER(test_name_that_cannot_be_examined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
