#include "convert/gguf_model.h"

#include "ckpt/model_files.h"
#include "convert/gguf_tokenizer.h"

#include <math.h>

enum { FILE_LIMIT_LAYERS = LISTED_LAYERS };

// What llama.cpp has of an architecture. Of the switches that are off, a model that has it is refused.
struct gguf_architecture {
    const char *name; // NULL: it has none of them
    bool pairs;       // the two elements that RoPE turns together lie side by side
    bool head_apart;  // the output head is always a tensor of its own
    bool head_tied;   // it is always the embedding
    bool wide_heads;  // heads need not be as wide as hidden_size / num_attention_heads
    bool output_bias, mlp_bias;
    int window_period; // every so manieth layer has no window; 0: windows are not known
    bool patterns;     // or as the file says
    bool slow_rope, long_rope;
    int no_rope_period; // every so manieth layer has no rotary positions
    int large_layers;   // with so many layers, scores are divided by the root of hidden_size / num_attention_heads
};

static const struct gguf_architecture ARCHITECTURES[ARCHITECTURE_COUNT] = {
    [ARCHITECTURE_GPT2] = {.name = "gpt2", .output_bias = true, .mlp_bias = true},
    [ARCHITECTURE_LLAMA] = {.name = "llama",
                            .pairs = true,
                            .wide_heads = true,
                            .output_bias = true,
                            .mlp_bias = true,
                            .slow_rope = true,
                            .long_rope = true},
    [ARCHITECTURE_MISTRAL] = {.name = "llama", .pairs = true, .wide_heads = true, .slow_rope = true, .long_rope = true},
    [ARCHITECTURE_MINISTRAL] =
        {.name = "llama", .pairs = true, .wide_heads = true, .slow_rope = true, .long_rope = true},
    [ARCHITECTURE_QWEN2] = {.name = "qwen2"},
    [ARCHITECTURE_QWEN3] = {.name = "qwen3", .wide_heads = true},
    [ARCHITECTURE_GEMMA] = {.name = "gemma", .head_tied = true, .wide_heads = true},
    [ARCHITECTURE_GEMMA2] =
        {.name = "gemma2", .head_tied = true, .wide_heads = true, .window_period = 2, .large_layers = 46},
    [ARCHITECTURE_GEMMA3] =
        {.name = "gemma3", .wide_heads = true, .window_period = 6, .patterns = true, .large_layers = 62},
    [ARCHITECTURE_PHI3] = {.name = "phi3", .long_rope = true},
    [ARCHITECTURE_OLMO2] = {.name = "olmo2", .head_apart = true},
    [ARCHITECTURE_NEOX] = {.name = "gptneox", .head_apart = true, .output_bias = true, .mlp_bias = true},
    [ARCHITECTURE_STABLELM] = {.name = "stablelm", .head_apart = true},
    [ARCHITECTURE_SMOLLM3] = {.name = "smollm3", .pairs = true, .wide_heads = true, .no_rope_period = 4},
};

struct gguf_values {
    float *value;
    size_t tensor, count;
};

struct gguf_model {
    const char *directory;
    struct model_config config;
    const struct gguf_architecture *architecture;
    struct gguf_file file;
    struct model_tensors tensors;
    struct conversion_tensors converted;
    VEC(struct gguf_values) values; // of tensors that no file has
    enum stored wanted;
};

// ---- what cannot be said

static trireme_status refuse(const struct gguf_model *m, const char *what, trireme_error *error) {
    FAIL(TRIREME_ERROR_USAGE, "%s: %s, which llama.cpp's \"%s\" has not", m->directory, what, m->architecture->name);
}

static trireme_status check_rope(const struct gguf_model *m, const struct rope *r, trireme_error *error) {
    const struct gguf_architecture *a = m->architecture;
    if (r->scaling == ROPE_SCALING_LLAMA3 && !a->slow_rope)
        return refuse(m, "rotary positions are scaled by llama3", error);
    if (r->scaling == ROPE_SCALING_LONGROPE && !a->long_rope)
        return refuse(m, "rotary positions are scaled by longrope", error);
    if (r->scaling == ROPE_SCALING_YARN && (r->attention_factor > 0 || r->mscale > 0 || r->untruncated))
        return refuse(m, "rotary positions are scaled by yarn with attention_factor, mscale or truncate", error);
    return TRIREME_OK;
}

