// For when nothing fits: finds which one key, or how many more devices, would change that. Each trial is a search.
#include "base/clock.h"
#include "planner/planner.h"
#include "sim/shipped.h"

#include <inttypes.h>
#include <math.h>

// In units of the search's time: no trial begins later. Each trial is a search.
static const double ADVICE_TIME = 4. / 3;

enum { SEQ_LEN_LEAST = 1, SEQ_LEN_PARTS = 8, DEVICE_TRIES = 4 };

struct advice {
    struct text *out;
    const struct plan_request *request;
    int64_t until; // clock_now's time after which no trial is begun; 0: no limit
    bool cut;      // time was up before everything was tried
};

enum outcome { LACKS, FITS, IMPOSSIBLE }; // impossible: for other reasons than memory

// Whether anything fits; *found becomes the plan of it that takes least time.
static enum outcome advise_search(struct advice *a, const struct plan_request *r, struct plan_choice *found) {
    struct plan_request quick = *r;
    struct plan_result result;
    trireme_error why = {0};
    const int64_t now = clock_now();
    if (a->until > 0 && now >= a->until) {
        a->cut = true;
        return LACKS;
    }
    if (a->until > 0)
        quick.seconds = fmin(r->seconds, 1e-9 * (double)(a->until - now));
    quick.only_fit = true;
    quick.progress = NULL;
    if (plan_search(&result, &quick, &why) != TRIREME_OK)
        return IMPOSSIBLE;
    bool any = result.fits;
    a->cut |= !any && !result.complete;
    if (any && found) {
        *found = result.answers.item[0].choice;
        const struct schedule_kind *kind = schedule_kind(found->schedule);
        found->schedule = kind ? kind->name : NULL;
        found->full_layers = found->selective_layers = found->layout = NULL; // they end before it
    }
    plan_result_release(&result);
    return any ? FITS : LACKS;
}

static bool advise_fits(struct advice *a, const struct plan_request *r, struct plan_choice *found) {
    return advise_search(a, r, found) == FITS;
}

// With one key of the configuration at another value.
static enum outcome search_with(struct advice *a, const char *key, const char *value) {
    struct plan_request changed = *a->request;
    struct model_config model = *a->request->model;
    struct config config;
    trireme_error none;
    config_copy(&config, a->request->config);
    changed.config = &config;
    changed.model = &model;
    bool set = config_set(&config, key, value, "advice", &none) == TRIREME_OK;
    if (model_config_follows_length(&config))
        model.max_position_embeddings = config.training.seq_len;
    enum outcome outcome = set ? advise_search(a, &changed, NULL) : IMPOSSIBLE;
    config_release(&config);
    return outcome;
}

static bool fits_with(struct advice *a, const char *key, const char *value) {
    return search_with(a, key, value) == FITS;
}

static enum outcome search_with_number(struct advice *a, const char *key, int64_t number) {
    char value[32];
    snprintf(value, sizeof value, "%" PRId64, number);
    return search_with(a, key, value);
}

static bool fits_with_number(struct advice *a, const char *key, int64_t number) {
    return search_with_number(a, key, number) == FITS;
}

// Values of a key, from the one that saves most to the one that changes least.
struct values {
    VEC(int64_t);
};

static void advise_drop(struct values *values, int index) {
    values->count--;
    memmove(&values->item[index], &values->item[index + 1], (values->count - (size_t)index) * sizeof *values->item);
}

// The index of the last value that fits; -1: none does. Found by bisection, assuming that all possible values before
// one that fits also fit. Values that are found to be impossible are dropped. `first_fits`: the first is known to.
static int smallest_change(struct advice *a, const char *key, struct values *values, bool first_fits) {
    while (values->count > 0 && !first_fits) {
        const enum outcome outcome = search_with_number(a, key, values->item[0]);
        if (outcome == LACKS)
            return -1;
        if (outcome == IMPOSSIBLE)
            advise_drop(values, 0);
        first_fits = outcome == FITS;
    }
    int fit = values->count > 0 ? 0 : -1, no_fit = (int)values->count;
    while (no_fit - fit > 1) {
        const int middle = (fit + no_fit + 1) / 2;
        const enum outcome outcome = search_with_number(a, key, values->item[middle]);
        if (outcome == FITS)
            fit = middle;
        else if (outcome == LACKS)
            no_fit = middle;
        else
            advise_drop(values, middle), no_fit--;
    }
    return fit;
}

static void advise_number(struct advice *a, const char *key, int64_t number) {
    text_add(a->out, "fits with %s=%" PRId64 "\n", key, number);
}

