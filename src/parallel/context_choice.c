// What a way costs is counted in floating-point operations of attention, forward and backward, on the rank that takes
// longest. Transfers count as the operations that a rank could do meanwhile; those that go on beside blocks of
// attention count as far as they take longer than a block. Bytes are those of docs/parallel.md.
#include "parallel/context_choice.h"

#include "parallel/context_method.h"

#include <math.h>

// Operations in the time of one byte on a link: some 100 for the cores of a server on 10 Gbit/s, some 1,000 for an H100
// on NVLink.
static const double PER_BYTE = 300;
// Of backward, against forward.
static const double BACKWARD = 2.5;

static const char LAYOUT_KEY[] = "parallelism.context_parallel_layout";

// The layout that is set, or the one of the method or of the model's layers.
static int64_t layout_of(const struct config *config, const struct model_config *model) {
    const struct config_parallelism *p = &config->parallelism;
    if (model_is_recurrent(model) && !config_is_set(config, LAYOUT_KEY))
        return PLACES_CONTIGUOUS;
    return p->context_parallel_layout == CONFIG_CONTEXT_PARALLEL_STRIPED  ? p->context_parallel_stripe
           : p->context_parallel_layout == CONFIG_CONTEXT_PARALLEL_ZIGZAG ? PLACES_ZIGZAG
                                                                          : PLACES_CONTIGUOUS;
}

// ---- ways

// Of a tensor-parallel rank; 1 where their number is left open.
static int64_t heads_of(const struct config *config, int64_t all) {
    const int64_t ranks = config->parallelism.tensor_parallel_degree;
    return ranks < 1 ? 1 : MAX(1, all / ranks);
}

// Whether the model and what is set allow it.
static bool way_is_possible(const struct context_way *way, const struct config *config,
                            const struct model_config *model, int64_t ranks) {
    const struct context_method *method = context_method(way->name);
    const int64_t heads = heads_of(config, model->num_attention_heads);
    return (!config_is_set(config, LAYOUT_KEY) || way->layout == layout_of(config, model)) &&
           (!config->parallelism.context_parallel_inner_degree || method->inner_rings) &&
           (!model->attention_sinks || method->sinks) &&
           (way->ulysses == 1 || (way->ulysses <= heads && ranks % way->ulysses == 0 && !model_is_recurrent(model)));
}

int context_ways(const struct config *config, const struct model_config *model, int64_t ranks,
                 struct context_way ways[CONTEXT_WAYS_MAX]) {
    const bool open = !config_is_set(config, LAYOUT_KEY) && !model_is_recurrent(model);
    const int64_t layout = open ? PLACES_ZIGZAG : layout_of(config, model);
    const struct context_way all[] = {{CONFIG_CONTEXT_PARALLEL_RING, layout, 1},
                                      {CONFIG_CONTEXT_PARALLEL_BURST, layout, 1},
                                      {CONFIG_CONTEXT_PARALLEL_TOKENRING, layout, 1},
                                      {CONFIG_CONTEXT_PARALLEL_LIGHTSEQ, PLACES_CONTIGUOUS, 1},
                                      {CONFIG_CONTEXT_PARALLEL_GATHER, PLACES_CONTIGUOUS, 1},
                                      {CONFIG_CONTEXT_PARALLEL_ULYSSES, PLACES_CONTIGUOUS, ranks}};
    int count = 0;
    for (size_t i = 0; i < ARRAY_LENGTH(all); i++)
        if (way_is_possible(&all[i], config, model, ranks))
            ways[count++] = all[i];
    for (int64_t degree = ranks / 2; degree > 1 && count < CONTEXT_WAYS_MAX; degree--) {
        const struct context_way hybrid = {CONFIG_CONTEXT_PARALLEL_HYBRID, layout, degree};
        if (way_is_possible(&hybrid, config, model, ranks))
            ways[count++] = hybrid;
    }
    return count;
}

// ---- what they cost

// What a rank has of a layer, and what others send it.
struct share {
    double rows, queries, keys; // of a part; widths of all heads
    double heads;
    double element, sum; // bytes
};

// Keys that the queries at `begin` to `end` see, in sum.
static double pairs_between(double begin, double end, double window) {
    const double first = window > 0 ? fmin(fmax(window, begin), end) : end; // from there on they see `window` each
    return (first * (first + 1) - begin * (begin + 1)) / 2 + (end - first) * window;
}

// Some computing in as many blocks as there are steps and one, while the next block's bytes come.
static double beside(double computing, double steps, double bytes) {
    const double block = computing / (steps + 1);
    return block + steps * fmax(block, PER_BYTE * bytes);
}

