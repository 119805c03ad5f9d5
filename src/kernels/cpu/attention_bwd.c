// Backward: with p = exp(scale q k' - lse), recomputed, and dp = do v', ds = scale p (dp - sum(do o)),
//     dv = p' do    dk = ds' q    dq = ds k
// With a cap c the score is c u, u = tanh(scale q k' / c), and ds has the factor 1 - u u.
// (attention.h has the source). The outer loop is over blocks of keys: dk and dv are summed in place and written once.
// dq is summed in the workspace, over the blocks of a part, then over the parts in order; the length alone says what
// the parts are. A thread takes a head of keys, part after part; of heads left over when all threads have had equally
// many, the parts are dealt out, and each waits until the one before has been added. The bits are the same.
#include "kernels/cpu/attention_matrix.h"

#include <omp.h>
#include <sched.h>

enum { QUERIES = 64, PART_BLOCKS = 2, PARTS_MAX = 16 }; // queries per block; blocks of keys per part
enum { LOOKS = 1000 }; // how often a thread looks whether its part's turn has come before it yields the core

// One thread's workspace.
struct backward_space {
    float *q, *d_o;              // a block of queries and of output gradients, packed as a
    float *q_across, *do_across; // as floats, in the same memory where bf16 does not go in pairs; on matrix units
                                 // transposed, in pairs of queries
    int64_t across_row;          // floats between their rows
    float *k, *v;                // a block of keys and of values, transposed, packed as b
    float *k_across;             // keys as they are, as floats; on matrix units in pairs
    float *dk, *dv;              // [ATTENTION_KEYS, columns]; on matrix units transposed
    float *p, *ds;               // [QUERIES, SCORE_ROW]
    float *split;                // on matrix units: p and ds in two parts, in pairs of queries; ds of a tile likewise
    int64_t bytes;
};

struct backward {
    struct attention s;
    const struct tensor *d_o, *dq, *dk, *dv;
    const float *delta;          // [batch, heads, length]: sum(do o)
    const struct tensor *before; // what dq begins with, or NULL
    int64_t shared;              // heads of queries that share one of keys
    int64_t parts;
    int64_t whole, dealt; // items (heads of keys) that threads take whole, and those whose parts are dealt out
    int64_t units;        // the whole items and the parts
    int threads;
    char *workspace;
    int64_t thread_bytes;
    int64_t rows;      // length rounded up to tiles
    int64_t dq_floats; // of one item: [shared, rows, columns]
};

static bool in_pairs(const struct attention *s) {
    return s->bf16 && TILE_PAIRS;
}

static struct backward_space backward_space(const struct attention *s, char *base) {
    struct backward_space w = {0};
    const int64_t rows = QUERIES * (s->units + LANES);
    w.q = attention_take(base, &w.bytes, rows);
    w.d_o = attention_take(base, &w.bytes, rows);
    w.q_across = w.q;
    w.do_across = w.d_o;
    w.across_row = s->units + LANES;
    if (in_pairs(s)) {
        w.q_across = attention_take(base, &w.bytes, QUERIES * s->columns);
        w.do_across = attention_take(base, &w.bytes, QUERIES * s->columns);
        w.across_row = s->columns;
    }
    if (attention_matrix(s))
        w.split = attention_take(base, &w.bytes, 2 * (QUERIES + LANES) * ATTENTION_KEYS);
    w.k = attention_take(base, &w.bytes, s->units * ATTENTION_KEYS);
    w.v = attention_take(base, &w.bytes, s->units * ATTENTION_KEYS);
    w.k_across = attention_take(base, &w.bytes, ATTENTION_KEYS * s->columns);
    w.dk = attention_take(base, &w.bytes, ATTENTION_KEYS * s->columns);
    w.dv = attention_take(base, &w.bytes, ATTENTION_KEYS * s->columns);
    w.p = attention_take(base, &w.bytes, QUERIES * SCORE_ROW);
    w.ds = attention_take(base, &w.bytes, QUERIES * SCORE_ROW);
    return w;
}

