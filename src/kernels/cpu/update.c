// Optimizers, each in one pass over memory: clip, moments, update and, for bf16 parameters, the f32 master weight,
// joined from parameter and remainder and split again (bf16.h). Muon's take two, with newton_schulz.c in between. Also
// the sum of squares that the factor of clipping comes from.
#include <math.h>

#include "kernels/cpu/pointwise.h"
#include "kernels/cpu/rows.h"

typedef int16_t vec_i16 __attribute__((vector_size(2 * LANES)));

enum { GROUP_ELEMENTS = 4096 }; // what threads split the vectors into

// ---- update

enum rule { ADAMW, LION, SGD, SCALED, MUON };

// Constants of a step. `decay` is lr * weight_decay (sgd: weight_decay).
struct update {
    enum rule rule;
    int64_t count, decayed; // weight decay holds for elements below `decayed`
    bool bf16;
    float factor, lr, decay, beta1, beta2, rest1, rest2, eps; // rest: 1 - beta
    float step, root;                                         // adamw: lr / (1 - beta1^t), 1 / sqrt(1 - beta2^t)
    const void *p;
    const uint16_t *rem;
    const float *g, *m, *v;
    void *p1;
    uint16_t *rem1;
    float *m1, *v1;
};

VEC_INLINE vec_f32 vec_sqrt(vec_f32 x) {
#if defined(__AVX512F__)
    return (vec_f32)_mm512_sqrt_ps((__m512)x);
#elif defined(__AVX2__)
    return (vec_f32)_mm256_sqrt_ps((__m256)x);
#elif defined(__SSE2__)
    return (vec_f32)_mm_sqrt_ps((__m128)x);
#else
    for (int i = 0; i < LANES; i++)
        x[i] = sqrtf(x[i]);
    return x;
#endif
}

VEC_INLINE void store_u16(uint16_t *p, int count, vec_u32 v) {
    vec_u16 narrow = vec_narrow(v);
    if (count == LANES)
        memcpy(p, &narrow, sizeof narrow);
    else
        memcpy(p, &narrow, (size_t)count * sizeof *p);
}

// The f32 that is updated: the master weight of a bf16 parameter, the parameter itself of an f32 one.
VEC_INLINE vec_f32 load_master(const struct update *u, int64_t i, int count, bool bf16) {
    vec_f32 p = row_load(u->p, i, count, bf16);
    if (!bf16)
        return p;
    vec_i16 rem = {0};
    if (count == LANES)
        memcpy(&rem, u->rem + i, sizeof rem);
    else
        memcpy(&rem, u->rem + i, (size_t)count * sizeof *u->rem);
    vec_i32 difference = __builtin_convertvector(rem, vec_i32);
    return (vec_f32)((vec_u32)p + (vec_u32)difference);
}

VEC_INLINE void store_master(const struct update *u, int64_t i, int count, vec_f32 master, bool bf16) {
    if (!bf16) {
        row_store(u->p1, i, count, master, false);
        return;
    }
    vec_u32 bits = (vec_u32)master, nan = (vec_u32)(master != master);
    vec_u32 p = ((bits + 0x8000u) >> 16 & ~nan) | ((bits >> 16 | 0x40u) & nan);
    store_u16((uint16_t *)u->p1 + i, count, p);
    store_u16(u->rem1 + i, count, bits & ~nan);
}

VEC_INLINE void update_lanes(int64_t i, int count, const struct update *u, enum rule rule, float decay, bool bf16) {
    vec_f32 p = load_master(u, i, count, bf16);
    if (rule == MUON) {
        store_master(u, i, count, p - (p * decay + row_load(u->g, i, count, false) * u->lr), bf16);
        return;
    }
    vec_f32 g = row_load(u->g, i, count, false) * u->factor;
    vec_f32 m = row_load(u->m, i, count, false);
    if (rule == ADAMW) {
        vec_f32 v = row_load(u->v, i, count, false);
        m = m * u->beta1 + g * u->rest1;
        v = v * u->beta2 + g * g * u->rest2;
        row_store(u->v1, i, count, v, false);
        p -= p * decay + m * u->step / (vec_sqrt(v) * u->root + u->eps);
    } else if (rule == LION) {
        vec_f32 direction = m * u->beta1 + g * u->rest1;
        vec_f32 zero = {0};
        vec_f32 sign = vec_select_less(direction, zero, zero - 1.0f, zero);
        sign = vec_select_less(zero, direction, zero + 1.0f, sign);
        m = m * u->beta2 + g * u->rest2;
        p -= p * decay + sign * u->lr;
    } else if (rule == SCALED) {
        vec_f32 v = row_load(u->v, i, count, false), least = (vec_f32){0} + u->eps;
        m += g * g;
        p -= p * decay + g * u->lr / vec_select_less(least, v, v, least);
    } else {
        m = m * u->beta1 + (g + p * decay);
        p -= m * u->lr;
    }
    row_store(u->m1, i, count, m, false);
    store_master(u, i, count, p, bf16);
}

