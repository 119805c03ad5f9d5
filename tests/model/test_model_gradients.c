// Finite differences through whole small models, in f64: for every parameter tensor the derivative of the loss along a
// random direction and at single elements, over microbatches with packed documents and masked targets.
#include "support/models.h"

#include "base/rng.h"

#include <math.h>

#define OVERRIDES                                                                                              \
    "training.dtype=f64", "training.kernels=reference", "training.seq_len=12", "training.global_batch_size=4", \
        "training.micro_batch_size=2", "training.max_norm=0", "optimizer.weight_decay=0"

static double loss_along(struct engine *e, const struct batch *batch, double *x, const double *from,
                         const double *direction, int64_t count, double step) {
    for (int64_t i = 0; i < count; i++)
        x[i] = from[i] + step * direction[i];
    return batch_evaluate(e, batch).loss;
}

// Central differences of fourth order: their own error is below 1e-9 here.
static double slope(struct engine *e, const struct batch *batch, double *x, const double *from, const double *direction,
                    int64_t count) {
    double h = 2e-4;
    double near =
        loss_along(e, batch, x, from, direction, count, h) - loss_along(e, batch, x, from, direction, count, -h);
    double far = loss_along(e, batch, x, from, direction, count, 2 * h) -
                 loss_along(e, batch, x, from, direction, count, -2 * h);
    memcpy(x, from, (size_t)count * sizeof *x);
    return (8 * near - far) / (12 * h);
}

static void check_direction(struct engine *e, const struct batch *batch, const struct parameter *p, double *x,
                            const double *from, const double *gradient, const double *direction, int64_t count,
                            double rms) {
    double expected = slope(e, batch, x, from, direction, count), found = 0, length = 0;
    for (int64_t i = 0; i < count; i++) {
        found += gradient[i] * direction[i];
        length += direction[i] * direction[i];
    }
    double scale = fmax(fabs(expected), rms * sqrt(length));
    if (!(fabs(found - expected) <= 3e-8 * scale))
        fail_msg("%s %s: gradient %.15g, by differences %.15g", model_architecture(e->model), p->name, found, expected);
}

static void check_parameter(struct engine *e, const struct batch *batch, size_t number, double rms) {
    const struct parameter *p = &e->table->parameters.item[number];
    double *x = engine_parameter(e, number).data;
    const double *accumulated = engine_gradient(e, number).data;
    int64_t all = engine_parameter(e, number).count, count = parameter_rows(p) * p->dim[1], largest = 0;
    size_t bytes = (size_t)all * sizeof *x;
    double *from = mem_alloc(bytes), *gradient = mem_alloc(bytes), *direction = mem_alloc(bytes);
    memcpy(from, x, bytes);
    memcpy(gradient, accumulated, bytes);
    for (int64_t i = 0; i < count; i++) {
        direction[i] = 2 * rng_uniform(7, rng_stream(p->name), (uint64_t)i) - 1;
        if (fabs(gradient[i]) > fabs(gradient[largest]))
            largest = i;
    }
    check_direction(e, batch, p, x, from, gradient, direction, count, rms);
    int64_t sample[] = {0, count / 2, count - 1, largest};
    for (size_t s = 0; s < ARRAY_LENGTH(sample); s++) {
        memset(direction, 0, bytes);
        direction[sample[s]] = 1;
        check_direction(e, batch, p, x, from, gradient, direction, count, rms);
    }
    for (int64_t i = count; i < all; i++)
        assert_true(gradient[i] == 0);
    free(from);
    free(gradient);
    free(direction);
}

// How many of its parameters are trained.
static int check_model(enum small small, const char *freeze) {
    const char *const overrides[] = {OVERRIDES, freeze, NULL};
    struct model_config model;
    struct config config;
    struct engine e;
    small_config(&model, small_models[small].json);
    engine_open(&e, &config, &model, overrides);
    engine_scatter(&e, 3);
    struct batch batch = batch_create(4, 12, model.vocab_size, 11);
    struct engine_result trained = batch_train(&e, &batch, 0);
    assert_true(trained.finite);
    double rms = engine_gradient_rms(&e);
    assert_true(rms > 1e-4);
    assert_true(fabs(batch_evaluate(&e, &batch).loss - trained.loss) <= 1e-14 * trained.loss);
    int trained_parameters = 0;
    for (size_t i = 0; i < e.table->parameters.count; i++)
        if (!e.table->parameters.item[i].frozen) {
            check_parameter(&e, &batch, i, rms);
            trained_parameters++;
        }
    batch_release(&batch);
    engine_release(&e);
    config_release(&config);
    return trained_parameters;
}

static void test_model(void **state) {
    check_model((enum small)(intptr_t)*state, NULL);
}

// What is left are vectors, which are added to what frozen matrices and norms make.
static void test_biases(void **state) {
    (void)state;
    assert_int_equal(check_model(SMALL_GPT2, "training.freeze=*.weight"), 2 * 6 + 1);
    assert_int_equal(check_model(SMALL_LLAMA_BIAS, "training.freeze=*.weight"), 2 * 4);
}

int main(void) {
    struct CMUnitTest tests[SMALL_COUNT + 1] = {[SMALL_COUNT] = {"biases alone", test_biases, NULL, NULL, NULL}};
    for (int i = 0; i < SMALL_COUNT; i++)
        tests[i] = (struct CMUnitTest){small_models[i].name, test_model, NULL, NULL, (void *)(intptr_t)i};
    return cmocka_run_group_tests_name("models", tests, NULL, NULL);
}
