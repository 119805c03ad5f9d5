// The way in which a call is run, chosen by measurement: for a matrix product, what threads share and how much is
// packed at a time (enum kernel_way). All ways give the same bits, so the choice changes speed alone.
//
// A choice is identified by texts: op, types, shapes and strides of the call's operands, threads, instruction set and
// processor. So a table may hold choices for several programs and machines. A call that is not in it runs by the rule.
#ifndef KERNELS_CHOICES_H
#define KERNELS_CHOICES_H

#include "base/text.h"
#include "kernels/kernels.h"

#include <stdatomic.h>

struct choice {
    char *call;                  // "matmul f32[64,768] f32[2304,768] - - -> f32[64,2304], 2 threads"
    char *on;                    // "AMD EPYC 9R45, avx512bf16"
    enum kernel_way way;         // the fastest
    double seconds[KERNEL_WAYS]; // of one run, the least measured; 0: not measured
};
struct choices {
    char *on; // this processor
    VEC(struct choice) item;
    const atomic_bool *stop; // measuring ends once it is true; may be NULL
};

void choices_create(struct choices *choices);
void choices_release(struct choices *choices);
// The text that identifies a call; the caller frees it.
char *choices_call(const struct op_table *table, const struct call *call);
// The choice for a call on this processor; NULL: there is none.
const struct choice *choices_find(const struct choices *choices, const struct op_table *table, const struct call *call);
// The way chosen for a call if it is one of `ways` (bit w for way w), else the rule.
enum kernel_way choices_way(const struct choices *choices, const struct op_table *table, const struct call *call,
                            unsigned ways);
const char *kernel_way_name(enum kernel_way way);

// A call that a program makes `times` times in each run, of `flops` operations each.
struct frequent_call {
    struct call call; // shapes without data, `prepared`, and the size of its workspace
    void (*run)(const struct call *call);
    unsigned ways;
    int64_t times;
    double flops;
};
// Adds choices for those of the calls that are not in the table, the most worthwhile first, as far as time allows: a
// hundredth of what they take in `runs` runs of the program, but no more than half of one run, or a few seconds where
// that is more. Time is processor time of the calling thread, so that it does not matter what else the machine does. If
// a first run of each call would already take longer, judging by its operations, nothing is run and no memory is taken.
//
// `bytes` is the memory that the program uses: the ways are timed on operands that move around in about as much memory,
// so that caches hold as little of them as in the program. It is released at the end. Operands must be f32 or bf16.
trireme_status choices_measure(struct choices *choices, const struct op_table *table, const struct frequent_call *calls,
                               size_t count, int64_t runs, int64_t bytes, trireme_error *error);

// The table as JSON, and back: choices_parse adds to a table what choices_print wrote. If the text is something else,
// it returns TRIREME_ERROR_CORRUPT and leaves the table as it was.
void choices_print(const struct choices *choices, struct text *out);
trireme_status choices_parse(struct choices *choices, const char *text, size_t length, const char *where,
                             trireme_error *error);

#endif
