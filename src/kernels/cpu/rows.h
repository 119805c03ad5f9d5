// What the pointwise kernels share: rows of f32 or bf16, loops over their lanes, and the split of work over threads.
//
// A loop body is an inline function `body(i, count, ...)` that does elements i .. i+count-1, where count is LANES
// except at a row's end. `bf16` says what rows hold; it is a constant wherever these are inlined, so that each body
// exists once per dtype.
#ifndef KERNELS_CPU_ROWS_H
#define KERNELS_CPU_ROWS_H

#include <omp.h>

#include "base/bf16.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/vec.h"

// ---- rows

// Rows of a matrix, or pieces of a vector. `step` is in bytes.
struct rows {
    char *data;
    int64_t step;
};

VEC_INLINE struct rows rows_of(const struct tensor *t) {
    return (struct rows){t->data, t->stride[0] * dtype_size(t->dtype)};
}

VEC_INLINE void *row_at(struct rows rows, int64_t r) {
    return rows.data + r * rows.step;
}

// The part of a row that starts at element i.
VEC_INLINE void *row_part(const void *row, int64_t i, bool bf16) {
    return (char *)(uintptr_t)row + i * (bf16 ? 2 : 4);
}

// Prefetches a row that will be needed after the present one. Where much is computed between loads, too few of them are
// under way at once to keep memory busy.
VEC_INLINE void row_prefetch(const void *row, int64_t n, bool bf16) {
    for (int64_t at = 0, bytes = n * (bf16 ? 2 : 4); at < bytes; at += 64)
        __builtin_prefetch((const char *)row + at);
}

// Prefetches what lies 2 KiB after element i of a row.
VEC_INLINE void row_ahead(const void *row, int64_t i, bool bf16) {
    __builtin_prefetch((const char *)row_part(row, i, bf16) + 2048);
}

// Lanes from `count` on are zero.
VEC_INLINE vec_f32 row_load(const void *row, int64_t i, int count, bool bf16) {
    const void *p = row_part(row, i, bf16);
    if (count == LANES)
        return bf16 ? vec_load_bf16(p) : vec_load(p);
#if defined(__AVX512F__)
    __mmask16 mask = (__mmask16)((1u << count) - 1);
    if (bf16)
        return vec_from_bf16((vec_u16)_mm256_maskz_loadu_epi16(mask, p));
    return (vec_f32)_mm512_maskz_loadu_ps(mask, p);
#else
    if (bf16) {
        vec_u16 v = {0};
        memcpy(&v, p, (size_t)count * sizeof(uint16_t));
        return vec_from_bf16(v);
    }
    vec_f32 v = {0};
    memcpy(&v, p, (size_t)count * sizeof(float));
    return v;
#endif
}

VEC_INLINE void row_store(void *row, int64_t i, int count, vec_f32 v, bool bf16) {
    void *p = row_part(row, i, bf16);
    if (count == LANES) {
        if (bf16)
            vec_store_bf16(p, v);
        else
            vec_store(p, v);
        return;
    }
#if defined(__AVX512F__)
    __mmask16 mask = (__mmask16)((1u << count) - 1);
    if (bf16)
        _mm256_mask_storeu_epi16(p, mask, (__m256i)vec_to_bf16(v));
    else
        _mm512_mask_storeu_ps(p, mask, (__m512)v);
#else
    if (bf16) {
        vec_u16 narrow = vec_to_bf16(v);
        memcpy(p, &narrow, (size_t)count * sizeof(uint16_t));
    } else {
        memcpy(p, &v, (size_t)count * sizeof(float));
    }
#endif
}

// v with the lanes from `count` on set to zero.
VEC_INLINE vec_f32 vec_first(vec_f32 v, int count) {
    if (count == LANES)
        return v;
    vec_i32 mask = {0};
    for (int i = 0; i < LANES; i++)
        mask[i] = i < count ? -1 : 0;
    return (vec_f32)((vec_i32)v & mask);
}

// body(i, count, ...) over a row of n elements.
#define ROW_EACH(n, body, ...)                              \
    do {                                                    \
        int64_t row_i = 0, row_n = (n);                     \
        for (; row_i + LANES <= row_n; row_i += LANES)      \
            body(row_i, LANES, __VA_ARGS__);                \
        if (row_i < row_n)                                  \
            body(row_i, (int)(row_n - row_i), __VA_ARGS__); \
    } while (0)

