#include "base/parallel_for.h"

#include "base/reserve.h"
#include "base/system.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum {
    THREADS_MAX = 64,
    CPUS_MOST = 1 << 20,
    CPUS_PINNED = 8192, // as many as kernels are built for
};

struct pieces {
    atomic_int next;
    int count;
    void (*work)(void *argument, int i);
    void *argument;
};

static void *pieces_take(void *argument) {
    struct pieces *c = argument;
    for (int i = c->next++; i < c->count; i = c->next++)
        c->work(c->argument, i);
    return NULL;
}

size_t thread_stack_bytes(void) {
    pthread_attr_t attributes;
    size_t bytes = 0;
    pthread_attr_init(&attributes);
    pthread_attr_getstacksize(&attributes, &bytes);
    pthread_attr_destroy(&attributes);
    return MAX(bytes, (size_t)THREAD_STACK_LEAST);
}

static int thread_create(pthread_t *out, void *(*run)(void *argument), void *argument) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, thread_stack_bytes());
    const int refused = pthread_create(out, &attributes, run, argument);
    pthread_attr_destroy(&attributes);
    return refused;
}

trireme_status thread_start(pthread_t *out, void *(*run)(void *argument), void *argument, const char *what,
                            trireme_error *error) {
    TRY(reserve_check(error));
    const int refused = thread_create(out, run, argument);
    if (refused == EAGAIN)
        FAIL(TRIREME_ERROR_IO,
             "cannot start %s: there is no memory for its stack (ulimit -v, ulimit -s, or a job's limit), or there are "
             "too many threads (ulimit -u, or a container's limit)",
             what);
    if (refused)
        FAIL(TRIREME_ERROR_IO, "cannot start %s: %s", what, strerror(refused));
    return TRIREME_OK;
}

void parallel_for(int threads, int count, void (*work)(void *argument, int i), void *argument) {
    struct pieces pieces = {.count = count, .work = work, .argument = argument};
    pthread_t thread[THREADS_MAX];
    int started = 0, most = MIN(MIN(threads, count), THREADS_MAX) - 1;
    while (started < most && thread_create(&thread[started], pieces_take, &pieces) == 0)
        started++;
    pieces_take(&pieces);
    for (int i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
}

struct trial {
    trireme_status (*work)(void *argument, int i, trireme_error *error);
    void *argument;
    atomic_int first; // of those that failed so far; `count`: none
    trireme_status *status;
    trireme_error *error;
};

static void try_one(void *argument, int i) {
    struct trial *t = argument;
    int first = t->first;
    if (i > first)
        return;
    t->status[i] = t->work(t->argument, i, &t->error[i]);
    while (t->status[i] != TRIREME_OK && i < first && !atomic_compare_exchange_weak(&t->first, &first, i))
        continue;
}

trireme_status parallel_try(int threads, int count, trireme_status (*work)(void *argument, int i, trireme_error *error),
                            void *argument, trireme_error *error) {
    struct trial trial = {.work = work, .argument = argument, .first = count};
    trial.status = mem_alloc((size_t)count * sizeof *trial.status);
    trial.error = mem_alloc((size_t)count * sizeof *trial.error);
    parallel_for(threads, count, try_one, &trial);
    const trireme_status status = trial.first < count ? trial.status[trial.first] : TRIREME_OK;
    if (status != TRIREME_OK && error)
        *error = trial.error[trial.first];
    free(trial.status);
    free(trial.error);
    return status;
}

// The CPUs that the calling thread may use; the caller frees the set. The kernel refuses a set without room for every
// CPU that it may have. NULL: it does not tell.
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

int bound_cores(void) {
    int count, *processor = usable_processors(&count), cores = cores_first(processor, count, core_of);
    free(processor);
    return MAX(cores, 1);
}

// The quota of one group, in cores, rounded up.
static uint64_t quota_of_group(const char *root, const char *directory, bool is_v1, const void *unused) {
    (void)unused;
    unsigned long long quota = UINT64_MAX, period = 0; // microseconds
    char text[64];
    if (is_v1) {
        quota = system_number(root, directory, "cpu.cfs_quota_us"); // -1: none
        period = system_number(root, directory, "cpu.cfs_period_us");
    } else if (!system_read(root, directory, "cpu.max", text, sizeof text) ||
               sscanf(text, "%llu %llu", &quota, &period) != 2) { // "max 100000": none
        return UINT64_MAX;
    }
    if (quota > INT64_MAX || period == 0 || period > INT64_MAX)
        return UINT64_MAX;
    return MAX(1ull, quota / period + (quota % period != 0));
}

int cores_of_quota(const char *root) {
    uint64_t cores = cgroup_least(root, "cpu", quota_of_group, NULL);
    return (int)MIN(cores, (uint64_t)INT_MAX);
}

int usable_cores(void) {
    int bound = bound_cores(), quota = cores_of_quota("");
    return MIN(bound, quota);
}

void processors_keep_to(const int *processor, int count) {
    cpu_set_t set[CPUS_PINNED / CPU_SETSIZE];
    CPU_ZERO_S(sizeof set, set);
    for (int i = 0; i < count; i++)
        CPU_SET_S((size_t)processor[i], sizeof set, set);
    sched_setaffinity(0, sizeof set, set);
}
