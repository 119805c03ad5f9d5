// What a rank has of the whole parameters of a model: for each kind of values (a *group*: parameters, a moment of the
// optimizer) and each parameter, the parts of it that it has. What others have, says holders.h.
#ifndef CKPT_HOLDINGS_H
#define CKPT_HOLDINGS_H

#include "mesh/mesh.h"
#include "model/split.h"

// A part: elements `held` of what a rank has of a parameter. Of its rank's parameter, as much as parameter_runs needs.
struct holding {
    int32_t group, rank;
    int64_t number;             // of the whole parameter
    axis_set same;              // along these, ranks have the same part
    struct parameter_span held; // not empty
    int64_t columns;
    int32_t regions;
    struct parameter_region region[3];
    void *data; // for its rank: where the first held element lies
};

struct holdings {
    int groups;
    size_t parameters;
    VEC(struct holding); // by group, parameter
    size_t *first;       // [groups * parameters + 1]
};

// Copies item[count]. The caller releases *out.
void holdings_create(struct holdings *out, int groups, size_t parameters, const struct holding *item, size_t count);
void holdings_release(struct holdings *holdings);
// What the rank has of a parameter: *count of them.
const struct holding *holdings_of(const struct holdings *holdings, int group, size_t number, size_t *count);
// The runs of elements that a holding has of a window of its whole parameter.
struct parameter_runs holding_runs(const struct holding *holding, const struct parameter_window *window,
                                   struct parameter *local);

#endif
