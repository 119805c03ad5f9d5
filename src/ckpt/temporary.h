// The names that ckpt/directory.h works under, PARENT/.tmp-NAME-PID and PARENT/.old-NAME-PID, and clearing up after
// processes that died. A process counts as alive as long as its directory is locked or, on a file system without locks,
// as long as a process of that number exists.
#ifndef CKPT_TEMPORARY_H
#define CKPT_TEMPORARY_H

#include "base/base.h"

// TMP: being written, or to be deleted. OLD: the previous directory NAME at the moment when a new one takes its place,
// on file systems that cannot swap two names.
enum temporary_kind { TEMPORARY_TMP, TEMPORARY_OLD };

// Caller frees.
char *temporary_path(const char *parent, enum temporary_kind kind, const char *name);
// Opens an existing directory, and locks it if nobody else holds the lock and the file system has locks. Returns the
// descriptor, or -1 with errno when it cannot be opened.
int temporary_lock(const char *path);
// Creates and locks the directory `path`. TRIREME_ERROR_BUSY when it exists.
trireme_status temporary_create(const char *path, int *lock, trireme_error *error);
// For every NAME that is `stem` followed by digits only: an OLD of a dead process gets its name back if that is free;
// everything else that dead processes left is deleted, if `remove`. What fails is left for the next time.
void temporary_sweep(const char *parent, const char *stem, bool remove);

// The NAMEs, of the kind `stem` as above, of which a living process is writing a directory that has no manifest yet.
struct temporary_names {
    VEC(char *);
};
void temporary_list(const char *parent, const char *stem, struct temporary_names *out);
void temporary_names_release(struct temporary_names *names);

#endif
