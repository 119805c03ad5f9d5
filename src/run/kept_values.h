// What a checkpoint keeps of the values of all ranks' engines, and by which names. Internal to run/.
#ifndef RUN_KEPT_VALUES_H
#define RUN_KEPT_VALUES_H

#include "engine/whole_tensors.h"

// Values of one kind that an island has: a group of the holdings.
struct kept {
    char *name; // of its tensors in the training state; NULL: the model's files have them
    enum engine_values what;
    int island; // or EVERY_ISLAND
    enum dtype dtype;
    bool *has;           // [parameters]; NULL: all
    bool only_exchanged; // kept only while islands exchange something
};
struct kept_values {
    VEC(struct kept);
    bool others; // of other islands than there are
};

// The parameters; the remainders; the states of the optimizers that the run has, each with the parameters that have it;
// of several islands, each of which has all of this, also what is exchanged; what outer steps keep. The parameters of a
// single island without such steps are in the model's files alone. `islands` is how many there are, or, for a
// checkpoint of before, were.
void kept_values_create(struct kept_values *out, const struct whole *whole, int islands);
void kept_values_release(struct kept_values *kept);
// The group of values of one kind, of an island or of all; NONE where they are not kept.
int kept_values_find(const struct kept_values *kept, enum engine_values what, int island);
// Whether the training state has them, while islands exchange something or not.
bool kept_is_state(const struct kept *kept, bool exchanged);
// What this rank has of all of it, to be loaded or saved. The values of other islands all come to the same place,
// except parameters, which are the first island's: the model's files have them. The caller releases *out.
void kept_values_own(struct holdings *out, const struct kept_values *kept, const struct whole *whole,
                     enum whole_use use);

#endif
