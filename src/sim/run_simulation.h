// What a run that trains takes in time: a step, what it does besides steps, and all of a period (compile/period.h).
#ifndef SIM_RUN_SIMULATION_H
#define SIM_RUN_SIMULATION_H

#include "compile/period.h"
#include "compile/stages.h"
#include "sim/simulate.h"

struct run_simulation {
    const struct stages *programs;
    const struct cluster *cluster;
    struct simulation step;
    double seconds[PROGRAM_KINDS]; // of the other programs of the run, all of a kind together (where pairs
                                   // meet, of a distance on average), 0: it has none
    // Set by simulate_run_period.
    struct period period;
    struct program *parts;      // [stages]: the parts of the period as one program; NULL: the period is a step
    struct simulation of_parts; // of which a step takes as long as those beside which something runs
    double period_seconds;
    double sent[AXIS_COUNT]; // bytes in all of the period (run_simulation_sends)
    double compute_share;    // of the period, mean of the ranks: neither exposed communication nor bubble
};

// Simulates the step and the other programs, each by itself. They are compiled and proved, for training alone, and must
// outlive *out, as must the cluster. The caller releases *out, on failure too.
trireme_status simulate_run(struct run_simulation *out, const struct stages *programs, const struct cluster *cluster,
                            const struct simulation_options *options, trireme_error *error);
// Simulates the period of a configuration, in place of the one before: that of the programs, or one that differs from
// it in outer.sync_steps alone.
trireme_status simulate_run_period(struct run_simulation *run, const struct config *config,
                                   const struct simulation_options *options, trireme_error *error);
// Sets the bytes that a rank sends in a run of programs.specs[number] (program_sends), of the stage that sends most.
void run_simulation_sends(const struct run_simulation *run, int number, double sent[AXIS_COUNT]);
void run_simulation_release(struct run_simulation *run);

#endif
