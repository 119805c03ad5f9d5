// Where each buffer is an operand.
#ifndef PROGRAM_MENTIONS_H
#define PROGRAM_MENTIONS_H

#include "program/program.h"

struct mention {
    const struct instruction *instruction;
    int template;
    int operand; // its number for instruction_operand_at
    int next;    // the next mention of the same buffer, or NONE
};
struct mentions {
    int *first; // [buffers]: the first mention of each, or NONE
    VEC(struct mention) list;
};

void mentions_create(struct mentions *mentions, const struct program *program);
void mentions_release(struct mentions *mentions);

// The mentions of a buffer, in the order of the tables.
#define FOR_MENTIONS(mentions, m, buffer)                                              \
    for (const struct mention *m = mention_at(mentions, (mentions)->first[buffer]); m; \
         m = mention_at(mentions, m->next))
static inline const struct mention *mention_at(const struct mentions *mentions, int number) {
    return number == NONE ? NULL : &mentions->list.item[number];
}
// Which output of the instruction the buffer is; NONE: it is an input.
static inline int mention_output(const struct mention *m) {
    return m->operand < m->instruction->inputs ? NONE : m->operand - m->instruction->inputs;
}

#endif
