// Short collectives on a node: every member copies its data into its slot, and reads all copies.
#include "comm/near/near.h"

// Bytes of a member's input.
static int64_t input_bytes(const struct near *n, const struct comm_call *call) {
    return comm_call_bytes(call) * (call->operation == OPERATION_REDUCE_SCATTER ? n->base->size : 1);
}

static void copy_in(struct near *n, const struct comm_call *call) {
    if (call->operation != OPERATION_BROADCAST || call->peer == n->base->index)
        copy_bytes(near_slot(n, n->base->index)->data, call->in, input_bytes(n, call), false);
}

static void near_slots_reduce(struct near *n, const struct comm_call *call, bool all) {
    int64_t own = all ? 0 : n->base->index * call->count * dtype_size(call->dtype);
    for (int m = 0; m < n->base->size; m++)
        n->contribution[m] = (m == n->base->index ? (const char *)call->in : near_slot(n, m)->data) + own;
    reduce_elements(call, all, n->contribution, n->base->size, 0, call->count, call->out, false, n->chunk);
}

static trireme_status copy_out(struct near *n, const struct comm_call *call, trireme_error *error) {
    (void)error;
    int64_t bytes = input_bytes(n, call);
    switch (call->operation) {
    case OPERATION_ALL_REDUCE:
    case OPERATION_REDUCE_SCATTER:
        near_slots_reduce(n, call, call->operation == OPERATION_ALL_REDUCE);
        break;
    case OPERATION_ALL_GATHER:
        for (int m = 0; m < n->base->size; m++)
            copy_bytes((char *)call->out + m * bytes, m == n->base->index ? call->in : near_slot(n, m)->data, bytes,
                       false);
        break;
    case OPERATION_BROADCAST:
        if (call->peer != n->base->index)
            copy_bytes(call->out, near_slot(n, call->peer)->data, bytes, false);
        break;
    default:
        break;
    }
    return TRIREME_OK;
}

bool near_slots(const struct near *n, const struct comm_call *call, struct near_way *way) {
    switch (call->operation) {
    case OPERATION_ALL_REDUCE:
    case OPERATION_ALL_GATHER:
    case OPERATION_REDUCE_SCATTER:
    case OPERATION_BROADCAST:
    case OPERATION_BARRIER:
        *way = (struct near_way){copy_in, copy_out};
        return input_bytes(n, call) <= NEAR_DATA / (n->neighbours->reads ? n->base->size : 1);
    default:
        return false;
    }
}
