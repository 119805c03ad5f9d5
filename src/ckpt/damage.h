// All that is damaged in a directory that has a manifest (directory_verify stops at the first), read by many threads.
#ifndef CKPT_DAMAGE_H
#define CKPT_DAMAGE_H

#include "ckpt/directory.h"

struct damage {
    char *file; // relative to the directory
    uint64_t begin,
        end;         // the bytes of it that a checksum does not fit; equal: the file is missing, or has another size
    char *message;   // in one line, with the file's path
    bool unreadable; // the disk or the system refused, so that it may be whole
    // Tensors of a safetensors file that have some of these bytes; where its header is damaged, none is known.
    VEC(char *) tensor;
};

struct damage_report {
    uint64_t bytes, files; // that the manifest lists
    VEC(struct damage);    // by file and place
};

// Told now and then how many bytes of how many are read, by one thread at a time.
struct damage_watch {
    void (*read)(void *user, uint64_t done, uint64_t total);
    void *user;
};

// CORRUPT or IO where the manifest itself is missing, damaged or cannot be read: then nothing is known of the files.
// `watch` may be NULL. Caller releases *out.
trireme_status damage_find(const char *directory, int threads, const struct damage_watch *watch,
                           struct damage_report *out, trireme_error *error);
void damage_report_release(struct damage_report *report);

#endif
