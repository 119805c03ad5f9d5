#include "support/collectives.h"

#include "base/base.h"
#include "base/bf16.h"

const struct collective_kind collective_kinds[COLLECTIVE_KINDS] = {
    {DTYPE_F32, DTYPE_F32, REDUCE_SUM},  {DTYPE_F32, DTYPE_BF16, REDUCE_SUM},  {DTYPE_BF16, DTYPE_BF16, REDUCE_SUM},
    {DTYPE_F64, DTYPE_F64, REDUCE_SUM},  {DTYPE_I32, DTYPE_I32, REDUCE_SUM},   {DTYPE_F32, DTYPE_F32, REDUCE_MAX},
    {DTYPE_F32, DTYPE_BF16, REDUCE_MAX}, {DTYPE_BF16, DTYPE_BF16, REDUCE_MAX}, {DTYPE_F64, DTYPE_F64, REDUCE_MAX},
    {DTYPE_I32, DTYPE_I32, REDUCE_MAX},
};
// Both sides of every change of algorithm, of chunk and of part.
static const int64_t counts[] = {0, 1, 7, 130, 1025, 2500, 20011};

enum { GUARD = 32 };

// ---- values

static uint64_t hash(uint64_t x) {
    x = (x ^ x >> 31) * 0x9e3779b97f4a7c15;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9;
    return x ^ x >> 32;
}

// Element `i` of what `rank` gives. Magnitudes differ, so that the order of a sum shows in its last bits.
static void value(void *to, enum dtype dtype, int rank, int64_t i) {
    uint64_t h = hash((uint64_t)i * 64 + (uint64_t)rank + 1);
    double x = ((double)(h >> 11) / (double)(1ull << 53) - 0.5) * (double)(1u << (h & 15));
    if (dtype == DTYPE_F32)
        *(float *)to = (float)x;
    else if (dtype == DTYPE_BF16)
        *(uint16_t *)to = bf16_from_float((float)x);
    else if (dtype == DTYPE_F64)
        *(double *)to = x;
    else
        *(int32_t *)to = (int32_t)(h >> 32);
}

// How many ranks share a node, if a reduction of `count` elements makes use of that; else all.
static int locals_of(const struct teammate *mate, const struct collective_kind *kind, int64_t count) {
    enum { SHORT = 3968 }; // bytes
    int locals = mate->locals && count * dtype_size(kind->dtype) > SHORT ? mate->locals : mate->ranks;
    return mate->ranks % locals ? mate->ranks : locals;
}

struct sums {
    float f;
    double d;
    int32_t n;
};

static void add(struct sums *to, const struct sums *x, bool first, bool max) {
    to->f = first ? x->f : max ? MAX(to->f, x->f) : to->f + x->f;
    to->d = first ? x->d : max ? MAX(to->d, x->d) : to->d + x->d;
    to->n = first ? x->n : max ? MAX(to->n, x->n) : (int32_t)((uint32_t)to->n + (uint32_t)x->n);
}

static struct sums sums_of(const struct collective_kind *kind, int rank, int64_t i) {
    char raw[8];
    value(raw, kind->dtype, rank, i);
    struct sums x = {kind->dtype == DTYPE_BF16 ? bf16_to_float(*(uint16_t *)raw) : *(float *)raw, *(double *)raw,
                     *(int32_t *)raw};
    if (kind->wire == DTYPE_BF16)
        x.f = bf16_to_float(bf16_from_float(x.f));
    return x;
}

// The sum in order of index, first within each node; `base`, if any, is added last.
static void expected_reduction(void *to, const struct collective_kind *kind, int ranks, int locals, int64_t i, bool all,
                               const void *base) {
    struct sums total = {0}, node = {0};
    for (int r = 0; r < ranks; r++) {
        struct sums x = sums_of(kind, r, i);
        add(&node, &x, r % locals == 0, kind->reduction == REDUCE_MAX);
        if ((r + 1) % locals)
            continue;
        if (locals < ranks && kind->wire == DTYPE_BF16)
            node.f = bf16_to_float(bf16_from_float(node.f));
        add(&total, &node, r < locals, kind->reduction == REDUCE_MAX);
    }
    float f = total.f;
    double d = total.d;
    int32_t n = total.n;
    if (kind->dtype == DTYPE_F32) {
        if (all && kind->wire == DTYPE_BF16)
            f = bf16_to_float(bf16_from_float(f));
        *(float *)to = base ? *(const float *)base + f : f;
    } else if (kind->dtype == DTYPE_BF16) {
        *(uint16_t *)to = bf16_from_float(base ? bf16_to_float(*(const uint16_t *)base) + f : f);
    } else if (kind->dtype == DTYPE_F64) {
        *(double *)to = base ? *(const double *)base + d : d;
    } else {
        *(int32_t *)to = (int32_t)((uint32_t)n + (base ? *(const uint32_t *)base : 0));
    }
}

