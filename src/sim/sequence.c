#include "sim/sequence.h"

// A program in the sequence: where its tables begin there, and the numbers of its streams.
struct placed {
    const struct program *program;
    int buffer, pool, template;
    int stream[STREAMS_MAX];
    unsigned streams; // a bit for each, by its number in the sequence
};

struct sequence {
    struct program *out;
    struct placed *placed;   // [parts]: of those that are the same program, the first
    struct instruction idle; // of which nothing but its waits happens: it is skipped
    unsigned own;            // the streams of what runs one after another
    unsigned ended;          // those of what has run beside it, and is to be waited for
};

// ---- tables

static int placed_buffer(const struct placed *at, int buffer) {
    return buffer == NONE ? NONE : at->buffer + buffer;
}

static void place_buffers(struct sequence *s, struct placed *at) {
    at->buffer = (int)s->out->buffers.count;
    for (size_t i = 0; i < at->program->buffers.count; i++) {
        struct buffer b = at->program->buffers.item[i];
        b.name = mem_strdup(b.name);
        b.parent = placed_buffer(at, b.parent);
        b.gradient_of = placed_buffer(at, b.gradient_of);
        b.recomputes = placed_buffer(at, b.recomputes);
        b.belongs_to = placed_buffer(at, b.belongs_to);
        b.extent = placed_buffer(at, b.extent);
        b.pool += at->pool;
        VEC_PUSH(&s->out->buffers, b);
    }
}

static void place_pools(struct sequence *s, struct placed *at) {
    at->pool = (int)s->out->pools.count;
    for (size_t i = 0; i < at->program->pools.count; i++) {
        const struct pool *p = &at->program->pools.item[i];
        program_pool(s->out, at->pool + (int)i, p->chunk, p->slots, p->slot);
        s->out->pools.item[at->pool + (int)i].part_of = p->part_of == NONE ? NONE : at->pool + p->part_of;
    }
}

// What runs beside others has streams of its own, named after it; the others share theirs.
static trireme_status place_streams(struct sequence *s, struct placed *at, bool beside, trireme_error *error) {
    bool used[STREAMS_MAX] = {0};
    FOR_INSTRUCTIONS(in, at->program)
        used[in->stream] = true;
    for (size_t i = 0; i < at->program->streams.count; i++) {
        const struct stream *stream = &at->program->streams.item[i];
        char name[STREAM_NAME];
        snprintf(name, sizeof name, beside ? "%.14s/%.8s" : "%s", beside ? at->program->name : stream->name,
                 stream->name);
        if (!beside || !used[i])
            at->stream[i] = program_find_stream(s->out, name);
        if ((beside && !used[i]) || at->stream[i] != NONE)
            continue;
        if (s->out->streams.count == STREAMS_MAX)
            FAIL(TRIREME_ERROR_USAGE, "%s, with the programs beside it, has more than %d streams",
                 program_kinds[PROGRAM_TRAIN].title, STREAMS_MAX);
        at->stream[i] = program_stream(s->out, name, stream->properties);
    }
    for (size_t i = 0; i < at->program->streams.count; i++)
        at->streams |= used[i] ? 1u << at->stream[i] : 0;
    return TRIREME_OK;
}

static void place_instruction(struct sequence *s, const struct placed *at, struct template *to,
                              const struct instruction *from) {
    struct instruction in = *from;
    program_give_operands(s->out, &in, from->inputs, from->in, from->outputs, from->out);
    for (int k = 0; k < in.inputs + in.outputs; k++) {
        struct operand *operand = k < in.inputs ? &in.in[k] : &in.out[k - in.inputs];
        operand->buffer = placed_buffer(at, operand->buffer);
    }
    in.workspace = placed_buffer(at, in.workspace);
    in.predicate = placed_buffer(at, in.predicate);
    in.stream = at->stream[from->stream];
    memset(in.wait, 0, sizeof in.wait);
    for (size_t i = 0; i < at->program->streams.count; i++)
        if (from->wait[i] && at->stream[i] != NONE)
            in.wait[at->stream[i]] = from->wait[i];
    VEC_PUSH(&to->instructions, in);
}

