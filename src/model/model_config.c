// Which models can exist, how two of them differ, and which one a run asks for.
#include "model/layer.h"
#include "model/lora.h"
#include "model/rope_json.h"

enum {
    WIDTH_MAX = 1 << 20, // hidden_size, and all heads side by side
    INNER_MAX = 1 << 22,
    HEADS_MAX = 1 << 16,
    VOCAB_MAX = 1 << 24,
    POSITIONS_MAX = 1 << 24,
    VOCAB_MULTIPLE = 64,
    INNER_MULTIPLE = 256,
};

// Matrices have at most 2^42 elements, a layer fewer than 2^45, all layers fewer than 2^59.
_Static_assert((3 * INNER_MAX + 4 * WIDTH_MAX) * (int64_t)WIDTH_MAX * LAYERS_MAX < (int64_t)1 << 59, "counts overflow");

enum dtype model_dtype(const struct config *config) {
    static const enum dtype DTYPES[] = {
        [CONFIG_DTYPE_F32] = DTYPE_F32, [CONFIG_DTYPE_BF16] = DTYPE_BF16, [CONFIG_DTYPE_F64] = DTYPE_F64};
    return DTYPES[config->training.dtype];
}

int64_t model_padded_vocab_size(int64_t vocab_size) {
    return round_up(vocab_size, VOCAB_MULTIPLE);
}

// ---- which can exist

static trireme_status check_extents(const struct model_config *c, trireme_error *error) {
    const struct {
        const char *name;
        int64_t value, most;
    } extent[] = {
        {"num_hidden_layers", c->num_hidden_layers, LAYERS_MAX},
        {"hidden_size", c->hidden_size, WIDTH_MAX},
        {"num_attention_heads", c->num_attention_heads, HEADS_MAX},
        {"num_key_value_heads", c->num_key_value_heads, HEADS_MAX},
        {"head_dim", c->head_dim, HEADS_MAX},
        {"intermediate_size", c->intermediate_size, INNER_MAX},
        {"vocab_size", c->vocab_size, VOCAB_MAX},
        {"max_position_embeddings", c->max_position_embeddings, POSITIONS_MAX},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(extent); i++)
        if (extent[i].value < 1 || extent[i].value > extent[i].most)
            FAIL(TRIREME_ERROR_USAGE, "%s %lld is out of range: from 1 to %lld", extent[i].name,
                 (long long)extent[i].value, (long long)extent[i].most);
    if (c->num_attention_heads * c->head_dim > WIDTH_MAX)
        FAIL(TRIREME_ERROR_USAGE, "num_attention_heads %lld x head_dim %lld is out of range: at most %d",
             (long long)c->num_attention_heads, (long long)c->head_dim, WIDTH_MAX);
    for (int i = 0; i < MODEL_PARTS; i++)
        if (model_parts[i]->check)
            TRY(model_parts[i]->check(c, error));
    return TRIREME_OK;
}

static trireme_status check_gpt2(const struct model_config *c, trireme_error *error) {
    if (c->hidden_size % c->num_attention_heads != 0)
        FAIL(TRIREME_ERROR_USAGE, "num_attention_heads %lld does not divide hidden_size %lld",
             (long long)c->num_attention_heads, (long long)c->hidden_size);
    if (c->head_dim * c->num_attention_heads != c->hidden_size)
        FAIL(TRIREME_ERROR_USAGE, "head_dim %lld cannot be: in GPT-2 it is hidden_size / num_attention_heads, %lld",
             (long long)c->head_dim, (long long)(c->hidden_size / c->num_attention_heads));
    if (c->num_key_value_heads != c->num_attention_heads)
        FAIL(TRIREME_ERROR_USAGE, "num_key_value_heads %lld cannot be: GPT-2 has as many as num_attention_heads, %lld",
             (long long)c->num_key_value_heads, (long long)c->num_attention_heads);
    if (c->activation == ACTIVATION_SWIGLU)
        FAIL(TRIREME_ERROR_USAGE, "activation swiglu cannot be: GPT-2 has gelu or gelu_tanh");
    return TRIREME_OK;
}

