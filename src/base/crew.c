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

static int *usable_processors(int *count) {
    size_t bytes;
    cpu_set_t *set = usable_set(&bytes);
    *count = 0;
    if (!set)
        return NULL;
    int *processor = mem_alloc((size_t)CPU_COUNT_S(bytes, set) * sizeof *processor);
    for (size_t c = 0; c < 8 * bytes; c++)
        if (CPU_ISSET_S(c, bytes, set))
            processor[(*count)++] = (int)c;
    free(set);
    return processor;
}

int core_of(int processor) {
    char path[96], text[32];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", processor);
    FILE *file = fopen(path, "re");
    const bool known = file && fgets(text, sizeof text, file); // "2,10" or "2-3"
    if (file)
        fclose(file);
    const int first = known && *text >= '0' && *text <= '9' ? atoi(text) : processor;
    return MIN(first, processor);
}

int cores_first(int *processor, int count, int (*of)(int processor)) {
    if (count == 0)
        return 0;
    int most = 0, cores = 0, others = 0, *other = mem_alloc((size_t)count * sizeof *other);
    for (int i = 0; i < count; i++)
        most = MAX(most, processor[i]);
    bool *taken = mem_alloc((size_t)most + 1);
    for (int i = 0; i < count; i++) {
        const int core = of(processor[i]);
        if (taken[core])
            other[others++] = processor[i];
        else
            processor[cores++] = processor[i];
        taken[core] = true;
    }
    memcpy(processor + cores, other, (size_t)others * sizeof *other);
    free(taken);
    free(other);
    return cores;
}

int *processors_list(int *count) {
    int *processor = usable_processors(count);
    cores_first(processor, *count, core_of);
    return processor;
}

int usable_cores(void) {
    int count, *processor = usable_processors(&count), cores = cores_first(processor, count, core_of);
    free(processor);
    return MAX(cores, 1);
}

void processors_keep_to(const int *processor, int count) {
    cpu_set_t set[CPUS_PINNED / CPU_SETSIZE];
    CPU_ZERO_S(sizeof set, set);
    for (int i = 0; i < count; i++)
        CPU_SET_S((size_t)processor[i], sizeof set, set);
    sched_setaffinity(0, sizeof set, set);
}
