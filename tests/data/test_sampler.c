// The sampler: which windows a step sees, what is masked, and that nothing but (seed, step, row) matters.
#include "data/sampler.h"
#include "data/token_manifest.h"
#include "data/token_shard.h"
#include "data/token_writer.h"
#include "test_data.h"

#include <fcntl.h>
#include <math.h>

enum { VOCAB = 1000000 };

// A set whose token at position i is i, with documents of the given lengths in turn until `total` is reached.
static struct token_set *counting_set(void **state, int64_t total, const int *lengths, size_t count) {
    struct token_writer *w;
    assert_ok(token_writer_create(in(state, "counting"), VOCAB, 0, &w, &error));
    int64_t next = 0;
    for (size_t d = 0; next < total; d = (d + 1) % count) {
        for (int i = 0; i < lengths[d] && next < total; i++, next++)
            assert_ok(token_writer_add(w, &(int32_t){(int32_t)next}, 1, &error));
        assert_ok(token_writer_end_document(w, &error));
    }
    assert_ok(token_writer_finish(w, NULL, &error));
    struct token_set *set;
    assert_ok(token_set_open(in(state, "counting"), &set, &error));
    assert_int_equal(token_set_tokens(set), total);
    return set;
}

static struct token_set *one_document(void **state, int64_t total) {
    return counting_set(state, total, (int[]){1 << 30}, 1);
}

static struct sampler_options options(int64_t seq_len, int64_t global_batch_size, double validation_fraction) {
    return (struct sampler_options){.seed = 42,
                                    .seq_len = seq_len,
                                    .global_batch_size = global_batch_size,
                                    .vocab_size = VOCAB,
                                    .validation_fraction = validation_fraction};
}

static struct sampler sampler(const struct token_set *set, struct sampler_options o) {
    struct sampler s;
    assert_ok(sampler_init(&s, set, &o, &error));
    return s;
}

struct filled {
    int32_t *memory;
    size_t bytes;
    struct sampler_batch batch;
    struct sampler_counts counts;
};

// What a part has of rows.
static struct filled fill_part(const struct sampler *s, enum sampler_split split, int64_t step, int64_t first,
                               int64_t rows, struct places places, int64_t part) {
    size_t n = (size_t)(rows * places.rows);
    struct filled f = {.bytes = 4 * n * sizeof(int32_t)};
    f.memory = mem_alloc(f.bytes);
    memset(f.memory, 0x55, f.bytes);
    f.batch = (struct sampler_batch){places, part, f.memory, f.memory + n, f.memory + 2 * n, f.memory + 3 * n};
    assert_ok(sampler_fill(s, split, step, first, rows, &f.batch, &f.counts, &error));
    return f;
}

static struct filled fill(const struct sampler *s, enum sampler_split split, int64_t step, int64_t first,
                          int64_t rows) {
    return fill_part(s, split, step, first, rows, (struct places){PLACES_CONTIGUOUS, 1, s->options.seq_len}, 0);
}

// First token of the window that row `row` of `step` takes.
static int64_t window_of(const struct sampler *s, enum sampler_split split, int64_t step, int64_t row) {
    struct filled f = fill(s, split, step, row, 1);
    int64_t token = f.batch.tokens[0];
    free(f.memory);
    return token;
}

// ---- windows

static void test_one_row_by_hand(void **state) {
    // Documents begin at 0, 3, 4, 8 and 13; the whole set is validation, so that the windows are known.
    struct token_set *set = counting_set(state, 15, (int[]){3, 1, 4, 5, 2}, 5);
    struct tokenizer *bytes = tokenizer_create_bytes(TOKENIZER_BYTES_ALONE);
    struct sampler_options o = options(5, 2, 1.0);
    o.tokenizer = bytes;
    struct sampler s = sampler(set, o);
    assert_int_equal(s.source[0].range[SAMPLER_VALIDATION].windows, 3);
    assert_int_equal(s.source[0].range[SAMPLER_TRAIN].windows, 0);
    assert_int_equal(sampler_validation_batches(&s), 2);
    struct filled f = fill(&s, SAMPLER_VALIDATION, 0, 0, 2);
    static const int32_t first[] = {
        0, 1, 2,  3,  4, 5, 6, 7,  8, 9,  // tokens
        1, 2, -1, -1, 5, 6, 7, -1, 9, 10, // targets
        0, 0, 0,  3,  4, 0, 0, 0,  3, 3,  // starts
        0, 1, 2,  0,  0, 0, 1, 2,  0, 1,  // positions
    };
    assert_memory_equal(f.memory, first, sizeof first);
    assert_int_equal(f.counts.targets, 7);
    assert_int_equal(f.counts.text_bytes, 7);
    free(f.memory);
    // The last window ends with the set: token 14 has no target; the row after it has nothing.
    f = fill(&s, SAMPLER_VALIDATION, 1, 0, 2);
    static const int32_t second[] = {
        10, 11, 12, 13, 14, 0,  0,  0,  0,  0,  // tokens
        11, 12, -1, 14, -1, -1, -1, -1, -1, -1, // targets
        0,  0,  0,  3,  3,  0,  0,  0,  0,  0,  // starts
        0,  1,  2,  0,  1,  0,  1,  2,  3,  4,  // positions
    };
    assert_memory_equal(f.memory, second, sizeof second);
    assert_int_equal(f.counts.targets, 3);
    free(f.memory);
    token_set_close(set);
    tokenizer_free(bytes);
}

