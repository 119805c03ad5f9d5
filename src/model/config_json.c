// A model's configuration as Hugging Face's config.json, both ways.
#include "base/json.h"
#include "model/layer.h"

#include <errno.h>
#include <float.h>
#include <sys/stat.h>

enum { CONFIG_FILE_LIMIT = 1 << 20 };

trireme_status reader_extent(const struct model_reader *r, const char *key, enum json_need need, int64_t *out) {
    return json_read_integer(r->root, r->where, key, need, 1, EXTENT_MAX, out, r->error);
}

// A switch of which only one value is implemented.
static trireme_status read_fixed(const struct model_reader *r, const char *key, bool fixed, const char *why) {
    bool value = fixed;
    TRY(json_read_boolean(r->root, r->where, key, JSON_OPTIONAL, &value, r->error));
    if (value != fixed)
        return error_set(r->error, TRIREME_ERROR_USAGE, "%s: \"%s\": %s is not supported: %s", r->where, key,
                         value ? "true" : "false", why);
    return TRIREME_OK;
}

// One id or a list of them, up to `most`. Ids that the vocabulary lacks are left out: they can never be met.
static trireme_status read_token_ids(const struct model_reader *r, const char *key, int64_t fallback, int most,
                                     int64_t *out, int *count) {
    const json_t *value = json_object_get(r->root, key);
    size_t given = json_is_array(value) ? json_array_size(value) : 1;
    *count = 0;
    for (size_t i = 0; i < given; i++) {
        const json_t *one = json_is_array(value) ? json_array_get(value, i) : value;
        char excerpt[JSON_EXCERPT_BYTES];
        if (one && !json_is_integer(one) && !json_is_null(one))
            return error_set(r->error, TRIREME_ERROR_CORRUPT, "%s: \"%s\": expected a token's number, found %s",
                             r->where, key, json_excerpt_value(one, excerpt));
        int64_t id = one ? (json_is_integer(one) ? json_integer_value(one) : -1) : fallback;
        if (id < 0 || id >= r->out->vocab_size)
            continue;
        if (*count == most)
            return error_set(r->error, TRIREME_ERROR_USAGE, "%s: \"%s\": more than %d are not supported", r->where, key,
                             most);
        out[(*count)++] = id;
    }
    return TRIREME_OK;
}

static trireme_status read_special_tokens(const struct model_reader *r) {
    struct model_config *out = r->out;
    int64_t bos = -1, eos[1 + EOS_MORE] = {-1};
    int begins, ends;
    TRY(read_token_ids(r, "bos_token_id", r->is->bos_token_id, 1, &bos, &begins));
    TRY(read_token_ids(r, "eos_token_id", r->is->eos_token_id, 1 + EOS_MORE, eos, &ends));
    out->bos_token_id = bos;
    out->eos_token_id = eos[0];
    out->more_eos = MAX(0, ends - 1);
    for (int i = 0; i < out->more_eos; i++)
        out->more_eos_token_id[i] = eos[i + 1];
    return TRIREME_OK;
}

static trireme_status refuse_architecture(const struct model_reader *r, const char *name) {
    char excerpt[JSON_EXCERPT_BYTES];
    struct text supported = {0};
    for (size_t i = 0; i < ARCHITECTURE_COUNT; i++)
        text_add(&supported, "%s%s", i ? ", " : "", architecture_table[i].name);
    error_set(r->error, TRIREME_ERROR_USAGE, "%s: architecture %s is not supported; supported are %s", r->where,
              json_excerpt(name, excerpt), supported.text);
    text_release(&supported);
    return TRIREME_ERROR_USAGE;
}

static trireme_status read_architecture(struct model_reader *r) {
    char excerpt[JSON_EXCERPT_BYTES];
    const char *type = NULL;
    const json_t *list = NULL;
    TRY(json_read_string(r->root, r->where, "model_type", JSON_OPTIONAL, &type, r->error));
    TRY(json_read_array(r->root, r->where, "architectures", JSON_OPTIONAL, &list, r->error));
    const char *name = json_string_value(json_array_get(list, 0));
    if (!name && !type)
        return error_set(r->error, TRIREME_ERROR_CORRUPT,
                         "%s: neither \"architectures\" nor \"model_type\" says what this is", r->where);
    r->is = architecture_find(name ? name : type, !name);
    if (!r->is)
        return refuse_architecture(r, name ? name : type);
    if (type && strcmp(type, r->is->model_type) != 0)
        return error_set(r->error, TRIREME_ERROR_CORRUPT, "%s: \"architectures\" says %s, but \"model_type\" says %s",
                         r->where, r->is->name, json_excerpt(type, excerpt));
    r->out->family = r->is->family;
    r->out->architecture = (enum architecture)(r->is - architecture_table);
    return TRIREME_OK;
}

