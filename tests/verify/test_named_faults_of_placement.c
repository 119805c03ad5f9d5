// Named faults that only programs of many ranks can have: each is refused, in words that say what is wrong with which
// buffer.
#include "support/by_hand.h"
#include "support/fleet.h"
#include "support/streams.h"
#include "support/test.h"
#include "verify/verify.h"

#define MODEL(family) \
    "training.seq_len=8", "training.threads=1", "training.micro_batch_size=2", SMALL_EXACT, SMALL_##family##_MODEL
#define MODEL_F32                                                                                    \
    "training.seq_len=8", "training.threads=1", "training.micro_batch_size=2", "training.dtype=f32", \
        "training.kernels=reference"
#define UNTIED "model.tie_word_embeddings=false"
#define BATCH(sequences) "training.global_batch_size=" #sequences
#define DP(n) "parallelism.data_parallel_replicate_degree=" #n
#define FSDP(n, zero) "parallelism.data_parallel_shard_degree=" #n, "parallelism.zero_stage=" #zero
#define CP(n) "parallelism.context_parallel_degree=" #n
#define RING(n) CP(n), "parallelism.context_parallel_method=ring", "parallelism.context_parallel_layout=contiguous"
#define BY(method, n) \
    CP(n), "parallelism.context_parallel_method=" method, "parallelism.context_parallel_layout=contiguous"
#define TP(n) "parallelism.tensor_parallel_degree=" #n
#define PP(n) "parallelism.pipeline_parallel_degree=" #n
#define NO_SEQUENCE "parallelism.sequence_parallel=false"
#define SCHEDULE(name) "parallelism.pipeline_parallel_schedule=" #name

// Asserts that the programs, with a fault in that of one stage, on all of its ranks or on one alone, are refused in a
// message that contains both.
#define FAULT(stage, rank, fault, what, buffer)                                        \
    do {                                                                               \
        struct program p = mutant_copy(fleet_program(&f, stage));                      \
        trireme_error error = {0};                                                     \
        fault;                                                                         \
        assert_words(fleet_verify(&f, stage, rank, &p, &error), &error, what, buffer); \
        mutant_release(&p);                                                            \
    } while (0)
#define FLEET(...)  \
    struct fleet f; \
    fleet_create(&f, __func__, (const char *const[]){__VA_ARGS__, NULL})

// Every instruction waits for all that come before it.
static void wait_for_all(const struct program *p, struct template *t) {
    for (size_t i = 0; i < t->instructions.count; i++)
        for (int s = 0; s < (int)p->streams.count; s++)
            if (s != t->instructions.item[i].stream)
                t->instructions.item[i].wait[s] = 1;
}

// Leaves an instruction out but nothing that it orders.
static void leave_out(const struct program *p, struct place place) {
    mutant_delete(place);
    wait_for_all(p, place.template);
}

static struct instruction *found(struct program *p, enum op op, const char *buffer) {
    return mutant_at(mutant_find(p, op, buffer));
}

static void rename_input(struct program *p, enum op op, const char *from, const char *to) {
    struct instruction *i = found(p, op, from);
    for (int k = 0; k < i->inputs; k++)
        if (i->in[k].buffer == program_find(p, from))
            i->in[k].buffer = program_find(p, to);
}

static void data_parallel(void **unused) {
    (void)unused;
    FLEET(MODEL(GPT2), BATCH(8), DP(2));
    FAULT(0, FLEET_STAGE, leave_out(&p, mutant_find(&p, OP_ALL_REDUCE, "layers.0.gradients")),
          "is a partial sum along dp; an all_reduce is missing", "layers.0.gradients");
    FAULT(0, FLEET_STAGE, mutant_repeat(&p, mutant_find(&p, OP_ALL_REDUCE, "layers.0.gradients")), "reduced twice",
          "layers.0.gradients");
    FAULT(0, FLEET_STAGE, found(&p, OP_ALL_REDUCE, "layers.0.gradients")->when = WHEN_ALWAYS,
          "placed differently along dp", "grad.layers.0.");
    // A mean of the ranks' own means.
    FAULT(0, FLEET_STAGE, leave_out(&p, mutant_find(&p, OP_ALL_REDUCE, "targets.count")),
          "is a partial sum along dp; an all_reduce is missing", "targets.count");
    FAULT(0, FLEET_STAGE, leave_out(&p, mutant_find(&p, OP_ALL_REDUCE, "loss")), "is a partial sum along dp", "loss");
    FAULT(0, FLEET_STAGE, found(&p, OP_ALL_REDUCE, "targets.count")->attribute[0].i = 1, "and cannot be reduced",
          "targets.count");
    FAULT(0, FLEET_STAGE, found(&p, OP_ALL_REDUCE, "targets.count")->predicate = program_find(&p, "starts"),
          "is not one i32", "starts");
    FAULT(0, 1, found(&p, OP_ALL_REDUCE, "targets.count")->group = AXES(AXIS_TP), "has axes without ranks", "tp");
    fleet_release(&f);
}

// What one rank would send as bf16, and the other as f32.
static void one_rank_sends_less(void **unused) {
    (void)unused;
    FLEET(SMALL_BATCH, SMALL_GPT2_MODEL, "training.dtype=f32", "training.kernels=reference", DP(2));
    for (int rank = 0; rank < 2; rank++)
        FAULT(0, rank, found(&p, OP_ALL_REDUCE, "layers.0.gradients")->attribute[1].i ^= 1,
              "with another reduction or another type on the wire", "layers.0.gradients");
    fleet_release(&f);
}

// The rows of two ranks, gathered from four.
static void rows_of_more_ranks(void **unused) {
    (void)unused;
    FLEET(MODEL(GPT2), BATCH(4), DP(2));
    struct program p = mutant_copy(fleet_program(&f, 0));
    p.mesh.degree[AXIS_DP] = 4;
    assert_refused_anew(&p, f.stages.options.ops, "16 elements of tokens cannot become 32", "tokens.all on 4 ranks");
    mutant_release(&p);
    fleet_release(&f);
}

// The second microbatch before the first.
static void exchange_microbatches(struct program *p) {
    for (size_t k = 0; k < p->schedule.count; k++)
        if (p->schedule.item[k].microbatch != NONE)
            p->schedule.item[k].microbatch = 1 - p->schedule.item[k].microbatch;
}

