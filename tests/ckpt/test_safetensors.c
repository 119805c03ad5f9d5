// ckpt/safetensors.h: what is read, everything that is refused and in which words, what is written, and a full disk.
#include "base/json.h"
#include "ckpt/safetensors.h"
#include "ckpt/tree.h"
#include "support/checkpoint.h"

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

// ---- writing

enum { TENSORS = SAFETENSORS_DTYPES + 4 };

static const int64_t SHAPE[][2] = {{3, 8}, {1, 8}, {0, 8}, {5, 16}, {301, 8}};

static unsigned char content(size_t tensor, uint64_t i) {
    return (unsigned char)(tensor * 31 + i * 7 + (i >> 8));
}

// One tensor of every dtype and some more, whose data come in pieces of changing size.
static trireme_status write_all_kinds(struct safetensors_writer *w, trireme_error *error) {
    uint64_t bytes[TENSORS];
    char name[32];
    safetensors_writer_metadata(w, "format", "np");
    safetensors_writer_metadata(w, "format", "pt");
    safetensors_writer_metadata(w, "comment", "one \"line\"\n");
    for (size_t i = 0; i < TENSORS; i++) {
        enum safetensors_dtype dtype = (enum safetensors_dtype)(i % SAFETENSORS_DTYPES);
        snprintf(name, sizeof name, "t.%zu", i);
        int ndim = i == SAFETENSORS_DTYPES ? 0 : 2;
        assert_true(safetensors_bytes(dtype, ndim, SHAPE[i % ARRAY_LENGTH(SHAPE)], &bytes[i]));
        TRY(safetensors_writer_declare(w, name, dtype, ndim, SHAPE[i % ARRAY_LENGTH(SHAPE)], error));
    }
    TRY(safetensors_writer_begin(w, error));
    size_t i, last = TENSORS, piece = 0;
    uint64_t at = 0;
    while (safetensors_writer_next(w, &i)) {
        unsigned char buffer[97];
        at = i == last ? at : 0;
        last = i;
        size_t n = (size_t)MIN(bytes[i] - at, piece++ % sizeof buffer);
        for (size_t j = 0; j < n; j++)
            buffer[j] = content(i, at + j);
        TRY(safetensors_writer_add(w, i, buffer, n, error));
        at += n;
    }
    return safetensors_writer_finish(w, error);
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

static void test_writes_one_file(void **state) {
    const char *folder = *state;
    trireme_error error = {0};
    struct safetensors_writer *w = safetensors_writer_create(folder, "model", 0);
    assert_ok(write_all_kinds(w, &error), &error);
    assert_int_equal(safetensors_writer_files(w), 1);
    const struct checksum_file *file = safetensors_writer_file(w, 0);
    assert_string_equal(file->name, "model.safetensors");
    assert_int_equal(file->part.count, TENSORS + 1);
    assert_string_equal(file->part.item[0].name, "__header__");
    assert_all_kinds(folder, 1);

    // The checksums find the tensor that was changed, and the one where a file was cut.
    char *path = mem_printf("%s/model.safetensors", folder);
    assert_ok(checksum_file_verify(file, path, CHECKSUM_ALL, NULL, &error), &error);
    struct safetensors *s = NULL;
    assert_ok(safetensors_open(path, &s, &error), &error);
    const struct safetensors_tensor *fourth = safetensors_find(s, "t.4");
    uint64_t position = fourth->position, cut = safetensors_find(s, "t.3")->position + 1;
    char hex[CHECKSUM_HEX];
    checksum_of(fourth->data, fourth->bytes, hex);
    assert_string_equal(hex, file->part.item[2].hex);
    safetensors_close(s);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "\xff", 1, (off_t)position + 5), 1);
    assert_ok(checksum_file_verify(file, path, CHECKSUM_NONE, NULL, &error), &error);
    assert_refused(checksum_file_verify(file, path, CHECKSUM_ALL, NULL, &error), TRIREME_ERROR_CORRUPT, &error,
                   "model.safetensors: tensor \"t.4\" (bytes ");
    assert_int_equal(ftruncate(fd, (off_t)cut), 0);
    assert_refused(checksum_file_verify(file, path, CHECKSUM_NONE, NULL, &error), TRIREME_ERROR_CORRUPT, &error,
                   "first tensor cut off: \"t.3\"");
    assert_refused(safetensors_open(path, &s, &error), TRIREME_ERROR_CORRUPT, &error, "truncated: tensor \"t.3\"");
    close(fd);
    free(path);
    safetensors_writer_free(w);
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
    assert_ok(checksum_file_verify(&file, path, CHECKSUM_NONE, &watch, &error), &error);
    assert_int_equal(told, 0);
    assert_ok(checksum_file_verify(&file, path, CHECKSUM_ALL, &watch, &error), &error);
    assert_int_equal(told, 3); // at 64 and 128 MB, and at its end
    close(fd);
    checksum_file_release(&file);
}

