// What the comparison with the reference (test_cpu.c) does not cover of the pointwise kernels: work that is large
// enough to be split over threads, the tails of the activations, and logits and gradients at the limits of the dtypes.
#include "base/bf16.h"
#include "kernels/cpu/isa.h"
#include "support/op_table.h"
#include "support/ops.h"

#include <math.h>

#include "support/test.h"

// ---- threads

// More than 32768 elements each, and extents that no block or vector divides.
static const struct op_case large[] = {
    {"embed v=50 m=301 C=133", 0},
    {"embed_dw v=400 m=301 C=133", 0},
    {"embed v=400 m=301 C=133 first=300", 0},
    {"embed_dw v=400 m=301 C=133 first=300", 0},
    {"add m=261 c=133", 0},
    {"add_bias m=261 c=133", 0},
    {"add_bias_dw m=261 c=133", 0},
    {"layernorm m=261 C=133 eps=1e-5", 0},
    {"layernorm_dx m=261 C=133 eps=1e-5", 0},
    {"layernorm_dw m=9001 C=5 eps=1e-5", 0},
    {"layernorm_bwd m=261 C=133 eps=1e-5", 0},
    {"rmsnorm m=261 C=133 eps=1e-6", 0},
    {"rmsnorm_dx m=261 C=133 eps=1e-6", 0},
    {"rmsnorm_dw m=261 C=133 eps=1e-6", 0},
    {"rmsnorm_bwd m=261 C=133 eps=1e-6", 0},
    {"qknorm m=261 D=20 h=6 c=160 heads=4 kv_heads=2 eps=1e-6", 0},
    {"qknorm_dx m=261 D=20 h=6 c=160 heads=4 kv_heads=2 eps=1e-6", 0},
    {"qknorm_dw m=261 D=20 h=6 c=160 heads=4 kv_heads=2 eps=1e-6", 0},
    {"rope m=261 S=300 D=20 c=160 heads=6", 0},
    {"rope_dx m=261 S=300 D=20 c=160 heads=6", 0},
    {"linear_attention b=3 T=100 h=5 K=20 V=33 scale=0.5", 0},
    {"linear_attention_bwd b=3 T=100 h=5 K=20 V=33 scale=0.5", 0},
    {"linear_state b=3 t=100 h=5 K=20 V=33 W=34 first=100", 0},
    {"linear_state_bwd b=3 t=100 h=5 K=20 V=33 W=34 scale=0.5 first=100", 0},
    {"linear_cached m=100 h=5 K=20 V=33 scale=0.5", 0},
    {"linear_join q=9 h=5 K=20 W=34 b=3 t=99 V=33 first=198 parts=3", 0},
    {"linear_block b=3 t=100 h=5 K=20 V=33 scale=0.5 first=100", 0},
    {"linear_block_bwd b=3 t=100 h=5 K=20 V=33 scale=0.5 first=100", 0},
    {"log_sigmoid m=261 c=133 divisor=16", 0},
    {"log_sigmoid_dx m=261 c=133 divisor=16", 0},
    {"gated_rmsnorm m=261 h=3 D=53 eps=1e-6", 0},
    {"gated_rmsnorm_dx m=261 h=3 D=53 eps=1e-6", 0},
    {"gated_rmsnorm_dw m=9001 h=2 D=5 eps=1e-6", 0},
    {"attention_pack b=3 t=60 g=2 D=100", 0},
    {"attention_pack_queries b=3 t=60 h=2 D=100", 0},
    {"attention_merge b=3 t=60 h=2 D=100", 0},
    {"attention_end b=3 t=60 h=2 D=100", 0},
    {"attention_delta b=3 t=60 h=2 D=100", 0},
    {"attention_add b=3 u=60 g=2 D=100", 0},
    {"attention_bwd_end b=3 t=60 h=2 g=2 D=100", 0},
    {"gelu m=261 f=133 tanh=0", 0},
    {"gelu_dx m=261 f=133 tanh=1", 0},
    {"swiglu m=261 c=266 f=133", 0},
    {"swiglu_dx m=261 c=266 f=133", 0},
    {"geglu m=261 c=266 f=133 tanh=1", 0},
    {"geglu_dx m=261 c=266 f=133 tanh=1", 0},
    {"scale m=261 c=133 factor=3", 0},
    {"scale_dx m=261 c=133 factor=3", 0},
    {"softcap m=261 c=133 cap=0.5", 0},
    {"softcap_dx m=261 c=133 cap=0.5", 0},
    {"layernorm_heads m=261 h=3 D=53 eps=1e-5", 0},
    {"layernorm_heads_dx m=261 h=3 D=53 eps=1e-5", 0},
    {"layernorm_heads_dw m=9001 h=2 D=5 eps=1e-5", 0},
    {"row_squares m=261 c=133", 0},
    {"row_squares_dx m=261 c=133", 0},
    {"row_norm m=261 c=133 width=300 eps=1e-6", 0},
    {"row_norm_dx m=261 c=133 width=300 eps=1e-6", 0},
    {"row_norm_dw m=261 c=133 width=300 eps=1e-6", 0},
    {"cross_entropy m=13 V=3500 vocab=3491", 0},
    {"cross_entropy_grad m=13 V=3500 vocab=3491", 0},
    {"logits_max m=13 v=3500 vocab=9000 first=5600", 0},
    {"logits_sum m=13 v=3500 vocab=9000 first=5600", 0},
    {"logits_grad m=13 v=3500 vocab=9000 first=5600", 0},
    {"logits_exp m=13 v=3500 r=1 U=3 vocab=9000 first=5600", 0},
    {"logits_pick v=400 m=301 C=133 first=300", 0},
    {"logits_dx m=261 C=133 r=1 U=3", 0},
    {"fan_out n=70001", 0},
    {"keep_columns m=261 c=133 end=70", 0},
    {"keep_columns_dx m=261 c=133 end=70", 0},
    {"copy a=3 b=261 c=133", 0},
    {"copy_dx a=3 b=261 c=133", 0},
    {"copy_derived a=1 b=261 c=133", 0},
    {"zero n=70001", 0},
    {"zero_columns m=261 c=133", 0},
    {"gradient_sum m=261 c=133", 0},
    {"gradient_sum_dw m=261 c=133", 0},
    {"square_sum n=70001", 0},
    {"adamw n=40001 beta1=0.9 beta2=0.95 eps=1e-8 weight_decay=0.1", 0},
    {"lion n=40001 beta1=0.9 beta2=0.99 weight_decay=0.1", 0},
    {"sgd n=40001 momentum=0.9 weight_decay=0.1", 0},
    {"scaled n=40001 eps=1e-2 weight_decay=0.1", 0},
    {"muon_momentum n=40001 momentum=0.95", 0},
    {"newton_schulz S=1 R=190 C=201 iterations=5 scale=0.4", 0},
    {"newton_schulz S=3 R=201 C=61 iterations=5 scale=0.4", 0},
    {"muon n=40001 weight_decay=0.1", 0},
    {"take n=40001", 0},
    {"weigh n=40001", 0},
    {"eager n=40001", 0},
    {"eager n=40001 codec=3", 0},
    {"outer_sgd n=40001 lr=0.7 momentum=0.9 nesterov=1", 0},
    {"outer_sgd n=100001 lr=0.7 momentum=0.9 nesterov=0 clip=0.3 pull=0.9", 0},
    {"settle n=40001", 0},
    {"weigh_squares n=40001", 0},
    {"rescale n=40001 beta2=0.95", 0},
    {"keep n=40001", 0},
    {"restore n=40001", 0},
    {"adopt n=40001 mix=0.5", 0},
};

