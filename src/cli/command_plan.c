// trireme plan MODEL|CONFIG.yaml cluster=CLUSTER devices=N: the best ways to train it there.
#include "base/clock.h"
#include "base/json.h"
#include "base/parallel_for.h"
#include "cli/keys.h"
#include "measure/synthetic.h"
#include "planner/context_plans.h"
#include "planner/islands.h"

#include <math.h>
#include <unistd.h>

// Of the search, by default. After it, up to 5 more go into measuring the memory of the answers as `train` has it.
static const double SEARCH_SECONDS = 40;
// What islands that meet keep of the speed of steps alone, by default.
static const double ISLAND_SHARE = .95;

enum plan_key {
    PLAN_CLUSTER,
    PLAN_DEVICES,
    PLAN_SECONDS,
    PLAN_SAVE,
    PLAN_EXPORT,
    PLAN_ISLAND_BANDWIDTH,
    PLAN_ISLAND_LATENCY,
    PLAN_ISLAND_SHARE,
    PLAN_KEYS
};

static const struct command_key KEYS[PLAN_KEYS] = {
    [PLAN_CLUSTER] = {"cluster", COMMAND_KEY_TEXT, "the name of a cluster, or the path of one", 0, 0, ""},
    [PLAN_DEVICES] = {"devices", COMMAND_KEY_INTEGER, "devices of the cluster", 1, 1048576, DEVICES_SYNONYMS},
    [PLAN_SECONDS] = {"seconds", COMMAND_KEY_NUMBER, "seconds of the search", .001, 86400, "time timeout time_limit"},
    [PLAN_SAVE] = {"save", COMMAND_KEY_OUTPUT, "the path of a configuration to be written", 0, 0,
                   "out output output_file"},
    [PLAN_EXPORT] = {"export", COMMAND_KEY_TEXT, "megatron or torchtitan", 0, 0, ""},
    [PLAN_ISLAND_BANDWIDTH] = {"island_bandwidth", COMMAND_KEY_TEXT, "a rate, as in 1 Gbit/s", 0, 0, ""},
    [PLAN_ISLAND_LATENCY] = {"island_latency", COMMAND_KEY_TEXT, "a time, as in 10 ms", 0, 0, ""},
    [PLAN_ISLAND_SHARE] = {"island_share", COMMAND_KEY_NUMBER, "of the speed of steps alone", .01, .9999, ""},
};

static void plan_show_progress(void *user, int evaluated, int promising, double best) {
    (void)user;
    if (best > 0)
        progress_line("%d of %d plans simulated, the best takes %.4g s", evaluated, promising, best);
    else
        progress_line("%d of %d plans simulated", evaluated, promising);
}

// ---- what is asked

// Refuses a model.preset that is set besides the model's name.
static trireme_status refuse_two_models(const struct arguments *a, const char *name, trireme_error *error) {
    struct config config;
    trireme_error other; // reported later, with the model set
    if (arguments_config(a, NULL, &config, &other) != TRIREME_OK)
        return TRIREME_OK;
    char *preset = config_is_set(&config, "model.preset") ? mem_strdup(config.model.preset) : NULL;
    config_release(&config);
    if (!preset)
        return TRIREME_OK;
    error_set(error, TRIREME_ERROR_USAGE, "model.preset: given %.80s, but the model is %.80s already: leave one out",
              preset, name);
    free(preset);
    return TRIREME_ERROR_USAGE;
}

// A word that names no file is a model's name.
static trireme_status read_config(struct config *out, const struct arguments *a, trireme_error *error) {
    TRY(arguments_expect(a, 0, 1, error));
    const char *what = a->operands.count ? a->operands.item[0] : NULL;
    if (!what || access(what, F_OK) == 0 || strchr(what, '/') || strstr(what, ".yaml") || strstr(what, ".yml"))
        return arguments_config(a, what, out, error);
    TRY(refuse_two_models(a, what, error));
    struct arguments with = *a;
    char *model = mem_printf("model.preset=%s", what);
    memset(&with.settings, 0, sizeof with.settings);
    VEC_PUSH(&with.settings, model);
    for (size_t i = 0; i < a->settings.count; i++)
        VEC_PUSH(&with.settings, a->settings.item[i]);
    trireme_status status = arguments_config(&with, NULL, out, error);
    VEC_RELEASE(&with.settings);
    free(model);
    return status;
}

