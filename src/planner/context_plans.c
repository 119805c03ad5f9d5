#include "planner/context_plans.h"

#include "base/clock.h"
#include "parallel/context_choice.h"

#include <math.h>

static trireme_status context_set(struct config *config, const struct context_way *way, trireme_error *error) {
    char text[32];
    TRY(config_set(config, "parallelism.context_parallel_method", config_context_parallel_method_word(way->name),
                   "plan", error));
    if (!config_is_set(config, "parallelism.context_parallel_layout"))
        TRY(config_set(config, "parallelism.context_parallel_layout", places_word(way->layout), "plan", error));
    if (way->name != CONFIG_CONTEXT_PARALLEL_HYBRID)
        return TRIREME_OK;
    snprintf(text, sizeof text, "%lld", (long long)way->ulysses);
    return config_set(config, "parallelism.context_parallel_ulysses_degree", text, "plan", error);
}

// Seconds of the best plan; infinite where there is none.
static trireme_status context_try(double *seconds, const struct plan_request *r, const struct context_way *way,
                                  double until, trireme_error *error) {
    struct config config;
    struct plan_request request = *r;
    struct plan_result result;
    trireme_error none;
    *seconds = INFINITY;
    config_copy(&config, r->config);
    request.config = &config;
    request.seconds = until;
    request.progress = NULL;
    const trireme_status status = context_set(&config, way, error);
    if (status == TRIREME_OK && plan_search(&result, &request, &none) == TRIREME_OK) {
        if (result.answers.count)
            *seconds = result.answers.item[0].seconds;
        plan_result_release(&result);
    }
    config_release(&config);
    return status;
}

trireme_status plan_context(struct plan_request *r, struct config *config, trireme_error *error) {
    const int64_t ranks = parallel_given(config, AXES_PARTS);
    struct context_way way[CONTEXT_WAYS_MAX];
    if (config->parallelism.context_parallel_method != CONFIG_CONTEXT_PARALLEL_AUTO || ranks == 1)
        return TRIREME_OK;
    const int count = context_ways(config, r->model, ranks, way);
    double least = INFINITY;
    int best = NONE;
    const int64_t begin = clock_now();
    const double all = r->seconds;
    for (int i = 0; i < count; i++) {
        const double left = all - 1e-9 * (double)(clock_now() - begin); // searches may take longer than they should
        double seconds;
        TRY(context_try(&seconds, r, &way[i], all > 0 ? fmax(left, all / 10) / (2 * (count - i)) : 0, error));
        if (seconds < least) {
            least = seconds;
            best = i;
        }
    }
    if (all > 0)
        r->seconds = fmax(all - 1e-9 * (double)(clock_now() - begin), all / 10);
    return best == NONE ? TRIREME_OK : context_set(config, &way[best], error);
}
