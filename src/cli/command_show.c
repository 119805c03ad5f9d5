// trireme show program|memory|timeline|mesh CONFIG.yaml, trireme show ranks RUN_DIR: a step for looking at, and where
// ranks stand.
#include "cli/command_show.h"
#include "base/clock.h"
#include "base/json.h"
#include "compile/period.h"
#include "launch/rank_file.h"
#include "launch/ranks.h"
#include "measure/synthetic.h"
#include "memory/memory_plan.h"
#include "run/run_directory.h"
#include "run/step_trace.h"

// The number of the run's program that show.program names.
static trireme_status show_find(const struct engine *e, const struct config *config, size_t *out,
                                trireme_error *error) {
    struct text names = {0};
    for (*out = 0; *out < e->programs.count; (*out)++) {
        const char *name = e->programs.item[*out].compiled->program.name;
        if (strcmp(name, config->show.program) == 0) {
            text_release(&names);
            return TRIREME_OK;
        }
        text_add(&names, "%s%s", *out ? ", " : "", name);
    }
    config_refuse(config, "show.program", error, "but this run's programs are %s", names.text);
    text_release(&names);
    return TRIREME_ERROR_USAGE;
}

bool show_is_given(const struct config *config, const char *key) {
    return strcmp(config_origin(config, key), "command line") == 0;
}

trireme_status show_check_rank(const struct config *config, int ranks, trireme_error *error) {
    if (config->show.rank < ranks)
        return TRIREME_OK;
    return config_refuse(config, "show.rank", error, "but ranks are numbered from 0 to %d", ranks - 1);
}

enum { PROFILE_ROWS = 40, PROFILE_WIDTH = 50, LARGEST = 20 };

// Bytes of the device's state arena by what they hold.
static int64_t state_of_kind(const struct program *p, enum buffer_kind kind) {
    int64_t sum = 0;
    for (size_t i = 0; i < p->buffers.count; i++) {
        const struct buffer *b = &p->buffers.item[i];
        if (b->scope == SCOPE_STATE && b->space == SPACE_DEVICE && b->parent == NONE && b->kind == kind)
            sum += buffer_bytes(b);
    }
    return sum;
}

static int64_t bytes_outside(const struct program *p, int space) {
    return p->arena[space].state_bytes + p->arena[space].step_bytes;
}

// Live bytes over the step, one row for each of PROFILE_ROWS equal parts of it: the most in that part.
static void draw_profile(const struct engine *e, const struct program *p, const struct memory_profile *profile,
                         struct text *out) {
    size_t n = profile->moments.count, rows = MIN(n, (size_t)PROFILE_ROWS);
    int64_t peak = profile->moments.item[profile->peak].live;
    text_add(out, "\nlive bytes of the step arena, %zu instructions:\n", n);
    for (size_t r = 0; r < rows; r++) {
        size_t first = r * n / rows, most = first;
        for (size_t i = first; i < (r + 1) * n / rows; i++)
            if (profile->moments.item[i].live > profile->moments.item[most].live)
                most = i;
        struct memory_moment m = profile->moments.item[most];
        struct invocation v = p->schedule.item[m.invocation];
        int filled = (int)((double)PROFILE_WIDTH * (double)m.live / (double)MAX(peak, 1));
        text_add(out, "%9s |", amount(m.live).text);
        for (int i = 0; i < PROFILE_WIDTH; i++)
            text_add(out, "%s", i < filled ? "#" : " ");
        text_add(out, "| %s[%d] %s\n", p->templates.item[v.template].name, m.instruction,
                 e->ops->op[p->templates.item[v.template].instructions.item[m.instruction].op].name);
    }
}

// What the arena of a step takes over the most bytes that live at once, as a share of these.
static double show_waste(const struct program *p, int64_t live) {
    return (double)(p->arena[SPACE_DEVICE].step_bytes - live) / (double)MAX(live, 1);
}

// What lives at the peak for other microbatches than the one at work there.
static int64_t held_for_others(const struct memory_profile *profile) {
    int64_t bytes = profile->moments.item[profile->peak].live;
    for (size_t i = 0; i < profile->at_peak.count; i++)
        bytes -= profile->at_peak.item[i].bytes;
    return bytes;
}

