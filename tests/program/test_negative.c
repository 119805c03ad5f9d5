// The negative suite of the verifier. Compiled training programs are changed at every place, one fault at a time. Each
// mutant must be refused, or run to the very results of the original: an accepted mutant that changes what a step
// computes is a hole in the verifier. Every mutant is tried with the memory plan that it inherits and with a new one.
#include "support/small_model.h"
#include "support/test.h"

#include <math.h>

#if defined(__SANITIZE_ADDRESS__)
enum { STRIDE = 7 }; // mutants tried: every STRIDE-th
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
enum { STRIDE = 7 };
#else
enum { STRIDE = 1 };
#endif
#else
enum { STRIDE = 1 };
#endif

enum { CANDIDATES = 6 }; // buffers put in the place of each operand's

struct subject {
    const char *name;
    struct small_model small;
    char *state, *step; // of a run
    size_t state_bytes, step_bytes;
    char *first_state; // before the step
    char *result;      // state after it, then the outputs
    size_t result_bytes;
    size_t generated, tried, refused, harmless, harmful;
};

static const struct program *original(const struct subject *s) {
    return &s->small.engine.train.program;
}

// ---- running

static size_t outputs_bytes(const struct program *p) {
    size_t n = 0;
    for (size_t i = 0; i < p->buffers.count; i++)
        n += p->buffers.item[i].kind == KIND_OUTPUT ? sizeof(double) : 0;
    return n;
}

// Runs one step of `program` on the subject's inputs; *result gets the state and the outputs, as doubles.
static void run_step(struct subject *s, const struct program *program, char *result) {
    if ((size_t)program->step_bytes > s->step_bytes) {
        free(s->step);
        s->step_bytes = (size_t)program->step_bytes;
        s->step = aligned_alloc(BUFFER_ALIGNMENT, s->step_bytes);
    }
    memcpy(s->state, s->first_state, s->state_bytes);
    memset(s->step, 0xff, s->step_bytes); // not a number, wherever something is read that nobody wrote
    struct executor *executor;
    trireme_error error = {0};
    if (executor_create(&executor, program, s->small.engine.ops, KERNELS_REFERENCE, 1, s->state, s->step, &error) !=
        TRIREME_OK)
        fail_msg("%s", error.message);
    small_model_batch(&s->small, executor, 7);
    executor_run(executor, NULL);
    memcpy(result, s->state, s->state_bytes);
    double *output = (double *)(result + s->state_bytes);
    for (size_t i = 0; i < program->buffers.count; i++) {
        const struct buffer *b = &program->buffers.item[i];
        if (b->kind != KIND_OUTPUT)
            continue;
        const void *at = executor_address(executor, (int)i, 0);
        *output++ = b->dtype == DTYPE_I32 ? *(const int32_t *)at : *(const double *)at;
    }
    executor_free(executor);
}

static bool same_results(const struct subject *s, const char *result) {
    const double *a = (const double *)result, *b = (const double *)s->result;
    for (size_t i = 0; i < s->result_bytes / sizeof(double); i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(fabs(a[i] - b[i]) <= 1e-12 * MAX(1, fabs(b[i]))))
            return false;
    return true;
}

static void subject_create(struct subject *s, const char *name, const char *const *overrides) {
    *s = (struct subject){.name = name};
    small_model_create(&s->small, overrides, true);
    small_model_values(&s->small, 5);
    const struct program *p = original(s);
    s->state_bytes = (size_t)p->state_bytes;
    s->state = aligned_alloc(BUFFER_ALIGNMENT, s->state_bytes);
    s->first_state = mem_alloc(s->state_bytes);
    memcpy(s->first_state, s->small.engine.state.base, s->state_bytes);
    s->result_bytes = s->state_bytes + outputs_bytes(p);
    s->result = mem_alloc(s->result_bytes);
    run_step(s, p, s->result);
    for (size_t i = 0; i < s->result_bytes / sizeof(double); i++)
        assert_true(isfinite(((const double *)s->result)[i]));
}

