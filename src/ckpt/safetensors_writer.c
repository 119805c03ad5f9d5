// Writes safetensors: one file, or several of bounded size with an index (safetensors.h).
#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"
#include "ckpt/output.h"
#include "ckpt/safetensors.h"

#include <inttypes.h>

struct declared {
    char *name;
    enum safetensors_dtype dtype;
    int ndim;
    int64_t shape[SAFETENSORS_DIMS];
    uint64_t bytes;
    size_t number, shard;
};

struct pair {
    char *key, *value;
};

struct safetensors_writer {
    char *directory, *stem;
    uint64_t shard_bytes;
    VEC(struct pair) metadata;
    VEC(struct declared) tensor;    // in order of declaration until begin, then in the order of the files
    uint64_t total;                 // bytes of all tensors
    size_t shards, shard;           // how many there are, and which one is open
    size_t current;                 // the current one of `tensor`
    uint64_t done;                  // bytes of the current tensor
    struct output *output;          // of the current shard
    VEC(struct checksum_file) file; // finished
    enum { DECLARING, WRITING, FINISHED, FAILED } state;
};

struct safetensors_writer *safetensors_writer_create(const char *directory, const char *stem, uint64_t shard_bytes) {
    struct safetensors_writer *w = mem_alloc(sizeof *w);
    w->directory = mem_strdup(directory);
    w->stem = mem_strdup(stem);
    w->shard_bytes = shard_bytes ? shard_bytes : SAFETENSORS_SHARD_BYTES;
    return w;
}

void safetensors_writer_metadata(struct safetensors_writer *w, const char *key, const char *value) {
    CHECK(w->state == DECLARING);
    for (size_t i = 0; i < w->metadata.count; i++)
        if (!strcmp(w->metadata.item[i].key, key)) {
            free(w->metadata.item[i].value);
            w->metadata.item[i].value = mem_strdup(value);
            return;
        }
    VEC_PUSH(&w->metadata, (struct pair){mem_strdup(key), mem_strdup(value)});
}

trireme_status safetensors_writer_declare(struct safetensors_writer *w, const char *name, enum safetensors_dtype dtype,
                                          int ndim, const int64_t *shape, trireme_error *error) {
    CHECK(w->state == DECLARING);
    char shown[JSON_EXCERPT_BYTES];
    struct declared t = {.dtype = dtype, .ndim = ndim, .number = w->tensor.count};
    if (!strcmp(name, "__metadata__") || !strcmp(name, CHECKSUM_HEADER))
        FAIL(TRIREME_ERROR_USAGE, "%s/%s: the name %s is taken by the format", w->directory, w->stem,
             json_excerpt(name, shown));
    if (!utf8_is_valid(name))
        FAIL(TRIREME_ERROR_USAGE, "%s/%s: tensor %s: the name is not UTF-8", w->directory, w->stem,
             json_excerpt(name, shown));
    if (ndim < 0 || ndim > SAFETENSORS_DIMS)
        FAIL(TRIREME_ERROR_USAGE, "%s/%s: tensor %s: %d dims, expected at most %d", w->directory, w->stem,
             json_excerpt(name, shown), ndim, SAFETENSORS_DIMS);
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0)
            FAIL(TRIREME_ERROR_USAGE, "%s/%s: tensor %s: a dim is negative", w->directory, w->stem,
                 json_excerpt(name, shown));
        t.shape[i] = shape[i];
    }
    if (!safetensors_bytes(dtype, ndim, shape, &t.bytes) || t.bytes > INT64_MAX - w->total)
        FAIL(TRIREME_ERROR_USAGE, "%s/%s: tensor %s: no possible size", w->directory, w->stem,
             json_excerpt(name, shown));
    t.name = mem_strdup(name);
    w->total += t.bytes;
    VEC_PUSH(&w->tensor, t);
    return TRIREME_OK;
}

static unsigned writer_width(const struct declared *t) {
    return MAX(safetensors_dtype_bits(t->dtype) / 8, 1u);
}

static int compare_for_layout(const void *a, const void *b) {
    const struct declared *x = a, *y = b;
    return COMPARE(writer_width(y), writer_width(x)) ?: COMPARE(x->number, y->number);
}

