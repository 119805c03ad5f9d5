#include "run/run.h"

#include "base/amount.h"
#include "base/clock.h"
#include "base/region.h"
#include "base/rng.h"
#include "ckpt/directory.h"
#include "ckpt/model_files.h"
#include "launch/processes.h"
#include "launch/ranks.h"
#include "run/checkpoint.h"
#include "run/same_run.h"
#include "run/sampling.h"

#include <errno.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

// What the ranks of this process share: read only, except what follows from measurements.
struct job {
    struct config config;
    struct train_callbacks callbacks;
    struct corpus corpus;
    struct text data; // the tokens that are trained on, in words
    struct model_config model;
    char *start;           // the directory of the weights to start from, or ""; NULL where the run has a checkpoint
    atomic_int start_hold; // its directory_hold, until it is read; -1: none
    struct parallel plan;
    int ranks;
    int64_t began; // clock_now
    struct tuning tuning;
    // What the run came to, and the error with which it ends: of this process's rank, or of rank 0 where it has all.
    struct train_result result;
    trireme_error verdict;
    atomic_bool hangs; // a rank of this process was left behind while it saved
};

// ---- steps

// A loss that is not finite becomes infinite: NaN means that it was not measured, since the run is to stop.
static trireme_status run_validate(struct run *r, double *loss, trireme_error *error) {
    struct validation_loss result;
    const int64_t began = clock_now();
    rank_record_set(r->record, RANK_VALIDATING);
    TRY(island_show(r, error));
    trireme_status status =
        validation_run(r->corpus, &r->engine, r->loader, r->control, r->config->validation.steps, NULL, &result, error);
    if (status == TRIREME_OK || status == TRIREME_ERROR_INTERRUPTED)
        TRY(island_hide(r, error));
    if (status == TRIREME_ERROR_INTERRUPTED) {
        r->agreed.stops++; // as all have agreed
        return TRIREME_OK;
    }
    TRY(status);
    spent_add(&r->spent, SPENT_VALIDATING, began);
    spent_took(&r->spent, SPENT_VALIDATING, 1e-9 * (double)(clock_now() - began));
    *loss = isfinite(result.loss) ? result.loss : INFINITY;
    return TRIREME_OK;
}

// Early stopping. Of a loss that is not better than the best one, all ranks count alike that it is not.
static void count_in_vain(struct run *r, double loss) {
    struct state_progress *p = &r->progress;
    const bool better =
        loss < (isnan(p->best_val_loss) ? INFINITY : p->best_val_loss - r->config->validation.min_delta);
    if (isnan(loss) || r->config->validation.patience == 0)
        return;
    if (better)
        p->best_val_loss = loss;
    p->validations_in_vain = better ? 0 : p->validations_in_vain + 1;
}

static bool ends_early(const struct run *r) {
    const int64_t patience = r->config->validation.patience;
    return patience > 0 && r->progress.validations_in_vain >= patience;
}

// Whether all is done, early or not.
static bool run_is_complete(const struct run *r) {
    return r->progress.step >= r->config->training.steps || ends_early(r);
}

static bool validation_is_due(const struct run *r) {
    int64_t every = r->config->validation.freq, step = r->progress.step;
    return r->corpus->has_validation && (step == r->config->training.steps || (every > 0 && step % every == 0));
}

// For rank 0, which finds that the run's directory is no longer the run's: what is done can be saved only elsewhere.
static void run_lose_directory(struct run *r, const trireme_error *why) {
    if (!r->without_directory)
        run_tell(r, "%s; the run is to end", why->message);
    r->without_directory = true;
}

// Measures the validation loss of a run that was stopped while it validated: its record lacks it.
static trireme_status catch_up(struct run *r, double *loss, trireme_error *error) {
    int32_t lacks = r->leads && r->directory.metrics.unvalidated;
    TRY(ranks_share(r->control, &lacks, sizeof lacks, error));
    if (!lacks || !validation_is_due(r))
        return TRIREME_OK;
    TRY(run_validate(r, loss, error));
    r->progress.val_loss = *loss;
    count_in_vain(r, *loss);
    if (isnan(*loss) || !r->leads)
        return TRIREME_OK;
    run_tell(r, "val_loss of step %lld, not measured before: %.4f", (long long)r->progress.step, *loss);
    trireme_error why;
    if (run_directory_add_validation(&r->directory, r->progress.step, *loss, &why) != TRIREME_OK)
        run_lose_directory(r, &why);
    run_tell_remark(r);
    return TRIREME_OK;
}

