#include "run/saving.h"

#include "base/clock.h"
#include "launch/ranks.h"
#include "run/checkpoint.h"
#include "run/run.h"

#include <math.h>

trireme_status saving_say_lost(const struct run *r, trireme_error *error) {
    const long long step = (long long)r->progress.step, saved = (long long)r->saved_step;
    if (saved < 0)
        return error_prefix(error, error->status,
                            "step %lld is not saved (nothing is saved, the same command begins again)", step);
    return error_prefix(error, error->status,
                        "step %lld is not saved (the same command goes on from step %lld, once that is mended)", step,
                        saved);
}

void saving_set_deadline(struct run *r) {
    enum { FIRST_STEP = 20 }; // threads and memory come with it
    const int64_t ranks = r->config->comm.train_timeout_seconds, save = r->config->checkpoint.timeout_seconds;
    if (!r->control)
        return;
    const int64_t least = r->is_first && ranks > 0 ? MAX(ranks, FIRST_STEP) : ranks;
    const bool for_ever = ranks == 0 || (r->saving.may_block && save == 0);
    world_deadline(r->engine.member.world, for_ever ? 0 : (double)(least + (r->saving.may_block ? save : 0)));
}

// ---- rank 0's part, on the saver's thread

static void saving_remark(struct run *r, char *remark) {
    if (remark)
        VEC_PUSH(&r->saving.remarks, remark);
}

// Nothing is written to what is no longer the run's directory.
static trireme_status saving_before_open(void *user, trireme_error *error) {
    const struct run *r = user;
    return run_directory_check(&r->directory, error);
}

// Once the files are on the disk. What a checkpoint covers is to be there before it.
static trireme_status saving_before_commit(void *user, trireme_error *error) {
    struct run *r = user;
    trireme_error why;
    TRY(run_directory_check(&r->directory, error));
    saving_remark(r, metrics_sync(&r->saving.lines));
    // A checkpoint does without it.
    if (data_record_write(r->config->run.directory, r->data, r->corpus->set, &r->data_known, &why) != TRIREME_OK)
        saving_remark(r, mem_printf("checksums of the data are not kept: %s", why.message));
    return TRIREME_OK;
}

static void saving_after_commit(void *user) {
    struct run *r = user;
    run_prune(r, r->saving.prunes, r->saving.step);
}

// ---- the rank's thread

static void saving_spend(struct run *r, int64_t began) {
    spent_add(&r->spent, SPENT_SAVING, began);
    r->saving.blocked += 1e-9 * (double)(clock_now() - began);
}

// Seconds that the save under way still has.
static double saving_left(const struct run *r) {
    const int64_t limit = r->config->checkpoint.timeout_seconds;
    return limit > 0 ? MAX((double)limit - 1e-9 * (double)(clock_now() - r->saving.began), 0) : INFINITY;
}

static trireme_status saving_late(const struct run *r, trireme_error *error) {
    FAIL(TRIREME_ERROR_LOST, "step %lld is not saved after %lld seconds (checkpoint.timeout_seconds): %s",
         (long long)r->saving.step, (long long)r->config->checkpoint.timeout_seconds,
         checkpoint_saver_doing(r->saving.saver));
}

static trireme_status saving_await_copied(void *user, trireme_error *error) {
    struct run *r = user;
    if (!r->saving.under_way)
        return TRIREME_OK;
    const int64_t began = clock_now();
    const bool copied = checkpoint_saver_await_copied(r->saving.saver, saving_left(r));
    r->saving.stalls += clock_now() - began;
    return copied ? TRIREME_OK : saving_late(r, error);
}

double saving_take_stall(struct run *r) {
    const double seconds = 1e-9 * (double)atomic_exchange(&r->saving.stalls, 0);
    spent_add_seconds(&r->spent, SPENT_SAVING, seconds);
    r->saving.blocked += seconds;
    return seconds;
}

// Whether the run goes on from a checkpoint in checkpoint.emergency_directory.
static bool saving_is_elsewhere(const struct run *r) {
    char *own = mem_printf(CHECKPOINTS_PATH "/", r->config->run.directory);
    const bool is = r->resumed_from && strncmp(r->resumed_from, own, strlen(own)) != 0;
    free(own);
    return is;
}

trireme_status saving_create(struct run *r, trireme_error *error) {
    const struct config_checkpoint *c = &r->config->checkpoint;
    const bool in_background = c->async_save && c->interval > 0;
    r->saving.step = r->saved_step;
    r->saving.elsewhere = saving_is_elsewhere(r);
    run_directory_identify(r->config->run.directory, r->saving.run);
    TRY(checkpoint_saver_create(&r->saving.saver, &r->engine, &r->tokenizer, in_background ? c->buffer_mib << 20 : 0,
                                error));
    engine_before_update(&r->engine, saving_await_copied, r);
    return TRIREME_OK;
}

