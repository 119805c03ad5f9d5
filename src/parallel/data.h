// Data parallelism over flat units: gradients are reduced unit by unit, as soon as backward has finished with one;
// sharded parameters are gathered before their use (Rajbhandari et al., "ZeRO", 2020, section 5; Zhao et al., "PyTorch
// FSDP", 2023, sections 3 and 4). Rewrites of templates; waits are set later (compile/waits.c).
#ifndef PARALLEL_DATA_H
#define PARALLEL_DATA_H

#include "optim/optimizer.h"
#include "parallel/parallel.h"

// How units lie over the ranks of a plan.
struct state_layout state_layout_of(const struct parallel *parallel, const struct model_config *model);

// Gathers, in template `template`, each sharded unit that it reads, `parallel->prefetch` units ahead of the first use;
// where that is -1, as early as the unit's bytes ask for, measured in flops of the instructions before its use. What
// another template has gathered goes into buffers of its own, marked as recomputed, and its reads go there.
void data_gather(struct program *program, int template, const struct model_state *model,
                 const struct parallel *parallel, const struct op_table *ops);
// The same for two templates of which one always follows the other: what `backward` would gather before all else is
// kept from `forward`, or gathered while that runs.
void data_gather_both(struct program *program, int forward, int backward, const struct model_state *model,
                      const struct parallel *parallel, const struct op_table *ops);

// Where each rank has updated its part of units that it keeps whole (ZeRO-1 and 2): gathers them once, in the template
// that the schedule begins with, in the order in which the step reads them, so that they come while it already
// computes. Behind all else that reads parameters.
void data_gather_once(struct program *program, const struct model_state *model, const struct parallel *parallel);

// Reduces each unit's gradient behind its last contribution in `backward`, templates in the order in which a microbatch
// comes to them: what is sharded between microbatches every time, all else in the step's last microbatch only. Of a
// table whose rows a step looks up, few and once, rows of all ranks are added instead (rows.h).
void data_reduce(struct program *program, const int *backward, int templates, const struct model_state *model,
                 const struct optimizer_state *optimizer, const struct parameter_table *table,
                 const struct parallel *parallel, const struct op_table *ops);

#endif
