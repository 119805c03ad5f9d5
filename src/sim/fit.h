// From measurements to a cluster: curves of ops, and the text of a file that reads back as the same.
#ifndef SIM_FIT_H
#define SIM_FIT_H

#include "sim/cluster.h"

// One instruction as it was measured.
struct fit_sample {
    enum op op;
    enum dtype dtype;
    double flops, bytes, seconds;
    int64_t m, n, k, T; // extents of its row's letters, -1 where it has none
};
struct fit_samples {
    VEC(struct fit_sample);
};

// Of an instruction with operands of a program.
struct fit_sample fit_sample_of(const struct program *program, const struct op_table *table,
                                const struct instruction *instruction, const struct invocation *invocation,
                                double seconds);

// Sets the device's curves from samples of it, and points of what was measured; peaks and bandwidth stand already. Of
// more than 64 shapes of an op and dtype the largest and the smallest are points and what lies spread between them;
// curves are fitted to all. With `all`, ops that were not measured get what the measured ones that move bytes reach
// together; else they stay, but for the backward of those that were.
void fit_device(struct device *device, const struct op_table *table, const struct fit_samples *samples, bool all);

// What ranks that share a device waited for one another, in the steps of one model.
struct fit_wait {
    double meetings, computed, waited; // collectives; seconds before them; seconds in them beyond what they take alone
};
// Sets the device's meeting and jitter.
void fit_waits(struct device *device, const struct fit_wait *waits, size_t count);

// Figures of another machine, in place of a cluster's own:
//   matrix products   a CSV whose first line names columns: m, n, k, dtype, and one of seconds, ms, us, tflops, gflops;
//                     a comma, semicolon or tab divides them, whichever the first line has first
//   collectives       what a program of nccl-tests prints (all_reduce_perf, ...), in one node or over several
// `name` stands for the file in messages (TRIREME_ERROR_USAGE, with the line).
trireme_status fit_import(struct cluster *cluster, const struct op_table *table, const char *name, const char *text,
                          size_t length, trireme_error *error);

// The same of points that stand together by op and ranks.
trireme_status fit_links(struct cluster *cluster, const struct link_point *points, size_t count, trireme_error *error);

#endif