static void order_of_microbatches(void **unused) {
    (void)unused;
    FLEET(MODEL(GPT2), BATCH(4), TP(2));
    FAULT(0, 1, exchange_microbatches(&p), "(microbatch 0) of embedding.part over tp meets rank 1's",
          "(microbatch 1) of embedding.part");
    fleet_release(&f);
}

// One collective as two, of the first half and of the second, or the other way round.
static struct program in_halves(const struct program *program, int first) {
    struct program p = mutant_copy(program);
    struct place place = mutant_find(&p, OP_ALL_REDUCE, "layers.0.gradients");
    mutant_repeat(&p, place);
    for (int k = 0; k < 2; k++) {
        struct instruction *i = mutant_at(place) + k;
        i->in[0].dim[0] /= 2;
        i->in[0].offset = k == first ? 0 : i->in[0].dim[0];
        i->out[0] = i->in[0];
    }
    wait_for_all(&p, place.template);
    return p;
}

static void order_of_halves(void **unused) {
    (void)unused;
    FLEET(MODEL(GPT2), BATCH(8), DP(2));
    struct program p = in_halves(fleet_program(&f, 0), 0), q = in_halves(fleet_program(&f, 0), 1);
    const struct program *alike[] = {&p, &p}, *other[] = {&p, &q};
    trireme_error error = {0};
    assert_int_equal(programs_verify(alike, 2, f.stages.options.ops, &error), TRIREME_OK);
    assert_words(programs_verify(other, 2, f.stages.options.ops, &error), &error,
                 "all_reduce (microbatch 1) of layers.0.gradients over dp meets rank 1's", "rank 0: backward");
    mutant_release(&p);
    mutant_release(&q);
    fleet_release(&f);
}

// The last stage's last two broadcasts, in another order: each comes twice to a group in which it is once.
static void one_stage_twice(void **unused) {
    (void)unused;
    FLEET(MODEL(GPT2), BATCH(4), PP(2), "parallelism.vocabulary_parallel=true");
    const struct program *program = fleet_program(&f, 1);
    size_t last = program->schedule.count;
    for (size_t k = 0; k + 1 < program->schedule.count; k++)
        if (strcmp(program->templates.item[program->schedule.item[k].template].name, "embed.weight") == 0 &&
            program->schedule.item[k].template == program->schedule.item[k + 1].template)
            last = k;
    assert_true(last < program->schedule.count);
    FAULT(1, FLEET_STAGE,
          (p.schedule.item[last].microbatch = program->schedule.item[last + 1].microbatch,
           p.schedule.item[last + 1].microbatch = program->schedule.item[last].microbatch),
          "embed.weight[0] broadcast (microbatch 0)", "embed.weight[0] broadcast (microbatch 1)");
    fleet_release(&f);
}

// Two collectives of equally many elements, in another order on one rank.
static void one_rank_behind(struct program *p) {
    struct place first = mutant_find(p, OP_ALL_REDUCE, "layers.1.gradients"),
                 second = mutant_find(p, OP_ALL_REDUCE, "layers.0.gradients");
    struct instruction *item = first.template->instructions.item, moved = item[first.index];
    memmove(&item[first.index], &item[first.index + 1], (second.index - first.index) * sizeof *item);
    item[second.index] = moved;
    for (size_t i = 0; i < first.template->instructions.count; i++) // nothing else is wrong with it
        for (int s = 0; s < (int)p->streams.count; s++)
            if (s != item[i].stream)
                item[i].wait[s] = 1;
}

static void order_of_gradients(void **unused) {
    (void)unused;
    FLEET(MODEL(GPT2), BATCH(8), DP(2));
    FAULT(0, 1, one_rank_behind(&p), "of layers.1.gradients over dp meets rank 1's backward",
          "layers.0.gradients over dp");
    FAULT(0, 0, one_rank_behind(&p), "of layers.0.gradients over dp meets rank 1's backward",
          "layers.1.gradients over dp");
    fleet_release(&f);
}

// Two chunks of the same size, each with the other's targets.
static void exchange_rows(struct program *p) {
    mutant_swap(p, program_find(p, "norm.rows0"), program_find(p, "norm.rows8"));
    mutant_swap(p, program_find(p, "d.norm.rows0"), program_find(p, "d.norm.rows8"));
}

static void tensor(void **unused) {
    (void)unused;
    FLEET(MODEL(GPT2), BATCH(4), TP(2), NO_SEQUENCE, "training.logits_rows=8");
    FAULT(0, FLEET_STAGE, rename_input(&p, OP_ADD_BIAS, "layers.0.attention.out.sum", "layers.0.attention.out.part"),
          "is a partial sum along tp", "layers.0.attention.out.part");
    FAULT(0, FLEET_STAGE, mutant_repeat(&p, mutant_find(&p, OP_ALL_REDUCE, "logits.sums.rows0")), "reduced twice",
          "logits.sums.rows0");
    FAULT(0, FLEET_STAGE, leave_out(&p, mutant_find(&p, OP_ALL_REDUCE, "logits.max.rows0")),
          "is a partial maximum along tp", "logits.max.rows0");
    FAULT(0, FLEET_STAGE, leave_out(&p, mutant_find(&p, OP_ALL_REDUCE, "logits.sums.rows0")),
          "is a partial sum along tp", "logits.sums.rows0");
    FAULT(0, FLEET_STAGE, rename_input(&p, OP_LAYERNORM_BWD, "d.layers.1.mlp_norm", "d.layers.1.mlp.in"),
          "is a partial sum along tp", "d.layers.1.mlp.in");
    FAULT(0, FLEET_STAGE, found(&p, OP_ADD_BIAS_DW, "grad.layers.1.mlp.down.bias")->in[0].dim[0] /= 2,
          "is not the backward of any add_bias of this program (mismatch: dy)", "add_bias_dw");
    FAULT(0, FLEET_STAGE, found(&p, OP_EMBED, "embed.weight")->in[2] = operand_none(), "nothing says where",
          "split along tp");
    // the head, in chunks of rows
    FAULT(0, FLEET_STAGE, found(&p, OP_LOGITS_MAX, "logits.rows0")->attribute[0].i--,
          "its vocab is not that of the rest of its set", "logits_sum");
    FAULT(0, FLEET_STAGE,
          (found(&p, OP_LOGITS_SUM, "logits.rows0")->in[1] = found(&p, OP_LOGITS_SUM, "logits.rows8")->in[1],
           found(&p, OP_LOGITS_GRAD, "logits.rows0")->in[1] = found(&p, OP_LOGITS_GRAD, "logits.rows8")->in[1]),
          "the rest of its set takes other elements", "targets");
    FAULT(0, FLEET_STAGE, exchange_rows(&p), "its rows of targets are not those of its logits", "targets");
    FAULT(0, FLEET_STAGE,
          found(&p, OP_LOGITS_NLL, "logits.sums.rows0")->in[3] = found(&p, OP_LOGITS_NLL, "logits.sums.rows0")->in[2],
          "its set does not make the nll of cross_entropy_grad", "logits_max");
    fleet_release(&f);
}

