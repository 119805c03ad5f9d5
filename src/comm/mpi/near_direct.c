// Long collectives on a node: every member reads the data of the others where they lie, and returns when nobody reads
// its own data any more.
#include "comm/mpi/near.h"

// Bytes of all members' contributions together that are reduced at a time, so that they stay in the second-level cache.
enum { REDUCED = 1 << 20 };
// How many segments later the result of a reduction is read: reading is slow while it is in another core's cache.
enum { LAG = 4 };

static trireme_status direct_gather(struct process_communicator *c, const struct comm_call *call,
                                    trireme_error *error) {
    int64_t bytes = call->count * dtype_size(call->dtype);
    copy_bytes((char *)call->out + c->base.index * bytes, call->in, bytes, is_streamed(c->base.size * bytes));
    stream_end();
    for (int k = 1; k < c->base.size; k++) {
        int member = (c->base.index + k) % c->base.size;
        TRY(near_read(c, member, (char *)call->out + member * bytes, near_slot(c, member)->in, bytes, error));
    }
    return near_meet(c, call, error);
}

static trireme_status direct_broadcast(struct process_communicator *c, const struct comm_call *call,
                                       trireme_error *error) {
    if (c->base.index != call->peer)
        TRY(near_read(c, call->peer, call->out, near_slot(c, call->peer)->in, call->count, error));
    return near_meet(c, call, error);
}

// ---- reductions: member i reduces part i, segment by segment

// How many elements a segment of a part has.
static int64_t segment_of(const struct process_communicator *c, int64_t size) {
    return MIN(c->segment, REDUCED / c->base.size / 64 * 64) / size;
}

// Reads elements [begin, begin + count) of all others' inputs.
static trireme_status read_inputs(struct process_communicator *c, const struct comm_call *call, int64_t begin,
                                  int64_t count, trireme_error *error) {
    int64_t size = dtype_size(call->dtype);
    for (int k = 1; k < c->base.size; k++) {
        int member = (c->base.index + k) % c->base.size;
        const char *from = (const char *)near_slot(c, member)->in + begin * size;
        TRY(near_read(c, member, part_staging(c, STAGING_RECEIVED, member), from, count * size, error));
    }
    return TRIREME_OK;
}

// Reduces them, and this member's own, to `out`.
static void direct_reduce(struct process_communicator *c, const struct comm_call *call, int64_t begin, int64_t count,
                          char *out) {
    for (int m = 0; m < c->base.size; m++)
        c->contribution[m] = part_staging(c, STAGING_RECEIVED, m);
    c->contribution[c->base.index] = (const char *)call->in + begin * dtype_size(call->dtype);
    reduce_elements(call, call->operation == OPERATION_ALL_REDUCE, c->contribution, c->base.size, 0, count, out, false,
                    c->chunk);
}

static trireme_status reduce_scatter(struct process_communicator *c, const struct comm_call *call,
                                     trireme_error *error) {
    int64_t size = dtype_size(call->dtype), segment = segment_of(c, size);
    for (int64_t at = 0; at < call->count; at += segment) {
        int64_t begin = c->base.index * call->count + at, count = MIN(call->count - at, segment);
        TRY(read_inputs(c, call, begin, count, error));
        direct_reduce(c, call, begin, count, (char *)call->out + at * size);
    }
    return near_meet(c, call, error);
}

// Segment `number` of a member's part: returns how many elements it has, and sets *begin to the first.
static int64_t segment_at(const struct process_communicator *c, const struct comm_call *call, int member,
                          int64_t number, int64_t *begin) {
    int64_t size = dtype_size(call->dtype), segment = segment_of(c, size);
    *begin = part_begin(call->count, size, c->base.size, member) + number * segment;
    return MIN(part_begin(call->count, size, c->base.size, member + 1) - *begin, segment);
}

// If the call is in place, a reduced segment overwrites this member's own contribution to it: the member that has
// reduced the segment has read that.
static trireme_status take_reduced(struct process_communicator *c, const struct comm_call *call, int64_t number,
                                   trireme_error *error) {
    int64_t size = dtype_size(call->dtype), begin;
    for (int k = 1; k < c->base.size; k++) {
        int member = (c->base.index + k) % c->base.size;
        int64_t count = segment_at(c, call, member, number, &begin);
        const char *from = (const char *)near_slot(c, member)->out + begin * size;
        TRY(near_read(c, member, (char *)call->out + begin * size, from, count * size, error));
    }
    return TRIREME_OK;
}

static trireme_status direct_all_reduce(struct process_communicator *c, const struct comm_call *call,
                                        trireme_error *error) {
    int64_t segments = 0, begin;
    for (int m = 0; m < c->base.size; m++)
        while (segment_at(c, call, m, segments, &begin) > 0)
            segments++;
    uint32_t before = c->near->steps;
    for (int64_t k = 0; k < segments + LAG; k++) {
        int64_t count = segment_at(c, call, c->base.index, k, &begin);
        if (count > 0) {
            TRY(read_inputs(c, call, begin, count, error));
            direct_reduce(c, call, begin, count, (char *)call->out + begin * dtype_size(call->dtype));
        }
        if (k < segments)
            near_step(c);
        if (k < LAG)
            continue;
        TRY(near_await(c, call, before + (uint32_t)MIN(segments, k - LAG + 1), error));
        TRY(take_reduced(c, call, k - LAG, error));
    }
    return near_meet(c, call, error);
}

bool near_direct(const struct process_communicator *c, const struct comm_call *call, struct near_way *way) {
    static near_algorithm *const OF[OPERATION_COUNT] = {
        [OPERATION_ALL_REDUCE] = direct_all_reduce,
        [OPERATION_REDUCE_SCATTER] = reduce_scatter,
        [OPERATION_ALL_GATHER] = direct_gather,
        [OPERATION_BROADCAST] = direct_broadcast,
    };
    way->before = NULL;
    way->after = c->world->reads ? OF[call->operation] : NULL;
    return way->after != NULL;
}
