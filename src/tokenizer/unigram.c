#include "tokenizer/unigram.h"

#include "tokenizer/byte_trie.h"
#include "tokenizer/unicode.h"

#include <math.h>

enum {
    PIECE_MAX = 4096, // bytes of a token, by which the time for a text is bounded
    NO_WAY = -2,      // no way leads to a byte
};
static const double UNK_PENALTY = 10; // below the least score, for a character without a token
// Beyond it sums in single precision begin anew, as in sentencepiece since 0.2.2: they would no longer tell ways apart.
static const double FLOAT_SUM_MAX = 1e5;

struct unigram {
    const struct token_table *tokens;
    const double *scores;
    struct byte_trie trie;
    double unk_score;
    int32_t unk; // -1: none
    int32_t of_byte[256];
    bool byte_fallback, float_scores;
};

// ---- making

static trireme_status unigram_add_tokens(struct unigram *u, const char *where, trireme_error *error) {
    double least = INFINITY;
    for (int32_t id = 0; id < token_table_size(u->tokens); id++) {
        const struct token_bytes token = token_table_token(u->tokens, id);
        if (token.length > PIECE_MAX)
            FAIL(TRIREME_ERROR_USAGE, "%s: token %d has %u bytes; at most %d are supported", where, id, token.length,
                 PIECE_MAX);
        if (isinf(u->scores[id]))
            continue; // no text becomes it
        // Tokens are different from each other, so this fails for want of room alone.
        if (token.length && !byte_trie_add(&u->trie, token.bytes, token.length, id))
            FAIL(TRIREME_ERROR_USAGE, "%s: the vocabulary has more than %d beginnings of tokens", where,
                 BYTE_TRIE_NODES_MAX);
        least = MIN(least, u->scores[id]);
    }
    const double unknown = (isinf(least) ? 0 : least) - UNK_PENALTY;
    u->unk_score = u->float_scores ? (double)(float)unknown : unknown;
    return TRIREME_OK;
}

static trireme_status unigram_read(struct unigram *u, const json_t *model, const char *where, trireme_error *error) {
    int64_t unk = -1;
    TRY(json_read_integer(model, where, "unk_id", JSON_OPTIONAL, 0, token_table_size(u->tokens) - 1, &unk, error));
    TRY(json_read_boolean(model, where, "byte_fallback", JSON_OPTIONAL, &u->byte_fallback, error));
    u->unk = (int32_t)unk;
    for (unsigned byte = 0; byte < 256; byte++) {
        char name[8];
        u->of_byte[byte] = token_table_find(u->tokens, name, (size_t)snprintf(name, sizeof name, "<0x%02X>", byte));
    }
    return unigram_add_tokens(u, where, error);
}

trireme_status unigram_create(struct unigram **out, const struct tokenizer_parts *parts, const char *where,
                              trireme_error *error) {
    if (parts->scores.count != (size_t)token_table_size(parts->tokens))
        FAIL(TRIREME_ERROR_CORRUPT, "%s: \"model.vocab\" must be an array of pairs of a token and its score", where);
    struct unigram *u = mem_alloc(sizeof *u);
    u->tokens = parts->tokens;
    u->scores = parts->scores.item;
    u->float_scores = parts->float_scores;
    byte_trie_init(&u->trie);
    char *model = mem_printf("%s: \"model\"", where);
    trireme_status status = unigram_read(u, json_object_get(parts->description, "model"), model, error);
    free(model);
    if (status == TRIREME_OK)
        *out = u;
    else
        unigram_free(u);
    return status;
}

void unigram_free(struct unigram *u) {
    if (!u)
        return;
    byte_trie_release(&u->trie);
    free(u);
}

void unigram_work_release(struct unigram_work *work) {
    VEC_RELEASE(&work->steps);
    VEC_RELEASE(&work->reversed);
}

// ---- encoding

// A token from byte `begin` on, by which `end` is reached. Of equal sums the first one found counts. False where it is
// not the best way.
static bool unigram_reach(const struct unigram *u, struct unigram_step *steps, size_t begin, size_t end, int32_t token,
                          double score) {
    double sum = score + steps[begin].score;
    if (u->float_scores)
        sum = (double)(float)sum;
    if (steps[end].token != NO_WAY && sum <= steps[end].score)
        return false;
    steps[end] = (struct unigram_step){sum, (uint32_t)begin, token};
    return true;
}

