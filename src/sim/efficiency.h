// Internal to sim/: what a device reaches on each op, as a cluster's file says it.
#ifndef SIM_EFFICIENCY_H
#define SIM_EFFICIENCY_H

#include "config/outline.h"
#include "sim/cluster.h"

// Absurd is what no machine of the next decades reaches.
#define CLUSTER_SECONDS_MOST 1.
#define CLUSTER_BYTES_MOST 1e15

// From the mapping "efficiency" of a device whose peaks are known: curves and measured points of all ops of the table.
trireme_status efficiency_read(struct device *device, const struct outline *outline, const struct op_table *table,
                               int mapping, trireme_error *error);

#endif
