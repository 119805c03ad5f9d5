// Who writes which block of a checkpoint's files, and whose values it takes for that. Every rank makes the same plan by
// itself, from the image of the files and from who has what.
//
// A block is written by one rank, since it has one checksum; one of those that hold most of it, these taking turns. All
// others that hold some of it send the writer theirs, packed (save_pack); where ranks have the same values, they take
// turns, too. So with sharded states most blocks are written by the ranks that hold them, and nothing passes through a
// single one.
#ifndef CKPT_SAVE_PLAN_H
#define CKPT_SAVE_PLAN_H

#include "ckpt/holders.h"
#include "ckpt/image.h"

enum { SAVE_BLOCK_BYTES = 1 << 24 };

// The values that tensors of a group of the image (image_source.group) have: those of one group of the holders; or the
// mean of several, rounded to the dtype, with the low halves of their master weights where they have them.
struct save_values {
    enum dtype dtype;
    bool masters; // the holders have them as the dtype is accumulated
    int terms;
    const int *group, *remainder; // [terms]: of the holders; remainder NULL: none
    const double *weight;         // [terms]: adds up to 1; NULL with one term
};

struct save_block {
    size_t file;
    uint64_t begin;
    int64_t bytes;
    int writer;
    int64_t give; // bytes that this rank gives
    // This rank writes the block and has all of it, in order: what it packs is the block itself.
    bool whole;
    int64_t packed; // bytes that it packs: of the block, where it is whole, else what it gives
};

struct save_plan {
    const struct image *image;
    const struct holders *holders;
    const struct holdings *own;
    const struct save_values *values; // [groups of the image]
    int ranks, rank;
    VEC(struct save_block) block; // in the order of the files
    int64_t most_packed;          // bytes for a block
    int64_t most_taken;           // bytes that a block is made of which this rank writes, and which is not whole
};

// All of what is passed must outlive the plan; `own`: what this rank has of what the holders say. `block_bytes`:
// SAVE_BLOCK_BYTES, less in tests; a multiple of 8.
void save_plan_create(struct save_plan *out, const struct image *image, const struct holders *holders,
                      const struct holdings *own, const struct save_values *values, int rank, int64_t block_bytes);
void save_plan_release(struct save_plan *plan);
// Packs what this rank gives for a block: `packed` bytes.
void save_pack(const struct save_plan *plan, size_t block, void *to);
// The bytes that each rank gives for a block, bytes[ranks]; returns their sum.
int64_t save_shares(const struct save_plan *plan, size_t block, int64_t *bytes);
// Makes a block that is not whole of what its ranks have given, which lies rank after rank at `given`.
void save_unpack(const struct save_plan *plan, size_t block, const void *given, void *out);

#endif
