// The state as a table: programs that use some of its entries or further ones, units with different optimizers, and
// what programs leave to those that follow them.
#include "compile/stages.h"
#include "memory/memory_plan.h"
#include "support/by_hand.h"
#include "support/models.h"
#include "support/mutant.h"
#include "support/small_model.h"
#include "support/test.h"
#include "verify/verify.h"

// ---- the table

static void entries_have_places(void **unused) {
    (void)unused;
    struct state_table table = {0};
    struct state_entry entry = {.name = "a", .dtype = DTYPE_BF16, .ndim = 2, .dim = {3, 5}, .owner = NONE};
    assert_int_equal(state_add(&table, &entry), 0);
    entry.name = "b";
    entry.role = STATE_OPTIMIZER;
    entry.as = "m";
    assert_int_equal(state_add(&table, &entry), 1);
    assert_int_equal(table.entries.item[1].offset, BUFFER_ALIGNMENT);
    assert_int_equal(table.bytes[SPACE_DEVICE], 2 * BUFFER_ALIGNMENT);
    assert_int_equal(state_find(&table, "b"), 1);
    assert_int_equal(state_find(&table, "c"), NONE);
    struct program p;
    program_init(&p, "part", 1);
    const int b = state_buffer(&table, &p, 1, NONE);
    assert_int_equal(p.buffers.item[b].offset, BUFFER_ALIGNMENT);
    assert_int_equal(p.buffers.item[b].kind, KIND_OPTIM);
    assert_string_equal(p.buffers.item[b].as, "m");
    program_release(&p);
    entry.name = "large";
    entry.dim[0] = entry.dim[1] = INT64_MAX / 2;
    state_add(&table, &entry);
    assert_int_equal(table.bytes[SPACE_DEVICE], STATE_TOO_LARGE);
    state_table_release(&table);
}

// The memory plan gives places to no buffer of the state.
static void buffers_without_a_place(void **unused) {
    (void)unused;
    struct op_table *ops = op_table_create();
    struct program p;
    trireme_error error = {0};
    program_init(&p, "lost", 1);
    add_rows(&p, "w", KIND_PARAM, SCOPE_STATE);
    assert_words(program_plan(&p, ops, NULL, &error), &error, "has no place in the state", "w");
    program_release(&p);
    free(ops);
}

// ---- further programs

static char *arena(int64_t bytes) {
    const size_t room = round_up((size_t)MAX(bytes, 1), BUFFER_ALIGNMENT);
    return memset(aligned_alloc(BUFFER_ALIGNMENT, room), 0, room);
}

static void *entry_at(char *state, const struct state_table *table, int entry) {
    return state + table->entries.item[entry].offset;
}

// Runs a program once on an arena; a training step on the batch `seed`.
static void run_on(char *state, const struct program *p, const struct compiled *training, const struct config *config,
                   const struct op_table *ops, uint64_t seed) {
    char *step = arena(p->arena[SPACE_DEVICE].step_bytes);
    struct streams *streams = streams_create(NULL, 1);
    struct executor *executor;
    trireme_error error = {0};
    assert_ok(executor_create(&executor, streams, p, ops, compile_kernels(config), state, step, &error), &error);
    if (training)
        small_model_batch(training, executor, seed, 0);
    assert_ok(executor_run(executor, NULL, &error), &error);
    executor_free(executor);
    streams_free(streams);
    free(step);
}

// Copies the parameters of unit `unit` into entry `anchor`: it declares no other entries.
static void anchor_program(struct program *p, const struct stage_state *s, int unit, int anchor,
                           const struct op_table *ops) {
    trireme_error error = {0};
    program_init(p, "anchor", 1);
    const int parameters = state_buffer(&s->table, p, s->model.unit[unit], NONE);
    const struct operand from = operand_whole(p, parameters),
                         to = operand_whole(p, state_buffer(&s->table, p, anchor, parameters));
    program_emit(p, program_template(p, "copy", PHASE_OPTIMIZER, 0), OP_FAN_OUT, PHASE_OPTIMIZER, NONE, 1, &from, 1,
                 &to, NULL);
    program_invoke(p, 0, NONE, false, false);
    assert_ok(program_plan(p, ops, NULL, &error), &error);
    assert_ok(program_verify(p, ops, &error), &error);
}

