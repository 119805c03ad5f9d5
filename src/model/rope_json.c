#include "model/rope_json.h"

#include <float.h>

// ---- members of scalings

// The members that a scaling has in "rope_scaling" and "rope_parameters": each a number of struct rope.
static const struct rope_member {
    const char *name;
    unsigned scalings, required; // sets of 1 << scaling
    size_t offset;
} MEMBERS[] = {
#define OF(scaling) (1u << ROPE_SCALING_##scaling)
#define MEMBER(member, scalings, required) \
    { #member, scalings, required, offsetof(struct rope, member) }
    MEMBER(factor, OF(LINEAR) | OF(DYNAMIC) | OF(LLAMA3) | OF(YARN) | OF(LONGROPE),
           OF(LINEAR) | OF(DYNAMIC) | OF(LLAMA3) | OF(YARN)),
    MEMBER(low_freq_factor, OF(LLAMA3), OF(LLAMA3)),
    MEMBER(high_freq_factor, OF(LLAMA3), OF(LLAMA3)),
    MEMBER(attention_factor, OF(YARN) | OF(LONGROPE), 0),
    MEMBER(beta_fast, OF(YARN), 0),
    MEMBER(beta_slow, OF(YARN), 0),
    MEMBER(mscale, OF(YARN), 0),
    MEMBER(mscale_all_dim, OF(YARN), 0),
#undef MEMBER
};

static bool scaling_has_original(enum rope_scaling scaling) {
    return (1u << scaling) & (OF(LLAMA3) | OF(YARN) | OF(LONGROPE));
}

static const char *const SCALINGS[] = {
    [ROPE_SCALING_NONE] = "default",    [ROPE_SCALING_LINEAR] = "linear", [ROPE_SCALING_LLAMA3] = "llama3",
    [ROPE_SCALING_DYNAMIC] = "dynamic", [ROPE_SCALING_YARN] = "yarn",     [ROPE_SCALING_LONGROPE] = "longrope"};

const char *rope_scaling_name(enum rope_scaling scaling) {
    return scaling == ROPE_SCALING_NONE ? "none" : SCALINGS[scaling];
}

static double *member_of(struct rope *rope, const struct rope_member *member) {
    return (double *)((char *)rope + member->offset);
}

// ---- reading

static const char FULL_TYPE[] = "full_attention", SLIDING_TYPE[] = "sliding_attention";

// Whether all that both say is equal; a type may be called "type" or "rope_type".
static bool same_rope(const json_t *a, const json_t *b) {
    const char *name;
    const json_t *value, *other;
    json_object_foreach((json_t *)a, name, value) {
        const bool is_type = strcmp(name, "type") == 0 || strcmp(name, "rope_type") == 0;
        other = json_object_get(b, name);
        if (!other && is_type)
            other = json_object_get(b, strcmp(name, "type") == 0 ? "rope_type" : "type");
        const bool numbers = json_is_number(value) && json_is_number(other);
        if (numbers   ? json_number_value(value) != json_number_value(other)
            : is_type ? !json_equal(value, other)
                      : other && !json_equal(value, other))
            return false;
    }
    return true;
}

// Microsoft's first configurations of Phi-3 call longrope "su" or "yarn".
static trireme_status read_type(const struct model_reader *r, const json_t *from, const char *where, bool required,
                                enum rope_scaling *out) {
    const char *type = NULL;
    TRY(json_read_string(from, where, "type", JSON_OPTIONAL, &type, r->error));
    TRY(json_read_string(from, where, "rope_type", type || !required ? JSON_OPTIONAL : JSON_REQUIRED, &type, r->error));
    type = type ? type : SCALINGS[ROPE_SCALING_NONE];
    if (r->is->original_apart && (strcmp(type, "su") == 0 || strcmp(type, "yarn") == 0))
        type = SCALINGS[ROPE_SCALING_LONGROPE];
    for (size_t i = 0; i < ARRAY_LENGTH(SCALINGS); i++)
        if (strcmp(type, SCALINGS[i]) == 0) {
            *out = (enum rope_scaling)i;
            return TRIREME_OK;
        }
    char excerpt[JSON_EXCERPT_BYTES];
    struct text known = {0};
    for (size_t i = 0; i < ARRAY_LENGTH(SCALINGS); i++)
        text_add(&known, "%s\"%s\"", i == 0 ? "" : i + 1 < ARRAY_LENGTH(SCALINGS) ? ", " : " and ", SCALINGS[i]);
    error_set(r->error, TRIREME_ERROR_USAGE, "%s: scaling of type %s is not supported; supported are %s", where,
              json_excerpt(type, excerpt), known.text);
    text_release(&known);
    return TRIREME_ERROR_USAGE;
}

static trireme_status read_factors(const struct model_reader *r, const json_t *from, const char *where, const char *key,
                                   double *out) {
    const json_t *list = NULL, *one;
    size_t i;
    TRY(json_read_array(from, where, key, JSON_REQUIRED, &list, r->error));
    const int64_t pairs = model_rotary_dim(r->out) / 2;
    if ((int64_t)json_array_size(list) != pairs)
        return error_set(r->error, TRIREME_ERROR_CORRUPT, "%s: \"%s\": has %zu factors for %lld pairs of features",
                         where, key, json_array_size(list), (long long)pairs);
    if (pairs > ROPE_PAIRS)
        return error_set(r->error, TRIREME_ERROR_USAGE, "%s: \"%s\": more than %d factors are not supported", where,
                         key, ROPE_PAIRS);
    json_array_foreach(list, i, one) {
        out[i] = json_number_value(one);
        if (!json_is_number(one) || !(out[i] > 0 && out[i] < 1e6)) {
            char excerpt[JSON_EXCERPT_BYTES];
            return error_set(r->error, TRIREME_ERROR_CORRUPT, "%s: \"%s\": expected a positive number, found %s", where,
                             key, json_excerpt_value(one, excerpt));
        }
    }
    return TRIREME_OK;
}

// The context of the first training: in the object, or beside it; both must agree.
static trireme_status read_original(const struct model_reader *r, const json_t *from, const char *where,
                                    struct rope *out) {
    static const char KEY[] = "original_max_position_embeddings";
    int64_t inside = 0, beside = 0;
    TRY(json_read_integer(r->root, r->where, KEY, JSON_OPTIONAL, 1, EXTENT_MAX, &beside, r->error));
    const bool llama3 = out->scaling == ROPE_SCALING_LLAMA3;
    TRY(json_read_integer(from, where, KEY, llama3 ? JSON_REQUIRED : JSON_OPTIONAL, 1, EXTENT_MAX, &inside, r->error));
    if (inside && beside && inside != beside)
        return error_set(r->error, TRIREME_ERROR_CORRUPT, "%s: has two unlike \"%s\"", r->where, KEY);
    out->original = inside ? inside : beside ? beside : r->is->original_apart ? 4096 : r->out->max_position_embeddings;
    return TRIREME_OK;
}

static trireme_status read_table(const struct model_reader *r, const json_t *from, const char *where, bool typed,
                                 struct rope *out) {
    TRY(json_read_number(from, where, "rope_theta", JSON_OPTIONAL, DBL_MIN, 1e12, &out->theta, r->error));
    double share = r->out->partial_rotary_factor > 0 ? r->out->partial_rotary_factor : 1;
    TRY(json_read_number(from, where, "partial_rotary_factor", JSON_OPTIONAL, DBL_MIN, 1, &share, r->error));
    if (share != 1 && r->is->rotary_share == 0)
        return error_set(r->error, TRIREME_ERROR_USAGE,
                         "%s: \"partial_rotary_factor\": %g is not supported: whole heads are rotated", where, share);
    r->out->partial_rotary_factor = share == 1 ? 0 : share;
    TRY(read_type(r, from, where, typed, &out->scaling));
    for (size_t i = 0; i < ARRAY_LENGTH(MEMBERS); i++) {
        const unsigned scaling = 1u << out->scaling;
        if (MEMBERS[i].scalings & scaling)
            TRY(json_read_number(from, where, MEMBERS[i].name,
                                 MEMBERS[i].required & scaling ? JSON_REQUIRED : JSON_OPTIONAL, DBL_MIN, 1e6,
                                 member_of(out, &MEMBERS[i]), r->error));
    }
    if (scaling_has_original(out->scaling))
        TRY(read_original(r, from, where, out));
    if (out->scaling == ROPE_SCALING_YARN) {
        bool truncate = true;
        TRY(json_read_boolean(from, where, "truncate", JSON_OPTIONAL, &truncate, r->error));
        out->untruncated = !truncate;
    }
    if (out->scaling == ROPE_SCALING_LONGROPE) {
        TRY(read_factors(r, from, where, "short_factor", out->short_factor));
        TRY(read_factors(r, from, where, "long_factor", out->long_factor));
    }
    return TRIREME_OK;
}

// Both spellings, where "rope_parameters" may have an object for each type of layer.
static trireme_status read_tables(const struct model_reader *r) {
    struct model_config *out = r->out;
    const json_t *scaling = NULL, *parameters = NULL, *sliding = NULL;
    TRY(json_read_object(r->root, r->where, "rope_scaling", JSON_OPTIONAL, &scaling, r->error));
    TRY(json_read_object(r->root, r->where, "rope_parameters", JSON_OPTIONAL, &parameters, r->error));
    if (scaling && json_object_size(scaling) == 0)
        scaling = NULL;
    char where[512], where_sliding[600];
    snprintf(where, sizeof where, "%s: \"%s\"", r->where, parameters ? "rope_parameters" : "rope_scaling");
    snprintf(where_sliding, sizeof where_sliding, "%s: \"%s\"", where, SLIDING_TYPE);
    if (json_object_get(parameters, FULL_TYPE) || json_object_get(parameters, SLIDING_TYPE)) {
        const json_t *full = NULL;
        TRY(json_read_object(parameters, where, SLIDING_TYPE, JSON_OPTIONAL, &sliding, r->error));
        TRY(json_read_object(parameters, where, FULL_TYPE, JSON_OPTIONAL, &full, r->error));
        if (!r->is->local_rope && full && sliding && !json_equal(full, sliding))
            return error_set(r->error, TRIREME_ERROR_USAGE,
                             "%s: rotary positions that differ between types of layers are not supported in %s", where,
                             r->is->name);
        parameters = full ? full : r->is->local_rope ? NULL : sliding;
    }
    if (scaling && parameters && !same_rope(scaling, parameters))
        return error_set(r->error, TRIREME_ERROR_CORRUPT,
                         "%s: has both \"rope_scaling\" and \"rope_parameters\", which differ", r->where);
    const json_t *from = parameters ? parameters : scaling;
    if (from)
        TRY(read_table(r, from, where, !parameters, &out->rope[0]));
    if (!r->is->local_rope || !sliding)
        return TRIREME_OK;
    TRY(read_table(r, sliding, where_sliding, false, &out->rope[1]));
    if (out->rope[1].scaling != ROPE_SCALING_NONE)
        return error_set(r->error, TRIREME_ERROR_USAGE, "%s: scaling is not supported there", where_sliding);
    return TRIREME_OK;
}

// "no_rope_layers" has a 0 for each layer without rotary positions; by default every fourth has none.
static trireme_status read_nope(const struct model_reader *r) {
    struct model_config *out = r->out;
    int64_t interval = 4;
    const json_t *list = NULL;
    const int64_t layers = out->num_hidden_layers;
    TRY(reader_extent(r, "no_rope_layer_interval", JSON_OPTIONAL, &interval));
    TRY(json_read_array(r->root, r->where, "no_rope_layers", JSON_OPTIONAL, &list, r->error));
    if (list && (int64_t)json_array_size(list) < layers)
        return error_set(r->error, TRIREME_ERROR_CORRUPT,
                         "%s: \"no_rope_layers\" lists %zu layers, \"num_hidden_layers\" says %lld", r->where,
                         json_array_size(list), (long long)layers);
    struct layer_kind *kind = mem_alloc((size_t)layers * sizeof *kind);
    for (int64_t i = 0; i < layers; i++) {
        const json_t *one = json_array_get(list, (size_t)i);
        const bool turned = list ? json_is_true(one) || json_integer_value(one) != 0 : (i + 1) % interval != 0;
        kind[i] = out->kind[0];
        kind[i].rope = turned ? 0 : NONE;
    }
    trireme_status status = model_layers_set(out, kind, layers, r->error);
    free(kind);
    return status == TRIREME_OK ? status : error_prefix(r->error, status, "%s", r->where);
}

// "layer_rope_theta", Granite's, where all layers turn alike.
static trireme_status check_thetas(const struct model_reader *r) {
    const json_t *list = NULL, *one;
    size_t i;
    TRY(json_read_array(r->root, r->where, "layer_rope_theta", JSON_OPTIONAL, &list, r->error));
    json_array_foreach(list, i, one) if (json_number_value(one) != r->out->rope[0].theta) return error_set(
        r->error, TRIREME_ERROR_USAGE, "%s: \"layer_rope_theta\": layers with another than the rest are not supported",
        r->where);
    return TRIREME_OK;
}

trireme_status rope_read(const struct model_reader *r) {
    struct model_config *out = r->out;
    const struct member_names *names = &r->is->members;
    const char *theta = names->theta ?: "rope_theta", *rotary_share = names->rotary_share ?: "partial_rotary_factor";
    out->rope[0].theta = r->is->theta > 0 ? r->is->theta : 10000;
    out->rope[1].theta = r->is->local_rope ? 10000 : 0;
    double share = r->is->rotary_share > 0 ? r->is->rotary_share : 1;
    TRY(json_read_number(r->root, r->where, theta, JSON_OPTIONAL, DBL_MIN, 1e12, &out->rope[0].theta, r->error));
    TRY(json_read_number(r->root, r->where, rotary_share, JSON_OPTIONAL, DBL_MIN, 1, &share, r->error));
    if (share != 1 && r->is->rotary_share == 0)
        return error_set(r->error, TRIREME_ERROR_USAGE, "%s: \"%s\": %g is not supported: whole heads are rotated",
                         r->where, rotary_share, share);
    out->partial_rotary_factor = share == 1 ? 0 : share;
    if (r->is->local_rope)
        TRY(json_read_number(r->root, r->where, "rope_local_base_freq", JSON_OPTIONAL, DBL_MIN, 1e12,
                             &out->rope[1].theta, r->error));
    TRY(read_tables(r));
    TRY(check_thetas(r));
    return r->is->nope && out->num_hidden_layers <= LAYERS_MAX ? read_nope(r) : TRIREME_OK;
}

// ---- writing

static json_t *scaling_json(const struct model_config *c, const struct architecture_info *is) {
    struct rope rope = c->rope[0];
    if (rope.scaling == ROPE_SCALING_NONE)
        return json_null();
    json_t *out = json_object();
    // Phi-3's code in transformers 4 wants exactly these three members.
    json_object_set_new(out, is->original_apart ? "type" : "rope_type", json_string(SCALINGS[rope.scaling]));
    for (size_t i = 0; i < ARRAY_LENGTH(MEMBERS); i++) {
        const double value = *member_of(&rope, &MEMBERS[i]);
        if ((MEMBERS[i].scalings & (1u << rope.scaling)) && value != 0)
            json_object_set_new(out, MEMBERS[i].name, json_real(value));
    }
    if (scaling_has_original(rope.scaling) && !is->original_apart)
        json_object_set_new(out, "original_max_position_embeddings", json_integer(rope.original));
    if (rope.untruncated)
        json_object_set_new(out, "truncate", json_false());
    if (rope.scaling != ROPE_SCALING_LONGROPE)
        return out;
    json_t *shorter = json_array(), *longer = json_array();
    for (int64_t i = 0; i < model_rotary_dim(c) / 2; i++) {
        json_array_append_new(shorter, json_real(rope.short_factor[i]));
        json_array_append_new(longer, json_real(rope.long_factor[i]));
    }
    json_object_set_new(out, "short_factor", shorter);
    json_object_set_new(out, "long_factor", longer);
    return out;
}

void rope_write(json_t *root, const struct model_config *c, const struct architecture_info *is) {
    const struct member_names *names = &is->members;
    json_object_set_new(root, names->theta ?: "rope_theta", json_real(c->rope[0].theta));
    json_object_set_new(root, "rope_scaling", scaling_json(c, is));
    if (is->original_apart && c->rope[0].original)
        json_object_set_new(root, "original_max_position_embeddings", json_integer(c->rope[0].original));
    if (is->rotary_share > 0)
        json_object_set_new(root, names->rotary_share ?: "partial_rotary_factor",
                            json_real(c->partial_rotary_factor > 0 ? c->partial_rotary_factor : 1));
    if (is->local_rope)
        json_object_set_new(root, "rope_local_base_freq", json_real(c->rope[1].theta));
    if (!is->nope)
        return;
    json_t *turned = json_array();
    for (int64_t i = 0; i < c->num_hidden_layers; i++)
        json_array_append_new(turned, json_integer(model_layer(c, i)->rope != NONE));
    json_object_set_new(root, "no_rope_layers", turned);
}

// ---- checking

trireme_status rope_check(const struct model_config *c, trireme_error *error) {
    const struct rope *r = &c->rope[0];
    for (int i = 0; i < ROPES; i++)
        if ((i == 0 || c->rope[i].theta != 0) && !(c->rope[i].theta >= 1 && c->rope[i].theta <= 1e12))
            FAIL(TRIREME_ERROR_USAGE, "%s %g is out of range: from 1 to 1e12",
                 i ? "rope_local_base_freq" : "rope_theta", c->rope[i].theta);
    if (model_rotary_dim(c) < 2 || model_rotary_dim(c) % 2 != 0)
        FAIL(
            TRIREME_ERROR_USAGE,
            "%lld elements of each head, of head_dim %lld, cannot be rotated: rotary embedding turns pairs of features",
            (long long)model_rotary_dim(c), (long long)c->head_dim);
    if (r->scaling == ROPE_SCALING_NONE)
        return TRIREME_OK;
    if (r->scaling != ROPE_SCALING_LONGROPE && !(r->factor >= 1 && r->factor <= 1e6))
        FAIL(TRIREME_ERROR_USAGE, "rope_scaling's factor %g is out of range: from 1 to 1e6", r->factor);
    if (r->scaling == ROPE_SCALING_LLAMA3 && !(r->low_freq_factor > 0 && r->low_freq_factor < r->high_freq_factor))
        FAIL(TRIREME_ERROR_USAGE, "rope_scaling's low_freq_factor %g must be above 0 and below its high_freq_factor %g",
             r->low_freq_factor, r->high_freq_factor);
    for (int64_t i = 0; i < model_rotary_dim(c) / 2 && r->scaling == ROPE_SCALING_LONGROPE; i++)
        if (i >= ROPE_PAIRS || !(r->short_factor[i] > 0) || !(r->long_factor[i] > 0))
            FAIL(TRIREME_ERROR_USAGE, "head_dim %lld has more pairs of features than rope_scaling has factors",
                 (long long)c->head_dim);
    if (r->scaling == ROPE_SCALING_DYNAMIC && model_rotary_dim(c) == 2)
        FAIL(TRIREME_ERROR_USAGE, "rope_scaling dynamic needs more than one pair of features");
    if ((r->scaling == ROPE_SCALING_YARN || r->scaling == ROPE_SCALING_LONGROPE) && r->original < 2)
        FAIL(TRIREME_ERROR_USAGE, "rope_scaling's original_max_position_embeddings %lld is out of range: at least 2",
             (long long)r->original);
    if (r->scaling == ROPE_SCALING_YARN && r->theta == 1)
        FAIL(TRIREME_ERROR_USAGE, "rope_scaling yarn needs a rope_theta above 1");
    return TRIREME_OK;
}
