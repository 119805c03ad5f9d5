// Programs as data: text form, memory plan, and the proof of what is compiled.
#include "compile/stages.h"
#include "memory/memory_plan.h"
#include "support/by_hand.h"
#include "support/checkpoint.h"
#include "support/small_model.h"
#include "support/test.h"
#include "verify/verify.h"

// ---- text form

static void check_generation(const struct small_model *small, bool cached) {
    const struct engine *e = &small->engine;
    const int64_t context = e->parallel->batch.seq_len;
    const struct program_spec spec = {
        .kind = PROGRAM_GENERATE, .batch = {2, cached ? 3 : context, 1}, .context = cached ? context : 0, .picked = 2};
    const struct parallel plan = parallel_single(e->model);
    struct stages stages;
    trireme_error error = {0};
    assert_ok(stages_create(&stages, &small->config, e->model, &plan, (struct program_specs){.item = &spec, .count = 1},
                            NULL, &error),
              &error);
    assert_ok(stages_compile(&stages, EVERY_STAGE, &error), &error);
    check_round_trip(stages_program(&stages, 0, PROGRAM_GENERATE), e->ops);
    stages_release(&stages);
}

static void round_trip(void **unused) {
    (void)unused;
    static const char *const SETS[][24] = {{SMALL_GPT2, NULL},
                                           {SMALL_GPT2, "activation_checkpoint.mode=full", NULL},
                                           {SMALL_LLAMA, NULL},
                                           {SMALL_LLAMA, "activation_checkpoint.mode=selective", NULL},
                                           {SMALL_LLAMA, "optimizer.name=lion", NULL},
                                           {"model.preset=gpt2-124m", "training.dtype=bf16",
                                            "training.global_batch_size=4", "training.micro_batch_size=2",
                                            "training.threads=1", NULL}};
    for (size_t i = 0; i < ARRAY_LENGTH(SETS); i++) {
        struct small_model small;
        small_model_create(&small, SETS[i], false);
        check_round_trip(&engine_compiled(&small.engine, PROGRAM_TRAIN)->program, small.engine.ops);
        check_round_trip(&engine_compiled(&small.engine, PROGRAM_EVALUATE)->program, small.engine.ops);
        check_generation(&small, true);
        check_generation(&small, false);
        small_model_release(&small);
    }
}

static const char GOOD[] = "program p microbatches 1\n"
                           "arena state 0 fixed 192 scratch 192+0 step 192\n"
                           "pool 0 chunk 0 at 192: 0\n"
                           "buffer %0 f64 input step [1] @0 \"a\"\n"
                           "buffer %1 f64 output step [1] @64 \"b\"\n"
                           "template 0 forward \"t\"\n"
                           "  %1[1] = reciprocal %0[1] weight 1 phase forward\n"
                           "invoke 0\n";

// Replaces line `line` (from 1) of GOOD and expects it to be refused by number.
static void check_bad_line(const struct op_table *ops, int line, const char *with) {
    struct text text = {0};
    const char *at = GOOD;
    for (int n = 1; *at; n++) {
        const char *end = strchr(at, '\n') + 1;
        if (n == line)
            text_add(&text, "%s\n", with);
        else
            text_add_bytes(&text, at, (size_t)(end - at));
        at = end;
    }
    struct program p;
    trireme_error error = {0};
    char expected[20];
    snprintf(expected, sizeof expected, "line %d: ", line);
    if (program_parse(&p, ops, text.text, text.length, &error) != TRIREME_ERROR_CORRUPT)
        fail_msg("accepted: %s", with);
    if (strncmp(error.message, expected, strlen(expected)) != 0)
        fail_msg("\"%s\": expected \"%s\", got: %s", with, expected, error.message);
    text_release(&text);
}