// A counting set whose documents are runs of 0 to 6 tokens, predicted and only read in turns; predicted[i]: whether
// token i is. `any`: some are.
static struct token_set *masked_set(void **state, int64_t total, int32_t sequence_limit, bool any, bool *predicted,
                                    bool *begins) {
    struct token_manifest m = {.tokenizer_kind = "x", .tokenizer_checksum = "y", .vocab_size = VOCAB, .masked = true};
    struct token_writer *w;
    assert_ok(token_writer_create(in(state, "masked"), VOCAB, sequence_limit, &w, &error));
    int64_t next = 0;
    for (uint32_t d = 0, chance = 1; next < total; d++) {
        begins[next] = true;
        for (uint32_t run = 0, runs = d % 7; run <= runs || begins[next]; run++) {
            chance = chance * 1664525 + 1013904223;
            const bool is = run % 2 == 0;
            for (uint32_t i = is && !any ? 0 : chance >> 29; i > 0 && next < total; i--, next++) {
                predicted[next] = is;
                assert_ok(token_writer_add(w, &(int32_t){(int32_t)next}, 1, &error));
            }
            if (next == total)
                break;
            assert_ok(token_writer_turn(w, &error));
        }
        assert_ok(token_writer_end_document(w, &error));
    }
    m.tokens = token_writer_tokens(w);
    m.documents = token_writer_documents(w);
    assert_ok(token_writer_finish(w, &m, &error));
    struct token_set *set;
    assert_ok(token_set_open(in(state, "masked"), &set, &error));
    return set;
}

static const int64_t LAYOUT[] = {PLACES_CONTIGUOUS, PLACES_ZIGZAG, 1, 2, 5};

// What is only read is no target, in whole rows and in parts of them.
static void test_masked(void **state) {
    enum { TOTAL = 3000 };
    bool predicted[TOTAL + 1] = {0}, begins[TOTAL + 1] = {0}, has;
    for (int32_t limit = 0; limit <= 4; limit += 2) { // long runs are then several sequences
        memset(begins, 0, sizeof begins);
        struct token_set *set = masked_set(state, TOTAL, limit, true, predicted, begins);
        assert_true(token_set_is_masked(set));
        struct sampler s = sampler(set, options(16, 4, 0.0));
        for (int64_t step = 0; step < 60; step++) {
            const int64_t layout = LAYOUT[step % 5], parts = 1 + step % 4;
            const struct places places = {layout, parts, places_rows(layout, parts, 16)};
            struct filled f = fill_part(&s, SAMPLER_TRAIN, step, 0, 4, places, step % parts);
            int64_t targets = 0;
            for (int64_t i = 0; i < 4 * places.rows; i++) {
                if (place_of(&places, step % parts, i % places.rows) >= 16)
                    continue;
                const int32_t next = f.batch.tokens[i] + 1;
                const bool is = predicted[next] && !begins[next];
                assert_int_equal(f.batch.targets[i], is ? next : -1);
                targets += is;
            }
            assert_int_equal(f.counts.targets, targets);
            free(f.memory);
        }
        assert_ok(sampler_has_targets(&s, SAMPLER_TRAIN, &has, &error));
        assert_true(has);
        token_set_close(set);
    }
    struct token_set *set = masked_set(state, TOTAL, 0, false, predicted, begins);
    struct sampler s = sampler(set, options(16, 4, 0.0));
    assert_ok(sampler_has_targets(&s, SAMPLER_TRAIN, &has, &error));
    assert_false(has);
    token_set_close(set);
}

