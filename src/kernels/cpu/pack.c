#include "kernels/cpu/pack.h"

// The rows read are often short and far apart, which no hardware prefetches: unless prefetched this many units early,
// each would wait for memory.
enum { AHEAD = 24 };

static const char *pack_element(bool bf16, const struct matrix *m, int64_t i, int64_t j) {
    return (const char *)m->data + (bf16 ? 2 : 4) * (i * m->row + j * m->column);
}

// b's columns lie along the summed dimension (weights of a forward product): squares are transposed.
VEC_INLINE void pack_b_along(bool bf16, const struct matrix *b, int64_t k0, int64_t k, int64_t j0, int64_t columns,
                             int vecs, float *out) {
    const int64_t unit = pack_unit(bf16), whole = k / unit / LANES * LANES, units = pack_units(bf16, k);
    for (int v = 0; v < vecs; v++) {
        int64_t present = columns - v * LANES;
        const char *p[LANES];
        for (int j = 0; j < LANES; j++)
            p[j] = pack_element(bf16, b, k0, j0 + v * LANES + (j < present ? j : 0));
        const int64_t size = bf16 ? 2 : 4;
        for (int64_t u = 0; u < whole; u += LANES) {
            vec_f32 square[LANES];
            for (int j = 0; j < LANES && present >= 2 * LANES; j++)
                __builtin_prefetch(p[j] + (LANES * b->column + u * unit) * size);
            for (int j = 0; j < LANES; j++)
                square[j] = j < present ? pack_load_along(bf16, p[j] + u * unit * size) : (vec_f32){0};
            tile_transpose(square);
            for (int i = 0; i < LANES; i++)
                vec_store(out + ((u + i) * vecs + v) * LANES, square[i]);
        }
        for (int64_t u = whole; u < units; u++)
            for (int j = 0; j < LANES; j++) {
                uint32_t x = j < present ? pack_unit_along(bf16, p[j] + u * unit * size, k - u * unit) : 0;
                memcpy(out + (u * vecs + v) * LANES + j, &x, 4);
            }
    }
}

VEC_INLINE void pack_b_across(bool bf16, const struct matrix *b, int64_t k0, int64_t k, int64_t j0, int64_t columns,
                              int vecs, float *out) {
    const int64_t unit = pack_unit(bf16), units = divide_up(k, unit), size = bf16 ? 2 : 4, row = size * b->row;
    for (int64_t u = 0; u < units; u++) {
        const char *p = pack_element(bf16, b, k0 + u * unit, j0);
        const char *next = unit == 2 && u * 2 + 1 < k ? pack_element(bf16, b, k0 + u * 2 + 1, j0) : NULL;
        if (u + AHEAD < units)
            for (int64_t c = 0; c < columns * size; c += 64) {
                __builtin_prefetch(p + AHEAD * unit * row + c);
                if (unit == 2)
                    __builtin_prefetch(p + (AHEAD * unit + 1) * row + c);
            }
        for (int v = 0; v < vecs; v++, out += LANES) {
            int64_t present = columns - v * LANES;
            if (present >= LANES) {
                vec_store(out, pack_load_across(bf16, p + v * LANES * size, next ? next + v * LANES * size : NULL));
                continue;
            }
            for (int64_t j = 0; j < LANES; j++) {
                int64_t at = (v * LANES + j) * size;
                uint32_t x = j < present ? pack_unit_across(bf16, p + at, next ? next + at : NULL) : 0;
                memcpy(out + j, &x, 4);
            }
        }
    }
    memset(out, 0, 4 * (size_t)((pack_units(bf16, k) - units) * vecs * LANES));
}

void ISA(pack_b)(bool bf16, const struct matrix *b, int64_t k0, int64_t k, int64_t j0, int64_t columns, int vecs,
                 float *out) {
    if (b->column == 1 && bf16)
        pack_b_across(true, b, k0, k, j0, columns, vecs, out);
    else if (b->column == 1)
        pack_b_across(false, b, k0, k, j0, columns, vecs, out);
    else if (bf16)
        pack_b_along(true, b, k0, k, j0, columns, vecs, out);
    else
        pack_b_along(false, b, k0, k, j0, columns, vecs, out);
}

