// The losses of small models, one of each family, against those that `transformers` computes of the same weights and
// tokens in f64 (made by tests/run/test_transformers.c: `test_run_transformers losses`; gla by tools/reference). That
// gradients belong to these losses, test_model_gradients.c shows.
#include "support/models.h"

#include <math.h>

static const double THEIRS[SMALL_COUNT] = {
    4.0130083177, // gpt2
    4.0282265145, // gpt2 without biases
    4.1419830229, // llama
    3.9909416588, // llama with biases
    4.1320381167, // mistral
    4.0247263330, // qwen2
    4.1172135485, // qwen3
    4.0920383423, // qwen2 with windows
    4.0902504008, // gemma2
    4.1858724467, // gemma3
    4.4419115147, // phi3
    4.1539894654, // olmo2
    4.2527956346, // gpt_neox
    4.1540962336, // stablelm
    4.2517130125, // granite_swa
    4.0384036595, // smollm3
    4.1636525403, // gla
    4.2171254394, // gla with attention
};

static void test_loss(void **state) {
    static const char *const OVERRIDES[] = {"training.dtype=f64",          "training.kernels=reference",
                                            "training.seq_len=24",         "training.global_batch_size=4",
                                            "training.micro_batch_size=2", NULL};
    const int small = (int)(intptr_t)*state;
    struct model_config model;
    struct config config;
    struct engine e;
    small_config(&model, small_models[small].json);
    engine_open(&e, &config, &model, OVERRIDES);
    engine_scatter(&e, 32);
    struct batch batch = batch_of_documents(4, 24, model.vocab_size, 37);
    const double loss = batch_evaluate(&e, &batch).loss;
    if (!(fabs(loss - THEIRS[small]) <= 1e-6 * THEIRS[small]))
        fail_msg("loss %.10f, theirs is %.10f", loss, THEIRS[small]);
    batch_release(&batch);
    engine_release(&e);
    config_release(&config);
}

int main(void) {
    struct CMUnitTest tests[SMALL_COUNT];
    for (int i = 0; i < SMALL_COUNT; i++)
        tests[i] = (struct CMUnitTest){small_models[i].name, test_loss, NULL, NULL, (void *)(intptr_t)i};
    return cmocka_run_group_tests_name("losses", tests, NULL, NULL);
}
