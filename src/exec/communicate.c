// Communication rows of ops.def, as calls of the transport.
#include "exec/executor.h"

// The ranks of an instruction's group. With a `peer`, collectives are between two coordinates of the one axis only:
// the rank's own and that of the peer; sends and receives go over the whole group.
static int members_of(const struct executor *e, const struct instruction *in, bool pair, int members[]) {
    const struct mesh *mesh = &e->program->mesh;
    int size = mesh_group_size(mesh, in->group), own = mesh_index(mesh, e->member.rank, in->group), count = 0;
    for (int i = 0; i < size; i++)
        if (!pair || i == own || i == ((own + in->peer) % size + size) % size)
            members[count++] = mesh_member(mesh, e->member.rank, in->group, i);
    return count;
}

struct communicator *channel_open(struct executor *e, const struct instruction *in, trireme_error *error) {
    bool pair = instruction_is_pair(in);
    int peer = pair ? in->peer : 0, channel = stream_channel(in->stream);
    for (size_t i = 0; i < e->channels.count; i++)
        if (e->channels.item[i].group == in->group && e->channels.item[i].peer == peer &&
            e->channels.item[i].channel == channel)
            return e->channels.item[i].communicator;
    char text[AXES_TEXT];
    char *name = mem_printf("%s%s/%d", axes_print(in->group, text), pair ? " ends" : "", channel);
    int *members = mem_alloc((size_t)mesh_group_size(&e->program->mesh, in->group) * sizeof *members);
    int count = members_of(e, in, pair, members);
    struct communicator *communicator = NULL;
    if (communicator_open(&communicator, e->member.world, e->member.rank, count, members, name, error) == TRIREME_OK)
        VEC_PUSH(&e->channels, (struct channel){in->group, peer, channel, communicator});
    free(members);
    free(name);
    return communicator;
}

trireme_status communicate(const struct resolved *r, bool accumulate, trireme_error *error) {
    const struct call *call = &r->call;
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
        return comm_reduce_scatter(c, in->data, out->data, out->dim[0], dtype, REDUCE_SUM, wire, accumulate, error);
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
