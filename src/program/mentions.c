#include "program/mentions.h"

void mentions_create(struct mentions *m, const struct program *program) {
    const size_t buffers = program->buffers.count;
    *m = (struct mentions){.first = mem_alloc(buffers * sizeof *m->first)};
    for (size_t i = 0; i < buffers; i++)
        m->first[i] = NONE;
    FOR_INSTRUCTIONS(in, program)
        for (int k = 0; k < in->inputs + in->outputs; k++)
            if (instruction_operand_at(in, k)->buffer != NONE)
                VEC_PUSH(&m->list, (struct mention){in, (int)t_in, k, NONE});
    for (size_t i = m->list.count; i-- > 0;) {
        struct mention *at = &m->list.item[i];
        int *first = &m->first[instruction_operand_at(at->instruction, at->operand)->buffer];
        at->next = *first;
        *first = (int)i;
    }
}

void mentions_release(struct mentions *m) {
    free(m->first);
    VEC_RELEASE(&m->list);
}