static trireme_status read_common(const struct model_reader *r) {
    struct model_config *out = r->out;
    if (json_object_get(r->root, "quantization_config") &&
        !json_is_null(json_object_get(r->root, "quantization_config")))
        return error_set(r->error, TRIREME_ERROR_USAGE,
                         "%s: \"quantization_config\": quantised weights are not supported; take the unquantised model",
                         r->where);
    TRY(reader_extent(r, "vocab_size", JSON_REQUIRED, &out->vocab_size));
    out->padded_vocab_size = model_padded_vocab_size(out->vocab_size);
    out->initializer_range = 0.02;
    TRY(json_read_number(r->root, r->where, "initializer_range", JSON_OPTIONAL, 0, 1, &out->initializer_range,
                         r->error));
    return json_read_boolean(r->root, r->where, "tie_word_embeddings", JSON_OPTIONAL, &out->tie_word_embeddings,
                             r->error);
}

static trireme_status read_gpt2(const struct model_reader *r) {
    struct model_config *out = r->out;
    out->tie_word_embeddings = out->bias = true;
    TRY(read_common(r));
    TRY(reader_extent(r, "n_layer", JSON_REQUIRED, &out->num_hidden_layers));
    TRY(reader_extent(r, "n_embd", JSON_REQUIRED, &out->hidden_size));
    TRY(reader_extent(r, "n_head", JSON_REQUIRED, &out->num_attention_heads));
    TRY(reader_extent(r, "n_positions", JSON_REQUIRED, &out->max_position_embeddings));
    out->intermediate_size = 4 * out->hidden_size;
    TRY(reader_extent(r, "n_inner", JSON_OPTIONAL, &out->intermediate_size));
    out->num_key_value_heads = out->num_attention_heads;
    out->head_dim = out->hidden_size / out->num_attention_heads;

    const char *activation = "gelu_new";
    TRY(json_read_string(r->root, r->where, "activation_function", JSON_OPTIONAL, &activation, r->error));
    if (strcmp(activation, "gelu") == 0)
        out->activation = ACTIVATION_GELU;
    else if (strcmp(activation, "gelu_new") == 0 || strcmp(activation, "gelu_pytorch_tanh") == 0)
        out->activation = ACTIVATION_GELU_TANH;
    else {
        char excerpt[JSON_EXCERPT_BYTES];
        return error_set(
            r->error, TRIREME_ERROR_USAGE,
            "%s: \"activation_function\": %s is not supported; supported are \"gelu\" (exact), \"gelu_new\" and "
            "\"gelu_pytorch_tanh\"",
            r->where, json_excerpt(activation, excerpt));
    }
    out->norm_eps = 1e-5;
    TRY(json_read_number(r->root, r->where, "layer_norm_epsilon", JSON_OPTIONAL, DBL_MIN, 1, &out->norm_eps, r->error));
    TRY(read_fixed(r, "scale_attn_weights", true, "attention is scaled by the root of head_dim"));
    TRY(read_fixed(r, "scale_attn_by_inverse_layer_idx", false, "attention is scaled by the root of head_dim"));
    TRY(read_fixed(r, "add_cross_attention", false, "models have decoders only"));
    // Our own member: for nanoGPT's models without biases, which `transformers` opens with biases of zero.
    TRY(json_read_boolean(r->root, r->where, "bias", JSON_OPTIONAL, &out->bias, r->error));
    return read_special_tokens(r);
}

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

