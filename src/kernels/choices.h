// The ways in which calls are run, chosen by measurement: of a matrix product, who shares what and how much is packed
// at a time (enum kernel_way). All ways give the same bits, so that what is chosen changes speed alone.
//
// A choice is known by the text of its call: op, types, shapes and strides of its operands, threads, instruction set
// and processor. So a table may hold choices of several programs and machines; of a call that is not in it, the rule
// holds.
#ifndef KERNELS_CHOICES_H
#define KERNELS_CHOICES_H

#include "base/text.h"
#include "kernels/kernels.h"

#include <stdatomic.h>

struct choice {
    char *call;                  // "matmul f32[64,768] f32[2304,768] - - -> f32[64,2304], 2 threads"
    char *on;                    // "AMD EPYC 9R45, avx512bf16"
    enum kernel_way way;         // the fastest
    double seconds[KERNEL_WAYS]; // of one run, at the least; 0: not measured
};
struct choices {
    char *on; // this processor
    VEC(struct choice) item;
    const atomic_bool *stop; // measuring ends once it is true; may be NULL
};

void choices_create(struct choices *choices);
void choices_release(struct choices *choices);
// What a call is known by; the caller frees it.
char *choices_call(const struct op_table *table, const struct call *call);
// On this processor; NULL: there is none.
const struct choice *choices_find(const struct choices *choices, const struct op_table *table, const struct call *call);
// The chosen way, where it is one of `ways`; else the rule.
enum kernel_way choices_way(const struct choices *choices, const struct op_table *table, const struct call *call,
                            unsigned ways);
const char *kernel_way_name(enum kernel_way way);

// A call that a program makes `times` times a run, of so many operations each: shapes without data, `prepared` and the
// size of its workspace.
struct frequent_call {
    struct call call;
    void (*run)(const struct call *call);
    unsigned ways;
    int64_t times;
    double flops;
};
// Adds choices of the calls that are not in the table, the most worth it first, as far as time allows: a hundredth of
// what they take in `runs` runs of the program, but no more than half of one run or, where that is less, some seconds.
// Time is what the calling thread is given, whatever else the machine does. Where a first look at each call would take
// more already, by its operations, nothing is run and no memory taken.
// A program of `bytes` has its operands in the caches as much as that many bytes can lie there; the ways are timed on
// operands that go round in as much memory, which is given back at the end. Operands must be floating numbers.
trireme_status choices_measure(struct choices *choices, const struct op_table *table, const struct frequent_call *calls,
                               size_t count, int64_t runs, int64_t bytes, trireme_error *error);

// As JSON, which choices_parse adds to a table again. CORRUPT where the text is nothing that choices_print makes; the
// table is then as it was.
void choices_print(const struct choices *choices, struct text *out);
trireme_status choices_parse(struct choices *choices, const char *text, size_t length, const char *where,
                             trireme_error *error);

#endif
