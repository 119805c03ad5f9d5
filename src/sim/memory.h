// What a rank's memory consists of: the arenas of its program, divided by what they hold at the moment when the step
// arena holds most, and what the device's runtime takes besides.
#ifndef SIM_MEMORY_H
#define SIM_MEMORY_H

#include "compile/stages.h"
#include "memory/memory_plan.h"
#include "sim/cluster.h"

enum memory_part {
    MEMORY_PARAMETERS,
    MEMORY_GRADIENTS,
    MEMORY_OPTIMIZER,
    MEMORY_ACTIVATIONS,
    MEMORY_COMMUNICATION, // gathered parameters, received and gathered activations
    MEMORY_WORKSPACE,     // of kernels
    MEMORY_BATCH,         // what the host writes and reads
    MEMORY_UNUSED,        // between buffers, and the slack of the plan
    MEMORY_RUNTIME,
    MEMORY_PARTS
};

struct sim_memory {
    int64_t total; // state arena, step arena and runtime
    int64_t part[MEMORY_PARTS];
    // The moment when the step arena holds most, and the largest buffer at that moment.
    struct memory_moment peak;
    int largest;
};

// Of the program alone, without a runtime.
void memory_of_program(struct sim_memory *out, const struct program *program, const struct op_table *table);
// The same of the step of a stage, with what the stage's other programs keep, or hold beside it.
void memory_of_stage(struct sim_memory *out, const struct stage *stage, const struct program *step,
                     const struct op_table *table);
// Of a rank that runs this program on a device: the device's runtime is added.
struct sim_memory memory_on(const struct sim_memory *of_program, const struct device *device);
const char *memory_part_name(enum memory_part part); // "parameters", ...

#endif
