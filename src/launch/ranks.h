// Ranks as threads of this process.
#ifndef LAUNCH_RANKS_H
#define LAUNCH_RANKS_H

#include "exec/exec.h"

// Runs `body` once per rank, each on a thread of its own, in one world (comm/comm.h; `deadline` in seconds); a single
// rank on the caller's thread, with member NULL. When a rank fails, the world breaks, so that the others end too. The
// status and error are those of the rank that failed first. Refuses more ranks than a process has room for.
trireme_status ranks_run(int ranks, double deadline,
                         trireme_status (*body)(void *user, const struct member *member, trireme_error *error),
                         void *user, trireme_error *error);
// The same, but threads that have not ended some seconds after the first failure are left behind. In that case, and
// when a thread has died within `body`, *stuck is set: `user` and everything that it points to must stay in place. With
// `stuck` NULL it is ranks_run.
trireme_status ranks_run_guarded(int ranks, double deadline,
                                 trireme_status (*body)(void *user, const struct member *member, trireme_error *error),
                                 void *user, bool *stuck, trireme_error *error);
// Opens on every rank a communicator of all ranks by number, called `name`. *out is NULL where `member` is.
trireme_status ranks_open(struct communicator **out, const struct member *member, int ranks, const char *name,
                          trireme_error *error);
// The one over which ranks agree on things.
trireme_status ranks_control(struct communicator **out, const struct member *member, int ranks, trireme_error *error);
// For work of rank 0 that may take longer than ranks wait otherwise. Rank 0 calls ranks_tell_more now and then (`all`
// is a struct communicator *; if another rank is lost, the next call on it fails) and ranks_tell_end once it is done.
// The other ranks call ranks_await_end. Of a part of the work that all do together, rank 0 tells by ranks_tell_part,
// and does its own; each of the others then does `part` (NULL: there is none). Without a communicator they do nothing.
struct ranks_part {
    trireme_status (*work)(void *user, trireme_error *error);
    void *user;
};
void ranks_tell_more(void *all);
trireme_status ranks_tell_part(struct communicator *all, trireme_error *error);
trireme_status ranks_tell_end(struct communicator *all, trireme_error *error);
trireme_status ranks_await_end(struct communicator *all, const struct ranks_part *part, trireme_error *error);
// For work that each rank does at its own pace, and that may take longer than ranks wait otherwise: each calls
// ranks_work_on now and then (`work` is its struct ranks_work *; if another rank is lost, ranks_work_end fails), and
// ranks_work_end once its part is done, which returns when those of all ranks are. Without a communicator they do
// nothing.
struct ranks_work {
    struct communicator *all;
    int64_t next; // when to meet the others again, on the clock of clock_now
};
struct ranks_work ranks_work_begin(struct communicator *all);
void ranks_work_on(void *work);
trireme_status ranks_work_end(struct ranks_work *work, trireme_error *error);
// A barrier of all ranks. This and the next four do nothing without a communicator.
trireme_status ranks_meet(struct communicator *all, trireme_error *error);
// Each of values[count] becomes its sum over all ranks, or the greatest; *value the greatest of all ranks; the bytes
// those of rank 0.
trireme_status ranks_sum(struct communicator *all, double *values, int64_t count, trireme_error *error);
trireme_status ranks_most(struct communicator *all, double *values, int64_t count, trireme_error *error);
trireme_status ranks_max(struct communicator *all, int32_t *value, trireme_error *error);
trireme_status ranks_share(struct communicator *all, void *data, size_t bytes, trireme_error *error);

#endif
