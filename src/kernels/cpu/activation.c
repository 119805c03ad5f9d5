// GELU (Hendrycks and Gimpel, 2016) in its exact and its tanh form, SwiGLU and GEGLU (Shazeer, "GLU Variants Improve
// Transformer", 2020), soft caps, their gradients, and addition.
#include "kernels/cpu/pointwise.h"
#include "kernels/cpu/rows.h"

// ---- functions of one vector

// exp(-x*x/2) and Phi(x), the normal distribution's probability of less than x, each to a few units in the last place,
// relative, in the left tail too: for z = |x|, Phi(-z) = exp(-z*z/2) * t * P(t), t = 1 / (1 + 0.27 z). P is the
// polynomial of degree 8 whose greatest relative error (2.3e-8) over 0 <= z <= 13.5 is least, found by Remez exchange.
VEC_INLINE vec_f32 vec_normal_probability(vec_f32 x, vec_f32 *bell) {
    vec_f32 z = (vec_f32)((vec_i32)x & 0x7fffffff);
    *bell = vec_exp(x * x * -0.5f);
    vec_f32 t = 1.0f / (z * 0.27f + 1.0f);
    vec_f32 p = vec_splat(0.0288554362f);
    p = p * t + -0.1259534747f;
    p = p * t + 0.168642182f;
    p = p * t + -0.06784463388f;
    p = p * t + 0.1068363604f;
    p = p * t + 0.07249330131f;
    p = p * t + 0.101690554f;
    p = p * t + 0.1075607482f;
    p = p * t + 0.107719538f;
    vec_f32 tail = p * t * *bell;
    return vec_select_less(x, (vec_f32){0}, tail, 1.0f - tail);
}

// 0.5 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) = 1 / (1 + exp(-s(x))), with s(x) = x (a + b x^2).
#define GELU_A 1.5957691216f // 2 sqrt(2/pi)
#define GELU_B 0.0713548163f // 0.044715 times that

VEC_INLINE vec_f32 gelu(vec_f32 x, bool tanh) {
    vec_f32 bell;
    if (!tanh)
        return x * vec_normal_probability(x, &bell);
    return x / (1.0f + vec_exp(-x * (x * x * GELU_B + GELU_A)));
}

VEC_INLINE vec_f32 gelu_derivative(vec_f32 x, bool tanh) {
    if (!tanh) {
        vec_f32 bell, probability = vec_normal_probability(x, &bell);
        return x * bell * 0.3989422804f + probability;
    }
    // Beyond 9.9 the derivative is 0 or 1 to all digits; within, exp stays finite. The order of operands keeps a NaN.
    x = vec_min(vec_splat(9.9f), vec_max(vec_splat(-9.9f), x));
    vec_f32 square = x * x;
    vec_f32 e = vec_exp(-x * (square * GELU_B + GELU_A));
    vec_f32 p = 1.0f / (1.0f + e);
    return p + x * (square * (3 * GELU_B) + GELU_A) * (p * (p * e));
}

// ---- kernels

struct elementwise {
    bool bf16, tanh;
    float number; // a factor, or a cap
    struct pieces pieces;
};

static struct elementwise elementwise_of(int operands, const struct tensor *const *operand) {
    return (struct elementwise){
        .bf16 = operand[0]->dtype == DTYPE_BF16,
        .pieces = pieces_of(operands, operand),
    };
}

static void elementwise_run(const struct call *call, const struct elementwise *e,
                            void (*body)(const void *args, int64_t from, int64_t to)) {
    run_split(call, e->pieces.count, e->pieces.count * e->pieces.length, body, e);
}

VEC_INLINE void add_lanes(int64_t i, int count, void *y, const void *a, const void *b, bool bf16) {
    row_store(y, i, count, row_load(a, i, count, bf16) + row_load(b, i, count, bf16), bf16);
}

