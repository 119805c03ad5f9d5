// Learning merges. Each distinct piece is a *word*, a list of tokens, with its count. For each pair of tokens the
// number of times that it occurs is kept up to date; a queue has the pairs in order of that number, with the words in
// which each occurs, so that a merge touches only those words.
//
// Numbers in the queue may be out of date: a pair at its head whose number has changed is put back with the new one.
// A pair enters the queue once, in the round of the merge that makes the younger of its tokens, since new neighbours
// always have that token; and no token is made in two ways, since what becomes of a token's characters does not depend
// on what is beside them.
#include "tokenizer/bpe_merges.h"

#include "base/utf8.h"

#include <inttypes.h>

enum { SLOTS_LEAST = 1 << 16, PROGRESS_MERGES = 64 };

struct bpe_pair {
    uint64_t key;   // left << 32 | right
    uint64_t count; // of its occurrences, until it is merged
    uint32_t word;  // the last one that was noted for it, plus 1
    uint32_t round; // at which merge that was
    size_t noted;   // how many words were noted in this round; then where the next one goes
};

struct bpe_word {
    uint64_t count;
    size_t begin;    // in `symbols`
    uint32_t length; // tokens
};

struct bpe_entry {
    uint64_t count, key;
    uint32_t pair;
    uint32_t words;
    size_t begin; // of its words in `places`
};

// A word in which a pair appeared.
struct bpe_note {
    uint32_t pair, word;
};

struct bpe_learner {
    const struct bpe_learning *learning;
    struct tokenizer_parts *parts;
    VEC(int32_t) symbols;
    VEC(struct bpe_word) words;
    VEC(struct bpe_pair) pairs;
    VEC(uint32_t) slots; // of pairs: open addressing, index plus 1
    VEC(struct bpe_entry) queue;
    VEC(uint32_t) places;
    VEC(struct bpe_note) notes; // of this round
    VEC(uint32_t) touched;      // pairs that have notes, in the order in which they got them
    uint32_t round;
};

// ---- pairs

static size_t pair_slot_first(const struct bpe_learner *l, uint64_t key) {
    return (size_t)((key * 0x9E3779B97F4A7C15) >> 20) & (l->slots.count - 1);
}

static void pair_slots_grow(struct bpe_learner *l) {
    const size_t count = MAX(2 * l->slots.count, (size_t)SLOTS_LEAST);
    free(l->slots.item);
    l->slots.item = mem_alloc(count * sizeof *l->slots.item);
    l->slots.count = l->slots.capacity = count;
    for (size_t i = 0; i < l->pairs.count; i++) {
        size_t at = pair_slot_first(l, l->pairs.item[i].key);
        while (l->slots.item[at])
            at = (at + 1) & (count - 1);
        l->slots.item[at] = (uint32_t)(i + 1);
    }
}

// The index of a pair, which is made where it is new.
static uint32_t pair_of(struct bpe_learner *l, int32_t left, int32_t right) {
    const uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    if (2 * (l->pairs.count + 1) > l->slots.count)
        pair_slots_grow(l);
    size_t at = pair_slot_first(l, key);
    for (; l->slots.item[at]; at = (at + 1) & (l->slots.count - 1))
        if (l->pairs.item[l->slots.item[at] - 1].key == key)
            return l->slots.item[at] - 1;
    CHECK(l->pairs.count < UINT32_MAX);
    VEC_PUSH(&l->pairs, (struct bpe_pair){.key = key});
    l->slots.item[at] = (uint32_t)l->pairs.count;
    return l->slots.item[at] - 1;
}

// A pair appeared in a word: counts it, and notes the word once a round.
static void pair_appeared(struct bpe_learner *l, int32_t left, int32_t right, uint32_t word) {
    const uint32_t index = pair_of(l, left, right);
    struct bpe_pair *pair = &l->pairs.item[index];
    pair->count += l->words.item[word].count;
    if (pair->round != l->round) {
        pair->round = l->round;
        pair->word = 0;
        pair->noted = 0;
        VEC_PUSH(&l->touched, index);
    }
    if (pair->word == word + 1)
        return;
    pair->word = word + 1;
    pair->noted++;
    VEC_PUSH(&l->notes, (struct bpe_note){index, word});
}

