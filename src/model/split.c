#include "model/split.h"

#include "base/amount.h"

enum { VOCAB_ALIGNMENT = 16 }; // rows of a rank's part of the vocabulary

static int64_t clamp(int64_t n, int64_t most) {
    return n < 0 ? 0 : MIN(n, most);
}

static int64_t vocabulary_part(const struct model_config *c, int ranks) {
    return round_up(divide_up(c->vocab_size, ranks), VOCAB_ALIGNMENT);
}

static trireme_status check_enough(int64_t parts, const char *what, int ranks, trireme_error *error) {
    if (ranks > parts)
        FAIL(TRIREME_ERROR_USAGE, "a model of %s cannot be split over %d ranks", counted(parts, what).text, ranks);
    return TRIREME_OK;
}

trireme_status model_split_create(struct model_split *out, const struct model_config *c, int ranks, bool sequence,
                                  trireme_error *error) {
    if (ranks == 1) {
        *out = (struct model_split){.ranks = 1,
                                    .copies = 1,
                                    .vocabulary_stages = 1,
                                    .row_ranks = 1,
                                    .heads = c->num_attention_heads,
                                    .kv_heads = c->num_key_value_heads,
                                    .intermediate_size = c->intermediate_size,
                                    .vocab_size = c->padded_vocab_size};
        return TRIREME_OK;
    }
    TRY(check_enough(c->num_attention_heads, "head", ranks, error));
    TRY(check_enough(c->intermediate_size, "MLP column", ranks, error));
    TRY(check_enough(c->vocab_size, "token", ranks, error));
    struct model_split s = {.ranks = ranks, .copies = 1, .sequence = sequence, .vocabulary_stages = 1, .row_ranks = 1};
    int64_t queries = c->num_attention_heads / c->num_key_value_heads, groups = c->num_key_value_heads;
    if (groups >= ranks) {
        s.kv_heads = divide_up(groups, ranks);
    } else {
        while (ranks % groups)
            groups++;
        s.copies = ranks / (int)groups;
        s.kv_heads = 1;
    }
    s.heads = s.kv_heads * divide_up(queries, s.copies);
    s.intermediate_size = divide_up(c->intermediate_size, ranks);
    s.vocab_size = vocabulary_part(c, ranks);
    *out = s;
    return TRIREME_OK;
}

trireme_status model_split_spread_vocabulary(struct model_split *split, const struct model_config *c, int stages,
                                             trireme_error *error) {
    int ranks = stages * split->ranks;
    if (ranks > c->vocab_size)
        FAIL(TRIREME_ERROR_USAGE, "%s cannot be spread over %d ranks", counted(c->vocab_size, "token").text, ranks);
    split->vocabulary_stages = stages;
    split->vocab_size = vocabulary_part(c, ranks);
    return TRIREME_OK;
}

// ---- what a rank holds

// A run of rows or columns: `extent` local ones, of which the first `valid` are not padding; those of the whole from
// `first` on.
struct run {
    int64_t extent, first, valid;
};

struct splitter {
    const struct model_config *config;
    const struct model_split *split;
    int index, vocabulary;
    const int *joined;
    bool halves;
};

static struct run split_part(int64_t extent, int index, int64_t all) {
    return (struct run){extent, index * extent, clamp(all - index * extent, extent)};
}

static struct run split_scaled(struct run run, int64_t by) {
    return (struct run){run.extent * by, run.first * by, run.valid * by};
}

static struct run kv_heads(const struct splitter *s) {
    return split_part(s->split->kv_heads, s->index / s->split->copies, s->config->num_key_value_heads);
}

static struct run query_heads(const struct splitter *s) {
    int64_t queries = s->config->num_attention_heads / s->config->num_key_value_heads;
    struct run groups = kv_heads(s);
    if (s->split->copies == 1)
        return split_scaled(groups, queries);
    // One key-value head, whose queries are dealt out to the copies.
    struct run own = split_part(s->split->heads, s->index % s->split->copies, queries);
    own.first += groups.first * queries;
    own.valid = groups.valid ? own.valid : 0;
    return own;
}

