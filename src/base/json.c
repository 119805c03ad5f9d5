#include "base/json.h"

#include "base/base64.h"
#include "base/utf8.h"

#include <float.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>

// Writes the character at *s, before `end`, into `out` (at most 6 bytes and NUL) as it stands inside a JSON string, and
// moves *s past it.
static size_t escape_next(const char **s, const char *end, char out[8]) {
    unsigned char c = (unsigned char)**s;
    uint32_t code;
    size_t length = utf8_decode(*s, (size_t)(end - *s), &code);
    const char *brief = c == '"'    ? "\\\""
                        : c == '\\' ? "\\\\"
                        : c == '\n' ? "\\n"
                        : c == '\t' ? "\\t"
                        : c == '\r' ? "\\r"
                                    : NULL;
    if (!length)
        strcpy(out, UTF8_REPLACEMENT);
    else if (brief)
        strcpy(out, brief);
    else if (utf8_is_hidden(code))
        snprintf(out, 8, "\\u%04" PRIx32, code);
    else {
        memcpy(out, *s, length);
        out[length] = 0;
    }
    *s += length ? length : utf8_ill_formed(*s, (size_t)(end - *s));
    return strlen(out);
}

const char *json_excerpt(const char *string, char buffer[JSON_EXCERPT_BYTES]) {
    return json_excerpt_bytes(string, strlen(string), buffer);
}

const char *json_excerpt_bytes(const char *bytes, size_t length, char buffer[JSON_EXCERPT_BYTES]) {
    enum { HEAD = 70, TAIL = 70 };
    char piece[8];
    size_t used = 0, total = 0;
    const char *end = bytes + length;
    for (const char *s = bytes; s < end && total <= HEAD + TAIL;)
        total += escape_next(&s, end, piece);
    bool cut = total > HEAD + TAIL;
    buffer[used++] = '"';
    const char *s = bytes;
    while (s < end) {
        const char *next = s;
        size_t n = escape_next(&next, end, piece);
        if (cut && used + n > HEAD) {
            memcpy(buffer + used, "...", 3);
            used += 3;
            cut = false;
            // The tail: half as many bytes as fit, since most of those that are escaped become two; where they become
            // more, it is cut off below.
            s = end - s > TAIL / 2 ? end - TAIL / 2 : s;
            while (s < end && ((unsigned char)*s & 0xC0) == 0x80)
                s++;
            continue;
        }
        if (used + n > JSON_EXCERPT_BYTES - 2)
            break;
        memcpy(buffer + used, piece, n);
        used += n;
        s = next;
    }
    buffer[used++] = '"';
    buffer[used] = 0;
    return buffer;
}

const char *json_excerpt_value(const json_t *value, char buffer[JSON_EXCERPT_BYTES]) {
    if (json_is_string(value))
        return json_excerpt(json_string_value(value), buffer);
    if (!value || json_is_object(value))
        return strcpy(buffer, value ? "an object" : "nothing");
    struct text t = {0};
    if (json_is_array(value) && json_array_size(value) > 16)
        text_add(&t, "an array of %zu", json_array_size(value));
    else
        json_add_value(&t, NULL, value);
    bool fits = t.length < JSON_EXCERPT_BYTES;
    snprintf(buffer, JSON_EXCERPT_BYTES, "%s", fits ? t.text : "an array");
    text_release(&t);
    return buffer;
}

// Checks depth and number of values before jansson builds anything. Strings are skipped; malformed text is left to
// jansson.
static trireme_status check_bounds(const char *text, size_t length, trireme_error *error) {
    size_t depth = 0, values = 1;
    bool inside = false;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        if (inside) {
            if (c == '\\')
                i++;
            else if (c == '"')
                inside = false;
        } else if (c == '"')
            inside = true;
        else if (c == '{' || c == '[') {
            values++;
            if (++depth > JSON_DEPTH_MAX)
                FAIL(TRIREME_ERROR_CORRUPT, "byte %zu: nested deeper than %d levels", i, JSON_DEPTH_MAX);
        } else if ((c == '}' || c == ']') && depth)
            depth--;
        else if (c == ',')
            values++;
        if (values > JSON_VALUES_MAX)
            FAIL(TRIREME_ERROR_CORRUPT, "byte %zu: more than %zu values", i, JSON_VALUES_MAX);
    }
    return TRIREME_OK;
}

