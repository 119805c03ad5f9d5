#include "run/step_trace.h"

#include "base/clock.h"
#include "base/json.h"
#include "exec/step_times.h"
#include "launch/ranks.h"
#include "program/timeline.h"

trireme_status step_trace_check(const struct config *config, trireme_error *error) {
    if (config->profiling.trace_step > config->training.steps)
        return config_refuse(config, "profiling.trace_step", error, "but the run ends with step %lld",
                             (long long)config->training.steps);
    bool *named = ranks_parse(config->profiling.trace_ranks, PARALLEL_MAX_RANKS);
    if (!named)
        return config_refuse(config, "profiling.trace_ranks", error, "expected ranks, as 0,1, or all");
    free(named);
    return TRIREME_OK;
}

static trireme_status check_events(const struct step_trace *t, const struct config *config, const struct engine *engine,
                                   struct communicator *all, trireme_error *error) {
    double events = 0;
    for (size_t i = 0; i < t->runs.count && t->wanted[engine->member.rank]; i++)
        events += (double)program_length(&t->runs.item[i].program->compiled->program);
    TRY(ranks_sum(all, &events, 1, error));
    if (events > TIMELINE_EVENTS_MAX)
        return config_refuse(config, "profiling.trace_ranks", error,
                             "but a trace of these ranks has %.0f events, more than %d: name fewer, as 0,1", events,
                             TIMELINE_EVENTS_MAX);
    return TRIREME_OK;
}

trireme_status step_trace_create(struct step_trace *t, const struct config *config, const struct engine *engine,
                                 struct engine_program *const *programs, size_t count, struct communicator *all,
                                 trireme_error *error) {
    int ranks = mesh_ranks(&engine->parallel->mesh);
    *t = (struct step_trace){.wanted = ranks_parse(config->profiling.trace_ranks, ranks)};
    if (!t->wanted)
        return config_refuse(config, "profiling.trace_ranks", error, "expected ranks from 0 to %d, as 0,1, or all",
                             ranks - 1);
    for (size_t i = 0; i < count; i++)
        VEC_PUSH(&t->runs, (struct traced){.program = programs[i]});
    trireme_status status = check_events(t, config, engine, all, error);
    if (status != TRIREME_OK)
        step_trace_release(t);
    for (size_t i = 0; i < t->runs.count && t->wanted[engine->member.rank]; i++)
        executor_trace_reserve(t->runs.item[i].program->executor, &t->runs.item[i].trace);
    return status;
}

void step_trace_release(struct step_trace *t) {
    for (size_t i = 0; i < t->runs.count; i++)
        VEC_RELEASE(&t->runs.item[i].trace.events);
    VEC_RELEASE(&t->runs);
    free(t->wanted);
    *t = (struct step_trace){0};
}

trireme_status step_trace_begin(struct step_trace *t, const struct engine *engine, struct communicator *all,
                                trireme_error *error) {
    for (size_t i = 0; i < t->runs.count; i++)
        t->runs.item[i].trace.events.count = 0;
    t->start = clock_now();
    if (!all)
        return TRIREME_OK;
    TRY(comm_broadcast(all, &t->start, sizeof t->start, 0, error));
    const struct world_place *place = world_place(engine->member.world);
    if (place && place->node != 0)
        t->start = clock_now();
    return TRIREME_OK;
}

struct trace *step_trace_events(struct step_trace *t, const struct engine *engine, size_t run) {
    return t->wanted[engine->member.rank] ? &t->runs.item[run].trace : NULL;
}

static trireme_status step_trace_receive(struct communicator *all, int rank, struct text *out, trireme_error *error) {
    int64_t bytes;
    TRY(comm_receive(all, &bytes, sizeof bytes, rank, error));
    char *theirs = mem_alloc((size_t)bytes + 1);
    trireme_status status = comm_receive(all, theirs, bytes, rank, error);
    json_add_written(out, theirs, (size_t)bytes);
    free(theirs);
    return status;
}

static trireme_status step_trace_send(struct communicator *all, const struct text *text, trireme_error *error) {
    int64_t bytes = (int64_t)text->length;
    TRY(comm_send(all, &bytes, sizeof bytes, 0, error));
    return comm_send(all, text->text, bytes, 0, error);
}

static void print_run(const struct traced *run, const struct op_table *ops, int rank, int64_t start, struct text *out) {
    const struct compiled *c = run->program->compiled;
    const int track = program_is_beside(c->spec.kind) ? 1 + (int)c->spec.kind : 0;
    trace_print(&c->program, ops, &run->trace, rank, track, start, out);
}

trireme_status step_trace_gather(const struct step_trace *t, const struct engine *engine, struct communicator *all,
                                 struct text *out, trireme_error *error) {
    int own = engine->member.rank, ranks = mesh_ranks(&engine->parallel->mesh);
    struct text mine = {0};
    if (t->wanted[own])
        timeline_name_rank(&mine, own);
    for (size_t i = 0; i < t->runs.count && t->wanted[own]; i++)
        print_run(&t->runs.item[i], engine->ops, own, t->start, &mine);
    trireme_status status = TRIREME_OK;
    if (own == 0) {
        timeline_begin(out);
        json_add_written(out, mine.text, mine.length);
        for (int rank = 1; rank < ranks && status == TRIREME_OK; rank++)
            if (t->wanted[rank])
                status = step_trace_receive(all, rank, out, error);
        timeline_end(out);
    } else if (t->wanted[own]) {
        status = step_trace_send(all, &mine, error);
    }
    text_release(&mine);
    return status;
}
