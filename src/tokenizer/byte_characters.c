#include "tokenizer/byte_characters.h"

#include "base/utf8.h"

void byte_characters_spell(const char *bytes, size_t length, struct text *out) {
    char part[512];
    size_t used = 0;
    for (size_t i = 0; i < length; i++) {
        if (used > sizeof part - BYTE_CHARACTER_UTF8_MAX) {
            text_add_bytes(out, part, used);
            used = 0;
        }
        used += byte_character_write((uint8_t)bytes[i], part + used);
    }
    text_add_bytes(out, part, used);
}

bool byte_characters_read(const char *token, size_t length, struct text *out) {
    const size_t before = out->length;
    for (size_t at = 0; at < length;) {
        uint32_t code;
        const size_t taken = utf8_decode(token + at, length - at, &code);
        const int byte = taken ? byte_of_character(code) : -1;
        if (byte < 0) {
            out->length = before;
            return false;
        }
        const char c = (char)byte;
        text_add_bytes(out, &c, 1);
        at += taken;
    }
    return true;
}
