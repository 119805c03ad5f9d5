// The head of a vocabulary that is spread over stages: instructions that each belong to the same logits as the others.
// With an operand of another chunk of rows, or another one of the same shape, the head is refused.
#include "support/by_hand.h"
#include "support/fleet.h"
#include "support/test.h"

#define AT(op, buffer) mutant_at(mutant_find(&p, op, buffer))
// The input of an instruction, and that of the instruction that does the same for the other chunk.
#define IN(op, name, k) AT(op, name ".rows8")->in[k]
#define OTHER(op, name, k) AT(op, name ".rows0")->in[k]
// Asserts that the head is refused in a message that contains `what`.
#define FAULT(fault, what)                                             \
    do {                                                               \
        struct program p = mutant_copy(program);                       \
        fault;                                                         \
        assert_refused_anew(&p, f.stages.of[0]->ops, what, "logits_"); \
        mutant_release(&p);                                            \
    } while (0)

static void operands_of_other_logits(void **unused) {
    (void)unused;
    struct fleet f;
    fleet_create(&f, __func__,
                 (const char *const[]){SMALL_BATCH, SMALL_EXACT, SMALL_GPT2_MODEL,
                                       "parallelism.pipeline_parallel_degree=2", "parallelism.vocabulary_parallel=true",
                                       "training.logits_rows=8", NULL});
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
        FAULT((mutant_swap(&p, program_find(&p, "norm.rows0"), program_find(&p, "norm.rows8")),
               mutant_swap(&p, program_find(&p, "d.norm.rows0"), program_find(&p, "d.norm.rows8"))),
              "are not those of the logits of its rows of targets");
        // products with the weights
        FAULT(IN(OP_LOGITS_TIMES, "logits.exp", 0) = IN(OP_LOGITS_EXP, "logits", 0),
              "is not the exponentials of its logits times the weights");
        FAULT(IN(OP_LOGITS_PICK, "logits.picked", 0) = OTHER(OP_LOGITS_PICK, "logits.picked", 0),
              "b is not the weights of its targets");
    }
    fleet_release(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(operands_of_other_logits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
