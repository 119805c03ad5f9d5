#include "parallel/layout.h"

#include "base/amount.h"

#include <math.h>

static const char *const KEY = "parallelism.pipeline_parallel_layout";

static trireme_status read_layout(const struct config *config, int stages, int layers, int *first,
                                  trireme_error *error) {
    int *number = mem_alloc((size_t)stages * sizeof *number);
    int count = numbers_read(config->parallelism.pipeline_parallel_layout, stages, number);
    bool sound = count > 0;
    for (int v = 0; v < count; v++)
        sound &= number[v] >= 1 && number[v] <= layers;
    first[0] = 0;
    for (int v = 0; v < count && sound; v++)
        first[v + 1] = first[v] + number[v];
    free(number);
    if (!sound)
        return config_refuse(
            config, KEY, error,
            "expected \"auto\" or the layers, 1 or more, of each of the pipeline's stages, of which there %s %d",
            stages == 1 ? "is" : "are", stages);
    if (count != stages || first[count] != layers)
        return config_refuse(config, KEY, error, "expected %s whose sum is %d, the layers of the model",
                             counted(stages, "number").text, layers);
    return TRIREME_OK;
}

// ---- layers that are computed again

static const char *const FULL = "activation_checkpoint.full_layers";
static const char *const SELECTIVE = "activation_checkpoint.selective_layers";

// A key that says how many layers of each virtual stage are recomputed in one mode.
struct again_key {
    const char *key, *said; // its name and its value
    enum config_recompute mode;
    int **number; // of layers of each stage; stays NULL where the key is not set
    bool alike;   // one number stands for all stages
};

static trireme_status read_again(struct again_key *k, const struct config *config, int stages, trireme_error *error) {
    enum config_recompute rest = config->activation_checkpoint.mode;
    if (!*k->said)
        return TRIREME_OK;
    if (rest == k->mode || rest == CONFIG_RECOMPUTE_FULL)
        return config_refuse(config, k->key, error, "but activation_checkpoint.mode, that of all others, is %s",
                             config_recompute_word(rest));
    int *number = *k->number = mem_alloc((size_t)stages * sizeof *number);
    int count = numbers_read(k->said, stages, number);
    if (count != 1 && count != stages)
        return config_refuse(config, k->key, error,
                             "expected a number of layers for each of the pipeline's stages, of which there %s %d, or "
                             "one for all",
                             stages == 1 ? "is" : "are", stages);
    k->alike = count < stages;
    for (int v = count; v < stages; v++)
        number[v] = number[0];
    return TRIREME_OK;
}

// Checks that stages have as many layers as a key says, besides taken[stages] (NULL: none). A single number for all
// stages is lowered in stages with fewer layers, but at least one stage must have as many.
static trireme_status fit_again(const struct again_key *k, const struct parallel *parallel, const int *taken,
                                const struct config *config, int stages, trireme_error *error) {
    const char *beside = taken ? " outside mode full" : "";
    int *number = *k->number, most = 0;
    for (int v = 0; v < stages && number; v++) {
        int room = parallel->first_layer[v + 1] - parallel->first_layer[v] - (taken ? taken[v] : 0);
        most = MAX(most, room);
        if (number[v] > room && !k->alike)
            return config_refuse(config, k->key, error, "but stage %d has %s%s", v, counted(room, "layer").text,
                                 beside);
    }
    if (number && number[0] > most && k->alike)
        return config_refuse(config, k->key, error, "but no stage has more than %s%s", counted(most, "layer").text,
                             beside);
    for (int v = 0; v < stages && number; v++)
        number[v] = MIN(number[v], parallel->first_layer[v + 1] - parallel->first_layer[v] - (taken ? taken[v] : 0));
    return TRIREME_OK;
}

// The sum of a key's value over all stages.
static double count_listed(const char *said, int stages) {
    int *number = mem_alloc((size_t)stages * sizeof *number), count = numbers_read(said, stages, number);
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += number[i];
    free(number);
    return count == 1 ? sum * stages : sum;
}

