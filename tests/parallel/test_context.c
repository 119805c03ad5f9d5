// What ways of sharing sequences cost: the bytes that a rank sends for a layer, forward and backward, as counted from
// its program, against closed forms; and the pairs of a query and a key that each rank attends to.
#include "compile/stages.h"
#include "program/channels.h"
#include "program/places.h"
#include "sim/cost.h"
#include "support/checkpoint.h"
#include "support/test.h"

#include <math.h>

#define GATHER CONFIG_CONTEXT_PARALLEL_GATHER
#define ULYSSES CONFIG_CONTEXT_PARALLEL_ULYSSES
#define RING CONFIG_CONTEXT_PARALLEL_RING
#define BURST CONFIG_CONTEXT_PARALLEL_BURST
#define TOKENRING CONFIG_CONTEXT_PARALLEL_TOKENRING
#define LIGHTSEQ CONFIG_CONTEXT_PARALLEL_LIGHTSEQ
#define HYBRID CONFIG_CONTEXT_PARALLEL_HYBRID
enum { ROWS = 8, WIDTH = 4, HEADS = 4, SEQUENCES = 2, LAYERS = 2 };

struct case_of_bytes {
    enum config_context_parallel_method method;
    const char *layout;
    int ranks, kv_heads;
    bool bf16;
    int inner; // ranks of inner rings, or 0
};

// Sent by the mean rank in both directions of the step, of one layer.
struct bytes {
    double forward, backward;
};

// ---- closed forms

// Rows of a rank, widths of queries and of keys, and the bytes of an element, of a sum and of a number of 32 bits.
struct sizes {
    double n, h, kv, e, sum, heads, ranks;
};

static struct sizes sizes_of(const struct case_of_bytes *of) {
    return (struct sizes){.n = SEQUENCES * ROWS,
                          .h = HEADS * WIDTH,
                          .kv = of->kv_heads * WIDTH,
                          .e = of->bf16 ? 2 : 4,
                          .sum = 4,
                          .heads = HEADS,
                          .ranks = of->ranks};
}

// Queries that travel: with them where their documents begin, and in backward the gradient of what they see, its
// log-sum-exp and delta.
static double load_of_queries(struct sizes s, bool backward) {
    return s.n * (backward ? 2 * s.h * s.e + 2 * s.heads * s.sum : s.h * s.e) + s.n * 4;
}

static struct bytes expected_bytes(const struct case_of_bytes *of) {
    const struct sizes s = sizes_of(of);
    const double keys = 2 * s.n * s.kv * s.e, key_sums = 2 * s.n * s.kv * s.sum, dq = s.n * s.h * s.sum,
                 seen = s.n * (s.h + s.heads) * s.sum, P = s.ranks;
    const double turns = P - 1,
                 hops = of->inner ? P + P / of->inner : P; // of sums: round each ring, and on to the next
    if (of->method == GATHER)
        return (struct bytes){turns * keys, turns * keys};
    if (of->method == ULYSSES) {
        const double both = s.n * s.e * (2 * s.h + 2 * s.kv) * turns / P;
        return (struct bytes){both, both};
    }
    if (of->method == RING)
        return (struct bytes){turns * keys, turns * keys + hops * key_sums};
    if (of->method == BURST)
        return (struct bytes){turns * keys, turns * load_of_queries(s, true) + hops * dq};
    if (of->method == TOKENRING)
        return (struct bytes){turns * (load_of_queries(s, false) + seen), turns * (load_of_queries(s, true) + dq)};
    if (of->method == HYBRID) { // 2 ranks exchange, P / 2 are in a ring; of each 2 have half of the heads
        const double ring = (P / 2 - 1) * keys, exchange = s.n * s.e * (2 * s.h + 2 * s.kv) / 2;
        return (struct bytes){exchange + ring, exchange + ring + (P > 2 ? P / 2 * key_sums : 0)};
    }
    // lightseq: P - t ranks fetch keys in step t up to P / 2; t ranks help in step t below P / 2.
    struct bytes sent = {0};
    for (int t = 1; 2 * t <= of->ranks; t++) {
        sent.forward += (P - t) / P * keys;
        sent.backward += (P - t) / P * (keys + key_sums);
    }
    for (int t = 1; 2 * t < of->ranks; t++) {
        sent.forward += t / P * (load_of_queries(s, false) + seen);
        sent.backward += t / P * (load_of_queries(s, true) + dq);
    }
    return sent;
}

// ---- programs

struct compiled_case {
    struct config config;
    struct model_config model;
    struct stages stages;
    const struct program *program;
};

