// Rotary position embedding (Su et al., "RoFormer", 2021): element i and element i + D/2 of each leading head are a
// pair that is turned by the angle of position and i. The gradient is turned back by the same angle. Heads may be wider
// than D: the rest of their elements stays.
#include "kernels/cpu/pointwise.h"
#include "kernels/cpu/rows.h"

struct rope {
    bool bf16, back;
    int64_t heads, half, width, columns; // half: D/2; width: of a head
    struct rows x, y, table;             // a row of the table: D/2 cosines, D/2 sines
    const int32_t *position;
};

VEC_INLINE void rotate_lanes(int64_t i, int count, void *y, const void *x, const float *turn, int64_t half, bool back,
                             bool bf16) {
    vec_f32 a = row_load(x, i, count, bf16), b = row_load(x, i + half, count, bf16);
    vec_f32 c = row_load(turn, i, count, false), s = row_load(turn, i + half, count, false);
    if (back)
        s = -s;
    row_store(y, i, count, a * c - b * s, bf16);
    row_store(y, i + half, count, b * c + a * s, bf16);
}

VEC_INLINE void rope_row(const struct rope *rope, int64_t r, bool back, bool bf16) {
    const void *x = row_at(rope->x, r);
    void *y = row_at(rope->y, r);
    const float *turn = row_at(rope->table, rope->position[r]);
    row_prefetch(row_at(rope->x, r + 1), rope->columns, bf16);
    int64_t half = rope->half, width = rope->width, rotated = rope->heads * width;
    for (int64_t h = 0; h < rope->heads; h++)
        ROW_EACH(half, rotate_lanes, row_part(y, h * width, bf16), row_part(x, h * width, bf16), turn, half, back,
                 bf16);
    for (int64_t h = 0; h < rope->heads && width > 2 * half && y != x; h++)
        memcpy(row_part(y, h * width + 2 * half, bf16), row_part(x, h * width + 2 * half, bf16),
               (size_t)(width - 2 * half) * (bf16 ? 2 : 4));
    if (y != x)
        memcpy(row_part(y, rotated, bf16), row_part(x, rotated, bf16),
               (size_t)(rope->columns - rotated) * (bf16 ? 2 : 4));
}

static void rope_rows(const void *args, int64_t from, int64_t to) {
    const struct rope *rope = args;
    for (int64_t r = from; r < to; r++) {
        if (rope->bf16)
            rope->back ? rope_row(rope, r, true, true) : rope_row(rope, r, false, true);
        else
            rope->back ? rope_row(rope, r, true, false) : rope_row(rope, r, false, false);
    }
}

static void rope_call(const struct call *call, bool back) {
    const struct tensor *x = &call->in[0], *table = &call->in[2];
    struct rope rope = {
        .bf16 = x->dtype == DTYPE_BF16,
        .back = back,
        .heads = call->attribute[0].i,
        .half = table->dim[1] / 2,
        .width = call->attribute[1].i ?: table->dim[1],
        .columns = x->dim[1],
        .x = rows_of(x),
        .y = rows_of(&call->out[0]),
        .table = rows_of(table),
        .position = call->in[1].data,
    };
    run_split(call, x->dim[0], x->dim[0] * x->dim[1], rope_rows, &rope);
}

void ISA(cpu_rope)(const struct call *call) {
    rope_call(call, false);
}

void ISA(cpu_rope_dx)(const struct call *call) {
    rope_call(call, true);
}
