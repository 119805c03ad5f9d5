// A model's configuration as Hugging Face's config.json, both ways.
#include "base/json.h"
#include "model/layer.h"
#include "model/lora.h"
#include "model/rope_json.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <pthread.h>
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
    r->out->form = r->is->form;
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
    out->tie_word_embeddings = r->is->tied;
    TRY(json_read_number(r->root, r->where, "initializer_range", JSON_OPTIONAL, 0, 1, &out->initializer_range,
                         r->error));
    return json_read_boolean(r->root, r->where, "tie_word_embeddings", JSON_OPTIONAL, &out->tie_word_embeddings,
                             r->error);
}

// What Hugging Face's names of functions mean without a gate, and with one; -1: not supported.
static const struct activation_name {
    const char *name;
    int plain, gated; // enum activation
} ACTIVATION_NAMES[] = {{"silu", -1, ACTIVATION_SWIGLU},
                        {"swish", -1, ACTIVATION_SWIGLU},
                        {"gelu", ACTIVATION_GELU, ACTIVATION_GEGLU},
                        {"gelu_new", ACTIVATION_GELU_TANH, ACTIVATION_GEGLU_TANH},
                        {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH, ACTIVATION_GEGLU_TANH},
                        {"gelu_fast", ACTIVATION_GELU_TANH, ACTIVATION_GEGLU_TANH}};

static int activation_of(const struct activation_name *name, const struct architecture_info *is) {
    const int activation = is->form.plain ? name->plain : name->gated;
    return is->tanh_always && activation == ACTIVATION_GEGLU ? ACTIVATION_GEGLU_TANH : activation;
}

static trireme_status read_activation(const struct model_reader *r, const char *key, const char *name) {
    char excerpt[JSON_EXCERPT_BYTES];
    struct text known = {0};
    TRY(json_read_string(r->root, r->where, key, JSON_OPTIONAL, &name, r->error));
    for (size_t i = 0; i < ARRAY_LENGTH(ACTIVATION_NAMES); i++) {
        const int activation = activation_of(&ACTIVATION_NAMES[i], r->is);
        if (activation < 0)
            continue;
        if (strcmp(name, ACTIVATION_NAMES[i].name) == 0) {
            r->out->activation = (enum activation)activation;
            text_release(&known);
            return TRIREME_OK;
        }
        text_add(&known, "%s\"%s\"", known.length ? ", " : "", ACTIVATION_NAMES[i].name);
    }
    error_set(r->error, TRIREME_ERROR_USAGE, "%s: \"%s\": %s is not supported; supported are %s", r->where, key,
              json_excerpt(name, excerpt), known.text);
    text_release(&known);
    return TRIREME_ERROR_USAGE;
}

// The name that both versions of transformers know.
static const char *activation_name(enum activation activation) {
    static const char *const NAMES[] = {[ACTIVATION_GELU] = "gelu",
                                        [ACTIVATION_GELU_TANH] = "gelu_new",
                                        [ACTIVATION_SWIGLU] = "silu",
                                        [ACTIVATION_GEGLU] = "gelu",
                                        [ACTIVATION_GEGLU_TANH] = "gelu_pytorch_tanh"};
    return NAMES[activation];
}

