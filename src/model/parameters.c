// The table of a model's parameters: our names and Hugging Face's, shapes, and initial values.
#include "base/math.h"
#include "model/model.h"

#include "base/rng.h"

#include <math.h>

// What all parameters of a table have in common while it is built.
struct builder {
    struct parameter_table *table;
    const struct model_config *config;
    const char *prefix, *hf_prefix; // of the unit's names: "layers.3.", "transformer.h.3."
};

static struct parameter *parameters_add(struct builder *b, const char *name, int ndim, int64_t rows, int64_t columns) {
    VEC_PUSH(&b->table->parameters, (struct parameter){.name = mem_printf("%s%s", b->prefix, name),
                                                       .ndim = ndim,
                                                       .dim = {rows, columns},
                                                       .unit = (int)b->table->units.count - 1,
                                                       .decayed = ndim == 2,
                                                       .init = INIT_ZERO});
    return &b->table->parameters.item[b->table->parameters.count - 1];
}

static void parameters_add_piece(struct builder *b, struct parameter *p, const char *name, int64_t rows,
                                 bool transposed) {
    CHECK(p->pieces < (int)ARRAY_LENGTH(p->piece));
    int64_t row = parameter_rows(p);
    p->piece[p->pieces++] = (struct parameter_piece){
        .name = mem_printf("%s%s", b->hf_prefix, name), .row = row, .rows = rows, .transposed = transposed};
    b->table->total += rows * p->dim[1];
}

// A matrix [rows, columns] of normally distributed initial values.
static struct parameter *add_matrix(struct builder *b, const char *name, int64_t rows, int64_t columns, double std) {
    struct parameter *p = parameters_add(b, name, 2, rows, columns);
    p->init = INIT_NORMAL;
    p->std = std;
    return p;
}

// Makes all of a matrix or vector one tensor of Hugging Face's.
static void add_single(struct builder *b, struct parameter *p, const char *hf, bool transposed) {
    parameters_add_piece(b, p, hf, p->dim[0], transposed);
}

static void add_vector(struct builder *b, const char *name, const char *hf, int64_t n, enum parameter_init init) {
    struct parameter *p = parameters_add(b, name, 1, n, 1);
    p->init = init;
    add_single(b, p, hf, false);
}

static void begin_unit(struct builder *b, char *name, const char *prefix, const char *hf_prefix) {
    VEC_PUSH(&b->table->units, name);
    b->prefix = prefix;
    b->hf_prefix = hf_prefix;
}

static void add_embedding(struct builder *b) {
    const struct model_config *c = b->config;
    bool gpt2 = c->family == FAMILY_GPT2;
    begin_unit(b, mem_strdup("embed"), "", gpt2 ? "transformer." : "model.");
    struct parameter *embed = add_matrix(b, "embed.weight", c->padded_vocab_size, c->hidden_size, c->initializer_range);
    parameters_add_piece(b, embed, gpt2 ? "wte.weight" : "embed_tokens.weight", c->vocab_size, false);
    if (gpt2)
        add_single(b,
                   add_matrix(b, "position.weight", c->max_position_embeddings, c->hidden_size, c->initializer_range),
                   "wpe.weight", false);
}

static void add_gpt2_layer(struct builder *b) {
    const struct model_config *c = b->config;
    int64_t width = c->hidden_size, inner = c->intermediate_size;
    // Radford et al. 2019: what is added to the residual stream begins smaller, by the root of the number of additions.
    double std = c->initializer_range, residual_std = std / sqrt(2.0 * (double)c->num_hidden_layers);
    add_single(b, add_matrix(b, "attention.qkv.weight", 3 * width, width, std), "attn.c_attn.weight", true);
    add_single(b, add_matrix(b, "attention.out.weight", width, width, residual_std), "attn.c_proj.weight", true);
    add_single(b, add_matrix(b, "mlp.up.weight", inner, width, std), "mlp.c_fc.weight", true);
    add_single(b, add_matrix(b, "mlp.down.weight", width, inner, residual_std), "mlp.c_proj.weight", true);
    add_vector(b, "attention_norm.weight", "ln_1.weight", width, INIT_ONE);
    add_vector(b, "mlp_norm.weight", "ln_2.weight", width, INIT_ONE);
    if (!c->bias)
        return;
    add_vector(b, "attention_norm.bias", "ln_1.bias", width, INIT_ZERO);
    add_vector(b, "attention.qkv.bias", "attn.c_attn.bias", 3 * width, INIT_ZERO);
    add_vector(b, "attention.out.bias", "attn.c_proj.bias", width, INIT_ZERO);
    add_vector(b, "mlp_norm.bias", "ln_2.bias", width, INIT_ZERO);
    add_vector(b, "mlp.up.bias", "mlp.c_fc.bias", inner, INIT_ZERO);
    add_vector(b, "mlp.down.bias", "mlp.c_proj.bias", width, INIT_ZERO);
}

