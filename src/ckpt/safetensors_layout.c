#include "ckpt/safetensors_layout.h"

#include "base/json.h"
#include "base/utf8.h"

#include <inttypes.h>

void safetensors_layout_create(struct safetensors_layout *l, const char *stem, uint64_t shard_bytes) {
    *l = (struct safetensors_layout){.stem = mem_strdup(stem),
                                     .shard_bytes = shard_bytes ? shard_bytes : SAFETENSORS_SHARD_BYTES};
}

void safetensors_layout_release(struct safetensors_layout *l) {
    for (size_t i = 0; i < l->metadata.count; i++) {
        free(l->metadata.item[i].key);
        free(l->metadata.item[i].value);
    }
    for (size_t i = 0; i < l->tensor.count; i++)
        free(l->tensor.item[i].name);
    for (size_t i = 0; i < l->file.count; i++) {
        free(l->file.item[i].name);
        text_release(&l->file.item[i].header);
    }
    VEC_RELEASE(&l->metadata);
    VEC_RELEASE(&l->tensor);
    VEC_RELEASE(&l->file);
    free(l->stem);
    *l = (struct safetensors_layout){0};
}

void safetensors_layout_metadata(struct safetensors_layout *l, const char *key, const char *value) {
    for (size_t i = 0; i < l->metadata.count; i++)
        if (strcmp(l->metadata.item[i].key, key) == 0) {
            free(l->metadata.item[i].value);
            l->metadata.item[i].value = mem_strdup(value);
            return;
        }
    VEC_PUSH(&l->metadata, (struct safetensors_metadata){mem_strdup(key), mem_strdup(value)});
}

trireme_status safetensors_layout_declare(struct safetensors_layout *l, const char *name, enum safetensors_dtype dtype,
                                          int ndim, const int64_t *shape, trireme_error *error) {
    CHECK(l->file.count == 0);
    char shown[JSON_EXCERPT_BYTES];
    json_excerpt(name, shown);
    struct safetensors_declared t = {.dtype = dtype, .ndim = ndim, .number = l->tensor.count};
    if (strcmp(name, "__metadata__") == 0 || strcmp(name, CHECKSUM_HEADER) == 0)
        FAIL(TRIREME_ERROR_USAGE, "%s: the name %s is taken by the format", l->stem, shown);
    if (!utf8_is_valid(name))
        FAIL(TRIREME_ERROR_USAGE, "%s: tensor %s: the name is not UTF-8", l->stem, shown);
    if (ndim < 0 || ndim > SAFETENSORS_DIMS)
        FAIL(TRIREME_ERROR_USAGE, "%s: tensor %s: %d dims, expected at most %d", l->stem, shown, ndim,
             SAFETENSORS_DIMS);
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0)
            FAIL(TRIREME_ERROR_USAGE, "%s: tensor %s: a dim is negative", l->stem, shown);
        t.shape[i] = shape[i];
    }
    if (!safetensors_bytes(dtype, ndim, shape, &t.bytes) || t.bytes > INT64_MAX - l->total)
        FAIL(TRIREME_ERROR_USAGE, "%s: tensor %s: no possible size", l->stem, shown);
    t.name = mem_strdup(name);
    l->total += t.bytes;
    VEC_PUSH(&l->tensor, t);
    return TRIREME_OK;
}

static unsigned declared_width(const struct safetensors_declared *t) {
    return MAX(safetensors_dtype_bits(t->dtype) / 8, 1u);
}

static int compare_declared_widths(const void *a, const void *b) {
    const struct safetensors_declared *x = a, *y = b;
    return COMPARE(declared_width(y), declared_width(x)) ?: COMPARE(x->number, y->number);
}

