#include "model/layers/layer_windows.h"

#include "base/amount.h"

static const char SLIDING[] = "sliding_attention", FULL[] = "full_attention";
static const char *const TYPES[] = {
    [LAYER_FULL] = FULL, [LAYER_SLIDING] = SLIDING, [LAYER_LINEAR] = "linear_attention"};

static bool slides(const struct model_config *c, int64_t layer) {
    return model_layer(c, layer)->sliding_window > 0;
}

static enum layer_type type_of(const struct layer_kind *kind) {
    return kind->mixer == MIXER_LINEAR_ATTENTION ? LAYER_LINEAR : kind->sliding_window > 0 ? LAYER_SLIDING : LAYER_FULL;
}

static enum layer_type type_at(const struct model_config *c, int64_t layer) {
    return type_of(model_layer(c, layer));
}

int64_t model_sliding_window(const struct model_config *c) {
    int64_t window = 0;
    for (int k = 0; k < model_layer_kinds(c); k++)
        window = MAX(window, c->kind[k].sliding_window);
    return window;
}

static bool types_are_mixed(const struct model_config *c) {
    for (int k = 1; k < model_layer_kinds(c); k++)
        if (type_of(&c->kind[k]) != type_of(&c->kind[0]))
            return true;
    return false;
}

// Whether some of the layers with softmax attention have a window, and some have none.
static bool windows_are_mixed(const struct model_config *c) {
    bool some[LAYER_LINEAR + 1] = {false};
    for (int k = 0; k < model_layer_kinds(c); k++)
        some[type_of(&c->kind[k])] = true;
    return some[LAYER_FULL] && some[LAYER_SLIDING];
}

// The layers from which on all have a window; their number if the last has none.
static int64_t first_sliding(const struct model_config *c) {
    int64_t layer = c->num_hidden_layers;
    while (layer > 0 && slides(c, layer - 1))
        layer--;
    return layer;
}

trireme_status windows_set(struct model_config *c, const enum layer_type *type, int64_t layers, int64_t window,
                           trireme_error *error) {
    struct layer_kind *kind = mem_alloc((size_t)layers * sizeof *kind);
    for (int64_t i = 0; i < layers; i++) {
        kind[i] = i < c->num_hidden_layers ? *model_layer(c, i) : c->kind[0];
        kind[i].mixer = type[i] == LAYER_LINEAR ? MIXER_LINEAR_ATTENTION : MIXER_ATTENTION;
        kind[i].sliding_window = type[i] == LAYER_SLIDING ? window : 0;
        if (c->rope[1].theta > 0)
            kind[i].rope = type[i] == LAYER_SLIDING;
    }
    trireme_status status = model_layers_set(c, kind, layers, error);
    free(kind);
    return status;
}

// ---- as text

// The number of layers after which the types repeat.
static int64_t windows_period(const struct model_config *c) {
    for (int64_t period = 1; period < c->num_hidden_layers; period++) {
        int64_t i = period;
        while (i < c->num_hidden_layers && type_at(c, i) == type_at(c, i - period))
            i++;
        if (i == c->num_hidden_layers)
            return period;
    }
    return c->num_hidden_layers;
}

void model_layer_types(const struct model_config *c, struct text *out) {
    const int64_t period = windows_period(c);
    for (int64_t i = 0, end; i < period; i = end) {
        for (end = i + 1; end < period && type_at(c, end) == type_at(c, i);)
            end++;
        if (i > 0)
            text_add(out, ", ");
        if (end - i > 1)
            text_add(out, "%lld ", (long long)(end - i));
        text_add(out, "%s", TYPES[type_at(c, i)]);
    }
}

void windows_describe(const struct model_config *c, struct text *out) {
    text_add(out, "sliding_window %lld", (long long)model_sliding_window(c));
    if (!types_are_mixed(c) && type_of(&c->kind[0]) != LAYER_LINEAR)
        return;
    text_add(out, ", layer_types \"");
    model_layer_types(c, out);
    text_add(out, "\"");
}