static void sequence(void **unused) {
    (void)unused;
    FLEET(MODEL(GPT2), BATCH(4), TP(2));
    FAULT(0, FLEET_STAGE, leave_out(&p, mutant_find(&p, OP_ALL_REDUCE, "layers.1.share.gradients")),
          "is a partial sum along tp; an all_reduce is missing", "layers.1.share.gradients");
    FAULT(0, FLEET_STAGE, mutant_repeat(&p, mutant_find(&p, OP_ALL_REDUCE, "layers.1.share.gradients")),
          "reduced twice", "layers.1.share.gradients");
    FAULT(0, FLEET_STAGE, leave_out(&p, mutant_find(&p, OP_ALL_GATHER, "layers.0.attention.in")),
          "before it is written", "layers.0.attention.in");
    FAULT(0, FLEET_STAGE, found(&p, OP_ALL_GATHER, "layers.0.mlp.in")->in[0].buffer = program_find(&p, "vocab.first"),
          "vocab.first", "reaches element");
    fleet_release(&f);
}

// One collective for the rows of both sequences, instead of one for each: the ranks' rows then lie behind one another,
// and not sequence by sequence.
static void exchange_both_at_once(struct program *p, enum op op, const char *first, const char *second) {
    leave_out(p, mutant_find(p, op, second));
    struct instruction *i = found(p, op, first);
    for (int k = 0; k < 2; k++) {
        struct operand *o = mutant_operand(i, k);
        *o = operand_shape(operand_whole(p, program_root(p, o->buffer)), 1, (int64_t[]){2 * o->dim[0]});
    }
}

static void gather_both_at_once(struct program *p) {
    exchange_both_at_once(p, OP_ALL_GATHER, "layers.0.attention.kv.all.0", "layers.0.attention.kv.all.1");
    exchange_both_at_once(p, OP_REDUCE_SCATTER, "d.layers.0.attention.kv.own.0", "d.layers.0.attention.kv.own.1");
}

// Ranks with parts of sequences.
static void context(void **unused) {
    (void)unused;
    FLEET(MODEL(GPT2), BATCH(4), CP(2), FSDP(2, 1));
    const char *const all = "layers.0.attention.kv.all";
    FAULT(0, FLEET_STAGE, found(&p, OP_ATTENTION, all)->in[4] = operand_none(), "1 ranks have 4 of its t", "attention");
    FAULT(0, FLEET_STAGE, found(&p, OP_ATTENTION, all)->in[4].buffer = program_find(&p, "tokens"), "attention",
          "tokens");
    FAULT(0, FLEET_STAGE, p.buffers.item[program_find(&p, "position.first")].placement[AXIS_CP] = PLACE_REPLICATE,
          "1 ranks have", "attention");
    FAULT(0, FLEET_STAGE, found(&p, OP_ALL_GATHER, "layers.0.attention.kv.all.1")->group = AXES(AXIS_FSDP),
          "is the same on all ranks along cp, part is split", "layers.0.attention.kv.all");
    FAULT(0, FLEET_STAGE, found(&p, OP_REDUCE_SCATTER, "d.layers.0.attention.kv.own.1")->group = AXES(AXIS_FSDP),
          "is split along fsdp and cannot be reduced", "d.layers.0.attention.kv.all.1");
    FAULT(0, FLEET_STAGE, gather_both_at_once(&p), "are not of one sequence", "layers.0.attention.kv.own");
    FAULT(0, FLEET_STAGE, leave_out(&p, mutant_find(&p, OP_ALL_GATHER, "layers.0.attention.kv.all.1")),
          "before it is written", "layers.0.attention.kv.all");
    FAULT(0, FLEET_STAGE, leave_out(&p, mutant_find(&p, OP_REDUCE_SCATTER, "d.layers.0.attention.kv.own.1")),
          "before it is written", "d.layers.0.attention.kv.own");
    FAULT(0, FLEET_STAGE, leave_out(&p, mutant_find(&p, OP_REDUCE_SCATTER, "layers.0.gradients")),
          "is a partial sum along cp; an all_reduce is missing", "layers.0.gradients");
    fleet_release(&f);
}

// An instruction of a set says that its keys are those of another rank.
static void take_keys_of(struct program *p, enum op op, const char *buffer, int64_t behind) {
    found(p, op, buffer)->attribute[ATTRIBUTE(ATTENTION_BLOCK, keys)].i = behind;
}

static void set_everywhere(struct program *p, int attribute, int64_t value) {
    for (size_t t = 0; t < p->templates.count; t++)
        for (size_t k = 0; k < p->templates.item[t].instructions.count; k++) {
            struct instruction *i = &p->templates.item[t].instructions.item[k];
            if (i->op == OP_ATTENTION_BLOCK || i->op == OP_ATTENTION_BLOCK_BWD)
                i->attribute[attribute].i = value;
        }
}

// The last keys that come are left out.
static void end_early(struct program *p) {
    found(p, OP_ATTENTION_END, "layers.0.attention.heads.seen2")->in[0].buffer =
        program_find(p, "layers.0.attention.heads.seen1");
    found(p, OP_ATTENTION_END, "layers.0.attention.heads.seen_lse2")->in[1].buffer =
        program_find(p, "layers.0.attention.heads.seen_lse1");
}

