#include "config/source.h"

#include <inttypes.h>

// More than any configuration that config_print writes: each text at its longest, every character an escape.
enum { FILE_MAX_BYTES = 16 << 20 };

static const struct key *key_known(const char *key) {
    const struct key *found = key_find_full(key);
    CHECK(found != NULL);
    return found;
}

const char *config_origin(const struct config *config, const char *key) {
    const char *origin = config->origin[key_known(key) - key_table];
    return origin ? origin : "default";
}

bool config_names_key(const char *name) {
    for (size_t i = 0; i < CONFIG_KEY_COUNT; i++)
        if (strcmp(key_table[i].name, name) == 0)
            return true;
    return key_find_full(name) != NULL;
}

bool config_is_set(const struct config *config, const char *key) {
    return config->origin[key_known(key) - key_table] != NULL;
}

// Gives keys that nobody has set the defaults that they have beside the values of others.
static void settle_defaults(struct config *config) {
    for (const struct key_default *d = key_defaults; d->name; d++) {
        const struct key *key = key_find(d->section, d->name);
        if (!config->origin[key - key_table])
            value_set_default(config, key);
    }
}

trireme_status config_set(struct config *config, const char *key, const char *value, const char *origin,
                          trireme_error *error) {
    const struct key *known = key_known(key);
    struct given given = {0};
    given_parse(&given, known->type, value);
    trireme_status status = value_set(config, known, origin, &given, error);
    given_release(&given);
    if (status != TRIREME_OK)
        return status;
    char **old = &config->origin[known - key_table], *copy = mem_strdup(origin); // which may be the old one
    free(*old);
    *old = copy;
    settle_defaults(config);
    return TRIREME_OK;
}

void config_forget(struct config *config, const char *key) {
    const struct key *known = key_known(key);
    char **origin = &config->origin[known - key_table];
    value_set_default(config, known);
    free(*origin);
    *origin = NULL;
    settle_defaults(config);
}

void config_print_value(struct text *out, const struct config *config, const char *key) {
    value_print(out, config, key_known(key));
}

void config_add_value(struct text *out, const char *name, const struct config *config, const char *key) {
    value_add_json(out, name, config, key_known(key));
}

trireme_status config_refuse(const struct config *config, const char *key, trireme_error *error, const char *format,
                             ...) {
    va_list args;
    va_start(args, format);
    char *reason = mem_vprintf(format, args);
    va_end(args);
    struct text value = {0};
    value_print(&value, config, key_known(key));
    char excerpt[KEY_EXCERPT];
    key_excerpt(value.text, excerpt);
    if (config_is_set(config, key))
        error_set(error, TRIREME_ERROR_USAGE, "%s: %s: given %s, %s", config_origin(config, key), key, excerpt, reason);
    else
        error_set(error, TRIREME_ERROR_USAGE, "%s: by default %s, %s", key, excerpt, reason);
    text_release(&value);
    free(reason);
    return TRIREME_ERROR_USAGE;
}

// ---- sections

static bool lists_key(const char *keys, const struct key *key) {
    char *full = mem_printf("%s.%s", key->section, key->name), *all = mem_printf("%s.*", key->section);
    const bool listed = text_lists(keys, full) || text_lists(keys, all);
    free(full);
    free(all);
    return listed;
}

trireme_status config_expect(const struct config *config, const char *keys, const char *reader, trireme_error *error) {
    for (size_t i = 0; i < CONFIG_KEY_COUNT; i++) {
        if (!config->origin[i] || lists_key(keys, &key_table[i]))
            continue;
        struct text taken = {0};
        for (const char *rest = keys; *rest; rest++)
            text_add_bytes(&taken, *rest == ' ' ? ", " : rest, *rest == ' ' ? 2 : 1);
        error_set(error, TRIREME_ERROR_USAGE, "%s: %s.%s: %s does not use this key; it takes %s", config->origin[i],
                  key_table[i].section, key_table[i].name, reader, taken.text);
        text_release(&taken);
        return TRIREME_ERROR_USAGE;
    }
    return TRIREME_OK;
}

bool config_sets_any(const struct config *config, const char *keys) {
    for (size_t i = 0; i < CONFIG_KEY_COUNT; i++)
        if (config->origin[i] && lists_key(keys, &key_table[i]))
            return true;
    return false;
}

