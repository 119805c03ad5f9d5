#include "data/sampler.h"

#include "base/rng.h"

#include <inttypes.h>

// Must never change: another name would give every run other data.
static const char STREAM_NAME[] = "data/sampler", ROWS_STREAM_NAME[] = "data/sampler/rows";
static const int64_t CUT_SEARCH_TOKENS = 1 << 20;

static trireme_status check_options(const struct sampler_options *o, trireme_error *error) {
    if (o->seq_len < 1 || o->seq_len > INT32_MAX - 1)
        FAIL(TRIREME_ERROR_USAGE, "training.seq_len is %" PRId64 ", expected 1 to %d", o->seq_len, INT32_MAX - 1);
    if (o->global_batch_size < 1 || o->global_batch_size > INT32_MAX)
        FAIL(TRIREME_ERROR_USAGE, "training.global_batch_size is %" PRId64 ", expected 1 to %d", o->global_batch_size,
             INT32_MAX);
    if (!(o->validation_fraction >= 0.0 && o->validation_fraction <= 1.0))
        FAIL(TRIREME_ERROR_USAGE, "data.split sets a fraction of %g apart for validation, expected 0 to 1",
             o->validation_fraction);
    CHECK(o->vocab_size > 0);
    return TRIREME_OK;
}

int64_t sampler_windows(int64_t tokens, int64_t seq_len) {
    return tokens > seq_len ? MAX(1, (tokens - seq_len) / seq_len) : 0;
}

// A message about data of which there are several sources says which one it is about.
static trireme_status source_refuse(const struct sampler *s, int source, trireme_error *error) {
    return s->shares.count > 1 ? error_prefix(error, error->status, "source %d of data.mixture", source + 1)
                               : error->status;
}

// *out = how many of the source's tokens, the last ones, are for validation.
static trireme_status source_cut(const struct sampler *s, int64_t begin, int64_t end, int64_t *out,
                                 trireme_error *error) {
    const double fraction = s->options.validation_fraction;
    const int64_t total = end - begin;
    int64_t validation = (int64_t)((double)total * fraction + 0.5);
    const int64_t cut = end - validation, search = MIN(validation / 10, CUT_SEARCH_TOKENS);
    int64_t found;
    TRY(token_set_next_document(s->set, cut, cut + search, &found, error));
    if (cut > begin && found < cut + search) // not where the whole source is for validation
        validation = end - found;
    if (total < 2)
        FAIL(TRIREME_ERROR_USAGE, "validation needs 2 tokens, but there is %" PRId64 " in all: add text", total);
    if (validation < 2)
        FAIL(TRIREME_ERROR_USAGE,
             "validation needs 2 tokens, but a fraction of %g of %" PRId64 " tokens is %" PRId64
             ": set data.split to give it more, or none",
             fraction, total, validation);
    *out = validation;
    return TRIREME_OK;
}

// ---- whole documents

// A range whose documents are put into rows.
struct packing {
    VEC(int64_t) rows; // where each begins
    int64_t seq_len;
    int64_t document; // where the document begins that comes next
    int64_t cut;      // documents
};

// The document that comes next goes on to token `end`.
static void packing_add(struct packing *p, int64_t end) {
    int64_t row = p->rows.item[p->rows.count - 1];
    if (end - row > p->seq_len + 1 && p->document > row) {
        row = p->document;
        VEC_PUSH(&p->rows, row);
    }
    p->cut += end - row > p->seq_len + 1;
    while (end - row > p->seq_len + 1) {
        row += p->seq_len;
        VEC_PUSH(&p->rows, row);
    }
    p->document = end;
}

static bool packing_visit(void *user, int64_t position) {
    packing_add(user, position);
    return true;
}

static trireme_status source_pack(struct sampler *s, struct sampler_source *source, enum sampler_split split,
                                  trireme_error *error) {
    struct sampler_range *range = &source->range[split];
    struct packing p = {.seq_len = s->options.seq_len, .document = range->begin};
    range->windows = 0;
    if (range->begin == range->end)
        return TRIREME_OK;
    VEC_PUSH(&p.rows, range->begin);
    trireme_status status = token_set_documents(s->set, range->begin + 1, range->end, packing_visit, &p, error);
    if (status == TRIREME_OK)
        packing_add(&p, range->end);
    source->row[split] = p.rows.item;
    range->windows = (int64_t)p.rows.count;
    s->cut_documents += p.cut;
    return status;
}

