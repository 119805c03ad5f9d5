// From the keys of a configuration to a plan.
#include "base/amount.h"
#include "model/state.h"
#include "optim/outer_schedule.h"
#include "parallel/context_choice.h"
#include "parallel/context_method.h"
#include "parallel/layout.h"

#include <unistd.h>

static const char LAYOUT_KEY[] = "parallelism.context_parallel_layout";

// One degree may be -1: what the others leave of the ranks.
struct degree {
    enum axis axis;
    const char *key;
    int64_t given;
};

static trireme_status find_degrees(const struct config *config, struct degree degree[], int degrees,
                                   trireme_error *error) {
    int64_t product = 1, ranks = config->parallelism.ranks;
    const char *open = NULL;
    int which = -1;
    for (int i = degrees; i-- > 0;) { // from the outermost on
        if (degree[i].given == 0)
            return config_refuse(config, degree[i].key, error, "expected 1 or more, or -1 for what the others leave");
        if (degree[i].given > 0) {
            product *= degree[i].given;
            if (product > PARALLEL_MAX_RANKS)
                return config_refuse(config, degree[i].key, error, "more than %d ranks in all", PARALLEL_MAX_RANKS);
            continue;
        }
        if (open)
            return config_refuse(config, degree[i].key, error, "but %s is -1 already", open);
        open = degree[i].key;
        which = i;
    }
    if (ranks == 0)
        ranks = product;
    if (which >= 0) {
        if (ranks % product)
            return config_refuse(config, "parallelism.ranks", error,
                                 "which the other degrees, %lld in all, do not divide", (long long)product);
        degree[which].given = ranks / product;
    } else if (product != ranks) {
        return config_refuse(config, "parallelism.ranks", error, "but the degrees multiply to %lld",
                             (long long)product);
    }
    return TRIREME_OK;
}

// The times of passes, to which some schedules are fitted, in floating-point operations of a layer and token: products
// with weights count once in each pass; attention, which has no weights, once in forward and twice in backward.
static struct schedule_times resolve_times_of(const struct config *config, const struct model_config *model,
                                              int stages) {
    double short_of = model_layers_flops(model, 1, 0), whole = model_layers_flops(model, 1, config->training.seq_len);
    double weights = short_of / 3, attention = (whole - short_of) / 3;
    struct schedule_times times = {
        .forward = weights + attention, .backward_input = weights + 2 * attention, .backward_weight = weights};
    double share[RECOMPUTE_MODES];
    layout_shares(config, stages, (int)model->num_hidden_layers, share);
    times.backward_input += share[CONFIG_RECOMPUTE_FULL] * times.forward;
    return times;
}

// The same for a rank's layers and its part of the vocabulary, where that is spread: the head runs forward and twice
// backward, where the backward for the weights is a pass of its own; embedding only moves rows.
static struct schedule_times spread_times_of(const struct config *config, const struct model_config *model, int ranks,
                                             int chunks) {
    struct schedule_times times = resolve_times_of(config, model, ranks * chunks);
    double head = (model_flops(model, 1, 0) - model_layers_flops(model, 1, 0)) / 3 / ranks;
    double *const layers[] = {&times.forward, &times.backward_input, &times.backward_weight};
    for (size_t i = 0; i < ARRAY_LENGTH(layers); i++)
        *layers[i] /= (double)ranks * chunks; // flops are of all layers
    times.loss = 2 * head;
    times.loss_weight = head;
    times.embed = times.embed_weight = .02 * times.forward;
    return times;
}

static trireme_status spread_vocabulary(struct schedule *schedule, const struct config *config,
                                        const struct model_config *model, trireme_error *error) {
    bool wanted = config->parallelism.vocabulary_parallel;
    if (schedule->vocabulary && !wanted)
        return config_refuse(config, "parallelism.pipeline_parallel_schedule", error,
                             "which has passes of a spread vocabulary: set vocabulary_parallel");
    if (wanted && !schedule->vocabulary) {
        struct schedule_times times = spread_times_of(config, model, schedule->stages, schedule->chunks);
        schedule_spread_vocabulary(schedule, &times);
    }
    return TRIREME_OK;
}

// The passes that a search may try: they take a fraction of a second.
enum { SEARCH_PASSES = 2000000 };

static bool has_limit(const struct schedule_kind *kind) {
    return kind && kind->properties & SCHEDULE_LIMIT;
}

