// Named faults: each is refused, in words that say what is wrong with which buffer.
#include "support/by_hand.h"
#include "support/mutant.h"
#include "support/test.h"
#include "verify/verify.h"

static void rename_input(struct program *p, struct place place, const char *from, const char *to) {
    int old = program_find(p, from), new = program_find(p, to);
    for (int k = 0; k < mutant_at(place)->inputs; k++)
        if (mutant_at(place)->in[k].buffer == old)
            mutant_at(place)->in[k].buffer = new;
}

static int64_t *offset_of(struct program *p, const char *buffer) {
    return &p->buffers.item[program_find(p, buffer)].offset;
}

// Inserts an instruction before the place that adds buffer `term`, of equally many elements, to `to` in place.
static void add_before(struct program *p, struct place place, const char *to, const char *term) {
    const int buffer = program_find(p, to);
    const int64_t row[] = {1, buffer_count(&p->buffers.item[buffer])};
    const struct operand in[] = {operand_shape(operand_whole(p, buffer), 2, row),
                                 operand_shape(operand_whole(p, program_find(p, term)), 2, row)};
    mutant_overwrite(p, place, buffer, NONE);
    mutant_at(place)->op = OP_ADD;
    program_give_operands(p, mutant_at(place), ARRAY_LENGTH(in), in, 1, in);
}

// Inserts an instruction before the place that adds rows of one element of `table`, one for each token, to `to`.
static void embed_before(struct program *p, struct place place, const char *to, const char *table) {
    const int buffer = program_find(p, to), rows = program_find(p, table);
    const int64_t count = buffer_count(&p->buffers.item[buffer]), all = buffer_count(&p->buffers.item[rows]);
    struct operand in[] = {operand_whole(p, program_find(p, "tokens")),
                           operand_shape(operand_whole(p, rows), 2, (int64_t[]){all, 1}), operand_none()};
    const struct operand out = operand_shape(operand_whole(p, buffer), 2, (int64_t[]){count, 1});
    in[0].dim[0] = count;
    mutant_overwrite(p, place, buffer, NONE);
    mutant_at(place)->op = OP_EMBED;
    mutant_at(place)->accumulate = ACCUMULATE_YES;
    program_give_operands(p, mutant_at(place), ARRAY_LENGTH(in), in, 1, &out);
}

// The gradients of queries and keys exchanged.
static void exchange_outputs(struct instruction *i) {
    struct operand first = i->out[0];
    i->out[0] = i->out[1];
    i->out[1] = first;
}

// The mean over a number of targets that is always zero.
static void count_nothing(struct program *p) {
    static char nothing[] = "nothing"; // mutants do not own names
    struct buffer b = p->buffers.item[program_find(p, "loss.scale")];
    b.name = nothing;
    VEC_PUSH(&p->buffers, b);
    struct place place = mutant_find(p, OP_RECIPROCAL, "loss.scale");
    mutant_at(place)->in[0].buffer = program_find(p, nothing);
    mutant_overwrite(p, place, program_find(p, nothing), NONE);
}

// Asserts that the program is refused in a message that contains both.
#define FAULT(fault, what, buffer)                                           \
    do {                                                                     \
        struct program p = mutant_copy(program);                             \
        trireme_error error = {0};                                           \
        fault;                                                               \
        assert_words(program_verify(&p, ops, &error), &error, what, buffer); \
        mutant_release(&p);                                                  \
    } while (0)