static struct backward backward_of(const struct call *call) {
    const bool block = attention_is_block(call);
    _Static_assert((int)INPUT(ATTENTION_BWD, do) == (int)INPUT(ATTENTION_BLOCK_BWD, do), "alike");
    struct backward r = {
        .s = attention_of(call, block ? NULL : &call->in[INPUT(ATTENTION_BWD, o)],
                          call->in[block ? INPUT(ATTENTION_BLOCK_BWD, lse) : INPUT(ATTENTION_BWD, lse)].data),
        .d_o = &call->in[INPUT(ATTENTION_BWD, do)],
        .dq = &call->out[0],
        .dk = &call->out[1],
        .dv = &call->out[2],
        .delta = block ? call->in[INPUT(ATTENTION_BLOCK_BWD, delta)].data : NULL,
        .threads = call->threads,
        .workspace = call->workspace,
    };
    if (block && call->in[INPUT(ATTENTION_BLOCK_BWD, before)].data)
        r.before = &call->in[INPUT(ATTENTION_BLOCK_BWD, before)];
    const struct attention *s = &r.s;
    const int64_t items = s->batch * s->groups, blocks = divide_up(s->keys, ATTENTION_KEYS);
    r.shared = s->heads / s->groups;
    r.parts = MIN(MAX((blocks + PART_BLOCKS - 1) / PART_BLOCKS, 1), PARTS_MAX);
    r.dealt = r.parts > 1 ? items % r.threads : 0;
    r.whole = items - r.dealt;
    r.units = r.whole + r.dealt * r.parts;
    r.thread_bytes = backward_space(s, NULL).bytes;
    r.rows = round_up(s->length, attention_height(s));
    r.dq_floats = r.shared * r.rows * s->columns;
    return r;
}

// What lies in the workspace after the threads' own: dq of the part (if there are several) and of the item at hand, for
// each thread or, if fewer, unit; for each item that is dealt out, its dq and how many of its parts have been added;
// what queries see; delta, unless it is given.
struct backward_sums {
    float *part, *item, *dealt;
    int64_t *added; // [dealt]
    struct range *range;
    float *delta;
    int64_t bytes;
};

static struct backward_sums backward_sums(const struct backward *r) {
    struct backward_sums sums = {.bytes = r->threads * r->thread_bytes};
    const int64_t floats = MIN(r->threads, r->units) * r->dq_floats;
    sums.part = attention_take(r->workspace, &sums.bytes, r->parts > 1 ? floats : 0);
    sums.item = attention_take(r->workspace, &sums.bytes, r->whole > 0 ? floats : 0);
    sums.dealt = attention_take(r->workspace, &sums.bytes, r->dealt * r->dq_floats);
    sums.added = (int64_t *)attention_take(r->workspace, &sums.bytes, r->dealt * 2);
    sums.range = (struct range *)attention_take(r->workspace, &sums.bytes, attention_range_floats(&r->s));
    sums.delta = attention_take(r->workspace, &sums.bytes, r->delta ? 0 : r->s.batch * r->s.heads * r->s.length);
    return sums;
}

// Caps a row of scores, and brings the factor that ds has then into dp: ds is made of dp - delta.
static void cap_gradient_row(const struct attention *s, struct visible span, float delta, float *score, float *dp) {
    for (int64_t c = span.c0; c < span.c1; c += LANES) {
        const vec_f32 u = vec_tanh(vec_load(score + c) * (s->scale / s->cap));
        vec_store(score + c, u * (s->cap / s->scale));
        vec_store(dp + c, (vec_load(dp + c) - delta) * (1.0f - u * u) + delta);
    }
}

// Turns a row of scores and of dp into one of p and ds.
VEC_INLINE void gradient_row(bool masked, struct visible span, int64_t low, int64_t high, float scale, float lse,
                             float delta, float *score, float *dp) {
    for (int64_t c = span.c0; c < span.c1; c += LANES) {
        const vec_f32 p = attention_probability(masked, score, c, low, high, scale, lse);
        vec_store(score + c, p);
        vec_store(dp + c, p * (vec_load(dp + c) - delta) * scale);
    }
}

// A block of queries against a block of keys.
struct blocks {
    int64_t b, head;
    int64_t t0, queries; // the first's row, and how many
    int64_t j0, keys;
    bool careful; // row by row (attention.h)
    struct visible span[QUERIES / TILE_ROWS];
};

// Turns scores and dp of a tile of `rows` queries from i0 on into p and ds.
VEC_INLINE void gradient_rows(const struct backward *r, const struct blocks *m, struct visible span, int64_t i0,
                              int64_t rows, const float *delta, float *p, float *ds) {
    const struct attention *s = &r->s;
    const float *lse = s->lse + (m->b * s->heads + m->head) * s->length;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t t = m->t0 + i0 + i;
        const bool present = i0 + i < m->queries;
        const struct range range = present ? attention_range(s, m->b, t) : (struct range){0, 0};
        const int64_t low = range.low - m->j0, high = range.high - m->j0;
        float *pi = p + i * SCORE_ROW, *dsi = ds + i * SCORE_ROW;
        if (s->cap > 0 && present)
            cap_gradient_row(s, span, delta[t], pi, dsi);
        if (low <= span.c0 && high >= span.c1)
            gradient_row(false, span, low, high, s->scale, lse[t], delta[t], pi, dsi);
        else
            gradient_row(true, span, low, high, s->scale, present ? lse[t] : 0, present ? delta[t] : 0, pi, dsi);
    }
}