trireme_status parallel_check_limit(const struct config *config, trireme_error *error) {
    const struct config_parallelism *p = &config->parallelism;
    if (!p->pipeline_parallel_activation_limit || has_limit(schedule_kind(p->pipeline_parallel_schedule)))
        return TRIREME_OK;
    return config_refuse(config, "parallelism.pipeline_parallel_activation_limit", error,
                         "but pipeline_parallel_schedule is %s: auto alone has a limit to be set",
                         p->pipeline_parallel_schedule);
}

// Reads what the keys say about a schedule besides its name; kind NULL: one from a file.
static trireme_status read_options(struct schedule_options *out, const struct config *config,
                                   const struct schedule_kind *kind, trireme_error *error) {
    const struct config_parallelism *p = &config->parallelism;
    trireme_error why = {0};
    *out = (struct schedule_options){.chunks = kind ? (int)p->pipeline_parallel_chunks : 0,
                                     .activation_limit = (int)p->pipeline_parallel_activation_limit,
                                     .search_passes = SEARCH_PASSES};
    if (kind && schedule_complete_chunks(kind, out, &why) != TRIREME_OK)
        return config_refuse(config, "parallelism.pipeline_parallel_chunks", error, "but %s", why.message);
    TRY(parallel_check_limit(config, error));
    if (has_limit(kind))
        out->weight_share = 1; // a slot is held until the weights' backward is done
    return TRIREME_OK;
}

// What can be checked before a schedule is made.
static trireme_status check_pipeline(struct schedule_options *options, const struct config *config,
                                     const struct model_config *model, int64_t stages, trireme_error *error) {
    TRY(read_options(options, config, schedule_kind(config->parallelism.pipeline_parallel_schedule), error));
    return layout_check(config, model, stages, MAX(1, options->chunks), error); // those of a file are not known yet
}

// Makes the schedule that the keys ask for, with the vocabulary spread where they say so; or takes it from the store.
static trireme_status make_schedule(struct schedule *out, struct schedule_store *store,
                                    const struct schedule_options *options, int stages, int microbatches,
                                    const struct config *config, const struct model_config *model,
                                    trireme_error *error) {
    const struct config_parallelism *p = &config->parallelism;
    const struct schedule_recipe recipe = {p->pipeline_parallel_schedule,
                                           stages,
                                           microbatches,
                                           *options,
                                           p->vocabulary_parallel,
                                           spread_times_of(config, model, stages, MAX(1, options->chunks))};
    struct schedule made;
    trireme_error why = {0};
    const bool stores = store && schedule_kind(recipe.name);
    if (stores && schedule_store_find(store, &recipe, out))
        return TRIREME_OK;
    if (schedule_load(&made, recipe.name, stages, microbatches, options, &why) != TRIREME_OK)
        return config_refuse(config, "parallelism.pipeline_parallel_schedule", error, "%s", why.message);
    const trireme_status status = spread_vocabulary(&made, config, model, error);
    if (status != TRIREME_OK) {
        schedule_release(&made);
        return status;
    }
    if (stores)
        schedule_store_add(store, &recipe, &made);
    *out = made;
    return TRIREME_OK;
}

static trireme_status find_schedule(struct parallel *out, struct schedule_store *store, const struct config *config,
                                    const struct model_config *model, trireme_error *error) {
    trireme_error why = {0};
    const struct config_parallelism *p = &config->parallelism;
    struct schedule_options options;
    TRY(check_pipeline(&options, config, model, out->mesh.degree[AXIS_PP], error));
    options.times = resolve_times_of(config, model, out->mesh.degree[AXIS_PP] * MAX(1, options.chunks));
    struct schedule *schedule = mem_alloc(sizeof *schedule);
    trireme_status status = make_schedule(schedule, store, &options, out->mesh.degree[AXIS_PP], out->batch.microbatches,
                                          config, model, error);
    if (status != TRIREME_OK) {
        free(schedule);
        return status;
    }
    out->schedule = schedule;
    if (p->pipeline_parallel_chunks && schedule->chunks != p->pipeline_parallel_chunks)
        return config_refuse(config, "parallelism.pipeline_parallel_chunks", error, "but %s has %d to a rank",
                             p->pipeline_parallel_schedule, schedule->chunks);
    if (schedule_check_messages(schedule, &why) != TRIREME_OK)
        return config_refuse(config, "parallelism.pipeline_parallel_schedule", error, "where %s", why.message);
    return TRIREME_OK;
}

