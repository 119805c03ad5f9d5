// exec/: runs a verified, planned program on kernels and a transport, in memory that the caller gives. Knows no model,
// and of files only the one that a memory space lies in. Includes base/, mesh/, program/, kernels/, comm/; never sim/.
#ifndef EXEC_EXEC_H
#define EXEC_EXEC_H

#include "base/unnamed_file.h"
#include "comm/comm.h"
#include "exec/counters.h"
#include "kernels/choices.h"

struct streams;
struct executor;

// One instruction of a traced run; times are those of clock_now, in nanoseconds.
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

// What the programs of one rank run on, one program at a time: `threads` threads for kernels, the calling one included,
// a thread for each other stream, and communicators. An executor starts and opens here what its program needs and
// earlier ones did not; all programs are for the same mesh. `member` (copied) may be NULL where programs have one rank.
struct streams *streams_create(const struct member *member, int threads);
// To be called after all executors that run on them have been freed.
void streams_free(struct streams *streams);
// Keeps the streams' counters in *counters, which must outlive them. Not during a run.
void streams_count_in(struct streams *streams, struct stream_counters *counters);
// communicator_patience for those over groups with one of the axes.
void streams_patience(struct streams *streams, axis_set axes, int64_t times);
// Where the buffers of a space lie that have no address: in a file, the state arena from byte `state` on and the step
// arena from `step` on.
struct space_file {
    const struct unnamed_file *file;
    int64_t state, step;
};
// To be called for each such space that programs use, before their executors are created. The file must outlive them.
void streams_use_file(struct streams *streams, enum memory_space space, struct space_file file);
// From now on, while a program runs, thread i of the kernels runs on core[i] alone; the streams' threads run anywhere.
// Between runs all may run where the calling thread may now. To be called no more than once.
void streams_pin(struct streams *streams, const int *core);

// Prepares every instruction of `program`, which must outlive the executor, as must both arenas of the device: `state`
// of at least state_bytes, `step` of step_bytes, both 64-byte aligned. Opens a communicator for each group and channel
// that the streams lack: all ranks of a world must create the executors of their programs in the same order. Runs
// allocate nothing. Refuses a workspace that is too small for its kernel (TRIREME_ERROR_PROGRAM); TRIREME_ERROR_LOST
// where other ranks open other groups; TRIREME_ERROR_IO where no thread can be started. Then there is nothing to free.
trireme_status executor_create(struct executor **out, struct streams *streams, const struct program *program,
                               const struct op_table *table, enum kernel_set set, void *state, void *step,
                               trireme_error *error);
void executor_free(struct executor *executor);
// Runs the program once. A `trace` (NULL for none) must have room: executor_trace_reserve. A program without
// communication and transfers fails only where before_update does; others may with TRIREME_ERROR_LOST, or where a file
// cannot be read or written with TRIREME_ERROR_IO, which ends the run on all ranks. The message names stream and
// instruction.
trireme_status executor_run(struct executor *executor, struct trace *trace, trireme_error *error);
// For measuring schedules: from now on no kernel runs; instead, the compute of each invocation sleeps for seconds(user,
// template, microbatch). If what it waits for was there when the invocation before ended, the time counts from that
// end, so that late wake-ups do not add up. Streams, waits and communication remain.
void executor_pace(struct executor *executor, double (*seconds)(void *user, int template, int microbatch), void *user);
// From now on, call(user) is called before each instruction that changes parameters or what an optimizer keeps, on the
// thread that runs it: somebody may still read the old values (ckpt/saver.h). Where it fails, nothing is changed, and
// the run of the program fails. NULL: no more.
void executor_before_update(struct executor *executor, trireme_status (*call)(void *user, trireme_error *error),
                            void *user);
// Adds to `choices` those of the program's calls that they lack, timed under the conditions of a run; the program will
// run `runs` times (choices_measure). Arenas are not touched. To be called before the first run. TRIREME_ERROR_MEMORY
// where there is no room for operands; then some are not timed.
trireme_status executor_measure(const struct executor *executor, struct choices *choices, int64_t runs,
                                trireme_error *error);
// From now on calls run in the ways that `choices` has for them, others by the rule. Not during a run.
void executor_choose(struct executor *executor, const struct choices *choices);
// Seconds that the chosen ways save in a run, by what was measured.
double executor_saves(const struct executor *executor, const struct choices *choices);
// Makes room in `trace` for one run.
void executor_trace_reserve(const struct executor *executor, struct trace *trace);
// The address of a buffer of a space that has addresses; `microbatch` chooses the instance of MICROBATCH buffers, and
// the slot of SLOT ones.
void *executor_address(const struct executor *executor, int buffer, int microbatch);

#endif
