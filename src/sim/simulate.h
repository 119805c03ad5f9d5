// Simulates the instructions of all ranks in time. Streams run in order and wait as program.h says; computing takes
// what cost_compute says; a collective begins when all members have come to it (inside a layer a little later, because
// of the slowest: `meeting` and `jitter` in cluster.h) and ends for all at the same time; a message begins when both
// ends have come to it. Ranks that nothing tells apart are simulated once (topology.h).
//
// A rank's step is divided completely into computing; exposed communication, when its compute stream can do nothing
// until a communication ends that has begun, or is slowed down by one beside it; and the bubble, when it waits for
// other ranks to arrive.
#ifndef SIM_SIMULATE_H
#define SIM_SIMULATE_H

#include "sim/cost.h"

struct simulation_options {
    bool every_rank; // simulate each rank by itself: slower, with the same result
    bool events;     // keep all events, for traces and pictures
    // Gives the seconds of a computing instruction in place of cost_compute; or NULL.
    double (*seconds)(void *user, const struct program *program, int template, int instruction);
    void *user;
};

enum sim_part { SIM_MATMUL, SIM_ATTENTION, SIM_REST, SIM_OPTIMIZER, SIM_PARTS };

// What an instruction did.
struct sim_event {
    int invocation, instruction;
    double begin, end; // seconds from the step's beginning
};

struct sim_class {
    int rank, members; // the first of its ranks, and how many there are
    const struct program *program;
    struct station station;
    // Seconds.
    double computing;
    double part[SIM_PARTS];     // of computing
    double exposed[AXIS_COUNT]; // by the outermost axis of the group
    double moving[AXIS_COUNT];  // all communication, exposed or not
    double bubble;
    double end;                   // of its last instruction
    VEC(struct sim_event) events; // by stream, in order; where they are kept
};

struct simulation {
    double seconds; // of the step: until the last rank has ended
    int ranks;
    // Means over ranks, as shares of the step.
    double bubble, exposed[AXIS_COUNT];
    int classes;
    struct sim_class *of_class; // [classes], by first rank
    int *class_of;              // [ranks]
};

// `program_of_stage` has a program for each coordinate on AXIS_PP; they are proved sound together
// (stage_programs_meet). The result points into programs and cluster; the caller releases it. Refuses a mesh larger
// than the cluster (TRIREME_ERROR_USAGE), and programs that do not come to their end (TRIREME_ERROR_PROGRAM).
trireme_status simulate(struct simulation *out, const struct program *const *program_of_stage,
                        const struct op_table *table, const struct cluster *cluster,
                        const struct simulation_options *options, trireme_error *error);
void simulation_release(struct simulation *simulation);
// FLOP/s of all ranks' devices together.
double simulation_peak(const struct simulation *simulation, enum dtype dtype);

const char *sim_part_name(enum sim_part part); // "matmul", "attention", "rest", "optimizer"

#endif