static void test_writes_shards(void **state) {
    const char *folder = *state;
    trireme_error error = {0};
    size_t files[] = {0, 0, 0};
    uint64_t limits[] = {1, 3000, 20000};
    for (size_t i = 0; i < ARRAY_LENGTH(limits); i++) {
        char *below = mem_printf("%s/%zu", folder, i), *index = mem_printf("%s/model.safetensors.index.json", below);
        assert_int_equal(mkdir(below, 0700), 0);
        struct safetensors_writer *w = safetensors_writer_create(below, "model", limits[i]);
        assert_ok(write_all_kinds(w, &error), &error);
        files[i] = safetensors_writer_files(w);
        assert_true(files[i] > 2);
        for (size_t j = 0; j < files[i]; j++) {
            char *path = mem_printf("%s/%s", below, safetensors_writer_file(w, j)->name);
            const struct checksum_file *file = safetensors_writer_file(w, j);
            assert_ok(checksum_file_verify(file, path, CHECKSUM_ALL, NULL, &error), &error);
            free(path);
            uint64_t data = 0;
            size_t filled = 0;
            for (size_t k = 1; k < file->part.count; k++) {
                data += file->part.item[k].bytes;
                filled += file->part.item[k].bytes > 0;
            }
            assert_true(data <= limits[i] || filled == 1);
        }
        char *first = mem_printf("model-00001-of-%05zu.safetensors", files[i] - 1);
        assert_string_equal(safetensors_writer_file(w, 0)->name, first);
        assert_string_equal(safetensors_writer_file(w, files[i] - 1)->name, "model.safetensors.index.json");
        assert_all_kinds(below, files[i] - 1);
        json_t *tree = NULL;
        assert_ok(json_parse_file(index, 100000, &tree, &error), &error);
        struct safetensors *s = NULL;
        assert_ok(safetensors_open(index, &s, &error), &error);
        int64_t total = 0;
        for (size_t j = 0; j < s->tensor.count; j++)
            total += (int64_t)s->tensor.item[j].bytes;
        assert_int_equal(json_integer_value(json_object_get(json_object_get(tree, "metadata"), "total_size")), total);
        safetensors_close(s);
        json_decref(tree);
        safetensors_writer_free(w);
        free(first);
        free(below);
        free(index);
    }
    assert_true(files[0] > files[1] && files[1] > files[2]);
}

static void test_writes_nothing_but_metadata(void **state) {
    trireme_error error = {0};
    struct safetensors_writer *w = safetensors_writer_create(*state, "model", 0);
    assert_ok(safetensors_writer_begin(w, &error), &error);
    assert_ok(safetensors_writer_finish(w, &error), &error);
    safetensors_writer_free(w);
    struct safetensors *s = NULL;
    assert_ok(safetensors_open(*state, &s, &error), &error);
    assert_int_equal(s->tensor.count, 0);
    safetensors_close(s);
}

