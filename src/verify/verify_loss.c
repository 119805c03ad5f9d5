// Proves that the loss is what the program declares: a sum of terms, each a mean over all its targets of the global
// batch, times a weight; and that what starts the backward pass are the gradients of that sum.
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

// A term of the loss, which is known by the scale that its losses and gradients are multiplied by.
struct term {
    const struct loss_term *declared;
    const struct found *scale; // makes the scale
    int targets;               // what the scale's denominator counts
    int nll;                   // losses; NONE where the rank has none
    size_t totals;             // how often losses are added to the step's loss
    size_t made, gradients;    // how often, in microbatch 0, losses of rows and their gradients are made
};

struct terms {
    VEC(struct term);
};

static struct term *term_of_scale(const struct terms *terms, int scale) {
    for (size_t k = 0; k < terms->count; k++)
        if (terms->item[k].declared->scale == scale)
            return &terms->item[k];
    return NULL;
}

// The term that an instruction makes losses of rows for: by its scale, else by its losses, else by its targets.
static struct term *term_of_rows(const struct update_check *c, const struct terms *terms, const struct instruction *i) {
    const int scale = update_input(c, i, MEANING_SCALE), nll = update_output(c, i, MEANING_NLL),
              targets = update_input(c, i, MEANING_TARGETS);
    if (scale != NONE)
        return term_of_scale(terms, scale);
    for (size_t k = 0; k < terms->count; k++)
        if (nll != NONE ? terms->item[k].nll == nll : terms->item[k].targets == targets)
            return &terms->item[k];
    return NULL;
}

// For messages.
static const char *expected_scale(const struct update_check *c, const struct terms *terms) {
    return update_name(c, terms->count ? terms->item[0].declared->scale : NONE);
}

