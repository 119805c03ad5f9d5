// Which other ranks are on this node, which cores they may use, and whether their processes are alive.
#include "comm/mpi/mpi_world.h"

#include "base/crew.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

// Sets of 1,024 processors each. Linux kernels are built for at most 8,192, and refuse to fill a set that is smaller
// than their own.
enum { SETS = 8 };

// What each rank tells the others about itself.
struct presence {
    char host[72];
    char system[80]; // the running kernel, and the names of processes in it
    char node[40];   // TRIREME_NODE: ranks that differ in it are on nodes of their own
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

static struct presence presence_now(void) {
    struct presence p = {.process = getpid()};
    gethostname(p.host, sizeof p.host - 1);
    read_line("/proc/sys/kernel/random/boot_id", p.system, 40);
    size_t n = strlen(p.system);
    ssize_t length = readlink("/proc/self/ns/pid", p.system + n, sizeof p.system - n - 1);
    p.system[n + (size_t)MAX(length, 0)] = 0;
    snprintf(p.node, sizeof p.node, "%s", getenv("TRIREME_NODE") ? getenv("TRIREME_NODE") : "");
    cpu_set_t usable[SETS];
    CPU_ZERO_S(sizeof usable, usable);
    sched_getaffinity(0, sizeof usable, usable);
    p.processors = CPU_COUNT_S(sizeof usable, usable);
    for (int i = 0; i < SETS * CPU_SETSIZE; i++)
        if (CPU_ISSET_S((size_t)i, sizeof usable, usable))
            CPU_SET_S((size_t)core_of(i), sizeof p.cores, p.cores);
    return p;
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

// Finds out whether ranks of a node can share memory, and read each other's. All ranks must come to the same answer.
static trireme_status try_memory(struct process_world *w, const struct presence *all, trireme_error *error) {
    const struct world_place *place = &w->base.place;
    bool shares = true, reads = true;
    for (int r = 0; r < place->ranks; r++)
        if (r != place->rank && neighbours_same_node(&all[r], &all[place->rank]))
            near_try(&all[r].probe, all[r].process, &shares, &reads);
    int can[2] = {shares, reads};
    if (MPI_Allreduce(MPI_IN_PLACE, can, 2, MPI_INT, MPI_MIN, w->comm) != MPI_SUCCESS)
        FAIL(TRIREME_ERROR_LOST, "the ranks cannot reach one another through MPI");
    w->shares = can[0];
    w->reads = can[1];
    return TRIREME_OK;
}

static void neighbours_watch(struct process_world *w, int rank, pid_t process) {
    const int file = (int)syscall(SYS_pidfd_open, process, 0);
    if (file < 0)
        return;
    w->watched[w->watched_count] = (struct pollfd){.fd = file, .events = POLLIN};
    w->watched_rank[w->watched_count++] = rank;
}

trireme_status neighbours_find(struct process_world *w, trireme_error *error) {
    struct world_place *place = &w->base.place;
    struct presence own = presence_now();
    near_offer(&own.probe);
    struct presence *all = mem_alloc((size_t)place->ranks * sizeof *all);
    if (MPI_Allgather(&own, sizeof own, MPI_BYTE, all, sizeof own, MPI_BYTE, w->comm) != MPI_SUCCESS) {
        free(all);
        FAIL(TRIREME_ERROR_LOST, "the ranks cannot reach one another through MPI");
    }
    trireme_status status = try_memory(w, all, error);
    if (own.probe.file >= 0)
        close(own.probe.file);
    if (status != TRIREME_OK) {
        free(all);
        return status;
    }
    neighbours_count(place, all);
    place->host = mem_strdup(own.host);
    w->process_id = mem_alloc((size_t)place->ranks * sizeof *w->process_id);
    w->watched = mem_alloc((size_t)place->ranks * sizeof *w->watched);
    w->watched_rank = mem_alloc((size_t)place->ranks * sizeof *w->watched_rank);
    w->node = mem_alloc((size_t)place->ranks * sizeof *w->node);
    for (int r = 0; r < place->ranks; r++) {
        while (!neighbours_same_node(&all[w->node[r]], &all[r]))
            w->node[r]++;
        w->process_id[r] = all[r].process;
        if (r != place->rank && same_system(&all[r], &own) && all[r].process > 0)
            neighbours_watch(w, r, (pid_t)all[r].process);
    }
    free(all);
    return TRIREME_OK;
}

int neighbours_dead(struct process_world *w) {
    if (poll(w->watched, (nfds_t)w->watched_count, 0) <= 0)
        return -1;
    for (int i = 0; i < w->watched_count; i++)
        if (w->watched[i].revents & POLLIN)
            return w->watched_rank[i];
    return -1;
}

void neighbours_release(struct process_world *w) {
    for (int i = 0; i < w->watched_count; i++)
        close(w->watched[i].fd);
    free(w->process_id);
    free(w->watched);
    free(w->watched_rank);
    free(w->node);
    free((char *)w->base.place.host);
}