// Whether the key was set to what it would not be by default.
static bool is_changed(const struct config *config, const struct key *key) {
    if (!config->origin[key - key_table])
        return false;
    struct config without;
    struct text set = {0}, initial = {0};
    config_copy(&without, config);
    value_set_default(&without, key);
    value_print(&set, config, key);
    value_print(&initial, &without, key);
    const bool changed = strcmp(set.text, initial.text) != 0;
    text_release(&set);
    text_release(&initial);
    config_release(&without);
    return changed;
}

static bool same_key(const struct key_condition *a, const struct key_condition *b) {
    return b->name && strcmp(a->section, b->section) == 0 && strcmp(a->name, b->name) == 0;
}

void config_without_effect(const struct config *config, struct text *out) {
    for (const struct key_condition *c = key_conditions, *next; c->name; c = next) {
        const struct key *key = key_find(c->section, c->name);
        bool holds = false;
        for (next = c; same_key(c, next); next++)
            holds |= value_condition_holds(config, next);
        if (holds || !is_changed(config, key))
            continue;
        text_add(out, "%s%s.%s ", out->length ? ", " : "", c->section, c->name);
        value_print(out, config, key);
        text_add(out, " (%s is ", c->of);
        config_print_value(out, config, c->of);
        text_add(out, ")");
    }
}

void config_compare(const struct config *a, const struct config *b,
                    void (*differs)(void *user, const char *section, const char *name, const char *a, const char *b),
                    void *user) {
    for (size_t i = 0; i < CONFIG_KEY_COUNT; i++) {
        struct text one = {0}, other = {0};
        value_print(&one, a, &key_table[i]);
        value_print(&other, b, &key_table[i]);
        if (strcmp(one.text, other.text) != 0)
            differs(user, key_table[i].section, key_table[i].name, one.text, other.text);
        text_release(&one);
        text_release(&other);
    }
}

struct differences {
    const char *sections;
    struct text *out;
};

static void differences_add(void *user, const char *section, const char *name, const char *now, const char *before) {
    const struct differences *d = user;
    if (text_lists(d->sections, section))
        text_add(d->out, "%s%s.%s %s (before: %s)", d->out->length ? ", " : "", section, name, now, before);
}

void config_differences(const struct config *config, const struct config *before, const char *sections,
                        struct text *out) {
    struct differences differences = {sections, out};
    config_compare(config, before, differences_add, &differences);
}

// ---- rules over several keys

static trireme_status check_model(const struct config *config, trireme_error *error) {
    const struct config_model *model = &config->model;
    if (*model->preset && *model->config)
        return config_refuse(config, "model.config", error,
                             "but model.preset (%s) names the model already: leave one of them out",
                             config_origin(config, "model.preset"));
    const char *source = *model->preset ? "model.preset" : "model.config";
    if (model->family != CONFIG_FAMILY_AUTO && (*model->preset || *model->config))
        return config_refuse(config, "model.family", error,
                             "but %s (%s) names the model already: leave one of them out", source,
                             config_origin(config, source));
    return TRIREME_OK;
}

static trireme_status check_batch(const struct config *config, trireme_error *error) {
    const struct config_training *training = &config->training;
    bool both = config_is_set(config, "training.global_batch_size") && training->micro_batch_size > 0;
    if (both && training->global_batch_size % training->micro_batch_size != 0)
        return config_refuse(config, "training.micro_batch_size", error,
                             "must divide training.global_batch_size, which is %" PRId64 " (%s)",
                             training->global_batch_size, config_origin(config, "training.global_batch_size"));
    return TRIREME_OK;
}

static trireme_status config_check_validation(const struct config *config, trireme_error *error) {
    const struct config_data *data = &config->data;
    if (*data->validation_path && data->split[1] > 0)
        return config_refuse(config, "data.split", error,
                             "sets a validation part apart, but data.validation_path (%s) names one already",
                             config_origin(config, "data.validation_path"));
    if (config->validation.freq > 0 && !*data->validation_path && data->split[1] == 0)
        return config_refuse(config, "validation.freq", error,
                             "but nothing is set apart to validate on: set data.split, as [0.9, 0.1], or "
                             "data.validation_path");
    return TRIREME_OK;
}

