#include "planner/islands.h"

#include "base/amount.h"
#include "base/json.h"
#include "sim/run_simulation.h"

enum { INTERVAL_MOST = 1000 };

static trireme_status islands_set(struct config *config, const char *key, int64_t value, trireme_error *error) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    return config_set(config, key, text, "plan", error);
}

// ---- one island

static trireme_status island_divide(struct config *config, int ranks, trireme_error *error) {
    const int64_t islands = config->parallelism.island_degree, batch = config->training.global_batch_size;
    TRY(islands_set(config, "training.global_batch_size", batch / islands, error));
    if (config_is_set(config, "parallelism.ranks"))
        TRY(islands_set(config, "parallelism.ranks", ranks / islands, error));
    // Models of few layers tell how others are. How many fragments there are does not matter to one island.
    if (config->outer.fragments > 1)
        TRY(islands_set(config, "outer.fragments", 1, error));
    return islands_set(config, "parallelism.island_degree", 1, error);
}

trireme_status plan_one_island(struct plan_request *r, struct config *config, struct cluster *cluster,
                               trireme_error *error) {
    const struct config *all = r->config;
    const int64_t islands = all->parallelism.island_degree;
    struct mesh any = mesh_single();
    if (islands < 1)
        return config_refuse(all, "parallelism.island_degree", error, "expected 1 or more: it is kept, not searched");
    if (r->ranks % islands)
        return config_refuse(all, "parallelism.island_degree", error, "which does not divide %s",
                             counted(r->ranks, "rank").text);
    if (all->training.global_batch_size % islands)
        return config_refuse(all, "parallelism.island_degree", error, "which does not divide a batch of %s",
                             counted(all->training.global_batch_size, "sequence").text);
    if (islands > 1 && all->outer.method == CONFIG_OUTER_NONE)
        return config_refuse(all, "parallelism.island_degree", error,
                             "but outer.method is none: say how islands meet, as in outer.method=diloco");
    any.degree[AXIS_FSDP] = r->ranks;
    TRY(topology_check(cluster, &any, &cluster->ranks_per_device, error));
    config_copy(config, all);
    const trireme_status status = islands > 1 ? island_divide(config, r->ranks, error) : TRIREME_OK;
    if (status != TRIREME_OK) {
        config_release(config);
        return status;
    }
    r->config = config;
    r->ranks /= (int)islands;
    r->islands = islands > 1 ? (int)islands : 0;
    return TRIREME_OK;
}

// ---- intervals

static trireme_status island_join(struct config *whole, const struct plan_request *r, const struct config *config,
                                  trireme_error *error) {
    const int64_t islands = config->parallelism.island_degree;
    TRY(islands_set(whole, "parallelism.island_degree", islands, error));
    if (config->outer.fragments > 1)
        TRY(islands_set(whole, "outer.fragments", config->outer.fragments, error));
    TRY(islands_set(whole, "parallelism.ranks", islands * r->ranks, error));
    return islands_set(whole, "training.global_batch_size", config->training.global_batch_size, error);
}

// From the shortest on. The programs of all of them are the same.
struct lengths {
    VEC(int64_t);
};
static struct lengths list_lengths(const struct config *config, bool kept) {
    static const int LEADING[] = {1, 2, 5};
    const struct config_outer *o = &config->outer;
    struct lengths out = {0};
    if (kept) {
        VEC_PUSH(&out, o->sync_steps);
        return out;
    }
    for (int64_t power = 1; power <= INTERVAL_MOST; power *= 10)
        for (size_t i = 0; i < ARRAY_LENGTH(LEADING); i++)
            if (LEADING[i] * power > o->delay_steps && LEADING[i] * power * o->fragments <= INTERVAL_MOST)
                VEC_PUSH(&out, LEADING[i] * power * o->fragments);
    return out;
}

// Simulates one interval after the other, until one leaves the share.
static trireme_status intervals_simulate(struct plan_intervals *out, struct config *whole, struct run_simulation *run,
                                         const struct lengths *lengths, trireme_error *error) {
    for (size_t i = 0; i < lengths->count && !out->reached; i++) {
        TRY(islands_set(whole, "outer.sync_steps", lengths->item[i], error));
        TRY(simulate_run_period(run, whole, &(struct simulation_options){0}, error));
        const double alone = (double)run->period.steps * run->step.seconds;
        VEC_PUSH(out, ((struct plan_interval){lengths->item[i], alone / run->period_seconds, run->compute_share}));
        out->reached = out->item[i].speed >= out->share;
    }
    return TRIREME_OK;
}