static void run(struct op_instance *instance, const char *spec, const struct op_options *options,
                const struct kernel *kernel) {
    trireme_error error;
    if (op_instance_create(instance, table, spec, options, &error) != TRIREME_OK ||
        op_instance_run(instance, kernel, &error) != TRIREME_OK)
        fail_msg("%s: %s", spec, error.message);
}

static void assert_same_outputs(const char *spec, const struct call *a, const struct call *b, int threads) {
    for (int i = 0; i < a->outputs; i++) {
        const struct tensor *t = &a->out[i];
        if (!t->data)
            continue;
        size_t bytes = (size_t)dtype_size(t->dtype);
        for (int k = 0; k < t->ndim; k++)
            bytes *= (size_t)t->dim[k];
        if (memcmp(t->data, b->out[i].data, bytes) != 0)
            fail_msg("%s: output %d differs between 1 and %d threads", spec, i, threads);
    }
}

static void threads_do_not_change_a_bit(void **state) {
    (void)state;
    for (enum isa isa = ISA_BASE; isa < ISA_COUNT; isa++)
        for (size_t i = 0; i < 2 * ARRAY_LENGTH(large) && isa_usable(isa); i++) {
            const char *spec = large[i / 2].spec;
            struct op_options options = {.model = i % 2 ? DTYPE_BF16 : DTYPE_F32, .threads = 1, .seed = 3};
            const struct kernel *kernel = &cpu_kernel_table_for(options.model, isa)[op_case_op(table, &large[i / 2])];
            struct op_instance alone, shared;
            run(&alone, spec, &options, kernel);
            for (int threads = 2; threads <= 5; threads += 3) {
                options.threads = threads;
                run(&shared, spec, &options, kernel);
                assert_same_outputs(spec, &alone.call, &shared.call, threads);
                op_instance_release(&shared);
            }
            op_instance_release(&alone);
        }
}

