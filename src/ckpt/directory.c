#include "ckpt/directory.h"
#include "base/text.h"
#include "ckpt/temporary.h"
#include "ckpt/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ASIDE_MAX = 1000 };

struct directory {
    char *parent, *name, *final; // final is parent/name
    char *path;                  // the temporary
    int lock;                    // descriptor of the temporary; locked as long as it is open
    enum directory_taken taken;
    struct manifest manifest;
};

static void directory_free(struct directory *d) {
    if (d->lock >= 0)
        close(d->lock);
    manifest_release(&d->manifest);
    free(d->parent);
    free(d->name);
    free(d->final);
    free(d->path);
    free(d);
}

static bool is_empty(const char *path) {
    DIR *dir = opendir(path);
    if (!dir)
        return false;
    size_t count = 0;
    while (count <= 2 && readdir(dir))
        count++;
    closedir(dir);
    return count <= 2;
}

bool directory_is_ours(const char *path, trireme_error *reason) {
    struct stat st;
    if (lstat(path, &st) != 0) {
        const int code = errno;
        error_set(reason, TRIREME_ERROR_IO, "%s: cannot examine: %s", path, strerror(code));
        return code == ENOENT;
    }
    if (!S_ISDIR(st.st_mode)) {
        error_set(reason, TRIREME_ERROR_USAGE, "%s: exists and is not a directory", path);
        return false;
    }
    if (is_empty(path))
        return true;
    struct manifest m = {0};
    struct tree t = {0};
    bool ours = manifest_read(path, &m, reason) == TRIREME_OK && tree_list(path, &t, reason) == TRIREME_OK;
    for (size_t i = 0; ours && i < t.entry.count; i++) {
        const char *name = t.entry.item[i].name;
        if (t.entry.item[i].directory || !strcmp(name, MANIFEST_NAME) || manifest_find(&m, name))
            continue;
        error_set(reason, TRIREME_ERROR_USAGE, "%s: holds %s, which Trireme did not write", path, name);
        ours = false;
    }
    manifest_release(&m);
    tree_release(&t);
    return ours;
}

// "a/b/" is "b" in "a", "b" is "b" in ".", "/b" is "b" in "/".
static trireme_status split_path(const char *path, char **parent, char **name, trireme_error *error) {
    size_t end = strlen(path);
    while (end && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin && path[begin - 1] != '/')
        begin--;
    size_t length = end - begin, above = begin;
    if (!length || (length <= 2 && !strncmp(path + begin, "..", length)))
        FAIL(TRIREME_ERROR_USAGE, "\"%s\": a directory to be written needs a name of its own", path);
    while (above > 1 && path[above - 1] == '/')
        above--;
    *name = mem_printf("%.*s", (int)length, path + begin);
    *parent = above ? mem_printf("%.*s", (int)above, path) : mem_strdup(".");
    return TRIREME_OK;
}

static trireme_status refuse_taken(const char *path, trireme_error *error) {
    trireme_error reason = {0};
    if (directory_is_ours(path, &reason))
        return TRIREME_OK;
    FAIL(TRIREME_ERROR_USAGE, "%s: will not be replaced (%s): choose another directory or move it away", path,
         reason.message);
}

trireme_status directory_begin(const char *path, enum directory_taken taken, struct directory **out,
                               trireme_error *error) {
    struct directory *d = mem_alloc(sizeof *d);
    *d = (struct directory){.lock = -1, .taken = taken};
    trireme_status status = split_path(path, &d->parent, &d->name, error);
    if (status != TRIREME_OK)
        goto fail;
    d->final = mem_printf("%s/%s", d->parent, d->name);
    d->path = temporary_path(d->parent, TEMPORARY_TMP, d->name);
    status = directory_create(d->parent, error);
    if (status != TRIREME_OK)
        goto fail;
    size_t stem = strlen(d->name);
    while (stem && d->name[stem - 1] >= '0' && d->name[stem - 1] <= '9')
        stem--;
    char *kind = mem_printf("%.*s", (int)stem, d->name);
    temporary_sweep(d->parent, kind, true);
    free(kind);
    if (taken == DIRECTORY_REFUSE)
        status = refuse_taken(d->final, error);
    if (status == TRIREME_OK)
        status = temporary_create(d->path, &d->lock, error);
    if (status != TRIREME_OK)
        goto fail;
    *out = d;
    return TRIREME_OK;
fail:
    directory_free(d);
    return status;
}

