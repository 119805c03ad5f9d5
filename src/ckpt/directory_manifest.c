#include "ckpt/directory_manifest.h"
#include "base/json.h"
#include "ckpt/output.h"
#include "model/model.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

static const char FORMAT[] = "trireme-directory";
// A manifest of the first version does not end with a checksum of itself.
enum { VERSION_FIRST = 1, VERSION = 2 };
#define END_FORMAT ",\"blake2b\":\"%s\"}\n"
enum { END_BYTES = sizeof END_FORMAT - sizeof "%s" + CHECKSUM_HEX - 1 };

void manifest_release(struct manifest *m) {
    for (size_t i = 0; i < m->file.count; i++)
        checksum_file_release(&m->file.item[i]);
    VEC_RELEASE(&m->file);
}

// Index of the first file whose name is not less than `name`.
static size_t lower_bound(const struct manifest *m, const char *name) {
    return PARTITION_POINT(i, m->file.count, strcmp(m->file.item[i].name, name) < 0);
}

struct checksum_file *manifest_find(const struct manifest *m, const char *name) {
    size_t i = lower_bound(m, name);
    return i < m->file.count && !strcmp(m->file.item[i].name, name) ? &m->file.item[i] : NULL;
}

void manifest_add(struct manifest *m, struct checksum_file *file) {
    size_t i = lower_bound(m, file->name);
    CHECK(i == m->file.count || strcmp(m->file.item[i].name, file->name));
    VEC_PUSH(&m->file, (struct checksum_file){0});
    memmove(&m->file.item[i + 1], &m->file.item[i], (m->file.count - 1 - i) * sizeof *file);
    m->file.item[i] = *file;
    *file = (struct checksum_file){0};
}

// The end of a manifest that begins with these bytes.
static void print_end(const char *text, size_t length, char end[static END_BYTES + 1]) {
    char hex[CHECKSUM_HEX];
    checksum_of(text, length, hex);
    snprintf(end, END_BYTES + 1, END_FORMAT, hex);
}

trireme_status manifest_write(const struct manifest *m, const char *directory, trireme_error *error) {
    // One line per file and per tensor: a person may look, and compare two with diff.
    struct text t = {0};
    text_add(&t, "{\"format\":\"%s\",\"version\":%d,\"files\":[", FORMAT, VERSION);
    for (size_t i = 0; i < m->file.count; i++) {
        const struct checksum_file *f = &m->file.item[i];
        text_add(&t, "%s\n", i ? "," : "");
        json_begin_object(&t, NULL);
        json_add_string(&t, "name", f->name);
        json_add_integer(&t, "bytes", (int64_t)f->bytes);
        if (!f->part.count)
            json_add_string(&t, "blake2b", f->hex);
        else {
            json_begin_array(&t, "tensors");
            for (size_t j = 0; j < f->part.count; j++) {
                text_add(&t, "%s\n", j ? "," : "");
                json_begin_object(&t, NULL);
                json_add_string(&t, "name", f->part.item[j].name);
                json_add_integer(&t, "bytes", (int64_t)f->part.item[j].bytes);
                json_add_string(&t, "blake2b", f->part.item[j].hex);
                json_end_object(&t);
            }
            json_end_array(&t);
        }
        if (*f->model)
            json_add_string(&t, "model", f->model);
        json_end_object(&t);
    }
    text_add(&t, "\n]");
    char end[END_BYTES + 1];
    print_end(t.text, t.length, end);
    text_add(&t, "%s", end);
    struct output *o = NULL;
    struct checksum_file unused;
    trireme_status status = output_create(directory, MANIFEST_NAME, t.length, &o, error);
    if (status == TRIREME_OK && (status = output_add(o, t.text, t.length, error)) != TRIREME_OK)
        output_abort(o);
    else if (status == TRIREME_OK && (status = output_finish(o, &unused, error)) == TRIREME_OK)
        checksum_file_release(&unused);
    text_release(&t);
    return status;
}