// Whole documents: each is in one row, and each of its tokens but the first a target once an epoch; longer ones are
// cut.
static void test_whole_documents(void **state) {
    static const int lengths[] = {1, 1, 7, 30, 2, 16, 17, 18, 64, 1, 5, 11, 3, 15};
    enum { TOTAL = 3000, LENGTH = 16 };
    struct token_set *set = counting_set(state, TOTAL, lengths, ARRAY_LENGTH(lengths));
    int begin_of[TOTAL], length_of[TOTAL];
    int64_t cut = 0;
    for (int at = 0, d = 0; at < TOTAL; d++) {
        const int length = MIN(lengths[d % 14], TOTAL - at);
        cut += length > LENGTH + 1;
        for (int i = 0; i < length; i++) {
            begin_of[at + i] = at;
            length_of[at + i] = length;
        }
        at += length;
    }
    struct sampler_options o = options(LENGTH, 4, 0.0);
    o.whole = true;
    for (double fraction = 0; fraction <= 1; fraction++) {
        o.validation_fraction = fraction;
        const enum sampler_split split = fraction > 0 ? SAMPLER_VALIDATION : SAMPLER_TRAIN;
        struct sampler s = sampler(set, o);
        const int64_t windows = s.source[0].range[split].windows;
        int targets[TOTAL] = {0}, row_of[TOTAL];
        memset(row_of, 0xFF, sizeof row_of);
        assert_int_equal(s.cut_documents, cut);
        assert_true(windows > TOTAL / LENGTH && windows < 3 * TOTAL / (2 * LENGTH));
        for (int row = 0; row < windows; row++) {
            struct filled f = fill(&s, split, row / 4, row % 4, 1);
            for (int i = 0; i < LENGTH; i++) {
                const int32_t next = f.batch.targets[i];
                if (next < 0)
                    continue;
                assert_int_equal(f.batch.tokens[i], next - 1);
                assert_int_equal(begin_of[next], begin_of[next - 1]);
                targets[next]++;
                if (length_of[next] <= LENGTH + 1)
                    assert_true(row_of[begin_of[next]] == -1 || row_of[begin_of[next]] == row);
                row_of[begin_of[next]] = row;
                if (length_of[next] <= LENGTH + 1)
                    assert_int_equal(f.batch.positions[i], next - 1 - begin_of[next]);
            }
            free(f.memory);
        }
        for (int i = 0; i < TOTAL; i++)
            assert_int_equal(targets[i], begin_of[i] != i);
        sampler_release(&s);
    }
    token_set_close(set);
}

// Targets, starts and positions of many windows against what the document starts say, token by token.
static void test_documents(void **state) {
    static const int lengths[] = {1, 1, 7, 30, 2, 64, 1, 5, 11, 3};
    struct token_set *set = counting_set(state, 3000, lengths, ARRAY_LENGTH(lengths));
    bool *begins = mem_alloc(3001);
    for (int64_t at = 0, d = 0; at < 3000; at += lengths[d++ % 10])
        begins[at] = true;
    struct sampler s = sampler(set, options(16, 4, 0.0));
    for (int64_t step = 0; step < 100; step++) {
        struct filled f = fill(&s, SAMPLER_TRAIN, step, 0, 4);
        int64_t targets = 0;
        for (int i = 0; i < 64; i++) {
            int in_row = i % 16, start = in_row;
            int64_t token = f.batch.tokens[i];
            while (start > 0 && !begins[token - in_row + start])
                start--;
            assert_int_equal(token, f.batch.tokens[i - in_row] + in_row);
            assert_int_equal(f.batch.targets[i], begins[token + 1] ? -1 : token + 1);
            assert_int_equal(f.batch.starts[i], start);
            assert_int_equal(f.batch.positions[i], in_row - start);
            targets += f.batch.targets[i] >= 0;
        }
        assert_int_equal(f.counts.targets, targets);
        assert_int_equal(f.counts.text_bytes, 0);
        free(f.memory);
    }
    free(begins);
    token_set_close(set);
}

