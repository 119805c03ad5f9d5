// Long collectives on a node: every member reads the data of the others where they lie, and returns when nobody reads
// its own data any more.
#include "comm/near/near.h"

// Bytes of all members' contributions together that are reduced at a time, so that they stay in the second-level cache.
enum { REDUCED = 1 << 20 };
// How many segments later the result of a reduction is read: reading is slow while it is in another core's cache.
enum { LAG = 4 };

static trireme_status direct_gather(struct near *n, const struct comm_call *call, trireme_error *error) {
    int64_t bytes = comm_call_bytes(call);
    copy_bytes((char *)call->out + n->base->index * bytes, call->in, bytes, is_streamed(n->base->size * bytes));
    stream_end();
    for (int k = 1; k < n->base->size; k++) {
        int member = (n->base->index + k) % n->base->size;
        TRY(near_read(n, member, (char *)call->out + member * bytes, near_slot(n, member)->in, bytes, error));
    }
    return near_meet(n, call, error);
}

static trireme_status direct_broadcast(struct near *n, const struct comm_call *call, trireme_error *error) {
    if (n->base->index != call->peer)
        TRY(near_read(n, call->peer, call->out, near_slot(n, call->peer)->in, call->count, error));
    return near_meet(n, call, error);
}

// ---- reductions: member i reduces part i, segment by segment

// How many elements a segment of a part has.
static int64_t segment_of(const struct near *n, int64_t size) {
    return MIN(n->segment, REDUCED / n->base->size / 64 * 64) / size;
}

// Reads elements [begin, begin + count) of all others' inputs.
static trireme_status read_inputs(struct near *n, const struct comm_call *call, int64_t begin, int64_t count,
                                  trireme_error *error) {
    int64_t size = dtype_size(call->dtype);
    for (int k = 1; k < n->base->size; k++) {
        int member = (n->base->index + k) % n->base->size;
        const char *from = (const char *)near_slot(n, member)->in + begin * size;
        TRY(near_read(n, member, near_received(n, member), from, count * size, error));
    }
    return TRIREME_OK;
}

// Reduces them, and this member's own, to `out`.
static void direct_reduce(struct near *n, const struct comm_call *call, int64_t begin, int64_t count, char *out) {
    for (int m = 0; m < n->base->size; m++)
        n->contribution[m] = near_received(n, m);
    n->contribution[n->base->index] = (const char *)call->in + begin * dtype_size(call->dtype);
    reduce_elements(call, call->operation == OPERATION_ALL_REDUCE, n->contribution, n->base->size, 0, count, out, false,
                    n->chunk);
}

static trireme_status reduce_scatter(struct near *n, const struct comm_call *call, trireme_error *error) {
    int64_t size = dtype_size(call->dtype), segment = segment_of(n, size);
    for (int64_t at = 0; at < call->count; at += segment) {
        int64_t begin = n->base->index * call->count + at, count = MIN(call->count - at, segment);
        TRY(read_inputs(n, call, begin, count, error));
        direct_reduce(n, call, begin, count, (char *)call->out + at * size);
    }
    return near_meet(n, call, error);
}

// Segment `number` of a member's part: returns how many elements it has, and sets *begin to the first.
static int64_t segment_at(const struct near *n, const struct comm_call *call, int member, int64_t number,
                          int64_t *begin) {
    int64_t size = dtype_size(call->dtype), segment = segment_of(n, size);
    *begin = part_begin(call->count, size, n->base->size, member) + number * segment;
    return MIN(part_begin(call->count, size, n->base->size, member + 1) - *begin, segment);
}

// If the call is in place, a reduced segment overwrites this member's own contribution to it: the member that has
// reduced the segment has read that.
static trireme_status take_reduced(struct near *n, const struct comm_call *call, int64_t number, trireme_error *error) {
    int64_t size = dtype_size(call->dtype), begin;
    for (int k = 1; k < n->base->size; k++) {
        int member = (n->base->index + k) % n->base->size;
        int64_t count = segment_at(n, call, member, number, &begin);
        const char *from = (const char *)near_slot(n, member)->out + begin * size;
        TRY(near_read(n, member, (char *)call->out + begin * size, from, count * size, error));
    }
    return TRIREME_OK;
}

static trireme_status direct_all_reduce(struct near *n, const struct comm_call *call, trireme_error *error) {
    int64_t segments = 0, begin;
    for (int m = 0; m < n->base->size; m++)
        while (segment_at(n, call, m, segments, &begin) > 0)
            segments++;
    uint32_t before = n->steps;
    for (int64_t k = 0; k < segments + LAG; k++) {
        int64_t count = segment_at(n, call, n->base->index, k, &begin);
        if (count > 0) {
            TRY(read_inputs(n, call, begin, count, error));
            direct_reduce(n, call, begin, count, (char *)call->out + begin * dtype_size(call->dtype));
        }
        if (k < segments)
            near_step(n);
        if (k < LAG)
            continue;
        TRY(near_await(n, call, before + (uint32_t)MIN(segments, k - LAG + 1), error));
        TRY(take_reduced(n, call, k - LAG, error));
    }
    return near_meet(n, call, error);
}

bool near_direct(const struct near *n, const struct comm_call *call, struct near_way *way) {
    static near_algorithm *const OF[OPERATION_COUNT] = {
        [OPERATION_ALL_REDUCE] = direct_all_reduce,
        [OPERATION_REDUCE_SCATTER] = reduce_scatter,
        [OPERATION_ALL_GATHER] = direct_gather,
        [OPERATION_BROADCAST] = direct_broadcast,
    };
    way->before = NULL;
    way->after = n->neighbours->reads ? OF[call->operation] : NULL;
    return way->after != NULL;
}
