// What a run does over and over, from the table of programs: a step, or all from one meeting of islands to the next.
#include "compile/period.h"
#include "sim/sequence.h"
#include "support/checkpoint.h"
#include "support/op_table.h"

// "train", "outer_take, outer_exchange begins, ..." of a configuration.
static void assert_period(const char *const *overrides, size_t count, int64_t steps, int64_t further,
                          const char *expected) {
    static const char *const WORDS[] = {[PERIOD_RUN] = "", [PERIOD_BEGIN] = " begins", [PERIOD_END] = " ends"};
    struct config config;
    struct text text = {0};
    trireme_error error = {0};
    assert_ok(config_load(&config, NULL, overrides, count, &error), &error);
    struct period period = period_of(&config);
    period_shorten(&period, 2);
    for (size_t i = 0; i < period.parts.count; i++) {
        const struct period_part *part = &period.parts.item[i];
        text_add(&text, "%s%s", i ? ", " : "", program_kinds[part->kind].name);
        text_add(&text, part->part ? ".%d%s" : "%.0d%s", part->part, WORDS[part->action]);
        assert_true(period_has(&period, part->kind, part->part));
    }
    assert_string_equal(text.text, expected);
    assert_int_equal(period.steps, steps);
    assert_int_equal(period.further, further);
    assert_false(period_has(&period, PROGRAM_GENERATE, 0));
    VEC_RELEASE(&period.parts);
    text_release(&text);
    config_release(&config);
}

static void a_period_follows_from_the_table(void **unused) {
    (void)unused;
    const char *const keys[] = {"parallelism.island_degree=2", "outer.method=local_sgd", "outer.sync_steps=5",
                                "outer.delay_steps=0"};
    const char *const later[] = {keys[0], keys[1], keys[2], "outer.delay_steps=2"};
    const char *const always[] = {keys[0], keys[1], keys[2], "outer.delay_steps=5"};
    assert_period(NULL, 0, 1, 0, "train");
    assert_period(keys, 4, 5, 4, "outer_meet, train");
    assert_period(later, 4, 5, 3, "outer_take, outer_exchange begins, train, train, outer_exchange ends, outer_settle");
    assert_period(always, 4, 5, 3, // of the five beside it, two are left
                  "outer_take, outer_exchange begins, train, train, outer_exchange ends, outer_settle");
    const char *const round[] = {keys[0], "outer.method=co2", keys[2]};
    const char *const parts[] = {keys[0], "outer.method=streaming_diloco", "outer.sync_steps=8", "outer.delay_steps=1"};
    assert_period(round, 3, 5, 3, "outer_turn, outer_exchange begins, train, train, outer_exchange ends");
    assert_period(parts, 4, 8, 6,
                  "outer_take, outer_exchange begins, train, outer_exchange ends, outer_settle, outer_take.1, "
                  "outer_exchange.1 begins, train, outer_exchange.1 ends, outer_settle.1");
}

// The streams of a program that runs beside others are its own, and all its tables come along.
static void programs_are_joined(void **unused) {
    (void)unused;
    struct program step, beside, out;
    trireme_error error = {0};
    const int64_t dim[2] = {4, 4};
    struct program *const made[] = {&step, &beside};
    const char *const names[] = {"train", "outer_exchange"};
    for (int i = 0; i < 2; i++) {
        struct program *p = made[i];
        program_init(p, names[i], 1);
        const int x = program_buffer(p, "x", DTYPE_F32, KIND_INPUT, SCOPE_STEP, 2, dim),
                  y = program_buffer(p, "y", DTYPE_F32, KIND_OUTPUT, SCOPE_STEP, 2, dim);
        const int template = program_template(p, names[i], PHASE_FORWARD, 0);
        const struct operand of = operand_whole(p, x), to = operand_whole(p, y);
        program_emit(p, template, OP_ADD, PHASE_FORWARD, NONE, GIVEN(ADD, [INPUT(ADD, a)] = of, [INPUT(ADD, b)] = of),
                     1, &to, NULL);
        program_invoke(p, template, 0, true, true);
    }
    struct period period = {.steps = 2};
    const struct period_part parts[] = {{PROGRAM_OUTER_EXCHANGE, 0, PERIOD_BEGIN},
                                        {PROGRAM_TRAIN, 0, PERIOD_RUN},
                                        {PROGRAM_OUTER_EXCHANGE, 0, PERIOD_END},
                                        {PROGRAM_TRAIN, 0, PERIOD_RUN}};
    for (size_t i = 0; i < ARRAY_LENGTH(parts); i++)
        VEC_PUSH(&period.parts, parts[i]);
    const struct program *const of_part[] = {&beside, &step, &beside, &step};
    assert_ok(sequence_create(&out, &period, of_part, &error), &error);
    assert_int_equal(out.buffers.count, 4);
    assert_int_equal(out.streams.count, 2);
    assert_string_equal(out.streams.item[1].name, "outer_exchange/compute");
    assert_int_equal(out.schedule.count, 3 + 3); // runs, each after what waits for those before it
    const struct instruction *second = &out.templates.item[1].instructions.item[0];
    assert_int_equal(second->stream, 1);
    assert_int_equal(second->in[INPUT(ADD, b)].buffer, 2);
    // The step that comes last waits for what ran beside the first one, which does not.
    for (int run = 0; run < 2; run++) {
        const struct template *before = &out.templates.item[out.schedule.item[2 + 2 * run].template];
        assert_int_equal(before->instructions.count, 1);
        assert_int_equal(before->instructions.item[0].stream, STREAM_COMPUTE);
        assert_int_equal(before->instructions.item[0].wait[1], run ? wait_for_all_but(0) : 0);
    }
    VEC_RELEASE(&period.parts);
    program_release(&out);
    program_release(&step);
    program_release(&beside);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_period_follows_from_the_table),
        cmocka_unit_test(programs_are_joined),
    };
    return cmocka_run_group_tests(tests, op_table_setup, op_table_teardown);
}
