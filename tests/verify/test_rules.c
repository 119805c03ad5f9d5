// Rules of the verifier, each with a program that breaks nothing else: so it is refused by the rule that it is here
// for, or by none.
#include "memory/memory_plan.h"
#include "support/by_hand.h"
#include "support/checkpoint.h"
#include "support/fleet.h"
#include "support/streams.h"
#include "support/test.h"
#include "verify/verify.h"

// A program of one template, `body` its buffers and instructions, that is invoked once for each of the microbatches.
static struct program read_program(const struct op_table *ops, const char *mesh, int microbatches, const char *body) {
    struct text text = {0};
    struct program p;
    trireme_error error = {0};
    text_add(&text, "program rules microbatches %d\nmesh %s\narena state 0 fixed 0 scratch 0+0 step 0\n" TEST_STREAMS,
             microbatches, mesh);
    text_add(&text, "pool 0 chunk 0 at 0:");
    for (int m = 0; m < microbatches; m++)
        text_add(&text, " 0");
    text_add(&text, "\n%s", body);
    for (int m = 0; m < microbatches; m++)
        text_add(&text, "invoke 0 microbatch %d%s%s\n", m, m ? "" : " first", m + 1 < microbatches ? "" : " last");
    if (program_parse(&p, ops, text.text, text.length, &error) != TRIREME_OK)
        fail_msg("%s", error.message);
    text_release(&text);
    return p;
}

static void refuse(const char *mesh, int microbatches, const char *body, const char *what, const char *name) {
    struct op_table *ops = op_table_create();
    struct program p = read_program(ops, mesh, microbatches, body);
    assert_program_refused(&p, ops, what, name);
    free(ops);
}

// The programs of two stages, each sound by itself, on all ranks of a mesh.
static void refuse_stages(const char *mesh, const char *first, const char *second, const char *what, const char *name) {
    struct op_table *ops = op_table_create();
    struct program of[2] = {read_program(ops, mesh, 1, first), read_program(ops, mesh, 1, second)};
    const struct program *of_rank[8];
    trireme_error error = {0};
    int ranks = mesh_ranks(&of[0].mesh);
    for (int stage = 0; stage < 2; stage++) {
        place_state(&of[stage]);
        if (program_plan(&of[stage], ops, NULL, &error) != TRIREME_OK ||
            program_verify(&of[stage], ops, &error) != TRIREME_OK)
            fail_msg("stage %d: %s", stage, error.message);
    }
    for (int r = 0; r < ranks; r++)
        of_rank[r] = &of[r >= ranks / 2];
    assert_words(programs_verify(of_rank, ranks, ops, &error), &error, what, name);
    program_release(&of[0]);
    program_release(&of[1]);
    free(ops);
}

static void assert_sound(struct program *mutant, const struct op_table *ops) {
    trireme_error error = {0};
    if (program_plan(mutant, ops, NULL, &error) != TRIREME_OK || program_verify(mutant, ops, &error) != TRIREME_OK)
        fail_msg("%s", error.message);
}

// Plans the mutant anew, since it may use other memory, and releases it.
static void refuse_mutant(struct program *mutant, const struct op_table *ops, const char *what, const char *name) {
    assert_refused_anew(mutant, ops, what, name);
    mutant_release(mutant);
}

// Adds a buffer to a mutant, like an existing one except for its name.
static int add_like(struct program *mutant, const char *like, char *name) {
    struct buffer b = mutant->buffers.item[program_find(mutant, like)];
    b.name = name;
    b.offset = -1;
    VEC_PUSH(&mutant->buffers, b);
    return (int)mutant->buffers.count - 1;
}

// ---- tables

// Each microbatch would add the terms of the microbatches before it once more.
static void sums_of_sums(void **unused) {
    (void)unused;
    refuse("tp 2", 2,
           "buffer %0 i32 input microbatch [4] \"ids\"\n"
           "buffer %1 f32 param state [8,4] place tp 0 \"table\"\n"
           "buffer %2 i32 param state [1] as first \"first\"\n"
           "buffer %3 f32 output step [4,4] place tp sum \"terms\"\n"
           "buffer %4 f32 output step [8] place tp 0 \"sums\"\n"
           "template 0 forward \"t\"\n"
           "  %3[4,4] = embed %0[4] %1[8,4] %2[1] phase forward accumulate after_first\n"
           "  %4[8] = reduce_scatter %3[16] wire 0 phase forward group tp accumulate after_first\n",
           "which is already a sum, a second time", "terms");
}

