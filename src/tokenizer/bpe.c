// How a piece is encoded:
//
// Short pieces, which nearly all are, keep the ranks of their pairs in an array that is searched for the least one.
// Long ones take a heap of pairs; an entry whose pair is no longer there is passed over.
//
// A tokenizer may have no pre-tokenizer (those of sentencepiece): then a whole document is one piece. It is cut first,
// wherever no merge can reach across: between characters x and y, both in the vocabulary, if no merge has a left token
// that ends with x and a right one that begins with y. That changes no token, takes no memory, and makes words of
// documents, which the cache knows.
#include "tokenizer/bpe.h"

#include "base/utf8.h"
#include "tokenizer/unicode.h"

enum {
    PLANE = 0x10000, // code points whose tokens are in a table
    ASCII = 0x80,
    SHORT = 48,     // characters of a piece that is merged by search
    CUT_LEAST = 64, // bytes of a piece that is cut where no merge reaches
    JOIN_BITS_LEAST = 12
};
static const uint32_t NO_RANK = UINT32_MAX;
static const uint64_t MIX = 0x9E3779B97F4A7C15;

struct merge_slot {
    uint64_t pair; // left << 32 | right; UINT64_MAX: free
    uint32_t rank;
    int32_t product;
};

struct bpe {
    const struct token_table *tokens;
    struct merge_slot *merges; // open addressing over 1 << bits slots, at most half of them taken
    int bits;
    int32_t of_character[PLANE]; // -1: none
    int32_t of_byte[256];        // <0xNN>; -1: none
    char *unk_name;              // NULL: unknown characters vanish
    int32_t unk;                 // -1: not in the vocabulary
    bool byte_fallback, fuse_unk, ignore_merges;
    char *prefix, *suffix; // of all characters but a piece's first, and of its last; NULL: none
    // Pairs of characters that a merge joins: exact for ASCII, else a bit that others may share.
    bool cuts;
    uint64_t ascii_joins[ASCII * ASCII / 64];
    uint64_t *joins;
    int join_bits;
};

// ---- making

static size_t merge_slot_first(const struct bpe *b, uint64_t pair) {
    return (size_t)(pair * MIX >> (64 - b->bits));
}

// The slot of a pair, or else the free one in which it would be put; that has the rank NO_RANK.
static struct merge_slot *merge_find(const struct bpe *b, int32_t left, int32_t right) {
    const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    const size_t mask = ((size_t)1 << b->bits) - 1;
    size_t at = merge_slot_first(b, pair);
    while (b->merges[at].pair != pair && b->merges[at].pair != UINT64_MAX)
        at = (at + 1) & mask;
    return &b->merges[at];
}

static uint64_t join_bit(const struct bpe *b, uint32_t left, uint32_t right) {
    return ((uint64_t)left << 32 | right) * MIX >> (64 - b->join_bits);
}

static void join_add(struct bpe *b, struct token_bytes left, struct token_bytes right) {
    size_t at = left.length, taken;
    while (at > 0 && ((uint8_t)left.bytes[--at] & 0xC0) == 0x80)
        continue;
    if (left.length == 0 || right.length == 0) {
        b->cuts = false;
        return;
    }
    const uint32_t x = unicode_decode(left.bytes + at, &taken), y = unicode_decode(right.bytes, &taken);
    if (x < ASCII && y < ASCII)
        b->ascii_joins[(x * ASCII + y) / 64] |= (uint64_t)1 << (y % 64);
    const uint64_t bit = join_bit(b, x, y);
    b->joins[bit / 64] |= (uint64_t)1 << bit % 64;
}

static bool is_joined(const struct bpe *b, uint32_t x, uint32_t y) {
    if (x < ASCII && y < ASCII)
        return b->ascii_joins[(x * ASCII + y) / 64] >> (y % 64) & 1;
    const uint64_t bit = join_bit(b, x, y);
    return b->joins[bit / 64] >> bit % 64 & 1;
}

static int32_t bpe_find_text(const struct bpe *b, const char *text) {
    return token_table_find(b->tokens, text, strlen(text));
}

static void bpe_find_characters(struct bpe *b) {
    memset(b->of_character, 0xFF, sizeof b->of_character);
    for (int32_t id = 0; id < token_table_size(b->tokens); id++) {
        const struct token_bytes token = token_table_token(b->tokens, id);
        uint32_t code;
        if (token.length > 0 && token.length <= UTF8_BYTES_MAX &&
            utf8_decode(token.bytes, token.length, &code) == token.length && code < PLANE)
            b->of_character[code] = id;
    }
    for (unsigned byte = 0; byte < 256; byte++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", byte);
        b->of_byte[byte] = bpe_find_text(b, name);
    }
}