static void pair_vanished(struct bpe_learner *l, int32_t left, int32_t right, uint32_t word) {
    l->pairs.item[pair_of(l, left, right)].count -= l->words.item[word].count;
}

// ---- queue: a heap, the pair that is merged next at the head

static bool entry_before(const struct bpe_entry *a, const struct bpe_entry *b) {
    return a->count > b->count || (a->count == b->count && a->key < b->key);
}

static void queue_push(struct bpe_learner *l, struct bpe_entry entry) {
    VEC_PUSH(&l->queue, entry);
    size_t at = l->queue.count - 1;
    for (; at && entry_before(&entry, &l->queue.item[(at - 1) / 2]); at = (at - 1) / 2)
        l->queue.item[at] = l->queue.item[(at - 1) / 2];
    l->queue.item[at] = entry;
}

// Puts an entry into the place of the head.
static void queue_replace(struct bpe_learner *l, struct bpe_entry entry) {
    struct bpe_entry *item = l->queue.item;
    size_t at = 0;
    for (size_t below; (below = 2 * at + 1) < l->queue.count; at = below) {
        below += below + 1 < l->queue.count && entry_before(&item[below + 1], &item[below]);
        if (!entry_before(&item[below], &entry))
            break;
        item[at] = item[below];
    }
    item[at] = entry;
}

static struct bpe_entry queue_pop(struct bpe_learner *l) {
    const struct bpe_entry head = l->queue.item[0], last = l->queue.item[--l->queue.count];
    if (l->queue.count)
        queue_replace(l, last);
    return head;
}

// Puts the pairs that appeared in this round into the queue, with their words.
static void round_end(struct bpe_learner *l) {
    for (size_t i = 0; i < l->touched.count; i++) {
        struct bpe_pair *pair = &l->pairs.item[l->touched.item[i]];
        const size_t begin = l->places.count;
        VEC_RESERVE(&l->places, begin + pair->noted);
        l->places.count += pair->noted;
        if (pair->count)
            queue_push(l, (struct bpe_entry){pair->count, pair->key, l->touched.item[i], (uint32_t)pair->noted, begin});
        pair->noted = begin;
    }
    for (size_t i = 0; i < l->notes.count; i++)
        l->places.item[l->pairs.item[l->notes.item[i].pair].noted++] = l->notes.item[i].word;
    l->notes.count = l->touched.count = 0;
    l->round++;
}

// ---- words

static void words_make(struct bpe_learner *l) {
    const struct piece_counts *pieces = l->learning->pieces;
    int32_t token[0x200]; // of each of GPT-2's characters
    for (size_t i = 0; i < ARRAY_LENGTH(token); i++) {
        char character[2] = {(char)(0xC0 | i >> 6), (char)(0x80 | (i & 0x3F))};
        if (i < 0x80)
            character[0] = (char)i;
        token[i] = token_table_find(l->parts->tokens, character, i < 0x80 ? 1 : 2);
    }
    for (size_t i = 0; i < pieces->pieces.count; i++) {
        const struct piece_count *piece = &pieces->pieces.item[i];
        const char *bytes = pieces->bytes.item + piece->begin;
        const size_t begin = l->symbols.count;
        uint32_t code;
        for (size_t at = 0; at < piece->length; at += utf8_decode(bytes + at, piece->length - at, &code)) {
            CHECK(utf8_decode(bytes + at, piece->length - at, &code) && code < ARRAY_LENGTH(token) && token[code] >= 0);
            VEC_PUSH(&l->symbols, token[code]);
        }
        if (l->symbols.count - begin < 2) { // nothing to merge
            l->symbols.count = begin;
            continue;
        }
        VEC_PUSH(&l->words, (struct bpe_word){piece->count, begin, (uint32_t)(l->symbols.count - begin)});
        const uint32_t word = (uint32_t)(l->words.count - 1);
        for (size_t at = begin; at + 1 < l->symbols.count; at++)
            pair_appeared(l, l->symbols.item[at], l->symbols.item[at + 1], word);
    }
}