static trireme_status run_write_trace(struct run *r, trireme_error *error) {
    struct text text = {0};
    trireme_status status = step_trace_gather(&r->trace, &r->engine, r->control, &text, error);
    trireme_error why;
    if (status == TRIREME_OK && r->leads &&
        run_directory_trace(&r->directory, r->progress.step, &text, &why) != TRIREME_OK)
        run_tell(r, "the trace of step %lld is not kept: %s", (long long)r->progress.step, why.message);
    text_release(&text);
    return status;
}

// A NaN's sign means nothing, but printf shows it.
static double unsigned_nan(double x) {
    return isnan(x) ? NAN : x;
}

// Which checkpoint is from before the skipped steps with which the run ends.
static void tell_sound(const struct run *r, char out[static 128]) {
    if (r->sound_step < 0)
        snprintf(out, 128, "nothing was saved before them");
    else
        snprintf(out, 128, "the last checkpoint from before them is that of step %lld%s", (long long)r->sound_step,
                 r->saved_step > r->sound_step ? ": remove newer ones to go on from it" : "");
}

static trireme_status run_check_finite(struct run *r, int64_t step, const struct engine_result *result,
                                       trireme_error *error) {
    if (result->finite) {
        r->progress.skipped_in_a_row = 0;
        r->progress.updates++;
        return TRIREME_OK;
    }
    r->progress.skipped++;
    if (r->progress.skipped_in_a_row++ == 0)
        r->sound_step = r->saved_step;
    run_tell(r, "step %lld is skipped: %s is not finite (loss %g, gradient norm %g)", (long long)step,
             isfinite(result->loss) ? "the gradient" : "the loss", unsigned_nan(result->loss),
             unsigned_nan(result->grad_norm));
    if (r->progress.skipped_in_a_row < r->config->training.max_nonfinite_steps)
        return TRIREME_OK;
    char sound[128];
    TRY(saving_settle(r, error));
    tell_sound(r, sound);
    FAIL(TRIREME_ERROR_DIVERGED,
         "loss or gradient was not finite for %s in a row, up to step %lld (loss %g, gradient norm %g): lower "
         "optimizer.lr, or check the data; %s",
         counted(r->progress.skipped_in_a_row, "step").text, (long long)step, unsigned_nan(result->loss),
         unsigned_nan(result->grad_norm), sound);
}

// For an error that all ranks have found: none breaks the world before all have recorded the step.
static void end_together(const struct run *r) {
    trireme_error broken; // ignored: it is already known what this rank ends with
    ranks_meet(r->control, &broken);
}

// If the machine was busy while its peak was timed, the peak is too low. A step that runs at a higher rate, which then
// is the peak, has it timed again.
static trireme_status time_peak_again(struct run *r, trireme_error *error) {
    double now;
    TRY(ranks_meet(r->control, error)); // nobody computes while rank 0 measures
    TRY(engine_peak(&r->engine, r->control, r->config->training.steps - r->progress.step, &now, error));
    TRY(ranks_meet(r->control, error));
    r->peak = MAX(r->peak, now);
    r->peak_is_low = false;
    return TRIREME_OK;
}

// Sets what a step, done at `rate` FLOP/s, says about memory and peak. What other processes hold is known from before
// the step, except in the first one, with which most memory comes.
static trireme_status take_stock(struct run *r, double rate, struct train_step *step, trireme_error *error) {
    if (r->leads && r->peak > 0 && rate > r->peak) {
        r->peak = rate;
        r->peak_is_low = true;
    }
    if (r->is_first) {
        double values[] = {loader_memory(r->loader), r->peak_is_low};
        TRY(ranks_sum(r->control, values, ARRAY_LENGTH(values), error));
        r->agreed.bytes = values[0];
        r->agreed.timings = values[1];
    }
    if (r->agreed.timings > 0 || (!r->control && r->peak_is_low))
        TRY(time_peak_again(r, error));
    step->peak_bytes = (size_t)r->agreed.bytes + (r->leads ? memory_peak() : 0);
    step->peak_flops = r->peak;
    step->mfu = r->peak > 0 ? rate / r->peak : 0;
    return TRIREME_OK;
}

