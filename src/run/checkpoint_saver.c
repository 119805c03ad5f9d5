#include "run/checkpoint_saver.h"

#include "ckpt/model_files.h"
#include "ckpt/output.h"
#include "launch/ranks.h"
#include "run/checkpoint.h"
#include "run/island.h"
#include "run/kept_values.h"

#include <errno.h>
#include <sys/stat.h>

// What is saved in one case: how the files lie, and which values they have.
struct saved_set {
    bool exchanged; // what islands exchange, too
    struct image image;
    VEC(struct save_values) values;
    int *group; // [kept], of the values
};

struct checkpoint_saver {
    const struct engine *engine;
    const struct tokenizer_files *tokenizer;
    struct communicator *all;
    struct whole whole;
    struct kept_values kept;
    struct holdings own;
    struct holders holders;
    int *parameters, *remainders; // [islands]: groups of the model's values
    int *anchors;                 // [islands]: the same, where there is an outer optimizer
    double *weight;               // [islands]
    // While islands exchange nothing, and, where that may be, while they do. Who writes what of each.
    size_t sets;
    struct saved_set set[2];
    struct save_plan plan[2];
    struct saver *saver;
    // The save that is under way.
    size_t now; // its set
    char *path;
    struct saver_hooks hooks;
    struct state_progress progress;
    struct directory *directory; // rank 0's
    bool hangs;                  // it has not ended in time
    char doing[SAVER_WHAT];
};

// ---- files

// The model's parameters: where there is an outer optimizer, what it has come to, which islands share or of which this
// is the mean; else the mean of all islands' master weights.
static struct save_values values_of_model(const struct checkpoint_saver *s) {
    const int islands = s->whole.islands;
    for (int i = 0; i < islands; i++) {
        s->parameters[i] = kept_values_find(&s->kept, ENGINE_PARAMETERS, i);
        s->remainders[i] = kept_values_find(&s->kept, ENGINE_REMAINDERS, i);
        s->anchors[i] = kept_values_find(&s->kept, ENGINE_OUTER_ANCHOR, i);
    }
    const bool anchors = s->anchors[0] != NONE, shared = anchors && s->kept.item[s->anchors[0]].island == EVERY_ISLAND;
    return (struct save_values){.dtype = s->engine->stage->state.dtype,
                                .masters = anchors,
                                .terms = shared ? 1 : islands,
                                .group = anchors ? s->anchors : s->parameters,
                                .remainder = !anchors && islands > 1 && s->remainders[0] != NONE ? s->remainders : NULL,
                                .weight = s->weight};
}

// Those of them that are not trained.
static struct save_values values_of_frozen(const struct checkpoint_saver *s) {
    return (struct save_values){.dtype = s->engine->stage->state.dtype, .terms = 1, .group = s->parameters};
}

static trireme_status saved_set_declare(const struct checkpoint_saver *s, struct saved_set *set, trireme_error *error) {
    const struct engine *e = s->engine;
    set->group = mem_alloc(s->kept.count * sizeof *set->group);
    VEC_PUSH(&set->values, values_of_model(s));
    VEC_PUSH(&set->values, values_of_frozen(s));
    // PEFT reads adapters of one file.
    struct image_set *model =
        image_add(&set->image, model_files_stem(e->model), e->model->lora.rank > 0 ? INT64_MAX : 0);
    TRY(model_files_declare(model, e->model, e->table, set->values.item[0].dtype, 0, 1, error));
    struct image_set *state = image_add(&set->image, STATE_STEM, 0);
    for (size_t i = 0; i < s->kept.count; i++) {
        const struct kept *kept = &s->kept.item[i];
        if (!kept_is_state(kept, set->exchanged))
            continue;
        set->group[i] = (int)i;
        TRY(state_files_declare(state, e->table, kept->name, kept->dtype, kept->has, (int)set->values.count, error));
        VEC_PUSH(&set->values, (struct save_values){.dtype = kept->dtype, .terms = 1, .group = &set->group[i]});
    }
    return image_place(&set->image, error);
}

static bool saver_may_exchange(const struct checkpoint_saver *s) {
    for (size_t i = 0; i < s->kept.count; i++)
        if (s->kept.item[i].only_exchanged)
            return true;
    return false;
}