static void check_epochs(void **state, int64_t total, int64_t seq_len, int64_t global_batch_size) {
    enum { EPOCHS = 6 };
    struct token_set *set = one_document(state, total);
    struct sampler s = sampler(set, options(seq_len, global_batch_size, 0.0));
    int64_t windows = s.source[0].range[SAMPLER_TRAIN].windows, phase[EPOCHS];
    // No more than two windows' worth of tokens may be left out.
    assert_true(windows >= 1 && (windows + 2) * seq_len > total - 1);
    int64_t *order = mem_alloc((size_t)windows * sizeof *order), *previous = mem_alloc((size_t)windows * sizeof *order);
    int same_orders = 0;
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
        bool *seen = mem_alloc((size_t)windows);
        phase[epoch] = INT64_MAX;
        for (int64_t i = 0; i < windows; i++) {
            int64_t k = epoch * windows + i;
            order[i] = window_of(&s, SAMPLER_TRAIN, k / global_batch_size, k % global_batch_size);
            phase[epoch] = MIN(phase[epoch], order[i]);
        }
        for (int64_t i = 0; i < windows; i++) {
            int64_t w = order[i] - phase[epoch];
            assert_int_equal(w % seq_len, 0);
            assert_true(w / seq_len < windows && !seen[w / seq_len]);
            seen[w / seq_len] = true;
            order[i] = w;
        }
        assert_true(phase[epoch] < seq_len && phase[epoch] + windows * seq_len < total);
        same_orders += epoch && memcmp(order, previous, (size_t)windows * sizeof *order) == 0;
        memcpy(previous, order, (size_t)windows * sizeof *order);
        free(seen);
    }
    if (windows > 20) {
        assert_int_equal(same_orders, 0);
        bool moved = false;
        for (int e = 1; e < EPOCHS; e++)
            moved |= phase[e] != phase[0];
        assert_true(moved == (seq_len > 1));
    }
    free(order);
    free(previous);
    token_set_close(set);
}

static void test_each_window_once(void **state) {
    check_epochs(state, 1000, 16, 1);
    check_epochs(state, 1000, 16, 7);
    check_epochs(state, 1001, 10, 64); // batches that span epochs
    check_epochs(state, 17, 16, 3);    // a single window
    check_epochs(state, 32, 16, 3);
    check_epochs(state, 33, 16, 3);
    check_epochs(state, 47, 16, 2);
    check_epochs(state, 500, 1, 5);
}

// Every shift that the range allows occurs, the largest too.
static void test_phases(void **state) {
    struct token_set *set = one_document(state, 24);
    struct sampler s = sampler(set, options(16, 1, 0.0));
    bool seen[8] = {0};
    for (int64_t step = 0; step < 300; step++) {
        int64_t begin = window_of(&s, SAMPLER_TRAIN, step, 0);
        assert_true(begin < 8);
        seen[begin] = true;
    }
    for (int i = 0; i < 8; i++)
        assert_true(seen[i]);
    token_set_close(set);
}

// ---- what the data depend on

static void test_rows_however_asked(void **state) {
    static const int lengths[] = {9, 40, 3};
    struct token_set *set = counting_set(state, 5000, lengths, 3);
    struct sampler s = sampler(set, options(32, 12, 0.1));
    for (int split = SAMPLER_TRAIN; split <= SAMPLER_VALIDATION; split++)
        for (int64_t step = 0; step < 30; step += 7) {
            struct filled whole = fill(&s, split, step, 0, 12);
            int64_t targets = 0;
            for (int64_t micro = 1; micro <= 12; micro++) {
                targets = 0;
                for (int64_t first = 0; first < 12; first += micro) {
                    int64_t rows = MIN(micro, 12 - first);
                    struct filled part = fill(&s, split, step, first, rows);
                    size_t bytes = (size_t)rows * 32 * sizeof(int32_t);
                    assert_memory_equal(part.batch.tokens, whole.batch.tokens + first * 32, bytes);
                    assert_memory_equal(part.batch.targets, whole.batch.targets + first * 32, bytes);
                    assert_memory_equal(part.batch.starts, whole.batch.starts + first * 32, bytes);
                    assert_memory_equal(part.batch.positions, whole.batch.positions + first * 32, bytes);
                    targets += part.counts.targets;
                    free(part.memory);
                }
                assert_int_equal(targets, whole.counts.targets);
            }
            free(whole.memory);
        }
    token_set_close(set);
}

