#include "measure/synthetic.h"

#include "base/rng.h"
#include "run/checkpoint.h"
#include "run/corpus.h"

trireme_status synthetic_model(struct model_config *out, const struct config *config, trireme_error *error) {
    int64_t vocab = NO_TOKENS;
    if (corpus_given(config)) {
        struct corpus corpus;
        trireme_error ignored; // the program can be looked at before its data is there
        if (corpus_open(&corpus, config, &ignored) == TRIREME_OK) {
            vocab = corpus_vocab_size(&corpus);
            corpus_close(&corpus);
        }
    }
    return checkpoint_model(out, config, vocab, NULL, NULL, error);
}

static void fill_batch(const struct engine *e, const struct engine_program *p, uint64_t seed) {
    const struct compiled *c = p->compiled;
    const struct executor *executor = p->executor;
    const struct engine_rows own = engine_rows(e, c);
    const int64_t seq_len = c->spec.batch.seq_len, first = engine_first_sequence(e, c) * seq_len;
    for (int m = 0; m < c->spec.batch.microbatches; m++) {
        int32_t *tokens = executor_address(executor, c->tokens, m),
                *targets = executor_address(executor, c->targets, m),
                *positions = executor_address(executor, c->positions, m),
                *starts = executor_address(executor, c->starts, m);
        for (int64_t i = 0; i < c->spec.batch.sequences * own.places.rows; i++) {
            const int64_t row = i % own.places.rows, sequence = i / own.places.rows, at = row - own.first,
                          place = place_of(&own.places, own.part, row);
            const bool padding = place >= seq_len; // as the sampler fills it
            starts[i] = padding ? (int32_t)place : 0;
            if (at < 0 || at >= own.rows)
                continue;
            struct rng_block random = rng_philox(seed, (uint64_t)m, (uint64_t)(first + sequence * seq_len + place));
            const int64_t to = sequence * own.rows + at;
            tokens[to] = padding ? 0 : (int32_t)(random.word[0] % (uint64_t)e->model->vocab_size);
            targets[to] = padding ? -1 : (int32_t)(random.word[1] % (uint64_t)e->model->vocab_size);
            positions[to] = padding ? 0 : (int32_t)place;
        }
    }
}

static void fill_number(const struct engine_program *p, int buffer, double number) {
    if (buffer != NONE)
        *(double *)executor_address(p->executor, buffer, 0) = number;
}

void synthetic_fill(struct engine *e, const struct engine_program *p, uint64_t seed) {
    if (p->compiled->tokens != NONE)
        fill_batch(e, p, seed);
    fill_number(p, p->compiled->lr, 0);
    fill_number(p, p->compiled->weight, 1);
}
