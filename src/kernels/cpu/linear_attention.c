// Gated linear attention, forward and backward (ref/ref_linear_attention.c has the formulas).
//
// The state of a head is [rows, columns], and each token makes it
//
//   state[r,:] = keep state[r,:] + into[r] across[:],  and gives  out[:] = sum over r of through[r] state[r,:]
//
// where `keep` is the decay of the row or of the column. Forward is one such scan; backward is three: for dq one over
// the same states transposed, whose rows are values, and for dv and dk two from the last token to the first. No decay
// is divided by, so that nothing can overflow, and a document that begins has a keep of zero. Of a part of a sequence a
// scan begins with the state before it, or with the gradient of that behind it. A few tokens pass through a row of the
// state at once while it is in registers: three operations for each of its vectors and tokens.
//
// Sums of chunks as products of matrices (Yang et al., section 4.2) take two for the state, which all tokens of a chunk
// share, and some among the tokens: with chunks of 64, 2.8 in all for states of 64 x 128 and 2.4 for 128 x 256. A trial
// of that in f32, whose products were tiles of 4 x 16 and not packed, took 1.8 to 2.1 times as long forward
// (docs/kernels.md); in backward, where chunks would save a quarter to a third of the operations, it was not tried.
#include "kernels/cpu/pointwise.h"
#include "kernels/cpu/rows.h"

enum { TOKENS = 16, STRIP = 4, TOGETHER = 2 }; // of a block; that pass at once; vectors of columns at once

// What each token of one head has of an operand: `width` numbers. `data` NULL: of nothing.
struct series {
    char *data;
    int64_t step, width; // step in bytes
    bool bf16;
};

// A state of a head in a tensor, element strides; `data` NULL: one of zeros.
struct state {
    float *data;
    int64_t row, column;
};

struct scan {
    struct series into, across, through, out, decay;
    const int32_t *starts; // NULL: one document
    int64_t length, place; // of the first token in its sequence
    struct state before;   // what the first token that passes comes upon
    float into_scale, through_scale;
    bool by_row, reverse; // decays are those of rows; from the last token to the first
    bool silent;          // there is no `out`, only the state behind all tokens
    float *copy;          // [length, columns rounded up]: `out` once more, in f32; NULL: not wanted
};

// What a block's tokens have, each row padded with zeros.
struct block {
    float *into, *through, *across, *keep, *out;
    int64_t rows, columns; // rounded up to vectors
};

static int64_t padded(int64_t width) {
    return round_up(width, LANES);
}

static struct series series_of(const struct tensor *x, int64_t b, int64_t h) {
    const int64_t size = dtype_size(x->dtype);
    return (struct series){(char *)x->data + size * (b * x->stride[0] + h * x->stride[2]), size * x->stride[1],
                           x->dim[3], x->dtype == DTYPE_BF16};
}

// ---- a block of tokens

VEC_INLINE void series_lanes(int64_t i, int count, float *out, const void *x, float scale, bool bf16) {
    vec_store(out + i, row_load(x, i, count, bf16) * scale);
}

static void series_load(const struct series *s, int64_t t, float scale, float *out) {
    const void *x = s->data + t * s->step;
    if (s->bf16)
        ROW_EACH(s->width, series_lanes, out, x, scale, true);
    else
        ROW_EACH(s->width, series_lanes, out, x, scale, false);
}

VEC_INLINE void store_lanes(int64_t i, int count, void *y, const float *x, bool bf16) {
    row_store(y, i, count, vec_load(x + i), bf16);
}

static void series_store(const struct series *s, int64_t t, const float *x) {
    void *y = s->data + t * s->step;
    if (s->bf16)
        ROW_EACH(s->width, store_lanes, y, x, true);
    else
        ROW_EACH(s->width, store_lanes, y, x, false);
}

static struct state state_of(const struct tensor *x, int64_t b, int64_t h) {
    return (struct state){(float *)x->data + b * x->stride[0] + h * x->stride[1], x->stride[2], x->stride[3]};
}

static struct state state_transposed(struct state s) {
    return (struct state){s.data, s.column, s.row};
}

static bool begins_document(const struct scan *s, int64_t t) {
    return s->place + t == 0 || (s->starts && s->starts[t] == s->place + t);
}

VEC_INLINE void keep_lanes(int64_t i, int count, float *keep, const void *decay) {
    vec_store(keep + i, vec_exp(row_load(decay, i, count, false)));
}

