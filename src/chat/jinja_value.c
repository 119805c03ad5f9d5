// Values as Python has them: what they are equal to, printed as, and what can be done with them.
#include "chat/jinja_parts.h"

#include "base/utf8.h"
#include "tokenizer/unicode.h"

#include <inttypes.h>
#include <math.h>

enum { ARENA_BLOCK = 1 << 16 };

void *arena_add(struct arena *a, size_t bytes) {
    bytes = (bytes + 15) & ~(size_t)15;
    if (!a->blocks.count || a->room - a->used < bytes) {
        a->room = MAX(bytes, ARENA_BLOCK);
        a->used = 0;
        a->total += a->room;
        VEC_PUSH(&a->blocks, mem_alloc(a->room));
    }
    void *p = a->blocks.item[a->blocks.count - 1] + a->used;
    a->used += bytes;
    return p;
}

void arena_release(struct arena *a) {
    for (size_t i = 0; i < a->blocks.count; i++)
        free(a->blocks.item[i]);
    VEC_RELEASE(&a->blocks);
    *a = (struct arena){0};
}

struct jinja_value jinja_take(struct jinja_run *r, struct text *text) {
    char *copy = arena_add(&r->arena, text->length + 1);
    const size_t length = text->length;
    if (length)
        memcpy(copy, text->text, length);
    text_release(text);
    return jinja_borrow(copy, length);
}

trireme_status jinja_of_json(struct jinja_run *r, const json_t *tree, struct jinja_value *out) {
    TRY(jinja_work(r, 1));
    *out = (struct jinja_value){.type = JINJA_NONE};
    if (json_is_string(tree)) {
        *out = jinja_borrow(json_string_value(tree), json_string_length(tree));
    } else if (json_is_boolean(tree)) {
        *out = jinja_boolean(json_is_true(tree));
    } else if (json_is_integer(tree)) {
        *out = jinja_integer(json_integer_value(tree));
    } else if (json_is_real(tree)) {
        *out = (struct jinja_value){.type = JINJA_REAL, .real = json_real_value(tree)};
    } else if (json_is_array(tree)) {
        const size_t count = json_array_size(tree);
        struct jinja_value *item = arena_add(&r->arena, count * sizeof *item);
        for (size_t i = 0; i < count; i++)
            TRY(jinja_of_json(r, json_array_get(tree, i), &item[i]));
        *out = jinja_items(item, count);
    } else if (json_is_object(tree)) {
        struct jinja_member *member = arena_add(&r->arena, json_object_size(tree) * sizeof *member), *at = member;
        const char *key;
        json_t *value;
        json_object_foreach((json_t *)tree, key, value) {
            at->key = jinja_borrow(key, strlen(key));
            TRY(jinja_of_json(r, value, &(at++)->value));
        }
        *out = (struct jinja_value){.type = JINJA_DICT, .member = member, .count = (size_t)(at - member)};
    }
    return TRIREME_OK;
}

// ---- what they are

const char *jinja_type_name(const struct jinja_value *v) {
    static const char *const NAMES[] = {[JINJA_ABSENT] = "nothing",     [JINJA_UNDEFINED] = "something undefined",
                                        [JINJA_NONE] = "none",          [JINJA_BOOLEAN] = "a boolean",
                                        [JINJA_INTEGER] = "an integer", [JINJA_REAL] = "a float",
                                        [JINJA_STRING] = "a string",    [JINJA_LIST] = "a list",
                                        [JINJA_DICT] = "a dict",        [JINJA_NAMESPACE] = "a namespace",
                                        [JINJA_LOOP] = "a loop",        [JINJA_MACRO] = "a macro",
                                        [JINJA_CALLABLE] = "a function"};
    return NAMES[v->type];
}

static trireme_status refuse_undefined(const struct jinja_run *r, const struct jinja_value *v) {
    char excerpt[JSON_EXCERPT_BYTES];
    return jinja_refuse(r, "%s is undefined", json_excerpt_bytes(v->string, v->count, excerpt));
}