// Whether a name stays inside the directory.
static bool name_is_relative(const char *name) {
    for (const char *at = name;; at++) {
        size_t n = strcspn(at, "/");
        if (n == 0 || (n == 1 && at[0] == '.') || (n == 2 && at[0] == '.' && at[1] == '.'))
            return false;
        at += n;
        if (!*at)
            return true;
    }
}

static trireme_status read_checksum(const json_t *entry, const char *where, const char *key, enum json_need need,
                                    char hex[CHECKSUM_HEX], trireme_error *error) {
    const char *digits = NULL;
    TRY(json_read_string(entry, where, key, need, &digits, error));
    if (!digits)
        return TRIREME_OK;
    char shown[JSON_EXCERPT_BYTES];
    if (strlen(digits) != CHECKSUM_HEX - 1 || strspn(digits, "0123456789abcdef") != CHECKSUM_HEX - 1)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: \"%s\" must be %d hexadecimal digits, found %s", where, key, CHECKSUM_HEX - 1,
             json_excerpt(digits, shown));
    memcpy(hex, digits, CHECKSUM_HEX);
    return TRIREME_OK;
}

static trireme_status manifest_read_parts(const json_t *parts, const char *where, struct checksum_file *f,
                                          trireme_error *error) {
    uint64_t end = 0;
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *entry = json_array_get(parts, i);
        const char *name = NULL;
        int64_t bytes = 0;
        struct checksum_part part = {0};
        TRY(json_read_string(entry, where, "name", JSON_REQUIRED, &name, error));
        TRY(json_read_integer(entry, where, "bytes", JSON_REQUIRED, 0, INT64_MAX, &bytes, error));
        TRY(read_checksum(entry, where, "blake2b", JSON_REQUIRED, part.hex, error));
        part.name = mem_strdup(name);
        part.bytes = (uint64_t)bytes;
        VEC_PUSH(&f->part, part);
        end += part.bytes;
        if (end > f->bytes)
            break;
    }
    if (end != f->bytes)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: the tensors do not add up to the file's %llu bytes", where,
             (unsigned long long)f->bytes);
    return TRIREME_OK;
}

static trireme_status read_file(const json_t *entry, const char *path, struct checksum_file *f, trireme_error *error) {
    const char *name = NULL;
    int64_t bytes = 0;
    const json_t *parts = NULL;
    char shown[JSON_EXCERPT_BYTES];
    TRY(json_read_string(entry, path, "name", JSON_REQUIRED, &name, error));
    if (!name_is_relative(name))
        FAIL(TRIREME_ERROR_CORRUPT, "%s: file name %s leaves the directory", path, json_excerpt(name, shown));
    TRY(json_read_integer(entry, path, "bytes", JSON_REQUIRED, 0, INT64_MAX, &bytes, error));
    f->name = mem_strdup(name);
    f->bytes = (uint64_t)bytes;
    TRY(json_read_array(entry, path, "tensors", JSON_OPTIONAL, &parts, error));
    TRY(read_checksum(entry, path, "model", JSON_OPTIONAL, f->model, error));
    return parts ? manifest_read_parts(parts, path, f, error)
                 : read_checksum(entry, path, "blake2b", JSON_REQUIRED, f->hex, error);
}

static int compare_files(const void *a, const void *b) {
    return strcmp(((const struct checksum_file *)a)->name, ((const struct checksum_file *)b)->name);
}

static trireme_status verify_end(const char *text, size_t length, const char *path, trireme_error *error) {
    char end[END_BYTES + 1] = "";
    if (length >= END_BYTES)
        print_end(text, length - END_BYTES, end);
    if (!*end || memcmp(text + length - END_BYTES, end, END_BYTES) != 0)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: is damaged, or edited: it does not end with its own checksum", path);
    return TRIREME_OK;
}

