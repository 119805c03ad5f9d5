#include "ckpt/state_files.h"

#include "base/json.h"
#include "ckpt/convert.h"

#include <errno.h>
#include <inttypes.h>

#define VERSION "1"

// The numbers of struct state_progress, by their keys in the metadata.
static const struct {
    const char *key;
    size_t offset;
    bool optional; // left out where it is 0
} counters[] = {
    {"step", offsetof(struct state_progress, step), false},
    {"tokens", offsetof(struct state_progress, tokens), false},
    {"updates", offsetof(struct state_progress, updates), false},
    {"skipped", offsetof(struct state_progress, skipped), false},
    {"skipped_in_a_row", offsetof(struct state_progress, skipped_in_a_row), false},
    {"data_step", offsetof(struct state_progress, data_step), true},
    {"data_sample", offsetof(struct state_progress, data_sample), true},
};

// The parameter of the i-th tensor of all groups; NULL: the group has no values of it.
static const struct parameter *tensor_parameter(const struct parameter_table *table, const struct state_group *group,
                                                size_t i) {
    const size_t parameters = table->parameters.count;
    const bool *has = group[i / parameters].has;
    return !has || has[i % parameters] ? &table->parameters.item[i % parameters] : NULL;
}

static void tensor_shape(const struct parameter *p, int64_t shape[2]) {
    shape[0] = parameter_rows(p);
    shape[1] = p->dim[1];
}

// ---- saving

static void put_progress(struct safetensors_writer *writer, const struct state_progress *progress) {
    safetensors_writer_metadata(writer, "trireme_state", VERSION);
    for (size_t i = 0; i < ARRAY_LENGTH(counters); i++) {
        char number[24];
        const int64_t value = *(const int64_t *)((const char *)progress + counters[i].offset);
        snprintf(number, sizeof number, "%" PRId64, value);
        if (value || !counters[i].optional)
            safetensors_writer_metadata(writer, counters[i].key, number);
    }
    safetensors_writer_metadata(writer, "config", progress->config);
    if (progress->data)
        safetensors_writer_metadata(writer, "trained_on", progress->data);
    if (progress->islands)
        safetensors_writer_metadata(writer, "islands", progress->islands);
}

static trireme_status declare_tensor(struct safetensors_writer *writer, const struct state_group *group,
                                     const struct parameter *p, trireme_error *error) {
    int64_t shape[2];
    tensor_shape(p, shape);
    char *name = mem_printf("%s.%s", group->name, p->name);
    trireme_status status =
        safetensors_writer_declare(writer, name, convert_stored(group->values.dtype), p->ndim, shape, error);
    free(name);
    return status;
}

// number[]: room for all tensors of all groups; becomes the number among them of each tensor that is written.
static trireme_status write_groups(struct safetensors_writer *writer, const struct parameter_table *table,
                                   const struct state_group *group, size_t groups, size_t *number,
                                   trireme_error *error) {
    const size_t parameters = table->parameters.count;
    size_t tensors = 0;
    for (size_t i = 0; i < groups * parameters; i++) {
        const struct parameter *p = tensor_parameter(table, group, i);
        if (p) {
            TRY(declare_tensor(writer, &group[i / parameters], p, error));
            number[tensors++] = i;
        }
    }
    TRY(safetensors_writer_begin(writer, error));
    for (size_t t; safetensors_writer_next(writer, &t);) {
        const size_t i = number[t];
        const struct parameter *p = &table->parameters.item[i % parameters];
        TRY(parameter_values_write(&group[i / parameters].values, i % parameters, 0, parameter_rows(p), p->dim[1],
                                   writer, t, error));
    }
    return safetensors_writer_finish(writer, error);
}

trireme_status state_files_save(struct directory *directory, const struct parameter_table *table,
                                const struct state_group *group, size_t groups, const struct state_progress *progress,
                                trireme_error *error) {
    struct safetensors_writer *writer = safetensors_writer_create(directory_path(directory), "state", UINT64_MAX);
    put_progress(writer, progress);
    size_t *number = mem_alloc(groups * table->parameters.count * sizeof *number);
    trireme_status status = write_groups(writer, table, group, groups, number, error);
    free(number);
    if (status == TRIREME_OK)
        directory_record(directory, safetensors_writer_file(writer, 0));
    safetensors_writer_free(writer);
    return status;
}

// ---- loading

static trireme_status check_version(const struct safetensors *files, const char *path, trireme_error *error) {
    const char *version = safetensors_metadata(files, "trireme_state");
    if (!version)
        FAIL(TRIREME_ERROR_CORRUPT, "%s/" STATE_NAME ": holds no training state", path);
    char excerpt[JSON_EXCERPT_BYTES];
    if (strcmp(version, VERSION) != 0)
        FAIL(TRIREME_ERROR_CORRUPT, "%s/" STATE_NAME ": training state of version %s, expected \"" VERSION "\"", path,
             json_excerpt(version, excerpt));
    return TRIREME_OK;
}

static trireme_status open_state(const char *path, struct safetensors **out, trireme_error *error) {
    char *file = mem_printf("%s/" STATE_NAME, path);
    struct safetensors *files;
    trireme_status status = safetensors_open(file, &files, error);
    free(file);
    TRY(status);
    status = check_version(files, path, error);
    if (status == TRIREME_OK)
        *out = files;
    else
        safetensors_close(files);
    return status;
}

static trireme_status get_text(const struct safetensors *files, const char *path, const char *key, const char **out,
                               trireme_error *error) {
    *out = safetensors_metadata(files, key);
    if (!*out)
        FAIL(TRIREME_ERROR_CORRUPT, "%s/" STATE_NAME ": \"__metadata__\" has no \"%s\"", path, key);
    return TRIREME_OK;
}