// Both sets are planned from the start, so that saves take no memory and start no threads.
static trireme_status saver_make_plans(struct checkpoint_saver *s, trireme_error *error) {
    const struct engine *e = s->engine;
    s->sets = saver_may_exchange(s) ? 2 : 1;
    for (size_t i = 0; i < s->sets; i++) {
        struct saved_set *set = &s->set[i];
        set->exchanged = i > 0;
        TRY(saved_set_declare(s, set, error));
        save_plan_create(&s->plan[i], &set->image, &s->holders, &s->own, set->values.item, e->member.rank,
                         SAVE_BLOCK_BYTES);
    }
    return TRIREME_OK;
}

// ---- rank 0's part

static trireme_status saver_open_directory(void *user, char **path, trireme_error *error) {
    struct checkpoint_saver *s = user;
    trireme_status status;
    if (s->hooks.before_open)
        TRY(s->hooks.before_open(s->hooks.user, error));
    TRY(directory_begin(s->path, DIRECTORY_SET_ASIDE, &s->directory, error));
    *path = mem_strdup(directory_path(s->directory));
    char *folder = mem_printf("%s/" STATE_FOLDER, *path);
    status = mkdir(folder, 0777) == 0
                 ? TRIREME_OK
                 : error_set(error, TRIREME_ERROR_IO, "%s: cannot create: %s", folder, strerror(errno));
    free(folder);
    return status;
}

static void saver_discard_directory(void *user) {
    struct checkpoint_saver *s = user;
    directory_abort(s->directory);
    s->directory = NULL;
}

static void saver_record_blocks(struct checkpoint_saver *s, const uint64_t *sum) {
    const struct image *image = &s->set[s->now].image;
    const struct save_plan *plan = &s->plan[s->now];
    for (size_t i = 0; i < image_files(image); i++) {
        const struct safetensors_planned *planned = image_file(image, i);
        struct checksum_file file = {.name = planned->name, .bytes = planned->bytes, .block_bytes = SAVE_BLOCK_BYTES};
        for (size_t b = 0; b < plan->block.count; b++)
            if (plan->block.item[b].file == i)
                VEC_PUSH(&file.block, sum[b]);
        directory_record(s->directory, &file);
        VEC_RELEASE(&file.block);
    }
}

static trireme_status saver_write_index(const struct checkpoint_saver *s, const struct safetensors_layout *layout,
                                        trireme_error *error) {
    struct text text = {0};
    char *name = mem_printf("%s.safetensors.index.json", layout->stem);
    safetensors_layout_index(layout, &text);
    trireme_status status = output_write(directory_path(s->directory), name, text.text, text.length, error);
    text_release(&text);
    free(name);
    return status;
}

static trireme_status saver_write_rest(struct checkpoint_saver *s, trireme_error *error) {
    const struct engine *e = s->engine;
    const char *path = directory_path(s->directory);
    TRY(model_files_write_config(s->directory, e->model, e->stage->state.dtype, error));
    const struct image *image = &s->set[s->now].image;
    for (size_t i = 0; i < image->set.count; i++)
        TRY(saver_write_index(s, &image->set.item[i].layout, error));
    TRY(state_files_write_progress(path, &s->progress, error));
    return tokenizer_files_write(s->tokenizer, path, error);
}

static trireme_status saver_publish_directory(void *user, const uint64_t *sum, trireme_error *error) {
    struct checkpoint_saver *s = user;
    trireme_status status = saver_write_rest(s, error);
    if (status == TRIREME_OK && s->hooks.before_commit)
        status = s->hooks.before_commit(s->hooks.user, error);
    if (status != TRIREME_OK) {
        saver_discard_directory(s);
        return status;
    }
    saver_record_blocks(s, sum);
    status = directory_commit(s->directory, error);
    s->directory = NULL;
    if (status == TRIREME_OK && s->hooks.after_commit)
        s->hooks.after_commit(s->hooks.user);
    return status;
}

// ---- the rank's thread

