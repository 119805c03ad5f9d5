// Where each stream of a rank stands in its program. Who runs its instructions, the stream's thread or compute's for
// it, writes with plain stores as it goes, so that anybody who maps the same memory may look at any time, at what a
// dead process left behind too; what is read while it changes may be torn.
#ifndef EXEC_COUNTERS_H
#define EXEC_COUNTERS_H

#include "program/program.h"

enum counter_state {
    COUNTER_IDLE,    // between programs, or instructions
    COUNTER_WAITING, // for another stream of this rank
    COUNTER_RUNNING, // a kernel
    COUNTER_MEETING, // in communication
    COUNTER_STATES
};

struct counter {
    int64_t since; // clock_now, of WAITING and MEETING
    int32_t state;
    int32_t invocation, instruction; // the last begun: of the schedule, of its template
    int32_t op, phase, layer, microbatch;
    int32_t awaited; // WAITING: the stream
    uint32_t group;  // MEETING: axes
    int32_t peer;    // as in struct instruction
    int32_t padding[4];
};
_Static_assert(sizeof(struct counter) == 64, "part of a file; a cache line each");

#endif