static struct jinja_value undefined_named(const char *name, size_t length) {
    return (struct jinja_value){.type = JINJA_UNDEFINED, .string = name, .count = length};
}

bool jinja_is_true(const struct jinja_value *v) {
    switch (v->type) {
    case JINJA_ABSENT:
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return false;
    case JINJA_BOOLEAN:
        return v->boolean;
    case JINJA_INTEGER:
        return v->integer != 0;
    case JINJA_REAL:
        return v->real != 0;
    case JINJA_STRING:
    case JINJA_LIST:
    case JINJA_DICT:
        return v->count > 0;
    default:
        return true;
    }
}

static bool is_integer(const struct jinja_value *v) {
    return v->type == JINJA_INTEGER || v->type == JINJA_BOOLEAN;
}

static int64_t integer_of(const struct jinja_value *v) {
    return v->type == JINJA_BOOLEAN ? v->boolean : v->integer;
}

bool jinja_is_number(const struct jinja_value *v) {
    return is_integer(v) || v->type == JINJA_REAL;
}

double jinja_real(const struct jinja_value *v) {
    return v->type == JINJA_REAL ? v->real : (double)integer_of(v);
}

// ---- comparing

static trireme_status values_are_equal(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b,
                                       bool *out) {
    TRY(jinja_enter(r));
    *out = a->count == b->count;
    for (size_t i = 0; i < a->count && *out; i++)
        TRY(jinja_equal(r, &a->item[i], &b->item[i], out));
    r->depth--;
    return TRIREME_OK;
}

static trireme_status dicts_are_equal(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b,
                                      bool *out) {
    TRY(jinja_enter(r));
    *out = a->count == b->count;
    for (size_t i = 0; i < a->count && *out; i++) {
        const struct jinja_value *other;
        TRY(jinja_find(r, b, &a->member[i].key, &other));
        *out = other != NULL;
        if (other)
            TRY(jinja_equal(r, &a->member[i].value, other, out));
    }
    r->depth--;
    return TRIREME_OK;
}

trireme_status jinja_equal(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b, bool *out) {
    TRY(jinja_work(r, 1));
    if (jinja_is_number(a) && jinja_is_number(b)) {
        *out = is_integer(a) && is_integer(b) ? integer_of(a) == integer_of(b)
                                              : !(jinja_real(a) < jinja_real(b)) && !(jinja_real(a) > jinja_real(b));
        return TRIREME_OK;
    }
    *out = a->type == b->type;
    if (!*out)
        return TRIREME_OK;
    switch (a->type) {
    case JINJA_STRING:
        *out = a->count == b->count && memcmp(a->string, b->string, a->count) == 0;
        return jinja_work(r, *out ? a->count / 16 : 0);
    case JINJA_LIST:
        *out = a->tuple == b->tuple;
        return *out ? values_are_equal(r, a, b, out) : TRIREME_OK;
    case JINJA_DICT:
        return dicts_are_equal(r, a, b, out);
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return TRIREME_OK;
    default:
        return jinja_refuse(r, "%s cannot be compared", jinja_type_name(a));
    }
}

trireme_status jinja_compare(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b, int *out) {
    TRY(jinja_work(r, 1));
    if (is_integer(a) && is_integer(b)) {
        *out = COMPARE(integer_of(a), integer_of(b));
    } else if (jinja_is_number(a) && jinja_is_number(b)) {
        *out = COMPARE(jinja_real(a), jinja_real(b));
    } else if (a->type == JINJA_STRING && b->type == JINJA_STRING) {
        const int order = memcmp(a->string, b->string, MIN(a->count, b->count));
        *out = COMPARE(order, 0) ?: COMPARE(a->count, b->count);
    } else if (a->type == JINJA_UNDEFINED || b->type == JINJA_UNDEFINED) {
        return refuse_undefined(r, a->type == JINJA_UNDEFINED ? a : b);
    } else {
        return jinja_refuse(r, "%s and %s have no order", jinja_type_name(a), jinja_type_name(b));
    }
    return TRIREME_OK;
}

