// Collectives that exchange pieces, or as many rows as are counted at run time, or that go in hops over the factors of
// an axis: what they do on threads, what the verifier proves of them, and what it refuses.
#include "exec/exec.h"
#include "memory/memory_plan.h"
#include "sim/simulate.h"
#include "support/by_hand.h"
#include "support/checkpoint.h"
#include "support/team.h"
#include "support/test.h"
#include "verify/verify.h"

#include <math.h>

enum { RANKS = 4 };

static struct program plan_on(const struct op_table *ops, const char *mesh, const char *body) {
    struct program p = program_by_hand(ops, mesh, body);
    trireme_error error = {0};
    assert_ok(program_plan(&p, ops, NULL, &error), &error);
    return p;
}

static trireme_status verify_on_all(const struct program *p, const struct op_table *ops, trireme_error *error) {
    const struct program *of_rank[RANKS];
    for (int r = 0; r < RANKS; r++)
        of_rank[r] = p;
    return programs_verify(of_rank, RANKS, ops, error);
}

static void refuse(const char *body, const char *what, const char *name) {
    struct op_table *ops = op_table_create();
    struct program p = program_by_hand(ops, "mesh fsdp 4\n", body);
    trireme_error error = {0};
    trireme_status status = program_plan(&p, ops, NULL, &error); // looks at the structure alone
    assert_words(status == TRIREME_OK ? verify_on_all(&p, ops, &error) : status, &error, what, name);
    program_release(&p);
    free(ops);
}

// A program that runs on threads, each with inputs of its own.
struct trial {
    const struct program *program;
    const struct op_table *ops;
    void (*fill)(const struct executor *executor, int rank);
    void (*check)(struct teammate *mate, const struct executor *executor);
    const char *lost; // it fails on every rank, with this message
};

static void run_on_thread(struct teammate *mate) {
    const struct trial *t = mate->context;
    trireme_error error = {0};
    struct executor *executor;
    void *state = mem_aligned(BUFFER_ALIGNMENT, (size_t)MAX(t->program->arena[SPACE_DEVICE].state_bytes, 1)),
         *step = mem_aligned(BUFFER_ALIGNMENT, (size_t)t->program->arena[SPACE_DEVICE].step_bytes);
    struct streams *streams = streams_create(&(struct member){mate->world, mate->rank}, 1);
    if (!teammate_failed(
            mate, executor_create(&executor, streams, t->program, t->ops, KERNELS_REFERENCE, state, step, &error),
            &error)) {
        t->fill(executor, mate->rank);
        const trireme_status status = executor_run(executor, NULL, &error);
        if (t->lost && (status == TRIREME_OK || !strstr(error.message, t->lost)))
            teammate_wrong(mate, "expected \"%s\", got \"%s\"", t->lost, error.message);
        else if (!t->lost && !teammate_failed(mate, status, &error))
            t->check(mate, executor);
        executor_free(executor);
    }
    streams_free(streams);
    free(state);
    free(step);
}

// ---- pieces

// 8 rows of 12 columns, of which a rank has 2: then all rows of 3 columns, and back.
static const char PIECES[] = "buffer %0 f32 input step [2,12] place fsdp 0 \"x\"\n"
                             "buffer %1 f32 act step [4,2,3] \"pieces\"\n"
                             "buffer %2 f32 act step [4,2,3] \"columns\"\n"
                             "buffer %3 f32 act step [4,2,3] \"again\"\n"
                             "buffer %4 f32 output step [2,12] place fsdp 0 \"y\"\n"
                             "template 0 forward \"t\"\n"
                             "  %1[4,2,3] = copy %0[4,2,3](3,12,1) phase forward\n"
                             "  %2[4,2,3] = all_to_all %1[4,2,3] phase forward group fsdp\n"
                             "  %3[4,2,3] = all_to_all %2[4,2,3] phase forward group fsdp\n"
                             "  %4[4,2,3](3,12,1) = copy %3[4,2,3] phase forward\n";