const char *directory_path(const struct directory *d) {
    return d->path;
}

void directory_record(struct directory *d, const struct checksum_file *file) {
    struct checksum_file copy;
    checksum_file_copy(&copy, file);
    struct checksum_file *known = manifest_find(&d->manifest, file->name);
    if (known) {
        checksum_file_release(known);
        *known = copy;
    } else
        manifest_add(&d->manifest, &copy);
}

void directory_abort(struct directory *d) {
    if (!d)
        return;
    tree_remove(d->path, NULL);
    directory_free(d);
}

// Syncs a file, and computes its checksum, or only compares its size where a checksum was recorded.
static trireme_status complete_file(struct directory *d, const char *name, const char *path, trireme_error *error) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        FAIL(TRIREME_ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
    trireme_status status = TRIREME_OK;
    const struct checksum_file *known = manifest_find(&d->manifest, name);
    struct stat st;
    if (fsync(fd) != 0 || fstat(fd, &st) != 0)
        status = error_set(error, TRIREME_ERROR_IO, "%s: cannot sync: %s", path, strerror(errno));
    else if (known && known->bytes != (uint64_t)st.st_size)
        status = error_set(error, TRIREME_ERROR_IO,
                           "%s: changed while it was saved: %" PRIu64 " bytes, %" PRIu64 " were written", path,
                           (uint64_t)st.st_size, known->bytes);
    else if (!known) {
        struct checksum_file file = {.name = mem_strdup(name)};
        status = checksum_file_compute(&file, fd, path, error);
        if (status == TRIREME_OK)
            manifest_add(&d->manifest, &file);
        checksum_file_release(&file);
    }
    close(fd);
    return status;
}

// Has the system read a file from the disk when it is read next.
static void file_let_go(const char *path) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return; // reading it will say why
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

static trireme_status disk_compare_file(const struct directory *d, const struct checksum_file *file,
                                        trireme_error *error) {
    char *path = mem_printf("%s/%s", d->path, file->name);
    struct checksum_share share = CHECKSUM_WHOLE;
    file_let_go(path);
    const trireme_status status = checksum_file_verify(file, path, CHECKSUM_ALL, &share, NULL, error);
    free(path);
    return status;
}

static trireme_status disk_compare_manifest(const struct directory *d, trireme_error *error) {
    char *path = mem_printf("%s/%s", d->path, MANIFEST_NAME);
    struct manifest read = {0};
    file_let_go(path);
    const trireme_status status = manifest_read(d->path, &read, error);
    manifest_release(&read);
    free(path);
    return status;
}

// Whether the disk has what was written. Files of blocks are compared by whoever writes them (saver.h).
static trireme_status disk_compare(const struct directory *d, trireme_error *error) {
    trireme_status status = disk_compare_manifest(d, error);
    for (size_t i = 0; i < d->manifest.file.count && status == TRIREME_OK; i++)
        if (!d->manifest.file.item[i].block.count)
            status = disk_compare_file(d, &d->manifest.file.item[i], error);
    if (status == TRIREME_ERROR_CORRUPT) {
        if (error)
            error->status = TRIREME_ERROR_IO;
        return error_prefix(error, TRIREME_ERROR_IO,
                            "the disk gives back other bytes than were written: check the disk");
    }
    return status;
}

