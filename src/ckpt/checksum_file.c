#include "ckpt/checksum_file.h"

#include "base/json.h"
#include "base/text.h"
#include "base/xxh3.h"
#include "ckpt/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 1 << 20, TOLD = 1 << 26 };

// A file that is being read.
struct reading {
    int fd;
    const char *path;
    unsigned char *buffer; // [PIECE]
    const struct checksum_watch *watch;
    uint64_t at;     // where it goes on
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
    VEC_RELEASE(&f->block);
    free(f->name);
    *f = (struct checksum_file){0};
}

void checksum_file_copy(struct checksum_file *to, const struct checksum_file *from) {
    CHECK(from->part.count == 0); // no file is written with them any more
    *to = (struct checksum_file){.name = mem_strdup(from->name), .bytes = from->bytes};
    memcpy(to->hex, from->hex, sizeof to->hex);
    memcpy(to->model, from->model, sizeof to->model);
    to->block_bytes = from->block_bytes;
    for (size_t i = 0; i < from->block.count; i++)
        VEC_PUSH(&to->block, from->block.item[i]);
}

// Passes the next `bytes` of the file on, piece by piece; *got is less at its end.
static trireme_status read_next(struct reading *r, uint64_t bytes, uint64_t *got,
                                void (*add)(void *sum, const void *data, size_t bytes), void *sum,
                                trireme_error *error) {
    *got = 0;
    while (*got < bytes) {
        ssize_t n = pread(r->fd, r->buffer, (size_t)MIN(bytes - *got, (uint64_t)PIECE), (off_t)r->at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            FAIL(TRIREME_ERROR_IO, "%s: cannot read: %s", r->path, strerror(errno));
        if (n == 0)
            break;
        add(sum, r->buffer, (size_t)n);
        *got += (uint64_t)n;
        r->at += (uint64_t)n;
        r->untold += (uint64_t)n;
        if (r->untold >= TOLD)
            checksum_tell(r);
    }
    return TRIREME_OK;
}

static void add_to_checksum(void *sum, const void *data, size_t bytes) {
    checksum_add(sum, data, bytes);
}

static void add_to_xxh3(void *sum, const void *data, size_t bytes) {
    xxh3_add(sum, data, bytes);
}

static trireme_status hash_next(struct reading *r, uint64_t bytes, uint64_t *got, char hex[CHECKSUM_HEX],
                                trireme_error *error) {
    struct checksum c;
    checksum_begin(&c);
    trireme_status status = read_next(r, bytes, got, add_to_checksum, &c, error);
    checksum_end(&c, hex);
    return status;
}

static trireme_status xxh3_next(struct reading *r, uint64_t bytes, uint64_t *got, uint64_t *out, trireme_error *error) {
    struct xxh3 x = xxh3_begin();
    trireme_status status = read_next(r, bytes, got, add_to_xxh3, &x, error);
    *out = xxh3_end(&x);
    return status;
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
    // Of a file with sums of blocks, opening it names the tensor.
    struct safetensors *files;
    if (found < f->bytes && text_ends(path, ".safetensors")) {
        TRY(safetensors_open(path, &files, error));
        safetensors_close(files);
    }
    FAIL(TRIREME_ERROR_CORRUPT, "%s: %s: %" PRIu64 " bytes, expected %" PRIu64, path, what, found, f->bytes);
}

// The tensors of a safetensors file that lie in some of its bytes, for a message: the first and the last of them. Empty
// where it cannot be told.
static void name_tensors(const char *path, uint64_t begin, uint64_t end, struct text *out) {
    struct safetensors *files;
    trireme_error ignored;
    char shown[JSON_EXCERPT_BYTES];
    const struct safetensors_tensor *first = NULL, *last = NULL;
    if (!text_ends(path, ".safetensors") || safetensors_open(path, &files, &ignored) != TRIREME_OK)
        return;
    for (size_t i = 0; i < files->tensor.count; i++) {
        const struct safetensors_tensor *t = &files->tensor.item[i];
        if (t->position >= end || t->position + t->bytes <= begin)
            continue;
        first = !first || t->position < first->position ? t : first;
        last = !last || t->position > last->position ? t : last;
    }
    if (first)
        text_add(out, ", %s %s", first == last ? "tensor" : "tensors", json_excerpt(first->name, shown));
    if (first != last)
        text_add(out, " to %s", json_excerpt(last->name, shown));
    if (first)
        text_add(out, ",");
    safetensors_close(files);
}

static trireme_status verify_block(const struct checksum_file *f, size_t block, struct reading *r,
                                   trireme_error *error) {
    const uint64_t begin = block * f->block_bytes, end = MIN(begin + f->block_bytes, f->bytes);
    uint64_t got, found;
    r->at = begin;
    TRY(xxh3_next(r, end - begin, &got, &found, error));
    if (got == end - begin && found == f->block.item[block])
        return TRIREME_OK;
    struct text tensors = {0};
    name_tensors(r->path, begin, end, &tensors);
    error_set(error, TRIREME_ERROR_CORRUPT,
              "%s: bytes %" PRIu64 " to %" PRIu64 "%s are damaged: XXH3 expected %016" PRIx64 ", found %016" PRIx64,
              r->path, begin, end, tensors.text ? tensors.text : "", f->block.item[block], found);
    text_release(&tensors);
    return TRIREME_ERROR_CORRUPT;
}

static trireme_status verify_part(const struct checksum_part *part, uint64_t begin, struct reading *r,
                                  trireme_error *error) {
    char hex[CHECKSUM_HEX], name[JSON_EXCERPT_BYTES];
    uint64_t got;
    r->at = begin;
    TRY(hash_next(r, part->bytes, &got, hex, error));
    if (got != part->bytes || strcmp(hex, part->hex))
        FAIL(TRIREME_ERROR_CORRUPT,
             "%s: tensor %s (bytes %" PRIu64 " to %" PRIu64 ") is damaged: BLAKE2b expected %s, found %s", r->path,
             json_excerpt(part->name, name), begin, begin + part->bytes, part->hex, hex);
    return TRIREME_OK;
}

static trireme_status verify_whole(const struct checksum_file *f, struct reading *r, trireme_error *error) {
    char hex[CHECKSUM_HEX];
    uint64_t got;
    TRY(hash_next(r, f->bytes, &got, hex, error));
    if (got != f->bytes || strcmp(hex, f->hex))
        FAIL(TRIREME_ERROR_CORRUPT, "%s: content is damaged: BLAKE2b expected %s, found %s", r->path, f->hex, hex);
    return TRIREME_OK;
}

size_t checksum_file_pieces(const struct checksum_file *f) {
    return f->block.count ?: f->part.count ?: 1;
}

void checksum_file_piece(const struct checksum_file *f, size_t piece, uint64_t *begin, uint64_t *end) {
    *begin = 0;
    *end = f->bytes;
    if (f->block.count) {
        *begin = piece * f->block_bytes;
        *end = MIN(*begin + f->block_bytes, f->bytes);
    } else if (f->part.count) {
        for (size_t i = 0; i < piece; i++)
            *begin += f->part.item[i].bytes;
        *end = *begin + f->part.item[piece].bytes;
    }
}

static trireme_status verify_content(const struct checksum_file *f, enum checksum_depth depth,
                                     struct checksum_share *share, struct reading *r, trireme_error *error) {
    const size_t pieces = depth == CHECKSUM_ALL ? checksum_file_pieces(f) : f->block.count ? 0 : 1;
    uint64_t begin = 0;
    trireme_status status = TRIREME_OK;
    for (size_t i = 0; i < pieces; i++, share->next++) {
        if (status == TRIREME_OK && share->next % share->ranks == share->rank) {
            share->failed = share->next;
            status = f->block.count  ? verify_block(f, i, r, error)
                     : f->part.count ? verify_part(&f->part.item[i], begin, r, error)
                                     : verify_whole(f, r, error);
        }
        begin += f->part.count ? f->part.item[i].bytes : 0;
    }
    return status;
}

trireme_status checksum_file_verify(const struct checksum_file *f, const char *path, enum checksum_depth depth,
                                    struct checksum_share *share, const struct checksum_watch *watch,
                                    trireme_error *error) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    share->failed = share->next;
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
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
        const size_t most = (size_t)MIN(MAX(f->bytes, 1u), (uint64_t)PIECE);
        struct reading reading = {.fd = fd, .path = path, .buffer = mem_alloc(most), .watch = watch};
        status = verify_content(f, depth, share, &reading, error);
        if (status == TRIREME_OK)
            checksum_tell(&reading);
        free(reading.buffer);
    }
    close(fd);
    return status;
}
