#include "run/kept_values.h"

static struct kept *kept_add(struct kept_values *out, const struct whole *whole, int island, const char *name,
                             enum engine_values what) {
    const struct kept kept = {.name = !name                ? NULL
                                      : whole->islands > 1 ? mem_printf("island.%d.%s", island, name)
                                                           : mem_strdup(name),
                              .what = what,
                              .island = island,
                              .dtype = whole_dtype(whole, what)};
    VEC_PUSH(out, kept);
    return &out->item[out->count - 1];
}

// Which parameters are trained; NULL: all.
static bool *kept_trained(const struct parameter_table *table) {
    if (!table->frozen)
        return NULL;
    bool *has = mem_alloc(table->parameters.count * sizeof *has);
    for (size_t i = 0; i < table->parameters.count; i++)
        has[i] = !table->parameters.item[i].frozen;
    return has;
}

static void kept_of_island(struct kept_values *out, const struct whole *whole, int island) {
    const struct engine *e = whole->engine;
    const struct stage_state *state = &e->stage->state;
    const enum config_optimizer_name name = e->stages->config->optimizer.name;
    struct kept *parameters = kept_add(out, whole, island, whole->islands > 1 ? "parameters" : NULL, ENGINE_PARAMETERS);
    parameters->has = e->model->lora.rank > 0 ? kept_trained(e->table) : NULL;
    if (whole->islands > 1 && state->outer.total != NONE) {
        struct kept *value = kept_add(out, whole, island, "outer.value", ENGINE_OUTER_VALUE);
        value->only_exchanged = true;
        value->has = kept_trained(e->table);
        struct kept *taken =
            state->outer.taken ? kept_add(out, whole, island, "outer.taken", ENGINE_OUTER_TAKEN) : NULL;
        if (taken) {
            taken->only_exchanged = true;
            taken->has = kept_trained(e->table);
        }
    }
    for (int k = 0; k < OPTIMIZER_STATES; k++) {
        bool *has = mem_alloc(e->table->parameters.count * sizeof *has), any = false;
        for (size_t i = 0; i < e->table->parameters.count; i++)
            any |= has[i] = optimizer_of(name, &e->table->parameters.item[i]) == (int)optimizer_states[k].optimizer;
        if (any)
            kept_add(out, whole, island, optimizer_states[k].saved, ENGINE_STATES + k)->has = has;
        else
            free(has);
    }
    if (state->optimizer.remainder)
        kept_add(out, whole, island, "remainder", ENGINE_REMAINDERS)->has = kept_trained(e->table);
}

void kept_values_create(struct kept_values *out, const struct whole *whole) {
    *out = (struct kept_values){0};
    for (int i = 0; i < whole->islands; i++)
        kept_of_island(out, whole, i);
}

void kept_values_release(struct kept_values *kept) {
    for (size_t i = 0; i < kept->count; i++) {
        free(kept->item[i].name);
        free(kept->item[i].has);
    }
    VEC_RELEASE(kept);
}

int kept_values_find(const struct kept_values *kept, enum engine_values what, int island) {
    for (size_t i = 0; i < kept->count; i++)
        if (kept->item[i].what == what && kept->item[i].island == island)
            return (int)i;
    return NONE;
}

bool kept_is_state(const struct kept *kept, bool exchanged) {
    return kept->name && (exchanged || !kept->only_exchanged);
}

void kept_values_own(struct holdings *out, const struct kept_values *kept, const struct whole *whole,
                     enum whole_use use) {
    struct holding_list own = {0};
    for (size_t i = 0; i < kept->count; i++)
        whole_holdings(whole, kept->item[i].what, kept->item[i].island, (int)i, use, &own);
    holdings_create(out, (int)kept->count, whole->engine->table->parameters.count, own.item, own.count);
    VEC_RELEASE(&own);
}
