// Which elements of a root buffer an operand touches, and which of them have been written.
#ifndef PROGRAM_FOOTPRINT_H
#define PROGRAM_FOOTPRINT_H

#include "program/program.h"

// Rows [first_row, last_row) of width `stride`, columns [begin, end) of each. A contiguous range is one row: stride 0.
struct footprint {
    int64_t stride, first_row, last_row, begin, end;
};

// Elements counted from the root's start. False for a view that is neither contiguous nor a band of columns.
bool footprint_of(const struct program *program, const struct operand *operand, struct footprint *out);
// What the operand touches on any rank: where each rank has its own part of a buffer, all the parts.
bool footprint_of_all_ranks(const struct program *program, const struct operand *operand, struct footprint *out);
// True also where it cannot be told: bands of different widths, or a band and a range, whose extents overlap.
bool footprint_overlap(const struct footprint *a, const struct footprint *b);
// Whether all of b lies in a.
bool footprint_contains(const struct footprint *a, const struct footprint *b);
bool footprint_equal(const struct footprint *a, const struct footprint *b);

// What of one buffer has been written, and what of that has been read since. Zero-initialise.
struct written {
    VEC(struct written_range) ranges; // ascending and disjoint, for binary search: a head may have thousands of pieces
    VEC(struct written_band) bands;
};
struct written_range {
    int64_t begin, end;
    bool read;
};
struct written_band {
    struct footprint where;
    bool read;
};

void written_add(struct written *written, struct footprint where);
// Whether all of `where` has been written.
bool written_covers(const struct written *written, const struct footprint *where);
void written_mark_read(struct written *written, const struct footprint *where);
// Whether `where` overlaps something written that nobody has read; whether it overlaps something that has been read.
bool written_unread(const struct written *written, const struct footprint *where);
bool written_read(const struct written *written, const struct footprint *where);
void written_clear(struct written *written);
void written_release(struct written *written);

#endif
