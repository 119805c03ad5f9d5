#include "ckpt/save_plan.h"

#include "base/bf16.h"

// What one rank gives of one span: of values `term`, or of their remainders.
struct given_part {
    const struct image_span *span;
    const struct holder_part *part;
    int rank, group, size;
};
struct given_parts {
    VEC(struct given_part);
};

// Adds who gives values of a span in block number `turn`: of ranks that hold the same, the one whose turn it is.
static void parts_add(struct given_parts *out, const struct save_plan *p, const struct image_span *span, int group,
                      int size, size_t turn) {
    size_t count;
    const struct holder_part *part = holders_of(p->holders, group, span->source->number, &count);
    for (size_t i = 0; i < count; i++)
        VEC_PUSH(out, (struct given_part){span, &part[i], holders_rank(p->holders, &part[i], turn), group, size});
}

// As what the holders have the values; whether they are to be made into something else than they are.
static enum dtype values_held(const struct save_values *v) {
    return v->masters ? dtype_accumulate(v->dtype) : v->dtype;
}
static bool values_made(const struct save_values *v) {
    return v->terms > 1 || values_held(v) != v->dtype;
}

// All parts of a span, in the order in which ranks pack theirs: term by term.
static void parts_of_span(struct given_parts *out, const struct save_plan *p, const struct image_span *span,
                          size_t turn) {
    const struct save_values *v = &p->values[span->source->group];
    for (int k = 0; k < v->terms; k++) {
        parts_add(out, p, span, v->group[k], (int)dtype_size(values_held(v)), turn);
        if (v->remainder)
            parts_add(out, p, span, v->remainder[k], sizeof(uint16_t), turn);
    }
}

static void block_spans(const struct save_plan *p, size_t block, struct image_spans *out) {
    const struct save_block *b = &p->block.item[block];
    image_cut(p->image, b->file, b->begin, b->begin + (uint64_t)b->bytes, out);
}

static int64_t part_bytes(const struct save_plan *p, const struct given_part *part) {
    struct parameter local;
    struct parameter_runs runs = holders_runs(p->holders, part->part, &part->span->window, &local);
    int64_t count = 0;
    for (struct parameter_run run; parameter_next(&runs, &run);)
        count += run.count;
    return count * part->size;
}

int64_t save_shares(const struct save_plan *p, size_t block, int64_t *bytes) {
    struct image_spans spans = {0};
    int64_t total = 0;
    memset(bytes, 0, (size_t)p->ranks * sizeof *bytes);
    block_spans(p, block, &spans);
    for (size_t i = 0; i < spans.count; i++) {
        struct given_parts parts = {0};
        parts_of_span(&parts, p, &spans.item[i], block);
        for (size_t k = 0; k < parts.count; k++) {
            const int64_t n = part_bytes(p, &parts.item[k]);
            bytes[parts.item[k].rank] += n;
            total += n;
        }
        VEC_RELEASE(&parts);
    }
    VEC_RELEASE(&spans);
    return total;
}

// One of those that give at least half as much as the one that gives most; they take turns. A block of zeros alone:
// any.
static int choose_writer(const int64_t *bytes, int ranks, size_t turn) {
    int64_t most = 0;
    int able = 0;
    for (int r = 0; r < ranks; r++)
        most = MAX(most, bytes[r]);
    for (int r = 0; r < ranks; r++)
        able += bytes[r] >= (most + 1) / 2;
    int before = (int)(turn % (size_t)able);
    for (int r = 0;; r++)
        if (bytes[r] >= (most + 1) / 2 && before-- == 0)
            return r;
}

// Whether the values of a block are one rank's own ones, each behind the one before it.
static bool block_is_in_order(const struct save_plan *p, size_t block) {
    struct image_spans spans = {0};
    bool in_order = true;
    block_spans(p, block, &spans);
    for (size_t i = 0; i < spans.count && in_order; i++)
        in_order = !values_made(&p->values[spans.item[i].source->group]) && !spans.item[i].source->transposed &&
                   !spans.item[i].source->heads;
    VEC_RELEASE(&spans);
    return in_order;
}