// Releases the values.
static void advise_smallest(struct advice *a, const char *key, struct values *values, bool first_fits) {
    int best = smallest_change(a, key, values, first_fits);
    if (best >= 0)
        advise_number(a, key, values->item[best]);
    VEC_RELEASE(values);
}

static void try_key(struct advice *a, const char *key, const char *value) {
    if (fits_with(a, key, value))
        text_add(a->out, "fits with %s=%s\n", key, value);
}

// ---- what the user has set

// Whether anything fits with a key that is set left to the search.
static bool fits_freed(struct advice *a, const char *key, struct plan_choice *found) {
    struct plan_request changed = *a->request;
    struct config config;
    config_copy(&config, a->request->config);
    config_forget(&config, key);
    changed.config = &config;
    const bool any = advise_fits(a, &changed, found);
    config_release(&config);
    return any;
}

static void try_schedule(struct advice *a) {
    const char *key = "parallelism.pipeline_parallel_schedule";
    struct plan_choice found;
    if (config_is_set(a->request->config, key) && fits_freed(a, key, &found) && found.stages > 1 && found.schedule)
        text_add(a->out, "fits with %s=%s\n", key, found.schedule);
}

// Smaller limits: than the one that is set, or than the one that a set schedule has by default.
static void try_activation_limit(struct advice *a) {
    const struct config *c = a->request->config;
    const struct config_parallelism *p = &c->parallelism;
    const struct schedule_kind *kind = schedule_kind(p->pipeline_parallel_schedule);
    const bool by_default = kind && kind->properties & SCHEDULE_LIMIT && p->pipeline_parallel_degree > 0;
    struct values smaller = {0};
    int64_t limit = p->pipeline_parallel_activation_limit;
    if (limit == 0 && by_default)
        limit = 2 * p->pipeline_parallel_degree;
    for (int64_t less = 1; less < limit; less++)
        VEC_PUSH(&smaller, less);
    advise_smallest(a, "parallelism.pipeline_parallel_activation_limit", &smaller, false);
}

// Keys whose values are in no order of memory.
static void try_without(struct advice *a) {
    static const char *const KEYS[] = {"parallelism.pipeline_parallel_chunks",
                                       "parallelism.pipeline_parallel_layout",
                                       "parallelism.vocabulary_parallel",
                                       "parallelism.tensor_parallel_overlap",
                                       "parallelism.data_parallel_unit_layers",
                                       "parallelism.data_parallel_prefetch",
                                       "training.logits_rows",
                                       "activation_checkpoint.full_layers",
                                       "activation_checkpoint.selective_layers"};
    for (size_t i = 0; i < ARRAY_LENGTH(KEYS); i++)
        if (config_is_set(a->request->config, KEYS[i]) && fits_freed(a, KEYS[i], NULL))
            text_add(a->out, "fits without %s\n", KEYS[i]);
}

static void try_micro_batch(struct advice *a) {
    const char *key = "training.micro_batch_size";
    const struct config_training *t = &a->request->config->training;
    struct values smaller = {0};
    for (int64_t size = 1; size < t->micro_batch_size && config_is_set(a->request->config, key); size++)
        if (t->global_batch_size % size == 0)
            VEC_PUSH(&smaller, size);
    advise_smallest(a, key, &smaller, false);
}

static void try_recompute(struct advice *a) {
    const char *key = "activation_checkpoint.mode";
    if (!config_is_set(a->request->config, key))
        return;
    for (int mode = (int)a->request->config->activation_checkpoint.mode + 1; mode <= CONFIG_RECOMPUTE_FULL; mode++)
        if (fits_with(a, key, config_recompute_word((enum config_recompute)mode))) {
            text_add(a->out, "fits with %s=%s\n", key, config_recompute_word((enum config_recompute)mode));
            return;
        }
}

// For numbers of layers that are recomputed: tries one number for all stages that is more than the least of them. First
// as many layers as a stage has, with as many stages as it takes for that to fit; then smaller numbers.
static void try_layers(struct advice *a, const char *key, const char *given) {
    const struct config *config = a->request->config;
    int64_t layers = a->request->model->num_hidden_layers, set = config->parallelism.pipeline_parallel_degree, last = 0;
    bool fixed = config_is_set(config, "parallelism.pipeline_parallel_degree") && set > 0;
    int64_t least = fixed ? set : 1, most = fixed ? set : MIN(layers, a->request->ranks);
    const int count = numbers_count(given);
    if (count == 0)
        return;
    int *number = mem_alloc((size_t)count * sizeof *number);
    CHECK(numbers_read(given, count, number) == count);
    sort_ints(number, (size_t)count);
    const int64_t now = number[0];
    free(number);
    for (int64_t stages = least; stages <= most && layers / stages > now; stages++) {
        int64_t all = layers / stages;
        if (all == last || !fits_with_number(a, key, all)) {
            last = all;
            continue;
        }
        struct values more = {0};
        for (; all > now; all--)
            VEC_PUSH(&more, all);
        advise_smallest(a, key, &more, true);
        return;
    }
}