static void subject_release(struct subject *s) {
    small_model_release(&s->small);
    free(s->state);
    free(s->step);
    free(s->first_state);
    free(s->result);
}

// ---- mutants

// Shares the names.
static struct program copy_program(const struct program *p) {
    struct program copy = *p;
#define COPY(vec)                                                       \
    do {                                                                \
        (vec)->capacity = (vec)->count + 1;                             \
        void *from = (vec)->item;                                       \
        (vec)->item = mem_alloc((vec)->capacity * sizeof *(vec)->item); \
        memcpy((vec)->item, from, (vec)->count * sizeof *(vec)->item);  \
    } while (0)
    COPY(&copy.buffers);
    COPY(&copy.schedule);
    COPY(&copy.templates);
    for (size_t t = 0; t < copy.templates.count; t++)
        COPY(&copy.templates.item[t].instructions);
#undef COPY
    return copy;
}

static void release_copy(struct program *p) {
    for (size_t t = 0; t < p->templates.count; t++)
        free(p->templates.item[t].instructions.item);
    free(p->buffers.item);
    free(p->schedule.item);
    free(p->templates.item);
}

static bool begin_mutant(struct subject *s, struct program *mutant) {
    if (s->generated++ % STRIDE != 0)
        return false;
    s->tried++;
    *mutant = copy_program(original(s));
    return true;
}

