#include "ckpt/output.h"

#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { BUFFER = 1 << 16, PIECE = 1 << 26 };

struct output {
    int fd;
    char *path;
    uint64_t expected, written; // bytes; written excludes what is still buffered
    uint64_t begun;             // bytes of them that the disk was told to write
    unsigned char *buffer;
    size_t used;
    struct checksum checksum;
    struct checksum_file file;
};

static void output_free(struct output *o) {
    if (o->fd >= 0)
        close(o->fd);
    checksum_file_release(&o->file);
    free(o->buffer);
    free(o->path);
    free(o);
}

trireme_status output_create(const char *directory, const char *name, uint64_t expected, struct output **out,
                             trireme_error *error) {
    char *path = mem_printf("%s/%s", directory, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        error_set(error, TRIREME_ERROR_IO, "%s: cannot create: %s", path, strerror(errno));
        free(path);
        return TRIREME_ERROR_IO;
    }
    struct output *o = mem_alloc(sizeof *o);
    *o = (struct output){.fd = fd, .path = path, .expected = expected, .buffer = mem_alloc(BUFFER)};
    o->file.name = mem_strdup(name);
    checksum_begin(&o->checksum);
    *out = o;
    return TRIREME_OK;
}

static trireme_status write_failed(const struct output *o, int code, trireme_error *error) {
    char space[64] = "", total[64] = "";
    struct statvfs fs;
    if (code == ENOSPC && fstatvfs(o->fd, &fs) == 0)
        snprintf(space, sizeof space, " (%" PRIu64 " bytes free)", (uint64_t)fs.f_bavail * fs.f_frsize);
    if (o->expected)
        snprintf(total, sizeof total, " of %" PRIu64, o->expected);
    FAIL(TRIREME_ERROR_IO, "%s: cannot write: %s after %" PRIu64 "%s bytes%s", o->path, strerror(code), o->written,
         total, space);
}

// Has the disk write the file while more is added, one piece behind: otherwise the other ranks would wait for a single
// fsync of many GB, and count this one as lost. The system reports a failed write once per descriptor: if it is
// reported here, fsync no longer reports it. A system may lack the call, or forbid it.
static trireme_status write_back(struct output *o, trireme_error *error) {
    const unsigned wait = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    const off_t begun = (off_t)o->begun, written = (off_t)o->written;
    const bool behind = begun == 0 || sync_file_range(o->fd, 0, begun, wait) == 0; // with 0 bytes it would wait for all
    if ((!behind || sync_file_range(o->fd, begun, written - begun, SYNC_FILE_RANGE_WRITE) != 0) && errno != ENOSYS &&
        errno != EPERM)
        return write_failed(o, errno, error);
    o->begun = o->written;
    return TRIREME_OK;
}

static trireme_status output_write_all(struct output *o, const void *data, size_t bytes, trireme_error *error) {
    for (size_t done = 0; done < bytes;) {
        size_t piece = MIN(bytes - done, (size_t)PIECE), written = file_write(o->fd, (const char *)data + done, piece);
        o->written += written;
        done += written;
        if (written < piece)
            return write_failed(o, errno, error);
        if (o->written - o->begun >= PIECE)
            TRY(write_back(o, error));
    }
    return TRIREME_OK;
}

static trireme_status output_flush(struct output *o, trireme_error *error) {
    TRY(output_write_all(o, o->buffer, o->used, error));
    o->used = 0;
    return TRIREME_OK;
}

trireme_status output_add(struct output *o, const void *data, size_t bytes, trireme_error *error) {
    checksum_add(&o->checksum, data, bytes);
    o->file.bytes += bytes;
    if (bytes > BUFFER - o->used)
        TRY(output_flush(o, error));
    if (bytes >= BUFFER)
        return output_write_all(o, data, bytes, error);
    if (bytes)
        memcpy(o->buffer + o->used, data, bytes);
    o->used += bytes;
    return TRIREME_OK;
}

trireme_status output_finish(struct output *o, struct checksum_file *file, trireme_error *error) {
    trireme_status status = output_flush(o, error);
    if (status == TRIREME_OK && fsync(o->fd) != 0)
        status = write_failed(o, errno, error);
    int fd = o->fd;
    o->fd = -1;
    if (close(fd) != 0 && status == TRIREME_OK)
        status = error_set(error, TRIREME_ERROR_IO, "%s: cannot write: %s", o->path, strerror(errno));
    if (status != TRIREME_OK) {
        unlink(o->path);
        output_free(o);
        return status;
    }
    checksum_end(&o->checksum, o->file.hex);
    *file = o->file;
    o->file = (struct checksum_file){0};
    output_free(o);
    return TRIREME_OK;
}

void output_abort(struct output *o) {
    if (!o)
        return;
    unlink(o->path);
    output_free(o);
}

trireme_status output_write(const char *directory, const char *name, const void *data, size_t bytes,
                            trireme_error *error) {
    struct output *o;
    struct checksum_file file = {0};
    TRY(output_create(directory, name, bytes, &o, error));
    trireme_status status = output_add(o, data, bytes, error);
    if (status == TRIREME_OK)
        status = output_finish(o, &file, error);
    else
        output_abort(o);
    checksum_file_release(&file);
    return status;
}
