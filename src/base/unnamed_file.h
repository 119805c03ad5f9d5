// A file without a name, for what a run keeps outside of its memory: it is gone when the process ends, however it ends.
#ifndef BASE_UNNAMED_FILE_H
#define BASE_UNNAMED_FILE_H

#include "base/base.h"

struct unnamed_file {
    int descriptor;
    int64_t bytes;
    // The whole file, mapped and shared with reads and writes, for who looks at it between steps. The disk's space has
    // been reserved, so that writing there cannot fail for want of it.
    char *map;
};

// Makes a file of `bytes` zeros, at least one, in `directory`. TRIREME_ERROR_IO names `what` it is for where the
// directory takes no file, or has no room for it.
trireme_status unnamed_file_create(struct unnamed_file *file, const char *directory, int64_t bytes, const char *what,
                                   trireme_error *error);
void unnamed_file_release(struct unnamed_file *file);
// Reads or writes bytes [at, at + bytes). TRIREME_ERROR_IO where the system refuses.
trireme_status unnamed_file_read(const struct unnamed_file *file, int64_t at, void *to, int64_t bytes,
                                 trireme_error *error);
trireme_status unnamed_file_write(const struct unnamed_file *file, int64_t at, const void *from, int64_t bytes,
                                  trireme_error *error);
// Lets go of the pages of the map that count as memory of this process; they stay in the system's cache of the file.
void unnamed_file_forget(const struct unnamed_file *file);

#endif
