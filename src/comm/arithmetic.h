// Arithmetic of reductions, chunk by chunk through the first-level cache, and copies for any transport. An element is
// always reduced over the ranks in the order of their index, so its bits do not depend on who computes it or in which
// pieces.
#ifndef COMM_ARITHMETIC_H
#define COMM_ARITHMETIC_H

#include "comm/transport.h"
#include "kernels/cpu/reduction.h"

enum { CHUNK = 2048 }; // elements
struct chunk {
    _Alignas(64) char accumulator[CHUNK * sizeof(double)];
    _Alignas(64) char result[CHUNK * sizeof(double)];
};

// Reduces in[0..ranks)[first, first + n), n <= CHUNK; the result, n elements of the dtype, lies in *chunk. With `wire`
// it is rounded as the contributions were. `add` (NULL: nothing) holds n elements that the reduction is added to,
// before it is rounded to the dtype. Max of a NaN is a NaN.
const void *reduce_chunk(const struct reduction_loops *loops, bool max, bool wire, const void *const *in, int ranks,
                         int64_t first, int64_t n, const void *add, struct chunk *chunk);

// Reduces in[0..ranks)[first, first + count) to out[count], as the call says; `wire` as above.
void reduce_elements(const struct comm_call *call, bool wire, const void *const *in, int ranks, int64_t first,
                     int64_t count, void *out, bool streamed, struct chunk *chunk);

// What was written past the caches (copy_bytes) is visible to others after this and a release.
void stream_end(void);

// Where the part of member `index` of `count` elements begins: parts are whole cache lines but for the last.
int64_t part_begin(int64_t count, int64_t size, int ranks, int index);
// Whether `bytes` that a call writes are better kept out of the caches.
bool is_streamed(int64_t bytes);
void copy_bytes(void *to, const void *from, int64_t bytes, bool streamed);

#endif