static trireme_status read_gpt2(const struct model_reader *r) {
    struct model_config *out = r->out;
    out->bias = true;
    TRY(read_common(r));
    TRY(reader_extent(r, "n_layer", JSON_REQUIRED, &out->num_hidden_layers));
    TRY(reader_extent(r, "n_embd", JSON_REQUIRED, &out->hidden_size));
    TRY(reader_extent(r, "n_head", JSON_REQUIRED, &out->num_attention_heads));
    TRY(reader_extent(r, "n_positions", JSON_REQUIRED, &out->max_position_embeddings));
    out->intermediate_size = 4 * out->hidden_size;
    TRY(reader_extent(r, "n_inner", JSON_OPTIONAL, &out->intermediate_size));
    out->num_key_value_heads = out->num_attention_heads;
    out->head_dim = out->hidden_size / out->num_attention_heads;

    TRY(read_activation(r, "activation_function", "gelu_new"));
    out->norm_eps = 1e-5;
    TRY(json_read_number(r->root, r->where, "layer_norm_epsilon", JSON_OPTIONAL, DBL_MIN, 1, &out->norm_eps, r->error));
    TRY(read_fixed(r, "scale_attn_weights", true, "attention is scaled by the root of head_dim"));
    TRY(read_fixed(r, "scale_attn_by_inverse_layer_idx", false, "attention is scaled by the root of head_dim"));
    TRY(read_fixed(r, "add_cross_attention", false, "models have decoders only"));
    // Our own member: for nanoGPT's models without biases, which `transformers` opens with biases of zero.
    TRY(json_read_boolean(r->root, r->where, "bias", JSON_OPTIONAL, &out->bias, r->error));
    return read_special_tokens(r);
}

// ---- what is kept of a file

// Members that are written by other members, or mean something only to the file that they stood in: they are not kept.
static const char *const REPLACED[] = {"architectures",
                                       "model_type",
                                       "torch_dtype",
                                       "dtype",
                                       "rope_parameters",
                                       "rope_scaling",
                                       "rope_theta",
                                       "rotary_emb_base",
                                       "rotary_pct",
                                       "head_dim",
                                       "partial_rotary_factor",
                                       "original_max_position_embeddings",
                                       "rope_local_base_freq",
                                       "hidden_act",
                                       "hidden_activation",
                                       "activation_function",
                                       "no_rope_layers",
                                       "no_rope_layer_interval",
                                       "layer_rope_theta",
                                       "attention_bias",
                                       "mlp_bias",
                                       "use_qkv_bias",
                                       "bias",
                                       "num_key_value_heads",
                                       "n_inner",
                                       "attn_implementation",
                                       "_attn_implementation",
                                       "_name_or_path",
                                       "text_config",
                                       "auto_map",
                                       "quantization_config"};

// Texts that live as long as the process, each once.
static struct {
    pthread_mutex_t lock;
    VEC(char *) item;
} kept_texts = {.lock = PTHREAD_MUTEX_INITIALIZER};

const char *reader_keep(struct text *text) {
    const char *kept = NULL;
    pthread_mutex_lock(&kept_texts.lock);
    for (size_t i = 0; i < kept_texts.item.count && !kept; i++)
        if (strcmp(kept_texts.item.item[i], text->text) == 0)
            kept = kept_texts.item.item[i];
    if (kept)
        text_release(text);
    else {
        kept = text->text;
        VEC_PUSH(&kept_texts.item, text->text);
        *text = (struct text){0};
    }
    pthread_mutex_unlock(&kept_texts.lock);
    return kept;
}

static const char *others_keep(const json_t *root) {
    json_t *others = json_copy((json_t *)root);
    for (size_t i = 0; i < ARRAY_LENGTH(REPLACED); i++)
        json_object_del(others, REPLACED[i]);
    for (int i = 0; i < MODEL_PARTS; i++)
        for (const char *const *member = model_parts[i]->members; member && *member; member++)
            json_object_del(others, *member);
    struct text text = {0};
    json_print(&text, others);
    json_decref(others);
    return reader_keep(&text);
}

// What layers have that gives them their kinds.
static trireme_status read_parts(const struct model_reader *r) {
    for (int i = 0; i < MODEL_PARTS; i++)
        if (model_parts[i]->read)
            TRY(model_parts[i]->read(r));
    return TRIREME_OK;
}

