// Where each stream of a rank stands in its program. The thread that runs a stream's instructions, its own or compute's
// on its behalf, writes with plain stores as it goes, so that anybody who maps the same memory may look at any time,
// even when the process has died; what is read while it changes may be torn.
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
    int64_t since;                   // clock_now when it began WAITING or MEETING
    int32_t state;                   // enum counter_state
    int32_t invocation, instruction; // the last begun: number in the schedule, number in its template
    int32_t op, phase, layer, microbatch;
    int32_t awaited; // WAITING: for this stream
    uint32_t group;  // MEETING: axes
    int32_t peer;    // as in struct instruction
    int32_t padding[4];
};
_Static_assert(sizeof(struct counter) == 64, "part of a file; a cache line each");

// Those of all streams, with the streams' names; an empty name: there is no such stream. And the program that they run,
// or ran last; empty: none yet.
enum { COUNTERS_PROGRAM = 24 }; // bytes, with the 0
struct stream_counters {
    struct counter of[STREAMS_MAX];
    char name[STREAMS_MAX][STREAM_NAME];
    char program[COUNTERS_PROGRAM];
};

#endif
