#include "run/island.h"

#include "base/amount.h"
#include "base/text.h"
#include "engine/outer_step.h"
#include "launch/ranks.h"
#include "run/run.h"

#include <math.h>

// ---- the text

char *island_progress_print(const struct island_progress *p) {
    struct text text = {0};
    text_add(&text, "%d %d %d %lld", p->islands, p->fragments, p->under_way + 1, (long long)p->settles);
    for (int i = 0; i < p->islands; i++) {
        text_add(&text, " %lld %.17g", (long long)p->updates[i], p->weight[i]);
        for (int f = 0; f < p->fragments; f++)
            text_add(&text, " %.17g", p->targets[i * p->fragments + f]);
    }
    for (int k = 0; k < p->islands * p->fragments * p->scalars; k++)
        text_add(&text, " %.17g", isfinite(p->scalar[k]) ? p->scalar[k] : 0);
    return text.text;
}

// The next number, which `*at` then lies behind.
static bool island_number(const char **at, double *out) {
    char *end;
    *out = strtod(*at, &end);
    const bool is = end != *at && *out >= 0 && isfinite(*out);
    *at = end;
    return is;
}

// The next whole number up to `most`.
static bool island_integer(const char **at, double most, int64_t *out) {
    double number;
    const bool is = island_number(at, &number) && number <= most && number == floor(number);
    *out = is ? (int64_t)number : 0;
    return is;
}

enum { FRAGMENTS_MAX = 1 << 20 };

bool island_progress_parse(const char *text, struct island_progress *out) {
    int64_t islands, fragments, under_way, settles, rest = 0;
    bool good = island_integer(&text, PARALLEL_MAX_RANKS, &islands) && islands >= 1 &&
                island_integer(&text, FRAGMENTS_MAX, &fragments) && fragments >= 1 &&
                island_integer(&text, (double)fragments, &under_way) && island_integer(&text, 0x1p53, &settles);
    // As many numbers as the text may have.
    if (!good || islands * (fragments + 2) > (int64_t)strlen(text))
        return false;
    *out = (struct island_progress){
        .islands = (int)islands, .fragments = (int)fragments, .under_way = (int)under_way - 1, .settles = settles};
    out->updates = mem_alloc((size_t)islands * sizeof *out->updates);
    out->weight = mem_alloc((size_t)islands * sizeof *out->weight);
    out->targets = mem_alloc((size_t)(islands * fragments) * sizeof *out->targets);
    for (int i = 0; i < islands && good; i++) {
        good = island_integer(&text, 0x1p53, &out->updates[i]) && island_number(&text, &out->weight[i]);
        for (int f = 0; f < fragments && good; f++)
            good = island_number(&text, &out->targets[i * fragments + f]);
    }
    for (const char *c = text; good && *c; c++)
        rest += *c == ' ';
    out->scalars = (int)(rest / (islands * fragments));
    out->scalar = mem_alloc((size_t)(islands * fragments * out->scalars) * sizeof *out->scalar);
    for (int64_t k = 0; k < islands * fragments * out->scalars && good; k++)
        good = island_number(&text, &out->scalar[k]);
    good &= *text == 0;
    if (!good)
        island_progress_release(out);
    return good;
}

void island_progress_release(struct island_progress *p) {
    free(p->updates);
    free(p->weight);
    free(p->targets);
    free(p->scalar);
    *p = (struct island_progress){.under_way = NONE};
}

// ---- a run

int island_count(const struct run *r) {
    return mesh_group_size(&r->engine.parallel->mesh, AXES_ISLAND);
}

int island_own(const struct run *r) {
    return mesh_index(&r->engine.parallel->mesh, r->engine.member.rank, AXES_ISLAND);
}

bool island_speaks(const struct engine *e) {
    return mesh_index(&e->parallel->mesh, e->member.rank, AXES_WITHIN) == 0;
}

trireme_status island_sum(const struct engine *e, struct communicator *control, double *values, int64_t count,
                          trireme_error *error) {
    if (!mesh_present(&e->parallel->mesh, AXES_ISLAND))
        return TRIREME_OK;
    if (!island_speaks(e))
        memset(values, 0, (size_t)count * sizeof *values);
    return ranks_sum(control, values, count, error);
}

static bool island_steps(const struct run *r) {
    return r->config->outer.method != CONFIG_OUTER_NONE;
}

static void island_create(struct run *r) {
    r->island = (struct run_island){.schedule = outer_schedule_create(r->config), .under_way = NONE};
    r->island.targets = mem_alloc((size_t)r->config->outer.fragments * sizeof *r->island.targets);
}

void island_start(struct run *r) {
    if (!island_steps(r))
        return;
    island_create(r);
    outer_step_start(&r->engine, island_count(r));
}

