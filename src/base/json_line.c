#include "base/json_line.h"

#include "base/json.h"

#include <inttypes.h>

enum { DEPTH = 1000 }; // to which Python reads

// A position in a line. `at` is NULL once something was wrong.
struct scan {
    const char *begin, *at, *end;
    int64_t offset;
    trireme_error *error;
};

static void scan_refuse(struct scan *s, const char *expected) {
    char found[JSON_EXCERPT_BYTES] = "the end of the line";
    if (s->at < s->end)
        json_excerpt_bytes(s->at, MIN((size_t)(s->end - s->at), 16), found);
    error_set(s->error, TRIREME_ERROR_CORRUPT, "byte %" PRId64 ": not valid JSON: expected %s, found %s",
              s->offset + (s->at - s->begin), expected, found);
    s->at = NULL;
}

static void scan_space(struct scan *s) {
    while (s->at && s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\r' || *s->at == '\n'))
        s->at++;
}

// Passes this character, perhaps after blanks. False if another one is there.
static bool scan_passes(struct scan *s, char c) {
    scan_space(s);
    const bool there = s->at && s->at < s->end && *s->at == c;
    if (there)
        s->at++;
    return there;
}

static struct json_part scan_string(struct scan *s) {
    scan_space(s);
    const char *begin = s->at;
    if (!begin)
        return (struct json_part){0};
    if (!scan_passes(s, '"')) {
        scan_refuse(s, "a string");
        return (struct json_part){0};
    }
    const char *at = s->at, *end = s->end;
    while (at < end && *at != '"')
        at += *at == '\\' && end - at > 1 ? 2 : 1;
    s->at = at;
    if (!scan_passes(s, '"')) {
        scan_refuse(s, "the end of a string");
        return (struct json_part){0};
    }
    return (struct json_part){begin, (size_t)(s->at - begin)};
}

static size_t count_digits(const char *at, const char *end) {
    const char *begin = at;
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return (size_t)(at - begin);
}

// Whether text[0, length) is a number, of whatever size.
static bool is_number(const char *at, size_t length) {
    const char *end = at + length;
    at += at < end && *at == '-';
    size_t digits = count_digits(at, end);
    if (digits == 0 || (digits > 1 && *at == '0'))
        return false;
    at += digits;
    if (at < end && *at == '.') {
        digits = count_digits(++at, end);
        if (digits == 0)
            return false;
        at += digits;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        at += 1 + (end - at > 1 && (at[1] == '+' || at[1] == '-'));
        digits = count_digits(at, end);
        if (digits == 0)
            return false;
        at += digits;
    }
    return at == end;
}

// A number, or one of the words that stand for a value.
static void scan_word(struct scan *s) {
    static const char *const WORDS[] = {"true", "false", "null", "NaN", "Infinity", "-Infinity"};
    const char *begin = s->at, *at = begin;
    while (at < s->end && *at && !strchr(" \t\r\n,:[]{}\"", *at))
        at++;
    const size_t length = (size_t)(at - begin);
    bool known = is_number(begin, length);
    for (size_t i = 0; i < ARRAY_LENGTH(WORDS) && !known; i++)
        known = length == strlen(WORDS[i]) && memcmp(begin, WORDS[i], length) == 0;
    if (known)
        s->at = at;
    else
        scan_refuse(s, "a value");
}

// Passes the colon after a key.
static void scan_colon(struct scan *s) {
    if (s->at && !scan_passes(s, ':'))
        scan_refuse(s, "a colon");
}

// Passes a value, however deep it goes.
static struct json_part scan_value(struct scan *s) {
    char closes[DEPTH]; // what closes the objects and arrays that are open
    size_t depth = 0;
    scan_space(s);
    const char *begin = s->at;
    while (s->at) {
        const char *closing = scan_passes(s, '{') ? "}" : scan_passes(s, '[') ? "]" : NULL;
        if (closing && depth == DEPTH) {
            error_set(s->error, TRIREME_ERROR_CORRUPT, "byte %" PRId64 ": nested deeper than %d levels",
                      s->offset + (s->at - 1 - s->begin), DEPTH);
            s->at = NULL;
        } else if (closing && !scan_passes(s, *closing)) {
            closes[depth++] = *closing;
            if (*closing == '}') {
                scan_string(s);
                scan_colon(s);
            }
            continue;
        } else if (!closing && s->at < s->end && *s->at == '"') {
            scan_string(s);
        } else if (!closing) {
            scan_word(s);
        }
        while (s->at && depth && scan_passes(s, closes[depth - 1]))
            depth--;
        if (!s->at || depth == 0)
            break;
        if (!scan_passes(s, ',')) {
            scan_refuse(s, closes[depth - 1] == '}' ? "a comma or }" : "a comma or ]");
        } else if (closes[depth - 1] == '}') {
            scan_string(s);
            scan_colon(s);
        }
    }
    return s->at ? (struct json_part){begin, (size_t)(s->at - begin)} : (struct json_part){0};
}

// Whether a key, as it is written, stands for `key`.
static bool is_key(struct json_part written, const char *key) {
    const size_t length = strlen(key);
    char piece[64];
    if (!memchr(written.text, '\\', written.length))
        return written.length == length + 2 && memcmp(written.text + 1, key, length) == 0;
    if (json_string_check(written, 0, NULL) != TRIREME_OK)
        return false;
    for (size_t done = 0, n;; done += n) {
        n = json_string_read(&written, piece, sizeof piece);
        if (n == 0)
            return done == length;
        if (n > length - done || memcmp(piece, key + done, n) != 0)
            return false;
    }
}

static void scan_members(struct scan *s, struct json_wanted *wanted, size_t count, struct json_line *out) {
    scan_passes(s, '{');
    if (scan_passes(s, '}'))
        return;
    do {
        const struct json_part name = scan_string(s);
        scan_colon(s);
        const struct json_part value = scan_value(s);
        if (!s->at)
            return;
        if (out->members++ == 0)
            out->first = name;
        for (size_t i = 0; i < count; i++)
            if (is_key(name, wanted[i].key)) {
                wanted[i].found++;
                wanted[i].value = value;
            }
    } while (scan_passes(s, ','));
    if (!scan_passes(s, '}'))
        scan_refuse(s, "a comma or }");
}

trireme_status json_line_find(const char *line, size_t length, int64_t offset, const char *key, struct json_line *out,
                              trireme_error *error) {
    struct scan s = {line, line, line + length, offset, error};
    struct json_wanted wanted = {.key = key};
    *out = (struct json_line){0};
    scan_space(&s);
    const char *begin = s.at;
    if (begin < s.end && *begin == '{')
        scan_members(&s, &wanted, 1, out);
    else
        scan_value(&s);
    out->value = wanted.value;
    out->found = wanted.found;
    if (s.at) {
        out->whole = (struct json_part){begin, (size_t)(s.at - begin)};
        scan_space(&s);
        if (s.at < s.end)
            scan_refuse(&s, "the end of the line");
    }
    return s.at ? TRIREME_OK : TRIREME_ERROR_CORRUPT;
}

trireme_status json_line_find_members(const char *line, size_t length, int64_t offset, struct json_wanted *wanted,
                                      size_t count, trireme_error *error) {
    struct scan s = {line, line, line + length, offset, error};
    struct json_line whole = {0};
    scan_space(&s);
    if (s.at == s.end || *s.at != '{')
        scan_refuse(&s, "an object");
    else
        scan_members(&s, wanted, count, &whole);
    scan_space(&s);
    if (s.at && s.at < s.end)
        scan_refuse(&s, "the end of the line");
    return s.at ? TRIREME_OK : TRIREME_ERROR_CORRUPT;
}

// ---- strings

// The code that four hexadecimal digits at text[0, length) stand for; UINT32_MAX: they do not.
static uint32_t read_code(const char *text, size_t length) {
    uint32_t code = 0;
    for (size_t i = 0; i < 4; i++) {
        const char c = i < length ? text[i] : '\0';
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0)
            return UINT32_MAX;
        code = code << 4 | (uint32_t)digit;
    }
    return code;
}

