#include "support/power.h"

#include "support/faults.h"

#include "base/base.h"
#include "base/rng.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

// A file's content, as bytes that are there and were synced, and what was done to it since.
struct bytes {
    char *data;
    int64_t count;
};
struct edit {
    int64_t at, count; // data NULL: it has `count` bytes from here on; `grows`: it is not cut to them
    char *data;
    bool grows;
};
// What a name leads to. Nodes live as long as the record.
struct node {
    bool folder;
    struct bytes synced;
    VEC(struct edit) edits;
    VEC(struct entry) entries; // of a folder, as its names were synced
    VEC(struct naming) namings;
};
struct entry {
    char *name;
    struct node *node;
};
// A change of names in a folder: `name` leads to `node` from now on (NULL: it is gone), and so does the other one.
struct naming {
    char *name[2]; // [1] NULL: it is one name only
    struct node *node[2];
};

struct record {
    struct fault_change change;
    char *path, *to, *data;
    int64_t promised; // -1, unless it is a promise
};

struct power {
    char *folder;
    pthread_mutex_t lock;
    VEC(struct record) records;
    size_t played;
    int64_t promised;
    struct node *root;
    VEC(struct node *) nodes;
};

static struct power *recording;

// ---- recording

static char *path_of_file(int file) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    const ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        abort();
    path[length] = 0;
    return mem_strdup(path);
}

// Below the folder, without it; NULL: it is elsewhere.
static char *path_below(const struct power *p, char *path) {
    const size_t length = strlen(p->folder);
    char *below = NULL;
    if (path && strncmp(path, p->folder, length) == 0 && (path[length] == '/' || !path[length]))
        below = mem_strdup(path + length);
    free(path);
    return below;
}

static char *path_of_change(const struct fault_change *c) {
    if (c->path && (*c->path == '/' || c->kind != CHANGE_REMOVED || c->file == AT_FDCWD))
        return mem_strdup(c->path);
    char *base = path_of_file(c->file);
    char *path = c->path ? mem_printf("%s/%s", base, c->path) : mem_strdup(base);
    free(base);
    return path;
}

static void power_note(const struct fault_change *c) {
    struct power *p = recording;
    pthread_mutex_lock(&p->lock);
    struct record r = {.change = *c, .promised = -1};
    r.path = path_below(p, path_of_change(c));
    r.to = path_below(p, c->to ? mem_strdup(c->to) : NULL);
    if (c->data) {
        r.data = mem_alloc((size_t)c->bytes + 1);
        memcpy(r.data, c->data, (size_t)c->bytes);
    }
    if (r.path)
        VEC_PUSH(&p->records, r);
    else
        free(r.data);
    pthread_mutex_unlock(&p->lock);
}

static struct node *node_create(struct power *p, bool folder) {
    struct node *n = mem_alloc(sizeof *n);
    n->folder = folder;
    VEC_PUSH(&p->nodes, n);
    return n;
}

struct power *power_record(const char *folder) {
    struct power *p = mem_alloc(sizeof *p);
    *p = (struct power){.folder = mem_strdup(folder), .promised = -1};
    pthread_mutex_init(&p->lock, NULL);
    p->root = node_create(p, true);
    recording = p;
    faults_changed = power_note;
    return p;
}

void power_promise(struct power *p, int64_t number) {
    pthread_mutex_lock(&p->lock);
    VEC_PUSH(&p->records, (struct record){.promised = number});
    pthread_mutex_unlock(&p->lock);
}

size_t power_stop(struct power *p) {
    faults_changed = NULL;
    return p->records.count;
}

// ---- playing

static void entries_set(struct node *folder, const char *name, struct node *node) {
    size_t i = 0;
    while (i < folder->entries.count && strcmp(folder->entries.item[i].name, name) != 0)
        i++;
    if (i < folder->entries.count && node)
        folder->entries.item[i].node = node;
    else if (i < folder->entries.count) {
        free(folder->entries.item[i].name);
        folder->entries.item[i] = folder->entries.item[--folder->entries.count];
    } else if (node)
        VEC_PUSH(&folder->entries, (struct entry){mem_strdup(name), node});
}