static void parse_errors(void **unused) {
    (void)unused;
    struct op_table *ops = op_table_create();
    struct program p;
    trireme_error error = {0};
    assert_int_equal(program_parse(&p, ops, GOOD, strlen(GOOD), &error), TRIREME_OK);
    program_release(&p);
    static const struct {
        int line;
        const char *with;
    } BAD[] = {{1, "programme p microbatches 1"},
               {1, "program p microbatches 0"},
               {1, "program p microbatches 99999999999999999999"},
               {2, "arena state 0 fixed 192 scratch 192 step 192"},
               {3, "pool 1 chunk 0 at 192: 0"},
               {3, "pool 0 chunk 0 at: 0"},
               {3, "pool 0 chunk 0 at 192"},
               {3, "pool 0 chunk 0 192: 0"},
               {3, "pool 0 chunk 0 part 0 at 192: 0"},
               {3, "pool 0 chunk 0 part of a at 192: 0"},
               {3, "pool 0 chunk 0 at 192:"},
               {3, "pool 0 chunk 0 at 192: 1"},
               {3, "pool 0 chunk 0 at 192: 0 0"},
               {4, "buffer %1 f64 input step [1] @0 \"a\""},
               {4, "buffer %0 f65 input step [1] @0 \"a\""},
               {4, "buffer %0 f64 input step [0] @0 \"a\""},
               {4, "buffer %0 f64 input step [1] @0 \"a"},
               {4, "buffer %0 f64 input step [4611686018427387904,4] \"a\""},
               {5, "buffer %1 f64 output step [1] of %1+0 \"b\""},
               {5, "buffer %1 f64 output step [1] as \"b\""},
               {5, "buffer %1 f64 output step [1] as twelve_chars \"b\""},
               {5, "buffer %1 f64 output step [1] as scale for 0 \"b\""},
               {6, "template 1 forward \"t\""},
               {6, "template 0 sideways \"t\""},
               {7, "  %1[1] = reciprocate %0[1] phase forward"},
               {7, "  %2[1] = reciprocal %0[1] weight 1 phase forward"},
               {7, "  %1[1] %1[1] = reciprocal %0[1] weight 1 phase forward"},
               {7, "  %1[1] = reciprocal weight 1 phase forward"},
               {7, "  %1[1] = reciprocal %0[1](1,1) weight 1 phase forward"},
               {7, "  %1[1] = reciprocal %0[1] weight 1 phase forward wait nowhere"},
               {7, "  %1[1] = reciprocal %0[1] weight 1 phase forward more"},
               {8, "invoke 0 slot 0"}};
    for (size_t i = 0; i < ARRAY_LENGTH(BAD); i++)
        check_bad_line(ops, BAD[i].line, BAD[i].with);
    assert_int_equal(program_parse(&p, ops, "", 0, &error), TRIREME_ERROR_CORRUPT);
    assert_non_null(strstr(error.message, "line 1"));
    free(ops);
}

// ---- memory plan

// When a root buffer is touched, counted from the schedule alone: [first, last] over the instructions that run.
struct life {
    int64_t first, last;
};

static void touch(const struct program *p, struct life *life, int buffer, int64_t now) {
    if (buffer == NONE)
        return;
    int root = program_root(p, buffer);
    if (life[root].first < 0)
        life[root].first = now;
    life[root].last = now;
}

// Whether some instruction of the program may write b over a: ops.def pairs them, and a dies there.
static bool takes_over(const struct program *p, const struct op_table *ops, int a, int b) {
    for (size_t t = 0; t < p->templates.count; t++)
        for (size_t i = 0; i < p->templates.item[t].instructions.count; i++) {
            const struct instruction *instruction = &p->templates.item[t].instructions.item[i];
            for (int o = 0; o < instruction->outputs; o++) {
                int k = ops->op[instruction->op].inplace[o];
                if (k >= 0 && instruction->in[k].buffer == a && instruction->out[o].buffer == b)
                    return true;
            }
        }
    return false;
}

static int64_t instance_begin(const struct program *p, int root) {
    const struct buffer *b = &p->buffers.item[root];
    return b->offset + (b->scope == SCOPE_SLOT ? p->pools.item[b->pool].base[SPACE_DEVICE][0]
                                               : p->arena[SPACE_DEVICE].scratch_base);
}

