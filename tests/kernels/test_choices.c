// The table of chosen ways: by what a choice is identified, its file, and that the fastest way is chosen.
#include "base/clock.h"
#include "kernels/choices.h"
#include "support/checkpoint.h"
#include "support/op_table.h"

#include <unistd.h>

// [8,64] times [32,64]; all present.
static struct call product(void) {
    static char present;
    struct call call = {.op = OP_MATMUL, .inputs = 4, .outputs = 1, .threads = 2};
    call.in[0] = (struct tensor){&present, DTYPE_F32, 2, {8, 64}, {64, 1}};
    call.in[1] = (struct tensor){&present, DTYPE_F32, 2, {32, 64}, {64, 1}};
    call.out[0] = (struct tensor){&present, DTYPE_F32, 2, {8, 32}, {32, 1}};
    return call;
}

static void add(struct choices *choices, const struct call *call, enum kernel_way way) {
    struct choice c = {.call = choices_call(table, call), .on = mem_strdup(choices->on), .way = way};
    c.seconds[WAY_RULE] = 2.5e-3;
    c.seconds[way] = 1.0 / 3;
    VEC_PUSH(&choices->item, c);
}

static void a_choice_is_of_one_call(void **state) {
    (void)state;
    struct choices choices;
    struct call call = product(), other[6];
    choices_create(&choices);
    add(&choices, &call, WAY_BY_ROWS);
    assert_string_equal(choices.item.item[0].call, "matmul f32[8,64] f32[32,64] - - -> f32[8,32], 2 threads");
    assert_int_equal(choices_way(&choices, table, &call, 3), WAY_BY_ROWS);
    // A way that the call does not have.
    assert_int_equal(choices_way(&choices, table, &call, 5), WAY_RULE);
    for (size_t i = 0; i < ARRAY_LENGTH(other); i++)
        other[i] = call;
    other[0].threads = 1;
    other[1].accumulate = true;
    other[2].in[0].stride[0] = 65;
    other[3].in[2] = (struct tensor){&call, DTYPE_F32, 1, {32}, {1}};
    other[4].out[0].dtype = DTYPE_BF16;
    other[5].op = OP_MATMUL_DX;
    for (size_t i = 0; i < ARRAY_LENGTH(other); i++)
        assert_null(choices_find(&choices, table, &other[i]));
    choices.item.item[0].on[0] ^= 1; // another processor's
    assert_null(choices_find(&choices, table, &call));
    choices_release(&choices);
}

static trireme_status parse(struct choices *choices, const char *text, trireme_error *error) {
    return choices_parse(choices, text, strlen(text), "kernels.json", error);
}

static void assert_read_as_printed(const struct choices *choices) {
    struct choices read;
    trireme_error error;
    struct text first = {0}, second = {0};
    choices_print(choices, &first);
    choices_create(&read);
    assert_ok(parse(&read, first.text, &error), &error);
    choices_print(&read, &second);
    assert_string_equal(first.text, second.text);
    assert_int_equal(read.item.count, choices->item.count);
    for (size_t i = 0; i < read.item.count; i++)
        assert_int_equal(read.item.item[i].way, choices->item.item[i].way);
    choices_release(&read);
    text_release(&first);
    text_release(&second);
}

static void what_is_printed_is_read_back(void **state) {
    (void)state;
    struct choices choices;
    struct call call = product();
    choices_create(&choices);
    assert_read_as_printed(&choices);
    for (enum kernel_way way = WAY_RULE; way < KERNEL_WAYS; way++) {
        call.threads++;
        add(&choices, &call, way);
    }
    assert_read_as_printed(&choices);
    choices_release(&choices);
}

static void damaged_texts_are_refused(void **state) {
    (void)state;
#define ENTRY(way, seconds) "{\"call\":\"a\",\"on\":\"b\",\"way\":" way ",\"seconds\":" seconds "}"
#define GOOD_ENTRY ENTRY("\"narrow\"", "{\"rule\":1}")
#define TEXT_OF(entries) "{\"version\":1,\"kernels\":[" entries "]}"
    static const struct {
        const char *content, *says;
    } TEXTS[] = {
        {"", "kernels.json"},
        {"{\"version\":1}", "\"kernels\""},
        {"{\"version\":2,\"kernels\":[]}", "\"version\""},
        {"[]", "kernels.json"},
        {TEXT_OF("7"), "no object"},
        {TEXT_OF(GOOD_ENTRY "," ENTRY("\"sideways\"", "{}")), "\"sideways\", which no kernel has"},
        {TEXT_OF(GOOD_ENTRY "," ENTRY("3", "{}")), "\"way\""},
        {TEXT_OF(GOOD_ENTRY "," ENTRY("\"rule\"", "{\"rule\":-1}")), "\"rule\""},
        {TEXT_OF(GOOD_ENTRY "," ENTRY("\"rule\"", "[]")), "\"seconds\""},
        {TEXT_OF(GOOD_ENTRY ",{}"), "\"call\""},
    };
    struct choices choices;
    struct call call = product();
    trireme_error error;
    choices_create(&choices);
    add(&choices, &call, WAY_NARROW);
    assert_ok(parse(&choices, TEXT_OF(GOOD_ENTRY), &error), &error);
    assert_int_equal(choices.item.count, 2);
    for (size_t i = 0; i < ARRAY_LENGTH(TEXTS); i++) {
        assert_refused(parse(&choices, TEXTS[i].content, &error), TRIREME_ERROR_CORRUPT, &error, TEXTS[i].says);
        assert_int_equal(choices.item.count, 2);
    }
    choices_release(&choices);
}

