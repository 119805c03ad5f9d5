#include "run/checkpoint.h"

#include "ckpt/directory_manifest.h"
#include "ckpt/model_files.h"
#include "launch/ranks.h"
#include "model/lora.h"
#include "run/checkpoint_saver.h"
#include "run/island.h"
#include "run/kept_values.h"
#include "run/run_directory.h"
#include "run/verification.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

// A model can be used without the training state, which is larger than the rest of a checkpoint: only its header is
// read, for the run's configuration.
static const struct manifest_check MODEL_SIZES = {.spare = state_files_own},
                                   MODEL_CONTENT = {.content = true, .spare = state_files_own};

trireme_status checkpoint_save(const struct engine *e, const struct tokenizer_files *tokenizer,
                               const char *run_directory, const struct state_progress *progress, trireme_error *error) {
    struct checkpoint_saver *saver;
    TRY(checkpoint_saver_create(&saver, e, tokenizer, 0, error));
    checkpoint_saver_begin(saver, run_directory, progress, NULL);
    const trireme_status status = checkpoint_saver_end(saver, error);
    checkpoint_saver_free(saver);
    return status;
}

void checkpoint_sweep(const char *run_directory) {
    char *parent = mem_printf(CHECKPOINTS_PATH, run_directory);
    directory_sweep(parent);
    free(parent);
}

// What this rank has of an engine's values, while files are read.
struct loading {
    struct whole whole;
    struct kept_values kept;
    struct holdings own;
    struct ranks_work work;
    struct checksum_watch watch;
};

// `islands`: how many have saved them; 0: as many as there are.
static void loading_begin(struct loading *l, const struct engine *e, struct communicator *control, int islands) {
    whole_create(&l->whole, e);
    kept_values_create(&l->kept, &l->whole, islands ?: l->whole.islands);
    kept_values_own(&l->own, &l->kept, &l->whole, WHOLE_LOAD);
    l->work = ranks_work_begin(control);
    l->watch = (struct checksum_watch){ranks_work_on, &l->work};
}

// Once all ranks have loaded theirs.
static trireme_status loading_end(struct loading *l, trireme_status status, trireme_error *error) {
    holdings_release(&l->own);
    kept_values_release(&l->kept);
    whole_release(&l->whole);
    return status == TRIREME_OK ? ranks_work_end(&l->work, error) : status;
}

static struct parameter_values loading_values(const struct loading *l, int group) {
    return (struct parameter_values){l->kept.item[group].dtype, &l->own, group};
}

// How far the islands had come that saved a checkpoint, which the caller releases. Of a run without outer steps there
// is one.
static trireme_status load_islands(const struct engine *e, const struct state_progress *progress,
                                   struct island_progress *out, trireme_error *error) {
    *out = (struct island_progress){.islands = 1, .under_way = NONE};
    if (e->stages->config->outer.method != CONFIG_OUTER_NONE &&
        (!progress->islands || !island_progress_parse(progress->islands, out)))
        FAIL(TRIREME_ERROR_CORRUPT, "the training state does not say how far its islands had come");
    return TRIREME_OK;
}

// Ranks of an island have of its values, and of those that all share. With other islands, each has the mean of what
// they had, a running one in their order; but of the parameters of several the state says nothing that the model's
// files do not.
static trireme_status load_state(struct loading *l, const char *directory, const struct island_progress *islands,
                                 trireme_error *error) {
    double share[ENGINE_VALUES] = {0}, weight[ENGINE_VALUES] = {0};
    VEC(struct state_group) groups = {0};
    for (size_t i = 0; i < l->kept.count; i++) {
        const struct kept *kept = &l->kept.item[i];
        if (!kept_is_state(kept, islands->under_way != NONE))
            continue;
        struct state_group group = {kept->name, loading_values(l, (int)i), kept->has, 1};
        const bool parameters = kept->what == ENGINE_PARAMETERS || kept->what == ENGINE_REMAINDERS;
        if (l->kept.others && parameters && islands->islands > 1)
            group.values = loading_values(l, kept_values_find(&l->kept, kept->what, 1));
        else if (l->kept.others && kept->island != EVERY_ISLAND) {
            weight[kept->what] = island_weight(l->whole.engine->stages->config, islands, kept->island);
            share[kept->what] += weight[kept->what];
            group.share = share[kept->what] > 0 ? weight[kept->what] / share[kept->what] : 1;
        }
        VEC_PUSH(&groups, group);
    }
    trireme_status status =
        state_files_load(directory, l->whole.engine->table, groups.item, groups.count, &l->watch, error);
    VEC_RELEASE(&groups);
    return status;
}

