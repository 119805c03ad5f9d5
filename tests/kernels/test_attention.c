// Attention against the reference on every instruction set, for cases that random operands hardly test: keys whose
// scores rise after the first block of keys, so that earlier sums have to be scaled down; probabilities as factors,
// which are not rounded to bf16; and inf and NaN, which must reach only the rows that see them. And that pieces of
// attention over parts make up the whole.
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

// All is one document; a sink is one more plain key.
static void set_scores(const struct call *call, const struct scores *scores) {
    const struct tensor *q = &call->in[0], *k = &call->in[1],
                        *sinks = &call->in[call->op == OP_ATTENTION_CACHED ? 4 : 5];
    for (int64_t i = 0; i < tensor_elements(sinks); i++)
        tensor_set(sinks, i, scores->plain);
    const struct tensor *before_lse = &call->in[INPUT(ATTENTION_BLOCK, before_lse)];
    for (int64_t i = 0; call->op == OP_ATTENTION_BLOCK && i < tensor_elements(before_lse); i++)
        tensor_set(before_lse, i, scores->plain);
    for (int64_t i = 0; i < tensor_elements(q); i++)
        tensor_set(q, tensor_position(q, i), i % HEAD_UNITS == 0);
    for (int64_t i = 0; i < tensor_elements(k); i++) {
        const int64_t key = i / HEAD_UNITS;
        double score = scores->plain;
        for (size_t r = 0; r < ARRAY_LENGTH(scores->rise); r++)
            score = scores->rise[r].key == key && key > 0 ? scores->rise[r].score : score;
        tensor_set(k, tensor_position(k, i), i % HEAD_UNITS == 0 ? score : 0);
    }
    if (call->op != OP_ATTENTION_CACHED)
        one_document(call);
}

// A kernel and the reference, on the same operands.
struct both {
    struct op_instance fast, exact;
};