// By what the state is multiplied before token t is added; backward that is the decay of the token after it, and
// nothing for the last one.
static void keep_load(const struct scan *s, int64_t t, float *keep) {
    const int64_t of = t + s->reverse;
    if (of == s->length)
        for (int64_t i = 0; i < padded(s->decay.width); i++)
            keep[i] = 1;
    else if (begins_document(s, of))
        memset(keep, 0, (size_t)padded(s->decay.width) * sizeof *keep);
    else
        ROW_EACH(s->decay.width, keep_lanes, keep, s->decay.data + of * s->decay.step);
}

// `tokens` tokens from the first of the block on pass through `vectors` vectors of columns from `column` on.
VEC_INLINE void strip(float *state, const struct block *b, int64_t rows, int first, int tokens, int64_t column,
                      int vectors, bool by_row, bool silent) {
    const int64_t keeps = by_row ? b->rows : b->columns;
    vec_f32 sum[STRIP][TOGETHER] = {{{0}}}, across[STRIP][TOGETHER], keep[STRIP][TOGETHER] = {{{0}}};
    for (int t = 0; t < tokens; t++)
        for (int v = 0; v < vectors; v++) {
            across[t][v] = vec_load(b->across + (first + t) * b->columns + column + v * LANES);
            if (!by_row)
                keep[t][v] = vec_load(b->keep + (first + t) * keeps + column + v * LANES);
        }
    for (int64_t r = 0; r < rows; r++) {
        float *at = state + r * b->columns + column;
        vec_f32 s[TOGETHER];
        for (int v = 0; v < vectors; v++)
            s[v] = vec_load(at + v * LANES);
        for (int t = 0; t < tokens; t++) {
            const float into = b->into[(first + t) * b->rows + r],
                        through = silent ? 0 : b->through[(first + t) * b->rows + r];
            const float kept = by_row ? b->keep[(first + t) * keeps + r] : 0;
            for (int v = 0; v < vectors; v++) {
                s[v] = s[v] * (by_row ? vec_splat(kept) : keep[t][v]) + across[t][v] * into;
                if (!silent)
                    sum[t][v] += s[v] * through;
            }
        }
        for (int v = 0; v < vectors; v++)
            vec_store(at + v * LANES, s[v]);
    }
    for (int t = 0; t < tokens && !silent; t++)
        for (int v = 0; v < vectors; v++)
            vec_store(b->out + (first + t) * b->columns + column + v * LANES, sum[t][v]);
}

VEC_INLINE void pass_columns(float *state, const struct block *b, int64_t rows, int tokens, int64_t column, int vectors,
                             bool by_row, bool silent) {
    int first = 0;
    for (; first + STRIP <= tokens; first += STRIP)
        strip(state, b, rows, first, STRIP, column, vectors, by_row, silent);
    for (; first < tokens; first++)
        strip(state, b, rows, first, 1, column, vectors, by_row, silent);
}

VEC_INLINE void pass(float *state, const struct block *b, int64_t rows, int tokens, bool by_row, bool silent) {
    int64_t column = 0;
    for (; column + TOGETHER * LANES <= b->columns; column += TOGETHER * LANES)
        pass_columns(state, b, rows, tokens, column, TOGETHER, by_row, silent);
    for (; column < b->columns; column += LANES)
        pass_columns(state, b, rows, tokens, column, 1, by_row, silent);
}

// ---- a head

// Floats for the state and the block of a scan; both ways, since the state may be transposed.
static int64_t scan_floats(int64_t rows, int64_t columns) {
    return padded(rows) * padded(columns) + 5 * TOKENS * MAX(padded(rows), padded(columns));
}

static void state_begin(const struct scan *s, int64_t rows, int64_t columns, float *state) {
    memset(state, 0, (size_t)(rows * columns) * sizeof *state);
    for (int64_t r = 0; s->before.data && r < s->into.width; r++)
        for (int64_t c = 0; c < s->across.width; c++)
            state[r * columns + c] = s->before.data[r * s->before.row + c * s->before.column];
}

