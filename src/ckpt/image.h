// What a checkpoint's safetensors files hold, byte by byte: known on every rank, before anything is written, from the
// model and the kinds of values alone. Nothing in it depends on the mesh.
//
// A file is cut into blocks of equal size, each of which one rank writes (saver.h). A block holds spans: rectangles of
// whole parameters, as our table has them, whose elements go to places in the block.
#ifndef CKPT_IMAGE_H
#define CKPT_IMAGE_H

#include "ckpt/safetensors_layout.h"
#include "model/model.h"

// What a tensor is: rows [row, row + rows) of parameter `number` (or of its transpose), of one kind of values.
struct image_source {
    int group; // a number that the caller gives a meaning (saver.h)
    size_t number;
    int64_t row, rows, columns; // columns of the parameter
    bool transposed;
    int64_t heads; // as in struct parameter_piece
    bool zero;     // no parameter: all elements are zero
    int size;      // bytes of an element
};

// The files of one layout. Sources are numbered as its tensors were declared.
struct image_set {
    struct safetensors_layout layout;
    VEC(struct image_source) source;
};

struct image {
    VEC(struct image_set) set;
};

// Appends an empty set; both stay valid until the next one is appended. `stem` as in safetensors_layout_create.
struct image_set *image_add(struct image *image, const char *stem, uint64_t shard_bytes);
void image_release(struct image *image);
// Declares a tensor of a set.
trireme_status image_declare(struct image_set *set, const char *name, enum safetensors_dtype dtype, int ndim,
                             const int64_t *shape, const struct image_source *source, trireme_error *error);
// Once all tensors are declared.
trireme_status image_place(struct image *image, trireme_error *error);
// Files are numbered through all sets.
size_t image_files(const struct image *image);
const struct safetensors_planned *image_file(const struct image *image, size_t file);

// The names of the first and the last tensor that have bytes in [begin, end) of a file; NULL where none has.
struct image_tensors {
    const char *first, *last;
};
struct image_tensors image_tensors_in(const struct image *image, size_t file, uint64_t begin, uint64_t end);

struct image_span {
    const struct image_source *source;
    struct parameter_window window; // of the parameter
    // Bytes from the block's begin to the window's first element, and from an element to the one below it and to the
    // one on its right.
    int64_t at, down, right;
};
struct image_spans {
    VEC(struct image_span);
};
// Appends the spans of elements [begin, end) of a tensor, the first of which lies `at` bytes from the block's begin.
void image_cut_tensor(const struct image_source *source, int64_t begin, int64_t end, int64_t at,
                      struct image_spans *out);
// Appends the spans of bytes [begin, end) of a file, which must begin and end between elements; what the header has of
// them, and zeros, are left out.
void image_cut(const struct image *image, size_t file, uint64_t begin, uint64_t end, struct image_spans *out);

#endif