static void named_faults(void **unused) {
    (void)unused;
    struct small_model small;
    small_model_create(&small, (const char *const[]){SMALL_GPT2, NULL}, false);
    const struct program *program = &engine_compiled(&small.engine, PROGRAM_TRAIN)->program;
    const struct op_table *ops = small.engine.ops;
    // memory
    FAULT(mutant_delete(mutant_find(&p, OP_MATMUL, "layers.1.attention.qkv")), "before it is written",
          "layers.1.attention.qkv");
    FAULT(mutant_delete(mutant_find(&p, OP_RECIPROCAL, "loss.scale")), "before it is written", "loss.scale");
    FAULT(*offset_of(&p, "layers.1.mlp.up") = *offset_of(&p, "layers.0.mlp.up"), "freed too early", "layers.0.mlp.up");
    FAULT(*offset_of(&p, "layers.0.m") = *offset_of(&p, "layers.1.v"), "overlap in memory", "layers.1.v");
    FAULT(*offset_of(&p, "tokens") = *offset_of(&p, "targets"), "overlap in memory", "targets");
    FAULT(*offset_of(&p, "loss") = p.arena[SPACE_DEVICE].scratch_base, "overlaps the region of activations", "loss");
    FAULT(*offset_of(&p, "layers.0.mlp.up.bias") += 64, "of which it is a slice", "layers.0.mlp.up.bias");
    // gradients
    FAULT(mutant_delete(mutant_find(&p, OP_MATMUL_DW, "grad.layers.0.mlp.down.weight")), "before it is written",
          "layers.0.mlp.down.weight");
    FAULT(mutant_delete(mutant_find(&p, OP_EMBED_DW, "grad.embed.weight")), "never computed", "embed.weight");
    FAULT(mutant_repeat(&p, mutant_find(&p, OP_MATMUL_DW, "grad.layers.0.mlp.down.weight")), "before it is read",
          "grad.layers.0.mlp.down.weight");
    FAULT(mutant_repeat(&p, mutant_find(&p, OP_EMBED_DW, "grad.embed.weight")), "twice", "embed.weight");
    FAULT(mutant_at(mutant_find(&p, OP_MATMUL_DW, "grad.layers.1.mlp.up.weight"))->accumulate = ACCUMULATE_NO,
          "before it is read", "grad.layers.1.mlp.up.weight");
    FAULT(mutant_at(mutant_find(&p, OP_EMBED_DW, "grad.embed.weight"))->accumulate = ACCUMULATE_AFTER_FIRST,
          "overwrites", "embed.weight");
    FAULT(exchange_outputs(mutant_at(mutant_find(&p, OP_ATTENTION_BWD, "d.layers.1.attention.qkv"))),
          "is not the backward of any attention", "mismatch: dq");
    FAULT(add_before(&p, mutant_find(&p, OP_SQUARE_SUM, "layers.1.gradients"), "layers.1.gradients",
                     "layers.1.parameters"),
          "writes the gradient layers.1.gradients, but does not make gradients", "add");
    // loss
    FAULT(rename_input(&p, mutant_find(&p, OP_CROSS_ENTROPY_GRAD, "loss.scale"), "loss.scale", "targets.count"),
          "wrong denominator", "targets.count");
    FAULT(rename_input(&p, mutant_find(&p, OP_LOSS_SUM, "loss.scale"), "loss.scale", "targets.count"),
          "wrong denominator", "targets.count");
    FAULT(mutant_at(mutant_find(&p, OP_TARGETS_COUNT, "targets"))->in[0].dim[0] = 1, "not the number of targets",
          "targets");
    FAULT(mutant_at(mutant_find(&p, OP_LOSS_SUM, "loss.scale"))->in[0].dim[0] = 1, "the loss leaves out rows", "nll");
    // update
    FAULT(mutant_delete(mutant_find(&p, OP_ADAMW, "layers.1.m")), "never updated", "layers.1.");
    FAULT(mutant_repeat(&p, mutant_find(&p, OP_ADAMW, "layers.1.m")), "another update", "layers.1.");
    FAULT(mutant_delete(mutant_find(&p, OP_SQUARE_SUM, "head.gradients")), "the norm leaves out", "head.gradients");
    FAULT(mutant_repeat(&p, mutant_find(&p, OP_SQUARE_SUM, "layers.0.gradients")), "twice", "layers.0.gradients");
    FAULT(mutant_at(mutant_find(&p, OP_SQUARE_SUM, "head.gradients"))->in[0].dim[0] /= 2, "is not a whole buffer",
          "head.gradients");
    FAULT((mutant_repeat(&p, mutant_find(&p, OP_SQUARE_SUM, "layers.1.gradients")),
           mutant_at(mutant_find(&p, OP_SQUARE_SUM, "layers.1.gradients"))[1].in[0].buffer =
               program_find(&p, "layers.1.parameters")),
          "layers.1.parameters is not a whole buffer of gradients", "square_sum");
    FAULT(mutant_at(mutant_find(&p, OP_CLIP, "loss"))->in[1].buffer = program_find(&p, "grad_square_sum.3"),
          "is not the loss of the step", "grad_square_sum.3");
    FAULT(mutant_at(mutant_find(&p, OP_ADAMW, "layers.0.m"))->predicate = NONE, "not finite", "adamw");
    // values that change in between
    FAULT(add_before(&p, mutant_find(&p, OP_CLIP, "loss"), "grad_square_sum.3", "loss.scale"), "optimizer",
          "changes grad_square_sum.3, which the step has made before");
    FAULT(add_before(&p, mutant_find(&p, OP_LOSS_SUM, "loss.scale"), "nll", "norm.rstd"), "microbatch 0",
          "changes nll, which the step has made before");
    FAULT(embed_before(&p, mutant_find(&p, OP_LOSS_SUM, "loss.scale"), "nll", "norm.rstd"), "microbatch 0",
          "adds to nll, which ");
    // names
    FAULT(*p.buffers.item[program_find(&p, "layers.1.m")].as = 0, "as its m, which is declared nothing", "layers.1.m");
#define SWAP(a, b) mutant_swap(&p, program_find(&p, a), program_find(&p, b))
    FAULT(SWAP("layers.0.m", "layers.0.v"), "as its m", "layers.0.v");
    FAULT(SWAP("layers.0.m", "layers.1.m"), "which is not a state of layers.0.parameters", "layers.1.m");
    FAULT(SWAP("layers.0.decayed", "layers.1.decayed"), "which is not a state of layers.0.parameters",
          "layers.1.decayed");
    FAULT(SWAP("layers.0.decayed", "optimizer.t"), "as its t", "decayed");
    FAULT(SWAP("grad_norm", "clip_factor"), "as its norm", "clip_factor");
    FAULT(SWAP("tokens", "targets"), "as its targets", "tokens");
#undef SWAP
    small_model_release(&small);
}