// No two buffers that live in one microbatch at the same time share a byte; one may take over where another dies.
static void check_no_overlap(const struct program *p, const struct op_table *ops) {
    struct life *life = mem_alloc(p->buffers.count * sizeof *life);
    for (size_t i = 0; i < p->buffers.count; i++)
        life[i].first = life[i].last = -1;
    int64_t now = 0;
    for (size_t k = 0; k < p->schedule.count; k++) {
        struct invocation v = p->schedule.item[k];
        if (v.microbatch > 0)
            continue;
        for (size_t i = 0; i < p->templates.item[v.template].instructions.count; i++, now++) {
            const struct instruction *instruction = &p->templates.item[v.template].instructions.item[i];
            for (int n = 0; n < instruction->inputs; n++)
                touch(p, life, instruction->in[n].buffer, now);
            for (int n = 0; n < instruction->outputs; n++)
                touch(p, life, instruction->out[n].buffer, now);
            touch(p, life, instruction->workspace, now);
        }
    }
    size_t shared = 0;
    for (size_t a = 0; a < p->buffers.count; a++)
        for (size_t b = 0; b < p->buffers.count; b++) {
            const struct buffer *x = &p->buffers.item[a], *y = &p->buffers.item[b];
            if (a == b || x->parent != NONE || y->parent != NONE || x->scope < SCOPE_SLOT || y->scope < SCOPE_SLOT ||
                life[a].first < 0 || life[b].first < 0)
                continue;
            int64_t i = instance_begin(p, (int)a), k = instance_begin(p, (int)b);
            if (i >= k + buffer_bytes(y) || k >= i + buffer_bytes(x))
                continue;
            shared++;
            bool apart = life[a].last < life[b].first || life[b].last < life[a].first;
            bool over = (life[a].last == life[b].first && i == k && takes_over(p, ops, (int)a, (int)b)) ||
                        (life[b].last == life[a].first && i == k && takes_over(p, ops, (int)b, (int)a));
            if (!apart && !over)
                fail_msg("%s and %s overlap in memory while both live", x->name, y->name);
        }
    assert_true(shared > 0);
    free(life);
}

// The most bytes that live at any one time: no plan takes less.
static int64_t lower_bound(const struct program *p, const struct op_table *ops) {
    struct memory_profile profile;
    program_memory_profile(p, ops, &profile);
    int64_t peak = profile.moments.item[profile.peak].live, at_peak = 0;
    assert_int_equal(profile.moments.count, program_length(p));
    for (size_t i = 0; i < profile.moments.count; i++)
        assert_true(profile.moments.item[i].live <= peak);
    for (size_t i = 0; i < profile.at_peak.count; i++)
        at_peak += p->buffers.item[profile.at_peak.item[i].buffer].scope == SCOPE_MICROBATCH ? 0 : 1;
    assert_true(at_peak > 0);
    memory_profile_release(&profile);
    return peak;
}

static void plan_is_sound(void **unused) {
    (void)unused;
    static const char *const SETS[][24] = {{SMALL_GPT2, NULL},
                                           {SMALL_GPT2, "activation_checkpoint.mode=selective", NULL},
                                           {SMALL_GPT2, "activation_checkpoint.mode=full", NULL},
                                           {SMALL_LLAMA, NULL},
                                           {SMALL_LLAMA, "activation_checkpoint.mode=selective", NULL},
                                           {SMALL_LLAMA, "activation_checkpoint.mode=full", NULL}};
    for (size_t i = 0; i < ARRAY_LENGTH(SETS); i++) {
        struct small_model small;
        small_model_create(&small, SETS[i], false);
        check_no_overlap(&engine_compiled(&small.engine, PROGRAM_TRAIN)->program, small.engine.ops);
        check_no_overlap(&engine_compiled(&small.engine, PROGRAM_EVALUATE)->program, small.engine.ops);
        small_model_release(&small);
    }
}

