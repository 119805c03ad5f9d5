#include "memory/span_list.h"

int64_t spans_lowest(const spans *by_offset, int first, int last, int64_t bytes) {
    int64_t at = 0;
    for (size_t i = 0; i < by_offset->count; i++) {
        const struct span *s = &by_offset->item[i];
        if ((s->last < first) | (s->first > last))
            continue;
        if (at + bytes <= s->offset)
            break;
        at = MAX(at, s->end);
    }
    return at;
}

static size_t up_to(const spans *by_offset, size_t count, int64_t offset) {
    return PARTITION_POINT(i, count, by_offset->item[i].offset <= offset);
}

static void spans_move(struct span *to, const struct span *from, size_t count) {
    for (size_t i = count; i-- > 0;) // not memmove: the address sanitizer's goes byte by byte
        to[i] = from[i];
}

void spans_insert(spans *by_offset, struct span span) {
    size_t place = up_to(by_offset, by_offset->count, span.offset);
    VEC_PUSH(by_offset, span);
    struct span *item = by_offset->item;
    spans_move(item + place + 1, item + place, by_offset->count - 1 - place);
    item[place] = span;
}

static int by_offset(const void *a, const void *b) {
    const struct span *x = a, *y = b;
    return COMPARE(x->offset, y->offset);
}

void spans_merge(spans *to, spans *more) {
    size_t rest = to->count;
    if (more->count > 1)
        qsort(more->item, more->count, sizeof *more->item, by_offset);
    for (size_t i = 0; i < more->count; i++)
        VEC_PUSH(to, more->item[i]);
    for (struct span *item = to->item; more->count > 0; more->count--) {
        const struct span *last = &more->item[more->count - 1];
        size_t place = up_to(to, rest, last->offset);
        spans_move(item + place + more->count, item + place, rest - place);
        item[place + more->count - 1] = *last;
        rest = place;
    }
}