// jansson quotes the input: keep it on one line and in UTF-8.
static trireme_status refuse_text(const char *place, const char *reason, trireme_error *error) {
    struct text clean = {0};
    char piece[8];
    const char *end = reason + strlen(reason);
    for (const char *s = reason; s < end;) {
        size_t n = *s == '"' || *s == '\\' ? (piece[0] = *s++, 1) : escape_next(&s, end, piece);
        text_add_bytes(&clean, piece, n);
    }
    error_set(error, TRIREME_ERROR_CORRUPT, "%s: not valid JSON: %s", place, clean.text ? clean.text : "");
    text_release(&clean);
    return TRIREME_ERROR_CORRUPT;
}

static void *json_allocate(size_t bytes) {
    return mem_resize(NULL, bytes);
}

// jansson goes on after memory was refused, and reads beyond the end of what it has.
__attribute__((constructor)) static void end_where_memory_does(void) {
    json_set_alloc_funcs(json_allocate, free);
}

// Whether it is an integer that does not fit into 64 bits.
static bool is_large_integer(const char *at, size_t length) {
    const bool negative = length > 0 && *at == '-';
    const char *most = negative ? "9223372036854775808" : "9223372036854775807";
    const size_t digits = length - negative;
    for (size_t i = negative; i < length; i++)
        if (at[i] < '0' || at[i] > '9')
            return false;
    return digits > strlen(most) || (digits == strlen(most) && memcmp(at + negative, most, digits) > 0);
}

// Appends JSON, with ".0" behind integers that do not fit into 64 bits. Python writes such (1e30 as an integer stands
// for "no limit" in files of transformers), and jansson takes them as reals alone.
static void add_with_reals(struct text *out, const char *text, size_t length) {
    const char *end = text + length;
    for (const char *at = text, *begin = at; at < end; begin = at) {
        if (*at == '"') {
            for (at++; at < end && *at != '"'; at++)
                at += *at == '\\' && at + 1 < end;
            at += at < end;
        } else {
            while (at < end && *at && strchr("+-.0123456789Ee", *at))
                at++;
            at += at == begin;
        }
        text_add_bytes(out, begin, (size_t)(at - begin));
        if (is_large_integer(begin, (size_t)(at - begin)))
            text_add_bytes(out, ".0", 2);
    }
}

trireme_status json_parse(const char *text, size_t length, const char *where, json_t **out, trireme_error *error) {
    trireme_status status = check_bounds(text, length, error);
    if (status != TRIREME_OK)
        return error_prefix(error, status, "%s", where);
    json_error_t refusal;
    json_t *tree = json_loadb(text, length, JSON_REJECT_DUPLICATES, &refusal);
    if (!tree && json_error_code(&refusal) == json_error_numeric_overflow) {
        struct text copy = {0};
        add_with_reals(&copy, text, length);
        tree = json_loadb(copy.text, copy.length, JSON_REJECT_DUPLICATES, &refusal);
        text_release(&copy);
    }
    if (!tree) {
        static const char FLAG[] = " without JSON_ALLOW_NUL"; // is nothing for users
        char *flag = strstr(refusal.text, FLAG);
        if (flag)
            memmove(flag, flag + strlen(FLAG), strlen(flag + strlen(FLAG)) + 1);
        char *place = mem_printf("%s: line %d, column %d", where, refusal.line, refusal.column);
        status = refuse_text(place, refusal.text, error);
        free(place);
        return status;
    }
    *out = tree;
    return TRIREME_OK;
}

