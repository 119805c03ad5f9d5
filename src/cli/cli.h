// cli/: one file per command. Turns arguments into calls of the library and its answers into text or JSON; the only
// folder that prints, handles signals and exits.
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "base/amount.h"
#include "base/text.h"
#include "config/config.h"

#include <stdatomic.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_SAVED = 75 };

// What follows the command's name, sorted: operands (words without '=' before any option value), --json, and the rest.
struct arguments {
    const struct command *command;
    VEC(char *) operands;
    VEC(char *) settings; // as config_load_arguments takes them
    bool json, help;
};

// A command fills *error and returns its status, or prints what it was asked for.
struct command {
    const char *name, *operands, *help; // help: one line
    const char *details;                // lines of `trireme help COMMAND`
    trireme_status (*run)(const struct arguments *arguments, trireme_error *error);
    // What of it does so: ALL_OF_IT, or a first operand; NULL: nothing.
    const char *alone; // runs as one process
    const char *bare;  // takes no settings
    const char *text;  // has no JSON
};
#define ALL_OF_IT "*"

trireme_status command_prepare(const struct arguments *arguments, trireme_error *error);
trireme_status command_train(const struct arguments *arguments, trireme_error *error);
trireme_status command_eval(const struct arguments *arguments, trireme_error *error);
trireme_status command_generate(const struct arguments *arguments, trireme_error *error);
trireme_status command_show(const struct arguments *arguments, trireme_error *error);
trireme_status command_verify(const struct arguments *arguments, trireme_error *error);
trireme_status command_simulate(const struct arguments *arguments, trireme_error *error);
trireme_status command_plan(const struct arguments *arguments, trireme_error *error);
trireme_status command_bench(const struct arguments *arguments, trireme_error *error);
trireme_status command_help(const struct arguments *arguments, trireme_error *error);
extern const struct command commands[];
extern const size_t command_count;

// Loads the configuration: the file `path` (NULL: none) and the settings. Keys of section `bare` may stand alone.
trireme_status arguments_config(const struct arguments *arguments, const char *path, const char *bare,
                                struct config *out, trireme_error *error);
// Whether `part` of their command (alone, bare or text) is what they ask for.
bool arguments_ask_for(const struct arguments *arguments, const char *part);
// TRIREME_ERROR_USAGE unless there are `least` to `most` operands.
trireme_status arguments_expect(const struct arguments *arguments, size_t least, size_t most, trireme_error *error);

// What is wrong with arguments, `status` and `error`, as the command returns it: among many processes that a launcher
// has started, of what runs as many, one of them tells, and the others' message is empty.
trireme_status arguments_refuse(const struct arguments *arguments, trireme_status status, trireme_error *error);

struct cluster;
// Refuses a dtype of which a device that so many ranks are on has no peak.
trireme_status check_dtype_on(const struct config *config, const struct cluster *cluster, int ranks,
                              trireme_error *error);

// Turns non-zero with the first SIGINT, SIGTERM or SIGUSR1, and the second ends the process; or with SIGHUP, unless
// that was ignored already.
const atomic_bool *stop_on_signals(void);

// For train_callbacks.mapped: when a file ends before memory that is mapped from it, that is replaced by plain memory,
// and standard error tells of it once.
void guard_mapped(void *user, void *at, size_t bytes);

// Refuses a path, given as key=path, at which no file can be made: before work whose answer would go there.
trireme_status check_output(const char *key, const char *path, trireme_error *error);

// Standard output. A failed write (closed pipe, full disk) is an error of its own.
trireme_status print_text(const struct text *text, trireme_error *error);

// A line that is rewritten in place on a terminal, some times a second, cut to its width; elsewhere one a minute, the
// first after a minute.
bool progress_is_live(void);
void progress_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
void progress_clear(void);

#endif
