#include "data/sampler.h"

#include "base/rng.h"

#include <inttypes.h>

// Must never change: another name would give every run other data.
static const char STREAM_NAME[] = "data/sampler";
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

trireme_status sampler_init(struct sampler *out, const struct token_set *set, const struct sampler_options *options,
                            trireme_error *error) {
    TRY(check_options(options, error));
    struct sampler s = {.set = set, .options = *options, .stream = rng_stream(STREAM_NAME)};
    int64_t total = token_set_tokens(set), length = options->seq_len, validation = 0;
    if (options->validation_fraction > 0.0) {
        validation = (int64_t)((double)total * options->validation_fraction + 0.5);
        int64_t cut = total - validation, search = MIN(validation / 10, CUT_SEARCH_TOKENS), found;
        TRY(token_set_next_document(set, cut, cut + search, &found, error));
        if (cut > 0 && found < cut + search) // not where the whole set is for validation
            validation = total - found;
        if (total < 2)
            FAIL(TRIREME_ERROR_USAGE, "validation needs 2 tokens, but there is %" PRId64 " in all: add text", total);
        if (validation < 2)
            FAIL(TRIREME_ERROR_USAGE,
                 "validation needs 2 tokens, but a fraction of %g of %" PRId64 " tokens is %" PRId64
                 ": set data.split to give it more, or none",
                 options->validation_fraction, total, validation);
    }
    int64_t train = total - validation;
    if (!options->evaluate_only && options->validation_fraction < 1.0 && train < length + 1)
        FAIL(TRIREME_ERROR_USAGE,
             "the data are too short: one window takes training.seq_len + 1 = %" PRId64
             " tokens, but training has %" PRId64 " of %" PRId64 "; add text or lower training.seq_len",
             length + 1, train, total);
    s.range[SAMPLER_TRAIN] = (struct sampler_range){.begin = 0, .end = train};
    s.range[SAMPLER_VALIDATION] = (struct sampler_range){.begin = train, .end = total};
    s.range[SAMPLER_TRAIN].windows = sampler_windows(train, length);
    if (train > length)
        s.phases = MIN(length, train - s.range[SAMPLER_TRAIN].windows * length);
    if (validation)
        s.range[SAMPLER_VALIDATION].windows = (validation - 2) / length + 1;
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

trireme_status sampler_has_targets(const struct sampler *s, enum sampler_split split, bool *out, trireme_error *error) {
    const struct sampler_range *range = &s->range[split];
    struct target_search search = {s->set, range->begin + 1, false};
    TRY(token_set_documents(s->set, range->begin + 1, range->end, find_target, &search, error));
    *out = search.found || search.next < range->end;
    return TRIREME_OK;
}

int64_t sampler_validation_batches(const struct sampler *s) {
    int64_t rows = s->options.global_batch_size;
    return divide_up(s->range[SAMPLER_VALIDATION].windows, rows);
}

// First token of training sample k.
static int64_t train_window(const struct sampler *s, uint64_t k) {
    const struct sampler_range *range = &s->range[SAMPLER_TRAIN];
    uint64_t windows = (uint64_t)range->windows;
    struct rng_block random = rng_philox(s->options.seed, s->stream, k / windows);
    uint64_t key = (uint64_t)random.word[0] << 32 | random.word[1];
    uint64_t phase = ((uint64_t)random.word[2] << 32 | random.word[3]) % (uint64_t)s->phases;
    return range->begin + (int64_t)(phase + rng_permute(key, windows, k % windows) * (uint64_t)s->options.seq_len);
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

// Sets starts and positions of a row, and masks targets at its document boundaries. The row begins at token `begin`;
// `known` of its tokens have a target.
static trireme_status mark_documents(const struct sampler *s, int64_t begin, int64_t known,
                                     const struct sampler_batch *row, trireme_error *error) {
    struct marking m = {s, begin, 0, row};
    TRY(token_set_documents(s->set, begin + 1, begin + known + 1, mark_document, &m, error));
    sampler_mark(&m, s->options.seq_len);
    return TRIREME_OK;
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

// Fills a row with the window that begins at token `begin`. Only tokens before `end` may be read: there are at least
// two.
static trireme_status fill_row(const struct sampler *s, int64_t begin, int64_t end, const struct sampler_batch *row,
                               trireme_error *error) {
    int64_t length = s->options.seq_len, inputs = MIN(length, end - begin), known = MIN(length, end - begin - 1);
    int32_t vocab_size = s->options.vocab_size;
    if (s->options.tokenizer)
        vocab_size = MIN(vocab_size, tokenizer_vocab_size(s->options.tokenizer));
    TRY(read_places(s, row, begin, inputs, vocab_size, 0, row->tokens, error));
    TRY(read_places(s, row, begin + 1, known, vocab_size, -1, row->targets, error));
    return mark_documents(s, begin, known, row, error);
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
    const struct sampler_range *range = &s->range[split];
    CHECK(range->windows > 0);
    const struct sampler_origin origin = split == SAMPLER_TRAIN ? s->options.origin : (struct sampler_origin){0};
    int64_t length = s->options.seq_len, sample;
    CHECK(step >= origin.step);
    bool overflow = __builtin_mul_overflow(step - origin.step, s->options.global_batch_size, &sample);
    overflow |= __builtin_add_overflow(sample, origin.sample, &sample);
    CHECK(!overflow && sample <= INT64_MAX - first - rows);
    sample += first;
    struct sampler_counts sum = {0};
    for (int64_t r = 0; r < rows; r++, sample++) {
        const int64_t places = batch->end - batch->begin, at = r * places;
        struct sampler_batch row = {batch->begin,        batch->end,         batch->tokens + at,
                                    batch->targets + at, batch->starts + at, batch->positions + at};
        if (split == SAMPLER_TRAIN)
            TRY(fill_row(s, train_window(s, (uint64_t)sample), range->end, &row, error));
        else if (sample < range->windows)
            TRY(fill_row(s, range->begin + sample * length, range->end, &row, error));
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