// Adds to dq what ds of row i of a block contributes: over the keys that the query sees, and no others.
static void bwd_add_seen(const struct backward *r, const struct backward_space *w, const struct blocks *m,
                         struct visible span, int64_t i, const float *ds, float *dq) {
    const struct attention *s = &r->s;
    const int64_t t = m->t0 + i, columns = s->columns;
    const struct range range = attention_range(s, m->b, t);
    const int64_t low = MAX(range.low - m->j0, span.low), high = MIN(range.high - m->j0, span.high);
    attention_add_row(columns, high - low, ds + low, 1, w->k_across + low * columns, columns, dq + t * columns);
}

// Scores, p and ds of one tile of queries, and what it adds to dq.
VEC_INLINE void query_tile(const struct backward *r, bool pairs, const struct backward_space *w, const struct blocks *m,
                           int tile, const float *delta, float *dq) {
    const struct attention *s = &r->s;
    const struct visible span = m->span[tile];
    const int64_t rows = attention_height(s), i0 = tile * rows, columns = span.c1 - span.c0;
    const int64_t packed = pack_a_row(s->bf16, s->units, i0);
    float *p = w->p + i0 * SCORE_ROW, *ds = w->ds + i0 * SCORE_ROW;
    attention_scores(pairs, columns, s->units, w->q + packed, w->k + span.c0, p + span.c0);
    attention_scores(pairs, columns, s->units, w->d_o + packed, w->v + span.c0, ds + span.c0);
    gradient_rows(r, m, span, i0, rows, delta, p, ds);
    for (int64_t i = 0; i < MIN(rows, m->queries - i0) && m->careful; i++)
        bwd_add_seen(r, w, m, span, i0 + i, ds + i * SCORE_ROW, dq);
    if (!m->careful)
        attention_multiply(false, s->columns, MIN(span.c1, m->keys) - span.c0, ds + span.c0, SCORE_ROW, 1,
                           w->k_across + span.c0 * s->columns, s->columns, dq + (m->t0 + i0) * s->columns, s->columns,
                           true);
}

// A tile that sees no key of the block: tiles before and behind it may both see some of a vector of keys.
static void unseen_tile(const struct backward_space *w, struct visible span, int64_t i0, int64_t rows) {
    for (int64_t i = i0; i < i0 + rows; i++)
        for (int64_t c = span.c0; c < span.c1; c += LANES) {
            vec_store(w->p + i * SCORE_ROW + c, (vec_f32){0});
            vec_store(w->ds + i * SCORE_ROW + c, (vec_f32){0});
        }
}

// Adds what the block of queries contributes to dk and dv of the TILE_ROWS keys from k on.
static void key_tile(const struct backward *r, const struct backward_space *w, const struct blocks *m, int tiles,
                     int64_t k) {
    const struct attention *s = &r->s;
    int first = 0, last = tiles;
    while (first < last && m->span[first].c1 <= k)
        first++;
    while (first < last && m->span[last - 1].c0 >= k + TILE_ROWS)
        last--;
    if (first == last)
        return;
    const int64_t i0 = first * TILE_ROWS, rows = MIN(last * TILE_ROWS, m->queries) - i0;
    attention_multiply(false, s->columns, rows, w->p + i0 * SCORE_ROW + k, 1, SCORE_ROW,
                       w->do_across + i0 * w->across_row, w->across_row, w->dv + k * s->columns, s->columns, true);
    attention_multiply(false, s->columns, rows, w->ds + i0 * SCORE_ROW + k, 1, SCORE_ROW,
                       w->q_across + i0 * w->across_row, w->across_row, w->dk + k * s->columns, s->columns, true);
}

// Adds what the queries that see a key contribute to its dk and dv.
static void key_seen(const struct backward *r, const struct backward_space *w, const struct blocks *m, int64_t k) {
    const struct attention *s = &r->s;
    const int64_t t1 = m->t0 + m->queries, columns = s->columns;
    const int64_t first = attention_behind(s, RANGE_HIGH, m->b, m->t0, t1, m->j0 + k) - m->t0;
    const int64_t end = MAX(attention_behind(s, RANGE_LOW, m->b, m->t0, t1, m->j0 + k) - m->t0, first);
    attention_add_row(columns, end - first, w->p + first * SCORE_ROW + k, SCORE_ROW,
                      w->do_across + first * w->across_row, w->across_row, w->dv + k * columns);
    attention_add_row(columns, end - first, w->ds + first * SCORE_ROW + k, SCORE_ROW,
                      w->q_across + first * w->across_row, w->across_row, w->dk + k * columns);
}