static trireme_status refuse_mixture(const struct model_config *c, trireme_error *error) {
    struct text parts = {0};
    for (int i = 0; i < MODEL_PARTS; i++)
        if (model_parts[i]->describe) {
            text_add(&parts, ", ");
            model_parts[i]->describe(c, &parts);
        }
    error_set(error, TRIREME_ERROR_USAGE,
              "no architecture of Hugging Face mixes attention_bias %s, qk_norm %s, mlp_bias %s%s, head_dim %lld, "
              "hidden_size %lld and num_attention_heads %lld",
              c->attention_bias ? "true" : "false", c->qk_norm ? "true" : "false", c->mlp_bias ? "true" : "false",
              parts.text, (long long)c->head_dim, (long long)c->hidden_size, (long long)c->num_attention_heads);
    text_release(&parts);
    return TRIREME_ERROR_USAGE;
}

static trireme_status check_llama(const struct model_config *c, trireme_error *error) {
    if (c->num_attention_heads % c->num_key_value_heads != 0)
        FAIL(TRIREME_ERROR_USAGE, "num_key_value_heads %lld does not divide num_attention_heads %lld",
             (long long)c->num_key_value_heads, (long long)c->num_attention_heads);
    if (model_rotary_dim(c) % 2 != 0 && c->partial_rotary_factor == 0)
        FAIL(TRIREME_ERROR_USAGE, "head_dim %lld is odd: rotary embedding turns pairs of features",
             (long long)c->head_dim);
    if (!c->form.plain && c->activation < ACTIVATION_SWIGLU)
        FAIL(TRIREME_ERROR_USAGE, "activation gelu cannot be: the Llama family has swiglu");
    if (c->form.plain && c->activation >= ACTIVATION_SWIGLU)
        FAIL(TRIREME_ERROR_USAGE, "activation swiglu cannot be: %s has gelu or gelu_tanh",
             architecture_table[c->architecture].name);
    TRY(rope_check(c, error));
    if (!model_architecture(c))
        return refuse_mixture(c, error);
    return TRIREME_OK;
}

trireme_status model_config_check(const struct model_config *config, trireme_error *error) {
    TRY(check_extents(config, error));
    if (!(config->norm_eps > 0 && config->norm_eps < 1))
        FAIL(TRIREME_ERROR_USAGE, "norm_eps %g is out of range: above 0, below 1", config->norm_eps);
    return config->family == FAMILY_GPT2 ? check_gpt2(config, error) : check_llama(config, error);
}

// ---- how two differ

static struct model_difference part_difference(const struct layer_part *part, const struct model_config *weights,
                                               const struct model_config *model) {
    struct model_difference d = {0};
    if (part->differ)
        part->differ(weights, model, &d);
    return d;
}

static void difference_release(struct model_difference *d) {
    text_release(&d->theirs);
    text_release(&d->ours);
}

// A number of a configuration, by name.
struct config_number {
    const char *name;
    double theirs, ours;
};
enum { MEANING_NUMBERS = 32 };

