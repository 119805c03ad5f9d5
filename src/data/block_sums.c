#include "data/block_sums.h"

#include "base/json.h"
#include "base/xxh3.h"

#include <inttypes.h>
#include <unistd.h>

enum { FILE_LIMIT = 1 << 30, VERSION = 1, DIGITS = 16 };
static const char FORMAT_NAME[] = "trireme-sums", GUARD[] = "\n \"checksum\": \"";

// ---- of one file

struct block_sums block_sums_create(int64_t bytes) {
    const int64_t count = divide_up(bytes, BLOCK_BYTES);
    return (struct block_sums){bytes, count, mem_alloc((size_t)MAX(count, 1) * sizeof(uint64_t))};
}

struct block_sums block_sums_copy(const struct block_sums *s) {
    struct block_sums copy = block_sums_create(s->bytes);
    for (int64_t i = 0; i < s->count; i++)
        copy.sum[i] = s->sum[i];
    return copy;
}

void block_sums_release(struct block_sums *s) {
    free((void *)s->sum);
    *s = (struct block_sums){0};
}

bool block_sums_known(const struct block_sums *s) {
    for (int64_t i = 0; i < s->count; i++)
        if (!s->sum[i])
            return false;
    return true;
}

// ---- lists

void sums_list_add(struct sums_list *list, const char *name, struct block_sums sums, int64_t modified) {
    VEC_PUSH(list, (struct sums_file){mem_strdup(name), sums, modified});
}

const struct sums_file *sums_list_find(const struct sums_list *list, const char *name) {
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->item[i].name, name) == 0)
            return &list->item[i];
    return NULL;
}

void sums_list_release(struct sums_list *list) {
    for (size_t i = 0; i < list->count; i++) {
        free(list->item[i].name);
        block_sums_release(&list->item[i].sums);
    }
    VEC_RELEASE(list);
    free(list->of);
    list->of = NULL;
}

static void print_blocks(const struct block_sums *s, struct text *out) {
    for (int64_t i = 0; i < s->count; i++) {
        char digits[DIGITS + 1];
        snprintf(digits, sizeof digits, "%0*" PRIx64, DIGITS, s->sum[i]);
        text_add_bytes(out, digits, DIGITS);
    }
}

void sums_list_print(const struct sums_list *list, struct text *out) {
    const size_t begin = out->length;
    text_add(out, "{\"format\": \"%s\", \"version\": %d, \"block_bytes\": %d", FORMAT_NAME, VERSION, BLOCK_BYTES);
    if (list->of)
        json_add_string(out, "of", list->of);
    text_add(out, ", \"files\": [");
    for (size_t i = 0; i < list->count; i++) {
        const struct sums_file *file = &list->item[i];
        text_add(out, "%s\n", i ? "," : "");
        json_begin_object(out, NULL);
        json_add_path(out, "name", file->name);
        json_add_integer(out, "bytes", file->sums.bytes);
        if (file->modified)
            json_add_integer(out, "modified", file->modified);
        text_add(out, ",\"xxh3\":\"");
        print_blocks(&file->sums, out);
        text_add(out, "\"");
        json_end_object(out);
    }
    text_add(out, "],");
    const uint64_t guard = xxh3_of(out->text + begin, out->length - begin);
    text_add(out, "%s%0*" PRIx64 "\"}\n", GUARD, DIGITS, guard);
}

static bool read_digits(const char *digits, uint64_t *out) {
    *out = 0;
    for (int i = 0; i < DIGITS; i++) {
        const char *known = "0123456789abcdef", *found = digits[i] ? strchr(known, digits[i]) : NULL;
        if (!found)
            return false;
        *out = *out << 4 | (uint64_t)(found - known);
    }
    return true;
}

// Whether what stands before the last member is what it says.
static bool is_guarded(const char *text, size_t length) {
    const size_t guard = strlen(GUARD), tail = guard + DIGITS + strlen("\"}\n");
    uint64_t told;
    return length > tail && memcmp(text + length - tail, GUARD, guard) == 0 &&
           read_digits(text + length - tail + guard, &told) && told == xxh3_of(text, length - tail);
}

