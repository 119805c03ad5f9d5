#include "kernels/cpu/gemm.h"

#include "kernels/cpu/pack.h"

#include <omp.h>

// GEMM_UNITS: the largest block of the summed dimension, in units. A tile's share of b (TILE_COLUMNS units wide) is
// read from the second-level cache, which also holds a thread's block of a: GEMM_BLOCK units in all and up to
// GEMM_ROWS_MAX rows; with matrix units twice as much, since a panel of b must then serve longer for the next one to
// come in time. Sums over several blocks need a workspace if the product is bf16, so such a product has one block up to
// GEMM_UNITS_BF16; an f32 product holds its sums itself.
enum { GEMM_UNITS = 1024, GEMM_UNITS_BF16 = 3072, GEMM_BLOCK = 98304, GEMM_ROWS_MAX = 128 };
// Row blocks for each thread, unless they would have fewer rows than GEMM_ROWS_MIN.
enum { GEMM_TURNS = 2, GEMM_ROWS_MIN = 32 };
// Units of b that are packed at a time: they should stay in the last-level cache, and they bound the workspace.
enum { GEMM_PACKED = 2097152 };
// If a has no more than this many rows, and units, packing b is a good part of the work: threads share out the panels
// of b instead of the rows of a, and each multiplies a panel as soon as it has packed it, while it prefetches the next.
// A thread packs up to BY_COLUMNS_GROUP units at a time, which should stay in its second-level cache. It does not read
// what others have packed of b: where threads share no cache, that would take longer than from memory.
enum { BY_COLUMNS_ROWS = 1024, BY_COLUMNS_UNITS = 1048576, BY_COLUMNS_GROUP = 49152 };
// Groups of panels for each thread, at least: threads take them in turns, so that a slow one holds up little.
enum { BY_COLUMNS_TURNS = 4 };
// Blocks of k of which a is packed at a time: the threads need not wait for one another before they pack the next.
enum { BY_COLUMNS_BLOCKS = 2 };
// Bytes of workspace that a way may need beyond those of the rule.
enum { GEMM_MORE = 2097152 };
// A bf16 output of matrix units of at least this many bytes leaves the caches before anybody reads it: written past
// them, its memory need not be read first.
enum { GEMM_STREAMED = 4194304 };

struct blocking {
    int64_t k_block, k_blocks; // elements
    int64_t units;             // of the largest block
    int64_t panels;            // of up to TILE_COLUMNS columns, in all
    int64_t packed;            // panels at a time, at most
    int64_t groups;            // of panels that a thread packs, in all
    int64_t row_tiles, row_blocks, splits;
    int64_t block_tiles; // of the largest row block
    bool by_columns;
    int64_t a_bytes, b_bytes, sum_bytes; // a and b: of one packed block
    int64_t a_blocks, b_blocks;
};

static int64_t tile_columns(const struct gemm *g) {
    return tile_vecs(g->bf16) * LANES;
}

// Units of a packed tile of a, and of a packed panel of b.
static int64_t a_units(const struct gemm *g, int64_t units) {
    return g->bf16 && TILE_MATRIX ? tile_rows(true) * units : pack_a_units(units);
}
static int64_t b_units(const struct gemm *g, int64_t units) {
    return tile_columns(g) * units;
}

// Units of the largest worthwhile block of the summed dimension.
static int64_t block_units(const struct gemm *g, int64_t units) {
    const bool one = g->bf16_out && units <= GEMM_UNITS_BF16;
    return g->bf16 && (one || !TILE_MATRIX) ? GEMM_UNITS_BF16 : GEMM_UNITS;
}

// Whether threads get about equally many panels.
static bool shares_panels(const struct blocking *s, int threads) {
    int64_t most = divide_up(s->panels, threads);
    return 8 * most * threads <= 9 * s->panels;
}

// A size that the rule gives, as the way changes it.
static int64_t gemm_sized(enum kernel_way way, int64_t size) {
    return way == WAY_SMALL_BLOCKS ? size / 2 : way == WAY_LARGE_BLOCKS ? 2 * size : size;
}

