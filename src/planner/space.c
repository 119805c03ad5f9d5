#include "planner/space.h"

#include "base/amount.h"
#include "planner/learn.h"
#include "planner/mix.h"

#include <math.h>

// Microbatches with more tokens make no product faster, and with more elements of the residual stream nothing that
// reads and writes it. Tensor groups on more nodes communicate more than they compute, except groups of few ranks.
enum { CHUNKS_MAX = 20, WAVES_MAX = 2, MICRO_BATCH_TOKENS = 1 << 16, MICRO_BATCH_ELEMENTS = 1 << 26 };
enum { TENSOR_NODES = 2, TENSOR_FEW = 8 };
enum { LOGITS_WAYS = 20 };

// The value of a key if the user has set it; 0 where it is free.
static int64_t space_fixed(const struct config *c, const char *key, int64_t value) {
    return config_is_set(c, key) && value > 0 ? value : 0;
}

static bool space_allows(int64_t fixed, int64_t value) {
    return fixed == 0 || fixed == value;
}

struct space {
    struct candidates *out;
    struct estimator *estimator;
    const struct config *config;
    bool small; // only choices that need least memory
    int64_t layers;
    int64_t replicas, shards, tensor, stages, micro_batch_size; // 0: free
    int meshes, sizes;  // ways to divide ranks and batch that were seen, and those of them with a microbatch size
    int64_t less, more; // the nearest batches that ways ruled out by this batch would divide; 0: none
    trireme_error why;  // of the first refusal, which is the plainest
};

// A way to share a choice's data parallel ranks between shards and replicas.
struct sharing {
    int shards;
    bool possible;
    struct data_links links;
};
struct sharings {
    VEC(struct sharing);
};

// A choice with some number of rows of logits at once.
struct way {
    struct plan_choice choice;
    struct pipe_estimate pipe;
    struct mix mix;
    enum { WAY_NEW, WAY_POSSIBLE, WAY_IMPOSSIBLE } state;
};

static bool is_possible(struct way *way, struct space *s) {
    trireme_error why;
    if (way->state != WAY_NEW)
        return way->state == WAY_POSSIBLE;
    trireme_status status = estimate_pipe(s->estimator, &way->choice, &way->pipe, &why);
    if (status == TRIREME_OK && way->choice.mixed)
        status = mix_create(&way->mix, s->estimator, &way->choice, &why);
    if (status != TRIREME_OK && !s->why.message[0])
        s->why = why;
    way->state = status == TRIREME_OK ? WAY_POSSIBLE : WAY_IMPOSSIBLE;
    return status == TRIREME_OK;
}

static struct way way_of(const struct space *s, const struct plan_choice *choice, int pieces) {
    struct way way = {.choice = *choice};
    way.choice.logits_rows = logits_rows(s->estimator, choice, pieces);
    return way;
}

// Lists ways from the configuration's rows of logits up to all rows. More rows are listed only where they make the
// choice faster, by the same for each piece less.
static int list_ways(struct space *s, const struct plan_choice *of, struct way way[LOGITS_WAYS]) {
    static const int PIECES[] = {768, 512, 384, 256, 192, 128, 96, 64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1};
    static const double FASTER = .001;
    _Static_assert(ARRAY_LENGTH(PIECES) < LOGITS_WAYS, "and one");
    int count = 1, pieces = logits_pieces(s->estimator, of);
    way[0] = (struct way){.choice = *of};
    const bool possible = is_possible(&way[0], s);
    struct way all = way_of(s, of, 1);
    trireme_error none;
    if (pieces > 1 && estimate_pipe(s->estimator, &all.choice, &all.pipe, &none) == TRIREME_OK && possible) {
        const double least = FASTER * way[0].pipe.seconds,
                     each = (way[0].pipe.seconds - all.pipe.seconds) / (pieces - 1);
        for (size_t i = 0; i < ARRAY_LENGTH(PIECES); i++)
            if ((pieces - PIECES[i]) * each > least) {
                pieces = PIECES[i];
                way[count++] = way_of(s, of, pieces);
            }
    }
    return possible ? count : 0;
}

