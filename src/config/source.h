// Internal to config/: where values come from: YAML and the command line.
#ifndef CONFIG_SOURCE_H
#define CONFIG_SOURCE_H

#include "config/value.h"

// Keys that were refused: all of them are told at once, after everything was read.
struct source_refusals {
    trireme_error first;
    struct text more; // "; also ..." for each further one that is told
    int count;
};
void source_note(struct source_refusals *refusals, const trireme_error *error);
// Fails as the first one does if there are any. Releases what they hold.
trireme_status source_refuse(struct source_refusals *refusals, trireme_error *error);

// Sets keys from YAML; `name` stands for the file in messages and origins. A key that was set before is refused. A
// failure is not about a single key.
trireme_status source_read_yaml(struct config *config, const char *name, const char *yaml, size_t length,
                                struct source_refusals *refusals, trireme_error *error);
// The origins of overrides: those of config_load_arguments, and all others.
#define SOURCE_ARGUMENTS "command line"
#define SOURCE_SETTINGS "settings"
// Sets one key from "section.key=value", an override from `where`, which may replace what a file has set.
trireme_status source_read_override(struct config *config, const char *where, const char *override,
                                    struct source_refusals *refusals, trireme_error *error);
// Turns the arguments of config_load_arguments into overrides; the caller frees each and releases the array, on failure
// too.
struct source_overrides {
    VEC(char *) list;
};
trireme_status source_read_arguments(struct source_overrides *out, const char *own, int argc, char *const *argv,
                                     trireme_error *error);

#endif
