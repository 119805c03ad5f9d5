// Waits between streams. Within a template a wait is for the last instruction that matters. Across invocations, of
// which templates know nothing, it is for all that came before, or for what came before for the same microbatch, or,
// for messages, for what had the slot before. Where the buffer is written once in a step, by another template, what
// comes after that write in the template is left out.
#include "compile/passes.h"

#include <limits.h>

// Which instructions of each stream touch a root buffer, somewhere in the program.
struct touched {
    bool read[STREAMS_MAX], written[STREAMS_MAX];
    int template; // the only one that does, or SEVERAL
    // Buffers of the state: how often a step writes it, the last template that does, and how many of the stream's
    // instructions come after that write in the template.
    int64_t writes[STREAMS_MAX];
    int writer[STREAMS_MAX], behind[STREAMS_MAX];
};

enum { SEVERAL = -2 };

struct waiter {
    struct program *program;
    struct touched *anywhere;            // [buffers]
    bool uses_scratch[STREAMS_MAX];      // touches memory that templates share
    int template;                        // at hand
    int (*read)[STREAMS_MAX];            // [buffers]: how many of a stream's instructions of this template had
    int (*written)[STREAMS_MAX];         // run when the last of them that touched the buffer was done
    int done[STREAMS_MAX];               // instructions of this template so far
    int known[STREAMS_MAX][STREAMS_MAX]; // how many of each stream's instructions of this template a stream has
                                         // waited for; below 0: all of earlier invocations except the last -known
    bool own[STREAMS_MAX][STREAMS_MAX];  // it has waited for those of earlier invocations for the same microbatch
};

// Calls for every buffer that an instruction touches.
static void waits_each_touched(struct waiter *w, struct instruction *in,
                               void (*visit)(struct waiter *, struct instruction *, int root, bool writes)) {
    for (int i = 0; i < in->inputs + in->outputs; i++) {
        int buffer = instruction_operand_at(in, i)->buffer;
        if (buffer != NONE)
            visit(w, in, program_root(w->program, buffer), i >= in->inputs);
    }
    for (int i = 0; i < in->inputs + in->outputs; i++) {
        const int extent = instruction_extent_at(w->program, in, i);
        if (extent != NONE)
            visit(w, in, program_root(w->program, extent), false);
    }
    if (in->predicate != NONE)
        visit(w, in, program_root(w->program, in->predicate), false);
}

static void note_anywhere(struct waiter *w, struct instruction *in, int root, bool writes) {
    struct touched *t = &w->anywhere[root];
    *(writes ? &t->written[in->stream] : &t->read[in->stream]) = true;
    t->template = t->template == NONE || t->template == w->template ? w->template : SEVERAL;
    enum buffer_scope scope = w->program->buffers.item[root].scope;
    // The plan may give memory of a slot to what other templates use meanwhile, except memory of what lingers.
    if (scope == SCOPE_LOCAL || (scope == SCOPE_SLOT && !instruction_lingers(w->program, in)))
        w->uses_scratch[in->stream] = true;
}

static void count_writes(struct waiter *w) {
    const struct program *p = w->program;
    int *invocations = mem_alloc(p->templates.count * sizeof *invocations);
    for (size_t k = 0; k < p->schedule.count; k++)
        invocations[p->schedule.item[k].template]++;
    for (size_t t = 0; t < p->templates.count; t++) {
        int behind[STREAMS_MAX] = {0};
        for (size_t i = p->templates.item[t].instructions.count; i-- > 0;) {
            const struct instruction *in = &p->templates.item[t].instructions.item[i];
            for (int o = 0; o < in->outputs; o++) {
                int root = in->out[o].buffer == NONE ? NONE : program_root(p, in->out[o].buffer);
                if (root == NONE || p->buffers.item[root].scope != SCOPE_STATE)
                    continue;
                w->anywhere[root].writes[in->stream] += invocations[t];
                w->anywhere[root].writer[in->stream] = (int)t;
                w->anywhere[root].behind[in->stream] = behind[in->stream];
            }
            behind[in->stream]++;
        }
    }
    free(invocations);
}

// Lets the instruction wait for the first `count` instructions of a stream in this template; below 0, for all of
// earlier invocations except the last -count.
static void waits_wait_for(struct waiter *w, struct instruction *in, int stream, int count) {
    if (stream == in->stream || w->known[in->stream][stream] >= count)
        return;
    w->known[in->stream][stream] = count;
    in->wait[stream] = wait_for_all_but(w->done[stream] - count);
}

// Lets it wait for what other templates have done for the same microbatch.
static void wait_for_own(struct waiter *w, struct instruction *in, int stream) {
    if (w->known[in->stream][stream] >= 0 || w->own[in->stream][stream])
        return;
    w->own[in->stream][stream] = true;
    in->wait[stream] = WAIT_OWN;
}

// What is received has memory of its own in its slot, which is free when the microbatch that had it before is done.
static void wait_for_slot(struct waiter *w, struct instruction *in, int root) {
    const struct touched *t = &w->anywhere[root];
    for (int s = 0; s < (int)w->program->streams.count; s++)
        if (s != in->stream && (t->read[s] || t->written[s]))
            in->wait[s] = WAIT_SLOT;
}

