#include "exec/step_times.h"

#include "base/json.h"
#include "program/timeline.h"

static const struct instruction *instruction_of(const struct program *program, const struct trace_event *event) {
    const struct invocation *v = &program->schedule.item[event->invocation];
    return &program->templates.item[v->template].instructions.item[event->instruction];
}

// Streams on which nothing ran are left out.
static void name_streams(struct text *out, const struct program *program, const struct trace *trace, int rank,
                         int track) {
    bool used[STREAMS_MAX] = {0};
    for (size_t i = 0; i < trace->events.count; i++)
        used[instruction_of(program, &trace->events.item[i])->stream] = true;
    for (int s = 0; s < STREAMS_MAX; s++)
        if (used[s])
            timeline_name_stream(out, program, rank, track, s);
}

static void add_first_output(struct text *out, const struct program *program, const struct instruction *instruction) {
    for (int k = 0; k < instruction->outputs; k++)
        if (instruction->out[k].buffer != NONE) {
            json_add_string(out, "writes", program->buffers.item[instruction->out[k].buffer].name);
            return;
        }
}

void trace_print(const struct program *program, const struct op_table *table, const struct trace *trace, int rank,
                 int track, int64_t start, struct text *out) {
    name_streams(out, program, trace, rank, track);
    for (size_t i = 0; i < trace->events.count; i++) {
        const struct trace_event *e = &trace->events.item[i];
        const struct instruction *instruction = instruction_of(program, e);
        struct timeline_event event = {.invocation = e->invocation,
                                       .instruction = e->instruction,
                                       .rank = rank,
                                       .track = track,
                                       .begin = 1e-9 * (double)(e->begin - start),
                                       .end = 1e-9 * (double)(e->end - start)};
        timeline_open_event(out, program, table, &event);
        add_first_output(out, program, instruction);
        json_add_number(out, "gflops", 1e-9 * instruction_flops(program, table, instruction));
        timeline_close_event(out);
    }
}
