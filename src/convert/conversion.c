#include "convert/conversion.h"

#include "base/bf16.h"
#include "base/json.h"
#include "base/mapped.h"
#include "base/parallel_for.h"
#include "base/text.h"
#include "ckpt/convert.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    BLOCK_NUMBERS = 1 << 18, // of a tensor at once, or one row
    BATCH_BLOCKS = 32        // between two looks at whether to go on, for each thread
};

// ---- numbers

const char *stored_name(enum stored stored) {
    static const char *const NAMES[] = {"f32", "f16", "bf16", "q8_0"};
    return NAMES[stored];
}

uint64_t stored_bytes(enum stored stored, int64_t count) {
    CHECK(stored != STORED_Q8_0 || count % Q8_0_NUMBERS == 0);
    return stored == STORED_Q8_0 ? (uint64_t)count / Q8_0_NUMBERS * Q8_0_BYTES
                                 : (uint64_t)count * (stored == STORED_F32 ? 4 : 2);
}

enum stored stored_like(enum safetensors_dtype dtype) {
    return dtype == SAFETENSORS_F16 ? STORED_F16 : dtype == SAFETENSORS_BF16 ? STORED_BF16 : STORED_F32;
}

// IEEE binary16, rounded to nearest, ties to even.
static uint16_t half_from_float(float number) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    const uint16_t sign = bits >> 16 & 0x8000;
    const uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return sign | 0x7e00 | (magnitude >> 13 & 0x3ff); // NaN
    if (magnitude >= 0x477ff000)
        return sign | 0x7c00; // 65520 and more
    if (magnitude < 0x38800000) {
        // Subnormal: a multiple of 2^-24. The sum rounds to one, as those of 0.5 are 2^-24 apart.
        float sum, half = 0.5f;
        memcpy(&sum, &magnitude, sizeof sum);
        sum += half;
        uint32_t rounded, zero;
        memcpy(&rounded, &sum, sizeof rounded);
        memcpy(&zero, &half, sizeof zero);
        return sign | (uint16_t)(rounded - zero);
    }
    const uint32_t odd = magnitude >> 13 & 1;
    return sign | (uint16_t)((magnitude + 0xfff + odd - 0x38000000) >> 13);
}

// ggml's quantize_row_q8_0_ref: the largest magnitude becomes 127.
static bool q8_0_encode(const double *in, uint8_t *out) {
    float largest = 0;
    for (int i = 0; i < Q8_0_NUMBERS; i++)
        largest = fmaxf(largest, fabsf((float)in[i]));
    const float scale = largest / 127, inverse = scale ? 1 / scale : 0;
    const uint16_t half = half_from_float(scale);
    memcpy(out, &half, sizeof half);
    for (int i = 0; i < Q8_0_NUMBERS; i++)
        out[2 + i] = (uint8_t)(int8_t)roundf((float)in[i] * inverse);
    return (half & 0x7fff) < 0x7c00;
}

bool stored_encode(enum stored stored, const double *in, int64_t count, void *out) {
    bool fits = true;
    switch (stored) {
    case STORED_F32:
        for (int64_t i = 0; i < count; i++)
            ((float *)out)[i] = (float)in[i];
        break;
    case STORED_BF16:
        for (int64_t i = 0; i < count; i++)
            ((uint16_t *)out)[i] = bf16_from_float((float)in[i]);
        break;
    case STORED_F16:
        for (int64_t i = 0; i < count; i++) {
            const uint16_t half = half_from_float((float)in[i]);
            fits = fits && ((half & 0x7fff) != 0x7c00 || isinf(in[i]));
            ((uint16_t *)out)[i] = half;
        }
        break;
    case STORED_Q8_0:
        for (int64_t i = 0; i < count; i += Q8_0_NUMBERS)
            fits = q8_0_encode(in + i, (uint8_t *)out + i / Q8_0_NUMBERS * Q8_0_BYTES) && fits;
        break;
    case STORED_KINDS:
        CHECK(false);
    }
    return fits;
}