void sampler_release(struct sampler *s) {
    for (int i = 0; i < s->shares.count; i++)
        for (int split = 0; split < 2; split++)
            free(s->source[i].row[split]);
    *s = (struct sampler){0};
}

static trireme_status source_init(struct sampler *s, int source, trireme_error *error) {
    const struct sampler_options *o = &s->options;
    const int64_t begin = token_set_source(s->set, source), end = token_set_source(s->set, source + 1);
    int64_t length = o->seq_len, validation = 0;
    if (o->validation_fraction > 0.0)
        TRY(source_cut(s, begin, end, &validation, error));
    const int64_t train = end - begin - validation;
    const int64_t least = o->whole ? 2 : length + 1;
    if (!o->evaluate_only && o->validation_fraction < 1.0 && train < least)
        FAIL(TRIREME_ERROR_USAGE,
             "the data are too short: one window takes %s%" PRId64 " tokens, but training has %" PRId64 " of %" PRId64
             "; add text or lower training.seq_len",
             o->whole ? "" : "training.seq_len + 1 = ", least, train, end - begin);
    struct sampler_source *out = &s->source[source];
    out->range[SAMPLER_TRAIN] = (struct sampler_range){begin, begin + train, sampler_windows(train, length)};
    out->range[SAMPLER_VALIDATION] =
        (struct sampler_range){begin + train, end, validation ? (validation - 2) / length + 1 : 0};
    if (train > length)
        out->phases = MIN(length, train - out->range[SAMPLER_TRAIN].windows * length);
    if (!o->whole)
        return TRIREME_OK;
    out->phases = 1;
    TRY(source_pack(s, out, SAMPLER_TRAIN, error));
    return source_pack(s, out, SAMPLER_VALIDATION, error);
}

trireme_status sampler_init(struct sampler *out, const struct token_set *set, const struct sampler_options *options,
                            trireme_error *error) {
    TRY(check_options(options, error));
    struct sampler s = {.set = set, .options = *options, .stream = rng_stream(STREAM_NAME)};
    const int count = token_set_sources(set);
    double tokens[MIXTURE_SOURCES];
    for (int i = 0; i < count; i++)
        tokens[i] = (double)MAX(1, token_set_source(set, i + 1) - token_set_source(set, i));
    s.shares = mixture_shares(options->weight ? options->weight : tokens, count);
    s.options.weight = NULL;
    for (int i = 0; i < count; i++)
        if (source_init(&s, i, error) != TRIREME_OK) {
            const trireme_status status = source_refuse(&s, i, error);
            sampler_release(&s);
            return status;
        }
    *out = s;
    return TRIREME_OK;
}

// Looks for a token that has to be predicted: one that begins no document, or that ends the one before it.
struct target_search {
    const struct token_set *set;
    int64_t next; // the first token that was not looked at
    bool found;
};

static bool find_target(void *user, int64_t position) {
    struct target_search *t = user;
    t->found = position > t->next || token_set_delimited(t->set, position);
    t->next = position + 1;
    return !t->found;
}

// Looks for a target among the tokens between those that are only read.
struct unmasked_search {
    const struct token_set *set;
    int64_t next; // the first token that was not looked at
    bool found;
    trireme_status status;
    trireme_error *error;
};

static void search_between(struct unmasked_search *u, int64_t end) {
    struct target_search search = {u->set, u->next, false};
    u->status = token_set_documents(u->set, u->next, end, find_target, &search, u->error);
    u->found = u->status == TRIREME_OK && (search.found || search.next < end);
}

static bool search_before(void *user, int64_t begin, int64_t end) {
    struct unmasked_search *u = user;
    if (u->next < begin)
        search_between(u, begin);
    u->next = end;
    return u->status == TRIREME_OK && !u->found;
}

trireme_status sampler_has_targets(const struct sampler *s, enum sampler_split split, bool *out, trireme_error *error) {
    *out = false;
    for (int i = 0; i < s->shares.count && !*out; i++) {
        const struct sampler_range *range = &s->source[i].range[split];
        struct unmasked_search search = {.set = s->set, .next = range->begin + 1, .error = error};
        if (search.next >= range->end)
            continue;
        TRY(token_set_masked(s->set, search.next, range->end, search_before, &search, error));
        if (search.status == TRIREME_OK && !search.found && search.next < range->end)
            search_between(&search, range->end);
        TRY(search.status);
        *out = search.found;
    }
    return TRIREME_OK;
}

