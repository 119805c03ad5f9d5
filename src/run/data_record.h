// RUN/data.json: the files of tokens that a run trains on, with the checksums of what is known of them (the format is
// in data/block_sums.h). With it the run goes on with the same tokens, of files without checksums, too; what differs is
// named.
#ifndef RUN_DATA_RECORD_H
#define RUN_DATA_RECORD_H

#include "data/token_set.h"

// Writes the record, unless it was written with as many known blocks: *written, 0 at first. `data`: the tokens in words
// (same_run_data).
trireme_status data_record_write(const char *run_directory, const char *data, const struct token_set *set,
                                 int64_t *written, trireme_error *error);
// Compares the files with the record, as token_set_compare does. A run goes on without one, or with one of other tokens
// than `data`, those of its checkpoint; so it does with one that is damaged, of which *damaged then tells.
trireme_status data_record_compare(const char *run_directory, const char *data, struct token_set *set,
                                   void (*read)(void *user), void *user, struct text *differs, trireme_error *damaged,
                                   trireme_error *error);

// Reads on a thread of the lowest priority what is not known of the files. The set must outlive it.
struct data_learner;
// *out is NULL where all is known.
trireme_status data_learner_begin(struct data_learner **out, const struct token_set *set, trireme_error *error);
// Ends it at once, however far it has come. NULL is fine.
void data_learner_end(struct data_learner *learner);

#endif