// All ops except products and attention (test_threads.c), and except what one thread does.
static bool is_elsewhere(enum op op) {
    switch (op) {
    case OP_MATMUL:
    case OP_MATMUL_DX:
    case OP_MATMUL_DW:
    case OP_LOGITS_TIMES:
    case OP_ATTENTION:
    case OP_ATTENTION_BWD:
    case OP_ATTENTION_SINKS_DW:
    case OP_ATTENTION_BLOCK:
    case OP_ATTENTION_BLOCK_BWD:
    case OP_ATTENTION_PARTS_SINKS_DW:
    case OP_ATTENTION_CACHED:
    case OP_CACHE_APPEND:
    case OP_COMPRESS: // test_codecs.c
    case OP_WEIGH_CODES:
        return true;
    default:
        return false;
    }
}

static void all_that_is_split_is_large_here(void **state) {
    (void)state;
    const struct kernel *kernels = cpu_kernel_table_for(DTYPE_F32, ISA_BASE);
    for (int op = 0; op < OP_COUNT; op++) {
        bool found = !kernels[op].run || is_elsewhere((enum op)op);
        for (size_t i = 0; i < ARRAY_LENGTH(large); i++)
            found |= op_case_op(table, &large[i]) == (enum op)op;
        if (!found)
            fail_msg("%s has no large case", table->op[op].name);
    }
}

static void large_work_agrees_with_the_reference(void **state) {
    (void)state;
    for (enum isa isa = ISA_BASE; isa < ISA_COUNT; isa++)
        for (size_t i = 0; i < 2 * ARRAY_LENGTH(large) && isa_usable(isa); i++) {
            struct op_options options = {.model = i % 2 ? DTYPE_BF16 : DTYPE_F32, .threads = 3, .seed = 4};
            options.strided = options.accumulate = i / 2 % 2;
            const struct kernel *kernel = &cpu_kernel_table_for(options.model, isa)[op_case_op(table, &large[i / 2])];
            trireme_error error;
            if (op_compare(table, large[i / 2].spec, &options, kernel, false, &error) != TRIREME_OK)
                fail_msg("%s: %s", isa_name(isa), error.message);
        }
}

// ---- calls by hand: contiguous [m, c] (m 0: [c])

static struct tensor matrix(void *data, enum dtype dtype, int64_t m, int64_t c) {
    struct tensor t = {
        .data = data, .dtype = dtype, .ndim = m ? 2 : 1, .dim = {m ? m : c, c}, .stride = {m ? c : 1, 1}};
    return t;
}

