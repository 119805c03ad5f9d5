// A run takes the ways of running kernels that its directory names, whatever they are, and they change no bit.
#include "engine/tuning.h"
#include "exec/executor.h"
#include "support/runs.h"
#include "support/small_model.h"

#define SHAPES RUNS_LLAMA, "training.steps=6", "training.threads=2", "data.split=[0.9, 0.1]"

static const char *const F32[] = {SHAPES, "training.dtype=f32", NULL};
static const char *const BF16[] = {SHAPES, "training.dtype=bf16", NULL};

// The last way that a call has.
static enum kernel_way last_way(unsigned ways) {
    enum kernel_way last = WAY_RULE;
    for (enum kernel_way way = WAY_RULE; way < KERNEL_WAYS; way++)
        if (ways >> way & 1)
            last = way;
    return last;
}

static int other_ways(const struct engine *e, bool taken) {
    int count = 0;
    for (size_t t = 0; t < engine_compiled(e, PROGRAM_TRAIN)->program.templates.count; t++)
        for (int i = 0; i < engine_executor(e, PROGRAM_TRAIN)->templates[t].count; i++) {
            const struct resolved *r = &engine_executor(e, PROGRAM_TRAIN)->templates[t].item[i];
            count += (taken ? r->way : last_way(r->ways)) != WAY_RULE;
        }
    return count;
}

// Writes a file that chooses for every call of the program the last way that it has.
static void write_last_ways(const struct engine *e, const char *directory) {
    struct tuning tuning;
    trireme_error error;
    tuning_create(&tuning);
    for (size_t t = 0; t < engine_compiled(e, PROGRAM_TRAIN)->program.templates.count; t++)
        for (int i = 0; i < engine_executor(e, PROGRAM_TRAIN)->templates[t].count; i++) {
            const struct resolved *r = &engine_executor(e, PROGRAM_TRAIN)->templates[t].item[i];
            struct choice c = {.way = last_way(r->ways)};
            if (c.way == WAY_RULE)
                continue;
            struct call call;
            instruction_call(&call, engine_executor(e, PROGRAM_TRAIN), r);
            call.accumulate = false; // one microbatch of two adds, which is not most
            c.call = choices_call(e->ops, &call);
            c.on = mem_strdup(tuning.choices.on);
            VEC_PUSH(&tuning.choices.item, c);
        }
    assert_ok(tuning_store(&tuning, directory, &error), &error);
    tuning_release(&tuning);
}

static struct engine_result two_steps(struct small_model *small) {
    struct engine_result result;
    trireme_error error;
    small_model_values(small, 1);
    small_model_batch(engine_compiled(&small->engine, PROGRAM_TRAIN), engine_executor(&small->engine, PROGRAM_TRAIN), 1,
                      0);
    for (int step = 0; step < 2; step++)
        assert_ok(engine_step(&small->engine, 1e-3, NULL, &result, &error), &error);
    return result;
}

static void check_engine(const char *folder, const char *const *overrides) {
    struct small_model rule, chosen;
    struct tuning tuning;
    small_model_create(&rule, overrides, true);
    small_model_create(&chosen, overrides, true);
    write_last_ways(&rule.engine, folder);
    tuning_create(&tuning);
    tuning_choose(&tuning, &chosen.engine, folder, 0, NULL);
    assert_int_equal(other_ways(&rule.engine, true), 0);
    assert_true(other_ways(&rule.engine, false) > 0);
    assert_int_equal(other_ways(&chosen.engine, true), other_ways(&rule.engine, false));
    struct engine_result a = two_steps(&rule), b = two_steps(&chosen);
    assert_memory_equal(&a.loss, &b.loss, sizeof a.loss);
    assert_memory_equal(&a.grad_norm, &b.grad_norm, sizeof a.grad_norm);
    tuning_release(&tuning);
    small_model_release(&rule);
    small_model_release(&chosen);
}

static void an_engine_takes_the_ways_of_the_file(void **state) {
    check_engine(*state, F32);
    check_engine(*state, BF16);
}

static void check_run(const char *folder, const char *const *overrides) {
    static const char *const FILES[] = {"model.safetensors", "training/state.safetensors"};
    struct small_model small;
    runs_prepare(folder);
    runs_train_until(folder, overrides, NULL, 0);
    assert_int_equal(rename(path_in(folder, "run"), path_in(folder, "straight")), 0);
    runs_train_until(folder, overrides, NULL, 3);
    small_model_create(&small, overrides, true);
    write_last_ways(&small.engine, path_in(folder, "run"));
    write_last_ways(&small.engine, folder);
    small_model_release(&small);
    assert_int_equal(runs_train_until(folder, overrides, NULL, 0), 4);
    for (size_t i = 0; i < ARRAY_LENGTH(FILES); i++)
        assert_same_file(folder, "straight/checkpoint/step-6", "run/checkpoint/step-6", FILES[i]);
    assert_same_file(folder, ".", "run", "kernels.json");
}

static void a_run_that_goes_on_in_other_ways_has_the_same_bits(void **state) {
    check_run(*state, F32);
}

static void and_so_has_one_in_bf16(void **state) {
    check_run(*state, BF16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(an_engine_takes_the_ways_of_the_file),
        cmocka_unit_test_setup_teardown(a_run_that_goes_on_in_other_ways_has_the_same_bits, folder_create,
                                        folder_remove),
        IN_FOLDER(and_so_has_one_in_bf16),
    };
    return cmocka_run_group_tests_name("kernel choice", tests, NULL, NULL);
}
