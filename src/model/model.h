// model/: architectures: a configuration, the table of its parameters, and layers that emit their forward pass into a
// step program (their backward pass follows from ops.def). Knows no ranks. Includes base/, config/, program/, kernels/.
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "base/checksum.h"
#include "config/config.h"
#include "program/program.h"

enum family { FAMILY_GPT2, FAMILY_LLAMA }; // Llama's: all with rotary positions
// Hugging Face's architectures, as architecture.h describes them.
enum architecture {
#define ARCHITECTURE(constant, ...) ARCHITECTURE_##constant,
#include "model/kinds.def"
    ARCHITECTURE_COUNT
};
enum activation {
    ACTIVATION_GELU,
    ACTIVATION_GELU_TANH,
    ACTIVATION_SWIGLU, // from here on with a gate
    ACTIVATION_GEGLU,
    ACTIVATION_GEGLU_TANH
};
enum norm_kind { NORM_RMS, NORM_RMS_PLUS_ONE, NORM_LAYER }; // plus one: weights lie around zero, and one is added
enum norm_place { NORM_BEFORE, NORM_AFTER, NORM_AROUND };   // of each part of a layer, whose sum with x comes last
enum qk_norm {
    QK_NORM_NONE,
    QK_NORM_HEADS, // RMS norm of each query and each key head (Qwen3)
    QK_NORM_WIDTH, // of all queries of a token together, and of all keys (OLMo 2)
    QK_NORM_LAYER  // LayerNorm of each head, by weights of its own (StableLM)
};

// What an architecture's models have in common, and those of others may have otherwise. It has no padding: forms are
// compared as bytes.
struct model_form {
    enum norm_kind norm;
    enum norm_place norms;
    int plain;            // the feed-forward has no gate
    int scaled_embedding; // embeddings of tokens are multiplied by the root of hidden_size
};

// ---- rotary positions (Su et al. 2021)

enum rope_scaling {
    ROPE_SCALING_NONE,
    ROPE_SCALING_LINEAR,  // positions divided by a factor (Chen et al. 2023)
    ROPE_SCALING_LLAMA3,  // Llama 3.1's: slow pairs by the factor, fast ones not, those between in part
    ROPE_SCALING_DYNAMIC, // a base that grows with the length, beyond max_position_embeddings
    ROPE_SCALING_YARN,    // Peng et al. 2023: as Llama 3.1's, by pairs, and attention is sharpened
    ROPE_SCALING_LONGROPE // Ding et al. 2024: a factor for each pair, of two lists; attention is sharpened
};

enum { ROPES = 2, ROPE_PAIRS = 128 }; // rotary tables of a model; most pairs of a longrope

// What a table of rotary embeddings is made of. Members that the scaling does not use are 0.
struct rope {
    double theta; // 0: there is no such table
    enum rope_scaling scaling;
    double factor, low_freq_factor, high_freq_factor;
    int64_t original; // original_max_position_embeddings
    // What cosines and sines are multiplied by; 0: as the scaling's authors say, from factor, mscale and original.
    double attention_factor;
    double beta_fast, beta_slow, mscale, mscale_all_dim;      // of yarn; 0: 32, 1, none, none
    bool untruncated;                                         // yarn's range of pairs is not rounded to whole ones
    double short_factor[ROPE_PAIRS], long_factor[ROPE_PAIRS]; // of longrope, one for each pair
};

// What mixes tokens in a layer, and what then works on each token: MIXER_ATTENTION, FEED_FORWARD_MLP (kinds.def).
enum mixer {
#define MIXER(constant, part) MIXER_##constant,
#include "model/kinds.def"
    MIXER_COUNT
};
enum feed_forward {
#define FEED_FORWARD(constant, part) FEED_FORWARD_##constant,
#include "model/kinds.def"
    FEED_FORWARD_COUNT
};

enum {
    EOS_MORE = 15,       // room for further tokens that end a text
    LAYER_KINDS = 8,     // most kinds of layers in one model
    LISTED_LAYERS = 1024 // layers whose kind is listed: deeper models have one kind alone
};

