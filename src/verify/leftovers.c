#include "verify/leftovers.h"

#include "verify/history.h"

static int compare_edges(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return COMPARE(x, y);
}

void leftovers_create(struct leftovers *l, const int64_t *edge, size_t count) {
    *l = (struct leftovers){.edge = mem_alloc(count * sizeof *edge)};
    if (count) {
        memcpy(l->edge, edge, count * sizeof *edge);
        qsort(l->edge, count, sizeof *edge, compare_edges);
    }
    for (size_t i = 0; i < count; i++)
        if (i == 0 || l->edge[i] != l->edge[l->edges - 1])
            l->edge[l->edges++] = l->edge[i];
    l->from = mem_alloc((size_t)l->edges * sizeof *l->from);
    number_set_create(&l->begun, l->edges);
}

void leftovers_release(struct leftovers *l) {
    free(l->edge);
    free(l->from);
    number_set_release(&l->begun);
}

static int edge_at(const struct leftovers *l, int64_t address) {
    return (int)PARTITION_POINT(i, (size_t)l->edges, l->edge[i] < address);
}

void leftovers_add(struct leftovers *l, int root, int64_t begin, int64_t end, const int32_t touched[STREAMS_MAX]) {
    if (begin >= end)
        return;
    int at = edge_at(l, begin);
    l->from[at].end = end;
    l->from[at].root = root;
    memcpy(l->from[at].touched, touched, sizeof l->from[at].touched);
    number_set_add(&l->begun, at);
}

int leftovers_take(struct leftovers *l, int64_t begin, int64_t end, const int32_t known[STREAMS_MAX]) {
    const int behind = edge_at(l, end);
    int late = NONE, at;
    while ((at = number_set_below(&l->begun, behind)) != NONE && l->from[at].end > begin) {
        if (!clocks_ordered(l->from[at].touched, known))
            late = l->from[at].root;
        number_set_remove(&l->begun, at);
        if (l->edge[at] >= begin && l->from[at].end <= end)
            continue;
        const struct leftover taken = l->from[at];
        leftovers_add(l, taken.root, l->edge[at], begin, taken.touched); // what of it lies outside remains
        leftovers_add(l, taken.root, end, taken.end, taken.touched);
    }
    return late;
}