// What a name leads to now, synced or not.
static struct node *folder_find(const struct node *folder, const char *name) {
    for (size_t i = folder->namings.count; i-- > 0;)
        for (int k = 1; k >= 0; k--)
            if (folder->namings.item[i].name[k] && strcmp(folder->namings.item[i].name[k], name) == 0)
                return folder->namings.item[i].node[k];
    for (size_t i = 0; i < folder->entries.count; i++)
        if (strcmp(folder->entries.item[i].name, name) == 0)
            return folder->entries.item[i].node;
    return NULL;
}

// The node of a path, and the folder and the name that lead to it; NULL: there is none.
static struct node *node_find(struct power *p, char *path, struct node **folder, const char **name) {
    struct node *node = p->root;
    char *rest = path;
    *folder = NULL;
    *name = NULL;
    for (char *part; node && (part = strsep(&rest, "/"));) {
        if (!*part)
            continue;
        *folder = node;
        *name = part;
        node = folder_find(node, part);
    }
    return node;
}

static void folder_name(struct node *folder, const char *name, struct node *node, const char *other,
                        struct node *other_node) {
    const struct naming n = {{mem_strdup(name), other ? mem_strdup(other) : NULL}, {node, other_node}};
    VEC_PUSH(&folder->namings, n);
}

static void bytes_edit(struct bytes *b, const struct edit *e, int64_t count) {
    const int64_t end = e->at + count;
    if (end > b->count || (!e->data && !e->grows)) {
        char *data = mem_alloc((size_t)end + 1);
        memcpy(data, b->data ?: "", (size_t)MIN(end, b->count));
        free(b->data);
        *b = (struct bytes){data, end};
    }
    if (e->data)
        memcpy(b->data + e->at, e->data, (size_t)count);
}

static void node_sync(struct node *n) {
    for (size_t i = 0; i < n->edits.count; i++)
        bytes_edit(&n->synced, &n->edits.item[i], n->edits.item[i].count);
    n->edits.count = 0;
    for (size_t i = 0; i < n->namings.count; i++)
        for (int k = 0; k < 2; k++)
            if (n->namings.item[i].name[k])
                entries_set(n, n->namings.item[i].name[k], n->namings.item[i].node[k]);
    for (size_t i = 0; i < n->namings.count; i++)
        for (int k = 0; k < 2; k++)
            free(n->namings.item[i].name[k]);
    n->namings.count = 0;
}

static void play_rename(struct power *p, const struct record *r) {
    struct node *folder, *other_folder;
    const char *name, *other;
    assert_non_null(r->to);
    struct node *node = node_find(p, r->path, &folder, &name), *target = node_find(p, r->to, &other_folder, &other);
    assert_true(node && folder == other_folder); // else it would be two changes
    folder_name(folder, name, r->change.swaps ? target : NULL, other, node);
}

static void play_change(struct power *p, const struct record *r) {
    const struct fault_change *c = &r->change;
    struct node *folder, *node;
    const char *name;
    if (c->kind == CHANGE_RENAMED) {
        play_rename(p, r);
        return;
    }
    node = node_find(p, r->path, &folder, &name);
    switch (c->kind) {
    case CHANGE_FOLDER:
        folder_name(folder, name, node_create(p, true), NULL, NULL);
        break;
    case CHANGE_OPENED:
        if (!node)
            folder_name(folder, name, node_create(p, false), NULL, NULL);
        else if (c->fresh)
            VEC_PUSH(&node->edits, (struct edit){0});
        break;
    case CHANGE_REMOVED:
        folder_name(folder, name, NULL, NULL, NULL);
        break;
    case CHANGE_SYNCED:
        if (node)
            node_sync(node);
        break;
    case CHANGE_SIZED:
        if (node)
            VEC_PUSH(&node->edits, (struct edit){.count = c->bytes, .grows = c->grows});
        break;
    case CHANGE_WRITTEN:
        if (node) // else it was removed while it was open
            VEC_PUSH(&node->edits, (struct edit){c->at, c->bytes, r->data, true});
        break;
    case CHANGE_RENAMED:
        break;
    }
}

