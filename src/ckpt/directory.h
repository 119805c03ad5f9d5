// Directories that are complete or not there: written under a temporary name beside the final one, every file synced, a
// manifest written last, renamed, the parent synced. Killed at any point, the old directory or the new one is there,
// whole.
//
// Names: DIR/step-100 is written as DIR/.tmp-step-100-PID. While it is being written its directory is locked (flock),
// so that temporaries of dead processes are told from those of living ones; the next directory_begin of the same kind
// (same name up to its trailing digits) removes the dead. Nothing is deleted but what the manifest lists or a temporary
// holds. One process at a time should write into a parent: the lock of the run directory sees to that.
#ifndef CKPT_DIRECTORY_H
#define CKPT_DIRECTORY_H

#include "ckpt/manifest.h"

struct directory;

// What to do when the final name is taken by something other than an empty directory or one whose manifest lists all
// that is in it (these are replaced): refuse at once (TRIREME_ERROR_USAGE), or keep it as NAME.aside-1, -2, ...
enum directory_taken { DIRECTORY_REFUSE, DIRECTORY_SET_ASIDE };

// Creates missing parents and the temporary directory. TRIREME_ERROR_BUSY when another thread is saving the same name.
trireme_status directory_begin(const char *path, enum directory_taken taken, struct directory **out,
                               trireme_error *error);
// Where to write the files; subdirectories are allowed, links are not.
const char *directory_path(const struct directory *d);
// Tells the size and checksums of a file written, so that the commit need not read it again. Copies *file.
void directory_record(struct directory *d, const struct checksum_file *file);
// Frees `d` whether it succeeds or not. On failure nothing of the new one is left and the old one stays; but where only
// the parent could not be synced, the new one has its name, and after a power failure either may be there.
trireme_status directory_commit(struct directory *d, trireme_error *error);
// Removes and frees. NULL is allowed.
void directory_abort(struct directory *d);

// TRIREME_OK when complete; else the message names what is missing or damaged: file, tensor, expected and found.
// `watch` (may be NULL) is told while content is read.
trireme_status directory_verify(const char *path, struct manifest_check check, const struct checksum_watch *watch,
                                trireme_error *error);
// False when `path` exists and holds anything that a replacement would destroy unasked; *reason then names it.
bool directory_is_ours(const char *path, trireme_error *reason);

// While the descriptor is open, no process prunes the directory; on a file system without locks it may. -1: nothing of
// that name is there, or no directory.
int directory_hold(const char *path);
void directory_let_go(int hold);

// A directory that was passed over, and why.
struct directory_skipped {
    char *path;
    char *reason;
};

struct directory_search {
    char *path; // NULL: there is none
    int hold;   // of it (directory_hold), where there is one; the caller may take it, leaving -1
    int64_t number;
    VEC(struct directory_skipped) skipped; // newer than what was found, newest first: tell the user
};

// The complete directory `parent`/step-N with the largest N, past damaged ones; one that cannot be read fails. A
// missing parent is an empty one. Finishes a replacement that a crash left half done. `watch` (may be NULL) is told
// while content is read. Caller releases *out; on failure it is empty.
trireme_status directory_newest(const char *parent, struct manifest_check check, const struct checksum_watch *watch,
                                struct directory_search *out, trireme_error *error);
void directory_search_release(struct directory_search *s);
// The largest N below `number` for which step-N is complete by its sizes; -1: none.
int64_t directory_before(const char *parent, int64_t number);

// Removes what dead processes left of step-1, step-2, ... half written or half removed, as a begin does. For whoever
// may write there.
void directory_sweep(const char *parent);

// Of step-1 to step-`last` removes all but the newest `keep` complete ones (sizes checked); 0 keeps all.
// Damaged ones older than those are removed, newer ones stay, and so does any that holds files not in its manifest, or
// that somebody holds.
trireme_status directory_prune(const char *parent, int64_t last, size_t keep, trireme_error *error);

#endif
