// What ran when, as part of a Chrome trace (program/timeline.h).
#ifndef EXEC_STEP_TIMES_H
#define EXEC_STEP_TIMES_H

#include "base/text.h"
#include "exec/exec.h"

// Appends a rank, its streams, and what ran on them; times count from `start`, a time of clock_now.
void trace_print(const struct program *program, const struct op_table *table, const struct trace *trace, int rank,
                 int64_t start, struct text *out);

#endif
