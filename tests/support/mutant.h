// Training programs with one fault each. A mutant must be refused by the verifier, or give the results of the original
// bit for bit: an accepted mutant that changes what a step computes is a hole in the verifier.
#ifndef SUPPORT_MUTANT_H
#define SUPPORT_MUTANT_H

#include "support/small_model.h"

struct subject {
    const char *name;
    struct small_model small;
    char *state, *step; // arenas of a run
    size_t state_bytes, step_bytes;
    char *first_state; // before the step
    char *result;      // state after it, then the outputs, as doubles
    size_t result_bytes;
    size_t generated, tried, refused, harmless, harmful;
    size_t unstarted; // accepted by the verifier, and refused by the executor
};

// Compiles the small model with `overrides` (ends with NULL), and runs a step of it. The caller keeps `name`.
void subject_create(struct subject *subject, const char *name, const char *const *overrides);
void subject_release(struct subject *subject);
const struct program *subject_program(const struct subject *subject);

// Makes a copy of the program to change, with room for one more instruction per template and one more invocation. False
// where this mutant is not tried: only some are, unless TRIREME_ALL_MUTANTS is set.
bool mutant_begin(struct subject *subject, struct program *mutant);
// One mutant of this many is tried.
size_t mutant_stride(void);
// Judges the mutant with the memory plan that it inherits and, with `replan`, with a new one; counts it in the subject;
// reports a harmful one in the words that follow; and releases it.
void mutant_end(struct subject *subject, struct program *mutant, bool replan, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

// A copy that shares the names, with room for one more of everything. Release with mutant_release.
struct program mutant_copy(const struct program *program);
void mutant_release(struct program *copy);
// Input k, or output k - inputs.
struct operand *mutant_operand(struct instruction *instruction, int k);
// Where an instruction stands.
struct place {
    struct template *template;
    size_t index;
};
// The first instruction of `op` that has an operand in the buffer of this name; fails the test where there is none.
struct place mutant_find(const struct program *program, enum op op, const char *buffer);
struct instruction *mutant_at(struct place place);
void mutant_delete(struct place place);
void mutant_repeat(struct program *mutant, struct place place); // once more, right after it
// Splits the first instruction of `op` that touches the buffer, for half of the 16 rows of a microbatch each; returns
// the first half, which the second follows.
struct instruction *mutant_halve(struct program *mutant, enum op op, const char *buffer);
// Inserts an instruction before the place that sets all of `buffer` to zero, or to what is in buffer `by`, of equally
// many elements.
void mutant_overwrite(struct program *mutant, struct place place, int buffer, int by);
// Whether this instruction and the next add to the same sum: then their order is free, but shows in the last bit.
bool mutant_same_sum(const struct instruction *first);
// Exchanges two buffers in all instructions.
void mutant_swap(struct program *program, int a, int b);

#endif