// Attention over parts: a set of instructions is to make what the row does on all ranks together.
static void ring(void **unused) {
    (void)unused;
    FLEET(MODEL(LLAMA), BATCH(4), RING(4), FSDP(2, 1), "model.sliding_window=4");
    const char *const seen = "layers.0.attention.heads.seen1", *const keys = "layers.0.attention.heads.keys1";
    assert_int_equal(program_find(fleet_program(&f, 0), "layers.0.attention.heads.keys3"), NONE); // the window's reach
    FAULT(0, FLEET_STAGE, take_keys_of(&p, OP_ATTENTION_BLOCK, seen, 2), "does not make the o of", "attention_parts");
    FAULT(0, FLEET_STAGE, take_keys_of(&p, OP_ATTENTION_BLOCK_BWD, "d.layers.0.attention.heads.dq1", 0),
          "does not make the dq of", "attention_parts_bwd");
    FAULT(0, FLEET_STAGE, end_early(&p), "whose memory", "layers.0.attention.heads.seen2");
    FAULT(0, FLEET_STAGE, set_everywhere(&p, ATTRIBUTE(ATTENTION_BLOCK, window), 6), "does not make the o of",
          "attention_parts");
    FAULT(0, FLEET_STAGE, set_everywhere(&p, ATTRIBUTE(ATTENTION_BLOCK, parts), 2),
          "of 2 parts, but exchanges between 4", "attention");
    FAULT(0, FLEET_STAGE, found(&p, OP_ATTENTION_BLOCK, seen)->attribute[ATTRIBUTE(ATTENTION_BLOCK, layout)].i = 1,
          "its layout is not that of the rest of its set", "attention_block");
    FAULT(0, FLEET_STAGE, leave_out(&p, mutant_find(&p, OP_RECEIVE, keys)), "before it is written", keys);
    FAULT(0, FLEET_STAGE, found(&p, OP_RECEIVE, keys)->peer = -2, "nothing like", keys);
    FAULT(0, FLEET_STAGE, leave_out(&p, mutant_find(&p, OP_ATTENTION_ADD, "d.layers.0.attention.heads.key_sums1")),
          "before it is written", "d.layers.0.attention.heads.key_sums1");
    fleet_release(&f);
}

// Linear attention over parts: states are gathered, and those before a rank's part are put together.
static void states(void **unused) {
    (void)unused;
    FLEET(MODEL(LINEAR), BATCH(4), CP(4), FSDP(2, 1));
    const char *const before = "layers.0.attention.states", *const all = "layers.0.attention.heads.all",
                      *const own = "layers.0.attention.heads.own", *const back = "d.layers.0.attention.heads.after";
    // Of other ranks: those after the part, or, of gradients, those before it.
    FAULT(0, FLEET_STAGE, found(&p, OP_LINEAR_JOIN, before)->attribute[ATTRIBUTE(LINEAR_JOIN, later)].i = 1,
          "does not make the o of", "linear_parts");
    FAULT(0, FLEET_STAGE, found(&p, OP_LINEAR_JOIN, back)->attribute[ATTRIBUTE(LINEAR_JOIN, later)].i = 0,
          "does not make the dk of", "linear_parts_bwd");
    FAULT(0, FLEET_STAGE, found(&p, OP_LINEAR_JOIN, before)->attribute[ATTRIBUTE(LINEAR_JOIN, parts)].i = 2,
          "q=parts*b does not hold", "linear_join");
    // The state of another layer is kept for backward.
    FAULT(0, FLEET_STAGE,
          found(&p, OP_LINEAR_BLOCK_BWD, "layers.1.attention.states")->in[INPUT(LINEAR_BLOCK_BWD, before)].buffer =
              program_find(&p, before),
          "mismatch: before", "linear_parts");
    // Another decay, or documents, than the rest of the set.
    FAULT(0, FLEET_STAGE,
          found(&p, OP_LINEAR_STATE, own)->in[INPUT(LINEAR_STATE, decay)] =
              found(&p, OP_LINEAR_STATE, own)->in[INPUT(LINEAR_STATE, k)],
          "takes layers.0.attention.decay as its decay", "layers.0.attention.qkv");
    FAULT(0, FLEET_STAGE,
          found(&p, OP_LINEAR_STATE, own)->in[INPUT(LINEAR_STATE, starts)].buffer = program_find(&p, "positions"),
          "its starts", "positions");
    FAULT(0, FLEET_STAGE, found(&p, OP_LINEAR_BLOCK_BWD, before)->attribute[ATTRIBUTE(LINEAR_BLOCK_BWD, scale)].f = 1,
          "its scale is not that of the rest of its set", "linear_block_bwd");
    FAULT(0, FLEET_STAGE, leave_out(&p, mutant_find(&p, OP_ALL_GATHER, all)), "before it is written", all);
    FAULT(0, FLEET_STAGE, found(&p, OP_ALL_GATHER, all)->group = AXES(AXIS_FSDP),
          "its t is split along cp, and nothing exchanges it there", "linear");
    fleet_release(&f);
}

// Queries that travel, and gradients that follow them.
static void burst(void **unused) {
    (void)unused;
    FLEET(MODEL(LLAMA), BATCH(4), BY("burst", 4), FSDP(2, 1));
    const char *const home = "d.layers.0.attention.heads.arriving3", *const queries =
                                                                         "d.layers.0.attention.heads.queries2";
    FAULT(0, FLEET_STAGE,
          found(&p, OP_ATTENTION_BLOCK_BWD, queries)->attribute[ATTRIBUTE(ATTENTION_BLOCK, queries)].i = 1,
          "does not make the dq of", "attention_parts_bwd");
    FAULT(0, FLEET_STAGE, found(&p, OP_RECEIVE, queries)->peer = 2, "nothing like", queries);
    // The last rank but one sends its sum home, too.
    FAULT(0, FLEET_STAGE,
          (found(&p, OP_SEND, "d.layers.0.attention.heads.dq_sums2")->peer = 2,
           found(&p, OP_RECEIVE, "d.layers.0.attention.heads.arriving2")->peer = -2),
          "does not make the dq of", "attention_parts_bwd");
    FAULT(0, FLEET_STAGE, rename_input(&p, OP_ATTENTION_BWD_END, home, "d.layers.0.attention.heads.arriving2"),
          "whose memory", "arriving2");
    FAULT(0, FLEET_STAGE,
          rename_input(&p, OP_ATTENTION_BLOCK_BWD, "d.layers.0.attention.heads.queries_starts2",
                       "d.layers.0.attention.heads.queries_starts1"),
          "does not make the dq of", "attention_parts_bwd");
    fleet_release(&f);
}