// What this rank has to say to the others.
static struct control run_says(const struct run *r) {
    return (struct control){.stops = r->without_values || r->without_directory,
                            .timings = r->peak_is_low,
                            .copied = saving_is_copied(r),
                            .saved = saving_is_done(r)};
}

// Begins to read the batch of the step after `step`, and to agree whether it is to be done.
static void begin_next(struct run *r, int64_t step, enum loader_with with) {
    const struct control own = run_says(r);
    loader_begin(r->loader, SAMPLER_TRAIN, step < r->config->training.steps ? step : LOADER_NO_BATCH, with, &own);
}

// What all ranks do next, as they have agreed during the step before.
enum next { NEXT_STEP, NEXT_STOP, NEXT_FAIL };

static enum next choose_next(const struct run *r) {
    if (run_is_complete(r) || loader_stops(r->loader, &r->agreed))
        return NEXT_STOP;
    return r->agreed.failures > 0 ? NEXT_FAIL : NEXT_STEP;
}

// Records a step, of which it is known what all ranks did. All ranks call this alike.
static trireme_status record_step(struct run *r, struct logged_step *done, struct train_result *out,
                                  trireme_error *error) {
    struct train_step *s = &done->step;
    const struct engine_result *result = &done->result;
    const bool is_last = s->step == r->progress.step;
    r->targets += result->count;
    s->loss = result->count > 0 ? unsigned_nan(result->loss) : NAN;
    s->targets = (int64_t)result->count;
    s->skipped = !result->finite;
    trireme_status finite = run_check_finite(r, s->step, result, error);
    if (finite == TRIREME_OK && is_last && validation_is_due(r))
        TRY(run_validate(r, &s->val_loss, error));
    r->progress.val_loss = s->val_loss;
    count_in_vain(r, s->val_loss);
    if (is_last)
        spent_take(&r->spent, r->config, r->corpus->has_validation, s);
    trireme_error why;
    if (r->leads && run_directory_add(&r->directory, s, &why) != TRIREME_OK)
        run_lose_directory(r, &why);
    run_tell_remark(r);
    if (r->leads && r->callbacks->stepped)
        r->callbacks->stepped(r->callbacks->user, s);
    if (finite != TRIREME_OK) {
        end_together(r);
        return finite;
    }
    if (!isnan(s->val_loss))
        TRY(sampling_run_all(r, error));
    out->step = s->step;
    out->loss = s->loss;
    out->val_loss = s->val_loss;
    return TRIREME_OK;
}

// Records the steps that may be; of the one just done, which comes last, at least the time that it took.
static trireme_status record_steps(struct run *r, const struct train_step *last, struct train_result *out,
                                   trireme_error *error) {
    struct step_log *l = &r->log;
    l->steps.item[l->steps.count - 1].step = *last;
    for (size_t i = 0; i < l->known; i++)
        TRY(record_step(r, &l->steps.item[i], out, error));
    step_log_forget(l);
    if (l->steps.count)
        spent_take(&r->spent, r->config, r->corpus->has_validation, &l->steps.item[l->steps.count - 1].step);
    return TRIREME_OK;
}

// Whether all ranks do something together after the step just done, or before the next one.
static bool is_together(const struct run *r) {
    const int64_t step = r->progress.step, traced = r->config->profiling.trace_step;
    return r->is_first || run_is_complete(r) || validation_is_due(r) || saving_is_due(r) ||
           (traced && (step == traced || step + 1 == traced));
}

