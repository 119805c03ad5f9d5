// Long reductions: member i reduces part i from what the others send it, in the order of their index. Parts are divided
// into segments that stay in the caches. Two are under way at a time, so that one arrives while the other is reduced;
// in an all-reduce a reduced segment goes back meanwhile. Values that travel as bf16 are rounded by the sender.
#include "base/bf16.h"
#include "comm/messages/messages.h"

char *part_staging(const struct process_communicator *c, enum staging which, int member) {
    return c->staging[which] + member * c->segment;
}

// Whether values travel as bf16 and are not bf16 themselves.
static bool parts_narrow(const struct process_communicator *c) {
    return c->call->wire != c->call->dtype;
}

// A member's part: returns how many elements it has, and sets *begin to the first.
static int64_t part_elements(const struct process_communicator *c, int member, int64_t *begin) {
    const struct comm_call *call = c->call;
    const int64_t size = dtype_size(call->dtype);
    if (call->operation != OPERATION_ALL_REDUCE) {
        *begin = member * call->count;
        return call->count;
    }
    *begin = part_begin(call->count, size, c->base.size, member);
    return part_begin(call->count, size, c->base.size, member + 1) - *begin;
}

static int64_t segment_elements(const struct process_communicator *c) {
    return c->segment / dtype_size(c->call->dtype);
}

int64_t part_segment(const struct process_communicator *c, int member, int number, int64_t *begin) {
    const int64_t most = segment_elements(c), before = number * most, all = part_elements(c, member, begin);
    *begin += before;
    return MAX(0, MIN(most, all - before));
}

int part_segments(const struct process_communicator *c) {
    int64_t begin, longest = 0;
    for (int m = 0; m < c->base.size; m++)
        longest = MAX(longest, part_elements(c, m, &begin));
    return (int)divide_up(longest, segment_elements(c));
}

// The staging buffer for segment `number`: there is room for two segments.
static char *parts_staging(const struct process_communicator *c, enum staging which, int member, int number) {
    return part_staging(c, which, member + number % 2 * c->base.size);
}

static void to_bf16(uint16_t *restrict to, const float *restrict from, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        to[i] = bf16_from_float(from[i]);
}

static void from_bf16(float *restrict to, const uint16_t *restrict from, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        to[i] = bf16_to_float(from[i]);
}

const void *part_contribution(const struct process_communicator *c, int member, int number, char *narrowed) {
    int64_t begin, n = part_segment(c, member, number, &begin);
    const char *data = (const char *)c->call->in + begin * dtype_size(c->call->dtype);
    if (!parts_narrow(c))
        return data;
    to_bf16((uint16_t *)(void *)narrowed, (const float *)(const void *)data, n);
    return narrowed;
}

// Every member receives segment `number` of its part from the input of every other member.
static void post_contributions(struct process_communicator *c, int number) {
    int size = c->base.size, index = c->base.index;
    int64_t begin, width = dtype_size(c->call->wire), own = part_segment(c, index, number, &begin);
    for (int k = 1; k < size; k++) {
        int from = (index + size - k) % size;
        round_receive(c, from, MESSAGE_DATA, parts_staging(c, STAGING_RECEIVED, from, number), own * width);
    }
    for (int k = 1; k < size; k++) {
        int to = (index + k) % size;
        const void *data = part_contribution(c, to, number, parts_staging(c, STAGING_SENT, to, number));
        round_send(c, to, MESSAGE_DATA, data, part_segment(c, to, number, &begin) * width);
    }
}

// Points c->contribution to what has come of segment `number`, and to this member's own.
static void parts_contributions(struct process_communicator *c, int number) {
    for (int i = 0; i < c->base.size; i++)
        c->contribution[i] = parts_staging(c, STAGING_RECEIVED, i, number);
    int index = c->base.index;
    c->contribution[index] = part_contribution(c, index, number, parts_staging(c, STAGING_RECEIVED, index, number));
}

