#include "ckpt/damage.h"

#include "base/parallel_for.h"
#include "base/text.h"
#include "ckpt/safetensors.h"

#include <fcntl.h>
#include <unistd.h>

// A piece of a file that is to be verified; or a whole file whose size is not as it should be.
struct damage_task {
    const struct checksum_file *file;
    size_t piece;
    uint64_t begin, end;
    trireme_status status; // what it came to
    char *message;         // where that is not OK
};

struct damage_tasks {
    const char *directory;
    const struct damage_watch *watch;
    pthread_mutex_t lock;
    uint64_t done, total;
    VEC(struct damage_task);
};

// What is in memory says nothing about the disk.
static void damage_drop_cache(const char *path, const struct damage_task *t) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return;
    posix_fadvise(fd, (off_t)t->begin, (off_t)(t->end - t->begin), POSIX_FADV_DONTNEED);
    close(fd);
}

static void damage_look(void *argument, int i) {
    struct damage_tasks *all = argument;
    struct damage_task *t = &all->item[i];
    char *path = mem_printf("%s/%s", all->directory, t->file->name);
    trireme_error error = {0};
    struct checksum_share piece = {.ranks = (int)checksum_file_pieces(t->file), .rank = (int)t->piece};
    damage_drop_cache(path, t);
    t->status = manifest_verify_file(t->file, all->directory, MANIFEST_CONTENT, &piece, NULL, &error);
    t->message = t->status == TRIREME_OK ? NULL : mem_strdup(error.message);
    free(path);
    pthread_mutex_lock(&all->lock);
    all->done += t->end - t->begin;
    if (all->watch)
        all->watch->read(all->watch->user, all->done, all->total);
    pthread_mutex_unlock(&all->lock);
}

// A file of the wrong size is damaged once; otherwise each of its pieces is verified.
static void damage_add_tasks(struct damage_tasks *all, const struct checksum_file *f) {
    trireme_error ignored;
    struct checksum_share none = CHECKSUM_WHOLE;
    const bool has_size = manifest_verify_file(f, all->directory, MANIFEST_SIZES, &none, NULL, &ignored) == TRIREME_OK;
    const size_t pieces = has_size ? checksum_file_pieces(f) : 0;
    for (size_t i = 0; i < pieces; i++) {
        struct damage_task task = {.file = f, .piece = i};
        checksum_file_piece(f, i, &task.begin, &task.end);
        VEC_PUSH(all, task);
        all->total += task.end - task.begin;
    }
    if (!has_size)
        VEC_PUSH(all, (struct damage_task){.file = f});
}

static void damage_name_tensors(const char *directory, struct damage *d) {
    char *path = mem_printf("%s/%s", directory, d->file);
    struct safetensors *files;
    trireme_error ignored;
    if (d->begin < d->end && text_ends(path, ".safetensors") &&
        safetensors_open(path, &files, &ignored) == TRIREME_OK) {
        for (size_t i = 0; i < files->tensor.count; i++) {
            const struct safetensors_tensor *t = &files->tensor.item[i];
            if (t->position < d->end && t->position + t->bytes > d->begin)
                VEC_PUSH(&d->tensor, mem_strdup(t->name));
        }
        safetensors_close(files);
    }
    free(path);
}

trireme_status damage_find(const char *directory, int threads, const struct damage_watch *watch,
                           struct damage_report *out, trireme_error *error) {
    struct manifest m = {0};
    *out = (struct damage_report){0};
    TRY(manifest_read(directory, &m, error));
    struct damage_tasks all = {.directory = directory, .watch = watch};
    pthread_mutex_init(&all.lock, NULL);
    trireme_error unlisted;
    const trireme_status listed = manifest_check_listed(&m, directory, MANIFEST_CONTENT, &unlisted);
    if (listed != TRIREME_OK)
        VEC_PUSH(out, (struct damage){.file = mem_strdup(MANIFEST_NAME),
                                      .message = mem_strdup(unlisted.message),
                                      .unreadable = listed != TRIREME_ERROR_CORRUPT});
    for (size_t i = 0; i < m.file.count; i++) {
        out->bytes += m.file.item[i].bytes;
        out->files++;
        damage_add_tasks(&all, &m.file.item[i]);
    }
    parallel_for(threads, (int)all.count, damage_look, &all);
    for (size_t i = 0; i < all.count; i++) {
        const struct damage_task *t = &all.item[i];
        if (t->status == TRIREME_OK)
            continue;
        struct damage d = {.file = mem_strdup(t->file->name),
                           .begin = t->begin,
                           .end = t->end,
                           .message = t->message,
                           .unreadable = t->status != TRIREME_ERROR_CORRUPT};
        damage_name_tensors(directory, &d);
        VEC_PUSH(out, d);
    }
    pthread_mutex_destroy(&all.lock);
    VEC_RELEASE(&all);
    manifest_release(&m);
    return TRIREME_OK;
}

void damage_report_release(struct damage_report *report) {
    for (size_t i = 0; i < report->count; i++) {
        struct damage *d = &report->item[i];
        for (size_t k = 0; k < d->tensor.count; k++)
            free(d->tensor.item[k]);
        VEC_RELEASE(&d->tensor);
        free(d->file);
        free(d->message);
    }
    VEC_RELEASE(report);
}