static trireme_status one_step(struct run *r, struct train_result *out, trireme_error *error) {
    const struct config *config = r->config;
    int64_t step = r->progress.step + 1, steps = config->training.steps, began = clock_now();
    struct sampler_counts counts;
    rank_record_set(r->record, RANK_STEPPING);
    if (r->callbacks->rank_step)
        r->callbacks->rank_step(r->callbacks->user, r->engine.member.rank, step);
    bool traced = step == config->profiling.trace_step;
    double lr = learning_rate(config, step);
    if (traced)
        TRY(step_trace_begin(&r->trace, &r->engine, r->control, error));
    loader_take(r->loader, SAMPLER_TRAIN, &counts);
    begin_next(r, step, LOADER_ISLAND);
    struct engine_result result;
    struct control inner;
    TRY(engine_step(&r->engine, lr, traced ? step_trace_events(&r->trace, &r->engine, 0) : NULL, &result, error));
    r->record->step = r->progress.step = step;
    const int64_t computed = clock_now();
    TRY(loader_end(r->loader, &inner, error));
    island_look(r, &result);
    const struct control own = run_says(r);
    TRY(step_log_agree(r, &result, &inner, &own, is_together(r), error));
    spent_add(&r->spent, SPENT_WAITING, computed);
    TRY(island_step(r, error));
    double seconds = 1e-9 * (double)(clock_now() - began) - saving_take_stall(r);
    int64_t tokens = engine_tokens(&r->engine, engine_compiled(&r->engine, PROGRAM_TRAIN));
    r->progress.tokens += tokens;
    spent_add_step(&r->spent, seconds);
    struct train_step s = {.step = step,
                           .steps = steps,
                           .val_loss = NAN,
                           .grad_norm = unsigned_nan(result.grad_norm),
                           .lr = lr,
                           .tokens = r->progress.tokens,
                           .step_tokens = tokens,
                           .mesh = &r->engine.parallel->mesh};
    traffic_take(&r->traffic, &r->engine, s.sent);
    TRY(take_stock(r, engine_flops(&r->engine, engine_compiled(&r->engine, PROGRAM_TRAIN)) / seconds, &s, error));
    TRY(record_steps(r, &s, out, error));
    if (traced)
        TRY(run_write_trace(r, error));
    return saving_step(r, error);
}

// The first step of this process takes as long as threads and memory take to come; those that follow do not.
static trireme_status end_first_step(struct run *r, trireme_error *error) {
    TRY(ranks_meet(r->control, error));
    r->is_first = false;
    saving_set_deadline(r);
    return TRIREME_OK;
}

static trireme_status run_steps(struct run *r, struct train_result *result, enum next *next, trireme_error *error) {
    begin_next(r, r->progress.step, LOADER_ALL);
    TRY(loader_end(r->loader, &r->agreed, error));
    r->log.met = r->progress.step;
    directory_let_go(atomic_exchange(r->start_hold, -1)); // all ranks have read it
    spent_add(&r->spent, SPENT_STARTING, r->spent.since);
    r->is_first = true;
    while ((*next = choose_next(r)) == NEXT_STEP) {
        TRY(one_step(r, result, error));
        if (r->is_first)
            TRY(end_first_step(r, error));
    }
    return TRIREME_OK;
}

// The error with which a run ends in which no rank failed. A run whose last steps changed nothing, or whose model
// predicts nothing, has not done what it was asked to do.
static trireme_status run_judge(const struct run *r, const struct train_result *result, trireme_error *error) {
    if (r->progress.step == 0)
        FAIL(TRIREME_ERROR_INTERRUPTED,
             "stopped before the first step: nothing is saved, the same command starts again");
    if (!run_is_complete(r))
        FAIL(TRIREME_ERROR_INTERRUPTED, "stopped after step %lld of %lld; all is saved, the same command goes on",
             (long long)r->progress.step, (long long)r->config->training.steps);
    if (r->targets == 0 && !r->resumed_from)
        FAIL(TRIREME_ERROR_DIVERGED,
             "no step of %lld met a token to predict, so that nothing was learnt: documents of one token have none",
             (long long)r->progress.step);
    char sound[128];
    tell_sound(r, sound);
    if (r->progress.skipped_in_a_row)
        FAIL(TRIREME_ERROR_DIVERGED,
             "loss or gradient was not finite in the last %lld of %s: lower optimizer.lr, or check the data; "
             "%s holds the weights from before them; %s",
             (long long)r->progress.skipped_in_a_row, counted(result->step, "step").text, result->checkpoint, sound);
    if (isinf(result->val_loss))
        FAIL(TRIREME_ERROR_DIVERGED,
             "the validation loss of the model in %s is not finite: lower optimizer.lr, or check the data",
             result->checkpoint);
    return TRIREME_OK;
}

