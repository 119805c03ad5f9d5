// A file of tokens or their index, mapped to be read here and there. A block is checked when something of it is first
// read, against the checksum that is known of it; where none is, what is read now becomes what is expected from then
// on.
#ifndef DATA_TOKEN_MAPPING_H
#define DATA_TOKEN_MAPPING_H

#include "data/block_sums.h"

#include <sys/types.h>
#include <time.h>

struct token_mapping {
    char *path;
    const uint8_t *data;
    int64_t bytes;
    dev_t device; // which file was opened: another may get its name
    ino_t inode;
    int64_t modified; // nanoseconds since 1970
    struct block_sums sums;
    char *told_by;            // the list of checksums that has told of some; NULL: none has
    _Atomic uint8_t *checked; // [sums.count]: whether the block was read and right
    // What was read of the file stays in this process's memory. May be set where it is little, which is faster to read
    // again; otherwise it is given back.
    bool stays;
};

// Takes ownership of `path`, also when it fails; mapping_release is to be called in either case.
trireme_status mapping_open(struct token_mapping *m, char *path, trireme_error *error);
void mapping_release(struct token_mapping *m);
// Refuses a file that has become shorter: touching pages beyond its end raises SIGBUS. The file is looked up by its
// path, since a set may have more files than a process may have descriptors. Of a file that no longer has that name,
// the last byte is read.
trireme_status mapping_check(const struct token_mapping *m, trireme_error *error);
// Copies bytes [begin, end), which may be wrong (mapping_verify).
trireme_status mapping_copy(const struct token_mapping *m, int64_t begin, int64_t end, void *out, trireme_error *error);
// Checks the blocks of bytes [begin, end) that were not checked yet. CORRUPT names the first that is wrong.
trireme_status mapping_verify(const struct token_mapping *m, int64_t begin, int64_t end, trireme_error *error);
// The checksum of a block: the one that is known, else that of what is there now.
trireme_status mapping_sum(const struct token_mapping *m, int64_t block, uint64_t *sum, trireme_error *error);
// Lets `sums`, of a file of the same size, tell of those blocks that are not known. `list`: where they come from.
void mapping_expect(struct token_mapping *m, const struct block_sums *sums, const char *list);
// CORRUPT where the file was written to since it was opened, or since the last such call, and a block of known checksum
// has another one now. Another file that has taken its name does not count, nor does a file that has become shorter,
// which mapping_check refuses.
trireme_status mapping_check_unchanged(struct token_mapping *m, trireme_error *error);
// Starts reading bytes [begin, end), all at once instead of page by page as they are touched.
void mapping_will_need(const struct token_mapping *m, int64_t begin, int64_t end);
// Gives back what was read of bytes [from, from + bytes): here and there, it would come to be all of the file.
void mapping_give_back(const struct token_mapping *m, int64_t from, int64_t bytes);

#endif
