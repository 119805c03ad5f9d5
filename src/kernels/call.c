#include "kernels/call.h"

enum dtype instruction_dtype(const struct program *program, const struct op_table *table,
                             const struct instruction *instruction) {
    const struct op_info *info = &table->op[instruction->op];
    for (const char *kind = "PA"; *kind; kind++) {
        for (int i = 0; i < info->inputs; i++)
            if (info->in[i].dtype == *kind && instruction->in[i].buffer != NONE)
                return program->buffers.item[instruction->in[i].buffer].dtype;
        for (int i = 0; i < info->outputs; i++)
            if (info->out[i].dtype == *kind && instruction->out[i].buffer != NONE)
                return program->buffers.item[instruction->out[i].buffer].dtype;
    }
    return DTYPE_F32;
}

static struct tensor call_describe_operand(const struct program *program, const struct operand *operand) {
    if (operand->buffer == NONE)
        return (struct tensor){0};
    static const char present;
    struct tensor tensor = {
        .data = (void *)&present, .dtype = program->buffers.item[operand->buffer].dtype, .ndim = operand->ndim};
    memcpy(tensor.dim, operand->dim, sizeof tensor.dim);
    memcpy(tensor.stride, operand->stride, sizeof tensor.stride);
    return tensor;
}

void call_describe(struct call *call, const struct program *program, const struct instruction *instruction,
                   int threads) {
    *call = (struct call){
        .op = instruction->op, .inputs = instruction->inputs, .outputs = instruction->outputs, .threads = threads};
    for (int i = 0; i < instruction->inputs; i++)
        call->in[i] = call_describe_operand(program, &instruction->in[i]);
    for (int i = 0; i < instruction->outputs; i++)
        call->out[i] = call_describe_operand(program, &instruction->out[i]);
    memcpy(call->attribute, instruction->attribute, sizeof call->attribute);
    call->accumulate = instruction->accumulate != ACCUMULATE_NO;
}

bool instruction_is_bounded(const struct program *program, const struct instruction *instruction) {
    for (int k = 0; k < instruction->inputs + instruction->outputs; k++)
        if (instruction_extent_at(program, instruction, k) != NONE)
            return true;
    return false;
}

void call_shorten(struct call *call, const struct program *program, const struct instruction *instruction, int64_t of,
                  int64_t rows) {
    for (int k = 0; k < call->inputs + call->outputs; k++) {
        struct tensor *t = k < call->inputs ? &call->in[k] : &call->out[k - call->inputs];
        if (instruction_extent_at(program, instruction, k) != NONE)
            t->dim[0] = MAX(t->dim[0] * of / rows, 1);
    }
}

trireme_status instruction_prepare(const struct kernel *kernel, const struct call *call, const struct program *program,
                                   const struct instruction *instruction, void **prepared, int64_t *workspace_bytes,
                                   trireme_error *error) {
    enum { STEP = 16, LEAST = 256 }; // numbers of rows that are asked about: each a sixteenth less, down to 1 / LEAST
    *workspace_bytes = 0;
    if (!kernel->prepare)
        return TRIREME_OK;
    TRY(kernel->prepare(call, prepared, workspace_bytes, error));
    if (kernel->release || !instruction_is_bounded(program, instruction))
        return TRIREME_OK;
    int64_t most = *workspace_bytes;
    for (int64_t of = LEAST * STEP - STEP; of > STEP; of -= MAX(of / STEP, 1)) {
        struct call some = *call;
        int64_t bytes = 0;
        call_shorten(&some, program, instruction, of, LEAST * STEP);
        TRY(kernel->prepare(&some, prepared, &bytes, error));
        most = MAX(most, bytes);
    }
    *workspace_bytes = most + most / STEP;
    return TRIREME_OK;
}
