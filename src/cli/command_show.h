// The parts of `trireme show`.
#ifndef CLI_COMMAND_SHOW_H
#define CLI_COMMAND_SHOW_H

#include "cli/keys.h"

// Keys of `show mesh` besides those of a configuration.
enum show_mesh_key { SHOW_MESH_CLUSTER, SHOW_MESH_DEVICES, SHOW_MESH_SVG, SHOW_MESH_KEYS };

// The ranks of a configuration, their groups and neighbours. `a` has the operands of `show`.
trireme_status command_show_mesh(const struct arguments *a, trireme_error *error);

// Whether a key of `show` is on the command line. A file may set it for other commands: that of a run has every key.
bool show_is_given(const struct config *config, const char *key);
// Refuses a show.rank that the mesh does not have.
trireme_status show_check_rank(const struct config *config, int ranks, trireme_error *error);

#endif
