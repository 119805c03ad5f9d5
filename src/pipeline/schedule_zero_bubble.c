// The two handcrafted schedules of Qi et al. 2024, "Zero Bubble Pipeline Parallelism", section 2.
#include "pipeline/schedule_make.h"

// The order of 1F1B with `depth` times as many forwards ahead, and backward in two parts. As long as there are
// forwards, rank i leaves depth * i weights' passes undone: the first ranks, whose last backward comes last, then have
// the least left to do.
static void zero_bubble_make(struct schedule *s, int depth) {
    int p = s->stages, m = s->microbatches;
    for (int r = 0; r < p; r++) {
        int ahead = MIN(depth * (p - 1 - r), m), weights = 0;
        for (int f = 0; f < m + ahead; f++) {
            int b = f - ahead;
            if (f < m)
                schedule_add(s, r, PASS_FORWARD, 0, f);
            if (b < 0)
                continue;
            schedule_add(s, r, PASS_BACKWARD_INPUT, 0, b);
            if (f >= m || b + 1 - weights > depth * r)
                schedule_add(s, r, PASS_BACKWARD_WEIGHT, 0, weights++);
        }
        while (weights < m)
            schedule_add(s, r, PASS_BACKWARD_WEIGHT, 0, weights++);
    }
}

void schedule_make_zb_h1(struct schedule *s, const struct schedule_options *o) {
    (void)o;
    zero_bubble_make(s, 1);
}

void schedule_make_zb_h2(struct schedule *s, const struct schedule_options *o) {
    (void)o;
    zero_bubble_make(s, 2);
}
