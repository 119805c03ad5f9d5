// Which layers each virtual stage of a pipeline has, and which of them are computed again.
#ifndef PARALLEL_LAYOUT_H
#define PARALLEL_LAYOUT_H

#include "parallel/parallel.h"

// Sets parallel->first_layer from parallelism.pipeline_parallel_layout: the numbers that it lists; `auto`: as balances
// the ranks' work; nothing: as even as can be, the first ones have one more. And full_layers and selective_layers from
// activation_checkpoint's: a list has what each stage has; of a single number a stage with fewer layers has fewer.
// Degrees and schedule are set.
trireme_status layout_resolve(struct parallel *parallel, const struct config *config, const struct model_config *model,
                              trireme_error *error);

// Refuses (TRIREME_ERROR_USAGE) more virtual stages than layers.
trireme_status layout_check(const struct config *config, const struct model_config *model, int64_t ranks,
                            int64_t chunks, trireme_error *error);

// The shares of so many layers that are in each mode on so many virtual stages, as far as the configuration tells
// before the layout is known; by enum config_recompute.
enum { LAYOUT_MODES = 3 };
void layout_shares(const struct config *config, int stages, int layers, double share[static LAYOUT_MODES]);

#endif
