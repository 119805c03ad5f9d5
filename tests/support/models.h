// Small models of every family, batches with packed documents and masked targets, and the values that an engine holds.
#ifndef SUPPORT_MODELS_H
#define SUPPORT_MODELS_H

#include "support/checkpoint.h"

#include "config/config.h"
#include "engine/engine.h"

struct family_model {
    const char *name;
    const char *json; // config.json
};

// Two layers each, 50 tokens of vocabulary (so that there is padding), 160 positions.
enum small {
    SMALL_GPT2,
    SMALL_GPT2_PLAIN, // no biases, exact GELU
    SMALL_LLAMA,      // grouped queries, RoPE scaling, untied head
    SMALL_LLAMA_BIAS, // every bias a Llama may have, one key-value head, tied head
    SMALL_MISTRAL,    // sliding window shorter than the sequences
    SMALL_QWEN2,
    SMALL_QWEN3,
    SMALL_WINDOWS,   // a sliding window in the first layer alone
    SMALL_GEMMA2,    // norms around parts, plus one; soft caps, GEGLU, scaled embeddings
    SMALL_GEMMA3,    // norms of heads, plus one; layers with a window have another rotary table
    SMALL_PHI3,      // tensors of several projections, part of each head rotated, longrope
    SMALL_OLMO2,     // norms after parts, and over the width of queries and keys
    SMALL_NEOX,      // parallel attention and MLP, LayerNorm with rotary positions, projections head by head
    SMALL_STABLELM,  // attention and MLP that share a norm, LayerNorm of heads
    SMALL_SINKS,     // attention sinks, a factor of scores, a window in the second layer alone
    SMALL_SMOLLM3,   // a layer without rotary positions
    SMALL_GLA,       // linear attention
    SMALL_GLA_MIXED, // the same in the first layer alone, keys and values of one width; a window in the second
    SMALL_COUNT
};
extern const struct family_model small_models[SMALL_COUNT];

void small_config(struct model_config *out, const char *json);

// Creates an engine of two threads from overrides "section.key=value", ended by NULL. The caller releases *config.
void engine_open(struct engine *engine, struct config *config, const struct model_config *model,
                 const char *const *overrides);
// Sets values that hide no error: norms around one, biases and matrices around zero, all larger than initial values.
void engine_scatter(struct engine *engine, uint64_t seed);

// A global batch, its sequences one after another.
struct batch {
    int64_t sequences, seq_len;
    int32_t *tokens, *targets, *starts, *positions; // [sequences * seq_len]
};

// Documents of uneven lengths are packed into each sequence, and targets are masked so that sequences have very
// different numbers of them.
struct batch batch_create(int64_t sequences, int64_t seq_len, int64_t vocab_size, uint64_t seed);
// The same with one document in each sequence.
struct batch batch_of_documents(int64_t sequences, int64_t seq_len, int64_t vocab_size, uint64_t seed);
void batch_release(struct batch *batch);
// Runs one step, or an evaluation, of an engine for that many sequences. (The two programs share the step arena, so
// inputs are written anew each time.)
struct engine_result batch_train(struct engine *engine, const struct batch *batch, double lr);
struct engine_result batch_evaluate(struct engine *engine, const struct batch *batch);

// Element `i` of an array of the dtype.
double value_at(const void *data, enum dtype dtype, int64_t i);
void value_store(void *data, enum dtype dtype, int64_t i, double value);

// A parameter's values or accumulated gradient, padding included.
struct tensor_values {
    void *data;
    enum dtype dtype;
    int64_t count;
};
struct tensor_values engine_parameter(const struct engine *engine, size_t parameter);
struct tensor_values engine_gradient(const struct engine *engine, size_t parameter);
// Root mean square over all gradients, padding left out.
double engine_gradient_rms(const struct engine *engine);
// Copies all parameters or gradients as doubles into one array, one after another. Callers free.
double *engine_copy(const struct engine *engine, struct tensor_values (*of)(const struct engine *, size_t));

// max|a - b| <= tolerance * max(max|b|, floor), else fails naming `what`, the element and both values.
void assert_close(const char *what, const double *a, const double *b, int64_t count, double tolerance, double floor);
// assert_close for each parameter's part of two arrays of engine_copy.
void assert_all_close(const struct engine *engine, const char *what, const double *a, const double *b, double tolerance,
                      double floor);

// Saves the engine's parameters as a Hugging Face directory.
void engine_save(const struct engine *engine, const char *path);

#endif