static void add_pieces(const void *args, int64_t from, int64_t to) {
    const struct elementwise *e = args;
    for (int64_t k = from; k < to; k++) {
        int64_t n = piece_length(&e->pieces, k);
        void *y = row_at(e->pieces.rows[0], k);
        const void *a = row_at(e->pieces.rows[1], k), *b = row_at(e->pieces.rows[2], k);
        if (e->bf16)
            ROW_EACH(n, add_lanes, y, a, b, true);
        else
            ROW_EACH(n, add_lanes, y, a, b, false);
    }
}

void ISA(cpu_add)(const struct call *call) {
    const struct tensor *operand[] = {&call->out[0], &call->in[0], &call->in[1]};
    struct elementwise e = elementwise_of(3, operand);
    elementwise_run(call, &e, add_pieces);
}

// ---- sums of gradients

VEC_INLINE void copy_lanes(int64_t i, int count, void *y, const void *x, bool bf16) {
    row_store(y, i, count, row_load(x, i, count, bf16), bf16);
}

static void copy_pieces(const void *args, int64_t from, int64_t to) {
    const struct elementwise *e = args;
    for (int64_t k = from; k < to; k++) {
        int64_t n = piece_length(&e->pieces, k);
        if (e->bf16)
            ROW_EACH(n, copy_lanes, row_at(e->pieces.rows[0], k), row_at(e->pieces.rows[1], k), true);
        else
            ROW_EACH(n, copy_lanes, row_at(e->pieces.rows[0], k), row_at(e->pieces.rows[1], k), false);
    }
}

// y may be b, which may be absent.
void ISA(cpu_gradient_sum)(const struct call *call) {
    const bool adds = call->in[1].data;
    const struct tensor *operand[] = {&call->out[0], &call->in[0], &call->in[1]};
    struct elementwise e = elementwise_of(adds ? 3 : 2, operand);
    elementwise_run(call, &e, adds ? add_pieces : copy_pieces);
}

struct widened {
    bool bf16, accumulate;
    int64_t columns;
    struct rows dw, dy;
};

VEC_INLINE void widen_lanes(int64_t i, int count, float *dw, const void *dy, bool accumulate, bool bf16) {
    vec_f32 sum = row_load(dy, i, count, bf16);
    if (accumulate)
        sum += row_load(dw, i, count, false);
    row_store(dw, i, count, sum, false);
}

static void widen_rows(const void *args, int64_t from, int64_t to) {
    const struct widened *e = args;
    for (int64_t r = from; r < to; r++) {
        float *dw = row_at(e->dw, r);
        const void *dy = row_at(e->dy, r);
        if (e->bf16)
            ROW_EACH(e->columns, widen_lanes, dw, dy, e->accumulate, true);
        else
            ROW_EACH(e->columns, widen_lanes, dw, dy, e->accumulate, false);
    }
}

void ISA(cpu_gradient_sum_dw)(const struct call *call) {
    const struct tensor *dy = &call->in[0], *dw = &call->out[0];
    const struct widened e = {.bf16 = dy->dtype == DTYPE_BF16,
                              .accumulate = call->accumulate,
                              .columns = dy->dim[1],
                              .dw = rows_of(dw),
                              .dy = rows_of(dy)};
    run_split(call, dy->dim[0], dy->dim[0] * dy->dim[1], widen_rows, &e);
}

// ---- addition with a bias

struct biased {
    bool bf16, accumulate;
    int64_t count, columns;
    struct rows y, a, b; // a: also dy
    const void *bias;
    float *dbias;
};

VEC_INLINE void add_bias_lanes(int64_t i, int count, void *y, const void *a, const void *b, const void *bias,
                               bool bf16) {
    const vec_f32 sum = b ? row_load(a, i, count, bf16) + row_load(b, i, count, bf16) : row_load(a, i, count, bf16);
    row_store(y, i, count, sum + row_load(bias, i, count, bf16), bf16);
}