// What a layer is: its parts, one after the other, and those of their settings that may differ from layer to layer. It
// has no padding: kinds are compared as bytes.
struct layer_kind {
    enum mixer mixer;
    enum feed_forward feed_forward;
    int64_t sliding_window; // how many positions, its own included, a token attends to; 0: all up to its own
    int64_t rope;           // which of the model's rotary tables queries and keys are turned by; NONE: by none
};

// Of layers with linear attention: heads, and how wide the keys and the values of each are. 0: there are none.
struct linear_attention {
    int64_t heads, key_dim, value_dim;
};

// The model's dtype: training.dtype.
enum dtype model_dtype(const struct config *config);

// Adapters of low rank (LoRA, Hu et al. 2021): of some linear layers, y = x W^T + scale (x A^T) B^T, and W is not
// trained (lora.h). Strings live as long as the process.
struct lora {
    int64_t rank;        // rows of A and columns of B; 0: the model has no adapters
    double alpha;        // scale is alpha / rank
    bool rslora;         // or alpha / sqrt(rank) (Kalajdzievski 2023)
    const char *targets; // which layers: names separated by commas
    const char *others;  // of layers with another rank or alpha lines "NAME RANK ALPHA"; NULL: there are none
    const char *base;    // the directory of the model that is adapted; NULL: it is not known
};

// Everything that shapes a model. Names of extents follow Hugging Face's config.json.
struct model_config {
    enum family family;
    enum architecture architecture;
    struct model_form form;
    int64_t num_hidden_layers, hidden_size, num_attention_heads, num_key_value_heads, head_dim, intermediate_size;
    int64_t vocab_size;
    int64_t padded_vocab_size; // rows of embedding and head: a multiple of 64, seen nowhere outside
    int64_t max_position_embeddings;
    enum activation activation;
    bool tie_word_embeddings;
    // Biases of LayerNorm, and of GPT-2's linear layers (false: saved as zeros, since `transformers` has them).
    bool bias;
    bool attention_bias; // Llama family: biases of q, k, v (Qwen2)
    bool attention_output_bias, mlp_bias;
    bool parallel_residual; // attention and MLP of a layer both work on what the layer begins with
    enum qk_norm qk_norm;
    double norm_eps, initializer_range;
    struct linear_attention linear;
    bool attention_sinks;               // each head has one more score, which is trained and has no value (gpt-oss)
    double attention_scalar;            // scores are divided by its root; 0: head_dim
    double attention_multiplier;        // or multiplied by this; 0: they are not
    double attention_cap, logits_cap;   // scores and logits x become cap tanh(x / cap); 0: they stay
    struct rope rope[ROPES];            // of layers that see all, and, in Gemma 3, of those with a window
    double partial_rotary_factor;       // the share of each head that is turned; 0: all of it
    int64_t bos_token_id, eos_token_id; // -1: none
    int more_eos;                       // further tokens that end a text, such as the end of a turn (Llama 3)
    int64_t more_eos_token_id[EOS_MORE];
    struct layer_kind kind[LAYER_KINDS]; // in the order in which layers first have them: model_layers_set
    uint8_t kind_of[LISTED_LAYERS];      // of each layer, its number in `kind`
    struct lora lora;
    // A JSON object of the members of the config.json that it was read from which mean nothing here; they are written
    // again. It lives as long as the process; NULL: none.
    const char *others;
};

// The kind of a layer.
const struct layer_kind *model_layer(const struct model_config *config, int64_t layer);
// How many kinds of layers a model has, and how many layers are of the kind with a number.
int model_layer_kinds(const struct model_config *config);
int64_t model_layers_of_kind(const struct model_config *config, int kind);
// Whether a state goes from token to token: ranks that share sequences must then have neighbouring tokens, and
// generation cannot go back to an earlier token, but only to the first one.
bool model_is_recurrent(const struct model_config *config);
// The sliding window of the layers that have one, 0 if none does; and the types of layers, as model.layer_types.
int64_t model_sliding_window(const struct model_config *config);
void model_layer_types(const struct model_config *config, struct text *out);
// Makes all layers of one kind; or gives each of the `layers` layers a kind of its own. Refuses (TRIREME_ERROR_USAGE)
// more than LAYER_KINDS kinds, and unlike layers in models of more than LISTED_LAYERS.
void model_layers_set_all(struct model_config *config, struct layer_kind kind);
trireme_status model_layers_set(struct model_config *config, const struct layer_kind *kind, int64_t layers,
                                trireme_error *error);