VEC_INLINE void blocks_gradients(const struct backward *r, bool pairs, const struct backward_space *w, struct blocks *m,
                                 const float *delta, float *dq) {
    const struct attention *s = &r->s;
    const struct matrix q = attention_rows(s->q, m->b, m->head), d_o = attention_rows(r->d_o, m->b, m->head);
    ISA(pack_a)(s->bf16, &q, m->t0, m->queries, 0, s->width, w->q, NULL);
    ISA(pack_a)(s->bf16, &d_o, m->t0, m->queries, 0, s->width, w->d_o, NULL);
    if (pairs) {
        attention_widen(&q, true, m->t0, m->queries, s->width, s->columns, w->q_across);
        attention_widen(&d_o, true, m->t0, m->queries, s->width, s->columns, w->do_across);
    }
    const int64_t height = attention_height(s);
    const int tiles = (int)divide_up(m->queries, height);
    for (int i = 0; i < tiles; i++) {
        const int64_t t = m->t0 + i * height;
        m->span[i] = attention_span(s, m->b, t, MIN(t + height, m->t0 + m->queries), m->j0, m->keys);
        if (m->span[i].low < m->span[i].high)
            query_tile(r, pairs, w, m, i, delta, dq);
        else
            unseen_tile(w, m->span[i], i * height, height);
    }
    for (int64_t k = 0; k < m->keys && m->careful; k++)
        key_seen(r, w, m, k);
    for (int64_t k = 0; k < m->keys && !m->careful; k += TILE_ROWS)
        key_tile(r, w, m, tiles, k);
}

#ifdef ISA_HAS_AMX
// p and ds of a block of queries, each in two parts (halves), in pairs of queries, rows of pairs ATTENTION_KEYS apart;
// ds of a tile and of the one before also in squares.
struct gradients {
    struct halves p, ds, tile[2];
};

static struct gradients gradients_at(float *split) {
    enum { PART = QUERIES / 2 * ATTENTION_KEYS, TILE = AMX_SIDE / 2 * ATTENTION_KEYS };
    return (struct gradients){halves_at(split, PART),
                              halves_at(split + 2 * PART, PART),
                              {halves_at(split + 4 * PART, TILE), halves_at(split + 4 * PART + 2 * TILE, TILE)}};
}

// A query against a block of keys: which of them it sees, and what gradient_row takes.
struct query {
    int64_t low, high;
    float lse, delta;
};

static struct query query_of(const struct backward *r, const struct blocks *m, int64_t i, const float *delta) {
    const struct attention *s = &r->s;
    const int64_t t = m->t0 + i;
    if (i >= m->queries)
        return (struct query){0};
    const struct range range = attention_range(s, m->b, t);
    return (struct query){range.low - m->j0, range.high - m->j0, s->lse[(m->b * s->heads + m->head) * s->length + t],
                          delta[t]};
}

// A tile that begins at row i0, with its scores and dp; its ds goes to `squares`.
struct gradient_tile {
    int64_t i0;
    struct visible span;
    float *score, *dp;
    struct halves squares;
};

// Turns scores and dp of rows i and i + 1 of a tile into p and ds in two parts.
VEC_INLINE void gradient_pair(bool masked, const struct gradient_tile *tile, float scale, const struct query query[2],
                              int64_t i, const struct gradients *to, struct beside *beside) {
    const struct visible span = tile->span;
    for (int64_t c = span.c0; c < span.c1; c += 2 * LANES) {
        vec_f32 p[2][2], ds[2][2]; // [row][vector]
        beside_more(beside);
        for (int e = 0; e < 2; e++)
            for (int k = 0; k < 2; k++) {
                const struct query *row = &query[e];
                const int64_t at = (i + e) * SCORE_ROW, column = c + k * LANES;
                p[e][k] = attention_probability(masked, tile->score + at, column, row->low, row->high, scale, row->lse);
                ds[e][k] = p[e][k] * (vec_load(tile->dp + at + column) - row->delta) * scale;
            }
        const int64_t pairs = (tile->i0 + i) / 2 * ATTENTION_KEYS + c;
        for (int k = 0; k < 2; k++) {
            split_pairs(pairs + k * LANES, p[0][k], p[1][k], to->p);
            split_pairs(pairs + k * LANES, ds[0][k], ds[1][k], to->ds);
        }
        split_along(i, c - span.c0, ds[0], tile->squares);
        split_along(i + 1, c - span.c0, ds[1], tile->squares);
    }
}