// Rings within rings: how far away keys are is a distance in each of them.
static void inner_rings(void **unused) {
    (void)unused;
    FLEET(MODEL(LLAMA), BATCH(4), RING(4), "parallelism.context_parallel_inner_degree=2", FSDP(2, 1));
    const char *const seen = "layers.0.attention.heads.seen2", *const ahead = "layers.0.attention.heads.keys2";
    FAULT(0, FLEET_STAGE, take_keys_of(&p, OP_ATTENTION_BLOCK, seen, 3), "does not make the o of", "attention_parts");
    FAULT(0, FLEET_STAGE, set_everywhere(&p, ATTRIBUTE(ATTENTION_BLOCK, inner), 0), "does not make the o of",
          "attention_parts");
    FAULT(0, FLEET_STAGE, found(&p, OP_RECEIVE, ahead)->group = AXES(AXIS_CP), "nothing like", ahead);
    // What the first ring has added up is sent on once more, as if it were all of it.
    FAULT(0, FLEET_STAGE,
          rename_input(&p, OP_ATTENTION_BWD_END, "d.layers.0.attention.heads.from_ring1",
                       "d.layers.0.attention.heads.from_ring0"),
          "", "d.layers.0.attention.heads");
    fleet_release(&f);
}

// Results that go straight home.
static void tokenring(void **unused) {
    (void)unused;
    FLEET(MODEL(LLAMA), BATCH(4), BY("tokenring", 4), FSDP(2, 1));
    // What one rank saw is merged twice, and what another saw not at all.
    FAULT(0, FLEET_STAGE,
          rename_input(&p, OP_ATTENTION_MERGE, "layers.0.attention.heads.seen_there2",
                       "layers.0.attention.heads.seen_there1"),
          "whose memory", "seen_there1");
    FAULT(0, FLEET_STAGE,
          (found(&p, OP_SEND, "layers.0.attention.heads.seen_here2")->peer = 1,
           found(&p, OP_RECEIVE, "layers.0.attention.heads.seen_there2")->peer = -1),
          "does not make the o of", "attention_parts");
    fleet_release(&f);
}

static struct instruction *first_of(struct program *p, enum op op) {
    for (size_t t = 0; t < p->templates.count; t++)
        for (size_t k = 0; k < p->templates.item[t].instructions.count; k++)
            if (p->templates.item[t].instructions.item[k].op == op)
                return &p->templates.item[t].instructions.item[k];
    fail();
    return NULL;
}

// The first sum of gradients that have come from a later rank.
static struct instruction *first_from_behind(struct program *p) {
    FOR_INSTRUCTIONS(i, p)
        if (i->op == OP_ATTENTION_ADD && i->attribute[ATTRIBUTE(ATTENTION_ADD, from)].i > 0)
            return (struct instruction *)i;
    fail();
    return NULL;
}

// Messages that do not reach all ranks: whoever has none must not look.
static void lightseq(void **unused) {
    (void)unused;
    FLEET(MODEL(LLAMA), BATCH(4), BY("lightseq", 4), FSDP(2, 1));
    check_round_trip(fleet_program(&f, 0), f.stages.options.ops); // the text form says which messages are open
    const char *const keys = "layers.0.attention.heads.keys1", *const queries = "layers.0.attention.heads.queries1",
                      *const help = "layers.0.attention.heads.seen_there1";
    FAULT(0, FLEET_STAGE, first_of(&p, OP_ATTENTION_MERGE)->attribute[ATTRIBUTE(ATTENTION_MERGE, from)].i = 0,
          "does not make the o of", "attention_parts");
    FAULT(0, FLEET_STAGE, first_of(&p, OP_ATTENTION_MERGE)->attribute[ATTRIBUTE(ATTENTION_MERGE, from)].i = -2,
          "does not make the o of", "attention_parts");
    FAULT(0, FLEET_STAGE, first_from_behind(&p)->attribute[ATTRIBUTE(ATTENTION_ADD, ranks)].i = 3,
          "does not make the dk of", "attention_parts_bwd");
    // As if the keys at hand were those of the rank itself.
    FAULT(0, FLEET_STAGE, found(&p, OP_ATTENTION_BLOCK, keys)->attribute[ATTRIBUTE(ATTENTION_BLOCK, keys)].i = 0,
          "does not make the o of", "attention_parts");
    FAULT(0, FLEET_STAGE, found(&p, OP_ATTENTION_BLOCK, queries)->attribute[ATTRIBUTE(ATTENTION_BLOCK, queries)].i = 0,
          "does not make the o of", "attention_parts");
    FAULT(0, FLEET_STAGE, found(&p, OP_RECEIVE, help)->open = false, "nothing like", help);
    FAULT(0, FLEET_STAGE,
          (found(&p, OP_SEND, "layers.0.attention.heads.seen_here1")->peer = 2, found(&p, OP_RECEIVE, help)->peer = -2),
          "does not make the o of", "attention_parts");
    FAULT(0, FLEET_STAGE, found(&p, OP_RECEIVE, keys)->peer = -4, "is open, but", "receive");
    FAULT(0, FLEET_STAGE, found(&p, OP_REDUCE_SCATTER, "layers.0.gradients")->open = true, "is open, but",
          "reduce_scatter");
    fleet_release(&f);
}