// ---- measuring

// Kernels that take a given number of nanoseconds for each way, the same in each call.
static int64_t takes[KERNEL_WAYS];
static double flops = 1e9; // what is said of them
static int64_t held;       // that another program has the processor for, once
static int runs, threads_seen;

static void spin(const struct call *call) {
    const int64_t until = clock_thread() + takes[call->way];
    runs++;
    usleep((useconds_t)(held / 1000));
    held = 0;
    threads_seen |= call->threads;
    for (int i = 0; i < 2; i++)
        for (int64_t k = 0; k < call->in[i].dim[0] * call->in[i].dim[1]; k++)
            assert_true(((float *)call->in[i].data)[k] > -1 && ((float *)call->in[i].data)[k] < 1);
    // 3.0, which no input may become.
    memset(call->out[0].data, 0x40, (size_t)(call->out[0].dim[0] * call->out[0].dim[1]) * sizeof(float));
    memset(call->workspace, 0, (size_t)call->workspace_bytes);
    while (clock_thread() < until)
        ;
}

static const struct choice *measure(struct choices *choices, const struct call *call, unsigned ways, int64_t times) {
    const struct frequent_call of = {*call, spin, ways, 1, flops}, calls[] = {of, of};
    trireme_error error;
    runs = 0;
    assert_ok(choices_measure(choices, table, calls, 2, times, 1 << 16, &error), &error);
    return choices_find(choices, table, call);
}

static bool chooses(const int *microseconds, enum kernel_way best) {
    struct choices choices;
    struct call call = product();
    call.workspace_bytes = 1000;
    choices_create(&choices);
    for (int way = 0; way < 3; way++)
        takes[way] = 1000 * microseconds[way];
    const struct choice *c = measure(&choices, &call, 7, INT64_MAX);
    assert_non_null(c);
    assert_int_equal(choices.item.count, 1);
    for (int way = 0; way < 3; way++)
        assert_true(c->seconds[way] >= 1e-9 * (double)takes[way]);
    assert_true(c->seconds[WAY_SMALL_BLOCKS] == 0);
    bool chosen = c->way == best;
    // A choice that is known is not measured again.
    measure(&choices, &call, 7, INT64_MAX);
    assert_int_equal(runs, 0);
    choices_release(&choices);
    return chosen;
}

// Replaces clock_now, which on a busy machine would mostly measure other programs.
static bool alone;
int64_t __real_clock_now(void);
int64_t __wrap_clock_now(void);
int64_t __wrap_clock_now(void) {
    return alone ? clock_thread() : __real_clock_now();
}

// What the system does meanwhile may take part of it from any of the ways, but not always.
static void the_fastest_way_is_chosen(void **state) {
    (void)state;
    static const struct {
        int microseconds[3];
        enum kernel_way best;
    } CASES[] = {{{400, 150, 300}, WAY_BY_ROWS}, {{400, 300, 150}, WAY_BY_COLUMNS}, {{400, 800, 600}, WAY_RULE}};
    alone = true;
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        bool chosen = false;
        for (int attempt = 0; attempt < 10 && !chosen; attempt++)
            chosen = chooses(CASES[i].microseconds, CASES[i].best);
        if (!chosen)
            fail_msg("%s was never chosen", kernel_way_name(CASES[i].best));
    }
    alone = false;
}

static void measuring_takes_a_small_part_of_the_run(void **state) {
    (void)state;
    struct choices choices;
    struct call call = product();
    choices_create(&choices);
    takes[WAY_RULE] = takes[WAY_BY_ROWS] = 1000000;
    // A hundredth of 99 runs of 2 ms is less than two calls; one of 110 is that, but not the rounds of two ways.
    assert_null(measure(&choices, &call, 3, 0));
    assert_null(measure(&choices, &call, 3, 99));
    assert_int_equal(runs, 0);
    assert_null(measure(&choices, &call, 3, 110));
    assert_int_equal(runs, 2);
    // Calls of a few operations do not pay for the memory.
    flops = 1e3;
    assert_null(measure(&choices, &call, 3, 2000));
    assert_int_equal(runs, 0);
    flops = 1e9;
    held = 500000000; // more than the 40 ms that it may take
    assert_non_null(measure(&choices, &call, 3, 2000));
    assert_true(runs > 4);
    assert_int_equal(threads_seen, 2);
    choices_release(&choices);
}

// Operands that each need more than the memory they would move around in.
static void large_operands_lie_apart(void **state) {
    (void)state;
    struct choices choices;
    struct call call = product();
    choices_create(&choices);
    takes[WAY_RULE] = takes[WAY_BY_ROWS] = 1000000;
    for (int i = 0; i < 2; i++)
        call.in[i] = (struct tensor){call.in[i].data, DTYPE_F32, 2, {16, 1024}, {1024, 1}};
    call.out[0] = (struct tensor){call.out[0].data, DTYPE_F32, 2, {16, 512}, {512, 1}};
    assert_non_null(measure(&choices, &call, 3, INT64_MAX));
    assert_true(runs > 4);
    choices_release(&choices);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_choice_is_of_one_call),
        cmocka_unit_test(what_is_printed_is_read_back),
        cmocka_unit_test(damaged_texts_are_refused),
        cmocka_unit_test(the_fastest_way_is_chosen),
        cmocka_unit_test(measuring_takes_a_small_part_of_the_run),
        cmocka_unit_test(large_operands_lie_apart),
    };
    return cmocka_run_group_tests(tests, op_table_setup, op_table_teardown);
}
