// Communication rows of ops.def, as calls of the transport.
#include "exec/executor.h"

static trireme_status open_channel(struct streams *s, const struct channel *channel, trireme_error *error) {
    const struct mesh *mesh = &s->mesh;
    struct communicator *opened;
    char text[AXES_TEXT];
    char *name = mem_printf("%s%s/%d", axes_print(channel->group, text), channel->peer ? " ends" : "", channel->number);
    int *members = mem_alloc((size_t)mesh_group_size(mesh, channel->group) * sizeof *members);
    int count = mesh_members(mesh, s->member.rank, channel->group, channel->peer, members);
    trireme_status status = communicator_open(&opened, s->member.world, s->member.rank, count, members, name, error);
    free(members);
    free(name);
    TRY(status);
    VEC_PUSH(&s->channels.list, *channel);
    VEC_PUSH(&s->communicators, opened);
    return TRIREME_OK;
}

trireme_status channels_open(struct streams *s, const struct program *program, const struct op_table *table,
                             trireme_error *error) {
    CHECK(s->channels.list.count == 0 || memcmp(&s->mesh, &program->mesh, sizeof s->mesh) == 0);
    s->mesh = program->mesh;
    struct channels needed;
    channels_create(&needed, program, table);
    trireme_status status = TRIREME_OK;
    if (needed.list.count && !s->member.world) {
        status = TRIREME_ERROR_PROGRAM;
        error_set(error, status, "%s has no ranks to go to", program->name);
    }
    for (size_t i = 0; i < needed.list.count && status == TRIREME_OK; i++)
        if (channels_find(&s->channels, needed.list.item[i]) == NONE)
            status = open_channel(s, &needed.list.item[i], error);
    channels_release(&needed);
    return status;
}

void streams_patience(struct streams *s, axis_set axes, int64_t times) {
    for (size_t i = 0; i < s->communicators.count; i++)
        if (s->channels.list.item[i].group & axes)
            communicator_patience(s->communicators.item[i], times);
}

void channels_close(struct streams *s) {
    for (size_t i = 0; i < s->communicators.count; i++)
        communicator_free(s->communicators.item[i]);
    VEC_RELEASE(&s->communicators);
    channels_release(&s->channels);
}

// What each rank of the group sends and receives, in bytes: [size] each.
struct exchange {
    int64_t *in_offset, *in_bytes, *out_offset, *out_bytes;
};

void *exchange_create(const struct communicator *c) {
    return mem_alloc(4 * (size_t)communicator_size(c) * sizeof(int64_t));
}

// Where each rank's rows lie, by their counts; false where they are more than there are.
static bool rows_lie(const struct tensor *counts, const struct tensor *rows, int64_t *offset, int64_t *bytes) {
    const int64_t row = rows->dim[1] * dtype_size(rows->dtype);
    int64_t at = 0;
    for (int64_t i = 0; i < counts->dim[0]; i++) {
        const int64_t count = ((const int32_t *)counts->data)[i];
        if (count < 0 || count > rows->dim[0] - at)
            return false;
        offset[i] = at * row;
        bytes[i] = count * row;
        at += count;
    }
    return true;
}

static trireme_status exchange_rows(const struct resolved *r, const struct call *call, trireme_error *error) {
    const int size = communicator_size(r->communicator);
    const struct tensor *x = &call->in[0], *y = &call->out[0];
    int64_t *at = r->prepared;
    const struct exchange e = {at, at + size, at + 2 * size, at + 3 * size};
    if (!rows_lie(&call->in[1], x, e.in_offset, e.in_bytes) || !rows_lie(&call->in[2], y, e.out_offset, e.out_bytes))
        FAIL(TRIREME_ERROR_PROGRAM,
             "more rows are to be sent or received than the %lld and %lld that there is room for", (long long)x->dim[0],
             (long long)y->dim[0]);
    return comm_all_to_all_v(r->communicator, x->data, e.in_offset, e.in_bytes, y->data, e.out_offset, e.out_bytes,
                             error);
}

trireme_status communicate(const struct resolved *r, const struct call *call, trireme_error *error) {
    const struct tensor *in = &call->in[0], *out = &call->out[0];
    struct communicator *c = r->communicator;
    enum dtype dtype = call->inputs && in->data ? in->dtype : out->dtype;
    const int narrow = op_wire(call->op);
    const enum dtype wire = narrow >= 0 && call->attribute[narrow].i ? DTYPE_BF16 : dtype;
    const int size = communicator_size(c), end = communicator_index(c) + r->instruction->peer,
              peer = (end % size + size) % size;
    if (r->instruction->open && peer != end)
        return TRIREME_OK;
    switch (call->op) {
    case OP_ALL_REDUCE:
        return comm_all_reduce(c, in->data, out->data, in->dim[0], dtype,
                               call->attribute[0].i ? REDUCE_MAX : REDUCE_SUM, wire, error);
    case OP_REDUCE_SCATTER:
        return comm_reduce_scatter(c, in->data, out->data, out->dim[0], dtype, REDUCE_SUM, wire, call->accumulate,
                                   error);
    case OP_ALL_GATHER:
        return comm_all_gather(c, in->data, out->data, in->dim[0], dtype, error);
    case OP_REDUCE: // Other ranks sum in their own input and drop the result.
        return comm_all_reduce(c, in->data, out->data ? out->data : in->data, in->dim[0], dtype, REDUCE_SUM, wire,
                               error);
    case OP_BROADCAST:
        if (in->data && in->data != out->data)
            memcpy(out->data, in->data, (size_t)(in->dim[0] * dtype_size(dtype)));
        return comm_broadcast(c, out->data, out->dim[0] * dtype_size(dtype), peer, error);
    case OP_ALL_TO_ALL:
        return comm_all_to_all(c, in->data, out->data, in->dim[1] * in->dim[2] * dtype_size(dtype), error);
    case OP_ALL_TO_ALL_V:
        return exchange_rows(r, call, error);
    case OP_SEND:
        return comm_send(c, in->data, in->dim[0] * dtype_size(dtype), peer, error);
    case OP_RECEIVE:
        return comm_receive(c, out->data, out->dim[0] * dtype_size(dtype), peer, error);
    default:
        CHECK(!"an op without kernel or transport");
        return TRIREME_OK;
    }
}
