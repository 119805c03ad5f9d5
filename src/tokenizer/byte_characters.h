// GPT-2's characters: the printable one with which byte-level tokenizers spell each byte. It is the byte itself where
// Latin-1 prints it, else the next free code point from U+0100 on. (Radford et al. 2019, bytes_to_unicode.)
#ifndef TOKENIZER_BYTE_CHARACTERS_H
#define TOKENIZER_BYTE_CHARACTERS_H

#include "base/text.h"

enum {
    BYTE_CHARACTER_CONTROLS = 0x100, // bytes 0x00 to 0x20
    BYTE_CHARACTER_DELETE = 0x121,   // bytes 0x7F to 0xA0
    BYTE_CHARACTER_SOFT = 0x143,     // byte 0xAD, the last one
    BYTE_CHARACTER_UTF8_MAX = 2,     // bytes of UTF-8 that a character takes
};

// The code point that spells a byte.
static inline uint32_t byte_character(uint8_t byte) {
    return byte <= 0x20                   ? BYTE_CHARACTER_CONTROLS + (uint32_t)byte
           : byte >= 0x7F && byte <= 0xA0 ? BYTE_CHARACTER_DELETE + (uint32_t)(byte - 0x7F)
           : byte == 0xAD                 ? (uint32_t)BYTE_CHARACTER_SOFT
                                          : byte;
}

// The byte that a code point spells; -1 for a code point that spells none.
static inline int byte_of_character(uint32_t code) {
    if (code >= BYTE_CHARACTER_DELETE)
        return code == BYTE_CHARACTER_SOFT ? 0xAD : code < BYTE_CHARACTER_SOFT ? (int)(code - 0x121 + 0x7F) : -1;
    if (code >= BYTE_CHARACTER_CONTROLS)
        return (int)(code - BYTE_CHARACTER_CONTROLS);
    return byte_character((uint8_t)code) == code ? (int)code : -1;
}

// Writes a byte's character as UTF-8. Returns its length.
static inline size_t byte_character_write(uint8_t byte, char out[BYTE_CHARACTER_UTF8_MAX]) {
    uint32_t code = byte_character(byte);
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    out[0] = (char)(0xC0 | code >> 6);
    out[1] = (char)(0x80 | (code & 0x3F));
    return 2;
}

// Appends bytes spelt in these characters.
void byte_characters_spell(const char *bytes, size_t length, struct text *out);
// Appends the bytes that a token's characters spell. False, with nothing appended, where one of them spells none.
bool byte_characters_read(const char *token, size_t length, struct text *out);

#endif
