// mesh/: how ranks are arranged: axes, coordinates, groups. Knows no MPI and no program. Includes base/ only.
//
// Ranks are numbered with the axes of this list from the inside out: tensor ranks stand next to one another, then
// data, then pipeline. A *group* is the set of ranks that share all coordinates but those along some axes; the rank's
// *index* in it counts along those axes, the innermost fastest.
#ifndef MESH_MESH_H
#define MESH_MESH_H

#include "base/base.h"

enum axis {
    AXIS_KV,   // of one tensor-parallel group, the ranks that hold the same key and value heads
    AXIS_TP,   // tensor parallel; with AXIS_KV, the ranks over which a layer is split
    AXIS_FSDP, // data parallel, states sharded
    AXIS_DP,   // data parallel, states replicated
    AXIS_PP,   // pipeline stages
    AXIS_COUNT
};

// A set of axes, one bit each.
typedef unsigned axis_set;
#define AXES(axis) (1u << (axis))
enum { AXES_NONE = 0, AXES_ALL = (1 << AXIS_COUNT) - 1 };
// The axes of a user's words.
enum {
    AXES_TENSOR = 1 << AXIS_KV | 1 << AXIS_TP,
    AXES_DATA = 1 << AXIS_FSDP | 1 << AXIS_DP,
};

struct mesh {
    int degree[AXIS_COUNT]; // >= 1
};

// One rank.
struct mesh mesh_single(void);
int mesh_ranks(const struct mesh *mesh);
int mesh_coordinate(const struct mesh *mesh, int rank, enum axis axis);
// Ranks of a group along `group`.
int mesh_group_size(const struct mesh *mesh, axis_set group);
// The rank's index in its group along `group`.
int mesh_index(const struct mesh *mesh, int rank, axis_set group);
// The rank at `index` of the group along `group` that `rank` is in.
int mesh_member(const struct mesh *mesh, int rank, axis_set group, int index);
// The rank that is `distance` further along `group`, around its end.
int mesh_peer(const struct mesh *mesh, int rank, axis_set group, int distance);
// The ranks of the group along `group` that `rank` is in, in ascending order; where `peer` is not 0, only itself and
// the one that is so much further along the group's one axis. Returns how many they are.
int mesh_members(const struct mesh *mesh, int rank, axis_set group, int peer, int members[]);
// The axes of `group` whose degree is above one.
axis_set mesh_present(const struct mesh *mesh, axis_set group);

const char *axis_name(enum axis axis); // "kv", "tp", "fsdp", "dp", "pp"
// "tp+dp" in the order of the enum, "none" for the empty set; `text` holds at least AXES_TEXT bytes.
enum { AXES_TEXT = 32 };
const char *axes_print(axis_set set, char text[AXES_TEXT]);
bool axes_parse(const char *text, size_t length, axis_set *out);
// "dp 2 x tp 4", without axes of degree one; "one rank" when there are none. The caller frees.
char *mesh_print(const struct mesh *mesh);
// Which of `ranks` ranks "0,8,16" or "all" names: [ranks], which the caller frees. NULL where it names others, or none.
bool *ranks_parse(const char *text, int ranks);

#endif