static void a_third_program(void **unused) {
    (void)unused;
    struct small_model small;
    struct stages stages;
    trireme_error error = {0};
    small_model_create(&small, (const char *const[]){SMALL_LLAMA, NULL}, true);
    small_model_values(&small, 1);
    const struct stage_state *plain = &small.engine.stage->state;
    assert_ok(stages_create(&stages, &small.config, &small.model, NULL, TRAIN_AND_EVALUATE, NULL, &error), &error);
    struct stage_state *s = stages_state(&stages, 0);
    const struct unit_values values = {"anchor", s->dtype, STATE_OPTIMIZER, false, "y", SPACE_DEVICE, NULL};
    enum { UNIT = 1 };
    const int anchor = model_units_add(&s->units, &s->table, UNIT, &values, s->model.unit[UNIT]);
    assert_ok(stages_compile(&stages, EVERY_STAGE, &error), &error);
    const struct compiled *train = stage_program(&stages.stage[0], stages_find(&stages, PROGRAM_TRAIN));
    // The entries that all have lie where they lie without the further one.
    for (size_t i = 0; i < plain->table.entries.count; i++)
        assert_int_equal(s->table.entries.item[i].offset, plain->table.entries.item[i].offset);
    assert_int_equal(train->program.arena[SPACE_DEVICE].state_bytes, plain->table.bytes[SPACE_DEVICE]);
    assert_true(program_may_follow(PROGRAM_TRAIN, PROGRAM_EVALUATE) &&
                program_may_follow(PROGRAM_EVALUATE, PROGRAM_TRAIN));
    assert_false(program_may_follow(PROGRAM_TRAIN, PROGRAM_GENERATE));
    struct program third;
    anchor_program(&third, s, UNIT, anchor, stages.options.ops);
    assert_int_equal(third.arena[SPACE_DEVICE].state_bytes, s->table.bytes[SPACE_DEVICE]);
    assert_ok(program_follows(&train->program, &third, &error), &error);
    assert_ok(program_follows(&third, &train->program, &error), &error);

    const size_t bytes = (size_t)plain->table.bytes[SPACE_DEVICE];
    const size_t unit = (size_t)state_entry_bytes(&s->table.entries.item[anchor]);
    char *state = arena(s->table.bytes[SPACE_DEVICE]), *kept = mem_alloc(unit);
    memcpy(state, small.engine.state, bytes);
    run_on(state, &train->program, train, &small.config, stages.options.ops, 3);
    memcpy(kept, entry_at(state, &s->table, s->model.unit[UNIT]), unit);
    run_on(state, &third, NULL, &small.config, stages.options.ops, 0);
    run_on(state, &train->program, train, &small.config, stages.options.ops, 4);
    assert_memory_equal(entry_at(state, &s->table, anchor), kept, unit);
    assert_memory_not_equal(entry_at(state, &s->table, s->model.unit[UNIT]), kept, unit);
    for (uint64_t seed = 3; seed <= 4; seed++)
        run_on(small.engine.state, &engine_compiled(&small.engine, PROGRAM_TRAIN)->program, train, &small.config,
               small.engine.ops, seed);
    assert_memory_equal(state, small.engine.state, bytes);
    free(state);
    free(kept);
    program_release(&third);
    stages_release(&stages);
    small_model_release(&small);
}

// ---- optimizers

// Entries of all units as doubles, for comparison: those of `unit` of one state.
static void assert_unit(const char *what, char *a, const struct stage_state *of_a, char *b,
                        const struct stage_state *of_b, const int *entry_a, const int *entry_b, int unit) {
    const struct state_entry *x = &of_a->table.entries.item[entry_a[unit]],
                             *y = &of_b->table.entries.item[entry_b[unit]];
    assert_int_equal(x->dim[0], y->dim[0]);
    if (memcmp(a + x->offset, b + y->offset, (size_t)state_entry_bytes(x)) != 0)
        fail_msg("%s of unit %d differs", what, unit);
}