static void fill_rows(const struct executor *e, int rank) {
    float *x = executor_address(e, 0, 0);
    for (int i = 0; i < 24; i++)
        x[i] = (float)(rank * 24 + i);
}

static void check_columns(struct teammate *mate, const struct executor *e) {
    const float *columns = executor_address(e, 2, 0), *y = executor_address(e, 4, 0);
    for (int row = 0; row < 8; row++)
        for (int k = 0; k < 3; k++)
            if (columns[row * 3 + k] != (float)(row * 12 + mate->rank * 3 + k))
                teammate_wrong(mate, "row %d, column %d: %g", row, k, (double)columns[row * 3 + k]);
    for (int i = 0; i < 24; i++)
        if (y[i] != (float)(mate->rank * 24 + i))
            teammate_wrong(mate, "element %d comes back as %g", i, (double)y[i]);
}

static void rows_become_columns(void **unused) {
    (void)unused;
    struct op_table *ops = op_table_create();
    struct program p = plan_on(ops, "mesh fsdp 4\n", PIECES);
    trireme_error error = {0};
    assert_ok(verify_on_all(&p, ops, &error), &error);
    check_round_trip(&p, ops);
    struct trial t = {.program = &p, .ops = ops, .fill = fill_rows, .check = check_columns};
    team_run(RANKS, 60, run_on_thread, &t);
    program_release(&p);
    free(ops);
}