// Judges the mutant and releases it.
static void end_mutant(struct subject *s, struct program *mutant, bool replan, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void end_mutant(struct subject *s, struct program *mutant, bool replan, const char *format, ...) {
    const struct op_table *ops = s->small.engine.ops;
    char *result = NULL;
    bool accepted = false, harmful = false;
    for (int planned = 0; planned <= (int)replan && !harmful; planned++) {
        trireme_error error = {0};
        if (planned && program_plan(mutant, ops, &error) != TRIREME_OK)
            continue;
        if (program_verify(mutant, ops, &error) != TRIREME_OK) {
            assert_true(error.message[0] != 0);
            continue;
        }
        accepted = true;
        result = result ? result : mem_alloc(s->result_bytes);
        run_step(s, mutant, result);
        harmful = !same_results(s, result);
    }
    if (harmful) {
        va_list args;
        va_start(args, format);
        char *what = mem_vprintf(format, args);
        va_end(args);
        print_error("%s: accepted, and changes the results: %s\n", s->name, what);
        free(what);
    }
    s->harmful += harmful;
    s->harmless += accepted && !harmful;
    s->refused += !accepted;
    free(result);
    release_copy(mutant);
}

#define NAME(b) (original(s)->buffers.item[b].name)
#define PLACE original(s)->templates.item[t].name, i, info->name

static void mutate_list(struct subject *s, size_t t, size_t i) {
    const struct op_info *info = &s->small.engine.ops->op[original(s)->templates.item[t].instructions.item[i].op];
    size_t count = original(s)->templates.item[t].instructions.count;
    struct program mutant;
    if (begin_mutant(s, &mutant)) {
        struct instruction *item = mutant.templates.item[t].instructions.item;
        memmove(&item[i], &item[i + 1], (count - i - 1) * sizeof *item);
        mutant.templates.item[t].instructions.count--;
        end_mutant(s, &mutant, true, "%s[%zu] %s deleted", PLACE);
    }
    if (begin_mutant(s, &mutant)) {
        struct instruction *item = mutant.templates.item[t].instructions.item;
        memmove(&item[i + 1], &item[i], (count - i) * sizeof *item);
        mutant.templates.item[t].instructions.count++;
        end_mutant(s, &mutant, true, "%s[%zu] %s duplicated", PLACE);
    }
    if (i + 1 < count && begin_mutant(s, &mutant)) {
        struct instruction *item = mutant.templates.item[t].instructions.item, first = item[i];
        item[i] = item[i + 1];
        item[i + 1] = first;
        end_mutant(s, &mutant, true, "%s[%zu] %s swapped with the next", PLACE);
    }
}

// Up to CANDIDATES buffers that could stand where `buffer` does, spread over the program.
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

static struct operand *operand_of(struct instruction *instruction, int k) {
    return k < instruction->inputs ? &instruction->in[k] : &instruction->out[k - instruction->inputs];
}

static void mutate_operand(struct subject *s, size_t t, size_t i, int k) {
    const struct program *p = original(s);
    struct instruction *instruction = &p->templates.item[t].instructions.item[i];
    const struct op_info *info = &s->small.engine.ops->op[instruction->op];
    int buffer = operand_of(instruction, k)->buffer, candidate[CANDIDATES],
        operands = instruction->inputs + instruction->outputs;
    const char *operand_name = k < info->inputs ? info->in[k].name : info->out[k - info->inputs].name;
    if (buffer == NONE)
        return;
    struct program mutant;
    int uses = 0;
    for (int n = 0; n < operands; n++)
        uses += operand_of(instruction, n)->buffer == buffer;
    size_t count = find_candidates(p, buffer, candidate);
    for (size_t c = 0; c < count; c++)
        for (int all = 0; all <= (uses > 1); all++) {
            if (!begin_mutant(s, &mutant))
                continue;
            struct instruction *changed = &mutant.templates.item[t].instructions.item[i];
            for (int n = 0; n < operands; n++)
                if (n == k || (all && operand_of(changed, n)->buffer == buffer))
                    operand_of(changed, n)->buffer = candidate[c];
            end_mutant(s, &mutant, true, "%s[%zu] %s: %s %s is %s%s", PLACE, operand_name, NAME(buffer),
                       NAME(candidate[c]), all ? " throughout" : "");
        }
    bool optional = k < info->inputs ? info->in[k].optional : info->out[k - info->inputs].optional;
    if (optional && begin_mutant(s, &mutant)) {
        *operand_of(&mutant.templates.item[t].instructions.item[i], k) = operand_none();
        end_mutant(s, &mutant, true, "%s[%zu] %s: %s %s left out", PLACE, operand_name, NAME(buffer));
    }
    for (int n = k + 1; n < operands; n++) {
        const struct operand *a = operand_of(instruction, k), *b = operand_of(instruction, n);
        if (b->buffer == NONE || a->buffer == b->buffer || operand_count(a) != operand_count(b) ||
            p->buffers.item[a->buffer].dtype != p->buffers.item[b->buffer].dtype || !begin_mutant(s, &mutant))
            continue;
        struct instruction *changed = &mutant.templates.item[t].instructions.item[i];
        operand_of(changed, k)->buffer = b->buffer;
        operand_of(changed, n)->buffer = a->buffer;
        end_mutant(s, &mutant, true, "%s[%zu] %s: %s and %s swapped", PLACE, NAME(a->buffer), NAME(b->buffer));
    }
}

static void mutate_fields(struct subject *s, size_t t, size_t i) {
    const struct instruction *instruction = &original(s)->templates.item[t].instructions.item[i];
    const struct op_info *info = &s->small.engine.ops->op[instruction->op];
    struct program mutant;
    for (int value = ACCUMULATE_NO; value <= ACCUMULATE_AFTER_FIRST; value++)
        if (value != (int)instruction->accumulate && begin_mutant(s, &mutant)) {
            mutant.templates.item[t].instructions.item[i].accumulate = (enum accumulate)value;
            end_mutant(s, &mutant, true, "%s[%zu] %s: accumulate %d", PLACE, value);
        }
    if (instruction->predicate != NONE && begin_mutant(s, &mutant)) {
        mutant.templates.item[t].instructions.item[i].predicate = NONE;
        end_mutant(s, &mutant, true, "%s[%zu] %s: predicate dropped", PLACE);
    }
    for (int a = 0; info->role == ROLE_BACKWARD && a < info->attributes; a++)
        if (begin_mutant(s, &mutant)) {
            union attribute *attribute = &mutant.templates.item[t].instructions.item[i].attribute[a];
            if (info->attribute[a].is_float)
                attribute->f *= 1.01;
            else
                attribute->i ^= 1;
            end_mutant(s, &mutant, true, "%s[%zu] %s: attribute %s", PLACE, info->attribute[a].name);
        }
}

static void mutate_schedule(struct subject *s) {
    size_t count = original(s)->schedule.count;
    struct program mutant;
    for (size_t k = 0; k < count; k++) {
        if (begin_mutant(s, &mutant)) {
            memmove(&mutant.schedule.item[k], &mutant.schedule.item[k + 1],
                    (count - k - 1) * sizeof *mutant.schedule.item);
            mutant.schedule.count--;
            end_mutant(s, &mutant, true, "invocation %zu removed", k);
        }
        if (begin_mutant(s, &mutant)) {
            memmove(&mutant.schedule.item[k + 1], &mutant.schedule.item[k], (count - k) * sizeof *mutant.schedule.item);
            mutant.schedule.count++;
            end_mutant(s, &mutant, true, "invocation %zu repeated", k);
        }
        for (size_t n = k + 1; n < count; n++)
            if (begin_mutant(s, &mutant)) {
                struct invocation first = mutant.schedule.item[k];
                mutant.schedule.item[k] = mutant.schedule.item[n];
                mutant.schedule.item[n] = first;
                end_mutant(s, &mutant, true, "invocations %zu and %zu swapped", k, n);
            }
        for (int m = NONE; m < original(s)->microbatches; m++)
            if (m != original(s)->schedule.item[k].microbatch && begin_mutant(s, &mutant)) {
                mutant.schedule.item[k].microbatch = m;
                end_mutant(s, &mutant, true, "invocation %zu: microbatch %d", k, m);
            }
    }
}

// Every buffer moved onto others of its arena; slices too.
static void mutate_memory(struct subject *s) {
    const struct program *p = original(s);
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
            if (begin_mutant(s, &mutant)) {
                mutant.buffers.item[a].offset = to->offset;
                end_mutant(s, &mutant, false, "%s moved onto %s", from->name, to->name);
            }
        }
    }
}