int64_t power_play(struct power *p) {
    const struct record *r = &p->records.item[p->played++];
    const int64_t before = p->promised;
    if (r->promised >= 0)
        p->promised = r->promised;
    else
        play_change(p, r);
    return before;
}

// ---- cutting

struct cut {
    enum power_loss loss;
    uint64_t seed, drawn;
};

static double cut_draw(struct cut *c) {
    return rng_uniform(c->seed, 0, c->drawn++);
}

// How much of an edit is there.
static int64_t cut_edit(struct cut *c, const struct edit *e, bool last) {
    switch (c->loss) {
    case LOSE_ALL:
    case LOSE_DATA:
        return -1;
    case LOSE_LAST:
        return last && e->data ? e->count / 2 : e->count;
    default: {
        const double much = 3 * cut_draw(c);
        return much < 1 ? -1 : much < 2 && e->data ? (int64_t)((much - 1) * (double)e->count) : e->count;
    }
    }
}

static void cut_file(struct cut *c, const struct node *n, const char *path) {
    struct bytes b = {mem_alloc((size_t)n->synced.count + 1), n->synced.count};
    memcpy(b.data, n->synced.data ?: "", (size_t)b.count);
    for (size_t i = 0; i < n->edits.count; i++) {
        const int64_t count = cut_edit(c, &n->edits.item[i], i + 1 == n->edits.count);
        if (count >= 0)
            bytes_edit(&b, &n->edits.item[i], count);
    }
    const int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    assert_int_equal(write(file, b.data, (size_t)b.count), b.count);
    close(file);
    free(b.data);
}

static void cut_node(struct cut *c, const struct node *n, const char *path) {
    if (!n->folder) {
        cut_file(c, n, path);
        return;
    }
    struct node left = {.folder = true};
    const double much = c->loss == LOSE_ANY ? cut_draw(c) : c->loss == LOSE_ALL ? 0 : 1;
    const size_t namings = (size_t)(much * (double)(n->namings.count + (c->loss == LOSE_ANY)));
    for (size_t i = 0; i < n->entries.count; i++)
        entries_set(&left, n->entries.item[i].name, n->entries.item[i].node);
    for (size_t i = 0; i < namings; i++)
        for (int k = 0; k < 2; k++)
            if (n->namings.item[i].name[k])
                entries_set(&left, n->namings.item[i].name[k], n->namings.item[i].node[k]);
    assert_int_equal(mkdir(path, 0700), 0);
    for (size_t i = 0; i < left.entries.count; i++) {
        char *below = mem_printf("%s/%s", path, left.entries.item[i].name);
        cut_node(c, left.entries.item[i].node, below);
        free(below);
        free(left.entries.item[i].name);
    }
    VEC_RELEASE(&left.entries);
}

void power_cut(const struct power *p, enum power_loss loss, uint64_t seed, const char *path) {
    struct cut c = {.loss = loss, .seed = seed};
    cut_node(&c, p->root, path);
}

void power_free(struct power *p) {
    for (size_t i = 0; i < p->nodes.count; i++) {
        struct node *n = p->nodes.item[i];
        node_sync(n);
        for (size_t k = 0; k < n->entries.count; k++)
            free(n->entries.item[k].name);
        VEC_RELEASE(&n->entries);
        VEC_RELEASE(&n->namings);
        VEC_RELEASE(&n->edits);
        free(n->synced.data);
        free(n);
    }
    for (size_t i = 0; i < p->records.count; i++) {
        free(p->records.item[i].path);
        free(p->records.item[i].to);
        free(p->records.item[i].data);
    }
    VEC_RELEASE(&p->nodes);
    VEC_RELEASE(&p->records);
    pthread_mutex_destroy(&p->lock);
    free(p->folder);
    free(p);
}
