#include "mesh/mesh_view.h"

#include "base/amount.h"
#include "base/json.h"

enum { ROWS_MAX = 64, GROUPS_SHOWN = 8, PIECES_SHOWN = 4, NOBODY = -1 };

void mesh_view_release(struct mesh_view *v) {
    for (int s = 0; v->stage && s < mesh_group_size(&v->mesh, AXES_STAGE); s++)
        free(v->stage[s].layers);
    free(v->stage);
    free(v->node);
    free(v->device);
    VEC_RELEASE(&v->uses);
    VEC_RELEASE(&v->units);
    *v = (struct mesh_view){0};
}

// ---- groups

static void groups_add(const struct mesh_view *v, axis_set set, axis_set group[MESH_GROUPS_MAX], int *count) {
    set = mesh_present(&v->mesh, set);
    for (int i = 0; i < *count; i++)
        if (group[i] == set)
            return;
    if (set != AXES_NONE && *count < MESH_GROUPS_MAX)
        group[(*count)++] = set;
}

int mesh_view_groups(const struct mesh_view *v, axis_set group[MESH_GROUPS_MAX]) {
    int count = 0;
    for (int a = 0; a < AXIS_COUNT; a++) {
        groups_add(v, axis_factors((enum axis)a), group, &count);
        FOR_AXES(f, axis_factors((enum axis)a))
            groups_add(v, AXES(f), group, &count);
    }
    for (size_t i = 0; i < v->uses.count; i++)
        groups_add(v, v->uses.item[i].group, group, &count);
    for (size_t i = 0; i < v->units.count; i++) {
        groups_add(v, v->units.item[i].split, group, &count);
        groups_add(v, v->units.item[i].terms, group, &count);
        groups_add(v, v->units.item[i].shards, group, &count);
    }
    return count;
}

void ranks_print(const int *ranks, int count, int most, struct text *out) {
    int pieces = 0, done = 0;
    for (int i = 0; i < count; i++)
        pieces += i == 0 || ranks[i] != ranks[i - 1] + 1;
    const bool cut = most > 0 && pieces > most;
    for (int i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && ranks[end] == ranks[end - 1] + 1; end++)
            continue;
        done++;
        if (cut && done == most - 1)
            text_add(out, ",...");
        if (cut && done >= most - 1 && done < pieces)
            continue;
        text_add(out, "%s%d", i ? "," : "", ranks[i]);
        if (end - i > 1)
            text_add(out, "%s%d", end - i > 2 ? "-" : ",", ranks[end - 1]);
    }
}

static bool use_is_over(const struct mesh_view *v, const struct mesh_use *use, axis_set group) {
    return mesh_present(&v->mesh, use->group) == group;
}

// The ranks of the group that `rank` is in. The caller frees.
static int *group_members(const struct mesh_view *v, int rank, axis_set group, int *count) {
    *count = mesh_group_size(&v->mesh, group);
    int *members = mem_alloc((size_t)*count * sizeof *members);
    mesh_members(&v->mesh, rank, group, 0, members);
    return members;
}

static void group_print(const struct mesh_view *v, int rank, axis_set group, int most, struct text *out) {
    int count, *members = group_members(v, rank, group, &count);
    ranks_print(members, count, most, out);
    free(members);
}

static int group_count(const struct mesh_view *v, axis_set group) {
    return mesh_group_size(&v->mesh, AXES_ALL & ~group);
}

// The first rank of the k-th group.
static int group_first(const struct mesh_view *v, axis_set group, int k) {
    return mesh_member(&v->mesh, 0, AXES_ALL & ~group, k);
}

static int view_stage(const struct mesh_view *v, int rank) {
    return mesh_index(&v->mesh, rank, AXES_STAGE);
}

// The rank at the other end of the pipeline's messages, NOBODY where there are none.
static int view_beside(const struct mesh_view *v, int rank, int distance) {
    const struct mesh_stage *s = &v->stage[view_stage(v, rank)];
    return (distance < 0 ? s->before : s->after) ? mesh_peer(&v->mesh, rank, AXES_STAGE, distance) : NOBODY;
}

// ---- text

// How many ranks a line stands for: whole inner axes, so that there are few lines.
static int view_fold(const struct mesh_view *v) {
    const int ranks = mesh_ranks(&v->mesh);
    int fold = 1;
    for (int a = 0; a < AXIS_COUNT && ranks / fold > ROWS_MAX; a++)
        fold *= v->mesh.degree[a];
    return fold;
}