// An instruction that gathers a message's parts in place waits only for these: true if it is one.
static bool wait_for_parts(struct waiter *w, struct instruction *in) {
    bool found = false;
    for (int s = 0; s < (int)w->program->streams.count && instruction_completes(in); s++) {
        const bool message = stream_is_end(w->program, s);
        const int count = message ? w->written[program_root(w->program, in->out[0].buffer)][s] : 0;
        if (count > 0)
            waits_wait_for(w, in, s, count);
        found |= count > 0;
    }
    return found;
}

static void wait_for_buffer(struct waiter *w, struct instruction *in, int root, bool writes) {
    const struct touched *t = &w->anywhere[root];
    bool local = w->program->buffers.item[root].scope == SCOPE_LOCAL;
    if (instruction_arrives(in) && !local) {
        wait_for_slot(w, in, root);
        return;
    }
    for (int s = 0; s < (int)w->program->streams.count; s++) {
        if (s == in->stream)
            continue;
        const bool once = t->writes[s] == 1; // if by this template, then later in it
        bool own =
            !writes && stream_is(w->program, s, STREAM_APART) && w->program->buffers.item[root].scope == SCOPE_SLOT;
        if (w->written[root][s] > 0)
            waits_wait_for(w, in, s, w->written[root][s]);
        else if (t->written[s] && own)
            wait_for_own(w, in, s);
        else if (t->written[s] && !local && !(once && t->writer[s] == w->template))
            waits_wait_for(w, in, s, once ? -t->behind[s] : 0);
        if (writes && w->read[root][s] > 0)
            waits_wait_for(w, in, s, w->read[root][s]);
        else if (writes && t->read[s] && !local)
            waits_wait_for(w, in, s, 0);
    }
    // Memory that a communication writes may have been another buffer's until just now.
    if (writes && in->stream != STREAM_COMPUTE)
        waits_wait_for(w, in, STREAM_COMPUTE, w->done[STREAM_COMPUTE]);
    // Or until the end of another template: several templates use this buffer, so that it has no memory of its own.
    bool shares = writes && w->program->buffers.item[root].scope == SCOPE_SLOT && t->template == SEVERAL;
    for (int s = 0; s < (int)w->program->streams.count && shares && !w->uses_scratch[in->stream]; s++)
        if (w->uses_scratch[s])
            waits_wait_for(w, in, s, 0);
}

static void note_touched(struct waiter *w, struct instruction *in, int root, bool writes) {
    *(writes ? &w->written[root][in->stream] : &w->read[root][in->stream]) = w->done[in->stream];
}

static void run_template(struct waiter *w, struct template *t) {
    memset(w->done, 0, sizeof w->done);
    memset(w->read, 0, w->program->buffers.count * sizeof *w->read);
    memset(w->written, 0, w->program->buffers.count * sizeof *w->written);
    memset(w->own, 0, sizeof w->own);
    for (int s = 0; s < STREAMS_MAX; s++)
        for (int k = 0; k < STREAMS_MAX; k++)
            w->known[s][k] = INT_MIN;
    for (size_t i = 0; i < t->instructions.count; i++) {
        struct instruction *in = &t->instructions.item[i];
        // Waits that are there already: for gradients whose memory is needed.
        for (int s = 0; s < (int)w->program->streams.count; s++)
            if (wait_counts(in->wait[s]))
                w->known[in->stream][s] = MAX(w->known[in->stream][s], w->done[s] - wait_lag(in->wait[s]));
        const bool completes = wait_for_parts(w, in);
        // Invocations have scratch one after another.
        for (int s = 0; s < (int)w->program->streams.count && !completes; s++)
            if (w->uses_scratch[in->stream] && w->uses_scratch[s])
                waits_wait_for(w, in, s, 0);
        if (!completes)
            waits_each_touched(w, in, wait_for_buffer);
        w->done[in->stream]++;
        waits_each_touched(w, in, note_touched);
    }
}

void pass_waits(struct program *program) {
    struct waiter w = {.program = program};
    size_t n = program->buffers.count;
    w.anywhere = mem_alloc(n * sizeof *w.anywhere);
    w.read = mem_alloc(n * sizeof *w.read);
    w.written = mem_alloc(n * sizeof *w.written);
    bool many = false;
    for (size_t i = 0; i < n; i++)
        w.anywhere[i].template = NONE;
    for (size_t t = 0; t < program->templates.count; t++) {
        w.template = (int)t;
        for (size_t i = 0; i < program->templates.item[t].instructions.count; i++) {
            struct instruction *in = &program->templates.item[t].instructions.item[i];
            many |= in->stream != STREAM_COMPUTE;
            waits_each_touched(&w, in, note_anywhere);
        }
    }
    count_writes(&w);
    for (size_t t = 0; t < program->templates.count && many; t++) {
        w.template = (int)t;
        run_template(&w, &program->templates.item[t]);
    }
    free(w.anywhere);
    free(w.read);
    free(w.written);
}