// Ways differ in who does what when, never in blocks of k, on which the bits depend.
static struct blocking blocking_of(const struct gemm *g, enum kernel_way way) {
    struct blocking s = {0};
    const int64_t units = pack_units(g->bf16, g->k), height = tile_rows(g->bf16), width = tile_columns(g);
    s.k_blocks = MAX(1, divide_up(units, block_units(g, units)));
    s.units = pack_units(g->bf16, divide_up(units, s.k_blocks) * pack_unit(g->bf16));
    s.k_block = s.units * pack_unit(g->bf16);
    s.panels = divide_up(g->n, width);
    s.row_tiles = divide_up(g->m, height);
    s.by_columns =
        g->m <= BY_COLUMNS_ROWS && s.row_tiles * height * s.units <= BY_COLUMNS_UNITS && shares_panels(&s, g->threads);
    if (way == WAY_BY_ROWS || way == WAY_BY_COLUMNS)
        s.by_columns = way == WAY_BY_COLUMNS;
    s.sum_bytes = g->bf16_out && s.k_blocks > 1 ? round_up(4 * g->m * g->n, 64) : 0;
    if (s.by_columns) {
        const int64_t most = MAX(gemm_sized(way, BY_COLUMNS_GROUP) / MAX(s.units, 1) / width, 1), threads = g->threads;
        const int64_t turns = MAX(divide_up(divide_up(s.panels, most), threads), BY_COLUMNS_TURNS);
        s.groups = MIN(turns * threads, MAX(s.panels, 1));
        s.packed = divide_up(s.panels, s.groups);
        s.a_blocks = MIN(s.k_blocks, BY_COLUMNS_BLOCKS);
        s.a_bytes = round_up(4 * s.row_tiles * a_units(g, s.units), 64);
        s.b_blocks = g->threads;
        s.b_bytes = round_up(4 * s.packed * b_units(g, s.units), 64);
        return s;
    }
    const int64_t packed = way == WAY_NARROW ? GEMM_PACKED / 4 : GEMM_PACKED;
    s.packed = MIN(s.panels, MAX(packed / MAX(s.units, 1) / width, 1));
    s.a_blocks = g->threads;
    s.b_blocks = 1;
    const int64_t scale = g->bf16 && TILE_MATRIX ? 2 : 1;
    const int64_t most = scale * MIN(MAX(GEMM_BLOCK / MAX(s.units, 1), 4 * TILE_ROWS), GEMM_ROWS_MAX);
    const int64_t rows =
        gemm_sized(way, MAX(MIN(most, divide_up(g->m, GEMM_TURNS * g->threads)), scale * GEMM_ROWS_MIN));
    // There are equally many row blocks for each thread; where rows do not suffice, columns are split too.
    s.row_blocks = MIN(divide_up(divide_up(g->m, rows), g->threads) * g->threads, s.row_tiles);
    s.splits = MIN(divide_up(g->threads, s.row_blocks), s.packed);
    s.block_tiles = divide_up(s.row_tiles, s.row_blocks);
    s.a_bytes = round_up(4 * s.block_tiles * a_units(g, s.units), 64);
    s.b_bytes = round_up(4 * s.packed * b_units(g, s.units), 64);
    return s;
}

static int64_t workspace_of(const struct blocking *s) {
    return s->b_blocks * s->b_bytes + s->a_blocks * s->a_bytes + s->sum_bytes;
}

unsigned ISA(gemm_ways)(const struct gemm *g) {
    const struct blocking rule = blocking_of(g, WAY_RULE);
    unsigned ways = 1U << WAY_RULE;
    for (enum kernel_way way = WAY_RULE + 1; way < KERNEL_WAYS && g->m > 0 && g->n > 0; way++) {
        const struct blocking s = blocking_of(g, way);
        if ((s.by_columns != rule.by_columns || s.packed != rule.packed || s.row_blocks != rule.row_blocks) &&
            workspace_of(&s) <= workspace_of(&rule) + GEMM_MORE)
            ways |= 1U << way;
    }
    return ways;
}

