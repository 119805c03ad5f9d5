// The head of a vocabulary that is spread over stages: instructions that each belong to the same logits as the others.
// With an operand of another chunk of rows, or another one of the same shape, the head is refused.
#include "base/text.h"
#include "support/by_hand.h"
#include "support/checkpoint.h"
#include "support/fleet.h"
#include "support/test.h"

#define AT(op, buffer) mutant_at(mutant_find(&p, op, buffer))
// The input of an instruction, and that of the instruction that does the same for the other chunk.
#define IN(op, name, k) AT(op, name ".rows8")->in[k]
#define OTHER(op, name, k) AT(op, name ".rows0")->in[k]
// Asserts that the program is refused in a message that contains `what` and the site.
#define FAULT_AT(fault, what, site)                                \
    do {                                                           \
        struct program p = mutant_copy(program);                   \
        fault;                                                     \
        assert_refused_anew(&p, f.stages.options.ops, what, site); \
        mutant_release(&p);                                        \
    } while (0)
#define FAULT(fault, what) FAULT_AT(fault, what, "logits")
#define FLEET(...)                                                                                                    \
    struct fleet f;                                                                                                   \
    fleet_create(&f, __func__,                                                                                        \
                 (const char *const[]){SMALL_BATCH, SMALL_EXACT, "parallelism.pipeline_parallel_degree=2",            \
                                       "parallelism.vocabulary_parallel=true", "training.logits_rows=8", __VA_ARGS__, \
                                       NULL})

static void exchange(struct operand *a, struct operand *b) {
    struct operand first = *a;
    *a = *b;
    *b = first;
}

static void operands_of_other_logits(void **unused) {
    (void)unused;
    FLEET(SMALL_GPT2_MODEL);
    for (int stage = 0; stage < 2; stage++) {
        const struct program *program = fleet_program(&f, stage);
        // the gradient of the logits
        FAULT(IN(OP_LOGITS_GRAD, "logits", 1) = OTHER(OP_LOGITS_GRAD, "logits", 1), "the rest of its set takes other");
        FAULT(IN(OP_LOGITS_GRAD, "logits", 3) = IN(OP_LOGITS_GRAD, "logits", 4), "its set does not make the dlogits");
        FAULT(IN(OP_LOGITS_GRAD, "logits", 4) = IN(OP_LOGITS_GRAD, "logits", 3), "its set does not make the dlogits");
        // maximum, sum and targets
        FAULT(IN(OP_LOGITS_DX, "logits.max", 3) = IN(OP_LOGITS_DX, "logits.max", 4), "its set does not make the dx");
        FAULT(IN(OP_LOGITS_DX, "logits.max", 4) = IN(OP_LOGITS_DX, "logits.max", 3), "its set does not make the dx");
        FAULT((IN(OP_LOGITS_DX, "logits.max", 5) = OTHER(OP_LOGITS_DX, "logits.max", 5),
               IN(OP_LOGITS_PICK, "logits.picked", 0) = OTHER(OP_LOGITS_PICK, "logits.picked", 0)),
              "the rest of its set takes other");
        FAULT(IN(OP_LOGITS_MERGE, "logits.max", 0).dim[0] = 1, "is not a value that its set has made");
        // the input of the head
        FAULT_AT((mutant_swap(&p, program_find(&p, "norm.rows0"), program_find(&p, "norm.rows8")),
                  mutant_swap(&p, program_find(&p, "d.norm.rows0"), program_find(&p, "d.norm.rows8"))),
                 "its rows of targets are not those of its logits", "logits_exp");
        // columns that nobody writes
        FAULT_AT(p.buffers.item[program_find(&p, "logits.all.rows8")].dim[1]++, "does not take all of logits.all.rows8",
                 "all_gather");
        FAULT_AT(p.buffers.item[program_find(&p, "logits.own.rows8")].dim[1]++, "does not take all of logits.own.rows8",
                 "all_gather");
        // products with the weights
        FAULT(IN(OP_LOGITS_DX, "logits.max", 0) = IN(OP_LOGITS_DX, "logits.max", 1), "its set does not make the dx");
        FAULT(IN(OP_LOGITS_DX, "logits.max", 1) = IN(OP_LOGITS_DX, "logits.max", 0), "its set does not make the dx");
        FAULT(IN(OP_LOGITS_PICK, "logits.picked", 1).dim[0]--, "the rest of its set takes other");
        FAULT(IN(OP_LOGITS_TIMES, "logits.exp", 0) = IN(OP_LOGITS_EXP, "logits", 0), "takes logits.rows8 as its e");
        FAULT(IN(OP_LOGITS_PICK, "logits.picked", 0) = OTHER(OP_LOGITS_PICK, "logits.picked", 0),
              "the rest of its set takes other");
        // a set without one of its instructions, and one of them without its set
        FAULT(mutant_delete(mutant_find(&p, OP_LOGITS_GRAD, "logits.rows8")), "d.logits.rows8 before it is written");
        FAULT(AT(OP_LOGITS_MERGE, "logits.max.rows8")->set = 0, "means something only in a set");
        FAULT(AT(OP_LOGITS_DX, "logits.max.rows8")->stands_for = OP_CROSS_ENTROPY_GRAD, "but stands for");
    }
    fleet_release(&f);
}