// One step in which units take turns between two optimizers changes each as a step with its optimizer alone does.
static void units_with_different_optimizers(void **unused) {
    (void)unused;
    enum { KINDS = 2 };
    static const char *const NAMES[KINDS] = {"optimizer.name=adamw", "optimizer.name=lion"};
    static const enum config_optimizer_name OF[KINDS] = {CONFIG_OPTIMIZER_ADAMW, CONFIG_OPTIMIZER_LION};
    struct small_model small[KINDS];
    trireme_error error = {0};
    for (int k = 0; k < KINDS; k++) {
        small_model_create(&small[k], (const char *const[]){SMALL_LLAMA, NAMES[k], NULL}, true);
        engine_initialise(&small[k].engine, 1, NULL);
    }
    const struct engine *e = &small[0].engine;
    struct stage_state s = {.dtype = e->stage->state.dtype, .trains = true};
    const struct state_layout layout = state_layout_of(e->parallel, e->model);
    local_parameters(&s.local, e->table, &small[0].config, e->model, e->parallel, 0);
    model_units_create(&s.units, &s.local, &e->parallel->mesh, &layout);
    model_entries_add(&s.model, &s.table, &s.units, e->model, s.dtype, e->parallel->batch.seq_len,
                      e->parallel->batch.seq_len, AXES_NONE);
    int *of = mem_alloc((size_t)s.units.units * sizeof *of);
    for (int u = 0; u < s.units.units; u++)
        of[u] = OF[u % KINDS];
    optimizer_entries_add(&s.optimizer, &s.table, &s.units, &s.model, of, s.dtype, SPACE_DEVICE);
    const struct compile_options options = {.config = &small[0].config,
                                            .model = e->model,
                                            .ops = e->ops,
                                            .parallel = e->parallel,
                                            .state = &s,
                                            .threads = 1};
    const struct program_spec spec = {.kind = PROGRAM_TRAIN, .batch = e->parallel->batch};
    struct compiled mixed;
    assert_ok(compile_train(&mixed, &options, &spec, &error), &error);
    check_round_trip(&mixed.program, e->ops);

    char *state = arena(s.table.bytes[SPACE_DEVICE]);
    memcpy(state, e->state, (size_t)s.table.entries.item[s.optimizer.gradient[0]].offset); // parameters and constants
    for (int u = 0; u < s.units.units; u++)
        *(double *)entry_at(state, &s.table, s.optimizer.decayed[u]) = (double)s.units.decayed[u];
    run_on(state, &mixed.program, &mixed, &small[0].config, e->ops, 3);
    for (int k = 0; k < KINDS; k++)
        run_on(small[k].engine.state, &engine_compiled(&small[k].engine, PROGRAM_TRAIN)->program,
               engine_compiled(&small[k].engine, PROGRAM_TRAIN), &small[k].config, e->ops, 3);
    for (int u = 0; u < s.units.units; u++) {
        const struct engine *pure = &small[u % KINDS].engine;
        const struct stage_state *t = &pure->stage->state;
        assert_unit("parameters", state, &s, pure->state, t, s.model.unit, t->model.unit, u);
        for (int k = 0; k < OPTIMIZER_STATES; k++) {
            const bool has = (int)optimizer_states[k].optimizer == of[u];
            assert_int_equal(s.optimizer.state[k] && s.optimizer.state[k][u] != NONE, has);
            if (has)
                assert_unit(optimizer_states[k].saved, state, &s, pure->state, t, s.optimizer.state[k],
                            t->optimizer.state[k], u);
        }
    }
    free(state);
    compiled_release(&mixed);
    stage_state_release(&s);
    for (int k = 0; k < KINDS; k++)
        small_model_release(&small[k]);
}

