#include "ckpt/safetensors.h"
#include "base/json.h"
#include "base/mapped.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are used as they lie in the file");

static const struct {
    const char *name;
    unsigned bits;
} DTYPE[SAFETENSORS_DTYPES] = {
    [SAFETENSORS_F64] = {"F64", 64},
    [SAFETENSORS_F32] = {"F32", 32},
    [SAFETENSORS_F16] = {"F16", 16},
    [SAFETENSORS_BF16] = {"BF16", 16},
    [SAFETENSORS_I64] = {"I64", 64},
    [SAFETENSORS_I32] = {"I32", 32},
    [SAFETENSORS_I16] = {"I16", 16},
    [SAFETENSORS_I8] = {"I8", 8},
    [SAFETENSORS_U64] = {"U64", 64},
    [SAFETENSORS_U32] = {"U32", 32},
    [SAFETENSORS_U16] = {"U16", 16},
    [SAFETENSORS_U8] = {"U8", 8},
    [SAFETENSORS_BOOL] = {"BOOL", 8},
    [SAFETENSORS_C64] = {"C64", 64},
    [SAFETENSORS_F8_E5M2] = {"F8_E5M2", 8},
    [SAFETENSORS_F8_E4M3] = {"F8_E4M3", 8},
    [SAFETENSORS_F8_E8M0] = {"F8_E8M0", 8},
    [SAFETENSORS_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8},
    [SAFETENSORS_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8},
    [SAFETENSORS_F6_E2M3] = {"F6_E2M3", 6},
    [SAFETENSORS_F6_E3M2] = {"F6_E3M2", 6},
    [SAFETENSORS_F4] = {"F4", 4},
};

const char *safetensors_dtype_name(enum safetensors_dtype dtype) {
    CHECK((unsigned)dtype < SAFETENSORS_DTYPES);
    return DTYPE[dtype].name;
}

unsigned safetensors_dtype_bits(enum safetensors_dtype dtype) {
    CHECK((unsigned)dtype < SAFETENSORS_DTYPES);
    return DTYPE[dtype].bits;
}

bool safetensors_bytes(enum safetensors_dtype dtype, int ndim, const int64_t *shape, uint64_t *bytes) {
    uint64_t bits = safetensors_dtype_bits(dtype), elements = 1, whole;
    bool overflow = false;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] == 0) {
            *bytes = 0;
            return true;
        }
        overflow |= __builtin_mul_overflow(elements, (uint64_t)shape[i], &elements);
    }
    // Eight elements are `bits` bytes; counting bits would overflow earlier than bytes do.
    overflow |= __builtin_mul_overflow(elements / 8, bits, &whole);
    uint64_t rest = elements % 8 * bits;
    if (overflow || rest % 8 || whole > INT64_MAX - rest / 8)
        return false;
    *bytes = whole + rest / 8;
    return true;
}

const char *safetensors_type_text(enum safetensors_dtype dtype, int ndim, const int64_t *shape,
                                  char buffer[SAFETENSORS_TYPE_TEXT]) {
    int used = snprintf(buffer, SAFETENSORS_TYPE_TEXT, "%s [", safetensors_dtype_name(dtype));
    for (int i = 0; i < ndim; i++)
        used += snprintf(buffer + used, SAFETENSORS_TYPE_TEXT - (size_t)used, "%s%" PRId64, i ? ", " : "", shape[i]);
    snprintf(buffer + used, SAFETENSORS_TYPE_TEXT - (size_t)used, "]");
    return buffer;
}

static trireme_status safetensors_read_dtype(const json_t *entry, const char *where, enum safetensors_dtype *dtype,
                                             trireme_error *error) {
    const char *name = NULL;
    char shown[JSON_EXCERPT_BYTES];
    TRY(json_read_string(entry, where, "dtype", JSON_REQUIRED, &name, error));
    for (int i = 0; i < SAFETENSORS_DTYPES; i++)
        if (!strcmp(name, DTYPE[i].name)) {
            *dtype = (enum safetensors_dtype)i;
            return TRIREME_OK;
        }
    FAIL(TRIREME_ERROR_CORRUPT, "%s: unknown dtype %s, expected F32, BF16 or another of safetensors' types", where,
         json_excerpt(name, shown));
}