static void test_writer_refuses(void **state) {
    trireme_error error = {0};
    struct safetensors_writer *w = safetensors_writer_create(*state, "m", 0);
    int64_t shape[] = {2, -1, INT64_MAX};
    const trireme_status usage = TRIREME_ERROR_USAGE;
    assert_refused(safetensors_writer_declare(w, "__metadata__", SAFETENSORS_F32, 1, shape, &error), usage, &error,
                   "is taken");
    assert_refused(safetensors_writer_declare(w, "__header__", SAFETENSORS_F32, 1, shape, &error), usage, &error,
                   "is taken");
    assert_refused(safetensors_writer_declare(w, "\xff", SAFETENSORS_F32, 1, shape, &error), usage, &error,
                   "not UTF-8");
    assert_refused(safetensors_writer_declare(w, "a", SAFETENSORS_F32, 9, shape, &error), usage, &error,
                   "9 dims, expected at most 8");
    assert_refused(safetensors_writer_declare(w, "a", SAFETENSORS_F32, 2, shape, &error), usage, &error,
                   "a dim is negative");
    assert_refused(safetensors_writer_declare(w, "a", SAFETENSORS_F32, 1, shape + 2, &error), usage, &error,
                   "no possible size");
    assert_ok(safetensors_writer_declare(w, "huge", SAFETENSORS_U8, 1, shape + 2, &error), &error);
    assert_refused(safetensors_writer_declare(w, "b", SAFETENSORS_U8, 1, shape, &error), usage, &error,
                   "no possible size");
    safetensors_writer_free(w);

    w = safetensors_writer_create(*state, "m", 0);
    assert_ok(safetensors_writer_declare(w, "a", SAFETENSORS_U8, 1, shape, &error), &error);
    assert_ok(safetensors_writer_declare(w, "a", SAFETENSORS_U8, 1, shape, &error), &error);
    assert_refused(safetensors_writer_begin(w, &error), usage, &error, "tensor \"a\": declared twice");
    safetensors_writer_free(w);

    w = safetensors_writer_create(*state, "m", 0);
    assert_ok(safetensors_writer_declare(w, "a", SAFETENSORS_U8, 1, shape, &error), &error);
    assert_ok(safetensors_writer_declare(w, "b", SAFETENSORS_U8, 1, shape, &error), &error);
    assert_refused(safetensors_writer_add(w, 0, "xy", 2, &error), usage, &error, "no tensor is waiting");
    assert_ok(safetensors_writer_begin(w, &error), &error);
    assert_refused(safetensors_writer_add(w, 1, "xy", 2, &error), usage, &error,
                   "expected at most 2 bytes of tensor \"a\"");
    assert_refused(safetensors_writer_add(w, 0, "xyz", 3, &error), usage, &error,
                   "expected at most 2 bytes of tensor \"a\"");
    assert_ok(safetensors_writer_add(w, 0, "xy", 2, &error), &error);
    assert_ok(safetensors_writer_add(w, 1, "x", 1, &error), &error);
    assert_refused(safetensors_writer_finish(w, &error), usage, &error, "tensor \"b\": expected 2 bytes, found 1");
    assert_int_equal(safetensors_writer_files(w), 0);
    safetensors_writer_free(w);
    struct tree t = {0};
    assert_ok(tree_list(*state, &t, &error), &error);
    assert_int_equal(t.entry.count, 0);
    tree_release(&t);

    w = safetensors_writer_create("/proc/nowhere", "m", 0);
    assert_refused(safetensors_writer_begin(w, &error), TRIREME_ERROR_IO, &error,
                   "/proc/nowhere/m.safetensors: cannot create");
    assert_refused(safetensors_writer_finish(w, &error), usage, &error, "failed before");
    safetensors_writer_free(w);
}

static int fill_disk(const char *folder) {
    trireme_error error = {0};
    struct safetensors_writer *w = safetensors_writer_create(folder, "model", 0);
    int64_t shape[] = {1 << 20};
    if (safetensors_writer_declare(w, "w", SAFETENSORS_F32, 1, shape, &error) != TRIREME_OK ||
        safetensors_writer_begin(w, &error) != TRIREME_OK)
        return 3;
    static float piece[1000];
    size_t i;
    trireme_status status = TRIREME_OK;
    for (size_t left = 1 << 20; safetensors_writer_next(w, &i) && status == TRIREME_OK; left -= MIN(left, 1000))
        status = safetensors_writer_add(w, i, piece, MIN(left, 1000) * sizeof *piece, &error);
    if (status != TRIREME_ERROR_IO ||
        !strstr(error.message, "/model.safetensors: cannot write: File too large after ") ||
        !strstr(error.message, " of 41943") || safetensors_writer_finish(w, NULL) != TRIREME_ERROR_USAGE)
        return 4;
    safetensors_writer_free(w);
    struct tree t = {0};
    if (tree_list(folder, &t, NULL) != TRIREME_OK || t.entry.count)
        return 5;
    return 0;
}

static void test_full_disk(void **state) {
    assert_on_full_disk(3 << 20, fill_disk, *state);
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
        IN_FOLDER(test_writes_one_file),
        IN_FOLDER(test_tells_of_large_files),
        IN_FOLDER(test_writes_shards),
        IN_FOLDER(test_writes_nothing_but_metadata),
        IN_FOLDER(test_writer_refuses),
        IN_FOLDER(test_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