int64_t model_split_heads(const struct model_split *split, const struct model_config *config, int index) {
    const struct splitter s = {.config = config, .split = split, .index = index};
    return query_heads(&s).valid;
}

// Appends a local parameter, made from whole parameter `p` and without rows yet, and returns it.
static struct parameter *split_add(struct parameter_table *out, const struct parameter *p, const char *name,
                                   enum parameter_class split) {
    struct parameter local = {.name = mem_strdup(name),
                              .ndim = p->ndim,
                              .dim = {0, p->dim[1]},
                              .unit = p->unit,
                              .decayed = p->decayed,
                              .init = p->init,
                              .std = p->std,
                              .whole = p->whole,
                              .section = p->section,
                              .split = split};
    VEC_PUSH(&out->parameters, local);
    return &out->parameters.item[out->parameters.count - 1];
}

static void split_add_rows(struct parameter *local, struct run run, int64_t whole_row) {
    CHECK(local->regions < (int)ARRAY_LENGTH(local->region));
    if (run.valid)
        local->region[local->regions++] =
            (struct parameter_region){local->dim[0], 0, run.valid, local->dim[1], whole_row + run.first, 0};
    local->dim[0] += run.extent;
}

static void add_columns(struct parameter *local, const struct parameter *p, struct run run) {
    local->dim[0] = p->dim[0];
    local->dim[1] = run.extent;
    local->split_dim = 1;
    if (run.valid)
        local->region[local->regions++] = (struct parameter_region){0, 0, p->dim[0], run.valid, 0, run.first};
}

static void split_qkv(const struct splitter *s, struct parameter_table *out, const struct parameter *p) {
    int64_t size = s->config->head_dim, q = s->config->num_attention_heads * size;
    int64_t kv = s->config->num_key_value_heads * size;
    struct run queries = split_scaled(query_heads(s), size), keys = split_scaled(kv_heads(s), size);
    if (s->split->copies == 1) {
        struct parameter *local = split_add(out, p, p->name, CLASS_SPLIT);
        split_add_rows(local, queries, 0);
        split_add_rows(local, keys, q);
        split_add_rows(local, keys, q + kv);
        return;
    }
    // "attention.qkv.weight" becomes "attention.q.weight" and "attention.kv.weight".
    const char *dot = strrchr(p->name, '.');
    int stem = (int)(dot - p->name) - 3;
    char *name[2] = {mem_printf("%.*sq%s", stem, p->name, dot), mem_printf("%.*skv%s", stem, p->name, dot)};
    split_add_rows(split_add(out, p, name[0], CLASS_SPLIT), queries, 0);
    struct parameter *local = split_add(out, p, name[1], CLASS_KV);
    split_add_rows(local, keys, q);
    split_add_rows(local, keys, q + kv);
    free(name[0]);
    free(name[1]);
}

static bool split_is_spread(const struct model_split *split) {
    return split->vocabulary_stages > 1;
}

