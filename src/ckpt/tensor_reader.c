#include "ckpt/tensor_reader.h"

#include "ckpt/convert.h"

// Stretches with at most a page between them are one: the system reads whole pages.
// A transposed matrix is turned by strips of so many lines of the file, which stay in the cache.
enum { PIECE_BYTES = 1 << 20, PAGE_BYTES = 1 << 12, RUN_MOST = 1 << 12, STRIP = 16 };

// Bytes [begin, end) of a piece.
struct tensor_stretch {
    int64_t begin, end;
};

struct tensor_run {
    double number[RUN_MOST];
    uint64_t stored[RUN_MOST], value[RUN_MOST]; // as bytes
    uint16_t low[RUN_MOST];
};

// What a tensor is, and where it goes.
struct taking {
    const struct safetensors_tensor *tensor;
    struct image_source source;
    const struct parameter_values *values, *remainders;
    bool same; // dtype in file and memory
};

void tensor_reader_create(struct tensor_reader *reader, struct safetensors *files, const struct checksum_watch *watch) {
    uint64_t most = 1;
    for (size_t i = 0; i < files->tensor.count; i++)
        most = MAX(most, files->tensor.item[i].bytes);
    *reader = (struct tensor_reader){
        .files = files, .share = 1, .watch = watch, .piece = mem_alloc((size_t)MIN(most, (uint64_t)PIECE_BYTES))};
}

void tensor_reader_release(struct tensor_reader *reader) {
    VEC_RELEASE(&reader->stretch);
    VEC_RELEASE(&reader->spans);
    free(reader->piece);
    free(reader->run);
}

// Refuses weights that are not finite: with them no training has a finite loss.
static trireme_status elements_check(const struct tensor_reader *reader, const struct taking *t, const void *values,
                                     int64_t count, trireme_error *error) {
    const enum dtype dtype = t->values->dtype;
    if (!reader->finite || convert_finite(dtype, values, count))
        return TRIREME_OK;
    FAIL(TRIREME_ERROR_CORRUPT, "%s: tensor \"%s\": holds a number that is not finite in %s",
         safetensors_path(reader->files, t->tensor), t->tensor->name, dtype_name(dtype));
}

// ---- what to read

static void stretch_add(struct tensor_reader *reader, int64_t begin, int64_t end) {
    struct tensor_stretch *last = reader->stretch.count ? &reader->stretch.item[reader->stretch.count - 1] : NULL;
    if (last && begin >= last->begin && begin <= last->end + PAGE_BYTES)
        last->end = MAX(last->end, end);
    else
        VEC_PUSH(&reader->stretch, (struct tensor_stretch){begin, end});
}

// Adds where rows [top, bottom) x columns [left, right) of a span lie, line after line of the file.
static void stretches_add(struct tensor_reader *reader, const struct image_span *span, int64_t top, int64_t bottom,
                          int64_t left, int64_t right) {
    const int64_t size = span->source->size;
    if (span->right == size)
        for (int64_t row = top; row < bottom; row++)
            stretch_add(reader, span->at + row * span->down + left * size, span->at + row * span->down + right * size);
    else
        for (int64_t column = left; column < right; column++)
            stretch_add(reader, span->at + column * span->right + top * size,
                        span->at + column * span->right + bottom * size);
}

// Adds where a part's elements lie that it has of a span: region by region, since regions may lie far apart.
static void stretches_of_part(struct tensor_reader *reader, const struct image_span *span, const struct holding *part) {
    const int64_t width = span->window.columns;
    for (int i = 0; i < part->regions; i++) {
        const struct parameter local = {.dim = {0, part->columns}, .regions = 1, .region = {part->region[i]}};
        struct parameter_runs runs = parameter_runs(&local, part->held, &span->window);
        int64_t top = span->window.rows, bottom = 0, left = width, right = 0;
        for (struct parameter_run run; parameter_next(&runs, &run);) {
            top = MIN(top, run.window / width);
            bottom = MAX(bottom, run.window / width + 1);
            left = MIN(left, run.window % width);
            right = MAX(right, run.window % width + run.count);
        }
        if (top < bottom)
            stretches_add(reader, span, top, bottom, left, right);
    }
}

static void stretches_of_values(struct tensor_reader *reader, const struct parameter_values *values, size_t number) {
    size_t count;
    const struct holding *part = parameter_values_of(values, number, &count);
    for (size_t i = 0; i < reader->spans.count; i++)
        for (size_t k = 0; k < count; k++)
            stretches_of_part(reader, &reader->spans.item[i], &part[k]);
}

