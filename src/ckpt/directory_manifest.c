#include "ckpt/directory_manifest.h"
#include "base/json.h"
#include "ckpt/output.h"
#include "ckpt/state_files.h"
#include "model/model.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

static const char FORMAT[] = "trireme-directory";
// A manifest of the first version does not end with a checksum of itself.
enum { VERSION_FIRST = 1, VERSION = 3 };
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

// That of all files that have blocks; some number where none has.
static uint64_t manifest_block_bytes(const struct manifest *m) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < m->file.count; i++)
        if (m->file.item[i].block.count) {
            CHECK(bytes == 0 || bytes == m->file.item[i].block_bytes);
            bytes = m->file.item[i].block_bytes;
        }
    return MAX(bytes, 1u);
}

trireme_status manifest_write(const struct manifest *m, const char *directory, trireme_error *error) {
    // One line per file: a person may look, and compare two with diff.
    struct text t = {0};
    text_add(&t, "{\"format\":\"%s\",\"version\":%d,\"block_bytes\":%llu,\"files\":[", FORMAT, VERSION,
             (unsigned long long)manifest_block_bytes(m));
    for (size_t i = 0; i < m->file.count; i++) {
        const struct checksum_file *f = &m->file.item[i];
        text_add(&t, "%s\n", i ? "," : "");
        json_begin_object(&t, NULL);
        json_add_string(&t, "name", f->name);
        json_add_integer(&t, "bytes", (int64_t)f->bytes);
        if (f->block.count) {
            json_begin_array(&t, "xxh3");
            for (size_t j = 0; j < f->block.count; j++)
                text_add(&t, "%s\"%016" PRIx64 "\"", j ? "," : "", f->block.item[j]);
            json_end_array(&t);
        } else
            json_add_string(&t, "blake2b", f->hex);
        if (*f->model)
            json_add_string(&t, "model", f->model);
        json_end_object(&t);
    }
    text_add(&t, "\n]");
    char end[END_BYTES + 1];
    print_end(t.text, t.length, end);
    text_add(&t, "%s", end);
    trireme_status status = output_write(directory, MANIFEST_NAME, t.text, t.length, error);
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

static trireme_status manifest_read_blocks(const json_t *blocks, const char *where, struct checksum_file *f,
                                           trireme_error *error) {
    char shown[JSON_EXCERPT_BYTES];
    for (size_t i = 0; i < json_array_size(blocks); i++) {
        const char *digits = json_string_value(json_array_get(blocks, i));
        if (!digits || strlen(digits) != 16 || strspn(digits, "0123456789abcdef") != 16)
            FAIL(TRIREME_ERROR_CORRUPT, "%s: \"xxh3\" must be of 16 hexadecimal digits each, found %s", where,
                 json_excerpt(digits ? digits : "something else", shown));
        VEC_PUSH(&f->block, strtoull(digits, NULL, 16));
    }
    if (f->block.count == 0 || f->block.count != (f->bytes + f->block_bytes - 1) / f->block_bytes)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: %zu blocks of %" PRIu64 " bytes are not the file's %" PRIu64 " bytes", where,
             f->block.count, f->block_bytes, f->bytes);
    return TRIREME_OK;
}

