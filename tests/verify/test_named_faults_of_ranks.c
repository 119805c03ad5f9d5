// Named faults in the programs of several ranks: each is refused, in words that say what is wrong with which buffer.
#include "memory/memory_plan.h"
#include "support/by_hand.h"
#include "support/fleet.h"
#include "support/streams.h"
#include "support/test.h"
#include "verify/verify.h"

#define AT(op, buffer) mutant_at(mutant_find(&p, op, buffer))
// Asserts that all ranks' programs, with this fault in those of a stage, are refused in words that contain both.
#define FAULT(stage, fault, what, buffer)                                       \
    do {                                                                        \
        struct program p = mutant_copy(fleet_program(&f, stage));               \
        trireme_error error = {0};                                              \
        fault;                                                                  \
        if (program_plan(&p, f.stages.options.ops, NULL, &error) == TRIREME_OK) \
            fleet_verify(&f, stage, FLEET_STAGE, &p, &error);                   \
        assert_words(error.status, &error, what, buffer);                       \
        mutant_release(&p);                                                     \
    } while (0)
#define FLEET(...)  \
    struct fleet f; \
    fleet_create(&f, __func__, (const char *const[]){__VA_ARGS__, NULL})
// Two microbatches of two sequences for each of two ranks.
#define TWO_EACH                                                                                      \
    SMALL_EXACT, "training.seq_len=8", "training.global_batch_size=8", "training.micro_batch_size=2", \
        "training.threads=1"
#define STAGES(n) "parallelism.pipeline_parallel_degree=" #n
#define TENSOR(n) "parallelism.tensor_parallel_degree=" #n
#define SHARDS(n, stage) "parallelism.data_parallel_shard_degree=" #n, "parallelism.zero_stage=" #stage

static void set_phase(struct program *p, enum op op, enum phase phase) {
    for (size_t t = 0; t < p->templates.count; t++)
        for (size_t i = 0; i < p->templates.item[t].instructions.count; i++)
            if (p->templates.item[t].instructions.item[i].op == op)
                p->templates.item[t].instructions.item[i].phase = phase;
}

static void set_words(struct program *p, const struct op_table *ops, int64_t words) {
    for (size_t t = 0; t < p->templates.count; t++)
        for (size_t i = 0; i < p->templates.item[t].instructions.count; i++) {
            struct instruction *in = &p->templates.item[t].instructions.item[i];
            const int vocab = op_attribute_find(&ops->op[in->op], "vocab");
            if (vocab >= 0)
                in->attribute[vocab].i = words;
        }
}

// What stages do apart, but to one norm, one parameter and one batch.
static void stages_that_update_otherwise(void **unused) {
    (void)unused;
    FLEET(SMALL_GPT2, STAGES(2));
    FAULT(1, AT(OP_CLIP, "loss")->attribute[0].f = 0.1, "the norm is clip max_norm 0.1", "but rank 0's is");
    FAULT(1, AT(OP_ADAMW, "embed.parameters")->attribute[0].f = 0.5, "the update of embed.parameters is", "beta1 0.5");
    FAULT(0, AT(OP_TARGETS_COUNT, "targets")->in[0].dim[0] = 1, "not the number of targets of the whole batch",
          "targets_count");
    fleet_release(&f);
}

// Adds a product with a table whose result nobody reads.
static void embed_for_nothing(struct program *p) {
    static char name[] = "nothing"; // mutants do not own names
    struct place place = mutant_find(p, OP_LAYERNORM, "layers.1.attention_norm");
    const struct instruction *norm = mutant_at(place);
    struct buffer b = p->buffers.item[norm->out[0].buffer];
    b.name = name;
    b.scope = SCOPE_LOCAL;
    VEC_PUSH(&p->buffers, b);
    const struct operand out = operand_whole(p, program_find(p, name));
    struct operand in[] = {operand_whole(p, program_find(p, "positions")),
                           operand_whole(p, program_find(p, "embed.weight")), operand_none()};
    mutant_overwrite(p, place, out.buffer, NONE);
    mutant_at(place)->op = OP_EMBED;
    mutant_at(place)->phase = PHASE_FORWARD;
    program_give_operands(p, mutant_at(place), ARRAY_LENGTH(in), in, 1, &out);
}

