// The part of `trireme eval` that judges texts, not tokens: command_eval_texts.c.
#ifndef CLI_COMMAND_EVAL_H
#define CLI_COMMAND_EVAL_H

#include "cli/cli.h"

// Measures and prints what the keys of section `eval` ask for.
trireme_status eval_texts(const struct arguments *arguments, const struct config *config, const atomic_bool *stop,
                          trireme_error *error);

#endif