static trireme_status read_integers(const json_t *entry, const char *where, const char *key, size_t most,
                                    int64_t *value, size_t *count, trireme_error *error) {
    const json_t *array = NULL;
    char shown[JSON_EXCERPT_BYTES];
    TRY(json_read_array(entry, where, key, JSON_REQUIRED, &array, error));
    if (json_array_size(array) > most)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: \"%s\" must have at most %zu elements, found %zu", where, key, most,
             json_array_size(array));
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *element = json_array_get(array, i);
        value[i] = json_integer_value(element);
        if (!json_is_integer(element) || value[i] < 0)
            FAIL(TRIREME_ERROR_CORRUPT, "%s: \"%s\" must hold integers, none negative, found %s", where, key,
                 json_excerpt_value(element, shown));
    }
    *count = json_array_size(array);
    return TRIREME_OK;
}

// t->position is still relative to the data here.
static trireme_status read_tensor(const json_t *entry, const char *where, struct safetensors_tensor *t,
                                  trireme_error *error) {
    size_t ndim, offsets;
    int64_t offset[2];
    char type[SAFETENSORS_TYPE_TEXT];
    TRY(safetensors_read_dtype(entry, where, &t->dtype, error));
    TRY(read_integers(entry, where, "shape", SAFETENSORS_DIMS, t->shape, &ndim, error));
    TRY(read_integers(entry, where, "data_offsets", 2, offset, &offsets, error));
    if (offsets != 2 || offset[0] > offset[1])
        FAIL(TRIREME_ERROR_CORRUPT, "%s: \"data_offsets\" must be [begin, end] with begin <= end", where);
    t->ndim = (int)ndim;
    safetensors_type_text(t->dtype, t->ndim, t->shape, type);
    if (!safetensors_bytes(t->dtype, t->ndim, t->shape, &t->bytes))
        FAIL(TRIREME_ERROR_CORRUPT, "%s: %s is no possible size", where, type);
    if ((uint64_t)(offset[1] - offset[0]) != t->bytes)
        FAIL(TRIREME_ERROR_CORRUPT,
             "%s: %s takes %" PRIu64 " bytes, \"data_offsets\" [%" PRId64 ", %" PRId64 "] hold %" PRId64, where, type,
             t->bytes, offset[0], offset[1], offset[1] - offset[0]);
    t->position = (uint64_t)offset[0];
    return TRIREME_OK;
}

static trireme_status read_metadata(struct safetensors *s, size_t file, const json_t *pairs, trireme_error *error) {
    const char *path = s->file.item[file].path, *key;
    char shown[JSON_EXCERPT_BYTES], found[JSON_EXCERPT_BYTES];
    json_t *value;
    if (!json_is_object(pairs))
        FAIL(TRIREME_ERROR_CORRUPT, "%s: \"__metadata__\" must be an object, found %s", path,
             json_excerpt_value(pairs, found));
    json_object_foreach((json_t *)pairs, key, value) {
        if (!json_is_string(value))
            FAIL(TRIREME_ERROR_CORRUPT, "%s: \"__metadata__\": %s must be a string, found %s", path,
                 json_excerpt(key, shown), json_excerpt_value(value, found));
        VEC_PUSH(&s->metadata, (struct safetensors_pair){mem_strdup(key), mem_strdup(json_string_value(value)), file});
    }
    return TRIREME_OK;
}

static int compare_positions(const void *a, const void *b) {
    const struct safetensors_tensor *x = a, *y = b;
    return COMPARE(x->position, y->position) ?: COMPARE(x->bytes, y->bytes) ?: strcmp(x->name, y->name);
}