static int compare_stretches(const void *a, const void *b) {
    const struct tensor_stretch *x = a, *y = b;
    return COMPARE(x->begin, y->begin);
}

// Reads the stretches, each to its place in the piece, which begins `from` bytes from the tensor's begin.
static trireme_status stretches_read(struct tensor_reader *reader, const struct taking *t, int64_t from,
                                     trireme_error *error) {
    VEC_SORT(&reader->stretch, compare_stretches);
    for (size_t i = 0, next; i < reader->stretch.count; i = next) {
        struct tensor_stretch s = reader->stretch.item[i];
        for (next = i + 1; next < reader->stretch.count; next++) {
            if (reader->stretch.item[next].begin > s.end + PAGE_BYTES)
                break;
            s.end = MAX(s.end, reader->stretch.item[next].end);
        }
        TRY(safetensors_read(reader->files, t->tensor, (uint64_t)(from + s.begin), (uint64_t)(s.end - s.begin),
                             reader->piece + s.begin, error));
        if (t->same)
            TRY(elements_check(reader, t, reader->piece + s.begin, (s.end - s.begin) / t->source.size, error));
    }
    return TRIREME_OK;
}

// ---- where it goes

// to[i] = the element i x step bytes from `from`.
static void elements_gather(void *to, const char *from, int64_t step, int64_t count, int64_t size) {
    if (step == size)
        memcpy(to, from, (size_t)(count * size));
    else if (size == 2)
        for (int64_t i = 0; i < count; i++)
            memcpy((char *)to + 2 * i, from + i * step, 2);
    else if (size == 4)
        for (int64_t i = 0; i < count; i++)
            memcpy((char *)to + 4 * i, from + i * step, 4);
    else
        for (int64_t i = 0; i < count; i++)
            memcpy((char *)to + i * size, from + i * step, (size_t)size);
}

// Moves to[count] towards the elements from[count].
static void elements_mix(void *to, const void *from, int64_t count, enum dtype dtype, double share) {
    CHECK(dtype == DTYPE_F32 || dtype == DTYPE_F64);
    for (int64_t i = 0; i < count && share > 0; i++)
        if (dtype == DTYPE_F64)
            ((double *)to)[i] += share * (((const double *)from)[i] - ((double *)to)[i]);
        else
            ((float *)to)[i] += (float)(share * ((double)((const float *)from)[i] - (double)((float *)to)[i]));
}

// Puts `count` elements, which are `step` bytes apart, to `to`, or their low halves, where these are asked for.
static trireme_status elements_put(struct tensor_reader *reader, const struct taking *t, const char *from, int64_t step,
                                   int64_t count, void *to, bool low, trireme_error *error) {
    const int64_t size = t->source.size, own = dtype_size(low ? DTYPE_U16 : t->values->dtype);
    if (t->same && reader->share == 1) {
        elements_gather(to, from, step, count, size);
        return TRIREME_OK;
    }
    struct tensor_run *run = reader->run = reader->run ?: mem_alloc(sizeof *run);
    for (int64_t done = 0; done < count; done += RUN_MOST) {
        const int64_t now = MIN(count - done, (int64_t)RUN_MOST);
        elements_gather(run->stored, from + done * step, step, now, size);
        if (t->same) {
            elements_mix((char *)to + done * size, run->stored, now, t->values->dtype, reader->share);
            continue;
        }
        convert_decode(t->tensor->dtype, run->stored, now, run->number);
        convert_encode(t->values->dtype, run->number, now, run->value, t->remainders ? run->low : NULL, 0);
        TRY(elements_check(reader, t, run->value, now, error));
        memcpy((char *)to + done * own, low ? (const void *)run->low : run->value, (size_t)(now * own));
    }
    return TRIREME_OK;
}

static trireme_status part_put(struct tensor_reader *reader, const struct taking *t, const struct image_span *span,
                               const struct holding *part, bool low, trireme_error *error) {
    const int64_t width = span->window.columns, own = dtype_size(low ? DTYPE_U16 : t->values->dtype);
    struct parameter local;
    struct parameter_runs runs = holding_runs(part, &span->window, &local);
    for (struct parameter_run run; parameter_next(&runs, &run);) {
        const char *from =
            reader->piece + span->at + run.window / width * span->down + run.window % width * span->right;
        TRY(elements_put(reader, t, from, span->right, run.count, (char *)part->data + run.held * own, low, error));
    }
    return TRIREME_OK;
}