// Nobody who asks for a plan on accelerators means f32 by saying nothing.
static trireme_status choose_dtype(struct config *config, const struct cluster *cluster, int ranks,
                                   trireme_error *error) {
    if (!config_is_set(config, "training.dtype") && !topology_without(cluster, ranks, DTYPE_BF16))
        TRY(config_set(config, "training.dtype", "bf16", "plan", error));
    return check_dtype_on(config, cluster, ranks, error);
}

static trireme_status choose_ranks(int *ranks, const struct config *config, struct cluster *cluster,
                                   const struct command_value *devices, trireme_error *error) {
    int64_t given = config->parallelism.ranks;
    *ranks = given > 0 ? (int)given : devices->given ? (int)devices->integer : cluster->total_devices;
    if (devices->given && devices->integer > cluster->total_devices && cluster_has_cores(cluster))
        FAIL(TRIREME_ERROR_USAGE, "devices=%s: %s has %d; their cores may have a rank each: ranks=%s", devices->given,
             cluster->name, cluster->total_devices, devices->given);
    if (devices->given && devices->integer > cluster->total_devices)
        FAIL(TRIREME_ERROR_USAGE, "devices=%s: %s has %d", devices->given, cluster->name, cluster->total_devices);
    if (devices->given && given > 0 && given != devices->integer)
        TRY(cluster_resize(cluster, (int)devices->integer, error));
    return TRIREME_OK;
}

// What is no configuration is not overwritten.
static trireme_status check_save(const char *path, trireme_error *error) {
    struct config there;
    trireme_error why;
    if (!file_is_device(path) && access(path, F_OK) == 0) {
        if (config_load(&there, path, NULL, 0, &why) != TRIREME_OK)
            FAIL(TRIREME_ERROR_USAGE, "save=%s: this file exists and is no configuration; remove it first", path);
        config_release(&there);
    }
    return check_output("save", path, error);
}

// ---- what is answered

static void print_search(const struct plan_request *r, const struct plan_result *result, double seconds,
                         struct text *out) {
    const struct config_training *t = &r->config->training;
    text_add(out, "%s on ", counted(r->ranks, "rank").text);
    text_add_line(out, r->cluster->name); // perhaps a path
    text_add(out, ", a step of %s of %lld tokens in %s: ", counted(t->global_batch_size, "sequence").text,
             (long long)t->seq_len, dtype_name(model_dtype(r->config)));
    text_add(out, "%s, %d of them may fit, %d simulated", counted(result->choices, "plan").text, result->promising,
             result->evaluated);
    if (result->ways)
        text_add(out, " and %s to better them", counted(result->ways, "way").text);
    text_add(out, " in %.1f s%s\n", seconds, result->complete ? "" : ", when time was up: there may be better ones");
}

static enum memory_part largest_part(const struct sim_memory *m) {
    int largest = 0;
    for (int i = 1; i < MEMORY_PARTS; i++)
        largest = m->part[i] > m->part[largest] ? i : largest;
    return (enum memory_part)largest;
}

// Why the answer is in the list, after the one above it, and what it stands for.
static void print_reasons(const struct plan_result *result, size_t i, struct text *out) {
    const struct plan_answer *a = &result->answers.item[i];
    if (i > 0) {
        char *why = plan_difference_print(a - 1, a);
        text_add(out, "; %s", why);
        free(why);
    }
    if (a->traded != NONE) {
        const struct plan_answer *faster = &result->answers.item[a->traded];
        text_add(out, "; frees %s more than %d", amount(a->room - a->memory - (faster->room - faster->memory)).text,
                 a->traded + 1);
    }
    if (a->variants && a->within < PLAN_ALIKE)
        text_add(out, "; %d like it as fast", a->variants);
    else if (a->variants)
        text_add(out, "; %d like it within %.1f%%", a->variants, ceil(1000 * a->within) / 10);
}

