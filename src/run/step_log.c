#include "run/step_log.h"

#include "launch/ranks.h"
#include "run/run.h"

// What an island tells of a step.
enum { TOLD_LOSS, TOLD_TARGETS, TOLD_SKIPPED, TOLD_VALUES };

trireme_status step_log_create(struct run *r, trireme_error *error) {
    const struct mesh *mesh = &r->engine.parallel->mesh;
    const struct member *member = &r->engine.member;
    const int ranks = mesh_group_size(mesh, AXES_WITHIN);
    r->inner = r->control;
    if (island_count(r) == 1)
        return TRIREME_OK;
    r->inner = NULL;
    if (ranks == 1)
        return TRIREME_OK;
    int *members = mem_alloc((size_t)ranks * sizeof *members);
    mesh_members(mesh, member->rank, AXES_WITHIN, 0, members);
    const trireme_status status =
        communicator_open(&r->inner, member->world, member->rank, ranks, members, "control of an island", error);
    free(members);
    return status;
}

void step_log_release(struct step_log *l) {
    VEC_RELEASE(&l->steps);
    free(l->told);
}

void step_log_forget(struct step_log *l) {
    l->steps.count -= l->known;
    memmove(l->steps.item, l->steps.item + l->known, l->steps.count * sizeof *l->steps.item);
    l->known = 0;
}

static double *told_of(const struct step_log *l, int island, size_t step) {
    return l->told + CONTROLS + ((size_t)island * l->steps_told + step) * TOLD_VALUES;
}

// Begins to tell all islands of the steps. Each has a place of its own in what is added up: so what they did is added
// in one order, however many steps there are.
static void step_log_tell(struct run *r, struct control own) {
    struct step_log *l = &r->log;
    const int64_t behind = r->progress.step - l->met;
    l->steps_told = l->steps.count - l->known;
    const int64_t count = CONTROLS + island_count(r) * (int64_t)l->steps_told * TOLD_VALUES;
    l->told = mem_alloc((size_t)count * sizeof *l->told);
    loader_say(r->loader, &own);
    memcpy(l->told, &own, sizeof own);
    for (size_t i = 0; i < l->steps_told && island_speaks(&r->engine); i++) {
        const struct engine_result *result = &l->steps.item[l->known + i].result;
        double *to = told_of(l, island_own(r), i);
        to[TOLD_LOSS] = result->count > 0 ? result->loss * result->count : 0;
        to[TOLD_TARGETS] = result->count;
        to[TOLD_SKIPPED] = !result->finite;
    }
    communicator_patience(r->control, behind);
    island_be_patient(r, behind);
    l->telling = comm_begin_all_reduce(r->control, l->told, l->told, count, DTYPE_F64, REDUCE_SUM, DTYPE_F64);
}

// Makes of an island's result that of all: the loss is the mean over all targets, and a step counts as done if all
// islands have done it. The norm stays the island's.
static void step_log_merge(struct run *r, size_t step, struct engine_result *result) {
    const bool done = result->finite;
    double loss = 0;
    result->count = 0;
    for (int island = 0; island < island_count(r); island++) {
        const double *of = told_of(&r->log, island, step);
        loss += of[TOLD_LOSS];
        result->count += of[TOLD_TARGETS];
        result->finite &= of[TOLD_SKIPPED] == 0;
    }
    result->loss = result->count > 0 ? loss / result->count : 0;
    if (done && !result->finite) // run_check_finite does not count it
        r->progress.updates++;
}

// Ends telling. *calls: whether all ranks are to do something together now.
static trireme_status step_log_hear(struct run *r, bool *calls, trireme_error *error) {
    struct step_log *l = &r->log;
    TRY(comm_end(l->telling, error));
    communicator_patience(r->control, 1);
    memcpy(&r->agreed, l->told, sizeof r->agreed);
    *calls = r->agreed.stops + r->agreed.failures + r->agreed.timings > 0 || saving_may_go_on(r);
    for (size_t i = 0; i < l->steps_told; i++) {
        struct engine_result *result = &l->steps.item[l->known++].result;
        step_log_merge(r, i, result);
        *calls |= !result->finite; // which may end the run
    }
    l->met = r->progress.step - (int64_t)(l->steps.count - l->known);
    free(l->told);
    l->told = NULL;
    return TRIREME_OK;
}

trireme_status step_log_agree(struct run *r, const struct engine_result *result, const struct control *inner,
                              const struct control *own, bool together, trireme_error *error) {
    struct step_log *l = &r->log;
    const bool sets_out = r->island.sets_out != NONE;
    struct control say = *own;
    bool calls = false;
    VEC_PUSH(&l->steps, (struct logged_step){.result = *result});
    if (island_count(r) == 1) {
        l->known = l->steps.count;
        r->agreed = *inner;
        return TRIREME_OK;
    }
    r->agreed = (struct control){.bytes = r->agreed.bytes};
    say.failures = inner->failures;
    together |=
        sets_out && outer_arrival(r->config) == ARRIVAL_AT_ONCE && r->config->outer.reduce == CONFIG_OUTER_REDUCE_ALL;
    if (l->told && (together || sets_out || r->island.arrives))
        TRY(step_log_hear(r, &calls, error));
    together |= calls;
    if (inner->failures > 0 && !together && loader_fail(r->loader, SAMPLER_TRAIN, error) != TRIREME_OK)
        return saving_say_lost(r, error);
    if (together || sets_out)
        step_log_tell(r, say);
    return together ? step_log_hear(r, &calls, error) : TRIREME_OK;
}