// Leaves the state behind all tokens at the beginning of `space`, in rows of padded(across.width).
static void scan_run(const struct scan *s, float *space) {
    const int64_t rows = padded(s->into.width), columns = padded(s->across.width), each = TOKENS * MAX(rows, columns);
    float *state = space, *at = space + rows * columns;
    const struct block b = {at, at + each, at + 2 * each, at + 3 * each, at + 4 * each, rows, columns};
    state_begin(s, rows, columns, state);
    for (int64_t done = 0; done < s->length; done += TOKENS) {
        const int tokens = (int)MIN(TOKENS, s->length - done);
        for (int i = 0; i < tokens; i++) {
            const int64_t t = s->reverse ? s->length - 1 - done - i : done + i;
            series_load(&s->into, t, s->into_scale, b.into + i * rows);
            if (!s->silent)
                series_load(&s->through, t, s->through_scale, b.through + i * rows);
            series_load(&s->across, t, 1, b.across + i * columns);
            keep_load(s, t, b.keep + i * (s->by_row ? rows : columns));
        }
        if (s->silent)
            pass(state, &b, s->into.width, tokens, true, true);
        else if (s->by_row)
            pass(state, &b, s->into.width, tokens, true, false);
        else
            pass(state, &b, s->into.width, tokens, false, false);
        for (int i = 0; i < tokens && !s->silent; i++) {
            const int64_t t = s->reverse ? s->length - 1 - done - i : done + i;
            series_store(&s->out, t, b.out + i * columns);
            if (s->copy)
                memcpy(s->copy + t * columns, b.out + i * columns, (size_t)columns * sizeof *s->copy);
        }
    }
}

// q, k, v, decays and starts of head h of batch row b, for a scan over states [K, V].
static struct scan scan_of(const struct call *call, int64_t b, int64_t h) {
    const struct tensor *in = call->in;
    return (struct scan){.into = series_of(&in[1], b, h),
                         .across = series_of(&in[2], b, h),
                         .through = series_of(&in[0], b, h),
                         .decay = series_of(&in[3], b, h),
                         .starts = (const int32_t *)in[4].data + b * in[4].stride[0],
                         .length = in[0].dim[1],
                         .into_scale = 1,
                         .through_scale = (float)call->attribute[0].f,
                         .by_row = true};
}

trireme_status ISA(cpu_linear_attention_prepare)(const struct call *call, void **prepared, int64_t *workspace_bytes,
                                                 trireme_error *error) {
    (void)error;
    const struct tensor *q = &call->in[0], *v = &call->in[2];
    *prepared = NULL;
    *workspace_bytes = call->threads * scan_floats(q->dim[q->ndim - 1], v->dim[v->ndim - 1]) * (int64_t)sizeof(float);
    return TRIREME_OK;
}

void ISA(cpu_linear_attention)(const struct call *call) {
    const int64_t heads = call->in[0].dim[2], floats = scan_floats(call->in[0].dim[3], call->in[2].dim[3]);
#pragma omp parallel for num_threads(call->threads) schedule(dynamic)
    for (int64_t item = 0; item < call->in[0].dim[0] * heads; item++) {
        struct scan s = scan_of(call, item / heads, item % heads);
        s.out = series_of(&call->out[0], item / heads, item % heads);
        scan_run(&s, (float *)call->workspace + omp_get_thread_num() * floats);
    }
}

void ISA(cpu_linear_block)(const struct call *call) {
    const int64_t heads = call->in[0].dim[2], floats = scan_floats(call->in[0].dim[3], call->in[2].dim[3]);
#pragma omp parallel for num_threads(call->threads) schedule(dynamic)
    for (int64_t item = 0; item < call->in[0].dim[0] * heads; item++) {
        struct scan s = scan_of(call, item / heads, item % heads);
        s.place = *(const int32_t *)call->in[INPUT(LINEAR_BLOCK, first)].data;
        s.before = state_of(&call->in[INPUT(LINEAR_BLOCK, before)], item / heads, item % heads);
        s.out = series_of(&call->out[0], item / heads, item % heads);
        scan_run(&s, (float *)call->workspace + omp_get_thread_num() * floats);
    }
}

// ---- generation

// A sequence alone as one of several.
static struct tensor as_one_of_several(const struct tensor *x) {
    struct tensor several = {.data = x->data, .dtype = x->dtype, .ndim = x->ndim + 1, .dim = {1}};
    memcpy(several.dim + 1, x->dim, (size_t)x->ndim * sizeof *x->dim);
    memcpy(several.stride + 1, x->stride, (size_t)x->ndim * sizeof *x->stride);
    return several;
}