int64_t ISA(gemm_workspace)(const struct gemm *g) {
    if (g->m == 0 || g->n == 0)
        return 0;
    const unsigned ways = ISA(gemm_ways)(g);
    int64_t most = 0;
    for (enum kernel_way way = WAY_RULE; way < KERNEL_WAYS; way++) {
        const struct blocking s = blocking_of(g, way);
        if (ways >> way & 1)
            most = MAX(most, workspace_of(&s));
    }
    return most;
}

// What to do with a finished tile.
struct finish {
    const struct gemm *g;
    float *sum; // partial sums so far: c itself, or the workspace for bf16; rows sum_row apart
    int64_t sum_row;
    bool add, last; // there are partial sums; this was the last block of k
    bool streamed;  // whole tiles are written past the caches
};

// LANES columns from j on of row i: `x` is their sum over the last block of k.
VEC_INLINE void finish_vector(const struct finish *f, bool bf16, bool bf16_out, int64_t i, int64_t j, vec_f32 x) {
    const struct gemm *g = f->g;
    if (f->add)
        x += vec_load(f->sum + i * f->sum_row + j);
    if (!f->last) {
        vec_store(f->sum + i * f->sum_row + j, x);
        return;
    }
    if (g->bias)
        x += vec_at(bf16, g->bias, j);
    if (g->residual)
        x += vec_at(bf16, g->residual, i * g->residual_row + j);
    if (!bf16_out)
        vec_store((float *)g->c + i * g->c_row + j, x);
    else if (!g->accumulate)
        vec_store_bf16((uint16_t *)g->c + i * g->c_row + j, x);
    else
        vec_store_bf16((uint16_t *)g->c + i * g->c_row + j, x + vec_at(true, g->c, i * g->c_row + j));
}

static void finish_one(const struct finish *f, int64_t i, int64_t j, float x) {
    const struct gemm *g = f->g;
    if (f->add)
        x += f->sum[i * f->sum_row + j];
    if (!f->last) {
        f->sum[i * f->sum_row + j] = x;
        return;
    }
    if (g->bias)
        x += float_at(g->bf16, g->bias, j);
    if (g->residual)
        x += float_at(g->bf16, g->residual, i * g->residual_row + j);
    int64_t at = i * g->c_row + j;
    if (!g->bf16_out)
        ((float *)g->c)[at] = x;
    else if (!g->accumulate)
        ((uint16_t *)g->c)[at] = bf16_from_float(x);
    else
        ((uint16_t *)g->c)[at] = bf16_from_float(x + float_at(true, g->c, at));
}

// Rows of the tile lie `tile_row` apart.
VEC_INLINE void finish_tile(const struct finish *f, const float *tile, int64_t tile_row, int64_t i0, int64_t rows,
                            int64_t j0, int64_t columns) {
    int64_t whole = columns / LANES * LANES;
    for (int64_t i = 0; i < rows; i++, tile += tile_row) {
        for (int64_t j = 0; j < whole; j += LANES) {
            vec_f32 x = vec_load(tile + j);
            if (f->g->bf16_out)
                finish_vector(f, true, true, i0 + i, j0 + j, x);
            else
                finish_vector(f, f->g->bf16, false, i0 + i, j0 + j, x);
        }
        for (int64_t j = whole; j < columns; j++)
            finish_one(f, i0 + i, j0 + j, tile[j]);
    }
}

void ISA(gemm_finish)(const struct gemm *g, const float *tile, int64_t rows, int64_t j0, int64_t columns) {
    const struct finish f = {
        .g = g, .sum = g->c, .sum_row = g->c_row, .add = g->accumulate && !g->bf16_out, .last = true};
    finish_tile(&f, tile, TILE_COLUMNS, 0, rows, j0, columns);
}

// Prefetches the place of a tile, which is written when the tile is finished.
VEC_INLINE void finish_ask(const struct finish *f, int64_t i0, int64_t rows, int64_t j0, int64_t columns) {
    const struct gemm *g = f->g;
    const bool sum = !f->last || !g->bf16_out; // it goes to the sums, else to c
    const int64_t size = sum ? 4 : 2, row = size * (sum ? f->sum_row : g->c_row);
    const char *p = (sum ? (const char *)f->sum : (const char *)g->c) + i0 * row + size * j0;
    for (int64_t i = 0; i < rows; i++, p += row)
        for (int64_t at = 0; at < size * columns; at += ASK_LINE)
            __builtin_prefetch(p + at, 1, 3);
}

