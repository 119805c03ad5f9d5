// parallel/: how a step is spread over ranks: plans, and what they add to programs or rewrite in them. Runs nothing.
// Includes base/, config/, mesh/, pipeline/, program/, model/, optim/.
//
// A plan is all that parallel/ and compile/ need to make one rank's programs. All ranks of a pipeline stage have the
// same plan.
#ifndef PARALLEL_PARALLEL_H
#define PARALLEL_PARALLEL_H

#include "model/split.h"
#include "pipeline/schedule_store.h"
#include "program/places.h"

struct parallel {
    struct mesh mesh;
    struct model_split split;
    // What is sharded: 0 nothing, 1 optimizer states, 2 also gradients, 3 also parameters (Rajbhandari et al., "ZeRO",
    // 2020, section 5); and for each class of units over which of the data axes. Along the others its shards are
    // replicas. A class without such ranks has nothing sharded; zero_stage is 0 where no class has any.
    int zero_stage;
    axis_set shards[CLASS_COUNT];
    enum config_context_parallel_method context;
    int64_t layout;           // of sequences that ranks share (program/places.h)
    axis_set exchange;        // of AXES_PARTS: along these ranks exchange tokens for heads; together they have one part
    bool reduce_bf16;         // gradients travel as bf16
    bool overlap;             // tensor ranks exchange inputs' gradients while they compute weights' gradients
    int prefetch;             // ZeRO-3: units gathered ahead of the one in use; -1: by their bytes (data_gather)
    int unit_layers;          // layers that are one unit; 0: attention and MLP of a layer are two units
    struct batch_shape batch; // of training; the schedule is made for its microbatches
    int stage;                // this program's coordinate on AXIS_PP
    // NULL without a pipeline: the only stage has all layers. Owned.
    struct schedule *schedule;
    int *first_layer; // of each virtual stage; [stages * chunks + 1], the last is the number of layers. Owned
    // How many of each virtual stage's first layers are recomputed in full, and how many of those that follow
    // selectively; [stages * chunks]. NULL: the mode of the whole model holds for all layers. Owned.
    int *full_layers, *selective_layers;
};

enum { PARALLEL_MAX_RANKS = 1 << 20 };

// The axes along which ranks have other parts of sequences: attention goes from part to part.
static inline axis_set parallel_parts(const struct parallel *parallel) {
    return mesh_present(&parallel->mesh, AXES_PARTS & ~parallel->exchange);
}
// Which tokens of a sequence of `seq_len` the parts are; places beyond it are padding. Ranks that exchange have equally
// many rows of their part, one after another.
static inline struct places parallel_places(const struct parallel *parallel, int64_t seq_len) {
    const int64_t parts = mesh_group_size(&parallel->mesh, parallel_parts(parallel));
    return places_shared(parallel->layout, parts, mesh_group_size(&parallel->mesh, parallel->exchange), seq_len);
}
// How many rows of a sequence a rank has, with those of padding.
static inline int64_t parallel_rows(const struct parallel *parallel, int64_t seq_len) {
    return parallel_places(parallel, seq_len).rows / mesh_group_size(&parallel->mesh, parallel->exchange);
}

// Chunks of each rank, and virtual stages of all ranks together.
static inline int parallel_chunks(const struct parallel *parallel) {
    return parallel->schedule ? parallel->schedule->chunks : 1;
}
static inline int parallel_virtual_stages(const struct parallel *parallel) {
    return parallel->mesh.degree[AXIS_PP] * parallel_chunks(parallel);
}

// The plan that a configuration asks for, with stage 0. Refuses (TRIREME_ERROR_USAGE) degrees that do not multiply to
// the ranks, a batch that does not split, more stages than layers, and schedules that are wrong. Slow where a schedule
// is searched for: call it once, and give each rank a copy (parallel_copy).
trireme_status parallel_resolve(struct parallel *out, const struct config *config, const struct model_config *model,
                                trireme_error *error);
// The same, taking schedules from the store `made` where it has them, and adding those that it lacks. NULL: no store.
trireme_status parallel_resolve_from(struct parallel *out, struct schedule_store *made, const struct config *config,
                                     const struct model_config *model, trireme_error *error);
// Refuses what parallel_resolve would refuse on `ranks` ranks whatever values the keys that are not set will have. The
// product of the degrees that are set divides the ranks.
trireme_status parallel_check(const struct config *config, const struct model_config *model, int ranks,
                              trireme_error *error);
// How many ranks the degrees that are given of these axes make; one that is -1 counts as 1.
int64_t parallel_given(const struct config *config, axis_set axes);
// How many rows of a sequence each rank has with the degrees that are given.
int64_t parallel_given_rows(const struct config *config, const struct model_config *model);
// Refuses a limit of activations beside a schedule that has none to be set.
trireme_status parallel_check_limit(const struct config *config, trireme_error *error);
// The layers of each virtual stage of a pipeline. The caller frees.
int *parallel_layers(const struct parallel *parallel, int *stages);
struct parallel parallel_copy(const struct parallel *parallel);
void parallel_release(struct parallel *parallel);
// Which of the model's units (parameter_table) the stage has, [units]; NULL: all. The caller frees.
bool *parallel_sections(const struct parallel *parallel, size_t units);
// Which units the stage joins with others (split.h), [units], never across chunks; NULL: none. The caller frees.
int *parallel_joined(const struct parallel *parallel, size_t units);

// The index of the part of the vocabulary that a rank has.
int parallel_vocabulary_index(const struct parallel *parallel, int rank);

// The plan of a single rank, for a batch of one token.
struct parallel parallel_single(const struct model_config *config);

#endif
