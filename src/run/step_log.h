// The steps that are done but not recorded yet: what a step came to is known only once all islands have told one
// another. They do so where they meet: after a step with which a fragment sets out, and wherever the run does what all
// ranks do together (saves, validates, ends). With one island all is known at once.
//
// In no other step does an island wait for another, or hear from it. Ranks agree within their island whether all have
// a batch (run/loader.h); that a rank is asked to stop, and whatever else struct control says, travels with the steps.
// Where a fragment arrives some steps after it has set out, so does what islands tell: to hear it takes no more waiting
// than the fragment. Islands may be late by themselves, and are lost only if each step since the last meeting could
// have taken as long as ranks wait (comm.train_timeout_seconds). Internal to run/.
#ifndef RUN_STEP_LOG_H
#define RUN_STEP_LOG_H

#include "engine/engine.h"
#include "run/loader.h"
#include "run/train.h"

struct logged_step {
    struct train_step step;
    struct engine_result result; // of this rank's island; of all once that is known
};

struct step_log {
    VEC(struct logged_step) steps; // in order
    size_t known;                  // of how many of them, the first ones, it is known what all islands did
    int64_t met;                   // the last step that all islands are known to have done
    // What islands are telling one another: struct control, and of each island what it did in the steps behind those.
    double *told; // NULL: nothing
    size_t steps_told;
    struct comm_handle telling;
};

struct run;
// Once the programs are there: opens what ranks agree over within an island.
trireme_status step_log_create(struct run *run, trireme_error *error);
// To be called after communicators are freed: one may still tell.
void step_log_release(struct step_log *log);
// After a step on every rank, whose own island has agreed on `inner`, and which itself has to say `own`. Adds the step,
// and tells or hears where that is due; it is due on all ranks where they do something `together` after this step. Sets
// run->agreed. Where all are to do something together because of what they have agreed on, they have all done the same
// steps. Fails where a rank is lost; and where one has no next batch at a step after which islands do not meet.
trireme_status step_log_agree(struct run *run, const struct engine_result *result, const struct control *inner,
                              const struct control *own, bool together, trireme_error *error);

// Forgets the steps that are known, which have been recorded.
void step_log_forget(struct step_log *log);

#endif
