// Finds which of the directories step-1, step-2, ... are complete; holds and removes them.
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

trireme_status directory_verify(const char *path, struct manifest_check check, const struct checksum_watch *watch,
                                trireme_error *error) {
    struct stat st;
    if (stat(path, &st) != 0)
        FAIL(TRIREME_ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        FAIL(TRIREME_ERROR_CORRUPT, "%s: not a directory", path);
    struct manifest m = {0};
    TRY(manifest_read(path, &m, error));
    trireme_status status = manifest_verify(&m, path, check, &CHECKSUM_WHOLE, watch, error);
    manifest_release(&m);
    return status;
}

void directory_list_release(struct directory_list *list) {
    for (size_t i = 0; i < list->count; i++)
        free(list->item[i].path);
    VEC_RELEASE(list);
}

static int compare_newest_first(const void *a, const void *b) {
    const struct directory_numbered *x = a, *y = b;
    return COMPARE(y->number, x->number) ?: strcmp(x->path, y->path);
}

trireme_status directory_list(const char *parent, struct directory_list *out, trireme_error *error) {
    *out = (struct directory_list){0};
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
        VEC_PUSH(out, (struct directory_numbered){strtoll(digits, NULL, 10), mem_printf("%s/%s", parent, e->d_name)});
    }
    int code = errno;
    closedir(dir);
    if (code) {
        directory_list_release(out);
        FAIL(TRIREME_ERROR_IO, "%s: cannot list: %s", parent, strerror(code));
    }
    VEC_SORT(out, compare_newest_first);
    return TRIREME_OK;
}

void directory_list_unfinished(const char *parent, struct directory_list *out) {
    struct temporary_names names;
    *out = (struct directory_list){0};
    temporary_list(parent, STEP, &names);
    for (size_t i = 0; i < names.count; i++)
        VEC_PUSH(out, (struct directory_numbered){strtoll(names.item[i] + strlen(STEP), NULL, 10),
                                                  mem_printf("%s/%s", parent, names.item[i])});
    temporary_names_release(&names);
    VEC_SORT(out, compare_newest_first);
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
                                     const struct directory_verifier *verifier, struct directory_search *out,
                                     bool *pruned, trireme_error *error) {
    struct stat st;
    trireme_error reason = {0};
    int hold = directory_hold(path);
    *pruned = hold < 0 && lstat(path, &st) != 0 && errno == ENOENT;
    trireme_status status = *pruned    ? TRIREME_OK
                            : verifier ? verifier->verify(verifier->user, path, check, &reason)
                                       : directory_verify(path, check, NULL, &reason);
    if (status == TRIREME_OK && !*pruned) {
        out->path = path;
        out->number = number;
        out->hold = hold;
        return TRIREME_OK;
    }
    directory_let_go(hold);
    if (status == TRIREME_ERROR_CORRUPT) {
        VEC_PUSH(&out->skipped, (struct directory_skipped){number, path, mem_strdup(reason.message)});
        return TRIREME_OK;
    }
    if (status == TRIREME_ERROR_IO)
        error_set(error, status, "%s: try again once it can be read, or move %s away for the one before it",
                  reason.message, path);
    else if (status != TRIREME_OK)
        error_repeat(error, &reason);
    free(path);
    return status;
}

trireme_status directory_newest(const char *parent, struct manifest_check check,
                                const struct directory_verifier *verifier, struct directory_search *out,
                                trireme_error *error) {
    *out = (struct directory_search){0};
    temporary_sweep(parent, STEP, false);
    trireme_status status = TRIREME_OK;
    for (bool pruned = true; pruned && status == TRIREME_OK;) {
        struct directory_list all;
        directory_search_release(out);
        TRY(directory_list(parent, &all, error));
        pruned = false;
        for (size_t i = 0; i < all.count && !out->path && !pruned && status == TRIREME_OK; i++)
            status =
                search_examine(mem_strdup(all.item[i].path), all.item[i].number, check, verifier, out, &pruned, error);
        directory_list_release(&all);
    }
    if (status != TRIREME_OK)
        directory_search_release(out);
    return status;
}

void directory_sweep(const char *parent) {
    temporary_sweep(parent, STEP, true);
}

int64_t directory_before(const char *parent, int64_t number) {
    struct directory_list all;
    int64_t found = -1;
    if (directory_list(parent, &all, NULL) != TRIREME_OK)
        return found;
    for (size_t i = 0; i < all.count && found < 0; i++)
        if (all.item[i].number < number && directory_verify(all.item[i].path, MANIFEST_SIZES, NULL, NULL) == TRIREME_OK)
            found = all.item[i].number;
    directory_list_release(&all);
    return found;
}

// Renames the directory to a temporary name before it is removed: a crash half-way leaves a temporary, not a damaged
// directory. A process that wants to hold it waits for the lock, and then finds it gone.
trireme_status directory_remove(const char *path, bool *held, trireme_error *error) {
    int lock = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *held = lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (*held) {
        close(lock);
        return TRIREME_OK;
    }
    const char *name = strrchr(path, '/') + 1;
    char *parent = mem_printf("%.*s", (int)(name - 1 - path), path);
    char *away = temporary_path(parent, TEMPORARY_TMP, name);
    trireme_status status = TRIREME_OK;
    if (rename(path, away) != 0)
        status = error_set(error, TRIREME_ERROR_IO, "%s: cannot rename to %s: %s", path, away, strerror(errno));
    else
        status = tree_remove(away, error);
    free(parent);
    free(away);
    directory_let_go(lock);
    return status;
}
