// How long somebody waits for others before they are late.
//
// What counts is time in which this process could look: between two looks no more than PATIENCE_SLICE. A process that
// is stopped as a whole (Ctrl-Z, scontrol suspend), as all others may be, finds nobody late when it goes on.
#ifndef COMM_PATIENCE_H
#define COMM_PATIENCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

// Nanoseconds; times are clock_now's.
#define PATIENCE_SLICE ((int64_t)250000000)

struct patience {
    int64_t limit;                 // 0: for ever
    const _Atomic int64_t *wanted; // communicator_wanted; NULL: from the beginning
    int64_t began;                 // moved on by what does not count
    int64_t looked;
};
struct patience patience_begin(int64_t limit, const _Atomic int64_t *wanted);

// When it ends, as far as one knows now; 0: never.
int64_t patience_due(const struct patience *patience);
// Of the time up to `now` the last `lost` does not count.
void patience_excuse(struct patience *patience, int64_t now, int64_t lost);
// What does not count of the time from *looked to `now`, which becomes *looked.
int64_t patience_look(int64_t *looked, int64_t now);

// For who waits by sleeping: until when, before it looks again (0: until it is woken); and whether the others are late.
int64_t patience_sleep(struct patience *patience);
bool patience_ended(struct patience *patience);

#endif
