// How a model is split over the ranks of a tensor group (Shoeybi et al., "Megatron-LM", 2019, section 3; Korthikanti et
// al., "Reducing Activation Recomputation in Large Transformer Models", 2022, for the rows between layers).
//
// Projections into a layer are split by rows (whole heads; columns of the MLP), those out of it by columns, embedding
// and head by vocabulary; norms and biases behind a sum are whole on every rank. What does not divide is padded with
// heads, columns and rows of zeros, which stay zero: their gradients are. Where there are fewer key-value heads than
// ranks, `copies` ranks hold the same ones, each with some of the queries that attend to them; queries that are padding
// then attend to real keys, and what they find is put to zero (keep_columns).
//
// The vocabulary may also be spread over the stages of a pipeline: then the tensor ranks of all of them have a part of
// embedding and head.
//
// Ranks that share the parameters out among them (ZeRO-3) may leave the embedding where it is: each looks up the rows
// that it has for the tokens of all, and sums over the ranks give each its own tokens' rows.
#ifndef MODEL_SPLIT_H
#define MODEL_SPLIT_H

#include "model/model.h"

struct model_split {
    int ranks;             // of the tensor group; 1: nothing is split
    int copies;            // of them, neighbours that hold the same key-value heads (AXIS_KV)
    bool sequence;         // rows of the residual stream are split, not held by all
    int vocabulary_stages; // of a pipeline, over which the vocabulary is spread; 1: it is not
    int row_ranks;         // that look rows up in their own parts of the embedding, for each other too; 1: in all of it
    // Of one rank, padding included.
    int64_t heads, kv_heads, intermediate_size, vocab_size;
};

// Refuses (TRIREME_ERROR_USAGE) more ranks than there are heads, vocabulary rows or columns to split.
trireme_status model_split_create(struct model_split *out, const struct model_config *config, int ranks, bool sequence,
                                  trireme_error *error);

// Spreads the vocabulary over the stages of a pipeline, too. Refuses more ranks than tokens.
trireme_status model_split_spread_vocabulary(struct model_split *split, const struct model_config *config, int stages,
                                             trireme_error *error);

// Query heads of rank `index` of the tensor group that are not padding.
int64_t model_split_heads(const struct model_split *split, const struct model_config *config, int index);

// The table of what rank `index` of the tensor group, whose part of the vocabulary is number `vocabulary` (the same,
// but where that is spread), holds of the parameters of `whole`: local extents, units apart whose parameters are split
// alike ("layers.0", "layers.0.kv", "layers.0.share"). Extents are the same whatever the index, regions are not.
// `joined` (NULL: all, none joined) says for each unit of the whole with which one it becomes a unit, the first of
// those, NONE where the rank's pipeline stage has it not; with the head it has a tied embedding too. With `halves`
// attention and MLP of a layer are units of their own. Locals have no pieces. With one rank and nothing joined or apart
// it is a copy.
void parameter_table_split(struct parameter_table *out, const struct parameter_table *whole,
                           const struct model_config *config, const struct model_split *split, int index,
                           int vocabulary, const int *joined, bool halves);

// Elements [begin, end) of a parameter.
struct parameter_span {
    int64_t begin, end;
};

// Of the elements `given` of a whole parameter, which lie at `from`, those that are among the elements `held` of a
// rank, which lie at `to`; what else lies there, padding too, is left as it is. Elements of `size` bytes; wholes with
// padding.
void parameter_take(const struct parameter *local, const struct parameter *whole, struct parameter_span given,
                    const void *from, struct parameter_span held, void *to, int64_t size);

// What is both among the elements `held` of a rank and in a window of the whole, as runs of neighbours: from element
// `held` of the former and element `window` of the latter on. Of `local` dim[1] and regions count. The order is the
// same for whoever asks.
struct parameter_runs {
    const struct parameter *local;
    struct parameter_span held;
    struct parameter_window window;
    int region;
    int64_t row;
};
struct parameter_run {
    int64_t held, window, count;
};
struct parameter_runs parameter_runs(const struct parameter *local, struct parameter_span held,
                                     const struct parameter_window *window);
bool parameter_next(struct parameter_runs *runs, struct parameter_run *out);

#endif
