#include "support/mutant.h"

#include "memory/memory_plan.h"
#include "support/sanitized.h"
#include "support/test.h"
#include "verify/verify.h"

#include <math.h>

enum { STRIDE = SANITIZED ? 11 : 2 };

const struct program *subject_program(const struct subject *s) {
    return &engine_compiled(&s->small.engine, PROGRAM_TRAIN)->program;
}

// ---- running

static size_t outputs_bytes(const struct program *p) {
    size_t n = 0;
    for (size_t i = 0; i < p->buffers.count; i++)
        n += p->buffers.item[i].kind == KIND_OUTPUT ? sizeof(double) : 0;
    return n;
}

// Runs one step of `program` on the subject's inputs; *result gets the state and the outputs, as doubles. False when
// the executor refuses the program.
static bool run_step(struct subject *s, const struct program *program, char *result) {
    const struct engine *e = &s->small.engine;
    if ((size_t)program->arena[SPACE_DEVICE].step_bytes > s->step_bytes) {
        free(s->step);
        s->step_bytes = (size_t)program->arena[SPACE_DEVICE].step_bytes;
        s->step = aligned_alloc(BUFFER_ALIGNMENT, s->step_bytes);
    }
    memcpy(s->state, s->first_state, s->state_bytes);
    memset(s->step, 0xff, s->step_bytes); // not a number, wherever something is read that nobody wrote
    struct streams *streams = streams_create(NULL, 1);
    struct executor *executor;
    trireme_error error = {0};
    if (executor_create(&executor, streams, program, e->ops, compile_kernels(&s->small.config), s->state, s->step,
                        &error) != TRIREME_OK) {
        assert_true(error.message[0] != 0);
        streams_free(streams);
        return false;
    }
    small_model_batch(engine_compiled(&s->small.engine, PROGRAM_TRAIN), executor, 7, 0);
    assert_int_equal(executor_run(executor, NULL, &error), TRIREME_OK);
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
    streams_free(streams);
    return true;
}

void subject_create(struct subject *s, const char *name, const char *const *overrides) {
    *s = (struct subject){.name = name};
    small_model_create(&s->small, overrides, true);
    small_model_values(&s->small, 5);
    const struct program *p = subject_program(s);
    s->state_bytes = (size_t)p->arena[SPACE_DEVICE].state_bytes;
    s->state = aligned_alloc(BUFFER_ALIGNMENT, s->state_bytes);
    s->first_state = mem_alloc(s->state_bytes);
    memcpy(s->first_state, s->small.engine.state, s->state_bytes);
    s->result_bytes = s->state_bytes + outputs_bytes(p);
    s->result = mem_alloc(s->result_bytes);
    assert_true(run_step(s, p, s->result));
    char *again = mem_alloc(s->result_bytes);
    assert_true(run_step(s, p, again));
    assert_memory_equal(again, s->result, s->result_bytes);
    free(again);
    for (size_t at = s->state_bytes; at < s->result_bytes; at += sizeof(double))
        assert_true(isfinite(*(const double *)(s->result + at)));
}

void subject_release(struct subject *s) {
    small_model_release(&s->small);
    free(s->state);
    free(s->step);
    free(s->first_state);
    free(s->result);
}

// ---- mutants

static void own_operands(struct program *mutant, struct instruction *i) {
    program_give_operands(mutant, i, i->inputs, i->in, i->outputs, i->out);
}

struct program mutant_copy(const struct program *p) {
    struct program copy = *p;
#define COPY(vec)                                                          \
    do {                                                                   \
        (vec)->capacity = (vec)->count + 1;                                \
        void *from = (vec)->item;                                          \
        (vec)->item = mem_alloc((vec)->capacity * sizeof *(vec)->item);    \
        if (from)                                                          \
            memcpy((vec)->item, from, (vec)->count * sizeof *(vec)->item); \
    } while (0)
    COPY(&copy.buffers);
    COPY(&copy.terms);
    COPY(&copy.schedule);
    COPY(&copy.templates);
    COPY(&copy.pools);
    for (size_t i = 0; i < copy.pools.count; i++) {
        size_t bytes = (size_t)copy.microbatches * sizeof(int);
        copy.pools.item[i].slot = memcpy(mem_alloc(bytes), copy.pools.item[i].slot, bytes);
        bytes = (size_t)copy.pools.item[i].slots * sizeof(int64_t);
        for (int s = 0; s < SPACE_COUNT; s++)
            copy.pools.item[i].base[s] = memcpy(mem_alloc(bytes), copy.pools.item[i].base[s], bytes);
    }
    copy.operands.item = NULL;
    copy.operands.count = copy.operands.capacity = copy.operands_left = 0;
    for (size_t t = 0; t < copy.templates.count; t++) {
        COPY(&copy.templates.item[t].instructions);
        for (size_t i = 0; i < copy.templates.item[t].instructions.count; i++)
            own_operands(&copy, &copy.templates.item[t].instructions.item[i]);
    }
#undef COPY
    return copy;
}

void mutant_release(struct program *copy) {
    for (size_t t = 0; t < copy->templates.count; t++)
        free(copy->templates.item[t].instructions.item);
    for (size_t i = 0; i < copy->operands.count; i++)
        free(copy->operands.item[i]);
    free(copy->operands.item);
    for (size_t i = 0; i < copy->pools.count; i++) {
        free(copy->pools.item[i].slot);
        for (int s = 0; s < SPACE_COUNT; s++)
            free(copy->pools.item[i].base[s]);
    }
    free(copy->pools.item);
    free(copy->buffers.item);
    free(copy->terms.item);
    free(copy->schedule.item);
    free(copy->templates.item);
}