// What the parts of rows have is what the rows have there, each place once, and padding; documents begin where they
// begin in the row.
static void check_parts(const struct sampler *s, enum sampler_split split, int64_t step, int64_t layout,
                        int64_t parts) {
    const int64_t length = s->options.seq_len, rows = s->options.global_batch_size;
    const struct places places = {layout, parts, places_rows(layout, parts, length)};
    struct filled whole = fill(s, split, step, 0, rows);
    struct sampler_counts sum = {0};
    bool *seen = mem_alloc((size_t)(rows * length));
    for (int64_t number = 0; number < parts; number++) {
        struct filled part = fill_part(s, split, step, 0, rows, places, number);
        for (int64_t i = 0; i < rows * places.rows; i++) {
            const int64_t place = place_of(&places, number, i % places.rows), at = i / places.rows * length + place;
            const bool there = place < length;
            assert_int_equal(part.batch.tokens[i], there ? whole.batch.tokens[at] : 0);
            assert_int_equal(part.batch.targets[i], there ? whole.batch.targets[at] : -1);
            assert_int_equal(part.batch.starts[i], there ? whole.batch.starts[at] : place);
            assert_int_equal(part.batch.positions[i], there ? whole.batch.positions[at] : 0);
            assert_false(there && seen[at]);
            if (there)
                seen[at] = true;
        }
        sum.targets += part.counts.targets;
        sum.text_bytes += part.counts.text_bytes;
        free(part.memory);
    }
    assert_null(memchr(seen, false, (size_t)(rows * length)));
    assert_int_equal(sum.targets, whole.counts.targets);
    assert_int_equal(sum.text_bytes, whole.counts.text_bytes);
    free(whole.memory);
    free(seen);
}

static void test_parts_of_rows(void **state) {
    static const int64_t LENGTHS[] = {32, 31, 23, 3};
    struct token_set *set = counting_set(state, 256, (int[]){9, 1, 40, 3, 1, 1}, 6);
    struct tokenizer *bytes = tokenizer_create_bytes(TOKENIZER_BYTES_ALONE);
    for (size_t n = 0; n < ARRAY_LENGTH(LENGTHS); n++) {
        struct sampler_options o = options(LENGTHS[n], 5, 0.3);
        o.tokenizer = bytes;
        struct sampler s = sampler(set, o);
        for (size_t l = 0; l < ARRAY_LENGTH(LAYOUT); l++)
            for (int64_t parts = 1; parts <= 5; parts++)
                for (int64_t step = 0; step < 2; step++) {
                    check_parts(&s, SAMPLER_TRAIN, step, LAYOUT[l], parts);
                    check_parts(&s, SAMPLER_VALIDATION, step, LAYOUT[l], parts);
                }
    }
    token_set_close(set);
    tokenizer_free(bytes);
}

// With another batch from some step on, the windows of an epoch are still each taken once; of another length, those of
// the next epoch.
static void test_origin(void **state) {
    struct token_set *set = one_document(state, 1000);
    struct sampler before = sampler(set, options(16, 4, 0.0)), after = sampler(set, options(16, 7, 0.0));
    const int64_t windows = before.source[0].range[SAMPLER_TRAIN].windows; // 61
    enum { CHANGE = 5 };
    after.options.origin = (struct sampler_origin){CHANGE, CHANGE * 4};
    struct sampler one = sampler(set, options(16, 1, 0.0));
    for (int64_t sample = 0; sample < 3 * windows; sample++) {
        const int64_t since = sample - CHANGE * 4;
        const int64_t got = since < 0 ? window_of(&before, SAMPLER_TRAIN, sample / 4, sample % 4)
                                      : window_of(&after, SAMPLER_TRAIN, CHANGE + since / 7, since % 7);
        assert_int_equal(got, window_of(&one, SAMPLER_TRAIN, sample, 0));
    }
    struct sampler longer = sampler(set, options(24, 3, 0.0)), anew = sampler(set, options(24, 1, 0.0));
    const int64_t others = sampler_windows(1000, 24);
    assert_int_equal(others, longer.source[0].range[SAMPLER_TRAIN].windows);
    longer.options.origin = (struct sampler_origin){CHANGE, 2 * others};
    for (int64_t i = 0; i < others; i++)
        assert_int_equal(window_of(&longer, SAMPLER_TRAIN, CHANGE + i / 3, i % 3),
                         window_of(&anew, SAMPLER_TRAIN, 2 * others + i, 0));
    token_set_close(set);
}

