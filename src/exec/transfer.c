// Moves values between memory and what has no address.
#include "exec/executor.h"

static bool has_address(const struct executor *e, int buffer) {
    return memory_spaces[e->program->buffers.item[buffer].space].addressable;
}

trireme_status transfer_check(const struct executor *e, const struct instruction *in, trireme_error *error) {
    const int buffer[] = {in->in[0].buffer, in->out[0].buffer};
    if (has_address(e, buffer[0]) == has_address(e, buffer[1]))
        FAIL(TRIREME_ERROR_PROGRAM, "values are moved only between memory and a file");
    for (int i = 0; i < 2; i++) {
        const enum memory_space space = e->program->buffers.item[buffer[i]].space;
        if (!memory_spaces[space].addressable && !e->streams->file[space].file)
            FAIL(TRIREME_ERROR_PROGRAM, "%s lies in the space %s, for which there is no file",
                 e->program->buffers.item[buffer[i]].name, memory_spaces[space].name);
    }
    return TRIREME_OK;
}

trireme_status transfer(const struct executor *e, const struct instruction *in, int microbatch, trireme_error *error) {
    const struct operand *x = &in->in[0], *y = &in->out[0];
    const bool writes = has_address(e, x->buffer);
    const struct operand *inside = writes ? x : y, *outside = writes ? y : x;
    const struct buffer *memory = &e->program->buffers.item[inside->buffer],
                        *away = &e->program->buffers.item[outside->buffer];
    const struct space_file *file = &e->streams->file[away->space];
    char *data = (memory->scope == SCOPE_STATE ? e->state : e->step) +
                 instruction_place(e, inside->buffer, instruction_first(e, inside), microbatch);
    const int64_t at = (away->scope == SCOPE_STATE ? file->state : file->step) +
                       instruction_place(e, outside->buffer, instruction_first(e, outside), microbatch),
                  bytes = operand_count(x) * dtype_size(memory->dtype);
    const trireme_status status = writes ? unnamed_file_write(file->file, at, data, bytes, error)
                                         : unnamed_file_read(file->file, at, data, bytes, error);
    return status == TRIREME_OK ? status : error_prefix(error, status, "%s", away->name);
}
