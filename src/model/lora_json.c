// PEFT's adapter_config.json, both ways.
#include "model/layer.h"
#include "model/lora.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <sys/stat.h>

enum { LORA_FILE_LIMIT = 1 << 20 };

bool lora_is_directory(const char *path) {
    char *file = mem_printf("%s/" LORA_CONFIG, path);
    struct stat info;
    const bool is = stat(file, &info) == 0;
    free(file);
    return is;
}

trireme_status lora_check_base(const char *path, const char *base, trireme_error *error) {
    if (!base || !*base)
        FAIL(TRIREME_ERROR_USAGE,
             "%s/" LORA_CONFIG ": does not say which model it adapts: give its directory as lora.base_model", path);
    if (file_missing(base))
        FAIL(TRIREME_ERROR_USAGE,
             "%s/" LORA_CONFIG ": adapts %s, where there is nothing: give the model's directory as lora.base_model",
             path, base);
    return TRIREME_OK;
}

// Members that are read, or that matter only elsewhere: where adapters were made, and how.
static const char *const READ[] = {"peft_type",
                                   "base_model_name_or_path",
                                   "r",
                                   "lora_alpha",
                                   "use_rslora",
                                   "target_modules",
                                   "exclude_modules",
                                   "layers_to_transform",
                                   "rank_pattern",
                                   "alpha_pattern",
                                   "lora_dropout",
                                   "fan_in_fan_out",
                                   "init_lora_weights",
                                   "bias",
                                   "task_type",
                                   "auto_mapping",
                                   "revision",
                                   "inference_mode",
                                   "peft_version",
                                   "megatron_core",
                                   "loftq_config",
                                   "eva_config",
                                   "qalora_group_size",
                                   "runtime_config",
                                   "layers_pattern"};

static bool is_neutral(const json_t *value) {
    return json_is_null(value) || json_is_false(value) || (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0) ||
           (json_is_number(value) && json_number_value(value) == 0);
}

static trireme_status refuse_members(const json_t *root, const char *where, trireme_error *error) {
    const char *key;
    json_t *value;
    char excerpt[JSON_EXCERPT_BYTES];
    json_object_foreach((json_t *)root, key, value) {
        bool read = false;
        for (size_t i = 0; i < ARRAY_LENGTH(READ) && !read; i++)
            read = strcmp(key, READ[i]) == 0;
        if (!read && !is_neutral(value))
            FAIL(TRIREME_ERROR_USAGE, "%s: \"%.60s\": %s is not supported", where, key,
                 json_excerpt_value(value, excerpt));
    }
    return TRIREME_OK;
}

// A member whose only supported text is `only`.
static trireme_status expect_text(const json_t *root, const char *where, const char *key, const char *only,
                                  trireme_error *error) {
    const char *text = only;
    char excerpt[JSON_EXCERPT_BYTES];
    TRY(json_read_string(root, where, key, JSON_OPTIONAL, &text, error));
    if (strcmp(text, only) != 0)
        FAIL(TRIREME_ERROR_USAGE, "%s: \"%s\": %s is not supported: \"%s\" is", where, key, json_excerpt(text, excerpt),
             only);
    return TRIREME_OK;
}

// Ways to begin that change the base model's weights, too.
static trireme_status check_init(const json_t *root, const char *where, trireme_error *error) {
    static const char OTHERS[] = "gaussian eva orthogonal";
    const json_t *init = json_object_get(root, "init_lora_weights");
    char excerpt[JSON_EXCERPT_BYTES];
    if (json_is_string(init) && !text_lists(OTHERS, json_string_value(init)))
        FAIL(TRIREME_ERROR_USAGE, "%s: \"init_lora_weights\": %s is not supported", where,
             json_excerpt_value(init, excerpt));
    return TRIREME_OK;
}

// Members that choose: what they may be, lest what is not understood were passed over.
static trireme_status check_choice(const json_t *root, const char *where, trireme_error *error) {
    static const struct {
        const char *member;
        bool text, number, list, object;
    } MAY_BE[] = {{"target_modules", true, false, true, false},
                  {"exclude_modules", true, false, true, false},
                  {"layers_to_transform", false, true, true, false},
                  {"rank_pattern", false, false, false, true},
                  {"alpha_pattern", false, false, false, true}};
    char excerpt[JSON_EXCERPT_BYTES];
    for (size_t i = 0; i < ARRAY_LENGTH(MAY_BE); i++) {
        const json_t *value = json_object_get(root, MAY_BE[i].member);
        if (value && !json_is_null(value) && !(MAY_BE[i].text && json_is_string(value)) &&
            !(MAY_BE[i].number && json_is_integer(value)) && !(MAY_BE[i].list && json_is_array(value)) &&
            !(MAY_BE[i].object && json_is_object(value)))
            FAIL(TRIREME_ERROR_CORRUPT, "%s: \"%s\": %s is not what PEFT has there", where, MAY_BE[i].member,
                 json_excerpt_value(value, excerpt));
    }
    const json_t *targets = json_object_get(root, "target_modules");
    const json_t *layers = json_object_get(root, "layers_to_transform");
    if (json_is_string(targets) && layers && !is_neutral(layers))
        FAIL(TRIREME_ERROR_USAGE, "%s: \"layers_to_transform\": \"target_modules\" must be a list then", where);
    return TRIREME_OK;
}