static void check_tight(const char *preset, const char *batch, const char *microbatch, const char *mode) {
    struct small_model small;
    small_model_create(&small, (const char *const[]){preset, batch, microbatch, mode, "training.threads=1", NULL},
                       false);
    const struct program *p = &engine_compiled(&small.engine, PROGRAM_TRAIN)->program;
    int64_t bound = lower_bound(p, small.engine.ops);
    print_message("%s, %s, %d microbatches: step %.1f MB, lower bound %.1f MB, %.2f%% above\n", preset, mode,
                  p->microbatches, 1e-6 * (double)p->arena[SPACE_DEVICE].step_bytes, 1e-6 * (double)bound,
                  100 * ((double)p->arena[SPACE_DEVICE].step_bytes / (double)bound - 1));
    assert_true(p->arena[SPACE_DEVICE].step_bytes >= bound);
    assert_true((double)p->arena[SPACE_DEVICE].step_bytes < 1.02 * (double)bound);
    small_model_release(&small);
}

static void plan_is_tight(void **unused) {
    (void)unused;
    static const char *const MODES[] = {"activation_checkpoint.mode=none", "activation_checkpoint.mode=selective",
                                        "activation_checkpoint.mode=full"};
    for (size_t i = 0; i < ARRAY_LENGTH(MODES); i++) {
        check_tight("model.preset=gpt2-124m", "training.global_batch_size=8", "training.micro_batch_size=4", MODES[i]);
        check_tight("model.preset=gpt2-1558m", "training.global_batch_size=64", "training.micro_batch_size=1",
                    MODES[i]);
        check_tight("model.preset=llama3.1-8b", "training.global_batch_size=2", "training.micro_batch_size=1",
                    MODES[i]);
    }
}

// ---- programs by hand

// y += the rows of x that a microbatch's `ids` pick.
static void emit_sum(struct program *p, int template, struct operand ids, struct operand x, struct operand y) {
    union attribute none[OP_MAX_ATTRIBUTES] = {{0}};
    program_emit(p, template, OP_EMBED, PHASE_FORWARD, NONE, 3, (struct operand[]){ids, x, operand_none()}, 1, &y, none)
        ->accumulate = ACCUMULATE_AFTER_FIRST;
}

static struct operand add_ids(struct program *p) {
    return operand_whole(p, program_buffer(p, "ids", DTYPE_I32, KIND_INPUT, SCOPE_MICROBATCH, 1, (int64_t[]){8}));
}

// Two microbatches in flight: forward of both, then backward of both. `h` must be kept per slot, `t` is scratch.
static void build_slots(struct program *p, int slots, int second_slot) {
    program_init(p, "slots", 2);
    program_pool(p, 0, 0, slots, (int[]){0, second_slot});
    struct operand x = add_rows(p, "x", KIND_INPUT, SCOPE_MICROBATCH), ids = add_ids(p);
    struct operand y = add_rows(p, "y", KIND_OUTPUT, SCOPE_STEP);
    struct operand h = add_rows(p, "h", KIND_ACT, SCOPE_SLOT);
    struct operand t = add_rows(p, "t", KIND_ACT, SCOPE_LOCAL);
    struct operand u = add_rows(p, "u", KIND_ACT, SCOPE_LOCAL);
    union attribute tanh[OP_MAX_ATTRIBUTES] = {{.i = 1}};
    int forward = program_template(p, "first", PHASE_FORWARD, 0),
        second = program_template(p, "second", PHASE_FORWARD, 0);
    program_emit(p, forward, OP_GELU, PHASE_FORWARD, NONE, 1, &x, 1, &t, tanh);
    program_emit(p, forward, OP_GELU, PHASE_FORWARD, NONE, 1, &t, 1, &h, tanh);
    program_emit(p, second, OP_GELU, PHASE_FORWARD, NONE, 1, &h, 1, &u, tanh);
    emit_sum(p, second, ids, u, y);
    program_invoke(p, forward, 0, true, false);
    program_invoke(p, forward, 1, false, true);
    program_invoke(p, second, 0, true, false);
    program_invoke(p, second, 1, false, true);
}

