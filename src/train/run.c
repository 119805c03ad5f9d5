#include "train/train.h"

#include "base/clock.h"
#include "exec/trace.h"
#include "kernels/cpu/peak.h"
#include "train/checkpoint.h"
#include "train/corpus.h"
#include "train/run_directory.h"

#include <math.h>
#include <sys/resource.h>

struct run {
    const struct config *config;
    const struct train_callbacks *callbacks;
    struct run_directory directory;
    struct corpus corpus;
    struct engine engine;
    struct state_progress progress;
    char *resumed_from; // NULL: a fresh start
    int64_t saved_step; // of the newest checkpoint, -1 when there is none
    double peak;        // FLOP/s, 0 where unknown
    struct trace trace;
    double seconds_per_step; // smoothed
};

static void tell(const struct run *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void tell(const struct run *r, const char *format, ...) {
    if (!r->callbacks->message)
        return;
    va_list args;
    va_start(args, format);
    char *text = mem_vprintf(format, args);
    va_end(args);
    r->callbacks->message(r->callbacks->user, text);
    free(text);
}

static const char *kernels_name(const struct run *r) {
    return r->engine.kernels == KERNELS_REFERENCE ? "reference" : "fast";
}

static size_t peak_resident(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (size_t)usage.ru_maxrss * 1024;
}

// ---- start

// What must not change under a run: it would no longer be the run that it goes on with.
static trireme_status check_same_run(struct run *r, trireme_error *error) {
    struct config saved;
    const char *yaml = r->progress.config;
    trireme_error why;
    if (config_load_text(&saved, "the checkpoint's configuration", yaml, strlen(yaml), NULL, 0, &why) != TRIREME_OK)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: %s", r->resumed_from, why.message);
    const struct config *now = r->config;
    const struct {
        const char *key;
        int64_t then, now;
    } SAME[] = {{"training.seed", saved.training.seed, now->training.seed},
                {"training.seq_len", saved.training.seq_len, now->training.seq_len},
                {"training.global_batch_size", saved.training.global_batch_size, now->training.global_batch_size},
                {"training.dtype", saved.training.dtype, now->training.dtype},
                {"training.kernels", saved.training.kernels, now->training.kernels},
                {"optimizer.name", saved.optimizer.name, now->optimizer.name}};
    trireme_status status = TRIREME_OK;
    for (size_t i = 0; i < ARRAY_LENGTH(SAME) && status == TRIREME_OK; i++)
        if (SAME[i].then != SAME[i].now)
            status =
                config_refuse(now, SAME[i].key, error,
                              "but the run in %s was started with another: set it back, or name another run.directory",
                              now->run.directory);
    config_release(&saved);
    return status;
}

static trireme_status find_checkpoint(struct run *r, trireme_error *error) {
    char *parent = mem_printf("%s/checkpoint", r->config->run.directory);
    struct directory_search search;
    trireme_status status = directory_newest(parent, "step-", DIRECTORY_CONTENT, &search, error);
    free(parent);
    TRY(status);
    for (size_t i = 0; i < search.skipped.count; i++)
        tell(r, "checkpoint %s is passed over: %s", search.skipped.item[i].path, search.skipped.item[i].reason);
    r->saved_step = -1;
    if (search.path) {
        r->resumed_from = mem_strdup(search.path);
        r->saved_step = search.number;
    } else if (search.skipped.count) {
        status = error_set(error, TRIREME_ERROR_CORRUPT,
                           "no checkpoint in %s is complete (%s): repair or remove them to start afresh",
                           r->config->run.directory, search.skipped.item[0].reason);
    }
    directory_search_release(&search);
    return status;
}

static trireme_status load_values(struct run *r, trireme_error *error) {
    if (r->resumed_from) {
        TRY(state_files_progress(r->resumed_from, &r->progress, error));
        TRY(check_same_run(r, error));
        TRY(checkpoint_load(&r->engine, r->resumed_from, &r->progress, error));
        if (r->progress.step > r->config->training.steps)
            return config_refuse(r->config, "training.steps", error, "but the run in %s has done %lld",
                                 r->config->run.directory, (long long)r->progress.step);
        return TRIREME_OK;
    }
    engine_initialise(&r->engine, (uint64_t)r->config->training.seed);
    if (*r->config->model.init_from)
        TRY(checkpoint_load_model(&r->engine, r->config->model.init_from, false, error));
    return TRIREME_OK;
}

static trireme_status start(struct run *r, trireme_error *error) {
    TRY(corpus_open(&r->corpus, r->config, error));
    struct model_config model;
    TRY(model_config_resolve(&model, r->config, corpus_vocab_size(&r->corpus), error));
    TRY(corpus_sample(&r->corpus, r->config, model.vocab_size, false, error));
    // Everything that can be refused without touching the run directory has been, once the program stands.
    TRY(engine_create(&r->engine, r->config, &model, ENGINE_TRAIN, NULL, error));
    TRY(run_directory_open(&r->directory, r->config->run.directory, error));
    TRY(find_checkpoint(r, error));
    TRY(load_values(r, error));
    TRY(run_directory_begin(&r->directory, r->config, r->progress.step, error));
    // What the state's text fields say from now on is this run's.
    struct text yaml = {0};
    config_print(&yaml, r->config);
    state_progress_release(&(struct state_progress){.config = r->progress.config, .kernels = r->progress.kernels});
    r->progress.config = yaml.text;
    r->progress.kernels = mem_strdup(kernels_name(r));
    if (r->config->profiling.trace_step)
        executor_trace_reserve(r->engine.train_executor, &r->trace);
    if (r->engine.kernels == KERNELS_FAST)
        r->peak = peak_flops(r->engine.dtype, r->engine.threads);
    if (r->callbacks->started) {
        const struct program *p = &r->engine.train.program;
        double tokens = (double)(r->config->training.steps * r->config->training.global_batch_size) *
                        (double)r->config->training.seq_len;
        int64_t corpus = r->corpus.train.range[SAMPLER_TRAIN].end - r->corpus.train.range[SAMPLER_TRAIN].begin;
        struct train_start begin = {.parameters = r->engine.table.total,
                                    .first_step = r->progress.step + 1,
                                    .steps = r->config->training.steps,
                                    .resumed_from = r->resumed_from,
                                    .epochs = tokens / (double)corpus,
                                    .threads = r->engine.threads,
                                    .predicted_bytes = (size_t)(p->state_bytes + p->step_bytes),
                                    .peak_flops = r->peak};
        r->callbacks->started(r->callbacks->user, &begin);
    }
    return TRIREME_OK;
}

// ---- steps

static trireme_status save(struct run *r, trireme_error *error) {
    if (r->saved_step == r->progress.step)
        return TRIREME_OK;
    TRY(checkpoint_save(&r->engine, NULL, r->corpus.tokenizer, r->config->run.directory, &r->progress,
                        (size_t)r->config->checkpoint.keep_latest_k, error));
    r->saved_step = r->progress.step;
    tell(r, "saved %s/checkpoint/step-%lld", r->config->run.directory, (long long)r->progress.step);
    return TRIREME_OK;
}

// A loss that is not finite is given as infinite: NaN says that it was not measured.
static trireme_status validate(struct run *r, double *loss, trireme_error *error) {
    struct corpus_loss result;
    TRY(corpus_validate(&r->corpus, &r->engine, r->config->validation.steps, &result, NULL, NULL, NULL, error));
    *loss = isfinite(result.loss) ? result.loss : INFINITY;
    return TRIREME_OK;
}

static bool due(int64_t step, int64_t every, int64_t last) {
    return every > 0 && (step % every == 0 || step == last);
}

static trireme_status write_trace(struct run *r, trireme_error *error) {
    struct text text = {0};
    trace_print(&r->engine.train.program, r->engine.ops, &r->trace, &text);
    trireme_status status = run_directory_trace(&r->directory, r->progress.step, &text, error);
    text_release(&text);
    return status;
}

// A NaN's sign means nothing, but printf shows it.
static double unsigned_nan(double x) {
    return isnan(x) ? NAN : x;
}

static trireme_status check_finite(struct run *r, const struct engine_result *result, trireme_error *error) {
    if (result->finite) {
        r->progress.skipped_in_a_row = 0;
        r->progress.updates++;
        return TRIREME_OK;
    }
    r->progress.skipped++;
    r->progress.skipped_in_a_row++;
    tell(r, "step %lld is skipped: %s is not finite (loss %g, gradient norm %g)", (long long)r->progress.step,
         isfinite(result->loss) ? "the gradient" : "the loss", unsigned_nan(result->loss),
         unsigned_nan(result->grad_norm));
    if (r->progress.skipped_in_a_row < r->config->training.max_nonfinite_steps)
        return TRIREME_OK;
    char last[64] = "nothing was saved yet";
    if (r->saved_step >= 0)
        snprintf(last, sizeof last, "the last checkpoint is that of step %lld", (long long)r->saved_step);
    FAIL(TRIREME_ERROR_DIVERGED,
         "loss or gradient was not finite for %lld steps in a row, up to step %lld (loss %g, gradient norm %g): lower "
         "optimizer.lr, or check the data; %s",
         (long long)r->progress.skipped_in_a_row, (long long)r->progress.step, unsigned_nan(result->loss),
         unsigned_nan(result->grad_norm), last);
}

static trireme_status one_step(struct run *r, struct train_result *out, trireme_error *error) {
    const struct config *config = r->config;
    int64_t step = r->progress.step + 1, steps = config->training.steps, begin = clock_now();
    bool traced = step == config->profiling.trace_step;
    TRY(corpus_fill_train(&r->corpus, &r->engine, step - 1, error));
    double lr = learning_rate(config, step);
    r->trace.events.count = 0;
    struct engine_result result;
    TRY(engine_step(&r->engine, lr, traced ? &r->trace : NULL, &result, error));
    double seconds = 1e-9 * (double)(clock_now() - begin);
    int64_t tokens = config->training.global_batch_size * config->training.seq_len;
    r->progress.step = step;
    r->progress.tokens += tokens;
    r->seconds_per_step = r->seconds_per_step == 0 ? seconds : 0.9 * r->seconds_per_step + 0.1 * seconds;
    struct train_step s = {.step = step,
                           .steps = steps,
                           .loss = unsigned_nan(result.loss),
                           .val_loss = NAN,
                           .grad_norm = unsigned_nan(result.grad_norm),
                           .lr = lr,
                           .tokens = r->progress.tokens,
                           .tokens_per_second = (double)tokens / seconds,
                           .skipped = !result.finite,
                           .seconds_left = r->seconds_per_step * (double)(steps - step)};
    if (r->peak > 0)
        s.mfu = model_flops(&r->engine.model, tokens, config->training.seq_len) / (seconds * r->peak);
    trireme_status finite = check_finite(r, &result, error);
    if (finite == TRIREME_OK && r->corpus.has_validation && due(step, config->validation.freq, steps))
        TRY(validate(r, &s.val_loss, error));
    s.peak_bytes = peak_resident();
    TRY(run_directory_add(&r->directory, &s, error));
    if (r->callbacks->stepped)
        r->callbacks->stepped(r->callbacks->user, &s);
    TRY(finite);
    if (traced)
        TRY(write_trace(r, error));
    out->step = step;
    out->loss = s.loss;
    out->val_loss = isnan(s.val_loss) ? out->val_loss : s.val_loss;
    if (due(step, config->checkpoint.interval, steps))
        TRY(save(r, error));
    return TRIREME_OK;
}

static bool stop_asked(const struct run *r) {
    return r->callbacks->stop && *r->callbacks->stop;
}

// A run whose last steps changed nothing, or whose model predicts nothing, has not done what it was asked for.
static trireme_status check_end(const struct run *r, const struct train_result *result, trireme_error *error) {
    if (r->progress.skipped_in_a_row)
        FAIL(TRIREME_ERROR_DIVERGED,
             "loss or gradient was not finite in the last %lld of %lld steps: lower optimizer.lr, or check the data; "
             "%s holds the weights from before them",
             (long long)r->progress.skipped_in_a_row, (long long)result->step, result->checkpoint);
    if (isinf(result->val_loss))
        FAIL(TRIREME_ERROR_DIVERGED,
             "the validation loss of the model in %s is not finite: lower optimizer.lr, or check the data",
             result->checkpoint);
    return TRIREME_OK;
}

static trireme_status train(struct run *r, struct train_result *result, trireme_error *error) {
    TRY(start(r, error));
    while (r->progress.step < r->config->training.steps && !stop_asked(r))
        TRY(one_step(r, result, error));
    TRY(save(r, error));
    snprintf(result->checkpoint, sizeof result->checkpoint, "%s/checkpoint/step-%lld", r->config->run.directory,
             (long long)r->progress.step);
    result->step = r->progress.step;
    if (r->progress.step < r->config->training.steps)
        FAIL(TRIREME_ERROR_INTERRUPTED, "stopped after step %lld of %lld; all is saved, the same command goes on",
             (long long)r->progress.step, (long long)r->config->training.steps);
    if (r->corpus.has_validation && isnan(result->val_loss))
        TRY(validate(r, &result->val_loss, error));
    return check_end(r, result, error);
}

trireme_status train_run(const struct config *config, const struct train_callbacks *callbacks,
                         struct train_result *result, trireme_error *error) {
    struct run r = {.config = config, .callbacks = callbacks, .directory = {.lock = -1}};
    struct train_result done = {.loss = NAN, .val_loss = NAN};
    trireme_status status = train(&r, &done, error);
    if (status == TRIREME_OK || status == TRIREME_ERROR_INTERRUPTED)
        *result = done;
    engine_release(&r.engine);
    corpus_close(&r.corpus);
    run_directory_close(&r.directory);
    state_progress_release(&r.progress);
    free(r.resumed_from);
    VEC_RELEASE(&r.trace.events);
    return status;
}