static void add_llama_layer(struct builder *b) {
    const struct model_config *c = b->config;
    int64_t width = c->hidden_size, inner = c->intermediate_size;
    int64_t q = c->num_attention_heads * c->head_dim, kv = c->num_key_value_heads * c->head_dim;
    double std = c->initializer_range;
    struct parameter *qkv = add_matrix(b, "attention.qkv.weight", q + 2 * kv, width, std);
    parameters_add_piece(b, qkv, "self_attn.q_proj.weight", q, false);
    parameters_add_piece(b, qkv, "self_attn.k_proj.weight", kv, false);
    parameters_add_piece(b, qkv, "self_attn.v_proj.weight", kv, false);
    add_single(b, add_matrix(b, "attention.out.weight", width, q, std), "self_attn.o_proj.weight", false);
    struct parameter *up = add_matrix(b, "mlp.up.weight", 2 * inner, width, std);
    parameters_add_piece(b, up, "mlp.gate_proj.weight", inner, false);
    parameters_add_piece(b, up, "mlp.up_proj.weight", inner, false);
    add_single(b, add_matrix(b, "mlp.down.weight", width, inner, std), "mlp.down_proj.weight", false);
    add_vector(b, "attention_norm.weight", "input_layernorm.weight", width, INIT_ONE);
    add_vector(b, "mlp_norm.weight", "post_attention_layernorm.weight", width, INIT_ONE);
    if (c->qk_norm) {
        add_vector(b, "attention.q_norm.weight", "self_attn.q_norm.weight", c->head_dim, INIT_ONE);
        add_vector(b, "attention.k_norm.weight", "self_attn.k_norm.weight", c->head_dim, INIT_ONE);
    }
    if (c->attention_bias) {
        struct parameter *bias = parameters_add(b, "attention.qkv.bias", 1, q + 2 * kv, 1);
        parameters_add_piece(b, bias, "self_attn.q_proj.bias", q, false);
        parameters_add_piece(b, bias, "self_attn.k_proj.bias", kv, false);
        parameters_add_piece(b, bias, "self_attn.v_proj.bias", kv, false);
    }
    if (c->attention_output_bias)
        add_vector(b, "attention.out.bias", "self_attn.o_proj.bias", width, INIT_ZERO);
    if (c->mlp_bias) {
        struct parameter *bias = parameters_add(b, "mlp.up.bias", 1, 2 * inner, 1);
        parameters_add_piece(b, bias, "mlp.gate_proj.bias", inner, false);
        parameters_add_piece(b, bias, "mlp.up_proj.bias", inner, false);
        add_vector(b, "mlp.down.bias", "mlp.down_proj.bias", width, INIT_ZERO);
    }
}

static void add_head(struct builder *b) {
    const struct model_config *c = b->config;
    bool gpt2 = c->family == FAMILY_GPT2;
    begin_unit(b, mem_strdup("head"), "", "");
    if (!c->tie_word_embeddings)
        parameters_add_piece(b,
                             add_matrix(b, "head.weight", c->padded_vocab_size, c->hidden_size, c->initializer_range),
                             "lm_head.weight", c->vocab_size, false);
    add_vector(b, "norm.weight", gpt2 ? "transformer.ln_f.weight" : "model.norm.weight", c->hidden_size, INIT_ONE);
    if (gpt2 && c->bias)
        add_vector(b, "norm.bias", "transformer.ln_f.bias", c->hidden_size, INIT_ZERO);
}

void parameter_table_create(struct parameter_table *table, const struct model_config *config) {
    *table = (struct parameter_table){0};
    struct builder b = {.table = table, .config = config};
    add_embedding(&b);
    for (int64_t layer = 0; layer < config->num_hidden_layers; layer++) {
        bool gpt2 = config->family == FAMILY_GPT2;
        char *prefix = mem_printf("layers.%lld.", (long long)layer);
        char *hf_prefix = mem_printf(gpt2 ? "transformer.h.%lld." : "model.layers.%lld.", (long long)layer);
        begin_unit(&b, mem_printf("layers.%lld", (long long)layer), prefix, hf_prefix);
        if (gpt2)
            add_gpt2_layer(&b);
        else
            add_llama_layer(&b);
        free(prefix);
        free(hf_prefix);
    }
    add_head(&b);
    for (size_t i = 0; i < table->parameters.count; i++) {
        struct parameter *p = &table->parameters.item[i];
        p->whole = (int)i;
        p->section = p->unit;
        p->split = CLASS_WHOLE;
        p->regions = 1;
        p->region[0] = (struct parameter_region){.rows = parameter_rows(p), .columns = p->dim[1]};
    }
    parameter_table_index(table);
}

