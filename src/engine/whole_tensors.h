// An engine's values as whole parameters of its model, as files have them. For saving, rank 0 puts them together from
// the parts of all ranks, a window of one parameter at a time; when loading, each rank takes its own part of each
// piece.
#ifndef ENGINE_WHOLE_TENSORS_H
#define ENGINE_WHOLE_TENSORS_H

#include "ckpt/values.h"
#include "engine/engine.h"

enum { WHOLE_PARTS = 2, WHOLE_MEAN = -1 };

struct whole {
    const struct engine *engine;
    struct communicator *control; // all ranks; NULL: as in whole_create
    int *stage;                   // [parameters of the whole model]: the pipeline stage whose values are saved
    int islands;
    double *share; // [islands]: of the mean; they add up to 1
    struct whole_view {
        struct whole *whole;
        enum engine_values what;
        int island; // whose values they are; WHOLE_MEAN: the mean of all, or all take the same
        // What this rank has of the parameter that is being loaded.
        int parts;
        struct whole_part {
            const struct parameter *local;
            struct engine_part own;
        } part[WHOLE_PARTS];
    } * view; // [islands, then WHOLE_MEAN][ENGINE_VALUES]
    // For saving: one window, and what one rank has of it. With one rank the engine's own memory is used instead.
    struct whole_room {
        char *data;
        int64_t bytes;
    } window, message, mean, rounded;
};

// `control` has all ranks, by number; NULL with one rank, or where each rank loads for itself.
void whole_create(struct whole *whole, const struct engine *engine, struct communicator *control);
void whole_release(struct whole *whole);
// Values of one kind, for reading and writing files. To load, every rank does the same and takes its own part: ranks of
// other islands than `island` take nothing. To save, rank 0 alone uses them, while all others are in whole_serve.
struct parameter_values whole_values(struct whole *whole, enum engine_values what, int island);
// For rank 0: of the mean of all islands' parameters, each counts by its weight; all alike where all are zero.
void whole_weigh(struct whole *whole, const double *weights);
// For the other ranks: gives parts to rank 0 as it asks for them, until it dismisses all.
trireme_status whole_serve(struct whole *whole, trireme_error *error);
// For rank 0: ends whole_serve of all other ranks, after saving, whether that succeeded or not.
trireme_status whole_dismiss(struct whole *whole, trireme_error *error);

#endif