static trireme_status check_layers(const struct gguf_model *m, trireme_error *error) {
    const struct model_config *c = &m->config;
    const struct gguf_architecture *a = m->architecture;
    for (int64_t i = 0; i < c->num_hidden_layers; i++) {
        const struct layer_kind *kind = model_layer(c, i);
        const bool turns = kind->rope != NONE;
        if (c->family == FAMILY_LLAMA && turns == (a->no_rope_period && (i + 1) % a->no_rope_period == 0))
            return refuse(m, turns ? "each layer has rotary positions" : "a layer has no rotary positions", error);
        if (a->window_period && !a->patterns && (kind->sliding_window > 0) != ((i + 1) % a->window_period != 0))
            return refuse(m, "layers with and without a window take turns in another way", error);
    }
    return TRIREME_OK;
}

static bool activation_fits(const struct model_config *c) {
    if (c->family == FAMILY_GPT2 || c->form.plain)
        return c->activation == ACTIVATION_GELU || c->activation == ACTIVATION_GELU_TANH;
    const bool gemma = c->form.norm == NORM_RMS_PLUS_ONE;
    return gemma ? c->activation == ACTIVATION_GEGLU_TANH : c->activation == ACTIVATION_SWIGLU;
}

static trireme_status check_model(const struct gguf_model *m, trireme_error *error) {
    const struct model_config *c = &m->config;
    const struct gguf_architecture *a = m->architecture;
    const int64_t width = c->hidden_size / c->num_attention_heads,
                  scalar = a->large_layers == c->num_hidden_layers ? width : c->head_dim;
    if (c->num_hidden_layers > FILE_LIMIT_LAYERS)
        return refuse(m, "there are more than 1024 layers", error);
    if (!a->wide_heads && c->head_dim != width)
        return refuse(m, "head_dim is not hidden_size / num_attention_heads", error);
    if (!c->tie_word_embeddings && a->head_tied)
        return refuse(m, "the output head is another matrix than the embedding", error);
    if (c->attention_output_bias && !a->output_bias)
        return refuse(m, "the output of attention has a bias", error);
    if (c->mlp_bias && !a->mlp_bias)
        return refuse(m, "the MLP has biases", error);
    if (!activation_fits(c))
        return refuse(m, "the MLP has another activation", error);
    if (c->attention_scalar > 0 && c->attention_scalar != (double)scalar)
        return refuse(m, "query_pre_attn_scalar is another", error);
    if (c->architecture == ARCHITECTURE_GEMMA2 && (c->attention_cap == 0 || c->logits_cap == 0))
        return refuse(m, "scores or logits are not capped", error);
    if (c->architecture == ARCHITECTURE_GEMMA3 && c->attention_cap > 0)
        return refuse(m, "scores are capped", error);
    if (c->qk_norm == QK_NORM_LAYER)
        return refuse(m, "queries and keys of each head have norms of their own", error);
    if (c->architecture == ARCHITECTURE_NEOX && !c->attention_bias)
        return refuse(m, "attention has no biases", error);
    for (int i = 0; i < ROPES; i++)
        TRY(check_rope(m, &c->rope[i], error));
    return check_layers(m, error);
}

// ---- keys

static char *model_key(const struct gguf_model *m, const char *name) {
    return mem_printf("%s.%s", m->architecture->name, name);
}

static void key_u32(struct gguf_model *m, const char *name, int64_t value) {
    char *key = model_key(m, name);
    gguf_add_u32(&m->file, key, value);
    free(key);
}

static void key_f32(struct gguf_model *m, const char *name, double value) {
    char *key = model_key(m, name);
    gguf_add_f32(&m->file, key, value);
    free(key);
}

static void key_string(struct gguf_model *m, const char *name, const char *value) {
    char *key = model_key(m, name);
    gguf_add_string(&m->file, key, value, strlen(value));
    free(key);
}

static void add_windows(struct gguf_model *m) {
    const struct model_config *c = &m->config;
    const int period = m->architecture->window_period;
    bool window[FILE_LIMIT_LAYERS], usual = true;
    if (!period || model_sliding_window(c) == 0)
        return;
    key_u32(m, "attention.sliding_window", model_sliding_window(c));
    for (int64_t i = 0; i < c->num_hidden_layers; i++) {
        window[i] = model_layer(c, i)->sliding_window > 0;
        usual = usual && window[i] == ((i + 1) % period != 0);
    }
    if (usual)
        return;
    char *key = model_key(m, "attention.sliding_window_pattern");
    gguf_add_bools(&m->file, key, window, (size_t)c->num_hidden_layers);
    free(key);
}

