// Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM",
// section 2.2.
#include "pipeline/schedule_make.h"

// Microbatches go in groups, each group through one chunk of a rank after the other. A group of p microbatches fills
// the pipeline; a smaller one would leave it idle at each chunk. So where p does not divide m, groups have p
// microbatches or more, and the last ones may have one more than the others. Fewer than p microbatches are one group.
static int group_begin(const struct schedule *s, int group, int groups) {
    int size = s->microbatches / groups, larger = s->microbatches % groups;
    return group * size + MAX(0, group - (groups - larger));
}

void schedule_add_alternating(struct schedule *s, int rank, const struct pass *order, int count, int ahead,
                              enum pass_kind backward) {
    for (int k = 0; k < count + ahead; k++) {
        if (k < count)
            schedule_add(s, rank, PASS_FORWARD, order[k].chunk, order[k].microbatch);
        if (k >= ahead)
            schedule_add(s, rank, backward, s->chunks - 1 - order[k - ahead].chunk, order[k - ahead].microbatch);
    }
}

void schedule_make_interleaved(struct schedule *s, const struct schedule_options *o) {
    (void)o;
    int p = s->stages, v = s->chunks, m = s->microbatches, groups = MAX(1, m / p), count = 0;
    struct pass *order = mem_alloc((size_t)m * (size_t)v * sizeof *order); // of forwards
    for (int g = 0; g < groups; g++)
        for (int c = 0; c < v; c++)
            for (int i = group_begin(s, g, groups); i < group_begin(s, g + 1, groups); i++)
                order[count++] = (struct pass){PASS_FORWARD, c, i};
    int largest = m - group_begin(s, groups - 1, groups);
    for (int r = 0; r < p; r++) {
        int ahead = MIN(2 * (p - 1 - r) + (v - 1) * largest, count);
        schedule_add_alternating(s, r, order, count, ahead, PASS_BACKWARD);
    }
    free(order);
}
