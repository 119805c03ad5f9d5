// Which layers each virtual stage of a pipeline has, and which of them are recomputed in backward.
#ifndef PARALLEL_LAYOUT_H
#define PARALLEL_LAYOUT_H

#include "parallel/parallel.h"
#include "parallel/recompute.h"

// Sets parallel->first_layer from parallelism.pipeline_parallel_layout: a list gives the layers of each virtual stage,
// `auto` balances the ranks' work, and without either stages are as even as possible, the first ones having one more.
// Also sets parallel->full_layers and selective_layers from the keys of activation_checkpoint: a list has a number for
// each virtual stage; a single number is for all of them, and a stage with fewer layers takes as many as it has.
// Degrees and schedule must be set. Keys that do not fit are refused (TRIREME_ERROR_USAGE).
trireme_status layout_resolve(struct parallel *parallel, const struct config *config, const struct model_config *model,
                              trireme_error *error);

// Refuses (TRIREME_ERROR_USAGE) more virtual stages than layers.
trireme_status layout_check(const struct config *config, const struct model_config *model, int64_t ranks,
                            int64_t chunks, trireme_error *error);

// The share of the layers that is in each recomputation mode (by enum config_recompute), as far as the configuration
// tells before the layout is known. `stages`: virtual stages.
void layout_shares(const struct config *config, int stages, int layers, double share[static RECOMPUTE_MODES]);

#endif