static void add_rope(struct gguf_model *m) {
    const struct model_config *c = &m->config;
    const struct rope *r = &c->rope[0];
    key_u32(m, "rope.dimension_count", model_rotary_dim(c));
    key_f32(m, "rope.freq_base", r->theta);
    if (c->rope[1].theta > 0)
        key_f32(m, "rope.freq_base_swa", c->rope[1].theta);
    if (r->scaling == ROPE_SCALING_LINEAR || r->scaling == ROPE_SCALING_YARN) {
        key_string(m, "rope.scaling.type", r->scaling == ROPE_SCALING_YARN ? "yarn" : "linear");
        key_f32(m, "rope.scaling.factor", r->factor);
    }
    // Phi-3's has always both: no window tells Phi-4 apart.
    const bool phi = c->architecture == ARCHITECTURE_PHI3;
    if (r->scaling == ROPE_SCALING_YARN || r->scaling == ROPE_SCALING_LONGROPE || phi)
        key_u32(m, "rope.scaling.original_context_length", r->original ? r->original : c->max_position_embeddings);
    if (phi)
        key_u32(m, "attention.sliding_window", model_sliding_window(c));
    if (r->scaling == ROPE_SCALING_YARN && r->beta_fast > 0)
        key_f32(m, "rope.scaling.yarn_beta_fast", r->beta_fast);
    if (r->scaling == ROPE_SCALING_YARN && r->beta_slow > 0)
        key_f32(m, "rope.scaling.yarn_beta_slow", r->beta_slow);
    if (r->scaling != ROPE_SCALING_LONGROPE)
        return;
    const double times = (double)c->max_position_embeddings / (double)MAX(r->original, (int64_t)1),
                 usual = times > 1 ? sqrt(1 + log(times) / log((double)r->original)) : 1;
    key_string(m, "rope.scaling.type", "longrope");
    key_f32(m, "rope.scaling.attn_factor", r->attention_factor > 0 ? r->attention_factor : usual);
}

// Where llama.cpp lets every token see all before it, its context ends with the window: up to there it is the same.
static int64_t context_length(const struct gguf_model *m) {
    const int64_t window = m->architecture->window_period ? 0 : model_sliding_window(&m->config);
    return window ? MIN(window, m->config.max_position_embeddings) : m->config.max_position_embeddings;
}

static void add_keys(struct gguf_model *m) {
    static const int FILE_TYPES[] = {[STORED_F32] = 0, [STORED_F16] = 1, [STORED_Q8_0] = 7, [STORED_BF16] = 32};
    const struct model_config *c = &m->config;
    const char *arch = m->architecture->name;
    gguf_add_string(&m->file, "general.architecture", arch, strlen(arch));
    gguf_add_string(&m->file, "general.type", "model", strlen("model"));
    gguf_add_u32(&m->file, "general.file_type", FILE_TYPES[m->wanted]);
    gguf_add_u32(&m->file, "general.quantization_version", 2);
    key_u32(m, "block_count", c->num_hidden_layers);
    key_u32(m, "context_length", context_length(m));
    key_u32(m, "embedding_length", c->hidden_size);
    key_u32(m, "feed_forward_length", c->intermediate_size);
    key_u32(m, "attention.head_count", c->num_attention_heads);
    key_u32(m, "attention.head_count_kv", c->num_key_value_heads);
    key_u32(m, "vocab_size", c->vocab_size);
    key_f32(m, c->form.norm == NORM_LAYER ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
            c->norm_eps);
    if (c->family == FAMILY_GPT2)
        return;
    key_u32(m, "attention.key_length", c->head_dim);
    key_u32(m, "attention.value_length", c->head_dim);
    add_rope(m);
    add_windows(m);
    if (c->attention_cap > 0)
        key_f32(m, "attn_logit_softcapping", c->attention_cap);
    if (c->logits_cap > 0)
        key_f32(m, "final_logit_softcapping", c->logits_cap);
    if (c->architecture == ARCHITECTURE_NEOX || c->architecture == ARCHITECTURE_STABLELM) {
        char *key = model_key(m, "use_parallel_residual");
        gguf_add_bool(&m->file, key, c->parallel_residual);
        free(key);
    }
}

// ---- tensors