trireme_status checkpoint_saver_create(struct checkpoint_saver **out, const struct engine *e,
                                       const struct tokenizer_files *tokenizer, int64_t buffer_bytes,
                                       trireme_error *error) {
    struct checkpoint_saver *s = mem_alloc(sizeof *s);
    *s = (struct checkpoint_saver){.engine = e, .tokenizer = tokenizer};
    const struct member *member = e->member.world ? &e->member : NULL;
    trireme_status status = ranks_open(&s->all, member, mesh_ranks(&e->parallel->mesh), "checkpoint", error);
    whole_create(&s->whole, e);
    kept_values_create(&s->kept, &s->whole, s->whole.islands);
    s->parameters = mem_alloc((size_t)s->whole.islands * sizeof *s->parameters);
    s->remainders = mem_alloc((size_t)s->whole.islands * sizeof *s->remainders);
    s->anchors = mem_alloc((size_t)s->whole.islands * sizeof *s->anchors);
    s->weight = mem_alloc((size_t)s->whole.islands * sizeof *s->weight);
    kept_values_own(&s->own, &s->kept, &s->whole, WHOLE_SAVE);
    if (status == TRIREME_OK)
        status = holders_gather(&s->holders, &e->parallel->mesh, &s->own, s->all, e->member.world, error);
    if (status == TRIREME_OK)
        status = saver_make_plans(s, error);
    if (status == TRIREME_OK)
        status = saver_create(&s->saver, s->plan, s->sets, s->all, buffer_bytes, error);
    if (status == TRIREME_OK)
        *out = s;
    else
        checkpoint_saver_free(s);
    return status;
}

// All alike where it is not known how far they have come.
static void saver_weigh(struct checkpoint_saver *s, const struct island_progress *islands) {
    double total = 0;
    for (int i = 0; i < islands->islands; i++)
        total += s->weight[i] = island_weight(s->engine->stages->config, islands, i);
    for (int i = 0; i < s->whole.islands; i++)
        s->weight[i] = total > 0 ? s->weight[i] / total : 1.0 / s->whole.islands;
}

static struct state_progress progress_copy(const struct state_progress *from) {
    struct state_progress copy = *from;
    copy.config = from->config ? mem_strdup(from->config) : NULL; // where this rank knows it
    copy.data = from->data ? mem_strdup(from->data) : NULL;
    copy.islands = from->islands ? mem_strdup(from->islands) : NULL;
    return copy;
}

void checkpoint_saver_begin(struct checkpoint_saver *s, const char *run_directory,
                            const struct state_progress *progress, const struct saver_hooks *hooks) {
    struct island_progress islands = {0};
    if (progress->islands)
        CHECK(island_progress_parse(progress->islands, &islands) && islands.islands == s->whole.islands);
    saver_weigh(s, &islands);
    s->now = s->sets > 1 && islands.under_way != NONE;
    island_progress_release(&islands);
    state_progress_release(&s->progress);
    s->progress = progress_copy(progress);
    free(s->path);
    s->path = mem_printf(CHECKPOINT_PATH, run_directory, (long long)progress->step);
    s->hooks = hooks ? *hooks : (struct saver_hooks){0};
    const struct saver_work work = {s, saver_open_directory, saver_publish_directory, saver_discard_directory};
    saver_begin(s->saver, &s->plan[s->now], &work);
}

bool checkpoint_saver_await_copied(struct checkpoint_saver *s, double seconds) {
    s->hangs = !saver_await_copied(s->saver, seconds);
    return !s->hangs;
}

bool checkpoint_saver_is_copied(const struct checkpoint_saver *s) {
    return saver_is_copied(s->saver);
}

bool checkpoint_saver_has_room(const struct checkpoint_saver *s) {
    return saver_has_room(s->saver);
}

bool checkpoint_saver_await_end(struct checkpoint_saver *s, double seconds) {
    s->hangs = !saver_await_end(s->saver, seconds);
    return !s->hangs;
}

const char *checkpoint_saver_doing(struct checkpoint_saver *s) {
    saver_what(s->saver, s->doing);
    return s->doing;
}

bool checkpoint_saver_hangs(const struct checkpoint_saver *s) {
    return s->hangs;
}

bool checkpoint_saver_is_done(const struct checkpoint_saver *s) {
    return saver_is_done(s->saver);
}

trireme_status checkpoint_saver_end(struct checkpoint_saver *s, trireme_error *error) {
    return saver_end(s->saver, error);
}

void checkpoint_saver_free(struct checkpoint_saver *s) {
    if (!s)
        return;
    saver_free(s->saver);
    for (size_t i = 0; i < s->sets; i++) {
        save_plan_release(&s->plan[i]);
        image_release(&s->set[i].image);
        VEC_RELEASE(&s->set[i].values);
        free(s->set[i].group);
    }
    kept_values_release(&s->kept);
    holders_release(&s->holders);
    holdings_release(&s->own);
    whole_release(&s->whole);
    state_progress_release(&s->progress);
    communicator_free(s->all);
    free(s->path);
    free(s->parameters);
    free(s->remainders);
    free(s->anchors);
    free(s->weight);
    free(s);
}
