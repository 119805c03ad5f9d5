// An instruction: what of it is resolved once, and how it runs in an invocation.
#include "exec/executor.h"

#include "kernels/call.h"

int64_t instruction_place(const struct executor *e, int buffer, int64_t offset, int microbatch) {
    const struct program *program = e->program;
    const struct buffer *b = &program->buffers.item[buffer];
    int64_t at = b->offset + offset * dtype_size(b->dtype);
    if (b->scope == SCOPE_MICROBATCH) {
        at += microbatch * buffer_microbatch_stride(&program->buffers.item[program_root(program, buffer)]) *
              dtype_size(b->dtype);
    } else if (b->scope == SCOPE_SLOT) {
        const struct pool *pool = &program->pools.item[b->pool];
        at += pool->base[b->space][pool->slot[microbatch]];
    } else if (b->scope == SCOPE_LOCAL) {
        at += program->arena[b->space].scratch_base;
    }
    return at;
}

// The address of an element of a buffer of the device.
static void *instruction_locate(const struct executor *e, int buffer, int64_t offset, int microbatch) {
    char *arena = e->program->buffers.item[buffer].scope == SCOPE_STATE ? e->state : e->step;
    return arena + instruction_place(e, buffer, offset, microbatch);
}

int64_t instruction_first(const struct executor *e, const struct operand *o) {
    return o->offset + (o->along ? o->step * mesh_index(&e->program->mesh, e->streams->member.rank, o->along) : 0);
}

static void *locate_operand(const struct executor *e, const struct operand *o, int microbatch) {
    return instruction_locate(e, o->buffer, instruction_first(e, o), microbatch);
}

static int threads_of(const struct executor *e, const struct instruction *instruction) {
    return instruction->stream == STREAM_COMPUTE ? e->streams->threads : 1;
}

static int64_t workspace_bytes(const struct executor *e, const struct instruction *instruction) {
    return instruction->workspace == NONE ? 0 : buffer_bytes(&e->program->buffers.item[instruction->workspace]);
}

trireme_status instruction_resolve(struct executor *e, struct resolved *r, const struct instruction *instruction,
                                   enum kernel_set set, trireme_error *error) {
    const struct program *program = e->program;
    r->instruction = instruction;
    r->bounded = instruction_is_bounded(program, instruction);
    if (e->table->op[instruction->op].role == ROLE_COMMUNICATION) {
        struct streams *s = e->streams;
        r->communicator = s->communicators.item[channels_find(&s->channels, channel_of(e->program, instruction))];
        if (instruction->stream != STREAM_COMPUTE)
            communicator_wanted(r->communicator, op_is_message(instruction->op) && op_gives_away(instruction->op),
                                &s->stream[instruction->stream].wanted);
        if (op_traffic[instruction->op].takes == HOLDING_ROWS) {
            r->prepared = exchange_create(r->communicator);
            r->release = free;
        }
        return TRIREME_OK;
    }
    if (instruction->op == OP_TRANSFER)
        return transfer_check(e, instruction, error);
    const enum op_role role = e->table->op[instruction->op].role;
    r->updates = role == ROLE_UPDATE || role == ROLE_DERIVE || role == ROLE_TAKE || role == ROLE_WEIGH ||
                 role == ROLE_OUTER || role == ROLE_SETTLE;
    struct kernel kernel = kernel_find(instruction->op, instruction_dtype(program, e->table, instruction), set);
    struct call call;
    call_describe(&call, program, instruction, threads_of(e, instruction));
    r->run = kernel.run;
    r->release = kernel.release;
    r->ways = (uint8_t)(kernel.ways ? kernel.ways(&call) : 1U << WAY_RULE);
    r->prepare = r->bounded && !kernel.release ? kernel.prepare : NULL;
    int64_t bytes = 0;
    TRY(instruction_prepare(&kernel, &call, program, instruction, &r->prepared, &bytes, error));
    int64_t room = workspace_bytes(e, instruction);
    if (bytes > room)
        FAIL(TRIREME_ERROR_PROGRAM,
             "%s needs %lld bytes of workspace, the program has %lld: it was compiled for other kernels",
             e->table->op[instruction->op].name, (long long)bytes, (long long)room);
    return TRIREME_OK;
}

void instruction_call(struct call *call, const struct executor *e, const struct resolved *r) {
    call_describe(call, e->program, r->instruction, threads_of(e, r->instruction));
    call->prepared = r->prepared;
    call->way = (enum kernel_way)r->way;
    call->workspace_bytes = workspace_bytes(e, r->instruction);
}

