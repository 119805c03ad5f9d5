// Finds which of the directories step-1, step-2, ... are complete, and removes those that may go.
#include "ckpt/directory.h"
#include "ckpt/temporary.h"
#include "ckpt/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char STEP[] = "step-";

struct candidate {
    int64_t number;
    char *name;
};

struct candidates {
    VEC(struct candidate) entry;
};

trireme_status directory_verify(const char *path, struct manifest_check check, const struct checksum_watch *watch,
                                trireme_error *error) {
    struct stat st;
    if (stat(path, &st) != 0)
        FAIL(TRIREME_ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        FAIL(TRIREME_ERROR_CORRUPT, "%s: not a directory", path);
    struct manifest m = {0};
    TRY(manifest_read(path, &m, error));
    trireme_status status = manifest_verify(&m, path, check, watch, error);
    manifest_release(&m);
    return status;
}

static void candidates_release(struct candidates *c) {
    for (size_t i = 0; i < c->entry.count; i++)
        free(c->entry.item[i].name);
    VEC_RELEASE(&c->entry);
}

static int compare_newest_first(const void *a, const void *b) {
    const struct candidate *x = a, *y = b;
    return COMPARE(y->number, x->number) ?: strcmp(x->name, y->name);
}

static trireme_status list_candidates(const char *parent, struct candidates *out, trireme_error *error) {
    DIR *dir = opendir(parent);
    if (!dir && errno == ENOENT)
        return TRIREME_OK;
    if (!dir)
        FAIL(TRIREME_ERROR_IO, "%s: cannot list: %s", parent, strerror(errno));
    struct dirent *e;
    while (errno = 0, (e = readdir(dir)) != NULL) {
        const char *digits = e->d_name + strlen(STEP);
        if (strncmp(e->d_name, STEP, strlen(STEP)) || !*digits || strlen(digits) > 18 ||
            digits[strspn(digits, "0123456789")])
            continue;
        VEC_PUSH(&out->entry, (struct candidate){strtoll(digits, NULL, 10), mem_strdup(e->d_name)});
    }
    int code = errno;
    closedir(dir);
    if (code) {
        candidates_release(out);
        FAIL(TRIREME_ERROR_IO, "%s: cannot list: %s", parent, strerror(code));
    }
    VEC_SORT(&out->entry, compare_newest_first);
    return TRIREME_OK;
}

static bool search_is_named(int fd, const char *path) {
    struct stat held, named;
    return fstat(fd, &held) == 0 && stat(path, &named) == 0 && held.st_dev == named.st_dev &&
           held.st_ino == named.st_ino;
}

int directory_hold(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    // Waits while another process saves or removes the directory.
    while (fd >= 0 && flock(fd, LOCK_SH) != 0 && errno == EINTR)
        continue;
    if (fd < 0 || search_is_named(fd, path))
        return fd;
    close(fd);
    errno = ENOENT;
    return -1;
}

void directory_let_go(int hold) {
    if (hold >= 0)
        close(hold);
}

void directory_search_release(struct directory_search *s) {
    for (size_t i = 0; i < s->skipped.count; i++) {
        free(s->skipped.item[i].path);
        free(s->skipped.item[i].reason);
    }
    VEC_RELEASE(&s->skipped);
    if (s->path)
        directory_let_go(s->hold);
    free(s->path);
    *s = (struct directory_search){0};
}

// Examines one directory. *pruned: it was removed meanwhile, so there are newer ones. One that cannot be read may be
// whole: that is an error.
static trireme_status search_examine(char *path, int64_t number, struct manifest_check check,
                                     const struct checksum_watch *watch, struct directory_search *out, bool *pruned,
                                     trireme_error *error) {
    struct stat st;
    trireme_error reason = {0};
    int hold = directory_hold(path);
    *pruned = hold < 0 && lstat(path, &st) != 0 && errno == ENOENT;
    trireme_status status = *pruned ? TRIREME_OK : directory_verify(path, check, watch, &reason);
    if (status == TRIREME_OK && !*pruned) {
        out->path = path;
        out->number = number;
        out->hold = hold;
        return TRIREME_OK;
    }
    directory_let_go(hold);
    if (status == TRIREME_ERROR_CORRUPT) {
        VEC_PUSH(&out->skipped, (struct directory_skipped){path, mem_strdup(reason.message)});
        return TRIREME_OK;
    }
    if (status != TRIREME_OK)
        error_set(error, status, "%s: try again once it can be read, or move %s away for the one before it",
                  reason.message, path);
    free(path);
    return status;
}

trireme_status directory_newest(const char *parent, struct manifest_check check, const struct checksum_watch *watch,
                                struct directory_search *out, trireme_error *error) {
    *out = (struct directory_search){0};
    temporary_sweep(parent, STEP, false);
    trireme_status status = TRIREME_OK;
    for (bool pruned = true; pruned && status == TRIREME_OK;) {
        struct candidates c = {0};
        directory_search_release(out);
        TRY(list_candidates(parent, &c, error));
        pruned = false;
        for (size_t i = 0; i < c.entry.count && !out->path && !pruned && status == TRIREME_OK; i++)
            status = search_examine(mem_printf("%s/%s", parent, c.entry.item[i].name), c.entry.item[i].number, check,
                                    watch, out, &pruned, error);
        candidates_release(&c);
    }
    if (status != TRIREME_OK)
        directory_search_release(out);
    return status;
}

void directory_sweep(const char *parent) {
    temporary_sweep(parent, STEP, true);
}

int64_t directory_before(const char *parent, int64_t number) {
    struct candidates c = {0};
    int64_t found = -1;
    if (list_candidates(parent, &c, NULL) != TRIREME_OK)
        return found;
    for (size_t i = 0; i < c.entry.count && found < 0; i++) {
        char *path = mem_printf("%s/%s", parent, c.entry.item[i].name);
        if (c.entry.item[i].number < number && directory_verify(path, MANIFEST_SIZES, NULL, NULL) == TRIREME_OK)
            found = c.entry.item[i].number;
        free(path);
    }
    candidates_release(&c);
    return found;
}

// Renames the directory to a temporary name before it is removed: a crash half-way leaves a temporary, not a damaged
// directory. A process that wants to hold it waits for the lock, and then finds it gone.
static trireme_status remove_directory(const char *parent, const char *name, const char *path, trireme_error *error) {
    int lock = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        close(lock);
        return TRIREME_OK;
    }
    char *away = temporary_path(parent, TEMPORARY_TMP, name);
    trireme_status status = TRIREME_OK;
    if (rename(path, away) != 0)
        status = error_set(error, TRIREME_ERROR_IO, "%s: cannot rename to %s: %s", path, away, strerror(errno));
    else
        status = tree_remove(away, error);
    free(away);
    directory_let_go(lock);
    return status;
}

trireme_status directory_prune(const char *parent, int64_t last, size_t keep, trireme_error *error) {
    if (!keep)
        return TRIREME_OK;
    struct candidates c = {0};
    TRY(list_candidates(parent, &c, error));
    trireme_status status = TRIREME_OK;
    size_t complete = 0;
    for (size_t i = 0; i < c.entry.count && status == TRIREME_OK; i++) {
        if (c.entry.item[i].number > last)
            continue;
        char *path = mem_printf("%s/%s", parent, c.entry.item[i].name);
        if (complete < keep)
            complete += directory_verify(path, MANIFEST_SIZES, NULL, NULL) == TRIREME_OK;
        else if (directory_is_ours(path, NULL))
            status = remove_directory(parent, c.entry.item[i].name, path, error);
        free(path);
    }
    candidates_release(&c);
    return status;
}
