// The executor's parts. Internal to exec/.
#ifndef EXEC_EXECUTOR_H
#define EXEC_EXECUTOR_H

#include "exec/exec.h"
#include "program/channels.h"

#include <pthread.h>
#include <stdatomic.h>

// Where an operand lies in a given invocation: offset from the start of its arena, and microbatch * step or the base of
// the microbatch's slot further on.
struct location {
    bool state;              // the state arena
    const struct pool *pool; // NULL: not in a slot
    int64_t offset, step;    // bytes
};

// Small, since each rank has its own: what a call is but for this, the instruction says (instruction_call).
struct resolved {
    const struct instruction *instruction;
    void (*run)(const struct call *call);
    void (*release)(void *prepared);
    void *prepared;
    unsigned ways; // that there are to run the call
    enum kernel_way way;
    int threads;
    bool computes;                                     // run by compute's thread, which would only wait for it
    const struct location *at, *workspace, *predicate; // of inputs and then outputs; NULL: none
    int64_t workspace_bytes;
    struct communicator *communicator; // communication: NULL for kernels
    int before[STREAM_COUNT];          // instructions of each stream that come before it in its template
};

struct resolved_template {
    struct resolved *item;
    struct location *locations; // of all items
    int count;
    VEC(int) of[STREAM_COUNT]; // instructions that each stream's thread runs
};

// A stream: how far it has come, for those that wait for it.
struct stream_state {
    _Atomic int64_t done; // instructions, in this run
    bool counted;         // there are others that may wait for it
    bool threaded;        // it has a thread of its own
    pthread_t thread;
    // Where its thread sleeps until instructions of another stream are done; guarded by the executor's mutex.
    pthread_cond_t woken;
    int awaited; // stream; NONE: it does not sleep
    int64_t target;
    int waiters;            // of other streams, or compute that runs its instructions; guarded by the mutex, too
    _Atomic int64_t wanted; // since when there are any (clock_now), 0: there are none
};

struct executor {
    const struct program *program;
    const struct op_table *table;
    struct member member;
    char *state, *step;
    struct resolved_template *templates;
    struct slot_waits slot_waits;
    struct channels channels;
    struct communicator **communicator; // of each channel
    struct stream_state stream[STREAM_COUNT];
    // Runs, and waits that have to sleep.
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    _Atomic int sleepers;
    int64_t runs; // begun
    int finished; // threads of streams that have ended the current run
    bool stop;    // threads are to end
    _Atomic bool failed;
    trireme_error error; // of the first stream that failed
    struct {
        double (*seconds)(void *user, int template, int microbatch); // NULL: kernels run
        void *user;
        int64_t until; // the end of the last invocation
    } pace;
    int threads;
    struct {
        int *core;   // of each thread; NULL: they run where the system puts them
        int *usable; // [count]: that they may run on between runs
        int count;
    } pin;
    struct trace *trace;
    struct counter *counters; // [STREAM_COUNT]; `own` until somebody wants to look
    struct counter own[STREAM_COUNT];
};

// communicate.c: the program's channels; an instruction.
trireme_status channels_open(struct executor *e, trireme_error *error);
void channels_close(struct executor *e);
trireme_status communicate(const struct resolved *r, const struct call *call, trireme_error *error);

// streams.c
trireme_status streams_start(struct executor *executor, trireme_error *error);
void streams_stop(struct executor *executor);
trireme_status streams_run(struct executor *executor, struct trace *trace, trireme_error *error);
// pace.c: in place of a kernel.
void pace(struct executor *executor, const struct resolved *r, const struct invocation *invocation);

// instruction.c: how many locations it has; resolves it, which takes as many from *next. What is resolved may hold
// something to release when it fails, too.
int instruction_locations(const struct instruction *instruction);
trireme_status instruction_resolve(struct executor *executor, struct resolved *out,
                                   const struct instruction *instruction, struct location **next, enum kernel_set set,
                                   trireme_error *error);
// The call without data.
void instruction_call(struct call *call, const struct executor *executor, const struct resolved *r);
// Runs it with addresses of this invocation.
trireme_status instruction_execute(struct executor *executor, const struct resolved *r,
                                   const struct invocation *invocation, trireme_error *error);

#endif
