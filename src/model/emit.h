// Layers emit their forward pass: instructions appended to a template of a step program.
#ifndef MODEL_EMIT_H
#define MODEL_EMIT_H

#include "model/split.h"
#include "program/places.h"
#include "state/state_table.h"

// What generation keeps of the tokens before: of each layer, what its mixer adds to the state.
enum { CACHE_BUFFERS = 2 };
struct emit_cache {
    int (*of)[CACHE_BUFFERS]; // [layers]: entries of the state, or their buffers in a program; NONE where there is none
    int at;                   // i32[sequences], in a program: the position of the first row of each
    int given;                // i32[sequences]: how many of its rows are tokens; NONE where no layer needs to know
    int64_t context;          // tokens of each sequence
};
// Adds the entries for `sequences` of `context` tokens; declares their buffers in a program. emit_cache_release frees
// either list.
void emit_cache_add(struct emit_cache *entries, struct state_table *state, const struct model_config *config,
                    int64_t sequences, int64_t context, enum dtype dtype);
void emit_cache_declare(struct emit_cache *cache, struct program *program, const struct state_table *state,
                        const struct emit_cache *entries, const struct model_config *config);
void emit_cache_release(struct emit_cache *cache);

// What the layers of one template share. Rows are the microbatch's tokens, sequence after sequence. With sequence
// parallelism, a tensor rank holds only its part of the rows between layers.
struct emitter {
    struct program *program;
    const struct model_config *config;
    const struct parameter_table *table;
    const struct model_split *split;
    const int *parameter; // buffer of each parameter of the table
    int vocab_first;      // these five are those of struct model_state
    struct operand own_rows;
    axis_set own_rows_along;
    int own_first;
    int heads_end;
    int first_position;
    const int
        *rope;    // [ROPES]: buffers of rope_table, f32 or f64 [positions, model_rotary_dim]; NONE where there is none
    int template; // that instructions are appended to
    enum dtype dtype;
    const struct batch_shape *batch;
    int64_t seq_rows;      // how many of a sequence's tokens this rank has; rows = sequences x seq_rows
    struct places places;  // of the parts of sequences; of one: all
    axis_set exchange;     // the ranks that share a part, and exchange its tokens for heads
    bool gathers_keys;     // attention sees keys and values of all parts at once, rather than part after part
    int normed;            // the norm that the layer's parts share (model_shares_norm)
    int tokens, positions; // i32[rows], or i32[sequences, seq_rows]
    int starts; // [sequences x places.rows]: the first position that each token may attend to; NONE with a cache
    const struct emit_cache *cache; // NULL in training and evaluation
};

// The stream of communication within a layer.
int tensor_stream(struct program *program);
// Token and position embeddings: returns the residual stream, [rows, hidden_size].
int emit_embedding(struct emitter *emitter);
// The same in two steps, where the vocabulary is spread over stages: emit_embedding_part returns this rank's part of
// the token embeddings; emit_positions takes the sum of all parts and returns it with the position embeddings added, if
// the model has any.
int emit_embedding_part(struct emitter *emitter);
int emit_positions(struct emitter *emitter, int x);
// One transformer block over residual stream `x`: returns the residual stream after it.
int emit_layer(struct emitter *emitter, int layer, int x);
// The norm after the last block: returns the normed rows, all of them on each tensor rank, ready for the head.
int emit_final_norm(struct emitter *emitter, int x);
// How many rows of tokens this rank has.
int64_t emit_row_count(const struct emitter *emitter);
// How many rows of the residual stream this rank has between layers.
int64_t emit_stream_rows(const struct emitter *emitter);
// Returns the logits, [rows of x, the rank's part of the vocabulary], of hidden states `x`; the buffer is named `name`.
int emit_head(struct emitter *emitter, int x, const char *name);

#endif