bool saving_hangs(const struct run *r) {
    return r->saving.saver && checkpoint_saver_hangs(r->saving.saver);
}

void saving_release(struct run *r) {
    checkpoint_saver_free(r->saving.saver);
    metrics_unmark(&r->saving.lines);
    for (size_t i = 0; i < r->saving.remarks.count; i++)
        free(r->saving.remarks.item[i]);
    VEC_RELEASE(&r->saving.remarks);
}

static void saving_tell_remarks(struct run *r) {
    for (size_t i = 0; i < r->saving.remarks.count; i++) {
        run_tell(r, "%s", r->saving.remarks.item[i]);
        free(r->saving.remarks.item[i]);
    }
    r->saving.remarks.count = 0;
}

// Unless steps are skipped. While they are in a row nothing changes that could be saved, and a run that ends because of
// them should go on from before them. What was due meanwhile is saved after the first step that is not skipped.
bool saving_is_due(const struct run *r) {
    const int64_t every = r->config->checkpoint.interval, step = r->progress.step;
    return r->saving.again || (every > 0 && step / every > MAX(r->saving.step, 0) / every);
}

bool saving_is_copied(const struct run *r) {
    return r->saving.under_way && checkpoint_saver_is_copied(r->saving.saver);
}

bool saving_is_done(const struct run *r) {
    return r->saving.under_way && checkpoint_saver_is_done(r->saving.saver);
}

// `directory`: the run's, or checkpoint.emergency_directory.
static trireme_status saving_begin(struct run *r, const char *directory, trireme_error *error) {
    struct run_saving *s = &r->saving;
    const int64_t began = clock_now();
    const bool own = directory == r->config->run.directory;
    rank_record_set(r->record, RANK_SAVING);
    const trireme_status status = r->leads ? corpus_check_unchanged(r->corpus, error) : TRIREME_OK;
    if (status != TRIREME_OK)
        return error_prefix(error, status, "step %lld is not saved", (long long)r->progress.step);
    TRY(island_save(r, error));
    if (r->leads && own)
        s->lines = metrics_mark(&r->directory.metrics);
    s->step = r->progress.step;
    s->prunes = s->step - r->progress.skipped_in_a_row;
    s->sound = r->progress.skipped_in_a_row == 0;
    s->began = began;
    s->blocked = 0;
    s->second = s->again;
    s->again = false;
    s->in_emergency = !own;
    *r->progress.run = 0;
    if (!own)
        memcpy(r->progress.run, s->run, sizeof s->run);
    const struct saver_hooks hooks = {r, own ? saving_before_open : NULL, own ? saving_before_commit : NULL,
                                      own ? saving_after_commit : NULL};
    checkpoint_saver_begin(s->saver, directory, &r->progress, &hooks);
    s->under_way = true;
    int32_t small = !checkpoint_saver_has_room(s->saver);
    TRY(ranks_max(r->control, &small, error));
    s->may_block = small;
    saving_set_deadline(r);
    saving_spend(r, began);
    return TRIREME_OK;
}

// Waits for the end of the save that is under way. Its deadline counts from its beginning.
static trireme_status saving_await(struct run *r, trireme_error *error) {
    const int64_t since = clock_now();
    rank_record_set(r->record, RANK_SAVING);
    if (!checkpoint_saver_await_end(r->saving.saver, saving_left(r)))
        return saving_late(r, error);
    r->saving.under_way = r->saving.may_block = false;
    const trireme_status status = checkpoint_saver_end(r->saving.saver, error);
    saving_set_deadline(r);
    saving_spend(r, since);
    return status;
}

static void saving_succeed(struct run *r) {
    struct run_saving *s = &r->saving;
    r->saved_step = s->step;
    if (s->sound && r->progress.skipped_in_a_row > 0)
        r->sound_step = s->step;
    s->failures = 0;
    s->elsewhere &= s->in_emergency;
    spent_took(&r->spent, SPENT_SAVING, s->blocked);
}

static void saving_tell_failed(struct run *r, const trireme_error *why) {
    const int64_t every = r->config->checkpoint.interval, most = r->config->checkpoint.max_failures;
    const long long next = every > 0 ? (long long)MIN((r->progress.step / every + 1) * every, r->config->training.steps)
                                     : (long long)r->config->training.steps;
    run_tell(r, "step %lld is not saved: %s; training goes on, and saves again after step %lld%s",
             (long long)r->saving.step, why->message, next,
             most == 0 || r->saving.failures < most - 1 ? "" : ", for the last time if that fails");
}