static void compile_case(struct compiled_case *c, const struct case_of_bytes *of) {
    const bool cuts = of->method == HYBRID;
    char *settings[] = {
        mem_strdup("run.directory=unused"),
        mem_strdup("training.threads=1"),
        mem_strdup("training.kernels=reference"),
        mem_strdup("model.family=llama"),
        mem_strdup("model.vocab_size=32"),
        mem_printf("model.num_hidden_layers=%d", LAYERS),
        mem_printf("model.hidden_size=%d", HEADS * WIDTH),
        mem_printf("model.num_attention_heads=%d", HEADS),
        mem_printf("model.num_key_value_heads=%d", of->kv_heads),
        mem_printf("training.seq_len=%d", ROWS * of->ranks),
        mem_printf("training.global_batch_size=%d", SEQUENCES),
        mem_printf("training.micro_batch_size=%d", SEQUENCES),
        mem_printf("training.dtype=%s", of->bf16 ? "bf16" : "f32"),
        mem_strdup("parallelism.zero_stage=0"),
        mem_printf("parallelism.context_parallel_degree=%d", of->ranks),
        mem_printf("parallelism.context_parallel_method=%s", config_context_parallel_method_word(of->method)),
        mem_printf("parallelism.context_parallel_layout=%s", of->layout),
        mem_printf("parallelism.context_parallel_inner_degree=%d", of->inner),
        mem_strdup("parallelism.context_parallel_ulysses_degree=2")};
    const size_t count = ARRAY_LENGTH(settings) - !cuts;
    trireme_error error = {0};
    assert_ok(config_load(&c->config, NULL, (const char *const *)settings, count, &error), &error);
    assert_ok(model_config_resolve(&c->model, &c->config, c->config.model.vocab_size, &error), &error);
    assert_ok(stages_create(&c->stages, &c->config, &c->model, NULL, TRAIN_ALONE, NULL, &error), &error);
    assert_ok(stages_compile(&c->stages, EVERY_STAGE, &error), &error);
    assert_ok(stages_verify(&c->stages, &error), &error);
    c->program = stages_program(&c->stages, 0, PROGRAM_TRAIN);
    for (size_t i = 0; i < ARRAY_LENGTH(settings); i++)
        free(settings[i]);
}

static void release_case(struct compiled_case *c) {
    stages_release(&c->stages);
    config_release(&c->config);
}

// What a rank sends of a tensor: of n ranks each sends the n - 1 others their parts (sim/exchanges.h).
static double sent_by(const struct program *p, const struct instruction *i) {
    const double bytes = communicated_bytes(p, i), ranks = mesh_group_size(&p->mesh, i->group);
    if (!op_is_message(i->op))
        return op_traffic[i->op].times * bytes * (ranks - 1) / ranks;
    if (i->op == OP_RECEIVE)
        return 0;
    double senders = 0;
    for (int rank = 0; rank < mesh_ranks(&p->mesh); rank++)
        senders += message_is_of(&p->mesh, i, rank);
    return bytes * senders / mesh_ranks(&p->mesh);
}

static struct bytes count_bytes(const struct program *p) {
    struct bytes sent = {0};
    FOR_INSTRUCTIONS(i, p)
        if (i->layer == 0 && i->group & AXES_PARTS)
            *(i->phase == PHASE_FORWARD ? &sent.forward : &sent.backward) += sent_by(p, i);
    return sent;
}

static void bytes_are_those_of_closed_forms(void **state) {
    (void)state;
    static const enum config_context_parallel_method METHODS[] = {GATHER,    ULYSSES,  RING,  BURST,
                                                                  TOKENRING, LIGHTSEQ, HYBRID};
    for (size_t m = 0; m < ARRAY_LENGTH(METHODS); m++)
        for (int ranks = 2; ranks <= 6; ranks++)
            for (int kv_heads = 1; kv_heads <= HEADS; kv_heads *= 2)
                for (int bf16 = 0; bf16 < 2; bf16++) {
                    const struct case_of_bytes of = {METHODS[m], "contiguous", ranks, kv_heads, bf16, 0};
                    const bool all = of.method == ULYSSES, exchanges = all || of.method == HYBRID;
                    // Where heads do not divide by the ranks, copies of some travel besides.
                    if (exchanges && (all ? HEADS % ranks || kv_heads % ranks : ranks % 2 || kv_heads % 2))
                        continue;
                    struct compiled_case c;
                    compile_case(&c, &of);
                    const struct bytes sent = count_bytes(c.program), expected = expected_bytes(&of);
                    if (fabs(sent.forward - expected.forward) > 1e-6 || fabs(sent.backward - expected.backward) > 1e-6)
                        fail_msg("%s, %d ranks, %d key-value heads, %s: %g forward, %g backward; should be %g and %g",
                                 config_context_parallel_method_word(of.method), ranks, kv_heads, bf16 ? "bf16" : "f32",
                                 sent.forward, sent.backward, expected.forward, expected.backward);
                    release_case(&c);
                }
}