// ---- buffers

// `count` elements between guards.
static char *buffer_create(int64_t count, enum dtype dtype) {
    size_t bytes = (size_t)(count * dtype_size(dtype));
    char *p = mem_alloc(bytes + 2 * GUARD);
    return (char *)memset(p, 0x5a, bytes + 2 * GUARD) + GUARD;
}

void collective_fill(char *p, enum dtype dtype, int rank, int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        value(p + i * dtype_size(dtype), dtype, rank, first + i);
}

static bool buffer_release(struct teammate *mate, char *p, int64_t count, enum dtype dtype) {
    bool wrong = false;
    for (int i = 0; i < GUARD; i++)
        if (p[-1 - i] != 0x5a || p[count * dtype_size(dtype) + i] != 0x5a)
            wrong = teammate_wrong(mate, "wrote outside of a buffer of %lld %s", (long long)count, dtype_name(dtype));
    free(p - GUARD);
    return wrong;
}

static bool same(struct teammate *mate, const char *what, const struct collective_kind *kind, int64_t count, int64_t i,
                 const void *is, const void *should) {
    if (memcmp(is, should, (size_t)dtype_size(kind->dtype)) == 0)
        return true;
    teammate_wrong(mate, "%s of %lld %s (wire %s, %s): element %lld differs", what, (long long)count,
                   dtype_name(kind->dtype), dtype_name(kind->wire), kind->reduction == REDUCE_SUM ? "sum" : "max",
                   (long long)i);
    return false;
}

// ---- reductions

static void check_all_reduce(struct teammate *mate, struct communicator *c, const struct collective_kind *kind,
                             int64_t count, bool in_place) {
    trireme_error error;
    int64_t size = dtype_size(kind->dtype);
    char *in = buffer_create(count, kind->dtype), *out = in_place ? in : buffer_create(count, kind->dtype);
    collective_fill(in, kind->dtype, mate->rank, 0, count);
    teammate_failed(mate, comm_all_reduce(c, in, out, count, kind->dtype, kind->reduction, kind->wire, &error), &error);
    char expected[8];
    const int locals = locals_of(mate, kind, count);
    bool ok = true;
    for (int64_t i = 0; i < count && ok; i++) {
        expected_reduction(expected, kind, mate->ranks, locals, i, true, NULL);
        ok = same(mate, in_place ? "all_reduce in place" : "all_reduce", kind, count, i, out + i * size, expected);
        value(expected, kind->dtype, mate->rank, i);
        ok = ok && (in_place || same(mate, "input of all_reduce", kind, count, i, in + i * size, expected));
    }
    buffer_release(mate, in, count, kind->dtype);
    if (!in_place)
        buffer_release(mate, out, count, kind->dtype);
}

static void check_reduce_scatter(struct teammate *mate, struct communicator *c, const struct collective_kind *kind,
                                 int64_t count, bool in_place, bool accumulate) {
    trireme_error error;
    int64_t size = dtype_size(kind->dtype), all = count * mate->ranks, begin = count * mate->rank;
    char *in = buffer_create(all, kind->dtype);
    char *out = in_place ? in + begin * size : buffer_create(count, kind->dtype);
    collective_fill(in, kind->dtype, mate->rank, 0, all);
    if (!in_place)
        collective_fill(out, kind->dtype, 63, 0, count);
    teammate_failed(
        mate, comm_reduce_scatter(c, in, out, count, kind->dtype, kind->reduction, kind->wire, accumulate, &error),
        &error);
    char expected[8], base[8];
    const char *what = in_place     ? "reduce_scatter in place"
                       : accumulate ? "accumulating reduce_scatter"
                                    : "reduce_scatter";
    const int locals = locals_of(mate, kind, count);
    bool ok = true;
    for (int64_t i = 0; i < count && ok; i++) {
        value(base, kind->dtype, 63, i);
        expected_reduction(expected, kind, mate->ranks, locals, begin + i, false, accumulate ? base : NULL);
        ok = same(mate, what, kind, count, i, out + i * size, expected);
    }
    for (int64_t i = 0; i < all && ok; i++) {
        value(expected, kind->dtype, mate->rank, i);
        if (!in_place || i < begin || i >= begin + count)
            ok = same(mate, "input of reduce_scatter", kind, count, i, in + i * size, expected);
    }
    buffer_release(mate, in, all, kind->dtype);
    if (!in_place)
        buffer_release(mate, out, count, kind->dtype);
}