static trireme_status read_file(const json_t *entry, const char *path, uint64_t block_bytes, struct checksum_file *f,
                                trireme_error *error) {
    const char *name = NULL;
    int64_t bytes = 0;
    const json_t *parts = NULL, *blocks = NULL;
    char shown[JSON_EXCERPT_BYTES];
    TRY(json_read_string(entry, path, "name", JSON_REQUIRED, &name, error));
    if (!name_is_relative(name))
        FAIL(TRIREME_ERROR_CORRUPT, "%s: file name %s leaves the directory", path, json_excerpt(name, shown));
    TRY(json_read_integer(entry, path, "bytes", JSON_REQUIRED, 0, INT64_MAX, &bytes, error));
    f->name = mem_strdup(name);
    f->bytes = (uint64_t)bytes;
    TRY(json_read_array(entry, path, "tensors", JSON_OPTIONAL, &parts, error));
    TRY(read_checksum(entry, path, "model", JSON_OPTIONAL, f->model, error));
    TRY(json_read_array(entry, path, "xxh3", JSON_OPTIONAL, &blocks, error));
    f->block_bytes = block_bytes;
    if (blocks)
        return manifest_read_blocks(blocks, path, f, error);
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
    int64_t version = 0, block_bytes = 1;
    const json_t *files = NULL;
    char shown[JSON_EXCERPT_BYTES];
    TRY(json_read_string(tree, path, "format", JSON_REQUIRED, &format, error));
    if (strcmp(format, FORMAT))
        FAIL(TRIREME_ERROR_CORRUPT, "%s: \"format\" must be \"%s\", found %s", path, FORMAT,
             json_excerpt(format, shown));
    TRY(json_read_integer(tree, path, "version", JSON_REQUIRED, VERSION_FIRST, VERSION, &version, error));
    if (version > VERSION_FIRST || json_object_get(tree, "blake2b"))
        TRY(verify_end(text, length, path, error));
    TRY(json_read_integer(tree, path, "block_bytes", version < VERSION ? JSON_OPTIONAL : JSON_REQUIRED, 1, INT64_MAX,
                          &block_bytes, error));
    TRY(json_read_array(tree, path, "files", JSON_REQUIRED, &files, error));
    for (size_t i = 0; i < json_array_size(files); i++) {
        struct checksum_file file = {0};
        trireme_status status = read_file(json_array_get(files, i), path, (uint64_t)block_bytes, &file, error);
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

// ---- what must be listed

static const char *const FOLDERS[] = {"", STATE_FOLDER "/"};

// Whether a file is one that is read of a model, or of its training state.
static bool manifest_is_read(const char *name) {
    static const char *const ENDS[] = {"config.json", "adapter_config.json", "progress.json", ".safetensors",
                                       ".safetensors.index.json"};
    for (size_t i = 0; i < ARRAY_LENGTH(ENDS); i++)
        if (*ENDS[i] == '.' ? text_ends(name, ENDS[i]) : strcmp(name, ENDS[i]) == 0)
            return true;
    return false;
}

static trireme_status manifest_check_entry(const struct manifest *m, const char *directory, const char *folder,
                                           const char *entry, struct manifest_check check, trireme_error *error) {
    char *name = mem_printf("%s%s", folder, entry);
    trireme_status status = TRIREME_OK;
    if (manifest_is_read(entry) && !manifest_find(m, name) && !(check.spare && check.spare(name)))
        status =
            error_set(error, TRIREME_ERROR_CORRUPT,
                      "%s/" MANIFEST_NAME ": does not list %s, so that no damage of it would be noticed: take another "
                      "checkpoint; or, for the weights alone, unverified, remove " MANIFEST_NAME,
                      directory, name);
    free(name);
    return status;
}

static trireme_status manifest_check_folder(const struct manifest *m, const char *directory, const char *folder,
                                            struct manifest_check check, trireme_error *error) {
    char *path = mem_printf("%s/%s", directory, folder);
    DIR *dir = opendir(path);
    trireme_status status = TRIREME_OK;
    if (!dir && errno != ENOENT && errno != ENOTDIR)
        status = error_set(error, TRIREME_ERROR_IO, "%s: cannot list: %s", path, strerror(errno));
    for (struct dirent *e; status == TRIREME_OK && dir && (errno = 0, e = readdir(dir)) != NULL;)
        status = manifest_check_entry(m, directory, folder, e->d_name, check, error);
    if (status == TRIREME_OK && dir && errno)
        status = error_set(error, TRIREME_ERROR_IO, "%s: cannot list: %s", path, strerror(errno));
    if (dir)
        closedir(dir);
    free(path);
    return status;
}

trireme_status manifest_check_listed(const struct manifest *m, const char *directory, struct manifest_check check,
                                     trireme_error *error) {
    bool weights = false;
    for (size_t i = 0; i < ARRAY_LENGTH(FOLDERS); i++)
        TRY(manifest_check_folder(m, directory, FOLDERS[i], check, error));
    for (size_t i = 0; i < m->file.count; i++)
        weights |= text_ends(m->file.item[i].name, ".safetensors") && !state_files_own(m->file.item[i].name);
    if (!weights && manifest_find(m, "config.json"))
        FAIL(TRIREME_ERROR_CORRUPT, "%s/" MANIFEST_NAME ": lists a model without weights: take another checkpoint",
             directory);
    return TRIREME_OK;
}

// ---- verifying

trireme_status manifest_verify_file(const struct checksum_file *f, const char *directory, struct manifest_check check,
                                    struct checksum_share *share, const struct checksum_watch *watch,
                                    trireme_error *error) {
    char *path = mem_printf("%s/%s", directory, f->name);
    const bool content = check.content || manifest_is(f->name, check.content_of);
    const bool spared = check.spare && check.spare(f->name),
               gone = spared && access(path, F_OK) != 0 && errno == ENOENT;
    const enum checksum_depth depth = !content ? CHECKSUM_NONE : spared ? CHECKSUM_FIRST : CHECKSUM_ALL;
    trireme_status status = gone ? TRIREME_OK : checksum_file_verify(f, path, depth, share, watch, error);
    if (status == TRIREME_ERROR_CORRUPT && *f->model && access(path, R_OK) == 0)
        status = verify_model(f, path, error);
    free(path);
    return status;
}

trireme_status manifest_verify(const struct manifest *m, const char *directory, struct manifest_check check,
                               struct checksum_share *share, const struct checksum_watch *watch, trireme_error *error) {
    TRY(manifest_check_listed(m, directory, check, error));
    for (size_t i = 0; i < m->file.count; i++)
        TRY(manifest_verify_file(&m->file.item[i], directory, check, share, watch, error));
    return TRIREME_OK;
}

void manifest_identify(const char *directory, char hex[CHECKSUM_HEX]) {
    char *path = mem_printf("%s/" MANIFEST_NAME, directory), *text;
    size_t length;
    trireme_error ignored;
    *hex = 0;
    if (file_read(path, MANIFEST_BYTES_MAX, &text, &length, &ignored) == TRIREME_OK) {
        checksum_of(text, length, hex);
        free(text);
    }
    free(path);
}