// Makes p and ds of a tile, in two parts; 0 in columns of [c0, c1) outside its span.
static void make_gradients(const struct backward *r, const struct blocks *m, const struct gradient_tile *tile,
                           int64_t c0, int64_t c1, const float *delta, const struct gradients *to,
                           struct beside *beside) {
    const struct visible span = tile->span;
    beside->parts = AMX_SIDE / 2 * (span.c1 - span.c0) / (2 * LANES);
    for (int64_t i = 0; i < AMX_SIDE; i += 2) {
        const struct query query[2] = {query_of(r, m, tile->i0 + i, delta), query_of(r, m, tile->i0 + i + 1, delta)};
        for (int e = 0; e < 2 && r->s.cap > 0; e++)
            cap_gradient_row(&r->s, span, query[e].delta, tile->score + (i + e) * SCORE_ROW,
                             tile->dp + (i + e) * SCORE_ROW);
        if (MAX(query[0].low, query[1].low) <= span.c0 && MIN(query[0].high, query[1].high) >= span.c1)
            gradient_pair(false, tile, r->s.scale, query, i, to, beside);
        else
            gradient_pair(true, tile, r->s.scale, query, i, to, beside);
    }
    clear_pairs(to->p, tile->i0, c0, span.c0);
    clear_pairs(to->p, tile->i0, span.c1, c1);
    clear_pairs(to->ds, tile->i0, c0, span.c0);
    clear_pairs(to->ds, tile->i0, span.c1, c1);
    beside_end(beside);
}

// Adds to the queue the products that make scores and dp of a tile.
static void add_scores(const struct backward *r, const struct backward_space *w, const struct gradient_tile *tile,
                       struct beside *beside) {
    const int64_t units = r->s.units, packed = pack_a_row(true, units, tile->i0), c0 = tile->span.c0;
    struct row_product product = {.units = units,
                                  .a = w->q + packed,
                                  .b = w->k + c0,
                                  .b_row = ATTENTION_KEYS,
                                  .columns = tile->span.c1 - c0,
                                  .out = tile->score + c0,
                                  .out_row = SCORE_ROW};
    beside_add(beside, product);
    product.a = w->d_o + packed;
    product.b = w->v + c0;
    product.out = tile->dp + c0;
    beside_add(beside, product);
}

// Adds to the queue the product of a tile's ds and keys, which is added to dq.
static void add_keys(const struct backward *r, const struct backward_space *w, const struct blocks *m,
                     const struct gradient_tile *tile, float *dq, struct beside *beside) {
    const int64_t columns = r->s.columns;
    beside_add(beside, (struct row_product){.units = (tile->span.c1 - tile->span.c0) / 2,
                                            .a = tile->squares.high,
                                            .low = tile->squares.low,
                                            .b = w->k_across + tile->span.c0 / 2 * columns,
                                            .b_row = columns,
                                            .columns = columns,
                                            .out = dq + (m->t0 + tile->i0) * columns,
                                            .out_row = columns,
                                            .add = true});
}

// Lists the tiles of a block of queries that see some of a block of keys, [c0, c1) in all; returns how many they are.
static int64_t gradient_tiles(const struct backward *r, const struct backward_space *w, const struct blocks *m,
                              const struct gradients *parts, struct gradient_tile *tile, int64_t *c0, int64_t *c1) {
    int64_t count = 0;
    *c0 = ATTENTION_KEYS, *c1 = 0;
    for (int64_t i = 0; i < m->queries; i += AMX_SIDE) {
        const int64_t t = m->t0 + i, set = count % 2 * AMX_SIDE * SCORE_ROW;
        const struct visible span =
            attention_span(&r->s, m->b, t, MIN(t + AMX_SIDE, m->t0 + m->queries), m->j0, m->keys);
        if (span.low >= span.high)
            continue;
        *c0 = MIN(*c0, span.c0);
        *c1 = MAX(*c1, span.c1);
        tile[count] = (struct gradient_tile){i, span, w->p + set, w->ds + set, parts->tile[count % 2]};
        count++;
    }
    return count;
}

