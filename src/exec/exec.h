// exec/: runs a verified, planned program on kernels and a transport, in memory that the caller gives. Knows no model
// and no file. Includes base/, mesh/, program/, kernels/, comm/; never sim/.
#ifndef EXEC_EXEC_H
#define EXEC_EXEC_H

#include "comm/comm.h"
#include "exec/counters.h"
#include "kernels/choices.h"

struct streams;
struct executor;

// One instruction of a traced run; times in nanoseconds of clock_now.
struct trace_event {
    int invocation, instruction;
    int64_t begin, end;
};
struct trace {
    VEC(struct trace_event) events;
};

// Where a program runs: the ranks it may reach and which of them this is. A program of one rank needs no world.
struct member {
    struct world *world;
    int rank;
};

// What the programs of one rank run on, one program at a time: `threads` of kernels, the thread that calls included, a
// thread for each other stream, and communicators. Executors start and open here what their programs need and the ones
// before did not: all of them are for the same mesh. `member` (copied) may be NULL where programs have one rank.
struct streams *streams_create(const struct member *member, int threads);
// After all executors that run on them.
void streams_free(struct streams *streams);
// Keeps the streams' counters in counters[STREAM_COUNT], which must outlive them. Not during a run.
void streams_count_in(struct streams *streams, struct counter *counters);
// From now on, and once: while a program runs, thread i of the kernels runs on core[i] alone; the threads of streams
// run where they may. Between runs all may run where the calling thread may now.
void streams_pin(struct streams *streams, const int *core);

// Prepares every instruction of `program`, which must outlive the executor, as must both arenas: `state` has at least
// state_bytes, `step` step_bytes; both 64-byte aligned. Opens a communicator per group and stream: all ranks of a world
// create the executors of their programs in the same order. No run allocates.
trireme_status executor_create(struct executor **out, struct streams *streams, const struct program *program,
                               const struct op_table *table, enum kernel_set set, void *state, void *step,
                               trireme_error *error);
void executor_free(struct executor *executor);
// Runs the program once. A `trace` (NULL for none) must have room: executor_trace_reserve. Without communication it
// cannot fail; else TRIREME_ERROR_LOST, the message naming stream and instruction.
trireme_status executor_run(struct executor *executor, struct trace *trace, trireme_error *error);
// From now on no kernel runs: an invocation's compute takes `seconds(user, template, microbatch)` of sleep instead,
// counted from the end of the one before where what it waits for was there by then, so that late wake-ups do not add
// up. Streams, waits and communication are what they are. For measuring schedules.
void executor_pace(struct executor *executor, double (*seconds)(void *user, int template, int microbatch), void *user);
// Adds to `choices` what they lack of the program's calls, timed as the program's kernels run, which is to be `runs`
// times (choices_measure). Arenas are not touched. Before the first run.
trireme_status executor_measure(const struct executor *executor, struct choices *choices, int64_t runs,
                                trireme_error *error);
// From now on kernels run in the ways that were chosen; all others by their rules. Not during a run.
void executor_choose(struct executor *executor, const struct choices *choices);
// Seconds that the chosen ways save in a run, by what was measured.
double executor_saves(const struct executor *executor, const struct choices *choices);
void executor_trace_reserve(const struct executor *executor, struct trace *trace);
// Where a buffer lies; `microbatch` chooses the instance of MICROBATCH buffers, and the slot of SLOT ones.
void *executor_address(const struct executor *executor, int buffer, int microbatch);

#endif