static trireme_status sequence_place(struct sequence *s, struct placed *at, const struct program *program, bool beside,
                                     trireme_error *error) {
    *at = (struct placed){.program = program};
    for (int i = 0; i < STREAMS_MAX; i++)
        at->stream[i] = NONE;
    place_pools(s, at);
    place_buffers(s, at);
    TRY(place_streams(s, at, beside, error));
    at->template = (int)s->out->templates.count;
    for (size_t t = 0; t < program->templates.count; t++) {
        const struct template *from = &program->templates.item[t];
        const int to = program_template(s->out, from->name, from->phase, from->chunk);
        for (size_t i = 0; i < from->instructions.count; i++)
            place_instruction(s, at, &s->out->templates.item[to], &from->instructions.item[i]);
    }
    return TRIREME_OK;
}

// ---- the schedule

// From here on each of `streams` waits for all that has been done on those of `awaited`.
static void sequence_meet(struct sequence *s, unsigned streams, unsigned awaited) {
    const int template = program_template(s->out, "between", PHASE_INPUT, 0);
    for (int stream = 0; stream < STREAMS_MAX; stream++) {
        struct instruction in = s->idle;
        in.stream = stream;
        in.when = WHEN_NOT_LAST;
        memset(in.wait, 0, sizeof in.wait);
        for (int on = 0; on < STREAMS_MAX; on++)
            if (on != stream && awaited & 1u << on)
                in.wait[on] = wait_for_all_but(0);
        if (streams & 1u << stream)
            VEC_PUSH(&s->out->templates.item[template].instructions, in);
    }
    program_invoke(s->out, template, NONE, true, true);
}

static void sequence_invoke(struct sequence *s, const struct placed *at) {
    for (size_t k = 0; k < at->program->schedule.count; k++) {
        struct invocation v = at->program->schedule.item[k];
        v.template += at->template;
        VEC_PUSH(&s->out->schedule, v);
    }
}

static void sequence_add(struct sequence *s, const struct period_part *part, const struct placed *at) {
    if (part->action == PERIOD_END) {
        s->ended |= at->streams;
        return;
    }
    if (part->action == PERIOD_BEGIN) {
        sequence_meet(s, at->streams, s->own);
    } else {
        sequence_meet(s, s->own, s->own | s->ended);
        s->ended = 0;
    }
    sequence_invoke(s, at);
}

// Any arithmetic: what is skipped takes no time.
static trireme_status sequence_find_idle(struct sequence *s, trireme_error *error) {
    FOR_INSTRUCTIONS(in, s->out)
        if (op_traffic[in->op].call == CALL_NONE) {
            s->idle = *in;
            return TRIREME_OK;
        }
    FAIL(TRIREME_ERROR_PROGRAM, "there is no arithmetic");
}

static size_t first_part_of(const struct program *const *of_part, size_t part) {
    size_t first = 0;
    while (of_part[first] != of_part[part])
        first++;
    return first;
}

static trireme_status sequence_make(struct sequence *s, const struct period *period,
                                    const struct program *const *of_part, const struct program *step,
                                    trireme_error *error) {
    for (int beside = 0; beside < 2; beside++) // these have numbers of streams behind those of the others
        for (size_t i = 0; i < period->parts.count; i++) {
            if (program_is_beside(period->parts.item[i].kind) != beside || first_part_of(of_part, i) != i)
                continue;
            CHECK(of_part[i]->microbatches == step->microbatches);
            TRY(sequence_place(s, &s->placed[i], of_part[i], beside, error));
            s->own |= beside ? 0 : s->placed[i].streams;
        }
    TRY(sequence_find_idle(s, error));
    for (size_t i = 0; i < period->parts.count; i++)
        sequence_add(s, &period->parts.item[i], &s->placed[first_part_of(of_part, i)]);
    return TRIREME_OK;
}

trireme_status sequence_create(struct program *out, const struct period *period, const struct program *const *of_part,
                               trireme_error *error) {
    struct sequence s = {.out = out, .placed = mem_alloc(period->parts.count * sizeof *s.placed)};
    const struct program *step = of_part[period_step(period)];
    program_init(out, "period", step->microbatches);
    out->mesh = step->mesh;
    program_drop_pools(out, 0);
    const trireme_status status = sequence_make(&s, period, of_part, step, error);
    free(s.placed);
    if (status != TRIREME_OK)
        program_release(out);
    return status;
}