void island_end(struct run *r) {
    free(r->island.targets);
    r->island.targets = NULL;
}

static trireme_status island_settle(struct run *r, trireme_error *error) {
    const int fragment = r->island.under_way;
    r->island.under_way = NONE;
    r->island.settles = 0;
    return outer_step_end(&r->engine, fragment, error);
}

static trireme_status island_meet(struct run *r, int64_t step, int fragment, trireme_error *error) {
    struct run_island *island = &r->island;
    const enum outer_arrival arrival = outer_arrival(r->config);
    island->weight = r->config->outer.weights == CONFIG_OUTER_WEIGHTS_TARGETS ? island->targets[fragment] : 1;
    island->targets[fragment] = 0;
    TRY(outer_step_begin(&r->engine, outer_schedule_part(&island->schedule, step, fragment), island->weight, error));
    if (arrival == ARRIVAL_AT_ONCE)
        return TRIREME_OK;
    island->under_way = fragment;
    island->settles = arrival == ARRIVAL_A_ROUND ? 0 : step + outer_delay(r->config);
    return TRIREME_OK;
}

void island_look(struct run *r, const struct engine_result *result) {
    struct run_island *island = &r->island;
    const int64_t step = r->progress.step;
    if (!island_steps(r))
        return;
    for (int f = 0; f < r->config->outer.fragments; f++)
        island->targets[f] += result->finite ? result->count : 0;
    island->sets_out = outer_schedule_at(&island->schedule, step);
    // What is under way ends before the next begins: a resume may have changed the interval.
    island->arrives =
        island->under_way != NONE && ((island->settles && step >= island->settles) || island->sets_out != NONE);
}

void island_be_patient(const struct run *r, int64_t times) {
    engine_patience(&r->engine, AXES_ISLAND, times);
}

trireme_status island_step(struct run *r, trireme_error *error) {
    if (!island_steps(r))
        return TRIREME_OK;
    if (r->island.arrives)
        TRY(island_settle(r, error));
    return r->island.sets_out == NONE ? TRIREME_OK : island_meet(r, r->progress.step, r->island.sets_out, error);
}

// Before anything is known of whether all count nothing.
static double island_share(const struct config *config, const double *targets) {
    double share = 0;
    for (int f = 0; f < config->outer.fragments; f++)
        share += config->outer.weights == CONFIG_OUTER_WEIGHTS_TARGETS ? targets[f] : 1;
    return share;
}

double island_weight(const struct config *config, const struct island_progress *p, int island) {
    double all = 0;
    for (int i = 0; i < p->islands; i++)
        all += island_share(config, p->targets + i * p->fragments);
    return all > 0 ? island_share(config, p->targets + island * p->fragments) : 1;
}

trireme_status island_show(struct run *r, trireme_error *error) {
    if (!island_steps(r))
        return TRIREME_OK;
    const double own = island_share(r->config, r->island.targets);
    double all = own;
    TRY(island_sum(&r->engine, r->control, &all, 1, error));
    return outer_step_show(&r->engine, all > 0 ? own : 1, error);
}

trireme_status island_hide(struct run *r, trireme_error *error) {
    return outer_step_hide(&r->engine, error);
}

// The scalars that the state has of each fragment.
struct island_scalars {
    const int *entry[4];
    int count;
};

static struct island_scalars island_scalars(const struct run *r) {
    const struct stage_state *state = &r->engine.stage->state;
    const int *const all[] = {state->outer.excess, state->outer.last, state->outer.rounds, state->outer.since};
    struct island_scalars scalars = {0};
    for (size_t i = 0; i < ARRAY_LENGTH(all); i++)
        if (all[i])
            scalars.entry[scalars.count++] = all[i];
    return scalars;
}

// Number k of those of all fragments.
static double *island_scalar(const struct run *r, const struct island_scalars *scalars, int64_t k) {
    return engine_state(&r->engine, scalars->entry[k % scalars->count][k / scalars->count]);
}

