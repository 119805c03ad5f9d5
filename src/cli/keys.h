// Keys that a command has besides those of a configuration: `stages=16`, `--stages=16` or `--stages 16`.
#ifndef CLI_KEYS_H
#define CLI_KEYS_H

#include "cli/cli.h"

enum command_key_type {
    COMMAND_KEY_INTEGER,
    COMMAND_KEY_NUMBER,
    COMMAND_KEY_TEXT,
    COMMAND_KEY_TEXTS,
    COMMAND_KEY_OUTPUT // the path of a file to be written
};

struct command_key {
    const char *name;
    enum command_key_type type;
    const char *what;     // in words, for messages: "ranks of the pipeline"
    double least, most;   // of integers and numbers, inclusive
    const char *synonyms; // other names for it, separated by spaces, which are refused naming this one
};
#define DEVICES_SYNONYMS "gpus gpu device num_devices n_devices n_gpus gpu_count nodes num_nodes n_nodes nnodes"

struct command_value {
    const char *given;     // NULL: not given
    VEC(const char *) all; // of COMMAND_KEY_TEXTS, which may be given several times: each. command_values_release
    int64_t integer;
    double number; // of integers too
};

// Takes the keys of the table out of the arguments into values[count]. What is left goes to *rest: words without '=' as
// operands, all others as settings. *rest is released by arguments_release, and holds words of `arguments`.
// TRIREME_ERROR_USAGE, which names key, value and what is accepted: a wrong value, a key given twice that is one only,
// two outputs that are one file.
trireme_status command_keys_read(const struct arguments *arguments, const struct command_key *keys, size_t count,
                                 struct command_value *values, struct arguments *rest, trireme_error *error);
void arguments_release(struct arguments *arguments);
void command_values_release(struct command_value *values, size_t count);

// TRIREME_ERROR_USAGE where an output that is given cannot be written: before work whose answer would go there.
trireme_status command_keys_check_outputs(const struct command_key *keys, size_t count,
                                          const struct command_value *values, trireme_error *error);

// TRIREME_ERROR_USAGE if what was left for the configuration has none of its keys' names, but a synonym or a misspelt
// name of a key of the table, or a name that nobody knows.
trireme_status command_keys_refuse_meant(const struct arguments *rest, const struct command_key *keys, size_t count,
                                         trireme_error *error);

// TRIREME_ERROR_USAGE if anything was left, with the key that is meant or nearest; `context` says where the keys hold:
// "with schedule=".
trireme_status command_keys_refuse_rest(const struct arguments *rest, const struct command_key *keys, size_t count,
                                        const char *context, trireme_error *error);

#endif
