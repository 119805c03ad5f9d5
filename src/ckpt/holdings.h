// Who has what of the whole parameters of a model: for each kind of values (a *group*: parameters, a moment of the
// optimizer) and each parameter, the parts that ranks have. To save, all ranks know all of it, so that each can tell
// alone who sends which bytes of a checkpoint to whom (save_plan.h); to load, a rank need only know what it has itself
// (values.h). It says nothing about values: it holds as long as the mesh does.
#ifndef CKPT_HOLDINGS_H
#define CKPT_HOLDINGS_H

#include "comm/comm.h"
#include "model/split.h"

// A part: elements `held` of what a rank has of a parameter. Of its rank's parameter, as much as parameter_runs needs.
struct holding {
    int32_t group, rank;
    int64_t number;             // of the whole parameter
    int32_t replica, replicas;  // several ranks may have the same part: which of how many this one is
    struct parameter_span held; // not empty
    int64_t columns;
    int32_t regions;
    struct parameter_region region[3];
    void *data; // for its rank: where the first held element lies
};

struct holdings {
    int groups;
    size_t parameters;
    VEC(struct holding); // by group, parameter, rank
    size_t *first;       // [groups * parameters + 1]
    bool lent;           // ranks that are threads share one list
};

// Makes of what each rank has (`own`) what all have. All ranks take part; `all` is a communicator of them by number,
// and `world` their world, which must outlive *out; both NULL with one rank. The caller releases *out.
trireme_status holdings_create(struct holdings *out, int groups, size_t parameters, const struct holding *own,
                               size_t count, struct communicator *all, struct world *world, trireme_error *error);
void holdings_release(struct holdings *holdings);
// What ranks have of a parameter: *count of them.
const struct holding *holdings_of(const struct holdings *holdings, int group, size_t number, size_t *count);
// The runs of elements that a holding has of a window of its whole parameter.
struct parameter_runs holding_runs(const struct holding *holding, const struct parameter_window *window,
                                   struct parameter *local);

#endif
