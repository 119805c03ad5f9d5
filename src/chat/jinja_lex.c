#include "chat/jinja_lex.h"

#include "base/utf8.h"
#include "tokenizer/unicode.h"

#include <ctype.h>

enum { BRACKETS_MAX = 100 };

struct lexer {
    const char *at, *end;
    const char *where;
    int line;
    bool line_begins; // the last tag, or the text before it, ended with a line
    struct arena *arena;
    struct jinja_tokens *out;
    trireme_error *error;
};

static trireme_status lexer_refuse(const struct lexer *l, const char *what) {
    char excerpt[JSON_EXCERPT_BYTES];
    return error_set(l->error, TRIREME_ERROR_USAGE, "%s line %d: %s: %s", l->where, l->line, what,
                     json_excerpt_bytes(l->at, MIN((size_t)(l->end - l->at), 24), excerpt));
}

static void lexer_pass(struct lexer *l, size_t count) {
    for (size_t i = 0; i < count; i++)
        l->line += l->at[i] == '\n';
    l->at += count;
}

static bool lexer_sees(const struct lexer *l, const char *what) {
    const size_t length = strlen(what);
    return (size_t)(l->end - l->at) >= length && memcmp(l->at, what, length) == 0;
}

static size_t white_prefix(const char *text, size_t length) {
    const uint8_t *categories = unicode_categories();
    size_t at = 0, bytes;
    while (at < length && unicode_is(categories, unicode_decode(text + at, &bytes), UNICODE_WHITE_SPACE))
        at += bytes;
    return at;
}

static void token_add(struct lexer *l, enum jinja_token_type type, size_t length, struct jinja_value value) {
    VEC_PUSH(l->out, (struct jinja_token){type, l->line, {l->at, length}, value});
    lexer_pass(l, length);
}

// How much of text[0, length) is left where a tag follows with this sign: '-' takes all white space before it, and
// without a sign the blanks that begin its line, if nothing else does (lstrip_blocks), unless it is {{.
static size_t text_kept(const struct lexer *l, const char *text, size_t length, bool variable, char sign) {
    const uint8_t *categories = unicode_categories();
    size_t end = length, bytes;
    if (sign == '+' || (sign != '-' && variable))
        return length;
    while (end > 0) {
        size_t last = end - 1;
        while (last > 0 && ((unsigned char)text[last] & 0xC0) == 0x80)
            last--;
        if (!unicode_is(categories, unicode_decode(text + last, &bytes), UNICODE_WHITE_SPACE) ||
            (sign != '-' && text[last] == '\n'))
            break;
        end = last;
    }
    const bool begins = end > 0 ? text[end - 1] == '\n' : l->line_begins;
    return sign == '-' || begins ? end : length;
}

// After the end of a tag: '-' takes all white space that follows, else a block the line end (trim_blocks).
static void lexer_trim(struct lexer *l, char sign, bool variable) {
    l->line_begins = false;
    if (sign == '-') {
        const size_t white = white_prefix(l->at, (size_t)(l->end - l->at));
        l->line_begins = white > 0 && l->at[white - 1] == '\n';
        lexer_pass(l, white);
    } else if (sign != '+' && !variable && lexer_sees(l, "\n")) {
        lexer_pass(l, 1);
        l->line_begins = true;
    }
}

// ---- inside of tags

static int hexadecimal(const char *at, size_t digits) {
    int code = 0;
    for (size_t i = 0; i < digits; i++) {
        if (!isxdigit((unsigned char)at[i]))
            return -1;
        code = code * 16 + (isdigit((unsigned char)at[i]) ? at[i] - '0' : (at[i] | 32) - 'a' + 10);
    }
    return code;
}

// Appends what a backslash, at *at, and what follows it stand for, as in Python's strings.
static trireme_status string_add_escape(struct lexer *l, const char **at, const char *end, struct text *out) {
    static const char LETTERS[] = "\\'\"abfnrtv", MEANT[] = "\\'\"\a\b\f\n\r\t\v";
    const char letter = (*at)[1], *known = letter ? strchr(LETTERS, letter) : NULL;
    const size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    if (known) {
        text_add_bytes(out, MEANT + (known - LETTERS), 1);
        *at += 2;
    } else if (digits) {
        const int code = (size_t)(end - *at) >= 2 + digits ? hexadecimal(*at + 2, digits) : -1;
        if (code < 0 || code >= UNICODE_CODES || (code >= 0xD800 && code < 0xE000))
            return lexer_refuse(l, "an escape in a string stands for no character");
        unicode_add(out, (uint32_t)code);
        *at += 2 + digits;
    } else if (letter == '\n') {
        *at += 2;
    } else if (letter == 'N' || isdigit((unsigned char)letter)) {
        return lexer_refuse(l, "an escape in a string that is not supported");
    } else {
        text_add_bytes(out, *at, 1);
        *at += 1;
    }
    return TRIREME_OK;
}