static void pieces_that_are_not_split_so(void **unused) {
    (void)unused;
    static const char HEAD[] = "buffer %1 f32 act step [4,2,3] \"y\"\ntemplate 0 forward \"t\"\n";
    static const struct {
        const char *input, *call, *what;
    } CASES[] = {
        {"[4,2,3]", "%1[4,2,3] = all_to_all %0[4,2,3]", "is not split along fsdp as its exchange says"},
        {"[4,2,3] place fsdp 0", "%1[4,2,3] = all_to_all %0[4,2,3]", "is not split along fsdp as its exchange says"},
        {"[4,2,3] place fsdp sum", "%1[4,2,3] = all_to_all %0[4,2,3]", "is not split along fsdp as its exchange says"},
        {"[2,4,3] place fsdp 1", "%1[2,4,3] = all_to_all %0[2,4,3]", "has 2 pieces for 4 ranks"},
        {"[4,2,4] place fsdp 1", "%1[4,2,3] = all_to_all %0[4,2,3](8,4,1)", "is not contiguous"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        char *body = mem_printf("buffer %%0 f32 input step %s \"x\"\n%s  %s phase forward group fsdp\n", CASES[i].input,
                                HEAD, CASES[i].call);
        refuse(body, CASES[i].what, "all_to_all");
        free(body);
    }
}

// Rows of several sequences, of each of which a rank has a part, would come rank by rank: they are exchanged sequence
// by sequence.
static void pieces_of_several_sequences(void **unused) {
    (void)unused;
    for (int sequences = 1; sequences <= 2; sequences++) {
        struct op_table *ops = op_table_create();
        char *body = mem_printf("buffer %%0 f32 input step [%d,%d,12] place cp 1 \"x\"\n"
                                "buffer %%1 f32 act step [4,4,3] \"pieces\"\n"
                                "buffer %%2 f32 output step [4,4,3] place cp 2 \"columns\"\n"
                                "template 0 forward \"t\"\n"
                                "  %%1[4,4,3] = copy %%0[4,4,3](3,12,1) phase forward\n"
                                "  %%2[4,4,3] = all_to_all %%1[4,4,3] phase forward group cp\n",
                                sequences, 4 / sequences);
        struct program p = plan_on(ops, "mesh cp 4\n", body);
        trireme_error error = {0};
        const trireme_status status = verify_on_all(&p, ops, &error);
        if (sequences > 1)
            assert_words(status, &error, "are not of one sequence", "pieces");
        else
            assert_ok(status, &error);
        program_release(&p);
        free(body);
        free(ops);
    }
}

// ---- rows

// What ranks send, and how many rows that are; then what they receive.
#define COUNTS                                                  \
    "buffer %0 i32 input step [4,1,1] place fsdp 1 \"sends\"\n" \
    "buffer %1 i32 act step [4,1,1] \"receives\"\n"             \
    "buffer %2 i32 act step [1,1,1] \"sent\"\n"                 \
    "buffer %3 i32 act step [1,1,1] \"received\"\n"
#define COUNTED                                                     \
    "  %1[4,1,1] = all_to_all %0[4,1,1] phase forward group fsdp\n" \
    "  %2[1,1,1] = count_sum %0[1,1,4,1] phase forward\n"           \
    "  %3[1,1,1] = count_sum %1[1,1,4,1] phase forward\n"

// Each rank sends rows of 2 columns, and gets back from each other what it has sent there.
static const char ROWS[] = COUNTS "buffer %4 f32 input step [10,2] extent %2 place fsdp 0 \"x\"\n"
                                  "buffer %5 f32 act step [16,2] extent %3 \"rows\"\n"
                                  "buffer %6 f32 act step [10,2] extent %2 \"back\"\n"
                                  "buffer %7 f32 output step [10,2] extent %2 place fsdp 0 \"y\"\n"
                                  "template 0 forward \"t\"\n" COUNTED
                                  "  %5[16,2] = all_to_all_v %4[10,2] %0[4] %1[4] phase forward group fsdp\n"
                                  "  %6[10,2] = all_to_all_v %5[16,2] %1[4] %0[4] phase forward group fsdp\n"
                                  "  %7[10,2] = add %6[10,2] %4[10,2] phase forward\n";

// Rank i sends (i + j) % 4 rows to rank j: six in all.
static void fill_counts(const struct executor *e, int rank) {
    float *x = executor_address(e, 4, 0);
    for (int i = 0; i < 20; i++)
        x[i] = (float)(rank * 100 + i);
    for (int j = 0; j < RANKS; j++)
        ((int32_t *)executor_address(e, 0, 0))[j] = (rank + j) % RANKS;
}

static void check_rows(struct teammate *mate, const struct executor *e) {
    const int32_t *receives = executor_address(e, 1, 0);
    const float *rows = executor_address(e, 5, 0), *y = executor_address(e, 7, 0);
    int at = 0;
    for (int from = 0; from < RANKS; from++) {
        int first = 0; // of its rows for this rank
        for (int j = 0; j < mate->rank; j++)
            first += (from + j) % RANKS;
        if (receives[from] != (from + mate->rank) % RANKS)
            teammate_wrong(mate, "%d rows come from rank %d", receives[from], from);
        for (int k = 0; k < receives[from]; k++, at++)
            if (rows[2 * at] != (float)(from * 100 + 2 * (first + k)))
                teammate_wrong(mate, "row %d is %g", at, (double)rows[2 * at]);
    }
    for (int i = 0; i < 12; i++)
        if (y[i] != (float)(2 * (mate->rank * 100 + i)))
            teammate_wrong(mate, "element %d comes back as %g", i, (double)y[i] / 2);
}

static void as_many_rows_as_are_counted(void **unused) {
    (void)unused;
    struct op_table *ops = op_table_create();
    struct program p = plan_on(ops, "mesh fsdp 4\n", ROWS);
    trireme_error error = {0};
    assert_ok(verify_on_all(&p, ops, &error), &error);
    check_round_trip(&p, ops);
    struct trial t = {.program = &p, .ops = ops, .fill = fill_counts, .check = check_rows};
    team_run(RANKS, 60, run_on_thread, &t);
    program_release(&p);
    free(ops);
}

static void fill_too_many(const struct executor *e, int rank) {
    for (int j = 0; j < RANKS; j++)
        ((int32_t *)executor_address(e, 0, 0))[j] = rank == 1 && j == 2 ? 11 : 1;
}

static void more_rows_than_there_is_room_for(void **unused) {
    (void)unused;
    struct op_table *ops = op_table_create();
    struct program p = plan_on(ops, "mesh fsdp 4\n", ROWS);
    struct trial t = {.program = &p, .ops = ops, .fill = fill_too_many, .lost = ""}; // whoever finds it ends all
    team_run(RANKS, 2, run_on_thread, &t);
    program_release(&p);
    free(ops);
}

static void rows_whose_counts_were_not_exchanged(void **unused) {
    (void)unused;
    // Others are numbers that no rank has told another; again, those of this program exchanged once more.
    static const char HEAD[] =
        COUNTS "buffer %4 f32 input step [10,2] extent %2 place fsdp 0 \"x\"\n"
               "buffer %5 f32 act step [10,2] extent %3 \"rows\"\n"
               "buffer %6 i32 input step [4,1,1] place fsdp 1 \"others\"\n"
               "buffer %7 i32 act step [1,1,1] \"more\"\n"
               "buffer %8 f32 act step [10,2] extent %7 \"more_rows\"\n"
               "buffer %9 f32 input step [10,2] extent %7 place fsdp 0 \"z\"\n"
               "buffer %10 f32 act step [10,2] extent %3 \"sum\"\n"
               "buffer %11 f32 input step [10,2] extent %3 place fsdp 0 \"own\"\n"
               "buffer %12 f32 act step [20,2] \"all\"\n"
               "buffer %13 i32 act step [4,1,1] \"again\"\n"
               "buffer %14 f32 act step [10,2] extent %2 \"on\"\n"
               "template 0 forward \"t\"\n" COUNTED "  %7[1,1,1] = count_sum %6[1,1,4,1] phase forward\n"
               "  %13[4,1,1] = all_to_all %1[4,1,1] phase forward group fsdp\n";
    static const char SENT[] = "  %5[10,2] = all_to_all_v %4[10,2] %0[4] %1[4] phase forward group fsdp\n";
    static const struct {
        bool sent;
        const char *calls, *what, *name;
    } CASES[] = {
        {false, "  %8[10,2] = all_to_all_v %4[10,2] %0[4] %6[4] phase forward group fsdp\n",
         "no all_to_all has exchanged", "others"},
        {false, "  %5[10,2] = all_to_all_v %9[10,2] %6[4] %1[4] phase forward group fsdp\n",
         "no all_to_all has exchanged", "others"},
        {false, "  %14[10,2] = all_to_all_v %4[10,2] %0[4] %0[4] phase forward group fsdp\n",
         "no all_to_all has exchanged", "sends"},
        {false, "  %5[10,2] = all_to_all_v %4[10,2] %0[2] %1[2] phase forward group fsdp\n", "do not add up", "sends"},
        // Rows of other ranks beside the rank's own.
        {true, "  %10[10,2] = add %5[10,2] %11[10,2] phase forward\n", "in different orders of ranks", "fsdp"},
        // Rows that are sent on, not back.
        {true, "  %5[10,2] = all_to_all_v %5[10,2] %0[4] %1[4] phase forward group fsdp\n", "which it reads", "rows"},
        {true, "  %10[10,2] = all_to_all_v %5[10,2] %0[4] %1[4] phase forward group fsdp\n", "do not add up", "sends"},
        {true, "  %14[10,2] = all_to_all_v %5[10,2] %1[4] %13[4] phase forward group fsdp\n",
         "is not split along fsdp as its exchange says", "rows"},
        // Ranks have different numbers of them, which do not lie in the order of the ranks.
        {true, "  %12[40] = all_gather %5[10] wire 0 phase forward group fsdp\n", "is some of", "received"},
        {true, "  %12[40] = all_gather %5[20] wire 0 phase forward group fsdp\n", "needs all rows", "received"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        char *body = mem_printf("%s%s%s", HEAD, CASES[i].sent ? SENT : "", CASES[i].calls);
        refuse(body, CASES[i].what, CASES[i].name);
        free(body);
    }
}

// ---- hops

// A sum of 16 elements over nodes of two ranks, two nodes of them: scattered by `scatters`, gathered by `gathers`.
static char *hops(const char *scatters, const char *gathers) {
    return mem_printf("buffer %%0 f32 input step [16] place fsdp sum place fsdp.1 sum \"x\"\n"
                      "buffer %%1 f32 act step [8] \"half\"\n"
                      "buffer %%2 f32 act step [4] \"quarter\"\n"
                      "buffer %%3 f32 act step [8] \"half again\"\n"
                      "buffer %%4 f32 output step [16] \"y\"\n"
                      "template 0 forward \"t\"\n%s%s",
                      scatters, gathers);
}

#define SCATTER(from, n, to, m, axes) \
    "  %" #to "[" #m "] = reduce_scatter %" #from "[" #n "] wire 0 phase forward group " axes "\n"
#define GATHER(from, m, to, n, axes) \
    "  %" #to "[" #n "] = all_gather %" #from "[" #m "] wire 0 phase forward group " axes "\n"
#define INSIDE_FIRST SCATTER(0, 16, 1, 8, "fsdp") SCATTER(1, 8, 2, 4, "fsdp.1")
#define OUTSIDE_FIRST SCATTER(0, 16, 1, 8, "fsdp.1") SCATTER(1, 8, 2, 4, "fsdp")
#define AT_ONCE SCATTER(0, 16, 2, 4, "fsdp+fsdp.1")
#define INSIDE_LAST GATHER(2, 4, 3, 8, "fsdp.1") GATHER(3, 8, 4, 16, "fsdp")
#define OUTSIDE_LAST GATHER(2, 4, 3, 8, "fsdp") GATHER(3, 8, 4, 16, "fsdp.1")
#define TOGETHER GATHER(2, 4, 4, 16, "fsdp+fsdp.1")

static void fill_terms(const struct executor *e, int rank) {
    float *x = executor_address(e, 0, 0);
    for (int i = 0; i < 16; i++)
        x[i] = (float)((rank + 1) * (i + 1));
}

static void check_sums(struct teammate *mate, const struct executor *e) {
    const float *y = executor_address(e, 4, 0);
    for (int i = 0; i < 16; i++)
        if (y[i] != (float)(10 * (i + 1)))
            teammate_wrong(mate, "element %d is %g", i, (double)y[i]);
}

// Where inner ranks scatter first, a rank's part is not the one that a single hop gives; gathered in the opposite order
// it is the same whole.
static void sums_in_two_hops(void **unused) {
    (void)unused;
    static const struct {
        const char *scatters, *gathers, *what; // NULL: accepted
    } CASES[] = {
        {INSIDE_FIRST, INSIDE_LAST, NULL},
        {OUTSIDE_FIRST, OUTSIDE_LAST, NULL},
        {AT_ONCE, TOGETHER, NULL},
        {AT_ONCE, OUTSIDE_LAST, NULL},
        {OUTSIDE_FIRST, TOGETHER, NULL},
        {INSIDE_FIRST, OUTSIDE_LAST, "along fsdp are not blocks in the order of the group's ranks"},
        {INSIDE_FIRST, TOGETHER, "along fsdp are not blocks in the order of the group's ranks"},
        {OUTSIDE_FIRST, INSIDE_LAST, "along fsdp.1 are not blocks in the order of the group's ranks"},
        {AT_ONCE, INSIDE_LAST, "along fsdp.1 are not blocks in the order of the group's ranks"},
        {SCATTER(0, 16, 1, 8, "fsdp"), GATHER(1, 8, 4, 16, "fsdp"), "y is not placed along fsdp.1 as it is declared"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        struct op_table *ops = op_table_create();
        char *body = hops(CASES[i].scatters, CASES[i].gathers);
        struct program p = plan_on(ops, "mesh fsdp 2 fsdp.1 2\n", body);
        trireme_error error = {0};
        const trireme_status status = verify_on_all(&p, ops, &error);
        if (CASES[i].what) {
            assert_words(status, &error, CASES[i].what, "");
        } else {
            assert_ok(status, &error);
            check_round_trip(&p, ops);
            struct trial t = {.program = &p, .ops = ops, .fill = fill_terms, .check = check_sums};
            team_run(RANKS, 60, run_on_thread, &t);
        }
        program_release(&p);
        free(body);
        free(ops);
    }
}

// ---- time

// Seconds that a step of the program communicates along each axis.
static void communicates(const char *mesh, const char *body, const char *links, double seconds[AXIS_COUNT]) {
    static const char DEVICES[] =
        "devices:\n  d: {peak: {f32: 1 GFLOP/s, bf16: 1 GFLOP/s}, memory: 1 GB, bandwidth: 1 GB/s, launch: 1 us,\n"
        "      efficiency: {other: {memory: 1}}}\n";
    struct op_table *ops = op_table_create();
    struct program p = plan_on(ops, mesh, body);
    char *text = mem_printf("%s%s", DEVICES, links);
    struct cluster cluster;
    struct simulation result;
    trireme_error error = {0};
    const struct program *of_stage[] = {&p};
    assert_ok(cluster_parse(&cluster, ops, "test", text, strlen(text), &error), &error);
    assert_ok(simulate(&result, of_stage, ops, &cluster, NULL, &error), &error);
    for (int a = 0; a < AXIS_COUNT; a++)
        seconds[a] = result.exposed[a] * result.seconds;
    simulation_release(&result);
    cluster_release(&cluster);
    program_release(&p);
    free(text);
    free(ops);
}

// Two nodes of two devices, the network ten times slower than what a node has inside.
static void hops_take_the_links_of_their_ranks(void **unused) {
    (void)unused;
    char *body = hops(INSIDE_FIRST, INSIDE_LAST);
    double seconds[AXIS_COUNT];
    communicates("mesh fsdp 2 fsdp.1 2\n", body,
                 "nodes: [{device: d, nodes: 2, devices: 2}]\n"
                 "links: [{name: l, spans: node, latency: 0 us, bandwidth: 1 GB/s},\n"
                 "        {name: net, spans: all, latency: 0 us, bandwidth: 0.1 GB/s}]\n",
                 seconds);
    // Each way, half of 64 bytes inside the node, and half of 32 between nodes.
    assert_true(fabs(seconds[AXIS_FSDP] - 2 * 32e-9) < 1e-12);
    assert_true(fabs(seconds[AXIS_FSDP_1] - 2 * 160e-9) < 1e-12);
    free(body);
}

// Seconds on four devices of which each reaches the others alike.
static double exchanges(const char *body) {
    double seconds[AXIS_COUNT];
    communicates("mesh fsdp 4\n", body,
                 "nodes: [{device: d, nodes: 1, devices: 4}]\n"
                 "links: [{name: l, spans: all, latency: 1 us, bandwidth: 1 GB/s}]\n",
                 seconds);
    return seconds[AXIS_FSDP];
}

static void exchanges_take_time(void **unused) {
    (void)unused;
    // Each way three steps of a microsecond, and three quarters of 96 bytes, a nanosecond a byte.
    assert_true(fabs(exchanges(PIECES) - 2 * 3.072e-6) < 1e-12);
    // The counts, 16 bytes; then as many rows as are expected: of 8 bytes, all 10, and 16 on the way back.
    assert_true(fabs(exchanges(ROWS) - (3 * 3e-6 + 0.75e-9 * (16 + 80 + 128))) < 1e-12);
    static const char FROM[] = "[16,2] extent %3 ", TO[] = "[16,2] extent %3 expect 4 ";
    const char *at = strstr(ROWS, FROM);
    char *some = mem_printf("%.*s%s%s", (int)(at - ROWS), ROWS, TO, at + strlen(FROM));
    assert_true(fabs(exchanges(some) - (3 * 3e-6 + 0.75e-9 * (16 + 80 + 32))) < 1e-12);
    free(some);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_become_columns),
        cmocka_unit_test(pieces_that_are_not_split_so),
        cmocka_unit_test(pieces_of_several_sequences),
        cmocka_unit_test(as_many_rows_as_are_counted),
        cmocka_unit_test(more_rows_than_there_is_room_for),
        cmocka_unit_test(rows_whose_counts_were_not_exchanged),
        cmocka_unit_test(exchanges_take_time),
        cmocka_unit_test(sums_in_two_hops),
        cmocka_unit_test(hops_take_the_links_of_their_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
