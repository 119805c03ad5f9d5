#include "plan/layers.h"

#include <math.h>

int layers_count(const struct layers_choice *c) {
    int sum = 0;
    for (int m = 0; m < LAYERS_MODES; m++)
        sum += c->of[m];
    return sum;
}

double layers_seconds(const struct layers_problem *p, int stage, const struct layers_choice *c) {
    const struct layers_stage *s = &p->stage[stage];
    double seconds = s->seconds;
    for (int m = 0; m < LAYERS_MODES; m++)
        seconds += c->of[m] * s->layer[m];
    return seconds;
}

double layers_bytes(const struct layers_problem *p, int stage, const struct layers_choice *c) {
    const struct layers_stage *s = &p->stage[stage];
    double bytes = s->bytes + layers_count(c) * p->state;
    for (int m = 0; m < LAYERS_MODES; m++)
        bytes += c->of[m] * s->held[m];
    return bytes;
}

// As few selective ones as make it fit beside so many full ones.
static bool add_selective(const struct layers_problem *p, int stage, struct layers_choice *c) {
    int rest = c->of[0];
    double room = p->stage[stage].room, lacks = layers_bytes(p, stage, c) - room,
           saved = p->stage[stage].held[0] - p->stage[stage].held[1];
    if (lacks > 0 && saved > 0)
        c->of[1] = (int)MIN(rest, ceil(lacks / saved));
    c->of[0] = rest - c->of[1];
    if (c->of[0] > 0 && saved > 0 && layers_bytes(p, stage, c) > room) { // rounded
        c->of[0]--;
        c->of[1]++;
    }
    return layers_bytes(p, stage, c) <= room;
}

double layers_least(const struct layers_problem *p, int stage, int layers, struct layers_choice *out) {
    const struct layers_stage *s = &p->stage[stage];
    double best = INFINITY;
    const struct layers_choice deepest = {{0, 0, layers}};
    if ((s->layers && s->layers != layers) || layers_bytes(p, stage, &deepest) > s->room)
        return INFINITY;
    for (int full = 0; full <= layers; full++) {
        struct layers_choice c = {{layers - full, 0, full}};
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

bool layers_may_fit(const struct layers_problem *p) {
    double most = 0;
    for (int r = 0; r < p->stages; r++) {
        const struct layers_stage *s = &p->stage[r];
        double left = s->room - s->bytes, one = p->state + s->held[LAYERS_MODES - 1];
        double fit = left < 0 ? -1 : one > 0 ? floor(left / one) : p->layers;
        if (fit < MAX(s->layers, p->least))
            return false;
        most += s->layers ? s->layers : fit;
    }
    return most >= p->layers;
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
