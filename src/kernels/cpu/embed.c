// Embedding: rows of a table by number, and the table's gradient.
#include "kernels/cpu/pointwise.h"
#include "kernels/cpu/rows.h"

enum { COLUMN_GROUP = 64 }; // columns that one thread takes at a time: whole cache lines of f32

struct embed {
    bool bf16, accumulate;
    int64_t count, columns;
    const int32_t *ids;
    struct rows w, y; // y: also dy
    struct rows dw;
};

VEC_INLINE void add_lanes(int64_t i, int count, void *to, bool to_bf16, const void *from, bool from_bf16) {
    row_store(to, i, count, row_load(to, i, count, to_bf16) + row_load(from, i, count, from_bf16), to_bf16);
}

static void embed_rows(const void *args, int64_t from, int64_t to) {
    const struct embed *e = args;
    for (int64_t r = from; r < to; r++) {
        void *y = row_at(e->y, r);
        const void *w = row_at(e->w, e->ids[r]);
        if (!e->accumulate)
            memcpy(y, w, (size_t)e->columns * (e->bf16 ? 2 : 4));
        else if (e->bf16)
            ROW_EACH(e->columns, add_lanes, y, true, w, true);
        else
            ROW_EACH(e->columns, add_lanes, y, false, w, false);
    }
}

void ISA(cpu_embed)(const struct call *call) {
    const struct tensor *y = &call->out[0];
    struct embed e = {
        .bf16 = y->dtype == DTYPE_BF16,
        .accumulate = call->accumulate,
        .columns = y->dim[1],
        .ids = call->in[0].data,
        .w = rows_of(&call->in[1]),
        .y = rows_of(y),
    };
    run_split(call, y->dim[0], y->dim[0] * y->dim[1], embed_rows, &e);
}

static void zero_rows(const void *args, int64_t from, int64_t to) {
    const struct embed *e = args;
    for (int64_t v = from; v < to; v++)
        memset(row_at(e->dw, v), 0, (size_t)e->columns * sizeof(float));
}

// Items are groups of columns, so that each element of dw gets its terms in the order of the rows.
static void add_groups(const void *args, int64_t from, int64_t to) {
    const struct embed *e = args;
    int64_t column = from * COLUMN_GROUP, columns = MIN(to * COLUMN_GROUP, e->columns) - column;
    for (int64_t r = 0; r < e->count; r++) {
        float *dw = (float *)row_at(e->dw, e->ids[r]) + column;
        if (e->bf16)
            ROW_EACH(columns, add_lanes, dw, false, row_part(row_at(e->y, r), column, true), true);
        else
            ROW_EACH(columns, add_lanes, dw, false, row_part(row_at(e->y, r), column, false), false);
    }
}

void ISA(cpu_embed_dw)(const struct call *call) {
    const struct tensor *dy = &call->in[1], *dw = &call->out[0];
    struct embed e = {
        .bf16 = dy->dtype == DTYPE_BF16,
        .count = dy->dim[0],
        .columns = dy->dim[1],
        .ids = call->in[0].data,
        .y = rows_of(dy),
        .dw = rows_of(dw),
    };
    if (!call->accumulate)
        run_split(call, dw->dim[0], dw->dim[0] * dw->dim[1], zero_rows, &e);
    run_split(call, (e.columns + COLUMN_GROUP - 1) / COLUMN_GROUP, e.count * e.columns, add_groups, &e);
}