static void parts_reduce(struct process_communicator *c, const struct reduction_loops *loops, int ranks, int64_t count,
                         char *to, int64_t to_size, bool accumulate) {
    for (int64_t at = 0; at < count; at += CHUNK) {
        int64_t n = MIN(count - at, CHUNK);
        char *out = to + at * to_size;
        const void *result = reduce_chunk(loops, c->call->reduction == REDUCE_MAX, false, c->contribution, ranks, at, n,
                                          accumulate ? out : NULL, c->chunk);
        copy_bytes(out, result, n * to_size, false);
    }
}

void part_reduce(struct process_communicator *c, int ranks, int64_t count, char *to) {
    enum dtype wire = c->call->wire;
    parts_reduce(c, reduction_loops(wire, wire), ranks, count, to, dtype_size(wire), false);
}

void part_finish(struct process_communicator *c, int ranks, int number) {
    const struct comm_call *call = c->call;
    int64_t size = dtype_size(call->dtype), begin, count = part_segment(c, c->base.index, number, &begin);
    if (call->operation == OPERATION_ALL_REDUCE) {
        int64_t bytes;
        char *to = part_result(c, c->base.index, number, &bytes);
        part_reduce(c, ranks, count, to);
        if (parts_narrow(c))
            from_bf16((float *)call->out + begin, (const uint16_t *)(const void *)to, count);
        return;
    }
    struct reduction_loops loops = *reduction_loops(call->wire, call->wire);
    if (parts_narrow(c)) {
        // Values arrive as bf16, and the result is their sum in f32.
        loops.add = reduction_loops(call->dtype, call->wire)->add;
        loops.store = NULL;
    }
    parts_reduce(c, &loops, ranks, count, (char *)call->out + number * segment_elements(c) * size, size,
                 call->accumulate);
}

// Begins a reduction; `next` is called with c->round 0 when the contributions to segment 0 have come.
static void parts_begin(struct process_communicator *c, round_function *next) {
    round_begin(c, next);
    post_contributions(c, 0);
    round_ahead(c);
    post_contributions(c, 1);
}

static void scatter_next(struct process_communicator *c) {
    int number = c->round++, count = part_segments(c);
    parts_contributions(c, number);
    part_finish(c, c->base.size, number);
    round_follow(c, number + 1 < count ? scatter_next : NULL);
    post_contributions(c, number + 2);
}

void reduce_scatter_parts(struct process_communicator *c) {
    parts_begin(c, scatter_next);
}

// ---- all-reduce

char *part_result(const struct process_communicator *c, int member, int number, int64_t *bytes) {
    int64_t begin, n = part_segment(c, member, number, &begin), width = dtype_size(c->call->wire);
    *bytes = n * width;
    return parts_narrow(c) ? parts_staging(c, STAGING_GATHERED, member, number) : (char *)c->call->out + begin * width;
}

// Sends a reduced segment to all others, and receives theirs.
static void post_results(struct process_communicator *c, int number) {
    int size = c->base.size, index = c->base.index;
    int64_t bytes;
    for (int k = 1; k < size; k++) {
        int from = (index + size - k) % size;
        char *to = part_result(c, from, number, &bytes);
        round_receive(c, from, MESSAGE_DATA, to, bytes);
    }
    const char *own = part_result(c, index, number, &bytes);
    for (int k = 1; k < size; k++)
        round_send(c, (index + k) % size, MESSAGE_DATA, own, bytes);
}

void part_widen(struct process_communicator *c, int number) {
    for (int m = 0; m < c->base.size && parts_narrow(c); m++) {
        int64_t begin, n = part_segment(c, m, number, &begin);
        const char *from = parts_staging(c, STAGING_GATHERED, m, number);
        if (m != c->base.index)
            from_bf16((float *)c->call->out + begin, (const uint16_t *)(const void *)from, n);
    }
}

// The result of a segment travels together with the contributions to the segment after the next.
static void all_reduce_next(struct process_communicator *c) {
    int number = c->round++, count = part_segments(c);
    if (number >= 2)
        part_widen(c, number - 2);
    if (number < count) {
        parts_contributions(c, number);
        part_finish(c, c->base.size, number);
    }
    round_follow(c, number < count + 1 ? all_reduce_next : NULL);
    post_contributions(c, number + 2);
    if (number < count)
        post_results(c, number);
}

void all_reduce_parts(struct process_communicator *c) {
    parts_begin(c, all_reduce_next);
}
