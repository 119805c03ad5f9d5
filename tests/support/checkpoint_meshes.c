#include "support/checkpoint_meshes.h"
#include "support/mesh_keys.h"
#include "support/meshes.h"
#include "support/sanitized.h"

#include "ckpt/tree.h"
#include "engine/outer_step.h"
#include "launch/ranks.h"
#include "run/checkpoint.h"
#include "run/island.h"

#include <math.h>
#include <unistd.h>

enum { BEFORE = 3, AFTER = 20, AFTER_IN_SHORT = 5, SEQUENCES = 8, SEQ_LEN = 35, ISLANDS = 2, RANKS = 8 };
#define RATE 3e-3

// No power fails here, and there are hundreds of files.
int fsync(int file) {
    (void)file;
    return 0;
}
int fdatasync(int file) {
    (void)file;
    return 0;
}

#define PLAIN "parallelism.sequence_parallel=false"
#define SPREAD "parallelism.vocabulary_parallel=true"

static const struct mesh_kind {
    int ranks;
    const char *key[6];
} MESHES[] = {
    {1, {NULL}},
    {2, {DP "2", ZERO "0"}},
    {4, {FSDP "2", ZERO "1", TP "2", PLAIN}},
    {4, {FSDP "4", ZERO "2"}},
    {8, {FSDP "8", ZERO "3"}},
    {3, {TP "3", PLAIN}},
    {3, {PP "3", ZERO "0"}},
    {4, {TP "2", PP "2", SPREAD, PLAIN}},
    {5, {CP "5", ZERO "3"}},
    {7, {CP "7", ZERO "0"}},
    {6, {DP "2", PP "3"}},
    {8, {FSDP "2", TP "2", PP "2", ZERO "3", PLAIN}},
};
enum { COUNT = ARRAY_LENGTH(MESHES) };

// Three heads, of which two ranks have two and one; 61 tokens, so that there is padding.
#define GPT2                                                                                                      \
    "{\"model_type\":\"gpt2\",\"n_layer\":3,\"n_head\":3,\"n_embd\":12,\"n_positions\":80,\"vocab_size\":61,\"n_" \
    "inner\":50}"
#define LLAMA                                                                                        \
    "{\"model_type\":\"llama\",\"num_hidden_layers\":3,\"hidden_size\":12,\"intermediate_size\":20," \
    "\"num_attention_heads\":6,\"num_key_value_heads\":3,\"vocab_size\":61,\"max_position_embeddings\":80}"

static const struct variant {
    const char *model, *dtype, *optimizer;
    double apart; // relative
    const char *method;
    int islands, delay;
} VARIANTS[KEPT_STATES] = {
    [KEPT_GPT2] = {GPT2, "f64", "adamw", 1e-9, "none", 1, 0},
    [KEPT_LLAMA_MUON] = {LLAMA, "f64", "muon", 1e-9, "none", 1, 0},
    [KEPT_LLAMA_F32] = {LLAMA, "f32", "adamw", 2e-4, "none", 1, 0},
    [KEPT_GPT2_BF16] = {GPT2, "bf16", "adamw", 2e-2, "none", 1, 0},
    [KEPT_ISLANDS] = {GPT2, "f64", "adamw", 1e-9, "diloco", ISLANDS, 0},
    [KEPT_ISLANDS_SETTLES] = {LLAMA, "f64", "adamw", 1e-9, "streaming_diloco", ISLANDS, 2},
};

// The losses of each island.
struct losses {
    double of[ISLANDS][AFTER];
};

struct trial {
    const struct variant *variant;
    const char *folder;
    struct model_config model;
    struct batch batch[BEFORE + AFTER];
    struct config config;
    int after;      // steps
    int mesh, from; // which are under way
    bool loads[COUNT];
    struct losses expected[COUNT], found[COUNT]; // by the mesh that has saved
};

// ---- on each rank

static int island_of_rank(const struct engine *e) {
    return mesh_index(&e->parallel->mesh, e->member.rank, AXES_ISLAND);
}

// Islands meet after every fourth step, the second one first. With a delay they settle on what they took two steps
// later: what was taken in the second step settles in the fourth, after the checkpoint.
static trireme_status islands_meet(const struct trial *t, struct engine *e, int step, trireme_error *error) {
    if (t->variant->islands == 1)
        return TRIREME_OK;
    if (t->variant->delay && step % 4 == (2 + t->variant->delay) % 4 && step > 2)
        TRY(outer_step_end(e, 0, error));
    if (step % 4 != 2)
        return TRIREME_OK;
    return outer_step_begin(e, 0, 1 + island_of_rank(e), error);
}

