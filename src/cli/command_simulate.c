#include "cli/command_simulate.h"
#include "cli/keys.h"
#include "sim/cluster.h"

// What a pipeline schedule by itself is simulated with.
static const struct command_key SCHEDULE_KEYS[SIMULATE_KEYS] = {
    [SIMULATE_SCHEDULE] = {"schedule", COMMAND_KEY_TEXT, "the name of a pipeline schedule, or the path of one", 0, 0,
                           ""},
    [SIMULATE_STAGES] = {"stages", COMMAND_KEY_INTEGER, "ranks of the pipeline", 1, 65536,
                         "p pp num_stages pipeline_parallel_degree"},
    [SIMULATE_MICROBATCHES] = {"microbatches", COMMAND_KEY_INTEGER, "microbatches of a step", 1, 1048576,
                               "m num_microbatches n_microbatches"},
    [SIMULATE_CHUNKS] = {"chunks", COMMAND_KEY_INTEGER, "chunks of each rank", 1, 65536,
                         "v virtual_stages pipeline_parallel_chunks"},
    [SIMULATE_WAVES] = {"waves", COMMAND_KEY_INTEGER, "waves of hanayo", 1, 32768, ""},
    [SIMULATE_ACTIVATION_LIMIT] = {"activation_limit", COMMAND_KEY_INTEGER, "microbatches that a rank may hold", 1,
                                   1048576, ""},
    [SIMULATE_FORWARD] = {"forward", COMMAND_KEY_NUMBER, "time of one chunk and microbatch", 0, 1e12, "F"},
    [SIMULATE_BACKWARD_INPUT] = {"backward_input", COMMAND_KEY_NUMBER, "time of one chunk and microbatch", 0, 1e12,
                                 "backward B"},
    [SIMULATE_BACKWARD_WEIGHT] = {"backward_weight", COMMAND_KEY_NUMBER, "time of one chunk and microbatch", 0, 1e12,
                                  "W"},
    [SIMULATE_LATENCY] = {"latency", COMMAND_KEY_NUMBER, "time from one rank to another", 0, 1e12, "C"},
    [SIMULATE_EMBED] = {"embed", COMMAND_KEY_NUMBER, "time of a rank's part of the embedding", 0, 1e12, ""},
    [SIMULATE_LOSS] = {"loss", COMMAND_KEY_NUMBER, "time of a rank's part of head and loss, with its input's gradient",
                       0, 1e12, ""},
    [SIMULATE_LOSS_WEIGHT] = {"loss_weight", COMMAND_KEY_NUMBER, "time of the gradient of a rank's part of the head", 0,
                              1e12, ""},
    [SIMULATE_EMBED_WEIGHT] = {"embed_weight", COMMAND_KEY_NUMBER,
                               "time of the gradient of a rank's part of the embedding", 0, 1e12, ""},
    [SIMULATE_SVG] = {"svg", COMMAND_KEY_OUTPUT, "the path of a picture to be written", 0, 0, ""},
    [SIMULATE_SAVE] = {"save", COMMAND_KEY_OUTPUT, "the path of a schedule file to be written", 0, 0, ""},
};

// What a step of programs is simulated with, besides a configuration.
static const struct command_key PROGRAM_KEYS[SIMULATE_PROGRAM_KEYS] = {
    [SIMULATE_PROGRAM_CLUSTER] = {"cluster", COMMAND_KEY_TEXT, "the name of a cluster, or the path of one", 0, 0, ""},
    [SIMULATE_PROGRAM_DEVICES] = {"devices", COMMAND_KEY_INTEGER, "devices of the cluster", 1, 1048576,
                                  DEVICES_SYNONYMS},
    [SIMULATE_PROGRAM_ISLAND_BANDWIDTH] = {"island_bandwidth", COMMAND_KEY_TEXT, "a rate, as in 1 Gbit/s", 0, 0, ""},
    [SIMULATE_PROGRAM_ISLAND_LATENCY] = {"island_latency", COMMAND_KEY_TEXT, "a time, as in 10 ms", 0, 0, ""},
    [SIMULATE_PROGRAM_TRACE] = {"trace", COMMAND_KEY_OUTPUT, "the path of a Chrome trace to be written", 0, 0, ""},
    [SIMULATE_PROGRAM_RANKS] = {"trace_ranks", COMMAND_KEY_TEXT, "ranks, as 0,8,16, or all", 0, 0, ""},
    [SIMULATE_PROGRAM_SVG] = {"svg", COMMAND_KEY_OUTPUT, "the path of a picture to be written", 0, 0, ""},
};

static trireme_status command_simulate_schedule(const struct arguments *a, trireme_error *error) {
    struct command_value values[SIMULATE_KEYS] = {0};
    struct arguments rest;
    TRY(command_keys_read(a, SCHEDULE_KEYS, SIMULATE_KEYS, values, &rest, error));
    trireme_status status = command_keys_refuse_rest(&rest, SCHEDULE_KEYS, SIMULATE_KEYS, "with schedule=", error);
    if (status == TRIREME_OK)
        status = command_keys_check_outputs(SCHEDULE_KEYS, SIMULATE_KEYS, values, error);
    if (status == TRIREME_OK)
        status = simulate_schedule(values, a->json, error);
    arguments_release(&rest);
    return status;
}

static trireme_status check_program_keys(const struct command_value *values, const struct arguments *rest,
                                         trireme_error *error) {
    TRY(command_keys_refuse_meant(rest, PROGRAM_KEYS, SIMULATE_PROGRAM_KEYS, error));
    if (values[SIMULATE_PROGRAM_RANKS].given && !values[SIMULATE_PROGRAM_TRACE].given)
        FAIL(TRIREME_ERROR_USAGE, "trace_ranks= chooses the ranks of trace=FILE, which is missing");
    if (values[SIMULATE_PROGRAM_CLUSTER].given)
        return command_keys_check_outputs(PROGRAM_KEYS, SIMULATE_PROGRAM_KEYS, values, error);
    if (rest->operands.count || rest->settings.count)
        return cluster_refuse("cluster= is missing (or schedule=, for a pipeline alone)", error);
    FAIL(TRIREME_ERROR_USAGE, "usage: trireme simulate CONFIG.yaml cluster=CLUSTER, or simulate schedule=NAME stages=P "
                              "microbatches=M; `trireme help simulate` has more");
}

static trireme_status command_simulate_programs(const struct arguments *a, trireme_error *error) {
    struct command_value values[SIMULATE_PROGRAM_KEYS] = {0};
    struct arguments rest;
    TRY(command_keys_read(a, PROGRAM_KEYS, SIMULATE_PROGRAM_KEYS, values, &rest, error));
    trireme_status status = check_program_keys(values, &rest, error);
    if (status == TRIREME_OK)
        status = simulate_programs(values, &rest, error);
    arguments_release(&rest);
    return status;
}

trireme_status command_simulate(const struct arguments *a, trireme_error *error) {
    struct command_value schedule = {0};
    struct arguments rest;
    TRY(command_keys_read(a, &SCHEDULE_KEYS[SIMULATE_SCHEDULE], 1, &schedule, &rest, error));
    arguments_release(&rest);
    return schedule.given ? command_simulate_schedule(a, error) : command_simulate_programs(a, error);
}