static void test_resume(void **state) {
    struct token_set *set = one_document(state, 3000), *again;
    struct sampler_options o = options(16, 8, 0.1);
    struct sampler s = sampler(set, o);
    assert_ok(token_set_open(in(state, "counting"), &again, &error));
    for (int64_t step = 100; step >= 0; step -= 9) {
        struct sampler fresh = sampler(again, o);
        struct filled a = fill(&s, SAMPLER_TRAIN, step, 0, 8), b = fill(&fresh, SAMPLER_TRAIN, step, 0, 8);
        assert_memory_equal(a.memory, b.memory, a.bytes);
        free(a.memory);
        free(b.memory);
    }
    // Another seed, other data.
    o.seed = 43;
    struct sampler other = sampler(set, o);
    struct filled a = fill(&s, SAMPLER_TRAIN, 0, 0, 8), b = fill(&other, SAMPLER_TRAIN, 0, 0, 8);
    assert_memory_not_equal(a.memory, b.memory, a.bytes);
    free(a.memory);
    free(b.memory);
    // These must never change: a run of an older version resumes with the same data.
    static const int64_t golden[] = {1944, 587, 533, 249};
    for (size_t i = 0; i < ARRAY_LENGTH(golden); i++)
        assert_int_equal(window_of(&s, SAMPLER_TRAIN, (int64_t)i * 37, 3), golden[i]);
    token_set_close(set);
    token_set_close(again);
}

// ---- the split

static void check_split(const struct token_set *set, const struct sampler *s, int64_t cut) {
    int64_t total = token_set_tokens(set), length = s->options.seq_len, rows = s->options.global_batch_size;
    assert_int_equal(s->source[0].range[SAMPLER_TRAIN].begin, 0);
    assert_int_equal(s->source[0].range[SAMPLER_TRAIN].end, cut);
    assert_int_equal(s->source[0].range[SAMPLER_VALIDATION].begin, cut);
    assert_int_equal(s->source[0].range[SAMPLER_VALIDATION].end, total);
    for (int64_t step = 0; step < 3 * s->source[0].range[SAMPLER_TRAIN].windows / rows + 1; step++) {
        struct filled f = fill(s, SAMPLER_TRAIN, step, 0, rows);
        for (int64_t i = 0; i < rows * length; i++)
            assert_true(f.batch.tokens[i] < cut && f.batch.targets[i] < cut);
        free(f.memory);
    }
    // Validation: in order, each token but the first a target once (masked where it begins a document).
    int64_t next = cut;
    for (int64_t b = 0; b < sampler_validation_batches(s); b++) {
        struct filled f = fill(s, SAMPLER_VALIDATION, b, 0, rows);
        for (int64_t i = 0; i < rows * length && next < total - 1; i++) {
            assert_int_equal(f.batch.tokens[i], next);
            assert_true(f.batch.targets[i] == next + 1 || f.batch.targets[i] == -1);
            next++;
        }
        free(f.memory);
    }
    assert_int_equal(next, total - 1);
}

static void test_split(void **state) {
    // One document: cut by token, whatever remains in the last window.
    for (int64_t total = 400; total < 420; total++) {
        struct token_set *set = one_document(state, total);
        struct sampler s = sampler(set, options(16, 3, 0.1));
        check_split(set, &s, total - (total + 5) / 10);
        token_set_close(set);
    }
    // Many documents: the cut moves up from 2700 to where one begins.
    struct token_set *set = counting_set(state, 3000, (int[]){7}, 1);
    struct sampler s = sampler(set, options(16, 3, 0.1));
    check_split(set, &s, 2702);
    token_set_close(set);
    // Long documents: the next begins too far away, at 2800.
    set = counting_set(state, 3000, (int[]){400}, 1);
    s = sampler(set, options(16, 3, 0.1));
    check_split(set, &s, 2700);
    assert_int_equal(s.source[0].range[SAMPLER_VALIDATION].windows, 19);
    token_set_close(set);
    // Nothing set apart.
    set = one_document(state, 100);
    s = sampler(set, options(16, 3, 0.0));
    assert_int_equal(s.source[0].range[SAMPLER_TRAIN].end, 100);
    assert_int_equal(s.source[0].range[SAMPLER_VALIDATION].windows, 0);
    assert_int_equal(sampler_validation_batches(&s), 0);
    token_set_close(set);
}

