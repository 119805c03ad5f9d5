#include "data/unpacker.h"

#include <inttypes.h>
#include <zlib.h>
#include <zstd.h>

enum { BUFFER_BYTES = 1 << 18, MAGIC_BYTES = 4 };

struct packing {
    const char *name, *magic;
    size_t magic_bytes;
    void (*begin)(struct unpacker *u);
    void (*end)(struct unpacker *u);
    // Unpacks from the buffer to out[0, room). Returns how many bytes; *whole: a packed part ended. NULL in *wrong
    // unless the bytes are damaged.
    size_t (*unpack)(struct unpacker *u, char *out, size_t room, bool *whole, const char **wrong);
};

struct unpacker {
    const char *path;
    struct unpacker_source source;
    const struct packing *packing; // NULL: it is not packed, or not known yet
    bool known;
    bool within;       // a packed part, which has begun and not ended
    bool ended;        // the source has
    int64_t taken;     // packed bytes that have left the buffer
    size_t begin, end; // what is in the buffer
    z_stream gzip;
    ZSTD_DStream *zstd;
    char buffer[BUFFER_BYTES];
};

// ---- gzip

static void gzip_begin(struct unpacker *u) {
    enum { WINDOW_BITS = 15, GZIP = 16 };
    CHECK(inflateInit2(&u->gzip, WINDOW_BITS + GZIP) == Z_OK);
}

static void gzip_end(struct unpacker *u) {
    inflateEnd(&u->gzip);
}

static size_t gzip_unpack(struct unpacker *u, char *out, size_t room, bool *whole, const char **wrong) {
    u->gzip.next_in = (Bytef *)u->buffer + u->begin;
    u->gzip.avail_in = (uInt)(u->end - u->begin);
    u->gzip.next_out = (Bytef *)out;
    u->gzip.avail_out = (uInt)MIN(room, (size_t)UINT32_MAX / 2);
    const uInt before = u->gzip.avail_out;
    const int rc = inflate(&u->gzip, Z_NO_FLUSH);
    u->begin = u->end - u->gzip.avail_in;
    *whole = rc == Z_STREAM_END;
    if (*whole)
        CHECK(inflateReset(&u->gzip) == Z_OK);
    else if (rc != Z_OK && rc != Z_BUF_ERROR)
        *wrong = u->gzip.msg ? u->gzip.msg : "it cannot be unpacked";
    return before - u->gzip.avail_out;
}

// ---- Zstandard

static void zstd_begin(struct unpacker *u) {
    u->zstd = ZSTD_createDStream();
    CHECK(u->zstd);
}

static void zstd_end(struct unpacker *u) {
    ZSTD_freeDStream(u->zstd);
}

static size_t zstd_unpack(struct unpacker *u, char *out, size_t room, bool *whole, const char **wrong) {
    ZSTD_inBuffer in = {u->buffer, u->end, u->begin};
    ZSTD_outBuffer to = {out, room, 0};
    const size_t rc = ZSTD_decompressStream(u->zstd, &to, &in);
    u->begin = in.pos;
    *whole = rc == 0;
    if (ZSTD_isError(rc))
        *wrong = ZSTD_getErrorName(rc);
    return to.pos;
}

// ----

static const struct packing PACKINGS[] = {
    {"gzip", "\x1F\x8B", 2, gzip_begin, gzip_end, gzip_unpack},
    {"Zstandard", "\x28\xB5\x2F\xFD", 4, zstd_begin, zstd_end, zstd_unpack},
};

struct unpacker *unpacker_create(const char *path, struct unpacker_source source) {
    struct unpacker *u = mem_alloc(sizeof *u);
    u->path = path;
    u->source = source;
    return u;
}

void unpacker_free(struct unpacker *u) {
    if (u && u->packing)
        u->packing->end(u);
    free(u);
}

// Adds bytes to the buffer, up to `most` in all, unless the source has ended.
static trireme_status unpacker_fill(struct unpacker *u, size_t most, trireme_error *error) {
    size_t got;
    if (u->begin == u->end)
        u->begin = u->end = 0;
    if (u->ended)
        return TRIREME_OK;
    TRY(u->source.read(u->source.user, u->buffer + u->end, most - u->end, &got, error));
    u->ended = got == 0;
    u->end += got;
    return TRIREME_OK;
}

static trireme_status unpacker_recognise(struct unpacker *u, trireme_error *error) {
    while (u->end < MAGIC_BYTES && !u->ended)
        TRY(unpacker_fill(u, MAGIC_BYTES, error));
    for (size_t i = 0; i < ARRAY_LENGTH(PACKINGS) && !u->packing; i++)
        if (u->end >= PACKINGS[i].magic_bytes && memcmp(u->buffer, PACKINGS[i].magic, PACKINGS[i].magic_bytes) == 0)
            u->packing = &PACKINGS[i];
    if (u->packing)
        u->packing->begin(u);
    u->known = true;
    return TRIREME_OK;
}

// Text that is not packed: what was read to recognise it, then as it comes.
static trireme_status unpacker_pass(struct unpacker *u, char *at, size_t want, size_t *got, trireme_error *error) {
    if (u->begin == u->end)
        return u->source.read(u->source.user, at, want, got, error);
    *got = MIN(want, u->end - u->begin);
    memcpy(at, u->buffer + u->begin, *got);
    u->begin += *got;
    return TRIREME_OK;
}

static trireme_status unpacker_refuse(const struct unpacker *u, const char *what, trireme_error *error) {
    FAIL(TRIREME_ERROR_CORRUPT, "%s: its %s is damaged at byte %" PRId64 ": %s", u->path, u->packing->name, u->taken,
         what);
}

trireme_status unpacker_read(struct unpacker *u, char *at, size_t want, size_t *got, trireme_error *error) {
    if (!u->known)
        TRY(unpacker_recognise(u, error));
    if (!u->packing)
        return unpacker_pass(u, at, want, got, error);
    for (*got = 0; *got == 0;) {
        const char *wrong = NULL;
        bool whole = false;
        if (u->begin == u->end)
            TRY(unpacker_fill(u, BUFFER_BYTES, error));
        if (u->begin == u->end && !u->within)
            return TRIREME_OK;
        const size_t before = u->begin;
        *got = u->packing->unpack(u, at, want, &whole, &wrong);
        u->taken += (int64_t)(u->begin - before);
        if (wrong)
            return unpacker_refuse(u, wrong, error);
        u->within = !whole;
        if (*got == 0 && !whole && u->begin == u->end && u->ended)
            return unpacker_refuse(u, "it ends too early", error);
    }
    return TRIREME_OK;
}
