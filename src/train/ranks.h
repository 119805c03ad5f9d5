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
// has died within `body`, *stuck is set: `user` and what it names must stay.
trireme_status ranks_run_guarded(int ranks, double deadline,
                                 trireme_status (*body)(void *user, const struct member *member, trireme_error *error),
                                 void *user, bool *stuck, trireme_error *error);
// Opens, on every rank, the communicator of all by number, for what they agree on; NULL for nobody's member.
trireme_status ranks_control(struct communicator **out, const struct member *member, int ranks, trireme_error *error);
// A barrier of all ranks; nothing where there is no communicator, for one stands alone.
trireme_status ranks_meet(struct communicator *all, trireme_error *error);

#endif
