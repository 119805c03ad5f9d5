#include "model/split.h"

#include "base/amount.h"
#include "model/layer.h"

static int64_t clamp(int64_t n, int64_t most) {
    return n < 0 ? 0 : MIN(n, most);
}

trireme_status split_check(int64_t parts, const char *what, int ranks, trireme_error *error) {
    if (ranks > parts)
        FAIL(TRIREME_ERROR_USAGE, "a model of %s cannot be split over %d ranks", counted(parts, what).text, ranks);
    return TRIREME_OK;
}

trireme_status model_split_create(struct model_split *out, const struct model_config *c, int ranks, bool sequence,
                                  trireme_error *error) {
    struct model_split s = {
        .ranks = ranks, .copies = 1, .sequence = sequence && ranks > 1, .vocabulary_stages = 1, .row_ranks = 1};
    for (int i = 0; i < MODEL_PARTS; i++)
        if (model_has_part(c, model_parts[i]) && model_parts[i]->split)
            TRY(model_parts[i]->split(&s, c, error));
    TRY(embedding_part.split(&s, c, error));
    *out = s;
    return TRIREME_OK;
}

trireme_status model_split_spread_vocabulary(struct model_split *split, const struct model_config *c, int stages,
                                             trireme_error *error) {
    int ranks = stages * split->ranks;
    if (ranks > c->vocab_size)
        FAIL(TRIREME_ERROR_USAGE, "%s cannot be spread over %d ranks", counted(c->vocab_size, "token").text, ranks);
    split->vocabulary_stages = stages;
    return embedding_part.split(split, c, error);
}

// ---- what a rank holds

struct run split_part(int64_t extent, int index, int64_t all) {
    return (struct run){extent, index * extent, clamp(all - index * extent, extent)};
}

struct run split_scaled(struct run run, int64_t by) {
    return (struct run){run.extent * by, run.first * by, run.valid * by};
}

struct parameter *split_add(const struct splitter *s, const struct parameter *p, const char *name,
                            enum parameter_class class) {
    struct parameter local = *p;
    local.name = mem_strdup(name);
    local.dim[0] = local.pieces = local.regions = local.matrices = 0;
    local.piece = NULL;
    local.split = class;
    local.apart = s->apart ? s->apart[p->whole] : 0;
    VEC_PUSH(&s->out->parameters, local);
    return &s->out->parameters.item[s->out->parameters.count - 1];
}

static int64_t matrix_rows(const struct parameter *p, int number) {
    const int64_t end = number + 1 < p->whole_matrices ? p->matrix_row[number + 1] : parameter_rows(p);
    return end - p->matrix_row[number];
}

// Rows of the matrix of which row `whole_row` is one; several runs of one matrix, as GPT-2's queries, keys and values,
// are one, if in another order.
static void add_matrix(struct parameter *local, const struct parameter *p, int64_t rows, int64_t whole_row) {
    int number = p->whole_matrices - 1;
    while (number > 0 && p->matrix_row[number] > whole_row)
        number--;
    struct parameter_matrix *last = local->matrices ? &local->matrix[local->matrices - 1] : NULL;
    if (last && last->number == number) {
        last->rows += rows;
        return;
    }
    CHECK(local->matrices < (int)ARRAY_LENGTH(local->matrix));
    local->matrix[local->matrices++] =
        (struct parameter_matrix){number, local->dim[0], rows, matrix_rows(p, number), p->dim[1]};
}

static void add_region(struct parameter *local, struct run run, int64_t whole_row) {
    CHECK(local->regions < (int)ARRAY_LENGTH(local->region));
    if (run.valid)
        local->region[local->regions++] =
            (struct parameter_region){local->dim[0], 0, run.valid, local->dim[1], whole_row + run.first, 0};
}

void split_add_rows(struct parameter *local, const struct parameter *p, struct run run, int64_t whole_row) {
    add_matrix(local, p, run.extent, whole_row);
    add_region(local, run, whole_row);
    local->dim[0] += run.extent;
}

// All of its matrices, whole.
static void add_matrices(struct parameter *local, const struct parameter *p) {
    for (int i = 0; i < p->whole_matrices; i++)
        local->matrix[i] =
            (struct parameter_matrix){i, p->matrix_row[i], matrix_rows(p, i), matrix_rows(p, i), p->dim[1]};
    local->matrices = p->whole_matrices;
}

void split_add_columns(struct parameter *local, const struct parameter *p, struct run run) {
    local->dim[0] = p->dim[0];
    local->dim[1] = run.extent;
    local->split_dim = 1;
    add_matrices(local, p);
    if (run.valid)
        local->region[local->regions++] = (struct parameter_region){0, 0, p->dim[0], run.valid, 0, run.first};
}

void split_add_whole(const struct splitter *s, const struct parameter *p, enum parameter_class class) {
    struct parameter *local = split_add(s, p, p->name, class);
    add_region(local, (struct run){p->dim[0], 0, parameter_rows(p)}, 0);
    local->dim[0] = p->dim[0];
    add_matrices(local, p);
}

