#include "support/faults.h"

#include "ckpt/uring.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const fault_kind_names[FAULT_KINDS] = {"open",   "read", "write", "transfer", "sync",     "reserve",
                                                   "rename", "name", "close", "map",      "allocate", "thread"};
void (*faults_changed)(const struct fault_change *change);
void (*faults_forgotten)(int file, off_t at);

static struct {
    _Atomic unsigned kinds;
    atomic_int nth, left, code;
    atomic_bool lasting, reached, plain;
    _Atomic(atomic_bool *) note;
    atomic_long count[FAULT_KINDS];
    atomic_int delay[FAULT_KINDS];
} faults;

static void faults_begin(unsigned kinds, int nth, int code, bool lasting) {
    faults.kinds = 0;
    faults.reached = false;
    faults.nth = faults.left = nth;
    faults.code = code;
    faults.lasting = lasting;
    faults.kinds = kinds;
}

void faults_set(unsigned kinds, int nth, int code) {
    faults_begin(kinds, nth, code, false);
}

void faults_set_lasting(unsigned kinds, int nth, int code) {
    faults_begin(kinds, nth, code, true);
}

void faults_note(atomic_bool *reached) {
    faults.note = reached;
}

int faults_passed(void) {
    return faults.nth - faults.left;
}

bool faults_clear(void) {
    faults.kinds = 0;
    return faults.reached;
}

void faults_plain(bool plain) {
    faults.plain = plain;
}

void faults_delay(enum fault_kind kind, int milliseconds) {
    faults.delay[kind] = milliseconds;
}

long faults_count(enum fault_kind kind) {
    return faults.count[kind];
}

// Whether this call is the one; errno says why it fails. With code 0 it is for the caller to end the process.
static bool fault_is_now(enum fault_kind kind) {
    faults.count[kind]++;
    if (faults.delay[kind] > 0)
        usleep((useconds_t)faults.delay[kind] * 1000);
    if (!(faults.kinds & 1u << kind))
        return false;
    const int left = atomic_fetch_sub(&faults.left, 1);
    if (faults.lasting ? left > 1 : left != 1)
        return false;
    faults.reached = true;
    atomic_bool *note = faults.note;
    if (note)
        *note = true;
    errno = faults.code;
    return true;
}

static bool fault_now(enum fault_kind kind) {
    const bool now = fault_is_now(kind);
    if (now && faults.code == 0)
        _exit(FAULT_ENDED);
    return now;
}

// Tells of a call that has ended with `result`, which it returns.
static int64_t fault_tell(int64_t result, const struct fault_change *change) {
    const int code = errno;
    void (*changed)(const struct fault_change *) = faults_changed;
    if (changed && result >= 0)
        changed(change);
    errno = code;
    return result;
}
#define TELL(result, ...) fault_tell(result, &(struct fault_change){__VA_ARGS__})

#define WRAP(result, name, ...)        \
    result __real_##name(__VA_ARGS__); \
    result __wrap_##name(__VA_ARGS__); \
    result __wrap_##name(__VA_ARGS__)

WRAP(int, open, const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const unsigned mode = flags & O_CREAT ? va_arg(arguments, unsigned) : 0;
    va_end(arguments);
    if (fault_now(FAULT_OPEN))
        return -1;
    if (!(flags & (O_CREAT | O_TRUNC)))
        return __real_open(path, flags, mode);
    return (int)TELL(__real_open(path, flags, mode), CHANGE_OPENED, .path = path, .fresh = flags & (O_TRUNC | O_EXCL));
}

WRAP(FILE *, fopen, const char *path, const char *mode) {
    FILE *file = fault_now(FAULT_OPEN) ? NULL : __real_fopen(path, mode);
    if (file && *mode == 'w')
        TELL(0, CHANGE_OPENED, .path = path, .fresh = true);
    return file;
}

WRAP(DIR *, opendir, const char *path) {
    return fault_now(FAULT_OPEN) ? NULL : __real_opendir(path);
}

WRAP(ssize_t, read, int file, void *to, size_t bytes) {
    return fault_now(FAULT_READ) ? -1 : __real_read(file, to, bytes);
}

WRAP(ssize_t, pread, int file, void *to, size_t bytes, off_t at) {
    return fault_now(FAULT_READ) ? -1 : __real_pread(file, to, bytes, at);
}

WRAP(ssize_t, write, int file, const void *from, size_t bytes) {
    const bool now = fault_is_now(FAULT_WRITE);
    if (!now) {
        const ssize_t written = __real_write(file, from, bytes);
        return TELL(written, CHANGE_WRITTEN, .file = file, .data = from, .bytes = written,
                    .at = lseek(file, 0, SEEK_CUR) - written);
    }
    if (faults.code == 0)
        _exit((int)(__real_write(file, from, bytes / 2) & 0) + FAULT_ENDED);
    return -1;
}

