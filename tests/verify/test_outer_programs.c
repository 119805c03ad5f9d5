// The programs of outer steps, with faults: one instruction less or one more, an operand of another unit, another
// group; programs of which one writes what the other touches; training programs that communicate between islands.
#include "compile/stages.h"
#include "support/checkpoint.h"
#include "support/mesh_keys.h"
#include "support/mutant.h"
#include "support/test.h"
#include "verify/verify.h"

struct programs {
    struct config config;
    struct model_config model;
    struct stages stages;
};

static void programs_create(struct programs *p, const char *mesh, const char *zero, const char *delay) {
    const char *const overrides[] = {SMALL_GPT2,
                                     "training.global_batch_size=8",
                                     "parallelism.island_degree=2",
                                     "outer.method=local_sgd",
                                     "run.directory=unused",
                                     mesh,
                                     zero,
                                     delay};
    trireme_error error = {0};
    const char *used[ARRAY_LENGTH(overrides)];
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_LENGTH(overrides); i++)
        if (strcmp(overrides[i], "training.global_batch_size=4") != 0)
            used[n++] = overrides[i];
    assert_ok(config_load(&p->config, NULL, used, n, &error), &error);
    assert_ok(model_config_resolve(&p->model, &p->config, NO_TOKENS, &error), &error);
    assert_ok(stages_create(&p->stages, &p->config, &p->model, NULL, TRAIN_AND_EVALUATE, NULL, &error), &error);
    assert_ok(stages_compile(&p->stages, EVERY_STAGE, &error), &error);
    assert_ok(stages_verify(&p->stages, &error), &error);
}

static void programs_release(struct programs *p) {
    stages_release(&p->stages);
    config_release(&p->config);
}

static const struct program *program_of(const struct programs *p, enum program_kind kind) {
    return stages_program(&p->stages, 0, kind);
}

