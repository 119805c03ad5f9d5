// What ranks hold of every part of every buffer, followed from instruction to instruction. Internal to verify/.
//
// Along one axis of the mesh all ranks hold the same, or each holds a part of a whole along one dim, or what they hold
// adds up. A split dim is recorded by where it lies in memory, so that any view of the part can tell which of its own
// dims that is.
#ifndef VERIFY_PLACEMENT_H
#define VERIFY_PLACEMENT_H

#include "program/footprint.h"

enum holds {
    HOLDS_SAME,
    HOLDS_ZERO,  // zeros, which may count as the same, or as a partial sum
    HOLDS_SUM,   // the value is the sum of what the ranks hold
    HOLDS_MAX,   // or the maximum
    HOLDS_BLOCK, // rank i has the i-th block of the outermost dim; joint 0: each something of its own
    HOLDS_BAND,  // a part along another dim
};

// The axes that split a dim, and in which order: the last one's blocks lie within those of the ones before it, so that
// a rank's coordinates, read as digits, say which block it has. Each axis is a number of LEVEL_BITS, the last lowest.
typedef uint64_t axis_order;
enum { LEVEL_BITS = 5, LEVELS_MAX = 12 };
_Static_assert((int)AXIS_COUNT < 1 << LEVEL_BITS && (int)AXES_PRESENT_MAX <= (int)LEVELS_MAX, "as large as in memory");
// The order in which mesh_index counts: the first axes are within the others.
axis_order order_of(axis_set axes);
// That of blocks of `axes` within what is split already.
axis_order order_within(axis_order outer, axis_set axes);
// Whether the innermost blocks are those of `axes`, in the order of their ranks: so that together these have one block
// of what the other axes split.
bool order_ends_with(axis_order order, axis_set axes);
// Without these axes.
axis_order order_without(axis_order order, axis_set axes);
int order_levels(axis_order order);

struct held {
    enum holds holds;
    axis_order joint;       // blocks and bands: the axes that split this dim
    int64_t stride, extent; // band: elements from one index of the dim to the next; how many indices one rank has
};

// What is held is kept once, by number: there are few of them, and many parts. Number 0 is HOLDS_SAME.
struct held_table {
    VEC(struct held) held;
    uint32_t *number; // [slots]: a hash table of 1 + number
    size_t slots;     // a power of two
};

struct part {
    struct footprint where;
    axis_set own; // not AXES_NONE: each rank has only its own part of `where`, by its index along these axes; the rest
                  // must not be read
    uint32_t along[AXIS_COUNT]; // numbers of struct held_table
};

// What an operand is along one axis.
enum seen_as { SEEN_SAME, SEEN_ZERO, SEEN_SUM, SEEN_MAX, SEEN_SPLIT };
struct seen {
    enum seen_as as;
    int dim; // split: the operand's
    axis_order joint;
};

struct placement {
    const struct program *program;
    axis_set axes; // that have more than one rank
    struct parts {
        VEC(struct part);
    } * of;           // [buffers]: of root buffers
    bool *updating;   // [buffers]: LOCAL root buffers of the optimizer's templates, which hold elements of units
    int *first_slice; // [buffers]: of a flat buffer of tensors, its first tensor; NONE
    int *next_slice;  // [buffers]: of a tensor, the next one; NONE
    uint64_t hash;    // of all parts
    struct held_table *table;
};
// What the part is along an axis.
static inline struct held part_held(const struct placement *placement, const struct part *part, int axis) {
    return placement->table->held.item[part->along[axis]];
}

// Rows that ranks have sent one another, as many as the counts in a buffer say, are split along all axes that split
// them, but no longer in the order of the whole: so they may meet only rows that were sent alike. `joint` then is no
// order of axes, but names these axes and the buffer.
#define ROWS_SENT ((axis_order)1 << 63)
static inline axis_order joint_sent(axis_set axes, int counts) {
    return ROWS_SENT | (axis_order)(unsigned)counts << 32 | axes;
}

// Whether a root buffer has rows of tokens, rather than elements of parameters.
bool placement_of_rows(const struct placement *placement, int root);
// The axes along which a dim of the root buffer may be split together with `axis`: data axes together, but in
// activations, where parts of sequences are apart from other sequences; tensor ranks also with the stages, where these
// have parts of one whole.
axis_set placement_family(const struct placement *placement, int root, int axis);
// What ranks hold of a buffer along an axis as it is declared.
struct held placement_declared(const struct placement *placement, int buffer, int axis);

// Begins with what is declared of the buffers that the host or the last step wrote.
void placement_create(struct placement *placement, const struct program *program);
void placement_release(struct placement *placement);
// Forgets what a root buffer holds.
void placement_clear(struct placement *placement, int root);
// Whether the root buffer holds what it is declared to; if not, *axis is an axis along which it does not, or AXIS_COUNT
// where ranks have only their own parts of it.
bool placement_as_declared(const struct placement *placement, int root, int *axis);

// What `operand` is along each axis; `letters` are those of its dims in ops.def. A refusal says what is wrong with the
// buffer; the caller adds the instruction.
trireme_status placement_read(const struct placement *placement, const struct operand *operand, const char *letters,
                              struct seen seen[AXIS_COUNT], trireme_error *error);
trireme_status placement_write(struct placement *placement, const struct operand *operand,
                               const struct seen seen[AXIS_COUNT], trireme_error *error);
// `out` takes over what `in` holds, part by part, both [elements]; along the axes of `group` it holds `to` instead.
trireme_status placement_copy(struct placement *placement, const struct operand *in, const struct operand *out,
                              axis_set group, enum holds to, trireme_error *error);
// Records that all of a buffer is written: as it is declared (`seen` NULL), or as `seen` says of its dims.
void placement_write_buffer(struct placement *placement, int buffer, const struct seen *seen);

#endif
