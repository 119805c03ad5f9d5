// The part of the `state` arena that belongs to the model: its parameters, unit by unit, each a flat buffer whose
// slices are the tensors. All programs of a run declare it first, and so share its addresses.
#ifndef MODEL_STATE_H
#define MODEL_STATE_H

#include "model/model.h"

enum { PARAMETER_ALIGNMENT = 64 }; // elements: where a tensor may start within its unit

struct model_state {
    int units, parameters;
    int *unit;        // flat buffer of each unit, [elements]
    int64_t *decayed; // elements of the unit, from its start, that weight decay applies to
    int *parameter;   // buffer of each parameter of the table: a slice of its unit
    int rope;         // rope_table of the model, or NONE
};

// Declares parameters (dtype) and, for models with rotary embedding, the table of `positions` angles.
void model_state_declare(struct model_state *state, struct program *program, const struct model_config *config,
                         const struct parameter_table *table, enum dtype dtype, int64_t positions);
// Writes rope_table into memory of `dtype` (f32 or f64), [positions, head_dim].
void model_fill_rope(const struct model_config *config, int64_t positions, enum dtype dtype, void *out);
void model_state_release(struct model_state *state);
// One more flat buffer per unit, of the units' shape, with slices for the tensors when `prefix` is not NULL:
// unit buffers are named "UNIT.suffix", slices "prefix.TENSOR". *slice may be NULL; callers free both arrays.
void model_state_declare_like(const struct model_state *state, struct program *program,
                              const struct parameter_table *table, enum dtype dtype, enum buffer_kind kind,
                              const char *suffix, const char *prefix, int **unit, int **slice);

#endif