static void what_travels_as_bf16(void **unused) {
    (void)unused;
    refuse("dp 2", 1,
           "buffer %0 f64 input step [4] place dp sum \"terms\"\n"
           "buffer %1 f64 output step [4] \"sums\"\n"
           "template 0 forward \"t\"\n"
           "  %1[4] = all_reduce %0[4] max 0 wire 1 phase forward group dp\n",
           "would travel as bf16", "terms");
    refuse("dp 2", 1,
           "buffer %0 f32 input step [4] place dp 0 \"parts\"\n"
           "buffer %1 f32 output step [8] \"all\"\n"
           "template 0 forward \"t\"\n"
           "  %1[8] = all_gather %0[4] wire 1 phase forward group dp\n",
           "would travel as bf16", "parts");
}

// On every rank, the rank's own part of a buffer must lie in the buffer to its last element.
static void parts_beyond_their_buffer(void **unused) {
    (void)unused;
    static const char *const BODY = "buffer %%0 f32 input step [16] \"x\"\n"
                                    "buffer %%1 f32 output step [16] \"y\"\n"
                                    "template 0 forward \"t\"\n"
                                    "  %%1[16] = all_gather %%0[8]@dp*%d wire 0 phase forward group dp\n";
    struct op_table *ops = op_table_create();
    char *within = mem_printf(BODY, 8), *beyond = mem_printf(BODY, 9);
    struct program p = read_program(ops, "dp 2", 1, within);
    assert_sound(&p, ops);
    refuse("dp 2", 1, beyond, "ends beyond it on the last of 2 ranks", "x");
    program_release(&p);
    free(within);
    free(beyond);
    free(ops);
}

// ---- memory

// On ranks other than the root, a reduction leaves undefined values in its terms.
static void terms_of_a_reduction(void **unused) {
    (void)unused;
    refuse("pp 2", 1,
           "buffer %0 f32 input step [8,16] place pp 1 \"x\"\n"
           "buffer %1 f32 input step [8,16] place pp 1 \"w\"\n"
           "buffer %2 f32 act local [8,8] \"terms\"\n"
           "buffer %3 f32 output step [8,8] \"y\"\n"
           "template 0 forward \"t\"\n"
           "  %2[8,8] = matmul %0[8,16] %1[8,16] - - phase forward\n"
           "  - = reduce %2[64] phase forward group pp peer 1\n"
           "  %3[8,8] = gelu %2[8,8] tanh 0 phase forward\n",
           "before it is written", "terms");
}

// ---- placement

// Columns of two ranks are no two halves of a matrix; ranks that are no neighbours have no half of its rows; what is
// gathered of neighbours is a half still; and parts of parts lie in no order.
static void blocks_to_gather(void **unused) {
    (void)unused;
    refuse("tp 2", 1,
           "buffer %0 f32 input step [8,16] place tp 1 \"columns\"\n"
           "buffer %1 f32 output step [256] \"all\"\n"
           "template 0 forward \"t\"\n"
           "  %1[256] = all_gather %0[128] wire 0 phase forward group tp\n",
           "are not blocks in the order of the group's ranks", "columns");
    refuse("dp 2 fsdp 2", 1,
           "buffer %0 f32 input step [16] place dp 0 place fsdp 0 \"quarters\"\n"
           "buffer %1 f32 act local [32] \"first and third\"\n"
           "template 0 forward \"t\"\n"
           "  %1[32] = all_gather %0[16] wire 0 phase forward group dp\n",
           "are not blocks in the order of the group's ranks", "quarters");
    refuse("dp 2 fsdp 2", 1,
           "buffer %0 f32 input step [16] place dp 0 place fsdp 0 \"quarters\"\n"
           "buffer %1 f32 output step [32] \"halves\"\n"
           "template 0 forward \"t\"\n"
           "  %1[32] = all_gather %0[16] wire 0 phase forward group fsdp\n",
           "is not placed along dp as it is declared", "halves");
    refuse("dp 2 fsdp 2", 1,
           "buffer %0 f32 input step [16] place fsdp 0 \"halves\"\n"
           "buffer %1 f32 output step [16] place dp 0 \"other halves\"\n"
           "template 0 forward \"t\"\n"
           "  %1[16] = all_gather %0[8]@dp*8 wire 0 phase forward group fsdp\n",
           "are of another group of ranks", "halves");
}

// Of a sum that each rank has a share of, its own part is no part of the sum: the rest of it would never be added.
static void own_parts_of_a_sum(void **unused) {
    (void)unused;
    refuse("dp 2 fsdp 2", 1,
           "buffer %0 f32 input step [8,16] place dp 1 place fsdp 1 \"x\"\n"
           "buffer %1 f32 input step [8,16] place dp 1 place fsdp 1 \"w\"\n"
           "buffer %2 f32 act local [8,8] \"shares\"\n"
           "buffer %3 f32 output step [8,8] \"y\"\n"
           "template 0 forward \"t\"\n"
           "  %2[8,8] = matmul %0[8,16] %1[8,16] - - phase forward\n"
           "  %2[32]@fsdp*32 = all_reduce %2[32]@fsdp*32 max 0 wire 0 phase forward group dp\n"
           "  %2[32]@fsdp*32 = reduce_scatter %2[64] wire 0 phase forward group fsdp\n"
           "  %2[64] = all_gather %2[32]@fsdp*32 wire 0 phase forward group fsdp\n"
           "  %3[8,8] = gelu %2[8,8] tanh 0 phase forward\n",
           "a value that is not split so", "shares");
}