static int parameters_compare_names(const void *a, const void *b, void *table) {
    const struct parameter *parameter = ((const struct parameter_table *)table)->parameters.item;
    return strcmp(parameter[*(const int *)a].name, parameter[*(const int *)b].name);
}

void parameter_table_index(struct parameter_table *table) {
    size_t count = table->parameters.count;
    table->by_name = mem_alloc(count * sizeof *table->by_name);
    for (size_t i = 0; i < count; i++)
        table->by_name[i] = (int)i;
    qsort_r(table->by_name, count, sizeof *table->by_name, parameters_compare_names, table);
    table->first = mem_alloc((table->units.count + 1) * sizeof *table->first);
    size_t at = 0;
    for (size_t u = 0; u <= table->units.count; u++) {
        table->first[u] = (int)at;
        while (at < count && table->parameters.item[at].unit == (int)u)
            at++;
    }
    CHECK(at == count);
}

int parameter_find(const struct parameter_table *table, const char *name) {
    const struct parameter *all = table->parameters.item;
    size_t count = table->parameters.count;
    size_t at = PARTITION_POINT(i, count, strcmp(all[table->by_name[i]].name, name) < 0);
    return at < count && strcmp(all[table->by_name[at]].name, name) == 0 ? table->by_name[at] : NONE;
}

void parameter_table_release(struct parameter_table *table) {
    for (size_t i = 0; i < table->parameters.count; i++) {
        struct parameter *p = &table->parameters.item[i];
        for (int j = 0; j < p->pieces; j++)
            free(p->piece[j].name);
        free(p->name);
    }
    for (size_t i = 0; i < table->units.count; i++)
        free(table->units.item[i]);
    free(table->by_name);
    free(table->first);
    table->by_name = table->first = NULL;
    VEC_RELEASE(&table->parameters);
    VEC_RELEASE(&table->units);
}

bool parameter_is_vocabulary(const struct parameter *parameter) {
    return strcmp(parameter->name, "embed.weight") == 0 || strcmp(parameter->name, "head.weight") == 0;
}

int64_t parameter_rows(const struct parameter *parameter) {
    if (parameter->pieces == 0)
        return 0;
    const struct parameter_piece *last = &parameter->piece[parameter->pieces - 1];
    return last->row + last->rows;
}

// ---- initial values

// Two independent normal numbers from two uniform ones (Box and Muller 1958): pair `index` of the stream.
static void normal_pair(uint64_t seed, uint64_t stream, uint64_t index, double out[2]) {
    double uniform[2], sine, cosine;
    rng_uniform_pair(seed, stream, index, uniform);
    double length = sqrt(-2 * math_log(1 - uniform[0])); // of (0, 1]
    math_sin_cos(2 * M_PI * uniform[1], &sine, &cosine);
    out[0] = length * cosine;
    out[1] = length * sine;
}

void parameter_initial_range(const struct parameter *parameter, uint64_t seed, int64_t first, int64_t count,
                             double *out) {
    int64_t end = parameter_rows(parameter) * parameter->dim[1]; // of what is not padding
    CHECK(first >= 0 && count >= 0 && first + count <= parameter_count(parameter));
    uint64_t stream = rng_stream(parameter->name);
    for (int64_t i = 0; i < count;) {
        int64_t index = first + i;
        if (index >= end || parameter->init != INIT_NORMAL) {
            out[i++] = index < end && parameter->init == INIT_ONE ? 1 : 0;
            continue;
        }
        double pair[2];
        normal_pair(seed, stream, (uint64_t)index / 2, pair);
        for (int64_t j = index % 2; j < 2 && i < count && index < end; j++, i++, index++)
            out[i] = parameter->std * pair[j];
    }
}

// ---- work

double model_layers_flops(const struct model_config *c, int64_t tokens, int64_t seq_len) {
    struct model_config headless = *c;
    headless.vocab_size = 0;
    return model_flops(&headless, tokens, seq_len);
}

double model_flops(const struct model_config *c, int64_t tokens, int64_t seq_len) {
    double width = (double)c->hidden_size, layers = (double)c->num_hidden_layers;
    double q = (double)(c->num_attention_heads * c->head_dim), kv = (double)(c->num_key_value_heads * c->head_dim);
    double up = (double)c->intermediate_size * (c->activation == ACTIVATION_SWIGLU ? 2 : 1);
    double layer = width * (q + 2 * kv) + q * width + width * up + (double)c->intermediate_size * width;
    double weights = layers * layer + (double)c->vocab_size * width;
    int64_t reach = c->sliding_window > 0 ? MIN(seq_len, c->sliding_window) : seq_len;
    return (6 * weights + 12 * layers * q * (double)reach) * (double)tokens;
}