static void slots(void **unused) {
    (void)unused;
    struct op_table *ops = op_table_create();
    trireme_error error = {0};
    struct program p;
    build_slots(&p, 2, 1);
    assert_int_equal(program_plan(&p, ops, NULL, &error), TRIREME_OK);
    if (program_verify(&p, ops, &error) != TRIREME_OK)
        fail_msg("%s", error.message);
    check_round_trip(&p, ops);
    int64_t one = 8 * 16 * 4;
    assert_int_equal(p.pools.item[0].base[SPACE_DEVICE][1] - p.pools.item[0].base[SPACE_DEVICE][0], one);
    assert_int_equal(p.arena[SPACE_DEVICE].scratch_bytes, one); // t and u follow one another
    assert_int_equal(p.arena[SPACE_DEVICE].step_bytes,
                     p.arena[SPACE_DEVICE].fixed_bytes + p.arena[SPACE_DEVICE].scratch_bytes + 2 * one);
    p.pools.item[0].base[SPACE_DEVICE][0] -= 64; // the slot now reaches into scratch
    assert_int_equal(program_verify(&p, ops, &error), TRIREME_ERROR_PROGRAM);
    program_release(&p);
    // Both microbatches in one slot: the second takes what the first still needs.
    build_slots(&p, 2, 0);
    assert_int_equal(program_plan(&p, ops, NULL, &error), TRIREME_OK);
    assert_int_equal(program_verify(&p, ops, &error), TRIREME_ERROR_PROGRAM);
    assert_non_null(strstr(error.message, " h"));
    program_release(&p);
    build_slots(&p, 1, 1);
    assert_int_equal(program_plan(&p, ops, NULL, &error), TRIREME_ERROR_PROGRAM);
    assert_int_equal(program_verify(&p, ops, &error), TRIREME_ERROR_PROGRAM);
    assert_non_null(strstr(error.message, "slot"));
    program_release(&p);
    free(ops);
}

// Backward in two parts: `a` lives from the forward to the first part, `b` from the forward to the second, `c` from the
// first part to the second. Three of four microbatches are held at a time, but only two have an `a`, and two a `c`.
static void build_split(struct program *p) {
    program_init(p, "split", 4);
    program_pool(p, 0, 0, 3, (int[]){0, 1, 2, 0});
    struct operand x = add_rows(p, "x", KIND_INPUT, SCOPE_MICROBATCH), ids = add_ids(p);
    struct operand y = add_rows(p, "y", KIND_OUTPUT, SCOPE_STEP), z = add_rows(p, "z", KIND_OUTPUT, SCOPE_STEP);
    struct operand a = add_rows(p, "a", KIND_ACT, SCOPE_SLOT), b = add_rows(p, "b", KIND_ACT, SCOPE_SLOT);
    struct operand c = add_rows(p, "c", KIND_ACT, SCOPE_SLOT);
    union attribute tanh[OP_MAX_ATTRIBUTES] = {{.i = 1}};
    int forward = program_template(p, "forward", PHASE_FORWARD, 0),
        input = program_template(p, "input", PHASE_BACKWARD, 0),
        weight = program_template(p, "weight", PHASE_WEIGHT, 0);
    program_emit(p, forward, OP_GELU, PHASE_FORWARD, NONE, 1, &x, 1, &a, tanh);
    program_emit(p, forward, OP_GELU, PHASE_FORWARD, NONE, 1, &x, 1, &b, tanh);
    program_emit(p, input, OP_GELU, PHASE_FORWARD, NONE, 1, &a, 1, &c, tanh);
    emit_sum(p, weight, ids, b, y);
    emit_sum(p, weight, ids, c, z);
    const struct invocation order[] = {
        {forward, 0, true, false}, {forward, 1, false, false}, {input, 0, true, false},   {forward, 2, false, false},
        {input, 1, false, false},  {weight, 0, true, false},   {forward, 3, false, true}, {input, 2, false, false},
        {weight, 1, false, false}, {input, 3, false, true},    {weight, 2, false, false}, {weight, 3, false, true}};
    for (size_t i = 0; i < ARRAY_LENGTH(order); i++)
        VEC_PUSH(&p->schedule, order[i]);
}

