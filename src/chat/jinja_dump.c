// Values as JSON, and dicts in order.
#include "chat/jinja_parts.h"

#include "tokenizer/unicode.h"

#include <inttypes.h>
#include <math.h>

static void add_quoted(const struct jinja_value *v, bool ascii, struct text *out) {
    static const char LETTERS[] = "\"\\\b\f\n\r\t", WRITTEN[] = "\"\\bfnrt";
    text_add(out, "\"");
    for (size_t at = 0, bytes; at < v->count; at += bytes) {
        const uint32_t code = unicode_decode(v->string + at, &bytes);
        const char *letter = code && code < 0x80 ? strchr(LETTERS, (int)code) : NULL;
        if (letter)
            text_add(out, "\\%c", WRITTEN[letter - LETTERS]);
        else if (code < 0x20 || (ascii && code >= 0x7F && code < 0x10000 && code != 0x7F))
            text_add(out, "\\u%04x", code);
        else if (ascii && code >= 0x10000)
            text_add(out, "\\u%04x\\u%04x", 0xD800 + ((code - 0x10000) >> 10), 0xDC00 + ((code - 0x10000) & 0x3FF));
        else
            text_add_bytes(out, v->string + at, bytes);
    }
    text_add(out, "\"");
}

// What comes before an element, or after the last one.
static void add_line(const struct jinja_dump *how, int64_t level, struct text *out) {
    if (how->indent < 0)
        return;
    text_add(out, "\n");
    for (int64_t i = 0; i < how->indent * level; i++)
        text_add_bytes(out, " ", 1);
}

static trireme_status add_elements(struct jinja_run *r, const struct jinja_value *v, const struct jinja_dump *how,
                                   int64_t level, struct text *out) {
    const struct jinja_member *member = v->type == JINJA_DICT ? v->member : NULL;
    if (member && how->sorts)
        TRY(jinja_sorted(r, v, false, &member));
    text_add(out, v->type == JINJA_DICT ? "{" : "[");
    for (size_t i = 0; i < v->count; i++) {
        if (i)
            text_add_bytes(out, how->between.string, how->between.count);
        TRY(jinja_work(r, (size_t)MAX(how->indent, 0) * (size_t)(level + 1)));
        add_line(how, level + 1, out);
        if (member) {
            if (member[i].key.type != JINJA_STRING)
                return jinja_refuse(r, "tojson of a dict with %s as a key is not supported",
                                    jinja_type_name(&member[i].key));
            TRY(jinja_work(r, member[i].key.count));
            add_quoted(&member[i].key, how->ascii, out);
            text_add_bytes(out, how->after_key.string, how->after_key.count);
        }
        TRY(jinja_add_json(r, member ? &member[i].value : &v->item[i], how, level + 1, out));
    }
    if (v->count)
        add_line(how, level, out);
    text_add(out, v->type == JINJA_DICT ? "}" : "]");
    return TRIREME_OK;
}

trireme_status jinja_add_json(struct jinja_run *r, const struct jinja_value *v, const struct jinja_dump *how,
                              int64_t level, struct text *out) {
    TRY(jinja_work(r, 1));
    switch (v->type) {
    case JINJA_NONE:
        text_add(out, "null");
        return TRIREME_OK;
    case JINJA_BOOLEAN:
        text_add(out, v->boolean ? "true" : "false");
        return TRIREME_OK;
    case JINJA_INTEGER:
        text_add(out, "%" PRId64, v->integer);
        return TRIREME_OK;
    case JINJA_REAL:
        if (isfinite(v->real))
            jinja_print_real(v->real, out);
        else
            text_add(out, "%s", isnan(v->real) ? "NaN" : v->real < 0 ? "-Infinity" : "Infinity");
        return TRIREME_OK;
    case JINJA_STRING:
        TRY(jinja_work(r, v->count));
        add_quoted(v, how->ascii, out);
        return TRIREME_OK;
    case JINJA_LIST:
    case JINJA_DICT:
        TRY(jinja_enter(r));
        TRY(add_elements(r, v, how, level, out));
        r->depth--;
        return TRIREME_OK;
    default:
        return jinja_refuse(r, "tojson of %s cannot be done", jinja_type_name(v));
    }
}

trireme_status jinja_add_lower(struct jinja_run *r, const char *bytes, size_t length, struct text *out) {
    enum { SIGMA = 0x3A3 }; // whose small letter depends on what stands around it
    TRY(jinja_work(r, length));
    for (size_t at = 0, taken; at < length; at += taken) {
        uint32_t second;
        const uint32_t code = unicode_decode(bytes + at, &taken);
        if (code == SIGMA)
            return jinja_refuse(r, "small letters of U+%04X are not supported", code);
        unicode_add(out, unicode_lower(code, &second));
        if (second)
            unicode_add(out, second);
    }
    return TRIREME_OK;
}

struct sorted_member {
    struct jinja_value name; // by which it is sorted
    const struct jinja_member *member;
};

static int sorted_compare(const void *a, const void *b) {
    const struct sorted_member *x = a, *y = b;
    const int order = memcmp(x->name.string, y->name.string, MIN(x->name.count, y->name.count));
    return COMPARE(order, 0) ?: COMPARE(x->name.count, y->name.count) ?: COMPARE(x->member, y->member);
}

trireme_status jinja_sorted(struct jinja_run *r, const struct jinja_value *dict, bool folds,
                            const struct jinja_member **out) {
    struct sorted_member *sorted = arena_add(&r->arena, dict->count * sizeof *sorted);
    struct jinja_member *member = arena_add(&r->arena, dict->count * sizeof *member);
    for (size_t i = 0; i < dict->count; i++) {
        const struct jinja_value key = dict->member[i].key;
        TRY(jinja_work(r, 32));
        if (key.type != JINJA_STRING)
            return jinja_refuse(r, "sorting a dict with %s as a key is not supported", jinja_type_name(&key));
        sorted[i] = (struct sorted_member){key, &dict->member[i]};
        if (folds) {
            struct text lower = {0};
            trireme_status status = jinja_add_lower(r, key.string, key.count, &lower);
            sorted[i].name = jinja_take(r, &lower);
            TRY(status);
        }
    }
    if (dict->count)
        qsort(sorted, dict->count, sizeof *sorted, sorted_compare);
    for (size_t i = 0; i < dict->count; i++)
        member[i] = *sorted[i].member;
    *out = member;
    return TRIREME_OK;
}