static void refuse(const struct programs *p, struct program *mutant, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void refuse(const struct programs *p, struct program *mutant, const char *format, ...) {
    trireme_error error = {0};
    char what[80];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (program_verify(mutant, p->stages.options.ops, &error) == TRIREME_OK)
        fail_msg("%s: %s is accepted", mutant->name, what);
    assert_int_equal(error.status, TRIREME_ERROR_PROGRAM);
    mutant_release(mutant);
}

static const struct {
    const char *mesh, *zero, *delay;
} MESHES[] = {{FSDP "1", "parallelism.zero_stage=0", "outer.delay_steps=0"},
              {FSDP "2", "parallelism.zero_stage=3", "outer.delay_steps=0"},
              {FSDP "2", "parallelism.zero_stage=1", "outer.delay_steps=2"},
              {"parallelism.tensor_parallel_degree=2", "parallelism.zero_stage=0", "outer.delay_steps=2"}};

static const enum program_kind PARTS[] = {PROGRAM_OUTER_TAKE, PROGRAM_OUTER_EXCHANGE, PROGRAM_OUTER_SETTLE};

static void instructions_are_done_once(void **state) {
    (void)state;
    for (size_t m = 0; m < ARRAY_LENGTH(MESHES); m++) {
        struct programs p;
        programs_create(&p, MESHES[m].mesh, MESHES[m].zero, MESHES[m].delay);
        for (size_t k = 0; k < ARRAY_LENGTH(PARTS); k++) {
            const struct program *of = program_of(&p, PARTS[k]);
            for (size_t i = 0; i < of->templates.item[0].instructions.count; i++) {
                struct program less = mutant_copy(of), more = mutant_copy(of);
                mutant_delete((struct place){&less.templates.item[0], i});
                refuse(&p, &less, "one instruction less, number %zu", i);
                mutant_repeat(&more, (struct place){&more.templates.item[0], i});
                refuse(&p, &more, "one instruction twice, number %zu", i);
            }
        }
        programs_release(&p);
    }
}

// Every operand, in place of that of the next instruction of the same op.
static void operands_are_of_one_unit(void **state) {
    (void)state;
    for (size_t m = 0; m < ARRAY_LENGTH(MESHES); m++) {
        struct programs p;
        int tried = 0;
        programs_create(&p, MESHES[m].mesh, MESHES[m].zero, MESHES[m].delay);
        for (size_t k = 0; k < ARRAY_LENGTH(PARTS); k++) {
            const struct program *of = program_of(&p, PARTS[k]);
            const struct template *t = &of->templates.item[0];
            for (size_t i = 0; i < t->instructions.count; i++)
                for (size_t j = i + 1; j < t->instructions.count; j++) {
                    const struct instruction *a = &t->instructions.item[i], *b = &t->instructions.item[j];
                    for (int o = 0; o < a->inputs + a->outputs && a->op == b->op; o++) {
                        const struct operand *from = instruction_operand_at(a, o), *to = instruction_operand_at(b, o);
                        if (from->buffer == NONE || to->buffer == NONE || operand_equal(from, to) ||
                            operand_count(from) != operand_count(to))
                            continue;
                        struct program mutant = mutant_copy(of);
                        *mutant_operand(&mutant.templates.item[0].instructions.item[j], o) = *from;
                        refuse(&p, &mutant, "operand %d of %zu in %zu", o, i, j);
                        tried++;
                    }
                }
        }
        assert_true(tried > 0);
        programs_release(&p);
    }
}

static void sums_are_over_the_islands(void **state) {
    (void)state;
    struct programs p;
    programs_create(&p, MESHES[2].mesh, MESHES[2].zero, MESHES[2].delay);
    const struct program *of = program_of(&p, PROGRAM_OUTER_EXCHANGE);
    for (size_t i = 0; i < of->templates.item[0].instructions.count; i++)
        for (axis_set group = AXES_NONE; group <= AXES_ALL; group++) {
            struct program mutant = mutant_copy(of);
            struct instruction *in = &mutant.templates.item[0].instructions.item[i];
            if (in->op == OP_ALL_REDUCE && group != AXES_ISLAND) {
                in->group = group;
                refuse(&p, &mutant, "group %x of %zu", group, i);
            } else {
                mutant_release(&mutant);
            }
        }
    // The weight is this rank's term of the total, nothing that all islands have alike.
    struct program mutant = mutant_copy(of);
    for (size_t i = 0; i < mutant.buffers.count; i++)
        if (mutant.buffers.item[i].kind == KIND_INPUT)
            mutant.buffers.item[i].placement[AXIS_ISLAND] = PLACE_REPLICATE;
    refuse(&p, &mutant, "a weight that is the same on all islands");
    programs_release(&p);
}

// Whatever a training program exchanges between islands is each one's own.
static void training_stays_on_its_island(void **state) {
    (void)state;
    for (size_t m = 1; m < ARRAY_LENGTH(MESHES); m++) {
        struct programs p;
        int tried = 0;
        programs_create(&p, MESHES[m].mesh, MESHES[m].zero, MESHES[m].delay);
        const struct program *of = program_of(&p, PROGRAM_TRAIN);
        for (size_t t = 0; t < of->templates.count; t++)
            for (size_t i = 0; i < of->templates.item[t].instructions.count; i++)
                for (int beside = 0; beside < 2; beside++) {
                    if (!of->templates.item[t].instructions.item[i].group)
                        continue;
                    struct program mutant = mutant_copy(of);
                    struct instruction *in = &mutant.templates.item[t].instructions.item[i];
                    in->group = AXES_ISLAND | (beside ? in->group : AXES_NONE);
                    if (in->op == OP_FAN_OUT) {
                        mutant_release(&mutant);
                        continue;
                    }
                    refuse(&p, &mutant, "%zu of template %zu between islands", i, t);
                    tried++;
                }
        assert_true(tried > 10);
        programs_release(&p);
    }
}

static void refuse_beside(const struct programs *p, const struct program *a, const struct program *b,
                          const char *what) {
    trireme_error error = {0};
    assert_int_equal(program_beside(a, b, p->stages.options.ops, &error), TRIREME_ERROR_PROGRAM);
    assert_says(error.message, what);
    assert_int_equal(program_beside(b, a, p->stages.options.ops, &error), TRIREME_ERROR_PROGRAM);
}

static void programs_beside_one_another_do_not_meet(void **state) {
    (void)state;
    struct programs p;
    trireme_error error = {0};
    programs_create(&p, MESHES[1].mesh, MESHES[1].zero, "outer.delay_steps=2");
    const struct program *exchange = program_of(&p, PROGRAM_OUTER_EXCHANGE), *train = program_of(&p, PROGRAM_TRAIN);
    assert_ok(program_beside(exchange, train, p.stages.options.ops, &error), &error);
    assert_ok(program_beside(train, exchange, p.stages.options.ops, &error), &error);
    refuse_beside(&p, exchange, program_of(&p, PROGRAM_OUTER_TAKE), "outer.value is ");
    refuse_beside(&p, exchange, program_of(&p, PROGRAM_OUTER_SETTLE), "outer.value is ");
    refuse_beside(&p, train, program_of(&p, PROGRAM_EVALUATE), ".parameters is ");

    // What one reads the other may read, too, but not write.
    struct program mutant = mutant_copy(exchange);
    const int entry = mutant.buffers.item[mutant.templates.item[0].instructions.item[0].in[0].buffer].belongs_to;
    struct operand *weighed = mutant_operand(&mutant.templates.item[0].instructions.item[0], 0);
    *weighed = operand_whole(&mutant, entry);
    refuse_beside(&p, &mutant, train, ".parameters is ");
    mutant_release(&mutant);

    mutant = mutant_copy(train);
    char *name = mutant.streams.item[1].name;
    mutant.streams.item[1].name = (char *)"outer";
    refuse_beside(&p, exchange, &mutant, "both have the stream outer");
    mutant.streams.item[1].name = name;
    mutant_release(&mutant);

    mutant = mutant_copy(train);
    for (size_t t = 0; t < mutant.templates.count; t++)
        for (size_t i = 0; i < mutant.templates.item[t].instructions.count; i++) {
            struct instruction *in = &mutant.templates.item[t].instructions.item[i];
            if (in->op == OP_ALL_REDUCE) {
                in->group = AXES_ISLAND;
                in->stream = 1;
            }
        }
    refuse_beside(&p, exchange, &mutant, "both communicate over island on channel 1");
    mutant_release(&mutant);
    programs_release(&p);
}

// What is the same on all islands does not depend on whether one of them has skipped a step: the zeros between the
// tensors of a unit whose matrices are cut.
static void islands_skip_steps_of_their_own(void **state) {
    (void)state;
    struct programs p;
    programs_create(&p, FSDP "2", "model.hidden_size=20", "optimizer.name=muon");
    int gaps = 0;
    FOR_INSTRUCTIONS(i, program_of(&p, PROGRAM_TRAIN))
        gaps += i->op == OP_ZERO && i->phase == PHASE_OPTIMIZER;
    assert_true(gaps > 0);
    programs_release(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instructions_are_done_once),
        cmocka_unit_test(operands_are_of_one_unit),
        cmocka_unit_test(sums_are_over_the_islands),
        cmocka_unit_test(training_stays_on_its_island),
        cmocka_unit_test(programs_beside_one_another_do_not_meet),
        cmocka_unit_test(islands_skip_steps_of_their_own),
    };
    return cmocka_run_group_tests_name("outer programs", tests, NULL, NULL);
}
