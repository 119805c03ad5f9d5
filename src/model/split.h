// How a model is split over the ranks of a tensor group (Shoeybi et al., "Megatron-LM", 2019, section 3; Korthikanti et
// al., "Reducing Activation Recomputation in Large Transformer Models", 2022, for the rows between layers).
//
// Projections into a layer are split by rows (whole heads; columns of the MLP), those out of it by columns, embedding
// and head by vocabulary; norms, and biases that are added after a sum over ranks, are whole on every rank. What does
// not divide is padded with heads, columns and rows of zeros, which stay zero because their gradients are. Where there
// are fewer key-value heads than ranks, `copies` ranks hold the same ones, each with some of the queries that attend to
// them; queries that are padding then attend to real keys, and their results are set to zero (keep_columns).
//
// The vocabulary may also be spread over the stages of a pipeline: then the tensor ranks of all stages have a part of
// embedding and head.
//
// Ranks that keep only parts of the parameters (ZeRO-3) need not gather the embedding: each looks up, for the tokens of
// all ranks, the rows that it has, and sums over the ranks give each the rows of its own tokens.
#ifndef MODEL_SPLIT_H
#define MODEL_SPLIT_H

#include "model/model.h"

// What one data-parallel rank takes in a step.
struct batch_shape {
    int64_t sequences, seq_len; // of one microbatch
    int microbatches;
};

struct model_split {
    int ranks;             // of the tensor group; 1: nothing is split
    int copies;            // how many of them, neighbours, hold the same key-value heads (AXIS_KV)
    bool sequence;         // rows of the residual stream are split between layers, not held by all
    int vocabulary_stages; // stages of a pipeline over which the vocabulary is spread; 1: it is not
    int row_ranks;         // ranks that look rows up in their own parts of the embedding, for all; 1: each has all rows
    // What one rank has, padding included.
    int64_t heads, kv_heads, linear_heads, intermediate_size, vocab_size;
};

// Refuses (TRIREME_ERROR_USAGE) more ranks than there are heads, vocabulary rows or columns to split.
trireme_status model_split_create(struct model_split *out, const struct model_config *config, int ranks, bool sequence,
                                  trireme_error *error);

// Spreads the vocabulary over the stages of a pipeline, too. Refuses (TRIREME_ERROR_USAGE) more ranks than tokens.
trireme_status model_split_spread_vocabulary(struct model_split *split, const struct model_config *config, int stages,
                                             trireme_error *error);

// The number of query heads of rank `index` of the tensor group that are not padding.
int64_t model_split_heads(const struct model_split *split, const struct model_config *config, int index);

// The table of what rank `index` of the tensor group holds of the parameters of `whole`. Dims are the rank's own, the
// same for every index, while regions differ. Parameters of a unit that are not split alike become units apart
// ("layers.0", "layers.0.kv", "layers.0.share"). `vocabulary` is the number of the rank's part of the vocabulary:
// `index`, unless the vocabulary is spread over stages.
//
// joined[units of `whole`] gives for each unit the first of those with which it forms one unit, or NONE if the rank's
// pipeline stage does not have it; a stage with the head has a tied embedding too. NULL: all units are there, none
// joined. With `halves`, attention and MLP of a layer are units of their own; so are parameters that differ in
// apart[parameters of `whole`] (NULL: none do), 0 for those that name the unit, and those that are frozen. Local
// parameters have matrices instead of pieces. With one rank, nothing joined, apart or frozen and no halves, the table
// has the units of `whole`.
void parameter_table_split(struct parameter_table *out, const struct parameter_table *whole,
                           const struct model_config *config, const struct model_split *split, int index,
                           int vocabulary, const int *joined, bool halves, const int *apart);

// Elements [begin, end) of a parameter.
struct parameter_span {
    int64_t begin, end;
};

// Copies what elements `given` of a whole parameter, which lie at `from`, have in common with elements `held` of a
// rank, which lie at `to`; what else lies there, padding included, is left as it is. Elements have `size` bytes, and
// those of the whole are numbered with its padding.
void parameter_take(const struct parameter *local, const struct parameter *whole, struct parameter_span given,
                    const void *from, struct parameter_span held, void *to, int64_t size);

// The elements that are both among the elements `held` of a rank and in a window of the whole, as runs of neighbours.
// parameter_next gives one after another, always in the same order. Of `local` only dim[1] and regions matter.
struct parameter_runs {
    const struct parameter *local;
    struct parameter_span held;
    struct parameter_window window;
    int region;
    int64_t row;
};
struct parameter_run {
    int64_t held, window, count; // where it begins, counted from held.begin and from the window's first element
};
struct parameter_runs parameter_runs(const struct parameter *local, struct parameter_span held,
                                     const struct parameter_window *window);
bool parameter_next(struct parameter_runs *runs, struct parameter_run *out);

#endif
