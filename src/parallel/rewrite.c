#include "parallel/rewrite.h"

void rewrite_begin(struct rewrite *r, struct program *program, int template) {
    *r = (struct rewrite){.program = program, .template = template};
}

void rewrite_take_last(struct rewrite *r) {
    struct template *t = &r->program->templates.item[r->template];
    VEC_PUSH(&r->out, t->instructions.item[t->instructions.count - 1]);
    t->instructions.count--;
}

void rewrite_finish(struct rewrite *r) {
    struct template *t = &r->program->templates.item[r->template];
    free(t->instructions.item);
    t->instructions.item = r->out.item;
    t->instructions.count = r->out.count;
    t->instructions.capacity = r->out.capacity;
}