static void add_bias_rows(const void *args, int64_t from, int64_t to) {
    const struct biased *e = args;
    for (int64_t r = from; r < to; r++) {
        void *y = row_at(e->y, r);
        const void *a = row_at(e->a, r), *b = e->b.data ? row_at(e->b, r) : NULL;
        if (e->bf16)
            ROW_EACH(e->columns, add_bias_lanes, y, a, b, e->bias, true);
        else
            ROW_EACH(e->columns, add_bias_lanes, y, a, b, e->bias, false);
    }
}

void ISA(cpu_add_bias)(const struct call *call) {
    const struct tensor *y = &call->out[0];
    const struct biased e = {.bf16 = y->dtype == DTYPE_BF16,
                             .columns = y->dim[1],
                             .y = rows_of(y),
                             .a = rows_of(&call->in[0]),
                             .b = rows_of(&call->in[1]),
                             .bias = call->in[2].data};
    run_split(call, y->dim[0], y->dim[0] * y->dim[1], add_bias_rows, &e);
}

enum { BIAS_COLUMNS = 64 }; // columns that one thread sums at a time: whole cache lines

VEC_INLINE void sum_lanes(int64_t i, int count, float *sum, const void *dy, bool bf16) {
    row_store(sum, i, count, row_load(sum, i, count, false) + row_load(dy, i, count, bf16), false);
}

static void add_bias_dw_groups(const void *args, int64_t from, int64_t to) {
    const struct biased *e = args;
    int64_t column = from * BIAS_COLUMNS, columns = MIN(to * BIAS_COLUMNS, e->columns) - column;
    float *sum = e->dbias + column;
    if (!e->accumulate)
        memset(sum, 0, (size_t)columns * sizeof *sum);
    for (int64_t r = 0; r < e->count; r++)
        if (e->bf16)
            ROW_EACH(columns, sum_lanes, sum, row_part(row_at(e->a, r), column, true), true);
        else
            ROW_EACH(columns, sum_lanes, sum, row_part(row_at(e->a, r), column, false), false);
}

void ISA(cpu_add_bias_dw)(const struct call *call) {
    const struct tensor *dy = &call->in[0];
    const struct biased e = {.bf16 = dy->dtype == DTYPE_BF16,
                             .accumulate = call->accumulate,
                             .count = dy->dim[0],
                             .columns = dy->dim[1],
                             .a = rows_of(dy),
                             .dbias = call->out[0].data};
    run_split(call, divide_up(e.columns, BIAS_COLUMNS), e.count * e.columns, add_bias_dw_groups, &e);
}

// ---- activations

VEC_INLINE void gelu_lanes(int64_t i, int count, void *y, const void *x, bool tanh, bool bf16) {
    row_store(y, i, count, gelu(row_load(x, i, count, bf16), tanh), bf16);
}

static void gelu_pieces(const void *args, int64_t from, int64_t to) {
    const struct elementwise *e = args;
    for (int64_t k = from; k < to; k++) {
        int64_t n = piece_length(&e->pieces, k);
        void *y = row_at(e->pieces.rows[0], k);
        const void *x = row_at(e->pieces.rows[1], k);
        if (e->bf16 && e->tanh)
            ROW_EACH(n, gelu_lanes, y, x, true, true);
        else if (e->bf16)
            ROW_EACH(n, gelu_lanes, y, x, false, true);
        else if (e->tanh)
            ROW_EACH(n, gelu_lanes, y, x, true, false);
        else
            ROW_EACH(n, gelu_lanes, y, x, false, false);
    }
}

void ISA(cpu_gelu)(const struct call *call) {
    const struct tensor *operand[] = {&call->out[0], &call->in[0]};
    struct elementwise e = elementwise_of(2, operand);
    e.tanh = call->attribute[0].i != 0;
    elementwise_run(call, &e, gelu_pieces);
}

