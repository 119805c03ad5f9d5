// How long a rank waits for others before it calls them late.
//
// Only the time counts in which this process could look for them: at most DEADLINE_SLICE between two looks. So a
// process that was stopped (Ctrl-Z, scontrol suspend), perhaps together with all others, finds nobody late when it is
// continued.
#ifndef COMM_DEADLINE_H
#define COMM_DEADLINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

// Nanoseconds; times are clock_now's.
#define DEADLINE_SLICE ((int64_t)250000000)

struct deadline {
    int64_t limit;                 // nanoseconds; 0: for ever
    const _Atomic int64_t *wanted; // communicator_wanted's `since`; NULL: time counts from the beginning
    int64_t began;                 // the wait's beginning, moved on by the time that does not count
    int64_t looked;                // the last look
};
struct deadline deadline_begin(int64_t limit, const _Atomic int64_t *wanted);

// When it is over, as far as is known now; 0: never.
int64_t deadline_due(const struct deadline *deadline);
// The last `lost` nanoseconds before `now` do not count.
void deadline_excuse(struct deadline *deadline, int64_t now, int64_t lost);
// Returns how much of the time from *looked to `now` does not count, and sets *looked to `now`.
int64_t deadline_look(int64_t *looked, int64_t now);

// For waits that sleep: until when to sleep before the next look (0: until woken); and whether the others are late.
int64_t deadline_sleep(struct deadline *deadline);
bool deadline_ended(struct deadline *deadline);

#endif