void collectives_reduce(struct teammate *mate) {
    struct communicator *c = teammate_open(mate);
    for (size_t k = 0; c && k < ARRAY_LENGTH(collective_kinds); k++)
        for (size_t n = 0; n < ARRAY_LENGTH(counts) && !mate->wrong[0]; n++) {
            check_all_reduce(mate, c, &collective_kinds[k], counts[n], false);
            check_all_reduce(mate, c, &collective_kinds[k], counts[n], true);
            check_reduce_scatter(mate, c, &collective_kinds[k], counts[n], false, false);
            check_reduce_scatter(mate, c, &collective_kinds[k], counts[n], false, true);
            check_reduce_scatter(mate, c, &collective_kinds[k], counts[n], true, false);
        }
    if (mate->wrong[0])
        world_break(mate->world, COMM_FAILED, mate->rank, mate->wrong);
    communicator_free(c);
}

// ---- moves

static void check_all_gather(struct teammate *mate, struct communicator *c, enum dtype dtype, int64_t count,
                             bool in_place) {
    trireme_error error;
    int64_t size = dtype_size(dtype), all = count * mate->ranks;
    char *out = buffer_create(all, dtype);
    char *in = in_place ? out + count * mate->rank * size : buffer_create(count, dtype);
    collective_fill(in, dtype, mate->rank, 0, count);
    teammate_failed(mate, comm_all_gather(c, in, out, count, dtype, &error), &error);
    struct collective_kind kind = {.dtype = dtype, .wire = dtype};
    bool ok = true;
    for (int64_t i = 0; i < all && ok; i++) {
        char expected[8];
        value(expected, dtype, (int)(i / count), i % count);
        ok = same(mate, in_place ? "all_gather in place" : "all_gather", &kind, count, i, out + i * size, expected);
    }
    buffer_release(mate, out, all, dtype);
    if (!in_place)
        buffer_release(mate, in, count, dtype);
}

static void check_broadcast(struct teammate *mate, struct communicator *c, int64_t count, int root) {
    trireme_error error;
    struct collective_kind kind = {.dtype = DTYPE_BF16, .wire = DTYPE_BF16};
    char *data = buffer_create(count, DTYPE_BF16), expected[8];
    collective_fill(data, DTYPE_BF16, mate->rank, 0, count);
    teammate_failed(mate, comm_broadcast(c, data, 2 * count, root, &error), &error);
    bool ok = true;
    for (int64_t i = 0; i < count && ok; i++) {
        value(expected, DTYPE_BF16, root, i);
        ok = same(mate, "broadcast", &kind, count, i, data + 2 * i, expected);
    }
    buffer_release(mate, data, count, DTYPE_BF16);
}

static void check_all_to_all(struct teammate *mate, struct communicator *c, int64_t count) {
    trireme_error error;
    struct collective_kind kind = {.dtype = DTYPE_BF16, .wire = DTYPE_BF16};
    int64_t all = count * mate->ranks;
    char *in = buffer_create(all, DTYPE_BF16), *out = buffer_create(all, DTYPE_BF16), expected[8];
    collective_fill(in, DTYPE_BF16, mate->rank, 0, all);
    teammate_failed(mate, comm_all_to_all(c, in, out, 2 * count, &error), &error);
    bool ok = true;
    for (int64_t i = 0; i < all && ok; i++) {
        value(expected, DTYPE_BF16, (int)(i / count), count * mate->rank + i % count);
        ok = same(mate, "all_to_all", &kind, count, i, out + 2 * i, expected);
    }
    buffer_release(mate, in, all, DTYPE_BF16);
    buffer_release(mate, out, all, DTYPE_BF16);
}

