// Checksums of files, block by block (XXH3), so that what is read here and there is checked without reading the rest.
// Small blocks, since the first token that is read of a block costs reading all of it.
//
// A list of files with their checksums is a file of JSON, of which the last member guards all that stands before it:
//   {"format": "trireme-sums", "version": 1, "block_bytes": 1048576, "files": [
//   {"name": "bin", "bytes": 246, "xxh3": "<16 hexadecimal digits for each block; zeros: not known>"},
//   {"name": "idx", "bytes": 66, "xxh3": "..."}],
//    "checksum": "<16 hexadecimal digits>"}
// `prepare` writes one beside the tokens, PREFIX.sums, whose names are the endings of the files. A run keeps one of the
// files that it trains on (run/data_record.h): with their paths (json_add_path), "modified", nanoseconds since 1970,
// and, before "files", "of", which says in words what they are.
#ifndef DATA_BLOCK_SUMS_H
#define DATA_BLOCK_SUMS_H

#include "base/text.h"

#include <stdatomic.h>

enum { BLOCK_BYTES = 1 << 20 };

// Of one file. Any number of threads may read and set.
struct block_sums {
    int64_t bytes;
    int64_t count;         // blocks: all of BLOCK_BYTES but the last
    _Atomic uint64_t *sum; // [count]; 0: not known
};

// All are unknown. The caller releases.
struct block_sums block_sums_create(int64_t bytes);
struct block_sums block_sums_copy(const struct block_sums *s);
void block_sums_release(struct block_sums *s);
// The file's bytes that a block begins and ends with.
static inline int64_t block_begin(int64_t block) {
    return block * BLOCK_BYTES;
}
static inline int64_t block_end(const struct block_sums *s, int64_t block) {
    return MIN(s->bytes, block_begin(block + 1));
}
// The checksum of a block with this XXH3: never 0.
static inline uint64_t block_sum(uint64_t xxh3) {
    return xxh3 ? xxh3 : 1;
}
// Whether the sums of all blocks are known.
bool block_sums_known(const struct block_sums *s);

struct sums_file {
    char *name;
    struct block_sums sums;
    int64_t modified; // 0: not said
};

// Zero-initialise.
struct sums_list {
    VEC(struct sums_file);
    char *of; // what the files are, in words; NULL: not said
};

// Takes over `sums`.
void sums_list_add(struct sums_list *list, const char *name, struct block_sums sums, int64_t modified);
// The file of that name; NULL: it is not listed.
const struct sums_file *sums_list_find(const struct sums_list *list, const char *name);
void sums_list_print(const struct sums_list *list, struct text *out);
// Reads a list; without a file *found is false. CORRUPT where the list is damaged. The caller releases
// *out, which is empty then.
trireme_status sums_list_read(struct sums_list *out, const char *path, bool *found, trireme_error *error);
// Whether the file at `path` is such a list, of any version, perhaps damaged.
bool sums_list_recognise(const char *path);
void sums_list_release(struct sums_list *list);

#endif
