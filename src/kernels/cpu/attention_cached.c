// Generation: new keys and values join the cache, new queries attend to it.
#include "kernels/cpu/attention.h"

#include <math.h>
#include <omp.h>

// From this many queries on, packing keys for the tile pays; fewer read the cache where it lies.
enum { MANY_QUERIES = 16 };

// Copies rows of [rows, heads, width] to the rows from `first` on.
static void cached_copy_rows(const struct tensor *from, const struct tensor *to, int64_t first) {
    const int64_t size = dtype_size(from->dtype);
    for (int64_t i = 0; i < from->dim[0]; i++)
        for (int64_t g = 0; g < from->dim[1]; g++)
            memcpy((char *)to->data + size * ((first + i) * to->stride[0] + g * to->stride[1]),
                   (const char *)from->data + size * (i * from->stride[0] + g * from->stride[1]),
                   (size_t)(size * from->dim[2]));
}

void ISA(cpu_cache_append)(const struct call *call) {
    const int64_t at = *(const int32_t *)call->in[2].data;
    for (int i = 0; i < 2; i++) {
        if (call->in[3 + i].data != call->out[i].data)
            cached_copy_rows(&call->in[3 + i], &call->out[i], 0);
        cached_copy_rows(&call->in[i], &call->out[i], at);
    }
}

// [rows, heads, width] as one batch of [batch, rows, heads, width].
static struct tensor batch_of_one(const struct tensor *x) {
    struct tensor t = {.data = x->data, .dtype = x->dtype, .ndim = 4};
    t.dim[0] = 1;
    for (int i = 0; i < 3; i++) {
        t.dim[i + 1] = x->dim[i];
        t.stride[i + 1] = x->stride[i];
    }
    return t;
}

struct cached {
    struct attention s;
    struct tensor q, k, v, o;
};

static void cached_of(const struct call *call, struct cached *c) {
    c->q = batch_of_one(&call->in[0]);
    c->k = batch_of_one(&call->in[1]);
    c->v = batch_of_one(&call->in[2]);
    c->o = batch_of_one(&call->out[0]);
    bool bf16 = c->q.dtype == DTYPE_BF16;
    c->s = (struct attention){
        .batch = 1,
        .length = c->q.dim[1],
        .heads = c->q.dim[2],
        .groups = c->k.dim[2],
        .width = c->q.dim[3],
        .keys = c->k.dim[1],
        .places.parts = 1,
        .q = &c->q,
        .k = &c->k,
        .v = &c->v,
        .o = &c->o,
        .sinks = call->in[4].data,
        .scale = (float)call->attribute[0].f,
        .window = call->attribute[1].i,
        .cap = (float)call->attribute[2].f,
        .bf16 = bf16,
        .units = pack_units(bf16, c->q.dim[3]),
        .columns = round_up(c->q.dim[3], LANES),
    };
}

static const void *cached_row_of(bool bf16, const struct matrix *m, int64_t i) {
    return (const char *)m->data + (bf16 ? 2 : 4) * i * m->row;
}

// Computes score[j - low] for the keys j in [low, high) and returns the greatest.
VEC_INLINE float scores(const struct attention *s, bool bf16, const void *q, const struct matrix *k, int64_t low,
                        int64_t high, float *score) {
    const int64_t whole = s->width / LANES * LANES;
    float greatest = -INFINITY;
    for (int64_t j = low; j < high; j++) {
        const void *row = cached_row_of(bf16, k, j);
        vec_f32 sum = {0};
        for (int64_t c = 0; c < whole; c += LANES)
            sum += vec_at(bf16, q, c) * vec_at(bf16, row, c);
        float x = vec_sum(sum);
        for (int64_t c = whole; c < s->width; c++)
            x += float_at(bf16, q, c) * float_at(bf16, row, c);
        score[j - low] = x * s->scale;
        greatest = score[j - low] > greatest ? score[j - low] : greatest;
    }
    return greatest;
}

