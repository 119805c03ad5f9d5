// The negative suite of the verifier. Compiled training programs are changed at every place, one fault at a time. Each
// mutant must be refused, or give exactly the results of the original: an accepted mutant that changes what a step
// computes is a hole in the verifier. Every mutant is tried with the memory plan that it inherits and with a new one.
#include "support/mutant.h"
#include "support/test.h"

enum { CANDIDATES = 6 }; // buffers put in the place of each operand's

#define NAME(b) (subject_program(s)->buffers.item[b].name)
#define PLACE subject_program(s)->templates.item[t].name, i, info->name

static void mutate_list(struct subject *s, size_t t, size_t i) {
    const struct op_info *info =
        &s->small.engine.ops->op[subject_program(s)->templates.item[t].instructions.item[i].op];
    size_t count = subject_program(s)->templates.item[t].instructions.count;
    struct program mutant;
    if (mutant_begin(s, &mutant)) {
        struct instruction *item = mutant.templates.item[t].instructions.item;
        memmove(&item[i], &item[i + 1], (count - i - 1) * sizeof *item);
        mutant.templates.item[t].instructions.count--;
        mutant_end(s, &mutant, true, "%s[%zu] %s deleted", PLACE);
    }
    if (mutant_begin(s, &mutant)) {
        struct instruction *item = mutant.templates.item[t].instructions.item;
        memmove(&item[i + 1], &item[i], (count - i) * sizeof *item);
        mutant.templates.item[t].instructions.count++;
        mutant_end(s, &mutant, true, "%s[%zu] %s duplicated", PLACE);
    }
    bool same_sum = i + 1 < count && mutant_same_sum(&subject_program(s)->templates.item[t].instructions.item[i]);
    if (i + 1 < count && !same_sum && mutant_begin(s, &mutant)) {
        struct instruction *item = mutant.templates.item[t].instructions.item, first = item[i];
        item[i] = item[i + 1];
        item[i + 1] = first;
        mutant_end(s, &mutant, true, "%s[%zu] %s swapped with the next", PLACE);
    }
}

// Finds up to CANDIDATES buffers, spread over the program, that could take the place of `buffer`.
static size_t find_candidates(const struct program *p, int buffer, int candidate[CANDIDATES]) {
    VEC(int) all = {0};
    const struct buffer *b = &p->buffers.item[buffer];
    for (size_t k = 0; k < p->buffers.count; k++)
        if ((int)k != buffer && p->buffers.item[k].dtype == b->dtype &&
            buffer_count(&p->buffers.item[k]) == buffer_count(b))
            VEC_PUSH(&all, (int)k);
    size_t n = MIN(all.count, (size_t)CANDIDATES);
    for (size_t k = 0; k < n; k++)
        candidate[k] = all.item[(k * all.count + (size_t)buffer % all.count) / n % all.count];
    VEC_RELEASE(&all);
    return n;
}