// Checks that the tensors of one file cover its data from the first byte to the last, without hole or overlap. Makes
// positions absolute.
static trireme_status check_layout(const struct safetensors *s, size_t file, size_t first, uint64_t data,
                                   trireme_error *error) {
    const struct safetensors_file *f = &s->file.item[file];
    size_t count = s->tensor.count - first;
    struct safetensors_tensor *t = count ? s->tensor.item + first : NULL;
    uint64_t end = 0, available = f->bytes - data;
    char name[JSON_EXCERPT_BYTES], before[JSON_EXCERPT_BYTES];
    if (count)
        qsort(t, count, sizeof *t, compare_positions);
    for (size_t i = 0; i < count; i++) {
        json_excerpt(t[i].name, name);
        if (t[i].position > end)
            FAIL(TRIREME_ERROR_CORRUPT,
                 "%s: tensor %s: begins at byte %" PRIu64 " of the data, expected %" PRIu64 ": a hole", f->path, name,
                 t[i].position, end);
        if (t[i].position < end)
            FAIL(TRIREME_ERROR_CORRUPT,
                 "%s: tensor %s: begins at byte %" PRIu64 " of the data, before the end of %s at %" PRIu64, f->path,
                 name, t[i].position, json_excerpt(t[i - 1].name, before), end);
        if (t[i].bytes > available - end)
            FAIL(TRIREME_ERROR_CORRUPT,
                 "%s: truncated: tensor %s: ends at byte %" PRIu64 " of the file, which has only %" PRIu64, f->path,
                 name, data + end + t[i].bytes, f->bytes);
        end += t[i].bytes;
        t[i].position += data;
        t[i].data = (const char *)f->map + t[i].position;
    }
    if (end != available)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: %" PRIu64 " bytes after the last tensor, expected none", f->path,
             available - end);
    return TRIREME_OK;
}

static trireme_status read_entries(struct safetensors *s, size_t file, const json_t *header, trireme_error *error) {
    const char *key;
    json_t *entry;
    char shown[JSON_EXCERPT_BYTES];
    json_object_foreach((json_t *)header, key, entry) {
        if (!strcmp(key, "__metadata__")) {
            TRY(read_metadata(s, file, entry, error));
            continue;
        }
        struct safetensors_tensor t = {.file = file};
        char *where = mem_printf("%s: tensor %s", s->file.item[file].path, json_excerpt(key, shown));
        trireme_status status = read_tensor(entry, where, &t, error);
        free(where);
        TRY(status);
        t.name = mem_strdup(key);
        VEC_PUSH(&s->tensor, t);
    }
    return TRIREME_OK;
}

static const char LFS_POINTER[] = "version https://git-lfs.github.com/"; // the content in a clone without Git LFS

static trireme_status safetensors_refuse_shorter(const struct safetensors_file *f, trireme_error *error) {
    FAIL(TRIREME_ERROR_CORRUPT,
         "%s became shorter while it was read (write another file and rename it), or its disk failed", f->path);
}

static trireme_status safetensors_copy(const struct safetensors *s, const struct safetensors_file *f, const void *from,
                                       uint64_t bytes, void *to, trireme_error *error) {
    if (!s->mapped)
        memcpy(to, from, bytes);
    else if (!mapped_copy(from, bytes, to))
        return safetensors_refuse_shorter(f, error);
    return TRIREME_OK;
}

static trireme_status safetensors_parse_header(struct safetensors *s, size_t file, const char *text, uint64_t length,
                                               trireme_error *error) {
    const struct safetensors_file *f = &s->file.item[file];
    if (!length || *text != '{')
        FAIL(TRIREME_ERROR_CORRUPT, "%s: the header must begin with {: not a safetensors file", f->path);
    char *where = mem_printf("%s: header", f->path);
    json_t *header = NULL;
    trireme_status status = json_parse(text, length, where, &header, error);
    free(where);
    TRY(status);
    size_t first = s->tensor.count;
    status = read_entries(s, file, header, error);
    json_decref(header);
    TRY(status);
    return check_layout(s, file, first, 8 + length, error);
}