static void more_ranks_than_heads(void **unused) {
    (void)unused;
    FLEET(MODEL(LLAMA), BATCH(4), TP(4), NO_SEQUENCE);
    // Each of the ranks with the same keys and values has the contributions of some queries.
    FAULT(0, FLEET_STAGE, leave_out(&p, mutant_find(&p, OP_ALL_REDUCE, "layers.0.kv.gradients")),
          "is a partial sum along kv; an all_reduce is missing", "layers.0.kv.gradients");
    FAULT(0, FLEET_STAGE, found(&p, OP_ALL_REDUCE, "layers.0.kv.gradients")->group = AXES(AXIS_TP),
          "split along tp and cannot be reduced", "layers.0.kv.gradients");
    FAULT(0, FLEET_STAGE, found(&p, OP_ALL_REDUCE, "layers.0.attention.out.part")->group = AXES(AXIS_TP),
          "is a partial sum along kv", "layers.0.attention.out.sum");
    fleet_release(&f);
}

static void zero_1(void **unused) {
    (void)unused;
    FLEET(MODEL(LLAMA), BATCH(16), FSDP(2, 1), DP(2));
    FAULT(0, FLEET_STAGE, leave_out(&p, mutant_find(&p, OP_REDUCE_SCATTER, "layers.0.gradients")),
          "along fsdp a value that is not split so", "layers.0.gradients");
    FAULT(0, FLEET_STAGE, mutant_repeat(&p, mutant_find(&p, OP_REDUCE_SCATTER, "layers.0.gradients")),
          "each rank has its own part along fsdp only", "layers.0.gradients");
    FAULT(0, FLEET_STAGE, leave_out(&p, mutant_find(&p, OP_ALL_REDUCE, "layers.0.gradients")),
          "is a partial sum along dp", "layers.0.gradients");
    FAULT(0, FLEET_STAGE, leave_out(&p, mutant_find(&p, OP_ALL_GATHER, "layers.1.parameters")),
          "while another stream may still write it", "embed.weight");
    FAULT(0, FLEET_STAGE, found(&p, OP_ALL_GATHER, "layers.1.parameters")->when = WHEN_LAST, "an all_gather is missing",
          "layers.1.");
    FAULT(0, FLEET_STAGE, p.buffers.item[program_find(&p, "layers.1.parameters")].own = AXES_NONE,
          "an all_gather is missing", "layers.1.parameters");
    FAULT(0, FLEET_STAGE, found(&p, OP_EMBED, "tokens")->wait[STREAM_GATHER]++,
          "while another stream may still write it", "embed.weight");
    FAULT(0, FLEET_STAGE, p.buffers.item[program_find(&p, "layers.1.parameters")].own = AXES(AXIS_DP),
          "each rank has its own part along dp only", "layers.1.parameters");
    FAULT(0, FLEET_STAGE, p.buffers.item[program_find(&p, "layers.1.m")].own = AXES(AXIS_FSDP),
          "ranks cannot keep their own parts", "layers.1.m");
    FAULT(0, FLEET_STAGE, found(&p, OP_REDUCE_SCATTER, "layers.0.gradients")->group = AXES(AXIS_DP),
          "which it reads as x", "layers.0.gradients");
    FAULT(0, FLEET_STAGE, found(&p, OP_ADAMW, "layers.0.m")->in[2].along = AXES(AXIS_DP), "along", "layers.0.");
    FAULT(0, FLEET_STAGE, p.buffers.item[program_find(&p, "layers.0.m")].placement[AXIS_FSDP] = PLACE_REPLICATE,
          "is not split along fsdp by its n", "layers.0.m");
    fleet_release(&f);
}

static void zero_2(void **unused) {
    (void)unused;
    FLEET(MODEL(GPT2), BATCH(8), FSDP(2, 2));
    FAULT(0, FLEET_STAGE, leave_out(&p, mutant_find(&p, OP_REDUCE_SCATTER, "layers.0.gradients.whole")),
          "nothing reduces", "layers.0.gradients.whole");
    FAULT(0, FLEET_STAGE, mutant_repeat(&p, mutant_find(&p, OP_REDUCE_SCATTER, "layers.0.gradients.whole")), "",
          "layers.0.gradients");
    FAULT(0, FLEET_STAGE, leave_out(&p, mutant_find(&p, OP_ZERO, "layers.0.gradients.whole")), "before it is written",
          "layers.0.gradients.whole");
    fleet_release(&f);
}

// Replicas add up the sums of the first microbatch before the second one adds its own.
static void zero_2_replicas(void **unused) {
    (void)unused;
    FLEET(MODEL(GPT2), BATCH(16), FSDP(2, 2), DP(2));
    FAULT(0, FLEET_STAGE, found(&p, OP_ALL_REDUCE, "layers.0.gradients")->when = WHEN_ALWAYS,
          "adds to layers.0.gradients what is placed differently", "along dp");
    fleet_release(&f);
}

// Backward reads what forward gathered, instead of what it gathers itself.
static void use_after_free(struct program *p) {
    for (size_t t = 0; t < p->templates.count; t++)
        for (size_t i = 0; i < p->templates.item[t].instructions.count; i++) {
            struct instruction *in = &p->templates.item[t].instructions.item[i];
            for (int k = 0; k < in->inputs; k++)
                if (in->in[k].buffer != NONE && p->buffers.item[in->in[k].buffer].recomputes != NONE &&
                    p->buffers.item[in->in[k].buffer].kind == KIND_PARAM)
                    in->in[k].buffer = p->buffers.item[in->in[k].buffer].recomputes;
        }
}

static void zero_3(void **unused) {
    (void)unused;
    FLEET(MODEL(LLAMA), BATCH(8), FSDP(2, 3));
    assert_int_equal(program_find(fleet_program(&f, 0), "layers.1.gathered.again"), NONE); // it is kept
    FAULT(0, FLEET_STAGE, use_after_free(&p), "before it is written", "weight");
    FAULT(0, FLEET_STAGE,
          p.buffers.item[program_find(&p, "layers.0.gathered.again")].offset =
              p.buffers.item[program_find(&p, "layers.1.gathered")].offset,
          "", "layers.");
    FAULT(0, FLEET_STAGE, leave_out(&p, mutant_find(&p, OP_ALL_GATHER, "layers.1.gathered")), "before it is written",
          "layers.1.");
    FAULT(0, FLEET_STAGE, leave_out(&p, mutant_find(&p, OP_ALL_GATHER, "layers.0.gathered.again")),
          "before it is written", "layers.0.");
    FAULT(0, FLEET_STAGE, leave_out(&p, mutant_find(&p, OP_REDUCE_SCATTER, "layers.1.gradients.whole")),
          "nothing reduces", "layers.1.gradients.whole");
    FAULT(0, FLEET_STAGE, p.buffers.item[program_find(&p, "layers.0.parameters")].placement[AXIS_FSDP] = 0,
          "there is nothing to gather", "layers.0.parameters");
    FAULT(0, FLEET_STAGE,
          found(&p, OP_ALL_GATHER, "layers.0.gathered")->in[0].buffer = program_find(&p, "layers.1.parameters"),
          "layers.1.gradients is not the gradient of", "layers.1.parameters");
    fleet_release(&f);
}