static void ranks_that_skip(void **unused) {
    (void)unused;
    refuse("dp 2", 1,
           "buffer %0 f32 input step [8,16] place dp 0 \"x\"\n"
           "buffer %1 i32 input step [1] place dp 0 \"mask\"\n"
           "buffer %2 f32 act local [8,16] \"h\"\n"
           "buffer %3 f32 output step [8,16] place dp 0 \"y\"\n"
           "template 0 forward \"t\"\n"
           "  %2[8,16] = gelu %0[8,16] tanh 0 phase forward\n"
           "  %2[8,16] = add %2[8,16] %0[8,16] phase forward if %1\n"
           "  %3[8,16] = gelu %2[8,16] tanh 0 phase forward\n",
           "is not the same on all ranks along dp", "mask");
}

// ---- gradients

// What each microbatch has added is read before the next one overwrites it, so that nothing is lost unread.
static void gradients_of_the_last_microbatch(void **unused) {
    (void)unused;
    struct small_model small;
    small_model_create(&small, (const char *const[]){SMALL_LLAMA, NULL}, false);
    struct program p = mutant_copy(&engine_compiled(&small.engine, PROGRAM_TRAIN)->program);
    int copy = add_like(&p, "layers.0.mlp.down.weight", "copy");
    p.buffers.item[copy].kind = KIND_ACT;
    p.buffers.item[copy].scope = SCOPE_LOCAL;
    p.buffers.item[copy].parent = NONE;
    struct place place = mutant_find(&p, OP_MATMUL_DW, "grad.layers.0.mlp.down.weight");
    mutant_at(place)->accumulate = ACCUMULATE_NO;
    mutant_repeat(&p, place);
    place.index++;
    struct instruction *look = mutant_at(place);
    look->op = OP_GELU;
    look->inputs = look->outputs = 1;
    look->in[0] = look->out[0];
    look->out[0].buffer = copy;
    look->out[0].offset = 0;
    refuse_mutant(&p, small.engine.ops, "changes grad.layers.0.mlp.down.weight, which has been read before",
                  "matmul_dw");
    small_model_release(&small);
}

#define FLEET(...)  \
    struct fleet f; \
    fleet_create(&f, __func__, (const char *const[]){SMALL_BATCH, SMALL_EXACT, SMALL_GPT2_MODEL, __VA_ARGS__, NULL})

static void gradients_sent_twice(void **unused) {
    (void)unused;
    FLEET("parallelism.pipeline_parallel_degree=2");
    struct program p = mutant_copy(fleet_program(&f, 1));
    mutant_repeat(&p, mutant_find(&p, OP_SEND, "d.layers.0.residual"));
    refuse_mutant(&p, f.stages.options.ops, "sends the gradient of layers.0.residual twice", "send");
    fleet_release(&f);
}

// ---- what a name stands for

static void make_zero(struct program *mutant, struct instruction *i, const char *buffer) {
    struct operand all = operand_whole(mutant, program_find(mutant, buffer));
    all = operand_shape(all, 1, (int64_t[]){operand_count(&all)});
    i->op = OP_ZERO;
    i->accumulate = ACCUMULATE_NO;
    i->predicate = NONE;
    i->inputs = 0;
    i->outputs = 1;
    program_give_operands(mutant, i, 0, NULL, 1, &all);
}

// Values become zero between two instructions that read them.
static void values_that_change(void **unused) {
    (void)unused;
    static const struct {
        enum op op; // behind that of what it touches
        const char *touches, *buffer;
    } FAULTS[] = {{OP_MATMUL, "layers.1.attention.qkv", "layers.0.mlp.up"},
                  {OP_MATMUL_DX, "d.layers.1.mlp.up", "d.layers.1.mlp.up"},
                  {OP_LOSS_SUM, "loss", "loss.scale"},
                  {OP_CLIP, "clip_factor", "layers.0.gradients"},
                  {OP_ADAMW, "layers.0.m", "clip_factor"},
                  {OP_ADAMW, "layers.0.m", "loss"}};
    struct small_model small;
    small_model_create(&small, (const char *const[]){SMALL_GPT2, NULL}, false);
    for (size_t i = 0; i < ARRAY_LENGTH(FAULTS); i++) {
        struct program p = mutant_copy(&engine_compiled(&small.engine, PROGRAM_TRAIN)->program);
        struct place place = mutant_find(&p, FAULTS[i].op, FAULTS[i].touches);
        mutant_repeat(&p, place);
        place.index++;
        make_zero(&p, mutant_at(place), FAULTS[i].buffer);
        char *what = mem_printf("changes %s, which has been read before", FAULTS[i].buffer);
        refuse_mutant(&p, small.engine.ops, what, "zero");
        free(what);
    }
    small_model_release(&small);
}

