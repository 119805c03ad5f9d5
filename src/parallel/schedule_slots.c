#include "parallel/schedule.h"

// The chunk of the same rank that a chunk has its inputs from, -1 where they come from another.
static int chunk_before(const struct schedule *s, int rank, int chunk) {
    int stage = s->virtual_stage[rank * s->chunks + chunk];
    return stage > 0 && s->place[stage - 1].rank == rank ? s->place[stage - 1].chunk : -1;
}

int schedule_slots(const struct schedule *s, int rank, int chunk, enum slots_for what, bool forward_only, int *slot) {
    const struct schedule_rank *list = &s->rank[rank];
    bool inputs = what == SLOTS_FOR_INPUTS;
    int before = inputs ? chunk_before(s, rank, chunk) : -1, taker = before >= 0 ? before : chunk;
    int count = inputs && before < 0 ? MIN(2, s->microbatches) : 0, vacant = 0, held = 0;
    long *left =
        mem_alloc((size_t)s->microbatches * sizeof *left); // of each slot: when it was given back, -1: it is held
    for (size_t i = 0; i < list->count; i++) {
        const struct pass *pass = &list->item[i];
        if (pass->kind == PASS_FORWARD && pass->chunk == taker) {
            vacant = -1;
            for (int k = 0; k < count; k++)
                if (left[k] >= 0 && (vacant < 0 || (inputs && left[k] < left[vacant])))
                    vacant = k;
            if (vacant < 0)
                vacant = count++;
            slot[pass->microbatch] = vacant;
            left[vacant] = -1;
            held++;
            if (inputs && before < 0 && held == count && count < s->microbatches)
                left[count++] = 0;
        }
        bool ends = forward_only ? pass->kind == PASS_FORWARD
                                 : pass->kind == PASS_BACKWARD || pass->kind == PASS_BACKWARD_WEIGHT;
        if (ends && pass->chunk == chunk) {
            left[slot[pass->microbatch]] = (long)i + 1;
            held--;
        }
    }
    free(left);
    return count;
}
