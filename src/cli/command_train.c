// trireme train CONFIG.yaml: a run, and what is shown of it as it goes.
#include "run/train.h"

#include "base/json.h"
#include "cli/console.h"
#include "cli/keys.h"
#include "generate/samples.h"
#include "launch/processes.h"
#include "optim/optimizer.h"

#include <math.h>
#include <unistd.h>

struct view {
    const struct config *config;
    const char *path; // the configuration's file, or NULL
    bool json;
    size_t predicted, resident; // bytes, of all ranks; the second the most so far
    struct train_step last;
    double peak; // FLOP/s, as last shown
    bool untold; // `last` was only shown on the live line, which does not stay
    // Since the last line that stays.
    int64_t tokens;
    double seconds;
};

static void show_message(void *user, const char *text) {
    (void)user;
    struct text line = {0};
    text_add_line(&line, text);
    progress_clear();
    console_tell(CONSOLE_ERRORS, CONSOLE_LINE, "%s\n", line.text);
    text_release(&line);
}

// A run that was moved or copied has a config.yaml that names another directory.
static void tell_of_other_run(const char *path, const struct config *config) {
    const char *name = strrchr(path, '/');
    char *directory = name ? mem_printf("%.*s", (int)(name - path), path) : mem_strdup(".");
    char *metrics = mem_printf("%s/metrics.jsonl", directory), *text = NULL;
    bool is_run = strcmp(name ? name + 1 : path, "config.yaml") == 0 && access(metrics, F_OK) == 0;
    if (is_run && !same_file(directory, config->run.directory)) {
        text = mem_printf(
            "%s is in the directory of a run but names another: this run is in %s (--run.directory=%s resumes "
            "that one)",
            path, config->run.directory, directory);
        show_message(NULL, text);
    }
    free(text);
    free(metrics);
    free(directory);
}

static void tell_of_long_warm_up(const struct config *config) {
    long long warm_up = config->lr_scheduler.warmup_steps, steps = config->training.steps;
    if (warm_up <= steps)
        return;
    char *text = mem_printf("the run ends within its warm-up: lr_scheduler.warmup_steps is %lld, training.steps %lld, "
                            "so that the learning rate stays below optimizer.lr",
                            warm_up, steps);
    show_message(NULL, text);
    free(text);
}

static void tell_of_keys_without_effect(const struct config *config) {
    struct text keys = {0};
    config_without_effect(config, &keys);
    if (keys.length) {
        char *text = mem_printf("without effect: %s", keys.text);
        show_message(NULL, text);
        free(text);
    }
    text_release(&keys);
}

static void show_start(void *user, const struct train_start *s) {
    struct view *view = user;
    view->predicted = s->predicted_bytes;
    view->peak = s->peak_flops;
    if (view->path)
        tell_of_other_run(view->path, view->config);
    tell_of_long_warm_up(view->config);
    tell_of_keys_without_effect(view->config);
    if (view->json)
        return;
    struct text out = {0};
    text_add(&out, "%.2fM parameters, ", 1e-6 * (double)s->parameters);
    if (s->trained < s->parameters)
        text_add(&out, "%.3gM of them trained, ", 1e-6 * (double)s->trained);
    if (s->ranks > 1)
        text_add(&out, "%d ranks (%s) on %s of %s, ", s->ranks, s->mesh, counted(s->cores, "core").text,
                 counted(s->nodes, "node").text);
    text_add(&out, "%s", counted(s->threads, "thread").text);
    if (s->ranks > 1)
        text_add(&out, " each");
    else
        text_add(&out, " on %s", counted(s->cores, "core").text);
    if (s->microbatches > 1)
        text_add(&out, ", %d microbatches of %lld", s->microbatches, (long long)s->micro_batch_size);
    text_add(&out, ", %s predicted, %.2f epochs", amount((int64_t)s->predicted_bytes).text, s->epochs);
    if (view->config->lr_scheduler.base_batch_size)
        text_add(&out, ", learning rate %.4g: optimizer.lr %.4g for a batch of %lld scaled to %lld",
                 learning_rate_peak(view->config), view->config->optimizer.lr,
                 (long long)view->config->lr_scheduler.base_batch_size,
                 (long long)view->config->training.global_batch_size);
    if (s->peak_flops > 0)
        text_add(&out, ", peak %.0f GFLOP/s", 1e-9 * s->peak_flops);
    text_add(&out, "\n");
    if (s->cut_documents)
        text_add(&out, "cut into several sequences, since longer than training.seq_len: %s\n",
                 counted(s->cut_documents, "document").text);
    if (s->resumed_from) {
        text_add(&out, "going on from ");
        text_add_line(&out, s->resumed_from);
        text_add(&out, "\n");
    }
    if (s->first_step > s->steps)
        text_add(&out, "all %lld step%s done: to go on, raise training.steps\n", (long long)s->steps,
                 s->steps == 1 ? " is" : "s are");
    console_add(CONSOLE_OUTPUT, CONSOLE_RESULT, out.text, out.length);
    text_release(&out);
}

// The loss in words, written to `out` and returned.
static const char *loss_text(const struct train_step *s, char out[32]) {
    if (s->targets > 0)
        snprintf(out, 32, "%.4f", s->loss);
    else
        snprintf(out, 32, "no targets");
    return out;
}

// A narrow terminal cuts the line, so the most important figures come first.
static void show_live(const struct train_step *s) {
    char left[32], loss[32];
    duration_text(s->seconds_left, left);
    progress_line("step: %lld/%lld  loss: %s  tps: %.0f  mfu: %.1f%%  left: %s  grad_norm: %.4f  lr: %.2e  "
                  "memory: %.2fGB",
                  (long long)s->step, (long long)s->steps, loss_text(s, loss), s->tokens_per_second, 100 * s->mfu, left,
                  s->grad_norm, s->lr, 1e-9 * (double)s->peak_bytes);
}

