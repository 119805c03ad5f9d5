// Text is collected in a batch, and cut into pieces by all threads when the batch is full, each with a table of counts
// of its own. So that threads share long texts, too, a text is divided into *stretches* where every pattern that has a
// name ends a piece: before a space between letters, and between a line end that follows no blank and a letter. A
// pattern of the user's need not do so, and divides no text, but for what would not fit into memory.
#include "tokenizer/bpe_trainer.h"

#include "base/parallel_for.h"
#include "base/utf8.h"
#include "tokenizer/bpe_merges.h"
#include "tokenizer/byte_characters.h"
#include "tokenizer/description.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/split_patterns.h"
#include "tokenizer/unicode.h"

#include <stdatomic.h>

enum {
    STRETCH_BYTES = 256 << 10,    // of a text that goes on, at least
    STRETCH_BYTES_MAX = 64 << 20, // a text is divided after so many, wherever that is
    BATCH_BYTES_PER_THREAD = 8 << 20,
    BYTES = 256,
};

// Of one thread.
struct trainer_slot {
    struct piece_counts counts;
    struct text_work *work;
    struct pieces pieces;
};

struct bpe_trainer {
    struct bpe_trainer_options options;
    struct pre_tokenizer *cut;
    bool divides; // texts, where named patterns end a piece
    struct text batch;
    VEC(size_t) ends; // of stretches in the batch; what follows the last one is not complete
    size_t looked;    // no place before this one divides it
    struct trainer_slot *slots;
    atomic_size_t next; // stretch to be counted
};

trireme_status bpe_trainer_create(struct bpe_trainer **out, const struct bpe_trainer_options *options,
                                  trireme_error *error) {
    const int64_t least = BYTES + (int64_t)options->special_count;
    if (options->vocab_size < least)
        FAIL(TRIREME_ERROR_USAGE, "vocab_size=%d: give at least %lld, for %d bytes and %zu special tokens",
             options->vocab_size, (long long)least, BYTES, options->special_count);
    struct bpe_trainer *t = mem_alloc(sizeof *t);
    json_t *description = split_pattern_json(options->pattern);
    trireme_status status = pre_tokenizer_create(&t->cut, description, "pattern", error);
    json_decref(description);
    if (status != TRIREME_OK) {
        free(t);
        return status;
    }
    t->options = *options;
    t->options.threads = MIN(MAX(options->threads, 1), 64);
    t->divides = split_pattern_name(options->pattern) != NULL;
    t->slots = mem_alloc((size_t)t->options.threads * sizeof *t->slots);
    for (int i = 0; i < t->options.threads; i++)
        t->slots[i].work = text_work_create();
    *out = t;
    return TRIREME_OK;
}

void bpe_trainer_free(struct bpe_trainer *t) {
    if (!t)
        return;
    for (int i = 0; i < t->options.threads; i++) {
        piece_counts_release(&t->slots[i].counts);
        text_work_free(t->slots[i].work);
        pieces_release(&t->slots[i].pieces);
    }
    free(t->slots);
    pre_tokenizer_free(t->cut);
    text_release(&t->batch);
    VEC_RELEASE(&t->ends);
    free(t);
}

// ---- counting

static trireme_status stretch_count(struct bpe_trainer *t, struct trainer_slot *slot, size_t i, trireme_error *error) {
    const size_t begin = i ? t->ends.item[i - 1] : 0, end = t->ends.item[i];
    pieces_clear(&slot->pieces);
    TRY(pre_tokenizer_cut(t->cut, slot->work, t->batch.text + begin, end - begin, true, &slot->pieces, error));
    for (size_t k = 0; k < slot->pieces.end.count; k++) {
        const size_t from = pieces_begin(&slot->pieces, k);
        piece_counts_add(&slot->counts, slot->pieces.bytes.text + from, slot->pieces.end.item[k] - from, 1);
    }
    return TRIREME_OK;
}

static trireme_status slot_count(void *argument, int i, trireme_error *error) {
    struct bpe_trainer *t = argument;
    for (size_t next; (next = atomic_fetch_add(&t->next, 1)) < t->ends.count;)
        TRY(stretch_count(t, &t->slots[i], next, error));
    return TRIREME_OK;
}

static trireme_status batch_count(struct bpe_trainer *t, trireme_error *error) {
    const size_t done = t->ends.count ? t->ends.item[t->ends.count - 1] : 0;
    atomic_store(&t->next, 0);
    TRY(parallel_try(t->options.threads, t->options.threads, slot_count, t, error));
    if (done)
        memmove(t->batch.text, t->batch.text + done, t->batch.length - done);
    t->batch.length -= done;
    t->looked -= MIN(t->looked, done);
    t->ends.count = 0;
    return TRIREME_OK;
}

// ---- stretches

static size_t stretch_begin(const struct bpe_trainer *t) {
    return t->ends.count ? t->ends.item[t->ends.count - 1] : 0;
}

static bool is_letter(const char *s, size_t length) {
    uint32_t code;
    return utf8_decode(s, length, &code) && unicode_is(unicode_categories(), code, UNICODE_LETTERS);
}

