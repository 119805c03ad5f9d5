// The table of rotary embeddings. A head's elements are pairs, each turned by an angle that is the position times the
// pair's frequency: theta^(-2i/D) for pair i. Scalings for longer contexts change frequencies, so that positions beyond
// those of the first training turn no pair further than it has been turned there, and multiply cosines and sines, which
// sharpens attention.
#include "base/math.h"
#include "model/model.h"

#include <math.h>

int64_t model_rotary_dim(const struct model_config *c) {
    return c->partial_rotary_factor > 0 ? (int64_t)((double)c->head_dim * c->partial_rotary_factor) : c->head_dim;
}

// Rotary embedding of `dim` elements of a head, for sequences of up to `length` tokens.
struct turning {
    const struct rope *rope;
    int64_t dim, length, positions; // positions: max_position_embeddings
};

// The frequency of pair i for a base.
static double pair_frequency(const struct turning *t, double theta, int64_t pair) {
    return math_pow(theta, -2.0 * (double)pair / (double)t->dim);
}

// Llama 3.1: pairs that turn at least high_freq_factor times in the original context stay, those that turn at most
// low_freq_factor times are slowed by the factor, and those in between are blended by the number of turns.
static double llama3_frequency(const struct turning *t, double frequency) {
    const struct rope *r = t->rope;
    double turns = (double)r->original * frequency / (2 * M_PI);
    double blend = (turns - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
    blend = MIN(MAX(blend, 0.0), 1.0);
    return (1 - blend) * frequency / r->factor + blend * frequency;
}

// The pair, as a real number, that turns so often in the original context.
static double yarn_pair(const struct turning *t, double turns) {
    return (double)t->dim * math_log((double)t->rope->original / (turns * 2 * M_PI)) / (2 * math_log(t->rope->theta));
}

// YaRN: as Llama 3.1, but blended by the number of the pair between that of beta_fast turns and that of beta_slow.
static double yarn_frequency(const struct turning *t, double frequency, int64_t pair) {
    const struct rope *r = t->rope;
    double low = yarn_pair(t, r->beta_fast > 0 ? r->beta_fast : 32);
    double high = yarn_pair(t, r->beta_slow > 0 ? r->beta_slow : 1);
    if (!r->untruncated) {
        low = floor(low);
        high = ceil(high);
    }
    low = MAX(low, 0.0);
    high = MIN(high, (double)(t->dim - 1));
    double slowed = ((double)pair - low) / (high == low ? 0.001 : high - low);
    slowed = MIN(MAX(slowed, 0.0), 1.0);
    return slowed * frequency / r->factor + (1 - slowed) * frequency;
}

static double turn_frequency(const struct turning *t, int64_t pair) {
    const struct rope *r = t->rope;
    const double frequency = pair_frequency(t, r->theta, pair), dim = (double)t->dim;
    switch (r->scaling) {
    case ROPE_SCALING_NONE:
        return frequency;
    case ROPE_SCALING_LINEAR:
        return frequency / r->factor;
    case ROPE_SCALING_LLAMA3:
        return llama3_frequency(t, frequency);
    case ROPE_SCALING_DYNAMIC: {
        const double times = MAX(1.0, (double)t->length / (double)t->positions);
        const double grown = math_pow(r->factor * times - (r->factor - 1), dim / (dim - 2));
        return times > 1 ? pair_frequency(t, r->theta * grown, pair) : frequency;
    }
    case ROPE_SCALING_YARN:
        return yarn_frequency(t, frequency, pair);
    default:
        return frequency / (t->length > r->original ? r->long_factor : r->short_factor)[pair];
    }
}

// YaRN's temperature for a context that is `times` as long.
static double yarn_sharpening(double times, double scale) {
    return times > 1 ? 0.1 * scale * math_log(times) + 1 : 1;
}

static double attention_factor(const struct turning *t) {
    const struct rope *r = t->rope;
    const double times = r->factor > 0 ? r->factor : (double)t->positions / (double)MAX(r->original, (int64_t)1);
    if (r->scaling != ROPE_SCALING_YARN && r->scaling != ROPE_SCALING_LONGROPE)
        return 1;
    if (r->attention_factor > 0)
        return r->attention_factor;
    if (r->scaling == ROPE_SCALING_LONGROPE)
        return times > 1 ? sqrt(1 + math_log(times) / math_log((double)r->original)) : 1;
    if (r->mscale > 0 && r->mscale_all_dim > 0)
        return yarn_sharpening(times, r->mscale) / yarn_sharpening(times, r->mscale_all_dim);
    return yarn_sharpening(times, 1);
}

double rope_frequency(const struct model_config *c, int rope, int64_t length, int64_t pair) {
    const struct turning t = {&c->rope[rope], model_rotary_dim(c), length, c->max_position_embeddings};
    return turn_frequency(&t, pair);
}

void rope_table(const struct model_config *c, int rope, int64_t positions, int64_t length, double *table) {
    const struct turning t = {&c->rope[rope], model_rotary_dim(c), length, c->max_position_embeddings};
    const int64_t half = t.dim / 2;
    const double factor = attention_factor(&t);
    for (int64_t i = 0; i < half; i++) {
        const double frequency = turn_frequency(&t, i);
        for (int64_t p = 0; p < positions; p++) {
            table[p * 2 * half + i] = factor * math_cos((double)p * frequency);
            table[p * 2 * half + half + i] = factor * math_sin((double)p * frequency);
        }
    }
}