// The same on matrix units: during p and ds of a tile they make scores and dp of the next and add the last one to dq.
static void blocks_gradients_matrix(const struct backward *r, const struct backward_space *w, const struct blocks *m,
                                    const float *delta, float *dq) {
    const struct attention *s = &r->s;
    const struct gradients parts = gradients_at(w->split);
    struct gradient_tile tile[QUERIES / AMX_SIDE];
    int64_t c0, c1;
    const int64_t tiles = gradient_tiles(r, w, m, &parts, tile, &c0, &c1), units = pack_units(true, m->queries);
    if (tiles == 0)
        return;
    const struct matrix q = attention_rows(s->q, m->b, m->head), d_o = attention_rows(r->d_o, m->b, m->head);
    const struct matrix q_columns = attention_columns(s->q, m->b, m->head);
    const struct matrix do_columns = attention_columns(r->d_o, m->b, m->head);
    ISA(pack_a)(true, &q, m->t0, m->queries, 0, s->width, w->q, NULL);
    ISA(pack_a)(true, &d_o, m->t0, m->queries, 0, s->width, w->d_o, NULL);
    ISA(pack_a)(true, &q_columns, 0, s->width, m->t0, m->queries, w->q_across, NULL);
    ISA(pack_a)(true, &do_columns, 0, s->width, m->t0, m->queries, w->do_across, NULL);
    for (int64_t i = 0, next = 0; i < 2 * units; i += AMX_SIDE)
        if (next < tiles && tile[next].i0 == i) {
            next++;
        } else {
            clear_pairs(parts.p, i, c0, c1);
            clear_pairs(parts.ds, i, c0, c1);
        }
    struct beside beside = {0};
    add_scores(r, w, &tile[0], &beside);
    beside_end(&beside);
    for (int64_t i = 0; i < tiles; i++) {
        if (i + 1 < tiles)
            add_scores(r, w, &tile[i + 1], &beside);
        if (i > 0)
            add_keys(r, w, m, &tile[i - 1], dq, &beside);
        make_gradients(r, m, &tile[i], c0, c1, delta, &parts, &beside);
    }
    add_keys(r, w, m, &tile[tiles - 1], dq, &beside);
    beside_end(&beside);
    const struct halves p = {parts.p.high + c0, parts.p.low + c0}, ds = {parts.ds.high + c0, parts.ds.low + c0};
    matrix_add_halves(s->columns, c1 - c0, units, w->do_across, p, ATTENTION_KEYS, w->dv + c0, ATTENTION_KEYS);
    matrix_add_halves(s->columns, c1 - c0, units, w->q_across, ds, ATTENTION_KEYS, w->dk + c0, ATTENTION_KEYS);
}
#endif

static void store_keys(const struct tensor *x, int64_t b, int64_t group, int64_t j0, int64_t keys, const float *from,
                       int64_t row, int64_t width) {
    for (int64_t j = 0; j < keys; j++) {
        int64_t at = b * x->stride[0] + (j0 + j) * x->stride[1] + group * x->stride[2];
        attention_store((char *)x->data + at * dtype_size(x->dtype), x->dtype, from + j * row, width);
    }
}

// One block of keys against all queries that see some of it; returns whether dk and dv are finite.
static bool key_block(const struct backward *r, const struct backward_space *w, bool careful, int64_t b, int64_t group,
                      int64_t j0, float *dq) {
    const struct attention *s = &r->s;
    const bool matrix = attention_matrix(s) && !careful;
    const int64_t keys = MIN(ATTENTION_KEYS, s->keys - j0);
    const struct matrix k = attention_rows(s->k, b, group), k_columns = attention_columns(s->k, b, group);
    const struct matrix v_columns = attention_columns(s->v, b, group);
    const bool seen = attention_meets(s, b, 0, s->length, j0, j0 + keys);
    if (seen) {
        ISA(pack_b)(s->bf16, &k_columns, 0, s->width, j0, keys, ATTENTION_KEYS / LANES, w->k);
        ISA(pack_b)(s->bf16, &v_columns, 0, s->width, j0, keys, ATTENTION_KEYS / LANES, w->v);
    }
    if (seen && matrix)
        ISA(pack_b)(true, &k, j0, keys, 0, s->width, (int)(s->columns / LANES), w->k_across);
    else if (seen)
        attention_widen(&k, s->bf16, j0, keys, s->width, s->columns, w->k_across);
    memset(w->dk, 0, (size_t)(ATTENTION_KEYS * s->columns) * sizeof *w->dk);
    memset(w->dv, 0, (size_t)(ATTENTION_KEYS * s->columns) * sizeof *w->dv);
    for (int64_t h = 0; h < r->shared && seen; h++) {
        const int64_t head = group * r->shared + h, first = attention_behind(s, RANGE_HIGH, b, 0, s->length, j0);
        const float *delta = r->delta + (b * s->heads + head) * s->length;
        float *dq_head = dq + h * r->rows * s->columns;
        for (int64_t t = first / QUERIES * QUERIES; t < s->length; t += QUERIES) {
            const int64_t t1 = MIN(t + QUERIES, s->length);
            if (attention_range(s, b, t).low >= j0 + keys)
                break;
            if (!attention_meets(s, b, t, t1, j0, j0 + keys))
                continue;
            struct blocks m = {b, head, t, t1 - t, j0, keys, careful, {{0}}};
#ifdef ISA_HAS_AMX
            if (matrix) {
                blocks_gradients_matrix(r, w, &m, delta, dq_head);
                continue;
            }
#endif
            if (in_pairs(s))
                blocks_gradients(r, true, w, &m, delta, dq_head);
            else
                blocks_gradients(r, false, w, &m, delta, dq_head);
        }
    }
    const float *dk = w->dk, *dv = w->dv;
#ifdef ISA_HAS_AMX
    if (matrix) { // by way of memory that is no longer needed
        transpose_keys(s->columns, w->dk, w->k_across);
        transpose_keys(s->columns, w->dv, w->dk);
        dk = w->k_across;
        dv = w->dk;
    }
#endif
    store_keys(r->dk, b, group, j0, keys, dk, s->columns, s->width);
    store_keys(r->dv, b, group, j0, keys, dv, s->columns, s->width);
    return attention_finite(dk, keys * s->columns) && attention_finite(dv, keys * s->columns);
}