static void split_parameter(const struct splitter *s, struct parameter_table *out, const struct parameter *p) {
    const struct model_config *c = s->config;
    struct run inner = split_part(s->split->intermediate_size, s->index, c->intermediate_size);
    if (parameter_is_vocabulary(p) && (s->split->ranks > 1 || split_is_spread(s->split))) {
        split_add_rows(split_add(out, p, p->name, split_is_spread(s->split) ? CLASS_VOCABULARY : CLASS_SPLIT),
                       split_part(s->split->vocab_size, s->vocabulary, c->vocab_size), 0);
    } else if (s->split->ranks == 1) {
        split_add_rows(split_add(out, p, p->name, CLASS_WHOLE), (struct run){p->dim[0], 0, parameter_rows(p)}, 0);
    } else if (text_ends(p->name, "attention.qkv.weight") || text_ends(p->name, "attention.qkv.bias")) {
        split_qkv(s, out, p);
    } else if (text_ends(p->name, "attention.out.weight")) {
        add_columns(split_add(out, p, p->name, CLASS_SPLIT), p, split_scaled(query_heads(s), c->head_dim));
    } else if (text_ends(p->name, "mlp.up.weight") || text_ends(p->name, "mlp.up.bias")) {
        struct parameter *local = split_add(out, p, p->name, CLASS_SPLIT);
        for (int64_t at = 0; at < parameter_rows(p); at += c->intermediate_size)
            split_add_rows(local, inner, at);
    } else if (text_ends(p->name, "mlp.down.weight")) {
        add_columns(split_add(out, p, p->name, CLASS_SPLIT), p, inner);
    } else {
        // Norms of queries and keys work on some of the heads, parameters between layers on some of the rows.
        bool share = s->split->sequence || text_ends(p->name, "q_norm.weight") || text_ends(p->name, "k_norm.weight");
        split_add_rows(split_add(out, p, p->name, share ? CLASS_SHARE : CLASS_WHOLE),
                       (struct run){p->dim[0], 0, p->dim[0]}, 0);
    }
}

// A tied embedding's gradient is summed over the ends of a pipeline, and ranks that look rows up in their parts need
// whole rows: the position embeddings are then not in the embedding's unit.
static bool split_apart(const struct splitter *s, const struct parameter *p) {
    return (s->config->tie_word_embeddings || s->split->row_ranks > 1) && strcmp(p->name, "position.weight") == 0;
}

// What the parameters of one unit have in common.
struct kind {
    int first; // the first of the joined units of the whole
    int half, split, apart;
};

static struct kind split_kind_of(const struct splitter *s, const struct parameter *p) {
    bool joined = s->joined && s->joined[p->section] != NONE; // a tied embedding is there without its unit
    return (struct kind){joined ? s->joined[p->section] : p->section, s->halves && strstr(p->name, ".mlp") != NULL,
                         (int)p->split, split_apart(s, p)};
}

// Compares by unit, then decayed parameters first; with `units_alone`, 0 for two of the same unit.
static int split_compare(const struct splitter *s, const struct parameter *p, const struct parameter *q,
                         bool units_alone) {
    struct kind a = split_kind_of(s, p), b = split_kind_of(s, q);
    int x[] = {a.first, a.half, a.split, a.apart, !p->decayed}, y[] = {b.first, b.half, b.split, b.apart, !q->decayed};
    int order = 0;
    for (size_t i = 0; i < ARRAY_LENGTH(x) - units_alone && order == 0; i++)
        order = COMPARE(x[i], y[i]);
    return order;
}

// "layers.4-7.share", "layers.3.mlp". The caller frees.
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
        text_add(&t, "%s", kind.half ? ".mlp" : ".attention");
    text_add(&t, "%s%s", kind.apart ? ".position" : "",
             s->split->ranks > 1 || kind.split == CLASS_VOCABULARY ? SUFFIX[kind.split] : "");
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
        p.pieces = 0;
        p.set = 2 * p.section;
        VEC_PUSH(&out->parameters, p);
    }
}

void parameter_table_split(struct parameter_table *out, const struct parameter_table *whole,
                           const struct model_config *config, const struct model_split *split, int index,
                           int vocabulary, const int *joined, bool halves) {
    CHECK(index >= 0 && index < split->ranks);
    *out = (struct parameter_table){.total = whole->total};
    if (split->ranks == 1 && split->row_ranks == 1 && !joined && !halves) {
        copy_table(out, whole);
        parameter_table_index(out);
        return;
    }
    const struct splitter s = {config, split, index, vocabulary, joined, halves};
    for (size_t i = 0; i < whole->parameters.count; i++) {
        const struct parameter *p = &whole->parameters.item[i];
        bool tied = config->tie_word_embeddings && strcmp(p->name, "embed.weight") == 0;
        bool everywhere = parameter_is_vocabulary(p) && split_is_spread(split);
        if (!joined || joined[p->section] != NONE || everywhere || (tied && joined[whole->units.count - 1] != NONE))
            split_parameter(&s, out, p);
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