static void inner_rings_send_as_much(void **state) {
    (void)state;
    for (int ranks = 4; ranks <= 8; ranks += 2)
        for (int inner = 2; inner < ranks; inner++)
            for (int burst = 0; burst < 2 && ranks % inner == 0; burst++) {
                const struct case_of_bytes of = {burst ? BURST : RING, "zigzag", ranks, 2, true, inner};
                struct compiled_case c;
                compile_case(&c, &of);
                const struct bytes sent = count_bytes(c.program), expected = expected_bytes(&of);
                assert_true(sent.forward == expected.forward && sent.backward == expected.backward);
                double between = 0; // inner rings, forward: each block to each other ring once
                FOR_INSTRUCTIONS(i, c.program)
                    if (i->layer == 0 && i->phase == PHASE_FORWARD && i->op == OP_SEND && i->group != AXES(AXIS_CP))
                        between += sent_by(c.program, i);
                assert_true(between == expected.forward * (ranks / inner - 1) / (ranks - 1));
                release_case(&c);
            }
}

static double backward_bytes(enum config_context_parallel_method method, int ranks, int kv_heads) {
    const struct case_of_bytes of = {method, "zigzag", ranks, kv_heads, false, 0};
    struct compiled_case c;
    compile_case(&c, &of);
    const double bytes = count_bytes(c.program).backward;
    release_case(&c);
    return bytes;
}

// Where all that travels is f32, what burst sends grows with 3 h and what a ring sends with 4 kv.
static void burst_pays_for_many_key_value_heads(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= 6; ranks += 2)
        for (int kv_heads = 1; kv_heads <= HEADS; kv_heads *= 2) {
            const bool less = backward_bytes(BURST, ranks, kv_heads) < backward_bytes(RING, ranks, kv_heads);
            assert_int_equal(less, 4 * kv_heads > 3 * HEADS);
        }
}

// ---- pairs

// What rank `own` attends to in forward, or in backward, of one layer.
static int64_t pairs_of(const struct program *p, enum op op, int64_t own) {
    int64_t pairs = 0;
    FOR_INSTRUCTIONS(i, p) {
        if (i->op != op || i->layer != 0)
            continue;
        const struct places places = {i->attribute[ATTRIBUTE(ATTENTION_BLOCK, layout)].i,
                                      i->attribute[ATTRIBUTE(ATTENTION_BLOCK, parts)].i, ROWS};
        const int64_t inner = i->attribute[ATTRIBUTE(ATTENTION_BLOCK, inner)].i;
        pairs += places_pairs(&places,
                              places_before(&places, own, i->attribute[ATTRIBUTE(ATTENTION_BLOCK, queries)].i, inner),
                              places_before(&places, own, i->attribute[ATTRIBUTE(ATTENTION_BLOCK, keys)].i, inner), 0);
    }
    return pairs;
}

// All ranks together attend to each pair of the sequence once. In a contiguous ring the last rank has (2 P - 1) / P of
// the mean, up to its own diagonal, in zigzag all have the same. With help no rank has more than a whole part's pairs
// in each of the P / 2 steps behind its own.
static void pairs_are_shared(void **state) {
    (void)state;
    static const struct {
        enum config_context_parallel_method method;
        const char *layout;
        bool inner;
    } WAYS[] = {{RING, "contiguous", false},      {RING, "zigzag", true},       {RING, "striped", false},
                {BURST, "contiguous", false},     {BURST, "zigzag", false},     {BURST, "zigzag", true},
                {TOKENRING, "contiguous", false}, {TOKENRING, "zigzag", false}, {LIGHTSEQ, "contiguous", false}};
    for (size_t w = 0; w < ARRAY_LENGTH(WAYS); w++)
        for (int ranks = 2; ranks <= 7; ranks++) {
            const struct case_of_bytes of = {
                WAYS[w].method, WAYS[w].layout, ranks, 2, false, WAYS[w].inner && ranks % 2 == 0 ? 2 : 0};
            const int64_t length = ranks * ROWS, whole = length * (length + 1) / 2, diagonal = ROWS * (ROWS + 1) / 2;
            struct compiled_case c;
            compile_case(&c, &of);
            for (int pass = 0; pass < 2; pass++) {
                int64_t sum = 0, most = 0, least = INT64_MAX;
                for (int64_t own = 0; own < ranks; own++) {
                    const int64_t pairs = pairs_of(c.program, pass ? OP_ATTENTION_BLOCK_BWD : OP_ATTENTION_BLOCK, own);
                    sum += pairs;
                    most = MAX(most, pairs);
                    least = MIN(least, pairs);
                }
                assert_int_equal(sum, whole);
                const bool contiguous = strcmp(of.layout, "contiguous") == 0;
                if (strcmp(of.layout, "zigzag") == 0)
                    assert_int_equal(most, least);
                else if (contiguous && of.method == RING)
                    assert_int_equal(most, (ranks - 1) * ROWS * ROWS + diagonal);
                else if (of.method == LIGHTSEQ)
                    assert_int_equal(most, ranks / 2 * ROWS * ROWS + diagonal);
                if (of.method == LIGHTSEQ && ranks % 2)
                    assert_int_equal(most, least);
            }
            release_case(&c);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_those_of_closed_forms), cmocka_unit_test(inner_rings_send_as_much),
        cmocka_unit_test(burst_pays_for_many_key_value_heads), cmocka_unit_test(pairs_are_shared)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
