// Which units instructions touch. Internal to parallel/.
#ifndef PARALLEL_UNITS_H
#define PARALLEL_UNITS_H

#include "program/program.h"

// buffer[units] has a buffer for each unit. Returns for each of the program's buffers the unit whose buffer it is or
// lies in, NONE for all others. The caller frees.
int *units_of(const struct program *program, const int *buffer, int units);
// Sets unit[] to the units (unit_of: units_of's result) that an instruction's operands touch, ascending, each once;
// returns how many. Operands that are a rank's own part of a buffer do not count.
int units_among(const struct operand *operand, int operands, const int *unit_of, int unit[OP_MAX_IN]);

#endif
