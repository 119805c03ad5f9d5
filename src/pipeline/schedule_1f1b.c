// Schedules with one chunk to a rank and whole backwards.
#include "pipeline/schedule_make.h"

// Huang et al. 2019, "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism".
void schedule_make_gpipe(struct schedule *s, const struct schedule_options *o) {
    (void)o;
    for (int r = 0; r < s->stages; r++) {
        for (int m = 0; m < s->microbatches; m++)
            schedule_add(s, r, PASS_FORWARD, 0, m);
        for (int m = 0; m < s->microbatches; m++)
            schedule_add(s, r, PASS_BACKWARD, 0, m);
    }
}

// Narayanan et al. 2021, "Memory-Efficient Pipeline-Parallel DNN Training" (PipeDream-Flush).
void schedule_make_1f1b(struct schedule *s, const struct schedule_options *o) {
    (void)o;
    for (int r = 0; r < s->stages; r++) {
        int ahead = MIN(s->stages - 1 - r, s->microbatches);
        for (int m = 0; m < ahead; m++)
            schedule_add(s, r, PASS_FORWARD, 0, m);
        for (int m = ahead; m < s->microbatches; m++) {
            schedule_add(s, r, PASS_FORWARD, 0, m);
            schedule_add(s, r, PASS_BACKWARD, 0, m - ahead);
        }
        for (int m = s->microbatches - ahead; m < s->microbatches; m++)
            schedule_add(s, r, PASS_BACKWARD, 0, m);
    }
}
