#include "parallel/rewrite.h"

void rewrite_begin(struct rewrite *r, struct program *program, int template) {
    *r = (struct rewrite){.program = program, .template = template};
}

void rewrite_take_last(struct rewrite *r) {
    struct template *t = &r->program->templates.item[r->template];
    VEC_PUSH(&r->out, t->instructions.item[t->instructions.count - 1]);
    t->instructions.count--;
}

struct instruction *rewrite_take_for(struct rewrite *r, const struct instruction *row, int set) {
    rewrite_take_last(r);
    struct instruction *last = &r->out.item[r->out.count - 1];
    last->layer = row->layer;
    last->set = set;
    last->stands_for = row->op;
    return last;
}

void rewrite_finish(struct rewrite *r) {
    struct template *t = &r->program->templates.item[r->template];
    free(t->instructions.item);
    t->instructions.item = r->out.item;
    t->instructions.count = r->out.count;
    t->instructions.capacity = r->out.capacity;
}

void rewrite_rows(struct rewrite *r, struct program *p, enum op forward, enum op backward,
                  void (*replace)(void *user, const struct instruction *row), void *user) {
    for (size_t t = 0; t < p->templates.count; t++) {
        VEC(struct instruction) old = {0};
        rewrite_begin(r, p, (int)t);
        for (size_t i = 0; i < p->templates.item[t].instructions.count; i++)
            VEC_PUSH(&old, p->templates.item[t].instructions.item[i]);
        for (size_t i = 0; i < old.count; i++)
            if (old.item[i].op == forward || old.item[i].op == backward)
                replace(user, &old.item[i]);
            else
                VEC_PUSH(&r->out, old.item[i]);
        VEC_RELEASE(&old);
        rewrite_finish(r);
    }
}