static trireme_status read_targets(struct lora_file *out, const json_t *root, const char *where, trireme_error *error) {
    const json_t *targets = json_object_get(root, "target_modules"), *one;
    size_t i;
    struct text list = {0};
    if (json_is_string(targets)) {
        out->targets = mem_strdup(json_string_value(targets));
        out->expression = strcmp(out->targets, "all-linear") != 0;
        return TRIREME_OK;
    }
    if (!json_is_array(targets))
        FAIL(TRIREME_ERROR_USAGE, "%s: \"target_modules\": a list of names or a pattern is expected", where);
    json_array_foreach(targets, i, one) {
        if (!json_is_string(one) || strchr(json_string_value(one), ',') || !*json_string_value(one)) {
            text_release(&list);
            FAIL(TRIREME_ERROR_CORRUPT, "%s: \"target_modules\": expected names of layers", where);
        }
        text_add(&list, "%s%s", i ? "," : "", json_string_value(one));
    }
    out->targets = list.text ?: mem_strdup("");
    return TRIREME_OK;
}

static trireme_status read_file_tree(struct lora_file *out, const json_t *root, const char *where, const char *base,
                                     trireme_error *error) {
    TRY(expect_text(root, where, "peft_type", "LORA", error));
    TRY(expect_text(root, where, "bias", "none", error));
    TRY(check_init(root, where, error));
    TRY(refuse_members(root, where, error));
    TRY(json_read_integer(root, where, "r", JSON_REQUIRED, 1, LORA_RANK_MAX, &out->rank, error));
    TRY(json_read_number(root, where, "lora_alpha", JSON_REQUIRED, DBL_MIN, 1e6, &out->alpha, error));
    TRY(json_read_boolean(root, where, "use_rslora", JSON_OPTIONAL, &out->rslora, error));
    TRY(check_choice(root, where, error));
    TRY(read_targets(out, root, where, error));
    const json_t *named = json_object_get(root, "base_model_name_or_path");
    if (*base || !named || json_is_null(named))
        out->base = mem_strdup(base);
    else
        TRY(json_read_path(root, where, "base_model_name_or_path", &out->base, error));
    return TRIREME_OK;
}

trireme_status lora_file_parse(struct lora_file *out, const char *text, size_t length, const char *where,
                               const char *base, trireme_error *error) {
    json_t *root;
    *out = (struct lora_file){0};
    TRY(json_parse(text, length, where, &root, error));
    trireme_status status = json_is_object(root)
                                ? read_file_tree(out, root, where, base, error)
                                : error_set(error, TRIREME_ERROR_CORRUPT, "%s: expected an object", where);
    out->root = root;
    if (status != TRIREME_OK)
        lora_file_release(out);
    return status;
}

trireme_status lora_file_read(struct lora_file *out, const char *path, const char *base, trireme_error *error) {
    char *where = mem_printf("%s/" LORA_CONFIG, path), *text = NULL;
    size_t length;
    trireme_status status = file_read(where, LORA_FILE_LIMIT, &text, &length, error);
    if (status == TRIREME_OK)
        status = lora_file_parse(out, text, length, where, base, error);
    free(text);
    free(where);
    return status;
}

void lora_set_base(struct model_config *config, const char *path) {
    struct text base = {0};
    text_add(&base, "%s", path);
    config->lora.base = reader_keep(&base);
}