static trireme_status safetensors_read_header(struct safetensors *s, size_t file, trireme_error *error) {
    const struct safetensors_file *f = &s->file.item[file];
    char start[sizeof LFS_POINTER];
    uint64_t length = 0;
    if (f->bytes < 8)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: %" PRIu64 " bytes: too short for a safetensors file", f->path, f->bytes);
    TRY(safetensors_copy(s, f, f->map, MIN(f->bytes, sizeof start), start, error));
    if (f->bytes > sizeof LFS_POINTER && memcmp(start, LFS_POINTER, sizeof LFS_POINTER - 1) == 0)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: only says where Git LFS has the file: get it with git lfs pull", f->path);
    memcpy(&length, start, 8);
    if (length > SAFETENSORS_HEADER_MAX)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: header length %" PRIu64 " is above %llu: not a safetensors file", f->path,
             length, SAFETENSORS_HEADER_MAX);
    if (length > f->bytes - 8)
        FAIL(TRIREME_ERROR_CORRUPT,
             "%s: truncated: header takes %" PRIu64 " bytes, the file has %" PRIu64 " after its length", f->path,
             length, f->bytes - 8);
    char *text = mem_alloc(length + 1);
    trireme_status status = safetensors_copy(s, f, (const char *)f->map + 8, length, text, error);
    if (status == TRIREME_OK)
        status = safetensors_parse_header(s, file, text, length, error);
    free(text);
    return status;
}

static trireme_status map_file(struct safetensors *s, const char *path, trireme_error *error) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        FAIL(TRIREME_ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
    struct stat st;
    trireme_status status = TRIREME_OK;
    const void *map = NULL;
    if (fstat(fd, &st) != 0)
        status = error_set(error, TRIREME_ERROR_IO, "%s: cannot examine: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        status = error_set(error, TRIREME_ERROR_CORRUPT, "%s: not a regular file", path);
    else if (st.st_size && (map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0)) == MAP_FAILED)
        status = error_set(error, TRIREME_ERROR_IO, "%s: cannot map %" PRId64 " bytes: %s", path, (int64_t)st.st_size,
                           strerror(errno));
    close(fd);
    TRY(status);
    VEC_PUSH(&s->file, (struct safetensors_file){mem_strdup(path), map, (uint64_t)st.st_size, (uint64_t)st.st_dev,
                                                 (uint64_t)st.st_ino});
    return safetensors_read_header(s, s->file.count - 1, error);
}

static int compare_tensors(const void *a, const void *b) {
    const struct safetensors_tensor *x = a, *y = b;
    return strcmp(x->name, y->name) ?: COMPARE(x->file, y->file);
}

static int safetensors_compare_pairs(const void *a, const void *b) {
    const struct safetensors_pair *x = a, *y = b;
    return strcmp(x->key, y->key) ?: COMPARE(x->file, y->file);
}

// Sorts what was collected from all files.
static trireme_status finish_tables(struct safetensors *s, trireme_error *error) {
    char shown[JSON_EXCERPT_BYTES];
    VEC_SORT(&s->tensor, compare_tensors);
    for (size_t i = 1; i < s->tensor.count; i++) {
        const struct safetensors_tensor *t = &s->tensor.item[i];
        if (!strcmp(t->name, t[-1].name))
            FAIL(TRIREME_ERROR_CORRUPT, "%s: tensor %s: is in %s too", safetensors_path(s, t),
                 json_excerpt(t->name, shown), safetensors_path(s, t - 1));
    }
    VEC_SORT(&s->metadata, safetensors_compare_pairs);
    size_t kept = 0;
    for (size_t i = 0; i < s->metadata.count; i++) {
        struct safetensors_pair pair = s->metadata.item[i];
        if (kept && !strcmp(pair.key, s->metadata.item[kept - 1].key)) {
            free(pair.key);
            free(pair.value);
        } else
            s->metadata.item[kept++] = pair;
    }
    s->metadata.count = kept;
    return TRIREME_OK;
}

static trireme_status map_shards(struct safetensors *s, const char *index, const char **name, size_t count,
                                 trireme_error *error) {
    const char *slash = strrchr(index, '/');
    for (size_t i = 0; i < count; i++) {
        if (i && !strcmp(name[i], name[i - 1]))
            continue;
        char *path = mem_printf("%.*s%s", slash ? (int)(slash + 1 - index) : 0, index, name[i]);
        trireme_status status = map_file(s, path, error);
        free(path);
        if (status != TRIREME_OK)
            return error_prefix(error, status, "%s", index);
    }
    return TRIREME_OK;
}

