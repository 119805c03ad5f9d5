// Scratch folders, checks of messages, and directories of ckpt/directory.h with files of every kind in them.
#ifndef SUPPORT_CHECKPOINT_H
#define SUPPORT_CHECKPOINT_H

#include "support/test.h"

#include "ckpt/directory.h"
#include "ckpt/retention.h"

// Setup and teardown: *state is the path of an empty folder, removed at the end.
int folder_create(void **state);
int folder_remove(void **state);
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder_create, folder_remove)

void assert_ok(trireme_status status, const trireme_error *error);
// Asserts that the message is one line and contains `part`.
void assert_says(const char *message, const char *part);
void assert_refused(trireme_status status, trireme_status expected, const trireme_error *error, const char *part);

// folder/name; the path lives until folder_remove. For one thread at a time.
const char *path_in(const char *folder, const char *name);
void path_write(const char *path, const char *content);
void path_flip_bit(const char *path, off_t at, int bit);
bool path_exists(const char *path);
size_t folder_count(const char *folder);
// Bytes that this thread has read of files; -1 where the system does not say.
int64_t thread_bytes_read(void);

// Runs `body` where no file can grow beyond `bytes`, which stands for a disk that fills up. The limit cannot be raised
// again, so it runs in a child process, where it cannot fail the test itself: it returns 0 when all is as it must be.
void assert_on_full_disk(size_t bytes, int (*body)(const char *folder), const char *folder);
// Writes token files of `text`, a token for each byte, at folder/tokens.
void prepare_text(const char *folder, const char *text);

// Writes a file into a directory that is being made, and records it if `record`; `folder` is the directory's path or
// one below it.
trireme_status sample_write(struct directory *d, const char *folder, const char *name, const char *content, bool record,
                            trireme_error *error);
// Saves a.txt, below/b.txt and a model in two shards with the tensors "one" and "two", which has sums of such blocks;
// `version` is in all of them.
enum { SAMPLE_BLOCK_BYTES = 40 };
trireme_status sample_save(const char *path, int version, enum directory_taken taken, trireme_error *error);
void assert_sample_saved(const char *path, int version);
// The version that all files of a saved directory have.
int sample_version(const char *path);
// Removes all but the `latest` newest of the directories step-1 to step-`last` (ckpt/retention.h).
trireme_status sample_prune(const char *folder, int64_t last, size_t latest, trireme_error *error);

#endif
