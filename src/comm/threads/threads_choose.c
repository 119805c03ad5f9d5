// Which algorithm serves a call, by a model of its time: the number of meetings, and the bytes that each member moves.
// Figures are from two Zen 5 cores; bench/collectives measures them.
#include "comm/threads/threads.h"

// Nanoseconds. A meeting of ranks that share cores is a round of context switches.
static double meeting_time(int ranks, bool crowded) {
    return crowded ? 2000.0 * ranks : 100 + 100.0 * ranks;
}

static const double BYTE_TIME = 0.06;

// Bytes that a member moves: into its slot; in all, with slots; and without slots.
struct traffic {
    double slot, slots, direct;
};

static struct traffic traffic_of(const struct comm_call *call, int ranks) {
    double n = ranks, bytes = (double)comm_call_bytes(call);
    switch (call->operation) {
    case OPERATION_ALL_REDUCE:
        return (struct traffic){bytes, (n + 2) * bytes, 2 * bytes};
    case OPERATION_REDUCE_SCATTER:
        return (struct traffic){n * bytes, (2 * n + 1) * bytes, (n + 1) * bytes};
    case OPERATION_ALL_GATHER:
        return (struct traffic){bytes, (2 * n + 1) * bytes, (n + 1) * bytes};
    case OPERATION_BROADCAST:
        return (struct traffic){bytes, 3 * bytes, 2 * bytes};
    default:
        return (struct traffic){n * bytes, 4 * n * bytes, 2 * n * bytes};
    }
}

static bool slots_pay(const struct comm_call *call, int ranks, bool crowded) {
    struct traffic traffic = traffic_of(call, ranks);
    return traffic.slot <= SLOT_BYTES && (traffic.slots - traffic.direct) * BYTE_TIME <= meeting_time(ranks, crowded);
}

algorithm *algorithm_choose(const struct comm_call *call, int ranks, bool crowded) {
    bool slots = slots_pay(call, ranks, crowded);
    switch (call->operation) {
    case OPERATION_ALL_REDUCE:
        return slots ? all_reduce_slots : all_reduce_blocks;
    case OPERATION_REDUCE_SCATTER:
        return slots ? reduce_scatter_slots : reduce_scatter_direct;
    case OPERATION_ALL_GATHER:
        return slots ? all_gather_slots : all_gather_direct;
    case OPERATION_BROADCAST:
        return slots ? broadcast_slots : broadcast_blocks;
    case OPERATION_ALL_TO_ALL:
        return slots ? all_to_all_slots : all_to_all_direct;
    case OPERATION_ALL_TO_ALL_V:
        return all_to_all_v;
    case OPERATION_SEND:
        return send_mail;
    case OPERATION_RECEIVE:
        return receive_mail;
    default:
        CHECK(call->operation == OPERATION_BARRIER);
        return barrier_meeting;
    }
}
