// Measures the machine that it runs on: a few layers of several models, instruction by instruction, by one rank that
// has all cores and by ranks that share them; what collectives between threads take; and how long ranks that meet
// within layers wait for each other (meeting, jitter). What comes out is a cluster of one device (sim/cluster.h), for
// predicting steps on this machine.
#ifndef TRAIN_CALIBRATE_H
#define TRAIN_CALIBRATE_H

#include "exec/exec.h"
#include "sim/cluster.h"

enum { CALIBRATE_SHAPES = 5 };

struct calibrate_options {
    int models;                                      // measured, the smallest first; 0: all of CALIBRATE_SHAPES
    int steps;                                       // measured of each model; 0: 6
    void (*say)(const char *what, int done, int of); // NULL: nobody listens
};

// Takes some minutes, with nothing else running, and about 1 GB for each core. The cluster's `about` says whether
// models were left out that did not fit, and how steady the machine was.
trireme_status calibrate(struct cluster *out, const struct op_table *table, const struct calibrate_options *options,
                         trireme_error *error);

// On each of the `ranks` processes that a launcher has started: measures collectives between all of them. Rank 0's
// *cluster, whose first device is a node of this machine as calibrate leaves it, gets their links and as many nodes.
trireme_status calibrate_processes(struct cluster *cluster, const struct member *member, int ranks,
                                   trireme_error *error);

#endif
