// A traced run as a Chrome trace (JSON object format), which Perfetto and chrome://tracing open.
#ifndef EXEC_TRACE_H
#define EXEC_TRACE_H

#include "base/text.h"
#include "exec/exec.h"

void trace_print(const struct program *program, const struct op_table *table, const struct trace *trace,
                 struct text *out);

#endif
