// An engine's values as whole parameters of its model, as files have them: put together on rank 0 from the parts of all
// ranks, a window of one parameter at a time, and taken apart again by each rank, piece by piece.
#ifndef TRAIN_WHOLE_H
#define TRAIN_WHOLE_H

#include "ckpt/values.h"
#include "train/engine.h"

enum { WHOLE_KINDS = ENGINE_V + 1, WHOLE_PARTS = 2 };

struct whole {
    const struct engine *engine;
    struct communicator *control; // all ranks, to put parameters together, and to load them together
    int *stage;                   // [parameters of the whole model]: the pipeline stage whose values count
    struct whole_view {
        struct whole *whole;
        enum engine_values what;
        // Of the parameter that is being loaded: what this rank has of it.
        int parts;
        struct whole_part {
            const struct parameter *local;
            struct engine_part own;
        } part[WHOLE_PARTS];
    } view[WHOLE_KINDS];
    // Saving: one window, and what one rank has of it; with one rank the engine's own memory serves.
    struct whole_room {
        char *data;
        int64_t bytes;
    } window, message;
};

// `control` (NULL with one rank; or where ranks load, each for itself) has all ranks, by number.
void whole_create(struct whole *whole, const struct engine *engine, struct communicator *control);
void whole_release(struct whole *whole);
// Values of one kind, for files. Loading, every rank does alike and takes its own part. Saving, rank 0 alone has them;
// all others meanwhile serve.
struct parameter_values whole_values(struct whole *whole, enum engine_values what);
// Of the other ranks: gives parts to rank 0 as it asks for them, until it dismisses all.
trireme_status whole_serve(struct whole *whole, trireme_error *error);
// Of rank 0, after saving, however that went.
trireme_status whole_dismiss(struct whole *whole, trireme_error *error);

#endif