static size_t write_utf8(uint32_t code, char out[4]) {
    const size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const uint8_t LEAD[] = {0, 0x00, 0xC0, 0xE0, 0xF0};
    for (size_t i = length; i-- > 1; code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3F));
    out[0] = (char)(LEAD[length] | code);
    return length;
}

// Writes the character that text[0, length) begins with, and which a backslash does, and sets *taken to how long that
// is. 0: there is none.
static size_t read_escape(const char *text, size_t length, char out[4], size_t *taken) {
    static const char BRIEF[] = "\"\\/bfnrt", MEANT[] = "\"\\/\b\f\n\r\t";
    const char *brief = length > 1 && text[1] ? strchr(BRIEF, text[1]) : NULL;
    *taken = 2;
    if (brief) {
        out[0] = MEANT[brief - BRIEF];
        return 1;
    }
    uint32_t code = length > 2 && text[1] == 'u' ? read_code(text + 2, length - 2) : UINT32_MAX;
    *taken = 6;
    if (code >= 0xD800 && code < 0xDC00 && length > 8 && text[6] == '\\' && text[7] == 'u') {
        const uint32_t low = read_code(text + 8, length - 8);
        *taken = 12;
        code = low >= 0xDC00 && low < 0xE000 ? 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00) : UINT32_MAX;
    }
    return code == UINT32_MAX || (code >= 0xD800 && code < 0xE000) ? 0 : write_utf8(code, out);
}

trireme_status json_string_check(struct json_part string, int64_t offset, trireme_error *error) {
    const char *end = string.text + string.length - 1;
    char character[4], excerpt[JSON_EXCERPT_BYTES];
    size_t taken = 1;
    for (const char *at = string.text + 1; at < end; at += taken) {
        const size_t left = (size_t)(end - at);
        taken = 1;
        if (*at == '\\' ? !read_escape(at, left, character, &taken) : (unsigned char)*at < 0x20)
            FAIL(TRIREME_ERROR_CORRUPT, "byte %" PRId64 ": %s in a string stands for no character",
                 offset + (at - string.text), json_excerpt_bytes(at, MIN(left, *at == '\\' ? 6 : 1), excerpt));
    }
    return TRIREME_OK;
}

size_t json_string_read(struct json_part *string, char *out, size_t room) {
    size_t used = 0, taken;
    // Its first quote, the first time.
    const char *at = string->text, *end = at + string->length - 1;
    if (string->length > 1 && *at == '"')
        at++;
    while (at < end && room - used >= 4) {
        if (*at == '\\') {
            used += read_escape(at, (size_t)(end - at), out + used, &taken);
            at += taken;
        } else {
            out[used++] = *at++;
        }
    }
    *string = (struct json_part){at, (size_t)(end - at) + 1};
    return used;
}
