// A simulated step for looking at: as a Chrome trace, which Perfetto opens, and as a picture (picture.h). Both need the
// events (simulation_options.events).
#ifndef SIM_TRACE_H
#define SIM_TRACE_H

#include "sim/picture.h"
#include "sim/simulate.h"

// Appends the ranks that are wanted, [ranks]. TRIREME_ERROR_USAGE: more than TIMELINE_EVENTS_MAX events.
trireme_status sim_trace_print(const struct simulation *simulation, const struct op_table *table, const bool *wanted,
                               struct text *out, trireme_error *error);
// Appends a row for each class of ranks: passes, from their first computing instruction to their last, and the update.
// TRIREME_ERROR_USAGE: too many boxes.
trireme_status sim_picture_print(const struct simulation *simulation, const char *title, struct text *out,
                                 trireme_error *error);

#endif