void windows_differ(const struct model_config *weights, const struct model_config *model,
                    struct model_difference *out) {
    int64_t theirs = model_sliding_window(weights), ours = model_sliding_window(model);
    if (theirs != ours) {
        out->name = "sliding_window";
        text_add(&out->theirs, "%lld", (long long)theirs);
        text_add(&out->ours, "%lld", (long long)ours);
        return;
    }
    bool same = true;
    for (int64_t i = 0; i < MIN(weights->num_hidden_layers, model->num_hidden_layers); i++)
        same = same && type_at(weights, i) == type_at(model, i);
    if (same)
        return;
    out->name = "layer_types";
    model_layer_types(weights, &out->theirs);
    model_layer_types(model, &out->ours);
}

trireme_status windows_check(const struct model_config *c, trireme_error *error) {
    int64_t window = model_sliding_window(c);
    for (int k = 0; k < model_layer_kinds(c); k++) {
        int64_t of_kind = c->kind[k].sliding_window;
        if (of_kind < 0 || of_kind > INT32_MAX)
            FAIL(TRIREME_ERROR_USAGE, "sliding_window %lld is out of range: from 1 to %d, or 0 for none",
                 (long long)of_kind, INT32_MAX);
        if (of_kind > 0 && of_kind != window)
            FAIL(TRIREME_ERROR_USAGE, "sliding_window %lld cannot be: other layers have one of %lld",
                 (long long)of_kind, (long long)window);
    }
    return TRIREME_OK;
}

// ---- config.json

const char *const windows_members[] = {
    "sliding_window",         "use_sliding_window",      "layer_types", "max_window_layers",
    "sliding_window_pattern", "_sliding_window_pattern", NULL};

bool windows_fit(const struct architecture_info *a, const struct model_config *c) {
    return (a->linear && !windows_are_mixed(c)) || a->window == WINDOW_SWITCHED || a->window == WINDOW_LISTED ||
           model_sliding_window(c) == 0 || (a->window == WINDOW_ALWAYS && !windows_are_mixed(c));
}

static trireme_status read_layer_types(const struct model_reader *r, const json_t *types, enum layer_type *out) {
    const size_t layers = (size_t)r->out->num_hidden_layers;
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *type = json_string_value(json_array_get(types, i));
        bool slide = type && strcmp(type, SLIDING) == 0;
        if (!slide && (!type || strcmp(type, FULL) != 0)) {
            char excerpt[JSON_EXCERPT_BYTES];
            return error_set(r->error, TRIREME_ERROR_USAGE,
                             "%s: \"layer_types\": %s is not supported; supported are \"%s\" and \"%s\"", r->where,
                             json_excerpt_value(json_array_get(types, i), excerpt), SLIDING, FULL);
        }
        if (i < layers)
            out[i] = slide ? LAYER_SLIDING : LAYER_FULL;
    }
    if (json_array_size(types) != layers)
        return error_set(r->error, TRIREME_ERROR_CORRUPT,
                         "%s: \"layer_types\" lists %s, \"num_hidden_layers\" says %zu", r->where,
                         counted((int64_t)json_array_size(types), "layer").text, layers);
    return TRIREME_OK;
}

// What config.json says of windows.
struct windows_json {
    int64_t window, full_layers; // 0: none; layers before the first that may have one
    int64_t period, without;     // of every so many layers the one of this number has none; 0: no such rule
    bool used;
    const json_t *types; // NULL: full_layers says which
};

static trireme_status windows_interpret(const struct model_reader *r, const struct windows_json *said,
                                        enum layer_type *type) {
    bool some = false;
    for (int64_t i = 0; i < r->out->num_hidden_layers; i++)
        type[i] = said->used && said->window && i >= said->full_layers &&
                          (said->period == 0 || i % said->period != said->without) &&
                          !(r->is->nope && model_layer(r->out, i)->rope != NONE)
                      ? LAYER_SLIDING
                      : LAYER_FULL;
    if (said->types)
        TRY(read_layer_types(r, said->types, type));
    for (int64_t i = 0; i < r->out->num_hidden_layers; i++)
        some = some || type[i] == LAYER_SLIDING;
    if (some && !said->used)
        return error_set(r->error, TRIREME_ERROR_CORRUPT,
                         "%s: \"layer_types\" has \"%s\", but \"use_sliding_window\" is not true", r->where, SLIDING);
    if (some && !said->window)
        return error_set(r->error, TRIREME_ERROR_CORRUPT,
                         "%s: \"layer_types\" has \"%s\", but \"sliding_window\" is null", r->where, SLIDING);
    trireme_status status = windows_set(r->out, type, r->out->num_hidden_layers, said->window, r->error);
    return status == TRIREME_OK ? status : error_prefix(r->error, status, "%s", r->where);
}