void save_plan_create(struct save_plan *out, const struct image *image, const struct holders *holders,
                      const struct holdings *own, const struct save_values *values, int rank, int64_t block_bytes) {
    const int ranks = mesh_ranks(&holders->mesh);
    *out = (struct save_plan){
        .image = image, .holders = holders, .own = own, .values = values, .ranks = ranks, .rank = rank};
    for (size_t file = 0; file < image_files(image); file++) {
        const uint64_t bytes = image_file(image, file)->bytes;
        for (uint64_t at = 0; at < bytes; at += (uint64_t)block_bytes)
            VEC_PUSH(&out->block, (struct save_block){.file = file,
                                                      .begin = at,
                                                      .bytes = (int64_t)MIN((uint64_t)block_bytes, bytes - at)});
    }
    int64_t *share = mem_alloc((size_t)ranks * sizeof *share);
    for (size_t b = 0; b < out->block.count; b++) {
        const int64_t total = save_shares(out, b, share);
        struct save_block *block = &out->block.item[b];
        block->writer = choose_writer(share, ranks, b);
        block->give = share[rank];
        block->whole = block->writer == rank && block->give == total && block_is_in_order(out, b);
        block->packed = block->whole ? block->bytes : block->give;
        out->most_packed = MAX(out->most_packed, block->packed);
        if (block->writer == rank && !block->whole)
            out->most_taken = MAX(out->most_taken, total);
    }
    free(share);
}

void save_plan_release(struct save_plan *p) {
    VEC_RELEASE(&p->block);
}

// ---- values

// Where this rank has the part; NULL: another rank gives it.
static const char *part_data(const struct save_plan *p, const struct given_part *part) {
    if (part->rank != p->rank)
        return NULL;
    return holders_data(p->holders, part->part, p->own, part->group, part->span->source->number);
}

static char *part_pack(const struct save_plan *p, const struct given_part *part, char *to) {
    struct parameter local;
    struct parameter_runs runs = holders_runs(p->holders, part->part, &part->span->window, &local);
    const char *data = part_data(p, part);
    for (struct parameter_run run; parameter_next(&runs, &run); to += run.count * part->size)
        memcpy(to, data + run.held * part->size, (size_t)(run.count * part->size));
    return to;
}

// What a file has where no tensor lies: its header, and zeros.
static void block_blank(const struct save_plan *p, size_t block, void *out) {
    const struct save_block *b = &p->block.item[block];
    const struct safetensors_planned *file = image_file(p->image, b->file);
    memset(out, 0, (size_t)b->bytes);
    if (b->begin < file->header.length)
        memcpy(out, file->header.text + b->begin, MIN((size_t)b->bytes, file->header.length - (size_t)b->begin));
}

// Copies elements of `size` bytes to places that are `step` bytes apart.
static void elements_spread(char *to, int64_t step, const char *from, int64_t count, int size) {
    if (step == size)
        memcpy(to, from, (size_t)(count * size));
    else
        for (int64_t i = 0; i < count; i++)
            memcpy(to + i * step, from + i * size, (size_t)size);
}

// Puts a part at its places in a rectangle whose elements are `down` and `right` bytes apart; returns what lies behind
// it. It lies packed at `from`, or, with NULL, where this rank has it.
static const char *part_place(const struct save_plan *p, const struct given_part *part, const char *from, char *to,
                              int64_t down, int64_t right) {
    struct parameter local;
    struct parameter_runs runs = holders_runs(p->holders, part->part, &part->span->window, &local);
    const char *data = from ? NULL : part_data(p, part);
    const int64_t columns = part->span->window.columns;
    for (struct parameter_run run; parameter_next(&runs, &run); from = from ? from + run.count * part->size : NULL)
        elements_spread(to + run.window / columns * down + run.window % columns * right, right,
                        from ?: data + run.held * part->size, run.count, part->size);
    return from;
}

void save_pack(const struct save_plan *p, size_t block, void *to) {
    const struct save_block *b = &p->block.item[block];
    struct image_spans spans = {0};
    char *at = to;
    if (b->packed > b->give)
        block_blank(p, block, to);
    block_spans(p, block, &spans);
    for (size_t i = 0; i < spans.count; i++) {
        const struct image_span *span = &spans.item[i];
        struct given_parts parts = {0};
        parts_of_span(&parts, p, span, block);
        for (size_t k = 0; k < parts.count; k++)
            if (b->whole)
                part_place(p, &parts.item[k], NULL, (char *)to + span->at, span->down, span->right);
            else if (parts.item[k].rank == p->rank)
                at = part_pack(p, &parts.item[k], at);
        VEC_RELEASE(&parts);
    }
    VEC_RELEASE(&spans);
}

