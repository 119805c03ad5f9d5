// mesh/: how ranks are arranged: axes, coordinates, groups. Knows no MPI and no program. Includes base/ only.
//
// Ranks are numbered with the axes in the order of enum axis, the first varying fastest: tensor ranks are neighbours,
// then data, then pipeline, then islands. A *group* along some axes is a set of ranks that share all coordinates along
// the other axes; a rank's *index* in it counts along the group's axes, again the first fastest.
//
// What users call an axis may be a product of several: its factors are axes here, each with a degree of its own. The
// same ranks may be factored in more than one way; then each factorisation's axes are sets of the finest factors.
#ifndef MESH_MESH_H
#define MESH_MESH_H

#include "base/base.h"

enum axis {
#define AXIS(id, name, roles, key) AXIS_##id,
#include "mesh/axes.def"
#undef AXIS
    AXIS_COUNT
};

// What ranks that differ along an axis have.
enum axis_role {
    AXIS_IS_TENSOR = 1 << 0,    // parts of each layer
    AXIS_IS_ROWS = 1 << 1,      // other tokens of the batch: gradients are summed over them
    AXIS_IS_SEQUENCES = 1 << 2, // other sequences of the batch
    AXIS_IS_SHARD = 1 << 3,     // parts of the states, where these are sharded
    AXIS_IS_STAGE = 1 << 4,     // other layers, with programs of their own
    AXIS_IS_ISLAND = 1 << 5,    // values of their own, from training on other sequences of the batch by themselves
};
// The roles of each axis, which its factors share.
enum {
#define AXIS(id, name, roles, key) ROLES_##id = (roles),
#include "mesh/axes.def"
#undef AXIS
};

// A set of axes, one bit each.
typedef unsigned axis_set;
#define AXES(axis) (1u << (axis))
// All factors of each axis, as constants: AXES_FSDP.
enum {
    AXES_NONE = 0
#define AXIS(id, name, roles, key) , AXES_##id = 1 << AXIS_##id
#define DERIVED_AXIS(id, name, roles) AXIS(id, name, roles, )
#define FACTOR(id, name, of) | 1 << AXIS_##id
#include "mesh/axes.def"
#undef AXIS
};
// The axes of a role.
enum {
    AXES_ALL = (1 << AXIS_COUNT) - 1,
#define AXIS(id, name, roles, key) | ((roles)&ROLE ? 1 << AXIS_##id : 0)
#define ROLE AXIS_IS_TENSOR
    AXES_TENSOR = 0
#include "mesh/axes.def"
#undef ROLE
#define ROLE AXIS_IS_ROWS
    ,
    AXES_DATA = 0
#include "mesh/axes.def"
#undef ROLE
#define ROLE AXIS_IS_SEQUENCES
    ,
    AXES_SEQUENCES = 0
#include "mesh/axes.def"
#undef ROLE
#define ROLE AXIS_IS_SHARD
    ,
    AXES_SHARD = 0
#include "mesh/axes.def"
#undef ROLE
#define ROLE AXIS_IS_STAGE
    ,
    AXES_STAGE = 0
#include "mesh/axes.def"
#undef ROLE
#undef AXIS
    ,
    // Along these, ranks have parts of the same sequences, in their order.
    AXES_PARTS = AXES_DATA & ~AXES_SEQUENCES,
    // Along these, they have other sequences, or other tokens, of the global batch.
    AXES_BATCH = AXES_SEQUENCES | AXES_ISLAND,
    AXES_TOKENS = AXES_DATA | AXES_ISLAND,
    // The ranks that differ along these alone are an island.
    AXES_WITHIN = AXES_ALL & ~AXES_ISLAND,
    // Along these, what a rank has may be part of no whole (PLACE_OWN).
    AXES_OWN = AXES_STAGE | AXES_ISLAND
};

enum { AXES_PRESENT_MAX = 12 }; // how many axes may have more than one rank
struct mesh {
    int degree[AXIS_COUNT]; // >= 1
};

// The mesh of one rank.
struct mesh mesh_single(void);
int mesh_ranks(const struct mesh *mesh);
int mesh_coordinate(const struct mesh *mesh, int rank, enum axis axis);
// The number of ranks in a group along `group`.
int mesh_group_size(const struct mesh *mesh, axis_set group);
// The rank's index in its group along `group`.
int mesh_index(const struct mesh *mesh, int rank, axis_set group);
// The rank at `index` of the group along `group` that `rank` is in.
int mesh_member(const struct mesh *mesh, int rank, axis_set group, int index);
// The rank that is `distance` (may be negative) further along `group`, wrapping around at its ends.
int mesh_peer(const struct mesh *mesh, int rank, axis_set group, int distance);
// The ranks of the group along `group` that `rank` is in, in ascending order; where `peer` is not 0, only `rank` and
// the rank at distance `peer` (mesh_peer). Returns how many there are; `members` must have room for all.
int mesh_members(const struct mesh *mesh, int rank, axis_set group, int peer, int members[]);
// The axes of a set, in ascending order.
#define FOR_AXES(a, set)                                           \
    for (int a = axes_first(set), left_##a = (int)(set); left_##a; \
         left_##a &= left_##a - 1, a = axes_first((axis_set)left_##a))
static inline int axes_first(axis_set set) {
    return set ? __builtin_ctz(set) : AXIS_COUNT;
}
// The axis of a set along which ranks are farthest from each other; of none, the first.
static inline enum axis axes_outermost(axis_set set) {
    return (enum axis)(31 - __builtin_clz(set | 1));
}
// The axes of `group` whose degree is above one.
axis_set mesh_present(const struct mesh *mesh, axis_set group);

// Cuts the axes of `group` so that some of their factors make up the first `ranks` ranks of each group along them
// (mesh_between). A factor that goes on beyond these becomes two: its outer one, and those that follow in its axis,
// move one factor outwards. So all cuts come first, and sets of axes are made afterwards. No rank's number or index
// along whole axes changes. Refuses (TRIREME_ERROR_USAGE) ranks that end within no single factor, and one factor too
// many; a message reads on from the key that asks for the cut: "but ...".
//
// A second factorisation of the ranks along `group` is a cut where each of its axes ends.
trireme_status mesh_cut(struct mesh *mesh, axis_set group, int ranks, trireme_error *error);
// Of the axes of `group`, which are cut at both, those between its first `from` and its first `to` ranks.
axis_set mesh_between(const struct mesh *mesh, axis_set group, int from, int to);

const char *axis_name(enum axis axis); // "kv", "tp", "cp", "fsdp", "dp", "pp", "island"; of further factors "fsdp.1"
// All factors of the axis that this is the first factor of; AXES_NONE for its further ones.
axis_set axis_factors(enum axis axis);
// "tp+dp" in the order of the enum, "none" for the empty set; `text` holds at least AXES_TEXT bytes.
enum { AXES_TEXT = 128 };
const char *axes_print(axis_set set, char text[AXES_TEXT]);
bool axes_parse(const char *text, size_t length, axis_set *out);
// "dp 2 x tp 4", without axes of degree one, "fsdp 8 (4 x 2)" for one that is cut; "one rank" when there are none. The
// caller frees.
char *mesh_print(const struct mesh *mesh);
// Which of `ranks` ranks a text such as "0,8,16" or "all" names: [ranks], which the caller frees. NULL if the text
// names none or other ranks.
bool *ranks_parse(const char *text, int ranks);

#endif
