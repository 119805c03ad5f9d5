// Internal to model/: what a kind of layer consists of, and what its file in layers/ is written with. Everything that
// goes over a model (its parameters, how they split over ranks, the forward pass, the operations it takes) is a loop
// over these descriptors.
#ifndef MODEL_LAYER_H
#define MODEL_LAYER_H

#include "base/json.h"
#include "model/architecture.h"
#include "model/emit.h"

struct builder;
struct model_reader;
struct model_difference;

// A part of a layer, which has parameters, emit, width and flops; or one end of the model, embedding or head, of which
// emit.h declares what emits it. All else may be NULL where there is nothing to say.
struct layer_part {
    const char *name; // "attention": of its unit, where the parts of a layer are units of their own
    bool recurrent;   // a state goes from token to token (model_is_recurrent)
    // Declares its parameters, in the order of struct builder.
    void (*parameters)(struct builder *builder);
    // Sets what one of split->ranks ranks has; refuses (TRIREME_ERROR_USAGE) more ranks than there is to split.
    trireme_status (*split)(struct model_split *split, const struct model_config *config, trireme_error *error);
    // Appends its forward pass: what it makes of residual stream `x` is added to `onto`, which is the same unless the
    // model's parts are parallel. Returns the sum.
    int (*emit)(struct emitter *emitter, int layer, int x, int onto);
    // Mixers: adds to the state what generation keeps of the tokens before, for `sequences` of `context` tokens, as
    // entries of STATE_CACHE.
    void (*cache)(struct state_table *state, const struct model_config *config, int layer, int64_t sequences,
                  int64_t context, enum dtype dtype, int out[static CACHE_BUFFERS]);
    // The most numbers that it makes of a token at once, gradients and parts for other ranks apart.
    int64_t (*width)(const struct model_config *config);
    // Floating-point operations of forward and backward for one token (model_flops). `kind` is NULL for an end.
    double (*flops)(const struct model_config *config, const struct layer_kind *kind, int64_t seq_len);

    // What it has in a configuration beyond what all models of the family have. These are called for all parts that
    // there are, whether the model has them or not: they are what gives layers their kinds.

    // From and to Hugging Face's config.json.
    trireme_status (*read)(const struct model_reader *reader);
    void (*write)(json_t *root, const struct model_config *config, const struct architecture_info *architecture);
    const char *const *members; // all that `write` may write, ended by NULL: not kept of another file
    // Whether models of the architecture may have it so.
    bool (*fits)(const struct architecture_info *architecture, const struct model_config *config);
    // Refuses what cannot be, and takes over the user's keys, before the extents are taken over.
    trireme_status (*check)(const struct model_config *config, trireme_error *error);
    trireme_status (*override)(struct model_config *config, const struct config *keys, trireme_error *error);
    // Appends the settings in which architectures differ.
    void (*describe)(const struct model_config *config, struct text *out);
    // Adds the first setting, if any, that gives the same weights another meaning in `model` than in `weights`.
    void (*differ)(const struct model_config *weights, const struct model_config *model, struct model_difference *out);
};

enum { LAYER_PARTS = 2, MODEL_PARTS = MIXER_COUNT + FEED_FORWARD_COUNT, LAYERS_MAX = 10000 };

extern const struct layer_part embedding_part, head_part;
#define MIXER(constant, part) extern const struct layer_part part;
#define FEED_FORWARD(constant, part) extern const struct layer_part part;
#include "model/kinds.def"

// All parts of layers that there are.
extern const struct layer_part *const model_parts[MODEL_PARTS];
// The parts of a layer by number: they follow one another in this order.
const struct layer_part *model_layer_part(const struct layer_kind *kind, int number);
// Whether some layer has it.
bool model_has_part(const struct model_config *config, const struct layer_part *part);

// A setting that differs, as texts: `ours` is the model's. No name: none does.
struct model_difference {
    const char *name;
    struct text theirs, ours;
};

// ---- config.json

struct model_reader {
    const json_t *root;
    const char *where;
    trireme_error *error;
    struct model_config *out;
    const struct architecture_info *is;
};

// A text that lives as long as the process, each once; takes over `text`.
const char *reader_keep(struct text *text);
// Bounds that keep every product of extents below 2^62; model_config_check is stricter.
enum { EXTENT_MAX = INT32_MAX };
trireme_status reader_extent(const struct model_reader *reader, const char *key, enum json_need need, int64_t *out);

// ---- parameters

// What the parameters of a part are declared with. In the table they stand unit by unit: matrices first, then the norms
// that parts begin with, then all other vectors; alike ones part by part, in the order in which they are declared.
struct builder {
    struct parameter_table *table;
    const struct model_config *config;
    const struct layer_kind *kind;  // NULL for the ends
    const char *prefix, *hf_prefix; // of the unit's names: "layers.3.", "transformer.h.3."
    int part;
};

typedef void parameter_rule(const struct splitter *splitter, const struct parameter *parameter);

// The result is valid until the next one is added.
struct parameter *builder_matrix(struct builder *b, const char *name, int64_t rows, int64_t columns, double std,
                                 parameter_rule *rule);
// `hf` NULL: its pieces follow.
struct parameter *builder_vector(struct builder *b, const char *name, const char *hf, int64_t n,
                                 enum parameter_init init, parameter_rule *rule);
