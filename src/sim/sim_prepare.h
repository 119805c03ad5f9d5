// Programs in the form in which the loop over events reads them: for each template and stream the instructions in
// order, with their waits; for each class of ranks the time of each instruction. Internal to sim/.
#ifndef SIM_SIM_PREPARE_H
#define SIM_SIM_PREPARE_H

#include "sim/simulate.h"

struct lane_wait {
    uint8_t stream;
    bool slot;      // WAIT_SLOT or WAIT_OWN: what slot_waits_count says is waited for
    int32_t target; // otherwise: how many instructions of the stream, from the template's beginning on, must be done
    int32_t use;    // NONE: the program's own wait; else it counts only where links are shared with this prepared.uses
};

enum lane_kind { LANE_COMPUTE, LANE_COLLECTIVE, LANE_SEND, LANE_RECEIVE };

// An instruction.
struct lane_item {
    int32_t index;       // in its template
    int32_t number;      // in its program, over all templates
    int32_t first_wait;  // in the program's waits
    int32_t use;         // communication: the index in prepared.uses
    uint8_t waits, kind; // how many waits; lane_kind
    uint8_t axis;        // communication: the outermost of its group
    uint8_t part;        // computing: sim_part
    uint8_t when;        // enum when
    bool after_first;
};

struct lane {
    struct lane_item *item;
    int count;
};

struct prepared_program {
    const struct program *program;
    struct lane *lane; // [templates][STREAMS_MAX]
    VEC(struct lane_wait) waits;
    struct slot_waits slot_waits;
    int instructions; // of all templates
};

struct prepared {
    const struct op_table *table;
    int stages;
    struct prepared_program *program; // [stages]
    VEC(struct link_use) uses;        // of links, in all programs
    axis_set unequal;                 // along which ranks compute for different times (cost_unequal)
};

void prepare(struct prepared *out, const struct program *const *program_of_stage, const struct op_table *table);
void prepared_release(struct prepared *prepared);

// Seconds of each instruction of the program of class `who`, [instructions][2]: writing its outputs, and adding to
// them. The caller frees.
double *prepare_seconds(const struct prepared *prepared, const struct topology *topology, int who,
                        const struct simulation_options *options);

#endif