VEC_INLINE void gelu_dx_lanes(int64_t i, int count, void *dx, const void *x, const void *dy, bool tanh, bool bf16) {
    vec_f32 derivative = gelu_derivative(row_load(x, i, count, bf16), tanh);
    row_store(dx, i, count, row_load(dy, i, count, bf16) * derivative, bf16);
}

static void gelu_dx_pieces(const void *args, int64_t from, int64_t to) {
    const struct elementwise *e = args;
    for (int64_t k = from; k < to; k++) {
        int64_t n = piece_length(&e->pieces, k);
        void *dx = row_at(e->pieces.rows[0], k);
        const void *x = row_at(e->pieces.rows[1], k), *dy = row_at(e->pieces.rows[2], k);
        if (e->bf16 && e->tanh)
            ROW_EACH(n, gelu_dx_lanes, dx, x, dy, true, true);
        else if (e->bf16)
            ROW_EACH(n, gelu_dx_lanes, dx, x, dy, false, true);
        else if (e->tanh)
            ROW_EACH(n, gelu_dx_lanes, dx, x, dy, true, false);
        else
            ROW_EACH(n, gelu_dx_lanes, dx, x, dy, false, false);
    }
}

void ISA(cpu_gelu_dx)(const struct call *call) {
    const struct tensor *operand[] = {&call->out[0], &call->in[0], &call->in[1]};
    struct elementwise e = elementwise_of(3, operand);
    e.tanh = call->attribute[0].i != 0;
    elementwise_run(call, &e, gelu_dx_pieces);
}

// ---- scale and soft cap

VEC_INLINE void factor_lanes(int64_t i, int count, void *y, const void *x, float factor, bool bf16) {
    row_store(y, i, count, row_load(x, i, count, bf16) * factor, bf16);
}

VEC_INLINE void softcap_lanes(int64_t i, int count, void *y, const void *x, float cap, bool bf16) {
    row_store(y, i, count, vec_tanh(row_load(x, i, count, bf16) * (1 / cap)) * cap, bf16);
}

VEC_INLINE void softcap_dx_lanes(int64_t i, int count, void *dx, const void *y, const void *dy, float cap, bool bf16) {
    const vec_f32 share = row_load(y, i, count, bf16) * (1 / cap);
    row_store(dx, i, count, row_load(dy, i, count, bf16) * (1.0f - share * share), bf16);
}

static void factor_pieces(const void *args, int64_t from, int64_t to) {
    const struct elementwise *e = args;
    for (int64_t k = from; k < to; k++) {
        void *y = row_at(e->pieces.rows[0], k);
        const void *x = row_at(e->pieces.rows[1], k);
        if (e->bf16)
            ROW_EACH(piece_length(&e->pieces, k), factor_lanes, y, x, e->number, true);
        else
            ROW_EACH(piece_length(&e->pieces, k), factor_lanes, y, x, e->number, false);
    }
}

static void softcap_pieces(const void *args, int64_t from, int64_t to) {
    const struct elementwise *e = args;
    for (int64_t k = from; k < to; k++) {
        void *y = row_at(e->pieces.rows[0], k);
        const void *x = row_at(e->pieces.rows[1], k);
        if (e->bf16)
            ROW_EACH(piece_length(&e->pieces, k), softcap_lanes, y, x, e->number, true);
        else
            ROW_EACH(piece_length(&e->pieces, k), softcap_lanes, y, x, e->number, false);
    }
}

static void softcap_dx_pieces(const void *args, int64_t from, int64_t to) {
    const struct elementwise *e = args;
    for (int64_t k = from; k < to; k++) {
        void *dx = row_at(e->pieces.rows[0], k);
        const void *y = row_at(e->pieces.rows[1], k), *dy = row_at(e->pieces.rows[2], k);
        if (e->bf16)
            ROW_EACH(piece_length(&e->pieces, k), softcap_dx_lanes, dx, y, dy, e->number, true);
        else
            ROW_EACH(piece_length(&e->pieces, k), softcap_dx_lanes, dx, y, dy, e->number, false);
    }
}

