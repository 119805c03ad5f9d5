// manifest.json: the list of a directory's files with their sizes and checksums, written last. A directory whose
// manifest is there and agrees is complete.
//   {"format":"trireme-directory","version":2,"files":[
//     {"name":"config.json","bytes":480,"blake2b":"...","model":"..."},
//     {"name":"tokenizer.json","bytes":400,"blake2b":"..."},
//     {"name":"model.safetensors","bytes":5000,"tensors":[{"name":"__header__","bytes":200,"blake2b":"..."}, ...]}],
//   "blake2b":"..."}
// `tensors` cover their file without holes. `model` is a checksum of what a config.json says about the model: where it
// still agrees, somebody has edited only the rest of the file, which is accepted. Names are relative, with `/` between
// folders; no component is empty, "." or "..". The last checksum is of all bytes before its comma; manifests of version
// 1 have none.
#ifndef CKPT_DIRECTORY_MANIFEST_H
#define CKPT_DIRECTORY_MANIFEST_H

#include "ckpt/checksum_file.h"

#define MANIFEST_NAME "manifest.json"
#define MANIFEST_BYTES_MAX ((size_t)256 << 20)

struct manifest {
    VEC(struct checksum_file) file; // sorted by name
};

void manifest_release(struct manifest *m);
// Takes over *file's memory. No file of that name may be there yet.
void manifest_add(struct manifest *m, struct checksum_file *file);
struct checksum_file *manifest_find(const struct manifest *m, const char *name);

// Writes `directory`/manifest.json and syncs it.
trireme_status manifest_write(const struct manifest *m, const char *directory, trireme_error *error);
// TRIREME_ERROR_CORRUPT when there is none or it is not of the form above. Caller releases *out.
trireme_status manifest_read(const char *directory, struct manifest *out, trireme_error *error);
// By what a directory counts as complete: the sizes of its files, or every byte.
struct manifest_check {
    bool content;           // every byte
    const char *content_of; // a file that is read even where all others are checked by size; NULL: none
    const char *spare;      // a file whose tensors nobody wants: it may be missing, else its header is checked; or NULL
};
#define MANIFEST_SIZES ((struct manifest_check){0})
#define MANIFEST_CONTENT ((struct manifest_check){.content = true})

// Checks that every listed file is there and passes the check. Files that are not listed do not matter. `watch` may be
// NULL.
trireme_status manifest_verify(const struct manifest *m, const char *directory, struct manifest_check check,
                               const struct checksum_watch *watch, trireme_error *error);

#endif