static trireme_status intervals_compile(struct stages *stages, const struct config *whole, struct parallel *plan,
                                        const struct plan_request *r, trireme_error *error) {
    int each;
    TRY(parallel_resolve_from(plan, r->schedules, whole, r->model, error));
    TRY(topology_check(r->cluster, &plan->mesh, &each, error));
    const struct stages_options how = {.ops = r->ops,
                                       .threads = topology_threads(r->cluster, whole->training.threads, each)};
    TRY(stages_create(stages, whole, r->model, plan, TRAIN_ALONE, &how, error));
    TRY(stages_compile(stages, EVERY_STAGE, error));
    return stages_verify(stages, error);
}

static trireme_status intervals_run(struct plan_intervals *out, struct config *whole, const struct plan_request *r,
                                    const struct lengths *lengths, trireme_error *error) {
    struct parallel plan = {0};
    struct stages stages = {0};
    struct run_simulation run = {0};
    struct config longest;
    config_copy(&longest, whole);
    trireme_status status = islands_set(&longest, "outer.sync_steps", lengths->item[lengths->count - 1], error);
    if (status == TRIREME_OK)
        status = intervals_compile(&stages, &longest, &plan, r, error);
    if (status == TRIREME_OK)
        status = simulate_run(&run, &stages, r->cluster, &(struct simulation_options){0}, error);
    if (status == TRIREME_OK)
        status = intervals_simulate(out, whole, &run, lengths, error);
    run_simulation_release(&run);
    stages_release(&stages);
    parallel_release(&plan);
    config_release(&longest);
    return status;
}

trireme_status plan_intervals_try(struct plan_intervals *out, struct config *whole, const struct plan_request *r,
                                  const struct plan_choice *choice, const struct config *config, double share,
                                  trireme_error *error) {
    *out = (struct plan_intervals){.share = share, .kept = config_is_set(config, "outer.sync_steps")};
    struct lengths lengths = list_lengths(config, out->kept);
    trireme_status status = TRIREME_OK;
    if (lengths.count == 0)
        status = config_refuse(config, "outer.delay_steps", error, "but intervals of %d steps at most are tried",
                               INTERVAL_MOST);
    if (status == TRIREME_OK)
        status = plan_config(whole, r, choice, error);
    if (status == TRIREME_OK) {
        status = island_join(whole, r, config, error);
        if (status == TRIREME_OK)
            status = intervals_run(out, whole, r, &lengths, error);
        if (status != TRIREME_OK)
            config_release(whole);
    }
    VEC_RELEASE(&lengths);
    if (status != TRIREME_OK)
        VEC_RELEASE(out);
    return status;
}

// ---- what comes out

void plan_intervals_print(const struct plan_intervals *t, const struct config *whole, struct text *out) {
    const int islands = (int)whole->parallelism.island_degree;
    text_add(out, "\n%15s %9s %10s\n", "islands meet", "speed", "computing");
    for (size_t i = 0; i < t->count; i++)
        text_add(out, "%9lld steps %8.2f%% %9.2f%%\n", (long long)t->item[i].sync_steps, 100 * t->item[i].speed,
                 100 * t->item[i].compute_share);
    text_add(out, "%s of the best", counted(islands, "island").text);
    if (t->kept)
        text_add(out, ", outer.sync_steps as it is set\n");
    else
        text_add(out, ": outer.sync_steps %lld %s %.4g%% of the speed of steps alone\n",
                 (long long)t->item[t->count - 1].sync_steps,
                 t->reached ? "is the first with" : "is the longest that was tried, and short of", 100 * t->share);
}

void plan_intervals_add(const struct plan_intervals *t, const struct config *whole, struct text *out) {
    json_begin_object(out, "islands");
    json_add_integer(out, "island_degree", whole->parallelism.island_degree);
    json_add_number(out, "share", t->share);
    json_add_boolean(out, "reached", t->reached);
    json_add_integer(out, "sync_steps", t->item[t->count - 1].sync_steps);
    json_begin_array(out, "intervals");
    for (size_t i = 0; i < t->count; i++) {
        json_begin_object(out, NULL);
        json_add_integer(out, "sync_steps", t->item[i].sync_steps);
        json_add_number(out, "speed", t->item[i].speed);
        json_add_number(out, "compute_share", t->item[i].compute_share);
        json_end_object(out);
    }
    json_end_array(out);
    json_end_object(out);
}