static int pool_of(const struct program *p, const char *buffer) {
    return p->buffers.item[program_find(p, buffer)].pool;
}

// Buffers that live shorter than others have slots of their own. A plan with a slot that another microbatch still holds
// is refused.
static void parts(void **unused) {
    (void)unused;
    struct op_table *ops = op_table_create();
    trireme_error error = {0};
    struct program p;
    build_split(&p);
    for (int again = 0; again < 2; again++) { // what is planned is planned alike
        assert_int_equal(program_plan(&p, ops, NULL, &error), TRIREME_OK);
        if (program_verify(&p, ops, &error) != TRIREME_OK)
            fail_msg("%s", error.message);
        check_round_trip(&p, ops);
        // Three of b, two of a, two of c: when the second c is made. In three slots of one size it would be nine.
        assert_int_equal(p.arena[SPACE_DEVICE].step_bytes, lower_bound(&p, ops));
        assert_int_equal(p.arena[SPACE_DEVICE].step_bytes - p.arena[SPACE_DEVICE].fixed_bytes, 7 * 8 * 16 * 4);
        assert_true(p.pools.item[pool_of(&p, "a")].part_of == 0 && p.pools.item[pool_of(&p, "c")].part_of == 0);
    }
    int refused = 0;
    static const char *const BUFFERS[] = {"a", "b", "c"};
    for (size_t i = 0; i < ARRAY_LENGTH(BUFFERS); i++) {
        struct pool *pool = &p.pools.item[pool_of(&p, BUFFERS[i])];
        // One slot for all: the second microbatch takes what the first still needs.
        int *own = memcpy(mem_alloc(4 * sizeof *own), pool->slot, 4 * sizeof *own);
        memset(pool->slot, 0, 4 * sizeof *own);
        assert_int_equal(program_verify(&p, ops, &error), TRIREME_ERROR_PROGRAM);
        memcpy(pool->slot, own, 4 * sizeof *own);
        for (int m = 0; m < 4; m++)
            for (int slot = 0; slot < pool->slots; slot++) {
                pool->slot[m] = slot;
                bool taken = program_verify(&p, ops, &error) != TRIREME_OK;
                assert_true(slot != own[m] || !taken);
                refused += taken;
                pool->slot[m] = own[m];
            }
        free(own);
    }
    assert_true(refused >= 8);
    // A part of a part, and one of another chunk's pool.
    int part = pool_of(&p, "c");
    p.pools.item[part].part_of = part - 1;
    assert_int_equal(program_verify(&p, ops, &error), TRIREME_ERROR_PROGRAM);
    p.pools.item[part].part_of = part;
    assert_int_equal(program_verify(&p, ops, &error), TRIREME_ERROR_PROGRAM);
    p.pools.item[part].part_of = 0;
    assert_int_equal(program_verify(&p, ops, &error), TRIREME_OK);
    p.pools.item[0].base[SPACE_DEVICE][0] = 0; // over what is fixed
    assert_int_equal(program_verify(&p, ops, &error), TRIREME_ERROR_PROGRAM);
    p.pools.item[0].base[SPACE_DEVICE][0] = p.arena[SPACE_DEVICE].step_bytes + 32; // a byte where no vector begins
    assert_int_equal(program_verify(&p, ops, &error), TRIREME_ERROR_PROGRAM);
    assert_non_null(strstr(error.message, "lies at byte"));
    program_release(&p);
    free(ops);
}