// What the ranks have given for a block, while it is unpacked: where the rest of each rank's lies.
struct given {
    const char **at; // [ranks]
};

static double element_master(const void *high, enum dtype dtype, const uint16_t *low, int64_t i) {
    return dtype == DTYPE_F64 ? ((const double *)high)[i]
           : low              ? master_join(((const uint16_t *)high)[i], low[i])
                              : float_at(dtype == DTYPE_BF16, high, i);
}

static void element_round(void *out, enum dtype dtype, int64_t i, double x) {
    uint16_t low;
    if (dtype == DTYPE_F64)
        ((double *)out)[i] = x;
    else if (dtype == DTYPE_BF16)
        master_split((float)x, (uint16_t *)out + i, &low);
    else
        ((float *)out)[i] = (float)x;
}

// Unpacks one group's values of a span into an array.
static void span_collect(const struct save_plan *p, const struct image_span *span, size_t block, int group, int size,
                         struct given *given, void *out) {
    struct given_parts parts = {0};
    const int64_t columns = span->window.columns;
    parts_add(&parts, p, span, group, size, block);
    memset(out, 0, (size_t)(span->window.rows * columns * size));
    for (size_t k = 0; k < parts.count; k++) {
        const char **at = &given->at[parts.item[k].rank];
        *at = part_place(p, &parts.item[k], *at, out, columns * size, size);
    }
    VEC_RELEASE(&parts);
}

// The weighted mean of the terms, rounded. What they all have alike it gives exactly.
static void span_make(const struct save_plan *p, const struct image_span *span, size_t block, struct given *given,
                      char *to) {
    const struct save_values *v = &p->values[span->source->group];
    const enum dtype held = values_held(v);
    const int64_t count = span->window.rows * span->window.columns, size = dtype_size(v->dtype);
    double *first = mem_alloc((size_t)count * 2 * sizeof *first), *apart = first + count;
    char *high = mem_alloc((size_t)(count * MAX(dtype_size(held), size)));
    uint16_t *low = v->remainder ? mem_alloc((size_t)count * sizeof *low) : NULL;
    for (int k = 0; k < v->terms; k++) {
        span_collect(p, span, block, v->group[k], (int)dtype_size(held), given, high);
        if (low)
            span_collect(p, span, block, v->remainder[k], sizeof *low, given, low);
        for (int64_t i = 0; i < count; i++) {
            const double x = element_master(high, held, low, i);
            if (k == 0)
                first[i] = x;
            else
                apart[i] += v->weight[k] * (x - first[i]);
        }
    }
    for (int64_t i = 0; i < count; i++)
        element_round(high, v->dtype, i, first[i] + apart[i]);
    for (int64_t row = 0; row < span->window.rows; row++)
        elements_spread(to + row * span->down, span->right, high + row * span->window.columns * size,
                        span->window.columns, (int)size);
    free(first);
    free(high);
    free(low);
}

void save_unpack(const struct save_plan *p, size_t block, const void *from, void *out) {
    int64_t *share = mem_alloc((size_t)p->ranks * sizeof *share);
    struct given given = {mem_alloc((size_t)p->ranks * sizeof *given.at)};
    struct image_spans spans = {0};
    save_shares(p, block, share);
    for (int r = 0; r < p->ranks; from = (const char *)from + share[r++])
        given.at[r] = from;
    block_blank(p, block, out);
    block_spans(p, block, &spans);
    for (size_t i = 0; i < spans.count; i++) {
        const struct image_span *span = &spans.item[i];
        const struct save_values *v = &p->values[span->source->group];
        struct given_parts parts = {0};
        if (values_made(v)) {
            span_make(p, span, block, &given, (char *)out + span->at);
            continue;
        }
        parts_of_span(&parts, p, span, block);
        for (size_t k = 0; k < parts.count; k++) {
            const char **at = &given.at[parts.item[k].rank];
            *at = part_place(p, &parts.item[k], *at, (char *)out + span->at, span->down, span->right);
        }
        VEC_RELEASE(&parts);
    }
    VEC_RELEASE(&spans);
    free(given.at);
    free(share);
}
