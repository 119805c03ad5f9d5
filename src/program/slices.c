#include "program/slices.h"

void slices_create(struct slices *s, const struct program *program) {
    size_t n = program->buffers.count;
    *s = (struct slices){mem_alloc(n * sizeof *s->first), mem_alloc(n * sizeof *s->next)};
    for (size_t i = 0; i < n; i++)
        s->first[i] = s->next[i] = NONE;
    for (size_t i = n; i-- > 0;) {
        int parent = program->buffers.item[i].parent;
        if (parent == NONE)
            continue;
        s->next[i] = s->first[parent];
        s->first[parent] = (int)i;
    }
}

void slices_release(struct slices *s) {
    free(s->first);
    free(s->next);
    *s = (struct slices){0};
}
