#include "ckpt/state_files.h"

#include "base/json.h"
#include "base/text.h"
#include "ckpt/convert.h"
#include "ckpt/output.h"
#include "ckpt/tensor_reader.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>

#define VERSION "1"

// The numbers of struct state_progress, by their keys in the metadata.
static const struct {
    const char *key;
    size_t offset;
    bool optional; // files of before may have none
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

// What the tensor of a parameter is: its rows without padding.
static struct image_source tensor_source(const struct parameter *p, size_t number) {
    return (struct image_source){.number = number, .rows = parameter_rows(p), .columns = p->dim[1]};
}

// ---- saving

trireme_status state_files_declare(struct image_set *set, const struct parameter_table *table, const char *name,
                                   enum dtype dtype, const bool *has, int group, trireme_error *error) {
    for (size_t i = 0; i < table->parameters.count; i++) {
        const struct parameter *p = &table->parameters.item[i];
        if (has && !has[i])
            continue;
        struct image_source what = tensor_source(p, i);
        what.group = group;
        what.size = (int)dtype_size(dtype);
        int64_t shape[2];
        tensor_shape(p, shape);
        char *full = mem_printf("%s.%s", name, p->name);
        trireme_status status = image_declare(set, full, convert_stored(dtype), p->ndim, shape, &what, error);
        free(full);
        TRY(status);
    }
    return TRIREME_OK;
}

#define PROGRESS_NAME STATE_FOLDER "/progress.json"
#define PROGRESS_FORMAT "trireme-progress"
enum { PROGRESS_BYTES_MAX = 1 << 24 };

bool state_files_own(const char *name) {
    return strcmp(name, STATE_NAME) == 0 || strncmp(name, STATE_FOLDER "/", strlen(STATE_FOLDER "/")) == 0;
}

trireme_status state_files_write_progress(const char *path, const struct state_progress *progress,
                                          trireme_error *error) {
    struct text t = {0};
    json_begin_object(&t, NULL);
    json_add_string(&t, "format", PROGRESS_FORMAT);
    json_add_integer(&t, "version", 1);
    for (size_t i = 0; i < ARRAY_LENGTH(counters); i++)
        json_add_integer(&t, counters[i].key, *(const int64_t *)((const char *)progress + counters[i].offset));
    if (isfinite(progress->val_loss))
        json_add_number(&t, "val_loss", progress->val_loss);
    if (isfinite(progress->best_val_loss))
        json_add_number(&t, "best_val_loss", progress->best_val_loss);
    json_add_integer(&t, "validations_in_vain", progress->validations_in_vain);
    json_add_string(&t, "config", progress->config);
    if (progress->data)
        json_add_string(&t, "trained_on", progress->data);
    if (progress->islands)
        json_add_string(&t, "islands", progress->islands);
    if (*progress->run)
        json_add_string(&t, "run", progress->run);
    json_end_object(&t);
    text_add(&t, "\n");
    trireme_status status = output_write(path, PROGRESS_NAME, t.text, t.length, error);
    text_release(&t);
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

// Whether the training state is in files as they were before there was a folder for them.
static bool state_is_old(const char *path) {
    char *old = mem_printf("%s/" STATE_NAME, path), *folder = mem_printf("%s/" STATE_FOLDER, path);
    const bool is = file_missing(folder) && !file_missing(old);
    free(old);
    free(folder);
    return is;
}

char *state_files_path(const char *path) {
    return mem_printf("%s/%s", path, state_is_old(path) ? STATE_NAME : STATE_STEM ".safetensors.index.json");
}

static trireme_status open_state(const char *path, struct safetensors **out, trireme_error *error) {
    char *file = state_files_path(path);
    struct safetensors *files;
    trireme_status status = safetensors_open(file, &files, error);
    free(file);
    TRY(status);
    status = state_is_old(path) ? check_version(files, path, error) : TRIREME_OK;
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

static trireme_status read_progress(const json_t *root, const char *path, struct state_progress *out,
                                    trireme_error *error) {
    const char *format = "", *config = "", *data = NULL, *islands = NULL, *run = "";
    int64_t version = 0;
    char shown[JSON_EXCERPT_BYTES];
    TRY(json_read_string(root, path, "format", JSON_REQUIRED, &format, error));
    if (strcmp(format, PROGRESS_FORMAT) != 0)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: \"format\" must be \"" PROGRESS_FORMAT "\", found %s", path,
             json_excerpt(format, shown));
    TRY(json_read_integer(root, path, "version", JSON_REQUIRED, 1, 1, &version, error));
    for (size_t i = 0; i < ARRAY_LENGTH(counters); i++)
        TRY(json_read_integer(root, path, counters[i].key, JSON_REQUIRED, 0, INT64_MAX,
                              (int64_t *)((char *)out + counters[i].offset), error));
    TRY(json_read_number(root, path, "val_loss", JSON_OPTIONAL, -INFINITY, INFINITY, &out->val_loss, error));
    TRY(json_read_number(root, path, "best_val_loss", JSON_OPTIONAL, -INFINITY, INFINITY, &out->best_val_loss, error));
    TRY(json_read_integer(root, path, "validations_in_vain", JSON_OPTIONAL, 0, INT64_MAX, &out->validations_in_vain,
                          error));
    TRY(json_read_string(root, path, "config", JSON_REQUIRED, &config, error));
    TRY(json_read_string(root, path, "trained_on", JSON_OPTIONAL, &data, error));
    TRY(json_read_string(root, path, "islands", JSON_OPTIONAL, &islands, error));
    TRY(json_read_string(root, path, "run", JSON_OPTIONAL, &run, error));
    snprintf(out->run, sizeof out->run, "%s", run);
    out->config = mem_strdup(config);
    out->data = data ? mem_strdup(data) : NULL;
    out->islands = islands ? mem_strdup(islands) : NULL;
    return TRIREME_OK;
}

static trireme_status old_progress(const char *path, struct state_progress *out, trireme_error *error) {
    struct safetensors *files;
    TRY(open_state(path, &files, error));
    struct state_progress progress = {.val_loss = NAN, .best_val_loss = NAN};
    trireme_status status = get_progress(files, path, &progress, error);
    if (status == TRIREME_OK)
        *out = progress;
    safetensors_close(files);
    return status;
}

trireme_status state_files_progress(const char *path, struct state_progress *out, trireme_error *error) {
    if (state_is_old(path))
        return old_progress(path, out, error);
    char *file = mem_printf("%s/" PROGRESS_NAME, path), *text = NULL;
    size_t length;
    json_t *root = NULL;
    struct state_progress progress = {.val_loss = NAN, .best_val_loss = NAN};
    trireme_status status = file_read(file, PROGRESS_BYTES_MAX, &text, &length, error);
    if (status == TRIREME_OK)
        status = json_parse(text, length, file, &root, error);
    if (status == TRIREME_OK)
        status = read_progress(root, file, &progress, error);
    if (status == TRIREME_OK)
        *out = progress;
    json_decref(root);
    free(text);
    free(file);
    return status;
}

void state_progress_release(struct state_progress *progress) {
    free(progress->config);
    free(progress->data);
    free(progress->islands);
    *progress = (struct state_progress){.val_loss = NAN, .best_val_loss = NAN};
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
                      "%s: the training state: tensor \"%s\" is missing: it was saved with another optimizer or dtype",
                      path, name);
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
                 "%s: the training state: tensor %s is unexpected: it was saved with another optimizer, dtype or model",
                 path, json_excerpt(files->tensor.item[i].name, excerpt));
    }
    return TRIREME_OK;
}

