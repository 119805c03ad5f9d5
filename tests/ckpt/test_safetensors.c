// ckpt/safetensors.h: what is read, and everything that is refused and in which words. ckpt/safetensors_layout.h: where
// tensors lie.
#include "base/json.h"
#include "base/xxh3.h"
#include "ckpt/safetensors.h"
#include "support/checkpoint.h"
#include "support/tensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

// Header length, header, then `data` bytes that count 0, 1, 2, ... Caller frees.
static unsigned char *make_image(const char *header, size_t data, size_t *length) {
    uint64_t n = strlen(header);
    *length = 8 + n + data;
    unsigned char *image = mem_alloc(*length);
    memcpy(image, &n, 8);
    memcpy(image + 8, header, n);
    for (size_t i = 0; i < data; i++)
        image[8 + n + i] = (unsigned char)i;
    return image;
}

static void write_bytes(const char *folder, const char *name, const void *bytes, size_t length) {
    char *path = mem_printf("%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
    free(path);
}

static void write_image(const char *folder, const char *name, const char *header, size_t data) {
    size_t length;
    unsigned char *image = make_image(header, data, &length);
    write_bytes(folder, name, image, length);
    free(image);
}

static const char GOOD[] = "{\"__metadata__\":{\"format\":\"pt\",\"a\":\"\"},"
                           "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
                           "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
                           "\"none\":{\"dtype\":\"I64\",\"shape\":[3,0],\"data_offsets\":[16,16],\"more\":1},"
                           "\"\\u00e9\":{\"dtype\":\"F4\",\"shape\":[1,1,1,1,1,1,3,2],\"data_offsets\":[16,19]}}   ";

static void test_reads(void **state) {
    (void)state;
    size_t length;
    unsigned char *image = make_image(GOOD, 19, &length);
    struct safetensors *s = NULL;
    trireme_error error = {0};
    assert_ok(safetensors_open_memory(image, length, "m", &s, &error), &error);
    assert_int_equal(s->tensor.count, 4);
    assert_string_equal(s->tensor.item[0].name, "a");
    assert_string_equal(s->tensor.item[3].name, "\xc3\xa9");
    assert_string_equal(safetensors_metadata(s, "format"), "pt");
    assert_string_equal(safetensors_metadata(s, "a"), "");
    assert_null(safetensors_metadata(s, "b"));
    assert_null(safetensors_find(s, "c"));
    const struct safetensors_tensor *b = safetensors_find(s, "b");
    assert_non_null(b);
    assert_int_equal(b->dtype, SAFETENSORS_BF16);
    assert_int_equal(b->ndim, 2);
    assert_int_equal(b->shape[0], 2);
    assert_int_equal(b->shape[1], 3);
    assert_int_equal(b->bytes, 12);
    assert_ptr_equal(b->data, image + length - 15);
    assert_int_equal(b->position, length - 15);
    assert_int_equal(safetensors_find(s, "a")->ndim, 0);
    assert_int_equal(safetensors_find(s, "none")->bytes, 0);
    assert_int_equal(safetensors_find(s, "\xc3\xa9")->bytes, 3);

    assert_ok(safetensors_expect(s, b, SAFETENSORS_BF16, 2, (int64_t[]){2, 3}, &error), &error);
    assert_refused(safetensors_expect(s, b, SAFETENSORS_BF16, 2, (int64_t[]){3, 2}, &error), TRIREME_ERROR_CORRUPT,
                   &error, "m: tensor \"b\": expected BF16 [3, 2], found BF16 [2, 3]");
    assert_refused(safetensors_expect(s, b, SAFETENSORS_F32, 0, NULL, &error), TRIREME_ERROR_CORRUPT, &error,
                   "expected F32 [], found BF16 [2, 3]");
    safetensors_close(s);
    safetensors_close(NULL);
    free(image);
}

static void test_checksum_is_blake2b(void **state) {
    (void)state;
    char hex[CHECKSUM_HEX];
    checksum_of("abc", 3, hex); // as b2sum -l 256 prints it
    assert_string_equal(hex, "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
}

static void test_refuses_malformed_headers(void **state) {
    (void)state;
#define T(type, shape, offsets) "\"dtype\":\"" type "\",\"shape\":[" shape "],\"data_offsets\":[" offsets "]"
    static const struct {
        const char *header;
        size_t data;
        const char *part;
    } CASE[] = {
        {"", 0, "must begin with {"},
        {" {}", 0, "must begin with {"},
        {"[]", 0, "must begin with {"},
        {"{", 0, "m: header: line 1, column 1: not valid JSON"},
        {"{}}", 0, "not valid JSON"},
        {"{}", 1, "m: 1 bytes after the last tensor, expected none"},
        {"{\"a\":1}", 0, "tensor \"a\": must be an object"},
        {"{\"a\":{}}", 0, "m: tensor \"a\": \"dtype\" is missing"},
        {"{\"a\":{\"dtype\":4}}", 0, "\"dtype\" must be a string, found 4"},
        {"{\"a\":{" T("F33", "", "0,4") "}}", 4, "m: tensor \"a\": unknown dtype \"F33\""},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 0, "\"data_offsets\" is missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 0, "\"shape\" is missing"},
        {"{\"a\":{" T("F32", "-1", "0,4") "}}", 4, "\"shape\" must hold integers, none negative, found -1"},
        {"{\"a\":{" T("F32", "1.0", "0,4") "}}", 4, "\"shape\" must hold integers, none negative, found 1.0"},
        {"{\"a\":{" T("F32", "1,1,1,1,1,1,1,1,1", "0,4") "}}", 4, "\"shape\" must have at most 8 elements, found 9"},
        {"{\"a\":{" T("F32", "1", "0") "}}", 4, "\"data_offsets\" must be [begin, end]"},
        {"{\"a\":{" T("F32", "1", "0,4,8") "}}", 4, "\"data_offsets\" must have at most 2 elements"},
        {"{\"a\":{" T("F32", "1", "4,0") "}}", 4, "\"data_offsets\" must be [begin, end]"},
        {"{\"a\":{" T("F32", "1", "-4,0") "}}", 4, "none negative, found -4"},
        {"{\"a\":{" T("F32", "3", "0,8") "}}", 8, "F32 [3] takes 12 bytes, \"data_offsets\" [0, 8] hold 8"},
        {"{\"a\":{" T("F4", "3", "0,2") "}}", 2, "F4 [3] is no possible size"},
        {"{\"a\":{" T("F32", "4294967296,4294967296", "0,0") "}}", 0, "is no possible size"},
        {"{\"a\":{" T("F64", "2305843009213693952", "0,0") "}}", 0, "is no possible size"},
        {"{\"a\":{" T("U8", "9223372036854775807", "0,9223372036854775807") "}}", 4, "m: truncated: tensor \"a\""},
        {"{\"a\":{" T("F32", "1", "0,4") "}}", 3, "m: truncated: tensor \"a\": ends at byte "},
        {"{\"a\":{" T("F32", "1", "0,4") "}}", 5, "m: 1 bytes after the last tensor"},
        {"{\"a\":{" T("F32", "1", "1,5") "}}", 5, "tensor \"a\": begins at byte 1 of the data, expected 0: a hole"},
        {"{\"a\":{" T("F32", "1", "0,4") "},\"b\":{" T("F32", "1", "8,12") "}}", 12,
         "tensor \"b\": begins at byte 8 of the data, expected 4"},
        {"{\"a\":{" T("F32", "1", "0,4") "},\"b\":{" T("F32", "1", "2,6") "}}", 6,
         "tensor \"b\": begins at byte 2 of the data, before the end of \"a\" at 4"},
        {"{\"a\":{" T("F32", "1", "0,4") "},\"b\":{" T("F32", "1", "0,4") "}}", 4, "before the end of \"a\" at 4"},
        {"{\"a\":{" T("U8", "0", "2,2") "},\"b\":{" T("F32", "1", "0,4") "}}", 4, "tensor \"a\": begins at byte 2"},
        {"{\"a\":{" T("F32", "1", "0,4") "},\"a\":{" T("F32", "1", "4,8") "}}", 8, "duplicate object key"},
        {"{\"a\":{" T("F32", "1", "0,4") ",\"dtype\":\"F32\"}}", 4, "duplicate object key"},
        {"{\"__metadata__\":[]}", 0, "m: \"__metadata__\" must be an object, found []"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "m: \"__metadata__\": \"a\" must be a string, found 1"},
        {"{\"a\xff\":{}}", 0, "unable to decode byte 0xff"},
        {"{\"a\\nb\":{}}", 0, "tensor \"a\\nb\": \"dtype\" is missing"},
    };
#undef T
    for (size_t i = 0; i < ARRAY_LENGTH(CASE); i++) {
        size_t length;
        unsigned char *image = make_image(CASE[i].header, CASE[i].data, &length);
        struct safetensors *s = NULL;
        trireme_error error = {0};
        assert_refused(safetensors_open_memory(image, length, "m", &s, &error), TRIREME_ERROR_CORRUPT, &error,
                       CASE[i].part);
        assert_null(s);
        free(image);
    }
    struct safetensors *s = NULL;
    trireme_error error = {0};
    uint64_t words[2] = {100000001, 0};
    assert_refused(safetensors_open_memory(words, 16, "m", &s, &error), TRIREME_ERROR_CORRUPT, &error,
                   "m: header length 100000001 is above 100000000");
    words[0] = UINT64_MAX;
    assert_refused(safetensors_open_memory(words, 16, "m", &s, &error), TRIREME_ERROR_CORRUPT, &error, "is above");
    words[0] = 9;
    assert_refused(safetensors_open_memory(words, 16, "m", &s, &error), TRIREME_ERROR_CORRUPT, &error,
                   "m: truncated: header takes 9 bytes, the file has 8 after its length");
    assert_refused(safetensors_open_memory(words, 7, "m", &s, &error), TRIREME_ERROR_CORRUPT, &error, "too short");
}

// Every prefix of a good file is refused; every change of one byte of the header is refused or leaves tensors inside
// the file.
static void test_survives_damage(void **state) {
    (void)state;
    size_t length;
    unsigned char *image = make_image(GOOD, 19, &length);
    for (size_t n = 0; n < length; n++) {
        unsigned char *cut = mem_alloc(n);
        memcpy(cut, image, n);
        struct safetensors *s = NULL;
        assert_int_equal(safetensors_open_memory(cut, n, "m", &s, NULL), TRIREME_ERROR_CORRUPT);
        free(cut);
    }
    static const char REPLACEMENT[] = "\0 {}[]\",:09-ae\\\xff";
    for (size_t n = 0; n < length - 19; n++)
        for (size_t i = 0; i < sizeof REPLACEMENT - 1; i++) {
            unsigned char kept = image[n];
            image[n] = (unsigned char)REPLACEMENT[i];
            struct safetensors *s = NULL;
            if (safetensors_open_memory(image, length, "m", &s, NULL) == TRIREME_OK) {
                for (size_t j = 0; j < s->tensor.count; j++) {
                    const struct safetensors_tensor *t = &s->tensor.item[j];
                    assert_true(t->position >= 8 && t->bytes <= length && t->position <= length - t->bytes);
                    assert_ptr_equal(t->data, image + t->position);
                }
                safetensors_close(s);
            }
            image[n] = kept;
        }
    free(image);
}

static void test_refuses_files(void **state) {
    const char *folder = *state;
    struct safetensors *s = NULL;
    trireme_error error = {0};
    char *path = mem_printf("%s/nowhere.safetensors", folder), *pipe = mem_printf("%s/pipe.safetensors", folder);
    assert_refused(safetensors_open(path, &s, &error), TRIREME_ERROR_IO, &error, "nowhere.safetensors: cannot open");
    assert_refused(safetensors_open(folder, &s, &error), TRIREME_ERROR_IO, &error,
                   "holds neither model.safetensors nor model.safetensors.index.json");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_refused(safetensors_open(pipe, &s, &error), TRIREME_ERROR_CORRUPT, &error, "not a regular file");
    write_bytes(folder, "nowhere.safetensors", "", 0);
    assert_refused(safetensors_open(path, &s, &error), TRIREME_ERROR_CORRUPT, &error,
                   "nowhere.safetensors: 0 bytes: too short");
    static const char POINTER[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 4096\n";
    write_bytes(folder, "nowhere.safetensors", POINTER, sizeof POINTER - 1);
    assert_refused(safetensors_open(path, &s, &error), TRIREME_ERROR_CORRUPT, &error,
                   "nowhere.safetensors: only says where Git LFS has the file");
    free(path);
    free(pipe);
}

static const char ONE[] = "{\"__metadata__\":{\"format\":\"pt\",\"n\":\"1\"},\"one\":{\"dtype\":\"U8\",\"shape\":[4],"
                          "\"data_offsets\":[0,4]}}";
static const char TWO[] = "{\"__metadata__\":{\"format\":\"tf\",\"m\":\"2\"},\"two\":{\"dtype\":\"U8\",\"shape\":[4],"
                          "\"data_offsets\":[0,4]}}";

static void test_index(void **state) {
    const char *folder = *state;
    write_image(folder, "x-1.safetensors", ONE, 4);
    write_image(folder, "x-2.safetensors", TWO, 4);
    char *path = mem_printf("%s/model.safetensors.index.json", folder);
    static const struct {
        const char *index, *part;
    } CASE[] = {
        {"", "not valid JSON"},
        {"{}", "\"weight_map\" is missing"},
        {"{\"weight_map\":{\"one\":1}}", "tensor \"one\": must map to the name of a file beside the index, found 1"},
        {"{\"weight_map\":{\"one\":\"../x-1.safetensors\"}}", "found \"../x-1.safetensors\""},
        {"{\"weight_map\":{\"one\":\"/etc/passwd\"}}", "found \"/etc/passwd\""},
        {"{\"weight_map\":{\"one\":\"..\"}}", "found \"..\""},
        {"{\"weight_map\":{\"one\":\"\"}}", "found \"\""},
        {"{\"weight_map\":{\"one\":\"x-3.safetensors\"}}", "x-3.safetensors: cannot open"},
        {"{\"weight_map\":{\"one\":\"x-1.safetensors\",\"two\":\"x-1.safetensors\"}}",
         "tensor \"two\": expected in x-1.safetensors, found nowhere"},
        {"{\"weight_map\":{\"one\":\"x-2.safetensors\",\"two\":\"x-1.safetensors\"}}",
         "tensor \"one\": expected in x-2.safetensors, found "},
        {"{\"weight_map\":{\"one\":\"x-1.safetensors\",\"x\":\"copy.safetensors\"}}", "tensor \"one\": is in "},
    };
    write_image(folder, "copy.safetensors", ONE, 4);
    struct safetensors *s = NULL;
    trireme_error error = {0};
    for (size_t i = 0; i < ARRAY_LENGTH(CASE); i++) {
        write_bytes(folder, "model.safetensors.index.json", CASE[i].index, strlen(CASE[i].index));
        trireme_status status = safetensors_open(folder, &s, &error);
        assert_refused(status, status == TRIREME_ERROR_IO ? status : TRIREME_ERROR_CORRUPT, &error, CASE[i].part);
        assert_null(s);
    }
    static const char INDEX[] =
        "{\"metadata\":{\"total_size\":8},\"weight_map\":{\"two\":\"x-2.safetensors\",\"one\":\"x-1.safetensors\"}}";
    write_bytes(folder, "model.safetensors.index.json", INDEX, strlen(INDEX));
    for (int i = 0; i < 2; i++) {
        assert_ok(safetensors_open(i ? path : folder, &s, &error), &error);
        assert_int_equal(s->tensor.count, 2);
        assert_int_equal(s->file.count, 2);
        assert_memory_equal(safetensors_find(s, "two")->data, "\0\1\2\3", 4);
        assert_non_null(strstr(safetensors_path(s, safetensors_find(s, "two")), "/x-2.safetensors"));
        assert_string_equal(safetensors_metadata(s, "format"), "pt"); // the first file's
        assert_string_equal(safetensors_metadata(s, "n"), "1");
        assert_string_equal(safetensors_metadata(s, "m"), "2");
        safetensors_close(s);
    }
    // A single file goes before an index.
    write_image(folder, "model.safetensors", ONE, 4);
    assert_ok(safetensors_open(folder, &s, &error), &error);
    assert_int_equal(s->tensor.count, 1);
    safetensors_close(s);
    free(path);
}

static void test_offsets_beyond_32_bits(void **state) {
    const char *folder = *state;
    static const char HEADER[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[5000000000],\"data_offsets\":[0,5000000000]},"
                                 "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[5000000000,5000000002]}}";
    write_image(folder, "big.safetensors", HEADER, 0);
    char *path = mem_printf("%s/big.safetensors", folder);
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    bool written = pwrite(fd, "ok", 2, (off_t)(8 + strlen(HEADER) + 5000000000)) == 2;
    close(fd);
    if (!written) {
        free(path);
        skip();
    }
    struct safetensors *s = NULL;
    trireme_error error = {0};
    assert_ok(safetensors_open(path, &s, &error), &error);
    assert_memory_equal(safetensors_find(s, "b")->data, "ok", 2);
    assert_int_equal(safetensors_find(s, "a")->shape[0], 5000000000);
    safetensors_close(s);
    free(path);
}

// ---- laying out

enum { TENSORS = SAFETENSORS_DTYPES + 4 };

static const int64_t SHAPE[][2] = {{3, 8}, {1, 8}, {0, 8}, {5, 16}, {301, 8}};

static unsigned char content(size_t tensor, uint64_t i) {
    return (unsigned char)(tensor * 31 + i * 7 + (i >> 8));
}

// One tensor of every dtype and some more; the caller releases.
static struct sample_tensor *all_kinds(void) {
    struct sample_tensor *tensor = mem_alloc(TENSORS * sizeof *tensor);
    for (size_t i = 0; i < TENSORS; i++) {
        const int64_t *shape = SHAPE[i % ARRAY_LENGTH(SHAPE)];
        uint64_t bytes;
        tensor[i] = (struct sample_tensor){mem_printf("t.%zu", i),
                                           (enum safetensors_dtype)(i % SAFETENSORS_DTYPES),
                                           i == SAFETENSORS_DTYPES ? 0 : 2,
                                           {shape[0], shape[1]},
                                           NULL};
        assert_true(safetensors_bytes(tensor[i].dtype, tensor[i].ndim, shape, &bytes));
        unsigned char *data = mem_alloc(bytes + 1);
        for (uint64_t k = 0; k < bytes; k++)
            data[k] = content(i, k);
        tensor[i].data = data;
    }
    return tensor;
}

static void all_kinds_release(struct sample_tensor *tensor) {
    for (size_t i = 0; i < TENSORS; i++) {
        free((char *)tensor[i].name);
        free((void *)tensor[i].data);
    }
    free(tensor);
}

static void layout_of_all_kinds(struct safetensors_layout *layout, const struct sample_tensor *tensor,
                                uint64_t shard_bytes) {
    tensors_declare(layout, "model", shard_bytes, tensor, TENSORS);
    safetensors_layout_metadata(layout, "format", "np");
    safetensors_layout_metadata(layout, "format", "pt");
    safetensors_layout_metadata(layout, "comment", "one \"line\"\n");
}

static void assert_all_kinds(const char *path, size_t files) {
    struct safetensors *s = NULL;
    trireme_error error = {0};
    assert_ok(safetensors_open(path, &s, &error), &error);
    assert_int_equal(s->tensor.count, TENSORS);
    assert_int_equal(s->file.count, files);
    assert_string_equal(safetensors_metadata(s, "format"), "pt");
    assert_string_equal(safetensors_metadata(s, "comment"), "one \"line\"\n");
    for (size_t i = 0; i < TENSORS; i++) {
        char name[32];
        snprintf(name, sizeof name, "t.%zu", i);
        const struct safetensors_tensor *t = safetensors_find(s, name);
        assert_non_null(t);
        assert_ok(safetensors_expect(s, t, (enum safetensors_dtype)(i % SAFETENSORS_DTYPES),
                                     i == SAFETENSORS_DTYPES ? 0 : 2, SHAPE[i % ARRAY_LENGTH(SHAPE)], &error),
                  &error);
        assert_int_equal(t->position % MAX(1, safetensors_dtype_bits(t->dtype) / 8), 0);
        for (uint64_t j = 0; j < t->bytes; j++)
            assert_int_equal(((const unsigned char *)t->data)[j], content(i, j));
    }
    for (size_t i = 0; i < s->file.count; i++) {
        uint64_t header;
        memcpy(&header, s->file.item[i].map, 8);
        assert_int_equal(header % 8, 0);
    }
    safetensors_close(s);
}

static void test_one_file(void **state) {
    const char *folder = *state;
    trireme_error error = {0};
    struct sample_tensor *tensor = all_kinds();
    struct safetensors_layout layout;
    layout_of_all_kinds(&layout, tensor, 0);
    assert_ok(tensors_write(&layout, folder, tensor, NULL, 0, &error), &error);
    assert_all_kinds(folder, 1);
    assert_int_equal(folder_count(folder), 1);
    all_kinds_release(tensor);
}

// Sums of blocks find what was changed, and name the tensors that lie there.
static void test_sums_of_blocks(void **state) {
    const char *folder = *state, *path = path_in(folder, "model.safetensors");
    enum { BYTES = 64 };
    trireme_error error = {0};
    struct sample_tensor *tensor = all_kinds();
    struct safetensors_layout layout;
    struct safetensors *s;
    layout_of_all_kinds(&layout, tensor, 0);
    assert_ok(tensors_write(&layout, folder, tensor, NULL, 0, &error), &error);
    assert_ok(safetensors_open(path, &s, &error), &error);
    struct checksum_file file = {.name = "model.safetensors", .bytes = s->file.item[0].bytes, .block_bytes = BYTES};
    for (uint64_t at = 0; at < file.bytes; at += BYTES)
        VEC_PUSH(&file.block, xxh3_of((const char *)s->file.item[0].map + at, (size_t)MIN(BYTES, file.bytes - at)));
    const uint64_t position = safetensors_find(s, "t.4")->position, cut = safetensors_find(s, "t.3")->position + 1;
    safetensors_close(s);
    assert_ok(checksum_file_verify(&file, path, CHECKSUM_ALL, &CHECKSUM_WHOLE, NULL, &error), &error);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "\xff", 1, (off_t)position + 5), 1);
    assert_ok(checksum_file_verify(&file, path, CHECKSUM_NONE, &CHECKSUM_WHOLE, NULL, &error), &error);
    assert_refused(checksum_file_verify(&file, path, CHECKSUM_ALL, &CHECKSUM_WHOLE, NULL, &error),
                   TRIREME_ERROR_CORRUPT, &error, "model.safetensors: bytes ");
    char *bytes = mem_printf("bytes %llu to %llu, tensor", (unsigned long long)((position + 5) / BYTES * BYTES),
                             (unsigned long long)((position + 5) / BYTES * BYTES + BYTES));
    assert_says(error.message, bytes);
    assert_says(error.message, "\"t.4\"");
    free(bytes);
    assert_int_equal(ftruncate(fd, (off_t)cut), 0);
    assert_refused(checksum_file_verify(&file, path, CHECKSUM_NONE, &CHECKSUM_WHOLE, NULL, &error),
                   TRIREME_ERROR_CORRUPT, &error, "truncated");
    assert_refused(safetensors_open(path, &s, &error), TRIREME_ERROR_CORRUPT, &error, "truncated: tensor \"t.3\"");
    close(fd);
    VEC_RELEASE(&file.block);
    all_kinds_release(tensor);
}

static void count(void *user) {
    ++*(int *)user;
}

// The watch is told while a large file is read.
static void test_tells_of_large_files(void **state) {
    trireme_error error = {0};
    enum { MEGABYTE = 1 << 20 };
    char *path = mem_printf("%s/large", (const char *)*state);
    int fd = open(path, O_RDWR | O_CREAT, 0600), told = 0;
    assert_int_equal(ftruncate(fd, 130 * MEGABYTE + 1), 0);
    struct checksum_file file = {.name = path};
    assert_ok(checksum_file_compute(&file, fd, path, &error), &error);
    const struct checksum_watch watch = {count, &told};
    assert_ok(checksum_file_verify(&file, path, CHECKSUM_NONE, &CHECKSUM_WHOLE, &watch, &error), &error);
    assert_int_equal(told, 0);
    assert_ok(checksum_file_verify(&file, path, CHECKSUM_ALL, &CHECKSUM_WHOLE, &watch, &error), &error);
    assert_int_equal(told, 3); // at 64 and 128 MB, and at its end
    close(fd);
    checksum_file_release(&file);
}

static void test_shards(void **state) {
    const char *folder = *state;
    trireme_error error = {0};
    size_t files[] = {0, 0, 0};
    static const uint64_t LIMITS[] = {1, 3000, 20000};
    struct sample_tensor *tensor = all_kinds();
    for (size_t i = 0; i < ARRAY_LENGTH(LIMITS); i++) {
        char *below = mem_printf("%s/%zu", folder, i), *index = mem_printf("%s/model.safetensors.index.json", below);
        struct safetensors_layout layout;
        struct safetensors *s = NULL;
        json_t *tree = NULL;
        int64_t total = 0;
        assert_int_equal(mkdir(below, 0700), 0);
        layout_of_all_kinds(&layout, tensor, LIMITS[i]);
        assert_ok(tensors_write(&layout, below, tensor, NULL, 0, &error), &error);
        assert_ok(safetensors_open(index, &s, &error), &error);
        files[i] = s->file.count;
        assert_true(files[i] > 1);
        for (size_t j = 0; j < files[i]; j++) {
            uint64_t data = 0;
            size_t filled = 0;
            for (size_t k = 0; k < s->tensor.count; k++)
                if (s->tensor.item[k].file == j) {
                    data += s->tensor.item[k].bytes;
                    filled += s->tensor.item[k].bytes > 0;
                }
            assert_true(data <= LIMITS[i] || filled == 1);
            total += (int64_t)data;
        }
        char *first = mem_printf("%s/model-00001-of-%05zu.safetensors", below, files[i]);
        assert_string_equal(s->file.item[0].path, first);
        assert_all_kinds(below, files[i]);
        assert_ok(json_parse_file(index, 100000, &tree, &error), &error);
        assert_int_equal(json_integer_value(json_object_get(json_object_get(tree, "metadata"), "total_size")), total);
        safetensors_close(s);
        json_decref(tree);
        free(first);
        free(below);
        free(index);
    }
    assert_true(files[0] > files[1] && files[1] > files[2]);
    all_kinds_release(tensor);
}

static void test_nothing_but_metadata(void **state) {
    trireme_error error = {0};
    struct safetensors_layout layout;
    struct safetensors *s = NULL;
    safetensors_layout_create(&layout, "model", 0);
    assert_ok(tensors_write(&layout, *state, NULL, NULL, 0, &error), &error);
    assert_ok(safetensors_open(*state, &s, &error), &error);
    assert_int_equal(s->tensor.count, 0);
    safetensors_close(s);
}

static void test_layout_refuses(void **state) {
    (void)state;
    trireme_error error = {0};
    struct safetensors_layout l;
    const int64_t shape[] = {2, -1, INT64_MAX};
    const trireme_status usage = TRIREME_ERROR_USAGE;
    safetensors_layout_create(&l, "m", 0);
    assert_refused(safetensors_layout_declare(&l, "__metadata__", SAFETENSORS_F32, 1, shape, &error), usage, &error,
                   "is taken");
    assert_refused(safetensors_layout_declare(&l, "__header__", SAFETENSORS_F32, 1, shape, &error), usage, &error,
                   "is taken");
    assert_refused(safetensors_layout_declare(&l, "\xff", SAFETENSORS_F32, 1, shape, &error), usage, &error,
                   "not UTF-8");
    assert_refused(safetensors_layout_declare(&l, "a", SAFETENSORS_F32, 9, shape, &error), usage, &error,
                   "9 dims, expected at most 8");
    assert_refused(safetensors_layout_declare(&l, "a", SAFETENSORS_F32, 2, shape, &error), usage, &error,
                   "a dim is negative");
    assert_refused(safetensors_layout_declare(&l, "a", SAFETENSORS_F32, 1, shape + 2, &error), usage, &error,
                   "no possible size");
    assert_ok(safetensors_layout_declare(&l, "huge", SAFETENSORS_U8, 1, shape + 2, &error), &error);
    assert_refused(safetensors_layout_declare(&l, "b", SAFETENSORS_U8, 1, shape, &error), usage, &error,
                   "no possible size");
    safetensors_layout_release(&l);

    safetensors_layout_create(&l, "m", 0);
    assert_ok(safetensors_layout_declare(&l, "a", SAFETENSORS_U8, 1, shape, &error), &error);
    assert_ok(safetensors_layout_declare(&l, "a", SAFETENSORS_U8, 1, shape, &error), &error);
    assert_refused(safetensors_layout_place(&l, &error), usage, &error, "tensor \"a\": declared twice");
    safetensors_layout_release(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads),
        cmocka_unit_test(test_checksum_is_blake2b),
        cmocka_unit_test(test_refuses_malformed_headers),
        cmocka_unit_test(test_survives_damage),
        IN_FOLDER(test_refuses_files),
        IN_FOLDER(test_index),
        IN_FOLDER(test_offsets_beyond_32_bits),
        IN_FOLDER(test_one_file),
        IN_FOLDER(test_sums_of_blocks),
        IN_FOLDER(test_tells_of_large_files),
        IN_FOLDER(test_shards),
        IN_FOLDER(test_nothing_but_metadata),
        cmocka_unit_test(test_layout_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
