#include "parallel/layout.h"

static const char *const KEY = "parallelism.pipeline_parallel_layout";

static trireme_status parse(const struct config *config, int stages, int layers, int *first, trireme_error *error) {
    const char *text = config->parallelism.pipeline_parallel_layout;
    int count = 0;
    first[0] = 0;
    while (*text) {
        char *end;
        long n = strtol(text, &end, 10);
        if (end == text || n < 1 || n > layers || count == stages || (*end && *end != ','))
            return config_refuse(
                config, KEY, error,
                "expected \"auto\" or the layers of each of the pipeline's stages, of which there %s %d, as in 3,2,3",
                stages == 1 ? "is" : "are", stages);
        first[count + 1] = first[count] + (int)n;
        count++;
        text = *end ? end + 1 : end;
    }
    if (count != stages || first[count] != layers)
        return config_refuse(config, KEY, error, "expected %d number%s whose sum is %d, the layers of the model",
                             stages, stages == 1 ? "" : "s", layers);
    return TRIREME_OK;
}

// Floating-point operations of the head and the loss over those of one layer, as they are run.
static double head_in_layers(const struct config *config, const struct model_config *model) {
    struct model_config headless = *model;
    headless.vocab_size = 0;
    int64_t seq_len = config->training.seq_len;
    double all = model_flops(model, 1, seq_len), layers = model_flops(&headless, 1, seq_len);
    double again = config->activation_checkpoint.mode == CONFIG_RECOMPUTE_FULL ? 4.0 / 3 : 1; // forward once more
    return (all - layers) / (again * layers / (double)model->num_hidden_layers);
}

// Every virtual stage gets one layer, and then the rank with the least work one more until none is left: where all
// layers are alike no other way makes the busiest rank less busy. Of its stages the one with the fewest takes it, and
// where ranks tie the first.
static void balance(const struct parallel *parallel, double head, int layers, int *count) {
    const struct schedule *s = parallel->schedule;
    int ranks = s->stages, stages = ranks * s->chunks;
    double *work = mem_alloc((size_t)ranks * sizeof *work);
    work[s->place[stages - 1].rank] = head;
    for (int v = 0; v < stages; v++) {
        count[v] = 1;
        work[s->place[v].rank]++;
    }
    for (int left = layers - stages; left > 0; left--) {
        int least = 0;
        for (int r = 1; r < ranks; r++)
            least = work[r] < work[least] ? r : least;
        int taker = s->virtual_stage[least * s->chunks];
        for (int c = 1; c < s->chunks; c++) {
            int v = s->virtual_stage[least * s->chunks + c];
            taker = count[v] < count[taker] ? v : taker;
        }
        count[taker]++;
        work[least]++;
    }
    free(work);
}

trireme_status layout_resolve(struct parallel *parallel, const struct config *config, const struct model_config *model,
                              trireme_error *error) {
    int chunks = parallel->schedule ? parallel->schedule->chunks : 1, layers = (int)model->num_hidden_layers;
    int stages = parallel->mesh.degree[AXIS_PP] * chunks;
    if (stages > layers && chunks == 1)
        return config_refuse(config, "parallelism.pipeline_parallel_degree", error, "but the model has %d layers",
                             layers);
    if (stages > layers)
        return config_refuse(config, "parallelism.pipeline_parallel_degree", error,
                             "but the model has %d layers for the %d virtual stages of %d chunks to a rank", layers,
                             stages, chunks);
    int *first = parallel->first_layer = mem_alloc((size_t)(stages + 1) * sizeof *first);
    const char *said = config->parallelism.pipeline_parallel_layout;
    if (strcmp(said, "auto") == 0 && parallel->schedule) {
        int *count = mem_alloc((size_t)stages * sizeof *count);
        bool is_spread = parallel->split.vocabulary_stages > 1;
        balance(parallel, is_spread ? 0 : head_in_layers(config, model), layers, count);
        for (int v = 0; v < stages; v++)
            first[v + 1] = first[v] + count[v];
        free(count);
    } else if (*said && strcmp(said, "auto") != 0) {
        return parse(config, stages, layers, first, error);
    } else {
        for (int s = 0; s <= stages; s++)
            first[s] = s * (layers / stages) + MIN(s, layers % stages);
    }
    return TRIREME_OK;
}
