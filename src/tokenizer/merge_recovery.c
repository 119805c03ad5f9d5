#include "tokenizer/merge_recovery.h"

#include "base/utf8.h"

// Bytes of tokens that are looked up. Vocabularies in use come to a thousandth of it.
#define LOOKED_UP_MAX ((size_t)1 << 33)

// Whether a part of a token may be a neighbour that merges: as a token, with its id, or as a character alone, then with
// an id of -1.
static bool part_find(const struct merge_recovery *r, const struct token_table *tokens, const char *bytes,
                      size_t length, int32_t *id) {
    uint32_t code;
    *id = token_table_find(tokens, bytes, length);
    const enum merge_role role = *id < 0 ? MERGE_RESERVED : r->role ? (enum merge_role)r->role[*id] : MERGE_FREE;
    if (role != MERGE_RESERVED)
        return role == MERGE_FREE;
    *id = -1;
    return utf8_decode(bytes, length, &code) == length;
}

static trireme_status merges_of_token(const struct merge_recovery *r, struct tokenizer_parts *parts, size_t i,
                                      trireme_error *error) {
    const int32_t id = r->order[i];
    const struct token_bytes token = token_table_token(parts->tokens, id);
    uint32_t code;
    for (size_t cut = 0; (cut += utf8_decode(token.bytes + cut, token.length - cut, &code)) < token.length;) {
        struct token_merge merge;
        if (!part_find(r, parts->tokens, token.bytes, cut, &merge.left) ||
            !part_find(r, parts->tokens, token.bytes + cut, token.length - cut, &merge.right))
            continue;
        if (merge.left < 0 || merge.right < 0) {
            char shown[JSON_EXCERPT_BYTES];
            FAIL(TRIREME_ERROR_USAGE,
                 "%s: token %d, %s, is made of a character that is no token, which is not supported", r->where, id,
                 json_excerpt_bytes(token.bytes, token.length, shown));
        }
        VEC_PUSH(&parts->merges, merge);
        VEC_PUSH(&parts->ranks, r->rank[i]);
    }
    return TRIREME_OK;
}

trireme_status merges_recover(const struct merge_recovery *r, struct tokenizer_parts *parts, trireme_error *error) {
    size_t looked_up = 0;
    for (size_t i = 0; i < r->count; i++) {
        const struct token_bytes token = token_table_token(parts->tokens, r->order[i]);
        looked_up += (size_t)token.length * token.length;
        if (looked_up > LOOKED_UP_MAX)
            FAIL(TRIREME_ERROR_USAGE, "%s: its tokens are too long to be taken apart (token %d has %u bytes)", r->where,
                 r->order[i], token.length);
        TRY(merges_of_token(r, parts, i, error));
    }
    return TRIREME_OK;
}
