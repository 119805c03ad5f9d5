// Saves what all ranks have into the files of a checkpoint, while training goes on: each rank writes the blocks that
// the plan gives it.
//
// Two threads of each rank take part. One copies this rank's values, block by block, into a bounded buffer; the rank
// may not change them before that is done (saver_await_copied). The other goes through all blocks in the same order as
// those of the other ranks: it sends what it gives for a block to the block's writer, or, where that is this rank,
// takes what others give, makes the block, and writes it. Since all go in one order, none waits for ever. Once every
// rank has written and synced, rank 0 publishes the checkpoint, and tells the others.
//
// What is written is synced, and then read back from the disk and compared, so that nothing is published that a disk
// has changed.
//
// A rank that cannot write goes on without writing, so that no other rank waits for it; the save then fails on all,
// with the message of the first rank that could not, and the next save is tried as if nothing had been. The waits of a
// save for other ranks have no deadline, since a disk may take its time; they end when a rank is lost. Whoever wants a
// deadline waits with saver_await_copied and saver_await_end.
#ifndef CKPT_SAVER_H
#define CKPT_SAVER_H

#include "ckpt/save_plan.h"

struct saver; // one rank's

// What is done on rank 0 alone, on the saver's thread.
struct saver_work {
    void *user;
    // Makes a place for the files; *path (the saver frees it) is the directory that all ranks write to. Where it fails,
    // NULL: there is nothing to discard.
    trireme_status (*open)(void *user, char **path, trireme_error *error);
    // After all files are on the disk: sum[blocks] are XXH3 of the plan's blocks.
    trireme_status (*publish)(void *user, const uint64_t *sum, trireme_error *error);
    // Instead, where a rank has failed.
    void (*discard)(void *user);
};

// All ranks create theirs together: where one has no memory or no threads, all fail with its message. Memory and
// threads are taken once, and are enough for each of plan[plans]; these must outlive the saver, as must `all`, a
// communicator of all ranks that nothing else uses (NULL with one rank). Up to `buffer_bytes`, at least what one block
// needs and at most what all need, are copied and not written yet.
trireme_status saver_create(struct saver **out, const struct save_plan *plan, size_t plans, struct communicator *all,
                            int64_t buffer_bytes, trireme_error *error);
// Whether the buffer takes all that this rank packs by the plan of the last save (before any: by the first plan), so
// that copying never waits for a disk.
bool saver_has_room(const struct saver *saver);
// All ranks begin alike, with one of the plans; `work` is for rank 0. The save before must have ended.
void saver_begin(struct saver *saver, const struct save_plan *plan, const struct saver_work *work);
// Waits until all of this rank's values are copied, or the save has failed, but not longer than some seconds; whether
// that has come. True at once where none is under way.
bool saver_await_copied(struct saver *saver, double seconds);
bool saver_is_copied(struct saver *saver);
// Whether one has begun and not ended; and whether saver_end would return at once.
bool saver_is_under_way(const struct saver *saver);
bool saver_is_done(const struct saver *saver);
// Waits for the end, but not longer than some seconds; whether it has come.
bool saver_await_end(struct saver *saver, double seconds);
// What the saver does at the moment, in words: "writing model.safetensors at 3.2 GB", "waiting for rank 3's part of
// ...". To be asked by the rank's thread.
enum { SAVER_WHAT = 256 };
void saver_what(struct saver *saver, char text[SAVER_WHAT]);
// Waits for the end of a save; the status is the same on all ranks, unless one is lost.
trireme_status saver_end(struct saver *saver, trireme_error *error);
// A save that is under way is waited for.
void saver_free(struct saver *saver);

#endif
