// Collectives whose values travel as codes: sets of instructions that stand for a collective. What they do on threads,
// with a codec that loses nothing and with one that rounds; that they are compared with the row while codecs lose
// nothing; and what is refused.
#include "exec/exec.h"
#include "memory/memory_plan.h"
#include "support/by_hand.h"
#include "support/checkpoint.h"
#include "support/team.h"
#include "support/test.h"
#include "verify/verify.h"

#include <math.h>

enum { RANKS = 2 };

static trireme_status codecs_verify(const struct program *p, const struct op_table *ops, trireme_error *error) {
    const struct program *of_rank[RANKS];
    for (int r = 0; r < RANKS; r++)
        of_rank[r] = p;
    return programs_verify(of_rank, RANKS, ops, error);
}

static void codecs_refuse(const char *body, const char *what, const char *name) {
    struct op_table *ops = op_table_create();
    struct program p = program_by_hand(ops, "mesh fsdp 2\n", body);
    trireme_error error = {0};
    trireme_status status = program_plan(&p, ops, NULL, &error);
    if (status == TRIREME_OK)
        status = codecs_verify(&p, ops, &error);
    assert_words(status, &error, what, name);
    program_release(&p);
    free(ops);
}

// ---- programs

#define TEMPLATE "template 0 forward \"t\"\n"

#define GATHER_BUFFERS(dtype, width)                          \
    "buffer %0 " dtype " input step [6] place fsdp 0 \"x\"\n" \
    "buffer %1 u8 act local [6," width "] \"code\"\n"         \
    "buffer %2 u8 act local [12," width "] \"codes\"\n"       \
    "buffer %3 " dtype " output step [12] \"y\"\n"
#define GATHER(codec, width, part, whole)                                                             \
    TEMPLATE                                                                                          \
    "  %1[6," width "] = encode_" codec " %0[6] phase forward set 1 of all_gather\n"                  \
    "  %2[" whole "] = all_gather %1[" part "] wire 0 phase forward group fsdp set 1 of all_gather\n" \
    "  %3[12] = decode_" codec " %2[12," width "] phase forward set 1 of all_gather\n"
static const char GATHERED[] = GATHER_BUFFERS("f32", "4") GATHER("bytes", "4", "24", "48");
static const char GATHERED_ROUNDED[] = GATHER_BUFFERS("f32", "2") GATHER("bf16", "2", "12", "24");

// Each rank gets the codes of its part from all, adds up what they stand for, and gives codes of the sum to all.
#define REDUCE_BUFFERS(dtype, width)                                                           \
    "buffer %0 " dtype " input step [8] place fsdp sum \"x\"\n"                                \
    "buffer %1 u8 act local [8," width "] \"code\"\n"                                          \
    "buffer %2 u8 act local [8," width "] \"pieces\"\n"                                        \
    "buffer %3 " dtype " act local [4] \"own\"\nbuffer %4 " dtype " act local [4] \"other\"\n" \
    "buffer %5 " dtype " act local [4] \"sum\"\n"                                              \
    "buffer %6 u8 act local [4," width "] \"code.sum\"\n"                                      \
    "buffer %7 u8 act local [8," width "] \"codes.sum\"\n"                                     \
    "buffer %8 " dtype " output step [8] \"y\"\n"
#define SCATTER(codec, width, piece)                                                                    \
    TEMPLATE                                                                                            \
    "  %1[8," width "] = encode_" codec " %0[8] phase forward set 1 of all_reduce\n"                    \
    "  %2[2," piece ",1] = all_to_all %1[2," piece ",1] phase forward group fsdp set 1 of all_reduce\n" \
    "  %3[4] = decode_" codec " %2[4," width "] phase forward set 1 of all_reduce\n"                    \
    "  %4[4] = decode_" codec " %2[4," width "]+" piece " phase forward set 1 of all_reduce\n"
#define ADD(a, b) "  %5[1,4] = add %" a "[1,4] %" b "[1,4] phase forward set 1 of all_reduce\n"
#define SHARE(codec, width, piece, whole)                                                              \
    "  %6[4," width "] = encode_" codec " %5[4] phase forward set 1 of all_reduce\n"                   \
    "  %7[" whole "] = all_gather %6[" piece "] wire 0 phase forward group fsdp set 1 of all_reduce\n" \
    "  %8[8] = decode_" codec " %7[8," width "] phase forward set 1 of all_reduce\n"
static const char REDUCED[] =
    REDUCE_BUFFERS("f32", "4") SCATTER("bytes", "4", "16") ADD("3", "4") SHARE("bytes", "4", "16", "32");
static const char REDUCED_ROUNDED[] =
    REDUCE_BUFFERS("f32", "2") SCATTER("bf16", "2", "8") ADD("3", "4") SHARE("bf16", "2", "8", "16");

// ---- on threads

struct codecs_trial {
    const struct program *program;
    const struct op_table *ops;
    bool sums;    // else it gathers
    double bound; // of the error of an element, as a part of the sum of the magnitudes that it is made of
    bool rounds;  // and some elements are not exact
};

static double codecs_input(int rank, int i) {
    return (rank + 1) * 0.7 * (i % 2 ? 1 : -1) / (i + 3);
}

