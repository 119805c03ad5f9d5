#include "ckpt/checksum_file.h"

#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 1 << 18, TOLD = 1 << 26 };

// A file that is being read.
struct reading {
    int fd;
    const char *path;
    unsigned char *buffer; // [PIECE]
    const struct checksum_watch *watch;
    uint64_t untold; // bytes read since the watch was last told
};

static void checksum_tell(struct reading *r) {
    r->untold = 0;
    if (r->watch)
        r->watch->read(r->watch->user);
}

void checksum_file_release(struct checksum_file *f) {
    for (size_t i = 0; i < f->part.count; i++)
        free(f->part.item[i].name);
    VEC_RELEASE(&f->part);
    free(f->name);
    *f = (struct checksum_file){0};
}

void checksum_file_copy(struct checksum_file *to, const struct checksum_file *from) {
    *to = (struct checksum_file){.name = mem_strdup(from->name), .bytes = from->bytes};
    memcpy(to->hex, from->hex, sizeof to->hex);
    memcpy(to->model, from->model, sizeof to->model);
    for (size_t i = 0; i < from->part.count; i++) {
        struct checksum_part part = from->part.item[i];
        part.name = mem_strdup(part.name);
        VEC_PUSH(&to->part, part);
    }
}

// Hashes the next `bytes` of the file; *got is less at its end.
static trireme_status hash_next(struct reading *r, uint64_t bytes, uint64_t *got, char hex[CHECKSUM_HEX],
                                trireme_error *error) {
    struct checksum c;
    checksum_begin(&c);
    *got = 0;
    while (*got < bytes) {
        ssize_t n = read(r->fd, r->buffer, (size_t)MIN(bytes - *got, (uint64_t)PIECE));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            FAIL(TRIREME_ERROR_IO, "%s: cannot read: %s", r->path, strerror(errno));
        if (n == 0)
            break;
        checksum_add(&c, r->buffer, (size_t)n);
        *got += (uint64_t)n;
        r->untold += (uint64_t)n;
        if (r->untold >= TOLD)
            checksum_tell(r);
    }
    checksum_end(&c, hex);
    return TRIREME_OK;
}

trireme_status checksum_file_compute(struct checksum_file *f, int fd, const char *path, trireme_error *error) {
    struct reading reading = {.fd = fd, .path = path, .buffer = mem_alloc(PIECE)};
    uint64_t got = 0;
    char hex[CHECKSUM_HEX];
    trireme_status status = hash_next(&reading, UINT64_MAX, &got, hex, error);
    free(reading.buffer);
    TRY(status);
    f->bytes = got;
    memcpy(f->hex, hex, sizeof hex);
    return TRIREME_OK;
}

static trireme_status verify_size(const struct checksum_file *f, const char *path, uint64_t found,
                                  trireme_error *error) {
    if (found == f->bytes)
        return TRIREME_OK;
    const char *what = found < f->bytes ? "truncated" : "longer than it was written";
    char name[JSON_EXCERPT_BYTES];
    uint64_t end = 0;
    for (size_t i = 0; i < f->part.count; i++) {
        const struct checksum_part *part = &f->part.item[i];
        end += part->bytes;
        if (end > found)
            FAIL(TRIREME_ERROR_CORRUPT,
                 "%s: %s: %" PRIu64 " bytes, expected %" PRIu64 "; first tensor cut off: %s, bytes %" PRIu64
                 " to %" PRIu64,
                 path, what, found, f->bytes, json_excerpt(part->name, name), end - part->bytes, end);
    }
    FAIL(TRIREME_ERROR_CORRUPT, "%s: %s: %" PRIu64 " bytes, expected %" PRIu64, path, what, found, f->bytes);
}

static trireme_status verify_content(const struct checksum_file *f, enum checksum_depth depth, struct reading *r,
                                     trireme_error *error) {
    char hex[CHECKSUM_HEX], name[JSON_EXCERPT_BYTES];
    uint64_t got, begin = 0;
    if (!f->part.count) {
        TRY(hash_next(r, f->bytes, &got, hex, error));
        if (got != f->bytes || strcmp(hex, f->hex))
            FAIL(TRIREME_ERROR_CORRUPT, "%s: content is damaged: BLAKE2b expected %s, found %s", r->path, f->hex, hex);
        return TRIREME_OK;
    }
    size_t parts = depth == CHECKSUM_FIRST ? 1 : f->part.count;
    for (size_t i = 0; i < parts; i++) {
        const struct checksum_part *part = &f->part.item[i];
        TRY(hash_next(r, part->bytes, &got, hex, error));
        if (got != part->bytes || strcmp(hex, part->hex))
            FAIL(TRIREME_ERROR_CORRUPT,
                 "%s: tensor %s (bytes %" PRIu64 " to %" PRIu64 ") is damaged: BLAKE2b expected %s, found %s", r->path,
                 json_excerpt(part->name, name), begin, begin + part->bytes, part->hex, hex);
        begin += part->bytes;
    }
    return TRIREME_OK;
}

trireme_status checksum_file_verify(const struct checksum_file *f, const char *path, enum checksum_depth depth,
                                    const struct checksum_watch *watch, trireme_error *error) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: missing, expected %" PRIu64 " bytes", path, f->bytes);
    if (fd < 0)
        FAIL(TRIREME_ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
    trireme_status status;
    struct stat st;
    if (fstat(fd, &st) != 0)
        status = error_set(error, TRIREME_ERROR_IO, "%s: cannot examine: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        status = error_set(error, TRIREME_ERROR_CORRUPT, "%s: not a regular file", path);
    else
        status = verify_size(f, path, (uint64_t)st.st_size, error);
    if (status == TRIREME_OK && depth != CHECKSUM_NONE) {
        struct reading reading = {.fd = fd, .path = path, .buffer = mem_alloc(PIECE), .watch = watch};
        status = verify_content(f, depth, &reading, error);
        if (status == TRIREME_OK)
            checksum_tell(&reading);
        free(reading.buffer);
    }
    close(fd);
    return status;
}