// The model that a run trains: the preset, config.json or directory that `config->model` names, or the directory that
// training starts from, with the keys that override it. If it names none, family, layers, width and heads must be
// given; the rest then follows from them, from training.seq_len and from `tokenizer_vocab_size`. That is the number of
// tokens that the data may hold, and the model's vocabulary where nothing else says one, as in the small presets. 0: it
// is unknown. NO_TOKENS: there are no tokens to read, and bytes stand in for them. Refuses tokens that the vocabulary
// lacks, and sequences longer than the model has positions.
enum { NO_TOKENS = -1 };
trireme_status model_config_resolve(struct model_config *out, const struct config *config, int64_t tokenizer_vocab_size,
                                    trireme_error *error);
// Whether the model's number of positions follows training.seq_len.
bool model_config_follows_length(const struct config *config);
// Reads a config.json, or the one in a directory. Members that change the arithmetic in a way that is not implemented
// are refused; those that `transformers` ignores or that matter only elsewhere (caches) are ignored, and so is dropout,
// which is for a run to refuse.
trireme_status model_config_read(struct model_config *out, const char *path, trireme_error *error);
// The same for a directory that may have adapters alone, on the model in the directory `base` (empty: the one that they
// name). A directory with adapter_config.json describes the model with them; the base's config.json counts where it has
// none of its own.
trireme_status model_config_read_on(struct model_config *out, const char *path, const char *base, trireme_error *error);
// Appends "attn_pdrop 0.1, ..." for the dropout that such a file asks for. Nothing where it cannot be read.
void model_config_dropout(const char *path, struct text *out);
// TRIREME_ERROR_USAGE for a file of weights, which somebody gives where a directory is meant, saying what it is. Files
// are told apart by content.
trireme_status model_refuse_weights(const char *path, trireme_error *error);
// The same from memory; `where` names it in messages.
trireme_status model_config_parse(struct model_config *out, const char *text, size_t length, const char *where,
                                  trireme_error *error);
// The model of a preset. An unknown name is refused, naming the nearest known one. vocab_size is 0 where the tokens
// decide it.
trireme_status model_config_preset(struct model_config *out, const char *name, trireme_error *error);
// Refuses (TRIREME_ERROR_USAGE) models that cannot exist: heads that do not divide, a head_dim that RoPE cannot halve,
// extents out of range, a combination that no architecture has. Afterwards no product of extents overflows 63 bits.
trireme_status model_config_check(const struct model_config *config, trireme_error *error);
// Whether the weights of a model `weights` fit a model `model`; if not, TRIREME_ERROR_USAGE names the first difference
// with both values. `exact` also compares the vocabulary, and what gives the same weights another meaning: epsilon,
// rotary embedding (whose positions may become more), sliding window.
trireme_status model_config_compare(const struct model_config *weights, const struct model_config *model, bool exact,
                                    trireme_error *error);
// Takes over the tokens that begin and end a text from `other`, as far as they are in the vocabulary.
void model_config_take_ends(struct model_config *config, const struct model_config *other);
// Adds to `out` the settings, with both values, by which the same weights mean something else in `model` than where
// they come from; nothing if there are none.
void model_config_meanings(const struct model_config *weights, const struct model_config *model, struct text *out);
// The config.json that `transformers` (4 and 5) opens and model_config_read reads back to the same. `torch_dtype` is
// PyTorch's word: "float32", "bfloat16", "float64".
void model_config_write(const struct model_config *config, const char *torch_dtype, struct text *out);
// A checksum of the model: of what model_config_write says, without the tokens that begin and end a text and the dtype.
void model_config_identify(const struct model_config *config, char hex[CHECKSUM_HEX]);
// The presets, as a table for people or one JSON object with the array "models" (vocab_size 0: the tokens decide it).
void model_presets_help(struct text *out);
void model_presets_help_json(struct text *out);
int64_t model_padded_vocab_size(int64_t vocab_size);
// The vocabulary of text without a tokenizer: bytes, and the tokens that begin and end a text.
enum { MODEL_BYTE_TOKENS = 258 };
// What the names of the model's tensors begin with, but that of the head: "model.", "transformer.".
const char *model_tensor_base(const struct model_config *config);
// Whether its matrices lie as [in, out] in files.
bool model_tensors_transposed(const struct model_config *config);
// Whether attention and MLP of a layer read the same norm.
bool model_shares_norm(const struct model_config *config);
// The name of the architecture in `transformers` that has such models, config->architecture's if it does; NULL: none.
const char *model_architecture(const struct model_config *config);