// Qwen2 has its biases, and Mistral none, whatever the file says.
static trireme_status read_biases(const struct model_reader *r) {
    const struct architecture_info *is = r->is;
    struct model_config *out = r->out;
    const bool both = is->biases == BIASES_SWITCHED || is->biases == BIASES_DEFAULT;
    out->attention_bias = is->biases == BIASES_QKV || is->biases == BIASES_DEFAULT;
    if (both || is->biases == BIASES_QKV_SWITCHED)
        TRY(json_read_boolean(r->root, r->where, both ? "attention_bias" : "use_qkv_bias", JSON_OPTIONAL,
                              &out->attention_bias, r->error));
    else if (is->form.norms != NORM_BEFORE)
        TRY(read_fixed(r, "attention_bias", false, "published models have none"));
    out->attention_output_bias = both && out->attention_bias;
    out->mlp_bias = is->mlp_biases == MLP_BIASES_ALWAYS;
    if (is->mlp_biases == MLP_BIASES_SWITCHED)
        TRY(json_read_boolean(r->root, r->where, "mlp_bias", JSON_OPTIONAL, &out->mlp_bias, r->error));
    return TRIREME_OK;
}

// A cap of null is none.
static trireme_status read_cap(const struct model_reader *r, const char *key, double fallback, double *out) {
    *out = json_is_null(json_object_get(r->root, key)) ? 0 : fallback;
    return json_read_number(r->root, r->where, key, JSON_OPTIONAL, DBL_MIN, 1e6, out, r->error);
}

static trireme_status read_caps(const struct model_reader *r) {
    struct model_config *out = r->out;
    if (!r->is->capped)
        return TRIREME_OK;
    out->attention_scalar = 256;
    TRY(json_read_number(r->root, r->where, "query_pre_attn_scalar", JSON_OPTIONAL, DBL_MIN, 1e6,
                         &out->attention_scalar, r->error));
    TRY(read_cap(r, "attn_logit_softcapping", r->is->attention_cap, &out->attention_cap));
    return read_cap(r, "final_logit_softcapping", r->is->logits_cap, &out->logits_cap);
}

static trireme_status read_qk_norm(const struct model_reader *r) {
    static const char KEY[] = "qk_layernorm";
    bool norms = false;
    if (!r->is->qk_norm_switched)
        TRY(read_fixed(r, KEY, false, "queries and keys have no LayerNorm"));
    else
        TRY(json_read_boolean(r->root, r->where, KEY, JSON_OPTIONAL, &norms, r->error));
    r->out->qk_norm = norms || !r->is->qk_norm_switched ? r->is->qk_norm : QK_NORM_NONE;
    return TRIREME_OK;
}

// Granite's factors, of which the others are not there.
static trireme_status read_multipliers(const struct model_reader *r) {
    static const char *const ONE[] = {"embedding_multiplier", "residual_multiplier", "logits_scaling"};
    if (!r->is->multiplied)
        return TRIREME_OK;
    r->out->attention_multiplier = 1;
    TRY(json_read_number(r->root, r->where, "attention_multiplier", JSON_OPTIONAL, DBL_MIN, 1e6,
                         &r->out->attention_multiplier, r->error));
    for (size_t i = 0; i < ARRAY_LENGTH(ONE); i++) {
        double factor = 1;
        TRY(json_read_number(r->root, r->where, ONE[i], JSON_OPTIONAL, DBL_MIN, 1e6, &factor, r->error));
        if (factor != 1)
            return error_set(r->error, TRIREME_ERROR_USAGE, "%s: \"%s\": %g is not supported: 1 is", r->where, ONE[i],
                             factor);
    }
    return TRIREME_OK;
}

static trireme_status read_extents(const struct model_reader *r) {
    struct model_config *out = r->out;
    TRY(reader_extent(r, "intermediate_size", JSON_REQUIRED, &out->intermediate_size));
    TRY(reader_extent(r, "num_attention_heads", JSON_REQUIRED, &out->num_attention_heads));
    // Null means one per query head. Where the member is absent, transformers has a default for each architecture,
    // which is right for the published models and likely a mistake in any other: the member must be there.
    out->num_key_value_heads = out->num_attention_heads;
    bool null = json_is_null(json_object_get(r->root, "num_key_value_heads"));
    if (!r->is->all_kv)
        TRY(reader_extent(r, "num_key_value_heads", r->is->needs_kv && !null ? JSON_REQUIRED : JSON_OPTIONAL,
                          &out->num_key_value_heads));
    return TRIREME_OK;
}

