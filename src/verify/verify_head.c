// The head and the loss of a vocabulary that is spread over stages are made with one exchange between ranks: the
// gradient of the head's input is made from exponentials relative to each rank's own maximum, and corrected afterwards
// (ops.def, logits_exp and what follows it). Together these instructions stand for the gradient of the logits times the
// weights, which they equal if all of them are there and work on the same logits.
#include "verify/proofs.h"

// The instruction that makes output `out` of its row as `buffer`; NULL when there is none.
static const struct instruction *maker(const struct mentions *mentions, enum op op, int out, int buffer) {
    if (buffer != NONE)
        FOR_MENTIONS(mentions, m, buffer)
            if (m->instruction->op == op && mention_output(m) == out)
                return m->instruction;
    return NULL;
}

static bool head_is_whole(const struct program *p, const struct operand *operand) {
    struct operand whole = operand_whole(p, operand->buffer);
    return operand_count(operand) == operand_count(&whole) && operand->offset == 0 && operand->along == AXES_NONE;
}

// The instruction that makes the gradient of the logits, which the weights' gradient needs.
static const struct instruction *find_grad(const struct mentions *mentions, const struct instruction *exp,
                                           const struct instruction *merge) {
    FOR_MENTIONS(mentions, m, exp->in[0].buffer) {
        const struct instruction *in = m->instruction;
        if (in->op == OP_LOGITS_GRAD && operand_equal(&in->in[0], &exp->in[0]) &&
            operand_equal(&in->in[1], &exp->in[1]) && operand_equal(&in->in[2], &exp->in[2]) &&
            operand_equal(&in->in[3], &merge->out[0]) && operand_equal(&in->in[4], &merge->out[1]) &&
            in->attribute[0].i == exp->attribute[0].i)
            return in;
    }
    return NULL;
}

const char *verify_head(const struct program *p, const struct mentions *mentions, const struct instruction *merge,
                        struct head *head) {
    *head = (struct head){0};
    const struct instruction *gather = maker(mentions, OP_ALL_GATHER, 0, merge->in[0].buffer);
    if (!gather || !head_is_whole(p, &merge->in[0])) // that it gathers wholes is for verify_communication.c
        return "its input is not gathered from all ranks";
    const struct instruction *exp = head->exp = maker(mentions, OP_LOGITS_EXP, 1, gather->in[0].buffer);
    if (!exp || !operand_equal(&exp->in[1], &merge->in[1]))
        return "its targets are not those of its logits";
    const struct instruction *product = head->product = maker(mentions, OP_MATMUL, 0, exp->in[0].buffer);
    if (!product || !operand_equal(&product->out[0], &exp->in[0]) || product->in[2].buffer != NONE ||
        product->in[3].buffer != NONE)
        return "its logits are not a plain product";
    head->grad = find_grad(mentions, exp, merge);
    return NULL;
}

const char *verify_head_gradient(const struct program *p, const struct mentions *mentions, const struct instruction *dx,
                                 struct head *head) {
    const struct instruction *merge = maker(mentions, OP_LOGITS_MERGE, 0, dx->in[3].buffer);
    if (!merge || !operand_equal(&dx->in[4], &merge->out[1]) || !operand_equal(&dx->in[5], &merge->in[1]))
        return "its maximum, sum and targets do not belong together";
    const char *why = verify_head(p, mentions, merge, head);
    if (why)
        return why;
    if (!operand_equal(&dx->in[2], &head->exp->out[1]))
        return "its operand own belongs to other logits";
    const struct instruction *times = maker(mentions, OP_LOGITS_TIMES, 0, dx->in[0].buffer);
    if (!times || !operand_equal(&times->out[0], &dx->in[0]) || !operand_equal(&times->in[0], &head->exp->out[0]) ||
        !operand_equal(&times->in[1], &head->product->in[1]))
        return "its operand a is not the exponentials of its logits times the weights";
    const struct instruction *picked = maker(mentions, OP_LOGITS_PICK, 0, dx->in[1].buffer);
    if (!picked || !operand_equal(&picked->out[0], &dx->in[1]) || !operand_equal(&picked->in[0], &dx->in[5]) ||
        !operand_equal(&picked->in[1], &head->product->in[1]) || !operand_equal(&picked->in[2], &head->exp->in[2]))
        return "its operand b is not the weights of its targets";
    if (!head->grad)
        return "no gradient of the same logits is made for the weights";
    return NULL;
}