void ISA(pack_ask)(bool bf16, const struct matrix *m, int64_t i0, int64_t rows, int64_t j0, int64_t columns,
                   int64_t part, int64_t parts) {
    const int64_t size = bf16 ? 2 : 4;
    const bool by_rows = m->column == 1; // rows lie in memory as they are, else columns do
    const int64_t runs = by_rows ? rows : columns, bytes = size * (by_rows ? columns : rows);
    const int64_t step = size * (by_rows ? m->row : m->column);
    const char *p = pack_element(bf16, m, i0, j0);
    for (int64_t r = runs * part / parts; r < runs * (part + 1) / parts; r++)
        for (int64_t at = 0; at < bytes; at += ASK_LINE)
            __builtin_prefetch(p + r * step + at, 0, 2);
}

// a's rows lie along the summed dimension: they are copied, `units + LANES` apart.
VEC_INLINE void pack_a_along(bool bf16, const struct matrix *a, int64_t i0, int64_t rows, int64_t k0, int64_t k,
                             float *out, float *sums) {
    const int64_t unit = pack_unit(bf16), units = pack_units(bf16, k), whole = k / unit / LANES * LANES;
    const int64_t size = bf16 ? 2 : 4, padded = round_up(rows, TILE_ROWS);
    for (int64_t i = 0; i < padded; i++, out += units + LANES) {
        if (i >= rows) {
            memset(out, 0, 4 * (size_t)units);
            continue;
        }
        const char *p = pack_element(bf16, a, i0 + i, k0);
        for (int64_t u = 0; u < whole; u += LANES)
            vec_store(out + u, pack_load_along(bf16, p + u * unit * size));
        for (int64_t u = whole; u < units; u++) {
            uint32_t x = pack_unit_along(bf16, p + u * unit * size, k - u * unit);
            memcpy(out + u, &x, 4);
        }
        if (sums)
            for (int64_t j = 0; j < k; j++)
                sums[i] += float_at(bf16, p, j);
    }
}

// One unit of LANES neighbours, of which `present` exist.
VEC_INLINE vec_f32 load_neighbours(bool bf16, const char *p, const char *next, int64_t present) {
    if (present >= LANES)
        return pack_load_across(bf16, p, next);
    vec_f32 v = {0};
    const int64_t size = bf16 ? 2 : 4;
    for (int64_t j = 0; j < present; j++) {
        uint32_t x = pack_unit_across(bf16, p + j * size, next ? next + j * size : NULL);
        memcpy((char *)&v + 4 * j, &x, 4);
    }
    return v;
}

// The sum of the elements of each unit.
VEC_INLINE vec_f32 unit_sum(bool bf16, vec_f32 v) {
    if (bf16 && TILE_PAIRS)
        return (vec_f32)((vec_u32)v << 16) + (vec_f32)((vec_u32)v & 0xffff0000u);
    return v;
}

// For matrix units: squares of LANES rows and units. Rows, which lie along the summed dimension, are cut into pieces.
VEC_INLINE void pack_a_squares(const struct matrix *a, int64_t i0, int64_t rows, int64_t k0, int64_t k, float *out,
                               float *sums) {
    const int64_t units = pack_units(true, k), whole = k / 2 / LANES * LANES;
    for (int64_t i = 0; i < round_up(rows, LANES); i++) {
        float *to = out + pack_a_row(true, units, i);
        if (i >= rows) {
            for (int64_t u = 0; u < units; u += LANES, to += LANES * LANES)
                vec_store(to, (vec_f32){0});
            continue;
        }
        const char *p = pack_element(true, a, i0 + i, k0);
        for (int64_t u = 0; u < whole; u += LANES, to += LANES * LANES)
            vec_store(to, pack_load_along(true, p + 4 * u));
        for (int64_t u = whole; u < units; u++) {
            uint32_t x = pack_unit_along(true, p + 4 * u, k - 2 * u);
            memcpy(to + u - whole, &x, 4);
        }
        for (int64_t j = 0; sums && j < k; j++)
            sums[i] += bf16_to_float(((const uint16_t *)p)[j]);
    }
}

