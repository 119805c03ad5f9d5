// The orders in which microbatches come to their templates. Internal to program/.
#ifndef PROGRAM_ROUTES_H
#define PROGRAM_ROUTES_H

#include "program/program.h"

// The templates that a microbatch goes through, in order.
struct route {
    int microbatch;
    VEC(int) templates;
};

struct routes {
    VEC(struct route);
};

// Lists one microbatch for each order that occurs. Refuses a program whose microbatches do not all run the same
// templates. The caller releases *routes, on failure too.
trireme_status routes_create(struct routes *routes, const struct program *program, trireme_error *error);
void routes_release(struct routes *routes);

#endif