// Later code counts the elements of a microbatch without checking for overflow.
static trireme_status check_countable(const struct parallel *p, const struct config *config,
                                      const struct model_config *m, trireme_error *error) {
    const struct places places = parallel_places(p, p->batch.seq_len);
    const int64_t width = model_width(m), sequences = p->batch.sequences, tokens = places.parts * places.rows;
    int64_t elements;
    if (__builtin_mul_overflow(sequences * tokens, width, &elements) || elements > INT64_MAX / 64)
        return config_refuse(config, "training.micro_batch_size", error,
                             "but %lld sequences of %lld tokens, %lld wide, fit no address space", (long long)sequences,
                             (long long)tokens, (long long)width);
    return TRIREME_OK;
}

// Each piece of logits has some instructions and buffers, which are verified and planned: with this many pieces that
// takes a second or two.
static trireme_status check_logits_rows(const struct config *config, int64_t rows, trireme_error *error) {
    enum { PIECES_MOST = 16384 };
    int64_t given = config->training.logits_rows;
    if (!given || (rows - 1) / given < PIECES_MOST)
        return TRIREME_OK;
    return config_refuse(config, "training.logits_rows", error,
                         "but makes %lld pieces of the %lld tokens of a microbatch, of %d at most: give %lld or more",
                         (long long)((rows - 1) / given + 1), (long long)rows, PIECES_MOST,
                         (long long)((rows - 1) / PIECES_MOST + 1));
}

// What the user gave; else the largest that gives every stage of a pipeline a microbatch to work on.
static int64_t micro_batch_size(const struct config *config, int64_t replicas, int stages) {
    const struct config_training *t = &config->training;
    int64_t sequences = t->global_batch_size / replicas, size = sequences;
    if (t->micro_batch_size > 0 || sequences == 0)
        return MAX(1, t->micro_batch_size);
    while (size > 1 && (sequences % size || sequences / size < stages))
        size--;
    return size;
}

// The ranks that remain after the other degrees become shards, or replicas where nothing is to be sharded, unless the
// user has set the degrees.
static void leave_rest(const struct config_parallelism *p, int64_t *replicas, int64_t *shards) {
    *replicas = p->data_parallel_replicate_degree ? p->data_parallel_replicate_degree : 1;
    *shards = p->data_parallel_shard_degree;
    bool open = *replicas > 0;
#define AXIS(id, name, roles, key) open &= p->key > 0 || AXIS_##id == AXIS_DP || AXIS_##id == AXIS_FSDP;
#define DERIVED_AXIS(id, name, roles)
#include "mesh/axes.def"
#undef AXIS
    if (*shards == -1 && open && p->zero_stage > 0)
        return;
    if (*shards == -1)
        *shards = 1;
    if (open && p->zero_stage == 0 && !p->data_parallel_replicate_degree)
        *replicas = -1;
}

// A user who sets another stage than the one that would be taken anyway wants something sharded, unless the user also
// says that there is one shard.
static trireme_status check_zero_stage(const struct config *config, int64_t shards, int64_t contexts, int ranks,
                                       trireme_error *error) {
    int64_t stage = config->parallelism.zero_stage;
    if (stage == 0 && shards > 1)
        return config_refuse(config, "parallelism.zero_stage", error,
                             "which shards nothing, but data_parallel_shard_degree is %lld: use "
                             "data_parallel_replicate_degree",
                             (long long)shards);
    bool asked = stage > 0 && stage < 3, open = config->parallelism.data_parallel_shard_degree == -1;
    if (asked && open && shards * contexts == 1 && ranks > 1)
        return config_refuse(config, "parallelism.zero_stage", error,
                             "but the other degrees leave no ranks to shard over: set data_parallel_shard_degree");
    return TRIREME_OK;
}

static trireme_status resolve_check_schedule(const struct config *config, trireme_error *error) {
    const char *name = config->parallelism.pipeline_parallel_schedule;
    if (!schedule_kind(name) && access(name, R_OK) != 0)
        return config_refuse(config, "parallelism.pipeline_parallel_schedule", error,
                             "which is neither a file nor one of %s", schedule_names());
    return TRIREME_OK;
}