// Of Hugging Face's names, without their base and without ".weight" or ".bias": what GGUF calls them.
static const struct tensor_word {
    const char *theirs, *ours;
} WORDS[] = {
    {"wte", "token_embd"},
    {"wpe", "position_embd"},
    {"embed_tokens", "token_embd"},
    {"embed_in", "token_embd"},
    {"ln_f", "output_norm"},
    {"norm", "output_norm"},
    {"final_layer_norm", "output_norm"},
    {"lm_head", "output"},
    {"embed_out", "output"},
    {"ln_1", "attn_norm"},
    {"ln_2", "ffn_norm"},
    {"attn.c_attn", "attn_qkv"},
    {"attn.c_proj", "attn_output"},
    {"mlp.c_fc", "ffn_up"},
    {"mlp.c_proj", "ffn_down"},
    {"input_layernorm", "attn_norm"},
    {"post_attention_layernorm", "post_attention_norm"}, // or ffn_norm
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.gate_up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"attention.query_key_value", "attn_qkv"},
    {"attention.dense", "attn_output"},
    {"mlp.dense_h_to_4h", "ffn_up"},
    {"mlp.dense_4h_to_h", "ffn_down"},
};

static const char *find_word(const struct gguf_model *m, const char *name, size_t length) {
    const bool before = m->config.form.norms == NORM_BEFORE;
    for (size_t i = 0; i < ARRAY_LENGTH(WORDS); i++)
        if (strlen(WORDS[i].theirs) == length && memcmp(WORDS[i].theirs, name, length) == 0)
            return before && strcmp(WORDS[i].ours, "post_attention_norm") == 0 ? "ffn_norm" : WORDS[i].ours;
    return NULL;
}

// "model.layers.3.self_attn.q_proj.weight" becomes "blk.3.attn_q.weight". The caller frees.
static char *tensor_name(const struct gguf_model *m, const char *theirs) {
    const char *base = model_tensor_base(&m->config), *name = theirs, *end = strrchr(theirs, '.');
    long long layer = -1;
    int read = 0;
    if (strncmp(name, base, strlen(base)) == 0)
        name += strlen(base);
    if (sscanf(name, "layers.%lld.%n", &layer, &read) == 1 || sscanf(name, "h.%lld.%n", &layer, &read) == 1)
        name += read;
    const char *word = find_word(m, name, (size_t)(end - name));
    CHECK(word); // all names of the table of parameters are there
    return layer >= 0 ? mem_printf("blk.%lld.%s%s", layer, word, end) : mem_printf("%s%s", word, end);
}

static enum stored tensor_stored(const struct gguf_model *m, const char *name, int ndim, int64_t columns) {
    if (ndim < 2 || strcmp(name, "position_embd.weight") == 0)
        return STORED_F32;
    return m->wanted == STORED_Q8_0 && columns % Q8_0_NUMBERS ? STORED_F16 : m->wanted;
}

// A tensor of numbers that are known here. Takes over both.
static void add_values(struct gguf_model *m, char *name, float *value, int64_t count) {
    VEC_PUSH(&m->values, (struct gguf_values){value, m->file.tensors.count, (size_t)count});
    gguf_add_tensor(&m->file, (struct gguf_tensor){name, STORED_F32, 1, count, 1, 0});
}

static void add_tensor(struct gguf_model *m, const struct safetensors *files, const struct model_tensor *t,
                       char *name) {
    const struct model_config *c = &m->config;
    const int64_t rows = t->transposed ? t->columns : t->rows, columns = t->transposed ? t->rows : t->columns;
    const bool queries = m->architecture->pairs && strstr(name, ".attn_q."),
               keys = m->architecture->pairs && strstr(name, ".attn_k."),
               plus_one = c->form.norm == NORM_RMS_PLUS_ONE && text_ends(name, "norm.weight");
    if (!t->tensor) {
        add_values(m, name, mem_alloc((size_t)t->rows * sizeof(float)), t->rows);
        return;
    }
    const struct conversion_tensor converted = {
        .name = t->name,
        .from = t->tensor,
        .path = safetensors_path(files, t->tensor),
        .rows = rows,
        .columns = columns,
        .order = t->transposed     ? ROWS_TRANSPOSED
                 : queries || keys ? ROWS_IN_PAIRS
                 : t->heads        ? ROWS_BY_PART
                                   : ROWS_IN_ORDER,
        .heads = keys ? c->num_key_value_heads : c->num_attention_heads,
        .added = plus_one ? 1 : 0,
        .stored = tensor_stored(m, name, t->ndim, columns),
        .position = m->file.tensors.count, // until the file's tensors are placed
    };
    gguf_add_tensor(&m->file, (struct gguf_tensor){name, converted.stored, t->ndim, rows, columns, 0});
    VEC_PUSH(&m->converted, converted);
}