static bool estimate_way(struct candidate *out, struct space *s, struct way *way, const struct sharing *sharing,
                         int zero) {
    const bool mixed = way->choice.mixed;
    *out = (struct candidate){.choice = way->choice};
    out->choice.shards = sharing->shards;
    out->choice.replicas = way->choice.replicas / sharing->shards;
    out->choice.zero_stage = zero;
    if (!is_possible(way, s) || (mixed && !mix_choose(&way->mix, &out->choice, &way->pipe, true)))
        return false;
    struct pipe_estimate pipe = mixed ? mix_pipe(&way->mix, &way->pipe) : way->pipe;
    out->estimate = estimate_data(s->estimator, &pipe, &sharing->links, &out->choice);
    if (mixed)
        out->estimate.bytes = mix_bytes(&way->mix, s->estimator->room);
    return true;
}

// Adds the ways from the most rows of logits that may fit down to the most that surely do. Mixed choices are made to
// fit: those with fewer rows are added as long as they are faster than others that fit by estimate.
static void add_ways(struct space *s, struct way *way, int ways, const struct sharing *sharing, int zero) {
    const double room = s->estimator->room;
    double fastest = INFINITY;
    bool enough = false;
    for (int i = ways; i-- > 0 && !enough;) {
        struct candidate one;
        if (!estimate_way(&one, s, &way[i], sharing, zero))
            continue;
        const bool mixed = one.choice.mixed;
        const double bytes = one.estimate.bytes;
        enough = mixed ? bytes <= room && one.estimate.seconds >= fastest : MEMORY_SLACK * bytes <= room;
        if (bytes <= room)
            fastest = one.estimate.seconds;
        if (mixed ? !enough : i == 0 || bytes <= MEMORY_SLACK * room)
            VEC_PUSH(s->out, one);
    }
}

static void add_sharings(struct space *s, const struct plan_choice *of, const struct sharings *sharings) {
    const struct config *c = s->config;
    struct way way[LOGITS_WAYS];
    int ways = list_ways(s, of, way), data = of->replicas;
    bool zero_set = config_is_set(c, "parallelism.zero_stage");
    for (size_t i = 0; i < sharings->count && ways > 0; i++) {
        const struct sharing *sharing = &sharings->item[i];
        for (int zero = 0; zero < 4 && sharing->possible; zero++) {
            const int most = sharing->shards * of->parts; // over so many ranks states can be sharded
            if ((zero == 0 ? sharing->shards > 1 : most == 1) ||
                (zero_set && zero != c->parallelism.zero_stage && most > 1))
                continue;
            bool replicates = s->shards == 1 || s->replicas == data; // because the user says so
            if (zero_set && c->parallelism.zero_stage > 0 && most == 1 && data > 1 && !replicates)
                continue;
            add_ways(s, way, ways, sharing, zero);
        }
    }
    for (int i = 0; i < ways; i++)
        mix_release(&way[i].mix);
}

// How many virtual stages a layout that is given in numbers has; 0: none is given.
static int given_stages(const struct config *config) {
    const char *text = config->parallelism.pipeline_parallel_layout;
    return *text >= '0' && *text <= '9' ? numbers_count(text) : 0;
}

static void add_layouts(struct space *s, struct plan_choice *c, const struct sharings *sharings) {
    const struct config *config = s->config;
    int given = given_stages(config), stages = c->stages == 1 ? 1 : c->stages * c->chunks;
    if (given && stages && given != stages)
        return;
    bool layout = config_is_set(config, "parallelism.pipeline_parallel_layout"),
         vocabulary = config_is_set(config, "parallelism.vocabulary_parallel");
    for (int way = 0; way < 3; way++) {
        c->balanced = way == 1;
        c->vocabulary = way == 2;
        // With a spread vocabulary nothing needs balancing; a mixed choice gets its own layout.
        if ((c->stages == 1 && way > 0) || ((layout || c->mixed) && way == 1) ||
            (vocabulary && c->vocabulary != config->parallelism.vocabulary_parallel))
            continue;
        add_sharings(s, c, sharings);
    }
}

