#include "run/checkpoint.h"

#include "ckpt/directory_manifest.h"
#include "ckpt/model_files.h"
#include "engine/whole_tensors.h"
#include "launch/ranks.h"
#include "run/island.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

struct groups {
    VEC(struct state_group);
};

// A model can be used without the training state, which is larger than the rest of a checkpoint: only its header is
// read, for the run's configuration.
static const struct manifest_check MODEL_SIZES = {.spare = STATE_NAME},
                                   MODEL_CONTENT = {.content = true, .spare = STATE_NAME};

// `has` as in struct state_group, which takes it over. Of several islands each has a group of its own.
static void groups_add(struct groups *groups, struct whole *whole, int island, const char *name,
                       enum engine_values what, const bool *has) {
    char *full = whole->islands > 1 ? mem_printf("island.%d.%s", island, name) : mem_strdup(name);
    VEC_PUSH(groups, (struct state_group){full, whole_values(whole, what, island), has});
}

// The states of the optimizers that the run has, each with the parameters that have it, and the remainders; of several
// islands also the parameters, of which the model's files have the mean, and what is exchanged.
static void groups_of(struct groups *groups, struct whole *whole, int island, bool exchanged) {
    const struct engine *e = whole->engine;
    const struct stage_state *state = &e->stage->state;
    const enum config_optimizer_name name = e->stages->config->optimizer.name;
    if (whole->islands > 1)
        groups_add(groups, whole, island, "parameters", ENGINE_PARAMETERS, NULL);
    if (exchanged)
        groups_add(groups, whole, island, "outer.value", ENGINE_OUTER_VALUE, NULL);
    if (exchanged && state->outer.taken)
        groups_add(groups, whole, island, "outer.taken", ENGINE_OUTER_TAKEN, NULL);
    for (int k = 0; k < OPTIMIZER_STATES; k++) {
        bool *has = mem_alloc(e->table->parameters.count * sizeof *has), any = false;
        for (size_t i = 0; i < e->table->parameters.count; i++)
            any |= has[i] = optimizer_of(name, &e->table->parameters.item[i]) == optimizer_states[k].optimizer;
        if (any)
            groups_add(groups, whole, island, optimizer_states[k].saved, ENGINE_STATES + k, has);
        else
            free(has);
    }
    if (state->optimizer.remainder)
        groups_add(groups, whole, island, "remainder", ENGINE_REMAINDERS, NULL);
}

// The groups of all islands, which have come as far as the progress says; the mean counts them by their targets.
static trireme_status groups_create(struct groups *groups, struct whole *whole, const struct state_progress *progress,
                                    trireme_error *error) {
    struct island_progress islands = {0};
    *groups = (struct groups){0};
    if (whole->islands > 1 && (!progress->islands || !island_progress_parse(progress->islands, &islands) ||
                               islands.islands != whole->islands))
        FAIL(TRIREME_ERROR_CORRUPT, "the training state does not say how far its %d islands had come", whole->islands);
    for (int i = 0; i < whole->islands; i++)
        groups_of(groups, whole, i, islands.settles > 0);
    if (whole->islands > 1)
        whole_weigh(whole, islands.targets);
    island_progress_release(&islands);
    return TRIREME_OK;
}

static void groups_release(struct groups *groups) {
    for (size_t i = 0; i < groups->count; i++) {
        free((char *)groups->item[i].name);
        free((bool *)groups->item[i].has);
    }
    VEC_RELEASE(groups);
}

static trireme_status write_files(struct whole *whole, const struct tokenizer_files *tokenizer,
                                  struct directory *directory, const struct state_progress *progress,
                                  trireme_error *error) {
    const struct engine *e = whole->engine;
    struct parameter_values parameters = whole_values(whole, ENGINE_PARAMETERS, WHOLE_MEAN);
    struct groups groups;
    TRY(groups_create(&groups, whole, progress, error));
    trireme_status status = model_files_save(directory, e->model, e->table, &parameters, 0, error);
    if (status == TRIREME_OK)
        status = state_files_save(directory, e->table, groups.item, groups.count, progress, error);
    groups_release(&groups);
    TRY(status);
    return tokenizer_files_write(tokenizer, directory_path(directory), error);
}

