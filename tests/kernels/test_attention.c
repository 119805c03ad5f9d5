// Attention against the reference on every instruction set, for cases that random operands hardly test: keys whose
// scores rise after the first block of keys, so that earlier sums have to be scaled down; probabilities as factors,
// which are not rounded to bf16; and inf and NaN, which must reach only the rows that see them.
#include "base/clock.h"
#include "kernels/cpu/isa.h"
#include "kernels/ref/tensor.h"
#include "support/op_table.h"
#include "support/ops_internal.h"

#include <math.h>

#include "support/test.h"

enum { HEAD_UNITS = 20 }; // D of the cases

static void one_document(const struct call *call) {
    const struct tensor *starts = &call->in[3];
    for (int64_t i = 0; i < tensor_elements(starts); i++)
        ((int32_t *)starts->data)[i] = 0;
}

// Scores are the first unit of keys alone: `plain`, but for a few keys above all before them.
struct scores {
    double plain;
    struct {
        int64_t key;
        double score;
    } rise[6];
};

// Rises of under 8 and of more, in the first block of keys and behind it.
static const struct scores RISING = {0, {{3, 1.5}, {310, 6}, {330, 15.25}, {400, 24.5}, {620, 29}, {680, 38}}};
// Scores whose own exponentials are 0, and a rise whose exponential is infinite, behind the first block.
static const struct scores STEEP = {-200, {{310, -105}}};

// All is one document.
static void set_scores(const struct call *call, const struct scores *scores) {
    const struct tensor *q = &call->in[0], *k = &call->in[1];
    for (int64_t i = 0; i < tensor_elements(q); i++)
        tensor_set(q, tensor_position(q, i), i % HEAD_UNITS == 0);
    for (int64_t i = 0; i < tensor_elements(k); i++) {
        const int64_t key = i / HEAD_UNITS;
        double score = scores->plain;
        for (size_t r = 0; r < ARRAY_LENGTH(scores->rise); r++)
            score = scores->rise[r].key == key && key > 0 ? scores->rise[r].score : score;
        tensor_set(k, tensor_position(k, i), i % HEAD_UNITS == 0 ? score : 0);
    }
    if (call->op == OP_ATTENTION)
        one_document(call);
}

// A kernel and the reference, on the same operands.
struct both {
    struct op_instance fast, exact;
};

static void create_both(struct both *both, const char *spec, enum dtype model) {
    const struct op_options options = {.model = model, .seed = 5, .threads = 2};
    trireme_error error = {0};
    if (op_instance_create(&both->fast, table, spec, &options, &error) != TRIREME_OK)
        fail_msg("%s", error.message);
}

// On the operands that the first has now.
static void run_both(struct both *both, const char *spec, enum dtype model, enum isa isa) {
    trireme_error error = {0};
    const enum op op = both->fast.info->op;
    op_instance_copy(&both->exact, &both->fast);
    const struct kernel reference = kernel_find(op, model, KERNELS_REFERENCE);
    if (op_instance_run(&both->fast, &cpu_kernel_table_for(model, isa)[op], &error) != TRIREME_OK ||
        op_instance_run(&both->exact, &reference, &error) != TRIREME_OK)
        fail_msg("%s (%s, %s): %s", spec, dtype_name(model), isa_name(isa), error.message);
}

static void release_both(struct both *both) {
    op_instance_release(&both->fast);
    op_instance_release(&both->exact);
}

static double value(const struct tensor *t, int64_t element) {
    return tensor_get(t, tensor_position(t, element));
}

static void check_values(const char *spec, const struct scores *scores, enum dtype model, enum isa isa) {
    struct both both = {0};
    create_both(&both, spec, model);
    set_scores(&both.fast.call, scores);
    run_both(&both, spec, model, isa);
    for (int i = 0; i < both.fast.info->outputs; i++) {
        const struct tensor *out = &both.fast.call.out[i];
        for (int64_t e = 0; e < tensor_elements(out); e++) {
            const double x = value(out, e), y = value(&both.exact.call.out[i], e);
            if (!(fabs(x - y) <= (out->dtype == DTYPE_BF16 ? 0x1p-7 * fabs(y) + 1e-5 : 4e-6 * (1 + fabs(y)))))
                fail_msg("%s (%s, %s): %s[%lld] is %.9g, should be %.9g", spec, dtype_name(model), isa_name(isa),
                         both.fast.info->out[i].name, (long long)e, x, y);
        }
    }
    release_both(&both);
}

// 95% of outputs in bf16 have the bits of the reference, which sums in f64 and rounds.
static void check_digits(const char *spec, enum isa isa, bool rising) {
    struct both both = {0};
    create_both(&both, spec, DTYPE_BF16);
    if (rising)
        set_scores(&both.fast.call, &RISING);
    run_both(&both, spec, DTYPE_BF16, isa);
    for (int i = 0; i < both.fast.info->outputs; i++) {
        const struct tensor *out = &both.fast.call.out[i];
        const int64_t count = tensor_elements(out);
        int64_t same = 0;
        for (int64_t e = 0; e < count; e++)
            same += value(out, e) == value(&both.exact.call.out[i], e);
        if (out->dtype == DTYPE_BF16 && same < count - count / 20)
            fail_msg("%s (%s): of %lld elements of %s %lld are the sum rounded once", spec, isa_name(isa),
                     (long long)count, both.fast.info->out[i].name, (long long)same);
    }
    release_both(&both);
}