static void number_run(const struct call *call, int inputs, void (*body)(const void *args, int64_t from, int64_t to)) {
    const struct tensor *operand[] = {&call->out[0], &call->in[0], &call->in[1]};
    struct elementwise e = elementwise_of(1 + inputs, operand);
    e.number = (float)call->attribute[0].f;
    elementwise_run(call, &e, body);
}

void ISA(cpu_scale)(const struct call *call) {
    number_run(call, 1, factor_pieces);
}

void ISA(cpu_softcap)(const struct call *call) {
    number_run(call, 1, softcap_pieces);
}

void ISA(cpu_softcap_dx)(const struct call *call) {
    number_run(call, 2, softcap_dx_pieces);
}

// ---- SwiGLU and GEGLU: a row of x is [gate | up], each `width` long

struct gated {
    bool bf16, tanh;
    int64_t width;
    struct rows x, y, dy, dx;
};

VEC_INLINE void swiglu_lanes(int64_t i, int count, void *y, const void *x, int64_t width, bool bf16) {
    row_ahead(x, i, bf16);
    row_ahead(x, i + width, bf16);
    row_ahead(y, i, bf16);
    vec_f32 gate = row_load(x, i, count, bf16), up = row_load(x, i + width, count, bf16);
    row_store(y, i, count, gate / (1.0f + vec_exp(-gate)) * up, bf16);
}

static void swiglu_rows(const void *args, int64_t from, int64_t to) {
    const struct gated *s = args;
    for (int64_t r = from; r < to; r++) {
        if (s->bf16)
            ROW_EACH(s->width, swiglu_lanes, row_at(s->y, r), row_at(s->x, r), s->width, true);
        else
            ROW_EACH(s->width, swiglu_lanes, row_at(s->y, r), row_at(s->x, r), s->width, false);
    }
}

void ISA(cpu_swiglu)(const struct call *call) {
    const struct tensor *x = &call->in[0], *y = &call->out[0];
    struct gated s = {.bf16 = x->dtype == DTYPE_BF16, .width = y->dim[1], .x = rows_of(x), .y = rows_of(y)};
    run_split(call, x->dim[0], x->dim[0] * x->dim[1], swiglu_rows, &s);
}

VEC_INLINE void swiglu_dx_lanes(int64_t i, int count, void *dx, const void *x, const void *dy, int64_t width,
                                bool bf16) {
    row_ahead(x, i, bf16);
    row_ahead(x, i + width, bf16);
    row_ahead(dy, i, bf16);
    vec_f32 gate = row_load(x, i, count, bf16), up = row_load(x, i + width, count, bf16);
    vec_f32 d = row_load(dy, i, count, bf16);
    // Beyond 85 the derivative of silu is 0 or 1 to all digits; within, exp stays finite. The order of operands keeps a
    // NaN.
    vec_f32 g = vec_min(vec_splat(85.0f), vec_max(vec_splat(-85.0f), gate));
    vec_f32 e = vec_exp(-g);
    vec_f32 sigmoid = 1.0f / (1.0f + e);
    row_store(dx, i, count, d * up * (sigmoid * (g * (e * sigmoid) + 1.0f)), bf16);
    row_store(dx, i + width, count, d * (gate * sigmoid), bf16);
}

static void swiglu_dx_rows(const void *args, int64_t from, int64_t to) {
    const struct gated *s = args;
    for (int64_t r = from; r < to; r++) {
        if (s->bf16)
            ROW_EACH(s->width, swiglu_dx_lanes, row_at(s->dx, r), row_at(s->x, r), row_at(s->dy, r), s->width, true);
        else
            ROW_EACH(s->width, swiglu_dx_lanes, row_at(s->dx, r), row_at(s->x, r), row_at(s->dy, r), s->width, false);
    }
}

