// The executor's parts. Internal to exec/.
#ifndef EXEC_EXECUTOR_H
#define EXEC_EXECUTOR_H

#include "exec/exec.h"
#include "program/channels.h"

#include <pthread.h>
#include <stdatomic.h>

// Small, since each rank has its own: what a call is but for this, the instruction says (instruction_call), and where
// its operands lie, their buffers.
struct resolved {
    const struct instruction *instruction;
    void (*run)(const struct call *call);
    void (*release)(void *prepared);
    void *prepared;
    struct communicator *communicator; // communication: NULL for kernels
    uint8_t ways;                      // that there are to run the call: bit w for way w
    uint8_t way;                       // enum kernel_way
    bool computes;                     // run by compute's thread, which would only wait for it
};
_Static_assert(KERNEL_WAYS <= 8, "as many bits");

struct resolved_template {
    struct resolved *item;
    int count;
    int *before;               // instructions of each stream that come before each: [count][slot_waits.columns]
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

// Instructions of the stream that come before this one in its template.
static inline int resolved_before(const struct executor *executor, const struct resolved_template *t, int index,
                                  int stream) {
    const struct slot_waits *waits = &executor->slot_waits;
    const int column = waits->column[stream];
    return column == NONE ? 0 : t->before[(size_t)index * (size_t)waits->columns + (size_t)column];
}

// instruction.c: resolves it. What is resolved may hold something to release when it fails, too.
trireme_status instruction_resolve(struct executor *executor, struct resolved *out,
                                   const struct instruction *instruction, enum kernel_set set, trireme_error *error);
// The call without data.
void instruction_call(struct call *call, const struct executor *executor, const struct resolved *r);
// Runs it with addresses of this invocation.
trireme_status instruction_execute(struct executor *executor, const struct resolved *r,
                                   const struct invocation *invocation, trireme_error *error);

#endif