// Steps [first, first + count), counted from 1.
static trireme_status train_steps(const struct trial *t, struct engine *e, int first, int count, struct losses *losses,
                                  trireme_error *error) {
    const struct mesh *mesh = &e->parallel->mesh;
    for (int step = first; step < first + count; step++) {
        struct engine_result r;
        mesh_fill(e, PROGRAM_TRAIN, &t->batch[step - 1]);
        TRY(engine_step(e, RATE, NULL, &r, error));
        if (!r.finite)
            FAIL(TRIREME_ERROR_PROGRAM, "step %d was not done", step);
        TRY(islands_meet(t, e, step, error));
        if (losses && mesh_index(mesh, e->member.rank, AXES_WITHIN) == 0)
            losses->of[island_of_rank(e)][step - first] = r.loss;
    }
    return TRIREME_OK;
}

// The caller releases it.
static struct state_progress progress_now(const struct trial *t) {
    struct state_progress p = {.step = BEFORE, .updates = BEFORE, .config = mem_strdup("")};
    struct island_progress islands = {.islands = ISLANDS,
                                      .fragments = 1,
                                      .under_way = t->variant->delay ? 0 : NONE,
                                      .settles = t->variant->delay ? 2 + t->variant->delay : 0,
                                      .weight = (double[]){1, 2},
                                      .updates = (int64_t[]){BEFORE, BEFORE},
                                      .targets = (double[]){1, 2}};
    if (t->variant->islands > 1)
        p.islands = island_progress_print(&islands);
    return p;
}

static trireme_status trial_save(const struct trial *t, const struct engine *e, const char *name,
                                 trireme_error *error) {
    const struct tokenizer_files none = {0};
    char *directory = mem_printf("%s/%s", t->folder, name);
    struct state_progress progress = progress_now(t);
    trireme_status status = checkpoint_save(e, &none, directory, &progress, error);
    state_progress_release(&progress);
    free(directory);
    return status;
}

// Trains, saves, and goes on.
static trireme_status save_and_go_on(void *user, const struct member *member, trireme_error *error) {
    struct trial *t = user;
    struct engine e;
    char name[16];
    snprintf(name, sizeof name, "%d", t->mesh);
    TRY(engine_create(&e, &t->config, &t->model, NULL, TRAIN_ALONE, member, error));
    engine_initialise(&e, 1, NULL);
    outer_step_start(&e, ISLANDS);
    trireme_status status = train_steps(t, &e, 1, BEFORE, NULL, error);
    if (status == TRIREME_OK && t->variant->islands > 1)
        status = outer_step_wait(&e, 0, error);
    if (status == TRIREME_OK)
        status = trial_save(t, &e, name, error);
    if (status == TRIREME_OK)
        status = train_steps(t, &e, BEFORE + 1, t->after, &t->expected[t->mesh], error);
    engine_release(&e);
    return status;
}

// Whether two files have the same bytes, on the rank that looks.
static trireme_status file_compare(const struct trial *t, const char *name, trireme_error *error) {
    char *a = mem_printf("%s/%d/checkpoint/step-3/%s", t->folder, t->from, name), *x = NULL;
    char *b = mem_printf("%s/copy/checkpoint/step-3/%s", t->folder, name), *y = NULL;
    size_t length = 0, other = 0;
    trireme_status status = file_read(a, 1 << 26, &x, &length, error);
    if (status == TRIREME_OK)
        status = file_read(b, 1 << 26, &y, &other, error);
    if (status == TRIREME_OK && (length != other || memcmp(x, y, length) != 0))
        status = error_set(error, TRIREME_ERROR_CORRUPT, "mesh %d, from mesh %d: %s differs", t->mesh, t->from, name);
    free(a);
    free(b);
    free(x);
    free(y);
    return status;
}

// Loads what another mesh has saved, saves that again, and goes on. The values of before are still in memory.
static trireme_status load_and_go_on(struct trial *t, struct engine *e, struct communicator *control,
                                     trireme_error *error) {
    static const char *const FILES[] = {"model.safetensors", "training/state.safetensors"};
    char *path = mem_printf("%s/%d/checkpoint/step-3", t->folder, t->from);
    struct state_progress progress = progress_now(t);
    trireme_status status = checkpoint_load(e, control, path, &progress, error);
    state_progress_release(&progress);
    free(path);
    TRY(status);
    if (t->variant->delay)
        *(double *)engine_state(e, e->stage->state.outer.total) = 3;
    TRY(trial_save(t, e, "copy", error));
    TRY(ranks_meet(control, error));
    for (size_t i = 0; i < ARRAY_LENGTH(FILES) && e->member.rank == 0; i++)
        TRY(file_compare(t, FILES[i], error));
    return train_steps(t, e, BEFORE + 1, t->after, &t->found[t->from], error);
}

