// Data parallelism over flat units: gradients are reduced unit by unit, as soon as backward has finished with one;
// sharded parameters are gathered before their use (Rajbhandari et al., "ZeRO", 2020, section 5; Zhao et al., "PyTorch
// FSDP", 2023, sections 3 and 4). These are rewrites of templates; waits are set later (compile/waits.c).
#ifndef PARALLEL_DATA_H
#define PARALLEL_DATA_H

#include "optim/optimizer.h"
#include "parallel/parallel.h"

// How units lie over the ranks of a plan.
struct state_layout state_layout_of(const struct parallel *parallel, const struct model_config *model);

// ZeRO-3: gathers in template `template` each sharded unit that it reads, `parallel->prefetch` units ahead of its first
// use. Where prefetch is -1, a unit gets a share of the template's flops in proportion to its bytes, and is gathered
// that many flops before its use. A unit that another template gathers too is gathered into new buffers, marked as
// recomputed, and this template reads those.
void data_gather(struct program *program, int template, const struct model_state *model,
                 const struct parallel *parallel, const struct op_table *ops);
// The same for two templates where `backward` always follows `forward` at once: the units that `backward` would gather
// before its first instruction are kept from `forward`, or gathered while `forward` runs.
void data_gather_both(struct program *program, int forward, int backward, const struct model_state *model,
                      const struct parallel *parallel, const struct op_table *ops);

// ZeRO-1 and 2, where each rank keeps units whole but updates only its part of each: gathers the units once, in the
// template that the schedule begins with, in the order in which the step reads them, so that they arrive while it
// already computes. To be called after everything else that adds reads of parameters.
void data_gather_once(struct program *program, const struct model_state *model, const struct parallel *parallel);

// Reduces each unit's gradient after its last contribution in `backward[templates]`, the backward templates in the
// order in which a microbatch runs them. A gradient that is kept sharded between microbatches is reduced in each of
// them, all others in the step's last microbatch only. Where a step looks up few rows of a table, and in one place
// only, the rows of all ranks are gathered and added instead of reducing the table's gradient (rows.h).
void data_reduce(struct program *program, const int *backward, int templates, const struct model_state *model,
                 const struct optimizer_state *optimizer, const struct parameter_table *table,
                 const struct parallel *parallel, const struct op_table *ops);

// The streams on which units are gathered, and on which replicas sum the parts of gradients that each of them keeps.
int gather_stream(struct program *program);
int replicas_stream(struct program *program);

#endif
