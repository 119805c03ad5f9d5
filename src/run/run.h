// One rank's part in a run, and its start: finds, checks and loads what the run directory holds, chooses kernels, and
// tells the user what is about to happen. Internal to run/.
#ifndef RUN_RUN_H
#define RUN_RUN_H

#include "ckpt/state_files.h"
#include "engine/tuning.h"
#include "launch/rank_file.h"
#include "optim/outer_schedule.h"
#include "run/data_record.h"
#include "run/island.h"
#include "run/pruner.h"
#include "run/run_directory.h"
#include "run/saving.h"
#include "run/spent.h"
#include "run/step_log.h"
#include "run/step_trace.h"
#include "run/traffic.h"
#include "run/train.h"
#include "run/validation.h"

#include <stdatomic.h>

// Of this rank's island, where there are outer steps.
struct run_island {
    struct outer_schedule schedule;
    double *targets; // [fragments]: trained on since the fragment was last taken
    int under_way;   // the fragment that is exchanged; NONE: nothing is
    double weight;   // what the island counts for in it
    int64_t settles; // the step after which parameters settle on it
    int sets_out;    // the fragment that is taken after the step just done; NONE: none is
    bool arrives;    // whether parameters settle then
};

struct run {
    const struct config *config;
    const struct train_callbacks *callbacks;
    const struct corpus *corpus;
    const char *data;             // the tokens that the run trains on, in words to compare
    bool other_data;              // they are others than the checkpoint's (data.on_change)
    struct text data_words;       // in what, for rank 0, and how the run goes on with them
    int64_t data_known;           // blocks of them that are known, in the record (data_record.h)
    const char *start;            // the directory that weights come from, or ""; NULL where the run has a checkpoint
    atomic_int *start_hold;       // directory_hold of start, until all of this process's ranks have read it
    struct communicator *control; // all ranks by number, for what they agree on; NULL with one rank
    struct communicator *inner;   // those of this rank's island; NULL where that has one rank
    bool leads;                   // whether this is rank 0, which alone writes files and tells the user
    struct run_directory directory;
    struct pruner *pruner; // of rank 0, once it has the directory
    struct rank_file ranks;
    int ranks_lock;             // the lock on that file, where this rank leads; else -1
    struct rank_record *record; // in that file, or &own where there is none
    struct rank_record own;
    struct engine engine;
    struct loader *loader;
    struct data_learner *learner; // of rank 0
    struct control agreed;        // by all ranks, about the next step; zero where they have not, but for the bytes
    struct step_log log;
    bool is_first; // whether the step is the first one of this process
    struct state_progress progress;
    struct run_island island;
    bool without_values;              // the run was asked to stop while weights were made: no step may be done
    bool without_directory;           // the run's directory is gone, as far as rank 0 sees: the run is to end
    char *resumed_from;               // the checkpoint; NULL: a fresh start
    struct tokenizer_files tokenizer; // for the checkpoints
    struct run_saving saving;
    int samples;             // of the validation under way
    int64_t saved_step;      // of the newest checkpoint, -1 when there is none
    int64_t sound_step;      // saved_step before the current row of skipped steps
    double peak;             // FLOP/s, 0 where unknown
    bool peak_is_low;        // it is a step's rate, and to be timed again
    struct step_trace trace; // of profiling.trace_step
    struct traffic traffic;
    double targets; // in all steps since the start
    struct spent spent;
};

// Tells the user something, if this is rank 0.
void run_tell(const struct run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
// The same of what metrics.jsonl and the thread that removes checkpoints have to say, if anything.
void run_tell_remark(struct run *run);
// For rank 0, on any thread: begins to remove, of the checkpoints up to that of step `last`, those that the keys
// checkpoint.keep_* do not keep. The one of step `whole` is known to be whole; -1: none is.
void run_prune(const struct run *run, int64_t last, int64_t whole);
// Passes on that ranks.bin is mapped, by how many bytes, or, with 0, that it is about to be unmapped.
void run_tell_mapped(const struct run *run, size_t bytes);
// Makes the engine and brings it to where the run stands. All ranks take part. If a rank refuses, nothing in the run
// directory has been touched except ranks.bin, which from the moment when the newest checkpoint is known to fit says
// so, and what saves that died left half-written, which is removed. `tuning` is shared by the ranks of this process.
trireme_status run_start(struct run *run, const struct model_config *model, const struct parallel *plan,
                         struct tuning *tuning, const struct member *member, trireme_error *error);

#endif
