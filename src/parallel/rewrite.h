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
// The same; it becomes one of the set that stands for a row. Returns it, as it is until the next one is taken.
struct instruction *rewrite_take_for(struct rewrite *rewrite, const struct instruction *row, int set);
// The new list becomes the template's.
void rewrite_finish(struct rewrite *rewrite);
// Rebuilds all templates: for each row of one of two ops `replace` appends what takes its place; all else stays.
void rewrite_rows(struct rewrite *rewrite, struct program *program, enum op forward, enum op backward,
                  void (*replace)(void *user, const struct instruction *row), void *user);

#endif