trireme_status jinja_find(struct jinja_run *r, const struct jinja_value *dict, const struct jinja_value *key,
                          const struct jinja_value **out) {
    *out = NULL;
    TRY(jinja_work(r, dict->count / 8));
    for (size_t i = 0; i < dict->count && !*out; i++) {
        const struct jinja_value *its = &dict->member[i].key;
        bool equal = false;
        if (its->type == JINJA_STRING && key->type == JINJA_STRING)
            equal = its->count == key->count && memcmp(its->string, key->string, key->count) == 0;
        else
            TRY(jinja_equal(r, its, key, &equal));
        if (equal)
            *out = &dict->member[i].value;
    }
    return TRIREME_OK;
}

// ---- going through them

static size_t count_characters(const struct jinja_value *v) {
    size_t count = 0;
    for (size_t i = 0; i < v->count; i++)
        count += ((unsigned char)v->string[i] & 0xC0) != 0x80;
    return count;
}

trireme_status jinja_elements(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value **item,
                              size_t *count) {
    if (v->type == JINJA_LIST) {
        *item = v->item;
        *count = v->count;
        return TRIREME_OK;
    }
    if (v->type == JINJA_UNDEFINED) {
        *count = 0;
        return TRIREME_OK;
    }
    if (v->type != JINJA_DICT && v->type != JINJA_STRING)
        return jinja_refuse(r, "%s has no elements to go through", jinja_type_name(v));
    *count = v->type == JINJA_DICT ? v->count : count_characters(v);
    TRY(jinja_work(r, *count));
    struct jinja_value *out = arena_add(&r->arena, *count * sizeof *out);
    *item = out;
    if (v->type == JINJA_DICT)
        for (size_t i = 0; i < v->count; i++)
            out[i] = v->member[i].key;
    else
        for (size_t at = 0, bytes; at < v->count; at += bytes) {
            unicode_decode(v->string + at, &bytes);
            *out++ = jinja_borrow(v->string + at, bytes);
        }
    return TRIREME_OK;
}

trireme_status jinja_length(struct jinja_run *r, const struct jinja_value *v, size_t *out) {
    if (v->type == JINJA_STRING) {
        *out = count_characters(v);
        return jinja_work(r, v->count / 16);
    }
    *out = v->type == JINJA_UNDEFINED ? 0 : v->count;
    if (v->type != JINJA_UNDEFINED && v->type != JINJA_LIST && v->type != JINJA_DICT)
        return jinja_refuse(r, "%s has no length", jinja_type_name(v));
    return TRIREME_OK;
}

// ---- printing

// Fewest digits that read back as the same number; an exponent where it is below -4 or above 15.
void jinja_print_real(double real, struct text *out) {
    char digits[40];
    int precision = 1;
    if (!isfinite(real)) {
        text_add(out, "%s", isnan(real) ? "nan" : real < 0 ? "-inf" : "inf");
        return;
    }
    for (; precision < 17; precision++) {
        snprintf(digits, sizeof digits, "%.*e", precision - 1, real);
        if (strtod(digits, NULL) == real)
            break;
    }
    snprintf(digits, sizeof digits, "%.*e", precision - 1, real);
    const int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent < -4 || exponent > 15)
        text_add(out, "%s", digits);
    else
        text_add(out, "%.*f", MAX(precision - 1 - exponent, 1), real);
}

// Appends a string as Python's repr() writes it.
static void print_quoted(const struct jinja_value *v, struct text *out) {
    static const char LETTERS[] = "\n\r\t\\", WRITTEN[] = "nrt\\";
    const bool single = memchr(v->string, '\'', v->count) == NULL, twice = memchr(v->string, '"', v->count) == NULL;
    const char quote = !single && twice ? '"' : '\'';
    text_add(out, "%c", quote);
    for (size_t i = 0; i < v->count; i++) {
        const char c = v->string[i], *letter = c ? strchr(LETTERS, c) : NULL;
        if (letter)
            text_add(out, "\\%c", WRITTEN[letter - LETTERS]);
        else if ((unsigned char)c < 0x20 || c == 0x7F)
            text_add(out, "\\x%02x", (unsigned)c);
        else
            text_add(out, "%s%c", c == quote ? "\\" : "", c);
    }
    text_add(out, "%c", quote);
}