// Writes a checkpoint's directory on rank 0, with the help of all other ranks. Once its files are complete it is kept,
// even if another rank has failed by then.
static trireme_status write_directory(struct whole *whole, const struct tokenizer_files *tokenizer, const char *path,
                                      const struct state_progress *progress, trireme_error *error) {
    struct directory *directory = NULL;
    trireme_error other;
    trireme_status status = directory_begin(path, DIRECTORY_SET_ASIDE, &directory, error);
    if (status == TRIREME_OK)
        status = write_files(whole, tokenizer, directory, progress, error);
    trireme_status dismissed = whole_dismiss(whole, &other);
    if (status == TRIREME_OK)
        status = directory_commit(directory, error);
    else
        directory_abort(directory);
    if (status == TRIREME_OK && dismissed != TRIREME_OK)
        *error = other;
    return status == TRIREME_OK ? dismissed : status;
}

static trireme_status checkpoint_write(struct whole *whole, const struct tokenizer_files *tokenizer,
                                       const char *run_directory, const struct state_progress *progress,
                                       trireme_error *error) {
    char *path = mem_printf(CHECKPOINT_PATH, run_directory, (long long)progress->step);
    trireme_status status = write_directory(whole, tokenizer, path, progress, error);
    free(path);
    return status;
}

trireme_status checkpoint_save(const struct engine *e, struct communicator *control,
                               const struct tokenizer_files *tokenizer, const char *run_directory,
                               const struct state_progress *progress, trireme_error *error) {
    struct whole whole;
    whole_create(&whole, e, control);
    trireme_status status = e->member.rank == 0 ? checkpoint_write(&whole, tokenizer, run_directory, progress, error)
                                                : whole_serve(&whole, error);
    whole_release(&whole);
    return status;
}

trireme_status checkpoint_prune(const char *run_directory, int64_t step, size_t keep, trireme_error *error) {
    char *parent = mem_printf(CHECKPOINTS_PATH, run_directory);
    trireme_status status = directory_prune(parent, step, keep, error);
    free(parent);
    return status;
}

void checkpoint_sweep(const char *run_directory) {
    char *parent = mem_printf(CHECKPOINTS_PATH, run_directory);
    directory_sweep(parent);
    free(parent);
}

trireme_status checkpoint_load(struct engine *e, struct communicator *control, const char *directory,
                               const struct state_progress *progress, trireme_error *error) {
    struct whole whole;
    whole_create(&whole, e, control);
    struct parameter_values parameters = whole_values(&whole, ENGINE_PARAMETERS, WHOLE_MEAN);
    struct groups groups;
    trireme_status status = groups_create(&groups, &whole, progress, error);
    // The remainders come from the training state: the model's files hold the rounded weights. Islands have all of
    // theirs there.
    if (status == TRIREME_OK && whole.islands == 1)
        status = model_files_load(directory, e->model, e->table, &parameters, NULL, true, error);
    if (status == TRIREME_OK)
        status = state_files_load(directory, e->table, groups.item, groups.count, error);
    groups_release(&groups);
    whole_release(&whole);
    TRY(status);
    *(double *)engine_state(e, e->stage->state.optimizer.t) = (double)progress->updates;
    engine_constants(e);
    return TRIREME_OK;
}

trireme_status checkpoint_load_model(struct engine *e, struct communicator *control, const char *directory, bool exact,
                                     trireme_error *error) {
    struct whole whole;
    whole_create(&whole, e, control);
    struct parameter_values parameters = whole_values(&whole, ENGINE_PARAMETERS, WHOLE_MEAN);
    struct parameter_values remainders = whole_values(&whole, ENGINE_REMAINDERS, WHOLE_MEAN);
    bool has_remainders = e->stage->state.optimizer.remainder != NULL;
    trireme_status status =
        model_files_load(directory, e->model, e->table, &parameters, has_remainders ? &remainders : NULL, exact, error);
    whole_release(&whole);
    TRY(status);
    engine_constants(e);
    return TRIREME_OK;
}

static trireme_status checkpoint_verify(const char *path, struct manifest_check check,
                                        const struct checksum_watch *watch, trireme_error *error) {
    char *manifest = mem_printf("%s/" MANIFEST_NAME, path);
    bool ours = access(manifest, F_OK) == 0;
    free(manifest);
    return ours ? directory_verify(path, check, watch, error) : TRIREME_OK;
}

