#include "engine/outer_step.h"

#include "base/bf16.h"
#include "optim/optimizer.h"

// ---- the start

static double outer_master(const struct engine_part *part, const struct engine_part *low, int64_t i) {
    switch (part->dtype) {
    case DTYPE_F64:
        return ((const double *)part->data)[i];
    case DTYPE_F32:
        return ((const float *)part->data)[i];
    default:
        return master_join(((const uint16_t *)part->data)[i], low->data ? ((const uint16_t *)low->data)[i] : 0);
    }
}

static void outer_set(const struct engine_part *part, int64_t i, double x) {
    if (part->dtype == DTYPE_F64)
        ((double *)part->data)[i] = x;
    else
        ((float *)part->data)[i] = (float)x;
}

// Before islands have met, gradients are divided by 1.
static void outer_start_divisors(struct engine *e) {
    const int *rounds = e->stage->state.outer.rounds;
    if (!rounds || *(double *)engine_state(e, rounds[0]) > 0)
        return;
    for (size_t i = 0; i < e->local.parameters.count; i++) {
        const struct engine_part part = engine_part(e, ENGINE_STATES + OPTIMIZER_SCALED_DIVISOR, i);
        for (int64_t k = 0; k < part.end - part.begin && part.data; k++)
            outer_set(&part, k, 1);
        unnamed_file_forget(&e->file);
    }
}

void outer_step_start(struct engine *e, double total) {
    const struct outer_entries *outer = &e->stage->state.outer;
    outer_start_divisors(e);
    for (size_t i = 0; i < e->local.parameters.count && outer->anchor; i++) {
        const struct engine_part part = engine_part(e, ENGINE_PARAMETERS, i),
                                 low = engine_part(e, ENGINE_REMAINDERS, i),
                                 anchor = engine_part(e, ENGINE_OUTER_ANCHOR, i);
        CHECK(!anchor.data || (part.begin <= anchor.begin && part.end >= anchor.end));
        for (int64_t k = 0; k < anchor.end - anchor.begin && anchor.data; k++)
            outer_set(&anchor, k, outer_master(&part, &low, anchor.begin - part.begin + k));
        unnamed_file_forget(&e->file); // where it lies there
    }
    // Nothing has come from the others yet, and nothing from the island itself: all count as if they had stayed.
    if (e->stages->config->outer.eager)
        *(double *)engine_state(e, outer->total) = total;
    engine_constants(e);
}

// ---- the end for islands that others follow

// Parameters become their anchors.
static void outer_follow(struct engine *e) {
    for (size_t i = 0; i < e->local.parameters.count && e->stage->state.outer.anchor; i++) {
        const struct engine_part part = engine_part(e, ENGINE_PARAMETERS, i),
                                 low = engine_part(e, ENGINE_REMAINDERS, i),
                                 anchor = engine_part(e, ENGINE_OUTER_ANCHOR, i);
        for (int64_t k = 0; k < anchor.end - anchor.begin && anchor.data; k++) {
            const int64_t at = anchor.begin - part.begin + k;
            const double x = outer_master(&anchor, &anchor, k);
            if (part.dtype == DTYPE_BF16)
                master_split((float)x, (uint16_t *)part.data + at, (uint16_t *)low.data + k);
            else
                outer_set(&part, at, x);
        }
    }
}

// Values of a kind become `share` of those that have been exchanged.
static void outer_share(struct engine *e, enum engine_values what, double share) {
    for (size_t i = 0; i < e->local.parameters.count; i++) {
        const struct engine_part part = engine_part(e, what, i), value = engine_part(e, ENGINE_OUTER_VALUE, i);
        for (int64_t k = 0; k < part.end - part.begin && part.data; k++)
            outer_set(&part, k, share == 0 ? 0 : share * outer_master(&value, &value, k));
    }
}