static trireme_status print_inside(struct jinja_run *r, const struct jinja_value *v, struct text *out) {
    TRY(jinja_work(r, 1 + v->count));
    if (v->type == JINJA_STRING) {
        print_quoted(v, out);
        return TRIREME_OK;
    }
    if (v->type == JINJA_UNDEFINED)
        text_add(out, "Undefined");
    TRY(jinja_enter(r));
    TRY(jinja_print(r, v, out));
    r->depth--;
    return TRIREME_OK;
}

trireme_status jinja_print(struct jinja_run *r, const struct jinja_value *v, struct text *out) {
    TRY(jinja_work(r, 1));
    switch (v->type) {
    case JINJA_ABSENT:
    case JINJA_UNDEFINED:
        return TRIREME_OK;
    case JINJA_NONE:
        text_add(out, "None");
        return TRIREME_OK;
    case JINJA_BOOLEAN:
        text_add(out, "%s", v->boolean ? "True" : "False");
        return TRIREME_OK;
    case JINJA_INTEGER:
        text_add(out, "%" PRId64, v->integer);
        return TRIREME_OK;
    case JINJA_REAL:
        jinja_print_real(v->real, out);
        return TRIREME_OK;
    case JINJA_STRING:
        TRY(jinja_work(r, v->count));
        text_add_bytes(out, v->string, v->count);
        return TRIREME_OK;
    case JINJA_LIST:
        text_add(out, v->tuple ? "(" : "[");
        for (size_t i = 0; i < v->count; i++) {
            text_add(out, "%s", i ? ", " : "");
            TRY(print_inside(r, &v->item[i], out));
        }
        text_add(out, "%s%s", v->tuple && v->count == 1 ? "," : "", v->tuple ? ")" : "]");
        return TRIREME_OK;
    case JINJA_DICT:
        text_add(out, "{");
        for (size_t i = 0; i < v->count; i++) {
            text_add(out, "%s", i ? ", " : "");
            TRY(print_inside(r, &v->member[i].key, out));
            text_add(out, ": ");
            TRY(print_inside(r, &v->member[i].value, out));
        }
        text_add(out, "}");
        return TRIREME_OK;
    default:
        return jinja_refuse(r, "%s cannot be printed", jinja_type_name(v));
    }
}

// ---- members, elements, parts

static trireme_status loop_member(const struct jinja_run *r, const struct jinja_loop *loop, struct jinja_word name,
                                  struct jinja_value *out) {
    const size_t i = loop->index, count = loop->count;
    const struct {
        const char *name;
        struct jinja_value value;
    } MEMBERS[] = {
        {"index", jinja_integer((int64_t)i + 1)},
        {"index0", jinja_integer((int64_t)i)},
        {"first", jinja_boolean(i == 0)},
        {"last", jinja_boolean(i + 1 == count)},
        {"length", jinja_integer((int64_t)count)},
        {"revindex", jinja_integer((int64_t)(count - i))},
        {"revindex0", jinja_integer((int64_t)(count - i) - 1)},
        {"previtem", i > 0 ? loop->item[i - 1] : undefined_named(name.text, name.length)},
        {"nextitem", i + 1 < count ? loop->item[i + 1] : undefined_named(name.text, name.length)},
    };
    for (size_t m = 0; m < ARRAY_LENGTH(MEMBERS); m++)
        if (jinja_word_is(name, MEMBERS[m].name)) {
            *out = MEMBERS[m].value;
            return TRIREME_OK;
        }
    return jinja_refuse(r, "loop.%.*s is not supported", (int)MIN(name.length, 40), name.text);
}

static bool is_dict_method(struct jinja_word name) {
    static const char *const NAMES[] = {"items", "keys",  "values", "get",        "pop",     "popitem",
                                        "copy",  "clear", "update", "setdefault", "fromkeys"};
    for (size_t i = 0; i < ARRAY_LENGTH(NAMES); i++)
        if (jinja_word_is(name, NAMES[i]))
            return true;
    return false;
}

