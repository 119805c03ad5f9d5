#include "base/crew.h"

#include "base/base.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { THREADS_MAX = 64 };

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

int usable_cores(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? MAX(1, CPU_COUNT(&set)) : 1;
}