size_t mutant_stride(void) {
    return getenv("TRIREME_ALL_MUTANTS") ? 1 : STRIDE;
}

bool mutant_begin(struct subject *s, struct program *mutant) {
    if (s->generated++ % mutant_stride() != 0)
        return false;
    s->tried++;
    *mutant = mutant_copy(subject_program(s));
    return true;
}

void mutant_end(struct subject *s, struct program *mutant, bool replan, const char *format, ...) {
    const struct op_table *ops = s->small.engine.ops;
    char *result = NULL;
    bool accepted = false, harmful = false, unstarted = false;
    for (int planned = 0; planned <= (int)replan && !harmful; planned++) {
        trireme_error error = {0};
        if (planned && program_plan(mutant, ops, NULL, &error) != TRIREME_OK)
            continue;
        if (program_verify(mutant, ops, &error) != TRIREME_OK) {
            assert_true(error.message[0] != 0);
            continue;
        }
        result = result ? result : mem_alloc(s->result_bytes);
        if (!run_step(s, mutant, result)) {
            unstarted = true;
            continue;
        }
        accepted = true;
        harmful = memcmp(result, s->result, s->result_bytes) != 0;
    }
    unstarted &= !accepted;
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
    s->unstarted += unstarted;
    s->refused += !accepted && !unstarted;
    free(result);
    mutant_release(mutant);
}

struct operand *mutant_operand(struct instruction *instruction, int k) {
    return k < instruction->inputs ? &instruction->in[k] : &instruction->out[k - instruction->inputs];
}

struct place mutant_find(const struct program *p, enum op op, const char *buffer) {
    int number = program_find(p, buffer);
    if (number == NONE)
        fail_msg("there is no buffer %s", buffer);
    for (size_t t = 0; t < p->templates.count; t++)
        for (size_t i = 0; i < p->templates.item[t].instructions.count; i++) {
            struct instruction *instruction = &p->templates.item[t].instructions.item[i];
            for (int k = 0; instruction->op == op && k < instruction->inputs + instruction->outputs; k++)
                if (mutant_operand(instruction, k)->buffer == number)
                    return (struct place){&p->templates.item[t], i};
        }
    fail_msg("no such instruction touches %s", buffer);
    return (struct place){NULL, 0};
}

struct instruction *mutant_at(struct place place) {
    return &place.template->instructions.item[place.index];
}

void mutant_delete(struct place place) {
    struct instruction *item = place.template->instructions.item;
    memmove(&item[place.index], &item[place.index + 1],
            (place.template->instructions.count - place.index - 1) * sizeof *item);
    place.template->instructions.count--;
}

void mutant_repeat(struct program *mutant, struct place place) {
    struct instruction *item = place.template->instructions.item;
    memmove(&item[place.index + 1], &item[place.index],
            (place.template->instructions.count - place.index) * sizeof *item);
    own_operands(mutant, &item[place.index + 1]);
    place.template->instructions.count++;
}

struct instruction *mutant_halve(struct program *mutant, enum op op, const char *buffer) {
    struct place place = mutant_find(mutant, op, buffer);
    VEC_RESERVE(&place.template->instructions, place.template->instructions.count + 1);
    mutant_repeat(mutant, place);
    struct instruction *first = mutant_at(place), *second = first + 1;
    for (int k = 0; k < first->inputs + first->outputs; k++) {
        struct operand *rows = mutant_operand(second, k);
        const enum buffer_kind kind = rows->buffer == NONE ? KIND_PARAM : mutant->buffers.item[rows->buffer].kind;
        if (kind == KIND_PARAM || kind == KIND_GRAD || rows->dim[0] != 16)
            continue;
        rows->dim[0] = mutant_operand(first, k)->dim[0] = 8;
        rows->offset += 8 * rows->stride[0];
    }
    if (first->accumulate != ACCUMULATE_NO)
        second->accumulate = ACCUMULATE_YES;
    return first;
}

void mutant_overwrite(struct program *mutant, struct place place, int buffer, int by) {
    const struct operand to = operand_part(mutant, operand_whole(mutant, buffer), AXES_NONE);
    struct operand from = to;
    from.buffer = by;
    mutant_repeat(mutant, place);
    struct instruction *write = mutant_at(place);
    *write = (struct instruction){.op = by == NONE ? OP_ZERO : OP_FAN_OUT,
                                  .phase = write->phase,
                                  .layer = write->layer,
                                  .workspace = NONE,
                                  .predicate = NONE};
    program_give_operands(mutant, write, by != NONE, &from, 1, &to);
}

bool mutant_same_sum(const struct instruction *first) {
    const struct instruction *second = first + 1;
    return first->op == OP_SQUARE_SUM && second->op == first->op && first->out[0].buffer == second->out[0].buffer;
}

void mutant_swap(struct program *p, int a, int b) {
    for (size_t t = 0; t < p->templates.count; t++)
        for (size_t i = 0; i < p->templates.item[t].instructions.count; i++) {
            struct instruction *instruction = &p->templates.item[t].instructions.item[i];
            for (int k = 0; k < instruction->inputs + instruction->outputs; k++) {
                int *buffer = &mutant_operand(instruction, k)->buffer;
                *buffer = *buffer == a ? b : *buffer == b ? a : *buffer;
            }
            int *predicate = &instruction->predicate;
            *predicate = *predicate == a ? b : *predicate == b ? a : *predicate;
        }
}