// Packs one square from p on, of which `present` rows and `k` elements along the summed dimension exist, to `out`;
// returns the sums of the rows' elements.
VEC_INLINE vec_f32 pack_square(const char *p, int64_t row, int64_t present, int64_t k, float *out) {
    vec_f32 square[LANES], sum = {0};
    for (int64_t j = 0; j < LANES; j++, p += 2 * row) {
        const int64_t left = k - 2 * j;
        square[j] = left > 0 ? load_neighbours(true, p, left > 1 ? p + row : NULL, present) : (vec_f32){0};
        sum += unit_sum(true, square[j]);
    }
    tile_transpose(square);
    for (int64_t j = 0; j < LANES; j++, out += LANES)
        vec_store(out, square[j]);
    return sum;
}

// a lies across the summed dimension: squares are transposed. Their lines are far apart in memory: those of the next
// squares are prefetched, every second one for each square, since a cache line is two squares wide.
VEC_INLINE void pack_a_transposed(const struct matrix *a, int64_t i0, int64_t rows, int64_t k0, int64_t k, float *out,
                                  float *sums) {
    const int64_t units = pack_units(true, k), row = 2 * a->column;
    for (int64_t u = 0; u < units; u += LANES)
        for (int64_t i = 0; i < rows; i += LANES) {
            const char *p = pack_element(true, a, i0 + i, k0 + 2 * u);
            const int64_t present = MIN(rows - i, LANES), left = k - 2 * u;
            for (int64_t j = 2 * LANES + i / LANES % 2; j < MIN(left, 4 * LANES); j += 2)
                __builtin_prefetch(p + j * row);
            float *to = out + i * units + u * LANES;
            vec_f32 sum;
            if (present == LANES && left >= 2 * LANES)
                sum = pack_square(p, row, LANES, 2 * LANES, to);
            else
                sum = pack_square(p, row, present, left, to);
            for (int64_t j = 0; sums && j < present; j++)
                sums[i + j] += sum[j];
        }
}

// a lies across the summed dimension: TILE_ROWS neighbours of one unit after another. Units are far apart in memory,
// which no hardware prefetches: unless prefetched early, each would wait for memory.
VEC_INLINE void pack_a_across(bool bf16, const struct matrix *a, int64_t i0, int64_t rows, int64_t k0, int64_t k,
                              float *out, float *sums) {
    const int64_t unit = pack_unit(bf16), units = pack_units(bf16, k), row = (bf16 ? 2 : 4) * a->column;
    for (int64_t i = 0; i < rows; i += LANES) {
        const char *p = pack_element(bf16, a, i0 + i, k0);
        float *to = out + i / TILE_ROWS * pack_a_units(units);
        int64_t present = rows - i, tiles = MIN((present + TILE_ROWS - 1) / TILE_ROWS, LANES / TILE_ROWS);
        vec_f32 sum = {0};
        for (int64_t u = 0; u < units; u++, p += unit * row, to += TILE_ROWS) {
            const char *next = unit == 2 && u * 2 + 1 < k ? p + row : NULL;
            if ((u + AHEAD) * unit < k)
                __builtin_prefetch(p + AHEAD * unit * row);
            if (unit == 2 && (u + AHEAD) * unit + 1 < k)
                __builtin_prefetch(p + (AHEAD * unit + 1) * row);
            vec_f32 v = load_neighbours(bf16, p, next, present);
            for (int t = 0; t < tiles; t++)
                memcpy(to + t * pack_a_units(units), (const char *)&v + 4 * t * TILE_ROWS, 4 * TILE_ROWS);
            sum += unit_sum(bf16, v);
        }
        for (int64_t j = 0; sums && j < MIN(present, LANES); j++)
            sums[i + j] += sum[j];
    }
}

void ISA(pack_a)(bool bf16, const struct matrix *a, int64_t i0, int64_t rows, int64_t k0, int64_t k, float *out,
                 float *sums) {
    if (bf16 && TILE_MATRIX && a->column == 1)
        pack_a_squares(a, i0, rows, k0, k, out, sums);
    else if (bf16 && TILE_MATRIX)
        pack_a_transposed(a, i0, rows, k0, k, out, sums);
    else if (a->column == 1 && bf16)
        pack_a_along(true, a, i0, rows, k0, k, out, sums);
    else if (a->column == 1)
        pack_a_along(false, a, i0, rows, k0, k, out, sums);
    else if (bf16)
        pack_a_across(true, a, i0, rows, k0, k, out, sums);
    else
        pack_a_across(false, a, i0, rows, k0, k, out, sums);
}
