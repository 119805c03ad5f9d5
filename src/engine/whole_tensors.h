// An engine's values as parts of whole parameters of its model, as files have them.
#ifndef ENGINE_WHOLE_TENSORS_H
#define ENGINE_WHOLE_TENSORS_H

#include "ckpt/holdings.h"
#include "engine/engine.h"

struct whole {
    const struct engine *engine;
    int *stage;          // [parameters of the whole model]: the pipeline stage whose values are saved
    int islands, island; // how many there are, and the rank's
};

void whole_create(struct whole *whole, const struct engine *engine);
void whole_release(struct whole *whole);
enum dtype whole_dtype(const struct whole *whole, enum engine_values what);

struct holding_list {
    VEC(struct holding);
};
// Adds what this rank has of values of one kind of an island's, or of those that all islands have alike, which are
// called `group`: all of it, to be loaded; or what it gives when they are saved, since a tied embedding is on two
// stages.
enum { EVERY_ISLAND = -1 };
enum whole_use { WHOLE_LOAD, WHOLE_SAVE };
void whole_holdings(const struct whole *whole, enum engine_values what, int island, int group, enum whole_use use,
                    struct holding_list *out);

#endif
