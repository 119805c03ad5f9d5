#include "program/leftovers.h"

#include "program/history.h"

// The first that ends behind the address.
static size_t first_behind(const struct leftovers *l, int64_t address) {
    size_t low = 0, high = l->list.count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (l->list.item[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void leftovers_add(struct leftovers *l, int root, int64_t begin, int64_t end, const int32_t touched[STREAM_COUNT]) {
    if (begin >= end)
        return;
    struct leftover rest = {.begin = begin, .end = end, .root = root};
    memcpy(rest.touched, touched, sizeof rest.touched);
    size_t at = first_behind(l, begin);
    VEC_PUSH(&l->list, rest);
    memmove(&l->list.item[at + 1], &l->list.item[at], (l->list.count - 1 - at) * sizeof rest);
    l->list.item[at] = rest;
}

int leftovers_take(struct leftovers *l, int64_t begin, int64_t end, const int32_t known[STREAM_COUNT]) {
    const size_t first = first_behind(l, begin);
    size_t behind = first;
    for (; behind < l->list.count && l->list.item[behind].begin < end; behind++)
        if (!clocks_ordered(l->list.item[behind].touched, known))
            return l->list.item[behind].root;
    if (behind == first)
        return NONE;
    const struct leftover low = l->list.item[first], high = l->list.item[behind - 1];
    memmove(&l->list.item[first], &l->list.item[behind], (l->list.count - behind) * sizeof low);
    l->list.count -= behind - first;
    leftovers_add(l, low.root, low.begin, begin, low.touched);
    leftovers_add(l, high.root, end, high.end, high.touched);
    return NONE;
}

void leftovers_release(struct leftovers *l) {
    VEC_RELEASE(&l->list);
}