// From rank i to rank j go (3 i + 5 j) % 7 * count elements; blocks lie in the order of index, backwards in `in`.
static void check_all_to_all_v(struct teammate *mate, struct communicator *c, int64_t count) {
    trireme_error error;
    struct collective_kind kind = {.dtype = DTYPE_BF16, .wire = DTYPE_BF16};
    int64_t in_offset[COLLECTIVES_RANKS], in_bytes[COLLECTIVES_RANKS], out_offset[COLLECTIVES_RANKS],
        out_bytes[COLLECTIVES_RANKS];
    int64_t sent = 0, received = 0;
    for (int i = mate->ranks - 1; i >= 0; i--) {
        in_offset[i] = sent;
        sent += in_bytes[i] = (3 * mate->rank + 5 * i) % 7 * count * 2;
    }
    for (int i = 0; i < mate->ranks; i++) {
        out_offset[i] = received;
        received += out_bytes[i] = (3 * i + 5 * mate->rank) % 7 * count * 2;
    }
    char *in = buffer_create(sent / 2, DTYPE_BF16), *out = buffer_create(received / 2, DTYPE_BF16), expected[8];
    for (int i = 0; i < mate->ranks; i++)
        collective_fill(in + in_offset[i], DTYPE_BF16, mate->rank, i * 1000000, in_bytes[i] / 2);
    teammate_failed(mate, comm_all_to_all_v(c, in, in_offset, in_bytes, out, out_offset, out_bytes, &error), &error);
    bool ok = true;
    for (int i = 0; i < mate->ranks; i++)
        for (int64_t e = 0; e < out_bytes[i] / 2 && ok; e++) {
            value(expected, DTYPE_BF16, i, mate->rank * 1000000 + e);
            ok = same(mate, "all_to_all_v", &kind, count, e, out + out_offset[i] + 2 * e, expected);
        }
    buffer_release(mate, in, sent / 2, DTYPE_BF16);
    buffer_release(mate, out, received / 2, DTYPE_BF16);
}

void collectives_move(struct teammate *mate) {
    struct communicator *c = teammate_open(mate);
    for (size_t n = 0; c && n < ARRAY_LENGTH(counts) && !mate->wrong[0]; n++) {
        const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F64, DTYPE_I32};
        for (size_t d = 0; d < ARRAY_LENGTH(dtypes); d++) {
            check_all_gather(mate, c, dtypes[d], counts[n], false);
            check_all_gather(mate, c, dtypes[d], counts[n], true);
        }
        for (int root = 0; root < mate->ranks; root++)
            check_broadcast(mate, c, counts[n], root);
        check_all_to_all(mate, c, counts[n]);
        check_all_to_all_v(mate, c, counts[n]);
    }
    if (mate->wrong[0])
        world_break(mate->world, COMM_FAILED, mate->rank, mate->wrong);
    communicator_free(c);
}

// Data that go in several pieces, and, with the larger count, that do not fit into the caches and are written past
// them.
void collectives_large(struct teammate *mate) {
    const int64_t count = *(const int64_t *)mate->context;
    struct communicator *c = teammate_open(mate);
    for (size_t k = 0; c && k < (mate->ranks == 2 ? 3 : 1) && !mate->wrong[0]; k++) {
        check_all_reduce(mate, c, &collective_kinds[k], count, false);
        check_all_reduce(mate, c, &collective_kinds[k], count, true);
        check_reduce_scatter(mate, c, &collective_kinds[k], count / 2 + 1, false, false);
        check_all_gather(mate, c, collective_kinds[k].dtype, count / 2 + 1, false);
    }
    if (c && !mate->wrong[0]) {
        check_broadcast(mate, c, count, 1);
        check_all_to_all(mate, c, count);
    }
    if (mate->wrong[0])
        world_break(mate->world, COMM_FAILED, mate->rank, mate->wrong);
    communicator_free(c);
}

// ---- calls that end later

enum { CALLS = 7 };

// The room for what each of the calls gives.
static int64_t call_bytes(const struct teammate *mate, int64_t count) {
    return 8 * count * mate->ranks + 8;
}

// What rank i has for rank k in an all_to_all_v of up to `count` bytes.
static int64_t block_of(int i, int k, int64_t count) {
    return (i + 2 * k) % 3 * count / 2;
}