static void show_memory_text(const struct engine *e, const struct program *p, const struct memory_profile *profile,
                             struct text *out) {
    const int64_t state = stage_state_bytes(e->stage, SPACE_DEVICE);
    text_add(out, "state arena %s (parameters %s, gradients %s, optimizer %s", amount(state).text,
             amount(state_of_kind(p, KIND_PARAM)).text, amount(state_of_kind(p, KIND_GRAD)).text,
             amount(state_of_kind(p, KIND_OPTIM)).text);
    if (state > p->arena[SPACE_DEVICE].state_bytes)
        text_add(out, ", other programs %s", amount(state - p->arena[SPACE_DEVICE].state_bytes).text);
    text_add(out, "), step arena %s, in all %s\n", amount(p->arena[SPACE_DEVICE].step_bytes).text,
             amount(state + p->arena[SPACE_DEVICE].step_bytes).text);
    for (int s = SPACE_DEVICE + 1; s < SPACE_COUNT; s++)
        if (bytes_outside(p, s))
            text_add(out, "outside of memory: space %s, %s\n", memory_spaces[s].name, amount(bytes_outside(p, s)).text);
    struct memory_moment peak = profile->moments.item[profile->peak];
    struct invocation v = p->schedule.item[peak.invocation];
    const struct template *t = &p->templates.item[v.template];
    text_add(out, "live at the peak %s, at %s[%d] %s", amount(peak.live).text, t->name, peak.instruction,
             e->ops->op[t->instructions.item[peak.instruction].op].name);
    if (v.microbatch != NONE)
        text_add(out, " of microbatch %d", v.microbatch);
    text_add(out, "; the plan of offsets takes %.2f%% more; ", 100 * show_waste(p, peak.live));
    if (held_for_others(profile))
        text_add(out, "%s are held for other microbatches; the largest for this one:\n",
                 amount(held_for_others(profile)).text);
    else
        text_add(out, "the largest there:\n");
    for (size_t i = 0; i < MIN(profile->at_peak.count, (size_t)LARGEST); i++) {
        const struct memory_holder *h = &profile->at_peak.item[i];
        text_add(out, "%9s  %s\n", amount(h->bytes).text, p->buffers.item[h->buffer].name);
    }
    draw_profile(e, p, profile, out);
}

static void show_memory_json(const struct engine *e, const struct program *p, const struct memory_profile *profile,
                             struct text *out) {
    json_begin_object(out, NULL);
    const int64_t state = stage_state_bytes(e->stage, SPACE_DEVICE);
    json_add_integer(out, "state_bytes", state);
    json_add_integer(out, "parameter_bytes", state_of_kind(p, KIND_PARAM));
    json_add_integer(out, "gradient_bytes", state_of_kind(p, KIND_GRAD));
    json_add_integer(out, "optimizer_bytes", state_of_kind(p, KIND_OPTIM));
    json_add_integer(out, "step_bytes", p->arena[SPACE_DEVICE].step_bytes);
    json_add_integer(out, "predicted_bytes", state + p->arena[SPACE_DEVICE].step_bytes);
    for (int s = SPACE_DEVICE + 1; s < SPACE_COUNT; s++) {
        char *name = mem_printf("%s_bytes", memory_spaces[s].name);
        json_add_integer(out, name, bytes_outside(p, s));
        free(name);
    }
    json_add_integer(out, "peak_live_bytes", profile->moments.item[profile->peak].live);
    json_add_number(out, "waste", show_waste(p, profile->moments.item[profile->peak].live));
    json_add_integer(out, "held_for_others_bytes", held_for_others(profile));
    json_begin_array(out, "at_peak");
    for (size_t i = 0; i < profile->at_peak.count; i++) {
        const struct memory_holder *h = &profile->at_peak.item[i];
        json_begin_object(out, NULL);
        json_add_string(out, "name", p->buffers.item[h->buffer].name);
        json_add_integer(out, "bytes", h->bytes);
        json_end_object(out);
    }
    json_end_array(out);
    json_begin_array(out, "live_bytes");
    for (size_t i = 0; i < profile->moments.count; i++)
        json_add_integer(out, NULL, profile->moments.item[i].live);
    json_end_array(out);
    json_end_object(out);
    text_add(out, "\n");
}

static void show_memory(const struct engine *e, const struct program *p, bool json, struct text *out) {
    struct memory_profile profile;
    program_memory_profile(p, e->ops, &profile);
    if (json)
        show_memory_json(e, p, &profile, out);
    else
        show_memory_text(e, p, &profile, out);
    memory_profile_release(&profile);
}