// Whether the character that ends before s[at] is in a set of categories.
static bool ends_with_category(const char *s, size_t at, uint32_t set) {
    size_t begin = at - 1;
    uint32_t code;
    while (begin > 0 && at - begin < UTF8_BYTES_MAX && ((unsigned char)s[begin] & 0xC0) == 0x80)
        begin--;
    return utf8_decode(s + begin, at - begin, &code) && unicode_is(unicode_categories(), code, set);
}

// Whether what ends at s[at - 1] is a single line end.
static bool is_after_line_end(const char *s, size_t at) {
    return s[at - 1] == '\n' && at > 1 && !ends_with_category(s, at - 1, UNICODE_WHITE_SPACE);
}

// The last place in (begin, end) at which a text may be divided; `begin` if there is none.
static size_t stretch_divide(const char *s, size_t begin, size_t end) {
    for (size_t at = end - 1; at > begin; at--)
        if (s[at] == ' ' ? is_letter(s + at + 1, end - at - 1) && ends_with_category(s, at, UNICODE_LETTERS)
                         : is_after_line_end(s, at) && is_letter(s + at, end - at))
            return at;
    return begin;
}

trireme_status bpe_trainer_add(struct bpe_trainer *t, const char *text, size_t length, trireme_error *error) {
    while (length) {
        const size_t step = MIN(length, (size_t)STRETCH_BYTES), begin = stretch_begin(t);
        text_add_bytes(&t->batch, text, step);
        text += step;
        length -= step;
        const size_t all = t->batch.length, from = MAX(begin, t->looked);
        size_t end = begin;
        if (t->divides && all - begin >= STRETCH_BYTES) {
            end = stretch_divide(t->batch.text, from, all);
            end = end == from ? begin : end;
            t->looked = all - UTF8_BYTES_MAX - 1; // a character at the end may be cut
        }
        if (end == begin && all - begin >= STRETCH_BYTES_MAX)
            end = begin + utf8_prefix(t->batch.text + begin, all - begin);
        if (end > begin)
            VEC_PUSH(&t->ends, end);
        if (stretch_begin(t) >= (size_t)t->options.threads * BATCH_BYTES_PER_THREAD)
            TRY(batch_count(t, error));
    }
    return TRIREME_OK;
}

trireme_status bpe_trainer_end_text(struct bpe_trainer *t, trireme_error *error) {
    if (t->batch.length > stretch_begin(t))
        VEC_PUSH(&t->ends, t->batch.length);
    return stretch_begin(t) >= (size_t)t->options.threads * BATCH_BYTES_PER_THREAD ? batch_count(t, error) : TRIREME_OK;
}

// ---- the tokenizer

// Special tokens, then the characters of bytes in order of code point.
static trireme_status alphabet_add(const struct bpe_trainer *t, struct token_table *tokens, json_t *specials,
                                   trireme_error *error) {
    bool added;
    for (size_t i = 0; i < t->options.special_count; i++) {
        const char *content = t->options.special[i];
        TRY(token_table_add(tokens, content, strlen(content), (int32_t)i, &added, error));
        if (!added || !*content)
            FAIL(TRIREME_ERROR_USAGE, "the special token \"%s\" is %s", content, *content ? "there twice" : "empty");
        json_array_append_new(specials, description_special((int32_t)i, content, strlen(content)));
    }
    for (uint32_t code = 0; code <= BYTE_CHARACTER_SOFT; code++) {
        const int byte = byte_of_character(code);
        char character[BYTE_CHARACTER_UTF8_MAX];
        if (byte >= 0)
            TRY(token_table_add(tokens, character, byte_character_write((uint8_t)byte, character),
                                token_table_size(tokens), &added, error));
    }
    return TRIREME_OK;
}

trireme_status bpe_trainer_finish(struct bpe_trainer *t, bool (*progress)(void *user, int32_t tokens), void *user,
                                  struct tokenizer_parts *out, trireme_error *error) {
    TRY(bpe_trainer_end_text(t, error));
    TRY(batch_count(t, error));
    struct piece_counts *counts = &t->slots[0].counts;
    for (int i = 1; i < t->options.threads; i++) {
        piece_counts_add_all(counts, &t->slots[i].counts);
        piece_counts_release(&t->slots[i].counts);
    }
    const struct bpe_learning learning = {.pieces = counts,
                                          .vocab_size = t->options.vocab_size,
                                          .min_frequency = (uint64_t)MAX(t->options.min_frequency, 0),
                                          .progress = progress,
                                          .user = user};
    json_t *specials = json_array();
    *out = (struct tokenizer_parts){.tokens = token_table_create()};
    trireme_status status = alphabet_add(t, out->tokens, specials, error);
    out->description = description_json(specials, json_null(), split_pattern_json(t->options.pattern),
                                        description_byte_level(true), description_bpe(json_null(), false, false));
    if (status == TRIREME_OK)
        status = bpe_learn(&learning, out, error);
    if (status != TRIREME_OK)
        tokenizer_parts_release(out);
    return status;
}