static void run_call(enum isa isa, struct call *call, enum op op, int inputs, int outputs) {
    call->op = op;
    call->inputs = inputs;
    call->outputs = outputs;
    call->threads = 1;
    cpu_kernel_table_for(DTYPE_F32, isa)[op].run(call);
}

// y (and, where up or dy is an operand, with ones for it) of an activation on n values.
static void activation(enum isa isa, enum op op, int tanh, float *x, float *y, int n) {
    float *ones = mem_alloc((size_t)n * sizeof(float));
    for (int i = 0; i < n; i++)
        ones[i] = 1;
    struct call call = {.in = {matrix(x, DTYPE_F32, 1, n), matrix(ones, DTYPE_F32, 1, n)},
                        .out = {matrix(y, DTYPE_F32, 1, n)},
                        .attribute = {{.i = tanh}}};
    run_call(isa, &call, op, op == OP_GELU ? 1 : 2, 1);
    free(ones);
}

static double gelu(double x, int tanh_form) {
    if (tanh_form)
        return x / (1 + exp(-2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    return x * 0.5 * erfc(-x / sqrt(2));
}

static double gelu_derivative(double x, int tanh_form) {
    if (!tanh_form)
        return 0.5 * erfc(-x / sqrt(2)) + x * exp(-x * x / 2) / sqrt(2 * M_PI);
    double e = exp(-2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)), s = 1 / (1 + e);
    return s + x * s * s * e * 2 * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

// To 2e-5 relative where results are normal numbers: far out, rounding the argument of exp costs that much. The
// derivative crosses zero, so it may be off by 1e-6 of the scale of its terms instead.
static void gelu_is_accurate_in_its_tails(void **state) {
    (void)state;
    enum { N = 4801 };
    static float x[N], y[N], dx[N];
    for (enum isa isa = ISA_BASE; isa < ISA_COUNT; isa++)
        for (int tanh_form = 0; tanh_form < 2 && isa_usable(isa); tanh_form++) {
            for (int i = 0; i < N; i++)
                x[i] = (float)(i - 2400) / 200;
            activation(isa, OP_GELU, tanh_form, x, y, N);
            activation(isa, OP_GELU_DX, tanh_form, x, dx, N);
            for (int i = 0; i < N; i++) {
                double value = gelu(x[i], tanh_form), slope = gelu_derivative(x[i], tanh_form);
                double scale = fmin(1, exp(-x[i] * x[i] / 2) * fabs(x[i]) + 1e-30);
                bool right = fabs(y[i] - value) <= (fabs(value) < 1e-36 ? 1e-36 : 2e-5 * fabs(value));
                right &= fabs(dx[i] - slope) <= 2e-5 * fabs(slope) + 1e-6 * scale + 1e-30;
                if (!right)
                    fail_msg("%s, tanh %d, x %g: %g for %g, slope %g for %g", isa_name(isa), tanh_form, x[i], y[i],
                             value, dx[i], slope);
            }
        }
}

static void activations_at_the_edge(void **state) {
    (void)state;
    float x[] = {-3e38f, -1e20f, -1e4f, -200, -90, 90, 200, 1e4f, 1e20f, 3e38f, NAN};
    enum { N = sizeof x / sizeof *x };
    for (enum isa isa = ISA_BASE; isa < ISA_COUNT; isa++)
        for (int form = 0; form < 3 && isa_usable(isa); form++) {
            float y[N], dx[2 * N], gate_up[2 * N];
            for (int i = 0; i < N; i++) {
                gate_up[i] = x[i];
                gate_up[N + i] = 1;
            }
            if (form < 2) {
                activation(isa, OP_GELU, form, x, y, N);
                activation(isa, OP_GELU_DX, form, x, dx, N);
            } else {
                float ones[N];
                for (int i = 0; i < N; i++)
                    ones[i] = 1;
                struct call forward = {.in = {matrix(gate_up, DTYPE_F32, 1, 2 * N)},
                                       .out = {matrix(y, DTYPE_F32, 1, N)}};
                run_call(isa, &forward, OP_SWIGLU, 1, 1);
                struct call backward = {.in = {matrix(gate_up, DTYPE_F32, 1, 2 * N), matrix(ones, DTYPE_F32, 1, N)},
                                        .out = {matrix(dx, DTYPE_F32, 1, 2 * N)}};
                run_call(isa, &backward, OP_SWIGLU_DX, 2, 1);
            }
            for (int i = 0; i < N - 1; i++) {
                double value = x[i] > 0 ? x[i] : 0, slope = x[i] > 0;
                if (!(fabs(y[i] - value) <= 1e-6 * value + 1e-12) || !(fabs(dx[i] - slope) <= 1e-6))
                    fail_msg("%s, form %d, x %g: %g, slope %g", isa_name(isa), form, x[i], y[i], dx[i]);
            }
            assert_true(isnan(y[N - 1]) && isnan(dx[N - 1]));
        }
}

// cmocka's assert_float_equal takes a NaN for anything.
static void assert_near(double x, double expected, double accepted) {
    if (!(fabs(x - expected) <= accepted))
        fail_msg("%.9g, should be %.9g", x, expected);
}

// Rows: huge logits; a chunk of -infinity before the finite ones; a NaN far from the target; logits whose exponentials
// are 0, up to the last, with which no vector ends.
static void cross_entropy_at_the_edge(void **state) {
    (void)state;
    enum { M = 4, V = 3001 };
    static float logits[M][V], dlogits[M][V];
    for (enum isa isa = ISA_BASE; isa < ISA_COUNT && isa_usable(isa); isa++) {
        for (int v = 0; v < V; v++) {
            logits[0][v] = v == 2000 ? 3e4f : -3e4f;
            logits[1][v] = v < 2991 ? -INFINITY : 2;
            logits[2][v] = v == 1700 ? NAN : 0;
            logits[3][v] = -200;
        }
        int32_t targets[M] = {2000, 2995, 5, 3000};
        float nll[M];
        double scale = 2;
        struct call call = {
            .in = {matrix(logits, DTYPE_F32, M, V), matrix(targets, DTYPE_I32, 0, M), matrix(&scale, DTYPE_F64, 0, 1)},
            .out = {matrix(nll, DTYPE_F32, 0, M), matrix(dlogits, DTYPE_F32, M, V)},
            .attribute = {{.i = V}}};
        run_call(isa, &call, OP_CROSS_ENTROPY_GRAD, 3, 2);
        assert_near(nll[0], 0, 0);
        assert_near(dlogits[0][2000], 0, 0);
        assert_near(dlogits[0][7], 0, 0);
        assert_near(nll[1], log(10), 1e-6);
        assert_near(dlogits[1][2995], 2 * (0.1 - 1), 1e-6);
        assert_near(dlogits[1][2996], 0.2, 1e-7);
        assert_near(dlogits[1][0], 0, 0);
        assert_true(isnan(nll[2]));
        assert_near(nll[3], log(V), 1e-5);
        assert_near(dlogits[3][0], 2.0 / V, 1e-7);
    }
}

// Joined, not moved and split again, every master weight keeps its bits, up to the sign of a tie.
static void a_step_of_zero_keeps_the_master_weights(void **state) {
    (void)state;
    enum { N = 1 << 16 };
    static uint16_t p[N], rem[N];
    static float g[N], m[N], v[N];
    for (enum isa isa = ISA_BASE; isa < ISA_COUNT && isa_usable(isa); isa++) {
        for (int i = 0; i < N; i++)
            master_split(float_from_bits(0x3f780000u + (uint32_t)i * 37), &p[i], &rem[i]);
        double lr = 0, factor = 1, t = 1, decayed = N;
        struct call call = {.in = {matrix(p, DTYPE_BF16, 0, N), matrix(rem, DTYPE_U16, 0, N),
                                   matrix(g, DTYPE_F32, 0, N), matrix(m, DTYPE_F32, 0, N), matrix(v, DTYPE_F32, 0, N),
                                   matrix(&lr, DTYPE_F64, 0, 1), matrix(&factor, DTYPE_F64, 0, 1),
                                   matrix(&t, DTYPE_F64, 0, 1), matrix(&decayed, DTYPE_F64, 0, 1)},
                            .attribute = {{.f = 0.9}, {.f = 0.95}, {.f = 1e-8}, {.f = 0.1}}};
        call.out[0] = call.in[0];
        call.out[1] = call.in[1];
        call.out[2] = call.in[3];
        call.out[3] = call.in[4];
        run_call(isa, &call, OP_ADAMW, 9, 4);
        for (int i = 0; i < N; i++)
            if (float_bits(master_join(p[i], rem[i])) != 0x3f780000u + (uint32_t)i * 37)
                fail_msg("%s: weight %d changed to %a", isa_name(isa), i, master_join(p[i], rem[i]));
    }
}

// Where neither the gradient nor the momentum has a sign, weights are decayed and not moved.
static void lion_stays_where_nothing_pulls(void **state) {
    (void)state;
    enum { N = 37 };
    for (enum isa isa = ISA_BASE; isa < ISA_COUNT && isa_usable(isa); isa++) {
        float p[N], g[N] = {0}, m[N] = {0};
        for (int i = 0; i < N; i++)
            p[i] = 1;
        double lr = 0.5, factor = 1, decayed = 20;
        struct call call = {.in = {matrix(p, DTYPE_F32, 0, N),
                                   {0},
                                   matrix(g, DTYPE_F32, 0, N),
                                   matrix(m, DTYPE_F32, 0, N),
                                   matrix(&lr, DTYPE_F64, 0, 1),
                                   matrix(&factor, DTYPE_F64, 0, 1),
                                   matrix(&decayed, DTYPE_F64, 0, 1)},
                            .attribute = {{.f = 0.9}, {.f = 0.99}, {.f = 0.5}}};
        call.out[0] = call.in[0];
        call.out[2] = call.in[3];
        run_call(isa, &call, OP_LION, 7, 3);
        for (int i = 0; i < N; i++)
            assert_near(p[i], i < 20 ? 0.75 : 1, 0);
    }
}

// Sums that lie in the middle between two numbers of bf16, of which the even one is taken, above or below.
static void ties_are_rounded_to_even(void **state) {
    (void)state;
    enum { N = 40 };
    for (enum isa isa = ISA_BASE; isa < ISA_COUNT && isa_usable(isa); isa++) {
        uint16_t a[N], b[N], y[N];
        for (int i = 0; i < N; i++) {
            a[i] = (uint16_t)(0x3f80 + i); // 1 and the numbers after it, 2^-7 apart
            b[i] = 0x3b80;                 // 2^-8
        }
        struct call call = {.op = OP_ADD,
                            .in = {matrix(a, DTYPE_BF16, 1, N), matrix(b, DTYPE_BF16, 1, N)},
                            .out = {matrix(y, DTYPE_BF16, 1, N)},
                            .inputs = 2,
                            .outputs = 1,
                            .threads = 1};
        cpu_kernel_table_for(DTYPE_BF16, isa)[OP_ADD].run(&call);
        for (int i = 0; i < N; i++)
            if (y[i] != 0x3f80 + (i + 1) / 2 * 2)
                fail_msg("%s: %#x + %#x is %#x", isa_name(isa), a[i], b[i], y[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_that_is_split_is_large_here),
        cmocka_unit_test(threads_do_not_change_a_bit),
        cmocka_unit_test(large_work_agrees_with_the_reference),
        cmocka_unit_test(gelu_is_accurate_in_its_tails),
        cmocka_unit_test(activations_at_the_edge),
        cmocka_unit_test(cross_entropy_at_the_edge),
        cmocka_unit_test(a_step_of_zero_keeps_the_master_weights),
        cmocka_unit_test(lion_stays_where_nothing_pulls),
        cmocka_unit_test(ties_are_rounded_to_even),
    };
    return cmocka_run_group_tests(tests, op_table_setup, op_table_teardown);
}