static void mutate_operand(struct subject *s, size_t t, size_t i, int k) {
    const struct program *p = subject_program(s);
    struct instruction *instruction = &p->templates.item[t].instructions.item[i];
    const struct op_info *info = &s->small.engine.ops->op[instruction->op];
    int buffer = mutant_operand(instruction, k)->buffer, candidate[CANDIDATES],
        operands = instruction->inputs + instruction->outputs;
    const char *operand_name = k < info->inputs ? info->in[k].name : info->out[k - info->inputs].name;
    if (buffer == NONE)
        return;
    struct program mutant;
    int uses = 0;
    for (int n = 0; n < operands; n++)
        uses += mutant_operand(instruction, n)->buffer == buffer;
    size_t count = find_candidates(p, buffer, candidate);
    for (size_t c = 0; c < count; c++)
        for (int all = 0; all <= (uses > 1); all++) {
            if (!mutant_begin(s, &mutant))
                continue;
            struct instruction *changed = &mutant.templates.item[t].instructions.item[i];
            for (int n = 0; n < operands; n++)
                if (n == k || (all && mutant_operand(changed, n)->buffer == buffer))
                    mutant_operand(changed, n)->buffer = candidate[c];
            mutant_end(s, &mutant, true, "%s[%zu] %s: %s %s is %s%s", PLACE, operand_name, NAME(buffer),
                       NAME(candidate[c]), all ? " throughout" : "");
        }
    bool optional = k < info->inputs ? info->in[k].optional : info->out[k - info->inputs].optional;
    if (optional && mutant_begin(s, &mutant)) {
        *mutant_operand(&mutant.templates.item[t].instructions.item[i], k) = operand_none();
        mutant_end(s, &mutant, true, "%s[%zu] %s: %s %s left out", PLACE, operand_name, NAME(buffer));
    }
    for (int n = k + 1; n < operands; n++) {
        const struct operand *a = mutant_operand(instruction, k), *b = mutant_operand(instruction, n);
        if (b->buffer == NONE || a->buffer == b->buffer || operand_count(a) != operand_count(b) ||
            p->buffers.item[a->buffer].dtype != p->buffers.item[b->buffer].dtype || !mutant_begin(s, &mutant))
            continue;
        struct instruction *changed = &mutant.templates.item[t].instructions.item[i];
        mutant_operand(changed, k)->buffer = b->buffer;
        mutant_operand(changed, n)->buffer = a->buffer;
        mutant_end(s, &mutant, true, "%s[%zu] %s: %s and %s swapped", PLACE, NAME(a->buffer), NAME(b->buffer));
    }
}

// Values become zero, or other values, before the instruction.
static void mutate_values(struct subject *s, size_t t, size_t i, int k) {
    const struct program *p = subject_program(s);
    struct instruction *instruction = &p->templates.item[t].instructions.item[i];
    const struct op_info *info = &s->small.engine.ops->op[instruction->op];
    int buffer = mutant_operand(instruction, k)->buffer, candidate[CANDIDATES];
    struct program mutant;
    size_t n = buffer == NONE ? 0 : find_candidates(p, buffer, candidate);
    for (size_t c = 0; c < n; c++)
        if (mutant_begin(s, &mutant)) {
            mutant_overwrite(&mutant, (struct place){&mutant.templates.item[t], i}, buffer, c ? candidate[c] : NONE);
            mutant_end(s, &mutant, true, "%s[%zu] %s: %s becomes %s before it", PLACE, NAME(buffer),
                       c ? NAME(candidate[c]) : "zero");
        }
}

static void mutate_fields(struct subject *s, size_t t, size_t i) {
    const struct instruction *instruction = &subject_program(s)->templates.item[t].instructions.item[i];
    const struct op_info *info = &s->small.engine.ops->op[instruction->op];
    struct program mutant;
    for (int value = ACCUMULATE_NO; value <= ACCUMULATE_AFTER_FIRST; value++)
        if (value != (int)instruction->accumulate && mutant_begin(s, &mutant)) {
            mutant.templates.item[t].instructions.item[i].accumulate = (enum accumulate)value;
            mutant_end(s, &mutant, true, "%s[%zu] %s: accumulate %d", PLACE, value);
        }
    if (instruction->predicate != NONE && mutant_begin(s, &mutant)) {
        mutant.templates.item[t].instructions.item[i].predicate = NONE;
        mutant_end(s, &mutant, true, "%s[%zu] %s: predicate dropped", PLACE);
    }
    bool again = instruction->outputs && instruction->out[0].buffer != NONE &&
                 subject_program(s)->buffers.item[instruction->out[0].buffer].recomputes != NONE;
    for (int a = 0; (info->role == ROLE_BACKWARD || again) && a < info->attributes; a++)
        if (mutant_begin(s, &mutant)) {
            union attribute *attribute = &mutant.templates.item[t].instructions.item[i].attribute[a];
            if (info->attribute[a].is_float)
                attribute->f *= 1.01;
            else
                attribute->i ^= 1;
            mutant_end(s, &mutant, true, "%s[%zu] %s: attribute %s", PLACE, info->attribute[a].name);
        }
}

