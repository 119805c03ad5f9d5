// Ways to run kernels that were chosen by measurement (kernels/choices.h): shared by the ranks of a process, and kept
// in a run's directory.
#ifndef TRAIN_TUNING_H
#define TRAIN_TUNING_H

#include "train/engine.h"

#include <pthread.h>

struct tuning {
    pthread_mutex_t mutex; // guards all else while ranks choose
    struct choices choices;
    size_t stored;     // choices that the file has
    bool read;         // whether there is one has been seen
    char *passed_over; // why not, where there is one; else NULL
    char *untimed;     // why a rank could time nothing; else NULL
};

void tuning_create(struct tuning *tuning);
void tuning_release(struct tuning *tuning);
// The engine's kernels run in the chosen ways from now on. What `directory` (NULL: none) holds already is measured no
// more; what is missing is, by one rank at a time, for so many steps to come, where there is memory for that; else the
// rule holds. *saved (NULL: nobody asks) are the seconds that this saves in a step, by what was measured. Before the
// engine's first step.
void tuning_choose(struct tuning *tuning, struct engine *engine, const char *directory, int64_t steps, double *saved);
// Writes directory/kernels.json where more is known than it says. By one rank, when all of the process have chosen: of
// processes, what others have measured for stages that are not rank 0's is measured again by the next start.
trireme_status tuning_store(struct tuning *tuning, const char *directory, trireme_error *error);

#endif