// Columns of b that are packed together.
struct panel {
    int64_t first, columns;
    int vecs; // of LANES columns
};

// Panels have tile_vecs vectors; but if that is three and one would be left over, the last two panels have two each.
static struct panel panel_of(const struct gemm *g, int64_t index) {
    const int64_t most = tile_vecs(g->bf16), vecs = divide_up(g->n, LANES), panels = divide_up(vecs, most);
    int64_t first = index * most, end = MIN(first + most, vecs);
    if (most == 3 && vecs % most == 1 && panels > 1) {
        first -= index == panels - 1;
        end -= index == panels - 2;
    }
    return (struct panel){first * LANES, MIN(end * LANES, g->n) - first * LANES, (int)(end - first)};
}

// ---- one tile

// A packed tile of a and a packed panel of b.
struct factors {
    const float *a, *b;
    int64_t units, a_row, a_step; // of both; how the tile walks a
    struct ask ask;
};

#define TILE_CASE(v, pairs)                                                                                        \
    case 2 * (v) + (pairs):                                                                                        \
        tile_multiply_##v(pairs, p->units, p->a, p->a_row, p->a_step, p->b, (v)*LANES, &p->ask, out, TILE_COLUMNS, \
                          false);                                                                                  \
        break

VEC_INLINE void tile_vectors(const struct factors *p, int vecs, bool pairs, float *out) {
    switch (2 * vecs + pairs) {
        TILE_CASE(1, false);
        TILE_CASE(2, false);
        TILE_CASE(3, false);
#ifdef __AVX512BF16__
        TILE_CASE(1, true);
        TILE_CASE(2, true);
        TILE_CASE(3, true);
#endif
    }
}

// Whether whole tiles of c are whole cache lines, written once, and c is large enough to write it past the caches.
static bool gemm_streams(const struct gemm *g) {
    enum { LINE = TILE_MATRIX_VECS * LANES };
    return TILE_MATRIX && g->bf16_out && !g->accumulate && 2 * g->m * g->n >= GEMM_STREAMED &&
           (uintptr_t)g->c % (2 * LINE) == 0 && g->c_row % LINE == 0;
}

#ifdef ISA_HAS_AMX
// What finish_tile does for the last block, past the caches: the same sums in the same order.
static void finish_streamed(const struct finish *f, const float *tile, int64_t i0, int64_t j0) {
    const struct gemm *g = f->g;
    vec_f32 bias[2] = {{0}, {0}};
    for (int k = 0; k < 2 && g->bias; k++)
        bias[k] = vec_at(true, g->bias, j0 + k * LANES);
    for (int64_t i = i0; i < i0 + TILE_MATRIX_ROWS; i++, tile += 2 * LANES) {
        vec_f32 x[2];
        for (int k = 0; k < 2; k++) {
            x[k] = vec_load(tile + k * LANES);
            if (f->add)
                x[k] += vec_load(f->sum + i * f->sum_row + j0 + k * LANES);
            if (g->bias)
                x[k] += bias[k];
            if (g->residual)
                x[k] += vec_at(true, g->residual, i * g->residual_row + j0 + k * LANES);
        }
        _mm512_stream_si512((void *)((uint16_t *)g->c + i * g->c_row + j0),
                            (__m512i)_mm512_cvtne2ps_pbh((__m512)x[1], (__m512)x[0]));
    }
}