static int compare_declared_names(const void *a, const void *b) {
    const struct safetensors_declared *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

// Caller frees.
static const struct safetensors_declared **declared_by_name(const struct safetensors_layout *l) {
    const struct safetensors_declared **sorted = mem_alloc(l->tensor.count * sizeof *sorted);
    for (size_t i = 0; i < l->tensor.count; i++)
        sorted[i] = &l->tensor.item[i];
    if (l->tensor.count)
        qsort(sorted, l->tensor.count, sizeof *sorted, compare_declared_names);
    return sorted;
}

static trireme_status layout_check_names(const struct safetensors_layout *l, trireme_error *error) {
    char shown[JSON_EXCERPT_BYTES];
    const char *twice = NULL;
    const struct safetensors_declared **sorted = declared_by_name(l);
    for (size_t i = 1; i < l->tensor.count && !twice; i++)
        if (strcmp(sorted[i]->name, sorted[i - 1]->name) == 0)
            twice = sorted[i]->name;
    free(sorted);
    if (twice)
        FAIL(TRIREME_ERROR_USAGE, "%s: tensor %s: declared twice", l->stem, json_excerpt(twice, shown));
    return TRIREME_OK;
}

// Gives each tensor its file; returns how many files there are.
static size_t layout_choose_files(struct safetensors_layout *l) {
    uint64_t bytes = 0;
    size_t files = 1;
    if (l->tensor.count)
        qsort(l->tensor.item, l->tensor.count, sizeof *l->tensor.item, compare_declared_widths);
    for (size_t i = 0; i < l->tensor.count; i++) {
        struct safetensors_declared *t = &l->tensor.item[i];
        if (bytes && (bytes > l->shard_bytes || t->bytes > l->shard_bytes - bytes)) {
            files++;
            bytes = 0;
        }
        t->file = files - 1;
        bytes += t->bytes;
    }
    return files;
}

// Caller frees.
static char *layout_file_name(const struct safetensors_layout *l, size_t file, size_t files) {
    return files == 1 ? mem_printf("%s.safetensors", l->stem)
                      : mem_printf("%s-%05zu-of-%05zu.safetensors", l->stem, file + 1, files);
}

static void header_add_tensor(struct text *t, const struct safetensors_declared *tensor, uint64_t at) {
    json_begin_object(t, tensor->name);
    json_add_string(t, "dtype", safetensors_dtype_name(tensor->dtype));
    json_begin_array(t, "shape");
    for (int j = 0; j < tensor->ndim; j++)
        json_add_integer(t, NULL, tensor->shape[j]);
    json_end_array(t);
    json_begin_array(t, "data_offsets");
    json_add_integer(t, NULL, (int64_t)at);
    json_add_integer(t, NULL, (int64_t)(at + tensor->bytes));
    json_end_array(t);
    json_end_object(t);
}

// Places the tensors of one file, whose first one is number `first`; returns the first one of the next file.
static size_t layout_place_file(struct safetensors_layout *l, size_t file, size_t first,
                                struct safetensors_planned *out) {
    struct text json = {0};
    size_t end = first;
    uint64_t data = 0;
    json_begin_object(&json, NULL);
    if (l->metadata.count) {
        json_begin_object(&json, "__metadata__");
        for (size_t i = 0; i < l->metadata.count; i++)
            json_add_string(&json, l->metadata.item[i].key, l->metadata.item[i].value);
        json_end_object(&json);
    }
    for (; end < l->tensor.count && l->tensor.item[end].file == file; end++) {
        l->tensor.item[end].position = data;
        header_add_tensor(&json, &l->tensor.item[end], data);
        data += l->tensor.item[end].bytes;
    }
    json_end_object(&json);
    while (json.length % 8)
        text_add_bytes(&json, " ", 1);
    const uint64_t length = json.length;
    text_add_bytes(&out->header, (const char *)&length, sizeof length); // little-endian, as all machines we run on
    text_add_bytes(&out->header, json.text, json.length);
    text_release(&json);
    for (size_t i = first; i < end; i++)
        l->tensor.item[i].position += out->header.length;
    out->bytes = out->header.length + data;
    return end;
}

trireme_status safetensors_layout_place(struct safetensors_layout *l, trireme_error *error) {
    CHECK(l->file.count == 0);
    TRY(layout_check_names(l, error));
    const size_t files = layout_choose_files(l);
    for (size_t file = 0, next = 0; file < files; file++) {
        struct safetensors_planned planned = {.name = layout_file_name(l, file, files)};
        next = layout_place_file(l, file, next, &planned);
        VEC_PUSH(&l->file, planned);
        if (planned.header.length - sizeof(uint64_t) > SAFETENSORS_HEADER_MAX)
            FAIL(TRIREME_ERROR_USAGE, "%s: the header takes %zu bytes, the format allows %llu: use smaller shards",
                 planned.name, planned.header.length - sizeof(uint64_t), SAFETENSORS_HEADER_MAX);
    }
    return TRIREME_OK;
}

void safetensors_layout_index(const struct safetensors_layout *l, struct text *out) {
    const struct safetensors_declared **sorted = declared_by_name(l);
    json_begin_object(out, NULL);
    json_begin_object(out, "metadata");
    json_add_integer(out, "total_size", (int64_t)l->total);
    json_end_object(out);
    json_begin_object(out, "weight_map");
    for (size_t i = 0; i < l->tensor.count; i++) {
        const char *name = l->file.item[sorted[i]->file].name, *base = strrchr(name, '/');
        text_add(out, "%s\n", i ? "," : "");
        json_add_string(out, sorted[i]->name, base ? base + 1 : name);
    }
    text_add(out, "\n}}\n");
    free(sorted);
}
