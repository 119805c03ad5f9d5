#include "program/spans.h"

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

void spans_insert(spans *by_offset, struct span span) {
    size_t low = 0, high = by_offset->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (by_offset->item[middle].offset <= span.offset)
            low = middle + 1;
        else
            high = middle;
    }
    VEC_PUSH(by_offset, span);
    struct span *item = by_offset->item;
    for (size_t i = by_offset->count - 1; i > low; i--) // memmove, but for the address sanitizer's, which goes by bytes
        item[i] = item[i - 1];
    item[low] = span;
}
