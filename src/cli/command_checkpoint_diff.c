// trireme checkpoint diff A B: in what two checkpoints or models differ.
#include "base/json.h"
#include "base/parallel_for.h"
#include "ckpt/state_files.h"
#include "ckpt/tensor_difference.h"
#include "cli/command_checkpoint.h"
#include "cli/exit_code.h"
#include "run/checkpoint.h"

#include <math.h>

enum { MODEL_JSON_MOST = 1 << 20 };

// Two directories, and what is said about them.
struct diff {
    char *path[2];
    char *state[2]; // paths as for safetensors_open; NULL: there is none
    int hold[2];
    bool json;
    const char *part; // of which tensors or values are told
    size_t tensors, tensors_different, others;
    struct text out;
};

// ---- tensors

static void diff_show_progress(void *user, uint64_t done, uint64_t total) {
    const struct diff *d = user;
    progress_line("comparing the %s: %s of %s", d->part, amount((int64_t)done).text, amount((int64_t)total).text);
}

static const char *diff_type_text(const struct tensor_type *type, char buffer[SAFETENSORS_TYPE_TEXT]) {
    return safetensors_type_text(type->dtype, type->ndim, type->shape, buffer);
}

// Where an element stands, as [2, 0, 7].
static void diff_add_index(const struct tensor_type *type, int64_t element, struct text *out) {
    int64_t index[SAFETENSORS_DIMS];
    for (int i = type->ndim; i-- > 0;) {
        index[i] = element % type->shape[i];
        element /= type->shape[i];
    }
    text_add(out, "[");
    for (int i = 0; i < type->ndim; i++)
        text_add(out, "%s%lld", i ? ", " : "", (long long)index[i]);
    text_add(out, "]");
}

static void diff_print_values(const struct tensor_difference *t, struct text *out) {
    if (t->incomparable) {
        text_add(out, "; these dtypes cannot be compared");
        return;
    }
    text_add(out, "%s%lld of %lld values differ", t->dtype ? "; " : "", (long long)t->different,
             (long long)t->elements);
    if (!t->different || isnan(t->absolute))
        return;
    text_add(out, ", by up to %.3g (relative: %.3g); the first at ", t->absolute, t->relative);
    diff_add_index(&t->a, t->first, out);
    text_add(out, ": %.9g and %.9g", t->first_a, t->first_b);
}

static void diff_print_tensor(struct diff *d, const struct tensor_difference *t) {
    char a[SAFETENSORS_TYPE_TEXT], b[SAFETENSORS_TYPE_TEXT], name[JSON_EXCERPT_BYTES];
    struct text *out = &d->out;
    text_add(out, "%s %s: ", d->part, json_excerpt(t->name, name));
    if (t->only)
        text_add(out, "only in %s (%s)", d->path[t->only - 1], diff_type_text(t->only == 1 ? &t->a : &t->b, a));
    else if (t->shape || t->dtype)
        text_add(out, "%s and %s", diff_type_text(&t->a, a), diff_type_text(&t->b, b));
    if (!t->only && !t->shape)
        diff_print_values(t, out);
    text_add(out, "\n");
}

static void diff_add_tensor_json(struct diff *d, const struct tensor_difference *t) {
    char type[SAFETENSORS_TYPE_TEXT];
    struct text *out = &d->out;
    json_begin_object(out, NULL);
    json_add_string(out, "part", d->part);
    json_add_string(out, "name", t->name);
    json_add_string(out, "differs",
                    t->only == 1   ? "only_a"
                    : t->only == 2 ? "only_b"
                    : t->shape     ? "shape"
                    : t->dtype     ? "dtype"
                                   : "values");
    if (t->only != 2)
        json_add_string(out, "a", diff_type_text(&t->a, type));
    if (t->only != 1)
        json_add_string(out, "b", diff_type_text(&t->b, type));
    if (!t->only && !t->shape && !t->incomparable) {
        json_add_integer(out, "elements", t->elements);
        json_add_integer(out, "different", t->different);
        if (t->different) {
            json_add_number(out, "largest_absolute", t->absolute);
            json_add_number(out, "largest_relative", t->relative);
            json_add_integer(out, "first", t->first);
            json_add_number(out, "first_a", t->first_a);
            json_add_number(out, "first_b", t->first_b);
        }
    }
    json_end_object(out);
}