// Adds a schedule with each number of chunks that it may have and for which there are enough layers.
static void add_chunks(struct space *s, struct plan_choice *c, const struct sharings *sharings) {
    int64_t given =
        space_fixed(s->config, "parallelism.pipeline_parallel_chunks", s->config->parallelism.pipeline_parallel_chunks);
    const struct schedule_kind *kind = schedule_kind(c->schedule);
    if (!kind || kind->properties & SCHEDULE_LIMIT) {
        c->chunks = (int)given;
        add_layouts(s, c, sharings);
        return;
    }
    int most = kind->step == 0 ? kind->chunks : kind->properties & SCHEDULE_WAVES ? 2 * WAVES_MAX : CHUNKS_MAX;
    for (int chunks = kind->chunks; chunks <= most && (int64_t)chunks * c->stages <= s->layers; chunks += kind->step) {
        // Where many are possible, take few, and those that make stages alike.
        bool few = kind->step != 1 || chunks <= 3 || s->layers % ((int64_t)chunks * c->stages) == 0;
        c->chunks = chunks;
        if (space_allows(given, chunks) && (few || given != 0))
            add_layouts(s, c, sharings);
        if (kind->step == 0)
            break;
    }
}

// Whether the configuration says how many layers of each stage are recomputed: with more chunks these are more layers
// in all.
static bool names_layers(const struct config *c) {
    return *c->activation_checkpoint.full_layers || *c->activation_checkpoint.selective_layers;
}

static void add_schedules(struct space *s, struct plan_choice *c, const struct sharings *sharings) {
    size_t kinds;
    const struct schedule_kind *kind = schedule_kinds(&kinds);
    const char *key = "parallelism.pipeline_parallel_schedule";
    c->schedule = s->config->parallelism.pipeline_parallel_schedule;
    c->chunks = 0;
    if (c->stages == 1) {
        c->schedule = "1f1b";
        add_layouts(s, c, sharings);
    } else if (config_is_set(s->config, key)) {
        add_chunks(s, c, sharings);
    } else {
        for (size_t i = 0; i < kinds; i++) {
            c->schedule = kind[i].name;
            // Those that need least; but they have neither all numbers of chunks nor of virtual stages.
            bool least = strcmp(c->schedule, "1f1b") == 0 || strcmp(c->schedule, "v-min") == 0 ||
                         names_layers(s->config) || given_stages(s->config) ||
                         s->config->parallelism.pipeline_parallel_chunks > 0;
            bool wanted = s->config->parallelism.pipeline_parallel_activation_limit
                              ? kind[i].properties & SCHEDULE_LIMIT
                              : kind[i].properties & SCHEDULE_PLANNED && (least || !s->small);
            if (wanted)
                add_chunks(s, c, sharings);
        }
    }
}

// The mode that needs least memory among those that the layers may be in for which the configuration names none.
static int deepest_mode(const struct config *c) {
    return *c->activation_checkpoint.selective_layers ? CONFIG_RECOMPUTE_NONE
           : *c->activation_checkpoint.full_layers    ? CONFIG_RECOMPUTE_SELECTIVE
                                                      : CONFIG_RECOMPUTE_FULL;
}

bool space_mixes(const struct config *c) {
    return !(config_is_set(c, "activation_checkpoint.mode") &&
             config_is_set(c, "parallelism.pipeline_parallel_layout")) &&
           !names_layers(c);
}

// Adds modes of recomputation, each with all schedules.
static void add_modes(struct space *s, struct plan_choice *c, const struct sharings *sharings) {
    const struct config *config = s->config;
    for (int mode = CONFIG_RECOMPUTE_NONE; mode <= CONFIG_RECOMPUTE_FULL; mode++) {
        if (config_is_set(config, "activation_checkpoint.mode")
                ? mode != (int)config->activation_checkpoint.mode
                : mode > deepest_mode(config) || (s->small && mode != deepest_mode(config)))
            continue;
        c->recompute = (enum config_recompute)mode;
        add_schedules(s, c, sharings);
    }
    c->recompute = config->activation_checkpoint.mode; // none where it is not set
    c->mixed = true;
    if (!s->small && space_mixes(config))
        add_schedules(s, c, sharings);
    c->mixed = false;
}

// Whether larger microbatches need not be tried: twice as many sequences would be too many.
static bool is_enough(const struct space *s, int64_t size) {
    const int64_t tokens = 2 * size * parallel_given_rows(s->config, s->estimator->request->model);
    return size > 0 && (s->small || (tokens > MICRO_BATCH_TOKENS &&
                                     tokens * s->estimator->request->model->hidden_size > MICRO_BATCH_ELEMENTS));
}