static void print_answers(const struct plan_request *r, const struct plan_result *result, struct text *out) {
    text_add(out, "\n%2s %9s %11s %6s %9s  %s\n", "", "step", "tokens/s", "MFU", "free", "plan");
    for (size_t i = 0; i < result->answers.count; i++) {
        const struct plan_answer *a = &result->answers.item[i];
        char *plan = plan_answer_print(r, result, i);
        text_add(out, "%2zu %7.4g s %11.0f %5.1f%% %9s  %s", i + 1, a->seconds, a->tokens_per_second, 100 * a->mfu,
                 amount(a->room - a->memory).text, plan);
        print_reasons(result, i, out);
        text_add(out, "\n");
        free(plan);
    }
    const struct plan_answer *best = &result->answers.item[0];
    const int64_t all = plan_microbatches(r, &best->choice);
    if (best->simulated < all)
        text_add(out, "\nthe best: %lld of its %lld microbatches were simulated, the rest follows\n",
                 (long long)best->simulated, (long long)all);
    text_add(out, "\nthe best: computing %.1f%%, bubble %.1f%%", 100 * best->computing / best->seconds,
             100 * best->bubble / best->seconds);
    for (int i = 0; i < AXIS_COUNT; i++)
        if (best->exposed[i] > 0)
            text_add(out, ", exposed %s %.1f%%", axis_name((enum axis)i), 100 * best->exposed[i] / best->seconds);
    text_add(out, "\n");
}

// Keys that are searched unless they are set. A run's config.yaml has every key, and so leaves little to search.
static const struct searched {
    const char *key, *open; // values that leave it to the search
    const char *answered;   // as JSON names it in answers; NULL: as the key
} SEARCHED[] = {{"parallelism.data_parallel_replicate_degree", "0 -1", NULL},
                {"parallelism.data_parallel_shard_degree", "0 -1", NULL},
                {"parallelism.zero_stage", "", NULL},
                {"parallelism.data_parallel_unit_layers", "", NULL},
                {"parallelism.data_parallel_prefetch", "", NULL},
                {"parallelism.tensor_parallel_degree", "0 -1", NULL},
                {"parallelism.sequence_parallel", "", NULL},
                {"parallelism.tensor_parallel_overlap", "", NULL},
                {"parallelism.pipeline_parallel_degree", "0 -1", NULL},
                {"parallelism.pipeline_parallel_schedule", "", NULL},
                {"parallelism.pipeline_parallel_activation_limit", "0", NULL},
                {"parallelism.pipeline_parallel_chunks", "0", NULL},
                {"parallelism.pipeline_parallel_layout", "", NULL},
                {"parallelism.vocabulary_parallel", "", NULL},
                {"training.micro_batch_size", "0", NULL},
                {"training.logits_rows", "", NULL},
                {"activation_checkpoint.mode", "", "recompute"},
                {"activation_checkpoint.full_layers", "\"\"", NULL},
                {"activation_checkpoint.selective_layers", "\"\"", NULL}};

static const char *plan_name_of(const char *key) {
    return strchr(key, '.') + 1;
}

static bool plan_is_kept(const struct config *config, const struct searched *s) {
    struct text value = {0};
    config_print_value(&value, config, s->key);
    bool kept = config_is_set(config, s->key) && !text_lists(s->open, value.text);
    text_release(&value);
    return kept;
}

static void print_kept(const struct config *config, struct text *out) {
    const char *separator = "kept as set: ";
    for (size_t i = 0; i < ARRAY_LENGTH(SEARCHED); i++)
        if (plan_is_kept(config, &SEARCHED[i])) {
            text_add(out, "%s%s ", separator, plan_name_of(SEARCHED[i].key));
            config_print_value(out, config, SEARCHED[i].key);
            separator = ", ";
        }
    text_add(out, *separator == ',' ? "\n" : "");
}

static void add_kept(struct text *out, const struct config *config) {
    json_begin_object(out, "kept");
    for (size_t i = 0; i < ARRAY_LENGTH(SEARCHED); i++) {
        const struct searched *s = &SEARCHED[i];
        if (plan_is_kept(config, s))
            config_add_value(out, s->answered ? s->answered : plan_name_of(s->key), config, s->key);
    }
    json_end_object(out);
}

