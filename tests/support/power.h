// A disk whose power is cut: what is written below a folder goes on as it is, and is recorded, with its data
// (support/faults.h). Afterwards every state can be made that the folder may have after a power cut.
//
// What was synced is there. Of other writes to a file any may be there or not, or half of one, whatever its size, which
// is a write of its own. The names in a directory come and go in the order in which they did, up to any point, each
// directory by itself; a rename is one change. A name that leads to a file says nothing of its content.
#ifndef SUPPORT_POWER_H
#define SUPPORT_POWER_H

#include "support/test.h"

#include <stdbool.h>

struct power; // what was recorded, and played again up to some change

// From now on what happens below `folder`, which must be there, is recorded. For one folder at a time.
struct power *power_record(const char *folder);
// Notes that `number` is promised to be there from here on: by any thread, while it is recorded.
void power_promise(struct power *power, int64_t number);
// Nothing is recorded any more. Returns the number of changes.
size_t power_stop(struct power *power);

// Plays the next change. The last number that was promised before it; -1: none was.
int64_t power_play(struct power *power);
// What is lost when the power is cut now.
enum power_loss {
    LOSE_ALL,  // whatever was not synced
    LOSE_DATA, // the data, but no name
    LOSE_LAST, // half of the last write to each file
    LOSE_ANY,  // as `seed` says
    POWER_LOSSES
};
// Makes the folder, as it then is, at `path`, which must not be there.
void power_cut(const struct power *power, enum power_loss loss, uint64_t seed, const char *path);
void power_free(struct power *power);

#endif
