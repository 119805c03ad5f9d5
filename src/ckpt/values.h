// Values of whole parameters in this rank's memory: where a rank takes what files have of them.
#ifndef CKPT_VALUES_H
#define CKPT_VALUES_H

#include "ckpt/holdings.h"
#include "model/model.h"

// Values of one kind: what the rank has of them, in parts.
struct parameter_values {
    enum dtype dtype;
    const struct holdings *own;
    int group; // of `own`
};

// The parts of parameter `number`: *count of them.
const struct holding *parameter_values_of(const struct parameter_values *values, size_t number, size_t *count);
// Sets to zero what the rank has of the padding of a parameter; or all that it has.
void parameter_values_clear_padding(const struct parameter_values *values, size_t number,
                                    const struct parameter *parameter);
void parameter_values_clear(const struct parameter_values *values, size_t number);

// The parts of whole parameters that lie in memory, each contiguous at data[number]: one group. The caller releases it.
struct holdings holdings_of_whole(const struct parameter_table *table, void *const *data);

#endif
