// Communication rows of ops.def, as calls of the transport.
#include "exec/executor.h"

// The ranks of a channel. With a `peer` these are two coordinates of the one axis only: the rank's own and its peer's.
static int members_of(const struct executor *e, const struct channel *channel, int members[]) {
    const struct mesh *mesh = &e->program->mesh;
    int rank = e->member.rank, size = mesh_group_size(mesh, channel->group);
    int peer = mesh_peer(mesh, rank, channel->group, channel->peer), count = 0;
    for (int i = 0; i < size; i++) {
        int member = mesh_member(mesh, rank, channel->group, i);
        if (!channel->peer || member == rank || member == peer)
            members[count++] = member;
    }
    return count;
}

static trireme_status open_channel(struct executor *e, int number, trireme_error *error) {
    const struct channel *channel = &e->channels.list.item[number];
    char text[AXES_TEXT];
    char *name = mem_printf("%s%s/%d", axes_print(channel->group, text), channel->peer ? " ends" : "", channel->number);
    int *members = mem_alloc((size_t)mesh_group_size(&e->program->mesh, channel->group) * sizeof *members);
    int count = members_of(e, channel, members);
    trireme_status status =
        communicator_open(&e->communicator[number], e->member.world, e->member.rank, count, members, name, error);
    free(members);
    free(name);
    return status;
}

trireme_status channels_open(struct executor *e, trireme_error *error) {
    channels_create(&e->channels, e->program, e->table);
    int count = (int)e->channels.list.count;
    if (count && !e->member.world)
        FAIL(TRIREME_ERROR_PROGRAM, "%s has no ranks to go to", e->program->name);
    e->communicator = mem_alloc((size_t)count * sizeof(struct communicator *));
    for (int i = 0; i < count; i++)
        TRY(open_channel(e, i, error));
    return TRIREME_OK;
}

void channels_close(struct executor *e) {
    for (size_t i = 0; e->communicator && i < e->channels.list.count; i++)
        if (e->communicator[i])
            communicator_free(e->communicator[i]);
    free(e->communicator);
    channels_release(&e->channels);
}

trireme_status communicate(const struct resolved *r, const struct call *call, trireme_error *error) {
    const struct tensor *in = &call->in[0], *out = &call->out[0];
    struct communicator *c = r->communicator;
    enum dtype dtype = call->inputs && in->data ? in->dtype : out->dtype;
    int64_t wire_index = call->op == OP_ALL_REDUCE; // after `max`
    bool has_wire = call->op == OP_ALL_REDUCE || call->op == OP_ALL_GATHER || call->op == OP_REDUCE_SCATTER;
    enum dtype wire = has_wire && call->attribute[wire_index].i ? DTYPE_BF16 : dtype;
    int size = communicator_size(c), index = communicator_index(c);
    int peer = ((index + r->instruction->peer) % size + size) % size;
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
    case OP_SEND:
        return comm_send(c, in->data, in->dim[0] * dtype_size(dtype), peer, error);
    case OP_RECEIVE:
        return comm_receive(c, out->data, out->dim[0] * dtype_size(dtype), peer, error);
    default:
        CHECK(!"an op without kernel or transport");
        return TRIREME_OK;
    }
}
