// The parts of `trireme simulate`.
#ifndef CLI_COMMAND_SIMULATE_H
#define CLI_COMMAND_SIMULATE_H

#include "cli/keys.h"

// Keys of a pipeline schedule by itself.
enum simulate_key {
    SIMULATE_SCHEDULE,
    SIMULATE_STAGES,
    SIMULATE_MICROBATCHES,
    SIMULATE_CHUNKS,
    SIMULATE_WAVES,
    SIMULATE_ACTIVATION_LIMIT,
    SIMULATE_FORWARD,
    SIMULATE_BACKWARD_INPUT,
    SIMULATE_BACKWARD_WEIGHT,
    SIMULATE_LATENCY,
    SIMULATE_EMBED, // these four: of a spread vocabulary
    SIMULATE_LOSS,
    SIMULATE_LOSS_WEIGHT,
    SIMULATE_EMBED_WEIGHT,
    SIMULATE_SVG,
    SIMULATE_SAVE,
    SIMULATE_KEYS
};

// Keys of a step of programs.
enum simulate_program_key {
    SIMULATE_PROGRAM_CLUSTER,
    SIMULATE_PROGRAM_DEVICES,
    SIMULATE_PROGRAM_ISLAND_BANDWIDTH,
    SIMULATE_PROGRAM_ISLAND_LATENCY,
    SIMULATE_PROGRAM_TRACE,
    SIMULATE_PROGRAM_RANKS,
    SIMULATE_PROGRAM_SVG,
    SIMULATE_PROGRAM_KEYS
};

// A schedule without a model: its cost, bubble and activations. values: [SIMULATE_KEYS], the schedule given.
trireme_status simulate_schedule(const struct command_value *values, bool json, trireme_error *error);

// A step of the programs that a configuration gives each rank, on a cluster. values: [SIMULATE_PROGRAM_KEYS], the
// cluster given; the configuration is in `rest`.
trireme_status simulate_programs(const struct command_value *values, const struct arguments *rest,
                                 trireme_error *error);

#endif
