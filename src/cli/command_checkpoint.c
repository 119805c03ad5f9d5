// trireme checkpoint list|verify|prune|diff: looks after checkpoints.
#include "cli/command_checkpoint.h"
#include "base/json.h"
#include "base/parallel_for.h"
#include "ckpt/damage.h"
#include "run/checkpoint.h"
#include "run/checkpoint_facts.h"
#include "run/run_directory.h"

#include <errno.h>
#include <sys/stat.h>

static const struct {
    enum retention_reason reason;
    const char *word, *text; // in JSON, for people
} REASONS[] = {
    {RETENTION_ALL, "all", "all are kept"},
    {RETENTION_LATEST, "latest", "latest"},
    {RETENTION_EVERY, "every", "every"}, // with the number
    {RETENTION_BEST, "best", "best"},
    {RETENTION_NEWER, "newer", "newer than those that count"},
    {RETENTION_UNREADABLE, "unreadable", "cannot be read now"},
    {RETENTION_FOREIGN, "other_files", "other files are in it, or its list of them is damaged"},
    {RETENTION_HELD, "in_use", "in use by another process"},
};

void checkpoint_kept_text(unsigned kept, int64_t every, struct text *out) {
    const char *comma = "";
    for (size_t i = 0; i < ARRAY_LENGTH(REASONS); i++)
        if (kept & REASONS[i].reason) {
            text_add(out, "%s%s", comma, REASONS[i].text);
            if (REASONS[i].reason == RETENTION_EVERY)
                text_add(out, " %lld", (long long)every);
            comma = ", ";
        }
}

void checkpoint_kept_json(unsigned kept, struct text *out) {
    json_begin_array(out, "kept");
    for (size_t i = 0; i < ARRAY_LENGTH(REASONS); i++)
        if (kept & REASONS[i].reason)
            json_add_string(out, NULL, REASONS[i].word);
    json_end_array(out);
}

// ---- verify

struct verifying {
    const char *path;
    size_t number, count; // of the directories
};

static void verify_show_progress(void *user, uint64_t done, uint64_t total) {
    const struct verifying *v = user;
    progress_line("%s (%zu of %zu): %s of %s", v->path, v->number, v->count, amount((int64_t)done).text,
                  amount((int64_t)total).text);
}

// The directories that the operands mean, oldest first.
static trireme_status verify_collect(const struct arguments *a, struct directory_list *out, trireme_error *error) {
    for (size_t i = 1; i < a->operands.count; i++) {
        struct checkpoint_place place;
        TRY(checkpoint_place_find(a->operands.item[i], &place, error));
        for (size_t k = place.list.count; k-- > 0;) {
            VEC_PUSH(out, place.list.item[k]);
            place.list.item[k].path = NULL;
        }
        const bool none = place.list.count == 0;
        checkpoint_place_release(&place);
        if (none)
            FAIL(TRIREME_ERROR_USAGE, "%s holds no checkpoint", a->operands.item[i]);
    }
    return TRIREME_OK;
}

static void print_damage_json(const struct damage *d, struct text *out) {
    json_begin_object(out, NULL);
    json_add_string(out, "file", d->file);
    json_add_integer(out, "begin", (int64_t)d->begin);
    json_add_integer(out, "end", (int64_t)d->end);
    json_begin_array(out, "tensors");
    for (size_t i = 0; i < d->tensor.count; i++)
        json_add_string(out, NULL, d->tensor.item[i]);
    json_end_array(out);
    json_add_boolean(out, "unreadable", d->unreadable);
    json_add_string(out, "message", d->message);
    json_end_object(out);
}

// `why`: what is wrong with the manifest itself; then the report is empty.
static void verify_print(const char *path, const struct damage_report *report, const trireme_error *why, bool json,
                         struct text *out) {
    const bool failed = why->status != TRIREME_OK;
    if (json) {
        json_begin_object(out, NULL);
        json_add_string(out, "path", path);
        json_add_boolean(out, "whole", !failed && report->count == 0);
        json_add_integer(out, "files", (int64_t)report->files);
        json_add_integer(out, "bytes", (int64_t)report->bytes);
        if (failed)
            json_add_string(out, "message", why->message);
        json_begin_array(out, "damage");
        for (size_t i = 0; i < report->count; i++)
            print_damage_json(&report->item[i], out);
        json_end_array(out);
        json_end_object(out);
        return;
    }
    if (failed)
        text_add(out, "damaged: %s\n", why->message);
    else if (report->count == 0)
        text_add(out, "whole: %s, %s, %s\n", path, counted((int64_t)report->files, "file").text,
                 amount((int64_t)report->bytes).text);
    for (size_t i = 0; i < report->count; i++)
        text_add(out, "%s: %s\n", report->item[i].unreadable ? "unreadable" : "damaged", report->item[i].message);
}

