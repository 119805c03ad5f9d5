// What follows from a model's configuration: parameter tables, initial values, rotary tables, flops.
#include "test_model.h"

#include "model/lora.h"

#include <math.h>

// ---- parameter table

static const struct parameter *find(const struct parameter_table *table, const char *name) {
    for (size_t i = 0; i < table->parameters.count; i++)
        if (strcmp(table->parameters.item[i].name, name) == 0)
            return &table->parameters.item[i];
    return NULL;
}

static void assert_parameter(const struct parameter_table *table, const char *name, int64_t rows, int64_t columns,
                             const char *first_piece, int pieces) {
    const struct parameter *p = find(table, name);
    if (!p)
        fail_msg("no parameter %s", name);
    assert_int_equal(p->ndim, columns == 1 ? 1 : 2);
    assert_true(p->dim[0] == rows && p->dim[1] == columns);
    assert_string_equal(p->piece[0].name, first_piece);
    assert_int_equal(p->pieces, pieces);
}

static void tables_name_both_sides(void **state) {
    (void)state;
    struct parameter_table t;
    struct model_config c = parsed(GPT2 "}");
    parameter_table_create(&t, &c);
    assert_parameter(&t, "embed.weight", 64, 16, "transformer.wte.weight", 1);
    assert_int_equal(parameter_rows(find(&t, "embed.weight")), 9);
    assert_parameter(&t, "position.weight", 8, 16, "transformer.wpe.weight", 1);
    assert_parameter(&t, "layers.1.attention.qkv.weight", 48, 16, "transformer.h.1.attn.c_attn.weight", 1);
    assert_true(find(&t, "layers.1.attention.qkv.weight")->piece[0].transposed);
    assert_parameter(&t, "layers.0.mlp.up.bias", 64, 1, "transformer.h.0.mlp.c_fc.bias", 1);
    assert_parameter(&t, "norm.bias", 16, 1, "transformer.ln_f.bias", 1);
    assert_null(find(&t, "head.weight"));
    parameter_table_release(&t);

    c = parsed("{\"model_type\":\"qwen3\"," SHAPE ",\"head_dim\":8}");
    parameter_table_create(&t, &c);
    assert_parameter(&t, "layers.1.attention.qkv.weight", 64, 64, "model.layers.1.self_attn.q_proj.weight", 3);
    const struct parameter_piece *piece = find(&t, "layers.1.attention.qkv.weight")->piece;
    assert_true(piece[1].row == 32 && piece[1].rows == 16 && piece[2].row == 48 && piece[2].rows == 16);
    assert_parameter(&t, "layers.0.attention.out.weight", 64, 32, "model.layers.0.self_attn.o_proj.weight", 1);
    assert_parameter(&t, "layers.0.mlp.up.weight", 192, 64, "model.layers.0.mlp.gate_proj.weight", 2);
    assert_parameter(&t, "layers.0.attention.k_norm.weight", 8, 1, "model.layers.0.self_attn.k_norm.weight", 1);
    assert_parameter(&t, "head.weight", 128, 64, "lm_head.weight", 1);
    assert_null(find(&t, "layers.0.attention.qkv.bias"));
    parameter_table_release(&t);

    c = parsed(QWEN2 "}");
    parameter_table_create(&t, &c);
    assert_parameter(&t, "layers.0.attention.qkv.bias", 128, 1, "model.layers.0.self_attn.q_proj.bias", 3);
    assert_null(find(&t, "layers.0.attention.out.bias"));
    parameter_table_release(&t);
}

static void units_hold_their_decayed_parameters_first(void **state) {
    (void)state;
    struct parameter_table t;
    struct model_config c = parsed(LLAMA ",\"attention_bias\":true,\"mlp_bias\":true}");
    parameter_table_create(&t, &c);
    assert_int_equal(t.units.count, 4);
    assert_string_equal(t.units.item[0], "embed");
    assert_string_equal(t.units.item[2], "layers.1");
    assert_string_equal(t.units.item[3], "head");
    for (size_t i = 0; i < t.parameters.count; i++) {
        const struct parameter *p = &t.parameters.item[i];
        assert_int_equal(p->decayed, p->ndim == 2);
        for (size_t j = 0; j < i; j++) {
            const struct parameter *q = &t.parameters.item[j];
            assert_true(q->unit <= p->unit);
            assert_false(q->unit == p->unit && p->decayed && !q->decayed);
            assert_string_not_equal(p->name, q->name);
        }
        int64_t row = 0;
        for (int j = 0; j < p->pieces; j++) {
            assert_int_equal(p->piece[j].row, row);
            row += p->piece[j].rows;
        }
        assert_true(row == p->dim[0] || p->dim[0] == c.padded_vocab_size);
    }
    parameter_table_release(&t);
}

// ---- initial values

static double initial(const struct parameter *p, uint64_t seed, int64_t index) {
    double value;
    parameter_initial_range(p, seed, index, 1, &value);
    return value;
}

