#include "ckpt/block_writer.h"

#include "ckpt/uring.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

enum { NO_FILE = -1 };

struct block_file {
    char *path;
    int plain, direct;   // descriptors; direct NO_FILE: the file system has no such way
    bool direct_refused; // or says so later
};

struct transfer {
    bool writes, ended;
    size_t file;
    uint64_t begin;
    char *data;
    int64_t bytes, moved;
    int code; // errno of what went wrong
};

struct block_writer {
    struct uring *uring;
    size_t files;
    struct block_file *file;
    int depth;
    struct transfer *transfer; // [depth]: number n is at n % depth
    uint64_t begun, ended;     // how many
};

struct block_writer *block_writer_create(size_t files, int depth, enum block_way way) {
    struct block_writer *w = mem_alloc(sizeof *w);
    *w = (struct block_writer){.files = files,
                               .depth = depth,
                               .uring = way == BLOCK_URING ? uring_create(depth) : NULL,
                               .file = mem_alloc(files * sizeof *w->file),
                               .transfer = mem_alloc((size_t)depth * sizeof *w->transfer)};
    for (size_t i = 0; i < files; i++)
        w->file[i] = (struct block_file){.plain = NO_FILE, .direct = NO_FILE};
    return w;
}

void block_writer_free(struct block_writer *w) {
    if (!w)
        return;
    uring_free(w->uring);
    free(w->file);
    free(w->transfer);
    free(w);
}

// ---- files

bool block_writer_is_open(const struct block_writer *w, size_t file) {
    return w->file[file].plain != NO_FILE;
}

