// What ranks hold of every part of every buffer, followed from instruction to instruction. Internal to program/.
//
// Along one axis of the mesh all ranks hold the same, or each has a part of what is whole along one dim, or what they
// hold adds up. A split dim is known by where it lies in memory, so that any view of the part can tell which of its
// own dims it is.
#ifndef PROGRAM_PLACEMENT_H
#define PROGRAM_PLACEMENT_H

#include "program/footprint.h"

enum holds {
    HOLDS_SAME,
    HOLDS_ZERO,  // whatever one likes
    HOLDS_SUM,   // the value is the sum of what the ranks hold
    HOLDS_MAX,   // or the maximum
    HOLDS_BLOCK, // rank i has the i-th block of the outermost dim; joint AXES_NONE: each stage something of its own
    HOLDS_BAND,  // a part along another dim
};

struct held {
    enum holds holds;
    axis_set joint;         // parts: the axes along which this dim is split; ranks have them by their index among these
    int64_t stride, extent; // band: elements from one index of the dim to the next, indices that one rank has
};

struct part {
    struct footprint where;
    axis_set own; // not AXES_NONE: of `where` each rank has a part of its own, by its index along these axes; the rest
                  // of it is not to be looked at
    struct held along[AXIS_COUNT];
};

// What an operand is along one axis.
enum seen_as { SEEN_SAME, SEEN_ZERO, SEEN_SUM, SEEN_MAX, SEEN_SPLIT };
struct seen {
    enum seen_as as;
    int dim; // split: the operand's
    axis_set joint;
};

struct placement {
    const struct program *program;
    axis_set axes; // that have more than one rank
    struct parts {
        VEC(struct part);
    } * of;           // [buffers]: of the roots
    int *first_slice; // [buffers]: of a flat buffer of tensors, its first slice; NONE
    int *next_slice;  // [buffers]: the one behind it
    uint64_t hash;    // of all parts
};

// Whether the ranks along `group` have neighbouring blocks of what is split along `joint`, so that together they have
// a block of what the rest of `joint` splits.
bool placement_nests(axis_set group, axis_set joint);

// Begins with what the buffers that the host or the last step wrote are declared to hold.
void placement_create(struct placement *placement, const struct program *program);
void placement_release(struct placement *placement);
// Forgets what a root buffer holds.
void placement_clear(struct placement *placement, int root);
// Whether the root buffer holds what it is declared to; else *axis is one along which it does not, AXIS_COUNT where
// ranks have but their own parts of it.
bool placement_as_declared(const struct placement *placement, int root, int *axis);

// What `operand` is along each axis; `letters` are those of its dims in ops.def. A refusal says what of the buffer is
// wrong, not where.
trireme_status placement_read(const struct placement *placement, const struct operand *operand, const char *letters,
                              struct seen seen[AXIS_COUNT], trireme_error *error);
trireme_status placement_write(struct placement *placement, const struct operand *operand,
                               const struct seen seen[AXIS_COUNT], trireme_error *error);
// `out` takes over what `in` holds, part by part, both [elements]; along `group`, `to` instead.
trireme_status placement_copy(struct placement *placement, const struct operand *in, const struct operand *out,
                              axis_set group, enum holds to, trireme_error *error);
// Writes a buffer as it is declared, or as `seen` says of its dims.
void placement_write_buffer(struct placement *placement, int buffer, const struct seen *seen);

#endif
