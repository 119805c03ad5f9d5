#include "ckpt/temporary.h"
#include "ckpt/directory_manifest.h"
#include "ckpt/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const KIND[] = {[TEMPORARY_TMP] = ".tmp-", [TEMPORARY_OLD] = ".old-"};
enum { KIND_LENGTH = 5, CREATE_ATTEMPTS = 100 };

char *temporary_path(const char *parent, enum temporary_kind kind, const char *name) {
    return mem_printf("%s/%s%s-%ld", parent, KIND[kind], name, (long)getpid());
}

static int temporary_open_directory(const char *path) {
    return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

int temporary_lock(const char *path) {
    int fd = temporary_open_directory(path);
    if (fd >= 0)
        flock(fd, LOCK_EX | LOCK_NB);
    return fd;
}

// Whether an open directory still has this name: 1 or 0, or -1 with errno.
static int is_named(int fd, const char *path) {
    struct stat opened, named;
    if (fstat(fd, &opened) != 0)
        return -1;
    if (lstat(path, &named) != 0)
        return errno == ENOENT ? 0 : -1;
    return opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

trireme_status temporary_create(const char *path, int *lock, trireme_error *error) {
    // Another thread that sweeps may take the new directory for a dead one before it is locked: then try again.
    for (int i = 0; i < CREATE_ATTEMPTS; i++) {
        if (mkdir(path, 0777) != 0) {
            bool busy = errno == EEXIST;
            FAIL(busy ? TRIREME_ERROR_BUSY : TRIREME_ERROR_IO, "%s: cannot create: %s%s", path, strerror(errno),
                 busy ? ": the same directory is being saved already" : "");
        }
        int fd = temporary_open_directory(path);
        // Waits for such a thread; on a file system without locks, goes on without one.
        while (fd >= 0 && flock(fd, LOCK_EX) != 0 && errno == EINTR)
            continue;
        if (fd < 0 && errno != ENOENT) {
            error_set(error, TRIREME_ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
            rmdir(path);
            return TRIREME_ERROR_IO;
        }
        if (fd < 0)
            continue; // it is gone
        const int named = is_named(fd, path);
        if (named < 0) {
            error_set(error, TRIREME_ERROR_IO, "%s: cannot examine: %s", path, strerror(errno));
            rmdir(path);
            close(fd);
            return TRIREME_ERROR_IO;
        }
        if (named) {
            *lock = fd;
            return TRIREME_OK;
        }
        close(fd);
    }
    FAIL(TRIREME_ERROR_BUSY, "%s: something keeps removing it", path);
}

// Returns a descriptor that keeps the lock while the caller clears up; -1 when the owner may be alive.
static int claim_dead(const char *path, long pid) {
    int fd = temporary_open_directory(path);
    if (fd < 0)
        return -1;
    // The lock alone decides: another process may have the number by now, and containers share file systems but not
    // numbers. Where there are no locks, the number has to do.
    bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
    bool no_locks = !locked && errno != EWOULDBLOCK;
    bool dead = locked || (no_locks && kill((pid_t)pid, 0) != 0 && errno == ESRCH);
    // Another sweep may have removed it meanwhile, and its owner, alive, made and locked another of the same name.
    if (dead && is_named(fd, path) == 1)
        return fd;
    close(fd);
    return -1;
}

// Takes `entry` apart into kind, name and process number; false if it is not one of ours.
static bool parse_entry(const char *entry, const char *stem, enum temporary_kind *kind, char **name, long *pid) {
    bool tmp = !strncmp(entry, KIND[TEMPORARY_TMP], KIND_LENGTH),
         old = !strncmp(entry, KIND[TEMPORARY_OLD], KIND_LENGTH);
    if ((!tmp && !old) || strncmp(entry + KIND_LENGTH, stem, strlen(stem)))
        return false;
    const char *number = entry + KIND_LENGTH + strlen(stem);
    size_t digits = strspn(number, "0123456789");
    const char *process = number + digits + 1;
    if (number[digits] != '-' || !*process || strlen(process) > 10 || process[strspn(process, "0123456789")])
        return false;
    *pid = strtol(process, NULL, 10);
    if (*pid <= 0 || *pid > INT32_MAX)
        return false;
    *kind = tmp ? TEMPORARY_TMP : TEMPORARY_OLD;
    *name = mem_printf("%s%.*s", stem, (int)digits, number);
    return true;
}

static void clear_up(const char *parent, const char *entry, enum temporary_kind kind, const char *name, long pid,
                     bool remove) {
    char *path = mem_printf("%s/%s", parent, entry), *final = mem_printf("%s/%s", parent, name);
    int lock = claim_dead(path, pid);
    if (lock >= 0) {
        struct stat st;
        bool restore = kind == TEMPORARY_OLD && lstat(final, &st) != 0 && errno == ENOENT;
        trireme_error ignored;
        if (restore && rename(path, final) == 0)
            tree_sync(parent, &ignored);
        else if (!restore && remove)
            tree_remove(path, &ignored);
        close(lock);
    }
    free(path);
    free(final);
}

void temporary_sweep(const char *parent, const char *stem, bool remove) {
    DIR *dir = opendir(parent);
    if (!dir)
        return;
    struct dirent *e;
    while ((e = readdir(dir)) != NULL) {
        enum temporary_kind kind;
        char *name;
        long pid;
        if (!parse_entry(e->d_name, stem, &kind, &name, &pid))
            continue;
        clear_up(parent, e->d_name, kind, name, pid, remove);
        free(name);
    }
    closedir(dir);
}

static bool is_being_written(const char *path, long pid) {
    char *manifest = mem_printf("%s/" MANIFEST_NAME, path);
    const bool begun = access(path, F_OK) == 0 && access(manifest, F_OK) != 0;
    free(manifest);
    const int dead = begun ? claim_dead(path, pid) : -1;
    if (dead >= 0)
        close(dead);
    return begun && dead < 0;
}

void temporary_list(const char *parent, const char *stem, struct temporary_names *out) {
    DIR *dir = opendir(parent);
    *out = (struct temporary_names){0};
    for (struct dirent *e; dir && (e = readdir(dir));) {
        enum temporary_kind kind;
        char *name;
        long pid;
        if (!parse_entry(e->d_name, stem, &kind, &name, &pid))
            continue;
        char *path = mem_printf("%s/%s", parent, e->d_name);
        if (kind == TEMPORARY_TMP && is_being_written(path, pid))
            VEC_PUSH(out, name);
        else
            free(name);
        free(path);
    }
    if (dir)
        closedir(dir);
}

void temporary_names_release(struct temporary_names *names) {
    for (size_t i = 0; i < names->count; i++)
        free(names->item[i]);
    VEC_RELEASE(names);
}