// Defaults are those of `transformers`, where an absent member does not mean the same as null.
trireme_status windows_read(const struct model_reader *r) {
    if (r->is->window == WINDOW_NONE || r->out->num_hidden_layers > LAYERS_MAX) // which model_config_check refuses
        return TRIREME_OK;
    const json_t *given = json_object_get(r->root, "sliding_window");
    const int64_t absent = r->is->window_absent ?: 4096;
    struct windows_json said = {.window = json_is_null(given) || absent < 0 ? 0 : absent,
                                .period = r->is->window_period,
                                .used = r->is->window != WINDOW_SWITCHED};
    TRY(reader_extent(r, "sliding_window", JSON_OPTIONAL, &said.window));
    if (r->is->window_period)
        TRY(reader_extent(r, "sliding_window_pattern", JSON_OPTIONAL, &said.period));
    said.without = r->is->window_first ? 0 : said.period - 1;
    if (r->is->window == WINDOW_SWITCHED) {
        said.full_layers = r->is->nope ? 0 : 28;
        TRY(json_read_boolean(r->root, r->where, "use_sliding_window", JSON_OPTIONAL, &said.used, r->error));
        TRY(json_read_integer(r->root, r->where, "max_window_layers", JSON_OPTIONAL, 0, EXTENT_MAX, &said.full_layers,
                              r->error));
    }
    if (r->is->window != WINDOW_ALWAYS)
        TRY(json_read_array(r->root, r->where, "layer_types", JSON_OPTIONAL, &said.types, r->error));
    enum layer_type *type = mem_alloc((size_t)r->out->num_hidden_layers * sizeof *type);
    trireme_status status = windows_interpret(r, &said, type);
    free(type);
    return status;
}

void windows_write(json_t *root, const struct model_config *c, const struct architecture_info *is) {
    const int64_t window = model_sliding_window(c);
    if (is->linear) // which says it otherwise
        return;
    if (is->window != WINDOW_NONE)
        json_object_set_new(root, "sliding_window", window ? json_integer(window) : json_null());
    if (is->window == WINDOW_SWITCHED) {
        json_object_set_new(root, "use_sliding_window", json_boolean(window != 0));
        if (!is->nope)
            json_object_set_new(root, "max_window_layers", json_integer(first_sliding(c)));
    }
    if (!windows_are_mixed(c) && !is->window_period && !(is->nope && window))
        return;
    json_t *types = json_array();
    for (int64_t i = 0; i < c->num_hidden_layers; i++)
        json_array_append_new(types, json_string(slides(c, i) ? SLIDING : FULL));
    json_object_set_new(root, "layer_types", types);
}

// ---- keys

// Reads the next of "5 sliding_attention, full_attention": sets its type and count, and moves *at behind it.
static bool next_types(const char **at, enum layer_type *type, int64_t *count) {
    const char *s = *at + strspn(*at, " ");
    *count = 1;
    if (*s >= '0' && *s <= '9') {
        char *end;
        *count = strtoll(s, &end, 10);
        s = end + strspn(end, " ");
    }
    size_t length = strcspn(s, ", ");
    size_t i = 0;
    while (i < ARRAY_LENGTH(TYPES) && !(length == strlen(TYPES[i]) && strncmp(s, TYPES[i], length) == 0))
        i++;
    if (i == ARRAY_LENGTH(TYPES))
        return false;
    *type = (enum layer_type)i;
    s += length + strspn(s + length, " ");
    if (*s && *s != ',')
        return false;
    *at = *s ? s + 1 : s;
    return *count > 0 && (!*s || **at);
}