static trireme_status get_progress(const struct safetensors *files, const char *path, struct state_progress *out,
                                   trireme_error *error) {
    const char *text;
    for (size_t i = 0; i < ARRAY_LENGTH(counters); i++) {
        if (counters[i].optional && !safetensors_metadata(files, counters[i].key))
            continue;
        TRY(get_text(files, path, counters[i].key, &text, error));
        char *end, excerpt[JSON_EXCERPT_BYTES];
        errno = 0;
        long long number = strtoll(text, &end, 10);
        if (*text < '0' || *text > '9' || *end || errno)
            FAIL(TRIREME_ERROR_CORRUPT, "%s/" STATE_NAME ": \"%s\": expected a count, found %s", path, counters[i].key,
                 json_excerpt(text, excerpt));
        *(int64_t *)((char *)out + counters[i].offset) = number;
    }
    const char *config;
    TRY(get_text(files, path, "config", &config, error));
    out->config = mem_strdup(config);
    const char *data = safetensors_metadata(files, "trained_on");
    out->data = data ? mem_strdup(data) : NULL;
    const char *islands = safetensors_metadata(files, "islands");
    out->islands = islands ? mem_strdup(islands) : NULL;
    return TRIREME_OK;
}

trireme_status state_files_progress(const char *path, struct state_progress *out, trireme_error *error) {
    struct safetensors *files;
    TRY(open_state(path, &files, error));
    struct state_progress progress = {0};
    trireme_status status = get_progress(files, path, &progress, error);
    if (status == TRIREME_OK)
        *out = progress;
    safetensors_close(files);
    return status;
}

void state_progress_release(struct state_progress *progress) {
    free(progress->config);
    free(progress->data);
    free(progress->islands);
    *progress = (struct state_progress){0};
}

// Finds the tensor of each parameter of each group, NULL where the group has none of it, and checks all of them.
static trireme_status match_groups(const struct safetensors *files, const char *path,
                                   const struct parameter_table *table, const struct state_group *group, size_t groups,
                                   const struct safetensors_tensor **tensor, bool *met, trireme_error *error) {
    size_t parameters = table->parameters.count;
    for (size_t i = 0; i < groups * parameters; i++) {
        const struct parameter *p = tensor_parameter(table, group, i);
        const struct state_group *g = &group[i / parameters];
        if (!p)
            continue;
        char *name = mem_printf("%s.%s", g->name, p->name);
        tensor[i] = safetensors_find(files, name);
        if (!tensor[i])
            error_set(error, TRIREME_ERROR_CORRUPT,
                      "%s/" STATE_NAME ": tensor \"%s\" is missing: it was saved with another optimizer or dtype", path,
                      name);
        free(name);
        if (!tensor[i])
            return TRIREME_ERROR_CORRUPT;
        int64_t shape[2];
        tensor_shape(p, shape);
        TRY(safetensors_expect(files, tensor[i], convert_stored(g->values.dtype), p->ndim, shape, error));
        met[tensor[i] - files->tensor.item] = true;
    }
    for (size_t i = 0; i < files->tensor.count; i++) {
        char excerpt[JSON_EXCERPT_BYTES];
        if (!met[i])
            FAIL(TRIREME_ERROR_CORRUPT,
                 "%s/" STATE_NAME ": tensor %s is unexpected: it was saved with another optimizer, dtype or model",
                 path, json_excerpt(files->tensor.item[i].name, excerpt));
    }
    return TRIREME_OK;
}

// Piece by piece, so that little of the file is memory of this process at a time.
static trireme_status load_tensor(const struct safetensors *files, const struct safetensors_tensor *t,
                                  const struct parameter_values *values, size_t number, trireme_error *error) {
    enum { PIECE = 1 << 20 };
    void *piece = mem_alloc(MIN((uint64_t)PIECE, t->bytes) + 1);
    trireme_status status = TRIREME_OK;
    for (uint64_t done = 0; done < t->bytes && status == TRIREME_OK; done += PIECE) {
        const uint64_t now = MIN((uint64_t)PIECE, t->bytes - done);
        status = safetensors_read(files, t, done, now, piece, error);
        if (status == TRIREME_OK)
            values->put(values, number, done, now, piece);
    }
    free(piece);
    return status;
}

static trireme_status load_groups(const struct safetensors *files, const struct parameter_table *table,
                                  const struct state_group *group, size_t groups,
                                  const struct safetensors_tensor *const *tensor, trireme_error *error) {
    size_t parameters = table->parameters.count;
    for (size_t i = 0; i < groups * parameters; i++) {
        const struct parameter *p = &table->parameters.item[i % parameters];
        const struct parameter_values *values = &group[i / parameters].values;
        size_t all = (size_t)(parameter_count(p) * dtype_size(values->dtype));
        if (tensor[i] && values->begin(values, i % parameters, all))
            TRY(load_tensor(files, tensor[i], values, i % parameters, error));
    }
    return TRIREME_OK;
}

trireme_status state_files_load(const char *path, const struct parameter_table *table, const struct state_group *group,
                                size_t groups, trireme_error *error) {
    struct safetensors *files;
    TRY(open_state(path, &files, error));
    const struct safetensors_tensor **tensor = mem_alloc(groups * table->parameters.count * sizeof *tensor);
    bool *met = mem_alloc(files->tensor.count * sizeof *met);
    trireme_status status = match_groups(files, path, table, group, groups, tensor, met, error);
    if (status == TRIREME_OK)
        status = load_groups(files, table, group, groups, tensor, error);
    free(tensor);
    free(met);
    safetensors_close(files);
    return status;
}
