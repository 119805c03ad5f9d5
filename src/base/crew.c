#include "base/crew.h"

#include "base/base.h"

#include <pthread.h>
#include <sched.h>

enum { THREADS_MAX = 64 };

void crew_run(int threads, void *(*work)(void *argument), void *argument) {
    pthread_t thread[THREADS_MAX];
    int started = 0;
    while (started < MIN(threads, THREADS_MAX) - 1 && pthread_create(&thread[started], NULL, work, argument) == 0)
        started++;
    work(argument);
    for (int i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
}

int usable_cores(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? MAX(1, CPU_COUNT(&set)) : 1;
}
