#include "config/value.h"

#include "base/base64.h"
#include "base/json.h"
#include "base/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>

enum { TEXT_MAX_BYTES = 65536 };
_Static_assert(sizeof(enum config_dtype) == sizeof(int), "value_field writes an enum as an int");

void given_parse(struct given *out, enum key_type type, const char *text) {
    size_t length = strlen(text);
    out->form = GIVEN_SCALAR;
    if (type != KEY_FRACTIONS || length < 2 || text[0] != '[' || text[length - 1] != ']') {
        VEC_PUSH(&out->words, (struct given_word){mem_strdup(text), type == KEY_TEXT});
        return;
    }
    out->form = GIVEN_LIST;
    const char *word = text + 1, *end = text + length - 1;
    while (word <= end) {
        size_t bytes = 0, blanks = strspn(word, " ");
        while (word + bytes < end && word[bytes] != ',')
            bytes++;
        size_t used = bytes;
        while (used > blanks && word[used - 1] == ' ')
            used--;
        blanks = MIN(blanks, used);
        VEC_PUSH(&out->words, (struct given_word){mem_printf("%.*s", (int)(used - blanks), word + blanks), false});
        word += bytes + 1;
    }
}

void given_release(struct given *given) {
    for (size_t i = 0; i < given->words.count; i++)
        free(given->words.item[i].text);
    VEC_RELEASE(&given->words);
}

static bool is_nothing(const struct given_word *word) {
    if (word->quoted)
        return false;
    const char *const nothing[] = {"", "~", "null", "Null", "NULL"};
    for (size_t i = 0; i < ARRAY_LENGTH(nothing); i++)
        if (strcmp(word->text, nothing[i]) == 0)
            return true;
    return false;
}

void given_describe(struct text *out, const struct given *given) {
    char excerpt[KEY_EXCERPT];
    if (given->form == GIVEN_MAPPING) {
        text_add(out, "a mapping");
    } else if (given->form == GIVEN_LIST) {
        text_add(out, "[");
        for (size_t i = 0; i < given->words.count && i < 4; i++)
            text_add(out, "%s%s", i ? ", " : "", key_excerpt(given->words.item[i].text, excerpt));
        text_add(out, given->words.count > 4 ? ", ...]" : "]");
    } else if (is_nothing(&given->words.item[0])) {
        text_add(out, "nothing");
    } else {
        bool quoted = given->words.item[0].quoted;
        text_add(out, quoted ? "the text \"%s\"" : "%s", key_excerpt(given->words.item[0].text, excerpt));
    }
}

// The end of the decimal number that begins at s, or s: -12, 0.5, .5, +3e-4. No hexadecimal, infinity or blanks.
static const char *number_end(const char *s) {
    const char *p = s + (*s == '-' || *s == '+');
    size_t whole = strspn(p, "0123456789"), fraction = 0;
    p += whole;
    if (*p == '.') {
        fraction = strspn(p + 1, "0123456789");
        if (whole + fraction > 0)
            p += 1 + fraction;
    }
    if (whole + fraction == 0)
        return s;
    if (*p == 'e' || *p == 'E') {
        const char *exponent = p + 1 + (p[1] == '-' || p[1] == '+');
        size_t digits = strspn(exponent, "0123456789");
        if (digits > 0)
            p = exponent + digits;
    }
    return p;
}

// The decimal point is a point whatever the program's locale: numbers are read and written under "C".
static locale_t locale_enter(locale_t *c) {
    *c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    CHECK(*c != (locale_t)0);
    return uselocale(*c);
}

static void locale_leave(locale_t c, locale_t before) {
    uselocale(before);
    freelocale(c);
}

static bool real_parse(const char *s, double *out) {
    const char *end = number_end(s);
    if (end == s || *end)
        return false;
    locale_t c, before = locale_enter(&c);
    *out = strtod(s, NULL);
    locale_leave(c, before);
    const bool tiny = *out == 0 && strcspn(s, "123456789") < strcspn(s, "eE"); // it is not 0, but would become 0
    return isfinite(*out) && !tiny;
}

// A whole number in digits, or as a real number that is whole: 1e3. A leading zero would be octal to some readers of
// YAML.
static bool integer_parse(const char *s, int64_t *out) {
    const char *digits = s + (*s == '-' || *s == '+');
    if (digits[0] == '0' && isdigit((unsigned char)digits[1]))
        return false;
    if (*digits && !digits[strspn(digits, "0123456789")]) {
        errno = 0;
        *out = strtoll(s, NULL, 10);
        return errno == 0;
    }
    double value;
    if (!real_parse(s, &value) || value != floor(value) || fabs(value) > 0x1p53)
        return false;
    *out = (int64_t)value;
    return true;
}

// A switch as YAML 1.1 and Python write it. False: it is none.
static bool switch_parse(const char *s, bool *out) {
    const char *const words[] = {"false", "False", "FALSE", "true", "True", "TRUE"};
    for (size_t i = 0; i < ARRAY_LENGTH(words); i++)
        if (strcmp(s, words[i]) == 0) {
            *out = i >= 3;
            return true;
        }
    return false;
}

