#include "optim/unit_sums.h"

#include "optim/optimizer.h"

struct unit_sums unit_sums_create(struct program *program, int template, const struct model_units *units,
                                  const char *name) {
    struct unit_sums sums = {.program = program, .template = template, .units = units, .name = name};
    for (int class = 0; class < CLASS_COUNT; class ++)
        sums.sum[class] = operand_none();
    return sums;
}

// All sums go over the stages, so a spread vocabulary needs no sum of its own where its shards are those of other split
// units.
enum parameter_class unit_sums_class(const struct unit_sums *s, int unit) {
    const struct parameter_table *table = s->units->table;
    const enum parameter_class class = table->parameters.item[table->first[unit]].split;
    const axis_set *shards = s->units->layout.shards;
    return class == CLASS_VOCABULARY && shards[CLASS_VOCABULARY] == shards[CLASS_SPLIT] ? CLASS_SPLIT : class;
}

static struct operand sum_declare(struct unit_sums *s, enum parameter_class class) {
    char *name = mem_printf("%s.%d", s->name, (int)class);
    s->sum[class] = operand_whole(
        s->program, program_buffer(s->program, name, DTYPE_F64, KIND_ACT, SCOPE_LOCAL, 1, (int64_t[]){1}));
    free(name);
    return s->sum[class];
}

struct operand unit_sums_add(struct unit_sums *s, enum parameter_class class, enum accumulate *accumulate) {
    const bool first = s->sum[class].buffer == NONE;
    *accumulate = first ? ACCUMULATE_NO : ACCUMULATE_YES;
    return first ? sum_declare(s, class) : s->sum[class];
}

struct operand unit_sums_reduce(struct unit_sums *s, enum parameter_class class, bool everywhere) {
    const struct mesh *mesh = &s->program->mesh;
    const struct unit_axes axes = unit_axes(&s->units->layout, mesh, class);
    const axis_set over = axes.split | axes.shards | mesh_present(mesh, AXES_STAGE);
    if (s->sum[class].buffer == NONE && everywhere) {
        struct operand sum = sum_declare(s, class);
        program_emit(s->program, s->template, OP_ZERO, PHASE_OPTIMIZER, NONE, 0, NULL, 1, &sum, NULL);
    }
    const struct operand sum = s->sum[class];
    if (sum.buffer != NONE && over)
        program_communicate(s->program, s->template, OP_ALL_REDUCE, PHASE_OPTIMIZER, reduce_stream(s->program), over,
                            sum, sum);
    return sum;
}