// With four tokens at a time ranks look rows up in their parts of the embedding instead of gathering it; not replicas
// of them with several microbatches, which would have to reduce their sum.
static void rows_of_replicas(void **unused) {
    (void)unused;
    for (int microbatches = 1; microbatches <= 2; microbatches++) {
        FLEET("training.seq_len=4", "training.threads=1", "training.micro_batch_size=1", SMALL_EXACT, SMALL_LLAMA_MODEL,
              microbatches == 1 ? BATCH(4) : BATCH(8), FSDP(2, 3), DP(2));
        assert_int_equal(f.stages.plan.split.row_ranks, microbatches == 1 ? 2 : 1);
        assert_int_equal(program_find(fleet_program(&f, 0), "embedding.own") != NONE, microbatches == 1);
        if (microbatches == 1)
            FAULT(0, FLEET_STAGE, leave_out(&p, mutant_find(&p, OP_ALL_GATHER, "d.embedding.own")),
                  "before it is written", "d.embedding.own");
        else
            FAULT(0, FLEET_STAGE, leave_out(&p, mutant_find(&p, OP_ALL_REDUCE, "embed.gradients")),
                  "is a partial sum along dp", "embed.gradients");
        fleet_release(&f);
    }
}

static void pipeline(void **unused) {
    (void)unused;
    FLEET(MODEL(GPT2), BATCH(4), PP(2));
    for (int stage = 0; stage < 2; stage++) {
        FAULT(stage, FLEET_STAGE, leave_out(&p, mutant_find(&p, OP_ALL_REDUCE, "embed.gradients")),
              "is a partial sum along pp; an all_reduce is missing", "embed.gradients");
        FAULT(stage, FLEET_STAGE, leave_out(&p, mutant_find(&p, OP_ALL_REDUCE, "loss")), "along pp", "loss");
        FAULT(stage, FLEET_STAGE, mutant_repeat(&p, mutant_find(&p, OP_ALL_REDUCE, "embed.gradients")), "reduced twice",
              "embed.gradients");
    }
    FAULT(1, FLEET_STAGE,
          (p.schedule.item[1].microbatch = 1, p.schedule.item[2].microbatch = 1, p.schedule.item[3].microbatch = 0,
           p.schedule.item[4].microbatch = 0),
          "of another microbatch", "forward[0] receive (microbatch 1) of layers.0.residual over pp");
    static char other[] = "other"; // mutants do not own names
    FAULT(1, FLEET_STAGE, p.buffers.item[program_find(&p, "layers.0.residual")].name = other,
          "which receives another buffer", "of other over pp");
    FAULT(0, FLEET_STAGE, found(&p, OP_CLIP, "loss")->in[1].buffer = program_find(&p, "loss.scale"),
          "loss.scale is not the loss of the step", "clip");
    f.evaluates = true;
    FAULT(0, FLEET_STAGE, leave_out(&p, mutant_find(&p, OP_SEND, "layers.0.residual")),
          "rank 1: forward[0] receive (microbatch 0) of layers.0.residual over pp would wait forever for rank 0",
          "which has ended");
    FAULT(0, FLEET_STAGE, mutant_repeat(&p, mutant_find(&p, OP_SEND, "layers.0.residual")), "of another microbatch",
          "rank 0: forward");
    fleet_release(&f);
}

// The backward of another operation on the same operands.
static void backward_of_another(struct instruction *i) {
    const struct operand in[] = {i->in[0], i->in[1], i->in[2], i->in[4], i->in[5]};
    i->op = OP_RMSNORM_DX;
    i->inputs = (int)ARRAY_LENGTH(in);
    memcpy(i->in, in, sizeof in);
}

static void pipeline_in_two_parts(void **unused) {
    (void)unused;
    FLEET(MODEL(GPT2), BATCH(4), PP(2), "parallelism.pipeline_parallel_schedule=zb-h1");
    struct program p = mutant_copy(fleet_program(&f, 0));
    backward_of_another(found(&p, OP_LAYERNORM_DX, "d.layers.0.mlp_norm"));
    assert_refused_anew(&p, f.stages.options.ops, "is not the backward of any rmsnorm of this program", "rmsnorm_dx");
    mutant_release(&p);
    fleet_release(&f);
}

// One stage waits for the gradient of the first microbatch, the other for the second microbatch.
static void deadlock(void **unused) {
    (void)unused;
    FLEET(MODEL(GPT2), BATCH(4), PP(2), SCHEDULE(1f1b));
    struct fleet g;
    fleet_create(&g, __func__, (const char *const[]){MODEL(GPT2), BATCH(4), PP(2), SCHEDULE(gpipe), NULL});
    struct program first = mutant_copy(fleet_program(&f, 0));
    // input, F0, F1, B0, B1, optimizer
    struct invocation second = first.schedule.item[2];
    first.schedule.item[2] = first.schedule.item[3];
    first.schedule.item[3] = second;
    trireme_error error = {0};
    assert_words(
        programs_verify((const struct program *[]){&first, fleet_program(&g, 1)}, 2, f.stages.options.ops, &error),
        &error, "would wait forever", "over pp");
    mutant_release(&first);
    fleet_release(&f);
    fleet_release(&g);
}

