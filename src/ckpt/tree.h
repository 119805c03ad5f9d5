// What lies below a directory: listed, synced, removed. Links are never followed.
#ifndef CKPT_TREE_H
#define CKPT_TREE_H

#include "base/base.h"

struct tree_entry {
    char *name; // relative to the top, `/` between folders
    bool directory;
};

struct tree {
    VEC(struct tree_entry) entry; // a directory comes before what it holds
};

// Everything below `path`, which must be regular files and directories, at most 16 deep.
trireme_status tree_list(const char *path, struct tree *out, trireme_error *error);
void tree_release(struct tree *t);
// Syncs the entries of a directory, or the content of a file, to the disk.
trireme_status tree_sync(const char *path, trireme_error *error);
// Removes `path` and all below it; what is already gone is no error.
trireme_status tree_remove(const char *path, trireme_error *error);

#endif
