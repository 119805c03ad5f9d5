#include "comm/near/near.h"

#include "base/parallel_for.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

// Sets of 1,024 processors each. Linux kernels are built for at most 8,192, and refuse to fill a set that is smaller
// than their own.
enum { SETS = 8 };

struct presence {
    char host[72];
    char system[80]; // the running kernel, and the names of processes in it
    char node[40];
    int64_t process;
    int32_t processors;
    cpu_set_t cores[SETS]; // by core_of
    struct near_probe probe;
};

static void read_line(const char *path, char *to, size_t limit) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = file < 0 ? -1 : read(file, to, limit - 1);
    if (file >= 0)
        close(file);
    to[MAX(n, 0)] = 0;
    to[strcspn(to, "\n")] = 0;
}

struct presence *presence_create(const char *node) {
    struct presence *p = mem_alloc(sizeof *p);
    p->process = getpid();
    gethostname(p->host, sizeof p->host - 1);
    read_line("/proc/sys/kernel/random/boot_id", p->system, 40);
    size_t n = strlen(p->system);
    ssize_t length = readlink("/proc/self/ns/pid", p->system + n, sizeof p->system - n - 1);
    p->system[n + (size_t)MAX(length, 0)] = 0;
    snprintf(p->node, sizeof p->node, "%s", node ? node : "");
    cpu_set_t usable[SETS];
    CPU_ZERO_S(sizeof usable, usable);
    sched_getaffinity(0, sizeof usable, usable);
    p->processors = CPU_COUNT_S(sizeof usable, usable);
    for (int i = 0; i < SETS * CPU_SETSIZE; i++)
        if (CPU_ISSET_S((size_t)i, sizeof usable, usable))
            CPU_SET_S((size_t)core_of(i), sizeof p->cores, p->cores);
    near_offer(&p->probe);
    return p;
}

void presence_free(struct presence *p) {
    if (p && p->probe.file >= 0)
        close(p->probe.file);
    free(p);
}

size_t presence_bytes(void) {
    return sizeof(struct presence);
}

static bool same_system(const struct presence *a, const struct presence *b) {
    return strcmp(a->host, b->host) == 0 && strcmp(a->system, b->system) == 0;
}

static bool neighbours_same_node(const struct presence *a, const struct presence *b) {
    return same_system(a, b) && strcmp(a->node, b->node) == 0;
}

static void neighbours_count(struct world_place *place, const struct presence *all) {
    const struct presence *own = &all[place->rank];
    for (int r = 0; r < place->ranks; r++) {
        int first = 0;
        while (!neighbours_same_node(&all[first], &all[r]))
            first++;
        place->nodes += first == r;
        if (!neighbours_same_node(&all[r], own))
            continue;
        if (place->node_ranks++ == 0)
            place->node = place->nodes - 1;
        bool same = CPU_EQUAL_S(sizeof own->cores, all[r].cores, own->cores);
        place->core_ranks += same;
        place->core_rank += same && r < place->rank;
    }
    place->cores = CPU_COUNT_S(sizeof own->cores, own->cores);
    place->core_threads = place->cores ? divide_up(own->processors, place->cores) : 1;
    for (int r = 0; r < place->ranks; r++) {
        // Once per node: the cores of all ranks there.
        cpu_set_t cores[SETS];
        CPU_ZERO_S(sizeof cores, cores);
        bool first = true;
        for (int k = 0; k < place->ranks; k++)
            if (neighbours_same_node(&all[k], &all[r])) {
                first &= k >= r;
                CPU_OR_S(sizeof cores, cores, cores, all[k].cores);
            }
        if (first)
            place->all_cores += CPU_COUNT_S(sizeof cores, cores);
    }
}

static void neighbours_watch(struct neighbours *n, int rank, pid_t process) {
    const int file = (int)syscall(SYS_pidfd_open, process, 0);
    if (file < 0)
        return;
    n->watched[n->watched_count] = (struct pollfd){.fd = file, .events = POLLIN};
    n->watched_rank[n->watched_count++] = rank;
}

void neighbours_find(struct neighbours *out, struct world_place *place, const struct presence *all) {
    const struct presence *own = &all[place->rank];
    const size_t ranks = (size_t)place->ranks;
    struct neighbours n = {.shares = true, .reads = true};
    n.node = mem_alloc(ranks * sizeof *n.node);
    n.process_id = mem_alloc(ranks * sizeof *n.process_id);
    n.watched = mem_alloc(ranks * sizeof *n.watched);
    n.watched_rank = mem_alloc(ranks * sizeof *n.watched_rank);
    for (int r = 0; r < place->ranks; r++) {
        while (!neighbours_same_node(&all[n.node[r]], &all[r]))
            n.node[r]++;
        n.process_id[r] = all[r].process;
        if (r == place->rank)
            continue;
        if (neighbours_same_node(&all[r], own))
            near_try(&all[r].probe, all[r].process, &n.shares, &n.reads);
        if (same_system(&all[r], own) && all[r].process > 0)
            neighbours_watch(&n, r, (pid_t)all[r].process);
    }
    neighbours_count(place, all);
    place->host = mem_strdup(own->host);
    *out = n;
}

int neighbours_dead(struct neighbours *n) {
    if (poll(n->watched, (nfds_t)n->watched_count, 0) <= 0)
        return -1;
    for (int i = 0; i < n->watched_count; i++)
        if (n->watched[i].revents & POLLIN)
            return n->watched_rank[i];
    return -1;
}

void neighbours_release(struct neighbours *n) {
    for (int i = 0; i < n->watched_count; i++)
        close(n->watched[i].fd);
    free(n->process_id);
    free(n->watched);
    free(n->watched_rank);
    free(n->node);
}
