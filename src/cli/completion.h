// Scripts by which shells complete the words of `trireme`: its commands, what they do, keys, and values with names.
#ifndef CLI_COMPLETION_H
#define CLI_COMPLETION_H

#include "base/text.h"

// Appends the script for a shell: "bash" or "zsh". False: there is none for it.
bool completion_add(const char *shell, struct text *out);

#endif