// Recomputed values are computed as they were the first time.
static void computed_again(void **unused) {
    (void)unused;
    struct small_model small;
    small_model_create(&small, (const char *const[]){SMALL_GPT2, "activation_checkpoint.mode=selective", NULL}, false);
    const char *const again = "layers.0.mlp.activation.again";
    struct program p = mutant_copy(&engine_compiled(&small.engine, PROGRAM_TRAIN)->program);
    make_zero(&p, mutant_at(mutant_find(&p, OP_GELU, again)), again);
    refuse_mutant(&p, small.engine.ops, "but does not recompute", again);
    p = mutant_copy(&engine_compiled(&small.engine, PROGRAM_TRAIN)->program);
    p.buffers.item[program_find(&p, again)].gradient_of = program_find(&p, "layers.0.mlp.up");
    refuse_mutant(&p, small.engine.ops, "is declared both a gradient and a recomputed buffer", again);
    p = mutant_copy(&engine_compiled(&small.engine, PROGRAM_TRAIN)->program);
    p.buffers.item[program_find(&p, again)].recomputes = program_find(&p, again);
    refuse_mutant(&p, small.engine.ops, "recomputes a buffer that is not listed before it", again);
    small_model_release(&small);
}

// A square matrix of parameters is as large as the activations that it makes, and as their gradient.
static void gradients_in_one_buffer(void **unused) {
    (void)unused;
    struct small_model small;
    small_model_create(&small, (const char *const[]){SMALL_GPT2, NULL}, false);
    const struct program *program = &engine_compiled(&small.engine, PROGRAM_TRAIN)->program;
    const int square = program_find(program, "layers.0.attention.out.weight");
    struct program p = mutant_copy(program); // the backward of one product reads it as its gradient
    p.buffers.item[square].gradient_of = program_find(&p, "layers.0.attention.residual");
    mutant_at(mutant_find(&p, OP_MATMUL_DW, "grad.layers.0.attention.out.weight"))->in[1].buffer = square;
    refuse_mutant(&p, small.engine.ops, "is a second gradient of layers.0.attention.residual",
                  "d.layers.0.attention.residual");
    p = mutant_copy(program); // rows of the table are added to its gradient
    struct place place = mutant_find(&p, OP_EMBED_DW, "grad.embed.weight");
    mutant_repeat(&p, place);
    struct instruction *add = mutant_at(place);
    const struct instruction *embed = mutant_at(mutant_find(&p, OP_EMBED, "embed.weight"));
    add->op = OP_EMBED;
    program_give_operands(&p, add, embed->inputs, embed->in, embed->outputs, embed->out);
    add->out[0].buffer = program_find(&p, "grad.layers.0.attention.out.weight");
    add->accumulate = ACCUMULATE_YES;
    refuse_mutant(&p, small.engine.ops, "writes the gradient grad.layers.0.attention.out.weight", "embed");
    p = mutant_copy(program); // a product of it and itself is, when all microbatches are done
    mutant_repeat(&p, mutant_find(&p, OP_SQUARE_SUM, "embed.gradients"));
    add = mutant_at(mutant_find(&p, OP_SQUARE_SUM, "embed.gradients"));
    const struct instruction *dw = mutant_at(mutant_find(&p, OP_MATMUL_DW, "grad.layers.0.attention.out.weight"));
    add->op = OP_MATMUL_DW;
    add->accumulate = ACCUMULATE_YES;
    add->inputs = add->outputs = 2;
    program_give_operands(&p, add, dw->inputs, dw->in, dw->outputs, dw->out);
    add->in[0] = add->in[1] = operand_whole(&p, square);
    refuse_mutant(&p, small.engine.ops, "makes gradients, but belongs to no microbatch", "matmul_dw");
    small_model_release(&small);
}

// ---- the loss

