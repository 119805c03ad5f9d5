#include "run/spent.h"

#include "base/base.h"
#include "base/clock.h"

static double seconds_from(int64_t began, int64_t now) {
    return 1e-9 * (double)(now - began);
}

void spent_add(struct spent *s, enum spent_on what, int64_t began) {
    spent_add_seconds(s, what, seconds_from(began, clock_now()));
}

void spent_add_seconds(struct spent *s, enum spent_on what, double seconds) {
    s->on[what] += seconds;
}

void spent_took(struct spent *s, enum spent_on what, double seconds) {
    s->last[what] = seconds;
}

void spent_add_step(struct spent *s, double seconds) {
    s->step = s->step == 0 ? seconds : 0.9 * s->step + 0.1 * seconds;
}

// How often something comes after `step` that comes every `every` steps (0: never), and at the last one.
static double times_left(int64_t step, int64_t steps, int64_t every) {
    if (step >= steps)
        return 0;
    return every > 0 ? (double)(divide_up(steps, every) - step / every) : 1;
}

void spent_take(struct spent *s, const struct config *config, bool validates, struct train_step *out) {
    const int64_t now = clock_now(), steps = config->training.steps;
    out->time = 1e-9 * (double)clock_real();
    out->seconds = seconds_from(s->since, now);
    out->start_seconds = s->on[SPENT_STARTING];
    out->save_seconds = s->on[SPENT_SAVING];
    out->validation_seconds = s->on[SPENT_VALIDATING];
    out->wait_seconds = s->on[SPENT_WAITING];
    out->tokens_per_second = (double)out->step_tokens / MAX(out->seconds, 1e-9);
    out->seconds_left = s->step * (double)(steps - out->step) +
                        s->last[SPENT_SAVING] * times_left(out->step, steps, config->checkpoint.interval);
    if (validates)
        out->seconds_left += s->last[SPENT_VALIDATING] * times_left(out->step, steps, config->validation.freq);
    s->since = now;
    memset(s->on, 0, sizeof s->on);
}
