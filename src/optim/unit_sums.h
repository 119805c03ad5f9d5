// Sums over the elements of units, each counted once over the ranks of an island: of the squares of gradients, or of
// how far anchors have moved. Units are spread over ranks by their class (model/state.h): each class has a sum of its
// own, which goes over the axes along which ranks have other elements of such units.
#ifndef OPTIM_UNIT_SUMS_H
#define OPTIM_UNIT_SUMS_H

#include "model/state.h"

struct unit_sums {
    struct program *program;
    int template;
    const struct model_units *units;
    const char *name;                // of the sums' buffers, f64[1]: NAME.CLASS
    struct operand sum[CLASS_COUNT]; // absent as long as nothing adds to it
};
struct unit_sums unit_sums_create(struct program *program, int template, const struct model_units *units,
                                  const char *name);
// The class with which a unit is summed.
enum parameter_class unit_sums_class(const struct unit_sums *sums, int unit);
// The sum of that class. *accumulate: whether an instruction is to add to it, and not the first one.
struct operand unit_sums_add(struct unit_sums *sums, enum parameter_class class, enum accumulate *accumulate);
// Sums a class over the ranks, on the reduce stream. `everywhere`: also where this rank has nothing to add, since ranks
// of other stages may. Returns operand_none where there is nothing.
struct operand unit_sums_reduce(struct unit_sums *sums, enum parameter_class class, bool everywhere);

#endif
