// Long reductions: member i reduces part i, from what the others send it, in the order of their index. Parts go in
// segments that stay in the caches; in an all-reduce a reduced segment goes back while the next ones come. Values that
// travel as bf16 are rounded by the sender, so sums of them have the bits that sums of rounded values have.
#include "comm/mpi/processes.h"
#include "kernels/bf16.h"

enum staging { RECEIVED, SENT, GATHERED };

static char *staging(const struct process_communicator *c, enum staging which, int member) {
    return c->staging[which] + member * c->segment;
}

static bool narrow(const struct comm_call *call) {
    return call->wire != call->dtype;
}

// Elements [*begin, + returned) of segment `number` of the part of `member`.
static int64_t segment_of(const struct process_communicator *c, int member, int number, int64_t *begin) {
    const struct comm_call *call = c->call;
    int64_t size = dtype_size(call->dtype), first, end;
    if (call->operation == OPERATION_ALL_REDUCE) {
        first = part_begin(call->count, size, c->base.size, member);
        end = part_begin(call->count, size, c->base.size, member + 1);
    } else {
        first = member * call->count;
        end = first + call->count;
    }
    *begin = first + number * (c->segment / size);
    return MAX(0, MIN(c->segment / size, end - *begin));
}

static int segments(const struct process_communicator *c) {
    int count = 0;
    int64_t begin;
    for (int m = 0; m < c->base.size; m++)
        while (segment_of(c, m, count, &begin) > 0)
            count++;
    return count;
}

static void to_bf16(uint16_t *restrict to, const float *restrict from, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        to[i] = bf16_from_float(from[i]);
}

static void from_bf16(float *restrict to, const uint16_t *restrict from, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        to[i] = bf16_to_float(from[i]);
}

// Every member gets from every other its segment `number` of the other's input.
static void post_contributions(struct process_communicator *c, int number) {
    const struct comm_call *call = c->call;
    int size = c->base.size, index = c->base.index;
    int64_t begin, width = dtype_size(call->wire), own = segment_of(c, index, number, &begin);
    for (int k = 1; k < size; k++) {
        int from = (index + size - k) % size;
        round_receive(c, from, MESSAGE_DATA, staging(c, RECEIVED, from), own * width);
    }
    for (int k = 1; k < size; k++) {
        int to = (index + k) % size;
        int64_t n = segment_of(c, to, number, &begin);
        const void *data = (const char *)call->in + begin * dtype_size(call->dtype);
        if (narrow(call)) {
            to_bf16((uint16_t *)(void *)staging(c, SENT, to), data, n);
            data = staging(c, SENT, to);
        }
        round_send(c, to, MESSAGE_DATA, data, n * width);
    }
}

// Reduces what has come for segment `number` into `to`.
static void reduce(struct process_communicator *c, const struct reduction_loops *loops, int number, char *to,
                   int64_t to_size, bool accumulate) {
    const struct comm_call *call = c->call;
    int64_t begin, count = segment_of(c, c->base.index, number, &begin);
    for (int i = 0; i < c->base.size; i++)
        c->contribution[i] = staging(c, RECEIVED, i);
    const char *own = (const char *)call->in + begin * dtype_size(call->dtype);
    if (narrow(call))
        to_bf16((uint16_t *)(void *)staging(c, RECEIVED, c->base.index), (const float *)(const void *)own, count);
    else
        c->contribution[c->base.index] = own;
    for (int64_t at = 0; at < count; at += CHUNK) {
        int64_t n = MIN(count - at, CHUNK);
        char *out = to + at * to_size;
        const void *result = reduce_chunk(loops, call->reduction == REDUCE_MAX, false, c->contribution, c->base.size,
                                          at, n, accumulate ? out : NULL, c->chunk);
        copy_bytes(out, result, n * to_size, false);
    }
}

// ---- reduce-scatter

static void scatter_reduced(struct process_communicator *c, int number) {
    const struct comm_call *call = c->call;
    int64_t size = dtype_size(call->dtype);
    struct reduction_loops loops = *cpu_reduction_loops(call->wire, call->wire);
    if (narrow(call)) {
        // bf16 comes in, the sum in f32 is the result.
        loops.add = cpu_reduction_loops(call->dtype, call->wire)->add;
        loops.store = NULL;
    }
    reduce(c, &loops, number, (char *)call->out + number * (c->segment / size) * size, size, call->accumulate);
}

void reduce_scatter_parts(struct process_communicator *c) {
    int number = c->round++, count = segments(c);
    if (number > 0)
        scatter_reduced(c, number - 1);
    round_begin(c, number < count ? reduce_scatter_parts : NULL);
    if (number < count)
        post_contributions(c, number);
}

// ---- all-reduce

static void all_reduced(struct process_communicator *c, int number) {
    const struct comm_call *call = c->call;
    int64_t begin, size = dtype_size(call->dtype), count = segment_of(c, c->base.index, number, &begin);
    char *out = (char *)call->out + begin * size, *narrowed = staging(c, GATHERED, c->base.index);
    const struct reduction_loops *loops = cpu_reduction_loops(call->wire, call->wire);
    if (!narrow(call)) {
        reduce(c, loops, number, out, size, false);
        return;
    }
    reduce(c, loops, number, narrowed, 2, false);
    from_bf16((float *)(void *)out, (const uint16_t *)(const void *)narrowed, count);
}

// A reduced segment goes to all others.
static void post_results(struct process_communicator *c, int number) {
    const struct comm_call *call = c->call;
    int size = c->base.size, index = c->base.index;
    int64_t begin, width = dtype_size(call->wire);
    for (int k = 1; k < size; k++) {
        int from = (index + size - k) % size;
        int64_t n = segment_of(c, from, number, &begin);
        char *to = narrow(call) ? staging(c, GATHERED, from) : (char *)call->out + begin * width;
        round_receive(c, from, MESSAGE_DATA, to, n * width);
    }
    int64_t n = segment_of(c, index, number, &begin);
    const char *own = narrow(call) ? staging(c, GATHERED, index) : (const char *)call->out + begin * width;
    for (int k = 1; k < size; k++)
        round_send(c, (index + k) % size, MESSAGE_DATA, own, n * width);
}

static void widen_results(struct process_communicator *c, int number) {
    for (int m = 0; m < c->base.size; m++) {
        int64_t begin, n = segment_of(c, m, number, &begin);
        if (m != c->base.index)
            from_bf16((float *)c->call->out + begin, (const uint16_t *)(const void *)staging(c, GATHERED, m), n);
    }
}

void all_reduce_parts(struct process_communicator *c) {
    int number = c->round++, count = segments(c);
    if (number > 1 && narrow(c->call))
        widen_results(c, number - 2);
    if (number > 0 && number <= count)
        all_reduced(c, number - 1);
    round_begin(c, number <= count ? all_reduce_parts : NULL);
    if (number < count)
        post_contributions(c, number);
    if (number > 0 && number <= count)
        post_results(c, number - 1);
}