// Other views of the same buffer, as some operand of the program has them, or shifted by one element.
static size_t find_views(const struct program *p, const struct operand *of, struct operand view[CANDIDATES]) {
    size_t n = 0;
    for (int aside = -1; aside <= 1; aside += 2)
        if (of->offset + aside >= 0) {
            view[n] = *of;
            view[n++].offset += aside;
        }
    for (size_t t = 0; t < p->templates.count; t++)
        for (size_t i = 0; i < p->templates.item[t].instructions.count; i++) {
            struct instruction *instruction = &p->templates.item[t].instructions.item[i];
            for (int k = 0; n < CANDIDATES && k < instruction->inputs + instruction->outputs; k++) {
                const struct operand *other = mutant_operand(instruction, k);
                bool known = other->buffer != of->buffer || operand_count(other) != operand_count(of);
                for (size_t v = 0; v < n && !known; v++)
                    known = operand_equal(other, &view[v]);
                if (!known && !operand_equal(other, of))
                    view[n++] = *other;
            }
        }
    return n;
}

static void mutate_view(struct subject *s, size_t t, size_t i, int k) {
    struct instruction *instruction = &subject_program(s)->templates.item[t].instructions.item[i];
    const struct op_info *info = &s->small.engine.ops->op[instruction->op];
    const struct operand *of = mutant_operand(instruction, k);
    struct operand view[CANDIDATES];
    size_t views = of->buffer == NONE ? 0 : find_views(subject_program(s), of, view);
    struct program mutant;
    for (size_t v = 0; v < views; v++)
        if (mutant_begin(s, &mutant)) {
            *mutant_operand(&mutant.templates.item[t].instructions.item[i], k) = view[v];
            mutant_end(s, &mutant, true, "%s[%zu] %s: operand %d begins at %lld of %s", PLACE, k,
                       (long long)view[v].offset, NAME(of->buffer));
        }
}

// What workspace a kernel needs, kernels alone know: the executor refuses one that is too small.
static void mutate_workspace(struct subject *s, size_t t, size_t i) {
    const size_t unstarted = s->unstarted;
    const struct program *p = subject_program(s);
    const struct op_info *info = &s->small.engine.ops->op[p->templates.item[t].instructions.item[i].op];
    int workspace = p->templates.item[t].instructions.item[i].workspace, tried = 0;
    struct program mutant;
    for (int b = (int)p->buffers.count - 1; b >= NONE && tried < CANDIDATES; b--) {
        if (b == workspace || (b != NONE && p->buffers.item[b].scope != SCOPE_LOCAL))
            continue;
        tried++;
        if (mutant_begin(s, &mutant)) {
            mutant.templates.item[t].instructions.item[i].workspace = b;
            mutant_end(s, &mutant, true, "%s[%zu] %s: workspace %s", PLACE, b == NONE ? "none" : NAME(b));
        }
    }
    s->refused += s->unstarted - unstarted;
    s->unstarted = unstarted;
}

static void mutate_schedule(struct subject *s) {
    size_t count = subject_program(s)->schedule.count;
    struct program mutant;
    for (size_t k = 0; k < count; k++) {
        if (mutant_begin(s, &mutant)) {
            memmove(&mutant.schedule.item[k], &mutant.schedule.item[k + 1],
                    (count - k - 1) * sizeof *mutant.schedule.item);
            mutant.schedule.count--;
            mutant_end(s, &mutant, true, "invocation %zu removed", k);
        }
        if (mutant_begin(s, &mutant)) {
            memmove(&mutant.schedule.item[k + 1], &mutant.schedule.item[k], (count - k) * sizeof *mutant.schedule.item);
            mutant.schedule.count++;
            mutant_end(s, &mutant, true, "invocation %zu repeated", k);
        }
        for (size_t n = k + 1; n < count; n++)
            if (mutant_begin(s, &mutant)) {
                struct invocation first = mutant.schedule.item[k];
                mutant.schedule.item[k] = mutant.schedule.item[n];
                mutant.schedule.item[n] = first;
                mutant_end(s, &mutant, true, "invocations %zu and %zu swapped", k, n);
            }
        for (int m = NONE; m < subject_program(s)->microbatches; m++)
            if (m != subject_program(s)->schedule.item[k].microbatch && mutant_begin(s, &mutant)) {
                mutant.schedule.item[k].microbatch = m;
                mutant_end(s, &mutant, true, "invocation %zu: microbatch %d", k, m);
            }
    }
}

