#include "ckpt/values.h"

const struct holding *parameter_values_of(const struct parameter_values *values, size_t number, size_t *count) {
    return holdings_of(values->own, values->group, number, count);
}

// How many elements of a part are not padding.
static int64_t part_count(const struct holding *part, const struct parameter *parameter) {
    const struct parameter_window all = {0, parameter_rows(parameter), 0, parameter->dim[1]};
    struct parameter local;
    struct parameter_runs runs = holding_runs(part, &all, &local);
    int64_t count = 0;
    for (struct parameter_run run; parameter_next(&runs, &run);)
        count += run.count;
    return count;
}

static void part_clear(const struct parameter_values *values, const struct holding *part) {
    memset(part->data, 0, (size_t)((part->held.end - part->held.begin) * dtype_size(values->dtype)));
}

void parameter_values_clear_padding(const struct parameter_values *values, size_t number,
                                    const struct parameter *parameter) {
    size_t count;
    const struct holding *part = parameter_values_of(values, number, &count);
    for (size_t i = 0; i < count; i++)
        if (part_count(&part[i], parameter) < part[i].held.end - part[i].held.begin)
            part_clear(values, &part[i]);
}

void parameter_values_clear(const struct parameter_values *values, size_t number) {
    size_t count;
    const struct holding *part = parameter_values_of(values, number, &count);
    for (size_t i = 0; i < count; i++)
        part_clear(values, &part[i]);
}

struct holdings holdings_of_whole(const struct parameter_table *table, void *const *data) {
    const size_t count = table->parameters.count;
    struct holding *part = mem_alloc(count * sizeof *part);
    struct holdings own;
    for (size_t i = 0; i < count; i++) {
        const struct parameter *p = &table->parameters.item[i];
        part[i] = (struct holding){.number = (int64_t)i,
                                   .held = {0, parameter_count(p)},
                                   .columns = p->dim[1],
                                   .regions = p->regions,
                                   .data = data[i]};
        memcpy(part[i].region, p->region, sizeof p->region);
    }
    holdings_create(&own, 1, count, part, count);
    free(part);
    return own;
}
