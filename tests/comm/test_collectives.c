// Collectives against plain sums in order of index, bit by bit.
#include "base/bf16.h"
#include "base/region.h"
#include "comm/arithmetic.h"
#include "comm/comm.h"
#include "kernels/cpu/reduction_loops.h"
#include "support/collectives.h"
#include "support/sanitized.h"
#include "support/test.h"

#include <errno.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

// Where systems do not let processes read one another's memory (containers with seccomp, Yama).
ssize_t process_vm_readv(pid_t process, const struct iovec *to, unsigned long to_count, const struct iovec *from,
                         unsigned long from_count, unsigned long flags) {
    errno = EPERM;
    return getenv("TEAM_UNREADABLE") ? -1
                                     : syscall(SYS_process_vm_readv, process, to, to_count, from, from_count, flags);
}

static void reductions_are_sums_in_order_of_index(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= 8; ranks += SANITIZED ? 3 : 1)
        team_run(ranks, 60, collectives_reduce, NULL);
}

static void moves_bring_every_byte_to_its_place(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= 8; ranks += SANITIZED ? 3 : 1)
        team_run(ranks, 60, collectives_move, NULL);
    team_run(COLLECTIVES_RANKS, 60, collectives_move, NULL);
}

static void large_data_too(void **state) {
    (void)state;
    int64_t large_counts[] = {700001, 4200001};
    for (int ranks = 2; ranks <= 4; ranks++)
        team_run(ranks, 60, collectives_large, &large_counts[0]);
    team_run(2, 60, collectives_large, &large_counts[1]);
}

static void calls_may_end_later(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= 4; ranks++)
        team_run(ranks, 60, collectives_begin, NULL);
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
    for (size_t k = 0; k < COLLECTIVE_KINDS; k++) {
        for (int r = 0; r < 3; r++) {
            in[r] = mem_alloc(COUNT * 8);
            collective_fill(in[r], collective_kinds[k].dtype, r, 0, COUNT);
        }
        const void *contributions[3] = {in[0], in[1], in[2]};
        for (enum isa isa = ISA_BASE; isa < ISA_COUNT; isa++)
            for (int ranks = 1; ranks <= 3 && isa_usable(isa); ranks++)
                for (int wire = 0; wire < 2; wire++) {
                    const void *result[2];
                    for (int i = 0; i < 2; i++)
                        result[i] = reduce_chunk(cpu_reduction_loops_for(collective_kinds[k].dtype,
                                                                         collective_kinds[k].wire, i ? isa : ISA_BASE),
                                                 collective_kinds[k].reduction == REDUCE_MAX, wire, contributions,
                                                 ranks, 3, COUNT - 3, wire ? NULL : in[2], &chunk[i]);
                    assert_memory_equal(result[0], result[1], (COUNT - 3) * dtype_size(collective_kinds[k].dtype));
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
        cmocka_unit_test(calls_may_end_later),
        cmocka_unit_test(every_instruction_set_gives_the_same_bits),
        cmocka_unit_test(the_greatest_of_numbers_and_a_nan_is_a_nan),
    };
    cmocka_set_test_filter(getenv("TEAM_TEST"));
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    team_end();
    return failed;
}