// The work of the block of keys from j on: how many queries see some of it; 1 where none does.
static int64_t block_work(const struct backward *r, int64_t b, int64_t j) {
    const struct attention *s = &r->s;
    return MAX(attention_behind(s, RANGE_LOW, b, 0, s->length, j + ATTENTION_KEYS - 1) -
                   attention_behind(s, RANGE_HIGH, b, 0, s->length, j),
               1);
}

// The first key of a part. Parts have about equal work.
static int64_t part_start(const struct backward *r, int64_t b, int64_t part) {
    int64_t total = 0, before = 0, j = 0;
    for (j = 0; j < r->s.keys; j += ATTENTION_KEYS)
        total += block_work(r, b, j);
    for (j = 0; j < r->s.keys && before * r->parts < total * part; j += ATTENTION_KEYS)
        before += block_work(r, b, j);
    return j;
}

// The first query that a part is for, rounded down to whole blocks; its dq has no rows before. The first part has all.
static int64_t part_row(const struct backward *r, int64_t b, int64_t part) {
    const struct attention *s = &r->s;
    return part == 0 ? 0 : attention_behind(s, RANGE_HIGH, b, 0, s->length, part_start(r, b, part)) / QUERIES * QUERIES;
}

// One part of a head of keys, row by row if `careful` (attention.h). Whether all gradients are finite.
static bool part_once(const struct backward *r, const struct backward_space *w, bool careful, int64_t item,
                      int64_t part, float *dq) {
    const struct attention *s = &r->s;
    const int64_t b = item / s->groups, end = part_start(r, b, part + 1), row = part_row(r, b, part);
    bool finite = true;
    for (int64_t h = 0; h < r->shared; h++)
        memset(dq + (h * r->rows + row) * s->columns, 0, (size_t)((r->rows - row) * s->columns) * sizeof *dq);
    for (int64_t j0 = part_start(r, b, part); j0 < end && (finite || careful); j0 += ATTENTION_KEYS)
        finite &= key_block(r, w, careful, b, item % s->groups, j0, dq);
    for (int64_t h = 0; h < r->shared && finite; h++)
        finite = attention_finite(dq + (h * r->rows + row) * s->columns, (s->length - row) * s->columns);
    return finite;
}

static void backward_part(const struct backward *r, const struct backward_space *w, int64_t item, int64_t part,
                          float *dq) {
    if (!part_once(r, w, false, item, part, dq))
        part_once(r, w, true, item, part, dq);
}

static void add_floats(float *to, const float *from, int64_t floats) {
    int64_t i = 0;
    for (; i + LANES <= floats; i += LANES)
        vec_store(to + i, vec_load(to + i) + vec_load(from + i));
    for (; i < floats; i++)
        to[i] += from[i];
}

// Stores a row of dq, plus what it begins with.
static void store_query(const struct backward *r, int64_t b, int64_t t, int64_t head, float *row) {
    const struct tensor *before = r->before, *x = r->dq;
    if (before)
        add_floats(
            row, (const float *)before->data + b * before->stride[0] + t * before->stride[1] + head * before->stride[2],
            r->s.width);
    const int64_t at = b * x->stride[0] + t * x->stride[1] + head * x->stride[2];
    attention_store((char *)x->data + at * dtype_size(x->dtype), x->dtype, row, r->s.width);
}

