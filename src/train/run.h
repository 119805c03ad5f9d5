// One rank's part in a run, and how it begins: what the run directory holds is found, checked and loaded, kernels are
// chosen, and what is about to be done is told. Internal to train/.
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include "ckpt/state_files.h"
#include "train/corpus.h"
#include "train/rank_file.h"
#include "train/run_directory.h"
#include "train/step_trace.h"
#include "train/train.h"
#include "train/tuning.h"

#include <stdatomic.h>

struct run {
    const struct config *config;
    const struct train_callbacks *callbacks;
    const struct corpus *corpus;
    const char *data, *start;     // start: NULL where the run goes on from what run.directory held
    atomic_int *start_hold;       // of start, until all of this process's ranks have read it
    struct communicator *control; // all ranks by number, for what they agree on; NULL where there is one
    bool leads;                   // rank 0, which alone writes and tells
    struct run_directory directory;
    struct rank_file ranks;
    int ranks_lock;             // of that file, where this rank leads; else -1
    struct rank_record *record; // in that file, or `own` where there is none
    struct rank_record own;
    struct engine engine;
    struct state_progress progress;
    bool without_values;              // asked to stop while they were made: no step is done
    char *resumed_from;               // NULL: a fresh start
    struct tokenizer_files tokenizer; // that checkpoints get
    int64_t saved_step;               // of the newest checkpoint, -1 when there is none
    int64_t sound_step;               // saved_step as it was before the steps that were skipped in a row
    double peak;                      // FLOP/s, 0 where unknown
    struct step_trace trace;          // of profiling.trace_step
    double targets;                   // of all steps since the start
    int64_t step_began;               // clock_now
    double seconds_per_step;          // smoothed
};

// Rank 0 tells the user.
void run_tell(const struct run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Rank 0 removes older checkpoints than checkpoint.keep_latest_k; where some stay, it tells.
void run_prune(const struct run *run);
// That the file of all ranks is mapped, of so many bytes, or 0: is about not to be.
void run_tell_mapped(const struct run *run, size_t bytes);
// Makes the engine and brings it to where the run stands. All ranks take part; where one refuses, nothing in the run
// directory has been touched but ranks.bin, which tells of that once the newest checkpoint is known to fit. `tuning` is
// of the ranks of this process.
trireme_status run_start(struct run *run, const struct model_config *model, const struct parallel *plan,
                         struct tuning *tuning, const struct member *member, trireme_error *error);

#endif