// The numbers from the first of `fold` ranks to the last.
static void add_cell(struct text *out, int width, int first, int last) {
    char words[32];
    if (first == NOBODY || last == NOBODY)
        snprintf(words, sizeof words, "-");
    else if (first == last)
        snprintf(words, sizeof words, "%d", first);
    else
        snprintf(words, sizeof words, "%d-%d", first, last);
    text_add(out, " %*s", width, words);
}

// The width of a column whose largest number is `most`, under a heading.
static int cell_width(const char *heading, int most, bool folded) {
    const int digits = snprintf(NULL, 0, "%d", most);
    return MAX((int)strlen(heading), folded ? 2 * digits + 1 : digits);
}

static bool has_stages(const struct mesh_view *v) {
    return mesh_present(&v->mesh, AXES_STAGE) != AXES_NONE;
}

static void print_ranks(const struct mesh_view *v, struct text *out) {
    const int ranks = mesh_ranks(&v->mesh), fold = view_fold(v);
    const int width = cell_width("rank", ranks - 1, fold > 1);
    const bool stages = has_stages(v) && fold <= ranks / mesh_group_size(&v->mesh, AXES_OWN);
    text_add(out, "\n %*s", width, "rank");
    if (v->node)
        text_add(out, " %*s %*s", width, "node", MAX(width, 6), "device");
    FOR_AXES(a, mesh_present(&v->mesh, AXES_ALL))
        text_add(out, " %*s", cell_width(axis_name((enum axis)a), v->mesh.degree[a] - 1, fold > 1),
                 axis_name((enum axis)a));
    if (stages)
        text_add(out, " %*s %*s", MAX(width, 6), "before", MAX(width, 6), "after");
    text_add(out, "  layers\n");
    for (int r = 0; r < ranks; r += fold) {
        const int last = r + fold - 1;
        add_cell(out, width, r, last);
        if (v->node) {
            add_cell(out, width, v->node[r], v->node[last]);
            add_cell(out, MAX(width, 6), v->device[r], v->device[last]);
        }
        FOR_AXES(a, mesh_present(&v->mesh, AXES_ALL))
            add_cell(out, cell_width(axis_name((enum axis)a), v->mesh.degree[a] - 1, fold > 1),
                     mesh_coordinate(&v->mesh, r, (enum axis)a), mesh_coordinate(&v->mesh, last, (enum axis)a));
        for (int distance = -1; distance <= 1 && stages; distance += 2)
            add_cell(out, MAX(width, 6), view_beside(v, r, distance), view_beside(v, last, distance));
        text_add(out, "  %s\n", stages || !has_stages(v) ? v->stage[view_stage(v, r)].layers : "all");
    }
}

// What ranks have that differ along a set of axes which have the same roles; NULL: they have several, or none.
static const char *roles_words(axis_set group) {
    static const enum axis_role ROLES[AXIS_COUNT] = {
#define AXIS(id, name, roles, key) (enum axis_role)(ROLES_##id),
#include "mesh/axes.def"
#undef AXIS
    };
    enum axis_role roles = ROLES[axes_first(group)];
    FOR_AXES(a, group)
        if (ROLES[a] != roles)
            return NULL;
    return roles & AXIS_IS_TENSOR      ? "parts of each layer"
           : roles & AXIS_IS_STAGE     ? "other layers"
           : roles & AXIS_IS_SEQUENCES ? "other sequences"
           : roles & AXIS_IS_ROWS      ? "parts of each sequence"
           : roles                     ? "values of their own, from other sequences"
                                       : NULL;
}

static void print_uses(const struct mesh_view *v, axis_set group, struct text *out) {
    const char *program = NULL;
    for (size_t i = 0; i < v->uses.count; i++) {
        const struct mesh_use *u = &v->uses.item[i];
        if (!use_is_over(v, u, group))
            continue;
        if (!program || strcmp(program, u->program) != 0)
            text_add(out, "%s    %s:", program ? "\n" : "", u->program);
        else
            text_add(out, ",");
        program = u->program;
        text_add(out, " %s %s, %s", u->op, counted(u->count, "time").text, amount((int64_t)u->bytes).text);
    }
    if (program)
        text_add(out, "\n");
}

