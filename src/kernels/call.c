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