static void initial_values_follow_the_family(void **state) {
    (void)state;
    struct model_config c =
        parsed("{\"model_type\":\"gpt2\",\"n_layer\":8,\"n_head\":4,\"n_embd\":256,\"n_positions\":16,"
               "\"vocab_size\":100}");
    struct parameter_table t;
    parameter_table_create(&t, &c);
    static const struct {
        const char *name;
        double std;
    } expected[] = {{"layers.3.attention.qkv.weight", 0.02},
                    {"layers.3.attention.out.weight", 0.005},
                    {"layers.3.mlp.down.weight", 0.005},
                    {"embed.weight", 0.02},
                    {"position.weight", 0.02}};
    for (size_t i = 0; i < ARRAY_LENGTH(expected); i++) {
        const struct parameter *p = find(&t, expected[i].name);
        int64_t n = parameter_rows(p) * p->dim[1];
        double sum = 0, squares = 0, fourth = 0, *x = mem_alloc((size_t)n * sizeof *x);
        parameter_initial_range(p, 7, 0, n, x);
        for (int64_t j = 0; j < n; j++) {
            double z = x[j] / expected[i].std;
            sum += z, squares += z * z, fourth += z * z * z * z;
        }
        // Six standard errors of the mean, the variance and the fourth moment of n normal numbers.
        assert_true(fabs(sum / (double)n) < 6 / sqrt((double)n));
        assert_true(fabs(squares / (double)n - 1) < 6 * sqrt(2 / (double)n));
        assert_true(fabs(fourth / (double)n - 3) < 6 * sqrt(96 / (double)n));
        free(x);
    }
    assert_true(initial(find(&t, "layers.0.attention_norm.weight"), 7, 3) == 1);
    assert_true(initial(find(&t, "layers.0.attention.qkv.bias"), 7, 3) == 0);
    const struct parameter *embed = find(&t, "embed.weight");
    assert_true(initial(embed, 7, 100 * 256 - 1) != 0);
    assert_true(initial(embed, 7, 100 * 256) == 0); // padding
    parameter_table_release(&t);
}

// Of adapters of rank 8: PEFT's names; all else is frozen; A is uniform in +- 1 / sqrt(columns), B is zero.
static void adapters_stand_beside_what_they_adapt(void **state) {
    (void)state;
    struct model_config c = parsed("{\"model_type\":\"qwen3\"," SHAPE ",\"head_dim\":8}");
    struct parameter_table t;
    trireme_error error = {0};
    parameter_table_create(&t, &c);
    const int64_t total = t.total;
    parameter_table_release(&t);
    c.lora = (struct lora){.rank = 8, .alpha = 8};
    assert_ok(lora_set_targets(&c, "v_proj,layers.1.mlp.down_proj", &error), &error);
    parameter_table_create(&t, &c);
    assert_parameter(&t, "layers.1.attention.v_proj.lora_a", 8, 64,
                     "base_model.model.model.layers.1.self_attn.v_proj.lora_A.weight", 1);
    assert_parameter(&t, "layers.1.attention.v_proj.lora_b", 16, 8,
                     "base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight", 1);
    assert_parameter(&t, "layers.1.mlp.down.lora_a", 8, 96,
                     "base_model.model.model.layers.1.mlp.down_proj.lora_A.weight", 1);
    assert_null(find(&t, "layers.0.mlp.down.lora_a"));
    assert_null(find(&t, "layers.0.attention.q_proj.lora_a"));
    for (size_t i = 0; i < t.parameters.count; i++)
        assert_true(t.parameters.item[i].frozen == !strstr(t.parameters.item[i].name, ".lora_"));
    const int64_t added = 2 * (8 * 64 + 16 * 8) + 8 * 96 + 64 * 8;
    assert_true(t.frozen && t.total == total + added && parameter_table_trained(&t) == added);
    const struct parameter *a = find(&t, "layers.1.mlp.down.lora_a"), *b = find(&t, "layers.1.mlp.down.lora_b");
    double sum = 0, squares = 0, most = 0;
    for (int64_t i = 0; i < parameter_count(a); i++) {
        const double x = initial(a, 7, i) * sqrt(96);
        sum += x, squares += x * x, most = fmax(most, fabs(x));
    }
    // Six standard errors of the mean and of the second moment, 1 / 3, of so many numbers.
    const double n = (double)parameter_count(a);
    assert_true(fabs(sum / n) < 6 / sqrt(3 * n) && fabs(squares / n - 1.0 / 3) < 6 * sqrt(4 / (45 * n)));
    assert_true(most > 0.98 && most <= 1 && initial(b, 7, 5) == 0);
    parameter_table_release(&t);
}