// The gradient of a tied embedding is counted once, by the stage that embeds: not by one that only seems to, and not by
// none because its own seem to be something else.
static void tied_gradients_are_counted_once(void **unused) {
    (void)unused;
    FLEET(SMALL_GPT2, STAGES(2));
    FAULT(
        0,
        {
            set_phase(&p, OP_EMBED, PHASE_INPUT);
            const int first = AT(OP_SQUARE_SUM, "embed.gradients")->accumulate;
            mutant_delete(mutant_find(&p, OP_SQUARE_SUM, "embed.gradients"));
            AT(OP_SQUARE_SUM, "embed.position.gradients")->accumulate = first;
        },
        "the norm leaves out", "embed.gradients");
    FAULT(
        1,
        {
            embed_for_nothing(&p);
            struct place place = mutant_find(&p, OP_SQUARE_SUM, "head.gradients");
            mutant_repeat(&p, place);
            place.index++;
            mutant_at(place)->in[0] = operand_part(&p, operand_whole(&p, program_find(&p, "embed.gradients")), 0);
            mutant_at(place)->accumulate = ACCUMULATE_YES;
            mutant_at(place)->wait[STREAM_REDUCE] = 1;
        },
        "the norm counts embed.gradients", "which the first stage counts");
    fleet_release(&f);
}

// Where stages share a vocabulary, each embeds the same tokens, and has the same words.
static void stages_with_other_words(void **unused) {
    (void)unused;
    FLEET(SMALL_LLAMA, STAGES(2), "parallelism.vocabulary_parallel=true");
    FAULT(1, set_words(&p, f.stages.options.ops, 20), "the number of words is 20", "but rank 0's is 32");
    FAULT(
        0,
        {
            AT(OP_EMBED, "embed.weight")->in[0].buffer = program_find(&p, "positions");
            AT(OP_EMBED_DW, "grad.embed.weight")->in[0].buffer = program_find(&p, "positions");
        },
        "what is looked up in embed.weight is tokens", "but rank 0's is positions");
    FAULT(
        0,
        {
            set_phase(&p, OP_BROADCAST, PHASE_INPUT);
            AT(OP_TARGETS_COUNT, "targets")->in[0].dim[0] = 1;
        },
        "not the number of targets of the whole batch", "targets_count");
    fleet_release(&f);
}

// Each microbatch's gradients are added to those that stay, all of them and once.
static void reductions_of_some_microbatches(void **unused) {
    (void)unused;
    FLEET(TWO_EACH, SMALL_LLAMA_MODEL, SHARDS(2, 2));
    static const char WHOLE[] = "layers.1.gradients.whole";
    FAULT(
        0,
        {
            struct place place = mutant_find(&p, OP_REDUCE_SCATTER, WHOLE);
            mutant_repeat(&p, place);
            place.index++;
            mutant_at(place)->accumulate = ACCUMULATE_YES;
        },
        "a second time", WHOLE);
    FAULT(
        0,
        {
            static char name[] = "unused";
            struct buffer b = p.buffers.item[program_find(&p, WHOLE)];
            b.name = name;
            b.kind = KIND_ACT;
            VEC_PUSH(&p.buffers, b);
            struct place place = mutant_find(&p, OP_REDUCE_SCATTER, WHOLE);
            mutant_at(place)->accumulate = ACCUMULATE_NO;
            mutant_at(place)->when = WHEN_LAST;
            mutant_overwrite(&p, place, program_find(&p, name), program_find(&p, WHOLE));
        },
        "which has not been reduced", WHOLE);
    fleet_release(&f);
}

// Halves one dim of an instruction's operands, and does the same once more for the other halves.
static void do_in_halves(struct program *p, struct place place) {
    for (int k = 0; k < 2; k++)
        mutant_operand(mutant_at(place), k)->dim[0] /= 2;
    mutant_repeat(p, place);
    place.index++;
    for (int k = 0; k < 2; k++)
        mutant_operand(mutant_at(place), k)->offset += mutant_operand(mutant_at(place), k)->dim[0];
}

// Halves that are gathered one after the other lie in another order than the whole.
static void parts_of_blocks(void **unused) {
    (void)unused;
    FLEET(TWO_EACH, SMALL_LLAMA_MODEL, SHARDS(2, 3));
    FAULT(0, do_in_halves(&p, mutant_find(&p, OP_ALL_GATHER, "layers.1.parameters")), "does not take all of",
          "layers.1.parameters");
    // and parameters come from those that are kept, not from what another layer has gathered
    FAULT(
        0,
        {
            struct place again = mutant_find(&p, OP_ALL_GATHER, "layers.0.gathered.again");
            struct operand *in = &mutant_at(again)->in[0];
            const int64_t part = in->dim[0];
            const int other = AT(OP_ALL_GATHER, "layers.1.parameters")->out[0].buffer;
            *in = operand_part(&p, operand_whole(&p, other), AXES(AXIS_FSDP));
            assert_int_equal(in->dim[0], part);
        },
        "which only an optimizer may", "layers.0.gathered.again");
    fleet_release(&f);
}

