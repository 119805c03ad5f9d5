// Embedding: rows of a table by number, and the table's gradient.
#include "kernels/cpu/pointwise.h"
#include "kernels/cpu/rows.h"

enum { COLUMN_GROUP = 64 }; // columns that one thread takes at a time: whole cache lines of f32

struct embed {
    bool bf16, accumulate;
    int64_t count, columns;
    const int32_t *ids;
    int32_t first;    // the table's rows are those of ids [first, first + rows);
    int64_t rows;     // other ranks have the others
    struct rows w, y; // y: also dy
    struct rows dw;
};

VEC_INLINE void add_lanes(int64_t i, int count, void *to, bool to_bf16, const void *from, bool from_bf16) {
    row_store(to, i, count, row_load(to, i, count, to_bf16) + row_load(from, i, count, from_bf16), to_bf16);
}

static struct embed embed_of(const struct call *call, const struct tensor *y, int64_t rows) {
    const int32_t *first = call->in[2].data;
    return (struct embed){
        .bf16 = y->dtype == DTYPE_BF16,
        .accumulate = call->accumulate,
        .count = y->dim[0],
        .columns = y->dim[1],
        .ids = call->in[0].data,
        .first = first ? *first : 0,
        .rows = rows,
        .y = rows_of(y),
    };
}

// The table's row for id number r, -1 where this rank does not have it.
static int64_t embed_picked_row(const struct embed *e, int64_t r) {
    int64_t row = (int64_t)e->ids[r] - e->first;
    return row >= 0 && row < e->rows ? row : -1;
}

static void embed_rows(const void *args, int64_t from, int64_t to) {
    const struct embed *e = args;
    for (int64_t r = from; r < to; r++) {
        void *y = row_at(e->y, r);
        const int64_t row = embed_picked_row(e, r), bytes = e->columns * (e->bf16 ? 2 : 4);
        if (row < 0) {
            if (!e->accumulate)
                memset(y, 0, (size_t)bytes);
            continue;
        }
        const void *w = row_at(e->w, row);
        if (!e->accumulate)
            memcpy(y, w, (size_t)bytes);
        else if (e->bf16)
            ROW_EACH(e->columns, add_lanes, y, true, w, true);
        else
            ROW_EACH(e->columns, add_lanes, y, false, w, false);
    }
}

void ISA(cpu_embed)(const struct call *call) {
    const struct tensor *y = &call->out[0];
    struct embed e = embed_of(call, y, call->in[1].dim[0]);
    e.w = rows_of(&call->in[1]);
    run_split(call, y->dim[0], y->dim[0] * y->dim[1], embed_rows, &e);
}

static void zero_rows(const void *args, int64_t from, int64_t to) {
    const struct embed *e = args;
    for (int64_t v = from; v < to; v++)
        memset(row_at(e->dw, v), 0, (size_t)e->columns * sizeof(float));
}

// Threads split the columns into groups, so that each element of dw gets its terms in the order of the rows.
static void add_groups(const void *args, int64_t from, int64_t to) {
    const struct embed *e = args;
    int64_t column = from * COLUMN_GROUP, columns = MIN(to * COLUMN_GROUP, e->columns) - column;
    for (int64_t r = 0; r < e->count; r++) {
        const int64_t row = embed_picked_row(e, r);
        if (row < 0)
            continue;
        float *dw = (float *)row_at(e->dw, row) + column;
        if (e->bf16)
            ROW_EACH(columns, add_lanes, dw, false, row_part(row_at(e->y, r), column, true), true);
        else
            ROW_EACH(columns, add_lanes, dw, false, row_part(row_at(e->y, r), column, false), false);
    }
}

void ISA(cpu_embed_dw)(const struct call *call) {
    const struct tensor *dy = &call->in[1], *dw = &call->out[0];
    struct embed e = embed_of(call, dy, dw->dim[0]);
    e.dw = rows_of(dw);
    if (!call->accumulate)
        run_split(call, dw->dim[0], dw->dim[0] * dw->dim[1], zero_rows, &e);
    run_split(call, divide_up(e.columns, COLUMN_GROUP), e.count * e.columns, add_groups, &e);
}