// Rows [row, row + rows) of our tensor are the tensor `name` of a Hugging Face directory, perhaps transposed there.
struct parameter_piece {
    char *name;
    int64_t row, rows;
    bool transposed;
    int64_t
        heads; // not 0: the rows are those of q, k and v, which lie head by head there: q, k and v of one, of the next
};

// Rows [row, row + rows) of a parameter are those of one matrix, of whole_rows x whole_columns, that the rank has,
// padding included: all ranks have as many. Where columns are split, the rank has some of them. Matrices are Hugging
// Face's tensors; queries, keys and values, or gate and up, are several, also where they are one tensor there (but in
// GPT-2).
struct parameter_matrix {
    int number; // in the whole parameter
    int64_t row, rows, whole_rows, whole_columns;
};

enum parameter_init { INIT_ZERO, INIT_ONE, INIT_NORMAL, INIT_UNIFORM };

// Over which ranks of a tensor group a parameter is split (split.h).
enum parameter_class {
    CLASS_SPLIT,      // over all of them
    CLASS_KV,         // over those with different key-value heads: gradients of the copies have to be summed
    CLASS_SHARE,      // every rank has all of it, but uses it on its share of the work: gradients have to be summed
    CLASS_WHOLE,      // every rank has all of it and does the same with it
    CLASS_VOCABULARY, // over the tensor ranks of all stages of a pipeline
    CLASS_COUNT
};

// Elements [row, row + rows) x [column, column + columns) of what a rank holds are those of the whole parameter from
// (whole_row, whole_column) on. What no region covers is padding, zero.
struct parameter_region {
    int64_t row, column, rows, columns, whole_row, whole_column;
};

// Elements [row, row + rows) x [column, column + columns) of a whole parameter.
struct parameter_window {
    int64_t row, rows, column, columns;
};

// A split in progress (layer.h).
struct splitter;

struct parameter {
    char *name; // ours: "layers.3.attention.qkv.weight"
    int ndim;
    int64_t dim[2];     // matrices are [out, in], vectors [n, 1]; rows beyond the pieces are vocabulary padding, zero
    int unit;           // parameters that are gathered, reduced and updated together
    int part;           // of a layer: the number of the part that it belongs to: its mixer, then its feed-forward
    bool decayed;       // weight decay applies (matrices)
    bool of_stream;     // it scales the residual stream in the norm that a part begins with
    bool embedding;     // its rows are looked up: those of tokens, or those of positions
    bool is_vocabulary; // its rows are the tokens of the vocabulary
    bool frozen;        // it is not trained, and has neither gradient nor optimizer states
    bool adapter;       // it is an adapter's: of other files than the model, and all but these are frozen
    double scale;       // of an adapter's B: by what it adds is multiplied
    // Appends what a rank of several holds of it to the splitter's table. NULL: all of it.
    void (*rule)(const struct splitter *splitter, const struct parameter *parameter);
    enum parameter_init init;
    double std; // of INIT_NORMAL; of INIT_UNIFORM the bound, on either side of zero
    int pieces;
    struct parameter_piece *piece; // in order of rows, without gaps; of whole parameters alone
    int whole_matrices;            // of a whole parameter
    int64_t matrix_row[3];         // the first row of each of these
    int whole, section;            // its number, and its unit's, in the table of whole parameters
    int apart;                     // parameters in which this differs are in units of their own (split.h)
    int set;                       // the same in units that differ in `split` and `apart` alone
    enum parameter_class split;
    int split_dim; // CLASS_SPLIT, CLASS_KV and CLASS_VOCABULARY: the dim that is split
    int regions;
    struct parameter_region region[3];
    int matrices; // of split.h's tables
    struct parameter_matrix matrix[3];
};

