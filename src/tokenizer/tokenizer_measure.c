// How many bytes of text each token stands for. Decoders turn lists of tokens into text, and what one makes of a token
// may depend on its neighbours; so this is told from how tokens are spelt instead.
#include "base/utf8.h"
#include "tokenizer/byte_characters.h"
#include "tokenizer/tokenizer_internal.h"

static const char SPACE[] = "\xE2\x96\x81"; // U+2581, which spells a space

struct spelling {
    bool byte_level;    // a character for each byte
    bool space;         // U+2581 is a space
    bool bytes;         // <0xNN> is a byte
    const char *suffix; // which is a space; NULL: none
};

static void spelling_find(struct spelling *s, const json_t *decoder) {
    const char *type = json_string_value(json_object_get(decoder, "type"));
    const char *sought = json_string_value(json_object_get(json_object_get(decoder, "pattern"), "String"));
    const json_t *decoders = json_object_get(decoder, "decoders");
    if (!type)
        return;
    s->byte_level |= strcmp(type, "ByteLevel") == 0;
    s->space |=
        strcmp(type, "Metaspace") == 0 || (strcmp(type, "Replace") == 0 && sought && strcmp(sought, SPACE) == 0);
    s->bytes |= strcmp(type, "ByteFallback") == 0;
    if (strcmp(type, "BPEDecoder") == 0)
        s->suffix = json_string_value(json_object_get(decoder, "suffix"));
    for (size_t i = 0; i < json_array_size(decoders); i++)
        spelling_find(s, json_array_get(decoders, i));
}

bool token_spells_byte(struct token_bytes token) {
    unsigned byte;
    char end;
    char text[8] = {0};
    if (token.length != 6)
        return false;
    memcpy(text, token.bytes, token.length);
    return sscanf(text, "<0x%2X%c", &byte, &end) == 2 && end == '>';
}

static int32_t spelling_bytes(const struct spelling *s, struct token_bytes token) {
    int64_t bytes = token.length;
    if (s->bytes && token_spells_byte(token))
        return 1;
    if (s->byte_level) {
        struct text read = {0};
        bytes = byte_characters_read(token.bytes, token.length, &read) ? (int64_t)read.length : bytes;
        text_release(&read);
        return (int32_t)bytes;
    }
    const size_t suffix = s->suffix ? strlen(s->suffix) : 0;
    if (suffix && token.length >= suffix && memcmp(token.bytes + token.length - suffix, s->suffix, suffix) == 0)
        bytes += 1 - (int64_t)suffix;
    for (size_t i = 0; s->space && i + sizeof SPACE - 1 <= token.length; i++)
        if (memcmp(token.bytes + i, SPACE, sizeof SPACE - 1) == 0)
            bytes += 1 - ((int64_t)sizeof SPACE - 1);
    return (int32_t)bytes;
}

int32_t *tokenizer_measure(const struct tokenizer *t) {
    struct spelling spelling = {0};
    int32_t *bytes = mem_alloc((size_t)t->vocab_size * sizeof *bytes);
    spelling_find(&spelling, json_object_get(t->parts.description, "decoder"));
    for (int32_t id = 0; id < token_table_size(t->parts.tokens); id++) {
        const struct token_bytes token = token_table_token(t->parts.tokens, id);
        bytes[id] = token.bytes ? spelling_bytes(&spelling, token) : 0;
    }
    for (size_t i = 0; i < added_tokens_count(t->added); i++) {
        const struct added_token *added = added_tokens_at(t->added, i);
        bytes[added->id] = added->special ? 0 : (int32_t)added->length;
    }
    return bytes;
}
