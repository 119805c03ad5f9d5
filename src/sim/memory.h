// What a rank's memory consists of: the arenas of its program, by what they hold when the step arena holds most, and
// what its device's runtime takes besides.
#ifndef SIM_MEMORY_H
#define SIM_MEMORY_H

#include "sim/cluster.h"

enum memory_part {
    MEMORY_PARAMETERS,
    MEMORY_GRADIENTS,
    MEMORY_OPTIMIZER,
    MEMORY_ACTIVATIONS,
    MEMORY_COMMUNICATION, // gathered parameters, what is received and gathered of activations
    MEMORY_WORKSPACE,     // of kernels
    MEMORY_BATCH,         // what the host writes and reads
    MEMORY_UNUSED,        // between buffers, and the slack of the plan
    MEMORY_RUNTIME,
    MEMORY_PARTS
};

struct sim_memory {
    int64_t total; // state arena, step arena and runtime
    int64_t part[MEMORY_PARTS];
    // The moment when the step arena holds most, and the largest buffer there.
    struct memory_moment peak;
    int largest;
};

// Without a runtime.
void memory_of_program(struct sim_memory *out, const struct program *program, const struct op_table *table);
// That of a rank with this program on a device.
struct sim_memory memory_on(const struct sim_memory *of_program, const struct device *device);
const char *memory_part_name(enum memory_part part); // "parameters", ...

#endif
