// From measurements to a cluster: curves of ops, and what links reach.
#ifndef SIM_FIT_H
#define SIM_FIT_H

#include "sim/cluster.h"

// One instruction as it was measured.
struct fit_sample {
    enum op op;
    enum dtype dtype;
    double flops, bytes, seconds;
    int64_t m, n, k, T; // extents of these letters of its row, -1 where the row does not have the letter
};
struct fit_samples {
    VEC(struct fit_sample);
};

// The sample of an instruction of the program that took `seconds`.
struct fit_sample fit_sample_of(const struct program *program, const struct op_table *table,
                                const struct instruction *instruction, const struct invocation *invocation,
                                double seconds);

// Sets the device's curves and measured points from samples; its peaks and bandwidth are known already. Curves are
// fitted to all samples. Points are kept of at most 64 shapes of an op and dtype: the largest, the smallest, and some
// spread between them. With `all`, ops that were not measured get what the measured ones that move bytes reach
// together; without, they stay as they are, except the backward of ops that were measured.
void fit_device(struct device *device, const struct op_table *table, const struct fit_samples *samples, bool all);

// How long ranks that share a device waited for one another in the steps of one model.
struct fit_wait {
    double meetings; // collectives
    double computed; // seconds of computing before them
    double waited;   // seconds in them, beyond what they take by themselves
};
// Sets the device's meeting and jitter.
void fit_waits(struct device *device, const struct fit_wait *waits, size_t count);

// Descends by coordinates: multiplies and divides each of the positive parameters by a factor, as long as that makes
// the error less, and then by its root, down to 1.002.
void fit_descend(double *parameter, int count, double (*error)(const void *user, const double *parameter),
                 const void *user);

// Replaces a cluster's figures by those of another machine, from a file's text:
//   matrix products   a CSV whose first line names columns: m, n, k, dtype, and a time (seconds, ms or us), a rate
//                     (tflops or gflops), or both; a comma, semicolon or tab divides them, whichever comes first in
//                     that line
//   collectives       what a program of nccl-tests prints (all_reduce_perf, ...), on one node or several
// `name` stands for the file in messages (TRIREME_ERROR_USAGE, with the line).
trireme_status fit_import(struct cluster *cluster, const struct op_table *table, const char *name, const char *text,
                          size_t length, trireme_error *error);

// The same for measured collectives; points of the same op and ranks must be next to one another. TRIREME_ERROR_USAGE
// where the cluster has no room for so many ranks.
trireme_status fit_links(struct cluster *cluster, const struct link_point *points, size_t count, trireme_error *error);

#endif