// Where no other stage's rows could tell them apart.
static void gradients_of_other_rows(void **unused) {
    (void)unused;
    FLEET(SMALL_LLAMA_MODEL);
    for (int stage = 0; stage < 2; stage++) {
        const struct program *program = fleet_program(&f, stage);
        FAULT(exchange(&AT(OP_LOGITS_DX, "logits.max.rows0")->out[0], &AT(OP_LOGITS_DX, "logits.max.rows8")->out[0]),
              "is not the gradient of norm.rows");
    }
    fleet_release(&f);
}

// The stage that has the loss.
static void losses_of_other_rows(void **unused) {
    (void)unused;
    FLEET(SMALL_LLAMA_MODEL);
    const struct program *program = fleet_program(&f, 1);
#define SWAP(a, b) mutant_swap(&p, program_find(&p, a), program_find(&p, b))
    FAULT_AT((SWAP("norm.rows0", "norm.rows8"), SWAP("d.norm.rows0", "d.norm.rows8")),
             "its rows of targets are not those of its logits", "logits_exp");
#undef SWAP
    fleet_release(&f);
}

// Logits that are capped otherwise than their gradient says.
static void caps_of_other_logits(void **state) {
    static const char MODEL[] = "{\"model_type\": \"gemma2\", \"num_hidden_layers\": 2, \"hidden_size\": 16, "
                                "\"intermediate_size\": 24, \"num_attention_heads\": 2, \"num_key_value_heads\": 2, "
                                "\"head_dim\": 8, \"vocab_size\": 50, \"max_position_embeddings\": 64, "
                                "\"final_logit_softcapping\": 1.5}";
    const char *path = path_in(*state, "capped.json");
    trireme_error error = {0};
    assert_ok(file_write_atomic(path, MODEL, sizeof MODEL - 1, &error), &error);
    char *config = mem_printf("model.config=%s", path);
    FLEET(config);
    for (int stage = 0; stage < 2; stage++) {
        const struct program *program = fleet_program(&f, stage);
        FAULT_AT(AT(OP_SOFTCAP, "logits.rows8")->attribute[ATTRIBUTE(SOFTCAP, cap)].f = 2,
                 "nothing caps its logits as it says", "logits");
        FAULT(AT(OP_LOGITS_DX, "logits.max.rows8")->attribute[ATTRIBUTE(LOGITS_DX, cap)].f = 2,
              "its cap is not that of the rest of its set");
        FAULT((AT(OP_LOGITS_DX, "logits.max.rows8")->attribute[ATTRIBUTE(LOGITS_DX, cap)].f = 0,
               AT(OP_LOGITS_EXP, "logits.rows8")->attribute[ATTRIBUTE(LOGITS_EXP, cap)].f = 0),
              "its logits are not the product of anything and its weights");
    }
    fleet_release(&f);
    free(config);
}

// A root for each stage.
static void two_roots(void **unused) {
    (void)unused;
    FLEET(SMALL_GPT2_MODEL);
    const struct program *program = fleet_program(&f, 1);
    FAULT_AT((AT(OP_REDUCE, "embedding.own")->peer = 0,
              AT(OP_REDUCE, "embedding.own")->out[0] = AT(OP_REDUCE, "embedding.own")->in[0]),
             "is not the backward of any reduce", "broadcast");
    fleet_release(&f);
}

// A stage that has no loss has gradients of it, and divides them by the number of targets.
static void denominators_without_a_loss(void **unused) {
    (void)unused;
    FLEET(SMALL_GPT2_MODEL);
    const struct program *program = fleet_program(&f, 0);
    FAULT_AT(AT(OP_TARGETS_COUNT, "targets")->in[0].dim[0] = 1,
             "the denominator is not the number of targets of the whole batch", "targets_count");
    fleet_release(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operands_of_other_logits),    cmocka_unit_test(gradients_of_other_rows),
        cmocka_unit_test(losses_of_other_rows),        cmocka_unit_test(two_roots),
        cmocka_unit_test(denominators_without_a_loss), IN_FOLDER(caps_of_other_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