static void scores_that_rise_late_are_right(void **state) {
    (void)state;
    static const char *const specs[] = {
        "attention b=1 T=700 h=2 g=1 D=20 scale=1 window=0",
        "attention b=1 T=700 h=1 g=1 D=20 scale=1 window=350",
        "attention_cached m=90 h=2 g=1 D=20 S=700 scale=1 window=0",
        "attention_cached m=2 h=1 g=1 D=20 S=700 scale=1 window=0",
    };
    for (size_t i = 0; i < ARRAY_LENGTH(specs); i++)
        for (enum isa isa = ISA_BASE; isa < ISA_COUNT; isa++) {
            for (int m = 0; m < 2 && isa_usable(isa); m++)
                check_values(specs[i], &RISING, m ? DTYPE_BF16 : DTYPE_F32, isa);
            if (isa_usable(isa))
                check_digits(specs[i], isa, true);
        }
}

static void scores_without_exponentials_are_right(void **state) {
    (void)state;
    static const char *const specs[] = {
        "attention b=1 T=320 h=1 g=1 D=20 scale=1 window=0",
        "attention_cached m=40 h=1 g=1 D=20 S=320 scale=1 window=0",
        "attention_cached m=2 h=1 g=1 D=20 S=300 scale=1 window=0", // all of them before the rise
    };
    for (size_t i = 0; i < ARRAY_LENGTH(specs); i++)
        for (int k = 0; k < 2 * ISA_COUNT; k++)
            if (isa_usable((enum isa)(k / 2)))
                check_values(specs[i], &STEEP, k & 1 ? DTYPE_BF16 : DTYPE_F32, (enum isa)(k / 2));
}

static void probabilities_keep_more_digits_than_bf16(void **state) {
    (void)state;
    for (enum isa isa = ISA_BASE; isa < ISA_COUNT; isa++)
        if (isa_usable(isa)) {
            check_digits("attention b=1 T=400 h=2 g=1 D=40 scale=0.2 window=0", isa, false);
            check_digits("attention_bwd b=1 T=400 h=2 g=1 D=40 scale=0.2 window=0", isa, false);
        }
}

// Elements of all heads of tokens of the inputs q, k, v and do, in three sets: of many documents, in the first block of
// keys and behind it, within a tile of queries and at its ends; of one document a last value, and a last key that makes
// no score but -infinity, so that dq alone is not finite.
enum { SETS = 3 };
static const struct {
    int set, input;
    int64_t token, element;
    double value;
} unseen[] = {{0, 2, 4, 0, INFINITY},    {0, 1, 12, 1, NAN},       {0, 2, 21, 2, NAN},        {0, 1, 33, 0, -INFINITY},
              {0, 2, 47, 3, -INFINITY},  {0, 1, 60, 2, INFINITY},  {0, 0, 75, 1, NAN},        {0, 7, 88, 0, NAN},
              {0, 1, 287, 0, INFINITY},  {0, 2, 288, 1, INFINITY}, {0, 2, 289, 0, -INFINITY}, {1, 2, 395, 3, NAN},
              {2, 1, 395, 3, -INFINITY}, {2, 0, 395, 3, 0.5},      {2, 0, 396, 3, 0.5}};

static void set_unseen(const struct call *call, int set) {
    if (set > 0)
        one_document(call);
    for (size_t u = 0; u < ARRAY_LENGTH(unseen); u++) {
        const struct tensor *x = &call->in[unseen[u].input];
        if (unseen[u].set != set || unseen[u].input >= call->inputs || unseen[u].token >= x->dim[1])
            continue;
        for (int64_t h = 0; h < x->dim[2]; h++)
            tensor_set(x, at4(x, 0, unseen[u].token, h, unseen[u].element), unseen[u].value);
    }
}

// o and lse of the operands of a backward call as they are now.
static void set_forward(const struct call *call, enum dtype model) {
    struct call forward = {.op = OP_ATTENTION, .inputs = 5, .outputs = 2, .threads = 1};
    memcpy(forward.in, call->in, 5 * sizeof *call->in);
    memcpy(forward.out, call->in + 5, 2 * sizeof *call->in);
    memcpy(forward.attribute, call->attribute, sizeof call->attribute);
    kernel_find(OP_ATTENTION, model, KERNELS_REFERENCE).run(&forward);
}

static bool alike(double x, double y, double accepted) {
    return isfinite(y) ? fabs(x - y) <= accepted : isnan(y) ? isnan(x) : x == y;
}