// "layers_pattern" says how the list of layers is called of which "layers_to_transform" has numbers.
static trireme_status check_layers_pattern(const json_t *root, const char *where, const struct model_config *config,
                                           bool numbered, trireme_error *error) {
    const json_t *pattern = json_object_get(root, "layers_pattern"), *one;
    const char *layers = architecture_names(config)->layers; // "layers."
    char excerpt[JSON_EXCERPT_BYTES];
    size_t i;
    json_t *list = json_is_array(pattern) ? json_copy((json_t *)pattern) : json_pack("[O]", pattern);
    bool same = !numbered || !pattern || is_neutral(pattern);
    json_array_foreach(list, i, one) same |= json_is_string(one) && json_string_length(one) + 1 == strlen(layers) &&
                                             strncmp(json_string_value(one), layers, json_string_length(one)) == 0;
    json_decref(list);
    if (!same)
        FAIL(TRIREME_ERROR_USAGE, "%s: \"layers_pattern\": %s: the layers of this model are called \"%.*s\"", where,
             json_excerpt_value(pattern, excerpt), (int)strlen(layers) - 1, layers);
    return TRIREME_OK;
}

trireme_status lora_file_take(const struct lora_file *file, const char *where, struct model_config *config,
                              trireme_error *error) {
    config->lora = (struct lora){.rank = file->rank, .alpha = file->alpha, .rslora = file->rslora};
    lora_set_base(config, file->base);
    const json_t *list[] = {json_object_get(file->root, "exclude_modules"),
                            json_object_get(file->root, "layers_to_transform"),
                            json_object_get(file->root, "rank_pattern"), json_object_get(file->root, "alpha_pattern")};
    for (size_t i = 0; i < ARRAY_LENGTH(list); i++)
        if (is_neutral(list[i]) && !json_is_integer(list[i])) // layer 0 is one
            list[i] = NULL;
    TRY(check_layers_pattern(file->root, where, config, list[1] != NULL, error));
    const struct lora_choice choice = {.targets = file->targets,
                                       .expression = file->expression,
                                       .exclude = list[0],
                                       .layers = list[1],
                                       .ranks = list[2],
                                       .alphas = list[3]};
    trireme_status status = lora_choose(config, &choice, error);
    return status == TRIREME_OK ? status : error_prefix(error, status, "%s: \"target_modules\"", where);
}

void lora_file_release(struct lora_file *file) {
    free(file->targets);
    free(file->base);
    json_decref(file->root);
    *file = (struct lora_file){0};
}

void lora_dropout(const char *path, struct text *out) {
    char *file = mem_printf("%s/" LORA_CONFIG, path);
    json_t *root = NULL;
    trireme_error none;
    if (lora_is_directory(path) && json_parse_file(file, LORA_FILE_LIMIT, &root, &none) == TRIREME_OK) {
        const double rate = json_number_value(json_object_get(root, "lora_dropout"));
        if (rate != 0)
            text_add(out, "%slora_dropout %g", out->length ? ", " : "", rate);
    }
    json_decref(root);
    free(file);
}

static void write_alpha(struct text *out, const char *key, double alpha) {
    if (alpha == rint(alpha))
        json_add_integer(out, key, (int64_t)alpha);
    else
        json_add_number(out, key, alpha);
}

// Ranks of the layers that have others, or alphas.
static void write_others(const struct lora *lora, const char *member, bool ranks, struct text *out) {
    json_begin_object(out, member);
    for (const char *line = lora->others; line && *line; line += strcspn(line, "\n") + 1) {
        char *name = mem_printf("%.*s", (int)strcspn(line, " "), line), *end;
        const int64_t rank = strtoll(line + strlen(name), &end, 10);
        const double alpha = strtod(end, NULL);
        if (ranks && rank != lora->rank)
            json_add_integer(out, name, rank);
        if (!ranks && alpha != lora->alpha)
            write_alpha(out, name, alpha);
        free(name);
    }
    json_end_object(out);
}

void lora_write(const struct model_config *config, struct text *out) {
    const struct lora *lora = &config->lora;
    json_begin_object(out, NULL);
    json_add_string(out, "peft_type", "LORA");
    json_add_string(out, "task_type", "CAUSAL_LM");
    if (lora->base && *lora->base)
        json_add_path(out, "base_model_name_or_path", lora->base);
    json_add_integer(out, "r", lora->rank);
    write_alpha(out, "lora_alpha", lora->alpha);
    json_add_boolean(out, "use_rslora", lora->rslora);
    json_add_number(out, "lora_dropout", 0);
    json_add_string(out, "bias", "none");
    json_add_boolean(out, "fan_in_fan_out", architecture_names(config)->transposed);
    json_begin_array(out, "target_modules");
    const char *name;
    for (const char *rest = lora->targets; true;) {
        const int length = lora_next(&rest, &name);
        if (length == 0)
            break;
        char *one = mem_printf("%.*s", length, name);
        json_add_string(out, NULL, one);
        free(one);
    }
    json_end_array(out);
    write_others(lora, "rank_pattern", true, out);
    write_others(lora, "alpha_pattern", false, out);
    json_end_object(out);
    text_add(out, "\n");
}
