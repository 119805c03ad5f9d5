// A simulated step for people to look at: as a Chrome trace, which Perfetto opens, and as a picture (picture.h). Both
// need the simulation's events (simulation_options.events).
#ifndef SIM_SIM_TRACE_H
#define SIM_SIM_TRACE_H

#include "sim/picture.h"
#include "sim/simulate.h"

// Appends the trace of the ranks that wanted[ranks] names. TRIREME_ERROR_USAGE: more than TIMELINE_EVENTS_MAX events.
trireme_status sim_trace_print(const struct simulation *simulation, const struct op_table *table, const bool *wanted,
                               struct text *out, trireme_error *error);
// Appends the picture, with a row for each class of ranks and a box for each pass, from its first computing instruction
// to its last, and for the update. TRIREME_ERROR_USAGE: too many boxes.
trireme_status sim_picture_print(const struct simulation *simulation, const char *title, struct text *out,
                                 trireme_error *error);

#endif