// Adds dq of a part of a head of keys to `sum`, which the first part already is, and stores the queries that no later
// part has.
static void add_part(const struct backward *r, int64_t item, int64_t part, float *sum, const float *dq) {
    const struct attention *s = &r->s;
    const int64_t b = item / s->groups, row = part_row(r, b, part);
    const int64_t end = part + 1 < r->parts ? part_row(r, b, part + 1) : s->length;
    for (int64_t h = 0; h < r->shared; h++) {
        float *head = sum + h * r->rows * s->columns;
        if (part > 0)
            add_floats(head + row * s->columns, dq + (head - sum) + row * s->columns, (s->length - row) * s->columns);
        for (int64_t t = row; t < end; t++)
            store_query(r, b, t, item % s->groups * r->shared + h, head + t * s->columns);
    }
}

// All parts of a head of keys.
static void backward_item(const struct backward *r, const struct backward_space *w, int64_t item, float *sum,
                          float *dq) {
    for (int64_t part = 0; part < r->parts; part++) {
        backward_part(r, w, item, part, part ? dq : sum);
        add_part(r, item, part, sum, dq);
    }
}

// One of the parts that are dealt out; another thread has the one before it, or has done it.
static void backward_dealt(const struct backward *r, const struct backward_space *w, const struct backward_sums *sums,
                           int64_t number, float *dq) {
    const int64_t part = number / r->dealt, which = number % r->dealt, item = r->whole + which;
    float *sum = sums->dealt + which * r->dq_floats;
    backward_part(r, w, item, part, part ? dq : sum);
    for (int looks = 0; __atomic_load_n(&sums->added[which], __ATOMIC_ACQUIRE) < part; looks++)
        if (looks >= LOOKS)
            sched_yield();
    add_part(r, item, part, sum, dq);
    __atomic_store_n(&sums->added[which], part + 1, __ATOMIC_RELEASE);
}

void ISA(cpu_attention_bwd)(const struct call *call) {
    struct backward r = backward_of(call);
    const struct backward_sums sums = backward_sums(&r);
    const bool given = r.delta != NULL;
    memset(sums.added, 0, (size_t)r.dealt * sizeof *sums.added);
    attention_place(&r.s, call);
    r.s.range = sums.range;
    r.delta = given ? r.delta : sums.delta;
#pragma omp parallel num_threads(r.threads)
    {
        tile_begin(r.s.bf16);
        int thread = omp_get_thread_num();
        const struct backward_space w = backward_space(&r.s, r.workspace + thread * r.thread_bytes);
        if (!in_pairs(&r.s)) { // pack_a writes nothing after a width that is no whole vector, but dk and dv sum it up
            memset(w.q, 0, (size_t)(QUERIES * w.across_row) * sizeof *w.q);
            memset(w.d_o, 0, (size_t)(QUERIES * w.across_row) * sizeof *w.d_o);
        }
        attention_find_ranges(&r.s, sums.range);
        if (!given)
            attention_find_deltas(r.s.o, r.d_o, sums.delta);
            // In this order on each thread, so that the first part that is not done waits for none.
#pragma omp for schedule(monotonic : dynamic)
        for (int64_t i = 0; i < r.units; i++) {
            const int64_t at = (r.units < r.threads ? i : thread) * r.dq_floats;
            if (i < r.whole)
                backward_item(&r, &w, i, sums.item + at, sums.part + at);
            else
                backward_dealt(&r, &w, &sums, i - r.whole, sums.part + at);
        }
        tile_end(r.s.bf16);
    }
}

// Of a sink, whose value is zero: -sum over queries of its share times sum(do o).
void ISA(cpu_attention_sinks_dw)(const struct call *call) {
    const struct tensor *o = &call->in[0], *d_o = &call->in[2];
    const bool bf16 = o->dtype == DTYPE_BF16;
    const int64_t size = dtype_size(o->dtype), heads = o->dim[2], length = o->dim[1];
    float *out = call->out[0].data;
#pragma omp parallel for num_threads(call->threads) schedule(dynamic)
    for (int64_t head = 0; head < heads; head++) {
        double sum = 0;
        for (int64_t b = 0; b < o->dim[0]; b++) {
            const struct matrix a = attention_rows(o, b, head), d = attention_rows(d_o, b, head);
            const float *sunk = (const float *)call->in[1].data + (b * heads + head) * length;
            for (int64_t t = 0; t < length; t++)
                sum += sunk[t] * attention_dot(bf16, (const char *)a.data + size * t * a.row,
                                               (const char *)d.data + size * t * d.row, o->dim[3]);
        }
        out[head] = (call->accumulate ? out[head] : 0) - (float)sum;
    }
}

trireme_status ISA(cpu_attention_bwd_prepare)(const struct call *call, void **prepared, int64_t *workspace_bytes,
                                              trireme_error *error) {
    (void)error;
    const struct backward r = backward_of(call);
    *prepared = NULL;
    *workspace_bytes = backward_sums(&r).bytes;
    return TRIREME_OK;
}
