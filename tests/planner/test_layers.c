// Layers of stages and their modes: compared with an exhaustive search.
#include "base/rng.h"
#include "planner/layers.h"
#include "support/checkpoint.h"

#include <math.h>

// Layer by layer: the chunk's first ones are in the deepest mode that is left.
static double bytes_of(const struct layers_problem *p, const struct layers_stage *s, const int of[RECOMPUTE_MODES]) {
    int n = of[0] + of[1] + of[2], layer = 0;
    double bytes = s->bytes[of[2] ? 2 : of[1] ? 1 : 0] + n * p->state;
    for (int k = 0; k < p->chunks; k++) {
        int layers = p->given ? s->chunk[k].layers : n / p->chunks + (s->chunk[k].index < n % p->chunks);
        for (int i = 0; i < layers; i++, layer++)
            bytes += s->chunk[k].share * s->held[layer < of[2] ? 2 : layer < of[2] + of[1] ? 1 : 0];
    }
    return bytes;
}

// The slowest stage's seconds; or, of all stages together with none above `limit`, their sum.
static double try_all(const struct layers_problem *p, int stage, int left, double limit) {
    if (stage == p->stages)
        return left ? INFINITY : 0;
    double best = INFINITY;
    const struct layers_stage *s = &p->stage[stage];
    for (int none = 0; none <= left; none++)
        for (int selective = 0; none + selective <= left; selective++)
            for (int full = 0; none + selective + full <= left; full++) {
                int n = none + selective + full;
                double bytes = bytes_of(p, s, (const int[]){none, selective, full});
                if (n < p->least || (s->layers && s->layers != n) || bytes > s->room)
                    continue;
                double layers = none * s->layer[0] + selective * s->layer[1] + full * s->layer[2];
                double seconds = s->seconds + layers;
                if (seconds > limit)
                    continue;
                double rest = try_all(p, stage + 1, left - n, limit);
                best = fmin(best, isfinite(limit) ? seconds + rest : fmax(seconds, rest));
            }
    return best;
}

// As a user does: an uneven layout of all layers.
static void give_chunks(struct layers_problem *p) {
    int left = p->layers;
    p->given = true;
    for (int r = 0; r < p->stages; r++) {
        p->stage[r].layers = 0;
        for (int k = 0; k < p->chunks; k++) {
            const int behind = p->stages * p->chunks - r * p->chunks - k - 1;
            const int layers = k % 2 ? 1 : behind ? left - behind : left;
            p->stage[r].chunk[k].layers = layers;
            p->stage[r].layers += layers;
            left -= layers;
        }
    }
}

static void check_spread(const struct layers_problem *p, int stage, const struct layers_choice *choice) {
    struct layers_choice of_chunk[2], sum = {{0}};
    const int n = layers_count(choice);
    layers_spread(p, stage, choice, of_chunk);
    for (int k = 0; k < p->chunks; k++) {
        const struct layers_chunk *chunk = &p->stage[stage].chunk[k];
        const struct layers_choice *of = &of_chunk[chunk->index];
        assert_int_equal(layers_count(of), p->given ? chunk->layers : n / p->chunks + (chunk->index < n % p->chunks));
        for (int m = 0; m < RECOMPUTE_MODES; m++)
            sum.of[m] += of->of[m];
    }
    assert_memory_equal(&sum, choice, sizeof sum);
    // A chunk of which less is held has none in a deeper mode than one of which more is.
    if (p->chunks == 2)
        assert_true(!of_chunk[p->stage[stage].chunk[1].index].of[2] || !of_chunk[p->stage[stage].chunk[0].index].of[0]);
}

static void best_of_all(void **unused) {
    (void)unused;
    int fitting = 0, mixed = 0, uneven = 0;
    for (uint64_t throw = 0; throw < 300; throw ++) {
        uint64_t next = 0;
#define U() rng_uniform(7, throw, next++)
        struct layers_stage stage[3];
        struct layers_chunk chunk[3][2];
        struct layers_problem p = {.stages = 1 + (int)(3 * U()), .stage = stage, .chunks = 1 + (throw % 4 == 1)};
        p.least = 1 + (int)(1.5 * U());
        p.least = MAX(p.least, p.chunks);
        p.layers = p.least * p.stages + (int)(4 * U());
        p.state = U();
        const double layer[] = {3, 3.05 + .2 * U(), 4};
        double selective = .3 + .6 * U();
        for (int r = 0; r < p.stages; r++) {
            double microbatches = p.stages - r;
            double seconds = (throw % 2 ? 8 : 2) * U(), bytes = U(), slower = throw % 5 < 2 ? .4 + 2 * U() : 1;
            double recomputed = throw % 3 ? 0 : U(), share = throw % 4 == 1 ? 1 + U() : 1;
            chunk[r][0] = (struct layers_chunk){.index = r % p.chunks, .share = share};
            chunk[r][1] = (struct layers_chunk){.index = (r + 1) % p.chunks, .share = 2 - share};
            stage[r] = (struct layers_stage){.seconds = seconds,
                                             .bytes = {bytes, bytes + .5 * recomputed, bytes + recomputed},
                                             .chunk = chunk[r],
                                             .layer = {slower * layer[0], slower * layer[1], slower * layer[2]},
                                             .held = {microbatches, selective * microbatches, .1 * microbatches}};
        }
        if (throw % 3 == 0)
            stage[0].layers = p.least;
        if (throw % 12 == 5)
            give_chunks(&p);
        double room = 1 + 8 * U();
        for (int r = 0; r < p.stages; r++)
            stage[r].room = throw % 7 ? room : room * (.5 + U());
        struct layers_choice choice[3] = {{{0}}};
        double got = layers_choose(&p, choice), least = try_all(&p, 0, p.layers, INFINITY);
        assert_true(got == least || fabs(got - least) < 1e-9);
        assert_true(layers_may_fit(&p) == isfinite(got));
        if (!isfinite(got))
            continue;
        fitting++;
        int layers = 0;
        double sum = 0;
        for (int r = 0; r < p.stages; r++) {
            const int *of = choice[r].of;
            int n = layers_count(&choice[r]);
            layers += n;
            mixed += (of[0] > 0) + (of[1] > 0) + (of[2] > 0) > 1;
            uneven += r > 0 && n != layers_count(&choice[r - 1]);
            assert_true(n >= p.least && (!stage[r].layers || stage[r].layers == n));
            assert_true(bytes_of(&p, &stage[r], of) <= stage[r].room + 1e-12);
            check_spread(&p, r, &choice[r]);
            const double *each = stage[r].layer;
            double seconds = stage[r].seconds + of[0] * each[0] + of[1] * each[1] + of[2] * each[2];
            assert_true(seconds <= got + 1e-9);
            sum += seconds;
        }
        assert_int_equal(layers, p.layers);
        assert_true(fabs(sum - try_all(&p, 0, p.layers, got + 1e-9)) < 1e-9);
    }
    assert_true(fitting > 100 && mixed > 50 && uneven > 50);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(best_of_all)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
