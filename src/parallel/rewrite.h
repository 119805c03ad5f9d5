// Rebuilds a template's list of instructions. Internal to parallel/.
#ifndef PARALLEL_REWRITE_H
#define PARALLEL_REWRITE_H

#include "program/program.h"

struct rewrite {
    struct program *program;
    int template;
    VEC(struct instruction) out; // the new list so far
};

void rewrite_begin(struct rewrite *rewrite, struct program *program, int template);
// Moves the instruction that was just appended to the template (program_emit) to the end of the new list.
void rewrite_take_last(struct rewrite *rewrite);
// The new list becomes the template's.
void rewrite_finish(struct rewrite *rewrite);

#endif