// Ends the save under way, which all ranks are done with or wait for. *saved: whether it has succeeded. Fails where a
// rank is lost.
static trireme_status saving_end(struct run *r, bool *saved, trireme_error *why, trireme_error *error) {
    const trireme_status status = saving_await(r, why);
    *saved = status == TRIREME_OK;
    if (status == TRIREME_ERROR_LOST)
        return error_repeat(error, why);
    metrics_unmark(&r->saving.lines);
    saving_tell_remarks(r);
    if (*saved)
        saving_succeed(r);
    return TRIREME_OK;
}

static void saving_tell_saved(struct run *r) {
    run_tell(r, "saved " CHECKPOINT_PATH, r->config->run.directory, (long long)r->saving.step);
    run_tell_remark(r);
}

// Saves into checkpoint.emergency_directory what could not be saved, for the reason *error, to which it adds what came
// of that.
static trireme_status saving_in_emergency(struct run *r, trireme_error *error) {
    const char *directory = r->config->checkpoint.emergency_directory;
    trireme_error why, lost;
    bool saved;
    if (!*directory)
        return saving_say_lost(r, error);
    if (saving_begin(r, directory, &lost) != TRIREME_OK || saving_end(r, &saved, &why, &lost) != TRIREME_OK)
        return error_repeat(error, &lost);
    if (saved)
        return error_prefix(error, error->status,
                            "step %lld is saved in " CHECKPOINT_PATH " alone, from where the same command goes on",
                            (long long)r->progress.step, directory, (long long)r->progress.step);
    char *first = mem_strdup(error->message);
    error_set(error, error->status, "%s; nor in checkpoint.emergency_directory: %s", first, why.message);
    free(first);
    return saving_say_lost(r, error);
}

trireme_status saving_settle(struct run *r, trireme_error *error) {
    struct run_saving *s = &r->saving;
    const int64_t most = r->config->checkpoint.max_failures;
    trireme_error why;
    bool saved;
    if (!s->under_way)
        return TRIREME_OK;
    TRY(saving_end(r, &saved, &why, error));
    if (saved) {
        saving_tell_saved(r);
        return TRIREME_OK;
    }
    if (!s->second) {
        run_tell(r, "step %lld is not saved: %s; it is tried again", (long long)s->step, why.message);
        s->again = true;
        return TRIREME_OK;
    }
    s->failures++;
    if (most == 0 || s->failures < most) {
        saving_tell_failed(r, &why);
        return TRIREME_OK;
    }
    *error = why;
    return saving_in_emergency(r, error);
}

// Whether all ranks have come so far, of which `agreed` is the number that they have agreed on.
static bool saving_by_all(const struct run *r, double agreed, bool own) {
    return r->saving.under_way && (r->control ? agreed == mesh_ranks(&r->engine.parallel->mesh) : own);
}

bool saving_may_go_on(const struct run *r) {
    return saving_by_all(r, r->agreed.saved, saving_is_done(r)) ||
           (r->saving.may_block && saving_by_all(r, r->agreed.copied, true));
}

trireme_status saving_step(struct run *r, trireme_error *error) {
    const bool waits = !r->config->checkpoint.async_save;
    // On time for this rank's part may be too late for another's, which then says so.
    if (r->saving.under_way && saving_left(r) == 0 && !checkpoint_saver_await_end(r->saving.saver, 0))
        return saving_late(r, error);
    if (saving_by_all(r, r->agreed.saved, saving_is_done(r)))
        TRY(saving_settle(r, error));
    if (r->saving.may_block && saving_by_all(r, r->agreed.copied, true)) {
        r->saving.may_block = false;
        saving_set_deadline(r);
    }
    if (r->progress.skipped_in_a_row || !saving_is_due(r))
        return TRIREME_OK;
    do {
        TRY(saving_settle(r, error)); // the one before may be under way
        TRY(saving_begin(r, r->config->run.directory, error));
        if (waits)
            TRY(saving_settle(r, error));
    } while (r->saving.again && waits);
    return TRIREME_OK;
}

trireme_status saving_finish(struct run *r, trireme_error *error) {
    enum { TRIES = 2 };
    trireme_error why;
    bool saved;
    for (int tries = 0; r->saving.under_way || r->saved_step != r->progress.step || r->saving.elsewhere;
         tries += !saved) {
        if (tries == TRIES) {
            *error = why;
            return saving_in_emergency(r, error);
        }
        if (!r->saving.under_way)
            TRY(saving_begin(r, r->config->run.directory, error));
        TRY(saving_end(r, &saved, &why, error));
        if (saved)
            saving_tell_saved(r);
    }
    return TRIREME_OK;
}