// The number of its elements, including padding.
static inline int64_t parameter_count(const struct parameter *parameter) {
    return parameter->dim[0] * parameter->dim[1];
}
// Whether it is the embedding of tokens, which may be the head as well.
static inline bool parameter_is_token_embedding(const struct parameter *parameter) {
    return parameter->embedding && parameter->is_vocabulary;
}
// The number of rows (of a vector: elements) that are not padding.
int64_t parameter_rows(const struct parameter *parameter);

// All parameters, unit by unit; within a unit the decayed ones first, so that a range's decayed elements are its first
// ones. Units: "embed", "layers.0" ... , "head" (final norm, and the output head when it is not tied).
struct parameter_table {
    VEC(struct parameter) parameters;
    VEC(char *) units; // names: "embed" is the first, "head" the last, layers lie between
    int *by_name;      // numbers of the parameters in order of their names: parameter_find
    int *first;        // [units + 1]: the first parameter of each unit; last, their number: FOR_UNIT
    int64_t total;     // elements as users count them: no padding, tied ones once
    bool frozen;       // some of the whole model's parameters are
    bool unlike;       // layers of the whole model have unlike parts
};

// The table of a whole model. Where it has adapters, all else is frozen.
void parameter_table_create(struct parameter_table *table, const struct model_config *config);
// Freezes parameters of a whole model: those whose name, ours or one of Hugging Face's, matches one of the patterns
// (fnmatch, where * matches points, too), which are separated by commas. USAGE for a pattern that matches nothing, for
// one that matches only some of the tensors of Hugging Face's that are one parameter here, and if nothing is left to
// train.
trireme_status parameter_table_freeze(struct parameter_table *table, const char *patterns, trireme_error *error);
// How many elements are not frozen, counted as `total` is.
int64_t parameter_table_trained(const struct parameter_table *table);
// Fills in by_name and first, once all parameters and units are there.
void parameter_table_index(struct parameter_table *table);
void parameter_table_release(struct parameter_table *table);
// The numbers of a unit's parameters, in order.
#define FOR_UNIT(table, p, unit) for (int p = (table)->first[unit]; (p) < (table)->first[(unit) + 1]; (p)++)
// Whether a unit's parameters are frozen: all are, or none.
bool parameter_unit_frozen(const struct parameter_table *table, int unit);
// The number of the parameter of that name, NONE where there is none.
int parameter_find(const struct parameter_table *table, const char *name);
// The number of the token embedding, NONE where the table has none.
int parameter_embedding(const struct parameter_table *table);

// The initial values out[count] of the elements (row-major) from `first` on: each is a pure function of seed, the
// parameter's name and the element's number. `parameter` must be a whole one.
void parameter_initial_range(const struct parameter *parameter, uint64_t seed, int64_t first, int64_t count,
                             double *out);
// How many elements of each head are turned: an even number.
int64_t model_rotary_dim(const struct model_config *config);
// cos and sin of rotary embedding number `rope` for positions [0, positions), D = model_rotary_dim: table[p][0..D/2)
// cos, [D/2..D) sin, times the attention factor. Computed in double. Scaled frequencies are those of `transformers`
// (modeling_rope_utils.py). `length` is what dynamic and longrope depend on: how many tokens the longest sequence has,
// training.seq_len, or in generation prompt and answer together. Up to max_position_embeddings tokens dynamic changes
// nothing; longrope takes its long factors where a sequence is longer than `original`. Packed documents count as one.
void rope_table(const struct model_config *config, int rope, int64_t positions, int64_t length, double *table);
// By how much pair number `pair` turns from one position to the next in such a table.
double rope_frequency(const struct model_config *config, int rope, int64_t length, int64_t pair);

// The most numbers that a layer, or the head, makes of a token at once.
int64_t model_width(const struct model_config *config);

// Floating-point operations of forward and backward for `tokens` tokens, as PaLM (Chowdhery et al. 2022, appendix B)
// counts them: 6 x (weights in matrix products, head included) x tokens, and for each layer of attention
// 12 (heads x head_dim) s x tokens, where s is seq_len, or the layer's sliding window where that is shorter.
double model_flops(const struct model_config *config, int64_t tokens, int64_t seq_len);
// The same without the head; and of one layer, for one token.
double model_layers_flops(const struct model_config *config, int64_t tokens, int64_t seq_len);
double model_layer_flops(const struct model_config *config, int64_t layer, int64_t seq_len);

#endif