trireme_status jinja_member(struct jinja_run *r, const struct jinja_value *v, struct jinja_word name,
                            struct jinja_value *out) {
    const struct jinja_value key = jinja_borrow(name.text, name.length), *found = NULL;
    *out = undefined_named(name.text, name.length);
    if (v->type == JINJA_LOOP)
        return loop_member(r, v->loop, name, out);
    if (v->type == JINJA_UNDEFINED)
        return refuse_undefined(r, v);
    if (v->type == JINJA_NAMESPACE) {
        for (const struct jinja_variable *variable = v->space->first; variable && !found; variable = variable->next)
            if (variable->name.length == name.length && memcmp(variable->name.text, name.text, name.length) == 0)
                found = &variable->value;
    } else if (v->type == JINJA_DICT) {
        if (is_dict_method(name)) // for which Python looks first
            *out = (struct jinja_value){.type = JINJA_CALLABLE};
        else
            TRY(jinja_find(r, v, &key, &found));
    }
    if (found)
        *out = *found;
    return TRIREME_OK;
}

// The bytes of a string's characters [first, first + 1).
static struct jinja_value character_at(const struct jinja_value *v, size_t number) {
    size_t at = 0, bytes;
    for (; number; number--) {
        unicode_decode(v->string + at, &bytes);
        at += bytes;
    }
    unicode_decode(v->string + at, &bytes);
    return jinja_borrow(v->string + at, bytes);
}

trireme_status jinja_item(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value *index,
                          struct jinja_value *out) {
    *out = undefined_named("an element", strlen("an element"));
    if (v->type == JINJA_UNDEFINED)
        return refuse_undefined(r, v);
    if (v->type == JINJA_DICT) {
        const struct jinja_value *found;
        TRY(jinja_find(r, v, index, &found));
        if (found)
            *out = *found;
        else if (index->type == JINJA_STRING)
            *out = undefined_named(index->string, index->count);
        return TRIREME_OK;
    }
    if (index->type == JINJA_STRING)
        return jinja_member(r, v, (struct jinja_word){index->string, index->count}, out);
    if (!is_integer(index) || (v->type != JINJA_LIST && v->type != JINJA_STRING))
        return TRIREME_OK;
    size_t count;
    int64_t at = integer_of(index);
    TRY(jinja_length(r, v, &count));
    at += at < 0 ? (int64_t)count : 0;
    if (at >= 0 && at < (int64_t)count)
        *out = v->type == JINJA_LIST ? v->item[at] : character_at(v, (size_t)at);
    return TRIREME_OK;
}

// Where Python's slice begins or ends: `part` counts from the end where it is negative, and is brought to [least,
// most].
static int64_t slice_bound(const struct jinja_value *part, int64_t count, int64_t least, int64_t most, int64_t absent) {
    if (part->type == JINJA_NONE)
        return absent;
    int64_t at = integer_of(part);
    at += at < 0 ? count : 0;
    return at < least ? least : at > most ? most : at;
}