static void try_zero_stage(struct advice *a) {
    const char *key = "parallelism.zero_stage";
    int64_t given = a->request->config->parallelism.zero_stage;
    for (int64_t stage = given + 1; stage <= 3 && config_is_set(a->request->config, key); stage++)
        if (fits_with_number(a, key, stage)) {
            advise_number(a, key, stage);
            return;
        }
}

static void try_dtype(struct advice *a) {
    static const struct {
        enum config_dtype dtype;
        enum dtype needs;
    } SMALLER[] = {{CONFIG_DTYPE_F32, DTYPE_F32}, {CONFIG_DTYPE_BF16, DTYPE_BF16}}; // than what comes before
    const struct plan_request *r = a->request;
    const int64_t bytes = dtype_size(model_dtype(r->config));
    for (size_t i = 0; i < ARRAY_LENGTH(SMALLER); i++) {
        const char *word = config_dtype_word(SMALLER[i].dtype);
        if (dtype_size(SMALLER[i].needs) < bytes && !topology_without(r->cluster, r->ranks, SMALLER[i].needs) &&
            fits_with(a, "training.dtype", word)) {
            text_add(a->out, "fits with training.dtype=%s\n", word);
            return;
        }
    }
}

struct degree {
    const char *key;
    int64_t given; // below 1: it is searched
    int chosen;
};

enum { DEGREES = 4 };

static void list_degrees(struct degree out[DEGREES], const struct config *config, const struct plan_choice *c) {
    const struct config_parallelism *p = &config->parallelism;
    const struct degree all[DEGREES] = {
        {"parallelism.tensor_parallel_degree", p->tensor_parallel_degree, c->tensor},
        {"parallelism.pipeline_parallel_degree", p->pipeline_parallel_degree, c->stages},
        {"parallelism.data_parallel_shard_degree", p->data_parallel_shard_degree, c->shards},
        {"parallelism.data_parallel_replicate_degree", p->data_parallel_replicate_degree, c->replicas}};
    memcpy(out, all, sizeof all);
    for (int i = 0; i < DEGREES; i++)
        out[i].given = config_is_set(config, all[i].key) ? out[i].given : -1;
}

// Whether anything fits when the degrees that free[] names are searched; *degrees get those that were chosen.
static bool fits_without(struct advice *a, const bool free[DEGREES], struct degree degrees[DEGREES]) {
    struct plan_request changed = *a->request;
    struct config config;
    struct plan_choice choice = {0};
    trireme_error none;
    config_copy(&config, a->request->config);
    changed.config = &config;
    bool found = true;
    for (int i = 0; i < DEGREES; i++)
        if (free[i])
            found &= config_set(&config, degrees[i].key, "-1", "advice", &none) == TRIREME_OK;
    found = found && advise_fits(a, &changed, &choice);
    config_release(&config);
    list_degrees(degrees, a->request->config, &choice);
    return found;
}

// Advises a degree as near to the given one as fits, from the one that was found to fit.
static void advise_degree(struct advice *a, const struct degree *degree) {
    struct values nearer = {0};
    int64_t step = degree->chosen > degree->given ? -1 : 1;
    for (int64_t value = degree->chosen; value != degree->given; value += step)
        if (a->request->ranks % value == 0)
            VEC_PUSH(&nearer, value);
    advise_smallest(a, degree->key, &nearer, true);
}

// Frees one degree of the mesh at a time; if none helps, all that are set, whose product may be the number of ranks.
static void try_mesh(struct advice *a) {
    struct degree degrees[DEGREES];
    const struct plan_choice none = {0};
    bool given[DEGREES], any = false;
    int count = 0;
    list_degrees(degrees, a->request->config, &none);
    for (int i = 0; i < DEGREES; i++)
        count += given[i] = degrees[i].given > 0;
    for (int i = 0; i < DEGREES; i++) {
        bool alone[DEGREES] = {false};
        alone[i] = true;
        if (!given[i] || !fits_without(a, alone, degrees) || degrees[i].chosen == degrees[i].given)
            continue;
        any = true;
        advise_degree(a, &degrees[i]);
    }
    if (any || count < 2 || !fits_without(a, given, degrees))
        return;
    text_add(a->out, "fits with");
    for (int i = 0; i < DEGREES; i++)
        if (given[i] && degrees[i].chosen != degrees[i].given)
            text_add(a->out, " %s=%d", degrees[i].key, degrees[i].chosen);
    text_add(a->out, "\n");
}