// ---- sums

const struct adapter_sum *conversion_sum(const struct conversion_options *options, const struct safetensors *files,
                                         const struct safetensors_tensor *tensor) {
    const struct adapter_sum *sum = options->sums ? &options->sums[tensor - files->tensor.item] : NULL;
    return sum && sum->left ? sum : NULL;
}

void conversion_add_sums(const struct conversion_options *options, const struct safetensors *files,
                         struct conversion_tensors *tensors) {
    for (size_t i = 0; i < tensors->count; i++) {
        struct conversion_tensor *t = &tensors->item[i];
        t->sum = conversion_sum(options, files, t->from);
        t->copied = t->copied && !t->sum;
    }
}

// ---- blocks

struct block {
    const struct conversion_tensor *tensor;
    int64_t first, count; // rows, or bytes of what is copied
};

struct blocks {
    VEC(struct block);
    size_t begun;
    int file;
    const char *path;
};

static trireme_status file_put(int file, const char *path, const void *bytes, uint64_t length, uint64_t position,
                               trireme_error *error) {
    for (uint64_t done = 0; done < length;) {
        const ssize_t n = pwrite(file, (const char *)bytes + done, length - done, (off_t)(position + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            FAIL(TRIREME_ERROR_IO, "%s: cannot write: %s", path, strerror(n < 0 ? errno : ENOSPC));
        done += (uint64_t)n;
    }
    return TRIREME_OK;
}

static trireme_status source_copy(const struct conversion_tensor *t, uint64_t from, uint64_t bytes, void *out,
                                  trireme_error *error) {
    if (mapped_copy((const char *)t->from->data + from, bytes, out))
        return TRIREME_OK;
    FAIL(TRIREME_ERROR_CORRUPT, "%s became shorter while it was read, or its disk cannot read it", t->path);
}

static trireme_status source_decode(const struct conversion_tensor *t, int64_t first, int64_t count, double *out,
                                    trireme_error *error) {
    const uint64_t size = safetensors_dtype_bits(t->from->dtype) / 8;
    if (t->from->dtype == SAFETENSORS_F64)
        return source_copy(t, (uint64_t)first * size, (uint64_t)count * size, out, error);
    // The raw numbers, which are never wider, lie at the end of the room for those that they become.
    char *raw = (char *)out + (sizeof *out - size) * (uint64_t)count;
    TRY(source_copy(t, (uint64_t)first * size, (uint64_t)count * size, raw, error));
    convert_decode(t->from->dtype, raw, count, out);
    return TRIREME_OK;
}

// Numbers [first, first + count) of the source.
static trireme_status source_read(const struct conversion_tensor *t, int64_t first, int64_t count, double *out,
                                  trireme_error *error) {
    TRY(source_decode(t, first, count, out, error));
    if (t->sum)
        adapter_sum_add(t->sum, first, count, out);
    return TRIREME_OK;
}

static int64_t source_row(const struct conversion_tensor *t, int64_t row) {
    if (t->order == ROWS_IN_ORDER)
        return row;
    if (t->order == ROWS_IN_PAIRS) {
        const int64_t width = t->rows / t->heads, head = row / width, at = row % width;
        return head * width + at % 2 * (width / 2) + at / 2;
    }
    const int64_t width = t->rows / 3 / t->heads, part = row / (width * t->heads), head = row / width % t->heads;
    return (head * 3 + part) * width + row % width;
}

static int64_t source_rows(const struct conversion_tensor *t) {
    return (int64_t)(8 * t->from->bytes / safetensors_dtype_bits(t->from->dtype)) / t->columns;
}

static trireme_status read_in_order(const struct block *b, double *out, trireme_error *error) {
    const struct conversion_tensor *t = b->tensor;
    const int64_t columns = t->columns, last = b->first + b->count, there = source_rows(t);
    for (int64_t row = b->first, run; row < last; row += run) {
        const int64_t from = source_row(t, row);
        run = 1;
        if (from >= there) { // all further ones are, too
            memset(out + (row - b->first) * columns, 0, (size_t)((last - row) * columns) * sizeof *out);
            return TRIREME_OK;
        }
        while (row + run < last && from + run < there && source_row(t, row + run) == from + run)
            run++;
        TRY(source_read(t, from * columns, run * columns, out + (row - b->first) * columns, error));
    }
    return TRIREME_OK;
}

static trireme_status read_transposed(const struct block *b, double *out, trireme_error *error) {
    const struct conversion_tensor *t = b->tensor;
    double *strip = mem_alloc((size_t)b->count * sizeof *strip);
    trireme_status status = TRIREME_OK;
    for (int64_t column = 0; column < t->columns && status == TRIREME_OK; column++) {
        status = source_read(t, column * t->rows + b->first, b->count, strip, error);
        for (int64_t i = 0; i < b->count && status == TRIREME_OK; i++)
            out[i * t->columns + column] = strip[i];
    }
    free(strip);
    return status;
}

static trireme_status block_convert(const struct block *b, const struct blocks *blocks, void *buffer, double *numbers,
                                    trireme_error *error) {
    const struct conversion_tensor *t = b->tensor;
    if (t->copied) {
        TRY(source_copy(t, (uint64_t)b->first, (uint64_t)b->count, buffer, error));
        return file_put(blocks->file, blocks->path, buffer, (uint64_t)b->count, t->position + (uint64_t)b->first,
                        error);
    }
    const int64_t count = b->count * t->columns;
    char shown[JSON_EXCERPT_BYTES];
    TRY(t->order == ROWS_TRANSPOSED ? read_transposed(b, numbers, error) : read_in_order(b, numbers, error));
    for (int64_t i = 0; i < count && t->added != 0; i++)
        numbers[i] = (double)((float)numbers[i] + (float)t->added);
    if (!stored_encode(t->stored, numbers, count, buffer))
        FAIL(TRIREME_ERROR_USAGE, "%s: tensor %s: a number is beyond the range of f16 (65504): give dtype=bf16 or f32",
             t->path, json_excerpt(t->name, shown));
    return file_put(blocks->file, blocks->path, buffer, stored_bytes(t->stored, count),
                    t->position + stored_bytes(t->stored, b->first * t->columns), error);
}

static trireme_status convert_one(void *argument, int i, trireme_error *error) {
    const struct blocks *blocks = argument;
    const struct block *b = &blocks->item[blocks->begun + (size_t)i];
    const struct conversion_tensor *t = b->tensor;
    const size_t count = (size_t)(b->count * (t->copied ? 1 : t->columns));
    void *buffer = mem_alloc(t->copied ? count : count * sizeof(float));
    double *numbers = t->copied ? NULL : mem_alloc(count * sizeof *numbers);
    trireme_status status = block_convert(b, blocks, buffer, numbers, error);
    free(buffer);
    free(numbers);
    return status;
}

static void blocks_add(struct blocks *blocks, const struct conversion_tensor *t) {
    const int64_t all = t->copied ? (int64_t)t->from->bytes : t->rows,
                  most = t->copied ? BLOCK_NUMBERS * 4 : MAX((int64_t)1, BLOCK_NUMBERS / t->columns);
    for (int64_t first = 0; first < all; first += most)
        VEC_PUSH(blocks, (struct block){t, first, MIN(most, all - first)});
}

// Pages of the source that were read no longer count as memory of this process.
static void block_forget(const struct safetensors *files, const struct block *b) {
    const struct safetensors_tensor *from = b->tensor->from;
    const struct safetensors_file *file = &files->file.item[from->file];
    mapped_forget(file->map, file->bytes, from->position, from->bytes);
}

static trireme_status blocks_run(struct blocks *blocks, const struct safetensors *files, struct conversion_watch *watch,
                                 trireme_error *error) {
    const int threads = usable_cores();
    while (blocks->begun < blocks->count) {
        const int now = (int)MIN(blocks->count - blocks->begun, (size_t)threads * BATCH_BLOCKS);
        if (watch->cancel && *watch->cancel)
            FAIL(TRIREME_ERROR_INTERRUPTED, "interrupted, nothing was written");
        TRY(parallel_try(threads, now, convert_one, blocks, error));
        for (size_t i = blocks->begun; i < blocks->begun + (size_t)now; i++) {
            const struct block *b = &blocks->item[i];
            const int64_t rows = b->tensor->copied ? (int64_t)b->tensor->from->bytes : b->tensor->rows;
            watch->done += (uint64_t)((double)b->tensor->from->bytes * (double)b->count / (double)rows);
            block_forget(files, b);
        }
        blocks->begun += (size_t)now;
        if (watch->progress)
            watch->progress(watch->user, watch->done, watch->total);
    }
    return TRIREME_OK;
}

trireme_status conversion_write(const struct safetensors *files, const struct conversion_tensors *tensors, int file,
                                const char *path, struct conversion_watch *watch, trireme_error *error) {
    struct blocks blocks = {.file = file, .path = path};
    for (size_t i = 0; i < tensors->count; i++)
        blocks_add(&blocks, &tensors->item[i]);
    const trireme_status status = blocks_run(&blocks, files, watch, error);
    VEC_RELEASE(&blocks);
    return status;
}

// ---- a file of its own

trireme_status new_file_begin(struct new_file *f, const char *path, trireme_error *error) {
    struct stat info;
    if (lstat(path, &info) == 0)
        FAIL(TRIREME_ERROR_USAGE, "%s exists: name another file, or remove it", path);
    *f = (struct new_file){.path = mem_strdup(path), .temporary = mem_printf("%s.tmp", path)};
    f->file = open(f->temporary, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    trireme_status status = TRIREME_OK;
    if (f->file < 0)
        status = error_set(error, TRIREME_ERROR_IO, "%s: cannot create: %s", f->temporary, strerror(errno));
    else if (!file_lock(f->file) && errno == EAGAIN)
        status = error_set(error, TRIREME_ERROR_BUSY, "%s: another process is writing it", f->temporary);
    else if (ftruncate(f->file, 0) != 0)
        status = error_set(error, TRIREME_ERROR_IO, "%s: cannot write: %s", f->temporary, strerror(errno));
    if (status == TRIREME_OK)
        return status;
    if (f->file >= 0)
        close(f->file);
    free(f->path);
    free(f->temporary);
    return status;
}

trireme_status new_file_add(struct new_file *f, const void *bytes, size_t length, uint64_t position,
                            trireme_error *error) {
    return file_put(f->file, f->temporary, bytes, length, position, error);
}

trireme_status new_file_size(struct new_file *f, uint64_t bytes, trireme_error *error) {
    if (ftruncate(f->file, (off_t)bytes) != 0)
        FAIL(TRIREME_ERROR_IO, "%s: cannot write: %s", f->temporary, strerror(errno));
    return TRIREME_OK;
}

void new_file_abort(struct new_file *f) {
    unlink(f->temporary);
    close(f->file);
    free(f->path);
    free(f->temporary);
}

trireme_status new_file_end(struct new_file *f, trireme_error *error) {
    trireme_status status = TRIREME_OK;
    if (fsync(f->file) != 0)
        status = error_set(error, TRIREME_ERROR_IO, "%s: cannot sync: %s", f->temporary, strerror(errno));
    // A link fails where a rename would replace what has come there meanwhile.
    else if (link(f->temporary, f->path) != 0 && (errno == EEXIST || rename(f->temporary, f->path) != 0))
        status = error_set(error, TRIREME_ERROR_IO, "%s: cannot be given its name: %s", f->path, strerror(errno));
    else
        status = file_sync_directory(f->path, error);
    new_file_abort(f);
    return status;
}