// Infinities and NaNs where the reference has them, finite values as close as elsewhere.
static void check_unseen(const char *spec, const struct both *both, enum dtype model, enum isa isa) {
    for (int i = 0; i < both->fast.info->outputs; i++) {
        const struct tensor *out = &both->fast.call.out[i];
        const double part = out->dtype == DTYPE_BF16 ? 0x1p-7 : 64 * 0x1p-24;
        const int64_t count = tensor_elements(out);
        double largest = 0;
        for (int64_t e = 0; e < count; e++) {
            const double y = value(&both->exact.call.out[i], e);
            largest = isfinite(y) ? fmax(largest, fabs(y)) : largest;
        }
        for (int64_t e = 0; e < count; e++) {
            const double x = value(out, e), y = value(&both->exact.call.out[i], e);
            if (!alike(x, y, part * largest))
                fail_msg("%s (%s, %s): %s[%lld] is %.9g, should be %.9g", spec, dtype_name(model), isa_name(isa),
                         both->fast.info->out[i].name, (long long)e, x, y);
        }
    }
}

static void what_is_unseen_changes_nothing(void **state) {
    (void)state;
    static const char *const specs[] = {
        "attention b=2 T=397 h=2 g=1 D=20 scale=0.4 window=0",
        "attention b=1 T=91 h=4 g=2 D=5 scale=0.4 window=3",
        "attention b=1 T=305 h=1 g=1 D=64 scale=0.2 window=9",
        "attention_bwd b=2 T=397 h=2 g=1 D=20 scale=0.4 window=0",
        "attention_bwd b=1 T=91 h=4 g=2 D=5 scale=0.4 window=3",
        "attention_bwd b=1 T=305 h=1 g=1 D=64 scale=0.2 window=9",
    };
    for (size_t i = 0; i < ARRAY_LENGTH(specs); i++)
        for (int k = 0; k < 2 * SETS * ISA_COUNT; k++) {
            const enum isa isa = (enum isa)(k / 2 / SETS);
            const enum dtype model = k & 1 ? DTYPE_BF16 : DTYPE_F32;
            struct both both = {0};
            if (!isa_usable(isa))
                continue;
            create_both(&both, specs[i], model);
            set_unseen(&both.fast.call, k / 2 % SETS);
            if (both.fast.call.op == OP_ATTENTION_BWD)
                set_forward(&both.fast.call, model);
            run_both(&both, specs[i], model, isa);
            check_unseen(specs[i], &both, model, isa);
            release_both(&both);
        }
}

// Of a run in a workspace that held `filler` before.
static double seconds(struct op_instance *instance, const struct kernel *kernel, int filler) {
    memset(instance->call.workspace, filler, (size_t)instance->call.workspace_bytes);
    const int64_t begin = clock_thread();
    kernel->run(&instance->call);
    return 1e-9 * (double)(clock_thread() - begin);
}

// Nothing is done twice for what lies where no operand does.
static void what_a_workspace_held_takes_no_time(void **state) {
    (void)state;
    static const char *const specs[] = {"attention b=1 T=330 h=2 g=1 D=20 scale=0.2 window=0",
                                        "attention_bwd b=1 T=330 h=2 g=1 D=20 scale=0.2 window=0"};
    for (size_t i = 0; i < ARRAY_LENGTH(specs); i++)
        for (int k = 0; k < 2 * ISA_COUNT; k++) {
            const enum isa isa = (enum isa)(k / 2);
            const struct op_options options = {.model = k & 1 ? DTYPE_BF16 : DTYPE_F32, .seed = 5, .threads = 1};
            struct op_instance instance;
            trireme_error error;
            if (!isa_usable(isa))
                continue;
            if (op_instance_create(&instance, table, specs[i], &options, &error) != TRIREME_OK)
                fail_msg("%s", error.message);
            const struct kernel *kernel = &cpu_kernel_table_for(options.model, isa)[instance.info->op];
            if (op_instance_prepare(&instance, kernel, &error) != TRIREME_OK)
                fail_msg("%s", error.message);
            double zeros = INFINITY,
                   nans = INFINITY; // the least of so many runs that other programs hide no difference
            for (int run = 0; run < 200 && (run < 7 || nans > 1.5 * zeros); run++) {
                zeros = fmin(zeros, seconds(&instance, kernel, 0));
                nans = fmin(nans, seconds(&instance, kernel, 0xff));
            }
            if (nans > 1.5 * zeros)
                fail_msg("%s (%s, %s): %.3g s where the workspace held zeros, %.3g s where it held NaN", specs[i],
                         dtype_name(options.model), isa_name(isa), zeros, nans);
            op_instance_release(&instance);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_that_rise_late_are_right),
        cmocka_unit_test(scores_without_exponentials_are_right),
        cmocka_unit_test(probabilities_keep_more_digits_than_bf16),
        cmocka_unit_test(what_is_unseen_changes_nothing),
        cmocka_unit_test(what_a_workspace_held_takes_no_time),
    };
    return cmocka_run_group_tests(tests, op_table_setup, op_table_teardown);
}
