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

#endif
