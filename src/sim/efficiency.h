// Internal to sim/: what a device reaches on each op, as a cluster's file says it.
#ifndef SIM_EFFICIENCY_H
#define SIM_EFFICIENCY_H

#include "config/outline.h"
#include "sim/cluster.h"

// Absurd is what no machine of the next decades reaches.
#define CLUSTER_SECONDS_MOST 1.
#define CLUSTER_BYTES_MOST 1e15
#define CLUSTER_RATE_MOST 1e15 // bytes per second

// From the mapping "efficiency" of a device whose peaks are known: curves and measured points of all ops of the table.
trireme_status efficiency_read(struct device *device, const struct outline *outline, const struct op_table *table,
                               int mapping, trireme_error *error);
// So many bytes in so long a time, as two scalars that a measured point has.
trireme_status efficiency_read_transfer(const struct outline *outline, int bytes_node, int seconds_node, double *bytes,
                                        double *seconds, trireme_error *error);
// Whether the op's row (ops.def) has a dim of that letter; of OP_COUNT, some row that follows `other` does. What a
// curve takes over may have letters, and kernels for b and h, that the op has not: they mean nothing to it.
bool efficiency_has_letter(const struct op_table *table, enum op op, char letter);

#endif
