// Which data come with the headers, and which algorithm follows.
#include "comm/messages/messages.h"

bool headers_carry(const struct comm_call *call) {
    return call->operation != OPERATION_ALL_TO_ALL_V && comm_call_bytes(call) <= HEADER_DATA;
}

round_function *algorithm_of(const struct process_communicator *c) {
    const struct comm_call *call = c->call;
    bool carried = headers_carry(call), nodes = c->nodes.member != NULL;
    switch (call->operation) {
    case OPERATION_ALL_REDUCE:
        return carried ? all_reduce_headers : nodes ? all_reduce_nodes : all_reduce_parts;
    case OPERATION_REDUCE_SCATTER:
        return carried ? reduce_scatter_headers : nodes ? reduce_scatter_nodes : reduce_scatter_parts;
    case OPERATION_ALL_GATHER:
        return carried ? all_gather_headers : nodes ? all_gather_nodes : all_gather_window;
    case OPERATION_BROADCAST:
        return carried ? broadcast_headers : nodes ? broadcast_nodes : broadcast_parts;
    case OPERATION_ALL_TO_ALL:
        return carried ? all_to_all_headers : all_to_all_window;
    case OPERATION_ALL_TO_ALL_V:
        return all_to_all_v_window;
    case OPERATION_OPEN:
        return open_agreed;
    default:
        CHECK(call->operation == OPERATION_BARRIER);
        return barrier_headers;
    }
}
