// What islands compute together, in f64 and in the plainest way, written from the methods' descriptions alone: the
// sources stand beside the settings. Islands are simulated one after the other; a callback does their inner steps.
//
// Inner steps are numbered from 1. After inner step t of all islands, in this order:
//   1. launch. Each fragment whose turn it is: an island's *delta* is its outer value minus its own value (OLD minus
//      NEW); the fragment's ranges are encoded one by one, and what arrives later is what decoding gives.
//   2. arrive. Each exchange that was launched `delay_steps` steps before (with 0: just now), in the order of launches:
//      reduce   mean of what travelled, weighted, summed in the order of islands: over all; or of an island's own and
//               its peer's
//      apply    v = momentum * v + g; outer -= lr * (nesterov ? g + momentum * v : v), as PyTorch's SGD
//      merge    own = mix * own + (1 - mix) * outer; with `keep_progress`: own = outer + what the island has learnt
//               since the launch
// With a delay of a whole round an island launches the delta of this round before the last round's arrives. At the
// first meeting nothing arrives and the outer value stays. Then own values stay, too, with `keep_progress`; otherwise
// they are merged with the outer value all the same, or the first round would be in two deltas. With `keep_progress` a
// delta is what has been learnt since the last launch: merges move own values, but teach nothing. With a shorter delay
// that is the outer value minus the own one as well.
#ifndef REFERENCE_OUTER_H
#define REFERENCE_OUTER_H

#include "codec/codec.h"

enum plain_pairing {
    // In round r (from 0) island i receives from i - 2^(r mod k), around the ring, where k is the least for which 2^k
    // reaches the number of islands: the one-peer exponential graph (Ying et al., "Exponential Graph is Provably
    // Efficient for Decentralized Deep Training", arXiv 2110.13363).
    PAIRS_EXPONENTIAL,
    // Both exchange: in even rounds 2j and 2j + 1, in odd rounds 2j + 1 and 2j + 2, around the ring. Needs an even
    // number of islands.
    PAIRS_ALTERNATING
};

struct plain_outer {
    // when
    int64_t sync_steps; // H. Fragment p of P is launched after step t if (t - p * H / P) mod H = 0
    // A round that begins with step t has max(H, floor((interval_lr / lr(t))^2)) steps, but no more than there are
    // left; H up to step `warmup_steps`. 0: H always. One fragment alone. The first round has H.
    double interval_lr;
    int64_t warmup_steps;
    int fragments;
    int64_t delay_steps; // at most sync_steps
    // what travels: parameters themselves instead of deltas; then the outer value becomes their mean, and nothing is
    // applied
    bool parameters;
    enum codec codec;
    bool encode_mean; // what the reduction gives is encoded once more, and all take what decoding that gives
    // reduced
    bool equal; // weights: 1; else the targets an island was trained on since the fragment's last launch
    bool pairs;
    enum plain_pairing pairing;
    double pull; // g += pull * (outer value - mean of it and the peer's)
    // applied
    double lr, momentum;
    bool nesterov;
    // g is divided by max(1, |x1 - x2| / |x2 - x3|)^penalty, of the last outer values x1 (now), x2, x3 of the fragment,
    // which begin equal; by 1 where x2 and x3 are equal.
    double penalty;
    double clip; // v is cut to [-clip, clip]; 0: not
    // With delay_steps = sync_steps. At its launch an island applies, without waiting for that exchange,
    // g = (mean of the exchange before) + share * (its delta - what it sent then), where `share` is its weight over the
    // sum of weights in the exchange before. In the first round, before there is one: g = delta / islands.
    bool eager;
    // merged
    double mix;
    bool keep_progress;
    // Inner steps are x -= lr(t) * g / max(D, scale_floor), with one D for all islands. At a meeting
    // D^2 = b D^2 + (1 - b) s, where s is the mean of g^2 over islands (weighted as values are) and steps since the
    // last meeting, and b = (scale_beta - scale_beta^(k+1)) / (1 - scale_beta^(k+1)) in meeting k, from 0. D = 1
    // before. Without delay and with one fragment.
    bool scaled;
    double scale_beta, scale_floor;
};

// Published settings of a method: local_sgd, diloco, streaming_diloco, eager_diloco, co2, qsr, local_scaled, gossip.
// Everything unknown: a bug.
struct plain_outer plain_outer_method(const char *name);

// A part of the parameters that is encoded by itself.
struct plain_range {
    int64_t first, count;
    int fragment;
};

struct plain_problem {
    int islands;
    int64_t count; // of parameters
    const struct plain_range *range;
    int ranges; // together all parameters
    void *context;
    // One inner step of an island: x[count] -> x[count]. Returns the number of its targets.
    double (*step)(void *context, int island, int64_t step, double *x);
    // The gradient alone, which is all that `scaled` asks for. Returns the number of targets.
    double (*gradient)(void *context, int island, int64_t step, const double *x, double *g);
    double (*lr)(void *context, int64_t step); // of inner steps; for interval_lr and `scaled`
    // Sees what an island sends: NULL if nobody wants to. With `parameters` absent: deltas.
    void (*sent)(void *context, int64_t step, int island, int range, const uint8_t *code, int64_t bytes);
    // Sees all islands' values and outer values after each step and what follows it: NULL if nobody wants to.
    void (*after)(void *context, int64_t step, double *const *own, double *const *outer);
};

// Runs `steps` inner steps from start[count], the same on all islands. own[islands][count] and
// outer[islands][count] are arrays of the caller.
void plain_outer_run(const struct plain_outer *settings, const struct plain_problem *problem, int64_t steps,
                     const double *start, double **own, double **outer);

// The format of codec/codec.h once more, from its description. Of f64 values.
void plain_encode(enum codec codec, const double *x, int64_t count, uint8_t *code);
void plain_decode(enum codec codec, const uint8_t *code, int64_t count, double *y);

#endif