static trireme_status config_check_schedule(const struct config *config, trireme_error *error) {
    const struct config_lr_scheduler *s = &config->lr_scheduler;
    if (s->decay_steps > 0 && s->decay_steps < s->warmup_steps)
        return config_refuse(config, "lr_scheduler.decay_steps", error,
                             "must not be below lr_scheduler.warmup_steps, which is %" PRId64 " (%s)", s->warmup_steps,
                             config_origin(config, "lr_scheduler.warmup_steps"));
    return TRIREME_OK;
}

static trireme_status config_check(const struct config *config, trireme_error *error) {
    TRY(check_model(config, error));
    TRY(check_batch(config, error));
    TRY(config_check_schedule(config, error));
    return config_check_validation(config, error);
}

// ---- loading

static trireme_status read_all(struct config *config, const char *name, const char *yaml, size_t length,
                               const char *origin, const char *const *overrides, size_t count, trireme_error *error) {
    if (length > FILE_MAX_BYTES)
        FAIL(TRIREME_ERROR_USAGE, "%s: %zu bytes, a configuration has at most %d", name, length, FILE_MAX_BYTES);
    struct source_refusals refusals = {.count = 0};
    trireme_error whole;
    trireme_status status = source_read_yaml(config, name, yaml, length, &refusals, &whole);
    for (size_t i = 0; i < count && status == TRIREME_OK; i++)
        status = source_read_override(config, origin, overrides[i], &refusals, &whole);
    if (status != TRIREME_OK)
        source_note(&refusals, &whole);
    TRY(source_refuse(&refusals, error));
    settle_defaults(config);
    return config_check(config, error);
}

static trireme_status load_text(struct config *out, const char *name, const char *yaml, size_t length,
                                const char *origin, const char *const *overrides, size_t count, trireme_error *error) {
    struct config config = {0};
    for (size_t i = 0; i < CONFIG_KEY_COUNT; i++)
        value_set_default(&config, &key_table[i]);
    trireme_status status = read_all(&config, name, yaml, length, origin, overrides, count, error);
    if (status == TRIREME_OK)
        *out = config;
    else
        config_release(&config);
    return status;
}

trireme_status config_load_text(struct config *out, const char *name, const char *yaml, size_t length,
                                const char *const *overrides, size_t count, trireme_error *error) {
    return load_text(out, name, yaml, length, SOURCE_SETTINGS, overrides, count, error);
}

static trireme_status config_load_files(struct config *out, const char *path, const char *origin,
                                        const char *const *overrides, size_t count, trireme_error *error) {
    char *yaml = NULL;
    size_t length = 0;
    if (path)
        TRY(file_read_named(path, FILE_MAX_BYTES, &yaml, &length, error));
    trireme_status status = load_text(out, path ? path : "", yaml ? yaml : "", length, origin, overrides, count, error);
    free(yaml);
    return status;
}

trireme_status config_load(struct config *out, const char *path, const char *const *overrides, size_t count,
                           trireme_error *error) {
    return config_load_files(out, path, SOURCE_SETTINGS, overrides, count, error);
}

trireme_status config_load_arguments(struct config *out, const char *path, const char *own, int argc, char *const *argv,
                                     trireme_error *error) {
    struct source_overrides overrides = {.list = {0}};
    trireme_status status = source_read_arguments(&overrides, own, argc, argv, error);
    if (status == TRIREME_OK)
        status = config_load_files(out, path, SOURCE_ARGUMENTS, (const char *const *)overrides.list.item,
                                   overrides.list.count, error);
    for (size_t i = 0; i < overrides.list.count; i++)
        free(overrides.list.item[i]);
    VEC_RELEASE(&overrides.list);
    return status;
}

void config_copy(struct config *out, const struct config *config) {
    *out = *config;
    for (size_t i = 0; i < CONFIG_KEY_COUNT; i++) {
        if (key_table[i].type == KEY_TEXT)
            *value_text(out, &key_table[i]) = mem_strdup(*value_text(out, &key_table[i]));
        if (out->origin[i])
            out->origin[i] = mem_strdup(out->origin[i]);
    }
}

void config_release(struct config *config) {
    for (size_t i = 0; i < CONFIG_KEY_COUNT; i++) {
        if (key_table[i].type == KEY_TEXT)
            free(*value_text(config, &key_table[i]));
        free(config->origin[i]);
    }
    memset(config, 0, sizeof *config);
}