// body(i, count, slot, ...) over a row of n elements, where the body adds to the sum of its slot (0 to 3): four
// chains of additions run side by side, in an order that n alone fixes.
enum { SLOTS = 4 };
#define ROW_SUM(n, body, ...)                                    \
    do {                                                         \
        int64_t row_i = 0, row_n = (n);                          \
        for (; row_i + 4 * LANES <= row_n; row_i += 4 * LANES) { \
            body(row_i, LANES, 0, __VA_ARGS__);                  \
            body(row_i + LANES, LANES, 1, __VA_ARGS__);          \
            body(row_i + 2 * LANES, LANES, 2, __VA_ARGS__);      \
            body(row_i + 3 * LANES, LANES, 3, __VA_ARGS__);      \
        }                                                        \
        for (; row_i + LANES <= row_n; row_i += LANES)           \
            body(row_i, LANES, 0, __VA_ARGS__);                  \
        if (row_i < row_n)                                       \
            body(row_i, (int)(row_n - row_i), 1, __VA_ARGS__);   \
    } while (0)

VEC_INLINE float slots_sum(const vec_f32 *slot) {
    return vec_sum((slot[0] + slot[1]) + (slot[2] + slot[3]));
}

// ---- threads

// Below this many elements a kernel stays on its thread: starting a team would cost more than it saves.
enum { SERIAL_ELEMENTS = 32768 };

// Calls body(args, from, to) so that all of [0, items) is covered: in more turns than there are threads, but none too
// short to pay. The team is always the whole one, even if some threads have nothing to do: OpenMP ends threads that a
// smaller team has no use for, and those that it makes for the next team are not pinned, or all on the first one's
// core.
enum { TURN_ELEMENTS = 16384, TURNS = 8 };
VEC_INLINE void run_split(const struct call *call, int64_t items, int64_t elements,
                          void (*body)(const void *args, int64_t from, int64_t to), const void *args) {
    const int64_t threads = call->threads;
    if (elements < SERIAL_ELEMENTS || items <= 1 || threads <= 1) {
        body(args, 0, items);
        return;
    }
    const int64_t turns = MIN(MIN(MAX(elements / TURN_ELEMENTS, threads), TURNS * threads), items);
#pragma omp parallel for num_threads((int)threads) schedule(dynamic)
    for (int64_t turn = 0; turn < turns; turn++)
        body(args, items * turn / turns, items * (turn + 1) / turns);
}

// Sums over many rows or elements are first taken within blocks, then over the blocks in order, so that the number of
// threads does not matter: at most `most` blocks of *block_length >= `least` (the last may be shorter). Returns how
// many there are.
VEC_INLINE int64_t blocks_of(int64_t count, int64_t least, int64_t most, int64_t *block_length) {
    *block_length = MAX(least, (count + most - 1) / most);
    return (count + *block_length - 1) / *block_length;
}

// ---- elementwise work

// Operands of one shape [m, c] or [n], cut into pieces: anywhere if all are contiguous, else by rows.
enum { PIECE_ELEMENTS = 4096, PIECES_MAX_OPERANDS = 3 };
struct pieces {
    int64_t count, length, last; // `last` is the length of the last piece
    struct rows rows[PIECES_MAX_OPERANDS];
};

VEC_INLINE struct pieces pieces_of(int operands, const struct tensor *const *operand) {
    const struct tensor *first = operand[0];
    int64_t rows = first->ndim == 1 ? 1 : first->dim[0];
    int64_t columns = first->dim[first->ndim - 1];
    bool contiguous = true;
    for (int k = 0; k < operands; k++)
        contiguous &= rows == 1 || operand[k]->stride[0] == columns;
    struct pieces pieces = {rows, columns, columns, {{0}}};
    if (contiguous) {
        int64_t n = rows * columns;
        pieces.count = divide_up(n, PIECE_ELEMENTS);
        pieces.length = PIECE_ELEMENTS;
        pieces.last = n - (pieces.count - 1) * PIECE_ELEMENTS;
    }
    for (int k = 0; k < operands; k++) {
        int64_t stride = contiguous ? PIECE_ELEMENTS : operand[k]->stride[0];
        pieces.rows[k] = (struct rows){operand[k]->data, stride * dtype_size(operand[k]->dtype)};
    }
    return pieces;
}

VEC_INLINE int64_t piece_length(const struct pieces *pieces, int64_t piece) {
    return piece == pieces->count - 1 ? pieces->last : pieces->length;
}

#endif