void builder_piece(struct builder *b, struct parameter *p, const char *hf, int64_t rows, bool transposed);
// The same, named as the architecture's tensors are: `stem` and then the parameter's ".weight" or ".bias".
struct parameter_piece *builder_tensor(struct builder *b, struct parameter *p, const char *stem, int64_t rows);
// Makes the rows of its last tensor from `row` on a matrix of their own.
void builder_matrix_from(struct parameter *p, int64_t row);
// A matrix with a row for each token (layers/layer_embedding.c), of the tensor "HF.weight".
struct parameter *builder_vocabulary(struct builder *b, const char *name, const char *hf);
// Makes all of a parameter one tensor of Hugging Face's.
void builder_single(struct builder *b, struct parameter *p, const char *hf);
// A norm over the residual stream, or over what a part adds to it: "NAME.weight" and, if the model has it, "NAME.bias".
void builder_norm(struct builder *b, const char *name, const char *hf);
// The adapter `name` of a linear layer of `rows` x `columns`, which files call `stem`, if the model has one:
// NAME.lora_a [rank, columns] and NAME.lora_b [rows, rank]. `split_a` and `split_b` are their rules; `heads` as in
// struct parameter_piece.
void builder_adapter(struct builder *b, const char *name, const char *stem, int64_t rows, int64_t columns,
                     int64_t heads, parameter_rule *split_a, parameter_rule *split_b);
// The standard deviation of the first values of matrices, and of those whose product is added to the residual stream.
double builder_std(const struct builder *b);
double builder_residual_std(const struct builder *b);

// ---- splitting

// A run of rows or columns: `extent` local ones, of which the first `valid` are not padding; those of the whole from
// `first` on.
struct run {
    int64_t extent, first, valid;
};

struct splitter {
    const struct model_config *config;
    const struct model_split *split;
    int index, vocabulary;
    const int *joined;
    bool halves;
    const int *apart;
    struct parameter_table *out;
};

// Part `index` of parts of `extent` of something that has `all`; and the same where each is `by` rows.
struct run split_part(int64_t extent, int index, int64_t all);
struct run split_scaled(struct run run, int64_t by);
// Appends a local parameter, made from whole parameter `p` and without rows yet, and returns it.
struct parameter *split_add(const struct splitter *s, const struct parameter *p, const char *name,
                            enum parameter_class class);
// Appends rows of the piece of `p` that begins at row `whole_row`, counted from there.
void split_add_rows(struct parameter *local, const struct parameter *p, struct run run, int64_t whole_row);
// Makes it all rows of the columns.
void split_add_columns(struct parameter *local, const struct parameter *p, struct run run);
// Appends all of it, as a parameter of the class.
void split_add_whole(const struct splitter *s, const struct parameter *p, enum parameter_class class);
// The rule of what every rank has, and uses on its part of the work.
parameter_rule split_share;
// Refuses to split `parts` of something over more ranks.
trireme_status split_check(int64_t parts, const char *what, int ranks, trireme_error *error);

// ---- emitting

// The parameter `part` of a layer, or of the model when layer is NONE; absent where there is none.
struct operand emit_parameter(const struct emitter *e, int layer, const char *part);
struct operand emit_whole_operand(const struct emitter *e, int buffer);
// One number for each row, [rows].
struct operand emit_row_numbers(const struct emitter *e, int buffer);
// Whether tensor ranks split the model.
bool emit_is_split(const struct emitter *e);
// New buffers: in any dtype; in that of the model, [n_rows, columns]; in the one that sums are made in.
int emit_new_buffer(const struct emitter *e, int layer, const char *part, enum dtype dtype, int ndim,
                    const int64_t *dim);
int emit_new_activation(const struct emitter *e, int layer, const char *part, int64_t n_rows, int64_t columns);
int emit_new_statistic(const struct emitter *e, int layer, const char *part, int ndim, const int64_t *dim);
// Appends an instruction of the forward pass.
// Sequence `number` of a view whose first dim counts sequences.
struct operand emit_sequence(struct operand view, int64_t number);
void emit_forward(const struct emitter *e, enum op op, int layer, int inputs, const struct operand *in, int outputs,
                  const struct operand *out, const union attribute *attribute);
// From the rows `x` that this rank holds between layers to what layers work on: all rows, on all ranks of the group.
int emit_enter(struct emitter *e, int layer, const char *name, int x);
// The way back: sums over the group what each rank made for all rows; returns the rows that this rank holds between
// layers.
int emit_leave(struct emitter *e, int layer, const char *name, int partial);
// y = x w^T + bias + residual, of which the last two may be absent.
void emit_product(const struct emitter *e, int layer, struct operand x, struct operand w, struct operand bias,
                  struct operand residual, struct operand y);
// The model's norm of `x`, with the parameters `norm`.weight and `norm`.bias.
int emit_norm(struct emitter *e, int layer, const char *norm, int x);
// Columns of what a linear layer makes that an adapter adds to, if the model has one of these names (lora.h).
struct emit_band {
    const char *a, *b; // its two matrices, as "attention.q_proj": mostly the same
    int64_t columns;
};
// x W^T + b with the parameters `part`.weight and `part`.bias of the layer, and what adapters of its bands add, which
// are all of its columns.
int emit_linear(struct emitter *e, int layer, const char *part, int x, const char *result, const struct emit_band *band,
                int bands);
// The norm that a part begins with: x itself where the model's norms come after.
int emit_norm_before(struct emitter *e, int layer, const char *norm, int x);
// The projection out of a part, with its adapter, added to the residual stream; before that normed, if the model's
// norms come after, by the norm `after`.
int emit_out(struct emitter *e, int layer, const char *part, int x, int residual, const char *after,
             const char *result);
// What is added to what a linear layer makes of `x`, [rows of x, all bands]: NONE where no band has an adapter.
int emit_adapters(struct emitter *e, int layer, const char *part, int x, const struct emit_band *band, int bands);
// What the adapter of a projection out of a part makes of `x`, added to `residual` (NONE: to nothing): the rows that
// this rank holds between layers. `residual` where there is no adapter.
int emit_adapter_out(struct emitter *e, int layer, const char *part, int x, int residual);

#endif
