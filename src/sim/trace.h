// A simulated step for looking at: as a Chrome trace, which Perfetto opens, and as a picture (picture.h). Both need the
// events (simulation_options.events).
#ifndef SIM_TRACE_H
#define SIM_TRACE_H

#include "sim/picture.h"
#include "sim/simulate.h"

enum { SIM_TRACE_EVENTS_MAX = 2000000 };

// Appends a process for each of the ranks, with a thread for each stream. TRIREME_ERROR_USAGE: more events than that.
trireme_status sim_trace_print(const struct simulation *simulation, const struct op_table *table, const int *ranks,
                               int count, struct text *out, trireme_error *error);
// Appends a row for each class of ranks: passes, from their first computing instruction to their last, and the update.
// TRIREME_ERROR_USAGE: too many boxes.
trireme_status sim_picture_print(const struct simulation *simulation, const char *title, struct text *out,
                                 trireme_error *error);

#endif