// The host finds values by the table.
static void programs_keep_what_the_state_has(void **unused) {
    (void)unused;
    struct small_model small;
    trireme_error error = {0};
    small_model_create(&small, (const char *const[]){SMALL_LLAMA, NULL}, false);
    const struct state_table *table = &small.engine.stage->state.table;
    const struct program *train = &engine_compiled(&small.engine, PROGRAM_TRAIN)->program;
    assert_ok(state_check(table, train, &error), &error);
    assert_ok(state_check(table, &engine_compiled(&small.engine, PROGRAM_EVALUATE)->program, &error), &error);
#define NOT_AS_KEPT(name_of, change, what)                                   \
    do {                                                                     \
        struct program p = mutant_copy(train);                               \
        struct buffer *b = &p.buffers.item[program_find(&p, name_of)];       \
        change;                                                              \
        assert_words(state_check(table, &p, &error), &error, what, b->name); \
        mutant_release(&p);                                                  \
    } while (0)
    static const char OTHER[] = "is not as it stands in the state";
    NOT_AS_KEPT("embed.m", b->name = "embed.w", "which the state does not have");
    NOT_AS_KEPT("embed.m", b->offset += 64, OTHER);
    NOT_AS_KEPT("embed.m", b->dtype = DTYPE_F32, OTHER);
    NOT_AS_KEPT("embed.m", b->dim[0] -= 64, OTHER);
    NOT_AS_KEPT("embed.m", b->kind = KIND_GRAD, OTHER);
    NOT_AS_KEPT("embed.m", b->as[0] = 'v', OTHER);
    NOT_AS_KEPT("layers.0.parameters", b->own = AXES_DATA, OTHER);
    NOT_AS_KEPT("rope", b->placement[AXIS_TP] = PLACE_SHARD(0), OTHER);
    small_model_release(&small);
}

// ---- the container

static void programs_are_made_once_for_each_shape(void **unused) {
    (void)unused;
    struct small_model small;
    struct stages stages;
    trireme_error error = {0};
    small_model_create(&small, (const char *const[]){SMALL_GPT2, NULL}, false);
    assert_ok(stages_create(&stages, &small.config, &small.model, NULL, TRAIN_ALONE, NULL, &error), &error);
    const struct compiled *first, *again, *shorter;
    struct program_spec spec = stages.specs.item[0];
    assert_ok(stages_get(&stages, 0, &spec, &first, &error), &error);
    assert_ok(stages_get(&stages, 0, &spec, &again, &error), &error);
    assert_ptr_equal(again, first);
    spec.batch.seq_len /= 2;
    assert_ok(stages_get(&stages, 0, &spec, &shorter, &error), &error);
    assert_ptr_not_equal(shorter, first);
    assert_int_equal(shorter->program.buffers.item[shorter->tokens].dim[0],
                     first->program.buffers.item[first->tokens].dim[0] / 2);
    assert_int_equal(stages.stage[0].programs.count, 2);
    // They share the state.
    assert_ok(program_follows(&first->program, &shorter->program, &error), &error);
    assert_ok(program_follows(&shorter->program, &first->program, &error), &error);
    stages_release(&stages);
    small_model_release(&small);
}