void split_share(const struct splitter *s, const struct parameter *p) {
    split_add_whole(s, p, CLASS_SHARE);
}

static bool split_is_spread(const struct model_split *split) {
    return split->vocabulary_stages > 1;
}

static void split_parameter(const struct splitter *s, const struct parameter *p) {
    if (s->split->ranks == 1 && !(p->is_vocabulary && split_is_spread(s->split)))
        split_add_whole(s, p, CLASS_WHOLE);
    else if (p->rule)
        p->rule(s, p);
    else // between layers: where ranks have some of the rows there, it works on these
        split_add_whole(s, p, s->split->sequence ? CLASS_SHARE : CLASS_WHOLE);
}

// A tied embedding's gradient is summed over the ends of a pipeline, and ranks that look rows up in their parts need
// whole rows: the position embeddings are then not in the embedding's unit.
static bool split_apart(const struct splitter *s, const struct parameter *p) {
    return (s->config->tie_word_embeddings || s->split->row_ranks > 1) && p->embedding && !p->is_vocabulary;
}

// What the parameters of one unit have in common.
struct kind {
    int first; // the first of the joined units of the whole
    int half, split, apart, positions, frozen;
};

static struct kind split_kind_of(const struct splitter *s, const struct parameter *p) {
    bool joined = s->joined && s->joined[p->section] != NONE; // a tied embedding is there without its unit
    return (struct kind){joined ? s->joined[p->section] : p->section,
                         s->halves ? p->part : 0,
                         (int)p->split,
                         p->apart,
                         split_apart(s, p),
                         p->frozen};
}

// Compares by unit, then decayed parameters first; with `units_alone`, 0 for two of the same unit.
static int split_compare(const struct splitter *s, const struct parameter *p, const struct parameter *q,
                         bool units_alone) {
    struct kind a = split_kind_of(s, p), b = split_kind_of(s, q);
    int x[] = {a.first, a.half, a.split, a.apart, a.positions, a.frozen, !p->decayed},
        y[] = {b.first, b.half, b.split, b.apart, b.positions, b.frozen, !q->decayed};
    int order = 0;
    for (size_t i = 0; i < ARRAY_LENGTH(x) - units_alone && order == 0; i++)
        order = COMPARE(x[i], y[i]);
    return order;
}

// Whether others of the same unit of the whole are not apart: these name the unit.
static bool split_is_rest(const struct splitter *s, struct kind kind) {
    for (size_t i = 0; i < s->out->parameters.count && kind.apart; i++) {
        const struct kind other = split_kind_of(s, &s->out->parameters.item[i]);
        if (other.first == kind.first && other.half == kind.half && other.apart == 0)
            return true;
    }
    return false;
}

// "layers.4-7.share", "layers.3.mlp", "layers.3.rest", "layers.3.frozen". The caller frees.
static char *unit_name(const struct splitter *s, const struct parameter_table *whole, struct kind kind) {
    static const char *const SUFFIX[CLASS_COUNT] = {[CLASS_SPLIT] = "",
                                                    [CLASS_KV] = ".kv",
                                                    [CLASS_SHARE] = ".share",
                                                    [CLASS_WHOLE] = ".whole",
                                                    [CLASS_VOCABULARY] = ".vocabulary"};
    int units = (int)whole->units.count, last = kind.first;
    bool is_layer = kind.first > 0 && kind.first < units - 1;
    while (s->joined && last + 1 < units && s->joined[last + 1] == kind.first)
        last++;
    struct text t = {0};
    text_add(&t, "%s", whole->units.item[kind.first]);
    if (last > kind.first)
        text_add(&t, "-%d", last - 1);
    if (s->halves && is_layer)
        text_add(&t, ".%s", model_layer_part(model_layer(s->config, kind.first - 1), kind.half)->name);
    text_add(&t, "%s%s", kind.positions ? ".position" : "",
             s->split->ranks > 1 || kind.split == CLASS_VOCABULARY ? SUFFIX[kind.split] : "");
    if (split_is_rest(s, kind))
        text_add(&t, ".rest");
    if (kind.frozen)
        text_add(&t, ".frozen");
    return t.text;
}

// Sorts parameters by unit, stably, and names the units.
static void split_regroup(const struct splitter *s, struct parameter_table *out, const struct parameter_table *whole) {
    struct parameter *item = out->parameters.item;
    for (size_t i = 1; i < out->parameters.count; i++) {
        struct parameter p = item[i];
        size_t at = i;
        for (; at > 0 && split_compare(s, &item[at - 1], &p, false) > 0; at--)
            item[at] = item[at - 1];
        item[at] = p;
    }
    for (size_t i = 0; i < out->parameters.count; i++) {
        if (i == 0 || split_compare(s, &item[i - 1], &item[i], true))
            VEC_PUSH(&out->units, unit_name(s, whole, split_kind_of(s, &item[i])));
        item[i].unit = (int)out->units.count - 1;
        struct kind kind = split_kind_of(s, &item[i]);
        item[i].set = 2 * kind.first + kind.half;
    }
}

