#include "verify/history.h"

void history_add(struct history *h, const int32_t of[STREAMS_MAX]) {
    struct known known = {.from = h->steps++};
    size_t n = h->changes.count;
    if (!of || (n > 0 && memcmp(h->changes.item[n - 1].of, of, sizeof known.of) == 0))
        return;
    memcpy(known.of, of, sizeof known.of);
    VEC_PUSH(&h->changes, known);
}

// Most lookups are of recent steps: the search begins at the end, in growing strides.
const int32_t *history_at(const struct history *h, int64_t step) {
    const struct known *known = h->changes.item;
    size_t high = h->changes.count, low = high - 1; // the last change not after it lies in [low, high)
    for (size_t stride = 1; known[low].from > step; stride *= 2) {
        high = low;
        low -= MIN(stride, low);
    }
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (known[middle].from <= step)
            low = middle;
        else
            high = middle;
    }
    return known[low].of;
}

void history_release(struct history *h) {
    VEC_RELEASE(&h->changes);
}
