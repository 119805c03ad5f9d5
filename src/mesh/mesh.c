#include "mesh/mesh.h"

#include "base/text.h"

#include <ctype.h>

static const char *const NAMES[AXIS_COUNT] = {
#define AXIS(id, name, roles, key) name,
#include "mesh/axes.def"
#undef AXIS
};

static const axis_set FACTORS[AXIS_COUNT] = {
#define AXIS(id, name, roles, key) AXES_##id,
#define DERIVED_AXIS(id, name, roles) AXIS(id, name, roles, )
#define FACTOR(id, name, of) AXES_NONE,
#include "mesh/axes.def"
#undef AXIS
};

struct mesh mesh_single(void) {
    struct mesh mesh;
    for (int a = 0; a < AXIS_COUNT; a++)
        mesh.degree[a] = 1;
    return mesh;
}

int mesh_ranks(const struct mesh *mesh) {
    return mesh_group_size(mesh, AXES_ALL);
}

// How far apart the numbers of neighbours along `axis` are.
static int mesh_stride(const struct mesh *mesh, int axis) {
    return mesh_group_size(mesh, AXES(axis) - 1);
}

int mesh_coordinate(const struct mesh *mesh, int rank, enum axis axis) {
    return rank / mesh_stride(mesh, (int)axis) % mesh->degree[axis];
}

int mesh_group_size(const struct mesh *mesh, axis_set group) {
    int size = 1;
    FOR_AXES(a, group)
        size *= mesh->degree[a];
    return size;
}

int mesh_index(const struct mesh *mesh, int rank, axis_set group) {
    int index = 0, step = 1;
    for (int a = 0; group >> a; a++) {
        const int degree = mesh->degree[a];
        if (degree == 1)
            continue;
        if (group & AXES(a)) {
            index += step * (rank % degree);
            step *= degree;
        }
        rank /= degree;
    }
    return index;
}

int mesh_member(const struct mesh *mesh, int rank, axis_set group, int index) {
    int member = rank;
    for (int a = 0, stride = 1; group >> a; a++) {
        const int degree = mesh->degree[a];
        if (group & AXES(a)) {
            member += (index % degree - rank % degree) * stride;
            index /= degree;
        }
        rank /= degree;
        stride *= degree;
    }
    return member;
}

int mesh_peer(const struct mesh *mesh, int rank, axis_set group, int distance) {
    int size = mesh_group_size(mesh, group), index = (mesh_index(mesh, rank, group) + distance % size + size) % size;
    return mesh_member(mesh, rank, group, index);
}

int mesh_members(const struct mesh *mesh, int rank, axis_set group, int peer, int members[]) {
    if (peer) {
        int other = mesh_peer(mesh, rank, group, peer);
        members[0] = MIN(rank, other);
        members[1] = MAX(rank, other);
        return 2;
    }
    int size = mesh_group_size(mesh, group);
    for (int i = 0; i < size; i++)
        members[i] = mesh_member(mesh, rank, group, i);
    return size;
}

axis_set mesh_present(const struct mesh *mesh, axis_set group) {
    axis_set present = AXES_NONE;
    FOR_AXES(a, group)
        if (mesh->degree[a] > 1)
            present |= AXES(a);
    return present;
}

// ---- cuts

// The factor that goes on where the first `ranks` ranks of a group end, and how much of its degree they take;
// AXIS_COUNT where they end with whole factors. Returns whether they end in either way.
static bool find_end(const struct mesh *mesh, axis_set group, int ranks, int *axis, int *inside) {
    int before = 1;
    *axis = AXIS_COUNT;
    for (int a = 0; a < AXIS_COUNT && before < ranks; a++) {
        const int degree = group & AXES(a) ? mesh->degree[a] : 1, rest = ranks / before;
        if (rest % degree == 0) {
            before *= degree;
        } else {
            *axis = a;
            *inside = rest;
            return degree % rest == 0;
        }
    }
    return before == ranks;
}

// Refuses ranks that end within no factor, and names the nearest numbers that do.
static trireme_status refuse_end(const struct mesh *mesh, axis_set group, int ranks, trireme_error *error) {
    const int size = mesh_group_size(mesh, group);
    int less = MIN(ranks, size), more = ranks, axis, inside;
    while (less > 1 && !find_end(mesh, group, less, &axis, &inside))
        less--;
    while (more < size && !find_end(mesh, group, more, &axis, &inside))
        more++;
    char *text = mesh_print(mesh);
    if (more <= size && less < more)
        error_set(error, TRIREME_ERROR_USAGE,
                  "but %d ranks are no product of factors of %s, from the innermost on: %d "
                  "and %d are",
                  ranks, text, less, more);
    else
        error_set(error, TRIREME_ERROR_USAGE, "but %s has no group of %d ranks: %d is the most", text, ranks, size);
    free(text);
    return TRIREME_ERROR_USAGE;
}

