#include "base/reserve.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

// Of the process, as its memory is.
static struct {
    pthread_mutex_t mutex;
    int calls;
    void *held;
    atomic_size_t refused; // bytes; 0: nothing was
} reserve = {.mutex = PTHREAD_MUTEX_INITIALIZER};

trireme_status reserve_take(trireme_error *error) {
    pthread_mutex_lock(&reserve.mutex);
    if (reserve.calls == 0) {
        void *held =
            mmap(NULL, RESERVE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        reserve.held = held == MAP_FAILED ? NULL : held;
        reserve.refused = 0;
    }
    const bool has = reserve.held || reserve.refused;
    reserve.calls += has;
    pthread_mutex_unlock(&reserve.mutex);
    if (!has)
        FAIL(TRIREME_ERROR_MEMORY,
             "out of memory: %d bytes of address space are refused: raise the limit (ulimit -v, "
             "ulimit -d, or a job's)",
             RESERVE_BYTES);
    return TRIREME_OK;
}

void reserve_give(void) {
    pthread_mutex_lock(&reserve.mutex);
    if (--reserve.calls == 0 && reserve.held) {
        munmap(reserve.held, RESERVE_BYTES);
        reserve.held = NULL;
    }
    pthread_mutex_unlock(&reserve.mutex);
}

bool reserve_use(size_t bytes) {
    pthread_mutex_lock(&reserve.mutex);
    const bool has = reserve.held;
    if (has) {
        munmap(reserve.held, RESERVE_BYTES);
        reserve.held = NULL;
        reserve.refused = MAX(bytes, (size_t)1);
    }
    pthread_mutex_unlock(&reserve.mutex);
    return has;
}

trireme_status reserve_check(trireme_error *error) {
    const size_t refused = reserve.refused;
    if (refused)
        FAIL(TRIREME_ERROR_MEMORY,
             "out of memory: %zu bytes more were refused: raise the limit (ulimit -v, ulimit -d, "
             "or a job's), or ask for less",
             refused);
    return TRIREME_OK;
}
