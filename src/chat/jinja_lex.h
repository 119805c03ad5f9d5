// A template as tokens. Private to the files named jinja*.
#ifndef CHAT_JINJA_LEX_H
#define CHAT_JINJA_LEX_H

#include "chat/jinja_parts.h"

enum jinja_token_type {
    TOKEN_DATA, // text outside of tags; has `value`
    TOKEN_BLOCK,
    TOKEN_BLOCK_END,
    TOKEN_VARIABLE,
    TOKEN_VARIABLE_END,
    TOKEN_NAME,
    TOKEN_STRING, // has `value`
    TOKEN_NUMBER, // has `value`
    TOKEN_SIGN,   // an operator, a bracket, a comma ...
    TOKEN_END,
};

struct jinja_token {
    enum jinja_token_type type;
    int line;
    struct jinja_word word; // as it is written
    struct jinja_value value;
};

struct jinja_tokens {
    VEC(struct jinja_token);
};

// Appends the tokens of text[0, length), the last of which is TOKEN_END; what they refer to is in the arena.
// VEC_RELEASE frees, also after an error.
trireme_status jinja_lex(const char *text, size_t length, const char *where, struct arena *arena,
                         struct jinja_tokens *out, trireme_error *error);

#endif