// Programs that are sound, each by itself.
static void strangers(void **unused) {
    (void)unused;
    FLEET(MODEL(GPT2), BATCH(4), TP(2));
    struct fleet g;
    fleet_create(&g, __func__,
                 (const char *const[]){"training.seq_len=16", "training.threads=1", "training.micro_batch_size=2",
                                       SMALL_EXACT, SMALL_GPT2_MODEL, BATCH(4), TP(2), NULL});
    trireme_error error = {0};
    const struct op_table *ops = f.stages.options.ops;
    assert_words(
        programs_verify((const struct program *[]){fleet_program(&f, 0), fleet_program(&g, 0)}, 2, ops, &error), &error,
        "of embedding.part over tp meets rank 1's forward[1] reduce_scatter", "256 elements of f64 and 512 of f64");
    assert_words(programs_verify((const struct program *[]){fleet_program(&f, 0)}, 1, ops, &error), &error,
                 "its program is for a mesh of tp 2", "not of these 1 ranks");
    fleet_release(&g);
    fleet_create(&g, __func__, (const char *const[]){MODEL(GPT2), BATCH(4), TP(2), NO_SEQUENCE, NULL});
    assert_words(
        programs_verify((const struct program *[]){fleet_program(&f, 0), fleet_program(&g, 0)}, 2, ops, &error), &error,
        "of embedding.part over tp meets rank 1's forward[1] all_reduce", "rank 0: forward[1] reduce_scatter");
    fleet_release(&g);
    fleet_create(&g, __func__, (const char *const[]){MODEL_F32, SMALL_GPT2_MODEL, BATCH(4), TP(2), NULL});
    assert_words(
        programs_verify((const struct program *[]){fleet_program(&f, 0), fleet_program(&g, 0)}, 2, ops, &error), &error,
        "of embedding.part over tp meets rank 1's forward[1] reduce_scatter", "256 elements of f64 and 256 of f32");
    fleet_release(&g);
    fleet_release(&f);
}

static void strangers_in_a_pipeline(void **unused) {
    (void)unused;
    FLEET(MODEL(LLAMA), BATCH(4), PP(2), UNTIED);
    struct fleet g;
    trireme_error error = {0};
    for (int longer = 0; longer < 2; longer++) {
        if (longer)
            fleet_create(&g, __func__,
                         (const char *const[]){"training.seq_len=16", "training.threads=1",
                                               "training.micro_batch_size=2", SMALL_EXACT, SMALL_LLAMA_MODEL, BATCH(4),
                                               PP(2), UNTIED, NULL});
        else
            fleet_create(&g, __func__,
                         (const char *const[]){MODEL_F32, SMALL_LLAMA_MODEL, BATCH(4), PP(2), UNTIED, NULL});
        assert_words(programs_verify((const struct program *[]){fleet_program(&f, 0), fleet_program(&g, 1)}, 2,
                                     f.stages.options.ops, &error),
                     &error, "of layers.0.residual over pp meets rank 1's forward[0] receive",
                     longer ? "256 elements of f64 and 512 of f64" : "256 elements of f64 and 256 of f32");
        fleet_release(&g);
    }
    fleet_release(&f);
}

// Ranks of a pipeline that all run the first, or all the last stage: the ranks have one program, but it cannot stand
// for both stages.
static void twins(void **unused) {
    (void)unused;
    FLEET(MODEL(GPT2), BATCH(4), PP(2));
    for (int stage = 0; stage < 2; stage++) {
        trireme_error error = {0};
        const struct program *p = fleet_program(&f, stage);
        assert_words(programs_verify((const struct program *[]){p, p}, 2, f.stages.options.ops, &error), &error,
                     "2 stages have it", "this stage's own");
    }
    fleet_release(&f);
}

// The same templates, numbered differently.
static void renumber(struct program *p) {
    struct template first = p->templates.item[1];
    p->templates.item[1] = p->templates.item[3];
    p->templates.item[3] = first;
    for (size_t k = 0; k < p->schedule.count; k++) {
        int *t = &p->schedule.item[k].template;
        *t = *t == 1 ? 3 : *t == 3 ? 1 : *t;
    }
}

// A template that the schedule never invokes, with communication on a stream of its own.
static void open_more(struct program *p) {
    struct instruction more = *mutant_at(mutant_find(p, OP_ALL_GATHER, "layers.0.attention_norm"));
    more.stream = STREAM_GATHER;
    static char name[] = "never"; // mutants do not own names
    struct template never = {.name = name, .phase = PHASE_OPTIMIZER};
    VEC_PUSH(&never.instructions, more);
    VEC_PUSH(&p->templates, never);
}

// Whatever the order of templates, all ranks open groups in the same order.
static void order_of_opening(void **unused) {
    (void)unused;
    FLEET(MODEL(GPT2), BATCH(4), TP(2));
    FAULT(0, 0, open_more(&p), "rank 0 opens its group over tp", "rank 1");
    struct program p = mutant_copy(fleet_program(&f, 0));
    trireme_error error = {0};
    renumber(&p);
    for (int rank = FLEET_STAGE; rank < f.ranks; rank++)
        assert_int_equal(fleet_verify(&f, 0, rank, &p, &error), TRIREME_OK);
    mutant_release(&p);
    fleet_release(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_parallel),
        cmocka_unit_test(order_of_gradients),
        cmocka_unit_test(one_rank_sends_less),
        cmocka_unit_test(rows_of_more_ranks),
        cmocka_unit_test(order_of_microbatches),
        cmocka_unit_test(order_of_halves),
        cmocka_unit_test(one_stage_twice),
        cmocka_unit_test(tensor),
        cmocka_unit_test(sequence),
        cmocka_unit_test(context),
        cmocka_unit_test(burst),
        cmocka_unit_test(inner_rings),
        cmocka_unit_test(tokenring),
        cmocka_unit_test(lightseq),
        cmocka_unit_test(ring),
        cmocka_unit_test(states),
        cmocka_unit_test(more_ranks_than_heads),
        cmocka_unit_test(zero_1),
        cmocka_unit_test(zero_2),
        cmocka_unit_test(zero_2_replicas),
        cmocka_unit_test(zero_3),
        cmocka_unit_test(rows_of_replicas),
        cmocka_unit_test(pipeline),
        cmocka_unit_test(pipeline_in_two_parts),
        cmocka_unit_test(deadlock),
        cmocka_unit_test(order_of_opening),
        cmocka_unit_test(strangers),
        cmocka_unit_test(strangers_in_a_pipeline),
        cmocka_unit_test(twins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