static double ring_costs(enum config_context_parallel_method method, const struct share *s, double computing,
                         double steps) {
    const double keys = s->rows * 2 * s->keys, queries = s->rows * s->queries, numbers = s->rows * s->heads * s->sum,
                 load = queries * s->element, gradients = 2 * load + 2 * numbers, results = queries * s->sum;
    const double ring = keys * s->element, back = ring + keys * s->sum; // one after the other in the same direction
    switch (method) {
    case CONFIG_CONTEXT_PARALLEL_BURST:
        return beside(computing, steps, ring) + beside(BACKWARD * computing, steps, gradients + results);
    case CONFIG_CONTEXT_PARALLEL_TOKENRING: // a rank sends both, by links that go to one switch
        return beside(computing, steps, load + results + numbers) +
               beside(BACKWARD * computing, steps, gradients + results);
    case CONFIG_CONTEXT_PARALLEL_LIGHTSEQ: // some ranks send keys, and others queries and results
        return beside(computing, steps, fmax(ring, load + results + numbers)) +
               beside(BACKWARD * computing, steps, fmax(back, gradients + results));
    default:
        return beside(computing, steps, ring) + beside(BACKWARD * computing, steps, back);
    }
}

// Of one layer with this window.
static double layer_costs(const struct context_way *way, const struct config *config, const struct model_config *model,
                          int64_t ranks, int64_t window) {
    const enum dtype dtype = model_dtype(config);
    const int64_t parts = ranks / way->ulysses, tokens = config->training.seq_len;
    const double exchange = (double)way->ulysses,
                 heads = ceil((double)heads_of(config, model->num_attention_heads) / exchange),
                 kv_heads = ceil((double)heads_of(config, model->num_key_value_heads) / exchange);
    const struct share s = {.rows = (double)tokens / (double)parts,
                            .queries = heads * (double)model->head_dim,
                            .keys = kv_heads * (double)model->head_dim,
                            .heads = heads,
                            .element = (double)dtype_size(dtype),
                            .sum = (double)dtype_size(dtype_accumulate(dtype))};
    const bool balanced = way->layout != PLACES_CONTIGUOUS;
    const double pairs = balanced ? pairs_between(0, (double)tokens, (double)window) / (double)parts
                                  : pairs_between((double)tokens - s.rows, (double)tokens, (double)window),
                 computing = 4 * s.queries * pairs;
    if (way->name == CONFIG_CONTEXT_PARALLEL_GATHER)
        return (1 + BACKWARD) * computing + PER_BYTE * (double)(parts - 1) * 2 * s.keys * s.rows * (s.element + s.sum);
    if (way->name == CONFIG_CONTEXT_PARALLEL_LIGHTSEQ) { // blocks of as many queries as keys, of its own half of one
        const double steps = (double)(parts / 2), blocks = 4 * s.queries * s.rows * s.rows * (steps + .5);
        return ring_costs(way->name, &s, fmin(blocks, computing), steps);
    }
    const struct places places = places_shared(way->layout, parts, way->ulysses, tokens);
    // Queries, keys, values and results, and the gradients of them all.
    const double exchanged = 4 * (s.queries + s.keys) * s.rows * s.element * (exchange - 1) / exchange;
    return PER_BYTE * exchanged + ring_costs(way->name, &s, computing, (double)places_reach(&places, window));
}

static double way_costs(const struct context_way *way, const struct config *config, const struct model_config *model,
                        int64_t ranks) {
    double sum = 0;
    for (int kind = 0; kind < model_layer_kinds(model); kind++)
        sum += (double)model_layers_of_kind(model, kind) *
               layer_costs(way, config, model, ranks, model->kind[kind].sliding_window);
    return sum;
}

static struct context_way cheapest_way(const struct config *config, const struct model_config *model, int64_t ranks) {
    struct context_way ways[CONTEXT_WAYS_MAX], best = {0};
    const int count = context_ways(config, model, ranks, ways);
    double least = INFINITY;
    for (int i = 0; i < count; i++) {
        const double cost = way_costs(&ways[i], config, model, ranks);
        if (cost < least) {
            least = cost;
            best = ways[i];
        }
    }
    return best;
}

struct context_way context_way_of(const struct config *config, const struct model_config *model, int64_t ranks) {
    const struct config_parallelism *p = &config->parallelism;
    const int64_t degree = p->context_parallel_ulysses_degree;
    struct context_way way = {p->context_parallel_method, layout_of(config, model), 1};
    if (ranks > 1 && way.name == CONFIG_CONTEXT_PARALLEL_AUTO)
        return cheapest_way(config, model, ranks);
    if (way.name == CONFIG_CONTEXT_PARALLEL_AUTO)
        way.name = CONFIG_CONTEXT_PARALLEL_GATHER;
    else if (way.name == CONFIG_CONTEXT_PARALLEL_ULYSSES)
        way.ulysses = MAX(ranks, 1);
    else if (way.name == CONFIG_CONTEXT_PARALLEL_HYBRID && ranks % degree == 0)
        way.ulysses = degree;
    return way;
}

void context_choice_print(const struct config *config, const struct parallel *parallel, struct text *out) {
    if (config->parallelism.context_parallel_method == CONFIG_CONTEXT_PARALLEL_AUTO &&
        mesh_group_size(&parallel->mesh, AXES_PARTS) > 1)
        text_add(out, "context_parallel_method auto: %s, %s", config_context_parallel_method_word(parallel->context),
                 places_word(parallel->layout));
}
