#include "ckpt/tensor_difference.h"

#include "base/parallel_for.h"
#include "base/text.h"
#include "ckpt/convert.h"

#include <math.h>
#include <stdatomic.h>

enum { CHUNK = 1 << 18 }; // elements compared at a time

static const char PREFIX[] = "transformer.";

// Elements [first, first + count) of a tensor in both sets.
struct difference_piece {
    size_t of; // of `found`
    int64_t first, count;
};

// A tensor in both sets; `difference` is kept if there is any.
struct difference_pair {
    const struct safetensors_tensor *tensor[2];
    struct tensor_difference difference;
};

struct comparing {
    const char *path[2];
    int threads;
    void (*read)(void *user, uint64_t done, uint64_t total);
    void *user;
    VEC(struct difference_pair) found;
    VEC(struct difference_piece) pieces;
    atomic_size_t next;
    pthread_mutex_t lock; // of what follows and of the differences
    uint64_t done, total;
};

// ---- numbers

static bool is_integer(enum safetensors_dtype dtype) {
    return dtype >= SAFETENSORS_I64 && dtype <= SAFETENSORS_BOOL;
}

static bool is_number(enum safetensors_dtype dtype) {
    return convert_readable(dtype) || is_integer(dtype);
}

// Bytes of an element; of narrower ones and of complex numbers, whose elements have no order, bytes are compared.
static int64_t element_bytes(enum safetensors_dtype dtype) {
    return is_number(dtype) ? safetensors_dtype_bits(dtype) / 8 : 1;
}

static double integer_at(enum safetensors_dtype dtype, const unsigned char *at) {
    uint64_t bits = 0;
    const unsigned width = safetensors_dtype_bits(dtype);
    memcpy(&bits, at, width / 8); // files are little-endian, as the machine is
    const bool is_signed = dtype <= SAFETENSORS_I8;
    return is_signed ? (double)((int64_t)(bits << (64 - width)) >> (64 - width)) : (double)bits;
}

