// Directories that are complete or not there. A directory is written under a temporary name beside the final one: every
// file is synced, a manifest is written last, what the disk has is read back and compared, the directory is renamed,
// and the parent synced. If the process is killed at any point, either the old directory or the new one is there,
// whole.
//
// Names: DIR/step-100 is written as DIR/.tmp-step-100-PID. While it is being written it is locked (flock), which tells
// temporaries of living processes from those of dead ones; the next directory_begin of the same kind (the same name up
// to its trailing digits) removes the latter. Nothing is deleted except what a manifest lists or a temporary holds. One
// process at a time should write into a parent: the lock of the run directory sees to that.
#ifndef CKPT_DIRECTORY_H
#define CKPT_DIRECTORY_H

#include "ckpt/directory_manifest.h"

struct directory;

// What to do when the final name is taken by something other than an empty directory or one whose manifest lists all
// that is in it (these are replaced): refuse at once (TRIREME_ERROR_USAGE), or keep it as NAME.aside-1, -2, ...
enum directory_taken { DIRECTORY_REFUSE, DIRECTORY_SET_ASIDE };

// Creates missing parents and the temporary directory. TRIREME_ERROR_BUSY when another thread is saving the same name.
trireme_status directory_begin(const char *path, enum directory_taken taken, struct directory **out,
                               trireme_error *error);
// The directory in which to write the files; subdirectories are allowed, links are not.
const char *directory_path(const struct directory *d);
// Tells the size and checksums of a file written, so that the commit need not read it again. Copies *file.
void directory_record(struct directory *d, const struct checksum_file *file);
// Gives the directory its final name. Frees `d` whether it succeeds or not. On failure nothing of the new directory is
// left and the old one stays; except that where only syncing the parent failed, the new one has the name, and after a
// power failure either may be there.
trireme_status directory_commit(struct directory *d, trireme_error *error);
// Removes and frees. NULL is allowed.
void directory_abort(struct directory *d);

// TRIREME_OK when complete; else the message names what is missing or damaged: file, tensor, expected and found.
// `watch` (may be NULL) is told while content is read.
trireme_status directory_verify(const char *path, struct manifest_check check, const struct checksum_watch *watch,
                                trireme_error *error);
// Who verifies a directory in place of directory_verify: many ranks together.
struct directory_verifier {
    trireme_status (*verify)(void *user, const char *path, struct manifest_check check, trireme_error *error);
    void *user;
};
// False when `path` exists and holds anything that a replacement would destroy unasked; *reason then names it.
bool directory_is_ours(const char *path, trireme_error *reason);

// Returns a descriptor that keeps other processes from pruning the directory while it is open (not on file systems
// without locks); -1 where `path` is no directory. directory_let_go closes it; -1 is allowed.
int directory_hold(const char *path);
void directory_let_go(int hold);

// A directory that was passed over, and why.
struct directory_skipped {
    int64_t number;
    char *path;
    char *reason;
};

struct directory_search {
    char *path;                            // of what was found; NULL: nothing
    int hold;                              // its directory_hold; the caller may take it, leaving -1
    int64_t number;                        // N of step-N
    VEC(struct directory_skipped) skipped; // newer than what was found, newest first: tell the user
};

// Finds the complete directory `parent`/step-N with the largest N, passing over damaged ones; fails on one that cannot
// be read. A missing parent counts as empty. Finishes a replacement that a crash left half done. `verifier` may be
// NULL. Caller releases *out; on failure it is empty.
trireme_status directory_newest(const char *parent, struct manifest_check check,
                                const struct directory_verifier *verifier, struct directory_search *out,
                                trireme_error *error);
void directory_search_release(struct directory_search *s);
// The largest N below `number` for which step-N is complete by its sizes; -1: none.
int64_t directory_before(const char *parent, int64_t number);

// Removes what dead processes left half written or half removed of step-1, step-2, ..., as directory_begin does. To be
// called only by a process that may write there.
void directory_sweep(const char *parent);

struct directory_numbered {
    int64_t number; // N of step-N
    char *path;     // `parent`/step-N
};
struct directory_list {
    VEC(struct directory_numbered);
};

// The directories step-1, step-2, ... of `parent`, whatever is in them, the largest number first. A missing parent
// counts as empty. Caller releases *out.
trireme_status directory_list(const char *parent, struct directory_list *out, trireme_error *error);
void directory_list_release(struct directory_list *list);
// The numbers of those that are just being written. Caller releases *out, whose paths are the final ones.
void directory_list_unfinished(const char *parent, struct directory_list *out);
// Removes a directory of such a list, so that a crash leaves none that is damaged. *held: it stays, as a process holds
// it (directory_hold).
trireme_status directory_remove(const char *path, bool *held, trireme_error *error);

#endif