// Merges a pair wherever it is in a word, from left to right.
static void word_merge(struct bpe_learner *l, uint32_t index, struct token_merge merge, int32_t made) {
    struct bpe_word *word = &l->words.item[index];
    int32_t *symbol = l->symbols.item + word->begin;
    uint32_t to = 0;
    for (uint32_t from = 0; from < word->length; from++, to++) {
        if (symbol[from] != merge.left || from + 1 == word->length || symbol[from + 1] != merge.right) {
            symbol[to] = symbol[from];
            continue;
        }
        if (to) {
            pair_vanished(l, symbol[to - 1], merge.left, index);
            pair_appeared(l, symbol[to - 1], made, index);
        }
        from++;
        if (from + 1 < word->length) {
            pair_vanished(l, merge.right, symbol[from + 1], index);
            pair_appeared(l, made, symbol[from + 1], index);
        }
        symbol[to] = made;
    }
    word->length = to;
}

// ---- merges

// The token that a merge makes: a new one, unless a special token is spelt so.
static trireme_status token_make(struct bpe_learner *l, struct token_merge merge, int32_t *made, trireme_error *error) {
    struct token_table *tokens = l->parts->tokens;
    const struct token_bytes left = token_table_token(tokens, merge.left),
                             right = token_table_token(tokens, merge.right);
    struct text spelt = {0};
    text_add_bytes(&spelt, left.bytes, left.length);
    text_add_bytes(&spelt, right.bytes, right.length);
    trireme_status status = TRIREME_OK;
    bool added;
    *made = token_table_find(tokens, spelt.text, spelt.length);
    if (*made < 0) {
        *made = token_table_size(tokens);
        status = token_table_add(tokens, spelt.text, spelt.length, *made, &added, error);
    }
    text_release(&spelt);
    return status;
}

static trireme_status merges_learn(struct bpe_learner *l, trireme_error *error) {
    while (l->queue.count && token_table_count(l->parts->tokens) < l->learning->vocab_size) {
        struct bpe_entry head = l->queue.item[0];
        const uint64_t count = l->pairs.item[head.pair].count;
        if (head.count != count) {
            head.count = count;
            queue_replace(l, head);
            continue;
        }
        if (!count || count < l->learning->min_frequency)
            break;
        queue_pop(l);
        const struct token_merge merge = {(int32_t)(head.key >> 32), (int32_t)(uint32_t)head.key};
        int32_t made;
        TRY(token_make(l, merge, &made, error));
        VEC_PUSH(&l->parts->merges, merge);
        for (uint32_t i = 0; i < head.words; i++)
            word_merge(l, l->places.item[head.begin + i], merge, made);
        round_end(l);
        if (l->learning->progress && l->parts->merges.count % PROGRESS_MERGES == 0 &&
            !l->learning->progress(l->learning->user, token_table_count(l->parts->tokens)))
            FAIL(TRIREME_ERROR_INTERRUPTED, "interrupted");
    }
    return TRIREME_OK;
}

trireme_status bpe_learn(const struct bpe_learning *learning, struct tokenizer_parts *parts, trireme_error *error) {
    struct bpe_learner l = {.learning = learning, .parts = parts, .round = 1};
    words_make(&l);
    round_end(&l);
    const trireme_status status = merges_learn(&l, error);
    VEC_RELEASE(&l.symbols);
    VEC_RELEASE(&l.words);
    VEC_RELEASE(&l.pairs);
    VEC_RELEASE(&l.slots);
    VEC_RELEASE(&l.queue);
    VEC_RELEASE(&l.places);
    VEC_RELEASE(&l.notes);
    VEC_RELEASE(&l.touched);
    return status;
}