// transformers 4 writes "rope_theta" and "rope_scaling" side by side, 5 puts both into "rope_parameters".
static trireme_status read_rope(const struct model_reader *r) {
    struct model_config *out = r->out;
    const json_t *scaling = NULL, *parameters = NULL;
    out->rope_theta = 10000;
    TRY(json_read_number(r->root, r->where, "rope_theta", JSON_OPTIONAL, DBL_MIN, 1e12, &out->rope_theta, r->error));
    TRY(json_read_object(r->root, r->where, "rope_scaling", JSON_OPTIONAL, &scaling, r->error));
    TRY(json_read_object(r->root, r->where, "rope_parameters", JSON_OPTIONAL, &parameters, r->error));
    if (scaling && json_object_size(scaling) == 0)
        scaling = NULL;
    if (scaling && parameters && !same_rope(scaling, parameters))
        return error_set(r->error, TRIREME_ERROR_CORRUPT,
                         "%s: has both \"rope_scaling\" and \"rope_parameters\", which differ", r->where);
    double partial = 1;
    TRY(json_read_number(r->root, r->where, "partial_rotary_factor", JSON_OPTIONAL, 0, 1, &partial, r->error));
    const json_t *rope = parameters ? parameters : scaling;
    if (rope) {
        char where[512], excerpt[JSON_EXCERPT_BYTES];
        snprintf(where, sizeof where, "%s: \"%s\"", r->where, parameters ? "rope_parameters" : "rope_scaling");
        TRY(json_read_number(rope, where, "rope_theta", JSON_OPTIONAL, DBL_MIN, 1e12, &out->rope_theta, r->error));
        TRY(json_read_number(rope, where, "partial_rotary_factor", JSON_OPTIONAL, 0, 1, &partial, r->error));
        const char *type = NULL;
        TRY(json_read_string(rope, where, "type", JSON_OPTIONAL, &type, r->error));
        TRY(json_read_string(rope, where, "rope_type", type || parameters ? JSON_OPTIONAL : JSON_REQUIRED, &type,
                             r->error));
        type = type ? type : "default";
        if (strcmp(type, "linear") == 0)
            out->rope_scaling = ROPE_SCALING_LINEAR;
        else if (strcmp(type, "llama3") == 0)
            out->rope_scaling = ROPE_SCALING_LLAMA3;
        else if (strcmp(type, "default") != 0)
            return error_set(
                r->error, TRIREME_ERROR_USAGE,
                "%s: scaling of type %s is not supported; supported are \"default\", \"linear\" and \"llama3\"", where,
                json_excerpt(type, excerpt));
        if (out->rope_scaling != ROPE_SCALING_NONE)
            TRY(json_read_number(rope, where, "factor", JSON_REQUIRED, DBL_MIN, 1e6, &out->rope_factor, r->error));
        if (out->rope_scaling == ROPE_SCALING_LLAMA3) {
            TRY(json_read_number(rope, where, "low_freq_factor", JSON_REQUIRED, DBL_MIN, 1e6,
                                 &out->rope_low_freq_factor, r->error));
            TRY(json_read_number(rope, where, "high_freq_factor", JSON_REQUIRED, DBL_MIN, 1e6,
                                 &out->rope_high_freq_factor, r->error));
            TRY(json_read_integer(rope, where, "original_max_position_embeddings", JSON_REQUIRED, 1, EXTENT_MAX,
                                  &out->rope_original_max_position_embeddings, r->error));
            int64_t original = out->rope_original_max_position_embeddings;
            TRY(json_read_integer(r->root, r->where, "original_max_position_embeddings", JSON_OPTIONAL, 1, EXTENT_MAX,
                                  &original, r->error));
            if (original != out->rope_original_max_position_embeddings)
                return error_set(r->error, TRIREME_ERROR_CORRUPT,
                                 "%s: has two unlike \"original_max_position_embeddings\"", r->where);
        }
    }
    if (partial != 1)
        return error_set(r->error, TRIREME_ERROR_USAGE,
                         "%s: \"partial_rotary_factor\": %g is not supported: whole heads are rotated", r->where,
                         partial);
    return TRIREME_OK;
}

// What layers have that gives them their kinds.
static trireme_status read_parts(const struct model_reader *r) {
    for (int i = 0; i < MODEL_PARTS; i++)
        if (model_parts[i]->read)
            TRY(model_parts[i]->read(r));
    return TRIREME_OK;
}

