#include "exec/trace.h"

#include "base/json.h"
#include "program/names.h"

static void begin_event(struct text *out, const char *phase, const char *name, int thread) {
    json_begin_object(out, NULL);
    json_add_string(out, "ph", phase);
    json_add_string(out, "name", name);
    json_add_integer(out, "pid", 0);
    json_add_integer(out, "tid", thread);
}

static const struct instruction *instruction_of(const struct program *program, const struct trace_event *event) {
    const struct invocation *v = &program->schedule.item[event->invocation];
    return &program->templates.item[v->template].instructions.item[event->instruction];
}

// Streams on which nothing ran are left out.
static void name_streams(struct text *out, const struct program *program, const struct trace *trace) {
    bool used[STREAM_COUNT] = {0};
    for (size_t i = 0; i < trace->events.count; i++)
        used[instruction_of(program, &trace->events.item[i])->stream] = true;
    begin_event(out, "M", "process_name", 0);
    json_begin_object(out, "args");
    json_add_string(out, "name", program->name);
    json_end_object(out);
    json_end_object(out);
    for (int s = 0; s < STREAM_COUNT; s++) {
        if (!used[s])
            continue;
        begin_event(out, "M", "thread_name", s);
        json_begin_object(out, "args");
        json_add_string(out, "name", STREAM_WORDS[s]);
        json_end_object(out);
        json_end_object(out);
    }
}

void trace_print(const struct program *program, const struct op_table *table, const struct trace *trace,
                 struct text *out) {
    json_begin_object(out, NULL);
    json_add_string(out, "displayTimeUnit", "ms");
    json_begin_array(out, "traceEvents");
    name_streams(out, program, trace);
    int64_t start = trace->events.count ? INT64_MAX : 0;
    for (size_t i = 0; i < trace->events.count; i++)
        start = MIN(start, trace->events.item[i].begin);
    for (size_t i = 0; i < trace->events.count; i++) {
        struct trace_event e = trace->events.item[i];
        struct invocation v = program->schedule.item[e.invocation];
        const struct template *t = &program->templates.item[v.template];
        const struct instruction *instruction = &t->instructions.item[e.instruction];
        begin_event(out, "X", table->op[instruction->op].name, instruction->stream);
        json_add_string(out, "cat", t->name);
        json_add_number(out, "ts", 1e-3 * (double)(e.begin - start)); // microseconds
        json_add_number(out, "dur", 1e-3 * (double)(e.end - e.begin));
        json_begin_object(out, "args");
        json_add_integer(out, "instruction", e.instruction);
        if (instruction->layer != NONE)
            json_add_integer(out, "layer", instruction->layer);
        if (v.microbatch != NONE)
            json_add_integer(out, "microbatch", v.microbatch);
        for (int k = 0; k < instruction->outputs; k++)
            if (instruction->out[k].buffer != NONE) {
                json_add_string(out, "writes", program->buffers.item[instruction->out[k].buffer].name);
                break;
            }
        json_add_number(out, "gflops", 1e-9 * instruction_flops(table, instruction));
        json_end_object(out);
        json_end_object(out);
    }
    json_end_array(out);
    json_end_object(out);
    text_add(out, "\n");
}