// What is wrong with the directories so far.
struct verdicts {
    size_t damaged, unreadable;
};

static void verify_one(struct verifying *v, bool json, struct verdicts *verdicts, struct text *out) {
    struct damage_report report;
    trireme_error why = {0};
    const struct damage_watch watch = {verify_show_progress, v};
    const int hold = directory_hold(v->path);
    struct stat st;
    if (hold < 0 && lstat(v->path, &st) != 0 && errno == ENOENT)
        return; // its run has removed it meanwhile
    why.status = damage_find(v->path, usable_cores(), &watch, &report, &why);
    directory_let_go(hold);
    progress_clear();
    bool damaged = why.status == TRIREME_ERROR_CORRUPT, unreadable = why.status == TRIREME_ERROR_IO;
    for (size_t i = 0; i < report.count; i++)
        *(report.item[i].unreadable ? &unreadable : &damaged) = true;
    verdicts->damaged += damaged;
    verdicts->unreadable += unreadable && !damaged;
    verify_print(v->path, &report, &why, json, out);
    damage_report_release(&report);
}

static trireme_status verify_print_all(const struct arguments *a, const struct directory_list *list,
                                       struct verdicts *verdicts, trireme_error *error) {
    struct text out = {0};
    trireme_status status = TRIREME_OK;
    if (a->json) {
        json_begin_object(&out, NULL);
        json_begin_array(&out, "checkpoints");
    }
    for (size_t i = 0; i < list->count && status == TRIREME_OK; i++) {
        struct verifying v = {list->item[i].path, i + 1, list->count};
        verify_one(&v, a->json, verdicts, &out);
        if (!a->json) {
            status = print_text(&out, error); // as soon as it is known
            text_release(&out);
        }
    }
    if (a->json) {
        json_end_array(&out);
        json_end_object(&out);
        text_add(&out, "\n");
        status = print_text(&out, error);
    }
    text_release(&out);
    return status;
}

static trireme_status checkpoint_verify_all(const struct arguments *a, trireme_error *error) {
    struct directory_list list = {0};
    struct verdicts verdicts = {0};
    TRY(arguments_expect(a, 2, SIZE_MAX, error));
    trireme_status status = verify_collect(a, &list, error);
    if (status == TRIREME_OK)
        status = verify_print_all(a, &list, &verdicts, error);
    if (status == TRIREME_OK && verdicts.damaged)
        status = error_set(error, TRIREME_ERROR_CORRUPT, "of %s %zu %s damaged",
                           counted((int64_t)list.count, "checkpoint").text, verdicts.damaged,
                           verdicts.damaged == 1 ? "is" : "are");
    else if (status == TRIREME_OK && verdicts.unreadable)
        status = error_set(error, TRIREME_ERROR_IO, "of %s %zu cannot be read",
                           counted((int64_t)list.count, "checkpoint").text, verdicts.unreadable);
    directory_list_release(&list);
    return status;
}

// ---- prune

static const char PRUNE_KEYS[] = "checkpoint.keep_latest_k checkpoint.keep_every checkpoint.keep_best_k";

// The run's configuration with the keys that are given.
static trireme_status prune_load(const struct arguments *a, const char *run, struct config *out, trireme_error *error) {
    struct config given;
    TRY(arguments_config(a, NULL, &given, error));
    trireme_status status = config_expect(&given, PRUNE_KEYS, "checkpoint prune", error);
    config_release(&given);
    TRY(status);
    char *yaml = mem_printf("%s/config.yaml", run);
    status = file_missing(yaml)
                 ? error_set(error, TRIREME_ERROR_USAGE, "%s: not a run's directory: it has no config.yaml", run)
                 : arguments_config(a, yaml, out, error);
    free(yaml);
    return status;
}