void ISA(cpu_linear_cached)(const struct call *call) {
    struct call several = *call;
    for (int i = 0; i < 4; i++)
        several.in[i] = as_one_of_several(&call->in[i]);
    const struct tensor o = as_one_of_several(&call->out[0]),
                        state = as_one_of_several(&call->in[INPUT(LINEAR_CACHED, state)]),
                        state1 = as_one_of_several(&call->out[OUTPUT(LINEAR_CACHED, state1)]);
    const int64_t rows = o.dim[1], heads = o.dim[2], keys = state.dim[2], values = state.dim[3],
                  given = *(const int32_t *)call->in[INPUT(LINEAR_CACHED, given)].data;
#pragma omp parallel for num_threads(call->threads) schedule(dynamic)
    for (int64_t h = 0; h < heads; h++) {
        float *space = (float *)call->workspace + omp_get_thread_num() * scan_floats(keys, values);
        struct scan s = scan_of(&several, 0, h);
        s.starts = NULL;
        s.place = *(const int32_t *)call->in[INPUT(LINEAR_CACHED, at)].data;
        s.length = given;
        s.before = state_of(&state, 0, h);
        s.out = series_of(&o, 0, h);
        scan_run(&s, space);
        const struct state to = state_of(&state1, 0, h);
        for (int64_t r = 0; r < keys; r++)
            for (int64_t c = 0; c < values; c++)
                to.data[r * to.row + c * to.column] = space[r * padded(values) + c];
        for (int64_t t = given; t < rows; t++)
            memset(s.out.data + t * s.out.step, 0, (size_t)(values * dtype_size(o.dtype)));
    }
}

// ---- what parts make alone

trireme_status ISA(cpu_linear_state_prepare)(const struct call *call, void **prepared, int64_t *workspace_bytes,
                                             trireme_error *error) {
    (void)error;
    *prepared = NULL;
    *workspace_bytes = call->threads * scan_floats(call->in[0].dim[3], call->in[1].dim[3]) * (int64_t)sizeof(float);
    return TRIREME_OK;
}

_Static_assert(INPUT(LINEAR_STATE, decay) == INPUT(LINEAR_STATE_BWD, decay) &&
                   INPUT(LINEAR_STATE, starts) == INPUT(LINEAR_STATE_BWD, starts) &&
                   INPUT(LINEAR_STATE, first) == INPUT(LINEAR_STATE_BWD, first),
               "in the same places");

// The scan without the tokens from which nothing reaches the state that leaves: those before the last document, or,
// from the last token to the first, those of all but the first one. Returns whether a document begins in the part.
static bool scan_shorten(struct scan *s) {
    int64_t begin = s->reverse ? 0 : s->length - 1;
    if (s->reverse)
        while (begin < s->length && !begins_document(s, begin))
            begin++;
    else
        while (begin >= 0 && !begins_document(s, begin))
            begin--;
    if (begin < 0 || begin == s->length)
        return false;
    if (s->reverse) {
        s->length = begin;
        return true;
    }
    for (struct series *each[] = {&s->into, &s->across, &s->decay}, **at = each; at < each + 3; at++)
        (*at)->data += begin * (*at)->step;
    s->starts += begin;
    s->place += begin;
    s->length -= begin;
    return true;
}

// What all tokens keep of the rows of a state before the first one.
static void kept_of_all(const struct scan *s, float *kept) {
    const int64_t width = s->decay.width;
    float *row = kept + padded(width);
    memset(kept, 0, (size_t)padded(width) * sizeof *kept);
    for (int64_t t = 0; t < s->length; t++) {
        series_load(&s->decay, t, 1, row);
        for (int64_t i = 0; i < padded(width); i += LANES)
            vec_store(kept + i, vec_load(kept + i) + vec_load(row + i));
    }
    for (int64_t i = 0; i < padded(width); i += LANES)
        vec_store(kept + i, vec_exp(vec_load(kept + i)));
}