struct blocks {
    int64_t in_offset[COLLECTIVES_RANKS], in_bytes[COLLECTIVES_RANKS];
    int64_t out_offset[COLLECTIVES_RANKS], out_bytes[COLLECTIVES_RANKS];
};

static struct blocks blocks_of(const struct teammate *mate, int64_t count) {
    struct blocks b;
    for (int i = 0; i < mate->ranks; i++) {
        b.in_offset[i] = b.out_offset[i] = i * count;
        b.in_bytes[i] = block_of(mate->rank, i, count);
        b.out_bytes[i] = block_of(i, mate->rank, count);
    }
    return b;
}

static trireme_status call_now(struct communicator *c, int call, const char *in, char *out, int64_t count,
                               const struct blocks *b, trireme_error *error) {
    switch (call) {
    case 0:
        return comm_all_reduce(c, in, out, count, DTYPE_F32, REDUCE_SUM, DTYPE_BF16, error);
    case 1:
        return comm_reduce_scatter(c, in, out, count, DTYPE_F64, REDUCE_MAX, DTYPE_F64, true, error);
    case 2:
        return comm_all_gather(c, in, out, count, DTYPE_BF16, error);
    case 3:
        return comm_all_gather_bytes(c, in, out, 3 * count, error);
    case 4:
        return comm_broadcast(c, out, 5 * count, 1, error);
    case 5:
        return comm_all_to_all(c, in, out, 7 * count, error);
    default:
        return comm_all_to_all_v(c, in, b->in_offset, b->in_bytes, out, b->out_offset, b->out_bytes, error);
    }
}

static struct comm_handle call_begun(struct communicator *c, int call, const char *in, char *out, int64_t count,
                                     const struct blocks *b) {
    switch (call) {
    case 0:
        return comm_begin_all_reduce(c, in, out, count, DTYPE_F32, REDUCE_SUM, DTYPE_BF16);
    case 1:
        return comm_begin_reduce_scatter(c, in, out, count, DTYPE_F64, REDUCE_MAX, DTYPE_F64, true);
    case 2:
        return comm_begin_all_gather(c, in, out, count, DTYPE_BF16);
    case 3:
        return comm_begin_all_gather_bytes(c, in, out, 3 * count);
    case 4:
        return comm_begin_broadcast(c, out, 5 * count, 1);
    case 5:
        return comm_begin_all_to_all(c, in, out, 7 * count);
    default:
        return comm_begin_all_to_all_v(c, in, b->in_offset, b->in_bytes, out, b->out_offset, b->out_bytes);
    }
}

// Calls that block give `expected`; the same calls, all under way at a time and ended from the last to the first, or
// blocking on some ranks, must give the same.
static void check_begun(struct teammate *mate, struct communicator *c, int64_t count, bool mixed) {
    trireme_error error;
    const struct blocks b = blocks_of(mate, count);
    const size_t bytes = (size_t)call_bytes(mate, count);
    char *in = mem_alloc(bytes), *expected[CALLS], *out[CALLS];
    collective_fill(in, DTYPE_F64, mate->rank, 0, (int64_t)bytes / 8);
    for (int k = 0; k < CALLS; k++) {
        expected[k] = mem_alloc(bytes);
        out[k] = mem_alloc(bytes);
        collective_fill(expected[k], DTYPE_F64, mate->rank + 9, 0, (int64_t)bytes / 8);
        memcpy(out[k], expected[k], bytes);
        teammate_failed(mate, call_now(c, k, in, expected[k], count, &b, &error), &error);
    }
    const bool begins = !mixed || mate->rank % 2 == 0;
    struct comm_handle handle[CALLS];
    for (int k = 0; k < CALLS; k++)
        if (begins)
            handle[k] = call_begun(c, k, in, out[k], count, &b);
        else
            teammate_failed(mate, call_now(c, k, in, out[k], count, &b, &error), &error);
    teammate_failed(mate, comm_barrier(c, &error), &error); // behind them
    for (int k = CALLS; k-- > 0 && begins;)
        teammate_failed(mate, comm_end(handle[k], &error), &error);
    for (int k = 0; k < CALLS; k++) {
        if (memcmp(out[k], expected[k], bytes) != 0)
            teammate_wrong(mate, "call %d with %lld elements gives something else if it ends later", k,
                           (long long)count);
        free(expected[k]);
        free(out[k]);
    }
    free(in);
}