// A template without a microbatch reads `h` of both between the two that write it: `h` may only be an input.
static void only_inputs_are_of_each_microbatch(void **unused) {
    (void)unused;
    struct op_table *ops = op_table_create();
    trireme_error error = {0};
    for (int from_host = 0; from_host < 2; from_host++) {
        struct program p;
        program_init(&p, "between", 2);
        struct operand x = add_rows(&p, "x", KIND_INPUT, SCOPE_MICROBATCH);
        struct operand h = add_rows(&p, "h", from_host ? KIND_INPUT : KIND_ACT, SCOPE_MICROBATCH);
        struct operand y =
            operand_whole(&p, program_buffer(&p, "y", DTYPE_F32, KIND_OUTPUT, SCOPE_STEP, 2, (int64_t[]){2, 8 * 16}));
        struct operand both = operand_microbatches(&p, h.buffer);
        union attribute tanh[OP_MAX_ATTRIBUTES] = {{.i = 1}};
        int each = program_template(&p, "each", PHASE_FORWARD, 0), all = program_template(&p, "all", PHASE_FORWARD, 0);
        if (!from_host)
            program_emit(&p, each, OP_GELU, PHASE_FORWARD, NONE, 1, &x, 1, &h, tanh);
        program_emit(&p, all, OP_GELU, PHASE_FORWARD, NONE, 1, &both, 1, &y, tanh);
        program_invoke(&p, each, 0, true, false);
        program_invoke(&p, all, NONE, false, false);
        program_invoke(&p, each, 1, false, true);
        if (from_host) {
            assert_int_equal(program_plan(&p, ops, NULL, &error), TRIREME_OK);
            if (program_verify(&p, ops, &error) != TRIREME_OK)
                fail_msg("%s", error.message);
            program_release(&p);
        } else {
            assert_program_refused(&p, ops, "belongs to each microbatch", " h ");
        }
    }
    free(ops);
}

// Times of a step are 32 bits wide.
static void a_step_has_an_end(void **unused) {
    (void)unused;
    enum { LONG = 1 << 16, MANY = INT32_MAX / LONG + 1 };
    struct op_table *ops = op_table_create();
    trireme_error error = {0};
    struct program p;
    program_init(&p, "long", MANY);
    int forward = program_template(&p, "forward", PHASE_FORWARD, 0);
    int x = program_buffer(&p, "x", DTYPE_F32, KIND_ACT, SCOPE_LOCAL, 1, (int64_t[]){1});
    struct operand whole = operand_whole(&p, x);
    for (int i = 0; i < LONG; i++)
        program_emit(&p, forward, OP_ZERO, PHASE_FORWARD, NONE, 0, NULL, 1, &whole, NULL);
    for (int m = 0; m < MANY; m++)
        program_invoke(&p, forward, m, m == 0, m == MANY - 1);
    assert_int_equal(program_plan(&p, ops, NULL, &error), TRIREME_ERROR_PROGRAM);
    assert_non_null(strstr(error.message, "a step of 2147483648 instructions is too long"));
    program_release(&p);
    free(ops);
}

// Without a microbatch, a template that each microbatch runs would see one of them as all.
static void with_and_without_a_microbatch(void **unused) {
    (void)unused;
    struct op_table *ops = op_table_create();
    struct program p;
    program_init(&p, "both", 2);
    struct operand x = add_rows(&p, "x", KIND_INPUT, SCOPE_MICROBATCH), h = add_rows(&p, "h", KIND_ACT, SCOPE_LOCAL);
    union attribute tanh[OP_MAX_ATTRIBUTES] = {{.i = 1}};
    int each = program_template(&p, "each", PHASE_FORWARD, 0);
    program_emit(&p, each, OP_GELU, PHASE_FORWARD, NONE, 1, &x, 1, &h, tanh);
    program_invoke(&p, each, 0, true, false);
    program_invoke(&p, each, 1, false, false);
    program_invoke(&p, each, NONE, false, true);
    assert_program_refused(&p, ops, "is invoked both with and without a microbatch", "template each");
    free(ops);
}

