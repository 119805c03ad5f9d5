// Layers of stages and their modes: held against all that there are.
#include "base/rng.h"
#include "plan/layers.h"
#include "support/checkpoint.h"

#include <math.h>

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
                double bytes = s->bytes + n * p->state + none * s->held[0] + selective * s->held[1] + full * s->held[2];
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

static void best_of_all(void **unused) {
    (void)unused;
    int fitting = 0, mixed = 0, uneven = 0;
    for (uint64_t throw = 0; throw < 300; throw ++) {
        uint64_t next = 0;
#define U() rng_uniform(7, throw, next++)
        struct layers_stage stage[3];
        struct layers_problem p = {.stages = 1 + (int)(3 * U()), .stage = stage};
        p.least = 1 + (int)(1.5 * U());
        p.layers = p.least * p.stages + (int)(4 * U());
        p.state = U();
        const double layer[] = {3, 3.05 + .2 * U(), 4};
        double selective = .3 + .6 * U();
        for (int r = 0; r < p.stages; r++) {
            double microbatches = p.stages - r;
            double seconds = (throw % 2 ? 8 : 2) * U(), bytes = U(), slower = throw % 5 < 2 ? .4 + 2 * U() : 1;
            stage[r] = (struct layers_stage){.seconds = seconds,
                                             .bytes = bytes,
                                             .layer = {slower * layer[0], slower * layer[1], slower * layer[2]},
                                             .held = {microbatches, selective * microbatches, .1 * microbatches}};
        }
        if (throw % 3 == 0)
            stage[0].layers = p.least;
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
            const double *held = stage[r].held;
            double layers_held = of[0] * held[0] + of[1] * held[1] + of[2] * held[2];
            assert_true(stage[r].bytes + n * p.state + layers_held <= stage[r].room + 1e-12);
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
