#include "support/small_model.h"

#include "base/bf16.h"
#include "base/rng.h"
#include "support/test.h"

void small_model_create(struct small_model *small, const char *const *overrides, bool memory) {
    size_t count = 0;
    while (overrides[count])
        count++;
    trireme_error error = {0};
    trireme_status status = config_load(&small->config, NULL, overrides, count, &error);
    if (status != TRIREME_OK)
        fail_msg("%s", error.message);
    int64_t vocab = small->config.model.vocab_size ? small->config.model.vocab_size : 256;
    status = model_config_resolve(&small->model, &small->config, vocab, &error);
    if (status == TRIREME_OK)
        status =
            memory
                ? engine_create(&small->engine, &small->config, &small->model, NULL, TRAIN_AND_EVALUATE, NULL, &error)
                : engine_compile(&small->engine, &small->config, &small->model, NULL, TRAIN_AND_EVALUATE, 0, &error);
    if (status != TRIREME_OK)
        fail_msg("%s", error.message);
}

void small_model_release(struct small_model *small) {
    engine_release(&small->engine);
    config_release(&small->config);
}

static void fill(struct small_model *small, int buffer, uint64_t seed, double low, double high, bool add) {
    void *at = engine_address(&small->engine, buffer, 0);
    const struct buffer *b = &engine_compiled(&small->engine, PROGRAM_TRAIN)->program.buffers.item[buffer];
    for (int64_t i = 0; i < buffer_count(b); i++) {
        double x = low + (high - low) * rng_uniform(seed, (uint64_t)buffer, (uint64_t)i);
        if (b->dtype == DTYPE_F64)
            ((double *)at)[i] = (add ? ((double *)at)[i] : 0) + x;
        else if (b->dtype == DTYPE_F32)
            ((float *)at)[i] = (add ? ((float *)at)[i] : 0) + (float)x;
        else if (b->dtype == DTYPE_BF16)
            ((uint16_t *)at)[i] = bf16_from_float((add ? bf16_to_float(((uint16_t *)at)[i]) : 0) + (float)x);
        else
            ((uint16_t *)at)[i] = (uint16_t)(int16_t)x;
    }
}

void small_model_values(struct small_model *small, uint64_t seed) {
    const struct compiled *c = engine_compiled(&small->engine, PROGRAM_TRAIN);
    engine_initialise(&small->engine, seed, NULL);
    for (int i = 0; i < c->model.parameters; i++) {
        fill(small, c->model.parameter[i], seed, -0.2, 0.2, true);
        fill(small, c->optimizer.gradient_slice[i], seed, -1, 1, false);
    }
    for (int u = 0; u < c->model.units; u++) {
        for (int k = 0; k < OPTIMIZER_STATES; k++) {
            const bool squares = optimizer_states[k].operand[0] != 'm';
            if (c->optimizer.state[k] && c->optimizer.state[k][u] != NONE)
                fill(small, c->optimizer.state[k][u], seed, squares ? 0.01 : -0.1, 0.1, false);
        }
        if (c->optimizer.remainder)
            fill(small, c->optimizer.remainder[u], seed, INT16_MIN, INT16_MAX, false);
    }
    *(double *)engine_address(&small->engine, c->optimizer.t, 0) = 3;
}

void small_model_batch(const struct compiled *c, const struct executor *executor, uint64_t seed, int index) {
    int32_t length = (int32_t)c->spec.batch.seq_len;
    for (int m = 0; m < c->spec.batch.microbatches; m++) {
        int32_t *tokens = executor_address(executor, c->tokens, m),
                *targets = executor_address(executor, c->targets, m),
                *positions = executor_address(executor, c->positions, m),
                *starts = executor_address(executor, c->starts, m);
        for (int32_t i = 0; i < length * (int32_t)c->spec.batch.sequences; i++) {
            struct rng_block random = rng_philox(seed, (uint64_t)(index * c->spec.batch.microbatches + m), (uint64_t)i);
            int32_t at = i % length, begin = at < 3 + m ? 0 : 3 + m;
            tokens[i] = (int32_t)(random.word[0] % (uint32_t)length);
            bool masked = random.word[2] % 4 < (uint32_t)(1 + index % 3);
            targets[i] = masked ? -1 : (int32_t)(random.word[1] % (uint32_t)length);
            positions[i] = at - begin;
            starts[i] = begin;
        }
    }
    *(double *)executor_address(executor, c->lr, 0) = 0.01;
}