trireme_status checkpoint_verify_once(const char *path, struct communicator *control, bool reads,
                                      trireme_error *error) {
    const struct checksum_watch watch = {ranks_tell_more, control};
    if (!reads)
        return ranks_await_end(control, error);
    TRY(checkpoint_verify(path, MODEL_CONTENT, &watch, error));
    return ranks_tell_end(control, error);
}

bool checkpoint_config(struct config *out, const char *directory) {
    struct state_progress progress;
    trireme_error ignored;
    if (state_files_progress(directory, &progress, &ignored) != TRIREME_OK)
        return false;
    bool read =
        config_load_text(out, directory, progress.config, strlen(progress.config), NULL, 0, &ignored) == TRIREME_OK;
    state_progress_release(&progress);
    return read;
}

void checkpoint_identify(const char *directory, char hex[CHECKSUM_HEX]) {
    char *path = mem_printf("%s/" MANIFEST_NAME, directory), *text;
    size_t length;
    trireme_error ignored;
    *hex = 0;
    if (file_read(path, MANIFEST_BYTES_MAX, &text, &length, &ignored) == TRIREME_OK) {
        checksum_of(text, length, hex);
        free(text);
    }
    free(path);
}

static bool is_directory(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

// Whether this is the directory of a run's checkpoints.
static bool holds_checkpoints(const char *path) {
    struct directory_search search = {0};
    bool any = directory_newest(path, MODEL_SIZES, NULL, &search, NULL) == TRIREME_OK && search.path;
    directory_search_release(&search);
    return any;
}

static trireme_status refuse_path(const char *path, trireme_error *error) {
    if (access(path, F_OK) != 0)
        FAIL(TRIREME_ERROR_USAGE, "%s: %s", path, errno == ENOENT ? "no such directory" : strerror(errno));
    if (!is_directory(path))
        FAIL(TRIREME_ERROR_USAGE, "%s is a file: give the model's or the run's directory", path);
    if (holds_checkpoints(path))
        FAIL(TRIREME_ERROR_USAGE, "%s holds the checkpoints of a run: give one of them, or the run directory above it",
             path);
    FAIL(TRIREME_ERROR_USAGE, "%s is neither a model (it has no config.json) nor a run with a complete checkpoint",
         path);
}

// A run's newest checkpoint; NULL where there is none.
static trireme_status find_newest(const char *run, struct manifest_check check, char **out, int *hold,
                                  trireme_error *error) {
    char *parent = mem_printf(CHECKPOINTS_PATH, run);
    struct directory_search search = {0};
    trireme_status status = TRIREME_OK;
    *out = NULL;
    *hold = -1;
    if (is_directory(parent))
        status = directory_newest(parent, check, NULL, &search, error);
    free(parent);
    TRY(status);
    // To take an older model than was asked for would silently answer another question.
    if (search.skipped.count && search.path)
        status = error_set(error, TRIREME_ERROR_CORRUPT, "%s; the newest complete checkpoint is %s",
                           search.skipped.item[0].reason, search.path);
    else if (search.skipped.count)
        status = error_set(error, TRIREME_ERROR_CORRUPT, "%s", search.skipped.item[0].reason);
    else if (search.path) {
        *out = mem_strdup(search.path);
        *hold = search.hold;
        search.hold = -1;
    }
    directory_search_release(&search);
    return status;
}

static bool is_model(const char *path) {
    char *config = mem_printf("%s/config.json", path);
    bool may_be = !file_missing(config); // reading it says what is wrong
    free(config);
    return may_be;
}

static trireme_status checkpoint_locate(const char *path, struct manifest_check check, char **out, int *hold,
                                        trireme_error *error) {
    if (is_model(path)) {
        *hold = directory_hold(path);
        trireme_status status = checkpoint_verify(path, check, NULL, error);
        if (status == TRIREME_OK) {
            *out = mem_strdup(path);
            return TRIREME_OK;
        }
        directory_let_go(*hold);
        *hold = -1;
        return status;
    }
    TRY(find_newest(path, check, out, hold, error));
    return *out ? TRIREME_OK : refuse_path(path, error);
}

trireme_status checkpoint_resolve(const char *path, char **out, int *hold, trireme_error *error) {
    return checkpoint_locate(path, MODEL_CONTENT, out, hold, error);
}

trireme_status checkpoint_find(const char *path, char **out, int *hold, trireme_error *error) {
    return checkpoint_locate(path, MODEL_SIZES, out, hold, error);
}

trireme_status checkpoint_model(struct model_config *out, const struct config *config, int64_t vocab_size, char **start,
                                int *hold, trireme_error *error) {
    const char *given = config->model.init_from;
    char *found = NULL;
    int held = -1;
    struct stat info;
    if (start && *given && stat(given, &info) != 0 && errno == ENOENT)
        return config_refuse(config, "model.init_from", error,
                             "where there is nothing: a model of a hub is downloaded first");
    if (start && *given && !is_directory(given)) {
        TRY(model_refuse_weights(given, error));
        return config_refuse(config, "model.init_from", error, "which is a file: give the model's directory");
    }
    // A run's own directory is not held: a run that starts there would find it in use.
    if (*given && is_model(given))
        held = directory_hold(given);
    else if (*given)
        TRY(find_newest(given, MODEL_SIZES, &found, &held, error));
    if (!found)
        found = mem_strdup(given);
    struct config with = *config; // for a moment, nothing in it is owned
    with.model.init_from = found;
    trireme_status status = model_config_resolve(out, &with, vocab_size, error);
    if (status == TRIREME_OK && start) {
        *start = found;
        *hold = held;
        return TRIREME_OK;
    }
    free(found);
    directory_let_go(held);
    return status;
}

// The checkpoint from which a run goes on, NULL where there is none. Of weights and states only the sizes are checked,
// which are equal in all checkpoints of a run. Where all checkpoints are damaged, *own is one that has a model, and
// run_start reports the damage.
static trireme_status checkpoint_find_own(const char *run, char **own, trireme_error *error) {
    char *parent = mem_printf(CHECKPOINTS_PATH, run);
    struct directory_search search = {0};
    const struct manifest_check check = {.content_of = "config.json"};
    trireme_status status = is_directory(parent) ? directory_newest(parent, check, NULL, &search, error) : TRIREME_OK;
    free(parent);
    TRY(status);
    *own = search.path ? mem_strdup(search.path) : NULL;
    struct model_config model;
    trireme_error ignored;
    for (size_t i = 0; i < search.skipped.count && !*own; i++)
        if (model_config_read(&model, search.skipped.item[i].path, &ignored) == TRIREME_OK)
            *own = mem_strdup(search.skipped.item[i].path);
    for (size_t i = 0; i < search.skipped.count && !*own; i++)
        if (is_model(search.skipped.item[i].path))
            *own = mem_strdup(search.skipped.item[i].path); // reading it says what is wrong
    directory_search_release(&search);
    return TRIREME_OK;
}

// Takes over the tokens that begin and end a text from the model in the directory `path`.
static void take_ends(struct model_config *model, const char *path) {
    struct model_config stored;
    trireme_error ignored;
    if (model_config_read(&stored, path, &ignored) == TRIREME_OK)
        model_config_take_ends(model, &stored);
}

// The model of a run that begins. A model's name and sizes do not say which token ends the texts that its weights know.
static trireme_status new_model(struct model_config *out, const struct config *config, int64_t vocab_size, char **start,
                                int *hold, trireme_error *error) {
    TRY(checkpoint_model(out, config, vocab_size, start, hold, error));
    if (**start && !*config->model.config)
        take_ends(out, *start);
    return TRIREME_OK;
}

// A model whose positions follow from training.seq_len keeps those that it has: a run may go on with another length.
static trireme_status keep_positions(struct model_config *model, const char *own, trireme_error *error) {
    struct model_config theirs;
    TRY(model_config_read(&theirs, own, error));
    model->max_position_embeddings = MAX(model->max_position_embeddings, theirs.max_position_embeddings);
    return TRIREME_OK;
}

trireme_status checkpoint_run_model(struct model_config *out, const struct config *config, int64_t vocab_size,
                                    char **start, int *hold, trireme_error *error) {
    char *own;
    TRY(checkpoint_find_own(config->run.directory, &own, error));
    if (!own)
        return new_model(out, config, vocab_size, start, hold, error);
    struct config with = *config; // for a moment, nothing in it is owned
    with.model.init_from = own;
    *start = NULL;
    *hold = -1;
    trireme_status status = model_config_resolve(out, &with, vocab_size, error);
    if (status == TRIREME_OK)
        take_ends(out, own);
    if (status == TRIREME_OK && model_config_follows_length(config))
        status = keep_positions(out, own, error);
    free(own);
    return status;
}
