// What the model has in the state of a rank: its parameters, unit by unit, each a flat buffer whose slices are the
// tensors, and its constants. And the buffers of these in one program.
#ifndef MODEL_STATE_H
#define MODEL_STATE_H

#include "model/model.h"
#include "state/state_table.h"

enum { PARAMETER_ALIGNMENT = 64 }; // elements: where a tensor may start within its unit

// How the buffers of units are distributed over ranks.
struct state_layout {
    int zero_stage;               // of units that have shards (struct unit_axes)
    axis_set shards[CLASS_COUNT]; // of the units of each class
    bool tied_ends;               // the embedding's unit is on both ends of a pipeline
    bool vocabulary;              // the vocabulary is spread over the stages of a pipeline
    bool rows;                    // rows of the embedding are looked up in the ranks' parts of it
};

// Along which axes the ranks of a stage differ in a unit; along all others they have the same, and do the same with it.
// Each class of units has its own (unit_axes).
struct unit_axes {
    axis_set split;  // they have other elements of its tensors
    axis_set terms;  // they have other terms of the sum that its gradient is
    axis_set shards; // they keep other parts of what is sharded: units are padded so that they divide by these
    int zero_stage;  // what a rank has only its own part of: 1 optimizer states, 2 also gradients, 3 also parameters,
                     // which are gathered when they are needed; 0: nothing, there are no shards
};
struct unit_axes unit_axes(const struct state_layout *layout, const struct mesh *mesh, enum parameter_class class);
// Stages 1 and 2: parameters are whole, but between steps only the rank's own part along these axes is current.
static inline axis_set unit_own(const struct unit_axes *axes) {
    return axes->zero_stage < 3 ? axes->shards : AXES_NONE;
}
// The axes along which ranks have other elements, or keep other parts, of units of some class.
axis_set units_apart(const struct state_layout *layout, const struct mesh *mesh);

// The units of a rank, as they lie in memory.
struct model_units {
    const struct parameter_table *table; // of what the rank has
    struct mesh mesh;
    struct state_layout layout;
    int units, parameters;
    bool uneven;            // some stages of a pipeline may have nothing to train of a class that others have
    struct unit_axes *axes; // [units]
    int64_t *count;         // [units]: elements of the whole unit
    int64_t *decayed;       // [units]: elements, from its start, that weight decay applies to
    int64_t *at;            // [parameters]: elements from the start of its unit to each parameter
};
// The table must outlive the units.
void model_units_create(struct model_units *units, const struct parameter_table *table, const struct mesh *mesh,
                        const struct state_layout *layout);
void model_units_release(struct model_units *units);

// One value for each element of units.
struct unit_values {
    const char *suffix; // entries and buffers are named "UNIT.suffix"
    enum dtype dtype;
    enum state_role role;
    int part_from;  // the ZeRO stage from which on the rank keeps only its own part of a unit; 0: never
    const char *as; // as in struct state_entry
    enum memory_space space;
    const int *over; // [units]: entries in whose memory they lie, where they are as large; NULL: in memory of their own
};
// Adds to the state the values of one unit, as an entry of the rank's shape; returns its number. `owner` as in struct
// state_entry.
int model_units_add(const struct model_units *units, struct state_table *state, int unit,
                    const struct unit_values *values, int owner);

// The part of a unit's parameters that the rank itself updates: all of the buffer, or its own part of it.
struct operand model_units_own(const struct model_units *units, const struct program *program, int unit, int buffer);

// The model's entries of a state.
struct model_entries {
    int *unit;          // [units]: the unit's parameters, or the rank's part of them
    int rope[ROPES];    // rope_table of the model, or NONE
    int64_t length;     // of the longest sequence: rope_table
    int vocab_first;    // i32[1]: first row of the vocabulary that the rank has; NONE where it is not split
    int own_first;      // i32[1]: first of the embedding's rows that the rank has of those looked up for all; or NONE
    int first_position; // i32[1]: of the rank's part of each sequence; NONE where ranks have whole sequences
    int heads_end;      // i32[1]: columns of the rank's attention that are not padding; NONE where padding stays zero
};
// Adds the parameters, in `dtype`; the model's rotary tables for `positions` positions, of sequences of up to `length`
// tokens; and the numbers that the layout needs. model_entries_release frees the array of *entries.
void model_entries_add(struct model_entries *entries, struct state_table *state, const struct model_units *units,
                       const struct model_config *config, enum dtype dtype, int64_t positions, int64_t length,
                       axis_set parts);
void model_entries_release(struct model_entries *entries);

// The buffers of these in one program.
struct model_state {
    int units, parameters;
    int *unit;      // flat buffer of each unit, [elements], or of the rank's part of it
    int *gathered;  // where parameters are sharded: LOCAL buffers for the whole units; else `unit`
    int *parameter; // buffer of each parameter of the table: a slice of its unit, gathered if sharded
    int rope[ROPES], vocab_first, own_first, first_position, heads_end; // as in struct model_entries
    // Where rows are looked up in the ranks' parts of the embedding: this rank's part, [rows, hidden_size], a view of
    // its unit's buffer, and the axes along which ranks have such parts. Else absent.
    struct operand own_rows;
    axis_set own_rows_along;
    const struct unit_axes *axes; // [units]: of struct model_units
};
// Declares the buffers of the model's entries; the units must outlive *out. model_state_release frees the arrays of
// *out.
void model_state_declare(struct model_state *out, struct program *program, const struct state_table *state,
                         const struct model_entries *entries, const struct model_units *units, enum dtype dtype);
void model_state_release(struct model_state *state);
// Declares a LOCAL buffer for the values of a whole unit, and returns it.
int model_units_buffer(const struct model_units *units, struct program *program, int unit,
                       const struct unit_values *values, enum buffer_kind kind);
// Declares, for the tensors of a unit, slices of a buffer of its whole shape, named "prefix.TENSOR", or "TENSOR" if
// `prefix` is empty: slice[parameters] of the unit's parameters become their buffers.
void model_units_slices(const struct model_units *units, struct program *program, int unit, int buffer,
                        const char *prefix, int *slice);

// Writes rope_table into memory of `dtype` (f32 or f64), [positions, model_rotary_dim].
void model_fill_rope(const struct model_config *config, int rope, int64_t positions, int64_t length, enum dtype dtype,
                     void *out);

#endif