// Paths as for tensors_compare.
static trireme_status diff_tensors(struct diff *d, const char *part, const char *a, const char *b,
                                   trireme_error *error) {
    struct tensor_differences found;
    d->part = part;
    const trireme_status status = tensors_compare(a, b, usable_cores(), diff_show_progress, d, &found, error);
    progress_clear();
    TRY(status);
    d->tensors += found.tensors;
    d->tensors_different += found.count;
    for (size_t i = 0; i < found.count; i++)
        if (d->json)
            diff_add_tensor_json(d, &found.item[i]);
        else
            diff_print_tensor(d, &found.item[i]);
    tensor_differences_release(&found);
    return TRIREME_OK;
}

// ---- what is not in tensors

// One value that differs; NULL: it is not there.
static void diff_add_value(struct diff *d, const char *name, const char *a, const char *b) {
    d->others++;
    if (d->json) {
        json_begin_object(&d->out, NULL);
        json_add_string(&d->out, "part", d->part);
        json_add_string(&d->out, "name", name);
        if (a)
            json_add_string(&d->out, "a", a);
        if (b)
            json_add_string(&d->out, "b", b);
        json_end_object(&d->out);
        return;
    }
    text_add(&d->out, "%s %s: %s and %s\n", d->part, name, a ? a : "nothing", b ? b : "nothing");
}

static void diff_numbers(struct diff *d, const char *name, double a, double b) {
    char one[32], other[32];
    if (a == b || (isnan(a) && isnan(b)))
        return;
    snprintf(one, sizeof one, "%.15g", a);
    snprintf(other, sizeof other, "%.15g", b);
    diff_add_value(d, name, isnan(a) ? NULL : one, isnan(b) ? NULL : other);
}

static void diff_texts(struct diff *d, const char *name, const char *a, const char *b) {
    if (a && b ? strcmp(a, b) != 0 : a != b)
        diff_add_value(d, name, a, b);
}

static void diff_setting(void *user, const char *section, const char *name, const char *a, const char *b) {
    char *key = mem_printf("%s.%s", section, name);
    diff_add_value(user, key, *a ? a : "\"\"", *b ? b : "\"\"");
    free(key);
}

static void diff_settings(struct diff *d, const struct state_progress *a, const struct state_progress *b) {
    struct config config[2];
    const char *yaml[] = {a->config, b->config};
    bool read[2];
    d->part = "setting";
    for (int i = 0; i < 2; i++) {
        trireme_error ignored;
        read[i] = config_load_text(&config[i], d->path[i], yaml[i], strlen(yaml[i]), NULL, 0, &ignored) == TRIREME_OK;
    }
    if (read[0] && read[1])
        config_compare(&config[0], &config[1], diff_setting, d);
    else if (strcmp(a->config, b->config) != 0)
        diff_add_value(d, "all", "a configuration", "another, one of which cannot be read");
    for (int i = 0; i < 2; i++)
        if (read[i])
            config_release(&config[i]);
}

static void diff_both_progresses(struct diff *d, const struct state_progress *a, const struct state_progress *b) {
    const struct {
        const char *name;
        int64_t a, b;
    } counts[] = {{"step", a->step, b->step},
                  {"tokens", a->tokens, b->tokens},
                  {"updates", a->updates, b->updates},
                  {"skipped", a->skipped, b->skipped},
                  {"skipped_in_a_row", a->skipped_in_a_row, b->skipped_in_a_row},
                  {"data_step", a->data_step, b->data_step},
                  {"data_sample", a->data_sample, b->data_sample}};
    d->part = "progress";
    for (size_t i = 0; i < ARRAY_LENGTH(counts); i++)
        diff_numbers(d, counts[i].name, (double)counts[i].a, (double)counts[i].b);
    diff_numbers(d, "val_loss", a->val_loss, b->val_loss);
    diff_texts(d, "trained_on", a->data, b->data);
    diff_texts(d, "islands", a->islands, b->islands);
    diff_settings(d, a, b);
}

