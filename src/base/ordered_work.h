// Work on a stream, in order and on several threads: the caller fills slots one after the other, threads work on them,
// and the caller ends them in the order in which it filled them. So the result depends on no thread.
#ifndef BASE_ORDERED_WORK_H
#define BASE_ORDERED_WORK_H

#include "base/base.h"

struct ordered_work;

struct ordered_work_options {
    int threads; // that work, beside the caller; where fewer than 2, or none can be started, the caller works itself
    int slots;   // at least 1
    // What a thread does with a slot; `thread` is in [0, threads). What goes wrong it leaves in the slot.
    void (*work)(void *user, int thread, int slot);
    // Called by the caller's thread, in order, when the work is done. Its failure ends the work.
    trireme_status (*end)(void *user, int slot, trireme_error *error);
    void *user;
};

struct ordered_work *ordered_work_create(const struct ordered_work_options *options);
// *slot: the next one to fill. Where all are in use, waits for the oldest and ends it.
trireme_status ordered_work_next(struct ordered_work *w, int *slot, trireme_error *error);
// Hands over the slot that ordered_work_next gave.
void ordered_work_start(struct ordered_work *w);
// Ends all slots that were handed over.
trireme_status ordered_work_finish(struct ordered_work *w, trireme_error *error);
// Ends no further slot: waits for the work that was begun, and frees. NULL is fine.
void ordered_work_free(struct ordered_work *w);

#endif
