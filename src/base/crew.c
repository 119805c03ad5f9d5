#include "base/crew.h"

#include "base/base.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { THREADS_MAX = 64, CPUS_MOST = 1 << 20 };

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

// The kernel refuses a set that has no room for every CPU it may have.
int usable_cores(void) {
    for (size_t cpus = CPU_SETSIZE; cpus <= CPUS_MOST; cpus *= 2) {
        size_t bytes = CPU_ALLOC_SIZE(cpus);
        cpu_set_t *set = mem_alloc(bytes);
        int found = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
        free(set);
        if (found > 0)
            return found;
    }
    return 1;
}