trireme_status json_parse_file(const char *path, size_t limit, json_t **out, trireme_error *error) {
    char *text = NULL;
    size_t length = 0;
    TRY(file_read(path, limit, &text, &length, error));
    trireme_status status = json_parse(text, length, path, out, error);
    free(text);
    return status;
}

// *member is NULL when the caller's default stands.
static trireme_status find_member(const json_t *object, const char *where, const char *key, enum json_need need,
                                  const char *wanted, const json_t **member, trireme_error *error) {
    char name[JSON_EXCERPT_BYTES], found[JSON_EXCERPT_BYTES];
    if (!json_is_object(object))
        FAIL(TRIREME_ERROR_CORRUPT, "%s: must be an object with %s, found %s", where, json_excerpt(key, name),
             json_excerpt_value(object, found));
    const json_t *value = json_object_get(object, key);
    *member = json_is_null(value) ? NULL : value;
    if (*member || need == JSON_OPTIONAL)
        return TRIREME_OK;
    FAIL(TRIREME_ERROR_CORRUPT, "%s: %s %s: it must be %s", where, json_excerpt(key, name),
         value ? "is null" : "is missing", wanted);
}

static trireme_status json_refuse(const char *where, const char *key, const char *wanted, const json_t *member,
                                  trireme_error *error) {
    char name[JSON_EXCERPT_BYTES], found[JSON_EXCERPT_BYTES];
    FAIL(TRIREME_ERROR_CORRUPT, "%s: %s must be %s, found %s", where, json_excerpt(key, name), wanted,
         json_excerpt_value(member, found));
}

trireme_status json_read_integer(const json_t *object, const char *where, const char *key, enum json_need need,
                                 int64_t least, int64_t most, int64_t *out, trireme_error *error) {
    char wanted[96];
    if (most < INT64_MAX)
        snprintf(wanted, sizeof wanted, "an integer from %" PRId64 " to %" PRId64, least, most);
    else if (least > 1 || (least < 0 && least > INT64_MIN))
        snprintf(wanted, sizeof wanted, "an integer of at least %" PRId64, least);
    else
        snprintf(wanted, sizeof wanted, "%s",
                 least == 1   ? "a positive integer"
                 : least == 0 ? "an integer, not negative"
                              : "an integer");
    const json_t *member;
    TRY(find_member(object, where, key, need, wanted, &member, error));
    if (!member)
        return TRIREME_OK;
    int64_t value = json_integer_value(member);
    if (!json_is_integer(member) || value < least || value > most)
        return json_refuse(where, key, wanted, member, error);
    *out = value;
    return TRIREME_OK;
}

trireme_status json_read_number(const json_t *object, const char *where, const char *key, enum json_need need,
                                double least, double most, double *out, trireme_error *error) {
    char wanted[96];
    if (most < INFINITY && least == DBL_MIN)
        snprintf(wanted, sizeof wanted, "a positive number of at most %g", most);
    else if (most < INFINITY && least > -INFINITY)
        snprintf(wanted, sizeof wanted, "a number from %g to %g", least, most);
    else if (most < INFINITY)
        snprintf(wanted, sizeof wanted, "a number of at most %g", most);
    else if (least > -INFINITY && least != DBL_MIN)
        snprintf(wanted, sizeof wanted, "a number of at least %g", least);
    else
        snprintf(wanted, sizeof wanted, "%s", least == DBL_MIN ? "a positive number" : "a number");
    const json_t *member;
    TRY(find_member(object, where, key, need, wanted, &member, error));
    if (!member)
        return TRIREME_OK;
    double value = json_number_value(member);
    if (!json_is_number(member) || !(value >= least && value <= most))
        return json_refuse(where, key, wanted, member, error);
    *out = value;
    return TRIREME_OK;
}

trireme_status json_read_boolean(const json_t *object, const char *where, const char *key, enum json_need need,
                                 bool *out, trireme_error *error) {
    const json_t *member;
    TRY(find_member(object, where, key, need, "true or false", &member, error));
    if (member && !json_is_boolean(member))
        return json_refuse(where, key, "true or false", member, error);
    if (member)
        *out = json_is_true(member);
    return TRIREME_OK;
}

