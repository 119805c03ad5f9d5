#include "train/checkpoint.h"

#include "ckpt/model_files.h"

#include <sys/stat.h>
#include <unistd.h>

enum { MAX_GROUPS = 3 };

// Addresses of every parameter in one of the engine's flat buffers per unit.
struct addresses {
    void **parameter, **remainder, **m, **v;
};

static const struct compiled *program_of(const struct engine *e) {
    return e->trains ? &e->train : &e->evaluate;
}

static void **collect(const struct engine *e, const int *unit) {
    const struct compiled *c = program_of(e);
    void **out = mem_alloc(e->table.parameters.count * sizeof *out);
    for (size_t i = 0; i < e->table.parameters.count; i++) {
        int flat = unit[e->table.parameters.item[i].unit];
        int64_t offset = program_root_offset(&c->program, c->model.parameter[i]);
        out[i] = (char *)engine_address(e, flat, 0) + offset * dtype_size(c->program.buffers.item[flat].dtype);
    }
    return out;
}

static struct addresses addresses_of(const struct engine *e) {
    const struct compiled *c = program_of(e);
    struct addresses a = {.parameter = collect(e, c->model.unit)};
    if (e->trains && c->optimizer.remainder)
        a.remainder = collect(e, c->optimizer.remainder);
    if (e->trains && c->optimizer.m)
        a.m = collect(e, c->optimizer.m);
    if (e->trains && c->optimizer.v)
        a.v = collect(e, c->optimizer.v);
    return a;
}

static void addresses_release(struct addresses *a) {
    free(a->parameter);
    free(a->remainder);
    free(a->m);
    free(a->v);
}

static struct model_memory memory_of(const struct engine *e, const struct addresses *a) {
    return (struct model_memory){e->dtype, a->parameter, (uint16_t *const *)a->remainder};
}

static size_t groups_of(const struct engine *e, const struct addresses *a, struct state_group group[MAX_GROUPS]) {
    static const char *const NAMES[][2] = {[OPTIMIZER_ADAMW] = {"adamw.m", "adamw.v"},
                                           [OPTIMIZER_LION] = {"lion.m", NULL},
                                           [OPTIMIZER_SGD] = {"sgd.m", NULL}};
    enum dtype sum = dtype_accumulate(e->dtype);
    size_t n = 0;
    group[n++] = (struct state_group){NAMES[e->optimizer.name][0], sum, a->m};
    if (a->v)
        group[n++] = (struct state_group){NAMES[e->optimizer.name][1], sum, a->v};
    if (a->remainder)
        group[n++] = (struct state_group){"remainder", DTYPE_U16, a->remainder};
    return n;
}

static trireme_status write_files(const struct engine *e, const struct tokenizer *tokenizer,
                                  struct directory *directory, const struct state_progress *progress,
                                  trireme_error *error) {
    struct addresses a = addresses_of(e);
    struct model_memory memory = memory_of(e, &a);
    struct state_group group[MAX_GROUPS];
    size_t groups = groups_of(e, &a, group);
    trireme_status status = model_files_save(directory, &e->model, &e->table, &memory, 0, error);
    if (status == TRIREME_OK)
        status = state_files_save(directory, &e->table, group, groups, progress, error);
    if (status == TRIREME_OK && tokenizer)
        status = tokenizer_save(tokenizer, directory_path(directory), error);
    addresses_release(&a);
    return status;
}

trireme_status checkpoint_save(const struct engine *e, const struct tokenizer *tokenizer, const char *run_directory,
                               const struct state_progress *progress, size_t keep, trireme_error *error) {
    char *parent = mem_printf("%s/checkpoint", run_directory);
    char *path = mem_printf("%s/step-%lld", parent, (long long)progress->step);
    struct directory *directory = NULL;
    trireme_status status = directory_begin(path, DIRECTORY_SET_ASIDE, &directory, error);
    if (status == TRIREME_OK) {
        status = write_files(e, tokenizer, directory, progress, error);
        if (status == TRIREME_OK)
            status = directory_commit(directory, error);
        else
            directory_abort(directory);
    }
    if (status == TRIREME_OK && keep)
        status = directory_prune(parent, "step-", keep, NULL, error);
    free(path);
    free(parent);
    return status;
}

trireme_status checkpoint_load(struct engine *e, const char *directory, const struct state_progress *progress,
                               trireme_error *error) {
    struct addresses a = addresses_of(e);
    // The remainders come from the training state: the model's files hold the rounded weights.
    struct model_memory memory = {e->dtype, a.parameter, NULL};
    struct state_group group[MAX_GROUPS];
    size_t groups = groups_of(e, &a, group);
    trireme_status status = model_files_load(directory, &e->model, &e->table, &memory, true, error);
    if (status == TRIREME_OK)
        status = state_files_load(directory, &e->table, group, groups, error);
    if (status == TRIREME_OK) {
        *(double *)engine_address(e, e->train.optimizer.t, 0) = (double)progress->updates;
        engine_constants(e);
    }
    addresses_release(&a);
    return status;
}

trireme_status checkpoint_load_model(struct engine *e, const char *directory, bool exact, trireme_error *error) {
    struct addresses a = addresses_of(e);
    struct model_memory memory = memory_of(e, &a);
    trireme_status status = model_files_load(directory, &e->model, &e->table, &memory, exact, error);
    addresses_release(&a);
    if (status == TRIREME_OK)
        engine_constants(e);
    return status;
}

// A directory of ours is verified; another program's has no manifest.
static trireme_status verify_model(const char *path, trireme_error *error) {
    char *manifest = mem_printf("%s/" MANIFEST_NAME, path);
    bool ours = access(manifest, F_OK) == 0;
    free(manifest);
    return ours ? directory_verify(path, DIRECTORY_CONTENT, error) : TRIREME_OK;
}

static bool is_directory(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

trireme_status checkpoint_resolve(const char *path, char **out, trireme_error *error) {
    char *config = mem_printf("%s/config.json", path);
    bool is_model = access(config, R_OK) == 0;
    free(config);
    if (is_model) {
        TRY(verify_model(path, error));
        *out = mem_strdup(path);
        return TRIREME_OK;
    }
    char *parent = mem_printf("%s/checkpoint", path);
    struct directory_search search = {0};
    trireme_status status = TRIREME_OK;
    if (is_directory(parent))
        status = directory_newest(parent, "step-", DIRECTORY_CONTENT, &search, error);
    free(parent);
    TRY(status);
    // An older model in place of the one that was asked for would be a silent answer to another question.
    if (search.skipped.count && search.path)
        status = error_set(error, TRIREME_ERROR_CORRUPT, "%s; the newest complete checkpoint is %s",
                           search.skipped.item[0].reason, search.path);
    else if (search.skipped.count)
        status = error_set(error, TRIREME_ERROR_CORRUPT, "%s", search.skipped.item[0].reason);
    else if (search.path)
        *out = mem_strdup(search.path);
    else
        status = error_set(error, TRIREME_ERROR_USAGE,
                           "%s is neither a model (it has no config.json) nor a run with a complete checkpoint", path);
    directory_search_release(&search);
    return status;
}