static trireme_status run_train(struct run *r, struct train_result *result, trireme_error *error) {
    enum next next;
    TRY(catch_up(r, &result->val_loss, error));
    TRY(run_steps(r, result, &next, error));
    if (ends_early(r) && r->progress.step < r->config->training.steps)
        run_tell(r, "ends early, after step %lld of %lld: for %s the loss has not been %g below the best one, %.4f",
                 (long long)r->progress.step, (long long)r->config->training.steps,
                 counted(r->progress.validations_in_vain, "validation").text, r->config->validation.min_delta,
                 r->progress.best_val_loss);
    // A run that ends before its first step has nothing to save.
    if (r->progress.step > 0)
        TRY(saving_finish(r, error));
    if (next == NEXT_FAIL)
        return loader_fail(r->loader, SAMPLER_TRAIN, error);
    if (r->progress.step == 0)
        return TRIREME_OK;
    snprintf(result->checkpoint, sizeof result->checkpoint, CHECKPOINT_PATH, r->config->run.directory,
             (long long)r->progress.step);
    result->step = r->progress.step;
    if (!run_is_complete(r) || !r->corpus->has_validation || !isnan(result->val_loss))
        return TRIREME_OK;
    TRY(run_validate(r, &result->val_loss, error));
    if (isnan(result->val_loss))
        run_tell(r, "asked to stop before val_loss of step %lld was measured: the same command does that",
                 (long long)r->progress.step);
    return TRIREME_OK;
}

// ---- ranks

// What a run has asked to be removed is removed when it ends; one that fails, or was asked to stop, does not wait for
// checkpoints to be read.
static void run_end_pruning(struct run *r, trireme_status status) {
    if (!r->pruner)
        return;
    pruner_end(r->pruner, status != TRIREME_OK || (r->callbacks->stop && *r->callbacks->stop));
    run_tell_remark(r);
    pruner_free(r->pruner);
}

// Fails only with errors that keep the other ranks from ending; others go to job->verdict. The first failure of a rank
// breaks the world, and rank 0 may still be at work when the others are done.
static trireme_status run_rank(void *user, const struct member *member, trireme_error *error) {
    struct job *job = user;
    struct run *r = mem_alloc(sizeof *r);
    *r = (struct run){.config = &job->config,
                      .callbacks = &job->callbacks,
                      .corpus = &job->corpus,
                      .data = job->data.text,
                      .start = job->start,
                      .start_hold = &job->start_hold,
                      .spent = {.since = job->began},
                      .leads = !member || member->rank == 0,
                      .directory = {.lock = -1},
                      .saving = {.lines = {.file = -1}},
                      .progress = {.val_loss = NAN, .best_val_loss = NAN},
                      .ranks_lock = -1};
    r->record = &r->own;
    struct train_result done = {.loss = NAN, .val_loss = NAN};
    trireme_status status = ranks_control(&r->control, member, job->ranks, error);
    if (status == TRIREME_OK)
        status = run_start(r, &job->model, &job->plan, &job->tuning, member, error);
    if (status == TRIREME_OK)
        status = run_train(r, &done, error);
    if (status == TRIREME_ERROR_LOST && member)
        error_prefix(error, status, "rank %d, last step done %lld", member->rank, (long long)r->progress.step);
    trireme_error verdict = {0};
    if (status == TRIREME_OK)
        run_judge(r, &done, &verdict);
    if (status != TRIREME_OK || verdict.status == TRIREME_ERROR_DIVERGED)
        rank_record_fail(r->record, status == TRIREME_OK ? verdict.message : error->message);
    else
        rank_record_set(r->record, RANK_ENDED);
    if (r->leads || world_place(member->world)) {
        job->result = done;
        job->verdict = verdict;
    }
    if (saving_hangs(r)) { // on a disk: its thread, if it ever goes on, finds all in its place
        job->hangs = true;
        if (member)
            world_leave(member->world);
        return status;
    }
    saving_release(r);
    run_end_pruning(r, status);
    data_learner_end(r->learner);
    loader_free(r->loader);
    island_end(r);
    traffic_release(&r->traffic);
    engine_release(&r->engine);
    if (r->inner != r->control)
        communicator_free(r->inner);
    communicator_free(r->control);
    step_log_release(&r->log);
    if (r->ranks.map)
        run_tell_mapped(r, 0);
    rank_file_close(&r->ranks);
    if (r->ranks_lock >= 0)
        close(r->ranks_lock);
    run_directory_close(&r->directory);
    state_progress_release(&r->progress);
    text_release(&r->data_words);
    free(r->resumed_from);
    tokenizer_files_release(&r->tokenizer);
    step_trace_release(&r->trace);
    free(r);
    return status;
}