// Keys of pipelines that are set are kept, which may leave only plans without a pipeline.
static void print_left_out(const struct plan_request *r, const struct plan_result *result, struct text *out) {
    static const char *const OF_PIPELINES[] = {
        "parallelism.pipeline_parallel_activation_limit", "parallelism.pipeline_parallel_chunks",
        "parallelism.pipeline_parallel_layout", "parallelism.pipeline_parallel_schedule"};
    if (result->pipelines > 0 || r->ranks == 1 || config_is_set(r->config, "parallelism.pipeline_parallel_degree"))
        return;
    const char *separator = "no pipeline is possible with ";
    for (size_t i = 0; i < ARRAY_LENGTH(OF_PIPELINES); i++)
        if (config_is_set(r->config, OF_PIPELINES[i])) {
            text_add(out, "%s%s ", separator, OF_PIPELINES[i]);
            config_print_value(out, r->config, OF_PIPELINES[i]);
            separator = ", ";
        }
    if (*separator == ',')
        text_add(out, ": only plans without one\n");
}

static void print_closest(const struct plan_request *r, const struct plan_result *result, struct text *out) {
    const struct plan_answer *a = &result->closest;
    enum memory_part part = largest_part(&a->of_tightest);
    char *plan = plan_choice_print(r, &a->choice);
    if (result->complete)
        text_add(out, "nothing fits");
    else
        text_add(out, "of %d plans %d %s tried and do%s not fit, others may", result->choices, result->evaluated,
                 result->evaluated == 1 ? "was" : "were", result->evaluated == 1 ? "es" : "");
    text_add(out,
             ": %s short on stage %d of the plan that needs least (%s): %s takes %s of %s; the largest buffer at the "
             "peak is %s\n",
             amount(a->memory - a->room).text, a->tightest, plan, memory_part_name(part),
             amount(a->of_tightest.part[part]).text, amount(a->room).text, a->largest);
    free(plan);
}

// What the search chose, else what is set; nothing where the default holds.
static void add_chosen(struct text *out, const struct config *config, const char *key, int64_t chosen, int64_t value) {
    if (chosen)
        json_add_integer(out, plan_name_of(key), value);
    else if (config_is_set(config, key))
        config_add_value(out, plan_name_of(key), config, key);
}

static void add_choice(struct text *out, const struct config *config, const struct plan_choice *c) {
    json_add_integer(out, "data_parallel_replicate_degree", c->replicas);
    json_add_integer(out, "data_parallel_shard_degree", c->shards);
    json_add_integer(out, "zero_stage", c->zero_stage);
    if (c->parts > 1)
        json_add_string(out, "context_parallel_method",
                        config_context_parallel_method_word(config->parallelism.context_parallel_method));
    json_add_integer(out, "tensor_parallel_degree", c->tensor);
    json_add_boolean(out, "sequence_parallel", c->sequence);
    json_add_boolean(out, "tensor_parallel_overlap", c->overlap);
    json_add_integer(out, "pipeline_parallel_degree", c->stages);
    json_add_integer(out, "pipeline_parallel_chunks", c->stages > 1 ? c->chunks : 0);
    json_add_path(out, "pipeline_parallel_schedule", c->schedule);
    json_add_string(out, "pipeline_parallel_layout",
                    c->layout     ? c->layout
                    : c->balanced ? "auto"
                                  : config->parallelism.pipeline_parallel_layout);
    json_add_boolean(out, "vocabulary_parallel", c->vocabulary);
    add_chosen(out, config, "parallelism.data_parallel_unit_layers", c->unit_layers, MAX(c->unit_layers, 0));
    add_chosen(out, config, "parallelism.data_parallel_prefetch", c->prefetch, c->prefetch);
    add_chosen(out, config, "training.logits_rows", c->logits_rows, c->logits_rows);
    json_add_integer(out, "micro_batch_size", c->micro_batch_size);
    json_add_string(out, "recompute", config_recompute_word(c->recompute));
    const struct config_activation_checkpoint *given = &config->activation_checkpoint;
    const char *full = c->full_layers ? c->full_layers : given->full_layers,
               *selective = c->selective_layers ? c->selective_layers : given->selective_layers;
    if (*full)
        json_add_string(out, "full_layers", full);
    if (*selective)
        json_add_string(out, "selective_layers", selective);
}

