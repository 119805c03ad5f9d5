#include "run/checkpoint_facts.h"

#include "ckpt/safetensors.h"
#include "ckpt/state_files.h"
#include "ckpt/tree.h"
#include "run/checkpoint.h"

#include <errno.h>
#include <math.h>
#include <sys/stat.h>

// The manifest is written last.
static double facts_time(const char *path) {
    static const char *const NAMES[] = {MANIFEST_NAME, "config.json"};
    double time = NAN;
    for (size_t i = 0; i < ARRAY_LENGTH(NAMES) && isnan(time); i++) {
        char *file = mem_printf("%s/%s", path, NAMES[i]);
        struct stat st;
        if (stat(file, &st) == 0)
            time = (double)st.st_mtim.tv_sec + 1e-9 * (double)st.st_mtim.tv_nsec;
        free(file);
    }
    return time;
}

// False where not all can be listed: other programs have directories of links.
static bool facts_bytes(const char *path, struct checkpoint_facts *out) {
    struct tree tree = {0};
    trireme_error ignored;
    if (tree_list(path, &tree, &ignored) != TRIREME_OK)
        return false;
    for (size_t i = 0; i < tree.entry.count; i++) {
        char *file = mem_printf("%s/%s", path, tree.entry.item[i].name);
        struct stat st;
        if (!tree.entry.item[i].directory && stat(file, &st) == 0)
            *(state_files_own(tree.entry.item[i].name) ? &out->state_bytes : &out->model_bytes) += st.st_size;
        free(file);
    }
    tree_release(&tree);
    return true;
}

// `whole`: the bytes of all files are known already.
static void facts_model(const char *path, bool whole, struct checkpoint_facts *out) {
    struct safetensors *files;
    trireme_error ignored;
    int64_t of_dtype[SAFETENSORS_DTYPES] = {0}, most = 0;
    if (safetensors_open(path, &files, &ignored) != TRIREME_OK)
        return;
    out->parameters = 0;
    for (size_t i = 0; i < files->tensor.count; i++) {
        const struct safetensors_tensor *t = &files->tensor.item[i];
        const int64_t count = (int64_t)(8 * t->bytes / safetensors_dtype_bits(t->dtype));
        out->parameters += count;
        of_dtype[t->dtype] += count;
    }
    for (size_t i = 0; i < files->file.count && !whole; i++)
        out->model_bytes += (int64_t)files->file.item[i].bytes;
    for (int i = 0; i < SAFETENSORS_DTYPES; i++)
        if (of_dtype[i] > most) {
            most = of_dtype[i];
            out->dtype = safetensors_dtype_name(i);
        }
    safetensors_close(files);
}

void checkpoint_facts_read(const struct directory_numbered *checkpoint, struct checkpoint_losses *losses,
                           struct checkpoint_facts *out) {
    struct checkpoint_losses none = {0};
    trireme_error why;
    char *manifest = mem_printf("%s/" MANIFEST_NAME, checkpoint->path);
    *out = (struct checkpoint_facts){.step = checkpoint->number,
                                     .time = facts_time(checkpoint->path),
                                     .parameters = -1,
                                     .val_loss = checkpoint_loss(losses ? losses : &none, checkpoint)};
    facts_model(checkpoint->path, facts_bytes(checkpoint->path, out), out);
    const bool checked = checkpoint->number >= 0 || !file_missing(manifest);
    if (checked && directory_verify(checkpoint->path, MANIFEST_SIZES, NULL, &why) != TRIREME_OK)
        out->damage = mem_strdup(why.message);
    free(manifest);
}

// ---- where checkpoints are

static bool place_has(const char *path, const char *name) {
    char *full = mem_printf("%s/%s", path, name);
    struct stat st;
    const bool has = stat(full, &st) == 0;
    free(full);
    return has;
}

static bool is_run(const char *path) {
    return place_has(path, "config.yaml") || place_has(path, "metrics.jsonl");
}

// Takes over `run` if that is a run's directory.
static void place_take_run(struct checkpoint_place *place, char *run) {
    if (is_run(run))
        place->run = run;
    else
        free(run);
}

static void place_take_one(struct checkpoint_place *place, const char *path) {
    struct state_progress progress;
    trireme_error ignored;
    const bool says = state_files_progress(path, &progress, &ignored) == TRIREME_OK;
    VEC_PUSH(&place->list, (struct directory_numbered){says ? progress.step : -1, mem_strdup(path)});
    if (says)
        state_progress_release(&progress);
    place_take_run(place, mem_printf("%s/../..", path));
}

trireme_status checkpoint_place_find(const char *path, struct checkpoint_place *out, trireme_error *error) {
    struct stat st;
    *out = (struct checkpoint_place){0};
    if (stat(path, &st) != 0)
        FAIL(TRIREME_ERROR_USAGE, "%s: %s", path, errno == ENOENT ? "no such directory" : strerror(errno));
    if (!S_ISDIR(st.st_mode))
        FAIL(TRIREME_ERROR_USAGE, "%s is a file: give the directory of a run or of a checkpoint", path);
    if (place_has(path, "config.json") || place_has(path, "adapter_config.json") || place_has(path, MANIFEST_NAME)) {
        place_take_one(out, path);
        return TRIREME_OK;
    }
    out->parent = place_has(path, "checkpoint") ? mem_printf(CHECKPOINTS_PATH, path) : mem_strdup(path);
    place_take_run(out, strcmp(out->parent, path) ? mem_strdup(path) : mem_printf("%s/..", path));
    const trireme_status status = directory_list(out->parent, &out->list, error);
    if (status == TRIREME_OK && (out->list.count || is_run(path) || strcmp(out->parent, path)))
        return TRIREME_OK;
    checkpoint_place_release(out);
    TRY(status);
    FAIL(TRIREME_ERROR_USAGE, "%s is neither a run, nor does it hold checkpoints, nor is it one, or a model", path);
}

void checkpoint_place_release(struct checkpoint_place *place) {
    directory_list_release(&place->list);
    free(place->run);
    free(place->parent);
    *place = (struct checkpoint_place){0};
}