trireme_status jinja_slice(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value part[3],
                           struct jinja_value *out) {
    const struct jinja_value *item;
    size_t elements;
    if (v->type == JINJA_UNDEFINED)
        return refuse_undefined(r, v);
    if (v->type != JINJA_LIST && v->type != JINJA_STRING)
        return jinja_refuse(r, "%s has no slices", jinja_type_name(v));
    for (int i = 0; i < 3; i++)
        if (part[i].type != JINJA_NONE && !is_integer(&part[i]))
            return jinja_refuse(r, "a slice by %s", jinja_type_name(&part[i]));
    TRY(jinja_elements(r, v, &item, &elements));
    const int64_t count = (int64_t)elements, step = part[2].type == JINJA_NONE ? 1 : integer_of(&part[2]);
    if (step == 0 || step > INT32_MAX || step < -INT32_MAX)
        return jinja_refuse(r, "a slice with a step of %" PRId64, step);
    const bool back = step < 0;
    const int64_t least = back ? -1 : 0, most = back ? count - 1 : count;
    const int64_t begin = slice_bound(&part[0], count, least, most, back ? count - 1 : 0);
    const int64_t end = slice_bound(&part[1], count, least, most, back ? -1 : count);
    struct jinja_value *taken = arena_add(&r->arena, (elements + 1) * sizeof *taken);
    struct text text = {0};
    size_t used = 0;
    TRY(jinja_work(r, elements));
    for (int64_t at = begin; back ? at > end : at < end; at += step)
        taken[used++] = item[at];
    if (v->type == JINJA_LIST) {
        *out = jinja_items(taken, used);
        out->tuple = v->tuple;
        return TRIREME_OK;
    }
    for (size_t i = 0; i < used; i++)
        text_add_bytes(&text, taken[i].string, taken[i].count);
    *out = jinja_take(r, &text);
    return TRIREME_OK;
}

// ---- operators

static trireme_status operate_strings(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b,
                                      struct jinja_value *out) {
    TRY(jinja_work(r, a->count + b->count));
    char *both = arena_add(&r->arena, a->count + b->count + 1);
    memcpy(both, a->string, a->count);
    memcpy(both + a->count, b->string, b->count);
    *out = jinja_borrow(both, a->count + b->count);
    return TRIREME_OK;
}

static trireme_status repeat_string(struct jinja_run *r, const struct jinja_value *v, int64_t times,
                                    struct jinja_value *out) {
    const size_t count = v->count ? (size_t)MAX(times, 0) : 0;
    struct text text = {0};
    size_t bytes;
    TRY(jinja_work(r, __builtin_mul_overflow(count, v->count, &bytes) ? SIZE_MAX : bytes));
    for (size_t i = 0; i < count; i++)
        text_add_bytes(&text, v->string, v->count);
    *out = jinja_take(r, &text);
    return TRIREME_OK;
}

static trireme_status operate_lists(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b,
                                    struct jinja_value *out) {
    TRY(jinja_work(r, a->count + b->count));
    struct jinja_value *both = arena_add(&r->arena, (a->count + b->count) * sizeof *both);
    if (a->count)
        memcpy(both, a->item, a->count * sizeof *both);
    if (b->count)
        memcpy(both + a->count, b->item, b->count * sizeof *both);
    *out = jinja_items(both, a->count + b->count);
    out->tuple = a->tuple;
    return TRIREME_OK;
}

static trireme_status operate_integers(const struct jinja_run *r, enum jinja_operator op, int64_t a, int64_t b,
                                       struct jinja_value *out) {
    int64_t result = 0;
    bool overflows = false;
    if ((op == OP_FLOOR || op == OP_MODULO) && b == 0)
        return jinja_refuse(r, "a division by 0");
    if (op == OP_ADD)
        overflows = __builtin_add_overflow(a, b, &result);
    else if (op == OP_SUBTRACT)
        overflows = __builtin_sub_overflow(a, b, &result);
    else if (op == OP_MULTIPLY)
        overflows = __builtin_mul_overflow(a, b, &result);
    else if (b == -1)
        overflows = op == OP_FLOOR && __builtin_sub_overflow(0, a, &result);
    else // both round down
        result = op == OP_FLOOR ? a / b - (a % b != 0 && (a < 0) != (b < 0))
                                : a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
    if (overflows)
        return jinja_refuse(r, "a number is too large");
    *out = jinja_integer(result);
    return TRIREME_OK;
}

static trireme_status operate_reals(const struct jinja_run *r, enum jinja_operator op, double a, double b,
                                    struct jinja_value *out) {
    if ((op == OP_DIVIDE || op == OP_FLOOR || op == OP_MODULO) && !(b < 0) && !(b > 0))
        return jinja_refuse(r, "a division by 0");
    const double result = op == OP_ADD        ? a + b
                          : op == OP_SUBTRACT ? a - b
                          : op == OP_MULTIPLY ? a * b
                          : op == OP_DIVIDE   ? a / b
                          : op == OP_FLOOR    ? floor(a / b)
                                              : a - b * floor(a / b);
    *out = (struct jinja_value){.type = JINJA_REAL, .real = result};
    return TRIREME_OK;
}

