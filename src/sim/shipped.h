// The clusters of src/sim/clusters/, which the build turns into one table.
#ifndef SIM_SHIPPED_H
#define SIM_SHIPPED_H

struct shipped_cluster {
    const char *name, *text;
};

extern const struct shipped_cluster shipped_clusters[]; // ends with a NULL name

#endif
