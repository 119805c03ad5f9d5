// manifest.json: the list of a directory's files with their sizes and checksums, written last. A directory whose
// manifest is there and agrees is complete.
//   {"format":"trireme-directory","version":3,"block_bytes":16777216,"files":[
//     {"name":"config.json","bytes":480,"blake2b":"...","model":"..."},
//     {"name":"tokenizer.json","bytes":400,"blake2b":"..."},
//     {"name":"model.safetensors","bytes":20000000,"xxh3":["0123456789abcdef","..."]}],
//   "blake2b":"..."}
// `xxh3` has a sum for each block of a file. Versions 1 and 2 have, in its place, "tensors":[{"name":"__header__",
// "bytes":200,"blake2b":"..."}, ...], which cover their file without holes. `model` is a checksum of what a config.json
// says about the model: where it still agrees, somebody has edited only the rest of the file, which is accepted. Names
// are relative, with `/` between folders; no component is empty, "." or "..". The last checksum is of all bytes before
// its comma; manifests of version 1 have none.
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
    bool content;                    // every byte
    const char *content_of;          // a file that is read even where all others are checked by size; NULL: none
    bool (*spare)(const char *name); // files whose tensors nobody wants: they may be missing, else only what they
                                     // begin with is read; NULL: none
};
#define MANIFEST_SIZES ((struct manifest_check){0})
#define MANIFEST_CONTENT ((struct manifest_check){.content = true})

// Checks that every listed file is there and passes the check, as far as it is in the rank's share; and that whatever
// is read of a model and its training state is listed: configuration, weights, indices, progress. Other files that are
// not listed do not matter. `watch` may be NULL.
trireme_status manifest_verify(const struct manifest *m, const char *directory, struct manifest_check check,
                               struct checksum_share *share, const struct checksum_watch *watch, trireme_error *error);
// The two parts of it: one listed file; and what is read, but not listed.
trireme_status manifest_verify_file(const struct checksum_file *f, const char *directory, struct manifest_check check,
                                    struct checksum_share *share, const struct checksum_watch *watch,
                                    trireme_error *error);
trireme_status manifest_check_listed(const struct manifest *m, const char *directory, struct manifest_check check,
                                     trireme_error *error);
// A checksum of the manifest, which identifies the directory's content. Empty where the manifest cannot be read.
void manifest_identify(const char *directory, char hex[CHECKSUM_HEX]);

#endif
