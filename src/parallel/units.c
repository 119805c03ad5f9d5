#include "parallel/units.h"

int *units_of(const struct program *program, const int *buffer, int units) {
    int *unit = mem_alloc(program->buffers.count * sizeof *unit);
    for (size_t i = 0; i < program->buffers.count; i++)
        unit[i] = NONE;
    for (int u = 0; u < units; u++)
        if (buffer[u] != NONE)
            unit[buffer[u]] = u;
    for (size_t i = 0; i < program->buffers.count; i++)
        if (program->buffers.item[i].parent != NONE)
            unit[i] = unit[program->buffers.item[i].parent];
    return unit;
}

int units_among(const struct operand *operand, int operands, const int *unit_of, int unit[OP_MAX_IN]) {
    int count = 0;
    for (int i = 0; i < operands; i++) {
        const int u = operand[i].buffer != NONE && !operand[i].along ? unit_of[operand[i].buffer] : NONE;
        int at = count;
        while (at > 0 && unit[at - 1] > u)
            at--;
        if (u == NONE || (at > 0 && unit[at - 1] == u))
            continue;
        memmove(&unit[at + 1], &unit[at], (size_t)(count++ - at) * sizeof *unit);
        unit[at] = u;
    }
    return count;
}