// Rows of targets that loss instructions see, and rows of their results, must tile the microbatch.
static trireme_status check_rows(struct update_check *c, const struct terms *terms, const struct term *term) {
    trireme_error *error = c->error;
    const int targets = term->targets, nll = term->nll;
    int64_t rows = buffer_count(&c->program->buffers.item[targets]);
    struct written seen = {0}, made = {0};
    trireme_status status = TRIREME_OK;
    for (size_t i = 0; i < c->targets.count && status == TRIREME_OK; i++) {
        const struct found *f = &c->targets.item[i];
        if (term_of_rows(c, terms, f->instruction) != term)
            continue;
        struct footprint in, out;
        const struct operand *t = instruction_input(c->table, f->instruction, MEANING_TARGETS),
                             *n = instruction_output(c->table, f->instruction, MEANING_NLL),
                             *logits = instruction_input(c->table, f->instruction, MEANING_LOGITS);
        footprint_of(c->program, t, &in);
        out = in;
        if (n)
            footprint_of(c->program, n, &out);
        if (t->buffer != targets || (n ? n->buffer : NONE) != nll || !footprint_equal(&in, &out))
            status = error_set(error, TRIREME_ERROR_PROGRAM,
                               "%s: its targets are %s and its result is %s, expected the same rows of %s and %s",
                               update_site(c, f).text, update_name(c, t->buffer), update_name(c, n ? n->buffer : NONE),
                               update_name(c, targets), update_name(c, nll));
        else if (!logits || first_row(c, logits, rows) != in.begin)
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

// A count is of all targets that a buffer has for the whole batch, and counts them once.
static trireme_status check_count(const struct update_check *c, const struct found *count) {
    trireme_error *error = c->error;
    const struct operand *counted = instruction_input(c->table, count->instruction, MEANING_TARGETS);
    const int targets = counted->buffer;
    struct operand all = c->program->buffers.item[targets].scope == SCOPE_MICROBATCH
                             ? operand_microbatches(c->program, targets)
                             : operand_whole(c->program, targets);
    if (c->program->schedule.item[count->invocation].microbatch != NONE || !operand_equal(counted, &all))
        REFUSE("%s: the denominator is not the number of targets of the whole batch", update_site(c, count).text);
    for (const struct found *f = c->role[ROLE_COUNT].item; f < count; f++)
        if (update_input(c, f->instruction, MEANING_TARGETS) == targets ||
            update_output(c, f->instruction, MEANING_COUNT) == update_output(c, count->instruction, MEANING_COUNT))
            REFUSE("%s: %s are counted a second time", update_site(c, count).text, update_name(c, targets));
    return TRIREME_OK;
}

// A term's scale is made once: its declared weight by the count of its targets.
static trireme_status find_scale(const struct update_check *c, struct term *term) {
    trireme_error *error = c->error;
    const struct loss_term *declared = term->declared;
    size_t made = 0;
    for (size_t k = 0; k < c->role[ROLE_SCALE].count; k++)
        if (update_output(c, c->role[ROLE_SCALE].item[k].instruction, MEANING_SCALE) == declared->scale) {
            term->scale = &c->role[ROLE_SCALE].item[k];
            made++;
        }
    if (made != 1)
        REFUSE("%s, the scale of a term of the loss, is made %zu times, expected once", update_name(c, declared->scale),
               made);
    const struct instruction *i = term->scale->instruction;
    const int weight = op_attribute_find(&c->table->op[i->op], "weight"), count = update_input(c, i, MEANING_COUNT);
    if (weight < 0 || i->attribute[weight].f != declared->weight)
        REFUSE("%s: the weight of its term is declared %g", update_site(c, term->scale).text, declared->weight);
    for (size_t k = 0; k < c->role[ROLE_COUNT].count; k++)
        if (update_output(c, c->role[ROLE_COUNT].item[k].instruction, MEANING_COUNT) == count)
            term->targets = update_input(c, c->role[ROLE_COUNT].item[k].instruction, MEANING_TARGETS);
    if (term->targets == NONE)
        REFUSE("%s: the denominator is %s, expected %s", update_site(c, term->scale).text, update_name(c, count),
               c->role[ROLE_COUNT].count
                   ? update_name(c, update_output(c, c->role[ROLE_COUNT].item[0].instruction, MEANING_COUNT))
                   : "a count of targets");
    return TRIREME_OK;
}

static trireme_status find_terms(const struct update_check *c, struct terms *terms) {
    trireme_error *error = c->error;
    for (size_t k = 0; k < c->program->terms.count; k++) {
        if (term_of_scale(terms, c->program->terms.item[k].scale))
            REFUSE("two terms of the loss have the scale %s", update_name(c, c->program->terms.item[k].scale));
        VEC_PUSH(terms, (struct term){.declared = &c->program->terms.item[k], .targets = NONE, .nll = NONE});
        TRY(find_scale(c, &terms->item[terms->count - 1]));
    }
    for (size_t k = 0; k < c->role[ROLE_SCALE].count; k++) {
        const struct found *f = &c->role[ROLE_SCALE].item[k];
        if (!term_of_scale(terms, update_output(c, f->instruction, MEANING_SCALE)))
            REFUSE("%s: makes the scale of no term that the loss is declared to have", update_site(c, f).text);
    }
    return TRIREME_OK;
}

// ---- sums

// What is multiplied by a scale is multiplied by that of a term.
static trireme_status check_scaled(const struct update_check *c, struct terms *terms, enum op_role role) {
    trireme_error *error = c->error;
    for (size_t i = 0; i < c->role[role].count; i++) {
        const struct found *f = &c->role[role].item[i];
        const int scale = update_input(c, f->instruction, MEANING_SCALE);
        struct term *term = term_of_scale(terms, scale);
        if (!term)
            REFUSE("%s: wrong denominator: scales %s by %s, expected %s", update_site(c, f).text,
                   role == ROLE_TOTAL ? "the loss" : "gradients", update_name(c, scale), expected_scale(c, terms));
        if (role == ROLE_LOSS)
            term->gradients += c->program->schedule.item[f->invocation].microbatch == 0;
    }
    return TRIREME_OK;
}

// The losses of all terms and microbatches are added up, each once: the first sum overwrites what was there, and all
// others add to it.
static trireme_status check_totals(const struct update_check *c, const struct terms *terms) {
    trireme_error *error = c->error;
    for (size_t i = 0; i < c->role[ROLE_TOTAL].count; i++) {
        const struct found *f = &c->role[ROLE_TOTAL].item[i], *first = &c->role[ROLE_TOTAL].item[0];
        struct term *term = term_of_scale(terms, update_input(c, f->instruction, MEANING_SCALE));
        const int nll = update_input(c, f->instruction, MEANING_NLL);
        const struct operand whole = operand_whole(c->program, nll);
        if (term->totals++ == 0)
            term->nll = nll;
        if (nll != term->nll || !operand_equal(instruction_input(c->table, f->instruction, MEANING_NLL), &whole))
            REFUSE("%s: the loss leaves out rows of %s", update_site(c, f).text, update_name(c, nll));
        if (update_output(c, f->instruction, MEANING_LOSS) != update_output(c, first->instruction, MEANING_LOSS))
            REFUSE("%s: adds to %s, which is not the loss", update_site(c, f).text,
                   update_name(c, update_output(c, f->instruction, MEANING_LOSS)));
    }
    for (size_t k = 0; k < terms->count; k++)
        if ((int)terms->item[k].totals != c->program->microbatches)
            REFUSE("the loss is summed %zu times, expected once in each of %d microbatches", terms->item[k].totals,
                   c->program->microbatches);
    for (size_t i = 0; i < c->role[ROLE_TOTAL].count; i++) {
        const struct found *f = &c->role[ROLE_TOTAL].item[i];
        if (instruction_accumulates(f->instruction, &c->program->schedule.item[f->invocation]) != (i > 0))
            REFUSE("%s: the loss does not add up over terms and microbatches", update_site(c, f).text);
    }
    return TRIREME_OK;
}

static trireme_status check_terms(struct update_check *c, struct terms *terms) {
    trireme_error *error = c->error;
    for (size_t k = 0; k < c->role[ROLE_COUNT].count; k++)
        TRY(check_count(c, &c->role[ROLE_COUNT].item[k]));
    TRY(find_terms(c, terms));
    TRY(check_scaled(c, terms, ROLE_LOSS));
    TRY(check_scaled(c, terms, ROLE_TOTAL));
    bool part = c->role[ROLE_TOTAL].count == 0;
    for (size_t i = 0; i < c->targets.count; i++)
        part &= update_output(c, c->targets.item[i].instruction, MEANING_NLL) == NONE;
    if (part && c->targets.count == 0 && c->role[ROLE_LOSS].count == 0)
        return TRIREME_OK; // this rank has no part in it
    if (!part)
        TRY(check_totals(c, terms));
    for (size_t i = 0; i < c->targets.count; i++) {
        const struct found *f = &c->targets.item[i];
        struct term *term = term_of_rows(c, terms, f->instruction);
        if (!term)
            REFUSE("%s: its targets are %s and its result is %s, which are of no term of the loss",
                   update_site(c, f).text, update_name(c, update_input(c, f->instruction, MEANING_TARGETS)),
                   update_name(c, update_output(c, f->instruction, MEANING_NLL)));
        term->made++;
    }
    for (size_t k = 0; k < terms->count; k++) {
        const struct term *term = &terms->item[k];
        if ((c->role[ROLE_LOSS].count || c->role[ROLE_UPDATE].count) && term->gradients != term->made)
            REFUSE("the loss is made %zu times for rows of %s, but its gradient %zu times", term->made,
                   update_name(c, term->targets), term->gradients);
        TRY(check_rows(c, terms, term));
    }
    return TRIREME_OK;
}

trireme_status verify_loss(struct update_check *c) {
    struct terms terms = {0};
    trireme_status status = check_terms(c, &terms);
    VEC_RELEASE(&terms);
    return status;
}