static trireme_status read_llama_family(const struct model_reader *r) {
    struct model_config *out = r->out;
    const struct architecture_info *is = r->is;
    out->activation = ACTIVATION_SWIGLU;
    TRY(read_common(r));
    TRY(reader_extent(r, "num_hidden_layers", JSON_REQUIRED, &out->num_hidden_layers));
    TRY(reader_extent(r, "hidden_size", JSON_REQUIRED, &out->hidden_size));
    TRY(reader_extent(r, "intermediate_size", JSON_REQUIRED, &out->intermediate_size));
    TRY(reader_extent(r, "num_attention_heads", JSON_REQUIRED, &out->num_attention_heads));
    TRY(reader_extent(r, "max_position_embeddings", JSON_REQUIRED, &out->max_position_embeddings));

    // Null means one per query head. Where the member is absent, transformers has a default for each architecture,
    // which is right for the published models and likely a mistake in any other: the member must be there.
    out->num_key_value_heads = out->num_attention_heads;
    bool null = json_is_null(json_object_get(r->root, "num_key_value_heads"));
    TRY(reader_extent(r, "num_key_value_heads", is->needs_kv && !null ? JSON_REQUIRED : JSON_OPTIONAL,
                      &out->num_key_value_heads));
    out->head_dim = 0;
    TRY(reader_extent(r, "head_dim", is->needs_head_dim ? JSON_REQUIRED : JSON_OPTIONAL, &out->head_dim));
    if (out->head_dim == 0) {
        if (out->hidden_size % out->num_attention_heads != 0)
            return error_set(
                r->error, TRIREME_ERROR_USAGE,
                "%s: num_attention_heads %lld does not divide hidden_size %lld, and there is no \"head_dim\"", r->where,
                (long long)out->num_attention_heads, (long long)out->hidden_size);
        out->head_dim = out->hidden_size / out->num_attention_heads;
    }
    const char *activation = "silu";
    TRY(json_read_string(r->root, r->where, "hidden_act", JSON_OPTIONAL, &activation, r->error));
    if (strcmp(activation, "silu") != 0 && strcmp(activation, "swish") != 0) {
        char excerpt[JSON_EXCERPT_BYTES];
        return error_set(r->error, TRIREME_ERROR_USAGE,
                         "%s: \"hidden_act\": %s is not supported; supported is \"silu\"", r->where,
                         json_excerpt(activation, excerpt));
    }
    out->norm_eps = 1e-6;
    TRY(json_read_number(r->root, r->where, "rms_norm_eps", JSON_OPTIONAL, DBL_MIN, 1, &out->norm_eps, r->error));
    // Qwen2 has its biases, and Mistral none, whatever the file says.
    out->attention_bias = is->biases == BIASES_QKV;
    out->qk_norm = is->qk_norm;
    if (is->biases == BIASES_SWITCHED) {
        TRY(json_read_boolean(r->root, r->where, "attention_bias", JSON_OPTIONAL, &out->attention_bias, r->error));
        out->attention_output_bias = out->attention_bias;
    }
    if (is->mlp_bias)
        TRY(json_read_boolean(r->root, r->where, "mlp_bias", JSON_OPTIONAL, &out->mlp_bias, r->error));
    TRY(read_rope(r));
    TRY(read_parts(r));
    return read_special_tokens(r);
}

static trireme_status read_root(struct model_config *out, const json_t *root, const char *where, trireme_error *error) {
    struct model_config config = {0};
    struct model_reader r = {.root = root, .where = where, .error = error, .out = &config};
    TRY(read_architecture(&r));
    TRY(config.family == FAMILY_GPT2 ? read_gpt2(&r) : read_llama_family(&r));
    trireme_status status = model_config_check(&config, error);
    if (status != TRIREME_OK)
        return error_prefix(error, status, "%s", where);
    *out = config;
    return TRIREME_OK;
}

trireme_status model_config_parse(struct model_config *out, const char *text, size_t length, const char *where,
                                  trireme_error *error) {
    json_t *root;
    TRY(json_parse(text, length, where, &root, error));
    trireme_status status = read_root(out, root, where, error);
    json_decref(root);
    return status;
}

