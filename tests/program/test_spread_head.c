// The head of a vocabulary that is spread over stages: instructions that each belong to the same logits as the others.
// With an operand of another chunk of rows, or another one of the same shape, the head is refused.
#include "support/by_hand.h"
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
#define FAULT(fault, what) FAULT_AT(fault, what, "logits_dx")
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
        FAULT(IN(OP_LOGITS_GRAD, "logits", 1) = OTHER(OP_LOGITS_GRAD, "logits", 1), "no gradient of the same logits");
        FAULT(IN(OP_LOGITS_GRAD, "logits", 3) = IN(OP_LOGITS_GRAD, "logits", 4), "no gradient of the same logits");
        FAULT(IN(OP_LOGITS_GRAD, "logits", 4) = IN(OP_LOGITS_GRAD, "logits", 3), "no gradient of the same logits");
        // maximum, sum and targets
        FAULT(IN(OP_LOGITS_DX, "logits.max", 3) = IN(OP_LOGITS_DX, "logits.max", 4), "do not belong together");
        FAULT(IN(OP_LOGITS_DX, "logits.max", 4) = IN(OP_LOGITS_DX, "logits.max", 3), "do not belong together");
        FAULT((IN(OP_LOGITS_DX, "logits.max", 5) = OTHER(OP_LOGITS_DX, "logits.max", 5),
               IN(OP_LOGITS_PICK, "logits.picked", 0) = OTHER(OP_LOGITS_PICK, "logits.picked", 0)),
              "do not belong together");
        FAULT(IN(OP_LOGITS_MERGE, "logits.max", 0).dim[0] = 1, "its input is not gathered from all ranks");
        // the input of the head
        FAULT_AT((mutant_swap(&p, program_find(&p, "norm.rows0"), program_find(&p, "norm.rows8")),
                  mutant_swap(&p, program_find(&p, "d.norm.rows0"), program_find(&p, "d.norm.rows8"))),
                 "are not those of the logits of its rows of targets", "logits_merge");
        // columns that nobody writes
        FAULT_AT(p.buffers.item[program_find(&p, "logits.all.rows8")].dim[1]++, "does not take all of logits.all.rows8",
                 "all_gather");
        FAULT_AT(p.buffers.item[program_find(&p, "logits.own.rows8")].dim[1]++, "does not take all of logits.own.rows8",
                 "all_gather");
        // products with the weights
        FAULT(IN(OP_LOGITS_DX, "logits.max", 0) = IN(OP_LOGITS_DX, "logits.max", 1), "its operand a is not");
        FAULT(IN(OP_LOGITS_DX, "logits.max", 1) = IN(OP_LOGITS_DX, "logits.max", 0), "its operand b is not");
        FAULT(IN(OP_LOGITS_PICK, "logits.picked", 1).dim[0]--, "its operand b is not the weights of its targets");
        FAULT(IN(OP_LOGITS_TIMES, "logits.exp", 0) = IN(OP_LOGITS_EXP, "logits", 0),
              "is not the exponentials of its logits times the weights");
        FAULT(IN(OP_LOGITS_PICK, "logits.picked", 0) = OTHER(OP_LOGITS_PICK, "logits.picked", 0),
              "b is not the weights of its targets");
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
             "maximum and sums are not those of the logits of its rows", "logits_merge");
#undef SWAP
    fleet_release(&f);
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
        cmocka_unit_test(denominators_without_a_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