// What is computed again is what it was, no gradient that others must not follow.
static void recomputed_as_gradients(void **unused) {
    (void)unused;
    FLEET(SMALL_LLAMA, TENSOR(2), "parallelism.tensor_parallel_overlap=true", "activation_checkpoint.mode=selective");
    FAULT(0, p.buffers.item[program_find(&p, "layers.1.mlp.in.again")].kind = KIND_GRAD, "but is of another kind",
          "layers.1.mlp.in.again");
    fleet_release(&f);
}

// What every microbatch needs, no microbatch may do without.
static void activations_left_out_or_mistaken(void **unused) {
    (void)unused;
    FLEET(SMALL_GPT2, STAGES(2), TENSOR(2), "parallelism.sequence_parallel=false");
    FAULT(1, AT(OP_ALL_GATHER, "layers.0.residual")->when = WHEN_LAST, "left out of all invocations but the last",
          "all_gather");
    FAULT(1, p.buffers.item[program_find(&p, "layers.1.attention.out.sum")].kind = KIND_GRAD,
          "but does not make gradients", "layers.1.attention.out.sum");
    fleet_release(&f);
}

// The sum of two stages is the sum of all only where there are two.
static void sums_of_pairs_of_stages(void **unused) {
    (void)unused;
    FLEET(SMALL_BATCH, SMALL_EXACT, STAGES(4), "model.family=gpt2", "model.num_hidden_layers=4", "model.hidden_size=8",
          "model.num_attention_heads=2", "model.vocab_size=24");
    FAULT(1, AT(OP_ALL_REDUCE, "loss")->peer = 1, "leaves out ranks along pp", "all_reduce");
    fleet_release(&f);
}

// Sums along two axes, one after the other: in another order, ranks would add sums to terms.
static void sum_one_after_the_other(struct program *p, const char *buffer, axis_set first, axis_set second) {
    struct place place = mutant_find(p, OP_ALL_REDUCE, buffer);
    mutant_repeat(p, place);
    mutant_at(place)->group = first;
    place.index++;
    mutant_at(place)->group = second;
    mutant_at(place)->wait[STREAM_COMPUTE] = 0;
}

static void sums_in_another_order(void **unused) {
    (void)unused;
    FLEET(SMALL_GPT2, STAGES(2), TENSOR(2), "parallelism.sequence_parallel=false");
    for (int same = 0; same <= 1; same++) {
        struct program of[2] = {mutant_copy(fleet_program(&f, 0)), mutant_copy(fleet_program(&f, 1))};
        const struct program *of_rank[4];
        const char *sum = "grad_square_sum.0";
        sum_one_after_the_other(&of[0], sum, AXES(AXIS_TP), AXES(AXIS_PP));
        sum_one_after_the_other(&of[1], sum, AXES(same ? AXIS_TP : AXIS_PP), AXES(same ? AXIS_PP : AXIS_TP));
        for (int rank = 0; rank < 4; rank++)
            of_rank[rank] = &of[mesh_coordinate(&of[0].mesh, rank, AXIS_PP)];
        trireme_error error = {0};
        trireme_status status = programs_verify(of_rank, 4, f.stages.options.ops, &error);
        if (same && status != TRIREME_OK)
            fail_msg("%s", error.message);
        if (!same)
            assert_words(status, &error, "which is placed differently along tp", sum);
        mutant_release(&of[0]);
        mutant_release(&of[1]);
    }
    fleet_release(&f);
}

// A matrix of which tensor ranks have rows, and whose units are sharded: gathered twice, made orthogonal, and of each
// rank's part put back where it came from. Names are those of the keys, one matrix of three in a tensor.
#define KEYS "layers.1.attention.qkv.weight.1"
#define VALUES "layers.1.attention.qkv.weight.2"

static void exchange(struct operand *a, struct operand *b) {
    const struct operand first = *a;
    *a = *b;
    *b = first;
}

static void orthogonalise_own_rows(struct program *p) {
    const struct place copy = mutant_find(p, OP_COPY_DERIVED, KEYS ".update");
    struct instruction *i = mutant_at(mutant_find(p, OP_NEWTON_SCHULZ, KEYS ".direction.whole"));
    i->in[0] = operand_shape(operand_whole(p, program_find(p, KEYS ".direction")), 3, mutant_at(copy)->out[0].dim);
    i->out[0] = mutant_at(copy)->out[0];
    mutant_delete(copy);
}