static void prune_print(const struct retention_list *list, const struct config *config, bool dry, bool json,
                        struct text *out) {
    if (json) {
        json_begin_object(out, NULL);
        json_begin_array(out, "checkpoints");
    }
    for (size_t i = list->count; i-- > 0;) {
        const struct retention_entry *e = &list->item[i];
        if (json) {
            json_begin_object(out, NULL);
            json_add_string(out, "path", e->path);
            json_add_integer(out, "step", e->number);
            json_add_boolean(out, "goes", !e->kept);
            checkpoint_kept_json(e->kept, out);
            if (e->damage)
                json_add_string(out, "damage", e->damage);
            json_end_object(out);
            continue;
        }
        text_add(out, "%s: %s", e->path, e->kept ? "stays: " : dry ? "would go" : "is removed");
        checkpoint_kept_text(e->kept, config->checkpoint.keep_every, out);
        text_add(out, "%s%s\n", e->damage ? "; damaged: " : "", e->damage ? e->damage : "");
    }
    if (json) {
        json_end_array(out);
        json_add_boolean(out, "dry_run", dry);
        json_end_object(out);
        text_add(out, "\n");
    }
}

static double prune_loss(void *user, const struct directory_numbered *checkpoint) {
    return checkpoint_loss(user, checkpoint);
}

static void prune_show_progress(void *user) {
    (void)user;
    progress_line("reading what stays");
}

static const atomic_bool *prune_stop;

static bool prune_stops(void *user) {
    (void)user;
    return *prune_stop;
}

static trireme_status prune_decided(const struct arguments *a, struct retention *r, struct retention_list *list,
                                    const struct config *config, trireme_error *error) {
    // Where a removal fails, what is said is what was meant.
    trireme_error why = {0};
    if (!a->dry_run)
        why.status = retention_remove(r, list, &why);
    struct text out = {0};
    prune_print(list, config, a->dry_run, a->json, &out);
    const trireme_status status = why.status == TRIREME_OK ? print_text(&out, error) : error_repeat(error, &why);
    text_release(&out);
    return status;
}

static trireme_status prune_run(const struct arguments *a, const char *run, const struct config *config,
                                trireme_error *error) {
    char *parent = mem_printf(CHECKPOINTS_PATH, run);
    struct checkpoint_losses losses = {.run_directory = run};
    struct retention retention = {
        .parent = parent, .rules = checkpoint_rules(config), .loss = prune_loss, .stops = prune_stops, .user = &losses};
    struct retention_list list;
    const struct checksum_watch watch = {.read = prune_show_progress};
    bool stopped = false;
    prune_stop = stop_on_signals();
    trireme_status status =
        retention_decide(&retention, checkpoint_last_counted(parent), &watch, &list, &stopped, error);
    progress_clear();
    if (status == TRIREME_OK && stopped)
        status = error_set(error, TRIREME_ERROR_INTERRUPTED, "stopped: nothing is removed");
    else if (status == TRIREME_OK)
        status = prune_decided(a, &retention, &list, config, error);
    retention_list_release(&list);
    retention_release(&retention);
    checkpoint_losses_release(&losses);
    free(parent);
    return status;
}

static trireme_status checkpoint_prune(const struct arguments *a, trireme_error *error) {
    struct config config;
    struct run_directory directory = {.lock = -1};
    TRY(arguments_expect(a, 2, 2, error));
    const char *run = a->operands.item[1];
    TRY(prune_load(a, run, &config, error));
    trireme_status status = a->dry_run ? TRIREME_OK : run_directory_open(&directory, run, error);
    if (status == TRIREME_OK)
        status = prune_run(a, run, &config, error);
    if (directory.lock >= 0)
        run_directory_close(&directory);
    config_release(&config);
    return status;
}

// ---- all

trireme_status command_checkpoint(const struct arguments *a, trireme_error *error) {
    static const struct {
        const char *name;
        trireme_status (*run)(const struct arguments *arguments, trireme_error *error);
        bool settings;
    } PARTS[] = {{"list", command_checkpoint_list, false},
                 {"verify", checkpoint_verify_all, false},
                 {"diff", command_checkpoint_diff, false},
                 {"prune", checkpoint_prune, true}};
    TRY(arguments_expect(a, 1, SIZE_MAX, error));
    const char *what = a->operands.item[0];
    for (size_t i = 0; i < ARRAY_LENGTH(PARTS); i++) {
        if (strcmp(PARTS[i].name, what) != 0)
            continue;
        if (a->settings.count && !PARTS[i].settings)
            FAIL(TRIREME_ERROR_USAGE, "unexpected \"%s\": checkpoint %s takes no settings", a->settings.item[0], what);
        return PARTS[i].run(a, error);
    }
    FAIL(TRIREME_ERROR_USAGE, "what to do with checkpoints is list, verify, diff or prune, not \"%s\"", what);
}