// Verifies the model that adapters in `directory` are for, if it has checksums.
static trireme_status verify_base(const struct engine *e, struct communicator *control, const char *directory,
                                  trireme_error *error) {
    const bool apart = e->model->lora.rank > 0 && lora_is_directory(directory);
    return apart ? checkpoint_verify_once(e->model->lora.base, control, error) : TRIREME_OK;
}

// With `masters`, the remainders are what the files have beyond the rounded weights.
static trireme_status load_model(struct loading *l, const char *directory, bool masters, bool exact,
                                 trireme_error *error) {
    const struct engine *e = l->whole.engine;
    const int island = l->kept.others ? 0 : l->whole.island,
              group = kept_values_find(&l->kept, ENGINE_PARAMETERS, island),
              low = masters ? kept_values_find(&l->kept, ENGINE_REMAINDERS, island) : NONE;
    const struct parameter_values parameters = loading_values(l, group),
                                  remainders = low == NONE ? parameters : loading_values(l, low);
    return model_files_load(directory, e->model, e->table, &parameters, low == NONE ? NULL : &remainders, exact,
                            &l->watch, error);
}

trireme_status checkpoint_load(struct engine *e, struct communicator *control, const char *directory,
                               const struct state_progress *progress, trireme_error *error) {
    struct loading loading;
    struct island_progress islands;
    TRY(verify_base(e, control, directory, error));
    TRY(load_islands(e, progress, &islands, error));
    loading_begin(&loading, e, control, islands.islands);
    // The remainders come from the training state: the model's files hold the rounded weights. Islands have all of
    // theirs there, but for what adapters are made for.
    const bool apart = !loading.kept.others && loading.kept.item[0].name;
    trireme_status status =
        !apart || e->model->lora.rank > 0 ? load_model(&loading, directory, false, true, error) : TRIREME_OK;
    if (status == TRIREME_OK)
        status = load_state(&loading, directory, &islands, error);
    island_progress_release(&islands);
    TRY(loading_end(&loading, status, error));
    *(double *)engine_state(e, e->stage->state.optimizer.t) = (double)progress->updates;
    engine_constants(e);
    return TRIREME_OK;
}

trireme_status checkpoint_load_model(struct engine *e, struct communicator *control, const char *directory, bool exact,
                                     trireme_error *error) {
    struct loading loading;
    TRY(verify_base(e, control, directory, error));
    loading_begin(&loading, e, control, 0);
    TRY(loading_end(&loading, load_model(&loading, directory, true, exact, error), error));
    engine_constants(e);
    return TRIREME_OK;
}

// Whether a directory has a manifest by which its content can be verified.
static bool is_verifiable(const char *path) {
    char *manifest = mem_printf("%s/" MANIFEST_NAME, path);
    const bool is = access(manifest, F_OK) == 0;
    free(manifest);
    return is;
}

trireme_status checkpoint_verify_once(const char *path, struct communicator *control, trireme_error *error) {
    int32_t verifiable = is_verifiable(path); // a directory of which ranks have copies may have one on some
    TRY(ranks_share(control, &verifiable, sizeof verifiable, error));
    return verifiable ? verification_together(path, MODEL_CONTENT, control, error) : TRIREME_OK;
}