trireme_status json_read_string(const json_t *object, const char *where, const char *key, enum json_need need,
                                const char **out, trireme_error *error) {
    const json_t *member;
    TRY(find_member(object, where, key, need, "a string", &member, error));
    if (member && !json_is_string(member))
        return json_refuse(where, key, "a string", member, error);
    if (member)
        *out = json_string_value(member);
    return TRIREME_OK;
}

trireme_status json_read_path(const json_t *object, const char *where, const char *key, char **out,
                              trireme_error *error) {
    static const char WANTED[] = "a string, or an object with \"base64\"";
    const json_t *member;
    TRY(find_member(object, where, key, JSON_REQUIRED, WANTED, &member, error));
    const char *digits = json_string_value(json_object_get(member, "base64"));
    size_t length;
    char *path = json_is_string(member) ? mem_strdup(json_string_value(member))
                 : digits               ? base64_decode(digits, &length)
                                        : NULL;
    if (path && !json_is_string(member) && strlen(path) != length) { // a NUL, which no path has
        free(path);
        path = NULL;
    }
    if (!path)
        return json_refuse(where, key, WANTED, member, error);
    *out = path;
    return TRIREME_OK;
}

trireme_status json_read_object(const json_t *object, const char *where, const char *key, enum json_need need,
                                const json_t **out, trireme_error *error) {
    const json_t *member;
    TRY(find_member(object, where, key, need, "an object", &member, error));
    if (member && !json_is_object(member))
        return json_refuse(where, key, "an object", member, error);
    if (member)
        *out = member;
    return TRIREME_OK;
}

trireme_status json_read_array(const json_t *object, const char *where, const char *key, enum json_need need,
                               const json_t **out, trireme_error *error) {
    const json_t *member;
    TRY(find_member(object, where, key, need, "an array", &member, error));
    if (member && !json_is_array(member))
        return json_refuse(where, key, "an array", member, error);
    if (member)
        *out = member;
    return TRIREME_OK;
}

static void json_add_bytes(struct text *t, const char *value, size_t length) {
    const char *end = value + length;
    char piece[8];
    text_add_bytes(t, "\"", 1);
    while (value < end) {
        const char *plain = value;
        while (value < end && (unsigned char)*value >= 0x20 && (unsigned char)*value < 0x7F && *value != '"' &&
               *value != '\\')
            value++;
        if (value > plain)
            text_add_bytes(t, plain, (size_t)(value - plain));
        else
            text_add_bytes(t, piece, escape_next(&value, end, piece));
    }
    text_add_bytes(t, "\"", 1);
}

static void add_string(struct text *t, const char *value) {
    json_add_bytes(t, value, strlen(value));
}

static void add_number(struct text *t, double value) {
    if (!isfinite(value)) {
        text_add_bytes(t, "null", 4);
        return;
    }
    char digits[64];
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value)
            break;
    }
    // The program that links us may have set a locale whose decimal point is a comma.
    const char *point = localeconv()->decimal_point;
    char *at = strcmp(point, ".") ? strstr(digits, point) : NULL;
    if (at) {
        memmove(at + 1, at + strlen(point), strlen(at + strlen(point)) + 1);
        *at = '.';
    }
    text_add(t, "%s%s", digits, strpbrk(digits, ".e") ? "" : ".0");
}

// Begins a value: adds a comma unless it is the first here, and its key. The text's last byte tells whether it is the
// first: a string that ends like a bracket is followed by its quote.
static void json_add_key(struct text *t, const char *key) {
    if (t->length && !strchr("{[:\n", t->text[t->length - 1]))
        text_add_bytes(t, ",", 1);
    if (key) {
        add_string(t, key);
        text_add_bytes(t, ":", 1);
    }
}