int64_t sampler_train_tokens(const struct sampler *s) {
    int64_t tokens = 0;
    for (int i = 0; i < s->shares.count; i++)
        tokens += s->options.whole ? s->source[i].range[SAMPLER_TRAIN].windows * s->options.seq_len
                                   : s->source[i].range[SAMPLER_TRAIN].end - s->source[i].range[SAMPLER_TRAIN].begin;
    return tokens;
}

int64_t sampler_validation_batches(const struct sampler *s) {
    int64_t windows = 0;
    for (int i = 0; i < s->shares.count; i++)
        windows += s->source[i].range[SAMPLER_VALIDATION].windows;
    return divide_up(windows, s->options.global_batch_size);
}

// Where a row begins, and where the tokens end that it may read. Without any, begin = end.
struct window {
    int64_t begin, end;
};

// A row of whole documents, and the token after it: of a document that is cut it is a target, of another one it is
// none.
static struct window row_window(const struct sampler_source *source, enum sampler_split split, int64_t number) {
    const struct sampler_range *range = &source->range[split];
    const int64_t *row = &source->row[split][number];
    return (struct window){row[0], number + 1 < range->windows ? row[1] + 1 : range->end};
}

// The window of training sample k of a source.
static struct window source_window(const struct sampler *s, int source, uint64_t k) {
    const struct sampler_range *range = &s->source[source].range[SAMPLER_TRAIN];
    uint64_t windows = (uint64_t)range->windows;
    struct rng_block random = rng_philox(s->options.seed, s->stream + (uint64_t)source, k / windows);
    uint64_t key = (uint64_t)random.word[0] << 32 | random.word[1];
    uint64_t phase = ((uint64_t)random.word[2] << 32 | random.word[3]) % (uint64_t)s->source[source].phases;
    const uint64_t number = rng_permute(key, windows, k % windows);
    if (s->options.whole)
        return row_window(&s->source[source], SAMPLER_TRAIN, (int64_t)number);
    uint64_t begin = phase + number * (uint64_t)s->options.seq_len;
    return (struct window){range->begin + (int64_t)begin, range->end};
}

// The window of a row of a step whose samples begin with `first`.
static struct window train_window(const struct sampler *s, int64_t step, int64_t first, int64_t row) {
    if (s->shares.count > 1) {
        struct rng_block random = rng_philox(s->options.seed, rng_stream(ROWS_STREAM_NAME), (uint64_t)step);
        uint64_t key = (uint64_t)random.word[0] << 32 | random.word[1];
        row = (int64_t)rng_permute(key, (uint64_t)s->options.global_batch_size, (uint64_t)row);
    }
    struct mixture_sample sample = mixture_sample(&s->shares, (uint64_t)(first + row));
    return source_window(s, sample.source, sample.number);
}

static struct window validation_window(const struct sampler *s, int64_t number) {
    for (int i = 0; i < s->shares.count; i++) {
        const struct sampler_range *range = &s->source[i].range[SAMPLER_VALIDATION];
        if (number < range->windows && s->options.whole)
            return row_window(&s->source[i], SAMPLER_VALIDATION, number);
        if (number < range->windows)
            return (struct window){range->begin + number * s->options.seq_len, range->end};
        number -= range->windows;
    }
    return (struct window){0};
}

// A row whose documents are being marked.
struct marking {
    const struct sampler *sampler;
    int64_t begin, start; // its first token; the first of its places that are not marked
    const struct sampler_batch *row;
};

static bool is_filled(const struct sampler_batch *row, int64_t place) {
    return row->begin <= place && place < row->end;
}

// The document that begins at the first place that is not marked goes on to place `end`.
static void sampler_mark(struct marking *m, int64_t end) {
    for (int64_t i = MAX(m->start, m->row->begin); i < MIN(end, m->row->end); i++) {
        m->row->starts[i - m->row->begin] = (int32_t)m->start;
        m->row->positions[i - m->row->begin] = (int32_t)(i - m->start);
    }
    m->start = end;
}

static bool mark_document(void *user, int64_t position) {
    struct marking *m = user;
    const int64_t place = position - m->begin;
    if (is_filled(m->row, place - 1) && !token_set_delimited(m->sampler->set, position))
        m->row->targets[place - 1 - m->row->begin] = -1;
    sampler_mark(m, place);
    return true;
}

static bool mask_run(void *user, int64_t begin, int64_t end) {
    const struct marking *m = user;
    const struct sampler_batch *row = m->row;
    for (int64_t i = MAX(begin - 1 - m->begin, row->begin); i < MIN(end - 1 - m->begin, row->end); i++)
        row->targets[i - row->begin] = -1;
    return true;
}

