#include "exec/exec.h"

#include "base/clock.h"
#include "kernels/call.h"

// Where an operand lies in a given invocation: base of its scope + offset + microbatch * step.
struct place {
    enum buffer_scope scope;
    int64_t offset, step; // bytes
};

struct resolved {
    void (*run)(const struct call *call);
    void (*release)(void *prepared);
    struct call call;
    struct place in[OP_MAX_IN], out[OP_MAX_OUT], workspace, predicate;
    bool predicated;
    enum accumulate accumulate;
};

struct executor {
    const struct program *program;
    char *state, *step;
    struct resolved **templates; // [templates][instructions]
};

static struct place place_of(const struct program *program, int buffer, int64_t offset) {
    const struct buffer *b = &program->buffers.item[buffer];
    struct place place = {b->scope, b->offset + offset * dtype_size(b->dtype), 0};
    if (b->scope == SCOPE_MICROBATCH)
        place.step =
            buffer_microbatch_stride(&program->buffers.item[program_root(program, buffer)]) * dtype_size(b->dtype);
    return place;
}

static trireme_status resolve(struct resolved *r, const struct program *program, const struct op_table *table,
                              const struct instruction *instruction, enum kernel_set set, int threads,
                              trireme_error *error) {
    struct kernel kernel = kernel_find(instruction->op, instruction_dtype(program, table, instruction), set);
    r->run = kernel.run;
    r->release = kernel.release;
    r->accumulate = instruction->accumulate;
    call_describe(&r->call, program, instruction, threads);
    for (int i = 0; i < instruction->inputs; i++)
        if (instruction->in[i].buffer != NONE)
            r->in[i] = place_of(program, instruction->in[i].buffer, instruction->in[i].offset);
    for (int i = 0; i < instruction->outputs; i++)
        if (instruction->out[i].buffer != NONE)
            r->out[i] = place_of(program, instruction->out[i].buffer, instruction->out[i].offset);
    r->predicated = instruction->predicate != NONE;
    if (r->predicated)
        r->predicate = place_of(program, instruction->predicate, 0);
    int64_t bytes = 0;
    if (kernel.prepare)
        TRY(kernel.prepare(&r->call, &r->call.prepared, &bytes, error));
    if (instruction->workspace != NONE) {
        r->workspace = place_of(program, instruction->workspace, 0);
        r->call.workspace_bytes = buffer_bytes(&program->buffers.item[instruction->workspace]);
    }
    if (bytes > r->call.workspace_bytes)
        FAIL(TRIREME_ERROR_PROGRAM,
             "%s needs %lld bytes of workspace, the program has %lld: it was compiled for other kernels",
             table->op[instruction->op].name, (long long)bytes, (long long)r->call.workspace_bytes);
    return TRIREME_OK;
}

trireme_status executor_create(struct executor **out, const struct program *program, const struct op_table *table,
                               enum kernel_set set, int threads, void *state, void *step, trireme_error *error) {
    struct executor *e = mem_alloc(sizeof *e);
    *e = (struct executor){.program = program, .state = state, .step = step};
    e->templates = mem_alloc(program->templates.count * sizeof *e->templates);
    for (size_t t = 0; t < program->templates.count; t++) {
        const struct template *template = &program->templates.item[t];
        e->templates[t] = mem_alloc(template->instructions.count * sizeof **e->templates);
        for (size_t i = 0; i < template->instructions.count; i++) {
            trireme_status status =
                resolve(&e->templates[t][i], program, table, &template->instructions.item[i], set, threads, error);
            if (status != TRIREME_OK) {
                error_prefix(error, "template %s, instruction %zu", template->name, i);
                executor_free(e);
                return status;
            }
        }
    }
    *out = e;
    return TRIREME_OK;
}

void executor_free(struct executor *e) {
    if (!e)
        return;
    for (size_t t = 0; t < e->program->templates.count; t++) {
        for (size_t i = 0; e->templates[t] && i < e->program->templates.item[t].instructions.count; i++)
            if (e->templates[t][i].release && e->templates[t][i].call.prepared)
                e->templates[t][i].release(e->templates[t][i].call.prepared);
        free(e->templates[t]);
    }
    free(e->templates);
    free(e);
}

static void bases(const struct executor *e, int slot, char *base[SCOPE_COUNT]) {
    const struct program *p = e->program;
    base[SCOPE_STATE] = e->state;
    base[SCOPE_STEP] = base[SCOPE_MICROBATCH] = e->step;
    base[SCOPE_LOCAL] = e->step + p->scratch_base;
    base[SCOPE_SLOT] = e->step + p->slot_base + slot * p->slot_bytes;
}

static void *locate(const struct place *place, char *const base[SCOPE_COUNT], int microbatch) {
    return base[place->scope] + place->offset + microbatch * place->step;
}

static void run_one(struct resolved *r, char *const base[SCOPE_COUNT], int microbatch) {
    if (r->predicated && *(const int32_t *)locate(&r->predicate, base, microbatch) == 0)
        return;
    for (int i = 0; i < r->call.inputs; i++)
        if (r->call.in[i].data)
            r->call.in[i].data = locate(&r->in[i], base, microbatch);
    for (int i = 0; i < r->call.outputs; i++)
        if (r->call.out[i].data)
            r->call.out[i].data = locate(&r->out[i], base, microbatch);
    if (r->call.workspace_bytes)
        r->call.workspace = locate(&r->workspace, base, microbatch);
    r->call.accumulate = r->accumulate == ACCUMULATE_YES || (r->accumulate == ACCUMULATE_AFTER_FIRST && microbatch > 0);
    r->run(&r->call);
}

void executor_run(struct executor *e, struct trace *trace) {
    for (size_t k = 0; k < e->program->schedule.count; k++) {
        struct invocation v = e->program->schedule.item[k];
        int microbatch = v.microbatch == NONE ? 0 : v.microbatch;
        char *base[SCOPE_COUNT];
        bases(e, v.slot, base);
        size_t count = e->program->templates.item[v.template].instructions.count;
        for (size_t i = 0; i < count; i++) {
            int64_t begin = trace ? clock_now() : 0;
            run_one(&e->templates[v.template][i], base, microbatch);
            if (trace)
                VEC_PUSH(&trace->events, (struct trace_event){(int)k, (int)i, begin, clock_now()});
        }
    }
}

void executor_trace_reserve(const struct executor *e, struct trace *trace) {
    trace->events.count = 0;
    trace->events.capacity = (size_t)program_length(e->program) + 1;
    trace->events.item = mem_resize(trace->events.item, trace->events.capacity * sizeof *trace->events.item);
}

void *executor_address(const struct executor *e, int buffer, int microbatch) {
    char *base[SCOPE_COUNT];
    bases(e, 0, base);
    struct place place = place_of(e->program, buffer, 0);
    return locate(&place, base, microbatch);
}