// The fewest digits that read back as the same bits, and a point, without which some readers of YAML see a text.
static void real_print(struct text *out, double value) {
    char digits[40];
    locale_t c, before = locale_enter(&c);
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value)
            break;
    }
    locale_leave(c, before);
    size_t whole = strspn(digits, "-0123456789");
    text_add(out, "%.*s%s%s", (int)whole, digits, digits[whole] == '.' ? "" : ".0", digits + whole);
}

static bool in_bounds(const struct key_bounds *bounds, double value) {
    if (bounds->above_least ? value <= bounds->least : value < bounds->least)
        return false;
    return bounds->below_most ? value < bounds->most : value <= bounds->most;
}

static void *value_field(const struct config *config, const struct key *key) {
    return (char *)config + key->offset;
}

char **value_text(const struct config *config, const struct key *key) {
    CHECK(key->type == KEY_TEXT);
    return value_field(config, key);
}

static bool fractions_set(double *field, const struct key *key, const struct given *given) {
    double value[8], sum = 0;
    CHECK(key->count <= ARRAY_LENGTH(value));
    if (given->form != GIVEN_LIST || given->words.count != key->count)
        return false;
    for (size_t i = 0; i < key->count; i++) {
        const struct given_word *word = &given->words.item[i];
        if (word->quoted || !real_parse(word->text, &value[i]) || value[i] < 0)
            return false;
        sum += value[i];
    }
    if (fabs(sum - 1) > 1e-9)
        return false;
    memcpy(field, value, key->count * sizeof *value);
    return true;
}

// False: not acceptable; the field is as it was.
static bool scalar_set(void *field, const struct key *key, const struct given_word *word) {
    if (key->type == KEY_TEXT) {
        if (is_nothing(word) || strlen(word->text) > TEXT_MAX_BYTES || (!key->is_path && !utf8_is_valid(word->text)))
            return false;
        free(*(char **)field);
        *(char **)field = mem_strdup(word->text);
        return true;
    }
    bool yes;
    if (key->type == KEY_CHOICE) {
        const char *text = word->text;
        if (!word->quoted && switch_parse(text, &yes))
            text = yes ? "true" : "false";
        for (int i = 0; key->words[i]; i++)
            if (strcmp(key->words[i], text) == 0) {
                *(int *)field = i;
                return true;
            }
        return false;
    }
    int64_t integer;
    double real;
    if (word->quoted)
        return false;
    switch (key->type) {
    case KEY_INTEGER:
        if (!integer_parse(word->text, &integer) || !in_bounds(&key->bounds, (double)integer))
            return false;
        *(int64_t *)field = integer;
        return true;
    case KEY_REAL:
        if (!real_parse(word->text, &real) || !in_bounds(&key->bounds, real))
            return false;
        *(double *)field = real;
        return true;
    case KEY_SWITCH:
        if (!switch_parse(word->text, &yes))
            return false;
        *(bool *)field = yes;
        return true;
    default:
        return false;
    }
}

// What a user may have had in mind with a refused value, for the end of the message.
static const char *value_advice(const struct key *key, const struct given *given) {
    if (given->form != GIVEN_SCALAR)
        return "";
    const char *text = given->words.item[0].text;
    if (key->type == KEY_TEXT)
        return strlen(text) > TEXT_MAX_BYTES ? ", of at most 65536 bytes"
               : utf8_is_valid(text)         ? "; \"\" is the empty text"
                                             : ", in UTF-8";
    if (key->type != KEY_INTEGER && key->type != KEY_REAL)
        return "";
    if (given->words.item[0].quoted)
        return ", without quotes";
    const char *end = number_end(text);
    if (end == text)
        return "";
    if (*end)
        return ", in digits alone without a unit or separator";
    int64_t whole;
    const char *digits = text + strspn(text, "+-");
    const bool zero = digits[0] == '0' && isdigit((unsigned char)digits[1]) && integer_parse(digits + 1, &whole);
    return key->type == KEY_INTEGER && zero ? ", without a leading zero" : "";
}

trireme_status value_set(struct config *config, const struct key *key, const char *where, const struct given *given,
                         trireme_error *error) {
    void *field = value_field(config, key);
    if (key->type == KEY_FRACTIONS ? fractions_set(field, key, given)
                                   : given->form == GIVEN_SCALAR && scalar_set(field, key, &given->words.item[0]))
        return TRIREME_OK;
    struct text message = {0};
    text_add(&message, "%s.%s: given ", key->section, key->name);
    given_describe(&message, given);
    text_add(&message, ", accepts ");
    key_accepts(&message, key);
    text_add(&message, "%s", value_advice(key, given));
    trireme_status status = error_set(error, TRIREME_ERROR_USAGE, "%s: %s", where, message.text);
    text_release(&message);
    return status;
}

