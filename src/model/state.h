// The part of the `state` arena that belongs to the model: its parameters, unit by unit, each a flat buffer whose
// slices are the tensors. All programs of a run declare it first, and so share its addresses.
#ifndef MODEL_STATE_H
#define MODEL_STATE_H

#include "model/model.h"

enum { PARAMETER_ALIGNMENT = 64 }; // elements: where a tensor may start within its unit

// How the buffers of units are distributed over ranks.
struct state_layout {
    axis_set shards; // every unit is padded so that it divides by the ranks along these axes
    bool sharded;    // a rank keeps only its part of each unit's parameters, and gathers the whole when it is needed
    axis_set own;    // else: it keeps them whole, but between steps only its own part along these axes is current
    bool tied_ends;  // the embedding's unit is on both ends of a pipeline
    bool vocabulary; // the vocabulary is spread over the stages of a pipeline
    bool rows;       // rows of the embedding are looked up in the ranks' parts of it
};

struct model_state {
    int units, parameters;
    int *unit;        // flat buffer of each unit, [elements], or of the rank's part of it
    int *gathered;    // where parameters are sharded: LOCAL buffers for the whole units; else `unit`
    int64_t *count;   // elements of the whole unit
    int64_t *decayed; // elements of the unit, from its start, that weight decay applies to
    int *parameter;   // buffer of each parameter of the table: a slice of its unit, gathered if sharded
    int rope;         // rope_table of the model, or NONE
    int vocab_first;  // i32[1]: first row of the vocabulary that the rank has; NONE where it is not split
    // Where rows are looked up in the ranks' parts of the embedding: this rank's part, [rows, hidden_size], a view of
    // its unit's buffer; and its first row, i32[1]. Else absent, and NONE.
    struct operand own_rows;
    int own_first;
    int heads_end; // i32[1]: columns of the rank's attention that are not padding; NONE where padding stays zero
};

// Declares the parameters, in `dtype`; for models with rotary embedding the table for `positions` positions; and the
// numbers of struct model_state that the layout needs. model_state_release frees the arrays of *state.
void model_state_declare(struct model_state *state, struct program *program, const struct model_config *config,
                         const struct parameter_table *table, const struct state_layout *layout, enum dtype dtype,
                         int64_t positions);
// Writes rope_table into memory of `dtype` (f32 or f64), [positions, head_dim].
void model_fill_rope(const struct model_config *config, int64_t positions, enum dtype dtype, void *out);
void model_state_release(struct model_state *state);
// Declares one more flat buffer per unit, of the unit's shape (with `part`, of the rank's part), and unless `prefix` is
// NULL slices for the tensors: unit buffers are named "UNIT.suffix", slices "prefix.TENSOR", or "TENSOR" if `prefix` is
// empty. `slice` may be NULL where there are none. The caller frees both arrays.
struct state_buffers {
    enum dtype dtype;
    enum buffer_kind kind;
    enum buffer_scope scope;
    bool part;
    const char *suffix, *prefix;
};
void model_state_declare_like(const struct model_state *state, struct program *program,
                              const struct parameter_table *table, const struct state_layout *layout,
                              const struct state_buffers *what, int **unit, int **slice);

#endif