#define AT(op, buffer) mutant_at(mutant_find(&p, op, buffer))
// The gradient of a chunk of logits, by the targets of another, relative to its maximum, as another part of the
// vocabulary, or of a smaller one, by the chunk's sums; or those, too, of another part or relative to another maximum.
static void gradients_of_split_logits(void **unused) {
    (void)unused;
    FLEET("parallelism.tensor_parallel_degree=2", "parallelism.sequence_parallel=false", "training.logits_rows=8");
    for (int fault = 0; fault < 6; fault++) {
        struct program p = mutant_copy(fleet_program(&f, 0));
        int first = add_like(&p, "vocab.first", "another.first");
        struct instruction *grad = AT(OP_LOGITS_GRAD, "logits.rows8");
        const struct instruction *other = AT(OP_LOGITS_GRAD, "logits.rows0");
        if (fault == 0)
            grad->in[1] = other->in[1];
        else if (fault == 1 || fault == 4)
            grad->in[2].buffer = first;
        else if (fault == 2 || fault == 5)
            grad->in[3] = other->in[3];
        else
            grad->attribute[0].i--;
        if (fault > 3)
            AT(OP_LOGITS_SUM, "logits.rows8")->in[fault - 2] = grad->in[fault - 2];
        refuse_mutant(&p, f.stages.options.ops,
                      fault == 2 || fault == 5 ? "for others than its set"
                      : fault == 3             ? "its vocab is not that of the rest of its set"
                                               : "the rest of its set takes other elements",
                      "");
    }
    fleet_release(&f);
}

// The head of a spread vocabulary, by the targets or the own logits of another chunk, another part, or a smaller one.
static void gradients_of_spread_logits(void **unused) {
    (void)unused;
    FLEET("parallelism.pipeline_parallel_degree=2", "parallelism.vocabulary_parallel=true", "training.logits_rows=8");
    static const char *const WORDS[] = {"the rest of its set takes other elements", "for others than its set",
                                        "the rest of its set takes other elements",
                                        "its vocab is not that of the rest of its set"};
    for (size_t fault = 0; fault < ARRAY_LENGTH(WORDS); fault++) {
        struct program p = mutant_copy(fleet_program(&f, 0));
        int first = add_like(&p, "vocab.first", "another.first");
        if (fault == 0)
            AT(OP_LOGITS_EXP, "logits.rows8")->in[1] = AT(OP_LOGITS_EXP, "logits.rows0")->in[1];
        else if (fault == 1)
            AT(OP_LOGITS_DX, "logits.max.rows8")->in[2] = AT(OP_LOGITS_DX, "logits.max.rows0")->in[2];
        else if (fault == 2)
            AT(OP_LOGITS_PICK, "vocab.first")->in[2].buffer = first;
        else
            AT(OP_LOGITS_GRAD, "logits.rows8")->attribute[0].i--;
        refuse_mutant(&p, f.stages.options.ops, WORDS[fault], "logits");
    }
    fleet_release(&f);
}

static void exchange(struct operand *a, struct operand *b) {
    struct operand first = *a;
    *a = *b;
    *b = first;
}

// Two halves of the logits, whose gradients lie in each other's place.
static void gradients_in_other_rows(void **unused) {
    (void)unused;
    struct small_model small;
    small_model_create(&small, (const char *const[]){SMALL_GPT2, "training.logits_rows=16", NULL}, false);
    struct program p = mutant_copy(&engine_compiled(&small.engine, PROGRAM_TRAIN)->program);
    struct instruction *grad = mutant_halve(&p, OP_CROSS_ENTROPY_GRAD, "loss.scale");
    assert_sound(&p, small.engine.ops);
    exchange(&grad[0].out[1], &grad[1].out[1]);
    refuse_mutant(&p, small.engine.ops, "row by row", "d.logits");
    small_model_release(&small);
}

// Logits of some rows by the targets, maxima and sums of others.
static void gradients_of_other_rows(void **unused) {
    (void)unused;
    FLEET("parallelism.tensor_parallel_degree=2", "parallelism.sequence_parallel=false", "training.logits_rows=8");
    struct program p = mutant_copy(fleet_program(&f, 0));
    struct instruction *first = AT(OP_LOGITS_GRAD, "logits.rows0"), *second = AT(OP_LOGITS_GRAD, "logits.rows8");
    second->in[0] = first->in[0];
    refuse_mutant(&p, f.stages.options.ops, "the rest of its set takes other elements", "logits_grad");
    fleet_release(&f);
}

// ---- meetings

static void broadcasts_placed_otherwise(void **unused) {
    (void)unused;
    refuse_stages("tp 2 pp 2",
                  "buffer %0 f32 input step [16] place tp 0 \"x\"\n"
                  "buffer %1 f32 act local [16] \"y\"\n"
                  "template 0 input \"t\"\n"
                  "  %1[16] = broadcast %0[16] phase input group pp\n",
                  "buffer %0 f32 act local [16] \"y\"\n"
                  "template 0 input \"t\"\n"
                  "  %0[16] = broadcast - phase input group pp peer 1\n",
                  "which is placed differently along tp", "y");
}