// Of head h of batch row b: its own state, and what it keeps of that before.
static void own_state(const struct call *call, int64_t b, int64_t h, bool reverse, float scale, float *space) {
    const struct tensor *in = call->in, *starts = &in[INPUT(LINEAR_STATE, starts)];
    struct scan s = {.into = series_of(&in[0], b, h),
                     .across = series_of(&in[1], b, h),
                     .decay = series_of(&in[INPUT(LINEAR_STATE, decay)], b, h),
                     .starts = (const int32_t *)starts->data + b * starts->stride[0],
                     .length = in[0].dim[1],
                     .place = *(const int32_t *)in[INPUT(LINEAR_STATE, first)].data,
                     .into_scale = scale,
                     .by_row = true,
                     .reverse = reverse,
                     .silent = true};
    const struct state own = state_of(&call->out[0], b, h);
    const int64_t rows = s.into.width, columns = s.across.width;
    const bool begins = scan_shorten(&s);
    scan_run(&s, space);
    float *kept = space + padded(rows) * padded(columns), *first = kept + 2 * padded(rows);
    for (int64_t r = 0; r < rows; r++)
        first[r] = 1;
    if (reverse && s.length > 0) { // the state before the first token
        s.reverse = false;
        keep_load(&s, 0, first);
    }
    if (begins)
        memset(kept, 0, (size_t)rows * sizeof *kept);
    else
        kept_of_all(&s, kept);
    for (int64_t r = 0; r < rows; r++) {
        float *to = own.data + r * own.row;
        for (int64_t c = 0; c < columns; c++)
            to[c * own.column] = first[r] * space[r * padded(columns) + c];
        to[columns * own.column] = kept[r];
    }
}

static void own_states(const struct call *call, bool reverse, float scale) {
    const int64_t heads = call->in[0].dim[2], floats = scan_floats(call->in[0].dim[3], call->in[1].dim[3]);
#pragma omp parallel for num_threads(call->threads) schedule(dynamic)
    for (int64_t item = 0; item < call->in[0].dim[0] * heads; item++)
        own_state(call, item / heads, item % heads, reverse, scale,
                  (float *)call->workspace + omp_get_thread_num() * floats);
}

void ISA(cpu_linear_state)(const struct call *call) {
    own_states(call, false, 1);
}

void ISA(cpu_linear_state_bwd)(const struct call *call) {
    own_states(call, true, (float)call->attribute[ATTRIBUTE(LINEAR_STATE_BWD, scale)].f);
}

// Row by row, part after part, from the farthest on.
void ISA(cpu_linear_join)(const struct call *call) {
    const struct tensor *all = &call->in[INPUT(LINEAR_JOIN, all)], *before = &call->out[0];
    const bool later = call->attribute[ATTRIBUTE(LINEAR_JOIN, later)].i;
    const int64_t parts = call->attribute[ATTRIBUTE(LINEAR_JOIN, parts)].i, heads = before->dim[1],
                  rows = before->dim[2], columns = before->dim[3],
                  own = *(const int32_t *)call->in[INPUT(LINEAR_JOIN, first)].data /
                        call->in[INPUT(LINEAR_JOIN, starts)].dim[1];
#pragma omp parallel for num_threads(call->threads)
    for (int64_t item = 0; item < before->dim[0] * heads * rows; item++) {
        const int64_t b = item / rows / heads, h = item / rows % heads, r = item % rows;
        const struct state to = state_of(before, b, h);
        float *restrict sum = to.data + r * to.row;
        for (int64_t c = 0; c < columns; c++)
            sum[c * to.column] = 0;
        for (int64_t part = later ? parts - 1 : 0; part != own; part += later ? -1 : 1) {
            const struct state from = state_of(all, part * before->dim[0] + b, h);
            const float *x = from.data + r * from.row, kept = x[columns * from.column];
            for (int64_t c = 0; c < columns; c++) // what is not kept is gone, whatever it was
                sum[c * to.column] = (kept == 0 ? 0 : kept * sum[c * to.column]) + x[c * from.column];
        }
    }
}

// ---- backward

// The gradient of the sum of decays up to a token is q dq - k dk, and that of a decay the sum of these over the
// document from there on. `row` begins with that of the tokens behind the part.
static void decay_gradient(const struct scan *s, const struct series *q, const struct series *k, const float *dq,
                           const float *dk, const struct series *ddecay, float *row) {
    const int64_t width = q->width, keys = padded(width);
    float *sum = row, *q_row = row + keys, *k_row = row + 2 * keys;
    for (int64_t t = s->length - 1; t >= 0; t--) {
        if (t + 1 < s->length && begins_document(s, t + 1))
            memset(sum, 0, (size_t)keys * sizeof *sum);
        series_load(q, t, 1, q_row);
        series_load(k, t, 1, k_row);
        for (int64_t i = 0; i < keys; i += LANES)
            vec_store(sum + i, vec_load(sum + i) + (vec_load(q_row + i) * vec_load(dq + t * keys + i) -
                                                    vec_load(k_row + i) * vec_load(dk + t * keys + i)));
        if (begins_document(s, t))
            memset(ddecay->data + t * ddecay->step, 0, (size_t)width * sizeof(float));
        else
            series_store(ddecay, t, sum);
    }
}

