// The safetensors format: 8 bytes of header length (little-endian), the header (JSON: name -> dtype, shape,
// data_offsets; `__metadata__` -> strings), then the tensors' bytes without holes.
// https://github.com/huggingface/safetensors
//
// Opening maps files and checks all of their headers. A Hugging Face model is one file, or several ("shards") with an
// index that maps names to files. Where tensors of new files are to lie, safetensors_layout.h says.
#ifndef CKPT_SAFETENSORS_H
#define CKPT_SAFETENSORS_H

#include "ckpt/checksum_file.h"

#define SAFETENSORS_DIMS 8
#define SAFETENSORS_HEADER_MAX 100000000ull
#define SAFETENSORS_SHARD_BYTES 5000000000ull // Hugging Face's default

enum safetensors_dtype {
    SAFETENSORS_F64,
    SAFETENSORS_F32,
    SAFETENSORS_F16,
    SAFETENSORS_BF16,
    SAFETENSORS_I64,
    SAFETENSORS_I32,
    SAFETENSORS_I16,
    SAFETENSORS_I8,
    SAFETENSORS_U64,
    SAFETENSORS_U32,
    SAFETENSORS_U16,
    SAFETENSORS_U8,
    SAFETENSORS_BOOL,
    SAFETENSORS_C64,
    SAFETENSORS_F8_E5M2,
    SAFETENSORS_F8_E4M3,
    SAFETENSORS_F8_E8M0,
    SAFETENSORS_F8_E5M2FNUZ,
    SAFETENSORS_F8_E4M3FNUZ,
    SAFETENSORS_F6_E2M3,
    SAFETENSORS_F6_E3M2,
    SAFETENSORS_F4,
    SAFETENSORS_DTYPES
};

const char *safetensors_dtype_name(enum safetensors_dtype dtype); // as in files: "BF16"
unsigned safetensors_dtype_bits(enum safetensors_dtype dtype);    // of one element: 4 to 64
// False when the size overflows or is not whole bytes. No dim may be negative.
bool safetensors_bytes(enum safetensors_dtype dtype, int ndim, const int64_t *shape, uint64_t *bytes);
// "F32 [2, 3]", for messages.
#define SAFETENSORS_TYPE_TEXT 256
const char *safetensors_type_text(enum safetensors_dtype dtype, int ndim, const int64_t *shape,
                                  char buffer[SAFETENSORS_TYPE_TEXT]);

struct safetensors_tensor {
    const char *name;
    enum safetensors_dtype dtype;
    int ndim; // 0 for a scalar
    int64_t shape[SAFETENSORS_DIMS];
    const void *data; // bytes in the mapped file; may not be aligned to the element: copy, or check
    uint64_t bytes;
    size_t file;       // which of the files
    uint64_t position; // of data in that file
};

struct safetensors_file {
    char *path;
    const void *map;
    uint64_t bytes;
    uint64_t device, inode; // by which it is the same file when it is opened again
};

struct safetensors_pair {
    char *key, *value;
    size_t file;
};

struct safetensors {
    VEC(struct safetensors_file) file;
    VEC(struct safetensors_tensor) tensor; // sorted by name
    VEC(struct safetensors_pair) metadata; // of all files, sorted by key; the first file's value where they differ
    bool mapped;                           // the maps are ours to undo
    // Of the files, the one that was read last is open: there may be more than a process may have open.
    size_t open_file;
    int open; // -1: none is
};

// `path`: a .safetensors file, an index (.json), or a directory with model.safetensors or, if that is missing,
// model.safetensors.index.json or adapter_model.safetensors. Files that may shrink while they are open are for
// safetensors_read alone: touching `data` beyond a file's end kills the process.
trireme_status safetensors_open(const char *path, struct safetensors **out, trireme_error *error);
// The same for one file that lies in memory, which must outlive *out. `name` stands for its path in messages.
trireme_status safetensors_open_memory(const void *bytes, size_t length, const char *name, struct safetensors **out,
                                       trireme_error *error);
void safetensors_close(struct safetensors *s);

// Both return NULL if there is none.
const struct safetensors_tensor *safetensors_find(const struct safetensors *s, const char *name);
const char *safetensors_metadata(const struct safetensors *s, const char *key);
const char *safetensors_path(const struct safetensors *s, const struct safetensors_tensor *t);
// Reads `bytes` bytes of the tensor, from its byte `from` on: what is read is what the disk is asked for, give or take
// a page. CORRUPT where the file has become shorter since it was opened, or is another one. For one thread at a time.
trireme_status safetensors_read(struct safetensors *s, const struct safetensors_tensor *t, uint64_t from,
                                uint64_t bytes, void *to, trireme_error *error);
// TRIREME_OK when the tensor has that dtype and shape; else names file, tensor, expected and found.
trireme_status safetensors_expect(const struct safetensors *s, const struct safetensors_tensor *t,
                                  enum safetensors_dtype dtype, int ndim, const int64_t *shape, trireme_error *error);

#endif
