#include "ckpt/holdings.h"

static int compare_holdings(const void *a, const void *b) {
    const struct holding *x = a, *y = b;
    return COMPARE(x->group, y->group) ?: COMPARE(x->number, y->number) ?: COMPARE(x->held.begin, y->held.begin);
}

void holdings_create(struct holdings *out, int groups, size_t parameters, const struct holding *item, size_t count) {
    const size_t lists = (size_t)groups * parameters;
    *out = (struct holdings){.groups = groups, .parameters = parameters};
    for (size_t i = 0; i < count; i++)
        VEC_PUSH(out, item[i]);
    VEC_SORT(out, compare_holdings);
    out->first = mem_alloc((lists + 1) * sizeof *out->first);
    for (size_t i = 0; i < count; i++)
        out->first[(size_t)item[i].group * parameters + (size_t)item[i].number + 1]++;
    for (size_t i = 0; i < lists; i++)
        out->first[i + 1] += out->first[i];
}

void holdings_release(struct holdings *h) {
    VEC_RELEASE(h);
    free(h->first);
    *h = (struct holdings){0};
}

const struct holding *holdings_of(const struct holdings *h, int group, size_t number, size_t *count) {
    const size_t list = (size_t)group * h->parameters + number;
    *count = h->first[list + 1] - h->first[list];
    return h->item + h->first[list];
}

struct parameter_runs holding_runs(const struct holding *h, const struct parameter_window *window,
                                   struct parameter *local) {
    *local = (struct parameter){.dim = {0, h->columns}, .regions = h->regions};
    memcpy(local->region, h->region, sizeof local->region);
    return parameter_runs(local, h->held, window);
}