trireme_status model_refuse_weights(const char *path, trireme_error *error) {
    static const struct {
        size_t at;
        const char *bytes, *what;
    } KINDS[] = {
        {0, "GGUF", "a GGUF file (llama.cpp): give the model's directory in Hugging Face form"},
        {0, "PK\x03\x04",
         "a PyTorch checkpoint: save the model with transformers' save_pretrained, and give the "
         "directory"},
        {0, "\x80\x02", "a Python pickle: save the model with transformers' save_pretrained, and give the directory"},
        {8, "{\"", "a safetensors file: give the directory that holds it, with the model's config.json"},
    };
    char first[16] = "";
    FILE *file = fopen(path, "rb");
    size_t got = file ? fread(first, 1, sizeof first, file) : 0;
    if (file)
        fclose(file);
    for (size_t i = 0; i < ARRAY_LENGTH(KINDS); i++) {
        const size_t length = strlen(KINDS[i].bytes);
        if (KINDS[i].at + length <= got && memcmp(first + KINDS[i].at, KINDS[i].bytes, length) == 0)
            FAIL(TRIREME_ERROR_USAGE, "%s is %s", path, KINDS[i].what);
    }
    return TRIREME_OK;
}

void model_config_dropout(const char *path, struct text *out) {
    static const char *const NAMES[] = {"attn_pdrop",        "embd_pdrop",     "resid_pdrop",
                                        "attention_dropout", "hidden_dropout", "dropout"};
    struct stat info;
    char *file = mem_printf(stat(path, &info) == 0 && S_ISDIR(info.st_mode) ? "%s/config.json" : "%s", path);
    json_t *root = NULL;
    if (json_parse_file(file, CONFIG_FILE_LIMIT, &root, NULL) == TRIREME_OK)
        for (size_t i = 0; i < ARRAY_LENGTH(NAMES); i++) {
            const double rate = json_number_value(json_object_get(root, NAMES[i]));
            if (rate != 0)
                text_add(out, "%s%s %g", out->length ? ", " : "", NAMES[i], rate);
        }
    json_decref(root);
    free(file);
}

trireme_status model_config_read(struct model_config *out, const char *path, trireme_error *error) {
    struct stat info;
    bool there = stat(path, &info) == 0, directory = there && S_ISDIR(info.st_mode);
    if (!there && errno == ENOENT)
        FAIL(TRIREME_ERROR_USAGE, "%s: no such file or directory; a model of a hub is downloaded first", path);
    if (there && S_ISREG(info.st_mode))
        TRY(model_refuse_weights(path, error));
    char *file = mem_printf(directory ? "%s/config.json" : "%s", path);
    json_t *root = NULL;
    trireme_status status = TRIREME_OK;
    if (directory && file_missing(file))
        status = error_set(error, TRIREME_ERROR_USAGE,
                           "%s holds no config.json, so it is no model's directory; those of a run are in checkpoint/",
                           path);
    else
        status = json_parse_file(file, CONFIG_FILE_LIMIT, &root, error);
    if (status == TRIREME_OK)
        status = read_root(out, root, file, error);
    json_decref(root);
    free(file);
    return status;
}

// ---- writing

static void put_id(json_t *root, const char *key, int64_t id) {
    json_object_set_new(root, key, id < 0 ? json_null() : json_integer(id));
}

static void put_gpt2(json_t *root, const struct model_config *c) {
    json_object_set_new(root, "n_layer", json_integer(c->num_hidden_layers));
    json_object_set_new(root, "n_embd", json_integer(c->hidden_size));
    json_object_set_new(root, "n_head", json_integer(c->num_attention_heads));
    json_object_set_new(root, "n_inner", json_integer(c->intermediate_size));
    json_object_set_new(root, "n_positions", json_integer(c->max_position_embeddings));
    json_object_set_new(root, "activation_function",
                        json_string(c->activation == ACTIVATION_GELU ? "gelu" : "gelu_new"));
    json_object_set_new(root, "layer_norm_epsilon", json_real(c->norm_eps));
    if (!c->bias)
        json_object_set_new(root, "bias", json_false());
    json_object_set_new(root, "attn_pdrop", json_real(0));
    json_object_set_new(root, "embd_pdrop", json_real(0));
    json_object_set_new(root, "resid_pdrop", json_real(0));
}

