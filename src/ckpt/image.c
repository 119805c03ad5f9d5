#include "ckpt/image.h"

struct image_set *image_add(struct image *image, const char *stem, uint64_t shard_bytes) {
    VEC_PUSH(&image->set, (struct image_set){0});
    struct image_set *set = &image->set.item[image->set.count - 1];
    safetensors_layout_create(&set->layout, stem, shard_bytes);
    return set;
}

void image_release(struct image *image) {
    for (size_t i = 0; i < image->set.count; i++) {
        safetensors_layout_release(&image->set.item[i].layout);
        VEC_RELEASE(&image->set.item[i].source);
    }
    VEC_RELEASE(&image->set);
}

trireme_status image_declare(struct image_set *set, const char *name, enum safetensors_dtype dtype, int ndim,
                             const int64_t *shape, const struct image_source *source, trireme_error *error) {
    TRY(safetensors_layout_declare(&set->layout, name, dtype, ndim, shape, error));
    VEC_PUSH(&set->source, *source);
    return TRIREME_OK;
}

trireme_status image_place(struct image *image, trireme_error *error) {
    for (size_t i = 0; i < image->set.count; i++)
        TRY(safetensors_layout_place(&image->set.item[i].layout, error));
    return TRIREME_OK;
}

size_t image_files(const struct image *image) {
    size_t files = 0;
    for (size_t i = 0; i < image->set.count; i++)
        files += image->set.item[i].layout.file.count;
    return files;
}

// The set that a file is of; *file becomes its number there.
static const struct image_set *image_set_of(const struct image *image, size_t *file) {
    const struct image_set *set = image->set.item;
    for (; *file >= set->layout.file.count; set++)
        *file -= set->layout.file.count;
    return set;
}

const struct safetensors_planned *image_file(const struct image *image, size_t file) {
    const struct image_set *set = image_set_of(image, &file);
    return &set->layout.file.item[file];
}

// Adds rows [row, row + rows) x columns [column, column + columns) of a tensor as the file has it. `at`: where the
// first of these elements lies in the block.
static void spans_add_run(struct image_spans *out, const struct image_source *s, int64_t row, int64_t rows,
                          int64_t column, int64_t columns, int64_t at) {
    const int64_t line = (s->transposed ? s->rows : s->columns) * s->size; // bytes of a row in the file
    struct image_span span = {.source = s, .at = at};
    if (rows == 0 || columns == 0)
        return;
    if (s->transposed) {
        span.window = (struct parameter_window){s->row + column, columns, row, rows};
        span.down = s->size;
        span.right = line;
    } else {
        span.window = (struct parameter_window){s->row + row, rows, column, columns};
        span.down = line;
        span.right = s->size;
    }
    VEC_PUSH(out, span);
}

// The same where rows lie head by head in the file: q, k and v of a head are runs of rows in the parameter.
static void spans_add(struct image_spans *out, const struct image_source *s, int64_t row, int64_t rows, int64_t column,
                      int64_t columns, int64_t at) {
    if (!s->heads) {
        spans_add_run(out, s, row, rows, column, columns, at);
        return;
    }
    const int64_t size = s->rows / (3 * s->heads), line = s->columns * s->size;
    for (int64_t done = 0, now; done < rows; done += now) {
        const int64_t block = (row + done) / size, within = (row + done) % size;
        now = MIN(size - within, rows - done);
        const size_t number = out->count;
        spans_add_run(out, s, row + done, now, column, columns, at + done * line);
        if (out->count > number)
            out->item[number].window.row = s->row + (block % 3 * s->heads + block / 3) * size + within;
    }
}

// Elements [begin, end) of a tensor are the end of a row, whole rows, and the beginning of one; any of them may be
// missing.
void image_cut_tensor(const struct image_source *s, int64_t begin, int64_t end, int64_t at, struct image_spans *out) {
    const int64_t columns = s->transposed ? s->rows : s->columns;
    const int64_t first = (begin + columns - 1) / columns, last = end / columns; // the whole rows
    if (first > last) {                                                          // all lies within one row
        spans_add(out, s, last, 1, begin - last * columns, end - begin, at);
        return;
    }
    spans_add(out, s, first - 1, 1, begin - (first - 1) * columns, first * columns - begin, at);
    spans_add(out, s, first, last - first, 0, columns, at + (first * columns - begin) * s->size);
    spans_add(out, s, last, 1, 0, end - last * columns, at + (last * columns - begin) * s->size);
}

// The first tensor of a layout that ends behind byte `begin` of a file.
static size_t tensor_at(const struct safetensors_layout *l, size_t file, uint64_t begin) {
    size_t low = 0, high = l->tensor.count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const struct safetensors_declared *t = &l->tensor.item[middle];
        if (t->file < file || (t->file == file && t->position + t->bytes <= begin))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct image_tensors image_tensors_in(const struct image *image, size_t file, uint64_t begin, uint64_t end) {
    const struct safetensors_layout *l = &image_set_of(image, &file)->layout;
    struct image_tensors tensors = {0};
    for (size_t i = tensor_at(l, file, begin); i < l->tensor.count; i++) {
        const struct safetensors_declared *t = &l->tensor.item[i];
        if (t->file != file || t->position >= end)
            break;
        tensors.first = tensors.first ?: t->name;
        tensors.last = t->name;
    }
    return tensors;
}

void image_cut(const struct image *image, size_t file, uint64_t begin, uint64_t end, struct image_spans *out) {
    const struct image_set *set = image_set_of(image, &file);
    const struct safetensors_layout *l = &set->layout;
    for (size_t i = tensor_at(l, file, begin); i < l->tensor.count; i++) {
        const struct safetensors_declared *t = &l->tensor.item[i];
        const struct image_source *s = &set->source.item[t->number];
        const uint64_t from = MAX(begin, t->position), to = MIN(end, t->position + t->bytes);
        if (t->file != file || t->position >= end)
            return;
        if (from < to && !s->zero)
            image_cut_tensor(s, (int64_t)(from - t->position) / s->size, (int64_t)(to - t->position) / s->size,
                             (int64_t)(from - begin), out);
    }
}
