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

// Whether two paths name one file or directory, which need not exist yet.
bool same_file(const char *a, const char *b);

struct command_value {
    const char *given;     // NULL: not given
    VEC(const char *) all; // COMMAND_KEY_TEXTS may be given several times: each one; see command_values_release
    int64_t integer;
    double number; // of integers too
};

// Takes the keys of the table out of the arguments into values[count]. What is left goes to *rest: words without '=' as
// operands, all others as settings. *rest points to the words of `arguments`; arguments_release releases it.
// Of a key that is given several times and takes one value, the last counts. TRIREME_ERROR_USAGE, naming key, value and
// what is accepted: for a wrong value, and for two outputs that are one file.
trireme_status command_keys_read(const struct arguments *arguments, const struct command_key *keys, size_t count,
                                 struct command_value *values, struct arguments *rest, trireme_error *error);
void arguments_release(struct arguments *arguments);
void command_values_release(struct command_value *values, size_t count);

// TRIREME_ERROR_USAGE if an output that is given cannot be written. To be called before the work whose result would go
// there.
trireme_status command_keys_check_outputs(const struct command_key *keys, size_t count,
                                          const struct command_value *values, trireme_error *error);

// TRIREME_ERROR_USAGE if one of the settings that were left for the configuration has no name of its keys, but a
// synonym or a misspelt name of a key of the table, or a name that is known to neither.
trireme_status command_keys_refuse_meant(const struct arguments *rest, const struct command_key *keys, size_t count,
                                         trireme_error *error);

// TRIREME_ERROR_USAGE if anything was left; it names the key that is meant or nearest. `context` says where the keys
// hold: "with schedule=".
trireme_status command_keys_refuse_rest(const struct arguments *rest, const struct command_key *keys, size_t count,
                                        const char *context, trireme_error *error);

#endif