static void messages_of_the_other_pass(void **unused) {
    (void)unused;
    refuse_stages("pp 2",
                  "buffer %0 f32 input step [16] \"x\"\n"
                  "template 0 forward \"t\"\n"
                  "  = send %0[16] phase forward stream to_next group pp peer 1\n",
                  "buffer %0 f32 act local [16] \"x\"\n"
                  "template 0 backward \"t\"\n"
                  "  %0[16] = receive phase backward stream from_previous group pp peer 1\n",
                  "of the other pass", "x");
}

// On ranks other than the root, a reduction sums in its terms, which then are no rank's parameters any more.
static void reductions_of_parameters(void **unused) {
    (void)unused;
    static const char *const KINDS[] = {"param state", "input step"};
    for (size_t i = 0; i < ARRAY_LENGTH(KINDS); i++) {
        char *body = mem_printf("buffer %%0 f32 %s [16] place pp sum \"w\"\n"
                                "template 0 forward \"t\"\n"
                                "  - = reduce %%0[16] phase forward stream embed group pp peer 1\n",
                                KINDS[i]);
        refuse("pp 2", 1, body, "which is not an activation", "w");
        free(body);
    }
}

// A value that is made is not changed in place.
static void sums_in_place(void **unused) {
    (void)unused;
    refuse("dp 1", 1,
           "buffer %0 f32 param state [4,4] \"w\"\n"
           "buffer %1 f32 grad state [4,4] gradient %0 \"gw\"\n"
           "buffer %2 f32 input microbatch [4,4] \"x\"\n"
           "buffer %3 f32 act local [4,4] \"a\"\n"
           "buffer %4 f32 act local [16] of %3+0 \"s\"\n"
           "buffer %5 f32 act local [4,4] gradient %3 \"da\"\n"
           "buffer %6 f32 act local [16] of %5+0 gradient %4 \"ds\"\n"
           "template 0 forward \"t\"\n"
           "  %3[4,4] = matmul %2[4,4] %0[4,4] - - phase forward\n"
           "  %3[4,4] = add %3[4,4] %2[4,4] phase forward\n"
           "  = send %4[16] phase forward stream to_next wait compute\n"
           "  %6[16] = receive phase backward stream gradient_from_next\n"
           "  %1[4,4] - = matmul_dw %2[4,4] %5[4,4] phase weight wait gradient_from_next\n",
           "changes a, which the step has made before", "add");
}

// The gradient of a table, of the rows of two ranks: those of `x`, which the next stage has, too, and of which a
// product is made.
#define ROWS_OF_RANKS                                                               \
    "buffer %0 f32 param state [8,4] place pp stage \"w\"\n"                        \
    "buffer %1 f32 param state [6,4] place pp stage \"v\"\n"                        \
    "buffer %2 f32 grad state [8,4] gradient %0 place pp stage \"gw\"\n"            \
    "buffer %3 i32 input microbatch [4] place dp 0 \"ids\"\n"                       \
    "buffer %4 f32 act slot [4,4] \"x\"\n"                                          \
    "buffer %5 f32 act slot [4,6] \"y\"\n"                                          \
    "buffer %6 f32 act slot [4,4] gradient %4 \"dx\"\n"                             \
    "buffer %7 f32 act slot [4,6] gradient %5 \"dy\"\n"                             \
    "buffer %8 i32 act local [8] \"ids.all\"\n"                                     \
    "buffer %9 f32 act local [8,4] \"dx.all\"\n"                                    \
    "buffer %10 i32 input microbatch [8] \"others\"\n"                              \
    "template 0 forward \"t\"\n"                                                    \
    "  %4[4,4] = embed %3[4] %0[8,4] - phase forward\n"                             \
    "  %5[4,6] = matmul %4[4,4] %1[6,4] - - phase forward\n"                        \
    "  = send %4[16] phase forward stream to_next group pp peer 1 wait compute\n"   \
    "  = send %5[24] phase forward stream to_next group pp peer 1\n"                \
    "  %8[8] = all_gather %3[4] wire 0 phase weight stream reduce group dp\n"       \
    "  %6[16] = receive phase backward stream gradient_from_next group pp peer 1\n" \
    "  %7[24] = receive phase backward stream gradient_from_next group pp peer 1\n"
#define PRODUCT \
    "  %6[4,4] = matmul_dx %7[4,6] %1[6,4] phase backward accumulate yes wait reduce wait gradient_from_next\n"
#define GATHER \
    "  %9[32] = all_gather %6[16] wire 0 phase weight stream reduce group dp wait compute wait gradient_from_next\n"
#define ADD_ROWS "  %2[8,4] = embed_dw %8[8] %9[8,4] - phase weight wait reduce\n"

