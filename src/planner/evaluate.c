// A choice as a configuration, as programs, as their simulation, and in words.
#include "planner/evaluate.h"

// Sets the keys that a choice decides, one after the other until one is refused.
struct setter {
    struct config *config;
    trireme_error *error;
    trireme_status status;
};

// Messages about a key that the user has set name the user's value as its origin.
static void set_key(struct setter *s, const char *key, const char *value) {
    if (s->status == TRIREME_OK)
        s->status = config_set(s->config, key, value,
                               config_is_set(s->config, key) ? config_origin(s->config, key) : "plan", s->error);
}

static void set_number(struct setter *s, const char *key, int64_t number) {
    char value[32];
    snprintf(value, sizeof value, "%lld", (long long)number);
    set_key(s, key, value);
}

static void set_switch(struct setter *s, const char *key, bool on) {
    set_key(s, key, on ? "true" : "false");
}

trireme_status plan_config(struct config *out, const struct plan_request *r, const struct plan_choice *c,
                           trireme_error *error) {
    struct config config;
    config_copy(&config, r->config);
    struct setter s = {&config, error, TRIREME_OK};
    set_number(&s, "parallelism.ranks", r->ranks);
    set_number(&s, "parallelism.data_parallel_replicate_degree", c->replicas);
    set_number(&s, "parallelism.data_parallel_shard_degree", c->shards);
    set_number(&s, "parallelism.zero_stage", c->zero_stage);
    set_number(&s, "parallelism.tensor_parallel_degree", c->tensor);
    set_number(&s, "parallelism.pipeline_parallel_degree", c->stages);
    set_number(&s, "parallelism.pipeline_parallel_chunks", c->stages > 1 ? c->chunks : 0);
    set_number(&s, "parallelism.pipeline_parallel_activation_limit",
               c->stages > 1 ? r->config->parallelism.pipeline_parallel_activation_limit : 0);
    set_number(&s, "training.micro_batch_size", c->micro_batch_size);
    set_switch(&s, "parallelism.sequence_parallel", c->sequence || c->tensor == 1);
    set_switch(&s, "parallelism.tensor_parallel_overlap", c->overlap);
    set_switch(&s, "parallelism.vocabulary_parallel", c->vocabulary);
    set_key(&s, "activation_checkpoint.mode", config_recompute_word(c->recompute));
    set_key(&s, "parallelism.pipeline_parallel_schedule", c->schedule);
    if (!config_is_set(r->config, "parallelism.pipeline_parallel_layout"))
        set_key(&s, "parallelism.pipeline_parallel_layout", c->layout ? c->layout : c->balanced ? "auto" : "");
    if (c->full_layers)
        set_key(&s, "activation_checkpoint.full_layers", c->full_layers);
    if (c->selective_layers)
        set_key(&s, "activation_checkpoint.selective_layers", c->selective_layers);
    if (c->unit_layers)
        set_number(&s, "parallelism.data_parallel_unit_layers", MAX(c->unit_layers, 0));
    if (c->prefetch)
        set_number(&s, "parallelism.data_parallel_prefetch", c->prefetch);
    if (c->logits_rows)
        set_number(&s, "training.logits_rows", c->logits_rows);
    if (s.status == TRIREME_OK)
        *out = config;
    else
        config_release(&config);
    return s.status;
}

// A stage's programs have more state than its step where islands meet.
static void evaluate_take_memory(struct plan_answer *out, const struct plan_request *r, const struct simulation *s,
                                 const struct choice_programs *programs) {
    int last = NONE;
    struct sim_memory of_program = {0};
    for (int i = 0; i < s->classes; i++) {
        const struct sim_class *who = &s->of_class[i];
        int stage = mesh_coordinate(&programs->plan.mesh, who->rank, AXIS_PP);
        if (stage != last)
            memory_of_stage(&of_program, &programs->stages.stage[stage], who->program, r->ops);
        last = stage;
        struct sim_memory memory = memory_on(&of_program, who->station.device);
        if (i > 0 && who->station.room - memory.total >= out->room - out->memory)
            continue;
        out->room = who->station.room;
        out->memory = memory.total;
        out->tightest = stage;
        out->of_tightest = memory;
        snprintf(out->largest, sizeof out->largest, "%.60s",
                 memory.largest == NONE ? "" : who->program->buffers.item[memory.largest].name);
    }
}

