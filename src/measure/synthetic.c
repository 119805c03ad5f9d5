#include "measure/synthetic.h"

#include "base/rng.h"
#include "run/checkpoint.h"
#include "run/corpus.h"

trireme_status synthetic_model(struct model_config *out, const struct config *config, trireme_error *error) {
    int64_t vocab = NO_TOKENS;
    if (*config->data.path) {
        struct corpus corpus;
        trireme_error ignored; // the program can be looked at before its data is there
        if (corpus_open(&corpus, config, &ignored) == TRIREME_OK) {
            vocab = corpus_vocab_size(&corpus);
            corpus_close(&corpus);
        }
    }
    return checkpoint_model(out, config, vocab, NULL, NULL, error);
}

void synthetic_fill(struct engine *e, uint64_t seed) {
    int64_t rows = e->micro_batch_size * e->seq_len, first = engine_first_sequence(e) * e->seq_len;
    for (int m = 0; m < e->microbatches; m++) {
        int32_t *tokens = engine_address(e, e->train.tokens, m), *targets = engine_address(e, e->train.targets, m);
        int32_t *positions = engine_address(e, e->train.positions, m), *starts = engine_address(e, e->train.starts, m);
        for (int64_t i = 0; i < rows; i++) {
            struct rng_block random = rng_philox(seed, (uint64_t)m, (uint64_t)(first + i));
            tokens[i] = (int32_t)(random.word[0] % (uint64_t)e->model.vocab_size);
            targets[i] = (int32_t)(random.word[1] % (uint64_t)e->model.vocab_size);
            positions[i] = (int32_t)(i % e->seq_len);
            starts[i] = 0;
        }
    }
}