static void tile_run_matrix(const struct finish *f, const struct factors *p, int64_t i, int64_t rows,
                            struct panel panel) {
    const int64_t columns = panel.vecs * LANES;
    const bool whole = rows == TILE_MATRIX_ROWS && panel.columns == TILE_MATRIX_VECS * LANES;
    const bool sum = !f->last || (!f->g->bf16_out && !f->g->bias && !f->g->residual);
    const struct amx_product product = {p->units, p->a, AMX_SIDE * p->units, p->b, columns};
    struct finish finish = *f;
    enum { ROW = TILE_MATRIX_VECS * LANES };
    float tile[TILE_MATRIX_ROWS * ROW] __attribute__((aligned(64)));
    float *sums = f->sum + i * f->sum_row + panel.first;
    if (!f->streamed)
        finish_ask(f, i, rows, panel.first, panel.columns);
    if (whole && sum) {
        amx_multiply(2, 2, product, p->ask, sums, f->sum_row, f->add);
        return;
    }
    const bool onto = sum && f->add; // as in a whole tile: an element's sum does not depend on where it lies
    for (int64_t k = 0; k < rows && onto; k++)
        memcpy(tile + k * ROW, sums + k * f->sum_row, (size_t)panel.columns * sizeof *sums);
    finish.add &= !onto;
    amx_multiply_some(rows, columns, product, p->ask, tile, ROW, onto);
    if (whole && f->streamed && f->last)
        finish_streamed(&finish, tile, i, panel.first);
    else
        finish_tile(&finish, tile, ROW, i, rows, panel.first, panel.columns);
}
#endif

// The tile of rows from i on, against one panel.
VEC_INLINE void tile_run(const struct gemm *g, const struct finish *f, const struct factors *p, int64_t i,
                         struct panel panel) {
    const int64_t rows = MIN(tile_rows(g->bf16), g->m - i);
#ifdef ISA_HAS_AMX
    if (g->bf16) {
        tile_run_matrix(f, p, i, rows, panel);
        return;
    }
#endif
    float tile[TILE_ROWS * TILE_COLUMNS] __attribute__((aligned(64)));
    finish_ask(f, i, rows, panel.first, panel.columns);
    tile_vectors(p, panel.vecs, g->bf16 && TILE_PAIRS, tile);
    finish_tile(f, tile, TILE_COLUMNS, i, rows, panel.first, panel.columns);
}

// To be called before others read what a thread has written past the caches.
static void streams_end(const struct finish *f) {
#ifdef ISA_HAS_AMX
    if (f->streamed)
        _mm_sfence();
#else
    (void)f;
#endif
}

// ---- many

// Block `index` of k, in elements.
struct depth {
    int64_t index, from, count;
};

static struct depth depth_of(const struct gemm *g, const struct blocking *s, int64_t index) {
    const int64_t from = index * s->k_block;
    return (struct depth){index, from, MIN(s->k_block, g->k - from)};
}

// An item is what a thread does in one turn: it multiplies a row block of a by packed panels of b. Where there are
// fewer row blocks than threads, `splits` items have the same row block, and each a part of the panels.
struct rows {
    int64_t first_tile, tiles, first, count;
};

// The rows of an item; past the last item, none.
static struct rows gemm_rows_of(const struct gemm *g, const struct blocking *s, int64_t item) {
    const int64_t block = MIN(item / s->splits, s->row_blocks), height = tile_rows(g->bf16);
    const int64_t tile = block * s->row_tiles / s->row_blocks;
    const int64_t end = MIN((block + 1) * s->row_tiles / s->row_blocks, s->row_tiles);
    return (struct rows){tile, end - tile, tile * height, MIN(end * height, g->m) - MIN(tile * height, g->m)};
}

// Stores the sums of the rows of a block: over the `first` block of k, or adds those over a later one.
static void sums_add(const struct gemm *g, int64_t i0, int64_t rows, bool first, const float *sums) {
    for (int64_t i = 0; i < rows; i++)
        g->row_sums[i0 + i] = first && !g->accumulate ? sums[i] : g->row_sums[i0 + i] + sums[i];
}

