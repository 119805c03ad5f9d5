// When a run saves, and what happens where that fails.
//
// A save begins after a step, and goes on in the background while the next ones are done (run/checkpoint_saver.h): a
// step waits for it only before it changes what is not copied yet. During each step the ranks agree whether all are
// done with it. One that fails is tried again at once, with the values as they are then; if that fails, too, training
// goes on to the next interval, unless too many have failed in a row (checkpoint.max_failures). A run that ends without
// having saved its last step tries checkpoint.emergency_directory.
//
// All ranks call these functions alike. Internal to run/.
#ifndef RUN_SAVING_H
#define RUN_SAVING_H

#include "run/checkpoint_saver.h"
#include "run/metrics_file.h"

struct run;

struct run_saving {
    struct checkpoint_saver *saver;
    bool under_way;
    bool may_block;         // some rank has too little room for all that it gives, and not all have copied all by now
    bool sound;             // the save under way holds no skipped steps in a row
    bool second;            // it is tried for the second time
    bool again;             // the last one has failed, and is to be tried again
    bool in_emergency;      // the one under way goes to checkpoint.emergency_directory
    bool elsewhere;         // the newest checkpoint lies there, and none of its step in the run's directory
    char run[CHECKSUM_HEX]; // run_directory_identify, from when it was surely there
    int64_t step;           // of the save under way, or of the last one, whether it succeeded or not; -1: none
    int64_t began;          // clock_now
    int64_t failures;       // in a row; each was tried twice
    double blocked;         // seconds for which the run has waited for the one under way
    atomic_llong stalls;    // nanoseconds for which the step under way has waited
    // Rank 0's; the saver's thread has them while a save is under way.
    int64_t prunes; // checkpoints up to that of this step
    struct metrics_mark lines;
    VEC(char *) remarks;
};

// Makes ready, so that whatever a save needs is there from the start. Where the run stands must be known.
trireme_status saving_create(struct run *run, trireme_error *error);
// Whether a save has not ended in time: its thread still uses the run, of which nothing may be released then.
bool saving_hangs(const struct run *run);
// A save that is under way is waited for.
void saving_release(struct run *run);
// Whether a step that is done is to be saved.
bool saving_is_due(const struct run *run);
// What this rank has to say while a step is done: whether its values are copied, and its part of a save is done.
bool saving_is_copied(const struct run *run);
bool saving_is_done(const struct run *run);
// Whether all ranks go on with the save under way, by what they have just agreed on.
bool saving_may_go_on(const struct run *run);
// After each step: ends the save that all ranks are done with, and begins one where that is due. Fails where a rank is
// lost, or the run is to end since its saves fail.
trireme_status saving_step(struct run *run, trireme_error *error);
// Seconds for which the step just done has waited for a save.
double saving_take_stall(struct run *run);
// Waits for the save that is under way, if any. Fails only as saving_step does.
trireme_status saving_settle(struct run *run, trireme_error *error);
// Puts before an error what becomes of the step just done, which is not saved.
trireme_status saving_say_lost(const struct run *run, trireme_error *error);
// At the run's end: saves its last step, and waits for that.
trireme_status saving_finish(struct run *run, trireme_error *error);
// Sets the deadline by which ranks wait for others (comm.train_timeout_seconds): while values are copied into too
// little room, they may have to wait for the disk of one.
void saving_set_deadline(struct run *run);
#endif
