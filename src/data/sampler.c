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

// What is being filled: a part's tokens of one row.
struct filling {
    const struct sampler *sampler;
    struct sampler_batch row;
    int64_t begin;        // the token at place 0
    int64_t known;        // so many places have a token after them
    int64_t first;        // the part's first place
    int32_t *read;        // the tokens from there on, to the one after the part's last place
    int64_t marked, next; // so many places have been marked; the part's rows among these
};

static int64_t filling_place(const struct filling *f, int64_t row) {
    return place_of(&f->row.places, f->row.part, row);
}

static int64_t filling_below(const struct filling *f, int64_t place) {
    return places_below(&f->row.places, f->row.part, place);
}

// The document that begins at the first place that is not marked goes on to place `end`.
static void sampler_mark(struct filling *f, int64_t end) {
    for (const int64_t below = filling_below(f, end); f->next < below; f->next++) {
        f->row.starts[f->next] = (int32_t)f->marked;
        f->row.positions[f->next] = (int32_t)(filling_place(f, f->next) - f->marked);
    }
    f->marked = end;
}

static bool mark_document(void *user, int64_t position) {
    struct filling *f = user;
    const int64_t place = position - f->begin;
    sampler_mark(f, place);
    if (f->next > 0 && filling_place(f, f->next - 1) == place - 1 && !token_set_delimited(f->sampler->set, position))
        f->row.targets[f->next - 1] = -1;
    return true;
}

static bool mask_run(void *user, int64_t begin, int64_t end) {
    const struct filling *f = user;
    const int64_t last = filling_below(f, end - 1 - f->begin);
    for (int64_t i = filling_below(f, begin - 1 - f->begin); i < last; i++)
        f->row.targets[i] = -1;
    return true;
}

// Sets starts and positions, and masks targets at document boundaries and where they are only read.
static trireme_status mark_documents(struct filling *f, trireme_error *error) {
    const struct token_set *set = f->sampler->set;
    const int64_t rows = f->row.places.rows, last = MIN(filling_place(f, rows - 1) + 1, f->known);
    f->marked = f->next = 0;
    TRY(token_set_documents(set, f->begin + 1, f->begin + f->known + 1, mark_document, f, error));
    sampler_mark(f, f->sampler->options.seq_len);
    while (f->next < rows) { // padding
        f->marked = filling_place(f, f->next);
        sampler_mark(f, f->marked + 1);
    }
    return f->first < last ? token_set_masked(set, f->begin + f->first + 1, f->begin + last + 1, mask_run, f, error)
                           : TRIREME_OK;
}

// Sets tokens, and targets as if all were predicted.
static trireme_status fill_tokens(struct filling *f, int64_t inputs, trireme_error *error) {
    const struct sampler_options *o = &f->sampler->options;
    const int64_t rows = f->row.places.rows, last = MIN(filling_place(f, rows - 1) + 1, inputs),
                  end = MIN(last + 1, f->known + 1);
    int32_t vocab_size = o->vocab_size;
    if (o->tokenizer)
        vocab_size = MIN(vocab_size, tokenizer_vocab_size(o->tokenizer));
    if (f->first < last)
        TRY(token_set_read(f->sampler->set, f->begin + f->first, f->begin + end, vocab_size, f->read, error));
    for (int64_t i = 0; i < rows; i++) {
        const int64_t place = filling_place(f, i);
        f->row.tokens[i] = place < inputs ? f->read[place - f->first] : 0;
        f->row.targets[i] = place < f->known ? f->read[place - f->first + 1] : -1;
    }
    return TRIREME_OK;
}

// Fills the row with a window, which may be empty.
static trireme_status fill_row(struct filling *f, struct window w, trireme_error *error) {
    const int64_t length = f->sampler->options.seq_len;
    f->begin = w.begin;
    f->known = MAX(0, MIN(length, w.end - w.begin - 1));
    TRY(fill_tokens(f, MIN(length, w.end - w.begin), error));
    return mark_documents(f, error);
}

static void count_targets(const struct filling *f, struct sampler_counts *sum) {
    const struct tokenizer *tokenizer = f->sampler->options.tokenizer;
    for (int64_t i = 0; i < f->row.places.rows; i++) {
        if (f->row.targets[i] < 0)
            continue;
        sum->targets++;
        if (tokenizer)
            sum->text_bytes += tokenizer_token_bytes(tokenizer, f->row.targets[i]);
    }
}

trireme_status sampler_fill(const struct sampler *s, enum sampler_split split, int64_t step, int64_t first,
                            int64_t rows, const struct sampler_batch *batch, struct sampler_counts *counts,
                            trireme_error *error) {
    CHECK(0 <= batch->part && batch->part < batch->places.parts && batch->places.rows > 0);
    CHECK(step >= 0 && first >= 0 && rows >= 0 && rows <= s->options.global_batch_size - first);
    CHECK(s->source[0].range[split].windows > 0);
    const struct sampler_origin origin = split == SAMPLER_TRAIN ? s->options.origin : (struct sampler_origin){0};
    int64_t sample;
    CHECK(step >= origin.step);
    bool overflow = __builtin_mul_overflow(step - origin.step, s->options.global_batch_size, &sample);
    overflow |= __builtin_add_overflow(sample, origin.sample, &sample);
    CHECK(!overflow && sample <= INT64_MAX - first - rows);
    const int64_t places = batch->places.rows, begin = place_of(&batch->places, batch->part, 0),
                  span = place_of(&batch->places, batch->part, places - 1) - begin + 2;
    struct filling f = {.sampler = s, .first = begin};
    f.read = mem_alloc((size_t)MIN(span, s->options.seq_len + 1) * sizeof *f.read);
    struct sampler_counts sum = {0};
    trireme_status status = TRIREME_OK;
    for (int64_t r = 0; r < rows && status == TRIREME_OK; r++) {
        const int64_t at = r * places;
        const struct window window = split == SAMPLER_TRAIN ? train_window(s, step, sample, first + r)
                                                            : validation_window(s, sample + first + r);
        f.row = (struct sampler_batch){batch->places,       batch->part,        batch->tokens + at,
                                       batch->targets + at, batch->starts + at, batch->positions + at};
        status = fill_row(&f, window, error);
        if (status == TRIREME_OK)
            count_targets(&f, &sum);
    }
    free(f.read);
    if (counts)
        *counts = sum;
    return status;
}
