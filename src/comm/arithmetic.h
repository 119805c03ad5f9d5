// Arithmetic of reductions, chunk by chunk through the first-level cache, and copies, for all transports. An element is
// always reduced over the ranks in the order of their index, so its bits do not depend on who computes it or in which
// pieces.
#ifndef COMM_ARITHMETIC_H
#define COMM_ARITHMETIC_H

#include "comm/transport.h"
#include "kernels/reduction.h"

enum { CHUNK = 2048 }; // elements
struct chunk {
    _Alignas(64) char accumulator[CHUNK * sizeof(double)];
    _Alignas(64) char result[CHUNK * sizeof(double)];
};

// Reduces elements [first, first + n) of each of in[ranks], n <= CHUNK; returns the result, n elements of the dtype,
// which lies in *chunk. With `wire` it is rounded as the contributions were. The reduction is added to the n elements
// at `add` (NULL: none) before it is rounded to the dtype. The max with a NaN is a NaN.
const void *reduce_chunk(const struct reduction_loops *loops, bool max, bool wire, const void *const *in, int ranks,
                         int64_t first, int64_t n, const void *add, struct chunk *chunk);

// Reduces elements [first, first + count) of each of in[ranks] to out[count], as the call says; `wire` as above.
// `streamed`: past the caches (is_streamed).
void reduce_elements(const struct comm_call *call, bool wire, const void *const *in, int ranks, int64_t first,
                     int64_t count, void *out, bool streamed, struct chunk *chunk);

// What was written past the caches is visible to others after this and a release.
void stream_end(void);

// The element at which the part of member `index` begins, of `count` elements of `size` bytes that are divided among
// the ranks. Parts are whole cache lines, except the last.
int64_t part_begin(int64_t count, int64_t size, int ranks, int index);
// Whether a call that writes `bytes` should write past the caches.
bool is_streamed(int64_t bytes);
void copy_bytes(void *to, const void *from, int64_t bytes, bool streamed);

#endif
