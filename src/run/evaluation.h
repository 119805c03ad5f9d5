// The loss of a model over tokens, by one rank or many.
#ifndef RUN_EVALUATION_H
#define RUN_EVALUATION_H

#include "run/validation.h"

#include <stdatomic.h>

struct evaluation {
    int rank;                    // of this process, else 0; all that follows is known to rank 0 alone
    struct validation_loss loss; // over all ranks
    int64_t seq_len;             // tokens
    size_t predicted, resident;  // bytes of all ranks
};

struct evaluation_watch {
    void (*progress)(int64_t done, int64_t total); // batches; on rank 0
    const atomic_bool *stop;                       // once true it ends, with TRIREME_ERROR_INTERRUPTED
};

// Evaluates the model that `path` means (checkpoint_resolve) on the tokens of `config`, on as many ranks as its
// parallelism says. Each rank is a thread; or mpirun or srun has started one process for each, and an error that
// another rank reports has an empty message here.
trireme_status evaluation_run(struct evaluation *out, const struct config *config, const char *path,
                              const struct evaluation_watch *watch, trireme_error *error);

#endif