static void test_too_short(void **state) {
    struct token_set *set = one_document(state, 100);
    struct sampler s;
    struct sampler_options o = options(100, 1, 0.0);
    assert_refused(sampler_init(&s, set, &o, &error), TRIREME_ERROR_USAGE,
                   "training.seq_len + 1 = 101 tokens, but training has 100 of 100");
    o = options(99, 1, 0.0);
    assert_ok(sampler_init(&s, set, &o, &error));
    assert_int_equal(s.source[0].range[SAMPLER_TRAIN].windows, 1);
    o = options(95, 1, 0.1);
    assert_refused(sampler_init(&s, set, &o, &error), TRIREME_ERROR_USAGE, "but training has 90 of 100");
    o.evaluate_only = true;
    assert_ok(sampler_init(&s, set, &o, &error));
    assert_int_equal(s.source[0].range[SAMPLER_TRAIN].windows, 0);
    assert_int_equal(window_of(&s, SAMPLER_VALIDATION, 0, 0), 90);
    o = options(10, 1, 0.01);
    assert_refused(sampler_init(&s, set, &o, &error), TRIREME_ERROR_USAGE, "validation needs 2 tokens");
    o = options(10, 1, 0.02);
    assert_ok(sampler_init(&s, set, &o, &error));
    o = options(200, 1, 1.0);
    assert_ok(sampler_init(&s, set, &o, &error));
    static const double bad[] = {-0.1, 1.1, NAN};
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
        o = options(10, 1, bad[i]);
        assert_refused(sampler_init(&s, set, &o, &error), TRIREME_ERROR_USAGE, "data.split");
    }
    o = options(0, 1, 0.0);
    assert_refused(sampler_init(&s, set, &o, &error), TRIREME_ERROR_USAGE, "training.seq_len is 0");
    o = options(INT64_MAX, 1, 0.0);
    assert_refused(sampler_init(&s, set, &o, &error), TRIREME_ERROR_USAGE, "training.seq_len");
    o = options(10, 0, 0.0);
    assert_refused(sampler_init(&s, set, &o, &error), TRIREME_ERROR_USAGE, "training.global_batch_size is 0");
    token_set_close(set);
    set = one_document(state, 1);
    o = options(10, 1, 1.0);
    assert_refused(sampler_init(&s, set, &o, &error), TRIREME_ERROR_USAGE, "but there is 1 in all: add text");
    token_set_close(set);
}

static void test_vocabulary(void **state) {
    struct token_set *set = one_document(state, 300);
    struct tokenizer *bytes = tokenizer_create_bytes(TOKENIZER_BYTES_ALONE);
    struct sampler_options o = options(299, 1, 0.0);
    int32_t memory[4 * 299];
    struct sampler_batch batch = {
        {PLACES_CONTIGUOUS, 1, 299}, 0, memory, memory + 299, memory + 2 * 299, memory + 3 * 299};
    o.vocab_size = 299;
    struct sampler s = sampler(set, o);
    assert_refused(sampler_fill(&s, SAMPLER_TRAIN, 0, 0, 1, &batch, NULL, &error), TRIREME_ERROR_CORRUPT,
                   "counting.bin: token 299 at position 299 (byte 1196) is outside of the vocabulary of 299");
    // A model may have more rows than the tokenizer has tokens; the text has no more tokens than the tokenizer.
    o.vocab_size = VOCAB;
    o.tokenizer = bytes;
    s = sampler(set, o);
    assert_refused(sampler_fill(&s, SAMPLER_TRAIN, 0, 0, 1, &batch, NULL, &error), TRIREME_ERROR_CORRUPT,
                   "token 256 at position 256");
    tokenizer_free(bytes);
    token_set_close(set);
}

static struct token_set *shard_of_llm_c(void **state, const uint16_t *tokens, int count) {
    int32_t header[256] = {20240520, 1, count};
    FILE *file = fopen(in(state, "s.bin"), "wb");
    fwrite(header, sizeof header, 1, file);
    fwrite(tokens, sizeof *tokens, (size_t)count, file);
    assert_int_equal(fclose(file), 0);
    struct token_set *set;
    assert_ok(token_set_open(in(state, "s.bin"), &set, &error));
    return set;
}

// llm.c's end-of-text begins a document and is the last target of the one before.
static void test_delimiter(void **state) {
    const uint16_t tokens[] = {50256, 1, 2, 3, 50256, 4, 50256, 50256, 5, 6};
    struct token_set *set = shard_of_llm_c(state, tokens, ARRAY_LENGTH(tokens));
    struct sampler s = sampler(set, options(9, 1, 1.0));
    struct filled f = fill(&s, SAMPLER_VALIDATION, 0, 0, 1);
    static const int32_t expected[] = {
        50256, 1, 2, 3,     50256, 4,     50256, 50256, 5, //
        1,     2, 3, 50256, 4,     50256, 50256, 5,     6, //
        0,     0, 0, 0,     4,     4,     6,     7,     7, //
        0,     1, 2, 3,     0,     1,     0,     0,     1,
    };
    assert_memory_equal(f.memory, expected, sizeof expected);
    free(f.memory);
    token_set_close(set);
}