trireme_status outer_step_finish(struct engine *e, int fragment, double total, trireme_error *error) {
    struct engine_program *settle = fragment == NONE ? NULL : engine_find_part(e, PROGRAM_OUTER_SETTLE, fragment),
                          *turn = fragment == NONE ? NULL : engine_find_part(e, PROGRAM_OUTER_TURN, fragment);
    const bool eager = e->stages->config->outer.eager;
    const int entry = e->stage->state.outer.total;
    const bool exchanges = e->stage->state.outer.value;
    if (exchanges)
        *(double *)engine_state(e, entry) = total;
    // A turn takes what has been learnt, which is nothing; an eager one replaces by that the islands' own part, of
    // which this is the mean.
    if (turn) {
        outer_follow(e);
        outer_share(e, ENGINE_OUTER_TAKEN, eager && total > 0 ? 1 / total : 0);
    }
    if (turn || settle)
        TRY(engine_run(e, turn ?: settle, NULL, error));
    outer_follow(e);
    if (exchanges) {
        outer_share(e, ENGINE_OUTER_TAKEN, 0);
        outer_share(e, ENGINE_OUTER_VALUE, 0);
        *(double *)engine_state(e, entry) = 0;
    }
    return TRIREME_OK;
}

// ---- outer steps

static void outer_weigh(const struct engine_program *p, double weight) {
    if (p->compiled->weight != NONE)
        *(double *)executor_address(p->executor, p->compiled->weight, 0) = weight;
}

// The host counts, also where nothing of the stage is trained.
static void outer_count_meeting(struct engine *e) {
    const struct outer_entries *outer = &e->stage->state.outer;
    if (!outer->rounds)
        return;
    ++*(double *)engine_state(e, outer->rounds[0]);
    *(double *)engine_state(e, outer->since[0]) = *(double *)engine_state(e, e->stage->state.optimizer.t);
}

trireme_status outer_step_begin(struct engine *e, int part, double weight, trireme_error *error) {
    struct engine_program *meet = engine_find_part(e, PROGRAM_OUTER_MEET, part),
                          *take = engine_find_part(e, PROGRAM_OUTER_TAKE, part)
                                      ?: engine_find_part(e, PROGRAM_OUTER_TURN, part),
                          *exchange = engine_find_part(e, PROGRAM_OUTER_EXCHANGE, part);
    TRY(outer_step_wait(e, part, error));
    outer_weigh(meet ?: exchange, weight);
    if (meet) {
        TRY(engine_run(e, meet, NULL, error));
        outer_count_meeting(e);
        return TRIREME_OK;
    }
    TRY(engine_run(e, take, NULL, error));
    return engine_begin(e, exchange, NULL, error);
}

trireme_status outer_step_wait(struct engine *e, int fragment, trireme_error *error) {
    struct engine_program *exchange = engine_find_part(e, PROGRAM_OUTER_EXCHANGE, fragment);
    return exchange && exchange->under_way ? engine_end(exchange, error) : TRIREME_OK;
}

trireme_status outer_step_end(struct engine *e, int fragment, trireme_error *error) {
    TRY(outer_step_wait(e, fragment, error));
    struct engine_program *settle = engine_find_part(e, PROGRAM_OUTER_SETTLE, fragment);
    return settle ? engine_run(e, settle, NULL, error) : TRIREME_OK;
}

trireme_status outer_step_show(struct engine *e, double weight, trireme_error *error) {
    struct engine_program *show = engine_find(e, PROGRAM_OUTER_SHOW);
    if (!show)
        return TRIREME_OK;
    outer_weigh(show, weight);
    TRY(engine_run(e, show, NULL, error));
    e->shown = show->compiled;
    return TRIREME_OK;
}

trireme_status outer_step_hide(struct engine *e, trireme_error *error) {
    struct engine_program *hide = engine_find(e, PROGRAM_OUTER_HIDE);
    TRY(hide ? engine_run(e, hide, NULL, error) : TRIREME_OK);
    e->shown = NULL;
    return TRIREME_OK;
}
