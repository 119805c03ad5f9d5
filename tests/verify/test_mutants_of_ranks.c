// The negative suite of the verifier over many ranks. What joins ranks is changed at every place, one fault at a time:
// communication is left out, done twice, moved, put on another group, peer or stream; waits, the parts of a buffer that
// are a rank's own, and what buffers are declared to hold are changed. Each mutant must be refused or, run on all
// ranks, give exactly the results of the originals.
#include "support/fleet.h"
#include "support/test.h"

#include "program/names.h"

enum { CANDIDATES = 3 };

struct site {
    struct fleet *fleet;
    int stage;
    size_t template, index;
};

static const struct program *program_of(const struct site *s) {
    return fleet_program(s->fleet, s->stage);
}

static struct instruction *instruction_at(const struct site *s, struct program *mutant) {
    return &mutant->templates.item[s->template].instructions.item[s->index];
}

static const char *op_name(const struct site *s) {
    const struct instruction *i = instruction_at(s, (struct program *)program_of(s));
    return s->fleet->stages.options.ops->op[i->op].name;
}

#define WHERE program_of(s)->templates.item[s->template].name, s->index, op_name(s)
// Makes a mutant by `change`, which may use `mutant` and `i`, the instruction; the other arguments are words that name
// it.
#define MUTATE(change, format, ...)                                                              \
    do {                                                                                         \
        struct program mutant;                                                                   \
        if (fleet_begin(s->fleet, s->stage, &mutant)) {                                          \
            struct instruction *i = instruction_at(s, &mutant);                                  \
            (void)i;                                                                             \
            change;                                                                              \
            fleet_end(s->fleet, s->stage, &mutant, "%s[%zu] %s: " format, WHERE, ##__VA_ARGS__); \
        }                                                                                        \
    } while (0)

// ---- the list

static void swap_with(struct program *mutant, size_t template, size_t a, size_t b) {
    struct instruction *item = mutant->templates.item[template].instructions.item, first = item[a];
    memmove(&item[a], &item[a + 1], (b - a) * sizeof *item);
    item[b] = first;
}

// The next communication of the template, which another rank could meet in place of this one; 0 where there is none.
static size_t next_communication(const struct site *s) {
    const struct template *t = &program_of(s)->templates.item[s->template];
    for (size_t k = s->index + 1; k < t->instructions.count; k++)
        if (t->instructions.item[k].group)
            return k;
    return 0;
}

static void mutate_list(const struct site *s) {
    size_t count = program_of(s)->templates.item[s->template].instructions.count, next = next_communication(s);
    struct place place = {NULL, s->index};
    MUTATE((place.template = &mutant.templates.item[s->template], mutant_delete(place)), "deleted");
    MUTATE((place.template = &mutant.templates.item[s->template], mutant_repeat(&mutant, place)), "duplicated");
    if (s->index + 1 < count && !mutant_same_sum(instruction_at(s, (struct program *)program_of(s))))
        MUTATE(swap_with(&mutant, s->template, s->index, s->index + 1), "swapped with the next");
    if (next > s->index + 1)
        MUTATE(swap_with(&mutant, s->template, s->index, next), "moved behind [%zu]", next);
    if (s->index > 0)
        MUTATE(swap_with(&mutant, s->template, 0, s->index), "what is first moved behind it");
}

// ---- fields

static void mutate_group(const struct site *s, const struct instruction *was) {
    const struct mesh *mesh = &program_of(s)->mesh;
    axis_set axes = mesh_present(mesh, AXES_ALL);
    char text[AXES_TEXT];
    for (axis_set group = 0; group <= AXES_ALL; group++)
        if ((group & ~axes) == 0 && group != was->group)
            MUTATE(i->group = group, "over %s", axes_print(group, text));
    for (int peer = -2; peer <= 2; peer++)
        if (peer != was->peer)
            MUTATE(i->peer = peer, "peer %d", peer);
    if (op_is_message(was->op))
        MUTATE(i->open ^= true, "%s", was->open ? "not open" : "open");
    if (was->op == OP_ALL_REDUCE)
        MUTATE(i->attribute[0].i ^= 1, "the maximum for the sum");
    for (int stream = 0; stream < (int)program_of(s)->streams.count; stream++)
        if (stream != was->stream)
            MUTATE(i->stream = stream, "on stream %d", stream);
    int finite = program_find(program_of(s), "finite");
    MUTATE(i->predicate = finite, "if finite");
}

// Which invocations run the instruction, and whether it adds to its outputs.
static void mutate_sums(const struct site *s, const struct instruction *was) {
    for (int value = ACCUMULATE_NO; value <= ACCUMULATE_AFTER_FIRST; value++) {
        if (value != (int)was->accumulate)
            MUTATE(i->accumulate = (enum accumulate)value, "accumulate %d", value);
        for (int when = WHEN_ALWAYS; when < WHEN_COUNT; when++)
            if (when != (int)was->when)
                MUTATE((i->accumulate = (enum accumulate)value, i->when = (enum when)when), "%s, accumulate %d",
                       WHEN_WORDS[when], value);
    }
}

static void mutate_waits(const struct site *s, const struct instruction *was) {
    for (int stream = 0; stream < (int)program_of(s)->streams.count; stream++) {
        if (was->wait[stream])
            MUTATE(i->wait[stream] = 0, "no wait for stream %d", stream);
        if (was->wait[stream])
            MUTATE(i->wait[stream] += 2, "waits for less of stream %d", stream);
        else if (stream != was->stream)
            MUTATE(i->wait[stream] = 1, "waits for stream %d", stream);
    }
}

static void mutate_operands(const struct site *s, const struct instruction *was) {
    const struct program *p = program_of(s);
    axis_set axes = mesh_present(&p->mesh, AXES_ALL);
    for (int k = 0; k < was->inputs + was->outputs; k++) {
        const struct operand *operand = mutant_operand((struct instruction *)was, k);
        if (operand->buffer == NONE)
            continue;
        int tried = 0;
        for (size_t n = 1; n < p->buffers.count && tried < CANDIDATES; n++) {
            int b = (int)(((size_t)operand->buffer + n * 5) % p->buffers.count);
            const struct buffer *to = &p->buffers.item[b], *from = &p->buffers.item[operand->buffer];
            if (b == operand->buffer || to->dtype != from->dtype || buffer_count(to) != buffer_count(from))
                continue;
            // A batch holds whatever the host puts into it; only buffers with a meaning are declared.
            if (from->kind == KIND_INPUT && to->kind == KIND_INPUT && !*from->as && !*to->as)
                continue;
            tried++;
            MUTATE(mutant_operand(i, k)->buffer = b, "%s for %s", to->name, from->name);
        }
        for (axis_set along = 1; along <= AXES_ALL && operand->along; along++)
            if ((along & ~axes) == 0 && along != operand->along)
                MUTATE(mutant_operand(i, k)->along = along, "operand %d along %u", k, along);
        if (operand->along) {
            MUTATE((mutant_operand(i, k)->along = 0, mutant_operand(i, k)->step = 0), "operand %d of all", k);
            MUTATE(mutant_operand(i, k)->step /= 2, "operand %d by half steps", k);
            MUTATE(mutant_operand(i, k)->step--, "operand %d by shorter steps", k);
        } else if (was->group && operand->ndim == 1 && operand->dim[0] % 2 == 0) {
            MUTATE(mutant_operand(i, k)->dim[0] /= 2, "operand %d by half", k);
        }
    }
}

// Values become zero, or other values, before an instruction that reads or changes them.
static void mutate_values(const struct site *s, const struct instruction *was) {
    const struct program *p = program_of(s);
    for (int k = 0; k < was->inputs + was->outputs; k++) {
        const int buffer = mutant_operand((struct instruction *)was, k)->buffer;
        if (buffer == NONE)
            continue;
        for (int by = NONE, tried = 0; by < (int)p->buffers.count && tried < 2; by++) {
            const struct buffer *to = &p->buffers.item[buffer], *from = by == NONE ? to : &p->buffers.item[by];
            if (by == buffer || to->dtype != from->dtype || buffer_count(to) != buffer_count(from))
                continue;
            tried++;
            struct place place = {NULL, s->index};
            MUTATE((place.template = &mutant.templates.item[s->template], mutant_overwrite(&mutant, place, buffer, by)),
                   "%s becomes %s before it", to->name, by == NONE ? "zero" : from->name);
        }
    }
}

// ---- buffers

static void mutate_placements(struct fleet *f, int stage) {
    const struct program *p = fleet_program(f, stage);
    for (size_t b = 0; b < p->buffers.count; b++)
        for (int a = 0; a < AXIS_COUNT && p->buffers.item[b].kind != KIND_ACT; a++)
            for (int8_t place = PLACE_MAX; place <= PLACE_SHARD(1); place++) {
                struct program mutant;
                if (place == p->buffers.item[b].placement[a] || p->mesh.degree[a] == 1 ||
                    !fleet_begin(f, stage, &mutant))
                    continue;
                mutant.buffers.item[b].placement[a] = place;
                fleet_end_unseen(f, stage, &mutant);
            }
}

// Except the state, which all programs of a run share.
static void mutate_scopes(struct fleet *f, int stage) {
    const struct program *p = fleet_program(f, stage);
    for (int b = 0; b < (int)p->buffers.count; b++)
        for (int scope = SCOPE_STATE + 1; scope < SCOPE_COUNT; scope++) {
            struct program mutant;
            if (p->buffers.item[b].parent != NONE || p->buffers.item[b].scope == SCOPE_STATE ||
                scope == (int)p->buffers.item[b].scope || !fleet_begin(f, stage, &mutant))
                continue;
            for (int i = b; i < (int)p->buffers.count; i++)
                if (program_root(p, i) == b)
                    mutant.buffers.item[i].scope = (enum buffer_scope)scope;
            fleet_end(f, stage, &mutant, "%s of scope %d", p->buffers.item[b].name, scope);
        }
}

static enum phase phase_of(const struct program *p, size_t invocation) {
    return p->templates.item[p->schedule.item[invocation].template].phase;
}

// Contributions to weight gradients may be added up in any order.
static bool is_weight(const struct program *p, size_t invocation) {
    return phase_of(p, invocation) == PHASE_WEIGHT;
}

// So may those to the gradient of a tied embedding, which two templates make.
static bool both_go_backward(const struct program *p, size_t a, size_t b) {
    const bool first = phase_of(p, a) == PHASE_BACKWARD || is_weight(p, a);
    const bool second = phase_of(p, b) == PHASE_BACKWARD || is_weight(p, b);
    return first && second && p->schedule.item[a].template != p->schedule.item[b].template;
}

static void mutate_schedule(struct fleet *f, int stage) {
    const struct program *p = fleet_program(f, stage);
    struct program mutant;
    for (size_t k = 0; k < p->schedule.count; k++) {
        if (k + 1 < p->schedule.count && fleet_begin(f, stage, &mutant)) {
            struct invocation first = mutant.schedule.item[k];
            f->reorders = (is_weight(p, k) && is_weight(p, k + 1)) || both_go_backward(p, k, k + 1);
            mutant.schedule.item[k] = mutant.schedule.item[k + 1];
            mutant.schedule.item[k + 1] = first;
            fleet_end(f, stage, &mutant, "invocations %zu and %zu swapped", k, k + 1);
            f->reorders = false;
        }
        if (fleet_begin(f, stage, &mutant)) {
            mutant.schedule.item[k].last ^= true;
            fleet_end(f, stage, &mutant, "invocation %zu: last", k);
        }
        if (fleet_begin(f, stage, &mutant)) {
            mutant.schedule.item[k].first ^= true;
            fleet_end(f, stage, &mutant, "invocation %zu: first", k);
        }
        for (size_t n = k + 1; n < p->schedule.count; n++) {
            struct invocation a = p->schedule.item[k], b = p->schedule.item[n];
            if (a.template != b.template || a.microbatch == b.microbatch || !fleet_begin(f, stage, &mutant))
                continue;
            f->reorders = is_weight(p, k);
            mutant.schedule.item[k].microbatch = b.microbatch;
            mutant.schedule.item[n].microbatch = a.microbatch;
            fleet_end(f, stage, &mutant, "invocations %zu and %zu: microbatches exchanged", k, n);
            f->reorders = false;
        }
    }
}

// Slots of other microbatches, and buffers, templates and pools of other chunks.
static void mutate_pools(struct fleet *f, int stage) {
    const struct program *p = fleet_program(f, stage);
    struct program mutant;
    int pools = (int)p->pools.count;
    for (int i = 0; i < pools; i++)
        for (int m = 0; m < p->microbatches; m++)
            for (int slot = 0; slot < p->pools.item[i].slots; slot++)
                if (slot != p->pools.item[i].slot[m] && fleet_begin(f, stage, &mutant)) {
                    mutant.pools.item[i].slot[m] = slot;
                    fleet_end(f, stage, &mutant, "pool %d: microbatch %d in slot %d", i, m, slot);
                }
    for (size_t t = 0; t < p->templates.count; t++)
        for (int i = 0; i < pools; i++)
            if (i != p->templates.item[t].chunk && fleet_begin(f, stage, &mutant)) {
                mutant.templates.item[t].chunk = i;
                fleet_end(f, stage, &mutant, "template %zu of chunk %d", t, i);
            }
    for (size_t b = 0; b < p->buffers.count; b++)
        for (int i = 0; i < pools; i++)
            if (p->buffers.item[b].scope == SCOPE_SLOT && p->buffers.item[b].pool != i &&
                fleet_begin(f, stage, &mutant)) {
                mutant.buffers.item[b].pool = i;
                fleet_end(f, stage, &mutant, "%s in pool %d", p->buffers.item[b].name, i);
            }
}

static bool joins_ranks(const struct instruction *i) {
    bool joins = i->group != AXES_NONE;
    for (int k = 0; k < i->inputs + i->outputs; k++)
        joins |= mutant_operand((struct instruction *)i, k)->along != AXES_NONE;
    for (int s = 0; s < STREAMS_MAX; s++)
        joins |= i->wait[s] != 0;
    return joins;
}

static void mutate_instruction(const struct site *s) {
    const struct instruction *was = instruction_at(s, (struct program *)program_of(s));
    mutate_list(s);
    mutate_operands(s, was);
    mutate_values(s, was);
    mutate_sums(s, was);
    if (was->group)
        mutate_group(s, was);
    if (joins_ranks(was))
        mutate_waits(s, was);
}

static void check_mutants(const char *name, size_t stride, const char *const *overrides) {
    struct fleet f;
    fleet_create(&f, name, overrides);
    fleet_run(&f);
    f.stride = getenv("TRIREME_ALL_MUTANTS") ? 1 : stride;
    for (int stage = 0; stage < f.stages.count; stage++) {
        const struct program *p = fleet_program(&f, stage);
        for (size_t t = 0; t < p->templates.count; t++)
            for (size_t i = 0; i < p->templates.item[t].instructions.count; i++)
                mutate_instruction(&(struct site){&f, stage, t, i});
        mutate_placements(&f, stage);
        mutate_scopes(&f, stage);
        mutate_schedule(&f, stage);
        mutate_pools(&f, stage);
    }
    print_message("%s on %d ranks: %zu mutants: %zu refused, %zu harmless, %zu accepted and harmful\n", name, f.ranks,
                  f.tried, f.refused, f.harmless, f.harmful);
    size_t harmful = f.harmful, refused = f.refused;
    fleet_release(&f);
    assert_int_equal(harmful, 0);
    assert_true(refused > 0);
}

#define DP(n) "parallelism.data_parallel_replicate_degree=" #n
#define UNIT(layers) "parallelism.data_parallel_unit_layers=" #layers
#define FSDP(n, zero) "parallelism.data_parallel_shard_degree=" #n, "parallelism.zero_stage=" #zero
#define TP(n) "parallelism.tensor_parallel_degree=" #n
#define PP(n) "parallelism.pipeline_parallel_degree=" #n
#define RING(n)                                                                            \
    "parallelism.context_parallel_degree=" #n, "parallelism.context_parallel_method=ring", \
        "parallelism.context_parallel_layout=contiguous"
#define BY(method, n)                                                                         \
    "parallelism.context_parallel_degree=" #n, "parallelism.context_parallel_method=" method, \
        "parallelism.context_parallel_layout=contiguous"
// Enough layers for several chunks.
#define DEEP_GPT2_MODEL                                                                                     \
    "model.family=gpt2", "model.num_hidden_layers=4", "model.hidden_size=8", "model.num_attention_heads=2", \
        "model.vocab_size=24"
// A model of whose table a batch needs few rows.
#define MANY_WORDS_MODEL                                                                                      \
    "model.family=llama", "model.num_hidden_layers=1", "model.hidden_size=16", "model.num_attention_heads=2", \
        "model.intermediate_size=24", "model.vocab_size=256", "model.tie_word_embeddings=false"
#define MANY_WORDS_GPT2_MODEL                                                                                \
    "model.family=gpt2", "model.num_hidden_layers=1", "model.hidden_size=16", "model.num_attention_heads=2", \
        "model.vocab_size=256"
#define SCHEDULE(name) "parallelism.pipeline_parallel_schedule=" name
#define VOCABULARY "parallelism.vocabulary_parallel=true"
#define NO_SEQUENCE "parallelism.sequence_parallel=false"
#define MUON "optimizer.name=muon"
#define OVERLAP "parallelism.tensor_parallel_overlap=true"
#define BATCH(sequences)                                                                  \
    "training.seq_len=8", "training.global_batch_size=" #sequences, "training.threads=1", \
        "training.micro_batch_size=2", "optimizer.eps=1e-3", SMALL_EXACT

// Tries one of this many of the mutants that mutant_stride lets through; all where TRIREME_ALL_MUTANTS is set.
#define SUITE(function, stride, ...)                                                \
    static void function(void **unused) {                                           \
        (void)unused;                                                               \
        check_mutants(#function, stride, (const char *const[]){__VA_ARGS__, NULL}); \
    }
SUITE(data_parallel, 3, BATCH(8), SMALL_GPT2_MODEL, DP(2))
SUITE(rows_of_all, 3, BATCH(4), SMALL_GPT2_MODEL, DP(2))
SUITE(rows_of_the_last, 7, BATCH(8), MANY_WORDS_MODEL, DP(2))
SUITE(rows_of_all_tensor, 7, BATCH(4), MANY_WORDS_MODEL, DP(2), TP(2))
SUITE(rows_in_parts, 7, BATCH(8), MANY_WORDS_MODEL, FSDP(2, 3))
SUITE(rows_in_parts_tied, 7, BATCH(8), MANY_WORDS_GPT2_MODEL, FSDP(2, 3))
SUITE(rows_in_own_parts, 5, BATCH(4), MANY_WORDS_MODEL, FSDP(2, 1))
SUITE(rows_in_own_parts_tied, 5, BATCH(4), MANY_WORDS_GPT2_MODEL, FSDP(2, 1))
SUITE(rows_in_replicas_parts, 7, BATCH(8), MANY_WORDS_MODEL, FSDP(2, 3), DP(2))
SUITE(rows_in_replicas_parts_tied, 7, BATCH(8), MANY_WORDS_GPT2_MODEL, FSDP(2, 3), DP(2))
SUITE(rows_in_replicas_own_parts, 7, BATCH(8), MANY_WORDS_GPT2_MODEL, FSDP(2, 1), DP(2))
SUITE(zero_1, 4, BATCH(8), SMALL_LLAMA_MODEL, FSDP(2, 1))
SUITE(zero_2, 7, BATCH(16), SMALL_GPT2_MODEL, FSDP(2, 2), DP(2))
SUITE(zero_3, 5, BATCH(8), SMALL_LLAMA_MODEL, FSDP(2, 3))
SUITE(zero_3_units, 9, BATCH(8), SMALL_LLAMA_MODEL, FSDP(2, 3), UNIT(2))
SUITE(zero_2_halves, 9, BATCH(8), SMALL_GPT2_MODEL, FSDP(2, 2), UNIT(0))
SUITE(tensor, 7, BATCH(4), SMALL_LLAMA_MODEL, TP(4), NO_SEQUENCE)
SUITE(sequence, 6, BATCH(4), SMALL_GPT2_MODEL, TP(2))
SUITE(overlap, 13, BATCH(4), SMALL_LLAMA_MODEL, TP(2), OVERLAP, "activation_checkpoint.mode=selective")
SUITE(pipeline, 4, BATCH(4), SMALL_GPT2_MODEL, PP(2))
SUITE(pipeline_tensor, 11, BATCH(4), SMALL_GPT2_MODEL, PP(2), TP(2))
SUITE(message_parts, 11, BATCH(4), SMALL_GPT2_MODEL, PP(2), TP(2), NO_SEQUENCE)
SUITE(interleaved, 53, BATCH(4), DEEP_GPT2_MODEL, PP(2), SCHEDULE("interleaved"))
SUITE(zero_bubble, 41, BATCH(6), SMALL_GPT2_MODEL, PP(2), SCHEDULE("zb-h1"))
SUITE(zero_bubble_v, 59, BATCH(4), DEEP_GPT2_MODEL, PP(2), SCHEDULE("zb-v"))
SUITE(waves, 83, BATCH(8), DEEP_GPT2_MODEL, PP(2), SCHEDULE("hanayo"), FSDP(2, 3))
SUITE(vocabulary, 31, BATCH(6), SMALL_LLAMA_MODEL, PP(2), VOCABULARY)
SUITE(vocabulary_rows, 53, BATCH(4), SMALL_GPT2_MODEL, PP(2), VOCABULARY, "training.logits_rows=6")
SUITE(vocabulary_tensor, 83, BATCH(6), SMALL_GPT2_MODEL, PP(2), TP(2), VOCABULARY, SCHEDULE("zb-h1"))
SUITE(matrices, 5, BATCH(8), SMALL_LLAMA_MODEL, FSDP(2, 3), MUON)
SUITE(matrices_tensor, 29, BATCH(8), SMALL_LLAMA_MODEL, FSDP(2, 1), TP(2), MUON)
SUITE(matrices_pipeline, 23, BATCH(4), SMALL_GPT2_MODEL, PP(2), TP(2), MUON)
SUITE(ring, 9, BATCH(4), SMALL_LLAMA_MODEL, RING(2), "model.sliding_window=3")
SUITE(states, 9, BATCH(4), SMALL_LINEAR_MODEL, "parallelism.context_parallel_degree=2")
SUITE(burst, 11, BATCH(4), SMALL_LLAMA_MODEL, BY("burst", 2))
SUITE(inner_rings, 23, BATCH(4), SMALL_LLAMA_MODEL, BY("ring", 4), "parallelism.context_parallel_inner_degree=2")
SUITE(tokenring, 11, BATCH(4), SMALL_LLAMA_MODEL, BY("tokenring", 2), "model.sliding_window=3")
SUITE(lightseq, 17, BATCH(4), SMALL_LLAMA_MODEL, BY("lightseq", 3), "training.seq_len=6")
SUITE(everything, 29, BATCH(8), SMALL_GPT2_MODEL, PP(2), TP(2), FSDP(2, 1))

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_parallel),
        cmocka_unit_test(zero_1),
        cmocka_unit_test(zero_2),
        cmocka_unit_test(zero_3),
        cmocka_unit_test(zero_3_units),
        cmocka_unit_test(zero_2_halves),
        cmocka_unit_test(tensor),
        cmocka_unit_test(sequence),
        cmocka_unit_test(pipeline),
        cmocka_unit_test(pipeline_tensor),
        cmocka_unit_test(interleaved),
        cmocka_unit_test(zero_bubble),
        cmocka_unit_test(zero_bubble_v),
        cmocka_unit_test(waves),
        cmocka_unit_test(vocabulary),
        cmocka_unit_test(vocabulary_tensor),
        cmocka_unit_test(overlap),
        cmocka_unit_test(vocabulary_rows),
        cmocka_unit_test(everything),
        cmocka_unit_test(ring),
        cmocka_unit_test(states),
        cmocka_unit_test(burst),
        cmocka_unit_test(inner_rings),
        cmocka_unit_test(tokenring),
        cmocka_unit_test(lightseq),
        cmocka_unit_test(matrices),
        cmocka_unit_test(matrices_tensor),
        cmocka_unit_test(matrices_pipeline),
        cmocka_unit_test(message_parts),
        cmocka_unit_test(rows_of_all),
        cmocka_unit_test(rows_of_all_tensor),
        cmocka_unit_test(rows_of_the_last),
        cmocka_unit_test(rows_in_parts),
        cmocka_unit_test(rows_in_parts_tied),
        cmocka_unit_test(rows_in_own_parts),
        cmocka_unit_test(rows_in_own_parts_tied),
        cmocka_unit_test(rows_in_replicas_parts),
        cmocka_unit_test(rows_in_replicas_parts_tied),
        cmocka_unit_test(rows_in_replicas_own_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