// Makes the sum at byte `begin` 0, and those that have been reached behind it, up to `end`, larger by the same.
static void unigram_begin_anew(struct unigram_step *steps, size_t begin, size_t end) {
    const double before = steps[begin].score;
    for (size_t i = begin; i <= end; i++)
        if (steps[i].token != NO_WAY)
            steps[i].score = (double)(float)(steps[i].score - before);
}

static trireme_status unigram_forward(const struct unigram *u, struct unigram_step *steps, const char *piece,
                                      size_t length, trireme_error *error) {
    for (size_t begin = 0, bytes; begin < length; begin += bytes) {
        const uint32_t code = unicode_decode(piece + begin, &bytes);
        if (u->float_scores && fabs(steps[begin].score) > FLOAT_SUM_MAX)
            unigram_begin_anew(steps, begin, MIN(length, begin + PIECE_MAX));
        bool alone = false; // whether the character is a token by itself
        uint32_t node = 0;
        for (size_t at = begin; at < length; at++) {
            node = byte_trie_step(&u->trie, node, (uint8_t)piece[at]);
            if (node == 0)
                break;
            const int32_t token = u->trie.values.item[node];
            if (token < 0)
                continue;
            unigram_reach(u, steps, begin, at + 1, token, u->scores[token]);
            alone |= at + 1 == begin + bytes;
        }
        if (alone || !unigram_reach(u, steps, begin, begin + bytes, u->unk, u->unk_score))
            continue;
        if (u->unk < 0)
            FAIL(TRIREME_ERROR_USAGE,
                 "the text has an unknown character, U+%04X, and the model has no \"unk_id\", which is to stand for it",
                 code);
    }
    return TRIREME_OK;
}

// Pushes, last one first, what unknown characters at piece[begin, end) together become: the token that they are after
// all, or those of their bytes, or the unknown token.
static void unigram_push_unknown(const struct unigram *u, const char *piece, size_t begin, size_t end,
                                 struct token_list *reversed) {
    const int32_t token = token_table_find(u->tokens, piece + begin, end - begin);
    bool bytes = token < 0 && u->byte_fallback;
    for (size_t i = begin; i < end && bytes; i++)
        bytes = u->of_byte[(uint8_t)piece[i]] >= 0;
    if (!bytes)
        VEC_PUSH(reversed, token >= 0 ? token : u->unk);
    for (size_t i = end; i > begin && bytes; i--)
        VEC_PUSH(reversed, u->of_byte[(uint8_t)piece[i - 1]]);
}

static trireme_status unigram_best(const struct unigram *u, struct unigram_work *w, const char *piece, size_t length,
                                   struct token_list *out, trireme_error *error) {
    VEC_RESERVE(&w->steps, length + 1);
    struct unigram_step *steps = w->steps.item;
    for (size_t i = 0; i <= length; i++)
        steps[i] = (struct unigram_step){.token = NO_WAY};
    TRY(unigram_forward(u, steps, piece, length, error));
    w->reversed.count = 0;
    for (size_t end = length; end > 0;) {
        size_t begin = steps[end].begin;
        if (steps[end].token == u->unk) {
            while (begin > 0 && steps[begin].token == u->unk)
                begin = steps[begin].begin;
            unigram_push_unknown(u, piece, begin, end, &w->reversed);
        } else {
            VEC_PUSH(&w->reversed, steps[end].token);
        }
        end = begin;
    }
    for (size_t i = w->reversed.count; i-- > 0;)
        VEC_PUSH(out, w->reversed.item[i]);
    return TRIREME_OK;
}

trireme_status unigram_encode(const struct unigram *u, struct unigram_work *w, const char *piece, size_t length,
                              struct token_list *out, trireme_error *error) {
    if (!w->cache || length > PIECE_CACHE_BYTES_MAX)
        return unigram_best(u, w, piece, length, out, error);
    const uint64_t hash = piece_cache_hash(piece, length);
    if (piece_cache_find(w->cache, hash, piece, length, out))
        return TRIREME_OK;
    const size_t before = out->count;
    TRY(unigram_best(u, w, piece, length, out, error));
    piece_cache_put(w->cache, hash, piece, length, out->item + before, out->count - before);
    return TRIREME_OK;
}