bool value_condition_holds(const struct config *config, const struct key_condition *c) {
    struct text value = {0};
    value_print(&value, config, key_find_full(c->of));
    const bool excludes = *c->words == '!', listed = text_lists(c->words + excludes, value.text);
    text_release(&value);
    return listed != excludes;
}

static bool value_has_effect(const struct config *config, const struct key *key) {
    bool conditions = false, holds = false;
    for (const struct key_condition *c = key_conditions; c->name; c++)
        if (strcmp(c->section, key->section) == 0 && strcmp(c->name, key->name) == 0) {
            conditions = true;
            holds |= value_condition_holds(config, c);
        }
    return holds || !conditions;
}

// Where it has no effect, another key gives it no default.
static const char *value_initial(const struct config *config, const struct key *key) {
    if (!value_has_effect(config, key))
        return key->initial;
    for (const struct key_default *d = key_defaults; d->name; d++) {
        if (strcmp(d->section, key->section) != 0 || strcmp(d->name, key->name) != 0)
            continue;
        struct text word = {0};
        value_print(&word, config, key_find(d->section, d->of));
        const bool is = strcmp(word.text, d->word) == 0;
        text_release(&word);
        if (is)
            return d->initial;
    }
    return key->initial;
}

void value_set_default(struct config *config, const struct key *key) {
    struct given given = {0};
    given_parse(&given, key->type, value_initial(config, key));
    trireme_error error;
    CHECK(value_set(config, key, "default", &given, &error) == TRIREME_OK);
    given_release(&given);
}

// Whether every reader of YAML takes the plain word for just this text.
static bool value_is_plain(const char *text) {
    const char *const taken[] = {"true", "false", "yes", "no", "on", "off", "y", "n", "null"};
    for (size_t i = 0; i < ARRAY_LENGTH(taken); i++)
        if (strcasecmp(text, taken[i]) == 0)
            return false;
    if (!isalpha((unsigned char)text[0]) && text[0] != '/')
        return false;
    return strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-") == strlen(text);
}

void value_print_text(struct text *out, const char *text) {
    if (value_is_plain(text)) {
        text_add(out, "%s", text);
        return;
    }
    text_add(out, "\"");
    size_t length = strlen(text);
    for (size_t i = 0, bytes; i < length; i += MAX(bytes, 1)) {
        uint32_t code = 0;
        bytes = utf8_decode(text + i, length - i, &code);
        if (bytes == 0)
            text_add(out, "\\x%02x", (unsigned char)text[i]);
        else if (code == '"' || code == '\\')
            text_add(out, "\\%c", (char)code);
        else if (code == '\n')
            text_add(out, "\\n");
        else if (utf8_is_hidden(code))
            text_add(out, "\\u%04" PRIx32, code);
        else
            text_add_bytes(out, text + i, bytes);
    }
    text_add(out, "\"");
}

void value_print(struct text *out, const struct config *config, const struct key *key) {
    const void *field = value_field(config, key);
    switch (key->type) {
    case KEY_INTEGER:
        text_add(out, "%" PRId64, *(const int64_t *)field);
        break;
    case KEY_REAL:
        real_print(out, *(const double *)field);
        break;
    case KEY_SWITCH:
        text_add(out, *(const bool *)field ? "true" : "false");
        break;
    case KEY_CHOICE:
        text_add(out, "%s", key->words[*(const int *)field]);
        break;
    case KEY_TEXT:
        value_print_text(out, *value_text(config, key));
        break;
    case KEY_FRACTIONS:
        text_add(out, "[");
        for (size_t i = 0; i < key->count; i++) {
            text_add(out, i ? ", " : "");
            real_print(out, ((const double *)field)[i]);
        }
        text_add(out, "]");
        break;
    }
}

void value_write(struct text *out, const struct config *config, const struct key *key) {
    const char *text = key->type == KEY_TEXT ? *value_text(config, key) : "";
    if (utf8_is_valid(text)) {
        value_print(out, config, key);
        return;
    }
    text_add(out, "!!binary \"");
    base64_add(out, text, strlen(text));
    text_add(out, "\"");
}

void value_add_json(struct text *out, const char *name, const struct config *config, const struct key *key) {
    const void *field = value_field(config, key);
    switch (key->type) {
    case KEY_INTEGER:
        json_add_integer(out, name, *(const int64_t *)field);
        break;
    case KEY_REAL:
        json_add_number(out, name, *(const double *)field);
        break;
    case KEY_SWITCH:
        json_add_boolean(out, name, *(const bool *)field);
        break;
    case KEY_CHOICE:
        json_add_string(out, name, key->words[*(const int *)field]);
        break;
    case KEY_TEXT:
        json_add_path(out, name, *value_text(config, key));
        break;
    case KEY_FRACTIONS:
        json_begin_array(out, name);
        for (size_t i = 0; i < key->count; i++)
            json_add_number(out, NULL, ((const double *)field)[i]);
        json_end_array(out);
        break;
    }
}