// The hash tells programs apart by all that they do, and by nothing else.
static void programs_are_known_by_a_hash(void **unused) {
    (void)unused;
    struct small_model small, other;
    small_model_create(&small, (const char *const[]){SMALL_GPT2, NULL}, false);
    small_model_create(&other, (const char *const[]){SMALL_GPT2, NULL}, false);
    const struct program *program = &engine_compiled(&small.engine, PROGRAM_TRAIN)->program;
    const uint64_t hash = program_hash(program);
    assert_true(hash == program_hash(&engine_compiled(&other.engine, PROGRAM_TRAIN)->program));
    assert_true(hash != program_hash(&engine_compiled(&small.engine, PROGRAM_EVALUATE)->program));
#define CHANGED(same, change)                                                             \
    do {                                                                                  \
        struct program p = mutant_copy(program);                                          \
        struct instruction *i = &p.templates.item[1].instructions.item[2];                \
        struct buffer *b = &p.buffers.item[i->out[0].buffer];                             \
        (void)i, (void)b;                                                                 \
        change;                                                                           \
        if ((program_hash(&p) == hash) != (same))                                         \
            fail_msg("%s: the hash is %s", #change, same ? "another" : "still the same"); \
        mutant_release(&p);                                                               \
    } while (0)
    CHANGED(true, (void)0);
    CHANGED(true, b->offset += 64);
    CHANGED(true, p.arena[SPACE_DEVICE].step_bytes += 64);
    CHANGED(false, b->dim[0]++);
    CHANGED(false, b->dtype = DTYPE_F32);
    CHANGED(false, b->space = SPACE_FILE);
    CHANGED(false, i->op = OP_ZERO);
    CHANGED(false, i->phase = PHASE_BACKWARD);
    CHANGED(false, i->layer++);
    CHANGED(false, i->stream++);
    CHANGED(false, i->accumulate = ACCUMULATE_YES);
    CHANGED(false, i->when = WHEN_LAST);
    CHANGED(false, i->peer++);
    CHANGED(false, i->open = true);
    CHANGED(false, i->group = AXES_DATA);
    CHANGED(false, i->predicate = 0);
    CHANGED(false, i->wait[STREAM_COMPUTE] = 1);
    CHANGED(false, i->attribute[0].i++);
    CHANGED(false, i->in[0].offset++);
    CHANGED(false, i->in[0].stride[0]++);
    CHANGED(false, i->in[0].dim[0]++);
    CHANGED(false, i->in[0].along = AXES_DATA);
    CHANGED(false, i->out[0].buffer++);
    CHANGED(false, p.schedule.item[1].microbatch++);
    CHANGED(false, p.schedule.item[1].last ^= true);
    CHANGED(false, p.microbatches++);
    CHANGED(false, p.mesh.degree[AXIS_TP]++);
    small_model_release(&small);
    small_model_release(&other);
}

// ---- what follows what

static void make_stages(struct stages *stages, struct config *config, struct model_config *model,
                        const char *const *settings, size_t count) {
    trireme_error error = {0};
    assert_ok(config_load(config, NULL, settings, count, &error), &error);
    assert_ok(model_config_resolve(model, config, config->model.vocab_size, &error), &error);
    assert_ok(stages_create(stages, config, model, NULL, TRAIN_AND_EVALUATE, NULL, &error), &error);
    assert_ok(stages_compile(stages, EVERY_STAGE, &error), &error);
    assert_ok(stages_verify(stages, &error), &error);
}

#define WHOLE SMALL_LLAMA, "parallelism.data_parallel_replicate_degree=2"
#define ZERO(stage) SMALL_LLAMA, "parallelism.data_parallel_shard_degree=2", "parallelism.zero_stage=" stage

static void refuse_sequence(const struct program *before, const struct program *after, const char *what,
                            const char *buffer) {
    trireme_error error = {0};
    assert_words(program_follows(before, after, &error), &error, what, buffer);
}

// An evaluation that expects whole parameters after a step that leaves each rank its own part, and the other way round.
static void parts_are_not_wholes(void **unused) {
    (void)unused;
    static const char *const SETTINGS[][24] = {{WHOLE}, {ZERO("1")}, {ZERO("3")}};
    struct stages of[ARRAY_LENGTH(SETTINGS)];
    struct config config[ARRAY_LENGTH(SETTINGS)];
    struct model_config model[ARRAY_LENGTH(SETTINGS)];
    const struct program *train[ARRAY_LENGTH(SETTINGS)], *evaluate[ARRAY_LENGTH(SETTINGS)];
    trireme_error error = {0};
    for (size_t k = 0; k < ARRAY_LENGTH(SETTINGS); k++) {
        size_t count = 0;
        while (SETTINGS[k][count])
            count++;
        make_stages(&of[k], &config[k], &model[k], SETTINGS[k], count);
        train[k] = stages_program(&of[k], 0, PROGRAM_TRAIN);
        evaluate[k] = stages_program(&of[k], 0, PROGRAM_EVALUATE);
        // Each by itself is sound, and so are the pairs of one plan.
        assert_ok(program_verify(evaluate[k], of[k].options.ops, &error), &error);
        assert_ok(program_follows(train[k], evaluate[k], &error), &error);
        assert_ok(program_follows(evaluate[k], train[k], &error), &error);
        assert_ok(program_follows(train[k], train[k], &error), &error);
    }
    refuse_sequence(train[1], evaluate[0], "only each rank's own part along fsdp is left", "embed.parameters");
    refuse_sequence(train[2], evaluate[0], "of another place or shape", "embed.parameters");
    refuse_sequence(train[1], evaluate[2], "of another place or shape", "embed.parameters");
    for (size_t k = 0; k < ARRAY_LENGTH(SETTINGS); k++) {
        stages_release(&of[k]);
        config_release(&config[k]);
    }
}

static struct buffer *buffer_named(struct program *p, const char *name) {
    return &p->buffers.item[program_find(p, name)];
}

static void what_is_left_is_what_is_expected(void **unused) {
    (void)unused;
    static const char *const SETTINGS[] = {ZERO("1")};
    struct stages stages;
    struct config config;
    struct model_config model;
    make_stages(&stages, &config, &model, SETTINGS, ARRAY_LENGTH(SETTINGS));
    const struct program *train = stages_program(&stages, 0, PROGRAM_TRAIN),
                         *evaluate = stages_program(&stages, 0, PROGRAM_EVALUATE);
    // What gathers parts may also find wholes.
    trireme_error error = {0};
    struct program whole = mutant_copy(train);
    buffer_named(&whole, "layers.0.parameters")->own = AXES_NONE;
    assert_ok(program_follows(&whole, evaluate, &error), &error);
    mutant_release(&whole);
#define FAULT(of, change, before, after, what, buffer) \
    do {                                               \
        struct program p = mutant_copy(of);            \
        change;                                        \
        refuse_sequence(before, after, what, buffer);  \
        mutant_release(&p);                            \
    } while (0)
#define UNIT (buffer_named(&p, "layers.0.parameters"))
    FAULT(evaluate, UNIT->own = AXES_NONE, train, &p, "own part along fsdp is left", "layers.0.parameters");
    FAULT(evaluate, UNIT->placement[AXIS_TP] = PLACE_SHARD(0), train, &p, "is placed otherwise along tp",
          "layers.0.parameters");
    FAULT(evaluate, UNIT->dtype = DTYPE_F32, train, &p, "of another place or shape", "layers.0.parameters");
    FAULT(evaluate, UNIT->dim[0] -= 64, train, &p, "of another place or shape", "layers.0.parameters");
    FAULT(evaluate, UNIT->offset -= 64, train, &p, "lies where embed.parameters is kept", "layers.0.parameters");
    FAULT(evaluate, UNIT->offset += train->arena[SPACE_DEVICE].state_bytes, train, &p, "is kept elsewhere",
          "layers.0.parameters");
    FAULT(evaluate, UNIT->name = "other", train, &p, "lies where layers.0.parameters is kept", "other");
    FAULT(evaluate, UNIT->kind = KIND_OPTIM, train, &p, "is declared something else", "layers.0.parameters");
    // Gradients of the step, over what the next step takes to be there.
    FAULT(train, buffer_named(&p, "embed.gradients")->offset = buffer_named(&p, "embed.m")->offset, &p, train,
          "lies where embed.gradients is kept", "embed.m");
    // States of one unit as those of another.
    FAULT(train, buffer_named(&p, "embed.m")->belongs_to = program_find(&p, "layers.0.parameters"), train, &p,
          "is declared something else", "embed.m");
    FAULT(train, strcpy(buffer_named(&p, "embed.m")->as, "v"), &p, train, "is declared something else", "embed.m");
    // Runs prove the pairs, too.
    struct program *own = &stage_program(&stages.stage[0], stages_find(&stages, PROGRAM_EVALUATE))->program;
    buffer_named(own, "embed.parameters")->own = AXES_NONE;
    assert_words(stages_verify(&stages, &error), &error, "evaluate after train", "embed.parameters");
    stages_release(&stages);
    config_release(&config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_have_places),
        cmocka_unit_test(buffers_without_a_place),
        cmocka_unit_test(a_third_program),
        cmocka_unit_test(units_with_different_optimizers),
        cmocka_unit_test(programs_keep_what_the_state_has),
        cmocka_unit_test(programs_are_made_once_for_each_shape),
        cmocka_unit_test(programs_are_known_by_a_hash),
        cmocka_unit_test(parts_are_not_wholes),
        cmocka_unit_test(what_is_left_is_what_is_expected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
