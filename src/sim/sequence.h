// The programs of a period as one, to be simulated: each rank runs one after another, and beside them those that have
// begun, on streams of their own.
#ifndef SIM_SEQUENCE_H
#define SIM_SEQUENCE_H

#include "compile/period.h"

// Makes a program of the period's parts, in which no part begins on a rank before the one before it has ended there.
// of_part: the rank's program of each part. It is for the simulator alone: its buffers have no addresses. The caller
// releases *out. TRIREME_ERROR_USAGE: all together have too many streams.
trireme_status sequence_create(struct program *out, const struct period *period, const struct program *const *of_part,
                               trireme_error *error);

#endif
