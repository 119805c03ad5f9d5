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
    bool threaded;        // it has a thread of its own
    pthread_t thread;
    // Where its thread sleeps until instructions of another stream are done; guarded by the streams' mutex.
    pthread_cond_t woken;
    int awaited; // stream; NONE: it does not sleep
    int64_t target;
    int waiters;            // of other streams, or compute that runs its instructions; guarded by the mutex, too
    _Atomic int64_t wanted; // since when there are any (clock_now), 0: there are none
};

struct streams {
    struct member member;
    int threads; // of kernels
    struct {
        int *core;   // of each thread; NULL: they run where the system puts them
        int *usable; // [count]: that they may run on between runs
        int count;
    } pin;
    struct mesh mesh;                         // of the programs
    struct channels channels;                 // that are open
    VEC(struct communicator *) communicators; // of each
    struct stream_state stream[STREAM_COUNT];
    // Runs, and waits that have to sleep.
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    _Atomic int sleepers;
    struct executor *running;
    int64_t runs; // begun
    int finished; // threads of streams that have ended the current run
    bool stop;    // threads are to end
    _Atomic bool failed;
    trireme_error error;      // of the first stream that failed
    struct counter *counters; // [STREAM_COUNT]; `own` until somebody wants to look
    struct counter own[STREAM_COUNT];
};

struct executor {
    struct streams *streams;
    const struct program *program;
    const struct op_table *table;
    char *state, *step;
    struct resolved_template *templates;
    struct slot_waits slot_waits;
    bool counted[STREAM_COUNT]; // there are other streams that may wait for it
    struct {
        double (*seconds)(void *user, int template, int microbatch); // NULL: kernels run
        void *user;
        int64_t until; // the end of the last invocation
    } pace;
    struct trace *trace; // of the current run
};

// communicate.c: channels that the program needs; an instruction.
trireme_status channels_open(struct streams *streams, const struct program *program, const struct op_table *table,
                             trireme_error *error);
void channels_close(struct streams *streams);
trireme_status communicate(const struct resolved *r, const struct call *call, trireme_error *error);

// streams.c: threads that the program needs; a run of it; kernels' threads, while they run and in between.
trireme_status streams_start(struct executor *executor, trireme_error *error);
trireme_status streams_run(struct executor *executor, trireme_error *error);
void kernels_pin(struct streams *streams);
void kernels_unpin(struct streams *streams);
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
