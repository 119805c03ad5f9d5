// A word that one thread changes and others wait for: a short spin, then sleep in the kernel.
#ifndef COMM_GATE_H
#define COMM_GATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct gate {
    _Atomic uint32_t word;
    _Atomic uint32_t sleepers;
};

// Returns true once the word is not `seen`, false when it still is after `deadline` (clock_now's time, 0: never).
// Spins `spin` nanoseconds before it sleeps.
bool gate_wait(struct gate *gate, uint32_t seen, int64_t spin, int64_t deadline);
// To be called after every change of the word, which must be sequentially consistent.
void gate_wake(struct gate *gate);

// What gates are made of. futex_sleep returns at once unless the word is `seen`, else when woken, or spuriously; false
// when the deadline has passed. `shared`: the other side may be another process.
bool futex_sleep(_Atomic uint32_t *word, uint32_t seen, int64_t deadline, bool shared);
void futex_wake(_Atomic uint32_t *word, bool shared);
void cpu_pause(void); // in a loop that spins

#endif
