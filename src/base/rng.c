#include "base/rng.h"

#include "base/base.h"
#include "base/hash.h"

enum { PHILOX_ROUNDS = 10, FEISTEL_ROUNDS = 8 };

struct rng_block rng_philox(uint64_t key, uint64_t stream, uint64_t index) {
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32);
    uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53 * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9; // golden ratio
        k1 += 0xBB67AE85; // sqrt(3) - 1
    }
    return (struct rng_block){{c0, c1, c2, c3}};
}

static double uniform_of(const uint32_t word[2]) {
    uint64_t bits = (uint64_t)word[1] << 32 | word[0];
    return (double)(bits >> 11) * 0x1p-53;
}

double rng_uniform(uint64_t key, uint64_t stream, uint64_t index) {
    struct rng_block block = rng_philox(key, stream, index / 2);
    return uniform_of(block.word + 2 * (index % 2));
}

void rng_uniform_pair(uint64_t key, uint64_t stream, uint64_t index, double out[2]) {
    struct rng_block block = rng_philox(key, stream, index);
    out[0] = uniform_of(block.word);
    out[1] = uniform_of(block.word + 2);
}

// MurmurHash3's 64-bit finaliser: a bijection in which every input bit reaches every output bit.
static uint64_t rng_mix(uint64_t x) {
    x = (x ^ x >> 33) * 0xFF51AFD7ED558CCD;
    x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53;
    return x ^ x >> 33;
}

uint64_t rng_stream(const char *name) {
    uint64_t hash = HASH_NOTHING;
    for (; *name; name++)
        hash = hash_add(hash, (unsigned char)*name);
    return rng_mix(hash);
}

// A Feistel network over [0, 2^bits), whose halves differ by one bit when `bits` is odd. Each round xors one half with
// a function of the other, so it can be undone: a bijection whatever the function is. After an even number of rounds
// the halves have their first widths again.
static uint64_t feistel(const uint64_t round_key[FEISTEL_ROUNDS], int bits, uint64_t x) {
    int right_bits = bits / 2, left_bits = bits - right_bits;
    uint64_t left = x >> right_bits, right = x & (((uint64_t)1 << right_bits) - 1);
    for (int round = 0; round < FEISTEL_ROUNDS; round++) {
        uint64_t mixed = (left ^ rng_mix(right ^ round_key[round])) & (((uint64_t)1 << left_bits) - 1);
        left = right;
        right = mixed;
        int swapped = left_bits;
        left_bits = right_bits;
        right_bits = swapped;
    }
    return left << right_bits | right;
}

uint64_t rng_permute(uint64_t key, uint64_t n, uint64_t i) {
    CHECK(i < n);
    if (n == 1)
        return 0;
    int bits = 64 - __builtin_clzll(n - 1);
    uint64_t round_key[FEISTEL_ROUNDS];
    for (int round = 0; round < FEISTEL_ROUNDS; round++)
        round_key[round] = rng_mix(rng_mix(key) + (uint64_t)(round + 1) * 0x9E3779B97F4A7C15);
    // 2^bits < 2n, so fewer than two steps are expected; the walk is on a cycle that holds i < n, so it ends.
    do
        i = feistel(round_key, bits, i);
    while (i >= n);
    return i;
}