// The numbers that give the same weights another meaning, in the order in which they are told of. Returns how many.
static int meaning_numbers(const struct model_config *weights, const struct model_config *model,
                           struct config_number out[MEANING_NUMBERS]) {
    const struct rope *theirs = &weights->rope[0], *ours = &model->rope[0];
#define NUMBER(field) \
    { #field, (double)weights->field, (double)model->field }
#define ROPE_NUMBER(field) \
    { "rope_" #field, (double)theirs->field, (double)ours->field }
    const struct config_number all[] = {
        NUMBER(norm_eps),
        NUMBER(parallel_residual),
        {"query_pre_attn_scalar", weights->attention_scalar, model->attention_scalar},
        NUMBER(attention_multiplier),
        {"attn_logit_softcapping", weights->attention_cap, model->attention_cap},
        {"final_logit_softcapping", weights->logits_cap, model->logits_cap},
        NUMBER(partial_rotary_factor),
        ROPE_NUMBER(theta),
        ROPE_NUMBER(factor),
        ROPE_NUMBER(low_freq_factor),
        ROPE_NUMBER(high_freq_factor),
        {"rope_original_max_position_embeddings", (double)theirs->original, (double)ours->original},
        ROPE_NUMBER(attention_factor),
        ROPE_NUMBER(beta_fast),
        ROPE_NUMBER(beta_slow),
        ROPE_NUMBER(mscale),
        ROPE_NUMBER(mscale_all_dim),
        ROPE_NUMBER(untruncated),
        {"rope_local_base_freq", weights->rope[1].theta, model->rope[1].theta}};
#undef NUMBER
#undef ROPE_NUMBER
    _Static_assert(ARRAY_LENGTH(all) + 2 <= MEANING_NUMBERS, "there is room");
    int count = (int)ARRAY_LENGTH(all);
    memcpy(out, all, sizeof all);
    // Of the lists of factors, the first that differ.
    const struct {
        const char *name;
        const double *theirs, *ours;
    } list[] = {{"rope_short_factor", theirs->short_factor, ours->short_factor},
                {"rope_long_factor", theirs->long_factor, ours->long_factor}};
    for (size_t l = 0; l < ARRAY_LENGTH(list); l++)
        for (int i = 0; i < ROPE_PAIRS; i++)
            if (list[l].theirs[i] != list[l].ours[i]) {
                out[count++] = (struct config_number){list[l].name, list[l].theirs[i], list[l].ours[i]};
                break;
            }
    return count;
}

// How many layers have a rotary table.
static double turned_layers(const struct model_config *c) {
    double count = 0;
    for (int k = 0; k < model_layer_kinds(c); k++)
        count += c->kind[k].rope == NONE ? 0 : (double)model_layers_of_kind(c, k);
    return count;
}

void model_config_meanings(const struct model_config *weights, const struct model_config *model, struct text *out) {
    struct config_number number[MEANING_NUMBERS];
    const int count = meaning_numbers(weights, model, number);
    if (weights->rope[0].scaling != model->rope[0].scaling)
        text_add(out, "rope_scaling %s (theirs: %s)", rope_scaling_name(model->rope[0].scaling),
                 rope_scaling_name(weights->rope[0].scaling));
    for (int i = 0; i < MODEL_PARTS; i++) {
        struct model_difference d = part_difference(model_parts[i], weights, model);
        if (d.name)
            text_add(out, "%s%s %s (theirs: %s)", out->length ? ", " : "", d.name, d.ours.text, d.theirs.text);
        difference_release(&d);
    }
    for (int i = 0; i < count; i++)
        if (number[i].theirs != number[i].ours)
            text_add(out, "%s%s %.15g (theirs: %.15g)", out->length ? ", " : "", number[i].name, number[i].ours,
                     number[i].theirs);
}

static trireme_status refuse_number(const struct config_number *n, trireme_error *error) {
    if (n->theirs != n->ours)
        FAIL(TRIREME_ERROR_USAGE, "the weights are of another model: their %s is %.15g, the model's %.15g", n->name,
             n->theirs, n->ours);
    return TRIREME_OK;
}

static trireme_status compare_adapters(const struct model_config *weights, const struct model_config *model,
                                       trireme_error *error) {
    const struct lora *theirs = &weights->lora, *ours = &model->lora;
    TRY(refuse_number(&(struct config_number){"lora.rank", (double)theirs->rank, (double)ours->rank}, error));
    if (ours->rank == 0)
        return TRIREME_OK;
    TRY(refuse_number(&(struct config_number){"scale of adapters", lora_scale(theirs, theirs->rank, theirs->alpha),
                                              lora_scale(ours, ours->rank, ours->alpha)},
                      error));
    if (strcmp(theirs->targets, ours->targets) != 0)
        FAIL(TRIREME_ERROR_USAGE, "the weights are of another model: their lora.target_modules is %s, the model's %s",
             theirs->targets, ours->targets);
    if (strcmp(theirs->others ?: "", ours->others ?: "") != 0)
        FAIL(TRIREME_ERROR_USAGE, "the weights are of another model: other layers have a rank or alpha of their own");
    return TRIREME_OK;
}

trireme_status model_config_compare(const struct model_config *weights, const struct model_config *model, bool exact,
                                    trireme_error *error) {
    const char *ours = model_architecture(model) ?: "of no name", *theirs = model_architecture(weights) ?: "of no name";
    if (strcmp(ours, theirs) != 0)
        FAIL(TRIREME_ERROR_USAGE, "the weights are of another architecture: theirs is %s, the model's %s", theirs,
             ours);
    bool gpt2 = model->family == FAMILY_GPT2;
#define FIELD(field, counts) \
    { #field, (double)weights->field, (double)model->field, counts }
    const struct {
        const char *name;
        double theirs, ours;
        bool counts;
    } field[] = {
        FIELD(num_hidden_layers, true),
        FIELD(hidden_size, true),
        FIELD(num_attention_heads, true),
        FIELD(num_key_value_heads, true),
        FIELD(head_dim, true),
        FIELD(intermediate_size, true),
        FIELD(vocab_size, exact), // else rows are added, or fall away
        // Rotary positions go on for a run with longer sequences.
        FIELD(max_position_embeddings,
              gpt2 || (exact && weights->max_position_embeddings > model->max_position_embeddings)),
        FIELD(tie_word_embeddings, true),
        FIELD(bias, true),
        FIELD(attention_bias, true),
        FIELD(attention_output_bias, true),
        FIELD(mlp_bias, true),
        FIELD(qk_norm, true),
        FIELD(linear.heads, true),
        FIELD(linear.key_dim, true),
        FIELD(linear.value_dim, true),
    };
#undef FIELD
    for (size_t i = 0; i < ARRAY_LENGTH(field); i++)
        if (field[i].counts)
            TRY(refuse_number(&(struct config_number){field[i].name, field[i].theirs, field[i].ours}, error));
    if (exact || weights->lora.rank > 0)
        TRY(compare_adapters(weights, model, error));
    struct config_number number[MEANING_NUMBERS];
    const int count = meaning_numbers(weights, model, number);
    for (int i = 0; i < count && exact; i++)
        TRY(refuse_number(&number[i], error));
    if (exact)
        TRY(refuse_number(&(struct config_number){"rope_scaling", weights->rope[0].scaling, model->rope[0].scaling},
                          error));
    TRY(refuse_number(
        &(struct config_number){"number of layers with rotary positions", turned_layers(weights), turned_layers(model)},
        error));
    static const char *const ACTIVATIONS[] = {[ACTIVATION_GELU] = "gelu",
                                              [ACTIVATION_GELU_TANH] = "gelu_tanh",
                                              [ACTIVATION_SWIGLU] = "swiglu",
                                              [ACTIVATION_GEGLU] = "geglu",
                                              [ACTIVATION_GEGLU_TANH] = "geglu_tanh"};
    if (weights->activation != model->activation)
        FAIL(TRIREME_ERROR_USAGE, "the weights are of another model: their activation is %s, the model's %s",
             ACTIVATIONS[weights->activation], ACTIVATIONS[model->activation]);
    trireme_status status = TRIREME_OK;
    for (int i = 0; i < MODEL_PARTS && exact && status == TRIREME_OK; i++) {
        struct model_difference d = part_difference(model_parts[i], weights, model);
        if (d.name)
            status = error_set(error, TRIREME_ERROR_USAGE,
                               "the weights are of another model: their %s is %s, the model's %s", d.name,
                               d.theirs.text, d.ours.text);
        difference_release(&d);
    }
    return status;
}

// Keeps the tokens that begin and end texts as far as they are in the vocabulary.
static void keep_ends(struct model_config *c) {
    if (c->bos_token_id >= c->vocab_size)
        c->bos_token_id = -1;
    if (c->eos_token_id >= c->vocab_size)
        c->eos_token_id = -1;
    int kept = 0;
    for (int i = 0; i < c->more_eos; i++)
        if (c->more_eos_token_id[i] < c->vocab_size)
            c->more_eos_token_id[kept++] = c->more_eos_token_id[i];
    c->more_eos = kept;
    if (c->eos_token_id < 0 && kept)
        c->eos_token_id = c->more_eos_token_id[--c->more_eos];
}

void model_config_take_ends(struct model_config *config, const struct model_config *other) {
    config->bos_token_id = other->bos_token_id;
    config->eos_token_id = other->eos_token_id;
    config->more_eos = other->more_eos;
    memcpy(config->more_eos_token_id, other->more_eos_token_id, sizeof config->more_eos_token_id);
    keep_ends(config);
}

// ---- what a run asks for

// Whether no model is named, but a family and sizes.
static bool is_from_family(const struct config_model *m) {
    return !*m->preset && !*m->config && (!*m->init_from || m->family != CONFIG_FAMILY_AUTO);
}

bool model_config_follows_length(const struct config *config) {
    return is_from_family(&config->model) && config->model.max_position_embeddings == 0;
}

// The sizes of a model that is made from keys alone; what follows from them stays open (0).
static trireme_status start_from_family(struct model_config *out, const struct config *config, trireme_error *error) {
    const struct config_model *m = &config->model;
    if (m->family == CONFIG_FAMILY_AUTO)
        FAIL(TRIREME_ERROR_USAGE, "no model is named: give model.preset (trireme help models), model.config or "
                                  "model.init_from, or else model.family "
                                  "with num_hidden_layers, hidden_size and num_attention_heads");
    const struct {
        const char *name;
        int64_t value;
    } needed[] = {{"num_hidden_layers", m->num_hidden_layers},
                  {"hidden_size", m->hidden_size},
                  {"num_attention_heads", m->num_attention_heads}};
    for (size_t i = 0; i < ARRAY_LENGTH(needed); i++)
        if (needed[i].value == 0)
            return config_refuse(config, "model.family", error, "which also needs model.%s", needed[i].name);
    bool gpt2 = m->family == CONFIG_FAMILY_GPT2;
    *out = (struct model_config){
        .family = gpt2 ? FAMILY_GPT2 : FAMILY_LLAMA,
        .architecture = gpt2 ? ARCHITECTURE_GPT2 : ARCHITECTURE_LLAMA,
        .activation = gpt2 ? ACTIVATION_GELU_TANH : ACTIVATION_SWIGLU,
        .tie_word_embeddings = gpt2,
        .bias = gpt2,
        .norm_eps = 1e-5,
        .initializer_range = 0.02,
        .form = architecture_table[gpt2 ? ARCHITECTURE_GPT2 : ARCHITECTURE_LLAMA].form,
        .rope = {{.theta = gpt2 ? 0 : 10000}},
        .bos_token_id = -1,
        .eos_token_id = -1,
    };
    return TRIREME_OK;
}

static trireme_status config_start(struct model_config *out, const struct config *config, trireme_error *error) {
    const struct config_model *m = &config->model;
    if (*m->preset)
        return model_config_preset(out, m->preset, error);
    if (is_from_family(m))
        return start_from_family(out, config, error);
    if (!*m->config)
        return model_config_read_on(out, m->init_from, config->lora.base_model, error);
    trireme_status status = model_config_read(out, m->config, error);
    if (status != TRIREME_OK)
        error_prefix(error, status, "%s: model.config", config_origin(config, "model.config"));
    return status;
}

// Refuses keys that make no sense for the family.
static trireme_status refuse_foreign(const struct model_config *c, const struct config *config, trireme_error *error) {
    const struct config_model *m = &config->model;
    if (c->family == FAMILY_GPT2) {
        const char *why = "which GPT-2 does not have";
        if (m->attention_bias != CONFIG_AUTO)
            return config_refuse(config, "model.attention_bias", error, "%s: model.bias is its key", why);
        if (m->qk_norm != CONFIG_AUTO)
            return config_refuse(config, "model.qk_norm", error, "%s", why);
        if (m->rope_theta > 0)
            return config_refuse(config, "model.rope_theta", error, "%s: its positions are learned", why);
    } else if (m->bias != CONFIG_AUTO)
        return config_refuse(config, "model.bias", error,
                             "which is GPT-2's: the Llama family has model.attention_bias");
    if (m->num_hidden_layers > c->num_hidden_layers && c->family == FAMILY_LLAMA &&
        turned_layers(c) < (double)c->num_hidden_layers)
        return config_refuse(config, "model.num_hidden_layers", error,
                             "but nothing says which of the layers beyond the model's %lld have rotary positions",
                             (long long)c->num_hidden_layers);
    return TRIREME_OK;
}

static void override_extent(int64_t *extent, int64_t key) {
    if (key > 0)
        *extent = key;
}

static void override_switch(bool *value, enum config_auto key) {
    if (key != CONFIG_AUTO)
        *value = key == CONFIG_TRUE;
}

static void config_override(struct model_config *c, const struct config_model *m) {
    // What depends on an extent follows the new one, unless it is given itself.
    if (m->hidden_size > 0 || m->num_attention_heads > 0)
        c->head_dim = 0;
    if (m->hidden_size > 0)
        c->intermediate_size = 0;
    if (m->num_attention_heads > 0)
        c->num_key_value_heads = 0;
    if (m->hidden_size > 0 || m->linear_attention_heads > 0)
        c->linear.key_dim = c->linear.value_dim = 0;
    override_extent(&c->num_hidden_layers, m->num_hidden_layers);
    override_extent(&c->hidden_size, m->hidden_size);
    override_extent(&c->num_attention_heads, m->num_attention_heads);
    override_extent(&c->num_key_value_heads, m->num_key_value_heads);
    override_extent(&c->head_dim, m->head_dim);
    override_extent(&c->linear.heads, m->linear_attention_heads);
    override_extent(&c->intermediate_size, m->intermediate_size);
    override_extent(&c->vocab_size, m->vocab_size);
    override_extent(&c->max_position_embeddings, m->max_position_embeddings);
    override_switch(&c->tie_word_embeddings, m->tie_word_embeddings);
    override_switch(&c->bias, m->bias);
    if (m->qk_norm != CONFIG_AUTO)
        c->qk_norm = m->qk_norm != CONFIG_TRUE ? QK_NORM_NONE
                     : c->qk_norm              ? c->qk_norm
                                               : architecture_table[c->architecture].qk_norm ?: QK_NORM_HEADS;
    if (m->attention_bias != CONFIG_AUTO && c->attention_bias != (m->attention_bias == CONFIG_TRUE)) {
        c->attention_bias = m->attention_bias == CONFIG_TRUE;
        // Qwen3's switch covers it, and those of SmolLM 3 and GPT-NeoX; Qwen2 has none.
        c->attention_output_bias = c->attention_bias && (c->qk_norm == QK_NORM_HEADS || c->form.plain);
    }
    if (m->activation != CONFIG_ACTIVATION_AUTO)
        c->activation = m->activation == CONFIG_ACTIVATION_GELU        ? ACTIVATION_GELU
                        : m->activation == CONFIG_ACTIVATION_GELU_TANH ? ACTIVATION_GELU_TANH
                                                                       : ACTIVATION_SWIGLU;
    if (m->norm_eps > 0)
        c->norm_eps = m->norm_eps;
    if (m->rope_theta > 0)
        c->rope[0].theta = m->rope_theta;
}

static trireme_status refuse_hidden_size(const struct model_config *c, const struct config *config,
                                         trireme_error *error) {
    const long long size = c->hidden_size, heads = c->num_attention_heads;
    if (config_is_set(config, "model.num_attention_heads"))
        return config_refuse(config, "model.num_attention_heads", error, "which does not divide hidden_size %lld",
                             size);
    if (config_is_set(config, "model.hidden_size"))
        return config_refuse(config, "model.hidden_size", error, "which num_attention_heads %lld does not divide",
                             heads);
    FAIL(TRIREME_ERROR_USAGE, "model: num_attention_heads %lld does not divide hidden_size %lld", heads, size);
}

// Keys have half of the model's width, and values all of it (Yang et al. 2023, section 4.4).
static trireme_status derive_linear(struct model_config *c, const struct config *config, trireme_error *error) {
    if (!model_has_part(c, &linear_attention_part)) {
        c->linear = (struct linear_attention){0};
        if (config->model.linear_attention_heads > 0)
            return config_refuse(config, "model.linear_attention_heads", error, "but no layer has linear attention");
        return TRIREME_OK;
    }
    if (c->linear.heads == 0)
        c->linear.heads = c->num_attention_heads;
    if (c->linear.key_dim == 0 && c->hidden_size % (2 * c->linear.heads) != 0)
        FAIL(TRIREME_ERROR_USAGE,
             "model: %lld heads of linear attention (model.linear_attention_heads) do not divide half of hidden_size "
             "%lld",
             (long long)c->linear.heads, (long long)c->hidden_size);
    if (c->linear.key_dim == 0) {
        c->linear.key_dim = c->hidden_size / 2 / c->linear.heads;
        c->linear.value_dim = c->hidden_size / c->linear.heads;
    }
    return TRIREME_OK;
}

// Fills in what is still open, from the rest.
static trireme_status config_derive(struct model_config *c, const struct config *config, int64_t tokenizer_vocab_size,
                                    trireme_error *error) {
    if (c->num_key_value_heads == 0)
        c->num_key_value_heads = c->num_attention_heads;
    if (c->head_dim == 0) {
        if (c->hidden_size % c->num_attention_heads != 0)
            return refuse_hidden_size(c, config, error);
        c->head_dim = c->hidden_size / c->num_attention_heads;
    }
    if (c->intermediate_size == 0) // a gated feed-forward of 8/3 has as many weights as a plain one of 4
        c->intermediate_size =
            c->family == FAMILY_GPT2 ? 4 * c->hidden_size : round_up(8 * c->hidden_size / 3, INNER_MULTIPLE);
    if (c->vocab_size == 0 && tokenizer_vocab_size == 0)
        return config_refuse(config, "data.path", error,
                             "but token files that `trireme prepare` did not write do not say how many tokens their "
                             "tokenizer has: set model.vocab_size (GPT-2's 50257, Llama 3's 128256)");
    if (c->vocab_size == 0)
        c->vocab_size = tokenizer_vocab_size == NO_TOKENS ? MODEL_BYTE_TOKENS : tokenizer_vocab_size;
    if (c->max_position_embeddings == 0)
        c->max_position_embeddings = config->training.seq_len;
    c->padded_vocab_size = model_padded_vocab_size(c->vocab_size);
    keep_ends(c);
    return derive_linear(c, config, error);
}

// Puts before what model_config_check says, which begins with a name, where the user set the key of that name.
static trireme_status tell_where(trireme_status status, const struct config *config, trireme_error *error) {
    char *key = mem_printf("model.%.*s", (int)strcspn(error->message, " "), error->message);
    if (config_names_key(key) && config_is_set(config, key))
        error_prefix(error, status, "%s: model", config_origin(config, key));
    else
        error_prefix(error, status, "model");
    free(key);
    return status;
}

trireme_status model_config_resolve(struct model_config *out, const struct config *config, int64_t tokenizer_vocab_size,
                                    trireme_error *error) {
    struct model_config c;
    TRY(config_start(&c, config, error));
    TRY(refuse_foreign(&c, config, error));
    for (int i = 0; i < MODEL_PARTS; i++)
        if (model_parts[i]->override)
            TRY(model_parts[i]->override(&c, config, error));
    config_override(&c, &config->model);
    TRY(config_derive(&c, config, tokenizer_vocab_size, error));
    trireme_status status = model_config_check(&c, error);
    if (status != TRIREME_OK)
        return tell_where(status, config, error);
    c.architecture = (enum architecture)(architecture_of(&c) - architecture_table);
    TRY(lora_override(&c, config, error));
    if (tokenizer_vocab_size > c.vocab_size)
        return config_refuse(config, "model.vocab_size", error,
                             "but the tokens are numbered up to %lld and the model knows %lld: at least %lld is needed",
                             (long long)tokenizer_vocab_size - 1, (long long)c.vocab_size,
                             (long long)tokenizer_vocab_size);
    if (config->training.seq_len > c.max_position_embeddings)
        return config_refuse(config, "training.seq_len", error,
                             "but the model has %lld positions (model.max_position_embeddings)",
                             (long long)c.max_position_embeddings);
    *out = c;
    return TRIREME_OK;
}