static void rows_of_all_ranks(void **unused) {
    (void)unused;
    const char *mesh = "dp 2 pp 2", *sound = "the norm of the gradients is made 0 times"; // there is no update
    refuse(mesh, 1, ROWS_OF_RANKS PRODUCT GATHER ADD_ROWS, sound, "norm");
    refuse(mesh, 1,
           ROWS_OF_RANKS PRODUCT GATHER
           "  %9[8,4] = embed %10[8] %0[8,4] - phase forward accumulate yes wait reduce\n" ADD_ROWS,
           "adds to dx.all, which receive has made", "embed");
    refuse(mesh, 1, ROWS_OF_RANKS GATHER PRODUCT ADD_ROWS, "changes dx, which has been read before", "matmul_dx");
}

// The second of two contributions, in the place of the first, may be left out.
static void contributions_that_are_skipped(void **unused) {
    (void)unused;
    static const char *const BODY =
        "buffer %%0 f32 param state [4] place pp stage \"w\"\n"
        "buffer %%1 f32 grad state [4] gradient %%0 place pp stage \"gw\"\n"
        "buffer %%2 f32 param state [4,4] place pp stage \"v\"\n"
        "buffer %%3 f32 grad state [4,4] gradient %%2 place pp stage \"gv\"\n"
        "buffer %%4 f32 input microbatch [4,4] \"in\"\n"
        "buffer %%5 f32 act slot [4,4] \"x\"\n"
        "buffer %%6 f32 act slot [4,4] \"y\"\n"
        "buffer %%7 f32 act slot [4] \"rstd\"\n"
        "buffer %%8 f32 act slot [4,4] gradient %%5 \"dx\"\n"
        "buffer %%9 f32 act slot [4,4] gradient %%6 \"dy\"\n"
        "buffer %%10 i32 input microbatch [1] \"mask\"\n"
        "template 0 forward \"t\"\n"
        "  %%5[4,4] = matmul %%4[4,4] %%2[4,4] - - phase forward\n"
        "  %%6[4,4] %%7[4] = rmsnorm %%5[4,4] %%0[4] eps 1e-5 phase forward\n"
        "  = send %%5[16] phase forward stream to_next group pp peer 1 wait compute\n"
        "  = send %%6[16] phase forward stream to_next group pp peer 1\n"
        "  %%8[16] = receive phase backward stream gradient_from_next group pp peer 1\n"
        "  %%9[16] = receive phase backward stream gradient_from_next group pp peer 1\n"
        "  %%1[4] = rmsnorm_dw %%5[4,4] %%7[4] %%9[4,4] phase weight wait gradient_from_next\n"
        "  %%8[4,4] = rmsnorm_dx %%5[4,4] %%0[4] %%7[4] %%9[4,4] %%8[4,4] phase backward%s\n"
        "  %%3[4,4] - = matmul_dw %%4[4,4] %%8[4,4] phase weight\n";
    char *whole = mem_printf(BODY, ""), *skipped = mem_printf(BODY, " if %10");
    refuse("pp 2", 1, whole, "the norm of the gradients is made 0 times", "norm"); // there is no update
    refuse("pp 2", 1, skipped, "mismatch: predicate", "rmsnorm_dx");
    free(whole);
    free(skipped);
}

// ---- rings

// Each rank of cp has what the one before it has, in one program that all of them run; further round the ring, more.
#define RING(third)                                     \
    "buffer %0 f32 input step [4,4] place cp 0 \"x\"\n" \
    "buffer %1 f32 act local [4,4] \"x.1\"\n" third "template 0 input \"t\"\n"
#define RING_SEND(what, peer) "  = send " what " phase input stream to_next group cp peer " peer " wait from_previous\n"
#define RING_RECEIVE(what, peer) "  " what " = receive phase input stream from_previous group cp peer " peer "\n"