static void print_groups(const struct mesh_view *v, struct text *out) {
    axis_set group[MESH_GROUPS_MAX];
    const int groups = mesh_view_groups(v, group);
    if (groups > 0)
        text_add(out, "\ngroups: ranks that differ along these axes alone\n");
    for (int g = 0; g < groups; g++) {
        char axes[AXES_TEXT];
        const int count = group_count(v, group[g]);
        const char *roles = roles_words(group[g]);
        text_add(out, "%s: %s of %s%s%s:", axes_print(group[g], axes), counted(count, "group").text,
                 counted(mesh_group_size(&v->mesh, group[g]), "rank").text, roles ? ", which have " : "", roles ?: "");
        for (int k = 0; k < count; k++) {
            if (count > GROUPS_SHOWN && k == PIECES_SHOWN - 1) {
                text_add(out, " ...");
                k = count - 1;
            }
            text_add(out, " ");
            group_print(v, group_first(v, group[g], k), group[g], PIECES_SHOWN, out);
        }
        text_add(out, "\n");
        print_uses(v, group[g], out);
    }
}

static void print_units(const struct mesh_view *v, struct text *out) {
    char axes[AXES_TEXT];
    if (mesh_ranks(&v->mesh) == 1)
        return;
    text_add(out, "\nparameters: along which axes ranks have other elements; sum gradients; keep other parts of the "
                  "states\n");
    for (size_t i = 0; i < v->units.count; i++) {
        const struct mesh_units *u = &v->units.item[i];
        text_add(out, "%s", u->name);
        if (u->others)
            text_add(out, " and %lld like it", (long long)u->others);
        text_add(out, ": %s;", axes_print(mesh_present(&v->mesh, u->split), axes));
        text_add(out, " %s;", axes_print(mesh_present(&v->mesh, u->terms), axes));
        text_add(out, " %s\n", axes_print(mesh_present(&v->mesh, u->shards), axes));
    }
}

static void print_place(const struct mesh_view *v, int rank, struct text *out) {
    char *mesh = mesh_print(&v->mesh);
    text_add(out, "rank %d of %s (%s):", rank, counted(mesh_ranks(&v->mesh), "rank").text, mesh);
    free(mesh);
    FOR_AXES(a, mesh_present(&v->mesh, AXES_ALL))
        text_add(out, " %s %d,", axis_name((enum axis)a), mesh_coordinate(&v->mesh, rank, (enum axis)a));
    if (v->node)
        text_add(out, " node %d, device %d,", v->node[rank], v->device[rank]);
    text_add(out, " layers %s\n", v->stage[view_stage(v, rank)].layers);
    for (int distance = -1; distance <= 1 && has_stages(v); distance += 2) {
        const int other = view_beside(v, rank, distance);
        text_add(out, "%s it in the pipeline: ", distance < 0 ? "before" : "after");
        if (other == NOBODY)
            text_add(out, "nobody\n");
        else
            text_add(out, "rank %d\n", other);
    }
}

static void print_rank(const struct mesh_view *v, int rank, struct text *out) {
    axis_set group[MESH_GROUPS_MAX];
    const int groups = mesh_view_groups(v, group);
    print_place(v, rank, out);
    for (int g = 0; g < groups; g++) {
        char axes[AXES_TEXT];
        text_add(out, "%s: number %d of %d, between %d and %d: ", axes_print(group[g], axes),
                 mesh_index(&v->mesh, rank, group[g]), mesh_group_size(&v->mesh, group[g]),
                 mesh_peer(&v->mesh, rank, group[g], -1), mesh_peer(&v->mesh, rank, group[g], 1));
        group_print(v, rank, group[g], 0, out);
        text_add(out, "\n");
    }
}

void mesh_view_print(const struct mesh_view *v, int rank, struct text *out) {
    if (rank != MESH_ALL_RANKS) {
        print_rank(v, rank, out);
        return;
    }
    char *mesh = mesh_print(&v->mesh);
    text_add(out, "%s (%s)\n", counted(mesh_ranks(&v->mesh), "rank").text, mesh);
    free(mesh);
    print_ranks(v, out);
    print_groups(v, out);
    print_units(v, out);
}

// ---- JSON

static void add_members(const struct mesh_view *v, const char *key, int rank, axis_set group, struct text *out) {
    int count, *members = group_members(v, rank, group, &count);
    json_begin_array(out, key);
    for (int i = 0; i < count; i++)
        json_add_integer(out, NULL, members[i]);
    json_end_array(out);
    free(members);
}

