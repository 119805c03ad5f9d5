// The ways of running kernels that were chosen by measurement (kernels/choices.h): shared by the ranks of a process,
// and stored in the run's directory.
#ifndef ENGINE_TUNING_H
#define ENGINE_TUNING_H

#include "engine/engine.h"

#include <pthread.h>

struct tuning {
    pthread_mutex_t mutex; // guards all else while ranks choose
    struct choices choices;
    size_t stored;     // how many choices the file has
    bool read;         // whether the file was looked for
    char *passed_over; // why the file could not be read; else NULL
    char *untimed;     // why a rank could not time kernels; else NULL
};

void tuning_create(struct tuning *tuning);
void tuning_release(struct tuning *tuning);
// Makes the engine's kernels run in the chosen ways from now on; to be called before its first step. What is stored in
// `directory` (NULL: none) is not measured again. The rest is measured, by one rank at a time and for a run of `steps`
// steps, if there is memory for that; otherwise kernels follow their rules. *saved (may be NULL) becomes the seconds
// that the choices save in a step, by what was measured.
void tuning_choose(struct tuning *tuning, struct engine *engine, const char *directory, int64_t steps, double *saved);
// Writes directory/kernels.json if more is known than the file says. To be called by one rank, when all of its process
// have chosen. What other processes have measured for stages that are not rank 0's is not stored: the next start
// measures it again.
trireme_status tuning_store(struct tuning *tuning, const char *directory, trireme_error *error);

#endif