static struct instruction *loss_of_chunk(struct program *p, const char *logits) {
    return mutant_at(mutant_find(p, OP_CROSS_ENTROPY_GRAD, logits));
}

// Two chunks of the same size, each with the other's targets and losses.
static void exchange_targets(struct program *p) {
    struct instruction *a = loss_of_chunk(p, "logits.rows0"), *b = loss_of_chunk(p, "logits.rows6");
    int64_t first = a->in[1].offset;
    a->in[1].offset = a->out[0].offset = b->in[1].offset;
    b->in[1].offset = b->out[0].offset = first;
}

// One chunk is shifted by a row.
static void move_slice(struct program *p, const char *name) {
    struct buffer *b = &p->buffers.item[program_find(p, name)];
    b->parent_offset += 16;
    b->offset += 16 * dtype_size(b->dtype);
}

static void named_faults_of_chunks(void **unused) {
    (void)unused;
    struct small_model small;
    small_model_create(&small, (const char *const[]){SMALL_GPT2, "training.logits_rows=6", NULL}, false);
    const struct program *program = &engine_compiled(&small.engine, PROGRAM_TRAIN)->program;
    const struct op_table *ops = small.engine.ops;
    FAULT(exchange_targets(&p), "are not those of its logits", "targets");
    FAULT(loss_of_chunk(&p, "logits.rows6")->in[1].offset = 0, "expected the same rows", "targets");
    FAULT(loss_of_chunk(&p, "logits.rows12")->in[1].offset = 0, "expected the same rows", "targets");
    FAULT(move_slice(&p, "norm.rows6"), "not at the same offset", "d.norm.rows6");
    FAULT((move_slice(&p, "norm.rows6"), move_slice(&p, "d.norm.rows6")), "before it is read", "d.norm.rows12");
    FAULT(mutant_at(mutant_find(&p, OP_MATMUL_DW, "d.logits.rows6"))->accumulate = ACCUMULATE_AFTER_FIRST,
          "before it is read", "grad.embed.weight");
    FAULT(mutant_delete(mutant_find(&p, OP_MATMUL_DW, "d.logits.rows6")), "never computed", "embed.weight");
    FAULT(mutant_delete(mutant_find(&p, OP_MATMUL_DX, "d.logits.rows12")), "before it is written", "d.norm");
    small_model_release(&small);
}

