#include "engine/process_memory.h"

#include "base/parallel_for.h"
#include "ckpt/values.h"

enum {
    PROCESS_BYTES = 4 << 20,
    RANK_BYTES = 640 << 10,   // its threads' stacks and heaps, what its executors keep
    THREAD_BYTES = 128 << 10, // of a kernel thread
    PAGE_TABLE_SHARE = 512,   // an entry of 8 bytes for a page of 4 KiB
    BATCH_INPUTS = 4,         // of int32_t (run/loader.c)
};

static size_t batches_bytes(const struct stages *s) {
    size_t bytes = 0;
    for (size_t i = 0; i < s->specs.count; i++) {
        const struct batch_shape *b = &s->specs.item[i].batch;
        bytes += (size_t)(b->microbatches * b->sequences * b->seq_len) * BATCH_INPUTS * sizeof(int32_t);
    }
    return bytes;
}

// The most values of a parameter that are saved at one time.
static size_t window_bytes(const struct stages *s) {
    int64_t values = 0;
    for (size_t i = 0; i < s->table.parameters.count; i++) {
        const struct parameter *p = &s->table.parameters.item[i];
        values = MAX(values, MIN(p->dim[0] * p->dim[1], MAX(VALUES_WINDOW, p->dim[1])));
    }
    return (size_t)(values * dtype_size(dtype_accumulate(s->stage[0].state.dtype)));
}

static bool stages_train(const struct stages *s) {
    for (size_t i = 0; i < s->specs.count; i++)
        if (s->specs.item[i].kind == PROGRAM_TRAIN)
            return true;
    return false;
}

size_t process_memory(const struct stages *s, int ranks, size_t arenas) {
    const size_t count = (size_t)ranks;
    // Rank 0 has the window, what others send for it and, of islands, their mean; every rank what it sends.
    const size_t windows = !stages_train(s) ? 0 : ranks == 1 ? 1 : 4 + count;
    return PROCESS_BYTES + count * (RANK_BYTES + (size_t)s->options.threads * THREAD_BYTES + batches_bytes(s)) +
           windows * window_bytes(s) + arenas / PAGE_TABLE_SHARE;
}

size_t process_stacks(const struct stages *s, int ranks) {
    // Besides the rank's own thread: kernels', one for each stream but the first, and the one that reads batches.
    size_t streams = 1;
    for (int i = 0; i < s->count; i++)
        for (size_t k = 0; k < s->stage[i].programs.count; k++)
            streams = MAX(streams, s->stage[i].programs.item[k]->program.streams.count);
    return (size_t)ranks * ((size_t)s->options.threads + streams - 1) * thread_stack_bytes();
}