trireme_status island_save(struct run *r, trireme_error *error) {
    const int islands = island_count(r), own = island_own(r), fragments = (int)r->config->outer.fragments;
    const struct island_scalars scalars = island_scalars(r);
    const int64_t kept = (int64_t)fragments * scalars.count, each = 2 + fragments + kept;
    if (!island_steps(r))
        return TRIREME_OK;
    if (r->island.under_way != NONE)
        TRY(outer_step_wait(&r->engine, r->island.under_way, error));
    double *sums = mem_alloc((size_t)(islands * each) * sizeof *sums), *mine = sums + own * each;
    mine[0] = (double)r->progress.updates;
    mine[1] = r->island.weight;
    memcpy(mine + 2, r->island.targets, (size_t)fragments * sizeof *mine);
    for (int64_t k = 0; k < kept; k++)
        mine[2 + fragments + k] = *island_scalar(r, &scalars, k);
    const trireme_status status = island_sum(&r->engine, r->control, sums, islands * each, error);
    struct island_progress p = {.islands = islands,
                                .fragments = fragments,
                                .under_way = r->island.under_way,
                                .settles = r->island.settles,
                                .updates = mem_alloc((size_t)islands * sizeof *p.updates),
                                .weight = mem_alloc((size_t)islands * sizeof *p.weight),
                                .targets = mem_alloc((size_t)(islands * fragments) * sizeof *p.targets),
                                .scalars = scalars.count,
                                .scalar = mem_alloc((size_t)(islands * kept) * sizeof *p.scalar)};
    for (int i = 0; i < islands; i++) {
        p.updates[i] = (int64_t)sums[i * each];
        p.weight[i] = sums[i * each + 1];
        memcpy(p.targets + i * fragments, sums + i * each + 2, (size_t)fragments * sizeof *sums);
        memcpy(p.scalar + i * kept, sums + i * each + 2 + fragments, (size_t)kept * sizeof *sums);
    }
    free(r->progress.islands);
    r->progress.islands = island_progress_print(&p);
    island_progress_release(&p);
    free(sums);
    return status;
}

trireme_status island_check(const struct run *r, trireme_error *error) {
    struct island_progress p = {.fragments = (int)r->config->outer.fragments};
    if (r->progress.islands && !island_progress_parse(r->progress.islands, &p))
        FAIL(TRIREME_ERROR_CORRUPT, "%s does not say how far its islands had come", r->resumed_from);
    const int fragments = p.fragments;
    island_progress_release(&p);
    if (fragments != r->config->outer.fragments)
        FAIL(TRIREME_ERROR_CORRUPT, "%s does not say how far its %lld fragments had come", r->resumed_from,
             (long long)r->config->outer.fragments);
    return TRIREME_OK;
}

// Those of the island; others than there were go on with the first one's.
static void island_set_scalars(struct run *r, const struct island_progress *p) {
    const struct island_scalars scalars = island_scalars(r);
    const int64_t kept = (int64_t)p->fragments * scalars.count,
                  island = p->islands == island_count(r) ? island_own(r) : 0;
    for (int64_t k = 0; k < kept && p->scalars == scalars.count; k++)
        *island_scalar(r, &scalars, k) = p->scalar[island * kept + k];
}

// Goes on where it was.
static void island_continue(struct run *r, const struct island_progress *p) {
    const int own = island_own(r);
    r->progress.updates = p->updates[own];
    r->island.under_way = p->under_way;
    r->island.settles = p->settles;
    r->island.weight = p->weight[own];
    memcpy(r->island.targets, p->targets + own * p->fragments, (size_t)p->fragments * sizeof *p->targets);
}

// Begins a round with others, which had `total` for a weight together.
static trireme_status island_join(struct run *r, const struct island_progress *p, double total, trireme_error *error) {
    const int *since = r->engine.stage->state.outer.since;
    for (int i = 0; i < p->islands; i++)
        r->progress.updates = MAX(i > 0 ? r->progress.updates : 0, p->updates[i]);
    if (since) // as many updates ago as it was
        *(double *)engine_state(&r->engine, since[0]) += (double)(r->progress.updates - p->updates[0]);
    run_tell(r,
             "with %s in place of %d: %sall start from the outer parameters, with the mean of their optimizer states",
             counted(island_count(r), "island").text, p->islands,
             p->under_way == NONE ? "" : "what they exchanged is settled, ");
    TRY(outer_step_finish(&r->engine, p->under_way, total, error));
    outer_step_start(&r->engine, island_count(r));
    return TRIREME_OK;
}

trireme_status island_load(struct run *r, trireme_error *error) {
    struct island_progress p;
    if (!island_steps(r))
        return TRIREME_OK;
    CHECK(island_progress_parse(r->progress.islands, &p)); // island_check has
    const struct stage_state *state = &r->engine.stage->state;
    trireme_status status = TRIREME_OK;
    double total = 0;
    island_create(r);
    for (int i = 0; i < p.islands; i++)
        total += p.weight[i];
    island_set_scalars(r, &p);
    if (p.islands != island_count(r))
        status = island_join(r, &p, total, error);
    else {
        island_continue(r, &p);
        if (state->outer.value)
            *(double *)engine_state(&r->engine, state->outer.total) = total;
    }
    *(double *)engine_state(&r->engine, state->optimizer.t) = (double)r->progress.updates;
    island_progress_release(&p);
    return status;
}