// Heads of layers with softmax attention, which stand in "attn"; if there are none, as many as others have. Without
// "intermediate_size" it is "hidden_ratio" times two thirds of the width, rounded up.
static trireme_status read_linear_extents(const struct model_reader *r) {
    enum { INNER_MULTIPLE = 256 };
    struct model_config *out = r->out;
    const json_t *attn = NULL;
    int64_t ratio = 4;
    TRY(reader_extent(r, "hidden_ratio", JSON_OPTIONAL, &ratio));
    if (ratio > out->hidden_size)
        return error_set(r->error, TRIREME_ERROR_USAGE, "%s: \"hidden_ratio\": %lld is out of range", r->where,
                         (long long)ratio);
    out->intermediate_size = round_up(out->hidden_size * ratio * 2 / 3, INNER_MULTIPLE);
    TRY(reader_extent(r, "intermediate_size", JSON_OPTIONAL, &out->intermediate_size));
    TRY(json_read_object(r->root, r->where, "attn", JSON_OPTIONAL, &attn, r->error));
    const struct model_reader from = {attn ?: r->root, r->where, r->error, out, r->is};
    out->num_attention_heads = 4;
    TRY(reader_extent(&from, "num_heads", attn ? JSON_REQUIRED : JSON_OPTIONAL, &out->num_attention_heads));
    out->num_key_value_heads = out->num_attention_heads;
    if (attn)
        TRY(reader_extent(&from, "num_kv_heads", JSON_OPTIONAL, &out->num_key_value_heads));
    return TRIREME_OK;
}

static trireme_status read_llama_family(const struct model_reader *r) {
    struct model_config *out = r->out;
    const struct architecture_info *is = r->is;
    out->bias = is->form.norm == NORM_LAYER;
    TRY(read_common(r));
    TRY(reader_extent(r, "num_hidden_layers", JSON_REQUIRED, &out->num_hidden_layers));
    TRY(reader_extent(r, "hidden_size", JSON_REQUIRED, &out->hidden_size));
    TRY(reader_extent(r, "max_position_embeddings", JSON_REQUIRED, &out->max_position_embeddings));
    TRY(is->linear ? read_linear_extents(r) : read_extents(r));
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
    TRY(read_activation(r, is->members.activation ?: "hidden_act", is->activation ?: "silu"));
    out->norm_eps = is->norm_eps > 0 ? is->norm_eps : 1e-6;
    TRY(json_read_number(r->root, r->where, is->members.norm_eps ?: "rms_norm_eps", JSON_OPTIONAL, DBL_MIN, 1,
                         &out->norm_eps, r->error));
    TRY(read_qk_norm(r));
    TRY(read_biases(r));
    TRY(read_caps(r));
    TRY(read_multipliers(r));
    out->attention_sinks = is->sinks;
    out->parallel_residual = is->parallel == PARALLEL_DEFAULT;
    if (is->parallel)
        TRY(json_read_boolean(r->root, r->where, "use_parallel_residual", JSON_OPTIONAL, &out->parallel_residual,
                              r->error));
    else
        TRY(read_fixed(r, "use_parallel_residual", false, "the MLP works on what attention makes"));
    TRY(read_fixed(r, "use_bidirectional_attention", false, "tokens attend to those before them"));
    TRY(rope_read(r));
    TRY(read_parts(r));
    return read_special_tokens(r);
}

// Reads a model alone, as `root` describes it.
static trireme_status read_model(struct model_config *out, const json_t *root, const char *where,
                                 trireme_error *error) {
    struct model_config config = {0};
    struct model_reader r = {.root = root, .where = where, .error = error, .out = &config};
    TRY(read_architecture(&r));
    TRY(config.family == FAMILY_GPT2 ? read_gpt2(&r) : read_llama_family(&r));
    trireme_status status = model_config_check(&config, error);
    if (status != TRIREME_OK)
        return error_prefix(error, status, "%s", where);
    config.others = others_keep(root);
    *out = config;
    return TRIREME_OK;
}