static void codecs_run(struct teammate *mate) {
    const struct codecs_trial *t = mate->context;
    trireme_error error = {0};
    struct executor *executor;
    void *step = mem_aligned(BUFFER_ALIGNMENT, (size_t)t->program->arena[SPACE_DEVICE].step_bytes);
    struct streams *streams = streams_create(&(struct member){mate->world, mate->rank}, 1);
    if (!teammate_failed(mate,
                         executor_create(&executor, streams, t->program, t->ops, KERNELS_REFERENCE, NULL, step, &error),
                         &error)) {
        const int count = t->sums ? 8 : 12, own = t->sums ? 8 : 6;
        float *x = executor_address(executor, 0, 0);
        const float *y = executor_address(executor, t->sums ? 8 : 3, 0);
        bool rounded = false;
        for (int i = 0; i < own; i++)
            x[i] = (float)codecs_input(mate->rank, i);
        if (!teammate_failed(mate, executor_run(executor, NULL, &error), &error))
            for (int i = 0; i < count; i++) {
                double expected = 0, size = 0;
                for (int r = t->sums ? 0 : i / own; r < (t->sums ? RANKS : i / own + 1); r++) {
                    expected += (float)codecs_input(r, i % own);
                    size += fabs(codecs_input(r, i % own));
                }
                rounded |= y[i] != (float)expected;
                if (!(fabs(y[i] - expected) <= t->bound * size + 1e-7 * size))
                    teammate_wrong(mate, "element %d is %g, not %g", i, (double)y[i], expected);
            }
        if (rounded != t->rounds)
            teammate_wrong(mate, "values are %s", rounded ? "rounded" : "exact");
        executor_free(executor);
    }
    streams_free(streams);
    free(step);
}

static void values_travel_as_codes(void **unused) {
    (void)unused;
    static const struct {
        const char *body;
        bool sums;
        double bound;
        bool rounds;
    } CASES[] = {{GATHERED, false, 0, false},
                 {GATHERED_ROUNDED, false, 0x1p-8, true},
                 {REDUCED, true, 0, false},
                 {REDUCED_ROUNDED, true, 0x1p-7 + 0x1p-16, true}}; // rounded twice
    struct op_table *ops = op_table_create();
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        struct program p = program_by_hand(ops, "mesh fsdp 2\n", CASES[i].body);
        trireme_error error = {0};
        assert_ok(program_plan(&p, ops, NULL, &error), &error);
        assert_ok(codecs_verify(&p, ops, &error), &error);
        check_round_trip(&p, ops);
        struct codecs_trial t = {&p, ops, CASES[i].sums, CASES[i].bound, CASES[i].rounds};
        team_run(RANKS, 60, codecs_run, &t);
        program_release(&p);
    }
    free(ops);
}

// ---- refused

static void what_is_no_collective(void **unused) {
    (void)unused;
    static const struct {
        const char *body, *what, *name;
    } CASES[] = {
        // One rank's terms twice, the others' never.
        {REDUCE_BUFFERS("f32", "4") SCATTER("bytes", "4", "16") ADD("3", "3") SHARE("bytes", "4", "16", "32"),
         "its set does not make the y of all_reduce", "encode_bytes"},
        // Codes of one codec for the decoder of another.
        {GATHER_BUFFERS("bf16", "2") TEMPLATE "  %1[6,2] = encode_bytes %0[6] phase forward set 1 of all_gather\n"
                                              "  %2[24] = all_gather %1[12] wire 0 phase forward group fsdp set 1 of "
                                              "all_gather\n"
                                              "  %3[12] = decode_bf16 %2[12,2] phase forward set 1 of all_gather\n",
         "which is not made by its encoder", "codes"},
        // Only the rank's own codes, decoded twice.
        {GATHER_BUFFERS("f32", "4") TEMPLATE "  %1[6,4] = encode_bytes %0[6] phase forward set 1 of all_gather\n"
                                             "  %3[6] = decode_bytes %1[6,4] phase forward set 1 of all_gather\n"
                                             "  %3[6]+6 = decode_bytes %1[6,4] phase forward set 1 of all_gather\n",
         "makes the y of its set a second time", "decode_bytes"},
        // Codes that others look at.
        {GATHER_BUFFERS("f32", "4") "buffer %4 f32 act step [6] \"again\"\n" GATHER(
             "bytes", "4", "24", "48") "  %4[6] = decode_bytes %1[6,4] phase forward\n",
         "makes code for others than its set", "code"},
        // Sums of codes.
        {GATHER_BUFFERS("f32", "4") TEMPLATE "  %1[6,4] = encode_bytes %0[6] phase forward\n"
                                             "  %1[24] = all_reduce %1[24] max 0 wire 0 phase forward group fsdp\n",
         "adds up code, which are bytes of codes", "all_reduce"},
        // Half of the bytes.
        {GATHER_BUFFERS("f32", "2") GATHER("bytes", "2", "12", "24"), "does not take as many bytes as x", "code"},
        // A part of a sum is not gathered, nor is what is whole.
        {GATHER_BUFFERS("f32", "4")
             GATHER("bytes", "4", "24", "48") "  %3[12] = all_reduce %3[12] max 0 wire 0 phase forward group fsdp\n",
         "reduced twice", "y"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++)
        codecs_refuse(CASES[i].body, CASES[i].what, CASES[i].name);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_travel_as_codes),
        cmocka_unit_test(what_is_no_collective),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