// Refuses what is not so many checksums. The caller releases *out.
static trireme_status blocks_parse(const char *digits, int64_t bytes, const char *where, const char *name,
                                   struct block_sums *out, trireme_error *error) {
    const int64_t blocks = divide_up(bytes, BLOCK_BYTES);
    if ((int64_t)strlen(digits) / DIGITS != blocks || strlen(digits) % DIGITS)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: \"xxh3\" of \"%s\" has %zu digits, expected %d for each of %" PRId64 " blocks",
             where, name, strlen(digits), DIGITS, blocks);
    struct block_sums sums = block_sums_create(bytes);
    for (int64_t i = 0; i < blocks; i++) {
        uint64_t sum;
        if (!read_digits(digits + i * DIGITS, &sum)) {
            block_sums_release(&sums);
            FAIL(TRIREME_ERROR_CORRUPT, "%s: \"xxh3\" of \"%s\": block %" PRId64 " has other than hexadecimal digits",
                 where, name, i);
        }
        sums.sum[i] = sum;
    }
    *out = sums;
    return TRIREME_OK;
}

static trireme_status file_parse(const json_t *object, const char *where, struct sums_list *list,
                                 trireme_error *error) {
    const char *digits;
    char *name;
    int64_t bytes, modified = 0;
    struct block_sums sums;
    TRY(json_read_integer(object, where, "bytes", JSON_REQUIRED, 0, INT64_MAX - BLOCK_BYTES, &bytes, error));
    TRY(json_read_integer(object, where, "modified", JSON_OPTIONAL, INT64_MIN, INT64_MAX, &modified, error));
    TRY(json_read_string(object, where, "xxh3", JSON_REQUIRED, &digits, error));
    TRY(json_read_path(object, where, "name", &name, error));
    trireme_status status = blocks_parse(digits, bytes, where, name, &sums, error);
    if (status == TRIREME_OK)
        sums_list_add(list, name, sums, modified);
    free(name);
    return status;
}

static trireme_status list_parse(const json_t *root, const char *where, struct sums_list *list, trireme_error *error) {
    const char *format, *of = NULL;
    const json_t *files;
    int64_t version, block;
    TRY(json_read_string(root, where, "format", JSON_REQUIRED, &format, error));
    if (strcmp(format, FORMAT_NAME) != 0)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: is no list of checksums (\"format\" is not \"%s\")", where, FORMAT_NAME);
    TRY(json_read_integer(root, where, "version", JSON_REQUIRED, VERSION, VERSION, &version, error));
    TRY(json_read_integer(root, where, "block_bytes", JSON_REQUIRED, BLOCK_BYTES, BLOCK_BYTES, &block, error));
    TRY(json_read_string(root, where, "of", JSON_OPTIONAL, &of, error));
    TRY(json_read_array(root, where, "files", JSON_REQUIRED, &files, error));
    list->of = of ? mem_strdup(of) : NULL;
    size_t i;
    json_t *file;
    json_array_foreach((json_t *)files, i, file) TRY(file_parse(file, where, list, error));
    return TRIREME_OK;
}

trireme_status sums_list_read(struct sums_list *out, const char *path, bool *found, trireme_error *error) {
    char *text;
    size_t length;
    json_t *root = NULL;
    *out = (struct sums_list){0};
    *found = !file_missing(path);
    if (!*found)
        return TRIREME_OK;
    TRY(file_read(path, FILE_LIMIT, &text, &length, error));
    trireme_status status = json_parse(text, length, path, &root, error);
    if (status == TRIREME_OK)
        status = list_parse(root, path, out, error);
    if (status == TRIREME_OK && !is_guarded(text, length))
        status = error_set(error, TRIREME_ERROR_CORRUPT,
                           "%s: is damaged: its own checksum is another than \"checksum\" says", path);
    if (status != TRIREME_OK)
        sums_list_release(out);
    json_decref(root);
    free(text);
    return status;
}

bool sums_list_recognise(const char *path) {
    char begin[40], text[sizeof begin] = "";
    const int length = snprintf(begin, sizeof begin, "{\"format\": \"%s\"", FORMAT_NAME);
    int file;
    if (file_open(path, &file, NULL) != TRIREME_OK)
        return false;
    const bool ours = read(file, text, (size_t)length) == length && strcmp(text, begin) == 0;
    close(file);
    return ours;
}