// Beside a scan's: dq and dk of all tokens in f32, and three rows.
static int64_t backward_floats(const struct call *call) {
    const int64_t keys = call->in[0].dim[3], values = call->in[2].dim[3];
    return scan_floats(keys, values) + (2 * call->in[0].dim[1] + 3) * padded(keys);
}

trireme_status ISA(cpu_linear_attention_bwd_prepare)(const struct call *call, void **prepared, int64_t *workspace_bytes,
                                                     trireme_error *error) {
    (void)error;
    *prepared = NULL;
    *workspace_bytes = call->threads * backward_floats(call) * (int64_t)sizeof(float);
    return TRIREME_OK;
}

// The gradient of the sum of decays up to the end of a part: row by row, that of the state there times its gradient.
static void decay_gradient_behind(const float *state, int64_t rows, int64_t columns, struct state after, float *sum) {
    memset(sum, 0, (size_t)padded(columns) * sizeof *sum);
    for (int64_t r = 0; after.data && r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            sum[c] += state[r * padded(columns) + c] * after.data[r * after.row + c * after.column];
}

// `before`: the state before the tokens; `after`: the gradient of that behind them.
static void backward_head(const struct call *call, int64_t b, int64_t h, int64_t place, const struct tensor *of_o,
                          struct state before, struct state after, float *space) {
    struct scan forward = scan_of(call, b, h);
    forward.place = place;
    const struct series q = forward.through, k = forward.into, v = forward.across, d_o = series_of(of_o, b, h),
                        ddecay = series_of(&call->out[3], b, h);
    const float scale = forward.through_scale;
    float *dq = space + scan_floats(q.width, v.width), *dk = dq + forward.length * padded(q.width),
          *rows = dk + forward.length * padded(q.width);
    // dq: through the states, transposed.
    struct scan s = forward;
    s.by_row = false;
    s.into = v, s.across = k, s.through = d_o;
    s.out = series_of(&call->out[0], b, h);
    s.copy = dq;
    s.before = state_transposed(before);
    scan_run(&s, space);
    decay_gradient_behind(space, v.width, q.width, state_transposed(after), rows);
    // dk: through their gradients, transposed.
    s.reverse = true;
    s.into = d_o, s.across = q, s.through = v;
    s.into_scale = scale, s.through_scale = 1;
    s.out = series_of(&call->out[1], b, h);
    s.copy = dk;
    s.before = state_transposed(after);
    scan_run(&s, space);
    // dv: through their gradients.
    s.by_row = true;
    s.into = q, s.across = d_o, s.through = k;
    s.out = series_of(&call->out[2], b, h);
    s.copy = NULL;
    s.before = after;
    scan_run(&s, space);
    decay_gradient(&forward, &q, &k, dq, dk, &ddecay, rows);
}

void ISA(cpu_linear_attention_bwd)(const struct call *call) {
    const int64_t heads = call->in[0].dim[2], floats = backward_floats(call);
#pragma omp parallel for num_threads(call->threads) schedule(dynamic)
    for (int64_t item = 0; item < call->in[0].dim[0] * heads; item++)
        backward_head(call, item / heads, item % heads, 0, &call->in[INPUT(LINEAR_ATTENTION_BWD, do)],
                      (struct state){0}, (struct state){0}, (float *)call->workspace + omp_get_thread_num() * floats);
}

void ISA(cpu_linear_block_bwd)(const struct call *call) {
    const int64_t heads = call->in[0].dim[2], floats = backward_floats(call);
#pragma omp parallel for num_threads(call->threads) schedule(dynamic)
    for (int64_t item = 0; item < call->in[0].dim[0] * heads; item++)
        backward_head(call, item / heads, item % heads, *(const int32_t *)call->in[INPUT(LINEAR_BLOCK_BWD, first)].data,
                      &call->in[INPUT(LINEAR_BLOCK_BWD, do)],
                      state_of(&call->in[INPUT(LINEAR_BLOCK_BWD, before)], item / heads, item % heads),
                      state_of(&call->in[INPUT(LINEAR_BLOCK_BWD, after)], item / heads, item % heads),
                      (float *)call->workspace + omp_get_thread_num() * floats);
}
