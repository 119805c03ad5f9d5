// What a checkpoint, or another directory in Hugging Face's form, is, as far as it tells without being read whole.
#ifndef RUN_CHECKPOINT_FACTS_H
#define RUN_CHECKPOINT_FACTS_H

#include "run/checkpoint_retention.h"

struct checkpoint_facts {
    int64_t step;                     // -1: not known
    double time;                      // when it was saved, in seconds since the epoch; NaN: not known
    int64_t model_bytes, state_bytes; // of its files; state: of training alone
    const char *dtype;                // of most of the model's numbers, as in safetensors; NULL: not known
    int64_t parameters;               // numbers in the model's files; -1: not known
    double val_loss;                  // NaN: not known
    char *damage;                     // by the sizes of its files; NULL: none, or it has no manifest
};

// `losses` may be NULL. The caller frees out->damage.
void checkpoint_facts_read(const struct directory_numbered *checkpoint, struct checkpoint_losses *losses,
                           struct checkpoint_facts *out);

// What a user means by a path: a run's directory, one that holds checkpoints step-N, or a single one, or a model.
struct checkpoint_place {
    char *run;    // the run's directory; NULL: none is known
    char *parent; // what holds them; NULL: a single one is meant
    // The largest number first. Of a single one the number is the step that it says, -1 where it says none.
    struct directory_list list;
};
// USAGE where it is none of these. Caller releases *out.
trireme_status checkpoint_place_find(const char *path, struct checkpoint_place *out, trireme_error *error);
void checkpoint_place_release(struct checkpoint_place *place);

#endif
