#include "engine/process_memory.h"

#include "base/parallel_for.h"
#include "ckpt/save_plan.h"

enum {
    PROCESS_BYTES = 4 << 20,
    RANK_BYTES = 640 << 10,   // its threads' stacks and heaps, what its executors keep
    THREAD_BYTES = 128 << 10, // of a kernel thread
    PAGE_TABLE_SHARE = 512,   // an entry of 8 bytes for a page of 4 KiB
    BATCH_INPUTS = 4,         // of int32_t (run/loader.c)
    SAVED_BLOCKS = 3,         // of a checkpoint, that a rank has at a time: what it is given, and two that it writes
};

static size_t batches_bytes(const struct stages *s) {
    size_t bytes = 0;
    for (size_t i = 0; i < s->specs.count; i++) {
        const struct batch_shape *b = &s->specs.item[i].batch;
        bytes += (size_t)(b->microbatches * b->sequences * parallel_places(&s->plan, b->seq_len).rows) * BATCH_INPUTS *
                 sizeof(int32_t);
    }
    return bytes;
}

// What a rank with so many bytes of arenas has for saving: what is copied and not written yet; blocks that are written,
// and made of what others give (ckpt/saver.h).
static size_t saver_room(const struct stages *s, size_t arena) {
    const struct config_checkpoint *c = &s->config->checkpoint;
    const size_t block = MIN(arena, (size_t)SAVE_BLOCK_BYTES);
    const bool in_background = c->async_save && c->interval > 0;
    return (in_background ? MIN(arena, (size_t)c->buffer_mib << 20) : block) + SAVED_BLOCKS * block;
}

// What a rank knows of its own parts and of all ranks' (ckpt/holders.h): of two states, weights and remainders. A rank
// has some parameters of its stage, or a part of each of its units; tensor ranks cut parameters.
static size_t parts_bytes(const struct stages *s) {
    enum { GROUPS = 4 };
    const size_t parameters = s->table.parameters.count, tensor = (size_t)mesh_group_size(&s->plan.mesh, AXES_TENSOR),
                 parts = (size_t)(s->ranks / s->count) * s->table.units.count + tensor * parameters;
    return GROUPS * (parameters * sizeof(struct holding) + parts * sizeof(struct holder_part));
}

size_t process_memory(const struct stages *s, int ranks, size_t arenas) {
    const size_t count = (size_t)ranks;
    const size_t saving = s->saves ? count * (saver_room(s, arenas / count) + parts_bytes(s)) : 0;
    return PROCESS_BYTES + count * (RANK_BYTES + (size_t)s->options.threads * THREAD_BYTES + batches_bytes(s)) +
           saving + arenas / PAGE_TABLE_SHARE;
}

size_t process_stacks(const struct stages *s, int ranks) {
    // Besides the rank's own thread: kernels', one for each stream but the first, the one that reads batches, and two
    // that save; and rank 0's that removes checkpoints.
    const size_t saving = s->saves ? 2 : 0, removing = s->saves ? 1 : 0;
    size_t streams = 1;
    for (int i = 0; i < s->count; i++)
        for (size_t k = 0; k < s->stage[i].programs.count; k++)
            streams = MAX(streams, s->stage[i].programs.item[k]->program.streams.count);
    return ((size_t)ranks * ((size_t)s->options.threads + streams - 1 + saving) + removing) * thread_stack_bytes();
}
