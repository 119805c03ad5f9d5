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
    const struct engine_rows part = engine_rows(e, c);
    const int64_t first = engine_first_sequence(e, c) * c->spec.batch.seq_len;
    for (int m = 0; m < c->spec.batch.microbatches; m++) {
        int32_t *tokens = executor_address(executor, c->tokens, m),
                *targets = executor_address(executor, c->targets, m),
                *positions = executor_address(executor, c->positions, m),
                *starts = executor_address(executor, c->starts, m);
        for (int64_t i = 0; i < c->spec.batch.sequences * part.rows; i++) {
            const int64_t position = part.first + i % part.rows, sequence = i / part.rows;
            const int64_t token = first + sequence * c->spec.batch.seq_len + position;
            struct rng_block random = rng_philox(seed, (uint64_t)m, (uint64_t)token);
            tokens[i] = (int32_t)(random.word[0] % (uint64_t)e->model->vocab_size);
            targets[i] = (int32_t)(random.word[1] % (uint64_t)e->model->vocab_size);
            positions[i] = (int32_t)position;
            starts[i] = 0;
        }
    }
}

static void fill_number(const struct engine_program *p, int buffer, double number) {
    if (buffer != NONE)
        *(double *)executor_address(p->executor, buffer, 0) = number;
}

void synthetic_fill(struct engine *e, uint64_t seed) {
    for (size_t i = 0; i < e->programs.count; i++) {
        const struct engine_program *p = &e->programs.item[i];
        if (p->compiled->tokens != NONE)
            fill_batch(e, p, seed);
        fill_number(p, p->compiled->lr, 0);
        fill_number(p, p->compiled->weight, 1);
    }
}