// What is said about a buffer: what it is a gradient or another copy of, which part of its parent, where it lives.
static void mutate_declarations(struct subject *s) {
    const struct program *p = subject_program(s);
    struct program mutant;
    int candidate[CANDIDATES];
    for (size_t a = 0; a < p->buffers.count; a++) {
        const struct buffer *b = &p->buffers.item[a];
        size_t n = b->gradient_of == NONE && b->recomputes == NONE ? 0 : find_candidates(p, (int)a, candidate);
        for (size_t c = 0; c < n; c++)
            if (mutant_begin(s, &mutant)) {
                *(b->recomputes == NONE ? &mutant.buffers.item[a].gradient_of : &mutant.buffers.item[a].recomputes) =
                    c ? candidate[c] : NONE;
                mutant_end(s, &mutant, true, "%s is declared as of %s", b->name, c ? NAME(candidate[c]) : "nothing");
            }
        for (int64_t aside = -64; aside <= 64; aside += 16)
            if (b->parent != NONE && aside && mutant_begin(s, &mutant)) {
                mutant.buffers.item[a].parent_offset += aside;
                mutant.buffers.item[a].offset += aside * dtype_size(b->dtype);
                mutant_end(s, &mutant, true, "%s is the slice %lld elements aside", b->name, (long long)aside);
            }
        for (int scope = SCOPE_STEP; scope <= SCOPE_LOCAL; scope++)
            if (b->parent == NONE && b->kind == KIND_ACT && scope != (int)b->scope && mutant_begin(s, &mutant)) {
                for (size_t k = 0; k < p->buffers.count; k++)
                    if (program_root(p, (int)k) == (int)a)
                        mutant.buffers.item[k].scope = (enum buffer_scope)scope;
                mutant_end(s, &mutant, true, "%s has scope %d", b->name, scope);
            }
    }
}

// Every buffer moved onto others of its arena; slices too.
static void mutate_memory(struct subject *s) {
    const struct program *p = subject_program(s);
    struct program mutant;
    for (size_t a = 0; a < p->buffers.count; a++) {
        const struct buffer *from = &p->buffers.item[a];
        size_t tried = 0;
        for (size_t n = 1; n < p->buffers.count && tried < 2 * CANDIDATES; n++) {
            size_t b = (a + n * 7) % p->buffers.count;
            const struct buffer *to = &p->buffers.item[b];
            bool activations = from->scope >= SCOPE_SLOT;
            if (a == b || to->offset == from->offset || activations != (to->scope >= SCOPE_SLOT) ||
                (!activations && (from->scope == SCOPE_STATE) != (to->scope == SCOPE_STATE)))
                continue;
            tried++;
            if (mutant_begin(s, &mutant)) {
                mutant.buffers.item[a].offset = to->offset;
                mutant_end(s, &mutant, false, "%s moved onto %s", from->name, to->name);
            }
        }
    }
}

// Two buffers that the host, the next step or a checkpoint knows by name are swapped everywhere, so that the program is
// as consistent as before. Only the model knows which parameter is which, and what is looked up in which table.
static void mutate_names(struct subject *s) {
    const struct program *p = subject_program(s);
    struct program mutant;
    for (size_t a = 0; a < p->buffers.count; a++)
        for (size_t b = a + 1; b < p->buffers.count; b++) {
            const struct buffer *x = &p->buffers.item[a], *y = &p->buffers.item[b];
            bool looked_up = !*x->as && !*y->as && x->kind == KIND_INPUT;
            if (x->kind != y->kind || x->kind == KIND_PARAM || x->kind >= KIND_ACT || looked_up ||
                x->dtype != y->dtype || buffer_count(x) != buffer_count(y) || !mutant_begin(s, &mutant))
                continue;
            mutant_swap(&mutant, (int)a, (int)b);
            mutant_end(s, &mutant, true, "%s and %s swapped throughout", x->name, y->name);
        }
}

