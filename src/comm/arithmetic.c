#include "comm/arithmetic.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

const void *reduce_chunk(const struct reduction_loops *loops, bool max, bool wire, const void *const *in, int ranks,
                         int64_t first, int64_t n, const void *add, struct chunk *chunk) {
    int64_t at = first * loops->size;
    void *accumulator = chunk->accumulator;
    const char *x = (const char *)in[0] + at;
    if (ranks == 1)
        loops->load(accumulator, x, n);
    else
        (max ? loops->max_two : loops->sum_two)(accumulator, x, (const char *)in[1] + at, n);
    for (int i = 2; i < ranks; i++)
        (max ? loops->max : loops->sum)(accumulator, (const char *)in[i] + at, n);
    if (add)
        loops->add(accumulator, add, n);
    void (*store)(void *restrict, const void *restrict, int64_t) = wire ? loops->store_wire : loops->store;
    if (!store)
        return accumulator;
    store(chunk->result, accumulator, n);
    return chunk->result;
}

// memcpy past the caches where the machine can do that: for data that nobody reads soon.
static void stream_copy(void *restrict to, const void *restrict from, size_t bytes) {
#ifdef __SSE2__
    char *t = to;
    const char *f = from;
    size_t head = MIN(-(uintptr_t)t & 63, bytes);
    memcpy(t, f, head);
    size_t at = head;
    for (; at + 64 <= bytes; at += 64)
        for (size_t i = 0; i < 64; i += 16)
            _mm_stream_si128((__m128i *)(void *)(t + at + i),
                             _mm_loadu_si128((const __m128i *)(const void *)(f + at + i)));
    memcpy(t + at, f + at, bytes - at);
#else
    memcpy(to, from, bytes);
#endif
}

void stream_end(void) {
#ifdef __SSE2__
    _mm_sfence();
#endif
}

int64_t part_begin(int64_t count, int64_t size, int ranks, int index) {
    if (index == ranks)
        return count;
    int64_t line = 64 / size, lines = count / line;
    return (lines / ranks * index + lines % ranks * index / ranks) * line;
}

bool is_streamed(int64_t bytes) {
    return bytes >= 16 << 20;
}

void copy_bytes(void *to, const void *from, int64_t bytes, bool streamed) {
    if (bytes == 0 || to == from)
        return;
    if (streamed)
        stream_copy(to, from, (size_t)bytes);
    else
        memcpy(to, from, (size_t)bytes);
}

void reduce_elements(const struct comm_call *call, bool wire, const void *const *in, int ranks, int64_t first,
                     int64_t count, void *out, bool streamed, struct chunk *chunk) {
    const struct reduction_loops *loops = reduction_loops(call->dtype, call->wire);
    int64_t size = dtype_size(call->dtype);
    for (int64_t at = 0; at < count; at += CHUNK) {
        int64_t n = MIN(count - at, CHUNK);
        char *to = (char *)out + at * size;
        const void *result = reduce_chunk(loops, call->reduction == REDUCE_MAX, wire, in, ranks, first + at, n,
                                          call->accumulate ? to : NULL, chunk);
        copy_bytes(to, result, n * size, streamed);
    }
}