void json_add_written(struct text *t, const char *values, size_t length) {
    if (!length)
        return;
    json_add_key(t, NULL);
    text_add_bytes(t, values, length);
}

void json_begin_object(struct text *t, const char *key) {
    json_add_key(t, key);
    text_add_bytes(t, "{", 1);
}

void json_end_object(struct text *t) {
    text_add_bytes(t, "}", 1);
}

void json_begin_array(struct text *t, const char *key) {
    json_add_key(t, key);
    text_add_bytes(t, "[", 1);
}

void json_end_array(struct text *t) {
    text_add_bytes(t, "]", 1);
}

void json_add_integer(struct text *t, const char *key, int64_t value) {
    json_add_key(t, key);
    text_add(t, "%" PRId64, value);
}

void json_add_number(struct text *t, const char *key, double value) {
    json_add_key(t, key);
    add_number(t, value);
}

void json_add_boolean(struct text *t, const char *key, bool value) {
    json_add_key(t, key);
    text_add(t, "%s", value ? "true" : "false");
}

void json_add_string(struct text *t, const char *key, const char *value) {
    json_add_key(t, key);
    add_string(t, value);
}

void json_add_path(struct text *t, const char *key, const char *path) {
    if (utf8_is_valid(path)) {
        json_add_string(t, key, path);
        return;
    }
    json_begin_object(t, key);
    json_add_key(t, "base64");
    text_add_bytes(t, "\"", 1);
    base64_add(t, path, strlen(path));
    text_add_bytes(t, "\"", 1);
    json_end_object(t);
}

void json_add_text(struct text *t, const char *key, const struct text *value) {
    json_add_key(t, key);
    json_add_bytes(t, value->text ? value->text : "", value->length);
}

static void add_tree(struct text *t, const json_t *value, bool indented, int level);

static void add_newline(struct text *t, bool indented, int level) {
    if (indented)
        text_add(t, "\n%*s", 2 * level, "");
}

static void add_object(struct text *t, const json_t *object, bool indented, int level) {
    const char *key, *comma = "";
    json_t *member;
    text_add_bytes(t, "{", 1);
    // jansson's iteration takes a json_t * that it does not change.
    json_object_foreach((json_t *)object, key, member) {
        text_add(t, "%s", comma);
        add_newline(t, indented, level + 1);
        add_string(t, key);
        text_add(t, "%s", indented ? ": " : ":");
        add_tree(t, member, indented, level + 1);
        comma = ",";
    }
    if (*comma)
        add_newline(t, indented, level);
    text_add_bytes(t, "}", 1);
}

static void add_array(struct text *t, const json_t *array, bool indented, int level) {
    size_t count = json_array_size(array);
    text_add_bytes(t, "[", 1);
    for (size_t i = 0; i < count; i++) {
        text_add(t, "%s", i ? "," : "");
        add_newline(t, indented, level + 1);
        add_tree(t, json_array_get(array, i), indented, level + 1);
    }
    if (count)
        add_newline(t, indented, level);
    text_add_bytes(t, "]", 1);
}

static void add_tree(struct text *t, const json_t *value, bool indented, int level) {
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        add_object(t, value, indented, level);
        break;
    case JSON_ARRAY:
        add_array(t, value, indented, level);
        break;
    case JSON_STRING:
        add_string(t, json_string_value(value));
        break;
    case JSON_INTEGER:
        text_add(t, "%" PRId64, (int64_t)json_integer_value(value));
        break;
    case JSON_REAL:
        add_number(t, json_real_value(value));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        text_add(t, "%s", json_is_true(value) ? "true" : "false");
        break;
    case JSON_NULL:
        text_add_bytes(t, "null", 4);
        break;
    }
}

void json_add_value(struct text *t, const char *key, const json_t *value) {
    json_add_key(t, key);
    add_tree(t, value, false, 0);
}

void json_print(struct text *t, const json_t *value) {
    add_tree(t, value, true, 0);
    text_add_bytes(t, "\n", 1);
}