// What is said of an answer, and of the plan that lacks least where there is none.
static void add_plan(struct text *out, const struct plan_request *r, const struct plan_answer *a, char *plan) {
    json_add_string(out, "plan", plan);
    free(plan);
    add_choice(out, r->config, &a->choice);
    json_add_number(out, "step_seconds", a->seconds);
    json_add_number(out, "estimated_seconds", a->estimate);
    json_add_integer(out, "simulated_microbatches", a->simulated);
    json_add_number(out, "tokens_per_second", a->tokens_per_second);
    json_add_number(out, "mfu", a->mfu);
    json_add_number(out, "computing_seconds", a->computing);
    json_add_number(out, "bubble_seconds", a->bubble);
    json_begin_object(out, "exposed_seconds");
    for (int i = 0; i < AXIS_COUNT; i++)
        if (a->exposed[i] > 0)
            json_add_number(out, axis_name((enum axis)i), a->exposed[i]);
    json_end_object(out);
    json_add_integer(out, "peak_bytes", a->memory);
    json_add_integer(out, "device_bytes", a->room);
    json_add_integer(out, "headroom_bytes", a->room - a->memory);
    json_add_integer(out, "tightest_stage", a->tightest);
    json_begin_object(out, "memory");
    for (int i = 0; i < MEMORY_PARTS; i++)
        json_add_integer(out, memory_part_name((enum memory_part)i), a->of_tightest.part[i]);
    json_end_object(out);
    json_add_string(out, "largest_buffer", a->largest);
}

static void add_answer(struct text *out, const struct plan_request *r, const struct plan_result *result, size_t i) {
    const struct plan_answer *a = &result->answers.item[i];
    json_begin_object(out, NULL);
    add_plan(out, r, a, plan_answer_print(r, result, i));
    if (i > 0) {
        char *why = plan_difference_print(a - 1, a);
        json_add_string(out, "worse_by", why);
        free(why);
    }
    if (a->traded != NONE)
        json_add_integer(out, "more_free_than", a->traded);
    json_add_integer(out, "variants", a->variants);
    if (a->variants)
        json_add_number(out, "variants_within", a->within);
    json_end_object(out);
}

// Where there are several islands: the best plan for all of them, and how often they meet.
struct plan_of_islands {
    struct config whole;
    struct plan_intervals intervals;
};

// `all_tried`: whether the advice is complete; `exported`: the best plan in another system's words, or NULL.
static void plan_print_json(const struct plan_request *r, const struct plan_result *result,
                            const struct plan_of_islands *islands, const char *advice, bool all_tried,
                            const char *exported, double seconds, struct text *out) {
    json_begin_object(out, NULL);
    json_add_path(out, "cluster", r->cluster->name);
    json_add_integer(out, "ranks", r->ranks);
    json_add_integer(out, "global_batch_size", r->config->training.global_batch_size);
    json_add_integer(out, "seq_len", r->config->training.seq_len);
    json_add_string(out, "dtype", dtype_name(model_dtype(r->config)));
    add_kept(out, r->config);
    json_add_boolean(out, "fits", result->answers.count > 0);
    json_add_integer(out, "choices", result->choices);
    json_add_integer(out, "promising", result->promising);
    json_add_integer(out, "simulated", result->evaluated);
    json_add_integer(out, "ways_simulated", result->ways);
    json_add_boolean(out, "complete", result->complete);
    json_add_number(out, "search_seconds", seconds);
    json_begin_array(out, "plans");
    for (size_t i = 0; i < result->answers.count; i++)
        add_answer(out, r, result, i);
    json_end_array(out);
    if (result->answers.count == 0) {
        json_begin_object(out, "closest");
        add_plan(out, r, &result->closest, plan_choice_print(r, &result->closest.choice));
        json_end_object(out);
        json_begin_array(out, "changes");
        for (const char *line = advice; *line; line += strcspn(line, "\n") + 1) {
            char *one = mem_printf("%.*s", (int)strcspn(line, "\n"), line);
            json_add_string(out, NULL, one);
            free(one);
        }
        json_end_array(out);
        json_add_boolean(out, "changes_complete", all_tried);
    }
    if (islands->intervals.count)
        plan_intervals_add(&islands->intervals, &islands->whole, out);
    if (exported)
        json_add_string(out, "export", exported);
    json_end_object(out);
    text_add(out, "\n");
}