static trireme_status bpe_add_merges(struct bpe *b, const struct tokenizer_parts *parts, const char *where,
                                     trireme_error *error) {
    CHECK(parts->ranks.count == 0 || parts->ranks.count == parts->merges.count);
    const size_t count = parts->merges.count, prefix = b->prefix ? strlen(b->prefix) : 0;
    for (b->bits = 4; (size_t)1 << b->bits < 2 * count; b->bits++)
        continue;
    b->join_bits = MAX(JOIN_BITS_LEAST, b->bits + 3);
    b->joins = mem_alloc(((size_t)1 << b->join_bits) / 8);
    b->merges = mem_resize(NULL, sizeof *b->merges << b->bits);
    memset(b->merges, 0xFF, sizeof *b->merges << b->bits);
    struct text product = {0};
    trireme_status status = TRIREME_OK;
    for (size_t i = 0; i < count && status == TRIREME_OK; i++) {
        const struct token_merge merge = parts->merges.item[i];
        const struct token_bytes left = token_table_token(b->tokens, merge.left),
                                 right = token_table_token(b->tokens, merge.right);
        const size_t skipped = MIN(prefix, right.length);
        char excerpt[JSON_EXCERPT_BYTES];
        product.length = 0;
        text_add_bytes(&product, left.bytes, left.length);
        text_add_bytes(&product, right.bytes + skipped, right.length - skipped);
        const int32_t id = token_table_find(b->tokens, product.text, product.length);
        if (id < 0 || right.length < prefix)
            status = error_set(error, TRIREME_ERROR_CORRUPT,
                               "%s: \"model.merges\": what merge %zu makes, %s, is not in the vocabulary", where, i,
                               json_excerpt_bytes(product.text, product.length, excerpt));
        // Of a merge that is there twice the last one counts.
        const uint32_t rank = parts->ranks.count ? (uint32_t)parts->ranks.item[i] : (uint32_t)i;
        *merge_find(b, merge.left, merge.right) =
            (struct merge_slot){(uint64_t)(uint32_t)merge.left << 32 | (uint32_t)merge.right, rank, id};
        join_add(b, left, right);
    }
    text_release(&product);
    return status;
}

// A string that may be null, or empty, which means the same.
static trireme_status bpe_read_affix(const json_t *model, const char *where, const char *key, char **out,
                                     trireme_error *error) {
    const char *affix = "";
    TRY(json_read_string(model, where, key, JSON_OPTIONAL, &affix, error));
    *out = *affix ? mem_strdup(affix) : NULL;
    return TRIREME_OK;
}

static trireme_status bpe_read(struct bpe *b, const json_t *model, const char *where, trireme_error *error) {
    const char *unk = NULL;
    double dropout = 0;
    TRY(json_read_number(model, where, "dropout", JSON_OPTIONAL, 0, 1, &dropout, error));
    if (dropout != 0)
        FAIL(TRIREME_ERROR_USAGE, "%s: \"dropout\" is %g: tokens left to chance are not supported, set it to null",
             where, dropout);
    TRY(json_read_string(model, where, "unk_token", JSON_OPTIONAL, &unk, error));
    TRY(json_read_boolean(model, where, "fuse_unk", JSON_OPTIONAL, &b->fuse_unk, error));
    TRY(json_read_boolean(model, where, "byte_fallback", JSON_OPTIONAL, &b->byte_fallback, error));
    TRY(json_read_boolean(model, where, "ignore_merges", JSON_OPTIONAL, &b->ignore_merges, error));
    TRY(bpe_read_affix(model, where, "continuing_subword_prefix", &b->prefix, error));
    TRY(bpe_read_affix(model, where, "end_of_word_suffix", &b->suffix, error));
    b->unk_name = unk ? mem_strdup(unk) : NULL;
    b->unk = unk ? bpe_find_text(b, unk) : -1;
    b->cuts = !b->prefix && !b->suffix;
    return TRIREME_OK;
}

trireme_status bpe_create(struct bpe **out, const struct tokenizer_parts *parts, const char *where,
                          trireme_error *error) {
    struct bpe *b = mem_alloc(sizeof *b);
    b->tokens = parts->tokens;
    bpe_find_characters(b);
    char *model = mem_printf("%s: \"model\"", where);
    trireme_status status = bpe_read(b, json_object_get(parts->description, "model"), model, error);
    free(model);
    if (status == TRIREME_OK)
        status = bpe_add_merges(b, parts, where, error);
    if (status == TRIREME_OK)
        *out = b;
    else
        bpe_free(b);
    return status;
}

void bpe_free(struct bpe *b) {
    if (!b)
        return;
    free(b->merges);
    free(b->joins);
    free(b->unk_name);
    free(b->prefix);
    free(b->suffix);
    free(b);
}

void bpe_work_release(struct bpe_work *work) {
    VEC_RELEASE(&work->symbols);
    VEC_RELEASE(&work->queue);
    text_release(&work->spelling);
}

