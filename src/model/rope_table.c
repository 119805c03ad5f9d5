// The table of rotary embeddings.
#include "base/math.h"
#include "model/model.h"

#include <math.h>

// The angle by which one position turns feature pair i: theta^(-2i/D), scaled.
static double inverse_frequency(const struct model_config *c, int64_t pair) {
    double frequency = math_pow(c->rope_theta, -2.0 * (double)pair / (double)c->head_dim);
    if (c->rope_scaling == ROPE_SCALING_NONE)
        return frequency;
    if (c->rope_scaling == ROPE_SCALING_LINEAR)
        return frequency / c->rope_factor;
    // Llama 3.1: pairs that turn at least high_freq_factor times in the original context stay, those that turn at most
    // low_freq_factor times are slowed by the factor, and those in between are blended by the number of turns.
    double turns = (double)c->rope_original_max_position_embeddings * frequency / (2 * M_PI);
    double blend = (turns - c->rope_low_freq_factor) / (c->rope_high_freq_factor - c->rope_low_freq_factor);
    blend = MIN(MAX(blend, 0.0), 1.0);
    return (1 - blend) * frequency / c->rope_factor + blend * frequency;
}

void rope_table(const struct model_config *config, int64_t positions, double *table) {
    int64_t half = config->head_dim / 2;
    for (int64_t i = 0; i < half; i++) {
        double frequency = inverse_frequency(config, i);
        for (int64_t p = 0; p < positions; p++) {
            table[p * 2 * half + i] = math_cos((double)p * frequency);
            table[p * 2 * half + half + i] = math_sin((double)p * frequency);
        }
    }
}