// Elements from .. to-1, all of them with the same decay.
VEC_INLINE void update_range(const struct update *u, enum rule rule, int64_t from, int64_t to, float decay, bool bf16) {
    const struct update c = *u; // a copy that no store can change
    int64_t i = from;
    for (; i + LANES <= to; i += LANES)
        update_lanes(i, LANES, &c, rule, decay, bf16);
    if (i < to)
        update_lanes(i, (int)(to - i), &c, rule, decay, bf16);
}

static void update_part(const struct update *u, int64_t from, int64_t to, float decay) {
    switch (u->rule) {
    case ADAMW:
        u->bf16 ? update_range(u, ADAMW, from, to, decay, true) : update_range(u, ADAMW, from, to, decay, false);
        break;
    case LION:
        u->bf16 ? update_range(u, LION, from, to, decay, true) : update_range(u, LION, from, to, decay, false);
        break;
    case SGD:
        u->bf16 ? update_range(u, SGD, from, to, decay, true) : update_range(u, SGD, from, to, decay, false);
        break;
    case SCALED:
        u->bf16 ? update_range(u, SCALED, from, to, decay, true) : update_range(u, SCALED, from, to, decay, false);
        break;
    case MUON:
        u->bf16 ? update_range(u, MUON, from, to, decay, true) : update_range(u, MUON, from, to, decay, false);
        break;
    }
}

static void update_groups(const void *args, int64_t from, int64_t to) {
    const struct update *u = args;
    from *= GROUP_ELEMENTS;
    to = MIN(to * GROUP_ELEMENTS, u->count);
    int64_t middle = MAX(from, MIN(to, u->decayed));
    update_part(u, from, middle, u->decay);
    update_part(u, middle, to, 0);
}

static double update_scalar(const struct tensor *t) {
    return *(const double *)t->data;
}

static struct update update_of(const struct call *call, enum rule rule) {
    const struct tensor *p = &call->in[0];
    return (struct update){
        .rule = rule,
        .count = p->dim[0],
        .bf16 = p->dtype == DTYPE_BF16,
        .p = p->data,
        .rem = call->in[1].data,
        .g = call->in[2].data,
        .p1 = call->out[0].data,
        .rem1 = call->out[1].data,
    };
}

// Of one that has momentum.
static struct update moved_update_of(const struct call *call, enum rule rule) {
    struct update u = update_of(call, rule);
    u.m = call->in[3].data;
    u.m1 = call->out[2].data;
    return u;
}

static void update_run(const struct call *call, const struct update *u) {
    run_split(call, divide_up(u->count, GROUP_ELEMENTS), u->count, update_groups, u);
}

// in: p rem g m v lr factor t decayed
void ISA(cpu_adamw)(const struct call *call) {
    struct update u = moved_update_of(call, ADAMW);
    double beta1 = call->attribute[0].f, beta2 = call->attribute[1].f, lr = update_scalar(&call->in[5]);
    double t = update_scalar(&call->in[7]);
    u.v = call->in[4].data;
    u.v1 = call->out[3].data;
    u.factor = (float)update_scalar(&call->in[6]);
    u.decayed = (int64_t)update_scalar(&call->in[8]);
    u.decay = (float)(lr * call->attribute[3].f);
    u.beta1 = (float)beta1;
    u.beta2 = (float)beta2;
    u.rest1 = (float)(1 - beta1);
    u.rest2 = (float)(1 - beta2);
    u.eps = (float)call->attribute[2].f;
    u.step = (float)(lr / (1 - pow(beta1, t)));
    u.root = (float)(1 / sqrt(1 - pow(beta2, t)));
    update_run(call, &u);
}

// in: p rem g m lr factor decayed
void ISA(cpu_lion)(const struct call *call) {
    struct update u = moved_update_of(call, LION);
    double beta1 = call->attribute[0].f, beta2 = call->attribute[1].f, lr = update_scalar(&call->in[4]);
    u.factor = (float)update_scalar(&call->in[5]);
    u.decayed = (int64_t)update_scalar(&call->in[6]);
    u.lr = (float)lr;
    u.decay = (float)(lr * call->attribute[2].f);
    u.beta1 = (float)beta1;
    u.beta2 = (float)beta2;
    u.rest1 = (float)(1 - beta1);
    u.rest2 = (float)(1 - beta2);
    update_run(call, &u);
}

// in: p rem g m lr factor decayed
void ISA(cpu_sgd)(const struct call *call) {
    struct update u = moved_update_of(call, SGD);
    u.factor = (float)update_scalar(&call->in[5]);
    u.decayed = (int64_t)update_scalar(&call->in[6]);
    u.lr = (float)update_scalar(&call->in[4]);
    u.decay = (float)call->attribute[1].f;
    u.beta1 = (float)call->attribute[0].f;
    update_run(call, &u);
}

