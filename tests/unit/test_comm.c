// Collectives against plain sums in order of index, bit by bit.
#include "base/region.h"
#include "comm/arithmetic.h"
#include "comm/comm.h"
#include "kernels/bf16.h"
#include "kernels/cpu/reduction_loops.h"
#include "support//sanitized.h"
#include "support/team.h"
#include "support/test.h"

#include <errno.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static const struct kind {
    enum dtype dtype, wire;
    enum reduction reduction;
} kinds[] = {
    {DTYPE_F32, DTYPE_F32, REDUCE_SUM},  {DTYPE_F32, DTYPE_BF16, REDUCE_SUM},  {DTYPE_BF16, DTYPE_BF16, REDUCE_SUM},
    {DTYPE_F64, DTYPE_F64, REDUCE_SUM},  {DTYPE_I32, DTYPE_I32, REDUCE_SUM},   {DTYPE_F32, DTYPE_F32, REDUCE_MAX},
    {DTYPE_F32, DTYPE_BF16, REDUCE_MAX}, {DTYPE_BF16, DTYPE_BF16, REDUCE_MAX}, {DTYPE_F64, DTYPE_F64, REDUCE_MAX},
    {DTYPE_I32, DTYPE_I32, REDUCE_MAX},
};
// Both sides of every change of algorithm, of chunk and of part.
static const int64_t counts[] = {0, 1, 7, 130, 1025, 2500, 20011};

enum { GUARD = 32, RANKS_MOST = 10 };

// Where systems do not let processes read one another's memory (containers with seccomp, Yama).
ssize_t process_vm_readv(pid_t process, const struct iovec *to, unsigned long to_count, const struct iovec *from,
                         unsigned long from_count, unsigned long flags) {
    errno = EPERM;
    return getenv("TEAM_UNREADABLE") ? -1
                                     : syscall(SYS_process_vm_readv, process, to, to_count, from, from_count, flags);
}

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