// Rank 0 ends its call only after a message that the others send after they have ended theirs.
static void check_ends_alone(struct teammate *mate, struct communicator *c, struct communicator *other, int64_t count) {
    trireme_error error;
    float *data = mem_alloc((size_t)count * sizeof *data);
    char byte = 0;
    for (int64_t i = 0; i < count; i++)
        data[i] = 1;
    struct comm_handle handle = comm_begin_all_reduce(c, data, data, count, DTYPE_F32, REDUCE_SUM, DTYPE_F32);
    for (int r = 1; r < mate->ranks && mate->rank == 0; r++)
        teammate_failed(mate, comm_receive(other, &byte, 1, r, &error), &error);
    teammate_failed(mate, comm_end(handle, &error), &error);
    if (mate->rank > 0)
        teammate_failed(mate, comm_send(other, &byte, 1, 0, &error), &error);
    for (int64_t i = 0; i < count; i++)
        if (data[i] != (float)mate->ranks)
            teammate_wrong(mate, "element %lld of a sum", (long long)i);
    free(data);
}

// A call waits for the last rank, which makes it only after all have worked in another group.
static void check_works_beside(struct teammate *mate, struct communicator *c, struct communicator *other,
                               int64_t count) {
    enum { SUMS = 8 };
    trireme_error error;
    float *data = mem_alloc((size_t)count * sizeof *data);
    int32_t agreed = 1;
    struct comm_handle handle = {0};
    const bool begins = mate->rank < mate->ranks - 1;
    if (begins)
        handle = comm_begin_all_reduce(c, &agreed, &agreed, 1, DTYPE_I32, REDUCE_SUM, DTYPE_I32);
    for (int sum = 1; sum <= SUMS; sum++) {
        for (int64_t i = 0; i < count; i++)
            data[i] = (float)sum;
        teammate_failed(mate, comm_all_reduce(other, data, data, count, DTYPE_F32, REDUCE_SUM, DTYPE_F32, &error),
                        &error);
        for (int64_t i = 0; i < count; i++)
            if (data[i] != (float)(sum * mate->ranks))
                teammate_wrong(mate, "element %lld of sum %d beside a call", (long long)i, sum);
    }
    if (begins)
        teammate_failed(mate, comm_end(handle, &error), &error);
    else
        teammate_failed(mate, comm_all_reduce(c, &agreed, &agreed, 1, DTYPE_I32, REDUCE_SUM, DTYPE_I32, &error),
                        &error);
    if (agreed != mate->ranks)
        teammate_wrong(mate, "%d ranks agreed", agreed);
    free(data);
}

static void check_many_begun(struct teammate *mate, struct communicator *c) {
    trireme_error error;
    int32_t data[COMM_UNDER_WAY];
    struct comm_handle handle[COMM_UNDER_WAY];
    for (int round = 0; round < 20; round++) {
        for (int k = 0; k < COMM_UNDER_WAY; k++) {
            data[k] = k + round;
            handle[k] = comm_begin_all_reduce(c, &data[k], &data[k], 1, DTYPE_I32, REDUCE_SUM, DTYPE_I32);
        }
        for (int k = 0; k < COMM_UNDER_WAY; k++) {
            teammate_failed(mate, comm_end(handle[k], &error), &error);
            if (data[k] != mate->ranks * (k + round))
                teammate_wrong(mate, "sum %d of round %d is %d", k, round, data[k]);
        }
    }
}

void collectives_begin(struct teammate *mate) {
    struct communicator *c = teammate_open(mate), *other = teammate_open(mate);
    for (size_t n = 1; c && other && n < ARRAY_LENGTH(counts) && !mate->wrong[0]; n++) {
        check_begun(mate, c, counts[n], false);
        check_begun(mate, c, counts[n], true);
        check_ends_alone(mate, c, other, counts[n]);
        check_works_beside(mate, c, other, counts[n]);
    }
    if (c && !mate->wrong[0])
        check_many_begun(mate, c);
    if (mate->wrong[0])
        world_break(mate->world, COMM_FAILED, mate->rank, mate->wrong);
    communicator_free(other);
    communicator_free(c);
}