static void difference_decode(enum safetensors_dtype dtype, const unsigned char *bytes, int64_t count, double *out) {
    if (convert_readable(dtype)) {
        convert_decode(dtype, bytes, count, out);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        out[i] = is_integer(dtype) ? integer_at(dtype, bytes + i * element_bytes(dtype)) : (double)bytes[i];
}

// What differs in a piece.
struct difference_sum {
    int64_t different, first;
    double absolute, relative, first_a, first_b;
};

static void sum_add(struct difference_sum *sum, int64_t at, double a, double b) {
    const bool finite = isfinite(a) && isfinite(b), neither = isnan(a) && isnan(b); // NaNs of different bits
    const double absolute = finite ? fabs(a - b) : neither ? 0 : INFINITY, largest = fmax(fabs(a), fabs(b));
    if (sum->different++ == 0) {
        sum->first = at;
        sum->first_a = a;
        sum->first_b = b;
    }
    sum->absolute = fmax(sum->absolute, absolute);
    sum->relative = fmax(sum->relative, !finite ? absolute : largest > 0 ? absolute / largest : 0);
}

static void compare_numbers(const struct tensor_difference *d, const struct difference_piece *piece,
                            unsigned char *const bytes[2], double *const numbers[2], struct difference_sum *sum) {
    const int64_t size = element_bytes(d->a.dtype);
    difference_decode(d->a.dtype, bytes[0], piece->count, numbers[0]);
    difference_decode(d->b.dtype, bytes[1], piece->count, numbers[1]);
    for (int64_t i = 0; i < piece->count; i++) {
        const double a = numbers[0][i], b = numbers[1][i];
        const bool equal = d->dtype ? a == b || (isnan(a) && isnan(b))
                                    : memcmp(bytes[0] + i * size, bytes[1] + i * size, (size_t)size) == 0;
        if (!equal)
            sum_add(sum, piece->first + i, a, b);
    }
}

// ---- pieces, on several threads

static void comparing_merge(struct comparing *c, const struct difference_piece *piece,
                            const struct difference_sum *sum) {
    struct tensor_difference *d = &c->found.item[piece->of].difference;
    pthread_mutex_lock(&c->lock);
    c->done += (uint64_t)(piece->count * element_bytes(d->a.dtype));
    if (c->read)
        c->read(c->user, c->done, c->total);
    if (sum->different && (!d->different || sum->first < d->first)) {
        d->first = sum->first;
        d->first_a = sum->first_a;
        d->first_b = sum->first_b;
    }
    d->different += sum->different;
    d->absolute = fmax(d->absolute, sum->absolute);
    d->relative = fmax(d->relative, sum->relative);
    pthread_mutex_unlock(&c->lock);
}

struct difference_buffers {
    struct safetensors *files[2];
    unsigned char *bytes[2];
    double *numbers[2];
};

static trireme_status compare_piece(struct comparing *c, const struct difference_piece *piece,
                                    struct difference_buffers *buffers, trireme_error *error) {
    const struct difference_pair *pair = &c->found.item[piece->of];
    const struct tensor_difference *d = &pair->difference;
    struct difference_sum sum = {0};
    for (int i = 0; i < 2; i++) {
        const int64_t size = element_bytes(i ? d->b.dtype : d->a.dtype);
        const struct safetensors_tensor *t = safetensors_find(buffers->files[i], pair->tensor[i]->name);
        if (!t || t->dtype != pair->tensor[i]->dtype || t->bytes != pair->tensor[i]->bytes)
            FAIL(TRIREME_ERROR_CORRUPT, "%s: is being changed by another program", c->path[i]);
        TRY(safetensors_read(buffers->files[i], t, (uint64_t)(piece->first * size), (uint64_t)(piece->count * size),
                             buffers->bytes[i], error));
    }
    const size_t size = (size_t)(piece->count * element_bytes(d->a.dtype));
    if (d->dtype || memcmp(buffers->bytes[0], buffers->bytes[1], size) != 0)
        compare_numbers(d, piece, buffers->bytes, buffers->numbers, &sum);
    comparing_merge(c, piece, &sum);
    return TRIREME_OK;
}

static trireme_status compare_some(void *argument, int worker, trireme_error *error) {
    struct comparing *c = argument;
    struct difference_buffers buffers = {0};
    trireme_status status = TRIREME_OK;
    (void)worker;
    for (int i = 0; i < 2; i++) {
        if (status == TRIREME_OK)
            status = safetensors_open(c->path[i], &buffers.files[i], error);
        buffers.bytes[i] = mem_alloc(8 * (size_t)CHUNK);
        buffers.numbers[i] = mem_alloc(sizeof(double) * (size_t)CHUNK);
    }
    for (size_t i; status == TRIREME_OK && (i = c->next++) < c->pieces.count;)
        status = compare_piece(c, &c->pieces.item[i], &buffers, error);
    for (int i = 0; i < 2; i++) {
        safetensors_close(buffers.files[i]);
        free(buffers.bytes[i]);
        free(buffers.numbers[i]);
    }
    return status;
}

// ---- tensors

static struct tensor_type type_of(const struct safetensors_tensor *t) {
    struct tensor_type type = {.dtype = t->dtype, .ndim = t->ndim};
    memcpy(type.shape, t->shape, sizeof type.shape);
    return type;
}

static const struct safetensors_tensor *find_like(const struct safetensors *files, const char *name) {
    const size_t prefix = strlen(PREFIX);
    const struct safetensors_tensor *found = safetensors_find(files, name);
    if (found)
        return found;
    if (strncmp(name, PREFIX, prefix) == 0)
        return safetensors_find(files, name + prefix);
    char *longer = mem_printf("%s%s", PREFIX, name);
    found = safetensors_find(files, longer);
    free(longer);
    return found;
}

static void comparing_add_pair(struct comparing *c, const struct safetensors_tensor *a,
                               const struct safetensors_tensor *b) {
    struct tensor_difference d = {.name = mem_strdup(a->name), .a = type_of(a), .b = type_of(b)};
    d.shape = a->ndim != b->ndim || memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) != 0;
    d.dtype = a->dtype != b->dtype;
    d.incomparable = d.dtype && !(is_number(a->dtype) && is_number(b->dtype));
    d.elements = (int64_t)a->bytes / element_bytes(a->dtype);
    VEC_PUSH(&c->found, (struct difference_pair){{a, b}, d});
    for (int64_t first = 0; first < d.elements && !d.shape && !d.incomparable; first += CHUNK)
        VEC_PUSH(&c->pieces,
                 (struct difference_piece){c->found.count - 1, first, MIN((int64_t)CHUNK, d.elements - first)});
    c->total += d.shape || d.incomparable ? 0 : a->bytes;
}