static trireme_status is_in(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b, bool *out) {
    const struct jinja_value *item;
    size_t count;
    *out = false;
    if (b->type == JINJA_STRING && a->type != JINJA_STRING)
        return jinja_refuse(r, "%s is sought in a string", jinja_type_name(a));
    if (b->type == JINJA_STRING) {
        TRY(jinja_work(r, b->count / 16));
        *out = memmem(b->string, b->count, a->string, a->count) != NULL;
        return TRIREME_OK;
    }
    if (b->type == JINJA_DICT) {
        TRY(jinja_find(r, b, a, &item));
        *out = item != NULL;
        return TRIREME_OK;
    }
    TRY(jinja_elements(r, b, &item, &count));
    for (size_t i = 0; i < count && !*out; i++)
        TRY(jinja_equal(r, a, &item[i], out));
    return TRIREME_OK;
}

static trireme_status operate_concatenation(struct jinja_run *r, const struct jinja_value *a,
                                            const struct jinja_value *b, struct jinja_value *out) {
    struct text text = {0};
    trireme_status status = jinja_print(r, a, &text);
    if (status == TRIREME_OK)
        status = jinja_print(r, b, &text);
    *out = jinja_take(r, &text);
    return status;
}

trireme_status jinja_operate(struct jinja_run *r, enum jinja_operator op, const struct jinja_value *a,
                             const struct jinja_value *b, struct jinja_value *out) {
    static const char *const SIGNS[] = {[OP_ADD] = "+",    [OP_SUBTRACT] = "-", [OP_MULTIPLY] = "*",
                                        [OP_DIVIDE] = "/", [OP_FLOOR] = "//",   [OP_MODULO] = "%"};
    bool is = false;
    int order = 0;
    switch (op) {
    case OP_CONCATENATE:
        return operate_concatenation(r, a, b, out);
    case OP_EQUAL:
    case OP_UNEQUAL:
        TRY(jinja_equal(r, a, b, &is));
        *out = jinja_boolean(is == (op == OP_EQUAL));
        return TRIREME_OK;
    case OP_IN:
    case OP_NOT_IN:
        TRY(is_in(r, a, b, &is));
        *out = jinja_boolean(is == (op == OP_IN));
        return TRIREME_OK;
    case OP_LESS:
    case OP_LESS_EQUAL:
    case OP_GREATER:
    case OP_GREATER_EQUAL:
        TRY(jinja_compare(r, a, b, &order));
        *out = jinja_boolean(op == OP_LESS         ? order < 0
                             : op == OP_LESS_EQUAL ? order <= 0
                             : op == OP_GREATER    ? order > 0
                                                   : order >= 0);
        return TRIREME_OK;
    default:
        break;
    }
    if (op == OP_ADD && a->type == JINJA_STRING && b->type == JINJA_STRING)
        return operate_strings(r, a, b, out);
    if (op == OP_MULTIPLY && a->type == JINJA_STRING && is_integer(b))
        return repeat_string(r, a, integer_of(b), out);
    if (op == OP_ADD && a->type == JINJA_LIST && b->type == JINJA_LIST && a->tuple == b->tuple)
        return operate_lists(r, a, b, out);
    if (is_integer(a) && is_integer(b) && op != OP_DIVIDE)
        return operate_integers(r, op, integer_of(a), integer_of(b), out);
    if (jinja_is_number(a) && jinja_is_number(b))
        return operate_reals(r, op, jinja_real(a), jinja_real(b), out);
    if (a->type == JINJA_UNDEFINED || b->type == JINJA_UNDEFINED)
        return refuse_undefined(r, a->type == JINJA_UNDEFINED ? a : b);
    return jinja_refuse(r, "%s %s %s cannot be done", jinja_type_name(a), SIGNS[op], jinja_type_name(b));
}
