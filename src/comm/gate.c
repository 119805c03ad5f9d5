#include "comm/gate.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

_Static_assert(sizeof(_Atomic uint32_t) == sizeof(uint32_t), "the kernel compares plain words");

void cpu_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

bool futex_sleep(_Atomic uint32_t *word, uint32_t seen, int64_t deadline, bool shared) {
    struct timespec until = {.tv_sec = deadline / 1000000000, .tv_nsec = deadline % 1000000000};
    long result = syscall(SYS_futex, word, FUTEX_WAIT_BITSET | (shared ? 0 : FUTEX_PRIVATE_FLAG), seen,
                          deadline ? &until : NULL, NULL, FUTEX_BITSET_MATCH_ANY);
    return result == 0 || errno != ETIMEDOUT;
}

void futex_wake(_Atomic uint32_t *word, bool shared) {
    syscall(SYS_futex, word, FUTEX_WAKE | (shared ? 0 : FUTEX_PRIVATE_FLAG), INT_MAX, NULL, NULL, 0);
}

bool gate_wait(struct gate *gate, uint32_t seen, int64_t spin, int64_t deadline) {
    if (atomic_load_explicit(&gate->word, memory_order_acquire) != seen)
        return true;
    for (int64_t end = spin ? clock_now() + spin : 0, rounds = 0; spin && clock_now() < end; rounds++) {
        for (int i = 0; i < 16; i++) {
            if (atomic_load_explicit(&gate->word, memory_order_acquire) != seen)
                return true;
            cpu_pause();
        }
        // The thread that is waited for may be queueing for this very core.
        if (rounds >= 4)
            sched_yield();
    }
    // If this thread does not see a change below, the change comes after this count: whoever made it sees the count,
    // and wakes this thread.
    atomic_fetch_add(&gate->sleepers, 1);
    bool in_time = true;
    while (atomic_load(&gate->word) == seen && in_time)
        in_time = futex_sleep(&gate->word, seen, deadline, false);
    atomic_fetch_sub(&gate->sleepers, 1);
    return in_time || atomic_load(&gate->word) != seen;
}

void gate_wake(struct gate *gate) {
    if (atomic_load(&gate->sleepers))
        futex_wake(&gate->word, false);
}