trireme_status checkpoint_tokenizer(char **out, const char *directory, const char *base, trireme_error *error) {
    struct tokenizer_files own;
    struct model_config model = {0};
    bool has = true;
    if (lora_is_directory(directory)) {
        TRY(tokenizer_files_read(&own, directory, error));
        has = own.files.count > 0;
        tokenizer_files_release(&own);
    }
    if (!has)
        TRY(model_config_read_on(&model, directory, base, error));
    *out = mem_strdup(has ? directory : model.lora.base);
    return TRIREME_OK;
}

trireme_status checkpoint_load_tokenizer(struct tokenizer **out, const char *directory, const char *base,
                                         trireme_error *error) {
    char *where;
    TRY(checkpoint_tokenizer(&where, directory, base, error));
    const trireme_status status = tokenizer_load(where, out, error);
    free(where);
    return status;
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
    bool may_be = !file_missing(config) || lora_is_directory(path); // reading it says what is wrong
    free(config);
    return may_be;
}

static trireme_status checkpoint_locate(const char *path, struct manifest_check check, char **out, int *hold,
                                        trireme_error *error) {
    if (is_model(path)) {
        *hold = directory_hold(path);
        trireme_status status = is_verifiable(path) ? directory_verify(path, check, NULL, error) : TRIREME_OK;
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
    // A vocabulary of weights grows by tokens that it does not have.
    struct model_config theirs;
    const bool known = start && *found && model_config_read(&theirs, found, NULL) == TRIREME_OK;
    if (known && vocab_size > theirs.vocab_size && !config_is_set(config, "model.vocab_size"))
        with.model.vocab_size = vocab_size;
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

static bool run_has_been(const char *directory) {
    char *path = mem_printf("%s/config.yaml", directory);
    const bool there = !file_missing(path);
    free(path);
    return there;
}

// Refuses a checkpoint in checkpoint.emergency_directory that another run has saved, which may have a directory of the
// same name elsewhere; or this one, whose directory is then gone: to begin anew could be as wrong as to go on.
static trireme_status check_emergency(const struct config *config, const char *path, trireme_error *error) {
    struct state_progress theirs;
    trireme_error ignored;
    char own[CHECKSUM_HEX];
    if (!run_has_been(config->run.directory))
        return config_refuse(config, "checkpoint.emergency_directory", error,
                             "where %s is, while no run is in run.directory %s: to go on from it move it to "
                             "%s/checkpoint, else remove it",
                             path, config->run.directory, config->run.directory);
    if (state_files_progress(path, &theirs, &ignored) != TRIREME_OK)
        return TRIREME_OK; // loading it says why
    run_directory_identify(config->run.directory, own);
    const bool same = *own && strcmp(theirs.run, own) == 0;
    state_progress_release(&theirs);
    return same ? TRIREME_OK
                : config_refuse(config, "checkpoint.emergency_directory", error,
                                "where %s was saved by a run in another directory than %s: each run needs an emergency "
                                "directory of its own; if it is this run, which was moved, move it to %s/checkpoint",
                                path, config->run.directory, config->run.directory);
}

// Takes over from `other` what is newer than what is found.
static void search_take_skipped(struct directory_search *s, struct directory_search *other) {
    for (size_t i = 0; i < other->skipped.count; i++)
        if (!s->path || other->skipped.item[i].number > s->number) {
            VEC_PUSH(&s->skipped, other->skipped.item[i]);
            other->skipped.item[i] = (struct directory_skipped){0};
        }
}

static trireme_status checkpoint_newest_in(const char *directory, struct manifest_check check,
                                           const struct directory_verifier *verifier, struct directory_search *out,
                                           trireme_error *error) {
    char *parent = mem_printf(CHECKPOINTS_PATH, directory);
    *out = (struct directory_search){0};
    const trireme_status status = directory_newest(parent, check, verifier, out, error);
    free(parent);
    return status;
}

trireme_status checkpoint_newest(const struct config *config, struct manifest_check check,
                                 const struct directory_verifier *verifier, struct directory_search *out,
                                 trireme_error *error) {
    const char *directory = config->run.directory, *emergency = config->checkpoint.emergency_directory;
    struct directory_search other;
    TRY(checkpoint_newest_in(directory, check, verifier, out, error));
    if (!*emergency)
        return TRIREME_OK;
    trireme_status status = checkpoint_newest_in(emergency, check, verifier, &other, error);
    if (status == TRIREME_OK && other.path && (!out->path || other.number > out->number)) {
        status = check_emergency(config, other.path, error);
        const struct directory_search own = *out;
        out->path = other.path;
        out->hold = other.hold;
        out->number = other.number;
        other.path = own.path;
        other.hold = own.hold;
    }
    search_take_skipped(out, &other);
    directory_search_release(&other);
    if (status != TRIREME_OK)
        directory_search_release(out);
    return status;
}

// The checkpoint from which a run goes on, NULL where there is none. Of weights and states only the sizes are checked,
// which are equal in all checkpoints of a run. Where all checkpoints are damaged, *own is one that has a model, and
// run_start reports the damage.
static trireme_status checkpoint_find_own(const struct config *config, char **own, trireme_error *error) {
    struct directory_search search = {0};
    const struct manifest_check check = {.content_of = "config.json"};
    if (is_directory(config->run.directory))
        TRY(checkpoint_newest(config, check, NULL, &search, error));
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
static void take_ends(struct model_config *model, const char *path, const char *base) {
    struct model_config stored;
    trireme_error ignored;
    if (model_config_read_on(&stored, path, base, &ignored) == TRIREME_OK)
        model_config_take_ends(model, &stored);
}

// The directory `path` of the model that adapters are for, so that it is found from elsewhere.
static void set_base(struct model_config *model, const char *path) {
    char *resolved = realpath(path, NULL);
    lora_set_base(model, resolved ?: path);
    free(resolved);
}

// Which model the adapters of the model are for that starts from the directory `start`.
static trireme_status find_base(struct model_config *model, const struct config *config, const char *start,
                                trireme_error *error) {
    if (model->lora.rank == 0)
        return TRIREME_OK;
    if (!*start)
        return config_refuse(config, "lora.rank", error,
                             "but adapters need a model to adapt: name it as "
                             "model.init_from");
    struct model_config stored = {0};
    if (lora_is_directory(start))
        TRY(model_config_read_on(&stored, start, config->lora.base_model, error));
    set_base(model, stored.lora.base ?: start);
    return TRIREME_OK;
}

// The model of a run that begins. A model's name and sizes do not say which token ends the texts that its weights know.
static trireme_status new_model(struct model_config *out, const struct config *config, int64_t vocab_size, char **start,
                                int *hold, trireme_error *error) {
    TRY(checkpoint_model(out, config, vocab_size, start, hold, error));
    if (**start && !*config->model.config)
        take_ends(out, *start, config->lora.base_model);
    const trireme_status status = find_base(out, config, *start, error);
    if (status != TRIREME_OK) {
        free(*start);
        directory_let_go(*hold);
        *start = NULL;
        *hold = -1;
    }
    return status;
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
    TRY(checkpoint_find_own(config, &own, error));
    if (!own)
        return new_model(out, config, vocab_size, start, hold, error);
    struct config with = *config; // for a moment, nothing in it is owned
    with.model.init_from = own;
    *start = NULL;
    *hold = -1;
    trireme_status status = model_config_resolve(out, &with, vocab_size, error);
    if (status == TRIREME_OK) {
        take_ends(out, own, config->lora.base_model);
        status = find_base(out, config, own, error);
    }
    if (status == TRIREME_OK && model_config_follows_length(config))
        status = keep_positions(out, own, error);
    free(own);
    return status;
}