// The text model of one with images: "text_config", which leaves out what `transformers` takes as given, and the
// members beside it that are about text.
static json_t *wrapped_text(const json_t *root) {
    static const char *const BESIDE[] = {"bos_token_id", "eos_token_id", "pad_token_id", "tie_word_embeddings",
                                         "initializer_range"};
    const char *wrapper = json_string_value(json_object_get(root, "model_type"));
    json_t *text = json_deep_copy(json_object_get(root, "text_config"));
    for (size_t i = 0; i < ARRAY_LENGTH(BESIDE); i++)
        if (!json_object_get(text, BESIDE[i]) && json_object_get(root, BESIDE[i]))
            json_object_set(text, BESIDE[i], json_object_get(root, BESIDE[i]));
    for (size_t i = 0; i < ARCHITECTURE_COUNT && wrapper; i++) {
        const struct architecture_info *a = &architecture_table[i];
        if (!a->wrapper || strcmp(a->wrapper, wrapper) != 0)
            continue;
        json_t *defaults = json_loads(a->defaults, 0, NULL);
        json_object_update_missing(text, defaults);
        json_decref(defaults);
        if (!json_object_get(text, "model_type"))
            json_object_set_new(text, "model_type", json_string(a->model_type));
    }
    json_object_del(text, "architectures"); // which, where it is there, may be that of the whole
    return text;
}

static trireme_status read_root(struct model_config *out, const json_t *root, const char *where, trireme_error *error) {
    if (!json_is_object(json_object_get(root, "text_config")))
        return read_model(out, root, where, error);
    json_t *text = wrapped_text(root);
    char *inside = mem_printf("%s: \"text_config\"", where);
    trireme_status status = read_model(out, text, inside, error);
    free(inside);
    json_decref(text);
    return status;
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
    enum { ZIP_NAME = 30 }; // where the name of a zip's first file is
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
    char first[64] = "";
    FILE *file = fopen(path, "rb");
    size_t got = file ? fread(first, 1, sizeof first, file) : 0;
    if (file)
        fclose(file);
    if (got > ZIP_NAME && memcmp(first, "PK", 2) == 0 && memmem(first + ZIP_NAME, got - ZIP_NAME, ".npy", 4))
        FAIL(TRIREME_ERROR_USAGE,
             "%s is a NumPy archive: save its arrays as model.safetensors, named as the model's tensors are, beside a "
             "config.json",
             path);
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
    lora_dropout(path, out);
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
    return model_config_read_on(out, path, "", error);
}

