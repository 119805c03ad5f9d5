#include "program/footprint.h"

// Whether the dims are in order, from the outermost to the innermost: a view may permute them.
static bool is_by_stride(const struct operand *o) {
    for (int i = 1; i < o->ndim; i++)
        if (o->stride[i - 1] < o->stride[i])
            return false;
    return true;
}

// The same elements with the dims in order.
static struct operand by_stride(const struct operand *operand) {
    struct operand o = *operand;
    for (int i = 1; i < o.ndim; i++)
        for (int k = i; k > 0 && o.stride[k - 1] < o.stride[k]; k--) {
            const int64_t dim = o.dim[k], stride = o.stride[k];
            o.dim[k] = o.dim[k - 1], o.stride[k] = o.stride[k - 1];
            o.dim[k - 1] = dim, o.stride[k - 1] = stride;
        }
    return o;
}

// Of an operand whose dims are in order.
static bool footprint_in_order(const struct program *program, const struct operand *operand, struct footprint *out) {
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

bool footprint_of(const struct program *program, const struct operand *view, struct footprint *out) {
    if (is_by_stride(view))
        return footprint_in_order(program, view, out);
    const struct operand sorted = by_stride(view);
    return footprint_in_order(program, &sorted, out);
}

static int64_t footprint_lowest(const struct footprint *f) {
    return f->first_row * f->stride + f->begin;
}

static int64_t footprint_highest(const struct footprint *f) {
    return (f->last_row - 1) * f->stride + f->end;
}

bool footprint_of_all_ranks(const struct program *p, const struct operand *operand, struct footprint *out) {
    if (!operand->along)
        return footprint_of(p, operand, out);
    struct operand all = *operand;
    all.dim[0] *= mesh_group_size(&p->mesh, all.along);
    return footprint_of(p, &all, out);
}

bool footprint_overlap(const struct footprint *a, const struct footprint *b) {
    if (footprint_lowest(a) >= footprint_highest(b) || footprint_lowest(b) >= footprint_highest(a))
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
        return a->begin <= footprint_lowest(b) && footprint_highest(b) <= a->end;
    return a->stride == b->stride && a->first_row <= b->first_row && b->last_row <= a->last_row &&
           a->begin <= b->begin && b->end <= a->end;
}

// The first range that ends after `at`.
static size_t range_behind(const struct written *w, int64_t at) {
    return PARTITION_POINT(i, w->ranges.count, w->ranges.item[i].end <= at);
}

// Puts `count` ranges, at most 3, in place of ranges [first, last).
static void replace_ranges(struct written *w, size_t first, size_t last, const struct written_range *by, size_t count) {
    const size_t behind = w->ranges.count - last;
    for (size_t i = 0; i < count; i++) // room
        VEC_PUSH(&w->ranges, by[i]);
    memmove(&w->ranges.item[first + count], &w->ranges.item[last], behind * sizeof *by);
    memcpy(&w->ranges.item[first], by, count * sizeof *by);
    w->ranges.count = first + count + behind;
}

static void add_range(struct written *w, int64_t begin, int64_t end) {
    size_t kept = 0;
    const struct footprint where = {0, 0, 1, begin, end};
    for (size_t i = 0; i < w->bands.count; i++)
        if (!footprint_contains(&where, &w->bands.item[i].where))
            w->bands.item[kept++] = w->bands.item[i];
    w->bands.count = kept;
    size_t first = range_behind(w, begin), last = first, count = 0;
    while (last < w->ranges.count && w->ranges.item[last].begin < end)
        last++;
    struct written_range by[3]; // what stays of the first, the new one, what stays of the last
    if (first < last && w->ranges.item[first].begin < begin)
        by[count++] = (struct written_range){w->ranges.item[first].begin, begin, w->ranges.item[first].read};
    by[count++] = (struct written_range){begin, end, false};
    if (first < last && w->ranges.item[last - 1].end > end)
        by[count++] = (struct written_range){end, w->ranges.item[last - 1].end, w->ranges.item[last - 1].read};
    replace_ranges(w, first, last, by, count);
}

void written_add(struct written *w, struct footprint where) {
    if (where.stride == 0) {
        add_range(w, where.begin, where.end);
        return;
    }
    size_t kept = 0;
    for (size_t i = 0; i < w->bands.count; i++)
        if (!footprint_contains(&where, &w->bands.item[i].where))
            w->bands.item[kept++] = w->bands.item[i];
    w->bands.count = kept;
    VEC_PUSH(&w->bands, (struct written_band){where, false});
    // Bands of the same rows that together fill the row are a range.
    struct footprint row = where;
    row.begin = 0, row.end = where.stride;
    if (written_covers(w, &row))
        add_range(w, where.first_row * where.stride, where.last_row * where.stride);
}

// Whether bands of the rows of `where`, side by side, cover its columns.
static bool bands_cover(const struct written *w, const struct footprint *where) {
    int64_t at = where->begin;
    for (bool grew = true; grew && at < where->end;) {
        grew = false;
        for (size_t i = 0; i < w->bands.count; i++) {
            const struct footprint *p = &w->bands.item[i].where;
            bool same =
                p->stride == where->stride && p->first_row <= where->first_row && where->last_row <= p->last_row;
            if (same && p->begin <= at && at < p->end) {
                at = p->end;
                grew = true;
            }
        }
    }
    return at >= where->end;
}

bool written_covers(const struct written *w, const struct footprint *where) {
    int64_t at = footprint_lowest(where), end = footprint_highest(where);
    for (size_t i = range_behind(w, at); i < w->ranges.count && at < end && w->ranges.item[i].begin <= at; i++)
        at = w->ranges.item[i].end;
    return at >= end || (where->stride != 0 && bands_cover(w, where));
}

void written_mark_read(struct written *w, const struct footprint *where) {
    for (size_t i = range_behind(w, footprint_lowest(where));
         i < w->ranges.count && w->ranges.item[i].begin < footprint_highest(where); i++)
        w->ranges.item[i].read = true;
    for (size_t i = 0; i < w->bands.count; i++)
        w->bands.item[i].read |= footprint_overlap(&w->bands.item[i].where, where);
}

// Whether `where` overlaps something written that has been read (`read`), or that has not been.
static bool footprint_overlaps(const struct written *w, const struct footprint *where, bool read) {
    for (size_t i = range_behind(w, footprint_lowest(where));
         i < w->ranges.count && w->ranges.item[i].begin < footprint_highest(where); i++)
        if (w->ranges.item[i].read == read)
            return true;
    for (size_t i = 0; i < w->bands.count; i++)
        if (w->bands.item[i].read == read && footprint_overlap(&w->bands.item[i].where, where))
            return true;
    return false;
}

bool written_unread(const struct written *w, const struct footprint *where) {
    return footprint_overlaps(w, where, false);
}

bool written_read(const struct written *w, const struct footprint *where) {
    return footprint_overlaps(w, where, true);
}

void written_clear(struct written *w) {
    w->ranges.count = w->bands.count = 0;
}

void written_release(struct written *w) {
    VEC_RELEASE(&w->ranges);
    VEC_RELEASE(&w->bands);
}
