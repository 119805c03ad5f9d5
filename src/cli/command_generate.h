// The parts of `trireme generate`: command_generate.c, and command_generate_chat.c for --chat.
#ifndef CLI_COMMAND_GENERATE_H
#define CLI_COMMAND_GENERATE_H

#include "cli/cli.h"

// Prints what is not told yet of a text, and takes it away: on a terminal in a form that has no effect there, of which
// the beginning of a character may be left unless the text `ends`; elsewhere as it is.
trireme_status generate_tell(bool terminal, bool ends, struct text *untold, trireme_error *error);
// Talks with the model: answers generate.prompt; or else each line of a terminal, or all of another standard input.
trireme_status generate_chat(const struct arguments *arguments, const struct config *config, const atomic_bool *stop,
                             trireme_error *error);

#endif
