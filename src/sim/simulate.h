// The instructions of all ranks in time. Streams run in order and wait as program.h says; computing takes what
// cost_compute says; a collective begins when all members have come to it (within a layer later, for the slowest)
// and ends for all at once, a message when both ends have. Ranks that nothing tells apart are simulated once
// (topology.h).
//
// A rank's step is divided without rest: computing; exposed communication, when its compute stream has nothing to do
// until a communication ends that has begun; and the bubble, when it waits for others to come.
#ifndef SIM_SIMULATE_H
#define SIM_SIMULATE_H

#include "sim/cost.h"

struct simulation_options {
    bool every_rank; // each rank for itself: slower, the same result
    bool events;     // keep all events, for traces and pictures
    // Seconds of a computing instruction in place of cost_compute's; NULL: none.
    double (*seconds)(void *user, const struct program *program, int template, int instruction);
    void *user;
};

enum sim_part { SIM_MATMUL, SIM_ATTENTION, SIM_REST, SIM_OPTIMIZER, SIM_PARTS };

// What an instruction did.
struct sim_event {
    int invocation, instruction;
    double begin, end; // seconds from the step's begin
};

struct sim_class {
    int rank, members; // the first of them, and how many
    const struct program *program;
    struct station station;
    double computing;
    double part[SIM_PARTS];     // of it
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
    struct sim_class *of_class; // [classes], by rank
    int *class_of;              // of each rank
};

// `program_of_stage` has a program for each coordinate on AXIS_PP, proved sound together (stage_programs_meet). The
// result points into programs and cluster. Refuses (TRIREME_ERROR_USAGE) a mesh larger than the cluster; and
// (TRIREME_ERROR_PROGRAM) programs that do not come to their end.
trireme_status simulate(struct simulation *out, const struct program *const *program_of_stage,
                        const struct op_table *table, const struct cluster *cluster,
                        const struct simulation_options *options, trireme_error *error);
void simulation_release(struct simulation *simulation);
// FLOP/s of all ranks' devices together.
double simulation_peak(const struct simulation *simulation, enum dtype dtype);

const char *sim_part_name(enum sim_part part); // "matmul", "attention", "rest", "optimizer"

#endif
