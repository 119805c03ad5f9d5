#include "base/crew.h"

#include "base/base.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum {
    THREADS_MAX = 64,
    CPUS_MOST = 1 << 20,
    CPUS_PINNED = 8192, // as many as kernels are built for
};

struct crew {
    atomic_int next;
    int count;
    void (*work)(void *argument, int i);
    void *argument;
};

static void *take(void *argument) {
    struct crew *c = argument;
    for (int i = c->next++; i < c->count; i = c->next++)
        c->work(c->argument, i);
    return NULL;
}

void crew_run(int threads, int count, void (*work)(void *argument, int i), void *argument) {
    struct crew crew = {.count = count, .work = work, .argument = argument};
    pthread_t thread[THREADS_MAX];
    int started = 0, most = MIN(MIN(threads, count), THREADS_MAX) - 1;
    while (started < most && pthread_create(&thread[started], NULL, take, &crew) == 0)
        started++;
    take(&crew);
    for (int i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
}

// The kernel refuses a set that has no room for every CPU it may have. NULL: it does not tell; the caller frees.
static cpu_set_t *usable_set(size_t *bytes) {
    for (size_t cpus = CPU_SETSIZE; cpus <= CPUS_MOST; cpus *= 2) {
        *bytes = CPU_ALLOC_SIZE(cpus);
        cpu_set_t *set = mem_alloc(*bytes);
        if (sched_getaffinity(0, *bytes, set) == 0)
            return set;
        free(set);
    }
    return NULL;
}

int *cores_list(int *count) {
    size_t bytes;
    cpu_set_t *set = usable_set(&bytes);
    *count = 0;
    if (!set)
        return NULL;
    int *core = mem_alloc((size_t)CPU_COUNT_S(bytes, set) * sizeof *core);
    for (size_t c = 0; c < 8 * bytes; c++)
        if (CPU_ISSET_S(c, bytes, set))
            core[(*count)++] = (int)c;
    free(set);
    return core;
}

int usable_cores(void) {
    int count;
    free(cores_list(&count));
    return MAX(count, 1);
}

void cores_keep_to(const int *core, int count) {
    cpu_set_t set[CPUS_PINNED / CPU_SETSIZE];
    CPU_ZERO_S(sizeof set, set);
    for (int i = 0; i < count; i++)
        CPU_SET_S((size_t)core[i], sizeof set, set);
    sched_setaffinity(0, sizeof set, set);
}
