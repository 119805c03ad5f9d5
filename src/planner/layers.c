#include "planner/layers.h"

#include <math.h>

int layers_count(const struct layers_choice *c) {
    int sum = 0;
    for (int m = 0; m < RECOMPUTE_MODES; m++)
        sum += c->of[m];
    return sum;
}

int layers_deepest(const struct layers_choice *c) {
    return c->of[CONFIG_RECOMPUTE_FULL]        ? CONFIG_RECOMPUTE_FULL
           : c->of[CONFIG_RECOMPUTE_SELECTIVE] ? CONFIG_RECOMPUTE_SELECTIVE
                                               : CONFIG_RECOMPUTE_NONE;
}

double layers_seconds(const struct layers_problem *p, int stage, const struct layers_choice *c) {
    const struct layers_stage *s = &p->stage[stage];
    double seconds = s->seconds;
    for (int m = 0; m < RECOMPUTE_MODES; m++)
        seconds += c->of[m] * s->layer[m];
    return seconds;
}

static int chunk_layers(const struct layers_problem *p, const struct layers_chunk *chunk, int layers) {
    return p->given ? chunk->layers : layers / p->chunks + (chunk->index < layers % p->chunks);
}

// Of so many layers of a chunk, deepest modes first; leaves the rest to the chunks behind it.
static struct layers_choice take_layers(int layers, struct layers_choice *left) {
    struct layers_choice taken;
    for (int m = RECOMPUTE_MODES; m-- > 0;) {
        taken.of[m] = MIN(left->of[m], layers);
        left->of[m] -= taken.of[m];
        layers -= taken.of[m];
    }
    return taken;
}

double layers_bytes(const struct layers_problem *p, int stage, const struct layers_choice *c) {
    const struct layers_stage *s = &p->stage[stage];
    const int layers = layers_count(c);
    struct layers_choice left = *c;
    double bytes = s->bytes[layers_deepest(c)] + layers * p->state;
    for (int k = 0; k < p->chunks; k++) {
        const struct layers_choice of = take_layers(chunk_layers(p, &s->chunk[k], layers), &left);
        for (int m = 0; m < RECOMPUTE_MODES; m++)
            bytes += of.of[m] * s->chunk[k].share * s->held[m];
    }
    return bytes;
}

void layers_spread(const struct layers_problem *p, int stage, const struct layers_choice *c,
                   struct layers_choice *of_chunk) {
    const struct layers_chunk *chunk = p->stage[stage].chunk;
    struct layers_choice left = *c;
    for (int k = 0; k < p->chunks; k++)
        of_chunk[chunk[k].index] = take_layers(chunk_layers(p, &chunk[k], layers_count(c)), &left);
}

static bool layers_fits(const struct layers_problem *p, int stage, const struct layers_choice *c) {
    return layers_bytes(p, stage, c) <= p->stage[stage].room;
}

// All in one mode: what is in several needs no less than all in the deepest of them.
static bool some_mode_fits(const struct layers_problem *p, int stage, int layers) {
    bool any = false;
    for (int m = 0; m < RECOMPUTE_MODES && !any; m++) {
        struct layers_choice all = {{0}};
        all.of[m] = layers;
        any = layers_fits(p, stage, &all);
    }
    return any;
}

// As few selective ones as make it fit beside so many full ones, found by bisection: with each more it holds less, but
// for what the first one takes.
static bool add_selective(const struct layers_problem *p, int stage, struct layers_choice *c) {
    const int full = c->of[CONFIG_RECOMPUTE_FULL], rest = c->of[CONFIG_RECOMPUTE_NONE];
    if (layers_fits(p, stage, c))
        return true;
    int least = 1, most = rest;
    while (least < most) {
        const int middle = (least + most) / 2;
        if (layers_fits(p, stage, &(struct layers_choice){{rest - middle, middle, full}}))
            most = middle;
        else
            least = middle + 1;
    }
    *c = (struct layers_choice){{rest - most, most, full}};
    return rest > 0 && layers_fits(p, stage, c);
}

