// Proves that the loss is the mean over all targets of the global batch, and that what starts the backward pass are the
// gradients of that mean.
#include "verify/verify_update.h"

// The row of the microbatch, which has `rows` rows, that `operand` begins with: by its place in a buffer that holds
// them all, or by the place of what its rows were made from, row by row. NONE where that cannot be told.
static int64_t first_row(const struct update_check *c, const struct operand *operand, int64_t rows) {
    for (size_t depth = 0; depth < c->program->buffers.count; depth++) {
        int root = program_root(c->program, operand->buffer);
        int64_t width = operand->stride[0];
        if (buffer_count(&c->program->buffers.item[root]) == rows * width)
            return (program_root_offset(c->program, operand->buffer) + operand->offset) / width;
        const struct instruction *maker = c->maker[operand->buffer].instruction;
        if (!maker || operand->offset)
            return NONE;
        const struct op_info *info = &c->table->op[maker->op];
        char letter = info->out[c->maker[operand->buffer].out].dim[0];
        operand = NULL;
        for (int i = 0; i < info->inputs && !operand; i++)
            if (maker->in[i].buffer != NONE && info->in[i].dtype == 'P' && info->in[i].dim[0] == letter)
                operand = &maker->in[i];
        if (!operand)
            return NONE;
    }
    return NONE;
}

static int update_operand(const struct op_operand *row, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (strcmp(row[i].name, name) == 0)
            return i;
    return NONE;
}

static const struct operand *input_operand(const struct update_check *c, const struct instruction *i,
                                           const char *name) {
    const struct op_info *info = &c->table->op[i->op];
    return &i->in[update_operand(info->in, info->inputs, name)];
}

static bool same_input(const struct update_check *c, const struct instruction *a, const struct instruction *b,
                       const char *name) {
    return operand_equal(input_operand(c, a, name), input_operand(c, b, name));
}

// The template's last instruction of the op that has `operand` as its output or input of that name; NULL: none.
static const struct instruction *find_in_template(const struct update_check *c, int template, enum op op, bool output,
                                                  const char *name, const struct operand *operand) {
    const struct instruction *found = NULL;
    const struct op_info *info = &c->table->op[op];
    int at = output ? update_operand(info->out, info->outputs, name) : update_operand(info->in, info->inputs, name);
    FOR_MENTIONS(&c->mentions, m, operand->buffer) {
        const struct instruction *i = m->instruction;
        if (i->op == op && m->template == template && operand_equal(output ? &i->out[at] : &i->in[at], operand))
            found = i;
    }
    return found;
}

// Where logits are split by vocabulary: what makes the loss of some rows, their sums, maxima and gradients belong
// together. (That maxima and sums were exchanged is left to verify_placement.c.)
static bool split_agrees(const struct update_check *c, const struct found *nll, int64_t begin, int64_t rows) {
    struct head head;
    if (nll->instruction->op == OP_LOGITS_MERGE)
        return !verify_head(c->program, &c->mentions, nll->instruction, &head) &&
               first_row(c, &head.exp->in[0], rows) == begin && (head.grad || c->role[ROLE_UPDATE].count == 0);
    const struct instruction *n = nll->instruction;
    const struct operand *summed = input_operand(c, n, "sum"), *largest = input_operand(c, n, "max");
    const struct instruction *sum = find_in_template(c, nll->template, OP_LOGITS_SUM, true, "sum", summed);
    const struct instruction *max = find_in_template(c, nll->template, OP_LOGITS_MAX, true, "max", largest);
    const struct instruction *grad = find_in_template(c, nll->template, OP_LOGITS_GRAD, false, "sum", summed);
    if (!sum || !max || !operand_equal(&sum->out[1], input_operand(c, n, "picked")) || !same_input(c, sum, n, "max") ||
        !same_input(c, sum, n, "targets") || !same_input(c, sum, max, "logits") || !same_input(c, sum, max, "first") ||
        sum->attribute[0].i != max->attribute[0].i || first_row(c, input_operand(c, sum, "logits"), rows) != begin)
        return false;
    if (!grad)
        return c->role[ROLE_UPDATE].count == 0;
    return same_input(c, grad, sum, "targets") && same_input(c, grad, sum, "max") &&
           same_input(c, grad, sum, "first") && same_input(c, grad, sum, "logits") &&
           grad->attribute[0].i == sum->attribute[0].i;
}

// Rows of targets that loss instructions see, and rows of their results, must tile the microbatch. `nll`: NONE where
// this rank only has a part of the vocabulary for the loss of another, and so no results.
static trireme_status check_rows(struct update_check *c, int targets, int nll) {
    trireme_error *error = c->error;
    int64_t rows = buffer_count(&c->program->buffers.item[targets]);
    struct written seen = {0}, made = {0};
    trireme_status status = TRIREME_OK;
    for (size_t i = 0; i < c->targets.count && status == TRIREME_OK; i++) {
        const struct found *f = &c->targets.item[i];
        const struct op_info *info = &c->table->op[f->instruction->op];
        struct footprint in, out;
        const struct operand *t = &f->instruction->in[update_operand(info->in, info->inputs, "targets")];
        const struct operand *n = &f->instruction->out[update_operand(info->out, info->outputs, "nll")];
        int l = update_operand(info->in, info->inputs, "logits");
        footprint_of(c->program, t, &in);
        out = in;
        if (n->buffer != NONE)
            footprint_of(c->program, n, &out);
        if (t->buffer != targets || n->buffer != nll || !footprint_equal(&in, &out))
            status = error_set(error, TRIREME_ERROR_PROGRAM,
                               "%s: its targets are %s and its result is %s, expected the same rows of %s and %s",
                               update_site(c, f).text, update_name(c, t->buffer), update_name(c, n->buffer),
                               update_name(c, targets), update_name(c, nll));
        else if (l == NONE && !split_agrees(c, f, in.begin, rows))
            status = error_set(error, TRIREME_ERROR_PROGRAM,
                               "%s: maximum and sums are not those of the logits of its rows of %s",
                               update_site(c, f).text, update_name(c, targets));
        else if (l != NONE && first_row(c, &f->instruction->in[l], rows) != in.begin)
            status = error_set(error, TRIREME_ERROR_PROGRAM, "%s: its rows of %s are not those of its logits",
                               update_site(c, f).text, update_name(c, targets));
        else if (written_unread(&seen, &in))
            status = error_set(error, TRIREME_ERROR_PROGRAM, "%s: counts rows of %s a second time",
                               update_site(c, f).text, update_name(c, targets));
        written_add(&seen, in);
        written_add(&made, out);
    }
    struct footprint all = {0, 0, 1, 0, rows};
    if (status == TRIREME_OK && (!written_covers(&seen, &all) || !written_covers(&made, &all)))
        status = error_set(error, TRIREME_ERROR_PROGRAM, "the loss leaves out rows of %s", update_name(c, targets));
    written_release(&seen);
    written_release(&made);
    return status;
}