// out[c] = sum over keys of score times value: in vectors of columns, then the columns left over.
VEC_INLINE void values(const struct attention *s, bool bf16, const float *score, const struct matrix *v, int64_t low,
                       int64_t high, float *out) {
    enum { TOGETHER = 8 };
    int64_t c = 0;
    for (; c + LANES <= s->width; c += TOGETHER * LANES) {
        vec_f32 sum[TOGETHER] = {{0}};
        int n = (int)MIN((s->width - c) / LANES, TOGETHER);
        for (int64_t j = low; j < high; j++) {
            const void *row = cached_row_of(bf16, v, j);
            for (int i = 0; i < n; i++)
                sum[i] += score[j - low] * vec_at(bf16, row, c + i * LANES);
        }
        for (int i = 0; i < n; i++)
            vec_store(out + c + i * LANES, sum[i]);
    }
    for (c = s->width / LANES * LANES; c < s->width; c++) {
        out[c] = 0;
        for (int64_t j = low; j < high; j++)
            out[c] += score[j - low] * float_at(bf16, cached_row_of(bf16, v, j), c);
    }
}

// Query i of one head. `score`: room for the cache's rows and LANES more, then for a row of the output.
static void cached_single(const struct attention *s, int64_t i, int64_t head, float *score, float *out) {
    const int64_t group = head / (s->heads / s->groups), high = s->first + i + 1;
    const int64_t low = s->window > 0 ? MAX(high - s->window, 0) : 0, count = high - low;
    const struct matrix q = attention_rows(s->q, 0, head), k = attention_rows(s->k, 0, group);
    const struct matrix v = attention_rows(s->v, 0, group), o = attention_rows(s->o, 0, head);
    const void *row = cached_row_of(s->bf16, &q, i);
    float greatest = s->bf16 ? scores(s, true, row, &k, low, high, score) : scores(s, false, row, &k, low, high, score);
    if (s->cap > 0) { // these are scaled already
        const vec_f32 cap = vec_splat(s->cap);
        greatest = (vec_tanh(vec_splat(greatest) / cap) * cap)[0];
        for (int64_t j = 0; j < count; j += LANES)
            vec_store(score + j, vec_tanh(vec_load(score + j) / cap) * cap);
    }
    const float sink = attention_sink(s, head);
    greatest = fmaxf(greatest, sink);
    for (int64_t j = 0; j < LANES; j++)
        score[count + j] = -INFINITY;
    vec_f32 sum = {0};
    for (int64_t j = 0; j < count; j += LANES) {
        vec_f32 p = vec_exp(vec_load(score + j) - greatest);
        sum += p;
        vec_store(score + j, p);
    }
    float part = 1 / (vec_sum(sum) + expf(sink - greatest));
    for (int64_t j = 0; j < count; j += LANES)
        vec_store(score + j, vec_load(score + j) * part);
    if (s->bf16)
        values(s, true, score, &v, low, high, out);
    else
        values(s, false, score, &v, low, high, out);
    attention_store((char *)o.data + dtype_size(s->o->dtype) * i * o.row, s->o->dtype, out, s->width);
}

// The floats that one thread needs for a cache of `rows` rows.
static int64_t single_floats(const struct attention *s, int64_t rows) {
    return round_up(rows + LANES, LANES) + round_up(s->width, LANES);
}

void ISA(cpu_attention_cached)(const struct call *call) {
    struct cached c;
    cached_of(call, &c);
    struct attention *s = &c.s;
    s->first = *(const int32_t *)call->in[3].data;
    if (s->length >= MANY_QUERIES) {
        ISA(attention_forward)(s, call->threads, call->workspace);
        return;
    }
    const int64_t floats = single_floats(s, c.k.dim[1]);
#pragma omp parallel for num_threads(call->threads) schedule(dynamic)
    for (int64_t item = 0; item < s->length * s->heads; item++) {
        float *score = (float *)call->workspace + omp_get_thread_num() * floats;
        cached_single(s, item / s->heads, item % s->heads, score, score + floats - s->columns);
    }
}

trireme_status ISA(cpu_attention_cached_prepare)(const struct call *call, void **prepared, int64_t *workspace_bytes,
                                                 trireme_error *error) {
    (void)error;
    struct cached c;
    cached_of(call, &c);
    *prepared = NULL;
    *workspace_bytes = c.s.length >= MANY_QUERIES
                           ? ISA(attention_forward_workspace)(&c.s, call->threads)
                           : call->threads * single_floats(&c.s, c.k.dim[1]) * (int64_t)sizeof(float);
    return TRIREME_OK;
}
