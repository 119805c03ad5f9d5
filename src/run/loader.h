// Reads a rank's batches ahead: while a program runs on one, a thread of the rank reads the next one, and then agrees
// with other ranks how to go on. So a step waits neither for data nor, outside of its own communication, for other
// ranks.
#ifndef RUN_LOADER_H
#define RUN_LOADER_H

#include "engine/engine.h"
#include "run/corpus.h"

#include <stdatomic.h>

// What ranks tell one another with every batch: one rank's part, or the sum over all. All are of one type.
struct control {
    double stops;    // ranks that were asked to stop
    double failures; // ranks that have no next batch
    double bytes;    // the most that processes other than rank 0's held resident so far
    double timings;  // ranks that want the machine's peak to be timed again
    double copied;   // ranks that have copied what a save under way takes of them
    double saved;    // ranks that are done with it
};
enum { CONTROLS = sizeof(struct control) / sizeof(double) };

// Which ranks agree.
enum loader_with { LOADER_ISLAND, LOADER_ALL };

struct loader; // one rank's; used by one thread

// For a rank of `engine`, which must outlive the loader, as must `corpus` (NULL: no batch is asked for), *stop (whether
// this rank is asked to stop; NULL: never), `control`, the communicator of all ranks (NULL with one rank), and
// `island`, that of the rank's island (NULL where that has one rank).
trireme_status loader_create(struct loader **out, const struct corpus *corpus, const struct engine *engine,
                             struct communicator *control, struct communicator *island, const atomic_bool *stop,
                             trireme_error *error);
// A call that is under way ends first, for which its world must be broken where a rank has not begun it.
void loader_free(struct loader *loader);

// From where the order of training samples goes, for a run whose batch or tokens have changed. Before the first batch.
void loader_set_origin(struct loader *loader, struct sampler_origin origin);

enum { LOADER_NO_BATCH = -1 };
// Begins to read this rank's part of global batch `batch` (from 0) of a split, and to agree with the ranks of `with`,
// which call this alike. `own` is what this rank has to say; failures and loader_say are added. From here to loader_end
// their communicator belongs to the loader.
void loader_begin(struct loader *loader, enum sampler_split split, int64_t batch, enum loader_with with,
                  const struct control *own);
// Waits until all have come so far. Fails where a rank is lost.
trireme_status loader_end(struct loader *loader, struct control *all, trireme_error *error);
// Control.bytes of this rank: 0 for threads of a process, and for rank 0.
double loader_memory(const struct loader *loader);
// Adds to what this rank has to say whether it is asked to stop, and its bytes.
void loader_say(const struct loader *loader, struct control *own);
// Whether to stop, by what all have agreed on; a single rank also stops for what it has been asked since.
bool loader_stops(const struct loader *loader, const struct control *all);
// Puts the batch that was read last of a split into the inputs of its program.
void loader_take(struct loader *loader, enum sampler_split split, struct sampler_counts *counts);
// Where a rank has no next batch: fails with the reason that this rank found. A rank without one waits for one that
// has: that rank breaks the world.
trireme_status loader_fail(const struct loader *loader, enum sampler_split split, trireme_error *error);

#endif
