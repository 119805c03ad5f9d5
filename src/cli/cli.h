// cli/: one file per command. Turns arguments into calls of the library, and what these return into text or JSON; the
// only folder that prints, handles signals and exits.
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "base/amount.h"
#include "base/text.h"
#include "config/config.h"

#include <stdatomic.h>

// What follows the command's name, sorted: operands (words that are neither options nor settings), options that are
// words alone (flags in main.c), and the rest.
struct arguments {
    const struct command *command;
    VEC(char *) operands;
    VEC(char *) settings; // as config_load_arguments takes them
    bool json, help, dry_run, lines, special, chat;
};

// A command fills *error and returns its status, or prints what it was asked for.
struct command {
    const char *name, *operands, *help; // help: one line
    const char *details;                // lines of `trireme help COMMAND`
    trireme_status (*run)(const struct arguments *arguments, trireme_error *error);
    // Each of these holds for all calls (ALL_OF_IT), for those with this first operand, or for none (NULL).
    const char *alone; // runs as one process
    const char *bare;  // takes no settings
    const char *text;  // has no JSON
};
#define ALL_OF_IT "*"

trireme_status command_prepare(const struct arguments *arguments, trireme_error *error);
trireme_status command_train(const struct arguments *arguments, trireme_error *error);
trireme_status command_eval(const struct arguments *arguments, trireme_error *error);
trireme_status command_generate(const struct arguments *arguments, trireme_error *error);
trireme_status command_checkpoint(const struct arguments *arguments, trireme_error *error);
trireme_status command_show(const struct arguments *arguments, trireme_error *error);
trireme_status command_verify(const struct arguments *arguments, trireme_error *error);
trireme_status command_simulate(const struct arguments *arguments, trireme_error *error);
trireme_status command_plan(const struct arguments *arguments, trireme_error *error);
trireme_status command_bench(const struct arguments *arguments, trireme_error *error);
trireme_status command_tokenizer(const struct arguments *arguments, trireme_error *error);
trireme_status command_convert(const struct arguments *arguments, trireme_error *error);
trireme_status command_help(const struct arguments *arguments, trireme_error *error);
// trireme tokenizer train and chat (command_tokenizer_train.c, command_tokenizer_chat.c).
trireme_status command_tokenizer_train(const struct arguments *arguments, trireme_error *error);
trireme_status command_tokenizer_chat(const struct arguments *arguments, trireme_error *error);
extern const struct command commands[];
extern const size_t command_count;

// An option that is a word alone.
struct flag {
    const char *word;
    size_t offset;                 // of a bool in struct arguments
    const char *command, *operand; // whose it is; NULL: all commands, all operands
};
extern const struct flag flags[];
extern const size_t flag_count;

// Loads the configuration: the file `path` (NULL: none) and the settings, among which the keys of a section that has
// the command's name are meant by their names alone.
trireme_status arguments_config(const struct arguments *arguments, const char *path, struct config *out,
                                trireme_error *error);
// Whether `part` of their command, one of alone, bare and text, holds for these arguments: it lists the first operands
// for which it does.
bool arguments_ask_for(const struct arguments *arguments, const char *part);
// TRIREME_ERROR_USAGE unless there are `least` to `most` operands, none of them empty.
trireme_status arguments_expect(const struct arguments *arguments, size_t least, size_t most, trireme_error *error);

// What a command returns whose arguments are wrong: `status`, with `error`. If a launcher has started several
// processes, and the command runs as many, only one of them keeps the message; that of the others becomes empty.
trireme_status arguments_refuse(const struct arguments *arguments, trireme_status status, trireme_error *error);

struct tokenizer;
// Loads the tokenizer that `path` means: what tokenizer_load_with takes, with the configuration's tokenizer.pattern if
// that was set, or a run's directory, of which the newest checkpoint counts. The caller frees *out.
trireme_status arguments_tokenizer(const char *path, const struct config *config, struct tokenizer **out,
                                   trireme_error *error);

struct cluster;
// TRIREME_ERROR_USAGE if a device that one of so many ranks is on has no peak for the dtype of the configuration.
trireme_status check_dtype_on(const struct config *config, const struct cluster *cluster, int ranks,
                              trireme_error *error);

// From now on the result becomes true with the first SIGINT, SIGTERM or SIGUSR1, of which a second one ends the
// process; also with SIGHUP, unless that was ignored already.
const atomic_bool *stop_on_signals(void);

// For train_callbacks.mapped: guards `bytes` at `at` that are mapped from a file; with 0 bytes it no longer does. If
// the file gets shorter than the mapping, or has no room on the disk, the mapping is replaced by plain memory, and
// standard error says so once.
void guard_mapped(void *user, void *at, size_t bytes, const char *path, int64_t end);

// TRIREME_ERROR_USAGE for a path, given as key=path, at which no file can be made. To be called before the work whose
// result would go there.
trireme_status check_output(const char *key, const char *path, trireme_error *error);

// Writes a result to standard output (console.h), in a form that is safe to send to a terminal. A failed write (closed
// pipe, full disk) is TRIREME_ERROR_IO.
trireme_status print_text(const struct text *text, trireme_error *error);
// The same for bytes that are written as they are.
trireme_status print_bytes(const struct text *text, trireme_error *error);

// Progress on standard error. On a terminal it is one line, cut to the width and rewritten in place, ten times a second
// at most; elsewhere a line is printed once a minute, the first after a minute.
bool progress_is_live(void);
void progress_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
void progress_clear(void);

#endif
