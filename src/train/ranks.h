// Ranks as threads of this process.
#ifndef TRAIN_RANKS_H
#define TRAIN_RANKS_H

#include "exec/exec.h"

// Runs `body` once per rank, each on a thread of its own, in one world (comm/comm.h; `deadline` in seconds); a single
// rank on the caller's thread, as nobody's member (NULL). When one fails, the world breaks, so that the others end too.
// The status and error are those of the rank that failed first. Refused with more ranks than a process has room for.
trireme_status ranks_run(int ranks, double deadline,
                         trireme_status (*body)(void *user, const struct member *member, trireme_error *error),
                         void *user, trireme_error *error);
// The same, but threads that have not ended some seconds after the first failure are left behind. Then, and when one
// has died within `body`, *stuck is set: `user` and what it names must stay. NULL: as ranks_run.
trireme_status ranks_run_guarded(int ranks, double deadline,
                                 trireme_status (*body)(void *user, const struct member *member, trireme_error *error),
                                 void *user, bool *stuck, trireme_error *error);
// Opens, on every rank, the communicator of all by number, for what they agree on; NULL for nobody's member.
trireme_status ranks_control(struct communicator **out, const struct member *member, int ranks, trireme_error *error);
// Rank 0 does what may take longer than any other wait: it tells now and then that it goes on (`all`, a struct
// communicator *; where another rank is lost, what comes next fails), and once that it has ended. The others wait.
// Nothing where there is no communicator.
void ranks_tell_more(void *all);
trireme_status ranks_tell_end(struct communicator *all, trireme_error *error);
trireme_status ranks_await_end(struct communicator *all, trireme_error *error);
// A barrier of all ranks; nothing where there is no communicator, for one stands alone.
trireme_status ranks_meet(struct communicator *all, trireme_error *error);

#endif