// ---- the tokens of characters

static int32_t bpe_find_character(const struct bpe *b, uint32_t code, const char *bytes, size_t length) {
    return code < PLANE ? b->of_character[code] : token_table_find(b->tokens, bytes, length);
}

static void symbol_add(struct bpe_work *w, int32_t token) {
    const uint32_t at = (uint32_t)w->symbols.count;
    VEC_PUSH(&w->symbols, (struct bpe_symbol){token, at, at + 1});
}

// Adds the tokens of a character's bytes, if all of them have one.
static bool symbol_add_bytes(const struct bpe *b, struct bpe_work *w, const char *bytes, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (b->of_byte[(uint8_t)bytes[i]] < 0)
            return false;
    for (size_t i = 0; i < length; i++)
        symbol_add(w, b->of_byte[(uint8_t)bytes[i]]);
    return true;
}

// Makes w->symbols of a piece. An unknown token waits until a known one follows, as in `tokenizers`: tokens of bytes
// overtake it.
static trireme_status bpe_begin(const struct bpe *b, struct bpe_work *w, const char *piece, size_t length,
                                trireme_error *error) {
    const bool spells = b->prefix || b->suffix;
    bool waits = false;
    w->symbols.count = 0;
    for (size_t at = 0, taken; at < length; at += taken) {
        const uint32_t code = unicode_decode(piece + at, &taken);
        const char *bytes = piece + at;
        size_t spelt = taken;
        int32_t token;
        if (spells) {
            w->spelling.length = 0;
            text_add(&w->spelling, "%s", at > 0 && b->prefix ? b->prefix : "");
            text_add_bytes(&w->spelling, piece + at, taken);
            text_add(&w->spelling, "%s", at + taken == length && b->suffix ? b->suffix : "");
            bytes = w->spelling.text;
            spelt = w->spelling.length;
            token = token_table_find(b->tokens, bytes, spelt);
        } else {
            token = bpe_find_character(b, code, bytes, taken);
        }
        if (token >= 0) {
            if (waits)
                symbol_add(w, b->unk);
            waits = false;
            symbol_add(w, token);
        } else if (!(b->byte_fallback && symbol_add_bytes(b, w, bytes, spelt)) && b->unk_name) {
            if (b->unk < 0)
                FAIL(TRIREME_ERROR_USAGE,
                     "the text has an unknown character, U+%04X, and \"unk_token\", which is to "
                     "stand for it, is not in the vocabulary",
                     code);
            if (waits && !b->fuse_unk)
                symbol_add(w, b->unk);
            waits = true;
        }
    }
    if (waits)
        symbol_add(w, b->unk);
    return TRIREME_OK;
}

// ---- merging

static void merge_short(const struct bpe *b, struct bpe_work *w, struct token_list *out) {
    int32_t token[SHORT], product[SHORT];
    uint32_t rank[SHORT]; // of each token with the next one
    size_t count = w->symbols.count;
    for (size_t i = 0; i < count; i++)
        token[i] = w->symbols.item[i].token;
    for (size_t i = 0; i + 1 < count; i++) {
        const struct merge_slot *merge = merge_find(b, token[i], token[i + 1]);
        rank[i] = merge->rank;
        product[i] = merge->product;
    }
    if (count) {
        rank[count - 1] = NO_RANK;
        product[count - 1] = -1;
    }
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++)
            if (rank[i] < rank[best])
                best = i;
        if (rank[best] == NO_RANK)
            break;
        token[best] = product[best];
        count--;
        for (size_t i = best + 1; i < count; i++) {
            token[i] = token[i + 1];
            rank[i] = rank[i + 1];
            product[i] = product[i + 1];
        }
        for (size_t i = best ? best - 1 : 0; i <= best && i + 1 < count; i++) {
            const struct merge_slot *merge = merge_find(b, token[i], token[i + 1]);
            rank[i] = merge->rank;
            product[i] = merge->product;
        }
    }
    token_list_append(out, token, count);
}

// A heap of pairs, the least one first: rank << 32 | index of the left symbol.
static void queue_push(struct bpe_work *w, uint64_t entry) {
    VEC_PUSH(&w->queue, entry);
    uint64_t *heap = w->queue.item;
    size_t at = w->queue.count - 1;
    for (size_t up; at > 0 && heap[up = (at - 1) / 2] > entry; at = up)
        heap[at] = heap[up];
    heap[at] = entry;
}

static uint64_t queue_pop(struct bpe_work *w) {
    uint64_t *heap = w->queue.item;
    const uint64_t first = heap[0], last = heap[--w->queue.count];
    const size_t count = w->queue.count;
    size_t at = 0;
    for (size_t down; (down = 2 * at + 1) < count; at = down) {
        down += down + 1 < count && heap[down + 1] < heap[down];
        if (heap[down] >= last)
            break;
        heap[at] = heap[down];
    }
    heap[at] = last;
    return first;
}

