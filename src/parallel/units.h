// Which units instructions touch. Internal to parallel/.
#ifndef PARALLEL_UNITS_H
#define PARALLEL_UNITS_H

#include "program/program.h"

// Of each buffer the unit whose one of `buffer` it is, or lies in; NONE of others. The caller frees.
int *units_of(const struct program *program, const int *buffer, int units);
// The units among some operands of an instruction, in order, each once; their number. A rank's own part is none.
int units_among(const struct operand *operand, int operands, const int *unit_of, int unit[OP_MAX_IN]);

#endif