static void add_microbatches(struct space *s, struct plan_choice *c, const struct sharings *sharings) {
    const struct config *config = s->config;
    int64_t sequences = config->training.global_batch_size / c->replicas, last = 0;
    for (int64_t size = 1; size <= sequences && !is_enough(s, last); size++) {
        if (sequences % size || !space_allows(s->micro_batch_size, size))
            continue;
        last = s->micro_batch_size ? 0 : size;
        s->sizes++;
        c->micro_batch_size = size;
        // Where rows can be split, splitting them is hardly ever worse: the search tries the other way on the best.
        bool splits = size * parallel_given_rows(config, s->estimator->request->model) % c->tensor == 0;
        bool set = config_is_set(config, "parallelism.sequence_parallel");
        c->overlap = c->tensor > 1 && config->parallelism.tensor_parallel_overlap;
        c->sequence = c->tensor > 1 && (set ? config->parallelism.sequence_parallel : splits);
        add_modes(s, c, sharings);
    }
}

// Adds the meshes with the choice's tensor and pipeline groups: data parallel ranks are divided into shards and
// replicas in every way.
static void add_mesh(struct space *s, struct plan_choice *c) {
    struct sharings sharings = {0};
    int data = c->replicas;
    for (int shards = 1; shards <= data; shards++) {
        if (data % shards || !space_allows(s->shards, shards) || !space_allows(s->replicas, data / shards))
            continue;
        struct sharing one = {.shards = shards};
        struct plan_choice shared = *c;
        shared.shards = shards;
        shared.replicas = data / shards;
        trireme_error why;
        one.possible = s->estimator->collecting || data_links_create(&one.links, s->estimator->request, &shared, &why);
        if (!one.possible && !s->why.message[0])
            s->why = why;
        VEC_PUSH(&sharings, one);
    }
    s->meshes += sharings.count > 0;
    if (sharings.count)
        add_microbatches(s, c, &sharings);
    VEC_RELEASE(&sharings);
}

// The most ranks of a tensor parallel group.
static int64_t widest_tensor(const struct cluster *cluster) {
    int64_t most = 1;
    for (size_t i = 0; i < cluster->groups.count; i++) {
        const struct node_group *g = &cluster->groups.item[i];
        int cores = cluster->devices.item[g->device].cores;
        most = MAX(most, (int64_t)g->devices * MAX(1, cores)); // each core of a CPU may have a rank
    }
    return MAX(most * TENSOR_NODES, (int64_t)TENSOR_FEW);
}

// Whether `data` data parallel ranks can be divided into shards and replicas as the user says.
static bool space_shares(const struct space *s, int data) {
    for (int shards = 1; shards <= data; shards++)
        if (data % shards == 0 && space_allows(s->shards, shards) && space_allows(s->replicas, data / shards))
            return true;
    return false;
}

// Notes a way whose data parallel ranks, with the microbatch size that is set, do not divide the batch.
static void note_batch(struct space *s, int tensor, int data) {
    const int64_t batch = s->config->training.global_batch_size, unit = data * MAX(s->micro_batch_size, 1);
    struct model_split split;
    trireme_error none;
    if (batch % unit == 0 || !space_shares(s, data) ||
        model_split_create(&split, s->estimator->request->model, tensor, false, &none) != TRIREME_OK)
        return;
    const int64_t less = batch - batch % unit;
    s->less = MAX(s->less, less);
    s->more = s->more == 0 ? less + unit : MIN(s->more, less + unit);
}