static trireme_status run_identify(void *user, struct text *out, trireme_error *error) {
    const struct job *job = user;
    text_add(out, "%s: %s\n", corpus_key(&job->config), job->data.text);
    if (job->corpus.validation_set) {
        text_add(out, "data.validation_path: ");
        TRY(corpus_identify(job->corpus.validation_set, NULL, out, error));
        text_add(out, "\n");
    }
    const char *given = job->config.model.init_from;
    if (*given && !job->start) {
        text_add(out, "model.init_from: %s, but the run has weights of its own\n", given);
    } else if (*given) {
        char hex[CHECKSUM_HEX];
        model_files_identify(job->start, hex);
        text_add(out, "model.init_from: %s, a hash of its weights %.16s\n", job->start, *hex ? hex : "none");
    }
    model_config_write(&job->model, "float32", out);
    if (!job->plan.schedule)
        return TRIREME_OK;
    struct text schedule = {0};
    schedule_print(job->plan.schedule, &schedule);
    text_add(out, "\npipeline schedule: a hash of it %016llx\n", (unsigned long long)rng_stream(schedule.text));
    text_release(&schedule);
    return TRIREME_OK;
}

static void job_free(struct job *job) {
    directory_let_go(job->start_hold);
    tuning_release(&job->tuning);
    text_release(&job->data);
    free(job->start);
    corpus_close(&job->corpus);
    parallel_release(&job->plan);
    config_release(&job->config);
    free(job);
}

// Checks that paths of checkpoints fit into struct train_result.
static trireme_status check_directory(const struct config *config, trireme_error *error) {
    const char *directory = config->run.directory;
    if (!*directory)
        return config_refuse(config, "run.directory", error, "expected a path");
    size_t room = sizeof((struct train_result *)NULL)->checkpoint - 1;
    int bytes = snprintf(NULL, 0, CHECKPOINT_PATH, directory, (long long)config->training.steps);
    if ((size_t)bytes > room)
        return config_refuse(config, "run.directory", error,
                             "which is too long by %zu: a checkpoint's path has at most %zu bytes (a relative one may "
                             "be shorter)",
                             (size_t)bytes - room, room);
    return TRIREME_OK;
}

// Checks a directory that is needed later, before anything is computed: whether files can be made there.
static trireme_status check_writable(const struct config *config, const char *key, const char *path,
                                     trireme_error *error) {
    struct stat info;
    const bool there = stat(path, &info) == 0;
    if (there && !S_ISDIR(info.st_mode))
        errno = ENOTDIR;
    if (!there || !S_ISDIR(info.st_mode) || access(path, W_OK | X_OK) != 0)
        return config_refuse(config, key, error, "where no file can be made: %s", strerror(errno));
    return TRIREME_OK;
}