// The first token of a range is not a target, whichever document it belongs to.
static void test_nothing_to_predict(void **state) {
    struct token_set *set = counting_set(state, 9, (int[]){3, 1, 1, 1, 1, 1, 1}, 7);
    struct sampler s = sampler(set, options(1, 1, 7.0 / 9));
    bool has = true;
    assert_int_equal(s.source[0].range[SAMPLER_VALIDATION].begin, 2);
    assert_ok(sampler_has_targets(&s, SAMPLER_VALIDATION, &has, &error));
    assert_false(has);
    assert_ok(sampler_has_targets(&s, SAMPLER_TRAIN, &has, &error));
    assert_true(has);
    token_set_close(set);
    // In llm.c's documents without a word the end-of-text tokens are targets.
    const uint16_t ends[] = {50256, 50256, 50256};
    set = shard_of_llm_c(state, ends, ARRAY_LENGTH(ends));
    s = sampler(set, options(2, 1, 0));
    assert_ok(sampler_has_targets(&s, SAMPLER_TRAIN, &has, &error));
    assert_true(has);
    token_set_close(set);
}

// All of a shard that begins inside a document is evaluated if nothing of it is trained on.
static void test_begins_within_a_document(void **state) {
    enum { COUNT = 100 };
    uint16_t tokens[COUNT];
    for (int i = 0; i < COUNT; i++)
        tokens[i] = i % 5 == 3 ? 50256 : (uint16_t)i;
    struct token_set *set = shard_of_llm_c(state, tokens, COUNT);
    struct sampler all = sampler(set, options(9, 1, 1.0)), part = sampler(set, options(9, 1, 0.5));
    assert_int_equal(all.source[0].range[SAMPLER_VALIDATION].begin, 0);
    assert_int_equal(all.source[0].range[SAMPLER_VALIDATION].end, COUNT);
    assert_int_equal(part.source[0].range[SAMPLER_VALIDATION].begin, 53);
    token_set_close(set);
}

// 100 billion tokens: sparse files of 200 GB, opened, split and sampled at once.
static void test_hundred_billion(void **state) {
    const int64_t total = INT64_C(100000000000), longest = INT32_MAX;
    int64_t sequences = (total + longest - 1) / longest, entries = sequences + 1, version = 1;
    int fd = open(in(state, "huge.bin"), O_CREAT | O_RDWR, 0666);
    assert_true(fd >= 0);
    int rc = ftruncate(fd, 2 * total);
    close(fd);
    if (rc != 0)
        skip(); // a file system without files of this size
    FILE *index = fopen(in(state, "huge.idx"), "wb");
    fwrite(MEGATRON_MAGIC, MEGATRON_MAGIC_BYTES, 1, index);
    fwrite(&version, 8, 1, index);
    fputc(TOKEN_U16, index);
    fwrite(&sequences, 8, 1, index);
    fwrite(&entries, 8, 1, index);
    for (int64_t i = 0; i < sequences; i++)
        fwrite(&(int32_t){(int32_t)MIN(longest, total - i * longest)}, 4, 1, index);
    for (int64_t i = 0; i < sequences; i++)
        fwrite(&(int64_t){2 * i * longest}, 8, 1, index);
    for (int64_t i = 0; i < entries; i++)
        fwrite(&i, 8, 1, index);
    assert_int_equal(fclose(index), 0);
    clock_t before = clock(); // of this process alone
    struct token_set *set;
    assert_ok(token_set_open(in(state, "huge"), &set, &error));
    assert_int_equal(token_set_tokens(set), total);
    struct sampler s = sampler(set, options(4096, 64, 0.001));
    assert_int_equal(s.source[0].range[SAMPLER_TRAIN].end, total - total / 1000);
    struct filled f = fill(&s, SAMPLER_TRAIN, 1000000, 0, 64);
    free(f.memory);
    f = fill(&s, SAMPLER_VALIDATION, sampler_validation_batches(&s) - 1, 0, 64);
    free(f.memory);
    assert_true(clock() - before < CLOCKS_PER_SEC);
    token_set_close(set);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, folder_setup, folder_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_one_row_by_hand),
        TEST(test_masked),
        TEST(test_whole_documents),
        TEST(test_documents),
        TEST(test_each_window_once),
        TEST(test_phases),
        TEST(test_rows_however_asked),
        TEST(test_origin),
        TEST(test_resume),
        TEST(test_split),
        TEST(test_too_short),
        TEST(test_vocabulary),
        TEST(test_delimiter),
        TEST(test_nothing_to_predict),
        TEST(test_begins_within_a_document),
        TEST(test_hundred_billion),
        TEST(test_parts_of_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