static trireme_status values_put(struct tensor_reader *reader, const struct taking *t,
                                 const struct parameter_values *values, bool low, trireme_error *error) {
    size_t count;
    const struct holding *part = parameter_values_of(values, t->source.number, &count);
    for (size_t i = 0; i < reader->spans.count; i++)
        for (size_t k = 0; k < count; k++)
            TRY(part_put(reader, t, &reader->spans.item[i], &part[k], low, error));
    return TRIREME_OK;
}

// Cuts the spans of a transposed matrix into strips.
static void spans_strip(struct image_spans *spans) {
    const size_t count = spans->count;
    for (size_t i = 0; i < count; i++) {
        const struct image_span whole = spans->item[i];
        spans->item[i].window.columns = MIN(whole.window.columns, (int64_t)STRIP);
        for (int64_t done = STRIP; done < whole.window.columns; done += STRIP) {
            struct image_span strip = whole;
            strip.at += done * whole.right;
            strip.window.column += done;
            strip.window.columns = MIN(whole.window.columns - done, (int64_t)STRIP);
            VEC_PUSH(spans, strip);
        }
    }
}

// Elements [begin, end) of a tensor.
static trireme_status piece_take(struct tensor_reader *reader, const struct taking *t, int64_t begin, int64_t end,
                                 trireme_error *error) {
    reader->spans.count = reader->stretch.count = 0;
    image_cut_tensor(&t->source, begin, end, 0, &reader->spans);
    stretches_of_values(reader, t->values, t->source.number);
    if (t->remainders && !t->same)
        stretches_of_values(reader, t->remainders, t->source.number);
    if (reader->stretch.count == 0)
        return TRIREME_OK;
    TRY(stretches_read(reader, t, begin * t->source.size, error));
    if (t->source.transposed)
        spans_strip(&reader->spans);
    TRY(values_put(reader, t, t->values, false, error));
    if (t->remainders && !t->same)
        TRY(values_put(reader, t, t->remainders, true, error));
    if (reader->watch)
        reader->watch->read(reader->watch->user);
    return TRIREME_OK;
}

trireme_status tensor_reader_take(struct tensor_reader *reader, const struct safetensors_tensor *tensor,
                                  const struct image_source *source, const struct parameter_values *values,
                                  const struct parameter_values *remainders, trireme_error *error) {
    struct taking t = {tensor, *source, values, remainders, tensor->dtype == convert_stored(values->dtype)};
    t.source.size = (int)safetensors_dtype_bits(tensor->dtype) / 8;
    const int64_t count = (int64_t)tensor->bytes / t.source.size, most = PIECE_BYTES / t.source.size;
    CHECK(count == source->rows * source->columns);
    for (int64_t done = 0; done < count; done += most)
        TRY(piece_take(reader, &t, done, MIN(count, done + most), error));
    return TRIREME_OK;
}

static void part_fill(struct tensor_run *buffer, const struct image_source *source, const double *row,
                      const struct holding *part, enum dtype dtype, bool low) {
    const struct parameter_window window = {source->row, source->rows, 0, source->columns};
    const int64_t own = dtype_size(low ? DTYPE_U16 : dtype);
    struct parameter local;
    struct parameter_runs runs = holding_runs(part, &window, &local);
    for (struct parameter_run run; parameter_next(&runs, &run);)
        for (int64_t done = 0; done < run.count; done += RUN_MOST) {
            const int64_t now = MIN(run.count - done, (int64_t)RUN_MOST);
            for (int64_t i = 0; i < now; i++)
                buffer->number[i] = row[(run.window + done + i) % source->columns];
            convert_encode(dtype, buffer->number, now, buffer->value, low ? buffer->low : NULL, 0);
            memcpy((char *)part->data + (run.held + done) * own, low ? (const void *)buffer->low : buffer->value,
                   (size_t)(now * own));
        }
}

void tensor_reader_fill(struct tensor_reader *reader, const struct image_source *source, const double *row,
                        const struct parameter_values *values, const struct parameter_values *remainders) {
    reader->run = reader->run ?: mem_alloc(sizeof *reader->run);
    for (int low = 0; low < (remainders ? 2 : 1); low++) {
        size_t count;
        const struct holding *part = parameter_values_of(low ? remainders : values, source->number, &count);
        for (size_t k = 0; k < count; k++)
            part_fill(reader->run, source, row, &part[k], values->dtype, low);
    }
}
