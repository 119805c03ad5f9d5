#include "cli/simulate.h"
#include "cli/keys.h"

// What a pipeline schedule by itself is simulated with.
static const struct command_key SCHEDULE_KEYS[SIMULATE_KEYS] = {
    [SIMULATE_SCHEDULE] = {"schedule", COMMAND_KEY_TEXT, "the name of a pipeline schedule, or the path of one", 0, 0},
    [SIMULATE_STAGES] = {"stages", COMMAND_KEY_INTEGER, "ranks of the pipeline", 1, 65536},
    [SIMULATE_MICROBATCHES] = {"microbatches", COMMAND_KEY_INTEGER, "microbatches of a step", 1, 1048576},
    [SIMULATE_CHUNKS] = {"chunks", COMMAND_KEY_INTEGER, "chunks of each rank", 1, 65536},
    [SIMULATE_WAVES] = {"waves", COMMAND_KEY_INTEGER, "waves of hanayo", 1, 32768},
    [SIMULATE_ACTIVATION_LIMIT] = {"activation_limit", COMMAND_KEY_INTEGER, "microbatches that a rank may hold", 1,
                                   1048576},
    [SIMULATE_FORWARD] = {"forward", COMMAND_KEY_NUMBER, "time of one chunk and microbatch", 0, 1e12},
    [SIMULATE_BACKWARD_INPUT] = {"backward_input", COMMAND_KEY_NUMBER, "time of one chunk and microbatch", 0, 1e12},
    [SIMULATE_BACKWARD_WEIGHT] = {"backward_weight", COMMAND_KEY_NUMBER, "time of one chunk and microbatch", 0, 1e12},
    [SIMULATE_LATENCY] = {"latency", COMMAND_KEY_NUMBER, "time from one rank to another", 0, 1e12},
    [SIMULATE_SVG] = {"svg", COMMAND_KEY_TEXT, "the path of a picture to be written", 0, 0},
};

trireme_status command_simulate(const struct arguments *a, trireme_error *error) {
    struct command_value values[SIMULATE_KEYS] = {0};
    struct arguments rest;
    TRY(command_keys_read(a, SCHEDULE_KEYS, SIMULATE_KEYS, values, &rest, error));
    trireme_status status;
    if (values[SIMULATE_SCHEDULE].given)
        status = command_keys_refuse_rest(&rest, SCHEDULE_KEYS, SIMULATE_KEYS, "with schedule=", error);
    else
        status = error_set(error, TRIREME_ERROR_USAGE,
                           "usage: trireme simulate schedule=NAME stages=P microbatches=M [forward=F ...]");
    if (status == TRIREME_OK)
        status = simulate_schedule(values, a->json, error);
    arguments_release(&rest);
    return status;
}
