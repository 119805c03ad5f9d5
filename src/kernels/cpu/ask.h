// Prefetches that products issue while they multiply, in the shadow of the arithmetic. Without them, a panel of b that
// streams in from the last-level cache makes a product up to a third slower.
#ifndef KERNELS_CPU_ASK_H
#define KERNELS_CPU_ASK_H

#include "base/base.h"

enum { ASK_LINE = 64 };  // bytes of a cache's line
enum { ASK_UNITS = 16 }; // units of the summed dimension between two requests (tile.h)

// What to prefetch into the second-level cache, for later products: after every ASK_UNITS units the next `lines` lines
// from `next` on.
struct ask {
    const char *next;
    int64_t lines;
};

static inline void ask_more(struct ask *ask) {
    for (int64_t i = 0; i < ask->lines; i++, ask->next += ASK_LINE)
        __builtin_prefetch(ask->next, 0, 2);
}

// What one of `parts` products, each over `units` units, asks for: its part of the `bytes` at `p`. All parts together
// ask for every line of them, and for few lines beyond.
static inline struct ask ask_part(const void *p, int64_t bytes, int64_t part, int64_t parts, int64_t units) {
    const int64_t times = parts * divide_up(MAX(units, 1), ASK_UNITS);
    const int64_t lines = divide_up(bytes, times * ASK_LINE);
    const int64_t from = part * (times / parts) * lines * ASK_LINE;
    return (struct ask){(const char *)p + from, from < bytes ? lines : 0};
}

#endif