static struct space space_list_values(struct candidates *out, struct estimator *estimator) {
    const struct config *c = estimator->request->config;
    const struct config_parallelism *p = &c->parallelism;
    struct space s = {
        .out = out,
        .estimator = estimator,
        .config = c,
        .small = estimator->request->only_fit,
        .layers = estimator->request->model->num_hidden_layers,
        .replicas = space_fixed(c, "parallelism.data_parallel_replicate_degree", p->data_parallel_replicate_degree),
        .shards = space_fixed(c, "parallelism.data_parallel_shard_degree", p->data_parallel_shard_degree),
        .tensor = space_fixed(c, "parallelism.tensor_parallel_degree", p->tensor_parallel_degree),
        .stages = space_fixed(c, "parallelism.pipeline_parallel_degree", p->pipeline_parallel_degree),
        .micro_batch_size = space_fixed(c, "training.micro_batch_size", c->training.micro_batch_size),
    };
    const int parts = (int)parallel_given(c, AXES_PARTS), ranks = estimator->request->ranks / parts;
    int64_t widest = s.tensor ? s.tensor : widest_tensor(estimator->request->cluster);
    for (int tensor = 1; tensor <= MIN(ranks, widest); tensor++) {
        if (ranks % tensor || !space_allows(s.tensor, tensor))
            continue;
        for (int stages = 1; stages <= ranks / tensor && stages <= s.layers; stages++) {
            int data = ranks / tensor / stages;
            if (ranks / tensor % stages || !space_allows(s.stages, stages))
                continue;
            note_batch(&s, tensor, data);
            if (c->training.global_batch_size % data)
                continue;
            struct plan_choice choice = {
                .parts = parts, .tensor = tensor, .stages = stages, .replicas = data, .shards = 1};
            add_mesh(&s, &choice);
        }
    }
    return s;
}

// Refuses the first degree that is invalid, or that multiplied by those before does not divide the ranks.
static trireme_status check_degrees(const struct config *c, int ranks, trireme_error *error) {
    const struct config_parallelism *p = &c->parallelism;
    const struct {
        enum axis axis;
        const char *key;
        int64_t degree;
    } KEPT[] = {
#define AXIS(id, name, roles, key) {AXIS_##id, "parallelism." #key, p->key},
#define DERIVED_AXIS(id, name, roles)
#include "mesh/axes.def"
#undef AXIS
    };
    const struct {
        const char *key;
        int64_t degree, least; // the least that is valid, besides -1
    } GIVEN[] = {{"parallelism.tensor_parallel_degree", p->tensor_parallel_degree, 1},
                 {"parallelism.pipeline_parallel_degree", p->pipeline_parallel_degree, 1},
                 {"parallelism.data_parallel_shard_degree", p->data_parallel_shard_degree, 1},
                 {"parallelism.data_parallel_replicate_degree", p->data_parallel_replicate_degree, 0}};
    int64_t all = 1; // always divides the ranks, so no product overflows
    for (size_t i = 0; i < ARRAY_LENGTH(KEPT); i++) {
        if (!(AXES(KEPT[i].axis) & AXES_PARTS))
            continue;
        if (KEPT[i].degree < 1)
            return config_refuse(c, KEPT[i].key, error, "expected 1 or more: it is kept, not searched");
        if (ranks % (all *= KEPT[i].degree))
            return config_refuse(c, KEPT[i].key, error, "but %s cannot be divided into groups of %lld",
                                 counted(ranks, "rank").text, (long long)all);
    }
    for (size_t i = 0; i < ARRAY_LENGTH(GIVEN); i++) {
        if (GIVEN[i].degree == 0 && GIVEN[i].least > 0)
            return config_refuse(c, GIVEN[i].key, error, "expected 1 or more; left out it is searched");
        all *= MAX(1, space_fixed(c, GIVEN[i].key, GIVEN[i].degree));
        if (ranks % all)
            return config_refuse(c, GIVEN[i].key, error, "but %s cannot be divided into groups of %lld",
                                 counted(ranks, "rank").text, (long long)all);
    }
    return TRIREME_OK;
}

// Checks that the cluster has room for the ranks, whatever their mesh.
static trireme_status check_room(const struct plan_request *r, trireme_error *error) {
    struct mesh any = mesh_single();
    int each;
    any.degree[AXIS_FSDP] = r->ranks;
    return topology_check(r->cluster, &any, &each, error);
}

// The probes and shapes that estimates need take longest: so they are all noted first, and then filled by all threads.
trireme_status space_list(struct candidates *out, struct estimator *estimator, trireme_error *error) {
    const struct plan_request *r = estimator->request;
    TRY(check_degrees(r->config, r->ranks, error));
    TRY(parallel_check(r->config, r->model, r->ranks, error));
    TRY(check_room(r, error));
    const struct config_parallelism *p = &r->config->parallelism;
    if (config_is_set(r->config, "parallelism.pipeline_parallel_schedule") && estimator->stages &&
        space_fixed(r->config, "parallelism.pipeline_parallel_degree", p->pipeline_parallel_degree) != 1)
        TRY(parallel_check_limit(r->config, error));
    estimator->collecting = true;
    space_list_values(out, estimator);
    estimator_fill(estimator);
    space_list_values(out, estimator);
    return TRIREME_OK;
}