// With nothing but slots in the step, too.
static void slots_before_the_arena(void **unused) {
    (void)unused;
    struct op_table *ops = op_table_create();
    trireme_error error = {0};
    struct program p;
    program_init(&p, "slots", 1);
    struct operand h = operand_whole(
        &p, program_buffer(&p, "h", DTYPE_F32, KIND_ACT, SCOPE_SLOT, 1, (int64_t[]){BUFFER_ALIGNMENT / 4}));
    program_emit(&p, program_template(&p, "main", PHASE_FORWARD, 0), OP_ZERO, PHASE_FORWARD, NONE, 0, NULL, 1, &h,
                 NULL);
    program_invoke(&p, 0, 0, true, true);
    assert_int_equal(program_plan(&p, ops, NULL, &error), TRIREME_OK);
    assert_int_equal(program_verify(&p, ops, &error), TRIREME_OK);
    p.pools.item[0].base[SPACE_DEVICE][0] -= BUFFER_ALIGNMENT;
    assert_words(program_verify(&p, ops, &error), &error, "slot 0 of pool 0 lies at byte -64", "");
    program_release(&p);
    free(ops);
}

// A compiled program is proved, unless it is only looked at.
static void what_is_compiled_is_proved(void **unused) {
    (void)unused;
    struct small_model small;
    small_model_create(&small, (const char *const[]){SMALL_GPT2, NULL}, false);
    const struct engine *e = &small.engine;
    struct op_table *ops = op_table_create();
    ops->op[OP_LOSS_SUM].role = ROLE_FORWARD; // nothing sums the loss
    struct compile_options options = {.config = &small.config,
                                      .model = e->model,
                                      .ops = ops,
                                      .parallel = e->parallel,
                                      .state = &e->stage->state,
                                      .threads = 1};
    const struct program_spec spec = {.kind = PROGRAM_TRAIN, .batch = e->parallel->batch};
    struct compiled c;
    trireme_error error = {0};
    assert_words(compile_train(&c, &options, &spec, &error), &error, "the loss is summed 0 times", "2 microbatches");
    options.unproved = true;
    assert_int_equal(compile_train(&c, &options, &spec, &error), TRIREME_OK);
    compiled_release(&c);
    free(ops);
    small_model_release(&small);
}

// Of the forward pass alone: the ops of the backward pass read what these have made.
static void every_norm_has_the_epsilon_of_the_model(void **unused) {
    (void)unused;
    static const char *const SETS[][24] = {{SMALL_GPT2, "model.norm_eps=0.02", NULL},
                                           {SMALL_LLAMA, "model.norm_eps=0.02", NULL}};
    bool seen[OP_COUNT] = {false};
    for (size_t i = 0; i < ARRAY_LENGTH(SETS); i++) {
        struct small_model small;
        small_model_create(&small, SETS[i], false);
        const struct program *p = &engine_compiled(&small.engine, PROGRAM_TRAIN)->program;
        for (size_t t = 0; t < p->templates.count; t++)
            for (size_t k = 0; k < p->templates.item[t].instructions.count; k++) {
                const struct instruction *in = &p->templates.item[t].instructions.item[k];
                const int eps = op_attribute_find(&small.engine.ops->op[in->op], "eps");
                if (eps < 0 || in->phase != PHASE_FORWARD)
                    continue;
                assert_true(in->attribute[eps].f == 0.02);
                seen[in->op] = true;
            }
        small_model_release(&small);
    }
    assert_true(seen[OP_LAYERNORM] && seen[OP_RMSNORM] && seen[OP_QKNORM]);
}

static void wire_is_where_the_rows_have_it(void **unused) {
    (void)unused;
    struct op_table *ops = op_table_create();
    for (int op = 0; op < OP_COUNT; op++)
        assert_int_equal(op_wire((enum op)op), op_attribute_find(&ops->op[op], "wire"));
    free(ops);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wire_is_where_the_rows_have_it),
        cmocka_unit_test(round_trip),
        cmocka_unit_test(parse_errors),
        cmocka_unit_test(plan_is_sound),
        cmocka_unit_test(plan_is_tight),
        cmocka_unit_test(slots),
        cmocka_unit_test(parts),
        cmocka_unit_test(only_inputs_are_of_each_microbatch),
        cmocka_unit_test(with_and_without_a_microbatch),
        cmocka_unit_test(slots_before_the_arena),
        cmocka_unit_test(a_step_has_an_end),
        cmocka_unit_test(every_norm_has_the_epsilon_of_the_model),
        cmocka_unit_test(what_is_compiled_is_proved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
