// Packed text comes out as it went in, however it is read; what is cut off or damaged is refused.
#include "base/rng.h"
#include "data/unpacker.h"
#include "test_data.h"

#include <zlib.h>
#include <zstd.h>

static void pack_gzip(const char *bytes, size_t length, struct text *out) {
    enum { GZIP = 15 + 16 };
    z_stream z = {.next_in = (Bytef *)bytes, .avail_in = (uInt)length};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, GZIP, 8, Z_DEFAULT_STRATEGY), Z_OK);
    const uLong room = deflateBound(&z, length);
    char *packed = mem_alloc(room);
    z.next_out = (Bytef *)packed;
    z.avail_out = (uInt)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    text_add_bytes(out, packed, room - z.avail_out);
    deflateEnd(&z);
    free(packed);
}

static void pack_zstd(const char *bytes, size_t length, struct text *out) {
    ZSTD_CCtx *c = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
    const size_t room = ZSTD_compressBound(length);
    char *packed = mem_alloc(room);
    const size_t got = ZSTD_compress2(c, packed, room, bytes, length);
    assert_false(ZSTD_isError(got));
    text_add_bytes(out, packed, got);
    ZSTD_freeCCtx(c);
    free(packed);
}

static void pack_not(const char *bytes, size_t length, struct text *out) {
    text_add_bytes(out, bytes, length);
}

static void (*const PACK[])(const char *, size_t, struct text *) = {pack_not, pack_gzip, pack_zstd};

// A source that gives its bytes in pieces of up to `most`.
struct trickle {
    const char *bytes;
    size_t length, at, most;
};

static trireme_status trickle_read(void *user, char *at, size_t want, size_t *got, trireme_error *error) {
    struct trickle *t = user;
    (void)error;
    *got = MIN(MIN(want, t->most), t->length - t->at);
    memcpy(at, t->bytes + t->at, *got);
    t->at += *got;
    return TRIREME_OK;
}

static trireme_status unpack(const char *bytes, size_t length, size_t most, size_t room, struct text *out,
                             trireme_error *error) {
    struct trickle t = {bytes, length, 0, most};
    struct unpacker *u = unpacker_create("a.gz", (struct unpacker_source){&t, trickle_read});
    char *at = mem_alloc(room);
    trireme_status status;
    size_t got = 1;
    while ((status = unpacker_read(u, at, room, &got, error)) == TRIREME_OK && got)
        text_add_bytes(out, at, got);
    free(at);
    unpacker_free(u);
    return status;
}

// Text that packs well in part.
static void some_text(struct text *out, size_t length) {
    for (size_t i = 0; out->length < length; i++)
        text_add(out, i % 3 ? "the same line again\n" : "%016llx\n", (unsigned long long)rng_philox(1, 2, i).word[0]);
    out->length = length;
}

static void test_round_trips(void **state) {
    static const size_t LENGTH[] = {0, 1, 3, 4, 5, 1000, 700000}, MOST[] = {1, 7, 1 << 20}, ROOM[] = {1, 100, 1 << 20};
    (void)state;
    for (size_t p = 0; p < ARRAY_LENGTH(PACK); p++)
        for (size_t l = 0; l < ARRAY_LENGTH(LENGTH); l++)
            for (size_t m = 0; m < ARRAY_LENGTH(MOST); m++) {
                struct text text = {0}, packed = {0}, out = {0};
                some_text(&text, LENGTH[l]);
                PACK[p](text.text, text.length, &packed);
                assert_ok(unpack(packed.text, packed.length, MOST[m], ROOM[(l + m) % 3], &out, &error));
                assert_int_equal(out.length, text.length);
                if (text.length)
                    assert_memory_equal(out.text, text.text, text.length);
                text_release(&text);
                text_release(&packed);
                text_release(&out);
            }
}

// Several parts after one another are one text, as programs that pack in parallel write them.
static void test_parts(void **state) {
    (void)state;
    for (size_t p = 1; p < ARRAY_LENGTH(PACK); p++) {
        struct text packed = {0}, out = {0};
        PACK[p]("first ", 6, &packed);
        PACK[p]("", 0, &packed);
        PACK[p]("second", 6, &packed);
        assert_ok(unpack(packed.text, packed.length, 5, 4, &out, &error));
        assert_string_equal(out.text, "first second");
        text_add(&packed, "behind it");
        assert_refused(unpack(packed.text, packed.length, 5, 4, &out, &error), TRIREME_ERROR_CORRUPT, "a.gz: its ");
        text_release(&packed);
        text_release(&out);
    }
}

static void test_damage(void **state) {
    (void)state;
    for (size_t p = 1; p < ARRAY_LENGTH(PACK); p++) {
        struct text text = {0}, packed = {0};
        some_text(&text, 3000);
        PACK[p](text.text, text.length, &packed);
        // Cut off: what no longer has its first bytes is text that is not packed.
        for (size_t cut = 4; cut < packed.length; cut++) {
            struct text out = {0};
            assert_refused(unpack(packed.text, cut, 1 << 20, 100, &out, &error), TRIREME_ERROR_CORRUPT,
                           "it ends too early");
            text_release(&out);
        }
        for (size_t bit = 32; bit < 8 * packed.length; bit++) {
            struct text out = {0};
            trireme_error error;
            packed.text[bit / 8] ^= (char)(1 << bit % 8);
            // Some bits, as of the time in gzip's header, mean nothing.
            if (unpack(packed.text, packed.length, 1 << 20, 1 << 20, &out, &error) == TRIREME_OK) {
                assert_int_equal(out.length, text.length);
                assert_memory_equal(out.text, text.text, text.length);
            }
            packed.text[bit / 8] ^= (char)(1 << bit % 8);
            text_release(&out);
        }
        text_release(&text);
        text_release(&packed);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
