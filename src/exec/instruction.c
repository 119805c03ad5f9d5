// An instruction: what of it is resolved once, and how it runs in an invocation.
#include "exec/executor.h"

#include "kernels/call.h"

static struct location location_of(const struct program *program, int buffer, int64_t offset) {
    const struct buffer *b = &program->buffers.item[buffer];
    struct location place = {.state = b->scope == SCOPE_STATE, .offset = b->offset + offset * dtype_size(b->dtype)};
    if (b->scope == SCOPE_MICROBATCH) {
        place.step =
            buffer_microbatch_stride(&program->buffers.item[program_root(program, buffer)]) * dtype_size(b->dtype);
    } else if (b->scope == SCOPE_SLOT) {
        place.pool = &program->pools.item[b->pool];
    } else if (b->scope == SCOPE_LOCAL) {
        place.offset += program->scratch_base;
    }
    return place;
}

int instruction_locations(const struct instruction *in) {
    return in->inputs + in->outputs + (in->workspace != NONE) + (in->predicate != NONE);
}

// *next is the first of the template's locations that nobody has yet.
static void locate_operands(const struct executor *e, struct resolved *r, struct location **next) {
    const struct instruction *instruction = r->instruction;
    r->at = *next;
    for (int i = 0; i < instruction->inputs + instruction->outputs; i++) {
        struct operand o = operand_of_rank(e->program, *instruction_operand_at(instruction, i), e->member.rank);
        struct location *at = (*next)++;
        if (o.buffer != NONE)
            *at = location_of(e->program, o.buffer, o.offset);
    }
    if (instruction->predicate != NONE) {
        **next = location_of(e->program, instruction->predicate, 0);
        r->predicate = (*next)++;
    }
    if (instruction->workspace != NONE) {
        **next = location_of(e->program, instruction->workspace, 0);
        r->workspace = (*next)++;
        r->workspace_bytes = buffer_bytes(&e->program->buffers.item[instruction->workspace]);
    }
}

trireme_status instruction_resolve(struct executor *e, struct resolved *r, const struct instruction *instruction,
                                   struct location **next, enum kernel_set set, trireme_error *error) {
    const struct program *program = e->program;
    r->instruction = instruction;
    locate_operands(e, r, next);
    r->threads = instruction->stream == STREAM_COMPUTE ? e->threads : 1;
    if (e->table->op[instruction->op].role == ROLE_COMMUNICATION) {
        r->communicator = e->communicator[channels_find(&e->channels, instruction)];
        if (instruction->stream != STREAM_COMPUTE)
            communicator_wanted(r->communicator, instruction->op == OP_SEND, &e->stream[instruction->stream].wanted);
        return TRIREME_OK;
    }
    struct kernel kernel = kernel_find(instruction->op, instruction_dtype(program, e->table, instruction), set);
    struct call call;
    call_describe(&call, program, instruction, r->threads);
    r->run = kernel.run;
    r->release = kernel.release;
    r->ways = kernel.ways ? kernel.ways(&call) : 1U << WAY_RULE;
    int64_t bytes = 0;
    if (kernel.prepare)
        TRY(kernel.prepare(&call, &r->prepared, &bytes, error));
    if (bytes > r->workspace_bytes)
        FAIL(TRIREME_ERROR_PROGRAM,
             "%s needs %lld bytes of workspace, the program has %lld: it was compiled for other kernels",
             e->table->op[instruction->op].name, (long long)bytes, (long long)r->workspace_bytes);
    return TRIREME_OK;
}

void instruction_call(struct call *call, const struct executor *e, const struct resolved *r) {
    call_describe(call, e->program, r->instruction, r->threads);
    call->prepared = r->prepared;
    call->way = r->way;
    call->workspace_bytes = r->workspace_bytes;
}

static void *locate(const struct executor *e, const struct location *place, int microbatch) {
    const struct pool *pool = place->pool;
    return (place->state ? e->state : e->step) + place->offset +
           (pool ? pool->base[pool->slot[microbatch]] : microbatch * place->step);
}

trireme_status instruction_execute(struct executor *e, const struct resolved *r, const struct invocation *v,
                                   trireme_error *error) {
    int microbatch = v->microbatch == NONE ? 0 : v->microbatch;
    if (e->pace.seconds && !r->communicator) {
        pace(e, r, v);
        return TRIREME_OK;
    }
    if (r->instruction->only_last && !v->last)
        return TRIREME_OK;
    if (r->predicate && *(const int32_t *)locate(e, r->predicate, microbatch) == 0)
        return TRIREME_OK;
    struct call call;
    instruction_call(&call, e, r);
    for (int i = 0; i < call.inputs; i++)
        if (call.in[i].data)
            call.in[i].data = locate(e, &r->at[i], microbatch);
    for (int i = 0; i < call.outputs; i++)
        if (call.out[i].data)
            call.out[i].data = locate(e, &r->at[call.inputs + i], microbatch);
    call.accumulate = instruction_accumulates(r->instruction, v);
    if (r->communicator)
        return communicate(r, &call, error);
    if (r->workspace)
        call.workspace = locate(e, r->workspace, microbatch);
    r->run(&call);
    return TRIREME_OK;
}

void *executor_address(const struct executor *e, int buffer, int microbatch) {
    struct location place = location_of(e->program, buffer, 0);
    return locate(e, &place, microbatch);
}