struct timeline {
    const struct config *config;
    const struct model_config *model;
    const struct parallel *plan;
    struct text *out; // rank 0 adds to it
};

// What is run, and in which order; the programs of the runs that are traced.
struct timeline_runs {
    struct period period;
    VEC(struct engine_program *) traced;
};

// All of a period, or the runs of the program that is asked for; one that no period has runs behind it.
static trireme_status timeline_choose(const struct timeline *t, const struct engine *e, struct timeline_runs *runs,
                                      trireme_error *error) {
    size_t asked;
    const bool all = !show_is_given(t->config, "show.program");
    TRY(show_find(e, t->config, &asked, error));
    const struct program_spec *spec = &e->programs.item[asked].compiled->spec;
    runs->period = period_of(t->config);
    if (!all && !period_has(&runs->period, spec->kind, spec->part))
        VEC_PUSH(&runs->period.parts, ((struct period_part){spec->kind, spec->part, PERIOD_RUN}));
    for (size_t i = 0; i < runs->period.parts.count; i++) {
        const struct period_part *part = &runs->period.parts.item[i];
        struct engine_program *program = engine_find_part(e, part->kind, part->part);
        if (part->action != PERIOD_END && (all || program == &e->programs.item[asked]))
            VEC_PUSH(&runs->traced, program);
    }
    return TRIREME_OK;
}

static trireme_status run_part(struct engine *e, struct engine_program *program, enum period_action action,
                               struct trace *trace, trireme_error *error) {
    return action == PERIOD_BEGIN ? engine_begin(e, program, trace, error)
           : action == PERIOD_END ? engine_end(program, error)
                                  : engine_run(e, program, trace, error);
}

// Real runs on random tokens, after a step that nobody looks at.
static trireme_status trace_runs(const struct timeline *t, struct engine *e, struct communicator *all,
                                 const struct timeline_runs *runs, struct step_trace *trace, trireme_error *error) {
    TRY(step_trace_create(trace, t->config, e, runs->traced.item, runs->traced.count, all, error));
    engine_initialise(e, (uint64_t)t->config->training.seed, NULL);
    synthetic_fill(e, engine_find(e, PROGRAM_TRAIN), (uint64_t)t->config->training.seed);
    TRY(engine_run(e, engine_find(e, PROGRAM_TRAIN), NULL, error));
    TRY(step_trace_begin(trace, e, all, error));
    size_t number = 0;
    for (size_t i = 0; i < runs->period.parts.count; i++) {
        const struct period_part *part = &runs->period.parts.item[i];
        struct engine_program *program = engine_find_part(e, part->kind, part->part);
        const bool traced =
            part->action != PERIOD_END && number < runs->traced.count && runs->traced.item[number] == program;
        if (part->action != PERIOD_END)
            synthetic_fill(e, program, (uint64_t)t->config->training.seed);
        TRY(run_part(e, program, part->action, traced ? step_trace_events(trace, e, number) : NULL, error));
        number += traced;
    }
    return step_trace_gather(trace, e, all, t->out, error);
}

static trireme_status trace_rank(void *user, const struct member *member, trireme_error *error) {
    const struct timeline *t = user;
    struct engine e;
    struct communicator *all = NULL;
    struct step_trace trace = {0};
    struct timeline_runs runs = {0};
    const bool chosen = show_is_given(t->config, "show.program");
    TRY(engine_create(&e, t->config, t->model, t->plan, chosen ? TRAIN_AND_EVALUATE : TRAIN_ALONE, member, error));
    trireme_status status = timeline_choose(t, &e, &runs, error);
    if (status == TRIREME_OK)
        status = ranks_control(&all, member, mesh_ranks(&e.parallel->mesh), error);
    if (status == TRIREME_OK)
        status = trace_runs(t, &e, all, &runs, &trace, error);
    VEC_RELEASE(&runs.period.parts);
    VEC_RELEASE(&runs.traced);
    step_trace_release(&trace);
    communicator_free(all);
    engine_release(&e);
    return status;
}

static trireme_status show_timeline(const struct config *config, const struct model_config *model, struct text *out,
                                    trireme_error *error) {
    struct parallel plan;
    if (show_is_given(config, "show.rank"))
        return config_refuse(config, "show.rank", error, "but a timeline has all ranks");
    TRY(parallel_resolve(&plan, config, model, error));
    struct timeline t = {config, model, &plan, out};
    trireme_status status =
        ranks_run(mesh_ranks(&plan.mesh), (double)config->comm.train_timeout_seconds, trace_rank, &t, error);
    parallel_release(&plan);
    return status;
}