trireme_status mesh_cut(struct mesh *mesh, axis_set group, int ranks, trireme_error *error) {
    int axis, inside, last;
    CHECK(ranks >= 1);
    if (!find_end(mesh, group, ranks, &axis, &inside))
        return refuse_end(mesh, group, ranks, error);
    if (axis == AXIS_COUNT)
        return TRIREME_OK;
    for (last = axis; last + 1 < AXIS_COUNT && !axis_factors((enum axis)(last + 1)); last++)
        continue;
    if (last == axis || mesh->degree[last] > 1) {
        char *text = mesh_print(mesh);
        error_set(error, TRIREME_ERROR_USAGE, "but %d ranks cut %s of %s once more than it has factors", ranks,
                  axis_name((enum axis)axis), text);
        free(text);
        return TRIREME_ERROR_USAGE;
    }
    for (; last > axis + 1; last--)
        mesh->degree[last] = mesh->degree[last - 1];
    mesh->degree[axis + 1] = mesh->degree[axis] / inside;
    mesh->degree[axis] = inside;
    return TRIREME_OK;
}

// The factors of which the group's first `ranks` ranks are made.
static axis_set first_of(const struct mesh *mesh, axis_set group, int ranks) {
    axis_set set = AXES_NONE;
    for (int a = 0, before = 1; a < AXIS_COUNT && before < ranks; a++)
        if (group & AXES(a)) {
            before *= mesh->degree[a];
            set |= AXES(a);
        }
    CHECK(mesh_group_size(mesh, set) == ranks);
    return mesh_present(mesh, set);
}

axis_set mesh_between(const struct mesh *mesh, axis_set group, int from, int to) {
    return first_of(mesh, group, to) & ~first_of(mesh, group, from);
}

// ---- words

const char *axis_name(enum axis axis) {
    return NAMES[axis];
}

axis_set axis_factors(enum axis axis) {
    return FACTORS[axis];
}

const char *axes_print(axis_set set, char text[AXES_TEXT]) {
    size_t n = 0;
    text[0] = '\0';
    for (int a = 0; a < AXIS_COUNT; a++)
        if (set & AXES(a))
            n += (size_t)snprintf(text + n, AXES_TEXT - n, "%s%s", n ? "+" : "", NAMES[a]);
    return set & AXES_ALL ? text : "none";
}

bool axes_parse(const char *text, size_t length, axis_set *out) {
    axis_set set = AXES_NONE;
    for (size_t at = 0; at <= length;) {
        size_t end = at;
        while (end < length && text[end] != '+')
            end++;
        int found = AXIS_COUNT;
        for (int a = 0; a < AXIS_COUNT; a++)
            if (strlen(NAMES[a]) == end - at && memcmp(NAMES[a], text + at, end - at) == 0)
                found = a;
        if (found == AXIS_COUNT || (set & AXES(found)))
            return false;
        set |= AXES(found);
        at = end + 1;
    }
    *out = set;
    return true;
}

bool *ranks_parse(const char *text, int ranks) {
    bool *named = mem_alloc((size_t)ranks * sizeof *named), all = strcmp(text, "all") == 0;
    memset(named, all, (size_t)ranks * sizeof *named);
    for (const char *at = text; !all;) {
        char *end;
        long rank = strtol(at, &end, 10);
        if (!isdigit((unsigned char)*at) || rank >= ranks || (*end && *end != ',')) {
            free(named);
            return NULL;
        }
        named[rank] = true;
        all = !*end;
        at = end + 1;
    }
    return named;
}

char *mesh_print(const struct mesh *mesh) {
    struct text text = {0};
    for (int a = AXIS_COUNT; a-- > 0;) {
        const int ranks = mesh_group_size(mesh, FACTORS[a]);
        if (ranks == 1)
            continue;
        text_add(&text, "%s%s %d", text.length ? " x " : "", NAMES[a], ranks);
        if (mesh->degree[a] == ranks)
            continue;
        const char *before = " (";
        for (int f = AXIS_COUNT; f-- > a;)
            if ((FACTORS[a] & AXES(f)) && mesh->degree[f] > 1) {
                text_add(&text, "%s%d", before, mesh->degree[f]);
                before = " x ";
            }
        text_add(&text, ")");
    }
    char *result = mem_strdup(text.length ? text.text : "one rank");
    text_release(&text);
    return result;
}