static trireme_status read_weight_map(struct safetensors *s, const char *index, const json_t *map,
                                      trireme_error *error) {
    const char *key, **name = mem_alloc(json_object_size(map) * sizeof *name);
    json_t *value;
    char shown[JSON_EXCERPT_BYTES], found[JSON_EXCERPT_BYTES];
    size_t count = 0;
    trireme_status status = TRIREME_OK;
    json_object_foreach((json_t *)map, key, value) {
        const char *file = json_string_value(value);
        // A name, not a path: an index must not reach outside its directory.
        if (!file || !*file || strchr(file, '/') || !strcmp(file, "..") || !strcmp(file, ".")) {
            status = error_set(error, TRIREME_ERROR_CORRUPT,
                               "%s: tensor %s: must map to the name of a file beside the index, found %s", index,
                               json_excerpt(key, shown), json_excerpt_value(value, found));
            goto done;
        }
        name[count++] = file;
    }
    if (count)
        qsort(name, count, sizeof *name, text_compare);
    status = map_shards(s, index, name, count, error);
    if (status == TRIREME_OK)
        status = finish_tables(s, error);
    if (status != TRIREME_OK)
        goto done;
    json_object_foreach((json_t *)map, key, value) {
        const struct safetensors_tensor *t = safetensors_find(s, key);
        const char *path = t ? safetensors_path(s, t) : "", *slash = strrchr(path, '/');
        if (strcmp(slash ? slash + 1 : path, json_string_value(value))) {
            status = error_set(error, TRIREME_ERROR_CORRUPT, "%s: tensor %s: expected in %s, found %s", index,
                               json_excerpt(key, shown), json_string_value(value), t ? path : "nowhere");
            break;
        }
    }
done:
    free(name);
    return status;
}

static trireme_status read_index(struct safetensors *s, const char *path, trireme_error *error) {
    json_t *index = NULL;
    const json_t *map = NULL;
    TRY(json_parse_file(path, SAFETENSORS_HEADER_MAX, &index, error));
    trireme_status status = json_read_object(index, path, "weight_map", JSON_REQUIRED, &map, error);
    if (status == TRIREME_OK)
        status = read_weight_map(s, path, map, error);
    json_decref(index);
    return status;
}

static trireme_status read_path(struct safetensors *s, const char *path, trireme_error *error) {
    if (text_ends(path, ".json"))
        return read_index(s, path, error);
    TRY(map_file(s, path, error));
    return finish_tables(s, error);
}

static trireme_status read_directory(struct safetensors *s, const char *directory, trireme_error *error) {
    static const char *const NAME[] = {"model.safetensors", "model.safetensors.index.json",
                                       "adapter_model.safetensors"};
    for (size_t i = 0; i < ARRAY_LENGTH(NAME); i++) {
        char *path = mem_printf("%s/%s", directory, NAME[i]);
        struct stat st;
        bool there = stat(path, &st) == 0 || errno != ENOENT;
        trireme_status status = there ? read_path(s, path, error) : TRIREME_OK;
        free(path);
        if (there)
            return status;
    }
    FAIL(TRIREME_ERROR_IO, "%s: holds neither %s nor %s; weights in other files are converted first (save_pretrained)",
         directory, NAME[0], NAME[1]);
}