// `plan` is the caller's to release, and the engine's while there is one.
static trireme_status compile_rank(struct engine *e, struct parallel *plan, const struct config *config,
                                   const struct model_config *model, trireme_error *error) {
    TRY(parallel_resolve(plan, config, model, error));
    TRY(show_check_rank(config, mesh_ranks(&plan->mesh), error));
    return engine_compile(e, config, model, plan, TRAIN_AND_EVALUATE, (int)config->show.rank, error);
}

static trireme_status show_compiled(const struct engine *e, bool memory, const struct config *config, bool json,
                                    struct text *out, trireme_error *error) {
    size_t number;
    TRY(show_find(e, config, &number, error));
    const struct program *p = &e->programs.item[number].compiled->program;
    if (memory)
        show_memory(e, p, json, out);
    else
        program_print(p, e->ops, out);
    return TRIREME_OK;
}

static trireme_status show(const char *what, const struct config *config, bool json, struct text *out,
                           trireme_error *error) {
    struct model_config model;
    struct parallel plan = {0};
    struct engine engine;
    TRY(synthetic_model(&model, config, error));
    if (strcmp(what, "timeline") == 0)
        return show_timeline(config, &model, out, error);
    trireme_status status = compile_rank(&engine, &plan, config, &model, error);
    if (status == TRIREME_OK) {
        status = show_compiled(&engine, strcmp(what, "memory") == 0, config, json, out, error);
        engine_release(&engine);
    }
    parallel_release(&plan);
    return status;
}

static trireme_status show_ranks(const char *directory, bool json, struct text *out, trireme_error *error) {
    struct rank_view view;
    TRY(rank_view_read(&view, directory, error));
    // Before a start has come so far as to keep counters, the file is that of the run before it.
    bool busy = run_directory_is_busy(directory), runs = busy && rank_file_is_alive(directory);
    int64_t now = runs ? clock_real() : view.latest;
    char *mesh = mesh_print(&view.mesh);
    if (json) {
        json_begin_object(out, NULL);
        json_add_string(out, "mesh", mesh);
        json_add_integer(out, "process", view.pid);
        json_add_boolean(out, "runs", runs);
        json_add_boolean(out, "starts", busy && !runs);
        rank_view_print(&view, now, true, out);
        json_end_object(out);
        text_add(out, "\n");
    } else {
        const char *state = busy ? "another run is just starting; the one before it was" : "not running; was";
        text_add(out, "%s, %s process %lld\n", mesh, runs ? "running as" : state, (long long)view.pid);
        rank_view_print(&view, now, false, out);
    }
    free(mesh);
    rank_view_release(&view);
    return TRIREME_OK;
}

static trireme_status command_show_ranks(const struct arguments *a, trireme_error *error) {
    if (a->operands.count != 2)
        FAIL(TRIREME_ERROR_USAGE, "usage: trireme show ranks RUN_DIR");
    struct text out = {0};
    trireme_status status = show_ranks(a->operands.item[1], a->json, &out, error);
    if (status == TRIREME_OK)
        status = print_text(&out, error);
    text_release(&out);
    return status;
}

trireme_status command_show(const struct arguments *a, trireme_error *error) {
    const char *what = a->operands.count ? a->operands.item[0] : "";
    if (strcmp(what, "mesh") == 0)
        return command_show_mesh(a, error);
    TRY(arguments_expect(a, 1, 2, error));
    if (strcmp(what, "ranks") == 0)
        return command_show_ranks(a, error);
    if (strcmp(what, "program") != 0 && strcmp(what, "memory") != 0 && strcmp(what, "timeline") != 0)
        FAIL(TRIREME_ERROR_USAGE, "what to show is program, memory, timeline, mesh or ranks, not \"%s\"", what);
    struct config config;
    TRY(arguments_config(a, a->operands.count > 1 ? a->operands.item[1] : NULL, &config, error));
    struct text out = {0};
    trireme_status status = show(what, &config, a->json, &out, error);
    if (status == TRIREME_OK)
        status = print_text(&out, error);
    text_release(&out);
    config_release(&config);
    return status;
}