// How many ranks share a node, as the test was told (TEAM_LOCALS), if a reduction of `count` elements makes use of
// that; else all.
static int locals_of(const struct kind *kind, int64_t count, int ranks) {
    enum { SHORT = 3968 }; // bytes
    const char *told = getenv("TEAM_LOCALS");
    int locals = told && count * dtype_size(kind->dtype) > SHORT ? atoi(told) : ranks;
    return ranks % locals ? ranks : locals;
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

static struct sums sums_of(const struct kind *kind, int rank, int64_t i) {
    char raw[8];
    value(raw, kind->dtype, rank, i);
    struct sums x = {kind->dtype == DTYPE_BF16 ? bf16_to_float(*(uint16_t *)raw) : *(float *)raw, *(double *)raw,
                     *(int32_t *)raw};
    if (kind->wire == DTYPE_BF16)
        x.f = bf16_to_float(bf16_from_float(x.f));
    return x;
}

// The sum in order of index, first within each node; `base`, if any, is added last.
static void expected_reduction(void *to, const struct kind *kind, int ranks, int locals, int64_t i, bool all,
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

static void buffer_fill(char *p, enum dtype dtype, int rank, int64_t first, int64_t count) {
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

static bool same(struct teammate *mate, const char *what, const struct kind *kind, int64_t count, int64_t i,
                 const void *is, const void *should) {
    if (memcmp(is, should, (size_t)dtype_size(kind->dtype)) == 0)
        return true;
    teammate_wrong(mate, "%s of %lld %s (wire %s, %s): element %lld differs", what, (long long)count,
                   dtype_name(kind->dtype), dtype_name(kind->wire), kind->reduction == REDUCE_SUM ? "sum" : "max",
                   (long long)i);
    return false;
}

// ---- reductions

static void check_all_reduce(struct teammate *mate, struct communicator *c, const struct kind *kind, int64_t count,
                             bool in_place) {
    trireme_error error;
    int64_t size = dtype_size(kind->dtype);
    char *in = buffer_create(count, kind->dtype), *out = in_place ? in : buffer_create(count, kind->dtype);
    buffer_fill(in, kind->dtype, mate->rank, 0, count);
    teammate_failed(mate, comm_all_reduce(c, in, out, count, kind->dtype, kind->reduction, kind->wire, &error), &error);
    char expected[8];
    const int locals = locals_of(kind, count, mate->ranks);
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

static void check_reduce_scatter(struct teammate *mate, struct communicator *c, const struct kind *kind, int64_t count,
                                 bool in_place, bool accumulate) {
    trireme_error error;
    int64_t size = dtype_size(kind->dtype), all = count * mate->ranks, begin = count * mate->rank;
    char *in = buffer_create(all, kind->dtype);
    char *out = in_place ? in + begin * size : buffer_create(count, kind->dtype);
    buffer_fill(in, kind->dtype, mate->rank, 0, all);
    if (!in_place)
        buffer_fill(out, kind->dtype, 63, 0, count);
    teammate_failed(
        mate, comm_reduce_scatter(c, in, out, count, kind->dtype, kind->reduction, kind->wire, accumulate, &error),
        &error);
    char expected[8], base[8];
    const char *what = in_place     ? "reduce_scatter in place"
                       : accumulate ? "accumulating reduce_scatter"
                                    : "reduce_scatter";
    const int locals = locals_of(kind, count, mate->ranks);
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

static void reductions(struct teammate *mate) {
    struct communicator *c = teammate_open(mate);
    for (size_t k = 0; c && k < ARRAY_LENGTH(kinds); k++)
        for (size_t n = 0; n < ARRAY_LENGTH(counts) && !mate->wrong[0]; n++) {
            check_all_reduce(mate, c, &kinds[k], counts[n], false);
            check_all_reduce(mate, c, &kinds[k], counts[n], true);
            check_reduce_scatter(mate, c, &kinds[k], counts[n], false, false);
            check_reduce_scatter(mate, c, &kinds[k], counts[n], false, true);
            check_reduce_scatter(mate, c, &kinds[k], counts[n], true, false);
        }
    if (mate->wrong[0])
        world_break(mate->world, mate->wrong);
    communicator_free(c);
}

static void reductions_are_sums_in_order_of_index(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= 8; ranks++)
        team_run(ranks, 60, reductions, NULL);
}

// ---- moves

static void check_all_gather(struct teammate *mate, struct communicator *c, enum dtype dtype, int64_t count,
                             bool in_place) {
    trireme_error error;
    int64_t size = dtype_size(dtype), all = count * mate->ranks;
    char *out = buffer_create(all, dtype);
    char *in = in_place ? out + count * mate->rank * size : buffer_create(count, dtype);
    buffer_fill(in, dtype, mate->rank, 0, count);
    teammate_failed(mate, comm_all_gather(c, in, out, count, dtype, &error), &error);
    struct kind kind = {.dtype = dtype, .wire = dtype};
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
    struct kind kind = {.dtype = DTYPE_BF16, .wire = DTYPE_BF16};
    char *data = buffer_create(count, DTYPE_BF16), expected[8];
    buffer_fill(data, DTYPE_BF16, mate->rank, 0, count);
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
    struct kind kind = {.dtype = DTYPE_BF16, .wire = DTYPE_BF16};
    int64_t all = count * mate->ranks;
    char *in = buffer_create(all, DTYPE_BF16), *out = buffer_create(all, DTYPE_BF16), expected[8];
    buffer_fill(in, DTYPE_BF16, mate->rank, 0, all);
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
    struct kind kind = {.dtype = DTYPE_BF16, .wire = DTYPE_BF16};
    int64_t in_offset[RANKS_MOST], in_bytes[RANKS_MOST], out_offset[RANKS_MOST], out_bytes[RANKS_MOST];
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
        buffer_fill(in + in_offset[i], DTYPE_BF16, mate->rank, i * 1000000, in_bytes[i] / 2);
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

static void moves(struct teammate *mate) {
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
        world_break(mate->world, mate->wrong);
    communicator_free(c);
}

static void moves_bring_every_byte_to_its_place(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= 8; ranks++)
        team_run(ranks, 60, moves, NULL);
    team_run(RANKS_MOST, 60, moves, NULL);
}

// Data that go in several pieces, and, with the larger count, that do not fit into the caches and are written past
// them.
static void large(struct teammate *mate) {
    const int64_t count = *(const int64_t *)mate->context;
    struct communicator *c = teammate_open(mate);
    for (size_t k = 0; c && k < (mate->ranks == 2 ? 3 : 1) && !mate->wrong[0]; k++) {
        check_all_reduce(mate, c, &kinds[k], count, false);
        check_all_reduce(mate, c, &kinds[k], count, true);
        check_reduce_scatter(mate, c, &kinds[k], count / 2 + 1, false, false);
        check_all_gather(mate, c, kinds[k].dtype, count / 2 + 1, false);
    }
    if (c && !mate->wrong[0]) {
        check_broadcast(mate, c, count, 1);
        check_all_to_all(mate, c, count);
    }
    if (mate->wrong[0])
        world_break(mate->world, mate->wrong);
    communicator_free(c);
}

static void large_data_too(void **state) {
    (void)state;
    int64_t large_counts[] = {700001, 4200001};
    for (int ranks = 2; ranks <= 4; ranks++)
        team_run(ranks, 60, large, &large_counts[0]);
    team_run(2, 60, large, &large_counts[1]);
}

static void not_numbers(struct teammate *mate) {
    trireme_error error;
    struct communicator *c = teammate_open(mate);
    for (int holder = 0; c && holder < mate->ranks; holder++) {
        float x = mate->rank == holder ? __builtin_nanf("") : (float)mate->rank;
        uint16_t h = bf16_from_float(x);
        double d = (double)x;
        teammate_failed(mate, comm_all_reduce(c, &x, &x, 1, DTYPE_F32, REDUCE_MAX, DTYPE_F32, &error), &error);
        teammate_failed(mate, comm_all_reduce(c, &h, &h, 1, DTYPE_BF16, REDUCE_MAX, DTYPE_BF16, &error), &error);
        teammate_failed(mate, comm_all_reduce(c, &d, &d, 1, DTYPE_F64, REDUCE_MAX, DTYPE_F64, &error), &error);
        if (x == x || bf16_to_float(h) == bf16_to_float(h) || d == d)
            teammate_wrong(mate, "the NaN of rank %d got lost", holder);
    }
    communicator_free(c);
}

static void the_greatest_of_numbers_and_a_nan_is_a_nan(void **state) {
    (void)state;
    team_run(3, 60, not_numbers, NULL);
}

static void every_instruction_set_gives_the_same_bits(void **state) {
    (void)state;
    enum { COUNT = 1000 + 13 };
    static struct chunk chunk[2];
    char *in[3];
    for (size_t k = 0; k < ARRAY_LENGTH(kinds); k++) {
        for (int r = 0; r < 3; r++) {
            in[r] = mem_alloc(COUNT * 8);
            buffer_fill(in[r], kinds[k].dtype, r, 0, COUNT);
        }
        const void *contributions[3] = {in[0], in[1], in[2]};
        for (enum isa isa = ISA_BASE; isa < ISA_COUNT; isa++)
            for (int ranks = 1; ranks <= 3 && isa_usable(isa); ranks++)
                for (int wire = 0; wire < 2; wire++) {
                    const void *result[2];
                    for (int i = 0; i < 2; i++)
                        result[i] =
                            reduce_chunk(cpu_reduction_loops_for(kinds[k].dtype, kinds[k].wire, i ? isa : ISA_BASE),
                                         kinds[k].reduction == REDUCE_MAX, wire, contributions, ranks, 3, COUNT - 3,
                                         wire ? NULL : in[2], &chunk[i]);
                    assert_memory_equal(result[0], result[1], (COUNT - 3) * dtype_size(kinds[k].dtype));
                }
        for (int r = 0; r < 3; r++)
            free(in[r]);
    }
}

// A rank of a large model has dozens of communicators, most of which never move short data or reduce anything:
// these take little memory.
static void open_many(struct teammate *mate) {
    enum { COMMUNICATORS = 8 };
    const size_t *before = mate->context;
    struct communicator *c[COMMUNICATORS];
    for (int i = 0; i < COMMUNICATORS; i++)
        if (!(c[i] = teammate_open(mate)))
            return;
    trireme_error error;
    teammate_failed(mate, comm_barrier(c[0], &error), &error);
    size_t taken = memory_resident() - *before;
    if (!SANITIZED && taken > (size_t)mate->ranks * COMMUNICATORS * (7 << 10))
        teammate_wrong(mate, "%d communicators of %d ranks take %zu bytes", COMMUNICATORS, mate->ranks, taken);
    teammate_failed(mate, comm_barrier(c[0], &error), &error);
    for (int i = 0; i < COMMUNICATORS; i++)
        communicator_free(c[i]);
}

static void unused_communicators_take_little(void **state) {
    (void)state;
    size_t before = memory_resident();
    team_run(24, 60, open_many, &before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unused_communicators_take_little), // first: of what others have freed it takes nothing
        cmocka_unit_test(reductions_are_sums_in_order_of_index),
        cmocka_unit_test(moves_bring_every_byte_to_its_place),
        cmocka_unit_test(large_data_too),
        cmocka_unit_test(every_instruction_set_gives_the_same_bits),
        cmocka_unit_test(the_greatest_of_numbers_and_a_nan_is_a_nan),
    };
    cmocka_set_test_filter(getenv("TEAM_TEST"));
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    team_end();
    return failed;
}
