// The parts of `trireme checkpoint` (command_checkpoint.c).
#ifndef CLI_COMMAND_CHECKPOINT_H
#define CLI_COMMAND_CHECKPOINT_H

#include "cli/cli.h"

trireme_status command_checkpoint_list(const struct arguments *arguments, trireme_error *error);
trireme_status command_checkpoint_diff(const struct arguments *arguments, trireme_error *error);

// For `list` and `prune`: appends why a directory is kept (enum retention_reason), in words, or that it goes.
void checkpoint_kept_text(unsigned kept, int64_t every, struct text *out);
// The same as an array "kept" of words.
void checkpoint_kept_json(unsigned kept, struct text *out);

#endif