static void json_group(const struct mesh_view *v, axis_set group, int rank, struct text *out) {
    char axes[AXES_TEXT];
    json_begin_object(out, NULL);
    json_add_string(out, "axes", axes_print(group, axes));
    json_add_integer(out, "ranks", mesh_group_size(&v->mesh, group));
    json_add_integer(out, "groups", group_count(v, group));
    json_begin_array(out, "members");
    if (rank != MESH_ALL_RANKS)
        add_members(v, NULL, rank, group, out);
    for (int k = 0; rank == MESH_ALL_RANKS && k < group_count(v, group); k++)
        add_members(v, NULL, group_first(v, group, k), group, out);
    json_end_array(out);
    json_begin_array(out, "communication");
    for (size_t i = 0; i < v->uses.count; i++) {
        const struct mesh_use *u = &v->uses.item[i];
        if (!use_is_over(v, u, group))
            continue;
        json_begin_object(out, NULL);
        json_add_string(out, "program", u->program);
        json_add_string(out, "op", u->op);
        json_add_integer(out, "count", u->count);
        json_add_number(out, "bytes", u->bytes);
        json_end_object(out);
    }
    json_end_array(out);
    json_end_object(out);
}

static void json_beside(const struct mesh_view *v, const char *key, int rank, int distance, struct text *out) {
    const int other = view_beside(v, rank, distance);
    if (other != NOBODY)
        json_add_integer(out, key, other);
}

static void json_rank(const struct mesh_view *v, const axis_set *group, int groups, int rank, struct text *out) {
    char axes[AXES_TEXT];
    json_begin_object(out, NULL);
    json_add_integer(out, "rank", rank);
    if (v->node) {
        json_add_integer(out, "node", v->node[rank]);
        json_add_integer(out, "device", v->device[rank]);
    }
    json_begin_object(out, "coordinates");
    FOR_AXES(a, mesh_present(&v->mesh, AXES_ALL))
        json_add_integer(out, axis_name((enum axis)a), mesh_coordinate(&v->mesh, rank, (enum axis)a));
    json_end_object(out);
    json_add_string(out, "layers", v->stage[view_stage(v, rank)].layers);
    json_beside(v, "before", rank, -1, out);
    json_beside(v, "after", rank, 1, out);
    json_begin_object(out, "groups");
    for (int g = 0; g < groups; g++) {
        json_begin_object(out, axes_print(group[g], axes));
        json_add_integer(out, "index", mesh_index(&v->mesh, rank, group[g]));
        json_add_integer(out, "before", mesh_peer(&v->mesh, rank, group[g], -1));
        json_add_integer(out, "after", mesh_peer(&v->mesh, rank, group[g], 1));
        json_end_object(out);
    }
    json_end_object(out);
    json_end_object(out);
}

static void json_units(const struct mesh_view *v, struct text *out) {
    char axes[AXES_TEXT];
    json_begin_array(out, "parameters");
    for (size_t i = 0; i < v->units.count; i++) {
        const struct mesh_units *u = &v->units.item[i];
        json_begin_object(out, NULL);
        json_add_string(out, "unit", u->name);
        json_add_integer(out, "others", u->others);
        json_add_string(out, "split", axes_print(u->split, axes));
        json_add_string(out, "terms", axes_print(u->terms, axes));
        json_add_string(out, "shards", axes_print(u->shards, axes));
        json_end_object(out);
    }
    json_end_array(out);
}

void mesh_view_print_json(const struct mesh_view *v, int rank, struct text *out) {
    axis_set group[MESH_GROUPS_MAX];
    const int groups = mesh_view_groups(v, group), ranks = mesh_ranks(&v->mesh);
    char *mesh = mesh_print(&v->mesh);
    json_begin_object(out, NULL);
    json_add_string(out, "mesh", mesh);
    json_begin_object(out, "degrees");
    FOR_AXES(a, mesh_present(&v->mesh, AXES_ALL))
        json_add_integer(out, axis_name((enum axis)a), v->mesh.degree[a]);
    json_end_object(out);
    json_begin_array(out, "ranks");
    for (int r = MAX(rank, 0); r < (rank == MESH_ALL_RANKS ? ranks : rank + 1); r++)
        json_rank(v, group, groups, r, out);
    json_end_array(out);
    json_begin_array(out, "groups");
    for (int g = 0; g < groups; g++)
        json_group(v, group[g], rank, out);
    json_end_array(out);
    json_units(v, out);
    json_end_object(out);
    text_add(out, "\n");
    free(mesh);
}
