// The executor's parts. Internal to exec/.
#ifndef EXEC_EXECUTOR_H
#define EXEC_EXECUTOR_H

#include "exec/exec.h"
#include "program/channels.h"

#include <pthread.h>
#include <stdatomic.h>

// What is known of an instruction once for all runs. Small, since each rank has its own: the rest of its call follows
// from the instruction (instruction_call), and the addresses of operands from their buffers.
struct resolved {
    const struct instruction *instruction;
    void (*run)(const struct call *call);
    void (*release)(void *prepared);
    void *prepared;
    // Of calls whose rows are counted at run time: the kernel (struct kernel), where it says what workspace it needs.
    trireme_status (*prepare)(const struct call *call, void **prepared, int64_t *workspace_bytes, trireme_error *error);
    struct communicator *communicator; // communication: NULL for kernels
    uint8_t ways;                      // the ways to run the call: bit w for way w
    uint8_t way;                       // the one to take (enum kernel_way)
    bool bounded;                      // some operands have extents
    bool updates;                      // changes what checkpoints keep
    bool computes;                     // of another stream, but run by compute's thread, which would only wait for it
};
_Static_assert(KERNEL_WAYS <= 8, "as many bits");

struct resolved_template {
    struct resolved *item;
    int count;
    int *before;              // [count + 1][slot_waits.columns]: how many of each stream's come before each
    VEC(int) of[STREAMS_MAX]; // instructions that each stream's thread runs
};

// A stream: how far it has come, for those that wait for it.
struct stream_state {
    _Atomic int64_t done; // instructions, in this run
    bool threaded;        // it has a thread of its own
    pthread_t thread;
    // Where its thread sleeps until instructions of a stream are done; guarded by the mutex of struct streams.
    pthread_cond_t woken;
    int awaited;    // the stream; NONE: it does not sleep
    int64_t target; // how many of that stream's must be done
    int waiters; // threads that wait for this stream, or compute's while it runs its instructions; guarded by the mutex
    _Atomic int64_t wanted; // since when there are waiters (clock_now), 0: there are none
};

struct streams {
    struct member member;
    int threads; // of kernels
    struct {
        int *core;   // of each thread; NULL: they run where the system puts them
        int *usable; // [count]: where they may run between runs
        int count;
    } pin;
    struct space_file file[SPACE_COUNT];      // of spaces without addresses
    struct mesh mesh;                         // of the programs
    struct channels channels;                 // those that are open
    VEC(struct communicator *) communicators; // of each channel
    struct stream_state stream[STREAMS_MAX];
    // For the beginning and end of runs, and for waits that sleep.
    pthread_mutex_t mutex;
    pthread_cond_t changed; // a run has begun, a stream's thread has ended it, or threads are to end
    _Atomic int sleepers;
    struct executor *running;
    int64_t runs; // begun
    int finished; // threads of streams that have ended the current run
    bool stop;    // threads are to end
    _Atomic bool failed;
    trireme_error error;              // of the first stream that failed
    struct stream_counters *counters; // `own`, unless streams_count_in gave others
    struct stream_counters own;
};

struct executor {
    struct streams *streams;
    const struct program *program;
    const struct op_table *table;
    char *state, *step;
    struct resolved_template *templates;
    struct slot_waits slot_waits;
    bool counted[STREAMS_MAX]; // what the stream has done is counted, since others may wait for it
    struct {
        double (*seconds)(void *user, int template, int microbatch); // NULL: kernels run
        void *user;
        int64_t until; // when the last invocation ends
    } pace;
    struct {
        trireme_status (*call)(void *user, trireme_error *error); // NULL: none
        void *user;
    } before_update;
    struct trace *trace; // of the current run
};

// communicate.c: opens the channels that the program needs and are not open; runs a communication.
trireme_status channels_open(struct streams *streams, const struct program *program, const struct op_table *table,
                             trireme_error *error);
void channels_close(struct streams *streams);
// What calls of ops whose rows go where counts say need: the resolved instruction's `prepared`, freed with free().
void *exchange_create(const struct communicator *communicator);
trireme_status communicate(const struct resolved *r, const struct call *call, trireme_error *error);

// transfer.c: refuses what cannot be moved; moves a value to another space, of the microbatch at hand.
trireme_status transfer_check(const struct executor *executor, const struct instruction *instruction,
                              trireme_error *error);
trireme_status transfer(const struct executor *executor, const struct instruction *instruction, int microbatch,
                        trireme_error *error);

// streams.c: starts the threads that the program needs; runs it; pins the kernels' threads for a run, and undoes that.
trireme_status streams_start(struct executor *executor, trireme_error *error);
trireme_status streams_run(struct executor *executor, trireme_error *error);
void kernels_pin(struct streams *streams);
void kernels_unpin(struct streams *streams);
// pace.c: called in place of a kernel (executor_pace).
void pace(struct executor *executor, const struct resolved *r, const struct invocation *invocation);

// How many instructions of the stream come before this one in its template.
static inline int resolved_before(const struct executor *executor, const struct resolved_template *t, int index,
                                  int stream) {
    const struct slot_waits *waits = &executor->slot_waits;
    const int column = waits->column[stream];
    return column == NONE ? 0 : t->before[(size_t)index * (size_t)waits->columns + (size_t)column];
}

// instruction.c: resolves an instruction. On failure, too, *out may hold something to release.
trireme_status instruction_resolve(struct executor *executor, struct resolved *out,
                                   const struct instruction *instruction, enum kernel_set set, trireme_error *error);
// Where element `offset` of a buffer lies in its arena, in bytes; of several instances or slots, in the microbatch's.
int64_t instruction_place(const struct executor *executor, int buffer, int64_t offset, int microbatch);
// The operand's first element: `offset` of the same. Where the rank's own part begins is taken into account.
int64_t instruction_first(const struct executor *executor, const struct operand *operand);
// Its call, without data.
void instruction_call(struct call *call, const struct executor *executor, const struct resolved *r);
// Runs it in an invocation.
trireme_status instruction_execute(struct executor *executor, const struct resolved *r,
                                   const struct invocation *invocation, trireme_error *error);

#endif
