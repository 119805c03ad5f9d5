// How ranks are arranged, for people to look at: which coordinates each has, which groups there are, who is next to
// whom. As text, as JSON, and as a picture. Includes base/ only.
#ifndef MESH_MESH_VIEW_H
#define MESH_MESH_VIEW_H

#include "base/text.h"
#include "mesh/mesh.h"

struct mesh_stage {
    char *layers;       // that its ranks have: "0-3, 8-11"
    bool before, after; // whether they exchange messages with the stage before, and the one after, around the ends
};

// What a program communicates over a group: that of the stage that has most of it.
struct mesh_use {
    axis_set group;
    const char *program, *op;
    int64_t count; // instructions in a run of the program
    double bytes;  // of their tensors
};

// A class of parameters (unit_axes).
struct mesh_units {
    const char *name; // the first unit of the class
    int64_t others;   // how many more there are
    axis_set split, terms, shards;
};

struct mesh_view {
    struct mesh mesh;
    int *node, *device;       // [ranks]; NULL: not known
    struct mesh_stage *stage; // [stages]
    VEC(struct mesh_use) uses;
    VEC(struct mesh_units) units;
};
void mesh_view_release(struct mesh_view *view);

// The groups to look at, each a set of axes with more than one rank: each axis, first whole and then its factors; the
// sets that programs communicate over, and those of the classes of parameters. Returns how many there are.
enum { MESH_GROUPS_MAX = 64 };
int mesh_view_groups(const struct mesh_view *view, axis_set group[MESH_GROUPS_MAX]);
// Of `count` ranks, ascending, those from one to the next as "0-3", in all "0-3,8-11"; of more than `most` such pieces
// (0: no limit) only the first ones and the last: "0,8,...,504".
void ranks_print(const int *ranks, int count, int most, struct text *out);

enum { MESH_ALL_RANKS = -1 };
// Appends the view of all ranks (MESH_ALL_RANKS), or of `rank` alone with its groups whole. Where there are many ranks,
// a line of text stands for several that follow one another; JSON has each.
void mesh_view_print(const struct mesh_view *view, int rank, struct text *out);
void mesh_view_print_json(const struct mesh_view *view, int rank, struct text *out);
// Appends a picture (SVG): for each group a panel of all ranks, framed by island and stage, in which ranks of one group
// have one colour; colours are used again, and the group of `rank` (MESH_ALL_RANKS: of rank 0) is outlined. Where there
// are many ranks, axes are folded: only the first coordinates and the last are drawn.
void mesh_view_draw(const struct mesh_view *view, int rank, const char *title, struct text *out);

#endif
