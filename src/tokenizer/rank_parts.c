#include "tokenizer/rank_parts.h"

#include "tokenizer/byte_characters.h"
#include "tokenizer/description.h"
#include "tokenizer/merge_recovery.h"
#include "tokenizer/split_patterns.h"

trireme_status rank_parts_merge(struct tokenizer_parts *parts, const char *where, trireme_error *error) {
    for (int byte = 0; byte < 256; byte++) {
        char character[BYTE_CHARACTER_UTF8_MAX];
        if (token_table_find(parts->tokens, character, byte_character_write((uint8_t)byte, character)) < 0)
            FAIL(TRIREME_ERROR_CORRUPT, "%s: byte 0x%02X has no rank: not every text could be encoded", where, byte);
    }
    const int32_t size = token_table_size(parts->tokens);
    int32_t *order = mem_alloc((size_t)size * sizeof *order);
    struct merge_recovery recovery = {.order = order, .rank = order, .where = where};
    for (int32_t id = 0; id < size; id++)
        if (token_table_token(parts->tokens, id).bytes)
            order[recovery.count++] = id;
    const trireme_status status = merges_recover(&recovery, parts, error);
    free(order);
    return status;
}

json_t *rank_parts_describe(struct tokenizer_parts *parts, const char *pattern, bool composes) {
    json_t *specials = json_array();
    // A piece that is a token is not made by merges.
    parts->description = description_json(specials, composes ? json_pack("{s:s}", "type", "NFC") : json_null(),
                                          split_pattern_json(pattern), description_byte_level(false),
                                          description_bpe(json_null(), false, true));
    return specials;
}

trireme_status rank_parts_add_special(struct tokenizer_parts *parts, json_t *specials, int32_t id, const char *content,
                                      const char *where, trireme_error *error) {
    bool added;
    TRY(token_table_add(parts->tokens, content, strlen(content), id, &added, error));
    char shown[JSON_EXCERPT_BYTES];
    if (!added)
        FAIL(TRIREME_ERROR_CORRUPT, "%s: the id %d, or the token itself, is there twice: of %s, a special token", where,
             id, json_excerpt(content, shown));
    json_array_append_new(specials, description_special(id, content, strlen(content)));
    return TRIREME_OK;
}
