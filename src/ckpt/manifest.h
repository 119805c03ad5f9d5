// manifest.json: the list of a directory's files with their sizes and checksums, written last. A directory whose
// manifest is there and agrees is complete.
//   {"format":"trireme-directory","version":2,"files":[
//     {"name":"config.json","bytes":480,"blake2b":"...","model":"..."},
//     {"name":"tokenizer.json","bytes":400,"blake2b":"..."},
//     {"name":"model.safetensors","bytes":5000,"tensors":[{"name":"__header__","bytes":200,"blake2b":"..."}, ...]}],
//   "blake2b":"..."}
// `tensors` cover their file without holes. `model` is a checksum, too, of what a config.json says of the model: where
// it still says that, people have edited the rest, and that is as good. Names are relative, `/` between folders, none
// empty, "." or "..". The last checksum is of all bytes before its comma; manifests of version 1 end without.
#ifndef CKPT_MANIFEST_H
#define CKPT_MANIFEST_H

#include "ckpt/checksum_file.h"

#define MANIFEST_NAME "manifest.json"
#define MANIFEST_BYTES_MAX ((size_t)256 << 20)

struct manifest {
    VEC(struct checksum_file) file; // sorted by name
};

void manifest_release(struct manifest *m);
// Takes over *file's memory. The name must not be there yet.
void manifest_add(struct manifest *m, struct checksum_file *file);
struct checksum_file *manifest_find(const struct manifest *m, const char *name);

// Writes `directory`/manifest.json and syncs it.
trireme_status manifest_write(const struct manifest *m, const char *directory, trireme_error *error);
// TRIREME_ERROR_CORRUPT when there is none or it is not of the form above. Caller releases *out.
trireme_status manifest_read(const char *directory, struct manifest *out, trireme_error *error);
// When a directory counts as complete: by the sizes of its files, or by every byte.
struct manifest_check {
    bool content;
    const char *content_of; // a file that is read where others go by their size, NULL: none
    const char *spare; // a file of which no tensor is wanted: it may be missing, else its header counts; NULL: none
};
#define MANIFEST_SIZES ((struct manifest_check){0})
#define MANIFEST_CONTENT ((struct manifest_check){.content = true})

// Every listed file is there, and is what the check asks for. Files that are not listed do not matter. `watch` may be
// NULL.
trireme_status manifest_verify(const struct manifest *m, const char *directory, struct manifest_check check,
                               const struct checksum_watch *watch, trireme_error *error);

#endif