static void differences_add_only(struct tensor_differences *out, int only, const struct safetensors_tensor *t) {
    struct tensor_difference d = {.name = mem_strdup(t->name), .only = only};
    *(only == 1 ? &d.a : &d.b) = type_of(t);
    VEC_PUSH(out, d);
    out->tensors++;
}

static void comparing_match(struct comparing *c, const struct safetensors *a, const struct safetensors *b,
                            struct tensor_differences *out) {
    bool *met = mem_alloc((b ? b->tensor.count : 0) * sizeof *met + 1);
    for (size_t i = 0; a && i < a->tensor.count; i++) {
        const struct safetensors_tensor *other = b ? find_like(b, a->tensor.item[i].name) : NULL;
        if (!other || met[other - b->tensor.item]) {
            differences_add_only(out, 1, &a->tensor.item[i]);
            continue;
        }
        met[other - b->tensor.item] = true;
        comparing_add_pair(c, &a->tensor.item[i], other);
        out->tensors++;
    }
    for (size_t i = 0; b && i < b->tensor.count; i++)
        if (!met[i])
            differences_add_only(out, 2, &b->tensor.item[i]);
    free(met);
}

static int compare_names(const void *a, const void *b) {
    const struct tensor_difference *x = a, *y = b;
    return strcmp(x->name, y->name) ?: COMPARE(x->only, y->only);
}

// Keeps the pairs that differ.
static void comparing_keep(struct comparing *c, struct tensor_differences *out) {
    for (size_t i = 0; i < c->found.count; i++) {
        struct tensor_difference *d = &c->found.item[i].difference;
        if (!is_number(d->a.dtype))
            d->absolute = d->relative = d->first_a = d->first_b = NAN;
        if (d->shape || d->dtype || d->different)
            VEC_PUSH(out, *d);
        else
            free(d->name);
    }
    VEC_SORT(out, compare_names);
}

trireme_status tensors_compare(const char *a, const char *b, int threads,
                               void (*read)(void *user, uint64_t done, uint64_t total), void *user,
                               struct tensor_differences *out, trireme_error *error) {
    struct comparing c = {.path = {a, b}, .read = read, .user = user};
    struct safetensors *files[2] = {NULL, NULL};
    trireme_status status = TRIREME_OK;
    *out = (struct tensor_differences){0};
    for (int i = 0; i < 2 && status == TRIREME_OK; i++)
        if (c.path[i])
            status = safetensors_open(c.path[i], &files[i], error);
    pthread_mutex_init(&c.lock, NULL);
    if (status == TRIREME_OK) {
        comparing_match(&c, files[0], files[1], out);
        const int workers = (int)MIN((size_t)threads, c.pieces.count);
        status = parallel_try(workers, workers, compare_some, &c, error);
        comparing_keep(&c, out);
    }
    if (status != TRIREME_OK)
        tensor_differences_release(out);
    pthread_mutex_destroy(&c.lock);
    VEC_RELEASE(&c.found);
    VEC_RELEASE(&c.pieces);
    for (int i = 0; i < 2; i++)
        if (files[i])
            safetensors_close(files[i]);
    return status;
}

void tensor_differences_release(struct tensor_differences *differences) {
    for (size_t i = 0; i < differences->count; i++)
        free(differences->item[i].name);
    VEC_RELEASE(differences);
}