// The targets are counted once, those of all microbatches.
static trireme_status check_count(const struct update_check *c) {
    trireme_error *error = c->error;
    if (c->role[ROLE_COUNT].count != 1)
        REFUSE("the targets are counted %zu times, expected once", c->role[ROLE_COUNT].count);
    const struct found *count = &c->role[ROLE_COUNT].item[0];
    const struct operand *counted = instruction_input(c->table, count->instruction, MEANING_TARGETS);
    const int targets = counted->buffer;
    struct operand all = c->program->buffers.item[targets].scope == SCOPE_MICROBATCH
                             ? operand_microbatches(c->program, targets)
                             : operand_whole(c->program, targets);
    if (c->program->schedule.item[count->invocation].microbatch != NONE || !operand_equal(counted, &all))
        REFUSE("%s: the denominator is not the number of targets of the whole batch", update_site(c, count).text);
    return TRIREME_OK;
}

trireme_status verify_loss(struct update_check *c) {
    trireme_error *error = c->error;
    bool part = c->role[ROLE_TOTAL].count == 0;
    for (size_t i = 0; i < c->targets.count; i++)
        part &= update_output(c, c->targets.item[i].instruction, MEANING_NLL) == NONE;
    if (part && c->targets.count == 0 && c->gradients == 0)             // this rank has no part in it
        return c->role[ROLE_COUNT].count ? check_count(c) : TRIREME_OK; // another stage's, counted for the report
    TRY(check_count(c));
    if (c->role[ROLE_SCALE].count != 1)
        REFUSE("the mean's scale is made %zu times, expected once", c->role[ROLE_SCALE].count);
    if ((c->gradients || c->role[ROLE_UPDATE].count) && c->gradients != (int)c->targets.count)
        REFUSE("the loss is made %zu times for rows of targets, but its gradient %d times", c->targets.count,
               c->gradients);
    const struct found *count = &c->role[ROLE_COUNT].item[0], *scale = &c->role[ROLE_SCALE].item[0];
    int targets = update_input(c, count->instruction, MEANING_TARGETS),
        denominator = update_output(c, scale->instruction, MEANING_SCALE);
    if (update_input(c, scale->instruction, MEANING_COUNT) != update_output(c, count->instruction, MEANING_COUNT))
        REFUSE("%s: the denominator is %s, expected %s", update_site(c, scale).text,
               update_name(c, update_input(c, scale->instruction, MEANING_COUNT)),
               update_name(c, update_output(c, count->instruction, MEANING_COUNT)));
    for (size_t i = 0; i < c->role[ROLE_LOSS].count + c->role[ROLE_HEAD].count; i++) {
        const struct found *f = i < c->role[ROLE_LOSS].count ? &c->role[ROLE_LOSS].item[i]
                                                             : &c->role[ROLE_HEAD].item[i - c->role[ROLE_LOSS].count];
        if (update_input(c, f->instruction, MEANING_SCALE) != denominator)
            REFUSE("%s: wrong denominator: scales gradients by %s, expected %s", update_site(c, f).text,
                   update_name(c, update_input(c, f->instruction, MEANING_SCALE)), update_name(c, denominator));
    }
    if (part)
        return check_rows(c, targets, NONE);
    if ((int)c->role[ROLE_TOTAL].count != c->program->microbatches)
        REFUSE("the loss is summed %zu times, expected once in each of %d microbatches", c->role[ROLE_TOTAL].count,
               c->program->microbatches);
    int nll = update_input(c, c->role[ROLE_TOTAL].item[0].instruction, MEANING_NLL);
    for (size_t i = 0; i < c->role[ROLE_TOTAL].count; i++) {
        const struct found *f = &c->role[ROLE_TOTAL].item[i];
        struct operand whole = operand_whole(c->program, nll);
        if (update_input(c, f->instruction, MEANING_SCALE) != denominator)
            REFUSE("%s: wrong denominator: scales the loss by %s, expected %s", update_site(c, f).text,
                   update_name(c, update_input(c, f->instruction, MEANING_SCALE)), update_name(c, denominator));
        if (!operand_equal(instruction_input(c->table, f->instruction, MEANING_NLL), &whole))
            REFUSE("%s: the loss leaves out rows of %s", update_site(c, f).text, update_name(c, nll));
        if (c->program->microbatches > 1 && f->instruction->accumulate != ACCUMULATE_AFTER_FIRST)
            REFUSE("%s: the loss does not add up over microbatches", update_site(c, f).text);
    }
    return check_rows(c, targets, nll);
}
