#include "memory/segment_tree.h"

enum { LISTS = 3 * 32 }; // that a search looks at: at most three of each level

static int tree_compare_times(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return COMPARE(x, y);
}

void taken_create(struct taken *s, int *times, size_t count) {
    *s = (struct taken){.start = times, .leaves = 1};
    if (count > 1)
        qsort(times, count, sizeof *times, tree_compare_times);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || times[i] != s->start[s->starts - 1])
            s->start[s->starts++] = times[i];
    while (s->leaves < s->starts)
        s->leaves *= 2;
    s->covering = mem_alloc(2 * s->leaves * sizeof *s->covering);
    s->beginning = mem_alloc(2 * s->leaves * sizeof *s->beginning);
}

void taken_release(struct taken *s) {
    for (size_t n = 0; n < 2 * s->leaves; n++) {
        free(s->covering[n].item);
        free(s->beginning[n].item);
    }
    free(s->start);
    free(s->covering);
    free(s->beginning);
}

// The leaf of the last start that is not later.
static size_t leaf_of(const struct taken *s, int time) {
    return s->leaves + PARTITION_POINT(i, s->starts, s->start[i] <= time) - 1;
}

// The first piece that ends above a place.
static int tree_above(const struct pieces *p, int64_t place) {
    return (int)PARTITION_POINT(i, (size_t)p->count, p->item[i].end <= place);
}

// Adds a piece; those that it touches become one with it.
static void tree_add(struct pieces *p, struct piece piece) {
    int at = tree_above(p, piece.begin - 1), to = at;
    for (; to < p->count && p->item[to].begin <= piece.end; to++) {
        piece.begin = MIN(piece.begin, p->item[to].begin);
        piece.end = MAX(piece.end, p->item[to].end);
    }
    if (to == at && p->count == p->capacity) {
        p->capacity = MAX(2, 2 * p->capacity);
        p->item = mem_resize(p->item, (size_t)p->capacity * sizeof *p->item);
    }
    memmove(p->item + at + 1, p->item + to, (size_t)(p->count - to) * sizeof *p->item);
    p->item[at] = piece;
    p->count += 1 - (to - at);
}

void taken_add(struct taken *s, int first, int last, int64_t offset, int64_t bytes) {
    const struct piece piece = {offset, offset + bytes};
    const size_t from = leaf_of(s, first), to = leaf_of(s, last);
    for (size_t a = from, b = to + 1; a < b; a /= 2, b /= 2) {
        if (a % 2)
            tree_add(&s->covering[a++], piece);
        if (b % 2)
            tree_add(&s->covering[--b], piece);
    }
    for (size_t a = from; a > 0; a /= 2)
        tree_add(&s->beginning[a], piece);
}

// Lists of pieces, each from the first one on that is not yet below the place that is looked at.
struct lists {
    struct {
        const struct piece *next, *end;
    } item[LISTS];
    int count;
};

static void tree_look_at(struct lists *lists, const struct pieces *p) {
    if (p->count == 0)
        return;
    lists->item[lists->count].next = p->item;
    lists->item[lists->count++].end = p->item + p->count;
}

// The lists of what is taken at the first time already, and of what begins later.
static void find_lists(struct lists *lists, const struct taken *s, int first, int last) {
    lists->count = 0;
    const size_t from = leaf_of(s, first), to = leaf_of(s, last);
    for (size_t a = from, b = to + 1; a < b; a /= 2, b /= 2) {
        if (a % 2)
            tree_look_at(lists, &s->beginning[a++]);
        if (b % 2)
            tree_look_at(lists, &s->beginning[--b]);
    }
    for (size_t a = from; a > 0; a /= 2)
        tree_look_at(lists, &s->covering[a]);
}

int64_t taken_lowest(const struct taken *s, int first, int last, int64_t bytes) {
    struct lists lists;
    find_lists(&lists, s, first, last);
    int64_t at = 0;
    for (bool found = false; !found;) {
        found = true;
        for (int i = lists.count; i-- > 0;) {
            const struct piece *next = lists.item[i].next, *end = lists.item[i].end;
            for (; next < end && next->begin < at + bytes; next++)
                if (next->end > at) {
                    at = next->end;
                    found = false;
                }
            lists.item[i].next = next;
        }
    }
    return at;
}