static trireme_status diff_progress(struct diff *d, trireme_error *error) {
    struct state_progress a, b;
    if (!d->state[0] || !d->state[1])
        return TRIREME_OK; // the tensors tell
    TRY(state_files_progress(d->path[0], &a, error));
    const trireme_status status = state_files_progress(d->path[1], &b, error);
    if (status == TRIREME_OK) {
        diff_both_progresses(d, &a, &b);
        state_progress_release(&b);
    }
    state_progress_release(&a);
    return status;
}

static void diff_add_member(struct diff *d, const char *key, const json_t *a, const json_t *b) {
    char one[JSON_EXCERPT_BYTES], other[JSON_EXCERPT_BYTES];
    if (a && b && json_equal(a, b))
        return;
    diff_add_value(d, key, a ? json_excerpt_value(a, one) : NULL, b ? json_excerpt_value(b, other) : NULL);
}

static trireme_status diff_model_config(struct diff *d, trireme_error *error) {
    json_t *root[2] = {NULL, NULL}, *value;
    const char *key;
    trireme_status status = TRIREME_OK;
    for (int i = 0; i < 2 && status == TRIREME_OK; i++) {
        char *path = mem_printf("%s/config.json", d->path[i]);
        status = json_parse_file(path, MODEL_JSON_MOST, &root[i], error);
        if (status == TRIREME_OK && !json_is_object(root[i]))
            status = error_set(error, TRIREME_ERROR_CORRUPT, "%s: holds no JSON object", path);
        free(path);
    }
    d->part = "config.json";
    if (status == TRIREME_OK) {
        json_object_foreach(root[0], key, value) {
            diff_add_member(d, key, value, json_object_get(root[1], key));
        }
        json_object_foreach(root[1], key, value) {
            if (!json_object_get(root[0], key))
                diff_add_member(d, key, NULL, value);
        }
    }
    json_decref(root[0]);
    json_decref(root[1]);
    return status;
}

// ---- all of it

static trireme_status diff_print(struct diff *d, trireme_error *error) {
    if (d->json) {
        json_begin_object(&d->out, NULL);
        json_begin_array(&d->out, "tensors");
    }
    TRY(diff_tensors(d, "model", d->path[0], d->path[1], error));
    TRY(diff_tensors(d, "state", d->state[0], d->state[1], error));
    if (d->json) {
        json_end_array(&d->out);
        json_begin_array(&d->out, "others");
    }
    TRY(diff_progress(d, error));
    TRY(diff_model_config(d, error));
    const bool equal = d->tensors_different + d->others == 0;
    if (d->json) {
        json_end_array(&d->out);
        json_add_integer(&d->out, "compared", (int64_t)d->tensors);
        json_add_boolean(&d->out, "equal", equal);
        json_end_object(&d->out);
        text_add(&d->out, "\n");
    } else if (equal) {
        text_add(&d->out, "equal: %s, progress and settings\n", counted((int64_t)d->tensors, "tensor").text);
    } else {
        text_add(&d->out, "%zu of %s and %s differ\n", d->tensors_different,
                 counted((int64_t)d->tensors, "tensor").text, counted((int64_t)d->others, "other value").text);
    }
    if (!equal)
        exit_code_instead(EXIT_DIFFERENT);
    return print_text(&d->out, error);
}

static char *diff_state_path(const char *directory) {
    char *path = state_files_path(directory);
    if (!file_missing(path))
        return path;
    free(path);
    return NULL;
}

trireme_status command_checkpoint_diff(const struct arguments *a, trireme_error *error) {
    TRY(arguments_expect(a, 3, 3, error));
    struct diff d = {.hold = {-1, -1}, .json = a->json};
    trireme_status status = TRIREME_OK;
    for (int i = 0; i < 2 && status == TRIREME_OK; i++)
        status = checkpoint_find(a->operands.item[i + 1], &d.path[i], &d.hold[i], error);
    for (int i = 0; i < 2 && status == TRIREME_OK; i++)
        d.state[i] = diff_state_path(d.path[i]);
    if (status == TRIREME_OK)
        status = diff_print(&d, error);
    text_release(&d.out);
    for (int i = 0; i < 2; i++) {
        directory_let_go(d.hold[i]);
        free(d.path[i]);
        free(d.state[i]);
    }
    return status;
}