// Packs the rows of an item at `a` and multiplies them by its part of the packed panels [first, first + panels).
// Meanwhile the rows are prefetched of what this thread does next if all threads are equally fast.
static void run_item(const struct gemm *g, const struct blocking *s, const struct finish *f, const struct depth *k,
                     int64_t item, int64_t first, int64_t panels, const float *b, float *a) {
    const struct rows rows = gemm_rows_of(g, s, item), next = gemm_rows_of(g, s, item + g->threads);
    const int64_t split = item % s->splits, from = split * panels / s->splits, to = (split + 1) * panels / s->splits;
    float sums[4 * GEMM_ROWS_MAX] = {0}; // as many rows as large blocks have on matrix units
    const bool sum = g->row_sums && first == 0 && split == 0;
    ISA(pack_a)(g->bf16, &g->a, rows.first, rows.count, k->from, k->count, a, sum ? sums : NULL);
    if (sum)
        sums_add(g, rows.first, rows.count, k->index == 0, sums);
    const int64_t units = pack_units(g->bf16, k->count), apart = b_units(g, s->units), bytes = 4 * b_units(g, units);
    struct factors p = {.units = units};
    pack_a_strides(&g->a, units, &p.a_row, &p.a_step);
    for (int64_t panel = from; panel < to; panel++) {
        p.b = b + panel * apart;
        for (int64_t t = 0; t < rows.tiles; t++) {
            const int64_t part = (panel - from) * rows.tiles + t, parts = (to - from) * rows.tiles;
            ISA(pack_ask)(g->bf16, &g->a, next.first, next.count, k->from, k->count, part, parts);
            p.a = a + t * a_units(g, units);
            p.ask = ask_part(b + (panel + 1 < to ? panel + 1 : from) * apart, bytes, t, rows.tiles, units);
            tile_run(g, f, &p, (rows.first_tile + t) * tile_rows(g->bf16), panel_of(g, first + panel));
        }
    }
}

// Panels [first, first + panels) of b in a block of k.
struct group {
    struct depth k;
    int64_t first, panels;
};

// Group `turn` of the product: the groups of the first block of k, then those of the next; after the last, k.index is
// k_blocks.
static struct group gemm_group_of(const struct gemm *g, const struct blocking *s, int64_t turn) {
    const int64_t at = turn % s->groups, first = at * s->panels / s->groups;
    return (struct group){depth_of(g, s, turn / s->groups), first, (at + 1) * s->panels / s->groups - first};
}

// Prefetches part `part` of `parts` of what a group packs.
static void ask_group(const struct gemm *g, const struct group *group, int64_t part, int64_t parts) {
    // Their columns are contiguous, also where panels differ.
    const int64_t from = panel_of(g, group->first).first;
    const struct panel last = panel_of(g, group->first + group->panels - 1);
    ISA(pack_ask)(g->bf16, &g->b, group->k.from, group->k.count, from, last.first + last.columns - from, part, parts);
}

// Packs a group at `b` and multiplies all of a, packed at `a`, by it, while this thread's next group is prefetched.
static void run_group(const struct gemm *g, const struct blocking *s, const struct finish *f, struct group this,
                      struct group next, const float *a, float *b) {
    const int64_t units = pack_units(g->bf16, this.k.count);
    struct factors factors = {.units = units};
    pack_a_strides(&g->a, units, &factors.a_row, &factors.a_step);
    for (int64_t p = 0; p < this.panels; p++) {
        const struct panel panel = panel_of(g, this.first + p);
        ISA(pack_b)
        (g->bf16, &g->b, this.k.from, this.k.count, panel.first, panel.columns, panel.vecs,
         b + p * b_units(g, s->units));
    }
    for (int64_t t = 0; t < s->row_tiles; t++) {
        if (next.k.index < s->k_blocks)
            ask_group(g, &next, t, s->row_tiles);
        factors.a = a + t * a_units(g, units);
        for (int64_t p = 0; p < this.panels; p++) {
            factors.b = b + p * b_units(g, s->units);
            tile_run(g, f, &factors, t * tile_rows(g->bf16), panel_of(g, this.first + p));
        }
    }
}

// Packs a block of k of the tiles [first, end) of a; tile 0 goes to `a`.
static void pack_tiles(const struct gemm *g, struct depth k, int64_t first, int64_t end, float *a) {
    const int64_t height = tile_rows(g->bf16), tiles = BY_COLUMNS_ROWS / height; // at a time
    const int64_t apart = a_units(g, pack_units(g->bf16, k.count));
    for (; first < end; first += tiles) {
        const int64_t i0 = first * height, count = MIN(MIN(end, first + tiles) * height, g->m) - i0;
        float sums[BY_COLUMNS_ROWS] = {0};
        ISA(pack_a)(g->bf16, &g->a, i0, count, k.from, k.count, a + first * apart, g->row_sums ? sums : NULL);
        if (g->row_sums)
            sums_add(g, i0, count, k.index == 0, sums);
    }
}

