#include "program/timeline.h"

#include "base/json.h"
#include "program/names.h"

#include <math.h>

void timeline_begin(struct text *out) {
    json_begin_object(out, NULL);
    json_add_string(out, "displayTimeUnit", "ms");
    json_begin_array(out, "traceEvents");
}

void timeline_end(struct text *out) {
    json_end_array(out);
    json_end_object(out);
    text_add(out, "\n");
}

static void event_begin(struct text *out, const char *phase, const char *name, int rank, int stream) {
    json_begin_object(out, NULL);
    json_add_string(out, "ph", phase);
    json_add_string(out, "name", name);
    json_add_integer(out, "pid", rank);
    json_add_integer(out, "tid", stream);
}

static void name_line(struct text *out, const char *what, int rank, int stream, const char *name) {
    event_begin(out, "M", what, rank, stream);
    json_begin_object(out, "args");
    json_add_string(out, "name", name);
    json_end_object(out);
    json_end_object(out);
}

void timeline_name_rank(struct text *out, int rank) {
    char name[32];
    snprintf(name, sizeof name, "rank %d", rank);
    name_line(out, "process_name", rank, 0, name);
}

static int timeline_thread(int track, int stream) {
    return track * STREAMS_MAX + stream;
}

void timeline_name_stream(struct text *out, const struct program *program, int rank, int track, int stream) {
    char name[128];
    snprintf(name, sizeof name, "%s%s%s", track ? program->name : "", track ? "/" : "",
             program->streams.item[stream].name);
    name_line(out, "thread_name", rank, timeline_thread(track, stream), name);
}

static int64_t nanoseconds(double seconds) {
    return llround(1e9 * seconds);
}

void timeline_open_event(struct text *out, const struct program *program, const struct op_table *table,
                         const struct timeline_event *event) {
    const struct invocation *v = &program->schedule.item[event->invocation];
    const struct template *t = &program->templates.item[v->template];
    const struct instruction *in = &t->instructions.item[event->instruction];
    event_begin(out, "X", table->op[in->op].name, event->rank, timeline_thread(event->track, in->stream));
    json_add_string(out, "cat", t->name);
    // Where one event ends when another begins, they also do so in whole nanoseconds.
    int64_t starts = nanoseconds(event->begin), ends = nanoseconds(event->end);
    json_add_number(out, "ts", (double)starts / 1e3);
    json_add_number(out, "dur", (double)(ends - starts) / 1e3);
    json_begin_object(out, "args");
    json_add_integer(out, "instruction", event->instruction);
    if (in->layer != NONE)
        json_add_integer(out, "layer", in->layer);
    if (v->microbatch != NONE)
        json_add_integer(out, "microbatch", v->microbatch);
}

void timeline_close_event(struct text *out) {
    json_end_object(out);
    json_end_object(out);
}