static void train_print_step(struct view *view, const struct train_step *s, enum console_kind kind) {
    char left[32], loss[32];
    struct text out = {0};
    duration_text(s->seconds_left, left);
    progress_clear();
    text_add(&out,
             "step: %lld/%lld  loss: %s  grad_norm: %.4f  lr: %.2e  memory: %.2fGB  tps: %.0f  mfu: %.1f%%  left: %s",
             (long long)s->step, (long long)s->steps, loss_text(s, loss), s->grad_norm, s->lr,
             1e-9 * (double)s->peak_bytes, (double)view->tokens / MAX(view->seconds, 1e-9), 100 * s->mfu, left);
    if (!isnan(s->val_loss))
        text_add(&out, "  val_loss: %.4f", s->val_loss);
    text_add(&out, "\n");
    console_add(CONSOLE_OUTPUT, kind, out.text, out.length);
    text_release(&out);
    view->untold = false;
    view->tokens = 0;
    view->seconds = 0;
}

static void show_peak(struct view *view, double peak) {
    if (peak == view->peak || view->json)
        return;
    progress_clear();
    console_tell(CONSOLE_OUTPUT, CONSOLE_LINE,
                 "the peak is %.0f GFLOP/s, not %.0f as timed before, when the machine was busy: MFU is relative to "
                 "that from now on\n",
                 1e-9 * peak, 1e-9 * view->peak);
    view->peak = peak;
}

static void show_step(void *user, const struct train_step *s) {
    struct view *view = user;
    bool live = progress_is_live(), ends = s->step == s->steps;
    view->resident = s->peak_bytes;
    view->last = *s;
    view->tokens += s->step_tokens;
    view->seconds += s->seconds;
    view->untold = !view->json;
    show_peak(view, s->peak_flops);
    bool logged = !live && s->step % view->config->metrics.log_freq == 0;
    if (!view->json && (logged || ends || !isnan(s->val_loss)))
        train_print_step(view, s, CONSOLE_LINE);
    if (live && !ends)
        show_live(s);
}

// The checkpoint of a run that was stopped before its first step is the empty text.
static trireme_status train_report(const struct view *view, const struct train_result *r, bool stopped,
                                   trireme_error *error) {
    struct text out = {0};
    if (view->json) {
        json_begin_object(&out, NULL);
        json_add_integer(&out, "step", r->step);
        json_add_number(&out, "loss", r->loss);
        json_add_number(&out, "val_loss", r->val_loss);
        json_add_path(&out, "checkpoint", r->checkpoint);
        json_add_boolean(&out, "stopped", stopped);
        json_add_integer(&out, "predicted_bytes", (int64_t)view->predicted);
        json_add_integer(&out, "resident_bytes", (int64_t)view->resident);
        json_end_object(&out);
        text_add(&out, "\n");
    } else {
        text_add(&out, "the model is in ");
        text_add_line(&out, r->checkpoint);
        text_add(&out, "\n");
        if (!isnan(r->val_loss))
            text_add(&out, "validation loss %.4f\n", r->val_loss);
    }
    trireme_status status = print_text(&out, error);
    text_release(&out);
    return status;
}

// Where neither a file nor a model is named, the run in run.directory is meant: its own configuration is read. *of_run
// becomes that file's path, which the caller frees, or NULL.
static trireme_status train_config(const struct arguments *a, const char *path, struct config *out, char **of_run,
                                   trireme_error *error) {
    *of_run = NULL;
    TRY(arguments_config(a, path, out, error));
    if (path || config_sets_any(out, "model.*"))
        return TRIREME_OK;
    char *own = mem_printf("%s/config.yaml", out->run.directory);
    if (access(own, F_OK) != 0) {
        free(own);
        return TRIREME_OK;
    }
    char *directory = mem_strdup(out->run.directory);
    config_release(out);
    trireme_status status = arguments_config(a, own, out, error);
    if (status == TRIREME_OK)
        status = config_set(out, "run.directory", directory, own, error); // a run that was moved names another
    if (status == TRIREME_OK)
        *of_run = own;
    else
        free(own);
    free(directory);
    return status;
}

trireme_status command_train(const struct arguments *a, trireme_error *error) {
    TRY(arguments_expect(a, 0, 1, error));
    const char *path = a->operands.count ? a->operands.item[0] : NULL;
    struct config config;
    char *of_run;
    TRY(train_config(a, path, &config, &of_run, error));
    path = path ?: of_run;
    trireme_status status = console_begin(error); // a run never waits for whoever reads
    bool tells = launcher_find().rank == 0;
    struct view view = {.config = &config, .path = path, .json = a->json};
    struct train_callbacks callbacks = {.user = &view,
                                        .started = show_start,
                                        .stepped = show_step,
                                        .message = show_message,
                                        .mapped = guard_mapped,
                                        .stop = stop_on_signals(),
                                        .sample = samples_make};
    struct train_result result;
    if (status == TRIREME_OK)
        status = samples_check(&config, error);
    if (status == TRIREME_OK)
        status = train_run(&config, &callbacks, &result, error);
    progress_clear();
    if (view.untold)
        train_print_step(&view, &view.last, CONSOLE_RESULT);
    if (status == TRIREME_OK && tells)
        status = train_report(&view, &result, false, error);
    // Saved is saved, whether or not somebody still listens.
    trireme_error unheard;
    if (status == TRIREME_ERROR_INTERRUPTED && tells && view.json)
        train_report(&view, &result, true, &unheard);
    config_release(&config);
    free(of_run);
    return status;
}
