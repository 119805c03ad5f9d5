// Barrier: a meeting for which all have posted the same call.
#include "comm/threads/threads.h"

trireme_status barrier_meeting(struct thread_communicator *c, const struct comm_call *call, trireme_error *error) {
    return call_post(c, call, error);
}
