// A template whose instructions are put together anew. Internal to parallel/.
#ifndef PARALLEL_REWRITE_H
#define PARALLEL_REWRITE_H

#include "program/program.h"

struct rewrite {
    struct program *program;
    int template;
    VEC(struct instruction) out;
};

void rewrite_begin(struct rewrite *rewrite, struct program *program, int template);
// Moves what program_emit has just appended to the template to the end of what is put together.
void rewrite_take_last(struct rewrite *rewrite);
// The template becomes what has been put together.
void rewrite_finish(struct rewrite *rewrite);

#endif
