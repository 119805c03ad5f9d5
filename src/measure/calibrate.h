// Measures the machine that it runs on: a few layers of several models, instruction by instruction, on one rank that
// has all cores and on ranks that share them; how long collectives between threads take; and how long ranks that meet
// within layers wait for one another (meeting, jitter). The result is a cluster of one device (sim/cluster.h), for
// predicting steps on this machine.
#ifndef MEASURE_CALIBRATE_H
#define MEASURE_CALIBRATE_H

#include "exec/exec.h"
#include "sim/cluster.h"

enum { CALIBRATE_SHAPES = 5 };

struct calibrate_options {
    int models;                                      // how many to measure, the smallest one first; 0: CALIBRATE_SHAPES
    int steps;                                       // to measure of each model; 0: 6
    void (*say)(const char *what, int done, int of); // told of progress; may be NULL
};

// Takes some minutes, in which nothing else should run, and about 1 GB for each core. The cluster's `about` says
// whether models were left out because they did not fit, and how steady the machine was. The caller releases *out.
trireme_status calibrate(struct cluster *out, const struct op_table *table, const struct calibrate_options *options,
                         trireme_error *error);

// Measures collectives between the `ranks` processes that a launcher has started; all of them call it. On rank 0,
// *cluster, as calibrate made it for this machine, gets the links between them and as many nodes as they are on.
trireme_status calibrate_processes(struct cluster *cluster, const struct member *member, int ranks,
                                   trireme_error *error);

#endif