void ISA(cpu_swiglu_dx)(const struct call *call) {
    const struct tensor *x = &call->in[0], *dy = &call->in[1];
    struct gated s = {
        .bf16 = x->dtype == DTYPE_BF16,
        .width = dy->dim[1],
        .x = rows_of(x),
        .dy = rows_of(dy),
        .dx = rows_of(&call->out[0]),
    };
    run_split(call, x->dim[0], x->dim[0] * x->dim[1], swiglu_dx_rows, &s);
}

VEC_INLINE void geglu_lanes(int64_t i, int count, void *y, const void *x, int64_t width, bool tanh, bool bf16) {
    row_ahead(x, i, bf16);
    row_ahead(x, i + width, bf16);
    row_ahead(y, i, bf16);
    row_store(y, i, count, gelu(row_load(x, i, count, bf16), tanh) * row_load(x, i + width, count, bf16), bf16);
}

static void geglu_rows(const void *args, int64_t from, int64_t to) {
    const struct gated *s = args;
    for (int64_t r = from; r < to; r++) {
        void *y = row_at(s->y, r);
        const void *x = row_at(s->x, r);
        if (s->bf16 && s->tanh)
            ROW_EACH(s->width, geglu_lanes, y, x, s->width, true, true);
        else if (s->bf16)
            ROW_EACH(s->width, geglu_lanes, y, x, s->width, false, true);
        else if (s->tanh)
            ROW_EACH(s->width, geglu_lanes, y, x, s->width, true, false);
        else
            ROW_EACH(s->width, geglu_lanes, y, x, s->width, false, false);
    }
}

void ISA(cpu_geglu)(const struct call *call) {
    const struct tensor *x = &call->in[0], *y = &call->out[0];
    const struct gated s = {.bf16 = x->dtype == DTYPE_BF16,
                            .tanh = call->attribute[0].i != 0,
                            .width = y->dim[1],
                            .x = rows_of(x),
                            .y = rows_of(y)};
    run_split(call, x->dim[0], x->dim[0] * x->dim[1], geglu_rows, &s);
}

VEC_INLINE void geglu_dx_lanes(int64_t i, int count, void *dx, const void *x, const void *dy, int64_t width, bool tanh,
                               bool bf16) {
    row_ahead(x, i, bf16);
    row_ahead(x, i + width, bf16);
    row_ahead(dy, i, bf16);
    const vec_f32 gate = row_load(x, i, count, bf16), up = row_load(x, i + width, count, bf16);
    const vec_f32 d = row_load(dy, i, count, bf16);
    row_store(dx, i, count, d * up * gelu_derivative(gate, tanh), bf16);
    row_store(dx, i + width, count, d * gelu(gate, tanh), bf16);
}

static void geglu_dx_rows(const void *args, int64_t from, int64_t to) {
    const struct gated *s = args;
    for (int64_t r = from; r < to; r++) {
        void *dx = row_at(s->dx, r);
        const void *x = row_at(s->x, r), *dy = row_at(s->dy, r);
        if (s->bf16 && s->tanh)
            ROW_EACH(s->width, geglu_dx_lanes, dx, x, dy, s->width, true, true);
        else if (s->bf16)
            ROW_EACH(s->width, geglu_dx_lanes, dx, x, dy, s->width, false, true);
        else if (s->tanh)
            ROW_EACH(s->width, geglu_dx_lanes, dx, x, dy, s->width, true, false);
        else
            ROW_EACH(s->width, geglu_dx_lanes, dx, x, dy, s->width, false, false);
    }
}

void ISA(cpu_geglu_dx)(const struct call *call) {
    const struct tensor *x = &call->in[0], *dy = &call->in[1];
    const struct gated s = {.bf16 = x->dtype == DTYPE_BF16,
                            .tanh = call->attribute[0].i != 0,
                            .width = dy->dim[1],
                            .x = rows_of(x),
                            .dy = rows_of(dy),
                            .dx = rows_of(&call->out[0])};
    run_split(call, x->dim[0], x->dim[0] * x->dim[1], geglu_dx_rows, &s);
}