static trireme_status plan_save(const struct plan_request *r, const struct plan_answer *a,
                                const struct plan_of_islands *islands, const char *path, trireme_error *error) {
    struct config config;
    struct text text = {0};
    if (r->islands)
        config_copy(&config, &islands->whole);
    else
        TRY(plan_config(&config, r, &a->choice, error));
    config_print(&text, &config);
    trireme_status status = file_write_atomic(path, text.text, text.length, error);
    text_release(&text);
    config_release(&config);
    return status;
}

static trireme_status plan_print_answer(const struct plan_request *r, const struct plan_result *result,
                                        const struct plan_of_islands *islands, const struct command_value *values,
                                        bool json, double seconds, trireme_error *error) {
    struct text out = {0}, advice = {0}, exported = {0};
    const char *to = values[PLAN_EXPORT].given;
    bool found = result->answers.count > 0, all_tried = true;
    trireme_status status = TRIREME_OK;
    if (found && values[PLAN_SAVE].given)
        status = plan_save(r, &result->answers.item[0], islands, values[PLAN_SAVE].given, error);
    if (!found)
        all_tried = plan_advise(&advice, r);
    if (found && to)
        (strcmp(to, "megatron") == 0 ? plan_export_megatron : plan_export_torchtitan)(&exported, r,
                                                                                      &result->answers.item[0]);
    progress_clear();
    const char *changes = advice.length ? advice.text : "";
    if (json) {
        plan_print_json(r, result, islands, changes, all_tried, exported.text, seconds, &out);
    } else if (exported.text) {
        text_add(&out, "%s", exported.text);
    } else if (found) {
        if (r->islands)
            text_add(&out, "each of %s: ", counted(r->islands, "island").text);
        print_search(r, result, seconds, &out);
        print_kept(r->config, &out);
        print_left_out(r, result, &out);
        print_answers(r, result, &out);
        if (r->islands)
            plan_intervals_print(&islands->intervals, &islands->whole, &out);
        if (values[PLAN_SAVE].given)
            text_add(&out, "the best is written to %s\n", values[PLAN_SAVE].given);
    } else {
        print_closest(r, result, &out);
        text_add(&out, "%s%s", *changes ? changes : "nothing that was tried makes it fit\n",
                 all_tried ? "" : "time was up before all changes were tried\n");
    }
    if (status == TRIREME_OK)
        status = print_text(&out, error);
    text_release(&out);
    text_release(&advice);
    text_release(&exported);
    if (status == TRIREME_OK && !found)
        FAIL(TRIREME_ERROR_USAGE, "no plan for %s %s the memory of %s", counted(r->ranks, "rank").text,
             result->complete ? "fits" : "was found that fits", r->cluster->name);
    return status;
}

// Islands may have links of their own.
static trireme_status join_islands(const struct plan_request *r, struct cluster *cluster,
                                   const struct command_value *values, trireme_error *error) {
    static const enum plan_key OF_ISLANDS[] = {PLAN_ISLAND_BANDWIDTH, PLAN_ISLAND_LATENCY, PLAN_ISLAND_SHARE};
    for (size_t i = 0; i < ARRAY_LENGTH(OF_ISLANDS); i++)
        if (values[OF_ISLANDS[i]].given && !r->islands)
            FAIL(TRIREME_ERROR_USAGE, "%s=%.80s: there is one island alone", KEYS[OF_ISLANDS[i]].name,
                 values[OF_ISLANDS[i]].given);
    if (r->islands && values[PLAN_EXPORT].given)
        FAIL(TRIREME_ERROR_USAGE, "export=%.80s: other systems have no islands", values[PLAN_EXPORT].given);
    return cluster_join_islands(cluster, values[PLAN_ISLAND_BANDWIDTH].given, values[PLAN_ISLAND_LATENCY].given, error);
}