WRAP(ssize_t, pwrite, int file, const void *from, size_t bytes, off_t at) {
    const bool now = fault_is_now(FAULT_WRITE);
    if (!now) {
        const ssize_t written = __real_pwrite(file, from, bytes, at);
        return TELL(written, CHANGE_WRITTEN, .file = file, .data = from, .bytes = written, .at = at);
    }
    if (faults.code == 0)
        _exit((int)(__real_pwrite(file, from, bytes / 2, at) & 0) + FAULT_ENDED);
    return -1;
}

WRAP(struct uring *, uring_create, int entries) {
    return faults.plain ? NULL : __real_uring_create(entries);
}

WRAP(int, uring_end, struct uring *u, int64_t *result) {
    const int number = __real_uring_end(u, result);
    if (fault_now(FAULT_TRANSFER))
        *result = -errno;
    return number;
}

WRAP(int, fsync, int file) {
    return fault_now(FAULT_SYNC) ? -1 : (int)TELL(0, CHANGE_SYNCED, .file = file); // tests need not wait for the disk
}

WRAP(int, fdatasync, int file) {
    return fault_now(FAULT_SYNC) ? -1 : (int)TELL(0, CHANGE_SYNCED, .file = file);
}

WRAP(int, posix_fadvise, int file, off_t at, off_t bytes, int advice) {
    if (faults_forgotten && advice == POSIX_FADV_DONTNEED)
        faults_forgotten(file, at);
    return __real_posix_fadvise(file, at, bytes, advice);
}

WRAP(int, fallocate, int file, int mode, off_t at, off_t bytes) {
    if (fault_now(FAULT_RESERVE))
        return -1;
    return (int)TELL(__real_fallocate(file, mode, at, bytes), CHANGE_SIZED, .file = file, .bytes = at + bytes,
                     .grows = true);
}

WRAP(int, ftruncate, int file, off_t bytes) {
    if (fault_now(FAULT_RESERVE))
        return -1;
    return (int)TELL(__real_ftruncate(file, bytes), CHANGE_SIZED, .file = file, .bytes = bytes);
}

WRAP(int, rename, const char *from, const char *to) {
    if (fault_now(FAULT_RENAME))
        return -1;
    return (int)TELL(__real_rename(from, to), CHANGE_RENAMED, .path = from, .to = to);
}

WRAP(int, renameat2, int from_at, const char *from, int to_at, const char *to, unsigned flags) {
    if (fault_now(FAULT_RENAME))
        return -1;
    return (int)TELL(__real_renameat2(from_at, from, to_at, to, flags), CHANGE_RENAMED, .path = from, .to = to,
                     .swaps = flags & RENAME_EXCHANGE);
}

WRAP(int, mkdir, const char *path, mode_t mode) {
    return fault_now(FAULT_NAME) ? -1 : (int)TELL(__real_mkdir(path, mode), CHANGE_FOLDER, .path = path);
}

WRAP(int, rmdir, const char *path) {
    if (fault_now(FAULT_NAME))
        return -1;
    return (int)TELL(__real_rmdir(path), CHANGE_REMOVED, .file = AT_FDCWD, .path = path);
}

WRAP(int, unlink, const char *path) {
    if (fault_now(FAULT_NAME))
        return -1;
    return (int)TELL(__real_unlink(path), CHANGE_REMOVED, .file = AT_FDCWD, .path = path);
}

WRAP(int, unlinkat, int at, const char *path, int flags) {
    if (fault_now(FAULT_NAME))
        return -1;
    return (int)TELL(__real_unlinkat(at, path, flags), CHANGE_REMOVED, .file = at, .path = path);
}

WRAP(int, close, int file) {
    const bool now = fault_now(FAULT_CLOSE); // a file whose closing fails is closed
    const int code = errno, result = __real_close(file);
    errno = now ? code : errno;
    return now ? -1 : result;
}

WRAP(void *, mmap, void *near, size_t bytes, int protection, int flags, int file, off_t at) {
    return fault_now(FAULT_MAP) ? MAP_FAILED : __real_mmap(near, bytes, protection, flags, file, at);
}

WRAP(void *, calloc, size_t count, size_t bytes) {
    return fault_now(FAULT_ALLOCATE) ? NULL : __real_calloc(count, bytes);
}

WRAP(void *, realloc, void *p, size_t bytes) {
    return fault_now(FAULT_ALLOCATE) ? NULL : __real_realloc(p, bytes);
}

WRAP(void *, aligned_alloc, size_t alignment, size_t bytes) {
    return fault_now(FAULT_ALLOCATE) ? NULL : __real_aligned_alloc(alignment, bytes);
}

WRAP(int, pthread_create, pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
    return fault_now(FAULT_THREAD) ? errno : __real_pthread_create(out, attributes, run, argument);
}