trireme_status safetensors_open(const char *path, struct safetensors **out, trireme_error *error) {
    struct stat st;
    if (stat(path, &st) != 0)
        FAIL(TRIREME_ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
    struct safetensors *s = mem_alloc(sizeof *s);
    s->mapped = true;
    s->open = -1;
    trireme_status status = S_ISDIR(st.st_mode) ? read_directory(s, path, error) : read_path(s, path, error);
    if (status == TRIREME_OK)
        *out = s;
    else
        safetensors_close(s);
    return status;
}

static void safetensors_close_file(struct safetensors *s) {
    if (s->open >= 0)
        close(s->open);
    s->open = -1;
}

// Opens a file to read from, and closes the one before it.
static trireme_status safetensors_open_file(struct safetensors *s, size_t file, trireme_error *error) {
    const struct safetensors_file *f = &s->file.item[file];
    struct stat st;
    if (s->open >= 0 && s->open_file == file)
        return TRIREME_OK;
    safetensors_close_file(s);
    s->open = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    s->open_file = file;
    if (s->open < 0)
        FAIL(TRIREME_ERROR_IO, "%s: cannot open: %s", f->path, strerror(errno));
    if (fstat(s->open, &st) == 0 && (uint64_t)st.st_dev == f->device && (uint64_t)st.st_ino == f->inode)
        return TRIREME_OK;
    safetensors_close_file(s);
    FAIL(TRIREME_ERROR_CORRUPT, "%s was replaced by another file while it was read", f->path);
}

trireme_status safetensors_read(struct safetensors *s, const struct safetensors_tensor *t, uint64_t from,
                                uint64_t bytes, void *to, trireme_error *error) {
    CHECK(from <= t->bytes && bytes <= t->bytes - from);
    const struct safetensors_file *f = &s->file.item[t->file];
    if (!s->mapped) {
        memcpy(to, (const char *)t->data + from, bytes);
        return TRIREME_OK;
    }
    TRY(safetensors_open_file(s, t->file, error));
    for (uint64_t done = 0; done < bytes;) {
        const ssize_t n = pread(s->open, (char *)to + done, (size_t)(bytes - done), (off_t)(t->position + from + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            FAIL(TRIREME_ERROR_IO, "%s: cannot read: %s", f->path, strerror(errno));
        if (n == 0)
            return safetensors_refuse_shorter(f, error);
        done += (uint64_t)n;
    }
    return TRIREME_OK;
}

trireme_status safetensors_open_memory(const void *bytes, size_t length, const char *name, struct safetensors **out,
                                       trireme_error *error) {
    struct safetensors *s = mem_alloc(sizeof *s);
    s->open = -1;
    VEC_PUSH(&s->file, (struct safetensors_file){.path = mem_strdup(name), .map = bytes, .bytes = length});
    trireme_status status = safetensors_read_header(s, 0, error);
    if (status == TRIREME_OK)
        status = finish_tables(s, error);
    if (status == TRIREME_OK)
        *out = s;
    else
        safetensors_close(s);
    return status;
}

void safetensors_close(struct safetensors *s) {
    if (!s)
        return;
    safetensors_close_file(s);
    for (size_t i = 0; i < s->file.count; i++) {
        if (s->mapped && s->file.item[i].map)
            munmap((void *)s->file.item[i].map, s->file.item[i].bytes);
        free(s->file.item[i].path);
    }
    for (size_t i = 0; i < s->tensor.count; i++)
        free((char *)s->tensor.item[i].name);
    for (size_t i = 0; i < s->metadata.count; i++) {
        free(s->metadata.item[i].key);
        free(s->metadata.item[i].value);
    }
    VEC_RELEASE(&s->file);
    VEC_RELEASE(&s->tensor);
    VEC_RELEASE(&s->metadata);
    free(s);
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *s, const char *name) {
    size_t at = PARTITION_POINT(i, s->tensor.count, strcmp(s->tensor.item[i].name, name) < 0);
    return at < s->tensor.count && !strcmp(s->tensor.item[at].name, name) ? &s->tensor.item[at] : NULL;
}

const char *safetensors_metadata(const struct safetensors *s, const char *key) {
    for (size_t i = 0; i < s->metadata.count; i++)
        if (!strcmp(s->metadata.item[i].key, key))
            return s->metadata.item[i].value;
    return NULL;
}

const char *safetensors_path(const struct safetensors *s, const struct safetensors_tensor *t) {
    return s->file.item[t->file].path;
}

trireme_status safetensors_expect(const struct safetensors *s, const struct safetensors_tensor *t,
                                  enum safetensors_dtype dtype, int ndim, const int64_t *shape, trireme_error *error) {
    if (t->dtype == dtype && t->ndim == ndim && (!ndim || !memcmp(t->shape, shape, (size_t)ndim * sizeof *shape)))
        return TRIREME_OK;
    char name[JSON_EXCERPT_BYTES], expected[SAFETENSORS_TYPE_TEXT], found[SAFETENSORS_TYPE_TEXT];
    FAIL(TRIREME_ERROR_CORRUPT, "%s: tensor %s: expected %s, found %s", safetensors_path(s, t),
         json_excerpt(t->name, name), safetensors_type_text(dtype, ndim, shape, expected),
         safetensors_type_text(t->dtype, t->ndim, t->shape, found));
}