static void take_time(struct plan_answer *out, const struct plan_request *r, const struct simulation *s) {
    const struct config_training *t = &r->config->training;
    enum dtype dtype = model_dtype(r->config);
    double peak = simulation_peak(s, dtype), tokens = (double)(t->global_batch_size * t->seq_len);
    out->seconds = s->seconds;
    out->tokens_per_second = tokens / s->seconds;
    out->mfu = model_flops(r->model, t->global_batch_size * t->seq_len, t->seq_len) / (s->seconds * peak);
    out->computing = s->seconds;
    out->bubble = s->bubble * s->seconds;
    out->computing -= out->bubble;
    for (int a = 0; a < AXIS_COUNT; a++) {
        out->exposed[a] = s->exposed[a] * s->seconds;
        out->computing -= out->exposed[a];
    }
}

int64_t plan_microbatches(const struct plan_request *r, const struct plan_choice *c) {
    return r->config->training.global_batch_size / (c->replicas * c->shards * c->micro_batch_size);
}

trireme_status plan_fewer(struct plan_request *out, struct config *config, const struct plan_request *r,
                          const struct plan_choice *c, int64_t microbatches, trireme_error *error) {
    struct config fewer;
    config_copy(&fewer, r->config);
    struct setter s = {&fewer, error, TRIREME_OK};
    set_number(&s, "training.global_batch_size", microbatches * c->replicas * c->shards * c->micro_batch_size);
    if (s.status != TRIREME_OK) {
        config_release(&fewer);
        return s.status;
    }
    *config = fewer;
    *out = *r;
    out->config = config;
    return TRIREME_OK;
}

void plan_answer_extend(struct plan_answer *more, const struct plan_answer *fewer, const struct plan_request *r) {
    const int64_t all = plan_microbatches(r, &more->choice), step = more->simulated - fewer->simulated,
                  rest = all - more->simulated;
    const double times = (double)rest / (double)step, flops = more->mfu * more->seconds / (double)more->simulated;
    const double tokens = more->tokens_per_second * more->seconds / (double)more->simulated;
    more->seconds += times * (more->seconds - fewer->seconds);
    more->computing += times * (more->computing - fewer->computing);
    more->bubble += times * (more->bubble - fewer->bubble);
    for (int a = 0; a < AXIS_COUNT; a++)
        more->exposed[a] += times * (more->exposed[a] - fewer->exposed[a]);
    more->mfu = flops * (double)all / more->seconds;
    more->tokens_per_second = tokens * (double)all / more->seconds;
    // Of memory only what the host writes grows, if the schedule has reached what it holds at most.
    const int64_t grows = more->of_tightest.part[MEMORY_BATCH] - fewer->of_tightest.part[MEMORY_BATCH],
                  more_bytes = (int64_t)(times * (double)MAX(grows, 0));
    more->of_tightest.part[MEMORY_BATCH] += more_bytes;
    more->of_tightest.total += more_bytes;
    more->memory += more_bytes;
}

// The room of a rank on the device that leaves it least.
static int64_t least_room(const struct cluster *c, int ranks_per_device) {
    int64_t least = INT64_MAX;
    int number = 0;
    for (size_t i = 0; i < c->groups.count; i++) {
        struct station s = station_on(c, number, ranks_per_device);
        least = MIN(least, s.room - s.device->runtime_memory);
        number += c->groups.item[i].nodes * c->groups.item[i].devices;
    }
    return MAX(0, least);
}

bool choice_resolve(struct parallel *out, const struct plan_request *r, const struct plan_choice *choice) {
    struct config config;
    trireme_error none;
    if (plan_config(&config, r, choice, &none) != TRIREME_OK)
        return false;
    bool possible = parallel_resolve_from(out, r->schedules, &config, r->model, &none) == TRIREME_OK;
    config_release(&config);
    return possible;
}

static trireme_status choice_compile_stages(struct choice_programs *p, const struct plan_request *r, bool hurried,
                                            bool unproved, trireme_error *error) {
    const struct plan_aim aim = {p->room, hurried};
    const struct stages_options how = {
        .ops = r->ops,
        .threads = topology_threads(r->cluster, p->config.training.threads, p->ranks_per_device),
        .jobs = 1,
        .aim = &aim,
        .unproved = unproved};
    TRY(stages_create(&p->stages, &p->config, r->model, &p->plan, TRAIN_ALONE, &how, error));
    TRY(stages_compile(&p->stages, EVERY_STAGE, error));
    p->stages.options.aim = NULL;
    p->program = stages_programs(&p->stages, stages_find(&p->stages, PROGRAM_TRAIN));
    return TRIREME_OK;
}