static void messages_around_a_ring(void **unused) {
    (void)unused;
    static const char *const SOUND[] = {
        RING() RING_SEND("%0[16]", "1") RING_RECEIVE("%1[16]", "-1"),
        RING() RING_SEND("%0[16]", "1") RING_RECEIVE("%1[16]", "3"),
        RING("buffer %2 f32 act local [4,4] \"x.2\"\n") RING_SEND("%0[16]", "1") RING_RECEIVE("%1[16]", "-1")
            RING_SEND("%1[16]", "2") RING_RECEIVE("%2[16]", "-2"),
    };
    static const struct {
        const char *body, *what;
    } FAULTS[] = {
        {RING() RING_SEND("%0[16]", "1") RING_RECEIVE("%1[16]", "1"), "nothing that the peer receives behind it"},
        {RING() RING_SEND("%0[16]", "1") RING_RECEIVE("%1[16]", "-2"), "nothing that the peer receives behind it"},
        {RING() RING_SEND("%0[16]", "4") RING_RECEIVE("%1[16]", "-4"), "has no peer"},
        {RING() RING_RECEIVE("%1[16]", "-1") RING_SEND("%0[16]", "1"), "nothing that the peer has sent"},
        {RING("buffer %2 f32 act local [4,4] \"x.2\"\n") RING_SEND("%0[16]", "1") RING_RECEIVE("%1[16]", "-1")
             RING_RECEIVE("%2[16]", "-1"),
         "nothing that the peer has sent"},
        {RING("buffer %2 f32 act local [2,4] \"half\"\n") RING_SEND("%0[16]", "1") RING_RECEIVE("%2[8]", "-1"),
         "has another shape"},
        {RING() RING_SEND("%0[8]", "1") RING_RECEIVE("%1[8]", "-1"), "does not take all"},
        {RING("buffer %2 f32 input step [4,4] place cp sum \"terms\"\n") RING_SEND("%2[16]", "1")
             RING_RECEIVE("%1[16]", "-1"),
         "is a partial sum along cp"},
        {RING("buffer %2 f32 act local [16,4] \"all\"\n") RING_SEND("%0[16]", "1") RING_RECEIVE(
             "%1[16]",
             "-1") "  %2[64] = all_gather %1[16] wire 0 phase input stream gather group cp wait from_previous\n",
         "not blocks in the order of the group's ranks"},
        {RING() RING_SEND("%0[16]", "1") RING_RECEIVE("%1[16]", "-1") RING_SEND("%1[16]", "1"),
         "nothing that the peer receives behind it"},
    };
    struct op_table *ops = op_table_create();
    for (size_t i = 0; i < ARRAY_LENGTH(SOUND) + ARRAY_LENGTH(FAULTS); i++) {
        const bool sound = i < ARRAY_LENGTH(SOUND);
        const char *what = sound ? "" : FAULTS[i - ARRAY_LENGTH(SOUND)].what;
        struct program p = read_program(ops, "tp 2 cp 4", 1, sound ? SOUND[i] : FAULTS[i - ARRAY_LENGTH(SOUND)].body);
        const struct program *of_rank[8];
        trireme_error error = {0};
        for (int r = 0; r < 8; r++)
            of_rank[r] = &p;
        place_state(&p);
        assert_ok(program_plan(&p, ops, NULL, &error), &error);
        const trireme_status status = programs_verify(of_rank, 8, ops, &error);
        if (sound)
            assert_ok(status, &error);
        else
            assert_words(status, &error, what, "");
        program_release(&p);
    }
    free(ops);
}

// A ring is of ranks that run the same program, and the n-th message is received as the n-th.
static void rings_of_one_program(void **unused) {
    (void)unused;
    struct op_table *ops = op_table_create();
    struct program p[2] = {read_program(ops, "cp 2", 1, RING() RING_SEND("%0[16]", "1") RING_RECEIVE("%1[16]", "1")),
                           read_program(ops, "cp 2", 1, RING() RING_SEND("%0[16]", "1") RING_RECEIVE("%1[16]", "1"))};
    const struct program *of_rank[2] = {&p[0], &p[1]};
    trireme_error error = {0};
    for (int r = 0; r < 2; r++)
        assert_ok(program_plan(&p[r], ops, NULL, &error), &error);
    assert_words(programs_verify(of_rank, 2, ops, &error), &error, "which receives something else", "x.1");
    program_release(&p[0]);
    program_release(&p[1]);
    free(ops);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_all_ranks),
        cmocka_unit_test(contributions_that_are_skipped),
        cmocka_unit_test(values_that_change),
        cmocka_unit_test(computed_again),
        cmocka_unit_test(gradients_in_one_buffer),
        cmocka_unit_test(sums_of_sums),
        cmocka_unit_test(what_travels_as_bf16),
        cmocka_unit_test(parts_beyond_their_buffer),
        cmocka_unit_test(terms_of_a_reduction),
        cmocka_unit_test(blocks_to_gather),
        cmocka_unit_test(own_parts_of_a_sum),
        cmocka_unit_test(ranks_that_skip),
        cmocka_unit_test(gradients_of_the_last_microbatch),
        cmocka_unit_test(gradients_sent_twice),
        cmocka_unit_test(gradients_of_split_logits),
        cmocka_unit_test(gradients_of_spread_logits),
        cmocka_unit_test(gradients_in_other_rows),
        cmocka_unit_test(gradients_of_other_rows),
        cmocka_unit_test(broadcasts_placed_otherwise),
        cmocka_unit_test(messages_of_the_other_pass),
        cmocka_unit_test(reductions_of_parameters),
        cmocka_unit_test(sums_in_place),
        cmocka_unit_test(messages_around_a_ring),
        cmocka_unit_test(rings_of_one_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
