#include "program/footprint.h"

bool footprint_of(const struct program *program, const struct operand *operand, struct footprint *out) {
    int64_t base = program_root_offset(program, operand->buffer) + operand->offset;
    int64_t inner = 1, rows = 1, stride = 0;
    int i = operand->ndim - 1;
    for (; i >= 0 && (operand->dim[i] == 1 || operand->stride[i] == inner); i--)
        inner *= operand->dim[i];
    for (; i >= 0; i--) {
        if (operand->dim[i] == 1)
            continue;
        if (stride == 0)
            stride = operand->stride[i];
        else if (operand->stride[i] != stride * rows)
            return false;
        rows *= operand->dim[i];
    }
    if (stride == 0) {
        *out = (struct footprint){0, 0, 1, base, base + inner};
        return true;
    }
    int64_t column = base % stride;
    if (stride < inner || column + inner > stride)
        return false;
    *out = (struct footprint){stride, base / stride, base / stride + rows, column, column + inner};
    return true;
}

static int64_t lowest(const struct footprint *f) {
    return f->first_row * f->stride + f->begin;
}

static int64_t highest(const struct footprint *f) {
    return (f->last_row - 1) * f->stride + f->end;
}

bool footprint_of_all_ranks(const struct program *p, const struct operand *operand, struct footprint *out) {
    struct operand all = *operand;
    if (all.along)
        all.dim[0] *= mesh_group_size(&p->mesh, all.along);
    return footprint_of(p, &all, out);
}

bool footprint_overlap(const struct footprint *a, const struct footprint *b) {
    if (lowest(a) >= highest(b) || lowest(b) >= highest(a))
        return false;
    if (a->stride == 0 && b->stride == 0)
        return true;
    if (a->stride == b->stride)
        return a->begin < b->end && b->begin < a->end;
    return true; // bands of different widths, or a band and a range: assume the worst
}

bool footprint_equal(const struct footprint *a, const struct footprint *b) {
    return a->stride == b->stride && a->first_row == b->first_row && a->last_row == b->last_row &&
           a->begin == b->begin && a->end == b->end;
}

bool footprint_contains(const struct footprint *a, const struct footprint *b) {
    if (a->stride == 0)
        return a->begin <= lowest(b) && highest(b) <= a->end;
    return a->stride == b->stride && a->first_row <= b->first_row && b->last_row <= a->last_row &&
           a->begin <= b->begin && b->end <= a->end;
}

void written_add(struct written *w, struct footprint where) {
    size_t kept = 0;
    for (size_t i = 0; i < w->parts.count; i++)
        if (!footprint_contains(&where, &w->parts.item[i].where))
            w->parts.item[kept++] = w->parts.item[i];
    w->parts.count = kept;
    VEC_PUSH(&w->parts, (struct written_part){where, false});
    // Bands of the same rows that together fill the row are a range.
    if (where.stride == 0)
        return;
    struct footprint row = where;
    row.begin = 0, row.end = where.stride;
    if (written_covers(w, &row))
        written_add(w, (struct footprint){0, 0, 1, where.first_row * where.stride, where.last_row * where.stride});
}

// The furthest that written parts reach without a gap from `at` on, at most `end`.
static int64_t reach(const struct written *w, const struct footprint *rows, int64_t at, int64_t end) {
    for (bool grew = true; grew && at < end;) {
        grew = false;
        for (size_t i = 0; i < w->parts.count; i++) {
            const struct footprint *p = &w->parts.item[i].where;
            bool same = p->stride == rows->stride &&
                        (p->stride == 0 || (p->first_row <= rows->first_row && rows->last_row <= p->last_row));
            if (same && p->begin <= at && at < p->end) {
                at = p->end;
                grew = true;
            }
        }
    }
    return at;
}

bool written_covers(const struct written *w, const struct footprint *where) {
    for (size_t i = 0; i < w->parts.count; i++)
        if (footprint_contains(&w->parts.item[i].where, where))
            return true;
    if (reach(w, where, where->begin, where->end) >= where->end)
        return true;
    struct footprint range = {0, 0, 1, lowest(where), highest(where)};
    return where->stride != 0 && reach(w, &range, range.begin, range.end) >= range.end;
}

void written_mark_read(struct written *w, const struct footprint *where) {
    for (size_t i = 0; i < w->parts.count; i++)
        w->parts.item[i].read |= footprint_overlap(&w->parts.item[i].where, where);
}

bool written_unread(const struct written *w, const struct footprint *where) {
    for (size_t i = 0; i < w->parts.count; i++)
        if (!w->parts.item[i].read && footprint_overlap(&w->parts.item[i].where, where))
            return true;
    return false;
}

void written_clear(struct written *w) {
    w->parts.count = 0;
}