trireme_status choice_compile(struct choice_programs *out, const struct plan_request *r,
                              const struct plan_choice *choice, enum plan_memory memory, bool hurried,
                              trireme_error *error) {
    *out = (struct choice_programs){.ranks_per_device = 1};
    TRY(plan_config(&out->config, r, choice, error));
    trireme_status status = parallel_resolve_from(&out->plan, r->schedules, &out->config, r->model, error);
    if (status == TRIREME_OK)
        status = topology_check(r->cluster, &out->plan.mesh, &out->ranks_per_device, error);
    if (memory == PLAN_WITHIN_ROOM)
        out->room = least_room(r->cluster, out->ranks_per_device);
    if (status == TRIREME_OK)
        status = choice_compile_stages(out, r, hurried, memory == PLAN_SOON, error);
    if (status != TRIREME_OK)
        choice_release(out);
    return status;
}

void choice_release(struct choice_programs *p) {
    free(p->program);
    stages_release(&p->stages);
    parallel_release(&p->plan);
    config_release(&p->config);
}

// Whether it may matter if the tightest stage's program took less.
static bool less_matters(const struct plan_answer *a, enum plan_memory memory) {
    return memory == PLAN_LEAST_MEMORY || (memory == PLAN_WITHIN_ROOM && a->memory > a->room &&
                                           a->memory - a->of_tightest.part[MEMORY_UNUSED] <= a->room);
}

// Of hurried programs only the tightest is made smaller, since the answer tells of no other, until the same one stays
// the tightest. False where that is not possible without compiling anew.
static bool shrink_tightest(struct plan_answer *out, const struct plan_request *r, struct choice_programs *programs,
                            const struct simulation *simulation, enum plan_memory memory) {
    for (;;) {
        struct program *tightest = &programs->stages.stage[out->tightest].programs.item[0]->program;
        if (!tightest->hurried || !less_matters(out, memory))
            return true;
        if (!program_shrink(tightest, r->ops, programs->room))
            return false;
        evaluate_take_memory(out, r, simulation, programs);
    }
}

// *enough becomes whether the answer is as it would be without hurry.
static trireme_status evaluate(struct plan_answer *out, const struct plan_request *r, const struct plan_choice *choice,
                               enum plan_memory memory, bool hurried, bool *enough, trireme_error *error) {
    struct choice_programs programs;
    struct simulation simulation = {0};
    struct simulation_options options = {0};
    TRY(choice_compile(&programs, r, choice, memory, hurried, error));
    trireme_status status = simulate(&simulation, programs.program, r->ops, r->cluster, &options, error);
    if (status == TRIREME_OK) {
        *out = (struct plan_answer){
            .choice = *choice, .least_memory = memory == PLAN_LEAST_MEMORY, .simulated = plan_microbatches(r, choice)};
        take_time(out, r, &simulation);
        evaluate_take_memory(out, r, &simulation, &programs);
        *enough = shrink_tightest(out, r, &programs, &simulation, memory);
    }
    simulation_release(&simulation);
    choice_release(&programs);
    return status;
}

trireme_status plan_evaluate(struct plan_answer *out, const struct plan_request *r, const struct plan_choice *choice,
                             enum plan_memory memory, trireme_error *error) {
    bool enough = false;
    TRY(evaluate(out, r, choice, memory, true, &enough, error));
    return enough ? TRIREME_OK : evaluate(out, r, choice, memory, false, &enough, error);
}

static int evaluate_sum_of(const char *list) {
    int sum = 0;
    for (char *end; list && *list; list = *end ? end + 1 : end)
        sum += (int)strtol(list, &end, 10);
    return sum;
}

static void print_recompute(struct text *t, const struct config *config, const struct plan_choice *c) {
    static const char *const PHRASES[] = {"no recompute", "selective recompute", "full recompute"};
    const struct config_activation_checkpoint *given = &config->activation_checkpoint;
    int full = evaluate_sum_of(c->full_layers), selective = evaluate_sum_of(c->selective_layers);
    if (full)
        text_add(t, "full recompute of %d layer%s", full, full > 1 ? "s" : "");
    if (selective)
        text_add(t, "%sselective recompute of %d layer%s", full ? ", " : "", selective, selective > 1 ? "s" : "");
    if (full || selective)
        return;
    if (*given->full_layers)
        text_add(t, "full_layers %s, ", given->full_layers);
    if (*given->selective_layers)
        text_add(t, "selective_layers %s, ", given->selective_layers);
    text_add(t, "%s%s", *given->full_layers || *given->selective_layers ? "of the rest " : "", PHRASES[c->recompute]);
}

double plan_answer_waiting(const struct plan_answer *a) {
    double waiting = 0;
    for (int axis = 0; axis < AXIS_COUNT; axis++)
        waiting += AXES_DATA & AXES(axis) ? a->exposed[axis] : 0;
    return waiting;
}