static trireme_status lexer_add_string(struct lexer *l) {
    const char quote = *l->at, *close = l->at + 1;
    while (close < l->end && *close != quote)
        close += *close == '\\' && l->end - close > 1 ? 2 : 1;
    if (close >= l->end)
        return lexer_refuse(l, "a string does not end");
    struct text text = {0};
    trireme_status status = TRIREME_OK;
    for (const char *at = l->at + 1; at < close && status == TRIREME_OK;)
        if (*at == '\\') {
            status = string_add_escape(l, &at, close, &text);
        } else {
            const char *next = memchr(at, '\\', (size_t)(close - at));
            text_add_bytes(&text, at, (size_t)((next ? next : close) - at));
            at = next ? next : close;
        }
    if (status == TRIREME_OK) {
        char *copy = arena_add(l->arena, text.length + 1);
        if (text.length)
            memcpy(copy, text.text, text.length);
        token_add(l, TOKEN_STRING, (size_t)(close + 1 - l->at), jinja_borrow(copy, text.length));
    }
    text_release(&text);
    return status;
}

static trireme_status lexer_add_number(struct lexer *l) {
    char digits[40];
    size_t used = 0, length = 0;
    bool real = false;
    for (; l->at + length < l->end; length++) {
        const char c = l->at[length];
        const bool digit_follows = l->at + length + 1 < l->end && isdigit((unsigned char)l->at[length + 1]);
        if (c == '_')
            continue;
        const bool exponent = (c == 'e' || c == 'E') && (digit_follows || (l->end - l->at > (ptrdiff_t)length + 2 &&
                                                                           strchr("+-", l->at[length + 1]) &&
                                                                           isdigit((unsigned char)l->at[length + 2])));
        const bool sign = (c == '+' || c == '-') && used && strchr("eE", digits[used - 1]);
        if (!isdigit((unsigned char)c) && !(c == '.' && !real && digit_follows) && !exponent && !sign)
            break;
        real |= c == '.' || exponent;
        if (used == sizeof digits - 1)
            return lexer_refuse(l, "a number is too long");
        digits[used++] = c;
    }
    digits[used] = '\0';
    if (l->at + length < l->end && (isalpha((unsigned char)l->at[length])))
        return lexer_refuse(l, "a number is followed by a letter");
    int64_t integer = 0;
    for (size_t i = 0; i < used && !real; i++)
        if (__builtin_mul_overflow(integer, 10, &integer) || __builtin_add_overflow(integer, digits[i] - '0', &integer))
            return lexer_refuse(l, "a number is too large");
    token_add(l, TOKEN_NUMBER, length,
              real ? (struct jinja_value){.type = JINJA_REAL, .real = strtod(digits, NULL)} : jinja_integer(integer));
    return TRIREME_OK;
}

static trireme_status lexer_add_sign(struct lexer *l) {
    static const char *const SIGNS[] = {"==", "!=", "<=", ">=", "//", "**"};
    for (size_t i = 0; i < ARRAY_LENGTH(SIGNS); i++)
        if (lexer_sees(l, SIGNS[i])) {
            token_add(l, TOKEN_SIGN, 2, (struct jinja_value){0});
            return TRIREME_OK;
        }
    if (!*l->at || !strchr("+-*/%~<>=.,:|()[]{}", *l->at))
        return lexer_refuse(l, "unexpected");
    token_add(l, TOKEN_SIGN, 1, (struct jinja_value){0});
    return TRIREME_OK;
}

