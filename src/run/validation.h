// The loss over the validation part of a corpus, by one rank or many.
#ifndef RUN_VALIDATION_H
#define RUN_VALIDATION_H

#include "run/loader.h"

struct validation_loss {
    double loss; // nats per target
    int64_t targets;
    int64_t text_bytes; // bytes of text that the targets of this rank stand for; 0 without a tokenizer
};

// The mean loss over the first `batches` global batches of the validation part (0: all). `progress` (may be NULL) is
// told how many of how many batches are done. Each island takes its part of the batches. `control` has all ranks (NULL
// with one rank). TRIREME_ERROR_USAGE where they have no target; TRIREME_ERROR_INTERRUPTED, on all ranks alike, once
// they have agreed to stop.
trireme_status validation_run(const struct corpus *corpus, struct engine *engine, struct loader *loader,
                              struct communicator *control, int64_t batches,
                              void (*progress)(int64_t done, int64_t total), struct validation_loss *out,
                              trireme_error *error);

#endif