char *plan_choice_print(const struct plan_request *r, const struct plan_choice *c) {
    const struct config *config = r->config;
    struct text t = {0};
    if (c->replicas > 1)
        text_add(&t, "dp %d x ", c->replicas);
    if (c->shards > 1)
        text_add(&t, "fsdp %d (zero %d) x ", c->shards, c->zero_stage);
    for (int a = AXIS_COUNT; a-- > 0;)
        if (AXES(a) & AXES_PARTS && parallel_given(config, AXES(a)) > 1) {
            text_add(&t, "%s %lld", axis_name((enum axis)a), (long long)parallel_given(config, AXES(a)));
            if (config->parallelism.context_parallel_method != CONFIG_CONTEXT_PARALLEL_GATHER)
                text_add(&t, " (%s)", config_context_parallel_method_word(config->parallelism.context_parallel_method));
            if (c->shards == 1 && c->zero_stage > 0)
                text_add(&t, " (zero %d)", c->zero_stage);
            text_add(&t, " x ");
        }
    bool whole = c->tensor > 1 && !c->sequence;
    text_add(&t, "tp %d%s", c->tensor,
             whole && c->overlap ? " (rows whole, overlapped)"
             : whole             ? " (rows whole)"
             : c->overlap        ? " (overlapped)"
                                 : "");
    if (c->stages > 1) {
        text_add(&t, " x pp %d, ", c->stages);
        text_add_line(&t, c->schedule); // perhaps a path
        if (c->chunks > 1)
            text_add(&t, " of %d chunks", c->chunks);
        text_add(&t, "%s%s", c->balanced || c->layout ? ", balanced layers" : "",
                 c->vocabulary ? ", vocabulary over stages" : "");
    }
    text_add(&t, ", microbatches of %lld, ", (long long)c->micro_batch_size);
    print_recompute(&t, config, c);
    if (c->unit_layers == HALF_LAYERS)
        text_add(&t, ", units of half a layer");
    else if (c->unit_layers)
        text_add(&t, ", units of %d layers", c->unit_layers);
    if (c->prefetch)
        text_add(&t, ", prefetch of %d", c->prefetch);
    if (c->logits_rows >= c->micro_batch_size * parallel_given_rows(config, r->model))
        text_add(&t, ", all logits at once");
    else if (c->logits_rows)
        text_add(&t, ", logits of %lld rows at once", (long long)c->logits_rows);
    return t.text;
}

char *plan_answer_print(const struct plan_request *r, const struct plan_result *result, size_t number) {
    const struct plan_choice *c = &result->answers.item[number].choice;
    char *own = plan_choice_print(r, c);
    struct text t = {0};
    bool alike = false;
    for (size_t i = 0; i < result->answers.count && !alike; i++) {
        char *other = plan_choice_print(r, &result->answers.item[i].choice);
        alike = i != number && strcmp(own, other) == 0;
        free(other);
    }
    text_add(&t, "%s", own);
    free(own);
    const struct {
        const char *name, *list;
    } LISTS[] = {{"layout", c->layout}, {"full_layers", c->full_layers}, {"selective_layers", c->selective_layers}};
    for (size_t i = 0; i < ARRAY_LENGTH(LISTS); i++)
        if (alike && LISTS[i].list)
            text_add(&t, ", %s %s", LISTS[i].name, LISTS[i].list);
    return t.text;
}

// How much a choice recomputes, as a rank: 1 some layers in part, 2 all in part, 3 some layers in full, 4 all in full.
static int evaluate_recomputed(const struct plan_choice *c) {
    return c->recompute == CONFIG_RECOMPUTE_FULL        ? 4
           : c->full_layers                             ? 3
           : c->recompute == CONFIG_RECOMPUTE_SELECTIVE ? 2
                                                        : c->selective_layers != NULL;
}

char *plan_difference_print(const struct plan_answer *better, const struct plan_answer *worse) {
    const int least = evaluate_recomputed(&better->choice), again = evaluate_recomputed(&worse->choice);
    // Where both recompute some layers, one may recompute more of them.
    const bool more = again > least || (again == least && plan_choice_mixes(&worse->choice));
    const char *what = more ? "recompute" : "computing";
    double most = worse->computing - better->computing;
    if (worse->bubble - better->bubble > most) {
        most = worse->bubble - better->bubble;
        what = "bubble";
    }
    int axis = NONE;
    for (int a = 0; a < AXIS_COUNT; a++)
        if (worse->exposed[a] - better->exposed[a] > most) {
            most = worse->exposed[a] - better->exposed[a];
            axis = a;
        }
    if (most < PLAN_ALIKE * better->seconds)
        return mem_strdup("as fast");
    if (axis != NONE)
        return mem_printf("exposed %s +%.3g s", axis_name((enum axis)axis), most);
    return mem_printf("%s +%.3g s", what, most);
}