void layout_shares(const struct config *config, int stages, int layers, double share[static RECOMPUTE_MODES]) {
    const struct config_activation_checkpoint *again = &config->activation_checkpoint;
    double full = MIN(1, count_listed(again->full_layers, stages) / layers);
    double selective = MIN(1 - full, count_listed(again->selective_layers, stages) / layers);
    for (int mode = 0; mode < RECOMPUTE_MODES; mode++)
        share[mode] = 0;
    share[CONFIG_RECOMPUTE_FULL] = full;
    share[CONFIG_RECOMPUTE_SELECTIVE] = selective;
    share[again->mode] += 1 - full - selective;
}

// ---- balanced layouts

// Floating-point operations of head and loss, in those of one layer that is not recomputed.
static double head_in_layers(const struct config *config, const struct model_config *model) {
    int64_t seq_len = config->training.seq_len;
    double all = model_flops(model, 1, seq_len), layers = model_layers_flops(model, 1, seq_len);
    return (all - layers) / (layers / (double)model->num_hidden_layers);
}

// The work of a virtual stage's layer with `before` layers before it, in units of one that is not recomputed.
static double layer_work(const struct parallel *parallel, bool all_full, int stage, int before) {
    bool full = all_full || (parallel->full_layers && before < parallel->full_layers[stage]);
    return full ? 4.0 / 3 : 1; // forward once more
}

// The rank's virtual stage with the fewest layers.
static int shortest_stage(const struct schedule *s, int rank, const int *count) {
    int least = s->virtual_stage[rank * s->chunks];
    for (int c = 1; c < s->chunks; c++) {
        int v = s->virtual_stage[rank * s->chunks + c];
        least = count[v] < count[least] ? v : least;
    }
    return least;
}

// Every virtual stage gets one layer. Then each further layer goes to the rank that has the least work with it; where
// ranks tie, to the first; and on that rank to the stage with the fewest layers.
//
// If all layers of a rank take equally long, no other layout makes the busiest rank less busy. Compare with any other
// layout: as long as layers are left, some rank has fewer than in that layout, and with one more it has no more work
// than that layout's busiest rank.
static void layout_balance(const struct parallel *parallel, bool all_full, double head, int layers, int *count) {
    const struct schedule *s = parallel->schedule;
    int ranks = s->stages, stages = ranks * s->chunks;
    double *work = mem_alloc((size_t)ranks * sizeof *work);
    work[s->place[stages - 1].rank] = head;
    for (int v = 0; v < stages; v++) {
        count[v] = 1;
        work[s->place[v].rank] += layer_work(parallel, all_full, v, 0);
    }
    for (int left = layers - stages; left > 0; left--) {
        int taker = NONE;
        double least = INFINITY;
        for (int r = 0; r < ranks; r++) {
            int v = shortest_stage(s, r, count);
            double with = work[r] + layer_work(parallel, all_full, v, count[v]);
            if (with < least) {
                least = with;
                taker = v;
            }
        }
        count[taker]++;
        work[s->place[taker].rank] = least;
    }
    free(work);
}

// What a layout comes to: the work of the busiest rank, and the sum of the squares of all ranks' work.
struct balance {
    double most, squares;
};

// `layer_flops`: of each layer, in those of a mean one.
static struct balance balance_of(const struct parallel *parallel, bool all_full, double head, const double *layer_flops,
                                 const int *count) {
    const struct schedule *s = parallel->schedule;
    int stages = s->stages * s->chunks, layer = 0;
    double *work = mem_alloc((size_t)s->stages * sizeof *work);
    struct balance b = {0};
    work[s->place[stages - 1].rank] = head;
    for (int v = 0; v < stages; v++)
        for (int before = 0; before < count[v]; before++)
            work[s->place[v].rank] += layer_flops[layer++] * layer_work(parallel, all_full, v, before);
    for (int r = 0; r < s->stages; r++) {
        b.most = MAX(b.most, work[r]);
        b.squares += work[r] * work[r];
    }
    free(work);
    return b;
}

static bool is_better(struct balance a, struct balance b) {
    const double less = 1 - 1e-9; // what is the same but for rounding is not better
    return a.most < b.most * less || (a.most <= b.most && a.squares < b.squares * less);
}