// Sets starts and positions of a row, and masks targets at its document boundaries and where they are only read. The
// row begins at token `begin`; `known` of its tokens have a target.
static trireme_status mark_documents(const struct sampler *s, int64_t begin, int64_t known,
                                     const struct sampler_batch *row, trireme_error *error) {
    struct marking m = {s, begin, 0, row};
    TRY(token_set_documents(s->set, begin + 1, begin + known + 1, mark_document, &m, error));
    sampler_mark(&m, s->options.seq_len);
    const int64_t first = begin + MIN(row->begin, known) + 1, last = begin + MIN(row->end, known) + 1;
    return first < last ? token_set_masked(s->set, first, last, mask_run, &m, error) : TRIREME_OK;
}

// Reads those of the tokens from `begin` on that are in the row's part; there are `count`, the rest becomes `missing`.
static trireme_status read_places(const struct sampler *s, const struct sampler_batch *row, int64_t begin,
                                  int64_t count, int32_t vocab_size, int32_t missing, int32_t *out,
                                  trireme_error *error) {
    const int64_t known = MAX(MIN(count, row->end), row->begin);
    if (known > row->begin)
        TRY(token_set_read(s->set, begin + row->begin, begin + known, vocab_size, out, error));
    for (int64_t i = known; i < row->end; i++)
        out[i - row->begin] = missing;
    return TRIREME_OK;
}

// Fills a row with a window.
static trireme_status fill_row(const struct sampler *s, struct window w, const struct sampler_batch *row,
                               trireme_error *error) {
    int64_t length = s->options.seq_len, inputs = MIN(length, w.end - w.begin),
            known = MIN(length, w.end - w.begin - 1);
    int32_t vocab_size = s->options.vocab_size;
    if (s->options.tokenizer)
        vocab_size = MIN(vocab_size, tokenizer_vocab_size(s->options.tokenizer));
    TRY(read_places(s, row, w.begin, inputs, vocab_size, 0, row->tokens, error));
    TRY(read_places(s, row, w.begin + 1, known, vocab_size, -1, row->targets, error));
    return mark_documents(s, w.begin, known, row, error);
}

static void fill_masked_row(const struct sampler_batch *row) {
    for (int64_t i = 0; i < row->end - row->begin; i++) {
        row->tokens[i] = 0;
        row->targets[i] = -1;
        row->starts[i] = 0;
        row->positions[i] = (int32_t)(row->begin + i);
    }
}

trireme_status sampler_fill(const struct sampler *s, enum sampler_split split, int64_t step, int64_t first,
                            int64_t rows, const struct sampler_batch *batch, struct sampler_counts *counts,
                            trireme_error *error) {
    CHECK(0 <= batch->begin && batch->begin <= batch->end && batch->end <= s->options.seq_len);
    CHECK(step >= 0 && first >= 0 && rows >= 0 && rows <= s->options.global_batch_size - first);
    CHECK(s->source[0].range[split].windows > 0);
    const struct sampler_origin origin = split == SAMPLER_TRAIN ? s->options.origin : (struct sampler_origin){0};
    int64_t sample;
    CHECK(step >= origin.step);
    bool overflow = __builtin_mul_overflow(step - origin.step, s->options.global_batch_size, &sample);
    overflow |= __builtin_add_overflow(sample, origin.sample, &sample);
    CHECK(!overflow && sample <= INT64_MAX - first - rows);
    struct sampler_counts sum = {0};
    for (int64_t r = 0; r < rows; r++) {
        const int64_t places = batch->end - batch->begin, at = r * places;
        struct sampler_batch row = {batch->begin,        batch->end,         batch->tokens + at,
                                    batch->targets + at, batch->starts + at, batch->positions + at};
        const struct window window = split == SAMPLER_TRAIN ? train_window(s, step, sample, first + r)
                                                            : validation_window(s, sample + first + r);
        if (window.begin < window.end)
            TRY(fill_row(s, window, &row, error));
        else
            fill_masked_row(&row);
        for (int64_t i = 0; i < places; i++) {
            if (row.targets[i] < 0)
                continue;
            sum.targets++;
            if (s->options.tokenizer)
                sum.text_bytes += tokenizer_token_bytes(s->options.tokenizer, row.targets[i]);
        }
    }
    if (counts)
        *counts = sum;
    return TRIREME_OK;
}