static trireme_status plan(const struct arguments *a, const struct command_value *values, struct config *config,
                           trireme_error *error) {
    struct op_table *ops = op_table_create();
    struct cluster cluster = {0};
    struct model_config model;
    struct plan_request request = {.config = config,
                                   .model = &model,
                                   .ops = ops,
                                   .cluster = &cluster,
                                   .schedules = schedule_store_create(),
                                   .threads = usable_cores(),
                                   .seconds = values[PLAN_SECONDS].given ? values[PLAN_SECONDS].number : SEARCH_SECONDS,
                                   .progress = plan_show_progress};
    struct plan_result result = {.answers = {0}};
    struct plan_of_islands islands = {.intervals = {.kept = false}};
    struct config one = {0};
    const double share = values[PLAN_ISLAND_SHARE].given ? values[PLAN_ISLAND_SHARE].number : ISLAND_SHARE;
    int64_t begin = clock_now();
    trireme_status status = values[PLAN_SAVE].given ? check_save(values[PLAN_SAVE].given, error) : TRIREME_OK;
    if (status == TRIREME_OK)
        status = cluster_load(&cluster, ops, values[PLAN_CLUSTER].given, error);
    if (status == TRIREME_OK)
        status = choose_ranks(&request.ranks, config, &cluster, &values[PLAN_DEVICES], error);
    if (status == TRIREME_OK)
        status = choose_dtype(config, &cluster, request.ranks, error);
    if (status == TRIREME_OK)
        status = plan_one_island(&request, &one, &cluster, error);
    if (status == TRIREME_OK)
        status = join_islands(&request, &cluster, values, error);
    if (status == TRIREME_OK)
        status = synthetic_model(&model, config, error);
    if (status == TRIREME_OK)
        progress_line("looking at what %s can do", counted(request.ranks, "rank").text);
    if (status == TRIREME_OK)
        status = plan_context(&request, &one, error);
    if (status == TRIREME_OK)
        status = plan_search(&result, &request, error);
    if (status == TRIREME_OK && request.islands && result.answers.count)
        status = plan_intervals_try(&islands.intervals, &islands.whole, &request, &result.answers.item[0].choice,
                                    config, share, error);
    if (status == TRIREME_OK)
        status = plan_print_answer(&request, &result, &islands, values, a->json, 1e-9 * (double)(clock_now() - begin),
                                   error);
    VEC_RELEASE(&islands.intervals);
    config_release(&islands.whole);
    config_release(&one);
    plan_result_release(&result);
    schedule_store_free(request.schedules);
    cluster_release(&cluster);
    free(ops);
    return status;
}

static trireme_status check_keys(const struct command_value *values, const struct arguments *rest,
                                 trireme_error *error) {
    TRY(command_keys_refuse_meant(rest, KEYS, PLAN_KEYS, error));
    const char *to = values[PLAN_EXPORT].given;
    if (!values[PLAN_CLUSTER].given && (rest->operands.count || rest->settings.count))
        return cluster_refuse("cluster= is missing", error);
    if (!values[PLAN_CLUSTER].given)
        FAIL(TRIREME_ERROR_USAGE,
             "usage: trireme plan MODEL|CONFIG.yaml cluster=CLUSTER [devices=N]; `trireme help plan` "
             "has more");
    if (to && strcmp(to, "megatron") != 0 && strcmp(to, "torchtitan") != 0)
        FAIL(TRIREME_ERROR_USAGE, "export=%.80s: expected megatron or torchtitan", to);
    return TRIREME_OK;
}

trireme_status command_plan(const struct arguments *a, trireme_error *error) {
    struct command_value values[PLAN_KEYS] = {0};
    struct arguments rest;
    struct config config;
    TRY(command_keys_read(a, KEYS, PLAN_KEYS, values, &rest, error));
    trireme_status status = check_keys(values, &rest, error);
    if (status == TRIREME_OK)
        status = read_config(&config, &rest, error);
    if (status == TRIREME_OK) {
        status = plan(&rest, values, &config, error);
        config_release(&config);
    }
    arguments_release(&rest);
    return status;
}
