// Long all-reduce: member i reduces part i and writes it to all. A part is read and written by that member alone, so
// reducing in place needs no second buffer and no meeting between.
#include "comm/threads/threads.h"

trireme_status all_reduce_blocks(struct thread_communicator *c, const struct comm_call *call, trireme_error *error) {
    const void *const *in;
    void *const *out;
    TRY(call_share(c, call, &in, &out, error));
    int ranks = c->base.size, index = c->base.index;
    int64_t size = dtype_size(call->dtype), end = part_begin(call->count, size, ranks, index + 1);
    bool streamed = is_streamed(ranks * call->count * size);
    const struct reduction_loops *loops = reduction_loops(call->dtype, call->wire);
    for (int64_t at = part_begin(call->count, size, ranks, index); at < end; at += CHUNK) {
        int64_t n = MIN(end - at, CHUNK);
        const void *result = reduce_chunk(loops, call->reduction == REDUCE_MAX, true, in, ranks, at, n, NULL, c->chunk);
        // In place the lines are in the caches already, having just been read.
        for (int i = 0; i < ranks; i++)
            copy_bytes((char *)out[i] + at * size, result, n * size, streamed && out[i] != in[i]);
    }
    stream_end();
    return call_leave(c, call, error);
}