static void matrices_that_are_cut(void **unused) {
    (void)unused;
    FLEET(SMALL_LLAMA, SHARDS(2, 1), TENSOR(2), "optimizer.name=muon");
    FAULT(0, mutant_delete(mutant_find(&p, OP_ALL_GATHER, KEYS ".direction")), "another stream may still write it",
          "layers.1.attention.qkv.weight.0.direction.whole");
    FAULT(0, AT(OP_NEWTON_SCHULZ, KEYS ".direction.whole")->in[0].buffer = program_find(&p, KEYS ".update.whole"),
          "before it is written", KEYS ".update.whole");
    FAULT(0, AT(OP_ALL_GATHER, KEYS ".direction")->group = AXES(AXIS_FSDP), "there is nothing to gather",
          KEYS ".direction");
    FAULT(0, AT(OP_ALL_GATHER, "layers.1.direction")->group = AXES(AXIS_TP), "there is nothing to gather",
          "layers.1.attention.qkv.weight.0.direction");
    FAULT(0, AT(OP_ALL_GATHER, KEYS ".direction")->in[0].buffer = program_find(&p, VALUES ".direction"),
          "in other places too", "layers.1.direction is");
    FAULT(0, AT(OP_COPY_DERIVED, KEYS ".update")->out[0].buffer = program_find(&p, VALUES ".update"), "overwrites",
          VALUES ".update");
    FAULT(0, exchange(&AT(OP_COPY_DERIVED, KEYS ".update")->out[0], &AT(OP_COPY_DERIVED, VALUES ".update")->out[0]),
          "in other places too", "layers.1.direction is");
    // by what is not orthogonal, and by what each rank makes orthogonal of its rows alone
    FAULT(0, AT(OP_MUON, "layers.1.update")->in[2].buffer = program_find(&p, "layers.1.direction.whole"),
          "is what muon_momentum makes, expected newton_schulz", "layers.1.direction");
    FAULT(0, orthogonalise_own_rows(&p), "must be whole", KEYS ".direction");
    FAULT(0, AT(OP_COPY_DERIVED, KEYS ".update")->in[0].along = AXES(AXIS_FSDP),
          "is split along tp, part is the same on all ranks", "layers.1.update");
    FAULT(0, AT(OP_MUON, "layers.1.update")->in[2].along = AXES(AXIS_TP), "is split along tp already",
          "layers.1.update");
    fleet_release(&f);
}

// Blocks of blocks: those of ranks that are no neighbours do not lie in the order of all ranks.
static void blocks_of_blocks(void **unused) {
    (void)unused;
    static const char TEXT[] = "program ranks microbatches 1\n"
                               "mesh kv 2 tp 2\n"
                               "arena state 0 fixed 0 scratch 0+0 step 0\n"
                               "pool 0 chunk 0 at 0: 0\n"
                               "buffer %0 f32 input step [16] place kv sum place tp sum \"x\"\n"
                               "buffer %1 f32 act local [8] \"a\"\n"
                               "buffer %2 f32 act local [4] \"b\"\n"
                               "buffer %3 f32 act local [8] \"c\"\n"
                               "buffer %4 f32 output step [16] \"y\"\n"
                               "template 0 forward \"t\"\n"
                               "  %1[8] = reduce_scatter %0[16] wire 0 phase forward group kv\n"
                               "  %2[4] = reduce_scatter %1[8] wire 0 phase forward group tp\n"
                               "  %3[8] = all_gather %2[4] wire 0 phase forward group kv\n"
                               "  %4[16] = all_gather %3[8] wire 0 phase forward group tp\n"
                               "invoke 0 microbatch 0 first last\n";
    struct op_table *ops = op_table_create();
    struct program p;
    trireme_error error = {0};
    if (program_parse(&p, ops, TEXT, strlen(TEXT), &error) != TRIREME_OK)
        fail_msg("%s", error.message);
    assert_program_refused(&p, ops, "along kv are not blocks in the order of the group's ranks", "all_gather");
    free(ops);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_that_update_otherwise),
        cmocka_unit_test(tied_gradients_are_counted_once),
        cmocka_unit_test(stages_with_other_words),
        cmocka_unit_test(reductions_of_some_microbatches),
        cmocka_unit_test(parts_of_blocks),
        cmocka_unit_test(recomputed_as_gradients),
        cmocka_unit_test(activations_left_out_or_mistaken),
        cmocka_unit_test(sums_of_pairs_of_stages),
        cmocka_unit_test(matrices_that_are_cut),
        cmocka_unit_test(sums_in_another_order),
        cmocka_unit_test(blocks_of_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