static void put_rope(json_t *root, const struct model_config *c) {
    json_object_set_new(root, "rope_theta", json_real(c->rope_theta));
    if (c->rope_scaling == ROPE_SCALING_NONE) {
        json_object_set_new(root, "rope_scaling", json_null());
        return;
    }
    bool llama3 = c->rope_scaling == ROPE_SCALING_LLAMA3;
    json_t *scaling = json_object();
    json_object_set_new(scaling, "rope_type", json_string(llama3 ? "llama3" : "linear"));
    json_object_set_new(scaling, "factor", json_real(c->rope_factor));
    if (llama3) {
        json_object_set_new(scaling, "low_freq_factor", json_real(c->rope_low_freq_factor));
        json_object_set_new(scaling, "high_freq_factor", json_real(c->rope_high_freq_factor));
        json_object_set_new(scaling, "original_max_position_embeddings",
                            json_integer(c->rope_original_max_position_embeddings));
    }
    json_object_set_new(root, "rope_scaling", scaling);
}

static void put_llama_family(json_t *root, const struct model_config *c, const struct architecture_info *is) {
    json_object_set_new(root, "num_hidden_layers", json_integer(c->num_hidden_layers));
    json_object_set_new(root, "hidden_size", json_integer(c->hidden_size));
    json_object_set_new(root, "intermediate_size", json_integer(c->intermediate_size));
    json_object_set_new(root, "num_attention_heads", json_integer(c->num_attention_heads));
    json_object_set_new(root, "num_key_value_heads", json_integer(c->num_key_value_heads));
    json_object_set_new(root, "head_dim", json_integer(c->head_dim));
    json_object_set_new(root, "max_position_embeddings", json_integer(c->max_position_embeddings));
    json_object_set_new(root, "hidden_act", json_string("silu"));
    json_object_set_new(root, "rms_norm_eps", json_real(c->norm_eps));
    json_object_set_new(root, "attention_dropout", json_real(0));
    put_rope(root, c);
    if (is->biases == BIASES_SWITCHED)
        json_object_set_new(root, "attention_bias", json_boolean(c->attention_bias));
    if (is->mlp_bias)
        json_object_set_new(root, "mlp_bias", json_boolean(c->mlp_bias));
    for (int i = 0; i < MODEL_PARTS; i++)
        if (model_parts[i]->write)
            model_parts[i]->write(root, c, is);
}

void model_config_write(const struct model_config *c, const char *torch_dtype, struct text *out) {
    const struct architecture_info *is = architecture_of(c);
    CHECK(is != NULL);
    json_t *root = json_object(), *list = json_array();
    json_array_append_new(list, json_string(is->name));
    json_object_set_new(root, "architectures", list);
    json_object_set_new(root, "model_type", json_string(is->model_type));
    if (c->family == FAMILY_GPT2)
        put_gpt2(root, c);
    else
        put_llama_family(root, c, is);
    json_object_set_new(root, "vocab_size", json_integer(c->vocab_size));
    json_object_set_new(root, "tie_word_embeddings", json_boolean(c->tie_word_embeddings));
    json_object_set_new(root, "initializer_range", json_real(c->initializer_range));
    put_id(root, "bos_token_id", c->bos_token_id);
    put_id(root, "eos_token_id", c->eos_token_id);
    if (c->more_eos) {
        json_t *ids = json_array();
        json_array_append_new(ids, json_integer(c->eos_token_id));
        for (int i = 0; i < c->more_eos; i++)
            json_array_append_new(ids, json_integer(c->more_eos_token_id[i]));
        json_object_set_new(root, "eos_token_id", ids);
    }
    json_object_set_new(root, "torch_dtype", json_string(torch_dtype));
    json_object_set_new(root, "use_cache", json_true());
    json_print(out, root);
    json_decref(root);
}

void model_config_identify(const struct model_config *config, char hex[CHECKSUM_HEX]) {
    struct model_config same = *config;
    struct text text = {0};
    same.bos_token_id = same.eos_token_id = -1;
    same.more_eos = 0;
    model_config_write(&same, "float32", &text);
    checksum_of(text.text, text.length, hex);
    text_release(&text);
}