static bool is_same_directory(const char *a, const char *b) {
    struct stat first, second;
    return stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

static trireme_status check_directories(const struct config *config, trireme_error *error) {
    const char *offload = config->optimizer.offload_directory, *emergency = config->checkpoint.emergency_directory;
    TRY(check_directory(config, error));
    const bool offloads =
        config->optimizer.offload != CONFIG_OFFLOAD_NONE || config->outer.offload != CONFIG_OFFLOAD_NONE;
    if (offloads && *offload)
        TRY(check_writable(config, "optimizer.offload_directory", offload, error));
    if (!*emergency)
        return TRIREME_OK;
    if (is_same_directory(emergency, config->run.directory))
        return config_refuse(config, "checkpoint.emergency_directory", error, "which is run.directory");
    return check_writable(config, "checkpoint.emergency_directory", emergency, error);
}

// Refuses that a vocabulary grows, unless its own tokenizer is known to be the beginning of that of the tokens.
static trireme_status check_growth(const struct job *job, trireme_error *error) {
    struct model_config theirs;
    if (!job->start || !*job->start || config_is_set(&job->config, "model.vocab_size"))
        return TRIREME_OK;
    TRY(model_config_read(&theirs, job->start, error));
    const int64_t tokens = corpus_vocab_size(&job->corpus);
    if (tokens <= theirs.vocab_size || tokenizer_continues(job->corpus.tokenizer, job->start))
        return TRIREME_OK;
    return config_refuse(&job->config, "model.init_from", error,
                         "but the tokens are numbered up to %lld, the model there knows %lld, and there is no "
                         "tokenizer: if these are the first of the tokens, set model.vocab_size=%lld",
                         (long long)tokens - 1, (long long)theirs.vocab_size, (long long)tokens);
}

// Prepares what ranks share: so errors in data, model or mesh are found before any rank starts.
static trireme_status run_prepare(void *user, trireme_error *error) {
    struct job *job = user;
    struct config *config = &job->config;
    int hold;
    TRY(step_trace_check(config, error));
    TRY(check_directories(config, error));
    TRY(corpus_open(&job->corpus, config, error));
    TRY(checkpoint_run_model(&job->model, config, corpus_vocab_size(&job->corpus), &job->start, &hold, error));
    corpus_name_ends(&job->corpus, job->start && !*job->start, &job->model);
    job->start_hold = hold;
    if (job->start)
        TRY(corpus_check_model(&job->corpus, config, job->start, true, error));
    TRY(check_growth(job, error));
    if (*config->validation.prompts && !job->corpus.tokenizer)
        return config_refuse(config, "validation.prompts", error,
                             "but the token files do not say which tokenizer has made them: `trireme prepare` does");
    TRY(corpus_sample(&job->corpus, config, job->model.vocab_size, false, error));
    if (config->validation.patience && (!job->corpus.has_validation || !config->validation.freq))
        return config_refuse(
            config, "validation.patience", error,
            "but nothing is validated before the last step: validation.freq says how often, data.split "
            "or data.validation_path on what");
    TRY(same_run_data(&job->corpus, NULL, &job->data, error));
    TRY(parallel_resolve(&job->plan, config, &job->model, error));
    job->ranks = mesh_ranks(&job->plan.mesh);
    return TRIREME_OK;
}

static trireme_status run_job(struct job *job, const struct launcher *launcher, bool *stuck, trireme_error *error) {
    const struct processes_work work = {job, run_prepare, run_identify, run_rank};
    return processes_or_threads_run(launcher, launcher_means_processes(launcher, &job->config), &job->config, &work,
                                    &job->plan.mesh, stuck, error);
}

trireme_status train_run(const struct config *config, const struct train_callbacks *callbacks,
                         struct train_result *result, trireme_error *error) {
    struct job *job = mem_alloc(sizeof *job);
    config_copy(&job->config, config);
    tuning_create(&job->tuning);
    job->tuning.choices.stop = callbacks->stop;
    job->callbacks = *callbacks;
    job->start_hold = -1;
    job->began = clock_now();
    bool stuck = false;
    struct launcher launcher = launcher_find();
    trireme_status status = run_job(job, &launcher, &stuck, error);
    if (status == TRIREME_OK) {
        *result = job->result;
        status = job->verdict.status;
        if (status != TRIREME_OK)
            error_set(error, status, "%s", launcher.rank == 0 ? job->verdict.message : "");
    }
    if (!stuck && !job->hangs)
        job_free(job);
    return status;
}
