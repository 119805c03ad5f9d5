#include "ckpt/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH_MAX = 16 };

void tree_release(struct tree *t) {
    for (size_t i = 0; i < t->entry.count; i++)
        free(t->entry.item[i].name);
    VEC_RELEASE(&t->entry);
}

static bool is_dots(const char *name) {
    return !strcmp(name, ".") || !strcmp(name, "..");
}

// NULL with errno set; `at` is a directory descriptor or AT_FDCWD.
static DIR *open_below(int at, const char *name) {
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    DIR *dir = fdopendir(fd);
    if (!dir)
        close(fd);
    return dir;
}

static trireme_status list_below(DIR *dir, const char *top, const char *prefix, int depth, struct tree *t,
                                 trireme_error *error) {
    if (depth > DEPTH_MAX)
        FAIL(TRIREME_ERROR_USAGE, "%s/%s: directories nested deeper than %d", top, prefix, DEPTH_MAX);
    struct dirent *e;
    while (errno = 0, (e = readdir(dir)) != NULL) {
        if (is_dots(e->d_name))
            continue;
        struct stat st;
        if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            FAIL(TRIREME_ERROR_IO, "%s/%s%s: cannot examine: %s", top, prefix, e->d_name, strerror(errno));
        if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
            FAIL(TRIREME_ERROR_USAGE, "%s/%s%s: neither a file nor a directory", top, prefix, e->d_name);
        VEC_PUSH(&t->entry, (struct tree_entry){mem_printf("%s%s", prefix, e->d_name), S_ISDIR(st.st_mode)});
        if (!S_ISDIR(st.st_mode))
            continue;
        DIR *below = open_below(dirfd(dir), e->d_name);
        if (!below)
            FAIL(TRIREME_ERROR_IO, "%s/%s%s: cannot open: %s", top, prefix, e->d_name, strerror(errno));
        char *longer = mem_printf("%s%s/", prefix, e->d_name);
        trireme_status status = list_below(below, top, longer, depth + 1, t, error);
        free(longer);
        closedir(below);
        TRY(status);
    }
    if (errno)
        FAIL(TRIREME_ERROR_IO, "%s/%s: cannot list: %s", top, prefix, strerror(errno));
    return TRIREME_OK;
}

trireme_status tree_list(const char *path, struct tree *out, trireme_error *error) {
    DIR *dir = open_below(AT_FDCWD, path);
    if (!dir)
        FAIL(TRIREME_ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
    struct tree t = {0};
    trireme_status status = list_below(dir, path, "", 1, &t, error);
    closedir(dir);
    if (status == TRIREME_OK)
        *out = t;
    else
        tree_release(&t);
    return status;
}

trireme_status tree_sync(const char *path, trireme_error *error) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        FAIL(TRIREME_ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
    int code = fsync(fd) == 0 ? 0 : errno;
    close(fd);
    // Some network file systems cannot sync a directory and say so by EINVAL; they write entries at once anyway.
    if (code && code != EINVAL)
        FAIL(TRIREME_ERROR_IO, "%s: cannot sync: %s", path, strerror(code));
    return TRIREME_OK;
}

// Returns 0 or errno.
static int remove_below(int at, const char *name, int depth) {
    if (unlinkat(at, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return errno;
    DIR *dir = depth <= 4 * DEPTH_MAX ? open_below(at, name) : NULL;
    if (!dir)
        return errno == ENOTDIR ? EPERM : errno;
    int code = 0;
    struct dirent *e;
    while (!code && (e = readdir(dir)) != NULL)
        if (!is_dots(e->d_name))
            code = remove_below(dirfd(dir), e->d_name, depth + 1);
    closedir(dir);
    if (!code && unlinkat(at, name, AT_REMOVEDIR) != 0 && errno != ENOENT)
        code = errno;
    return code;
}

trireme_status tree_remove(const char *path, trireme_error *error) {
    int code = remove_below(AT_FDCWD, path, 1);
    if (code)
        FAIL(TRIREME_ERROR_IO, "%s: cannot remove: %s", path, strerror(code));
    return TRIREME_OK;
}