// Refuses keys about pipelines where there is only one stage.
static trireme_status check_no_pipeline(const struct config *config, trireme_error *error) {
    const struct config_parallelism *p = &config->parallelism;
    if (p->vocabulary_parallel)
        return config_refuse(config, "parallelism.vocabulary_parallel", error,
                             "but pipeline_parallel_degree is 1: there are no stages to spread it over");
    if (p->pipeline_parallel_chunks > 1)
        return config_refuse(config, "parallelism.pipeline_parallel_chunks", error,
                             "but pipeline_parallel_degree is 1");
    if (p->pipeline_parallel_activation_limit > 0)
        return config_refuse(config, "parallelism.pipeline_parallel_activation_limit", error,
                             "but pipeline_parallel_degree is 1");
    return resolve_check_schedule(config, error);
}

int64_t parallel_given(const struct config *config, axis_set axes) {
    const struct config_parallelism *p = &config->parallelism;
    int64_t ranks = 1;
#define AXIS(id, name, roles, key) \
    if ((axes & AXES(AXIS_##id)))  \
        ranks *= MAX(1, p->key);
#define DERIVED_AXIS(id, name, roles)
#include "mesh/axes.def"
#undef AXIS
    return ranks;
}

static struct places places_by(const struct context_way *way, const struct config *config, int64_t ranks) {
    return places_shared(way->layout, ranks / way->ulysses, way->ulysses, config->training.seq_len);
}

int64_t parallel_given_rows(const struct config *config, const struct model_config *model) {
    const int64_t ranks = parallel_given(config, AXES_PARTS);
    const struct context_way way = context_way_of(config, model, ranks);
    return places_by(&way, config, ranks).rows / way.ulysses;
}

static trireme_status refuse_layout(const struct config *config, trireme_error *error) {
    const struct config_parallelism *p = &config->parallelism;
    struct text known = {0}, methods = {0};
    context_method_layouts(&known, p->context_parallel_method);
    context_methods_with(&methods, p->context_parallel_layout);
    const trireme_status status =
        config_refuse(config, "parallelism.context_parallel_layout", error,
                      "but context_parallel_method is %s, which knows %s alone: set it to %s",
                      config_context_parallel_method_word(p->context_parallel_method), known.text, methods.text);
    text_release(&known);
    text_release(&methods);
    return status;
}

// Refuses a layout that the model's layers or the method do not know, and one in which a rank has no token.
static trireme_status check_places(const struct config *config, const struct model_config *model, int64_t ranks,
                                   trireme_error *error) {
    const struct config_parallelism *p = &config->parallelism;
    const struct context_way way = context_way_of(config, model, ranks);
    if (ranks == 1)
        return TRIREME_OK;
    if (model_is_recurrent(model) && way.layout != PLACES_CONTIGUOUS)
        return config_refuse(config, LAYOUT_KEY, error,
                             "but states of linear attention go from neighbour to neighbour: set it to contiguous");
    if (model_is_recurrent(model) && way.ulysses > 1)
        return config_refuse(config, "parallelism.context_parallel_method", error,
                             "but ranks that exchange tokens for heads know no linear attention, which the model has: "
                             "set it to gather or ring");
    if (p->context_parallel_method == CONFIG_CONTEXT_PARALLEL_HYBRID && ranks % p->context_parallel_ulysses_degree)
        return config_refuse(config, "parallelism.context_parallel_ulysses_degree", error,
                             "which does not divide the %lld context-parallel ranks", (long long)ranks);
    if (!context_method_knows(way.name, p->context_parallel_layout))
        return refuse_layout(config, error);
    if (p->context_parallel_inner_degree && !context_method(way.name)->inner_rings)
        return config_refuse(config, "parallelism.context_parallel_inner_degree", error,
                             "but context_parallel_method is %s: ring and burst alone have inner rings",
                             config_context_parallel_method_word(way.name));
    if (p->context_parallel_inner_degree && ranks % p->context_parallel_inner_degree)
        return config_refuse(config, "parallelism.context_parallel_inner_degree", error,
                             "which does not divide the %lld context-parallel ranks", (long long)ranks);
    const struct places places = places_by(&way, config, ranks);
    const int64_t last = places.rows - places.rows / way.ulysses; // the first row of the last rank of a part
    if (place_of(&places, places.parts - 1, way.ulysses == 1 ? 0 : last) >= config->training.seq_len)
        return config_refuse(config, "training.seq_len", error,
                             "of whose tokens the last of %lld context-parallel ranks would have none: lower "
                             "parallelism.context_parallel_%s",
                             (long long)ranks, way.layout > 1 ? "stripe" : "degree");
    return TRIREME_OK;
}

trireme_status parallel_check(const struct config *config, const struct model_config *model, int ranks,
                              trireme_error *error) {
    const struct config_parallelism *p = &config->parallelism;
    TRY(check_places(config, model, parallel_given(config, AXES_PARTS), error));
    const int64_t contexts = parallel_given(config, AXES_SHARD & ~AXES_FSDP);
    int64_t shards = MAX(0, p->data_parallel_shard_degree), stages = 0;
    if (config_is_set(config, "parallelism.pipeline_parallel_degree"))
        stages = MAX(0, p->pipeline_parallel_degree);
    // Where the degrees that are given take all ranks, the others are 1.
    if (parallel_given(config, AXES_ALL & ~AXES_PP) * MAX(1, stages) == ranks) {
        shards = MAX(1, shards);
        stages = MAX(1, stages);
    }
    TRY(check_zero_stage(config, shards, contexts, ranks, error));
    if (stages == 1)
        return check_no_pipeline(config, error);
    TRY(resolve_check_schedule(config, error));
    struct schedule_options unused;
    if (stages > 1 && config_is_set(config, "parallelism.pipeline_parallel_schedule"))
        return check_pipeline(&unused, config, model, stages, error);
    return stages > 1 ? layout_check(config, model, stages, 1, error) : TRIREME_OK;
}

// Islands that never met would be several runs; one alone may have outer steps.
static trireme_status check_islands(const struct config *config, const struct model_config *model, int islands,
                                    trireme_error *error) {
    if (islands > 1 && config->outer.method == CONFIG_OUTER_NONE)
        return config_refuse(config, "parallelism.island_degree", error,
                             "but outer.method is none: say how islands meet, as in outer.method=diloco");
    return outer_schedule_check(config, model->num_hidden_layers, error);
}

// How ranks attend together, and which exchange tokens for heads: neighbours. Or inner rings are cut off.
static trireme_status resolve_context(struct parallel *out, const struct config *config,
                                      const struct model_config *model, trireme_error *error) {
    const int ranks = out->mesh.degree[AXIS_CP];
    const struct context_way way = context_way_of(config, model, ranks);
    const int exchange = (int)way.ulysses;
    trireme_error why = {0};
    if (exchange > 1 && exchange < ranks && mesh_cut(&out->mesh, AXES(AXIS_CP), exchange, &why) != TRIREME_OK)
        return config_refuse(config, "parallelism.context_parallel_ulysses_degree", error, "%s", why.message);
    out->exchange = exchange > 1 && ranks > 1 ? AXES(AXIS_CP) : AXES_NONE;
    const int inner = (int)config->parallelism.context_parallel_inner_degree;
    if (inner > 1 && inner < ranks && mesh_cut(&out->mesh, AXES(AXIS_CP), inner, &why) != TRIREME_OK)
        return config_refuse(config, "parallelism.context_parallel_inner_degree", error, "%s", why.message);
    out->context = way.name;
    out->layout = way.layout;
    return TRIREME_OK;
}

// Sets the axes' degrees, and how tensor ranks split the model.
static trireme_status resolve_mesh(struct parallel *out, const struct config *config, const struct model_config *model,
                                   trireme_error *error) {
    struct config_parallelism p = config->parallelism;
    leave_rest(&config->parallelism, &p.data_parallel_replicate_degree, &p.data_parallel_shard_degree);
    struct degree degree[] = {
#define AXIS(id, name, roles, key) {AXIS_##id, "parallelism." #key, p.key},
#define DERIVED_AXIS(id, name, roles)
#include "mesh/axes.def"
#undef AXIS
    };
    TRY(find_degrees(config, degree, ARRAY_LENGTH(degree), error));
    out->mesh = mesh_single();
    for (size_t i = 0; i < ARRAY_LENGTH(degree); i++)
        out->mesh.degree[degree[i].axis] = (int)degree[i].given;
    TRY(check_islands(config, model, out->mesh.degree[AXIS_ISLAND], error));
    int tensor = out->mesh.degree[AXIS_TP];
    trireme_error why = {0};
    if (model_split_create(&out->split, model, tensor, tensor > 1 && p.sequence_parallel, &why) != TRIREME_OK)
        return config_refuse(config, "parallelism.tensor_parallel_degree", error, "but %s", why.message);
    out->mesh.degree[AXIS_KV] = out->split.copies;
    out->mesh.degree[AXIS_TP] = tensor / out->split.copies;
    TRY(check_places(config, model, out->mesh.degree[AXIS_CP], error));
    return resolve_context(out, config, model, error);
}

// Sets how data-parallel ranks share what they hold and sum gradients, and whether tensor ranks overlap.
static trireme_status resolve_strategies(struct parallel *out, const struct config *config, trireme_error *error) {
    const struct config_parallelism *p = &config->parallelism;
    bool f64 = config->training.dtype == CONFIG_DTYPE_F64;
    TRY(check_zero_stage(config, mesh_group_size(&out->mesh, AXES_FSDP),
                         mesh_group_size(&out->mesh, AXES_SHARD & ~AXES_FSDP), mesh_ranks(&out->mesh), error));
    if (p->reduce_dtype == CONFIG_REDUCE_BF16 && f64)
        return config_refuse(config, "parallelism.reduce_dtype", error,
                             "but training.dtype is f64: only gradients in f32 travel as bf16");
    if (p->reduce_dtype == CONFIG_REDUCE_F64 && !f64)
        return config_refuse(config, "parallelism.reduce_dtype", error,
                             "but gradients are accumulated in f32: f32 is as they are");
    out->zero_stage = mesh_group_size(&out->mesh, AXES_SHARD) > 1 ? (int)p->zero_stage : 0;
    for (int class = 0; class < CLASS_COUNT; class ++)
        out->shards[class] = AXES_SHARD;
    out->reduce_bf16 = p->reduce_dtype == CONFIG_REDUCE_BF16;
    out->overlap = out->split.ranks > 1 && p->tensor_parallel_overlap;
    out->prefetch = (int)p->data_parallel_prefetch;
    out->unit_layers = mesh_group_size(&out->mesh, AXES_DATA) > 1 ? (int)p->data_parallel_unit_layers : 1;
    return TRIREME_OK;
}

// Refuses a global batch that is no multiple of `unit`, for the reason given, and names the nearest that are.
static trireme_status __attribute__((format(printf, 4, 5)))
refuse_batch(const struct config *config, int64_t unit, trireme_error *error, const char *format, ...) {
    const int64_t less = config->training.global_batch_size / unit * unit;
    va_list args;
    va_start(args, format);
    char *reason = mem_vprintf(format, args);
    va_end(args);
    if (less > 0)
        config_refuse(config, "training.global_batch_size", error, "%s: %lld and %lld do", reason, (long long)less,
                      (long long)(less + unit));
    else
        config_refuse(config, "training.global_batch_size", error, "%s: %lld does", reason, (long long)unit);
    free(reason);
    return TRIREME_ERROR_USAGE;
}

// Refuses more ranks that exchange tokens for heads than there are heads.
static trireme_status check_exchange(const struct parallel *out, const struct config *config,
                                     const struct model_config *model, trireme_error *error) {
    const int64_t ranks = mesh_group_size(&out->mesh, out->exchange);
    const char *key = config->parallelism.context_parallel_method == CONFIG_CONTEXT_PARALLEL_HYBRID
                          ? "parallelism.context_parallel_ulysses_degree"
                          : "parallelism.context_parallel_degree";
    if (ranks > 1 && out->split.heads < ranks)
        return config_refuse(config, key, error,
                             "but ranks that exchange tokens for heads share the %s of a tensor-parallel rank: %lld at "
                             "most, or set parallelism.context_parallel_method to ring",
                             counted(out->split.heads, "head").text, (long long)out->split.heads);
    if (ranks > 1 && model->attention_sinks && !context_method(config->parallelism.context_parallel_method)->sinks)
        return config_refuse(config, "parallelism.context_parallel_method", error,
                             "but the model's attention has sinks, which it does not know: `trireme help "
                             "context_parallel` lists the methods that do");
    return TRIREME_OK;
}

// Sets how the global batch is divided into microbatches.
static trireme_status resolve_batch(struct parallel *out, const struct config *config, const struct model_config *model,
                                    trireme_error *error) {
    const struct config_training *t = &config->training;
    int64_t replicas = mesh_group_size(&out->mesh, AXES_BATCH);
    out->batch.seq_len = t->seq_len;
    out->batch.sequences = micro_batch_size(config, replicas, out->mesh.degree[AXIS_PP]);
    if (t->global_batch_size % replicas)
        return refuse_batch(config, replicas, error, "which does not split over %lld data-parallel ranks",
                            (long long)replicas);
    if (t->global_batch_size % (replicas * out->batch.sequences))
        return refuse_batch(config, replicas * out->batch.sequences, error,
                            "which does not split into microbatches of %lld sequences on %s",
                            (long long)out->batch.sequences, counted(replicas, "data-parallel rank").text);
    TRY(check_countable(out, config, model, error));
    TRY(check_exchange(out, config, model, error));
    const int64_t rows = out->batch.sequences * parallel_rows(out, t->seq_len);
    TRY(check_logits_rows(config, rows, error));
    out->batch.microbatches = (int)(t->global_batch_size / replicas / out->batch.sequences);
    if (out->split.sequence && rows % out->split.ranks)
        return config_refuse(config, "training.seq_len", error,
                             "whose rows, %lld in a microbatch, do not split over %d tensor-parallel ranks: set "
                             "parallelism.sequence_parallel to false",
                             (long long)rows, out->split.ranks);
    return TRIREME_OK;
}

// Sets the schedule, if there are several stages, and which layers each stage has.
static trireme_status resolve_stages(struct parallel *out, struct schedule_store *store, const struct config *config,
                                     const struct model_config *model, trireme_error *error) {
    const struct config_parallelism *p = &config->parallelism;
    const struct config_activation_checkpoint *again = &config->activation_checkpoint;
    int stages = out->mesh.degree[AXIS_PP];
    if (stages == 1)
        TRY(check_no_pipeline(config, error));
    trireme_error why = {0};
    if (p->vocabulary_parallel && model_split_spread_vocabulary(&out->split, model, stages, &why) != TRIREME_OK)
        return config_refuse(config, "parallelism.vocabulary_parallel", error, "but %s", why.message);
    if (stages > 1)
        TRY(find_schedule(out, store, config, model, error));
    if (stages > 1 || *p->pipeline_parallel_layout || *again->full_layers || *again->selective_layers)
        TRY(layout_resolve(out, config, model, error));
    return TRIREME_OK;
}

// Among how many ranks the embedding stays divided, each looking rows up in its part (struct model_split); 1: it is
// gathered. For every token of another rank a row then travels twice, as parameters and as their gradient, instead of
// the whole table once as parameters and once as gradients: done where that is at most half of the bytes. (The table
// would be the first to be gathered and the last to be reduced, with nothing to hide behind.) Replicas of the parts
// exchange the gradients of all of their ranks' rows, where that is at most half of what they would send to reduce the
// parts' gradients.
static int row_ranks(const struct parallel *p, const struct config *config, const struct model_config *model) {
    const int ranks = mesh_group_size(&p->mesh, AXES_FSDP), replicas = mesh_group_size(&p->mesh, AXES_DP);
    const bool alone = mesh_group_size(&p->mesh, AXES_WITHIN) == ranks * replicas; // of all axes
    const bool whole_rows = model->padded_vocab_size % ranks == 0 &&
                            model->padded_vocab_size / ranks * model->hidden_size % PARAMETER_ALIGNMENT == 0;
    // With ZeRO-1 the whole table arrives after the step's first microbatch has looked rows up: there must be no other.
    // Likewise with replicas, which would still have to reduce the sums of the microbatches before.
    const bool once = p->batch.microbatches == 1;
    const bool can = p->zero_stage == 3 ? once || replicas == 1 : p->zero_stage == 1 && once;
    if (ranks == 1 || !alone || !can || !whole_rows)
        return 1;
    const double tokens = (double)p->batch.sequences * (double)p->batch.seq_len;
    const double size = (double)dtype_size(model_dtype(config));
    const double part = (double)model->padded_vocab_size / ranks, gradient = MAX(size, 4);
    const double rows = 2 * tokens * (ranks - 1) * size, table = part * (ranks - 1) * (size + gradient);
    const double replicated = tokens * ranks * (replicas - 1) * size;
    const double reduced = 2 * part * (replicas - 1) / replicas * gradient;
    return 2 * rows <= table && 2 * replicated <= reduced ? ranks : 1;
}

static trireme_status resolve(struct parallel *out, struct schedule_store *store, const struct config *config,
                              const struct model_config *model, trireme_error *error) {
    TRY(resolve_mesh(out, config, model, error));
    TRY(resolve_strategies(out, config, error));
    TRY(resolve_batch(out, config, model, error));
    out->split.row_ranks = row_ranks(out, config, model);
    return resolve_stages(out, store, config, model, error);
}

trireme_status parallel_resolve_from(struct parallel *out, struct schedule_store *made, const struct config *config,
                                     const struct model_config *model, trireme_error *error) {
    struct parallel parallel = {0};
    trireme_status status = resolve(&parallel, made, config, model, error);
    if (status == TRIREME_OK)
        *out = parallel;
    else
        parallel_release(&parallel);
    return status;
}

trireme_status parallel_resolve(struct parallel *out, const struct config *config, const struct model_config *model,
                                trireme_error *error) {
    return parallel_resolve_from(out, NULL, config, model, error);
}

struct parallel parallel_single(const struct model_config *config) {
    struct parallel parallel = {.mesh = mesh_single(), .unit_layers = 1, .batch = {1, 1, 1}};
    trireme_error none;
    CHECK(model_split_create(&parallel.split, config, 1, false, &none) == TRIREME_OK);
    return parallel;
}

int *parallel_layers(const struct parallel *parallel, int *stages) {
    *stages = parallel->schedule->stages * parallel->schedule->chunks;
    int *layers = mem_alloc((size_t)*stages * sizeof *layers);
    for (int v = 0; v < *stages; v++)
        layers[v] = parallel->first_layer[v + 1] - parallel->first_layer[v];
    return layers;
}

static int *copy_numbers(const int *of, size_t count) {
    if (!of)
        return NULL;
    int *copy = mem_alloc(count * sizeof *copy);
    memcpy(copy, of, count * sizeof *copy);
    return copy;
}

struct parallel parallel_copy(const struct parallel *parallel) {
    struct parallel copy = *parallel;
    if (parallel->schedule) {
        copy.schedule = mem_alloc(sizeof *copy.schedule);
        *copy.schedule = schedule_copy(parallel->schedule);
    }
    size_t stages = (size_t)parallel_virtual_stages(parallel);
    copy.first_layer = copy_numbers(parallel->first_layer, stages + 1);
    copy.full_layers = copy_numbers(parallel->full_layers, stages);
    copy.selective_layers = copy_numbers(parallel->selective_layers, stages);
    return copy;
}

void parallel_release(struct parallel *parallel) {
    if (parallel->schedule) {
        schedule_release(parallel->schedule);
        free(parallel->schedule);
    }
    free(parallel->first_layer);
    free(parallel->full_layers);
    free(parallel->selective_layers);
    *parallel = (struct parallel){0};
}

int parallel_vocabulary_index(const struct parallel *parallel, int rank) {
    bool is_spread = parallel->split.vocabulary_stages > 1;
    return mesh_index(&parallel->mesh, rank, is_spread ? AXES_TENSOR | AXES(AXIS_PP) : AXES_TENSOR);
}

bool *parallel_sections(const struct parallel *parallel, size_t units) {
    if (!parallel->schedule)
        return NULL;
    bool *sections = mem_alloc(units * sizeof *sections);
    int stages = parallel->schedule->stages * parallel->schedule->chunks;
    for (int chunk = 0; chunk < parallel->schedule->chunks; chunk++) {
        int v = parallel->schedule->virtual_stage[parallel->stage * parallel->schedule->chunks + chunk];
        sections[0] |= v == 0;
        sections[units - 1] |= v == stages - 1;
        for (int layer = parallel->first_layer[v]; layer < parallel->first_layer[v + 1]; layer++)
            sections[1 + layer] = true;
    }
    return sections;
}

int *parallel_joined(const struct parallel *parallel, size_t units) {
    if (!parallel->schedule && parallel->unit_layers == 1)
        return NULL;
    int *joined = mem_alloc(units * sizeof *joined), layers = (int)units - 2, at_once = MAX(parallel->unit_layers, 1);
    bool *sections = parallel_sections(parallel, units);
    int stages = parallel_virtual_stages(parallel);
    for (size_t u = 0; u < units; u++)
        joined[u] = !sections || sections[u] ? (int)u : NONE;
    for (int v = 0; v < stages; v++) {
        int begin = parallel->schedule ? parallel->first_layer[v] : 0;
        int end = parallel->schedule ? parallel->first_layer[v + 1] : layers;
        for (int layer = begin; layer < end; layer++)
            if (joined[1 + layer] != NONE)
                joined[1 + layer] -= (layer - begin) % at_once;
    }
    free(sections);
    return joined;
}