// Where layers take unlike times, one more or less moves all that follow: as long as that makes a better layout, one
// stage gives a layer and another takes one.
static void layout_refine(const struct parallel *parallel, bool all_full, double head, const double *layer_flops,
                          int *count) {
    const int stages = parallel->schedule->stages * parallel->schedule->chunks;
    struct balance best = balance_of(parallel, all_full, head, layer_flops, count);
    for (bool moved = true; moved;) {
        moved = false;
        for (int from = 0; from < stages; from++)
            for (int to = 0; to < stages && count[from] > 1; to++) {
                count[from]--, count[to]++;
                struct balance b = balance_of(parallel, all_full, head, layer_flops, count);
                if (from != to && is_better(b, best)) {
                    best = b;
                    moved = true;
                } else {
                    count[from]++, count[to]--;
                }
            }
    }
}

// The layers of each virtual stage so that ranks have about the same work.
static void layout_auto(const struct parallel *parallel, const struct config *config, const struct model_config *model,
                        int *count) {
    const int layers = (int)model->num_hidden_layers;
    const bool all_full = config->activation_checkpoint.mode == CONFIG_RECOMPUTE_FULL;
    const double head = parallel->split.vocabulary_stages > 1 ? 0 : head_in_layers(config, model);
    layout_balance(parallel, all_full, head, layers, count);
    if (model_layer_kinds(model) == 1)
        return;
    double *flops = mem_alloc((size_t)layers * sizeof *flops);
    const double mean = model_layers_flops(model, 1, config->training.seq_len) / layers;
    for (int i = 0; i < layers; i++)
        flops[i] = model_layer_flops(model, i, config->training.seq_len) / mean;
    layout_refine(parallel, all_full, head, flops, count);
    free(flops);
}

static trireme_status layout_fill(struct parallel *parallel, const struct config *config,
                                  const struct model_config *model, int stages, trireme_error *error) {
    int layers = (int)model->num_hidden_layers;
    int *first = parallel->first_layer = mem_alloc((size_t)(stages + 1) * sizeof *first);
    const char *said = config->parallelism.pipeline_parallel_layout;
    if (strcmp(said, "auto") == 0 && parallel->schedule) {
        int *count = mem_alloc((size_t)stages * sizeof *count);
        layout_auto(parallel, config, model, count);
        for (int v = 0; v < stages; v++)
            first[v + 1] = first[v] + count[v];
        free(count);
    } else if (*said && strcmp(said, "auto") != 0) {
        return read_layout(config, stages, layers, first, error);
    } else {
        for (int s = 0; s <= stages; s++)
            first[s] = s * (layers / stages) + MIN(s, layers % stages);
    }
    return TRIREME_OK;
}

trireme_status layout_check(const struct config *config, const struct model_config *model, int64_t ranks,
                            int64_t chunks, trireme_error *error) {
    static const char *const DEGREE = "parallelism.pipeline_parallel_degree";
    long long layers = model->num_hidden_layers, stages = ranks * chunks;
    if (stages > layers && chunks == 1)
        return config_refuse(config, DEGREE, error, "but the model has %s for %lld stages",
                             counted(layers, "layer").text, stages);
    if (stages > layers)
        return config_refuse(config, DEGREE, error,
                             "but the model has %s for the %lld virtual stages of %lld chunks to a rank",
                             counted(layers, "layer").text, stages, (long long)chunks);
    return TRIREME_OK;
}

trireme_status layout_resolve(struct parallel *parallel, const struct config *config, const struct model_config *model,
                              trireme_error *error) {
    const int stages = parallel_virtual_stages(parallel);
    TRY(layout_check(config, model, parallel->mesh.degree[AXIS_PP], parallel_chunks(parallel), error));
    const struct config_activation_checkpoint *again = &config->activation_checkpoint;
    struct again_key full = {FULL, again->full_layers, CONFIG_RECOMPUTE_FULL, &parallel->full_layers, false};
    struct again_key selective = {SELECTIVE, again->selective_layers, CONFIG_RECOMPUTE_SELECTIVE,
                                  &parallel->selective_layers, false};
    TRY(read_again(&full, config, stages, error));
    TRY(read_again(&selective, config, stages, error));
    TRY(layout_fill(parallel, config, model, stages, error));
    TRY(fit_again(&full, parallel, NULL, config, stages, error));
    return fit_again(&selective, parallel, parallel->full_layers, config, stages, error);
}
