#include "run/kept_values.h"

#include "optim/outer_schedule.h"

static struct kept *kept_add(struct kept_values *out, const struct whole *whole, int islands, int island,
                             const char *name, enum engine_values what) {
    const struct kept kept = {.name = !name                                   ? NULL
                                      : islands > 1 && island != EVERY_ISLAND ? mem_printf("island.%d.%s", island, name)
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

static void kept_of_island(struct kept_values *out, const struct whole *whole, int islands, int island) {
    const struct engine *e = whole->engine;
    const struct stage_state *state = &e->stage->state;
    const enum config_optimizer_name name = e->stages->config->optimizer.name;
    const bool apart = islands > 1 || state->outer.anchor || state->outer.value;
    struct kept *parameters = kept_add(out, whole, islands, island, apart ? "parameters" : NULL, ENGINE_PARAMETERS);
    parameters->has = e->model->lora.rank > 0 ? kept_trained(e->table) : NULL;
    for (int k = 0; k < OPTIMIZER_STATES; k++) {
        bool *has = mem_alloc(e->table->parameters.count * sizeof *has), any = false;
        for (size_t i = 0; i < e->table->parameters.count; i++)
            any |= has[i] = optimizer_of(name, &e->table->parameters.item[i]) == (int)optimizer_states[k].optimizer;
        const bool shared = optimizer_states[k].role == STATE_SHARED;
        if (any && (!shared || island == 0))
            kept_add(out, whole, islands, shared ? EVERY_ISLAND : island, optimizer_states[k].saved, ENGINE_STATES + k)
                ->has = has;
        else
            free(has);
    }
    if (state->optimizer.remainder)
        kept_add(out, whole, islands, island, "remainder", ENGINE_REMAINDERS)->has = kept_trained(e->table);
}

// What outer steps keep, of each island or once.
static void kept_of_outer(struct kept_values *out, const struct whole *whole, int islands, const char *name,
                          enum engine_values what, bool shared, bool only_exchanged) {
    for (int i = 0; i < (shared ? 1 : islands); i++) {
        struct kept *kept = kept_add(out, whole, islands, shared ? EVERY_ISLAND : i, name, what);
        kept->has = kept_trained(whole->engine->table);
        kept->only_exchanged = only_exchanged;
    }
}

void kept_values_create(struct kept_values *out, const struct whole *whole, int islands) {
    const struct stage_state *state = &whole->engine->stage->state;
    const struct config *config = whole->engine->stages->config;
    const bool counts = config->outer.eager || config->outer.keep_progress, // what was taken, in the next meeting
        shared = !outer_anchors_own(config);
    *out = (struct kept_values){.others = islands != whole->islands};
    for (int i = 0; i < islands; i++)
        kept_of_island(out, whole, islands, i);
    if (state->outer.anchor)
        kept_of_outer(out, whole, islands, "outer.anchor", ENGINE_OUTER_ANCHOR, shared, false);
    if (state->outer.velocity)
        kept_of_outer(out, whole, islands, "outer.velocity", ENGINE_OUTER_VELOCITY, shared, false);
    if (state->outer.taken)
        kept_of_outer(out, whole, islands, "outer.taken", ENGINE_OUTER_TAKEN, false, !counts);
    if (state->outer.value)
        kept_of_outer(out, whole, islands, "outer.value", ENGINE_OUTER_VALUE, true, true);
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
        if (kept->item[i].what == what && (kept->item[i].island == island || kept->item[i].island == EVERY_ISLAND))
            return (int)i;
    return NONE;
}

bool kept_is_state(const struct kept *kept, bool exchanged) {
    return kept->name && (exchanged || !kept->only_exchanged);
}

void kept_values_own(struct holdings *out, const struct kept_values *kept, const struct whole *whole,
                     enum whole_use use) {
    struct holding_list own = {0};
    for (size_t i = 0; i < kept->count; i++) {
        const struct kept *of = &kept->item[i];
        const bool parameters = of->what == ENGINE_PARAMETERS || of->what == ENGINE_REMAINDERS;
        if (kept->others && parameters && of->island > 0)
            continue;
        whole_holdings(whole, of->what, kept->others ? EVERY_ISLAND : of->island, (int)i, use, &own);
    }
    holdings_create(out, (int)kept->count, whole->engine->table->parameters.count, own.item, own.count);
    VEC_RELEASE(&own);
}