// Where the instruction is skipped: the first output becomes what the input is that stands for it.
static void pass_through(const struct tensor *in, const struct tensor *out) {
    if (in->data == out->data)
        return;
    const int64_t size = dtype_size(out->dtype);
    int64_t dim[OP_MAX_DIMS], from[OP_MAX_DIMS], to[OP_MAX_DIMS];
    for (int i = 0, lead = OP_MAX_DIMS - out->ndim; i < OP_MAX_DIMS; i++) {
        dim[i] = i < lead ? 1 : out->dim[i - lead];
        from[i] = i < lead ? 0 : in->stride[i - lead];
        to[i] = i < lead ? 0 : out->stride[i - lead];
    }
    _Static_assert(OP_MAX_DIMS == 4, "the loops below");
    for (int64_t a = 0; a < dim[0]; a++)
        for (int64_t b = 0; b < dim[1]; b++)
            for (int64_t c = 0; c < dim[2]; c++) // the elements of a row are contiguous
                memmove((char *)out->data + (a * to[0] + b * to[1] + c * to[2]) * size,
                        (const char *)in->data + (a * from[0] + b * from[1] + c * from[2]) * size,
                        (size_t)(dim[3] * size));
}

// Gives operands that have extents as many rows as there are.
static trireme_status take_extents(const struct executor *e, const struct instruction *in, int microbatch,
                                   struct call *call, trireme_error *error) {
    for (int k = 0; k < call->inputs + call->outputs; k++) {
        const int extent = instruction_extent_at(e->program, in, k);
        if (extent == NONE)
            continue;
        const struct buffer *b = &e->program->buffers.item[instruction_operand_at(in, k)->buffer];
        const int32_t rows = *(const int32_t *)instruction_locate(e, extent, 0, microbatch);
        if (rows < 0 || rows > b->dim[0])
            FAIL(TRIREME_ERROR_PROGRAM, "%s: %d rows of %s, which has room for %lld", e->table->op[in->op].name, rows,
                 b->name, (long long)b->dim[0]);
        struct tensor *t = k < call->inputs ? &call->in[k] : &call->out[k - call->inputs];
        t->dim[0] = t->dim[0] / b->dim[0] * rows;
    }
    return TRIREME_OK;
}

// Whether the fast kernel can run on so few rows: on one at least, in the workspace that there is.
static bool rows_suffice(const struct executor *e, const struct resolved *r, const struct call *call) {
    const struct instruction *in = r->instruction;
    for (int k = 0; k < call->inputs + call->outputs; k++)
        if (instruction_extent_at(e->program, in, k) != NONE &&
            (k < call->inputs ? &call->in[k] : &call->out[k - call->inputs])->dim[0] == 0)
            return false;
    int64_t bytes = 0;
    void *prepared = NULL;
    trireme_error error;
    return !r->prepare || (r->prepare(call, &prepared, &bytes, &error) == TRIREME_OK && bytes <= call->workspace_bytes);
}

static void run_counted(const struct executor *e, const struct resolved *r, const struct call *call) {
    const struct instruction *in = r->instruction;
    if (rows_suffice(e, r, call))
        r->run(call);
    else
        kernel_find(in->op, instruction_dtype(e->program, e->table, in), KERNELS_REFERENCE).run(call);
}

trireme_status instruction_execute(struct executor *e, const struct resolved *r, const struct invocation *v,
                                   trireme_error *error) {
    const struct instruction *in = r->instruction;
    int microbatch = v->microbatch == NONE ? 0 : v->microbatch;
    if (in->op == OP_TRANSFER)
        return transfer(e, in, microbatch, error);
    if (e->pace.seconds && !r->communicator) {
        pace(e, r, v);
        return TRIREME_OK;
    }
    if (when_skips(in->when, v))
        return TRIREME_OK;
    bool skipped = in->predicate != NONE && *(const int32_t *)instruction_locate(e, in->predicate, 0, microbatch) == 0;
    if (skipped && !in->passes)
        return TRIREME_OK;
    struct call call;
    instruction_call(&call, e, r);
    for (int i = 0; i < call.inputs; i++)
        if (call.in[i].data)
            call.in[i].data = locate_operand(e, &in->in[i], microbatch);
    for (int i = 0; i < call.outputs; i++)
        if (call.out[i].data)
            call.out[i].data = locate_operand(e, &in->out[i], microbatch);
    if (r->bounded)
        TRY(take_extents(e, in, microbatch, &call, error));
    if (skipped) {
        pass_through(&call.in[instruction_otherwise(in)], &call.out[0]);
        return TRIREME_OK;
    }
    call.accumulate = instruction_accumulates(in, v);
    if (r->communicator)
        return communicate(r, &call, error);
    if (in->workspace != NONE)
        call.workspace = instruction_locate(e, in->workspace, 0, microbatch);
    if (r->updates && e->before_update.call)
        TRY(e->before_update.call(e->before_update.user, error));
    if (r->bounded)
        run_counted(e, r, &call);
    else
        r->run(&call);
    return TRIREME_OK;
}

void *executor_address(const struct executor *e, int buffer, int microbatch) {
    CHECK(memory_spaces[e->program->buffers.item[buffer].space].addressable);
    return instruction_locate(e, buffer, 0, microbatch);
}