static void create_both(struct both *both, const char *spec, enum dtype model) {
    const struct op_options options = {.model = model, .seed = 5, .threads = 2, .inplace = true};
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

// What f32 outputs may lack, given what sums in f32 do: matrix units multiply probabilities of 15 bits and more.
static double accepted_f32(enum dtype model, enum isa isa, double sums) {
    return model == DTYPE_BF16 && isa == ISA_AMX ? 0x1p-15 : sums;
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
            if (!(fabs(x - y) <= (out->dtype == DTYPE_BF16 ? 0x1p-7 * fabs(y) + 1e-5
                                                           : accepted_f32(model, isa, 4e-6) * (1 + fabs(y)))))
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
        "attention_block b=1 t=340 u=340 h=1 g=1 D=20 first=340 scale=1 window=0 layout=0 parts=2 keys=1",
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
        "attention_block b=1 t=320 u=320 h=1 g=1 D=20 first=320 scale=1 window=0 layout=0 parts=2 keys=0",
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
    struct call forward = {.op = OP_ATTENTION, .inputs = 6, .outputs = 2, .threads = 1};
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
        const double part = out->dtype == DTYPE_BF16 ? 0x1p-7 : accepted_f32(model, isa, 64 * 0x1p-24);
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
        "attention_block b=1 t=300 u=300 h=1 g=1 D=5 first=300 scale=0.4 window=0 layout=0 parts=2 keys=0",
        "attention_block b=1 t=92 u=92 h=4 g=2 D=5 first=0 scale=0.4 window=9 layout=-1 parts=2 keys=0",
        "attention_block b=1 t=92 u=92 h=2 g=1 D=5 first=184 scale=0.4 window=0 layout=4 parts=3 keys=1",
        "attention_block_bwd b=1 t=300 u=300 h=1 g=1 D=5 first=300 scale=0.4 window=0 layout=0 parts=2 keys=0",
        "attention_block_bwd b=1 t=92 u=92 h=4 g=2 D=5 first=0 scale=0.4 window=9 layout=-1 parts=2 keys=0",
        "attention_block_bwd b=1 t=92 u=92 h=2 g=1 D=5 first=184 scale=0.4 window=0 layout=4 parts=3 keys=1",
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

// ---- pieces

// Attention over parts as a whole, forward and backward, by the reference; and who makes it of pieces.
struct whole {
    struct op_instance forward, backward;
    enum dtype model;
    enum isa isa;
    int64_t parts, rows, batch, heads, groups, width;
    void *memory[64];
    size_t taken;
};

// A contiguous tensor of NaN.
static struct tensor take(struct whole *w, enum dtype dtype, int ndim, const int64_t *dim) {
    struct tensor t = {.dtype = dtype, .ndim = ndim};
    int64_t count = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        t.dim[i] = dim[i];
        t.stride[i] = count;
        count *= dim[i];
    }
    assert_true(w->taken < ARRAY_LENGTH(w->memory));
    t.data = w->memory[w->taken++] = mem_alloc((size_t)(count * dtype_size(dtype)));
    memset(t.data, 0xff, (size_t)(count * dtype_size(dtype)));
    return t;
}

static struct tensor take_heads(struct whole *w, enum dtype dtype, int64_t heads) {
    return take(w, dtype, 4, (int64_t[]){w->batch, w->rows, heads, w->width});
}

static struct tensor take_numbers(struct whole *w) {
    return take(w, DTYPE_F32, 3, (int64_t[]){w->batch, w->heads, w->rows});
}

// The rows of a part, which dim `d` counts.
static struct tensor rows_of(const struct whole *w, const struct tensor *x, int d, int64_t part) {
    struct tensor t = *x;
    t.dim[d] = w->rows;
    t.data = (char *)t.data + part * w->rows * t.stride[d] * dtype_size(t.dtype);
    return t;
}

static void run_piece(const struct whole *w, struct call call) {
    const struct kernel *kernel = &cpu_kernel_table_for(w->model, w->isa)[call.op];
    trireme_error error;
    call.threads = 2;
    if (kernel->prepare)
        assert_int_equal(kernel->prepare(&call, &call.prepared, &call.workspace_bytes, &error), TRIREME_OK);
    call.workspace = aligned_alloc(64, (size_t)round_up(call.workspace_bytes, 64));
    kernel->run(&call);
    free(call.workspace);
}

// An op on queries of a part and the keys of that `distance` before it.
static struct call piece_of(const struct whole *w, enum op op, const struct tensor *first, int64_t part,
                            int64_t distance) {
    struct call call = {.op = op, .inputs = 8, .outputs = 2};
    const int64_t keys = (part - distance + w->parts) % w->parts;
    for (int i = 0; i < 4; i++)
        call.in[i] = rows_of(w, &w->forward.call.in[i], 1, i == 1 || i == 2 ? keys : part);
    call.in[4] = *first;
    *(int32_t *)first->data = (int32_t)(part * w->rows);
    memcpy(call.attribute, w->forward.call.attribute, sizeof call.attribute);
    call.attribute[ATTRIBUTE(ATTENTION_BLOCK, keys)].i = distance;
    return call;
}

static void check_piece(const struct whole *w, const struct op_instance *of, int output, int d, int64_t part,
                        const struct tensor *got) {
    const struct tensor *all = &of->call.out[output], expected = rows_of(w, all, d, part);
    double largest = 0;
    for (int64_t e = 0; e < tensor_elements(all); e++)
        largest = fmax(largest, fabs(value(all, e)));
    for (int64_t e = 0; e < tensor_elements(got); e++) {
        const double x = value(got, e), y = value(&expected, e);
        if (!(fabs(x - y) <= (w->model == DTYPE_BF16 ? 0x1p-7 : 0x1p-18) * largest))
            fail_msg("%s of part %lld of %lld, layout %lld (%s, %s): [%lld] is %.9g, should be %.9g",
                     of->info->out[output].name, (long long)part, (long long)w->parts,
                     (long long)w->forward.call.attribute[ATTRIBUTE(ATTENTION_PARTS, layout)].i, dtype_name(w->model),
                     isa_name(w->isa), (long long)e, x, y);
    }
}

// Some parts follow one another in the softmax, others are merged.
static void check_forward(struct whole *w, int64_t part) {
    const struct tensor first = take(w, DTYPE_I32, 1, (int64_t[]){1}), seen = take_heads(w, DTYPE_F32, w->heads);
    const struct tensor other = take_heads(w, DTYPE_F32, w->heads), lse = take_numbers(w), other_lse = take_numbers(w);
    const struct tensor *sinks = &w->forward.call.in[INPUT(ATTENTION_PARTS, sinks)];
    for (int64_t distance = 0; distance < w->parts; distance++) {
        struct call block = piece_of(w, OP_ATTENTION_BLOCK, &first, part, distance);
        const bool alone = distance % 2 == 1;
        block.out[0] = alone ? other : seen;
        block.out[1] = alone ? other_lse : lse;
        if (distance == 0)
            block.in[INPUT(ATTENTION_BLOCK, sinks)] = *sinks;
        if (distance > 0 && !alone) {
            block.in[INPUT(ATTENTION_BLOCK, before)] = seen;
            block.in[INPUT(ATTENTION_BLOCK, before_lse)] = lse;
        }
        run_piece(w, block);
        if (alone)
            run_piece(w, (struct call){.op = OP_ATTENTION_MERGE,
                                       .inputs = 4,
                                       .outputs = 2,
                                       .in = {seen, lse, other, other_lse},
                                       .out = {seen, lse}});
    }
    const struct tensor o = take_heads(w, w->model, w->heads), end_lse = take_numbers(w), sunk = take_numbers(w);
    run_piece(
        w,
        (struct call){
            .op = OP_ATTENTION_END, .inputs = 3, .outputs = 3, .in = {seen, lse, *sinks}, .out = {o, end_lse, sunk}});
    check_piece(w, &w->forward, OUTPUT(ATTENTION_PARTS, o), 1, part, &o);
    check_piece(w, &w->forward, OUTPUT(ATTENTION_PARTS, lse), 2, part, &end_lse);
    check_piece(w, &w->forward, OUTPUT(ATTENTION_PARTS, sunk), 2, part, &sunk);
}

static void check_backward(struct whole *w) {
    const struct tensor first = take(w, DTYPE_I32, 1, (int64_t[]){1}), *in = w->backward.call.in;
    struct tensor dq[8], dk[8], dv[8];
    for (int64_t part = 0; part < w->parts; part++) {
        dq[part] = take_heads(w, DTYPE_F32, w->heads);
        dk[part] = take_heads(w, DTYPE_F32, w->groups);
        dv[part] = take_heads(w, DTYPE_F32, w->groups);
    }
    const struct tensor own_dk = take_heads(w, DTYPE_F32, w->groups), own_dv = take_heads(w, DTYPE_F32, w->groups);
    const struct tensor lse = take_numbers(w), delta = take_numbers(w);
    for (int64_t part = 0; part < w->parts; part++) {
        const struct tensor o = rows_of(w, &in[INPUT(ATTENTION_PARTS_BWD, o)], 1, part);
        const struct tensor d_o = rows_of(w, &in[INPUT(ATTENTION_PARTS_BWD, do)], 1, part);
        const struct tensor part_lse = rows_of(w, &in[INPUT(ATTENTION_PARTS_BWD, lse)], 2, part);
        tensor_copy(&part_lse, &lse);
        run_piece(w,
                  (struct call){.op = OP_ATTENTION_DELTA, .inputs = 2, .outputs = 1, .in = {o, d_o}, .out = {delta}});
        for (int64_t distance = 0; distance < w->parts; distance++) {
            const int64_t keys = (part - distance + w->parts) % w->parts;
            struct call block = piece_of(w, OP_ATTENTION_BLOCK_BWD, &first, part, distance);
            block.in[INPUT(ATTENTION_BLOCK_BWD, lse)] = lse;
            block.in[INPUT(ATTENTION_BLOCK_BWD, delta)] = delta;
            block.in[INPUT(ATTENTION_BLOCK_BWD, do)] = d_o;
            block.in[INPUT(ATTENTION_BLOCK_BWD, before)] = distance > 0 ? dq[part] : (struct tensor){0};
            block.inputs = 9, block.outputs = 3;
            block.out[0] = dq[part], block.out[1] = own_dk, block.out[2] = own_dv;
            if (part == 0) // the first that sees any keys
                block.out[1] = dk[keys], block.out[2] = dv[keys];
            run_piece(w, block);
            if (part == 0)
                continue;
            run_piece(w, (struct call){.op = OP_ATTENTION_ADD,
                                       .inputs = 4,
                                       .outputs = 2,
                                       .in = {dk[keys], dv[keys], own_dk, own_dv},
                                       .out = {dk[keys], dv[keys]}});
        }
    }
    for (int64_t part = 0; part < w->parts; part++) {
        const struct tensor end[] = {take_heads(w, w->model, w->heads), take_heads(w, w->model, w->groups),
                                     take_heads(w, w->model, w->groups)};
        run_piece(w, (struct call){.op = OP_ATTENTION_BWD_END,
                                   .inputs = 3,
                                   .outputs = 3,
                                   .in = {dq[part], dk[part], dv[part]},
                                   .out = {end[0], end[1], end[2]}});
        for (int i = 0; i < 3; i++)
            check_piece(w, &w->backward, i, 1, part, &end[i]);
    }
}

static void check_pieces(const char *settings, enum dtype model, enum isa isa) {
    const struct op_options options = {.model = model, .seed = 5, .threads = 1};
    struct whole w = {.model = model, .isa = isa};
    trireme_error error = {0};
    for (int i = 0; i < 2; i++) {
        struct op_instance *of = i ? &w.backward : &w.forward;
        char spec[128];
        snprintf(spec, sizeof spec, "attention_parts%s %s", i ? "_bwd" : "", settings);
        if (op_instance_create(of, table, spec, &options, &error) != TRIREME_OK)
            fail_msg("%s", error.message);
        kernel_find(of->info->op, model, KERNELS_REFERENCE).run(&of->call);
    }
    const struct tensor *q = &w.forward.call.in[0];
    w.parts = w.forward.call.attribute[ATTRIBUTE(ATTENTION_PARTS, parts)].i;
    w.rows = q->dim[1] / w.parts;
    w.batch = q->dim[0];
    w.heads = q->dim[2];
    w.groups = w.forward.call.in[1].dim[2];
    w.width = q->dim[3];
    for (int64_t part = 0; part < w.parts; part++)
        check_forward(&w, part);
    check_backward(&w);
    for (size_t i = 0; i < w.taken; i++)
        free(w.memory[i]);
    op_instance_release(&w.forward);
    op_instance_release(&w.backward);
}

static void pieces_make_up_the_whole(void **state) {
    (void)state;
    static const char *const settings[] = {
        "b=2 t=60 h=4 g=2 D=6 scale=0.4 window=0 layout=0 parts=3",
        "b=1 t=120 h=2 g=1 D=20 scale=0.3 window=25 layout=-1 parts=4",
        "b=1 t=276 h=1 g=1 D=5 scale=0.4 window=0 cap=0.7 layout=-1 parts=2",
        "b=1 t=150 h=2 g=1 D=5 scale=0.4 window=40 layout=1 parts=3",
        "b=1 t=108 h=1 g=1 D=20 scale=0.3 window=0 layout=9 parts=4",
    };
    for (size_t i = 0; i < ARRAY_LENGTH(settings); i++)
        for (int k = 0; k < 2 * ISA_COUNT; k++)
            if (isa_usable((enum isa)(k / 2)))
                check_pieces(settings[i], k & 1 ? DTYPE_BF16 : DTYPE_F32, (enum isa)(k / 2));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_that_rise_late_are_right),
        cmocka_unit_test(scores_without_exponentials_are_right),
        cmocka_unit_test(probabilities_keep_more_digits_than_bf16),
        cmocka_unit_test(what_is_unseen_changes_nothing),
        cmocka_unit_test(what_a_workspace_held_takes_no_time),
        cmocka_unit_test(pieces_make_up_the_whole),
    };
    return cmocka_run_group_tests(tests, op_table_setup, op_table_teardown);
}