// Faults that need other memory than the program has.
static void named_faults_planned_anew(void **unused) {
    (void)unused;
    struct small_model small;
    small_model_create(&small, (const char *const[]){SMALL_GPT2, NULL}, false);
    struct program p = mutant_copy(&engine_compiled(&small.engine, PROGRAM_TRAIN)->program);
    add_before(&p, mutant_find(&p, OP_GELU_DX, "d.layers.1.mlp.up"), "d.layers.1.mlp.activation", "layers.1.mlp.up");
    assert_refused_anew(&p, small.engine.ops, "writes the gradient d.layers.1.mlp.activation", "add");
    mutant_release(&p);
    p = mutant_copy(&engine_compiled(&small.engine, PROGRAM_TRAIN)->program);
    add_before(&p, mutant_find(&p, OP_GELU_DX, "d.layers.1.mlp.up"), "layers.1.mlp.up", "layers.1.mlp.down.weight");
    assert_refused_anew(&p, small.engine.ops, "changes layers.1.mlp.up, which has been read before", "add");
    mutant_release(&p);
    p = mutant_copy(&engine_compiled(&small.engine, PROGRAM_TRAIN)->program);
    count_nothing(&p);
    assert_refused_anew(&p, small.engine.ops, "the denominator is nothing, expected", "targets.count");
    mutant_release(&p);
    small_model_release(&small);
}

// Where there is one microbatch, nothing but the number of sums says that the loss is added up once.
static void loss_of_one_microbatch(void **unused) {
    (void)unused;
    struct small_model small;
    small_model_create(&small,
                       (const char *const[]){"training.seq_len=8", "training.global_batch_size=2",
                                             "training.micro_batch_size=2", "training.threads=1", SMALL_EXACT,
                                             SMALL_GPT2_MODEL, NULL},
                       false);
    const struct program *program = &engine_compiled(&small.engine, PROGRAM_TRAIN)->program;
    const struct op_table *ops = small.engine.ops;
    FAULT((mutant_repeat(&p, mutant_find(&p, OP_LOSS_SUM, "loss.scale")),
           mutant_at(mutant_find(&p, OP_LOSS_SUM, "loss.scale"))[1].accumulate = ACCUMULATE_YES),
          "the loss is summed 2 times", "1 microbatches");
    small_model_release(&small);
}

// An update that does not read the count of updates: the count must still go up, for a run that is resumed.
static void named_faults_of_lion(void **unused) {
    (void)unused;
    struct small_model small;
    small_model_create(&small, (const char *const[]){SMALL_GPT2, "optimizer.name=lion", NULL}, false);
    const struct program *program = &engine_compiled(&small.engine, PROGRAM_TRAIN)->program;
    const struct op_table *ops = small.engine.ops;
    FAULT(mutant_at(mutant_find(&p, OP_INCREMENT, "optimizer.t"))->predicate = NONE, "does not count", "increment");
    FAULT(mutant_swap(&p, program_find(&p, "layers.0.m"), program_find(&p, "layers.1.m")), "which is not a state of",
          "layers.1.m");
    small_model_release(&small);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(named_faults),           cmocka_unit_test(named_faults_of_chunks),
        cmocka_unit_test(named_faults_of_lion),   cmocka_unit_test(named_faults_planned_anew),
        cmocka_unit_test(loss_of_one_microbatch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