static trireme_status complete_manifest(struct directory *d, trireme_error *error) {
    struct tree t = {0};
    TRY(tree_list(d->path, &t, error));
    trireme_status status = TRIREME_OK;
    size_t files = 0;
    for (size_t i = 0; i < t.entry.count && status == TRIREME_OK; i++) {
        const char *name = t.entry.item[i].name;
        char *path = mem_printf("%s/%s", d->path, name);
        if (!strcmp(name, MANIFEST_NAME))
            status = error_set(error, TRIREME_ERROR_USAGE, "%s: the name is taken by the list of files", path);
        else if (t.entry.item[i].directory)
            status = tree_sync(path, error);
        else
            status = complete_file(d, name, path, error);
        files += !t.entry.item[i].directory;
        free(path);
    }
    tree_release(&t);
    TRY(status);
    if (files != d->manifest.file.count)
        FAIL(TRIREME_ERROR_IO, "%s: %zu files were written, %zu are there", d->path, d->manifest.file.count, files);
    TRY(manifest_write(&d->manifest, d->path, error));
    TRY(disk_compare(d, error));
    return tree_sync(d->path, error);
}

static trireme_status rename_failed(const char *from, const char *to, trireme_error *error) {
    FAIL(TRIREME_ERROR_IO, "%s: cannot rename to %s: %s", from, to, strerror(errno));
}

// Renames the directory that has the final name to `away`, and the new directory to the final name; if the second
// fails, undoes the first.
static trireme_status rename_twice(const struct directory *d, const char *away, trireme_error *error) {
    if (rename(d->final, away) != 0)
        return rename_failed(d->final, away, error);
    if (rename(d->path, d->final) == 0)
        return TRIREME_OK;
    rename_failed(d->path, d->final, error);
    rename(away, d->final);
    return TRIREME_ERROR_IO;
}

static trireme_status set_aside(const struct directory *d, trireme_error *error) {
    for (int i = 1; i <= ASIDE_MAX; i++) {
        char *away = mem_printf("%s.aside-%d", d->final, i);
        struct stat st;
        bool is_free = lstat(away, &st) != 0 && errno == ENOENT;
        trireme_status status = is_free ? rename_twice(d, away, error) : TRIREME_OK;
        free(away);
        if (is_free)
            return status;
    }
    FAIL(TRIREME_ERROR_USAGE, "%s: too many of its kind were set aside: remove some", d->final);
}

// Gives the new directory its name. *replaced is the path that the old one has now (caller frees), NULL if there was
// none.
static trireme_status take_name(const struct directory *d, char **replaced, trireme_error *error) {
    if (rename(d->path, d->final) == 0)
        return TRIREME_OK;
    if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR)
        return rename_failed(d->path, d->final, error);
    if (d->taken == DIRECTORY_REFUSE)
        TRY(refuse_taken(d->final, error));
    else if (!directory_is_ours(d->final, NULL))
        return set_aside(d, error);
    if (renameat2(AT_FDCWD, d->path, AT_FDCWD, d->final, RENAME_EXCHANGE) == 0) {
        *replaced = mem_strdup(d->path);
        return TRIREME_OK;
    }
    // The file system cannot swap names. The lock tells a sweep that the old directory is not left over from a crash.
    char *old = temporary_path(d->parent, TEMPORARY_OLD, d->name);
    int lock = temporary_lock(d->final);
    trireme_status status = rename_twice(d, old, error);
    if (lock >= 0)
        close(lock);
    if (status == TRIREME_OK)
        *replaced = old;
    else
        free(old);
    return status;
}

trireme_status directory_commit(struct directory *d, trireme_error *error) {
    char *replaced = NULL;
    trireme_status status = complete_manifest(d, error);
    if (status == TRIREME_OK)
        status = take_name(d, &replaced, error);
    if (status != TRIREME_OK) {
        directory_abort(d);
        return status;
    }
    status = tree_sync(d->parent, error);
    // Deleting the old directory before the new name is certain could leave neither; what stays is swept next time.
    if (status == TRIREME_OK && replaced)
        tree_remove(replaced, NULL);
    free(replaced);
    directory_free(d);
    return status;
}