static int writer_compare_names(const void *a, const void *b) {
    const struct declared *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

// Caller frees.
static const struct declared **sorted_by_name(const struct safetensors_writer *w) {
    const struct declared **sorted = mem_alloc(w->tensor.count * sizeof *sorted);
    for (size_t i = 0; i < w->tensor.count; i++)
        sorted[i] = &w->tensor.item[i];
    if (w->tensor.count)
        qsort(sorted, w->tensor.count, sizeof *sorted, writer_compare_names);
    return sorted;
}

static trireme_status writer_check_names(const struct safetensors_writer *w, trireme_error *error) {
    char shown[JSON_EXCERPT_BYTES];
    const char *twice = NULL;
    const struct declared **sorted = sorted_by_name(w);
    for (size_t i = 1; i < w->tensor.count && !twice; i++)
        if (!strcmp(sorted[i]->name, sorted[i - 1]->name))
            twice = sorted[i]->name;
    free(sorted);
    if (twice)
        FAIL(TRIREME_ERROR_USAGE, "%s/%s: tensor %s: declared twice", w->directory, w->stem,
             json_excerpt(twice, shown));
    return TRIREME_OK;
}

static void writer_lay_out(struct safetensors_writer *w) {
    if (w->tensor.count)
        qsort(w->tensor.item, w->tensor.count, sizeof *w->tensor.item, compare_for_layout);
    uint64_t bytes = 0;
    w->shards = 1;
    for (size_t i = 0; i < w->tensor.count; i++) {
        struct declared *t = &w->tensor.item[i];
        if (bytes && (bytes > w->shard_bytes || t->bytes > w->shard_bytes - bytes)) {
            w->shards++;
            bytes = 0;
        }
        t->shard = w->shards - 1;
        bytes += t->bytes;
    }
}

// Caller frees.
static char *shard_name(const struct safetensors_writer *w, size_t shard) {
    if (w->shards == 1)
        return mem_printf("%s.safetensors", w->stem);
    return mem_printf("%s-%05zu-of-%05zu.safetensors", w->stem, shard + 1, w->shards);
}

// Makes the header of a shard whose tensors start at `first`; *data becomes the bytes of its tensors.
static void make_header(const struct safetensors_writer *w, size_t shard, size_t first, struct text *t,
                        uint64_t *data) {
    *data = 0;
    json_begin_object(t, NULL);
    if (w->metadata.count) {
        json_begin_object(t, "__metadata__");
        for (size_t i = 0; i < w->metadata.count; i++)
            json_add_string(t, w->metadata.item[i].key, w->metadata.item[i].value);
        json_end_object(t);
    }
    for (size_t i = first; i < w->tensor.count && w->tensor.item[i].shard == shard; i++) {
        const struct declared *tensor = &w->tensor.item[i];
        json_begin_object(t, tensor->name);
        json_add_string(t, "dtype", safetensors_dtype_name(tensor->dtype));
        json_begin_array(t, "shape");
        for (int j = 0; j < tensor->ndim; j++)
            json_add_integer(t, NULL, tensor->shape[j]);
        json_end_array(t);
        json_begin_array(t, "data_offsets");
        json_add_integer(t, NULL, (int64_t)*data);
        json_add_integer(t, NULL, (int64_t)(*data += tensor->bytes));
        json_end_array(t);
        json_end_object(t);
    }
    json_end_object(t);
    while (t->length % 8)
        text_add_bytes(t, " ", 1);
}

static trireme_status open_shard(struct safetensors_writer *w, size_t shard, trireme_error *error) {
    struct text header = {0};
    uint64_t data;
    w->shard = shard;
    make_header(w, shard, w->current, &header, &data);
    char *name = shard_name(w, shard);
    uint64_t length = header.length;
    trireme_status status;
    if (length > SAFETENSORS_HEADER_MAX)
        status = error_set(error, TRIREME_ERROR_USAGE,
                           "%s/%s: the header takes %" PRIu64 " bytes, the format allows %llu: use smaller shards",
                           w->directory, name, length, SAFETENSORS_HEADER_MAX);
    else
        status = output_create(w->directory, name, 8 + length + data, &w->output, error);
    if (status == TRIREME_OK)
        status = output_add(w->output, &length, 8, error);
    if (status == TRIREME_OK)
        status = output_add(w->output, header.text, header.length, error);
    if (status == TRIREME_OK)
        output_end_part(w->output, CHECKSUM_HEADER);
    text_release(&header);
    free(name);
    return status;
}

static trireme_status close_output(struct safetensors_writer *w, trireme_error *error) {
    struct checksum_file file;
    struct output *o = w->output;
    w->output = NULL;
    TRY(output_finish(o, &file, error));
    VEC_PUSH(&w->file, file);
    return TRIREME_OK;
}

// Moves on until a tensor wants data.
static trireme_status writer_advance(struct safetensors_writer *w, trireme_error *error) {
    for (; w->current < w->tensor.count; w->current++, w->done = 0) {
        const struct declared *t = &w->tensor.item[w->current];
        if (t->shard != w->shard) {
            TRY(close_output(w, error));
            TRY(open_shard(w, t->shard, error));
        }
        if (w->done < t->bytes)
            return TRIREME_OK;
        output_end_part(w->output, t->name);
    }
    return TRIREME_OK;
}

static trireme_status writer_fail(struct safetensors_writer *w, trireme_status status) {
    output_abort(w->output);
    w->output = NULL;
    w->state = FAILED;
    return status;
}

trireme_status safetensors_writer_begin(struct safetensors_writer *w, trireme_error *error) {
    CHECK(w->state == DECLARING);
    TRY(writer_check_names(w, error));
    writer_lay_out(w);
    w->state = WRITING;
    trireme_status status = open_shard(w, 0, error);
    if (status == TRIREME_OK)
        status = writer_advance(w, error);
    return status == TRIREME_OK ? status : writer_fail(w, status);
}

bool safetensors_writer_next(const struct safetensors_writer *w, size_t *tensor) {
    if (w->state != WRITING || w->current == w->tensor.count)
        return false;
    *tensor = w->tensor.item[w->current].number;
    return true;
}

trireme_status safetensors_writer_add(struct safetensors_writer *w, size_t tensor, const void *data, uint64_t bytes,
                                      trireme_error *error) {
    char shown[JSON_EXCERPT_BYTES];
    size_t next;
    if (!safetensors_writer_next(w, &next))
        FAIL(TRIREME_ERROR_USAGE, "%s/%s: no tensor is waiting for data", w->directory, w->stem);
    const struct declared *t = &w->tensor.item[w->current];
    if (tensor != next || bytes > t->bytes - w->done)
        FAIL(TRIREME_ERROR_USAGE,
             "%s/%s: expected at most %" PRIu64 " bytes of tensor %s, found %" PRIu64 " bytes of number %zu",
             w->directory, w->stem, t->bytes - w->done, json_excerpt(t->name, shown), bytes, tensor);
    w->done += bytes;
    trireme_status status = output_add(w->output, data, bytes, error);
    if (status == TRIREME_OK)
        status = writer_advance(w, error);
    return status == TRIREME_OK ? status : writer_fail(w, status);
}

static trireme_status write_index(struct safetensors_writer *w, trireme_error *error) {
    struct text t = {0};
    const struct declared **sorted = sorted_by_name(w);
    json_begin_object(&t, NULL);
    json_begin_object(&t, "metadata");
    json_add_integer(&t, "total_size", (int64_t)w->total);
    json_end_object(&t);
    json_begin_object(&t, "weight_map");
    for (size_t i = 0; i < w->tensor.count; i++) {
        char *name = shard_name(w, sorted[i]->shard);
        text_add(&t, "%s\n", i ? "," : "");
        json_add_string(&t, sorted[i]->name, name);
        free(name);
    }
    text_add(&t, "\n}}\n");
    free(sorted);
    char *name = mem_printf("%s.safetensors.index.json", w->stem);
    trireme_status status = output_create(w->directory, name, t.length, &w->output, error);
    if (status == TRIREME_OK)
        status = output_add(w->output, t.text, t.length, error);
    if (status == TRIREME_OK)
        status = close_output(w, error);
    free(name);
    text_release(&t);
    return status;
}

trireme_status safetensors_writer_finish(struct safetensors_writer *w, trireme_error *error) {
    char shown[JSON_EXCERPT_BYTES];
    if (w->state != WRITING)
        FAIL(TRIREME_ERROR_USAGE, "%s/%s: nothing is being written, or it failed before", w->directory, w->stem);
    if (w->current < w->tensor.count) {
        const struct declared *t = &w->tensor.item[w->current];
        FAIL(TRIREME_ERROR_USAGE, "%s/%s: tensor %s: expected %" PRIu64 " bytes, found %" PRIu64, w->directory, w->stem,
             json_excerpt(t->name, shown), t->bytes, w->done);
    }
    trireme_status status = close_output(w, error);
    if (status == TRIREME_OK && w->shards > 1)
        status = write_index(w, error);
    if (status != TRIREME_OK)
        return writer_fail(w, status);
    w->state = FINISHED;
    return TRIREME_OK;
}

size_t safetensors_writer_files(const struct safetensors_writer *w) {
    return w->state == FINISHED ? w->file.count : 0;
}

const struct checksum_file *safetensors_writer_file(const struct safetensors_writer *w, size_t i) {
    CHECK(w->state == FINISHED && i < w->file.count);
    return &w->file.item[i];
}

void safetensors_writer_free(struct safetensors_writer *w) {
    if (!w)
        return;
    output_abort(w->output);
    for (size_t i = 0; i < w->metadata.count; i++) {
        free(w->metadata.item[i].key);
        free(w->metadata.item[i].value);
    }
    for (size_t i = 0; i < w->tensor.count; i++)
        free(w->tensor.item[i].name);
    for (size_t i = 0; i < w->file.count; i++)
        checksum_file_release(&w->file.item[i]);
    VEC_RELEASE(&w->metadata);
    VEC_RELEASE(&w->tensor);
    VEC_RELEASE(&w->file);
    free(w->directory);
    free(w->stem);
    free(w);
}