// ---- nothing is possible

// "; the nearest batches that could be split are of 14 and 21 sequences", or "". The caller frees.
static char *other_batches(const struct space *s) {
    if (s->more == 0)
        return mem_strdup("");
    char *less = s->less ? mem_printf("es that could be split are of %lld and", (long long)s->less)
                         : mem_strdup(" that could be split is of");
    char *words = mem_printf("; the nearest batch%s %lld sequences", less, (long long)s->more);
    free(less);
    return words;
}

// For when no way to divide the ranks divides the batch, or when the one that does was refused (`first`).
static trireme_status refuse_batch(const struct space *s, const trireme_error *first, trireme_error *error) {
    const struct config *c = s->config;
    const struct counted ranks = counted(s->estimator->request->ranks, "rank");
    char *others = other_batches(s);
    trireme_status status;
    if (s->meshes == 0)
        status = config_refuse(
            c, "training.global_batch_size", error,
            "which no way to divide %s into tensor, pipeline and data parallel ones that the configuration "
            "allows splits evenly%s",
            ranks.text, others);
    else if (s->sizes == 0)
        status = config_refuse(c, "training.micro_batch_size", error,
                               "which divides the sequences of no data parallel rank, however %s are divided%s",
                               ranks.text, others);
    else
        status = error_set(error, first->status, "no plan for %s is possible: %s%s%s", ranks.text, first->message,
                           *others ? "; more data parallel ranks do not split the batch" : "", others);
    free(others);
    return status;
}

trireme_status space_refuse(struct estimator *estimator, const trireme_error *why, trireme_error *error) {
    const struct plan_request *r = estimator->request;
    const struct config *c = r->config;
    struct candidates none = {0};
    const struct space s = space_list_values(&none, estimator);
    VEC_RELEASE(&none);
    const trireme_error first = why ? *why : s.why;
    const struct config_parallelism *p = &c->parallelism;
    const int64_t set =
        MAX(s.replicas, 1) * MAX(s.shards, 1) * MAX(s.tensor, 1) * MAX(s.stages, 1) * parallel_given(c, AXES_PARTS);
    const bool data_set = s.replicas && s.shards;
    struct model_split split;
    trireme_error few = {0};
    if (s.tensor && model_split_create(&split, r->model, (int)s.tensor, false, &few) != TRIREME_OK)
        return config_refuse(c, "parallelism.tensor_parallel_degree", error, "but %s", few.message);
    if (data_set && s.tensor && s.stages && set != r->ranks)
        return config_refuse(c, "parallelism.data_parallel_replicate_degree", error,
                             "but with it the degrees multiply to %lld, and the ranks are %d", (long long)set,
                             r->ranks);
    if (data_set && s.stages && !s.tensor && r->ranks / set > widest_tensor(r->cluster))
        return config_refuse(c, "parallelism.data_parallel_replicate_degree", error,
                             "but the degrees leave %lld ranks to tensor parallel, more than %lld, which %d nodes or "
                             "%d ranks are",
                             (long long)(r->ranks / set), (long long)widest_tensor(r->cluster), TENSOR_NODES,
                             TENSOR_FEW);
    if (data_set && s.tensor && !s.stages && r->ranks / set > s.layers)
        return config_refuse(c, "parallelism.data_parallel_replicate_degree", error,
                             "but the degrees leave %lld stages, and the model has %s", (long long)(r->ranks / set),
                             counted(s.layers, "layer").text);
    if (s.meshes == 0 || s.sizes == 0 || first.message[0])
        return refuse_batch(&s, &first, error);
    if (given_stages(c))
        return config_refuse(c, "parallelism.pipeline_parallel_layout", error,
                             "but no schedule that the configuration allows has %d virtual stages", given_stages(c));
    if (p->pipeline_parallel_chunks > 0)
        return config_refuse(c, "parallelism.pipeline_parallel_chunks", error,
                             "which no schedule that the configuration allows has for %s",
                             counted(s.layers, "layer").text);
    FAIL(TRIREME_ERROR_USAGE,
         "no plan for %d rank%s is possible: the keys of parallelism and activation_checkpoint that are set do not go "
         "together",
         r->ranks, r->ranks > 1 ? "s" : "");
}
