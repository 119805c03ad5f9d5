// The names that ckpt/directory.h works under, PARENT/.tmp-NAME-PID and PARENT/.old-NAME-PID, and clearing up after
// processes that died. A name belongs to the living as long as its directory is locked, or, on a file system without
// locks, as long as its process is there.
#ifndef CKPT_TEMPORARY_H
#define CKPT_TEMPORARY_H

#include "base/base.h"

// TMP: being written, or to be deleted. OLD: the directory NAME for the moment in which a new one takes its place,
// where the file system cannot swap two names.
enum temporary_kind { TEMPORARY_TMP, TEMPORARY_OLD };

// Caller frees.
char *temporary_path(const char *parent, enum temporary_kind kind, const char *name);
// Opens and, if nobody else holds the lock and the file system has locks, locks an existing directory. -1 with errno
// when it cannot be opened.
int temporary_lock(const char *path);
// Creates and locks the directory `path`. TRIREME_ERROR_BUSY when it exists.
trireme_status temporary_create(const char *path, int *lock, trireme_error *error);
// For every NAME that is `stem` and then only digits: an OLD of a dead process is given its name back if that is free;
// what else the dead left is deleted, if `remove`. Failures are left for the next time.
void temporary_sweep(const char *parent, const char *stem, bool remove);

#endif
