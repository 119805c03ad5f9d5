#include "run/island.h"

#include "base/text.h"
#include "engine/outer_step.h"
#include "launch/ranks.h"
#include "run/run.h"

// ---- the text

char *island_progress_print(const struct island_progress *p) {
    struct text text = {0};
    text_add(&text, "%d %lld %.17g", p->islands, (long long)p->settles, p->total);
    for (int i = 0; i < p->islands; i++)
        text_add(&text, " %lld %.17g", (long long)p->updates[i], p->targets[i]);
    return text.text;
}

// The next number, which `*at` then lies behind.
static bool island_number(const char **at, double *out) {
    char *end;
    *out = strtod(*at, &end);
    const bool is = end != *at && *out >= 0 && *out <= 0x1p53;
    *at = end;
    return is;
}

bool island_progress_parse(const char *text, struct island_progress *out) {
    double islands, settles, total;
    bool good = island_number(&text, &islands) && islands >= 1 && islands <= PARALLEL_MAX_RANKS &&
                island_number(&text, &settles) && island_number(&text, &total);
    if (!good)
        return false;
    *out = (struct island_progress){.islands = (int)islands, .settles = (int64_t)settles, .total = total};
    out->updates = mem_alloc((size_t)out->islands * sizeof *out->updates);
    out->targets = mem_alloc((size_t)out->islands * sizeof *out->targets);
    for (int i = 0; i < out->islands && good; i++) {
        double updates = 0;
        good = island_number(&text, &updates) && island_number(&text, &out->targets[i]);
        out->updates[i] = (int64_t)updates;
    }
    good &= *text == 0;
    if (!good)
        island_progress_release(out);
    return good;
}

void island_progress_release(struct island_progress *p) {
    free(p->updates);
    free(p->targets);
    *p = (struct island_progress){0};
}

// ---- a run

int island_count(const struct run *r) {
    return mesh_group_size(&r->engine.parallel->mesh, AXES_ISLAND);
}

static int island_own(const struct run *r) {
    return mesh_index(&r->engine.parallel->mesh, r->engine.member.rank, AXES_ISLAND);
}

// Whether it is this rank that says what all ranks of its island know alike.
static bool island_speaks(const struct engine *e) {
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

static trireme_status island_meet(struct run *r, int64_t step, trireme_error *error) {
    const struct config_outer *outer = &r->config->outer;
    struct run_island *island = &r->island;
    const bool meets = step % outer->sync_steps == 0;
    // One that is under way ends before the next begins: a resume may have changed the interval.
    if (island->settles && (step >= island->settles || meets)) {
        TRY(outer_step_end(&r->engine, error));
        island->settles = 0;
    }
    if (!meets)
        return TRIREME_OK;
    TRY(outer_step_begin(&r->engine, island->targets, error));
    island->targets = 0;
    island->settles = step + outer->delay_steps;
    if (outer->delay_steps)
        return TRIREME_OK;
    island->settles = 0;
    return outer_step_end(&r->engine, error);
}

trireme_status island_step(struct run *r, int64_t step, const struct engine_result *result, trireme_error *error) {
    if (island_count(r) == 1)
        return TRIREME_OK;
    r->island.targets += result->finite ? result->count : 0;
    return island_meet(r, step, error);
}

void island_tell(const struct run *r, const struct engine_result *result, struct control *out) {
    if (island_count(r) == 1 || !island_speaks(&r->engine))
        return;
    out->loss = result->count > 0 ? result->loss * result->count : 0;
    out->targets = result->count;
    out->skipped = !result->finite;
}

void island_merge(struct run *r, const struct control *sums, struct engine_result *result) {
    if (island_count(r) == 1)
        return;
    const bool done = result->finite;
    result->loss = sums->targets > 0 ? sums->loss / sums->targets : 0;
    result->count = sums->targets;
    result->finite = sums->skipped == 0;
    if (done && !result->finite) // run_check_finite does not count it
        r->progress.updates++;
}

trireme_status island_agree(struct run *r, struct engine_result *result, trireme_error *error) {
    if (island_count(r) == 1)
        return TRIREME_OK;
    struct control own = {0};
    island_tell(r, result, &own);
    double sums[] = {own.loss, own.targets, own.skipped};
    TRY(ranks_sum(r->control, sums, ARRAY_LENGTH(sums), error));
    island_merge(r, &(struct control){.loss = sums[0], .targets = sums[1], .skipped = sums[2]}, result);
    return TRIREME_OK;
}

trireme_status island_save(struct run *r, trireme_error *error) {
    const int islands = island_count(r), own = island_own(r);
    if (islands == 1)
        return TRIREME_OK;
    TRY(outer_step_wait(&r->engine, error));
    double *sums = mem_alloc(2 * (size_t)islands * sizeof *sums);
    struct island_progress p = {.islands = islands,
                                .settles = r->island.settles,
                                .updates = mem_alloc((size_t)islands * sizeof *p.updates),
                                .targets = sums + islands};
    if (p.settles)
        p.total = *(const double *)engine_state(&r->engine, r->engine.stage->state.outer.total);
    sums[own] = (double)r->progress.updates;
    sums[islands + own] = r->island.targets;
    trireme_status status = island_sum(&r->engine, r->control, sums, 2 * islands, error);
    for (int i = 0; i < islands; i++)
        p.updates[i] = (int64_t)sums[i];
    free(r->progress.islands);
    r->progress.islands = island_progress_print(&p);
    free(p.updates);
    free(sums);
    return status;
}

trireme_status island_check(const struct run *r, trireme_error *error) {
    struct island_progress p = {.islands = 1};
    if (r->progress.islands && !island_progress_parse(r->progress.islands, &p))
        FAIL(TRIREME_ERROR_CORRUPT, "%s does not say how far its islands had come", r->resumed_from);
    const int saved = p.islands, now = island_count(r);
    if (r->progress.islands)
        island_progress_release(&p);
    if (saved == now)
        return TRIREME_OK;
    return config_refuse(r->config, "parallelism.island_degree", error,
                         "but the run in %s has %d: each goes on by itself; set it back, or start another "
                         "run.directory with model.init_from=%s",
                         r->config->run.directory, saved, r->resumed_from);
}

void island_load(struct run *r) {
    struct island_progress p;
    if (island_count(r) == 1)
        return;
    CHECK(island_progress_parse(r->progress.islands, &p)); // island_check has
    const struct stage_state *state = &r->engine.stage->state;
    r->progress.updates = p.updates[island_own(r)];
    r->island = (struct run_island){p.targets[island_own(r)], p.settles};
    *(double *)engine_state(&r->engine, state->optimizer.t) = (double)r->progress.updates;
    *(double *)engine_state(&r->engine, state->outer.total) = p.total;
    island_progress_release(&p);
}