static trireme_status load_from_all(void *user, const struct member *member, trireme_error *error) {
    struct trial *t = user;
    struct engine e;
    struct communicator *control;
    TRY(engine_create(&e, &t->config, &t->model, NULL, TRAIN_ALONE, member, error));
    TRY(ranks_control(&control, member, mesh_ranks(&e.parallel->mesh), error));
    trireme_status status = TRIREME_OK;
    for (int from = 0; from < COUNT && status == TRIREME_OK; from++) {
        if (!t->loads[from])
            continue;
        status = ranks_meet(control, error);
        t->from = from; // the same on all
        if (status == TRIREME_OK)
            status = ranks_meet(control, error);
        if (status == TRIREME_OK)
            status = load_and_go_on(t, &e, control, error);
        if (status == TRIREME_OK && t->variant->islands > 1)
            status = outer_step_wait(&e, 0, error); // the next values are not to be mixed with what still arrives
    }
    communicator_free(control);
    engine_release(&e);
    return status;
}

// ---- all of it

static void trial_config(struct trial *t) {
    const struct variant *v = t->variant;
    const char *all[32] = {"training.threads=1",          "training.seq_len=35",   "training.global_batch_size=8",
                           "training.micro_batch_size=1", "training.max_norm=0.5", "optimizer.eps=1e-4"};
    size_t count = 6;
    char *own[] = {mem_printf("training.dtype=%s", v->dtype), mem_printf("optimizer.name=%s", v->optimizer),
                   mem_printf("parallelism.island_degree=%d", v->islands), mem_printf("outer.delay_steps=%d", v->delay),
                   mem_printf("outer.method=%s", v->method)};
    trireme_error error = {0};
    for (size_t i = 0; i < (v->islands > 1 ? 5 : 2); i++)
        all[count++] = own[i];
    if (strcmp(v->dtype, "f64") == 0)
        all[count++] = "training.kernels=reference"; // the only ones
    if (v->islands > 1) {
        all[count++] = "outer.sync_steps=4";
        all[count++] = "outer.fragments=1";
        all[count++] = "outer.codec=none"; // codes are of what a rank updates: another mesh rounds otherwise
    }
    for (const char *const *key = MESHES[t->mesh].key; *key; key++)
        all[count++] = *key;
    assert_ok(config_load(&t->config, NULL, all, count, &error), &error);
    for (size_t i = 0; i < ARRAY_LENGTH(own); i++)
        free(own[i]);
}

static void trial_run(struct trial *t, trireme_status (*body)(void *, const struct member *, trireme_error *)) {
    trireme_error error = {0};
    trial_config(t);
    if (ranks_run(MESHES[t->mesh].ranks * t->variant->islands, 60, body, t, &error) != TRIREME_OK)
        fail_msg("mesh %d: %s", t->mesh, error.message);
    config_release(&t->config);
}

static void compare_losses(const struct trial *t, int from) {
    const bool same = t->mesh == from;
    for (int i = 0; i < t->variant->islands; i++)
        for (int k = 0; k < t->after; k++) {
            const double a = t->found[from].of[i][k], b = t->expected[from].of[i][k];
            if (same ? a != b : !(fabs(a - b) <= t->variant->apart * fabs(b)))
                fail_msg("mesh %d, from mesh %d: loss %d of island %d is %.17g, expected %.17g", t->mesh, from, k, i, a,
                         b);
        }
}

static bool mesh_fits(const struct trial *t, int mesh) {
    if (SANITIZED && (mesh + (t->variant - VARIANTS)) % 3) // another third with each variant
        return false;
    return MESHES[mesh].ranks * t->variant->islands <= RANKS;
}

void checkpoint_meshes_check(const char *folder, enum kept_state kept, bool all) {
    struct trial t = {.variant = &VARIANTS[kept], .folder = folder, .after = all ? AFTER : AFTER_IN_SHORT};
    small_config(&t.model, t.variant->model);
    for (int i = 0; i < BEFORE + AFTER; i++)
        t.batch[i] = batch_create(SEQUENCES, SEQ_LEN, t.model.vocab_size, (uint64_t)(i + 1));
    for (t.mesh = 0; t.mesh < COUNT; t.mesh++)
        if (mesh_fits(&t, t.mesh))
            trial_run(&t, save_and_go_on);
    for (t.mesh = 0; t.mesh < COUNT; t.mesh++) {
        int other = (t.mesh + 5) % COUNT;
        while (!mesh_fits(&t, other))
            other = (other + 1) % COUNT;
        for (int from = 0; from < COUNT; from++)
            t.loads[from] = mesh_fits(&t, from) && (all || from == t.mesh || from == other);
        if (!mesh_fits(&t, t.mesh))
            continue;
        trial_run(&t, load_from_all);
        for (int from = 0; from < COUNT; from++)
            if (t.loads[from])
                compare_losses(&t, from);
    }
    for (int i = 0; i < BEFORE + AFTER; i++)
        batch_release(&t.batch[i]);
}