// Partial sums are in c itself, or in the workspace after the packed a and b.
static struct finish finish_start(const struct gemm *g, const struct blocking *s) {
    struct finish f = {.g = g, .sum = g->c, .sum_row = g->c_row, .streamed = gemm_streams(g)};
    if (s->sum_bytes) {
        f.sum = (float *)((char *)g->workspace + s->b_blocks * s->b_bytes + s->a_blocks * s->a_bytes);
        f.sum_row = g->n;
    }
    return f;
}

static struct finish finish_block(const struct finish *all, const struct blocking *s, int64_t k) {
    struct finish f = *all;
    f.add = k > 0 || (f.g->accumulate && !f.g->bf16_out);
    f.last = k == s->k_blocks - 1;
    return f;
}

static void run_by_columns(const struct gemm *g, const struct blocking *s) {
    char *all_a = g->workspace, *all_b = all_a + s->a_blocks * s->a_bytes;
    // Whole vectors of rows, as pack_a takes them where they lie across.
    const int64_t part = MAX(LANES / tile_rows(g->bf16), 1), parts = divide_up(s->row_tiles, part);
    const int64_t shares = MIN(parts, BY_COLUMNS_TURNS * g->threads);
    const struct finish all = finish_start(g, s);
    int64_t turns = 0;
#pragma omp parallel num_threads(g->threads)
    {
        float *b = (float *)(all_b + omp_get_thread_num() * s->b_bytes);
        int64_t turn = __atomic_fetch_add(&turns, 1, __ATOMIC_RELAXED);
        tile_begin(g->bf16);
        for (int64_t block = 0; block < s->k_blocks; block++) {
            const struct depth k = depth_of(g, s, block);
            const struct finish f = finish_block(&all, s, block);
            float *a = (float *)(all_a + block % s->a_blocks * s->a_bytes);
#pragma omp for schedule(dynamic)
            for (int64_t i = 0; i < shares; i++)
                pack_tiles(g, k, parts * i / shares * part, MIN(parts * (i + 1) / shares * part, s->row_tiles), a);
            while (turn / s->groups == block) {
                const struct group this = gemm_group_of(g, s, turn);
                turn = __atomic_fetch_add(&turns, 1, __ATOMIC_RELAXED);
                run_group(g, s, &f, this, gemm_group_of(g, s, turn), a, b);
            }
        }
        tile_end(g->bf16);
        streams_end(&all);
    }
}

void ISA(gemm_run)(const struct gemm *g) {
    if (g->m == 0 || g->n == 0)
        return;
    const struct blocking s = blocking_of(g, g->way);
    if (s.by_columns) {
        run_by_columns(g, &s);
        return;
    }
    float *b = g->workspace;
    char *all_a = (char *)g->workspace + s.b_bytes;
    const struct finish all = finish_start(g, &s);
#pragma omp parallel num_threads(g->threads)
    {
        float *a = (float *)(all_a + omp_get_thread_num() * s.a_bytes);
        tile_begin(g->bf16);
        for (int64_t first = 0; first < s.panels; first += s.packed)
            for (int64_t kb = 0; kb < s.k_blocks; kb++) {
                const struct depth k = depth_of(g, &s, kb);
                const int64_t panels = MIN(s.packed, s.panels - first);
                const struct finish f = finish_block(&all, &s, kb);
#pragma omp for schedule(dynamic)
                for (int64_t p = 0; p < panels; p++) {
                    const struct panel panel = panel_of(g, first + p);
                    float *to = b + p * b_units(g, s.units);
                    ISA(pack_b)(g->bf16, &g->b, k.from, k.count, panel.first, panel.columns, panel.vecs, to);
                }
#pragma omp for schedule(dynamic)
                for (int64_t item = 0; item < s.row_blocks * s.splits; item++)
                    run_item(g, &s, &f, &k, item, first, panels, b, a);
            }
        tile_end(g->bf16);
        streams_end(&all);
    }
}