static void copy_table(struct parameter_table *out, const struct parameter_table *whole) {
    for (size_t i = 0; i < whole->units.count; i++)
        VEC_PUSH(&out->units, mem_strdup(whole->units.item[i]));
    for (size_t i = 0; i < whole->parameters.count; i++) {
        struct parameter p = whole->parameters.item[i];
        p.name = mem_strdup(p.name);
        add_matrices(&p, &whole->parameters.item[i]);
        p.pieces = 0;
        p.piece = NULL;
        p.set = 2 * p.section;
        VEC_PUSH(&out->parameters, p);
    }
}

void parameter_table_split(struct parameter_table *out, const struct parameter_table *whole,
                           const struct model_config *config, const struct model_split *split, int index,
                           int vocabulary, const int *joined, bool halves, const int *apart) {
    CHECK(index >= 0 && index < split->ranks);
    *out = (struct parameter_table){.total = whole->total, .frozen = whole->frozen, .unlike = whole->unlike};
    if (split->ranks == 1 && split->row_ranks == 1 && !joined && !halves && !apart && !whole->frozen) {
        copy_table(out, whole);
        parameter_table_index(out);
        return;
    }
    const struct splitter s = {config, split, index, vocabulary, joined, halves, apart, out};
    for (size_t i = 0; i < whole->parameters.count; i++) {
        const struct parameter *p = &whole->parameters.item[i];
        bool tied = config->tie_word_embeddings && parameter_is_token_embedding(p);
        bool everywhere = p->is_vocabulary && split_is_spread(split);
        if (!joined || joined[p->section] != NONE || everywhere || (tied && joined[whole->units.count - 1] != NONE))
            split_parameter(&s, p);
    }
    split_regroup(&s, out, whole);
    parameter_table_index(out);
}

// ---- values

static struct parameter_span split_common(struct parameter_span a, struct parameter_span b) {
    return (struct parameter_span){MAX(a.begin, b.begin), MIN(a.end, b.end)};
}

// The rows of `columns` that a span touches.
static struct parameter_span split_rows_of(struct parameter_span span, int64_t columns) {
    return (struct parameter_span){span.begin / columns, divide_up(span.end, columns)};
}

static struct parameter_span split_before(struct parameter_span span, int64_t by) {
    return (struct parameter_span){span.begin - by, span.end - by};
}

void parameter_take(const struct parameter *local, const struct parameter *whole, struct parameter_span given,
                    const void *from, struct parameter_span held, void *to, int64_t size) {
    for (int i = 0; i < local->regions; i++) {
        const struct parameter_region *r = &local->region[i];
        struct parameter_span rows = split_common(split_before(split_rows_of(given, whole->dim[1]), r->whole_row),
                                                  split_before(split_rows_of(held, local->dim[1]), r->row));
        rows = split_common(rows, (struct parameter_span){0, r->rows});
        for (int64_t row = rows.begin; row < rows.end; row++) {
            struct parameter_span in_given =
                split_before(given, (r->whole_row + row) * whole->dim[1] + r->whole_column);
            struct parameter_span in_held = split_before(held, (r->row + row) * local->dim[1] + r->column);
            struct parameter_span both =
                split_common(split_common(in_given, in_held), (struct parameter_span){0, r->columns});
            if (both.begin < both.end)
                memcpy((char *)to + (both.begin - in_held.begin) * size,
                       (const char *)from + (both.begin - in_given.begin) * size,
                       (size_t)((both.end - both.begin) * size));
        }
    }
}

struct parameter_runs parameter_runs(const struct parameter *local, struct parameter_span held,
                                     const struct parameter_window *window) {
    return (struct parameter_runs){.local = local, .held = held, .window = *window};
}

bool parameter_next(struct parameter_runs *runs, struct parameter_run *out) {
    const struct parameter_window *w = &runs->window;
    for (; runs->region < runs->local->regions; runs->region++, runs->row = 0) {
        const struct parameter_region *r = &runs->local->region[runs->region];
        const int64_t width = runs->local->dim[1];
        struct parameter_span rows =
            split_common(split_before((struct parameter_span){w->row, w->row + w->rows}, r->whole_row),
                         split_before(split_rows_of(runs->held, width), r->row));
        rows = split_common(rows, (struct parameter_span){runs->row, r->rows});
        const struct parameter_span in_window =
            split_before((struct parameter_span){w->column, w->column + w->columns}, r->whole_column);
        for (int64_t row = rows.begin; row < rows.end; row++) {
            const struct parameter_span in_held = split_before(runs->held, (r->row + row) * width + r->column);
            const struct parameter_span both =
                split_common(split_common(in_window, in_held), (struct parameter_span){0, r->columns});
            if (both.begin >= both.end)
                continue;
            *out = (struct parameter_run){both.begin - in_held.begin,
                                          (r->whole_row + row - w->row) * w->columns + r->whole_column + both.begin -
                                              w->column,
                                          both.end - both.begin};
            runs->row = row + 1;
            return true;
        }
    }
    return false;
}
