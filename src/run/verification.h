// Verifies the content of checkpoints by all ranks, each of which reads its share of the files. Internal to run/.
#ifndef RUN_VERIFICATION_H
#define RUN_VERIFICATION_H

#include "ckpt/directory.h"
#include "launch/ranks.h"

// All ranks call it over `all` (NULL with one rank), with the same path. Ranks that find another manifest there than
// rank 0, or none, read nothing. All come to the same status: of what is damaged, the first in the order of the files
// is reported, by rank 0.
trireme_status verification_together(const char *path, struct manifest_check check, struct communicator *all,
                                     trireme_error *error);
// The same for rank 0 alone, which searches (directory_newest), while the others are in ranks_await_end with
// verification_part. Both are given the communicator.
struct directory_verifier verification_lead(struct communicator *all);
struct ranks_part verification_part(struct communicator *all);

#endif
