#include "run/validation.h"

#include "run/island.h"

// Reads batch `number` of `total`, if there is one, and agrees with all ranks whether to go on with it.
static void validation_begin_batch(struct loader *loader, int64_t number, int64_t total) {
    if (number < total)
        loader_begin(loader, SAMPLER_VALIDATION, number, LOADER_ALL, &(struct control){0});
}

static trireme_status validation_end_batch(struct loader *loader, int64_t number, int64_t total, trireme_error *error) {
    struct control all;
    if (number == total)
        return TRIREME_OK;
    TRY(loader_end(loader, &all, error));
    if (loader_stops(loader, &all))
        FAIL(TRIREME_ERROR_INTERRUPTED, "stopped while evaluating");
    return all.failures > 0 ? loader_fail(loader, SAMPLER_VALIDATION, error) : TRIREME_OK;
}

trireme_status validation_run(const struct corpus *corpus, struct engine *engine, struct loader *loader,
                              struct communicator *control, int64_t batches,
                              void (*progress)(int64_t done, int64_t total), struct validation_loss *out,
                              trireme_error *error) {
    const int64_t total = corpus_validation_batches(corpus, batches);
    double sums[2] = {0}; // of losses, of targets
    int64_t text_bytes = 0;
    validation_begin_batch(loader, 0, total);
    TRY(validation_end_batch(loader, 0, total, error));
    for (int64_t b = 0; b < total; b++) {
        struct sampler_counts counts;
        struct engine_result r;
        if (progress)
            progress(b, total);
        loader_take(loader, SAMPLER_VALIDATION, &counts);
        validation_begin_batch(loader, b + 1, total);
        TRY(engine_evaluate(engine, &r, error));
        TRY(validation_end_batch(loader, b + 1, total, error));
        sums[0] += r.loss * r.count;
        sums[1] += r.count;
        text_bytes += counts.text_bytes;
    }
    TRY(island_sum(engine, control, sums, ARRAY_LENGTH(sums), error));
    if (sums[1] == 0)
        FAIL(TRIREME_ERROR_USAGE, CORPUS_NO_TARGETS, "validation");
    *out = (struct validation_loss){sums[0] / sums[1], (int64_t)sums[1], text_bytes};
    return TRIREME_OK;
}