static void swap_throughout(struct program *p, int a, int b) {
    for (size_t t = 0; t < p->templates.count; t++)
        for (size_t i = 0; i < p->templates.item[t].instructions.count; i++) {
            struct instruction *instruction = &p->templates.item[t].instructions.item[i];
            for (int k = 0; k < instruction->inputs + instruction->outputs; k++) {
                int *buffer = &operand_of(instruction, k)->buffer;
                *buffer = *buffer == a ? b : *buffer == b ? a : *buffer;
            }
            int *predicate = &instruction->predicate;
            *predicate = *predicate == a ? b : *predicate == b ? a : *predicate;
        }
}

// Two buffers that the host, the next step or a checkpoint knows by name, swapped wherever they stand, so that the
// program is as consistent as before. Which parameter is which and what is looked up in which table, the model alone
// knows.
static void mutate_names(struct subject *s) {
    const struct program *p = original(s);
    struct program mutant;
    for (size_t a = 0; a < p->buffers.count; a++)
        for (size_t b = a + 1; b < p->buffers.count; b++) {
            const struct buffer *x = &p->buffers.item[a], *y = &p->buffers.item[b];
            bool looked_up = !*x->as && !*y->as && x->kind == KIND_INPUT;
            if (x->kind != y->kind || x->kind == KIND_PARAM || x->kind >= KIND_ACT || looked_up ||
                x->dtype != y->dtype || buffer_count(x) != buffer_count(y) || !begin_mutant(s, &mutant))
                continue;
            swap_throughout(&mutant, (int)a, (int)b);
            end_mutant(s, &mutant, true, "%s and %s swapped throughout", x->name, y->name);
        }
}

static void mutate_everything(struct subject *s) {
    const struct program *p = original(s);
    for (size_t t = 0; t < p->templates.count; t++)
        for (size_t i = 0; i < p->templates.item[t].instructions.count; i++) {
            const struct instruction *instruction = &p->templates.item[t].instructions.item[i];
            mutate_list(s, t, i);
            for (int k = 0; k < instruction->inputs + instruction->outputs; k++)
                mutate_operand(s, t, i, k);
            mutate_fields(s, t, i);
        }
    mutate_schedule(s);
    mutate_memory(s);
    mutate_names(s);
}