static trireme_status read_tree(const json_t *tree, const char *text, size_t length, const char *path,
                                struct manifest *m, trireme_error *error) {
    const char *format = "";
    int64_t version = 0;
    const json_t *files = NULL;
    char shown[JSON_EXCERPT_BYTES];
    TRY(json_read_string(tree, path, "format", JSON_REQUIRED, &format, error));
    if (strcmp(format, FORMAT))
        FAIL(TRIREME_ERROR_CORRUPT, "%s: \"format\" must be \"%s\", found %s", path, FORMAT,
             json_excerpt(format, shown));
    TRY(json_read_integer(tree, path, "version", JSON_REQUIRED, VERSION_FIRST, VERSION, &version, error));
    if (version > VERSION_FIRST)
        TRY(verify_end(text, length, path, error));
    TRY(json_read_array(tree, path, "files", JSON_REQUIRED, &files, error));
    for (size_t i = 0; i < json_array_size(files); i++) {
        struct checksum_file file = {0};
        trireme_status status = read_file(json_array_get(files, i), path, &file, error);
        VEC_PUSH(&m->file, file);
        TRY(status);
    }
    VEC_SORT(&m->file, compare_files);
    for (size_t i = 1; i < m->file.count; i++)
        if (!compare_files(&m->file.item[i - 1], &m->file.item[i]))
            FAIL(TRIREME_ERROR_CORRUPT, "%s: lists %s twice", path, json_excerpt(m->file.item[i].name, shown));
    return TRIREME_OK;
}

trireme_status manifest_read(const char *directory, struct manifest *out, trireme_error *error) {
    char *path = mem_printf("%s/%s", directory, MANIFEST_NAME);
    struct manifest m = {0};
    json_t *tree = NULL;
    char *text = NULL;
    size_t length = 0;
    struct stat st;
    trireme_status status;
    if (stat(path, &st) != 0 && (errno == ENOENT || errno == ENOTDIR))
        status = error_set(error, TRIREME_ERROR_CORRUPT,
                           "%s: no %s: the directory is incomplete (copied in part?) or not Trireme's", directory,
                           MANIFEST_NAME);
    else
        status = file_read(path, MANIFEST_BYTES_MAX, &text, &length, error);
    if (status == TRIREME_OK)
        status = json_parse(text, length, path, &tree, error);
    if (status == TRIREME_OK)
        status = read_tree(tree, text, length, path, &m, error);
    if (status == TRIREME_OK)
        *out = m;
    else
        manifest_release(&m);
    json_decref(tree);
    free(text);
    free(path);
    return status;
}

static bool manifest_is(const char *name, const char *file) {
    return file && strcmp(name, file) == 0;
}

// For a config.json that is no longer as it was written: checks that its model still is.
static trireme_status verify_model(const struct checksum_file *f, const char *path, trireme_error *error) {
    struct model_config config;
    char hex[CHECKSUM_HEX];
    trireme_status status = model_config_read(&config, path, error);
    if (status != TRIREME_OK)
        return error_prefix(error, TRIREME_ERROR_CORRUPT, "changed since it was saved");
    model_config_identify(&config, hex);
    if (strcmp(hex, f->model) != 0)
        FAIL(TRIREME_ERROR_CORRUPT,
             "%s: changed since it was saved, and describes another model than that of the weights: bos_token_id, "
             "eos_token_id and what Trireme does not read may change",
             path);
    return TRIREME_OK;
}

trireme_status manifest_verify(const struct manifest *m, const char *directory, struct manifest_check check,
                               const struct checksum_watch *watch, trireme_error *error) {
    for (size_t i = 0; i < m->file.count; i++) {
        const char *name = m->file.item[i].name;
        char *path = mem_printf("%s/%s", directory, name);
        bool content = check.content || manifest_is(name, check.content_of);
        bool spared = manifest_is(name, check.spare), gone = spared && access(path, F_OK) != 0 && errno == ENOENT;
        enum checksum_depth depth = !content ? CHECKSUM_NONE : spared ? CHECKSUM_FIRST : CHECKSUM_ALL;
        trireme_status status = gone ? TRIREME_OK : checksum_file_verify(&m->file.item[i], path, depth, watch, error);
        if (status == TRIREME_ERROR_CORRUPT && *m->file.item[i].model && access(path, R_OK) == 0)
            status = verify_model(&m->file.item[i], path, error);
        free(path);
        TRY(status);
    }
    return TRIREME_OK;
}
