// Learning-rate schedules.
#include "optim/optimizer.h"

#include "base/math.h"

#include <math.h>

int64_t learning_rate_decay_end(const struct config *c) {
    return c->lr_scheduler.decay_steps > 0 ? c->lr_scheduler.decay_steps : c->training.steps;
}

int64_t learning_rate_decay_begin(const struct config *c) {
    const struct config_lr_scheduler *s = &c->lr_scheduler;
    const int64_t end = learning_rate_decay_end(c), fall = (int64_t)llround(s->decay_ratio * (double)end);
    // Warm-up, stable, decay: Hu et al. 2024, MiniCPM.
    return s->decay_type == CONFIG_DECAY_WSD ? MAX(s->warmup_steps, end - fall) : s->warmup_steps;
}

double learning_rate_peak(const struct config *c) {
    if (!c->lr_scheduler.base_batch_size)
        return c->optimizer.lr;
    const double ratio = (double)c->training.global_batch_size / (double)c->lr_scheduler.base_batch_size;
    return c->optimizer.lr * (c->lr_scheduler.batch_scaling == CONFIG_BATCH_SCALING_SQRT ? sqrt(ratio) : ratio);
}

double learning_rate(const struct config *config, int64_t step) {
    const struct config_lr_scheduler *s = &config->lr_scheduler;
    double lr = learning_rate_peak(config), low = s->min_lr_factor;
    if (step <= s->warmup_steps)
        return lr * (double)step / (double)s->warmup_steps;
    // Progress is 0 in the first step of the decay, begin + 1, and 1 in the first one after it, end + 1, as in
    // Megatron-LM, TorchTitan and transformers: no step of the decay has the rate at which it ends, which may be 0.
    const int64_t begin = learning_rate_decay_begin(config), end = learning_rate_decay_end(config);
    // A decay of no length is over right after its step.
    double progress = end > begin ? (double)(step - 1 - begin) / (double)(end - begin) : step > end;
    progress = MIN(MAX(progress, 0.0), 1.0);
    switch (s->decay_type) {
    case CONFIG_DECAY_COSINE:
        return lr * (low + (1 - low) * 0.5 * (1 + math_cos(M_PI * progress))); // Loshchilov & Hutter 2017 (SGDR)
    case CONFIG_DECAY_LINEAR:
    case CONFIG_DECAY_WSD:
        return lr * (low + (1 - low) * (1 - progress));
    case CONFIG_DECAY_CONSTANT:
        break;
    }
    return lr;
}