// Of the symbol `at`, which still stands, with the next one.
static const struct merge_slot *symbol_merge(const struct bpe *b, const struct bpe_work *w, uint32_t at) {
    const struct bpe_symbol *s = &w->symbols.item[at];
    static const struct merge_slot NONE = {.rank = UINT32_MAX};
    return s->after < w->symbols.count ? merge_find(b, s->token, w->symbols.item[s->after].token) : &NONE;
}

static void queue_add(const struct bpe *b, struct bpe_work *w, uint32_t at) {
    const struct merge_slot *merge = symbol_merge(b, w, at);
    if (merge->rank != NO_RANK)
        queue_push(w, (uint64_t)merge->rank << 32 | at);
}

static void merge_long(const struct bpe *b, struct bpe_work *w, struct token_list *out) {
    struct bpe_symbol *symbol = w->symbols.item;
    const uint32_t count = (uint32_t)w->symbols.count;
    w->queue.count = 0;
    for (uint32_t i = 0; i + 1 < count; i++)
        queue_add(b, w, i);
    while (w->queue.count) {
        const uint64_t entry = queue_pop(w);
        const uint32_t at = (uint32_t)entry;
        struct bpe_symbol *s = &symbol[at];
        if (s->token < 0)
            continue; // became part of the one before it
        const struct merge_slot *merge = symbol_merge(b, w, at);
        if (merge->rank != entry >> 32)
            continue; // has another neighbour now
        symbol[s->after].token = -1;
        s->token = merge->product;
        s->after = symbol[s->after].after;
        if (s->after < count)
            symbol[s->after].before = at + 1;
        queue_add(b, w, at);
        if (s->before)
            queue_add(b, w, s->before - 1);
    }
    for (uint32_t i = 0; i < count; i = symbol[i].after)
        VEC_PUSH(out, symbol[i].token);
}

static trireme_status bpe_merge(const struct bpe *b, struct bpe_work *w, const char *piece, size_t length,
                                struct token_list *out, trireme_error *error) {
    TRY(bpe_begin(b, w, piece, length, error));
    if (w->symbols.count <= SHORT)
        merge_short(b, w, out);
    else
        merge_long(b, w, out);
    return TRIREME_OK;
}

// bpe_merge of a part of a piece, or of a whole one, that may be known.
static trireme_status bpe_merge_cached(const struct bpe *b, struct bpe_work *w, const char *piece, size_t length,
                                       struct token_list *out, trireme_error *error) {
    if (!w->cache || length > PIECE_CACHE_BYTES_MAX)
        return bpe_merge(b, w, piece, length, out, error);
    const uint64_t hash = piece_cache_hash(piece, length);
    if (piece_cache_find(w->cache, hash, piece, length, out))
        return TRIREME_OK;
    const size_t before = out->count;
    TRY(bpe_merge(b, w, piece, length, out, error));
    piece_cache_put(w->cache, hash, piece, length, out->item + before, out->count - before);
    return TRIREME_OK;
}

trireme_status bpe_encode(const struct bpe *b, struct bpe_work *w, const char *piece, size_t length,
                          struct token_list *out, trireme_error *error) {
    const int32_t whole = b->ignore_merges ? token_table_find(b->tokens, piece, length) : -1;
    if (whole >= 0) {
        VEC_PUSH(out, whole);
        return TRIREME_OK;
    }
    if (!b->cuts || length < CUT_LEAST)
        return bpe_merge_cached(b, w, piece, length, out, error);
    size_t begin = 0, taken;
    uint32_t before = 0;
    bool known = false; // whether the character before has a token
    for (size_t at = 0; at < length; at += taken) {
        const uint32_t code = unicode_decode(piece + at, &taken);
        const bool has = bpe_find_character(b, code, piece + at, taken) >= 0;
        if (has && known && !is_joined(b, before, code)) {
            TRY(bpe_merge_cached(b, w, piece + begin, at - begin, out, error));
            begin = at;
        }
        known = has;
        before = code;
    }
    return bpe_merge_cached(b, w, piece + begin, length - begin, out, error);
}

bool bpe_has_seam(const struct bpe *b, const struct text *left, const struct text *right) {
    size_t at = left->length - 1, before, after;
    while (at > 0 && ((uint8_t)left->text[at] & 0xC0) == 0x80)
        at--;
    const uint32_t x = unicode_decode(left->text + at, &before), y = unicode_decode(right->text, &after);
    return b->cuts && !b->ignore_merges && bpe_find_character(b, x, left->text + at, before) >= 0 &&
           bpe_find_character(b, y, right->text, after) >= 0 && !is_joined(b, x, y);
}
