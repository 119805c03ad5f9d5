// Internal to model/: what config.json says of rotary positions, both ways: transformers 4 writes "rope_theta" and
// "rope_scaling" side by side, 5 puts both into "rope_parameters", perhaps for each type of layer. Written is the
// spelling of 4, which both read.
#ifndef MODEL_ROPE_JSON_H
#define MODEL_ROPE_JSON_H

#include "model/layer.h"

// "none", "linear", "llama3", ...
const char *rope_scaling_name(enum rope_scaling scaling);
// Reads the tables' settings, and which layers have none. Both spellings together must agree.
trireme_status rope_read(const struct model_reader *reader);
void rope_write(json_t *root, const struct model_config *config, const struct architecture_info *architecture);
// Refuses (TRIREME_ERROR_USAGE) settings out of range.
trireme_status rope_check(const struct model_config *config, trireme_error *error);

#endif