// Reads a config.json, or that of a directory.
static trireme_status read_file(struct model_config *out, const char *path, trireme_error *error) {
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

trireme_status model_config_read_on(struct model_config *out, const char *path, const char *base,
                                    trireme_error *error) {
    if (!lora_is_directory(path))
        return read_file(out, path, error);
    struct lora_file adapters;
    TRY(lora_file_read(&adapters, path, base, error));
    char *own = mem_printf("%s/config.json", path), *where = mem_printf("%s/" LORA_CONFIG, path);
    const bool has_own = !file_missing(own);
    trireme_status status = has_own ? TRIREME_OK : lora_check_base(path, adapters.base, error);
    if (status == TRIREME_OK)
        status = read_file(out, has_own ? path : adapters.base, error);
    if (status == TRIREME_OK)
        status = lora_file_take(&adapters, where, out, error);
    lora_file_release(&adapters);
    free(where);
    free(own);
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
    json_object_set_new(root, "activation_function", json_string(activation_name(c->activation)));
    json_object_set_new(root, "layer_norm_epsilon", json_real(c->norm_eps));
    if (!c->bias)
        json_object_set_new(root, "bias", json_false());
    json_object_set_new(root, "attn_pdrop", json_real(0));
    json_object_set_new(root, "embd_pdrop", json_real(0));
    json_object_set_new(root, "resid_pdrop", json_real(0));
}

static void put_cap(json_t *root, const char *key, double cap) {
    json_object_set_new(root, key, cap > 0 ? json_real(cap) : json_null());
}

// transformers 5 wants a whole number where there may be one.
static json_t *scalar_json(double scalar) {
    return scalar == rint(scalar) ? json_integer((json_int_t)scalar) : json_real(scalar);
}

static void put_llama_family(json_t *root, const struct model_config *c, const struct architecture_info *is) {
    json_object_set_new(root, "num_hidden_layers", json_integer(c->num_hidden_layers));
    json_object_set_new(root, "hidden_size", json_integer(c->hidden_size));
    json_object_set_new(root, "intermediate_size", json_integer(c->intermediate_size));
    json_object_set_new(root, "max_position_embeddings", json_integer(c->max_position_embeddings));
    json_object_set_new(root, is->members.activation ?: "hidden_act",
                        json_string(is->linear ? is->activation : activation_name(c->activation)));
    json_object_set_new(root, is->members.norm_eps ?: "rms_norm_eps", json_real(c->norm_eps));
    if (!is->linear) { // whose softmax attention has members of its own
        json_object_set_new(root, "num_attention_heads", json_integer(c->num_attention_heads));
        json_object_set_new(root, "num_key_value_heads", json_integer(c->num_key_value_heads));
        json_object_set_new(root, "head_dim", json_integer(c->head_dim));
        json_object_set_new(root, "attention_dropout", json_real(0));
        rope_write(root, c, is);
    }
    if (is->biases == BIASES_SWITCHED || is->biases == BIASES_DEFAULT)
        json_object_set_new(root, "attention_bias", json_boolean(c->attention_bias));
    if (is->biases == BIASES_QKV_SWITCHED)
        json_object_set_new(root, "use_qkv_bias", json_boolean(c->attention_bias));
    if (is->mlp_biases == MLP_BIASES_SWITCHED)
        json_object_set_new(root, "mlp_bias", json_boolean(c->mlp_bias));
    if (is->parallel)
        json_object_set_new(root, "use_parallel_residual", json_boolean(c->parallel_residual));
    if (is->qk_norm_switched)
        json_object_set_new(root, "qk_layernorm", json_boolean(c->qk_norm != QK_NORM_NONE));
    if (is->capped) {
        json_object_set_new(root, "query_pre_attn_scalar", scalar_json(c->attention_scalar));
        put_cap(root, "attn_logit_softcapping", c->attention_cap);
        put_cap(root, "final_logit_softcapping", c->logits_cap);
    }
    if (is->multiplied)
        json_object_set_new(root, "attention_multiplier", json_real(c->attention_multiplier));
    for (int i = 0; i < MODEL_PARTS; i++)
        if (model_parts[i]->write)
            model_parts[i]->write(root, c, is);
}

static json_t *config_tree(const struct model_config *c, const char *torch_dtype) {
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
    return root;
}

void model_config_write(const struct model_config *c, const char *torch_dtype, struct text *out) {
    json_t *root = config_tree(c, torch_dtype), *others = c->others ? json_loads(c->others, 0, NULL) : NULL;
    if (c->family == FAMILY_GPT2) // which converters to other formats look for
        json_object_set_new(root, "n_ctx", json_integer(c->max_position_embeddings));
    if (others)
        json_object_update_missing(root, others);
    if (!json_object_get(root, "pad_token_id")) // some have a default that small vocabularies lack
        json_object_set_new(root, "pad_token_id", json_null());
    json_decref(others);
    json_print(out, root);
    json_decref(root);
}

void model_config_identify(const struct model_config *config, char hex[CHECKSUM_HEX]) {
    struct model_config same = *config;
    struct text text = {0};
    same.bos_token_id = same.eos_token_id = -1;
    same.more_eos = 0;
    json_t *root = config_tree(&same, "float32");
    json_print(&text, root);
    json_decref(root);
    checksum_of(text.text, text.length, hex);
    text_release(&text);
}