static void mutate_everything(struct subject *s) {
    const struct program *p = subject_program(s);
    for (size_t t = 0; t < p->templates.count; t++)
        for (size_t i = 0; i < p->templates.item[t].instructions.count; i++) {
            const struct instruction *instruction = &p->templates.item[t].instructions.item[i];
            mutate_list(s, t, i);
            for (int k = 0; k < instruction->inputs + instruction->outputs; k++)
                mutate_operand(s, t, i, k), mutate_view(s, t, i, k), mutate_values(s, t, i, k);
            mutate_fields(s, t, i);
            mutate_workspace(s, t, i);
        }
    mutate_schedule(s);
    mutate_memory(s);
    mutate_declarations(s);
    mutate_names(s);
}

static void check_mutants(const char *name, const char *const *overrides) {
    struct subject s;
    subject_create(&s, name, overrides);
    mutate_everything(&s);
    print_message("%s: %zu mutants: %zu refused, %zu harmless, %zu accepted and harmful\n", name, s.tried, s.refused,
                  s.harmless, s.harmful);
    size_t harmful = s.harmful, refused = s.refused, unstarted = s.unstarted;
    subject_release(&s);
    assert_int_equal(harmful, 0);
    assert_int_equal(unstarted, 0);
    assert_true(refused > 0);
}

#define SUITE(function, ...)                                                \
    static void function(void **unused) {                                   \
        (void)unused;                                                       \
        check_mutants(#function, (const char *const[]){__VA_ARGS__, NULL}); \
    }
SUITE(gpt2, SMALL_GPT2)
SUITE(gpt2_selective, SMALL_GPT2, "activation_checkpoint.mode=selective")
SUITE(gpt2_full, SMALL_GPT2, "activation_checkpoint.mode=full")
SUITE(gpt2_chunks, SMALL_GPT2, "training.logits_rows=6")
SUITE(gpt2_bf16, SMALL_BATCH, SMALL_GPT2_MODEL, "training.dtype=bf16", "training.kernels=reference")
SUITE(gpt2_fast, SMALL_BATCH, SMALL_GPT2_MODEL, "training.dtype=f32", "training.kernels=fast", "optimizer.name=lion")
SUITE(llama, SMALL_LLAMA)
SUITE(llama_selective, SMALL_LLAMA, "activation_checkpoint.mode=selective")
SUITE(llama_full, SMALL_LLAMA, "activation_checkpoint.mode=full")
SUITE(llama_layers, SMALL_LLAMA, "activation_checkpoint.full_layers=1", "activation_checkpoint.selective_layers=1")
SUITE(llama_chunks, SMALL_LLAMA, "activation_checkpoint.mode=full", "training.logits_rows=6")
SUITE(llama_bf16, SMALL_BATCH, SMALL_LLAMA_MODEL, "training.dtype=bf16", "training.kernels=fast",
      "training.logits_rows=6")
SUITE(llama_f32, SMALL_BATCH, SMALL_LLAMA_MODEL, "training.kernels=reference", "training.dtype=f32",
      "optimizer.name=sgd", "activation_checkpoint.mode=selective")
SUITE(llama_muon, SMALL_LLAMA, "optimizer.name=muon")

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2),         cmocka_unit_test(gpt2_selective),  cmocka_unit_test(gpt2_full),
        cmocka_unit_test(llama),        cmocka_unit_test(llama_selective), cmocka_unit_test(llama_full),
        cmocka_unit_test(gpt2_chunks),  cmocka_unit_test(gpt2_bf16),       cmocka_unit_test(gpt2_fast),
        cmocka_unit_test(llama_chunks), cmocka_unit_test(llama_bf16),      cmocka_unit_test(llama_f32),
        cmocka_unit_test(llama_layers), cmocka_unit_test(llama_muon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