// The types of `layers` layers: those listed, again and again.
static trireme_status read_types_key(const struct config *keys, int64_t layers, enum layer_type *out,
                                     trireme_error *error) {
    static const char *const KEY = "model.layer_types";
    int64_t listed = 0, count;
    enum layer_type type;
    for (const char *at = keys->model.layer_types; *at;) {
        if (!next_types(&at, &type, &count))
            return config_refuse(
                keys, KEY, error,
                "expected %s, %s and %s, with commas between them, each perhaps with a count before it", SLIDING, FULL,
                TYPES[LAYER_LINEAR]);
        if (count > layers - listed)
            return config_refuse(keys, KEY, error, "which are more than the model's %s", counted(layers, "layer").text);
        for (; count > 0; count--)
            out[listed++] = type;
    }
    for (int64_t i = listed; i < layers; i++)
        out[i] = out[i - listed];
    return TRIREME_OK;
}

// `set`: the key that says most, for messages.
static trireme_status windows_from_keys(struct model_config *c, const struct config *keys, const char *set,
                                        int64_t layers, enum layer_type *type, trireme_error *error) {
    const struct config_model *m = &keys->model;
    const bool none = model_sliding_window(c) == 0;
    int64_t window = m->sliding_window > 0 ? m->sliding_window : model_sliding_window(c);
    bool some = false;
    for (int64_t i = 0; i < layers; i++) {
        const enum layer_type was = i < c->num_hidden_layers ? type_at(c, i) : type_of(&c->kind[0]);
        const bool slide = m->max_window_layers > 0 ? i >= m->max_window_layers : none || was == LAYER_SLIDING;
        type[i] = was == LAYER_LINEAR ? was : slide ? LAYER_SLIDING : LAYER_FULL;
    }
    if (*m->layer_types)
        TRY(read_types_key(keys, layers, type, error));
    for (int64_t i = 0; i < layers; i++)
        some = some || type[i] == LAYER_SLIDING;
    if (some && window == 0)
        return config_refuse(keys, set, error, "but no model.sliding_window says how far a window reaches");
    if (!some && m->sliding_window > 0)
        return config_refuse(keys, "model.sliding_window", error, "but no layer has a window");
    trireme_error why;
    if (windows_set(c, type, layers, window, &why) != TRIREME_OK)
        return config_refuse(keys, set, error, "but %s", why.message);
    return TRIREME_OK;
}

trireme_status windows_override(struct model_config *c, const struct config *keys, trireme_error *error) {
    const struct config_model *m = &keys->model;
    const int64_t layers = m->num_hidden_layers > 0 ? m->num_hidden_layers : c->num_hidden_layers;
    const char *set = *m->layer_types            ? "model.layer_types"
                      : m->max_window_layers > 0 ? "model.max_window_layers"
                      : m->sliding_window > 0    ? "model.sliding_window"
                                                 : NULL;
    const bool which = *m->layer_types || m->max_window_layers > 0;
    if (layers != c->num_hidden_layers && types_are_mixed(c) && !which)
        return config_refuse(keys, "model.num_hidden_layers", error,
                             "but only some of the %lld layers that the model has otherwise have %s: "
                             "set model.layer_types, too",
                             (long long)c->num_hidden_layers,
                             windows_are_mixed(c) ? "a sliding window" : "linear attention");
    if (!set)
        return TRIREME_OK;
    if (c->family == FAMILY_GPT2)
        return config_refuse(keys, set, error, "which GPT-2 does not have");
    if (*m->layer_types && m->max_window_layers > 0)
        return config_refuse(keys, "model.max_window_layers", error, "but model.layer_types says it, too");
    if (m->max_window_layers > layers)
        return config_refuse(keys, "model.max_window_layers", error, "but the model has %s",
                             counted(layers, "layer").text);
    enum layer_type *type = mem_alloc((size_t)layers * sizeof *type);
    trireme_status status = windows_from_keys(c, keys, set, layers, type, error);
    free(type);
    return status;
}