static void check_mutants(const char *name, const char *const *overrides) {
    struct subject s;
    subject_create(&s, name, overrides);
    mutate_everything(&s);
    print_message("%s: %zu mutants: %zu refused, %zu harmless, %zu accepted and harmful\n", name, s.tried, s.refused,
                  s.harmless, s.harmful);
    size_t harmful = s.harmful, refused = s.refused;
    subject_release(&s);
    assert_int_equal(harmful, 0);
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
SUITE(llama, SMALL_LLAMA)
SUITE(llama_selective, SMALL_LLAMA, "activation_checkpoint.mode=selective")
SUITE(llama_full, SMALL_LLAMA, "activation_checkpoint.mode=full")

// ---- named faults: the message says what is wrong with which buffer

struct place {
    struct template *template;
    size_t index;
};

// The instruction of `op` that has an operand in `buffer`.
static struct place find_instruction(const struct program *p, enum op op, const char *buffer) {
    int number = program_find(p, buffer);
    assert_int_not_equal(number, NONE);
    for (size_t t = 0; t < p->templates.count; t++)
        for (size_t i = 0; i < p->templates.item[t].instructions.count; i++) {
            struct instruction *instruction = &p->templates.item[t].instructions.item[i];
            for (int k = 0; instruction->op == op && k < instruction->inputs + instruction->outputs; k++)
                if (operand_of(instruction, k)->buffer == number)
                    return (struct place){&p->templates.item[t], i};
        }
    fail_msg("no instruction touches %s", buffer);
    return (struct place){NULL, 0};
}

static struct instruction *at(struct place place) {
    return &place.template->instructions.item[place.index];
}

static void delete_at(struct place place) {
    struct instruction *item = place.template->instructions.item;
    memmove(&item[place.index], &item[place.index + 1],
            (place.template->instructions.count - place.index - 1) * sizeof *item);
    place.template->instructions.count--;
}

static void repeat_at(struct place place) {
    struct instruction *item = place.template->instructions.item;
    memmove(&item[place.index + 1], &item[place.index],
            (place.template->instructions.count - place.index) * sizeof *item);
    place.template->instructions.count++;
}

static void rename_input(struct program *p, struct place place, const char *from, const char *to) {
    int old = program_find(p, from), new = program_find(p, to);
    for (int k = 0; k < at(place)->inputs; k++)
        if (at(place)->in[k].buffer == old)
            at(place)->in[k].buffer = new;
}

static int64_t *offset_of(struct program *p, const char *buffer) {
    return &p->buffers.item[program_find(p, buffer)].offset;
}

// The program is refused in words that contain both.
static void assert_refused(const struct program *p, const struct op_table *ops, const char *what, const char *buffer) {
    trireme_error error = {0};
    assert_int_equal(program_verify(p, ops, &error), TRIREME_ERROR_PROGRAM);
    if (!strstr(error.message, what) || !strstr(error.message, buffer))
        fail_msg("expected a message with \"%s\" and \"%s\", got: %s", what, buffer, error.message);
}

#define FAULT(fault, what, buffer)                \
    do {                                          \
        struct program p = copy_program(program); \
        fault;                                    \
        assert_refused(&p, ops, what, buffer);    \
        release_copy(&p);                         \
    } while (0)

static void named_faults(void **unused) {
    (void)unused;
    struct small_model small;
    small_model_create(&small, (const char *const[]){SMALL_GPT2, NULL}, false);
    const struct program *program = &small.engine.train.program;
    const struct op_table *ops = small.engine.ops;
    // memory
    FAULT(delete_at(find_instruction(&p, OP_MATMUL, "layers.1.attention.qkv")), "before it is written",
          "layers.1.attention.qkv");
    FAULT(delete_at(find_instruction(&p, OP_RECIPROCAL, "loss.scale")), "before it is written", "loss.scale");
    FAULT(*offset_of(&p, "layers.1.mlp.up") = *offset_of(&p, "layers.0.mlp.activation"), "freed too early",
          "layers.0.mlp.activation");
    FAULT(*offset_of(&p, "layers.0.m") = *offset_of(&p, "layers.1.v"), "overlap in memory", "layers.1.v");
    FAULT(*offset_of(&p, "tokens") = *offset_of(&p, "targets"), "overlap in memory", "targets");
    FAULT(*offset_of(&p, "loss") = p.scratch_base, "overlaps the region of activations", "loss");
    FAULT(*offset_of(&p, "layers.0.mlp.up.bias") += 64, "of which it is a slice", "layers.0.mlp.up.bias");
    // gradients
    FAULT(delete_at(find_instruction(&p, OP_MATMUL_DW, "grad.layers.0.mlp.down.weight")), "before it is written",
          "layers.0.mlp.down.weight");
    FAULT(delete_at(find_instruction(&p, OP_EMBED_DW, "grad.embed.weight")), "never computed", "embed.weight");
    FAULT(repeat_at(find_instruction(&p, OP_MATMUL_DW, "grad.layers.0.mlp.down.weight")), "which nobody has read",
          "grad.layers.0.mlp.down.weight");
    FAULT(repeat_at(find_instruction(&p, OP_EMBED_DW, "grad.embed.weight")), "twice", "embed.weight");
    FAULT(at(find_instruction(&p, OP_MATMUL_DW, "grad.layers.1.mlp.up.weight"))->accumulate = ACCUMULATE_NO,
          "which nobody has read", "grad.layers.1.mlp.up.weight");
    FAULT(at(find_instruction(&p, OP_EMBED_DW, "grad.embed.weight"))->accumulate = ACCUMULATE_AFTER_FIRST, "overwrites",
          "embed.weight");
    // loss
    FAULT(rename_input(&p, find_instruction(&p, OP_CROSS_ENTROPY_GRAD, "loss.scale"), "loss.scale", "targets.count"),
          "wrong denominator", "targets.count");
    FAULT(rename_input(&p, find_instruction(&p, OP_LOSS_SUM, "loss.scale"), "loss.scale", "targets.count"),
          "wrong denominator", "targets.count");
    FAULT(at(find_instruction(&p, OP_TARGETS_COUNT, "targets"))->in[0].dim[0] = 1, "not the number of targets",
          "targets");
    // update
    FAULT(delete_at(find_instruction(&p, OP_ADAMW, "layers.1.m")), "never updated", "layers.1.");
    FAULT(repeat_at(find_instruction(&p, OP_ADAMW, "layers.1.m")), "another update", "layers.1.");
    FAULT(delete_at(find_instruction(&p, OP_SQUARE_SUM, "head.gradients")), "the norm leaves out", "head.gradients");
    FAULT(repeat_at(find_instruction(&p, OP_SQUARE_SUM, "layers.0.gradients")), "twice", "layers.0.gradients");
    FAULT(at(find_instruction(&p, OP_ADAMW, "layers.0.m"))->predicate = NONE, "not finite", "adamw");
    // names
#define SWAP(a, b) swap_throughout(&p, program_find(&p, a), program_find(&p, b))
    FAULT(SWAP("layers.0.m", "layers.0.v"), "as its m", "layers.0.v");
    FAULT(SWAP("layers.0.m", "layers.1.m"), "which is no state of layers.0.parameters", "layers.1.m");
    FAULT(SWAP("layers.0.decayed", "layers.1.decayed"), "which is no state of layers.0.parameters", "layers.1.decayed");
    FAULT(SWAP("layers.0.decayed", "optimizer.t"), "as its t", "decayed");
    FAULT(SWAP("grad_norm", "clip_factor"), "as its norm", "clip_factor");
    FAULT(SWAP("tokens", "targets"), "as its ids", "targets");
#undef SWAP
    small_model_release(&small);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(named_faults), cmocka_unit_test(gpt2),  cmocka_unit_test(gpt2_selective),
        cmocka_unit_test(gpt2_full),    cmocka_unit_test(llama), cmocka_unit_test(llama_selective),
        cmocka_unit_test(llama_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
