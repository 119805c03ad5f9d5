// Ranks as processes, which mpirun or srun has started; the sibling of ranks.h.
#ifndef LAUNCH_PROCESSES_H
#define LAUNCH_PROCESSES_H

#include "config/config.h"
#include "exec/exec.h"

// The launcher that started this process, as far as the environment tells.
struct launcher {
    const char *name; // "mpirun", "srun", "torchrun"; NULL: none
    int ranks, rank;  // 1 and 0 without a launcher, or where it has started one process
    bool ends_all;    // whether it ends all processes when one has failed
};
struct launcher launcher_find(void);
// How many processes the launcher has started, this one among them. The script or shell of a Slurm job is one process
// by itself, whatever the job's number of tasks; and so is each process of a container that has torchrun's variables.
int launcher_processes(const struct launcher *launcher);
// Whether ranks are to be processes: several were started, or a job's script has several tasks, so that it was meant to
// be started by srun, and the configuration does not give a number of ranks, which are then threads.
bool launcher_means_processes(const struct launcher *launcher, const struct config *config);

// For a process that fails before the ranks know of one another, when it is not known whether all fail or this one
// alone. On rank 0 it returns at once, so that rank 0 reports the error. On other ranks it returns only after the
// launcher would have ended them because rank 0 failed; or says that another one reports it (error_is_reported_here).
void processes_let_first_tell(const struct launcher *launcher, trireme_error *error);

// Runs `body` as the rank of this process, one of many, in one world (comm/comm.h; `deadline` in seconds). Before that,
// `config` gets parallelism.ranks and training.threads as they follow from the launcher; all processes then call
// `prepare`, and go on only if it succeeds everywhere. The configuration, and what `identify` (may be NULL) appends, a
// line for each fact, must be the same on all ranks.
//
// One rank alone reports an error (error_is_reported_here): that a rank is lost, the lowest that is left.
struct processes_work {
    void *user;
    trireme_status (*prepare)(void *user, trireme_error *error);
    trireme_status (*identify)(void *user, struct text *out, trireme_error *error);
    trireme_status (*body)(void *user, const struct member *member, trireme_error *error);
};
trireme_status processes_run(const struct launcher *launcher, double deadline, struct config *config,
                             const struct processes_work *work, trireme_error *error);
// Runs ranks as processes where `many` were started (processes_run); otherwise all of them as threads of this process
// (ranks_run_guarded), as many as *mesh has once `prepare` has succeeded. Waits have a deadline of
// comm.train_timeout_seconds, but at least 20 s, since threads and memory come with the first step. Refuses more
// threads than the cores to which a launcher has bound the process.
trireme_status processes_or_threads_run(const struct launcher *launcher, bool many, struct config *config,
                                        const struct processes_work *work, const struct mesh *mesh, bool *stuck,
                                        trireme_error *error);
// For a process that cannot even begin: takes part in agreeing with the others, in place of processes_run. Returns
// `status`, or the status with which another rank fails. Rank 0 reports the error, if the processes find one another.
trireme_status processes_refuse(const struct launcher *launcher, trireme_status status, trireme_error *error);

#endif