// The tokens of a tag, up to its end.
static trireme_status lexer_add_tag(struct lexer *l, bool variable) {
    const char *ends = variable ? "}}" : "%}";
    char open[BRACKETS_MAX];
    size_t depth = 0;
    for (;;) {
        while (l->at < l->end && isspace((unsigned char)*l->at))
            lexer_pass(l, 1);
        if (l->at == l->end)
            return lexer_refuse(l, variable ? "{{ is not closed" : "{% is not closed");
        const bool sign = *l->at == '-' || (*l->at == '+' && !variable);
        if (!depth && l->end - l->at >= 2 + sign && memcmp(l->at + sign, ends, 2) == 0) {
            const char which = sign ? *l->at : ' ';
            token_add(l, variable ? TOKEN_VARIABLE_END : TOKEN_BLOCK_END, (size_t)(2 + sign), (struct jinja_value){0});
            lexer_trim(l, which, variable);
            return TRIREME_OK;
        }
        const unsigned char c = (unsigned char)*l->at;
        if (c == '\'' || c == '"') {
            TRY(lexer_add_string(l));
        } else if (isdigit(c)) {
            TRY(lexer_add_number(l));
        } else if (isalpha(c) || c == '_') {
            size_t length = 1;
            while (l->at + length < l->end && (isalnum((unsigned char)l->at[length]) || l->at[length] == '_'))
                length++;
            token_add(l, TOKEN_NAME, length, (struct jinja_value){0});
        } else {
            const char *closing = c == '(' ? ")" : c == '[' ? "]" : c == '{' ? "}" : NULL;
            if (closing && depth == BRACKETS_MAX)
                return lexer_refuse(l, "too many brackets");
            if (closing)
                open[depth++] = *closing;
            else if (strchr(")]}", c) && (depth == 0 || open[--depth] != (char)c))
                return lexer_refuse(l, "a bracket is closed that is not open");
            TRY(lexer_add_sign(l));
        }
    }
}

// ---- the whole

static trireme_status lexer_pass_comment(struct lexer *l) {
    const char *close = memmem(l->at, (size_t)(l->end - l->at), "#}", 2);
    if (!close)
        return lexer_refuse(l, "{# is not closed");
    const char sign = close > l->at && (close[-1] == '-' || close[-1] == '+') ? close[-1] : ' ';
    lexer_pass(l, (size_t)(close + 2 - l->at));
    lexer_trim(l, sign, false);
    return TRIREME_OK;
}

static trireme_status lexer_run(struct lexer *l) {
    while (l->at < l->end) {
        const char *tag = l->at;
        while ((tag = memchr(tag, '{', (size_t)(l->end - tag))) != NULL && l->end - tag > 1 && !strchr("%{#", tag[1]))
            tag++;
        const bool found = tag && l->end - tag > 1 && tag[1];
        const size_t length = (size_t)((found ? tag : l->end) - l->at);
        const char sign = found && l->end - tag > 2 ? tag[2] : ' ', which = found ? tag[1] : ' ';
        const size_t kept = found ? text_kept(l, l->at, length, which == '{', sign) : length;
        if (kept)
            VEC_PUSH(l->out, (struct jinja_token){TOKEN_DATA, l->line, {0}, jinja_borrow(l->at, kept)});
        lexer_pass(l, length);
        if (!found)
            break;
        const bool signs = sign == '-' || sign == '+';
        if (which == '#') {
            lexer_pass(l, signs && l->end - l->at > 3 ? 3 : 2);
            TRY(lexer_pass_comment(l));
            continue;
        }
        token_add(l, which == '{' ? TOKEN_VARIABLE : TOKEN_BLOCK, signs ? 3 : 2, (struct jinja_value){0});
        TRY(lexer_add_tag(l, which == '{'));
    }
    VEC_PUSH(l->out, (struct jinja_token){.type = TOKEN_END, .line = l->line});
    return TRIREME_OK;
}

trireme_status jinja_lex(const char *text, size_t length, const char *where, struct arena *arena,
                         struct jinja_tokens *out, trireme_error *error) {
    // All line ends become \n, and one at the end of the template is none.
    char *copy = arena_add(arena, length + 1);
    size_t used = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\r' && i + 1 < length && text[i + 1] == '\n')
            continue;
        copy[used++] = text[i] == '\r' ? '\n' : text[i];
    }
    used -= used && copy[used - 1] == '\n';
    copy[used] = '\0';
    struct lexer l = {copy, copy + used, where, 1, true, arena, out, error};
    return lexer_run(&l);
}
