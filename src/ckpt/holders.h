// Which ranks have what of the whole parameters of a model. To save, each rank knows it of all ranks, so that it can
// tell alone who sends which bytes of a checkpoint to whom (save_plan.h). It holds as long as the mesh does.
//
// There may be thousands of ranks, each with hundreds of parameters, of which it has several kinds of values. So what
// several ranks have alike is one part, the first rank's, and the others follow from the mesh; what parts look like, in
// some hundred shapes, is kept apart from where each begins and ends; and kinds of values that are spread alike have
// one list. A part takes 24 bytes.
#ifndef CKPT_HOLDERS_H
#define CKPT_HOLDERS_H

#include "ckpt/holdings.h"
#include "comm/comm.h"

// As in struct holding.
struct holder_shape {
    struct parameter_region region[3];
    int64_t columns;
    int32_t regions;
    axis_set same;
};
struct holder_part {
    struct parameter_span held;
    int32_t rank; // the first of those that have it
    uint32_t shape;
};
struct holder_list {
    VEC(struct holder_part); // by parameter, rank
    size_t *first;           // [parameters + 1]
};

struct holders {
    struct mesh mesh;
    int groups;
    size_t parameters;
    VEC(struct holder_shape) shape;
    VEC(uint32_t) slot; // a table of them by their hash, while they are collected
    VEC(struct holder_list) list;
    int *list_of; // [groups]
    bool lent;    // ranks that are threads share all of it
};

// Makes it of what all ranks have, each of which passes its own. All ranks take part; `all` is a communicator of them
// by number, and `world` their world, which must outlive *out; both NULL with one rank. The caller releases *out.
trireme_status holders_gather(struct holders *out, const struct mesh *mesh, const struct holdings *own,
                              struct communicator *all, struct world *world, trireme_error *error);
// The same of ranks of which all is known: holding[count], in any order.
void holders_create(struct holders *out, const struct mesh *mesh, int groups, size_t parameters,
                    const struct holding *holding, size_t count);
void holders_release(struct holders *holders);
// Bytes that it takes.
size_t holders_bytes(const struct holders *holders);
// The parts that there are of a parameter: *count of them.
const struct holder_part *holders_of(const struct holders *holders, int group, size_t number, size_t *count);
// One of the ranks that have a part; they take turns.
int holders_rank(const struct holders *holders, const struct holder_part *part, size_t turn);
// The runs of elements that a part has of a window of its whole parameter.
struct parameter_runs holders_runs(const struct holders *holders, const struct holder_part *part,
                                   const struct parameter_window *window, struct parameter *local);
// Where the first element of a part of parameter `number` lies for a rank that has it, whose own holdings these are.
void *holders_data(const struct holders *holders, const struct holder_part *part, const struct holdings *own, int group,
                   size_t number);

#endif
