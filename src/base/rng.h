// Counter-based random numbers: Philox 4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC'11).
// A number is a pure function of (key, stream, index): any rank computes any element without drawing the others.
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

struct rng_block {
    uint32_t word[4];
};

struct rng_block rng_philox(uint64_t key, uint64_t stream, uint64_t index);
// Uniform in [0, 1) with 53 bits; index counts numbers.
double rng_uniform(uint64_t key, uint64_t stream, uint64_t index);
// rng_uniform's numbers 2 * index and 2 * index + 1, in the time of one.
void rng_uniform_pair(uint64_t key, uint64_t stream, uint64_t index, double out[2]);
// A 64-bit hash of a string (FNV-1a, then a finaliser), to name streams.
uint64_t rng_stream(const char *name);
// Bijection of [0, n): a keyed permutation (cycle-walking Feistel network; Black and Rogaway, "Ciphers with Arbitrary
// Finite Domains", 2002), O(1) memory. n >= 1, i < n.
uint64_t rng_permute(uint64_t key, uint64_t n, uint64_t i);

#endif