// in: p rem g squares divisor lr factor decayed
void ISA(cpu_scaled)(const struct call *call) {
    struct update u = moved_update_of(call, SCALED);
    const double lr = update_scalar(&call->in[5]);
    u.v = call->in[4].data;
    u.factor = (float)update_scalar(&call->in[6]);
    u.decayed = (int64_t)update_scalar(&call->in[7]);
    u.lr = (float)lr;
    u.decay = (float)(lr * call->attribute[1].f);
    u.eps = (float)call->attribute[0].f;
    update_run(call, &u);
}

// in: p rem o lr decayed
void ISA(cpu_muon)(const struct call *call) {
    struct update u = update_of(call, MUON);
    double lr = update_scalar(&call->in[3]);
    u.decayed = (int64_t)update_scalar(&call->in[4]);
    u.lr = (float)lr;
    u.decay = (float)(lr * call->attribute[0].f);
    update_run(call, &u);
}

// ---- Nesterov's momentum

struct momentum {
    int64_t count;
    float factor, momentum;
    const float *g, *m;
    float *u, *m1;
};

VEC_INLINE void momentum_lanes(int64_t i, int count, const struct momentum *n) {
    vec_f32 g = row_load(n->g, i, count, false) * n->factor;
    vec_f32 m = row_load(n->m, i, count, false) * n->momentum + g;
    row_store(n->u, i, count, m * n->momentum + g, false);
    row_store(n->m1, i, count, m, false);
}

static void momentum_groups(const void *args, int64_t from, int64_t to) {
    struct momentum n = *(const struct momentum *)args;
    const int64_t first = from * GROUP_ELEMENTS, count = MIN(to * GROUP_ELEMENTS, n.count) - first;
    n.g += first, n.m += first, n.u += first, n.m1 += first;
    ROW_EACH(count, momentum_lanes, &n);
}

void ISA(cpu_muon_momentum)(const struct call *call) {
    const struct momentum n = {.count = call->in[0].dim[0],
                               .factor = (float)update_scalar(&call->in[2]),
                               .momentum = (float)call->attribute[0].f,
                               .g = call->in[0].data,
                               .m = call->in[1].data,
                               .u = call->out[0].data,
                               .m1 = call->out[1].data};
    run_split(call, divide_up(n.count, GROUP_ELEMENTS), n.count, momentum_groups, &n);
}

// ---- sum of squares, in double

enum { BLOCK_ELEMENTS = 16384, MAX_BLOCKS = 4096, HALF = LANES / 2, CHAINS = 8 };

typedef float vec_half __attribute__((vector_size(4 * HALF)));
typedef double vec_f64 __attribute__((vector_size(8 * HALF)));

struct squares {
    const float *g;
    int64_t count, block_elements;
    double *partial;
};

static double square_block(const float *g, int64_t n) {
    vec_f64 chain[CHAINS] = {0};
    int64_t i = 0;
    for (; i + CHAINS * HALF <= n; i += CHAINS * HALF)
        for (int k = 0; k < CHAINS; k++) {
            vec_half part;
            memcpy(&part, g + i + k * HALF, sizeof part);
            vec_f64 x = __builtin_convertvector(part, vec_f64);
            chain[k] += x * x;
        }
    for (int half = CHAINS / 2; half; half /= 2)
        for (int k = 0; k < half; k++)
            chain[k] += chain[k + half];
    double sum = 0;
    for (int k = 0; k < HALF; k++)
        sum += chain[0][k];
    for (; i < n; i++)
        sum += (double)g[i] * g[i];
    return sum;
}

static void square_blocks(const void *args, int64_t from, int64_t to) {
    const struct squares *s = args;
    for (int64_t block = from; block < to; block++) {
        int64_t start = block * s->block_elements;
        s->partial[block] = square_block(s->g + start, MIN(s->block_elements, s->count - start));
    }
}

void ISA(cpu_square_sum)(const struct call *call) {
    struct squares s = {.g = call->in[0].data, .count = call->in[0].dim[0], .partial = call->workspace};
    int64_t blocks = blocks_of(s.count, BLOCK_ELEMENTS, MAX_BLOCKS, &s.block_elements);
    run_split(call, blocks, s.count, square_blocks, &s);
    double *out = call->out[0].data, sum = call->accumulate ? *out : 0;
    for (int64_t block = 0; block < blocks; block++)
        sum += s.partial[block];
    *out = sum;
}

trireme_status ISA(cpu_square_sum_prepare)(const struct call *call, void **prepared, int64_t *workspace_bytes,
                                           trireme_error *error) {
    (void)error;
    int64_t block_elements;
    *prepared = NULL;
    *workspace_bytes = blocks_of(call->in[0].dim[0], BLOCK_ELEMENTS, MAX_BLOCKS, &block_elements) * 8;
    return TRIREME_OK;
}
