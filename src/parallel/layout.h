// Which layers each virtual stage of a pipeline has.
#ifndef PARALLEL_LAYOUT_H
#define PARALLEL_LAYOUT_H

#include "parallel/parallel.h"

// Sets parallel->first_layer from parallelism.pipeline_parallel_layout: the numbers that it lists; `auto`: as balances
// the ranks' work; nothing: as even as can be, the first ones have one more. Degrees and schedule are set.
trireme_status layout_resolve(struct parallel *parallel, const struct config *config, const struct model_config *model,
                              trireme_error *error);

#endif