static trireme_status load_groups(struct safetensors *files, const struct parameter_table *table,
                                  const struct state_group *group, size_t groups,
                                  const struct safetensors_tensor *const *tensor, const struct checksum_watch *watch,
                                  trireme_error *error) {
    const size_t parameters = table->parameters.count;
    struct tensor_reader reader;
    trireme_status status = TRIREME_OK;
    tensor_reader_create(&reader, files, watch);
    for (size_t i = 0; i < groups * parameters && status == TRIREME_OK; i++) {
        if (!tensor[i])
            continue;
        const struct parameter *p = &table->parameters.item[i % parameters];
        const struct parameter_values *values = &group[i / parameters].values;
        const struct image_source source = tensor_source(p, i % parameters);
        reader.share = group[i / parameters].share;
        if (reader.share == 1)
            parameter_values_clear_padding(values, i % parameters, p);
        status = tensor_reader_take(&reader, tensor[i], &source, values, NULL, error);
    }
    tensor_reader_release(&reader);
    return status;
}

trireme_status state_files_load(const char *path, const struct parameter_table *table, const struct state_group *group,
                                size_t groups, const struct checksum_watch *watch, trireme_error *error) {
    struct safetensors *files;
    TRY(open_state(path, &files, error));
    const struct safetensors_tensor **tensor = mem_alloc(groups * table->parameters.count * sizeof *tensor);
    bool *met = mem_alloc(files->tensor.count * sizeof *met);
    trireme_status status = match_groups(files, path, table, group, groups, tensor, met, error);
    if (status == TRIREME_OK)
        status = load_groups(files, table, group, groups, tensor, watch, error);
    free(tensor);
    free(met);
    safetensors_close(files);
    return status;
}
