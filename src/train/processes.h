// Ranks as processes, which mpirun or srun has started; the sibling of ranks.h.
#ifndef TRAIN_PROCESSES_H
#define TRAIN_PROCESSES_H

#include "config/config.h"
#include "exec/exec.h"

// What the environment says of who started this process.
struct launcher {
    const char *name; // "mpirun", "srun", "torchrun"; NULL: nobody that starts ranks
    int ranks, rank;  // 1 and 0 then, or where it has started one
    bool ends_all;    // when one process has failed
};
struct launcher launcher_find(void);
// How many processes it has started, of which this is one: a job's script, or its shell, is one by itself, however many
// tasks Slurm has for it; and so is every process of a container that has torchrun's variables.
int launcher_processes(const struct launcher *launcher);

// Of a process that fails before the ranks know of each other, as all may do or this one alone: rank 0 tells at once.
// Others return after the launcher would have ended them for that, or their message is empty.
void processes_let_first_tell(const struct launcher *launcher, trireme_error *error);

// One process of many runs `body` as its rank, in one world (comm/comm.h; `deadline` in seconds). Before that, `config`
// gets parallelism.ranks and training.threads as they follow from the launcher; all processes then call `prepare`, and
// go on only if it succeeds everywhere. What `identify` adds, a line per fact, must be the same on all ranks, as must
// the configuration.
//
// An error is told by one rank alone: for the others its message is empty. Of a rank that is lost all others tell.
struct processes_work {
    void *user;
    trireme_status (*prepare)(void *user, trireme_error *error);
    trireme_status (*identify)(void *user, struct text *out, trireme_error *error);
    trireme_status (*body)(void *user, const struct member *member, trireme_error *error);
};
trireme_status processes_run(const struct launcher *launcher, double deadline, struct config *config,
                             const struct processes_work *work, trireme_error *error);
// Ranks as processes, where `many` were started; else all as threads of this one (ranks_run_guarded), as many as *mesh
// has once `prepare` has succeeded. They wait for one another as long as comm.train_timeout_seconds, or as long as all
// need to begin. Refuses more threads than a process that a launcher has started is bound to cores.
trireme_status processes_or_threads_run(const struct launcher *launcher, bool many, struct config *config,
                                        const struct processes_work *work, const struct mesh *mesh, bool *stuck,
                                        trireme_error *error);
// Of a process that cannot even begin: agrees with the others, in place of processes_run. Returns `status`, or what
// another rank fails with; the message is rank 0's, unless they do not find together.
trireme_status processes_refuse(const struct launcher *launcher, trireme_status status, trireme_error *error);

#endif
