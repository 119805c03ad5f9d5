// Internal to sim/: reads what a device reaches on each op from a cluster's file.
#ifndef SIM_EFFICIENCY_H
#define SIM_EFFICIENCY_H

#include "config/outline.h"
#include "sim/cluster.h"

// Larger figures are refused as absurd: no machine of the next decades reaches them.
#define CLUSTER_SECONDS_MOST 1.
#define CLUSTER_BYTES_MOST 1e15
#define CLUSTER_RATE_LEAST 1e3 // bytes per second
#define CLUSTER_RATE_MOST 1e15

// Sets the curves and measured points of all ops of the table from the device's mapping "efficiency" (the outline's
// node `mapping`). The device's peaks are known. TRIREME_ERROR_USAGE names line and key.
trireme_status efficiency_read(struct device *device, const struct outline *outline, const struct op_table *table,
                               int mapping, trireme_error *error);
// Reads the two scalars of a measured point that say how many bytes took how many seconds.
trireme_status efficiency_read_transfer(const struct outline *outline, int bytes_node, int seconds_node, double *bytes,
                                        double *seconds, trireme_error *error);
// Whether what was measured of another op, whose rates this one has (ops.def), holds for it too: not if only one of
// them is a single matrix product, which is measured by its extents.
bool efficiency_follows_points(const struct op_table *table, enum op op);
// Whether the op's row (ops.def) has a dim of that letter; with OP_COUNT, whether some row does for which `other`
// stands. A curve that an op takes over from another may have letters, and `fused` for b and h, that the op does not
// have: they mean nothing to it.
bool efficiency_has_letter(const struct op_table *table, enum op op, char letter);

#endif
