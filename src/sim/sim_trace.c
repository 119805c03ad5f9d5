#include "sim/sim_trace.h"

#include "base/json.h"
#include "program/timeline.h"

// ---- trace

static void print_event(struct text *out, const struct program *p, const struct op_table *table,
                        const struct sim_event *event, int rank) {
    const struct template *t = &p->templates.item[p->schedule.item[event->invocation].template];
    const struct instruction *in = &t->instructions.item[event->instruction];
    timeline_open_event(
        out, p, table,
        &(struct timeline_event){event->invocation, event->instruction, rank, 0, event->begin, event->end});
    if (table->op[in->op].role == ROLE_COMMUNICATION) {
        char axes[AXES_TEXT];
        json_add_string(out, "group", axes_print(in->group, axes));
    }
    timeline_close_event(out);
}

static void print_rank(struct text *out, const struct simulation *s, const struct op_table *table, int rank) {
    const struct sim_class *who = &s->of_class[s->class_of[rank]];
    timeline_name_rank(out, rank);
    bool named[STREAMS_MAX] = {0};
    for (size_t i = 0; i < who->events.count; i++) {
        const struct sim_event *event = &who->events.item[i];
        const struct invocation *v = &who->program->schedule.item[event->invocation];
        int stream = who->program->templates.item[v->template].instructions.item[event->instruction].stream;
        if (!named[stream])
            timeline_name_stream(out, who->program, rank, 0, stream);
        named[stream] = true;
        print_event(out, who->program, table, event, rank);
    }
}

trireme_status sim_trace_print(const struct simulation *s, const struct op_table *table, const bool *wanted,
                               struct text *out, trireme_error *error) {
    size_t events = 0;
    for (int rank = 0; rank < s->ranks; rank++)
        events += wanted[rank] ? s->of_class[s->class_of[rank]].events.count : 0;
    if (events > TIMELINE_EVENTS_MAX)
        FAIL(TRIREME_ERROR_USAGE, "a trace of these ranks has %zu events, more than %d: name fewer by trace_ranks=0,1",
             events, TIMELINE_EVENTS_MAX);
    timeline_begin(out);
    for (int rank = 0; rank < s->ranks; rank++)
        if (wanted[rank])
            print_rank(out, s, table, rank);
    timeline_end(out);
    return TRIREME_OK;
}

// ---- picture

static bool splits_backward(const struct program *p) {
    for (size_t t = 0; t < p->templates.count; t++)
        if (p->templates.item[t].phase == PHASE_WEIGHT)
            return true;
    return false;
}

static enum picture_kind trace_kind_of(const struct template *t, bool split) {
    static const enum picture_kind KINDS[PHASE_COUNT] = {[PHASE_INPUT] = PICTURE_OTHER,
                                                         [PHASE_FORWARD] = PICTURE_FORWARD,
                                                         [PHASE_BACKWARD] = PICTURE_BACKWARD,
                                                         [PHASE_WEIGHT] = PICTURE_BACKWARD_WEIGHT,
                                                         [PHASE_OPTIMIZER] = PICTURE_OPTIMIZER};
    return split && t->phase == PHASE_BACKWARD ? PICTURE_BACKWARD_INPUT : KINDS[t->phase];
}

static struct picture_row trace_row_of(const struct sim_class *who) {
    const struct program *p = who->program;
    struct picture_row row = {.box = mem_alloc(p->schedule.count * sizeof *row.box), .label = who->rank};
    bool split = splits_backward(p);
    int last = NONE;
    for (size_t i = 0; i < who->events.count; i++) {
        const struct sim_event *event = &who->events.item[i];
        const struct invocation *v = &p->schedule.item[event->invocation];
        const struct template *t = &p->templates.item[v->template];
        if (t->instructions.item[event->instruction].stream != STREAM_COMPUTE || event->end <= event->begin)
            continue;
        if (event->invocation != last)
            row.box[row.count++] =
                (struct picture_box){event->begin, event->end, trace_kind_of(t, split), t->chunk, v->microbatch};
        last = event->invocation;
        row.box[row.count - 1].end = event->end;
    }
    return row;
}

trireme_status sim_picture_print(const struct simulation *s, const char *title, struct text *out,
                                 trireme_error *error) {
    size_t boxes = 0;
    struct picture picture = {.title = title, .unit = "s", .rows_are = "rank", .rows = s->classes, .chunks = 1};
    for (int c = 0; c < s->classes; c++) {
        boxes += s->of_class[c].program->schedule.count;
        for (size_t t = 0; t < s->of_class[c].program->templates.count; t++)
            picture.chunks = MAX(picture.chunks, s->of_class[c].program->templates.item[t].chunk + 1);
    }
    if (boxes > PICTURE_BOXES_MAX)
        FAIL(TRIREME_ERROR_USAGE, "%zu passes are too many for a picture, which has %zu at most", boxes,
             PICTURE_BOXES_MAX);
    picture.row = mem_alloc((size_t)picture.rows * sizeof *picture.row);
    for (int c = 0; c < s->classes; c++)
        picture.row[c] = trace_row_of(&s->of_class[c]);
    picture_print(&picture, out);
    for (int c = 0; c < s->classes; c++)
        free(picture.row[c].box);
    free(picture.row);
    return TRIREME_OK;
}