trireme_status block_writer_open(struct block_writer *w, size_t file, const char *path, trireme_error *error) {
    struct block_file *f = &w->file[file];
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
    if (f->plain != NO_FILE)
        return TRIREME_OK;
    const int plain = open(path, flags);
    if (plain < 0)
        FAIL(TRIREME_ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
    const int direct = open(path, flags | O_DIRECT);
    *f = (struct block_file){.path = mem_strdup(path), .plain = plain, .direct = direct < 0 ? NO_FILE : direct};
    return TRIREME_OK;
}

trireme_status block_writer_sync(struct block_writer *w, size_t file, trireme_error *error) {
    const struct block_file *f = &w->file[file];
    int failed;
    do
        failed = fdatasync(f->plain);
    while (failed && errno == EINTR);
    if (failed)
        FAIL(TRIREME_ERROR_IO, "%s: cannot sync: %s", f->path, strerror(errno));
    return TRIREME_OK;
}

// The status of what came before stays.
static void block_file_close(struct block_file *f, trireme_status *status, trireme_error *error) {
    const int descriptors[] = {f->plain, f->direct};
    for (size_t i = 0; i < ARRAY_LENGTH(descriptors); i++)
        if (descriptors[i] != NO_FILE && close(descriptors[i]) != 0 && *status == TRIREME_OK)
            *status = error_set(error, TRIREME_ERROR_IO, "%s: cannot close: %s", f->path, strerror(errno));
    free(f->path);
    *f = (struct block_file){.plain = NO_FILE, .direct = NO_FILE};
}

trireme_status block_writer_close(struct block_writer *w, trireme_error *error) {
    trireme_status status = TRIREME_OK;
    CHECK(block_writer_under_way(w) == 0);
    for (size_t i = 0; i < w->files; i++)
        if (block_writer_is_open(w, i))
            block_file_close(&w->file[i], &status, error);
    return status;
}

// ---- transfers

// How much of what is left of a transfer may go past the cache: of a write whole pages, of a read all, since it has
// room for a whole page at the end.
static int64_t transfer_direct(const struct block_writer *w, const struct transfer *t) {
    const int64_t left = t->bytes - t->moved;
    const uint64_t places = t->begin | (uint64_t)(uintptr_t)t->data | (uint64_t)t->moved;
    if (w->file[t->file].direct == NO_FILE || w->file[t->file].direct_refused || places % BLOCK_ALIGNMENT != 0)
        return 0;
    return t->writes ? left - left % BLOCK_ALIGNMENT : round_up(left, BLOCK_ALIGNMENT);
}

// What one call to the system moves next.
struct move {
    int file;
    char *data;
    size_t bytes;
    uint64_t at;
};

static struct move transfer_next(const struct block_writer *w, const struct transfer *t) {
    const struct block_file *f = &w->file[t->file];
    const int64_t direct = transfer_direct(w, t);
    return (struct move){.file = direct > 0 ? f->direct : f->plain,
                         .data = t->data + t->moved,
                         .bytes = (size_t)(direct > 0 ? direct : t->bytes - t->moved),
                         .at = t->begin + (uint64_t)t->moved};
}

// Takes note of what a call has moved, or of -errno.
static void transfer_note(struct transfer *t, int64_t result) {
    if (result > 0)
        t->moved = MIN(t->moved + result, t->bytes);
    else if (result != -EINTR)
        t->code = result < 0 ? (int)-result : t->writes ? EIO : ENODATA;
    t->ended = t->moved == t->bytes || t->code != 0;
}

// That the way to the file, or to the system, is not to be had; nothing is wrong with the file.
static bool way_is_refused(int64_t result) {
    return result == -EINVAL || result == -EOPNOTSUPP || result == -ENOSYS || result == -EAGAIN;
}

// What is left of a transfer, by plain calls.
static void transfer_finish(struct block_writer *w, struct transfer *t) {
    struct block_file *f = &w->file[t->file];
    while (!t->ended) {
        const struct move m = transfer_next(w, t);
        const ssize_t moved =
            t->writes ? pwrite(m.file, m.data, m.bytes, (off_t)m.at) : pread(m.file, m.data, m.bytes, (off_t)m.at);
        const int64_t result = moved < 0 ? -errno : moved;
        if (m.file == f->direct && way_is_refused(result))
            f->direct_refused = true;
        else
            transfer_note(t, result);
    }
}

static void transfer_go_on(struct block_writer *w, struct transfer *t) {
    const struct move m = transfer_next(w, t);
    if (!w->uring || !uring_begin(w->uring, t->writes, m.file, m.data, m.bytes, m.at, (int)(t - w->transfer)))
        transfer_finish(w, t);
}

static void transfer_begin(struct block_writer *w, const struct transfer *transfer) {
    CHECK(block_writer_under_way(w) < w->depth && block_writer_is_open(w, transfer->file) && transfer->bytes > 0);
    struct transfer *t = &w->transfer[w->begun++ % (uint64_t)w->depth];
    *t = *transfer;
    transfer_go_on(w, t);
}

// Waits for any transfer's call to end.
static void transfer_await(struct block_writer *w) {
    int64_t result;
    struct transfer *t = &w->transfer[uring_end(w->uring, &result)];
    if (way_is_refused(result)) {
        transfer_finish(w, t);
        return;
    }
    transfer_note(t, result);
    if (!t->ended)
        transfer_go_on(w, t);
}

int block_writer_under_way(const struct block_writer *w) {
    return (int)(w->begun - w->ended);
}

void block_writer_write(struct block_writer *w, size_t file, uint64_t begin, const void *data, int64_t bytes) {
    const struct transfer t = {.writes = true, .file = file, .begin = begin, .data = (char *)data, .bytes = bytes};
    transfer_begin(w, &t);
}

void block_writer_read(struct block_writer *w, size_t file, uint64_t begin, void *data, int64_t bytes) {
    const struct transfer t = {.file = file, .begin = begin, .data = data, .bytes = bytes};
    // What was written through the system's cache must not come back from there.
    posix_fadvise(w->file[file].plain, (off_t)begin, (off_t)round_up(bytes, BLOCK_ALIGNMENT), POSIX_FADV_DONTNEED);
    transfer_begin(w, &t);
}

trireme_status block_writer_end(struct block_writer *w, trireme_error *error) {
    CHECK(block_writer_under_way(w) > 0);
    const struct transfer *t = &w->transfer[w->ended++ % (uint64_t)w->depth];
    while (!t->ended)
        transfer_await(w);
    if (t->code)
        FAIL(TRIREME_ERROR_IO, "%s: cannot %s bytes %" PRIu64 " to %" PRIu64 ": %s", w->file[t->file].path,
             t->writes ? "write" : "read", t->begin, t->begin + (uint64_t)t->bytes, strerror(t->code));
    return TRIREME_OK;
}
