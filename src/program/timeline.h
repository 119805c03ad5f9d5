// Instructions over time as a Chrome trace (JSON object format), which Perfetto and chrome://tracing open: a process
// for each rank, a thread for each of its streams. Begin, then names and events in any order, then end.
#ifndef PROGRAM_TIMELINE_H
#define PROGRAM_TIMELINE_H

#include "program/program.h"

// Hardly any program opens a trace of more events, and nobody would look at them.
enum { TIMELINE_EVENTS_MAX = 2000000 };

struct timeline_event {
    int invocation, instruction; // of the program
    int rank;
    int track;         // 0; programs that run at one time have different ones, and so other threads in the trace
    double begin, end; // seconds
};

void timeline_begin(struct text *out);
void timeline_end(struct text *out);
void timeline_name_rank(struct text *out, int rank);
void timeline_name_stream(struct text *out, const struct program *program, int rank, int track, int stream);
// Appends an event with its instruction, layer and microbatch. The caller may add further members to its "args" before
// timeline_close_event.
void timeline_open_event(struct text *out, const struct program *program, const struct op_table *table,
                         const struct timeline_event *event);
void timeline_close_event(struct text *out);

#endif
