// What ran when, as part of a Chrome trace (program/timeline.h).
#ifndef EXEC_STEP_TIMES_H
#define EXEC_STEP_TIMES_H

#include "base/text.h"
#include "exec/exec.h"

// Appends the streams that a rank's run of a program used, and what ran on them; times count from `start`, a time of
// clock_now. `track` as in struct timeline_event.
void trace_print(const struct program *program, const struct op_table *table, const struct trace *trace, int rank,
                 int track, int64_t start, struct text *out);

#endif