double layers_least(const struct layers_problem *p, int stage, int layers, struct layers_choice *out) {
    const struct layers_stage *s = &p->stage[stage];
    double best = INFINITY;
    if ((s->layers && s->layers != layers) || !some_mode_fits(p, stage, layers))
        return INFINITY;
    for (int full = 0; full <= layers; full++) {
        struct layers_choice c = {{layers - full, 0, full}};
        if (layers_seconds(p, stage, &c) >= best)
            break; // more of them take longer
        if (!add_selective(p, stage, &c))
            continue;
        double seconds = layers_seconds(p, stage, &c);
        if (seconds >= best)
            continue;
        best = seconds;
        if (out)
            *out = c;
    }
    return best;
}

// How many layers fit on a stage, by bisection: more need more.
static int most_layers(const struct layers_problem *p, int stage) {
    const int given = p->stage[stage].layers;
    int least = -1, most = p->layers; // the former fit, or none do
    if (given)
        return some_mode_fits(p, stage, given) ? given : -1;
    while (least < most) {
        const int middle = least + (most - least + 1) / 2;
        if (some_mode_fits(p, stage, middle))
            least = middle;
        else
            most = middle - 1;
    }
    return least;
}

bool layers_may_fit(const struct layers_problem *p) {
    int sum = 0;
    for (int r = 0; r < p->stages; r++) {
        const int most = most_layers(p, r);
        if (most < MAX(p->stage[r].layers, p->least))
            return false;
        sum += most;
    }
    return sum >= p->layers;
}

double layers_choose(const struct layers_problem *p, struct layers_choice *out) {
    size_t width = (size_t)p->layers + 1, cells = (size_t)p->stages * width;
    double *least = mem_alloc(cells * sizeof *least), *slowest = mem_alloc(2 * width * sizeof *slowest),
           *sum = mem_alloc(2 * width * sizeof *sum);
    int *taken = mem_alloc(cells * sizeof *taken), most = p->layers - (p->stages - 1) * p->least;
    for (int r = 0; r < p->stages; r++)
        for (int n = p->least; n <= most; n++)
            least[(size_t)r * width + (size_t)n] = layers_least(p, r, n, NULL);
    for (int k = 0; k <= p->layers; k++)
        slowest[k] = sum[k] = k ? INFINITY : 0;
    for (int r = 0; r < p->stages; r++) {
        const double *from = slowest + (size_t)(r & 1) * width;
        double *to = slowest + (size_t)(~r & 1) * width;
        for (int k = 0; k <= p->layers; k++) {
            to[k] = INFINITY;
            for (int n = p->least; n <= MIN(k, most); n++)
                to[k] = MIN(to[k], MAX(from[k - n], least[(size_t)r * width + (size_t)n]));
        }
    }
    double limit = slowest[(size_t)(p->stages & 1) * width + (size_t)p->layers];
    for (int r = 0; r < p->stages && isfinite(limit); r++) {
        const double *from = sum + (size_t)(r & 1) * width;
        double *to = sum + (size_t)(~r & 1) * width;
        for (int k = 0; k <= p->layers; k++) {
            to[k] = INFINITY;
            for (int n = p->least; n <= MIN(k, most); n++) {
                double one = least[(size_t)r * width + (size_t)n];
                if (one <= limit && from[k - n] + one < to[k]) {
                    to[k] = from[k - n] + one;
                    taken[(size_t)r * width + (size_t)k] = n;
                }
            }
        }
    }
    for (int r = p->stages, k = p->layers; r-- > 0 && isfinite(limit);) {
        int n = taken[(size_t)r * width + (size_t)k];
        layers_least(p, r, n, &out[r]);
        k -= n;
    }
    free(least);
    free(slowest);
    free(sum);
    free(taken);
    return limit;
}