static void initial_values_are_a_function_of_seed_name_and_index(void **state) {
    (void)state;
    struct model_config c = parsed(LLAMA "}");
    struct parameter_table t;
    parameter_table_create(&t, &c);
    const struct parameter *a = find(&t, "layers.0.mlp.down.weight"), *b = find(&t, "layers.1.mlp.down.weight");
    double range[33];
    for (int64_t first = 0; first < 4; first++) {
        parameter_initial_range(a, 3, first, 33, range);
        for (int64_t i = 0; i < 33; i++)
            assert_true(range[i] == initial(a, 3, first + i));
    }
    assert_true(initial(a, 3, 0) != initial(b, 3, 0));
    assert_true(initial(a, 3, 0) != initial(a, 4, 0));
    // Runs must begin with the same bits on every machine and in every version.
    assert_true(initial(a, 3, 0) == 0x1.6bc1cef70b731p-9);
    assert_true(initial(a, 3, 1) == -0x1.3727971bf3661p-6);
    assert_true(initial(a, 3, 6143) == 0x1.0b944e9fd4b6ep-10);
    parameter_table_release(&t);
}

// ---- rotary table, flops

static void assert_near(double a, double b, double tolerance) {
    if (!(fabs(a - b) <= tolerance))
        fail_msg("%.17g is not %.17g", a, b);
}

static void rope_table_has_the_published_frequencies(void **state) {
    (void)state;
    struct model_config c =
        parsed(LLAMA ",\"rope_theta\":500000.0,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,"
                     "\"low_freq_factor\":1,\"high_freq_factor\":4,"
                     "\"original_max_position_embeddings\":128}}");
    struct model_config plain = c, linear = c;
    plain.rope[0].scaling = ROPE_SCALING_NONE;
    linear.rope[0].scaling = ROPE_SCALING_LINEAR;
    int64_t half = c.head_dim / 2, positions = 100;
    double *scaled = mem_alloc((size_t)(positions * c.head_dim) * 8),
           *unscaled = mem_alloc((size_t)(positions * c.head_dim) * 8);
    double *slow = mem_alloc((size_t)(positions * c.head_dim) * 8);
    rope_table(&c, 0, positions, positions, scaled);
    rope_table(&plain, 0, positions, positions, unscaled);
    rope_table(&linear, 0, positions, positions, slow);
    int kept = 0, divided = 0, blended = 0;
    for (int64_t i = 0; i < half; i++) {
        double frequency = pow(500000, -(double)(2 * i) / (double)c.head_dim), wavelength = 2 * M_PI / frequency;
        // The rule as published: by wavelengths.
        double low = 128 / 1.0, high = 128 / 4.0, now = frequency;
        if (wavelength > low)
            now = frequency / 8, divided++;
        else if (wavelength >= high) {
            double smooth = (128 / wavelength - 1) / (4 - 1);
            now = (1 - smooth) * frequency / 8 + smooth * frequency, blended++;
        } else
            kept++;
        for (int64_t p = 0; p < positions; p++) {
            assert_near(unscaled[p * 2 * half + i], cos((double)p * frequency), 1e-13);
            assert_near(unscaled[p * 2 * half + half + i], sin((double)p * frequency), 1e-13);
            assert_near(slow[p * 2 * half + half + i], sin((double)p * frequency / 8), 1e-13);
            assert_near(scaled[p * 2 * half + i], cos((double)p * now), 1e-13);
            assert_near(scaled[p * 2 * half + half + i], sin((double)p * now), 1e-13);
        }
    }
    assert_true(kept && divided && blended);
    free(scaled), free(unscaled), free(slow);
}

static void flops_count_the_matrix_products(void **state) {
    (void)state;
    struct model_config c;
    trireme_error error = {0};
    assert_ok(model_config_preset(&c, "gpt2-124m", &error), &error);
    // 12 layers of 12 width^2 and the head.
    double weights = 12 * 12 * 768.0 * 768 + 50257 * 768.0;
    assert_true(model_flops(&c, 4096, 1024) == 4096 * (6 * weights + 12 * 12 * 768.0 * 1024));
    // A layer of Llama: queries, keys and values, their output, and a feed-forward of three matrices.
    assert_ok(model_config_preset(&c, "llama3.2-1b", &error), &error);
    weights = 16 * (2048 * (2048.0 + 2 * 512) + 2048 * 2048.0 + 3 * 2048 * 8192.0) + 128256 * 2048.0;
    assert_true(model_flops(&c, 100, 4096) == 100 * (6 * weights + 12 * 16 * 2048.0 * 4096));
    assert_ok(model_config_preset(&c, "mistral-7b", &error), &error);
    assert_true(model_flops(&c, 1, 8192) == model_flops(&c, 1, 4096));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_name_both_sides),
        cmocka_unit_test(units_hold_their_decayed_parameters_first),
        cmocka_unit_test(initial_values_follow_the_family),
        cmocka_unit_test(adapters_stand_beside_what_they_adapt),
        cmocka_unit_test(initial_values_are_a_function_of_seed_name_and_index),
        cmocka_unit_test(rope_table_has_the_published_frequencies),
        cmocka_unit_test(flops_count_the_matrix_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
