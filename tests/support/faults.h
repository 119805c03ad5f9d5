// Calls of the system and of allocators that fail, or at which the process ends, once a test says so. They go through
// here in the tests that cmake/tests.cmake lists with `--wrap`; for any thread.
#ifndef SUPPORT_FAULTS_H
#define SUPPORT_FAULTS_H

#include "support/test.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum fault_kind {
    FAULT_OPEN,     // open, fopen, opendir
    FAULT_READ,     // read, pread
    FAULT_WRITE,    // write, pwrite
    FAULT_TRANSFER, // how a read or write that was begun ends (ckpt/uring.h)
    FAULT_SYNC,     // fsync, fdatasync
    FAULT_RESERVE,  // fallocate, ftruncate
    FAULT_RENAME,   // rename, renameat2
    FAULT_NAME,     // mkdir, rmdir, unlink, unlinkat
    FAULT_CLOSE,
    FAULT_MAP,      // mmap
    FAULT_ALLOCATE, // calloc, realloc, aligned_alloc
    FAULT_THREAD,   // pthread_create
    FAULT_KINDS
};
extern const char *const fault_kind_names[FAULT_KINDS];
enum { FAULT_ALL = (1 << FAULT_KINDS) - 1 };

// From now on the nth call of these kinds (bits 1 << kind) fails with `code`, and no other; with code 0 the process
// ends in its place, with the status FAULT_ENDED, and writes half of what it was to write.
enum { FAULT_ENDED = 99 };
void faults_set(unsigned kinds, int nth, int code);
// The same for the nth and all that follow.
void faults_set_lasting(unsigned kinds, int nth, int code);
// Where it is noted from now on that the nth was reached: in memory that outlives the process. NULL: nowhere else.
void faults_note(atomic_bool *reached);
// Calls of these kinds since faults_set.
int faults_passed(void);
// No call fails any more. Whether the nth was reached.
bool faults_clear(void);
// Without io_uring from now on, or with it, where there is one.
void faults_plain(bool plain);
// Calls of a kind take as long, from now on.
void faults_delay(enum fault_kind kind, int milliseconds);
// Calls of a kind since the program began.
long faults_count(enum fault_kind kind);
// Is called after each of these calls that has succeeded, by any thread; NULL: nothing is.
struct fault_change {
    enum fault_change_kind {
        CHANGE_OPENED,  // path; `fresh`: cut to nothing, or made
        CHANGE_WRITTEN, // file, data[bytes] at `at`
        CHANGE_SIZED,   // file, bytes; `grows`: it does not become shorter
        CHANGE_SYNCED,  // file
        CHANGE_RENAMED, // path, to; `swaps`: they exchange their names
        CHANGE_FOLDER,  // path
        CHANGE_REMOVED, // path, below the directory `file` unless that is AT_FDCWD
    } kind;
    int file;
    const char *path, *to;
    const void *data;
    int64_t at, bytes;
    bool fresh, grows, swaps;
};
extern void (*faults_changed)(const struct fault_change *change);
// Is called when what the system's cache has of a file from `at` on is let go of; NULL: nothing is.
extern void (*faults_forgotten)(int file, off_t at);

#endif