// ---- what is to be trained, and on what

// Tries halves of the length, and then lengths between the first half that fits and the one before it.
static void try_lengths(struct advice *a) {
    const char *key = "training.seq_len";
    int64_t given = a->request->config->training.seq_len, halves[64];
    struct values lengths = {0};
    int count = 0;
    for (int64_t length = given / 2; length >= SEQ_LEN_LEAST; length /= 2)
        halves[count++] = length;
    while (count > 0)
        VEC_PUSH(&lengths, halves[--count]);
    int best = smallest_change(a, key, &lengths, false);
    if (best >= 0) {
        int64_t half = lengths.item[best];
        lengths.count = 0;
        int64_t step = MAX(1, half / SEQ_LEN_PARTS);
        for (int64_t part = 0; part < MIN(half, SEQ_LEN_PARTS); part++)
            VEC_PUSH(&lengths, half + part * step);
        best = smallest_change(a, key, &lengths, true);
        advise_number(a, key, lengths.item[best]);
    }
    VEC_RELEASE(&lengths);
}

static bool fits_on(struct advice *a, int64_t ranks) {
    struct plan_request more = *a->request;
    more.ranks = (int)ranks;
    return advise_fits(a, &more, NULL);
}

// Doubles the devices as often as needed, and then tries numbers between that and the last that was too few, node by
// node.
static void try_devices(struct advice *a) {
    const struct plan_request *r = a->request;
    const int64_t all = r->cluster->total_devices, node = r->cluster->groups.item[0].devices;
    int64_t few = r->ranks, enough = MIN(2 * few, all);
    while (few < all && !fits_on(a, enough)) {
        few = enough;
        enough = MIN(2 * few, all);
    }
    if (few >= all)
        return;
    int64_t step = enough - few > node ? node : 1;
    for (int tries = 0; tries < DEVICE_TRIES; tries++) {
        int64_t middle = (few + enough) / 2 / step * step;
        middle = middle > few ? middle : middle + step;
        if (middle >= enough)
            break;
        if (fits_on(a, middle))
            enough = middle;
        else
            few = middle;
    }
    text_add(a->out, "fits with %s=%" PRId64 "\n", r->config->parallelism.ranks > 0 ? "parallelism.ranks" : "devices",
             enough);
}

// Of the device that has least.
static int64_t advise_memory_of(const struct cluster *c) {
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < c->groups.count; i++)
        least = MIN(least, c->devices.item[c->groups.item[i].device].memory);
    return least;
}

static void try_clusters(struct advice *a) {
    const struct plan_request *r = a->request;
    for (const struct shipped_cluster *s = shipped_clusters; s->name; s++) {
        struct plan_request other = *r;
        struct cluster cluster;
        trireme_error none;
        if (cluster_load(&cluster, r->ops, s->name, &none) != TRIREME_OK)
            continue;
        other.cluster = &cluster;
        if (!topology_without(&cluster, r->ranks, model_dtype(r->config)) &&
            advise_memory_of(&cluster) > advise_memory_of(r->cluster) && cluster.total_devices >= r->ranks &&
            advise_fits(a, &other, NULL))
            text_add(a->out, "fits with cluster=%s\n", s->name);
        cluster_release(&cluster);
    }
}

bool plan_advise(struct text *out, const struct plan_request *r) {
    struct advice a = {.out = out, .request = r};
    if (r->seconds > 0)
        a.until = clock_now() + (int64_t)(1e9 * ADVICE_TIME * r->seconds);
    try_micro_batch(&a);
    try_recompute(&a);
    try_layers(&a, "activation_checkpoint.full_layers", r->config->activation_checkpoint.full_layers);
    try_layers(&a, "activation_checkpoint.selective_layers", r->config->activation_checkpoint.selective_layers);
    try_zero_stage(&a);
    try_schedule(&a);
    try_activation_limit(&a);
    try_without(&a);
    if (config_is_set(r->config, "parallelism.sequence_parallel") && !r->config->parallelism.sequence_parallel)
        try_key(&a, "parallelism.sequence_parallel", "true");
    try_mesh(&a);
    try_dtype(&a);
    try_lengths(&a);
    try_devices(&a);
    try_clusters(&a);
    return !a.cut;
}
