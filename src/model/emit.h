// Layers emit their forward pass: instructions appended to a template of a step program.
#ifndef MODEL_EMIT_H
#define MODEL_EMIT_H

#include "model/split.h"

// Where keys and values of generation live; absent in training and evaluation.
struct emit_cache {
    const int *keys, *values; // per layer: buffers [context, kv_heads, head_dim]
    int at;                   // i32[1]: the position of the first row
};

// What the layers of one template share. Rows are the microbatch's tokens, sequence after sequence. Between layers, on
// tensor ranks with sequence parallelism, a rank holds its part of them.
struct emitter {
    struct program *program;
    const struct model_config *config;
    const struct parameter_table *table;
    const struct model_split *split;
    const int *parameter;    // buffer of each parameter of the table
    int vocab_first;         // i32[1], or NONE
    struct operand own_rows; // struct model_state's
    int own_first;           // also
    int heads_end;           // i32[1], or NONE
    int rope;                // buffer of rope_table, f32 or f64 [positions, head_dim]; NONE without rotary embedding
    int template;
    enum dtype dtype;
    int64_t sequences, seq_len; // rows = sequences x seq_len
    int tokens, positions;      // i32[rows]
    int starts;                 // i32[rows]: first position each token may attend to; NONE with a cache
    const struct emit_cache *cache;
};

// Token and position embeddings: returns the residual stream, [rows, hidden_size].
int emit_embedding(struct emitter *emitter);
// This rank's part of the token embeddings, and what becomes of their sum over all: with the position embeddings.
int emit_embedding_part(struct emitter *emitter);
int emit_positions(struct emitter *emitter, int x);
// One transformer block over residual stream `x`: returns the next.
int emit_layer(struct emitter *emitter, int layer, int x);
// The norm after the last block, of all rows, ready for the head.
int emit_final_norm(struct emitter *emitter, int x);
// Rows of the residual stream that this rank has.
int64_t emit_stream_rows(const struct emitter *emitter);
// Logits [rows of x, the rank's part of the vocabulary] of the hidden states `x`, named `name`.
int emit_head(struct emitter *emitter, int x, const char *name);

#endif
