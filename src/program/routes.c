#include "program/routes.h"

#include "program/structure.h"

// [microbatches]: the route of each, which the caller frees.
static struct route *routes_of(const struct program *p) {
    struct route *route = mem_alloc((size_t)p->microbatches * sizeof *route);
    for (int m = 0; m < p->microbatches; m++)
        route[m].microbatch = m;
    for (size_t i = 0; i < p->schedule.count; i++)
        if (p->schedule.item[i].microbatch != NONE)
            VEC_PUSH(&route[p->schedule.item[i].microbatch].templates, p->schedule.item[i].template);
    return route;
}

static bool same_order(const struct route *a, const struct route *b) {
    return a->templates.count == b->templates.count &&
           (a->templates.count == 0 ||
            memcmp(a->templates.item, b->templates.item, a->templates.count * sizeof *a->templates.item) == 0);
}

trireme_status routes_create(struct routes *routes, const struct program *p, trireme_error *error) {
    *routes = (struct routes){0};
    struct route *all = routes_of(p);
    int *balance = mem_alloc(p->templates.count * sizeof *balance);
    const char *missing = NULL;
    int m = 0;
    for (; m < p->microbatches && !missing; m++) {
        const struct route *route = &all[m];
        bool known = false;
        for (size_t k = 0; k < routes->count && !known; k++)
            known = same_order(&routes->item[k], route);
        if (known)
            continue;
        for (size_t i = 0; i < route->templates.count && m > 0; i++)
            balance[route->templates.item[i]]++;
        for (size_t i = 0; m > 0 && i < routes->item[0].templates.count; i++)
            balance[routes->item[0].templates.item[i]]--;
        for (size_t t = 0; t < p->templates.count && !missing; t++)
            missing = balance[t] ? p->templates.item[t].name : NULL;
        VEC_PUSH(routes, *route);
        all[m].templates.item = NULL; // moved
    }
    for (int k = 0; k < p->microbatches; k++)
        free(all[k].templates.item);
    free(all);
    free(balance);
    if (missing)
        REFUSE("microbatch %d does not run the templates of microbatch 0: see %s", m - 1, missing);
    return TRIREME_OK;
}

void routes_release(struct routes *routes) {
    for (size_t i = 0; i < routes->count; i++)
        VEC_RELEASE(&routes->item[i].templates);
    VEC_RELEASE(routes);
}