// Factors by which pairs turn more slowly.
static void add_rope_factors(struct gguf_model *m) {
    const struct rope *r = &m->config.rope[0];
    const int64_t pairs = model_rotary_dim(&m->config) / 2;
    const bool slow = r->scaling == ROPE_SCALING_LLAMA3, by_length = r->scaling == ROPE_SCALING_LONGROPE;
    float *first = mem_alloc((size_t)pairs * sizeof *first), *second = mem_alloc((size_t)pairs * sizeof *second);
    for (int64_t i = 0; i < pairs; i++) {
        const double plain = pow(r->theta, -(double)i / (double)pairs);
        first[i] = (float)(by_length ? r->long_factor[i] : slow ? plain / rope_frequency(&m->config, 0, 0, i) : 1);
        second[i] = (float)r->short_factor[i];
    }
    if (slow || by_length)
        add_values(m, mem_strdup(slow ? "rope_freqs.weight" : "rope_factors_long.weight"), first, pairs);
    else
        free(first);
    if (by_length)
        add_values(m, mem_strdup("rope_factors_short.weight"), second, pairs);
    else
        free(second);
}

static void add_tensors(struct gguf_model *m, const struct safetensors *files) {
    const bool rotary = m->config.family != FAMILY_GPT2;
    for (size_t i = 0; i < m->tensors.count; i++) {
        const struct model_tensor *t = &m->tensors.item[i];
        char *name = tensor_name(m, t->name);
        const bool embedding = strcmp(name, "token_embd.weight") == 0;
        add_tensor(m, files, t, name);
        if (embedding && m->config.tie_word_embeddings && m->architecture->head_apart)
            add_tensor(m, files, t, mem_strdup("output.weight"));
    }
    if (rotary)
        add_rope_factors(m);
}

// ---- writing

static trireme_status write_file(struct gguf_model *m, const struct safetensors *files, const char *out,
                                 struct conversion_watch *watch, trireme_error *error) {
    struct new_file file;
    TRY(new_file_begin(&file, out, error));
    trireme_status status = new_file_add(&file, m->file.head.text, m->file.head.length, 0, error);
    for (size_t i = 0; i < m->values.count && status == TRIREME_OK; i++) {
        const struct gguf_values *v = &m->values.item[i];
        status =
            new_file_add(&file, v->value, v->count * sizeof *v->value, m->file.tensors.item[v->tensor].position, error);
    }
    if (status == TRIREME_OK)
        status = conversion_write(files, &m->converted, file.file, file.temporary, watch, error);
    if (status == TRIREME_OK)
        status = new_file_size(&file, m->file.file_bytes, error);
    if (status == TRIREME_OK)
        return new_file_end(&file, error);
    new_file_abort(&file);
    return status;
}

static trireme_status write_model(struct gguf_model *m, struct safetensors *files, const char *out,
                                  const struct conversion_options *options, struct conversion_watch *watch,
                                  trireme_error *error) {
    struct tokenizer *tokenizer;
    TRY(model_config_read(&m->config, m->directory, error));
    m->architecture = &ARCHITECTURES[m->config.architecture];
    if (!m->architecture->name)
        FAIL(TRIREME_ERROR_USAGE, "%s: llama.cpp has no %s", m->directory, model_architecture(&m->config));
    TRY(check_model(m, error));
    TRY(model_files_find(m->directory, files, &m->config, &m->tensors, error));
    m->wanted = options->keeps ? stored_like(m->tensors.item[0].tensor->dtype) : options->stored;
    TRY(tokenizer_load(m->directory, &tokenizer, error));
    add_keys(m);
    trireme_status status = gguf_add_tokenizer(&m->file, tokenizer, m->directory, &m->config, error);
    tokenizer_free(tokenizer);
    TRY(status);
    add_tensors(m, files);
    gguf_place(&m->file);
    for (size_t i = 0; i < m->converted.count; i++)
        m->converted.item[i].position = m->file.tensors.item[m->converted.item[i].position].position;
    conversion_add_sums(options, files, &m->converted);
    return write_file(m, files, out, watch, error);
}

trireme_status gguf_write(const char *directory, struct safetensors *files, const char *out,
                          const struct conversion_options *options, struct conversion_watch *watch,
                          trireme_error *error) {
    struct gguf_model *m = mem_alloc(sizeof *m);
    m->directory = directory;
    const trireme_status status = write_model(m, files, out, options, watch, error);
    for (size_t i = 0; i < m->values.count; i++)
        free(m->values.item[i].value);
    VEC_RELEASE(&m->values);
    VEC_RELEASE(&m->converted);
    model_tensors_release(&m->tensors);
    gguf_release(&m->file);
    free(m);
    return status;
}
