// Filters, tests, functions and methods: those that chat templates use.
#include "chat/jinja_parts.h"

#include "tokenizer/unicode.h"

#include <ctype.h>
#include <inttypes.h>
#include <time.h>

#define CALLABLE(name) \
    static trireme_status name(struct jinja_run *r, const struct jinja_value *given, struct jinja_value *out)

// ---- arguments

static bool is_given(const struct jinja_value *v) {
    return v->type != JINJA_ABSENT && v->type != JINJA_NONE;
}

static trireme_status expect_string(const struct jinja_run *r, const struct jinja_value *v, const char *who) {
    return v->type == JINJA_STRING ? TRIREME_OK : jinja_refuse(r, "%s of %s cannot be done", who, jinja_type_name(v));
}

static trireme_status expect_integer(const struct jinja_run *r, const struct jinja_value *v, int64_t least,
                                     int64_t most, int64_t *out) {
    if (v->type != JINJA_INTEGER || v->integer < least || v->integer > most)
        return jinja_refuse(r, "expected an integer from %" PRId64 " to %" PRId64 ", found %s", least, most,
                            jinja_type_name(v));
    *out = v->integer;
    return TRIREME_OK;
}

// What Python's str() makes of a value.
static trireme_status string_of(struct jinja_run *r, const struct jinja_value *v, struct jinja_value *out) {
    struct text text = {0};
    if (v->type == JINJA_STRING) {
        *out = *v;
        return TRIREME_OK;
    }
    trireme_status status = jinja_print(r, v, &text);
    *out = jinja_take(r, &text);
    return status;
}

static struct jinja_word word_of(const struct jinja_value *v) {
    return (struct jinja_word){v->string, v->count};
}

// ---- strings

// Whether str.strip() takes a character away: white space, and four controls that Python counts as such.
static bool is_stripped(uint32_t code, const struct jinja_value *set) {
    if (!is_given(set))
        return unicode_is(unicode_categories(), code, UNICODE_WHITE_SPACE) || (code >= 0x1C && code <= 0x1F);
    for (size_t at = 0, bytes; at < set->count; at += bytes)
        if (unicode_decode(set->string + at, &bytes) == code)
            return true;
    return false;
}

static trireme_status strip_ends(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value *set,
                                 bool left, bool right, struct jinja_value *out) {
    size_t begin = 0, end = v->count, bytes;
    if (is_given(set))
        TRY(expect_string(r, set, "stripping"));
    TRY(jinja_work(r, v->count * (is_given(set) ? MIN(set->count, 64) : 1)));
    while (left && begin < end && is_stripped(unicode_decode(v->string + begin, &bytes), set))
        begin += bytes;
    while (right && end > begin) {
        size_t last = end - 1;
        while (last > begin && ((unsigned char)v->string[last] & 0xC0) == 0x80)
            last--;
        if (!is_stripped(unicode_decode(v->string + last, &bytes), set))
            break;
        end = last;
    }
    *out = jinja_borrow(v->string + begin, end - begin);
    return TRIREME_OK;
}

CALLABLE(filter_trim) {
    struct jinja_value text;
    TRY(string_of(r, &given[0], &text));
    return strip_ends(r, &text, &given[1], true, true, out);
}

CALLABLE(method_strip) {
    TRY(expect_string(r, &given[0], "strip"));
    return strip_ends(r, &given[0], &given[1], true, true, out);
}

CALLABLE(method_lstrip) {
    TRY(expect_string(r, &given[0], "lstrip"));
    return strip_ends(r, &given[0], &given[1], true, false, out);
}

CALLABLE(method_rstrip) {
    TRY(expect_string(r, &given[0], "rstrip"));
    return strip_ends(r, &given[0], &given[1], false, true, out);
}

CALLABLE(filter_string) {
    return string_of(r, &given[0], out);
}

static trireme_status add_upper(const struct jinja_run *r, const char *bytes, size_t length, struct text *out) {
    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)bytes[i] >= 0x80)
            return jinja_refuse(r, "capitals beyond ASCII are not supported");
        text_add_bytes(out, &(char){(char)toupper((unsigned char)bytes[i])}, 1);
    }
    return TRIREME_OK;
}

// The first `capitals` bytes in capitals, the rest in small letters.
static trireme_status change_case(struct jinja_run *r, const struct jinja_value *v, size_t capitals,
                                  struct jinja_value *out) {
    struct jinja_value string;
    struct text text = {0};
    TRY(string_of(r, v, &string));
    capitals = MIN(capitals, string.count);
    TRY(jinja_work(r, string.count));
    trireme_status status = add_upper(r, string.string, capitals, &text);
    if (status == TRIREME_OK)
        status = jinja_add_lower(r, string.string + capitals, string.count - capitals, &text);
    *out = jinja_take(r, &text);
    return status;
}

CALLABLE(any_upper) {
    return change_case(r, &given[0], SIZE_MAX, out);
}

CALLABLE(any_lower) {
    return change_case(r, &given[0], 0, out);
}

CALLABLE(any_capitalize) {
    return change_case(r, &given[0], 1, out);
}

static bool bytes_are_at(const struct jinja_value *v, size_t at, const struct jinja_value *part) {
    return part->count <= v->count - at && memcmp(v->string + at, part->string, part->count) == 0;
}

// Whether a string begins, or ends, with another one, or with one of several.
static trireme_status has_end(const struct jinja_run *r, const struct jinja_value *given, bool last,
                              struct jinja_value *out) {
    const struct jinja_value *part = given[1].type == JINJA_LIST ? given[1].item : &given[1];
    const size_t count = given[1].type == JINJA_LIST ? given[1].count : 1;
    *out = jinja_boolean(false);
    TRY(expect_string(r, &given[0], last ? "endswith" : "startswith"));
    for (size_t i = 0; i < count; i++) {
        TRY(expect_string(r, &part[i], last ? "endswith" : "startswith"));
        if (part[i].count <= given[0].count &&
            bytes_are_at(&given[0], last ? given[0].count - part[i].count : 0, &part[i]))
            out->boolean = true;
    }
    return TRIREME_OK;
}

CALLABLE(method_startswith) {
    return has_end(r, given, false, out);
}

CALLABLE(method_endswith) {
    return has_end(r, given, true, out);
}

struct value_list {
    VEC(struct jinja_value);
};

static struct jinja_value list_take(struct jinja_run *r, struct value_list *list) {
    struct jinja_value *item = arena_add(&r->arena, list->count * sizeof *item);
    const size_t count = list->count;
    if (count)
        memcpy(item, list->item, count * sizeof *item);
    VEC_RELEASE(list);
    return jinja_items(item, count);
}

// At most `most` times, from the left; without a separator at white space.
static void split_add(const struct jinja_value *v, const struct jinja_value *at, int64_t most, struct value_list *out) {
    const struct jinja_value white = {.type = JINJA_NONE};
    const char *begin = v->string, *end = v->string + v->count;
    size_t bytes;
    if (is_given(at)) {
        for (const char *found; most != 0 && (found = memmem(begin, (size_t)(end - begin), at->string, at->count));
             most--) {
            VEC_PUSH(out, jinja_borrow(begin, (size_t)(found - begin)));
            begin = found + at->count;
        }
        VEC_PUSH(out, jinja_borrow(begin, (size_t)(end - begin)));
        return;
    }
    for (;; most--) {
        while (begin < end && is_stripped(unicode_decode(begin, &bytes), &white))
            begin += bytes;
        const char *stop = begin;
        while (stop < end && (most == 0 || !is_stripped(unicode_decode(stop, &bytes), &white)))
            stop += most == 0 ? 1 : bytes;
        if (stop == begin)
            return;
        VEC_PUSH(out, jinja_borrow(begin, (size_t)(stop - begin)));
        begin = stop;
    }
}

CALLABLE(method_split) {
    int64_t most = -1;
    struct value_list parts = {0};
    TRY(expect_string(r, &given[0], "split"));
    if (is_given(&given[1]))
        TRY(expect_string(r, &given[1], "split by a separator"));
    if (is_given(&given[1]) && given[1].count == 0)
        return jinja_refuse(r, "split by an empty separator");
    if (is_given(&given[2]))
        TRY(expect_integer(r, &given[2], is_given(&given[1]) ? INT64_MIN : -1, INT64_MAX, &most));
    TRY(jinja_work(r, 4 * given[0].count));
    split_add(&given[0], &given[1], most, &parts);
    *out = list_take(r, &parts);
    return TRIREME_OK;
}

CALLABLE(any_replace) {
    struct jinja_value v;
    int64_t most = -1;
    struct text text = {0};
    TRY(string_of(r, &given[0], &v));
    TRY(expect_string(r, &given[1], "replace"));
    TRY(expect_string(r, &given[2], "replace"));
    if (is_given(&given[3]))
        TRY(expect_integer(r, &given[3], INT64_MIN, INT64_MAX, &most));
    if (given[1].count == 0)
        return jinja_refuse(r, "replace of an empty string is not supported");
    trireme_status status = jinja_work(r, v.count);
    const char *begin = v.string, *end = v.string + v.count;
    for (const char *found; status == TRIREME_OK && most != 0 &&
                            (found = memmem(begin, (size_t)(end - begin), given[1].string, given[1].count));
         most--) {
        status = jinja_work(r, given[2].count);
        text_add_bytes(&text, begin, (size_t)(found - begin));
        text_add_bytes(&text, given[2].string, given[2].count);
        begin = found + given[1].count;
    }
    text_add_bytes(&text, begin, (size_t)(end - begin));
    *out = jinja_take(r, &text);
    return status;
}

// The number of characters before the first place where given[1] is in given[0]; -1: nowhere.
CALLABLE(method_find) {
    TRY(expect_string(r, &given[0], "find"));
    TRY(expect_string(r, &given[1], "find"));
    TRY(jinja_work(r, given[0].count));
    const char *found = memmem(given[0].string, given[0].count, given[1].string, given[1].count);
    const struct jinja_value before = jinja_borrow(given[0].string, found ? (size_t)(found - given[0].string) : 0);
    size_t characters;
    TRY(jinja_length(r, &before, &characters));
    *out = jinja_integer(found ? (int64_t)characters : -1);
    return TRIREME_OK;
}

static trireme_status join_with(struct jinja_run *r, const struct jinja_value *list, const struct jinja_value *between,
                                bool strings, struct jinja_value *out) {
    const struct jinja_value *item;
    size_t count;
    struct text text = {0};
    TRY(jinja_elements(r, list, &item, &count));
    trireme_status status = TRIREME_OK;
    for (size_t i = 0; i < count && status == TRIREME_OK; i++) {
        if (i)
            text_add_bytes(&text, between->string, between->count);
        status = jinja_work(r, between->count);
        if (status == TRIREME_OK && strings)
            status = expect_string(r, &item[i], "join");
        if (status == TRIREME_OK)
            status = jinja_print(r, &item[i], &text);
    }
    *out = jinja_take(r, &text);
    return status;
}

CALLABLE(method_join) {
    TRY(expect_string(r, &given[0], "join"));
    return join_with(r, &given[1], &given[0], true, out);
}

CALLABLE(filter_join) {
    const struct jinja_value nothing = jinja_borrow("", 0);
    if (is_given(&given[1]))
        TRY(expect_string(r, &given[1], "join"));
    return join_with(r, &given[0], is_given(&given[1]) ? &given[1] : &nothing, false, out);
}

CALLABLE(filter_indent) {
    struct jinja_value v;
    int64_t width = 4;
    struct text text = {0};
    TRY(string_of(r, &given[0], &v));
    if (is_given(&given[1]))
        TRY(expect_integer(r, &given[1], 0, 1000, &width));
    bool blank = !is_given(&given[2]) || !jinja_is_true(&given[2]); // nothing before the first line
    trireme_status status = TRIREME_OK;
    for (size_t at = 0; at < v.count && status == TRIREME_OK;) {
        const char *end = memchr(v.string + at, '\n', v.count - at);
        const size_t next = end ? (size_t)(end + 1 - v.string) : v.count;
        status = jinja_work(r, (size_t)width + next - at);
        if (!blank && v.string[at] != '\n')
            text_add(&text, "%*s", (int)width, "");
        text_add_bytes(&text, v.string + at, next - at);
        blank = false;
        at = next;
    }
    *out = jinja_take(r, &text);
    return status;
}

// ---- lists and dicts

CALLABLE(filter_length) {
    size_t length;
    TRY(jinja_length(r, &given[0], &length));
    *out = jinja_integer((int64_t)length);
    return TRIREME_OK;
}

CALLABLE(filter_list) {
    const struct jinja_value *item;
    size_t count;
    TRY(jinja_elements(r, &given[0], &item, &count));
    *out = jinja_items(item, count);
    return TRIREME_OK;
}

CALLABLE(filter_first) {
    TRY(filter_list(r, given, out));
    *out = out->count ? out->item[0] : (struct jinja_value){.type = JINJA_UNDEFINED, .string = "the first", .count = 9};
    return TRIREME_OK;
}

CALLABLE(filter_last) {
    TRY(filter_list(r, given, out));
    *out = out->count ? out->item[out->count - 1]
                      : (struct jinja_value){.type = JINJA_UNDEFINED, .string = "the last", .count = 8};
    return TRIREME_OK;
}

CALLABLE(filter_reverse) {
    struct jinja_value part[3] = {{.type = JINJA_NONE}, {.type = JINJA_NONE}, jinja_integer(-1)}, list;
    if (given[0].type == JINJA_STRING)
        return jinja_slice(r, &given[0], part, out);
    TRY(filter_list(r, given, &list));
    return jinja_slice(r, &list, part, out);
}

static struct jinja_value pair_of(struct jinja_run *r, const struct jinja_member *member) {
    struct jinja_value *item = arena_add(&r->arena, 2 * sizeof *item);
    item[0] = member->key;
    item[1] = member->value;
    struct jinja_value pair = jinja_items(item, 2);
    pair.tuple = true;
    return pair;
}

// `part`: 0 keys, 1 values, 2 both.
static trireme_status members_of(struct jinja_run *r, const struct jinja_member *member, size_t count, int part,
                                 struct jinja_value *out) {
    TRY(jinja_work(r, 4 * count));
    struct jinja_value *item = arena_add(&r->arena, count * sizeof *item);
    for (size_t i = 0; i < count; i++)
        item[i] = part == 0 ? member[i].key : part == 1 ? member[i].value : pair_of(r, &member[i]);
    *out = jinja_items(item, count);
    return TRIREME_OK;
}

static trireme_status expect_dict(const struct jinja_run *r, const struct jinja_value *v, const char *who) {
    return v->type == JINJA_DICT ? TRIREME_OK : jinja_refuse(r, "%s of %s cannot be done", who, jinja_type_name(v));
}

CALLABLE(method_keys) {
    TRY(expect_dict(r, &given[0], "keys"));
    return members_of(r, given[0].member, given[0].count, 0, out);
}

CALLABLE(method_values) {
    TRY(expect_dict(r, &given[0], "values"));
    return members_of(r, given[0].member, given[0].count, 1, out);
}

CALLABLE(method_items) {
    TRY(expect_dict(r, &given[0], "items"));
    return members_of(r, given[0].member, given[0].count, 2, out);
}

CALLABLE(filter_items) {
    *out = jinja_items(NULL, 0);
    return given[0].type == JINJA_UNDEFINED ? TRIREME_OK : method_items(r, given, out);
}

CALLABLE(filter_dictsort) {
    const struct jinja_member *member;
    TRY(expect_dict(r, &given[0], "dictsort"));
    TRY(jinja_sorted(r, &given[0], true, &member));
    return members_of(r, member, given[0].count, 2, out);
}

CALLABLE(method_get) {
    const struct jinja_value *found;
    TRY(expect_dict(r, &given[0], "get"));
    TRY(jinja_find(r, &given[0], &given[1], &found));
    *out = found ? *found : given[2].type == JINJA_ABSENT ? (struct jinja_value){.type = JINJA_NONE} : given[2];
    return TRIREME_OK;
}

// A member whose name may have dots: a member of a member.
static trireme_status attribute_of(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value *name,
                                   struct jinja_value *out) {
    const char *at = name->string, *end = at + name->count;
    TRY(expect_string(r, name, "an attribute"));
    *out = *v;
    while (at < end) {
        const char *dot = memchr(at, '.', (size_t)(end - at));
        const struct jinja_value part = jinja_borrow(at, (size_t)((dot ? dot : end) - at)), of = *out;
        TRY(jinja_item(r, &of, &part, out));
        at = dot ? dot + 1 : end;
    }
    return TRIREME_OK;
}

// select, reject, selectattr and rejectattr: the elements, or those an attribute of which, passes a test.
static trireme_status select_elements(struct jinja_run *r, const struct jinja_value *given, bool attribute,
                                      bool rejects, struct jinja_value *out) {
    const struct jinja_value *test = &given[1 + attribute], *item;
    const struct jinja_callable *callable = NULL;
    size_t count, used = 0;
    if (is_given(test)) {
        TRY(expect_string(r, test, "the name of a test"));
        callable = jinja_test(word_of(test));
        if (!callable)
            return jinja_refuse(r, "the test \"%.*s\" is not supported", (int)MIN(test->count, 40), test->string);
    }
    TRY(jinja_elements(r, &given[0], &item, &count));
    struct jinja_value *chosen = arena_add(&r->arena, count * sizeof *chosen);
    for (size_t i = 0; i < count; i++) {
        struct jinja_value tested[JINJA_ARGUMENTS] = {item[i], given[2 + attribute]}, is = item[i];
        TRY(jinja_work(r, 1));
        if (attribute)
            TRY(attribute_of(r, &item[i], &given[1], &tested[0]));
        is = tested[0];
        if (callable)
            TRY(callable->call(r, tested, &is));
        if (jinja_is_true(&is) != rejects)
            chosen[used++] = item[i];
    }
    *out = jinja_items(chosen, used);
    return TRIREME_OK;
}

CALLABLE(filter_select) {
    return select_elements(r, given, false, false, out);
}

CALLABLE(filter_reject) {
    return select_elements(r, given, false, true, out);
}

CALLABLE(filter_selectattr) {
    return select_elements(r, given, true, false, out);
}

CALLABLE(filter_rejectattr) {
    return select_elements(r, given, true, true, out);
}

CALLABLE(filter_map) {
    const struct jinja_value *item;
    const struct jinja_callable *callable = NULL;
    size_t count;
    if (is_given(&given[1]))
        TRY(expect_string(r, &given[1], "the name of a filter"));
    if (is_given(&given[1]))
        callable = jinja_filter(word_of(&given[1]));
    if (!callable && !is_given(&given[2]))
        return jinja_refuse(r, "map by a filter that is not supported");
    TRY(jinja_elements(r, &given[0], &item, &count));
    struct jinja_value *mapped = arena_add(&r->arena, count * sizeof *mapped);
    for (size_t i = 0; i < count; i++) {
        const struct jinja_value filtered[JINJA_ARGUMENTS] = {item[i]};
        TRY(jinja_work(r, 1));
        TRY(callable ? callable->call(r, filtered, &mapped[i]) : attribute_of(r, &item[i], &given[2], &mapped[i]));
    }
    *out = jinja_items(mapped, count);
    return TRIREME_OK;
}

// ---- other filters

CALLABLE(filter_default) {
    (void)r;
    const bool given_way = given[0].type == JINJA_UNDEFINED ||
                           (is_given(&given[2]) && jinja_is_true(&given[2]) && !jinja_is_true(&given[0]));
    *out = !given_way ? given[0] : given[1].type == JINJA_ABSENT ? jinja_borrow("", 0) : given[1];
    return TRIREME_OK;
}

CALLABLE(filter_tojson) {
    struct jinja_dump how = {.indent = -1};
    struct text text = {0};
    if (is_given(&given[1]))
        TRY(expect_integer(r, &given[1], 0, 100, &how.indent));
    how.between = how.indent < 0 ? jinja_borrow(", ", 2) : jinja_borrow(",", 1);
    how.after_key = jinja_borrow(": ", 2);
    how.ascii = is_given(&given[2]) && jinja_is_true(&given[2]);
    if (is_given(&given[3])) {
        if (given[3].type != JINJA_LIST || given[3].count != 2)
            return jinja_refuse(r, "tojson takes two separators");
        how.between = given[3].item[0];
        how.after_key = given[3].item[1];
        TRY(expect_string(r, &how.between, "a separator"));
        TRY(expect_string(r, &how.after_key, "a separator"));
    }
    how.sorts = is_given(&given[4]) && jinja_is_true(&given[4]);
    trireme_status status = jinja_add_json(r, &given[0], &how, 0, &text);
    *out = jinja_take(r, &text);
    return status;
}

CALLABLE(filter_int) {
    *out = jinja_integer(0);
    if (given[0].type == JINJA_REAL && given[0].real > -9e18 && given[0].real < 9e18) {
        *out = jinja_integer((int64_t)given[0].real);
    } else if (jinja_is_number(&given[0])) {
        *out = jinja_integer((int64_t)jinja_real(&given[0]));
        if (given[0].type == JINJA_INTEGER)
            *out = given[0];
    } else if (given[0].type == JINJA_STRING) {
        char digits[32], end;
        int64_t number = 0;
        snprintf(digits, sizeof digits, "%.*s", (int)MIN(given[0].count, sizeof digits - 1), given[0].string);
        if (sscanf(digits, "%" SCNd64 "%c", &number, &end) != 1)
            return jinja_refuse(r, "int of a string that is no integer is not supported");
        *out = jinja_integer(number);
    }
    return TRIREME_OK;
}

CALLABLE(filter_abs) {
    const struct jinja_value zero = jinja_integer(0);
    int order;
    TRY(jinja_compare(r, &given[0], &zero, &order));
    *out = given[0];
    return order < 0 ? jinja_operate(r, OP_SUBTRACT, &zero, &given[0], out) : TRIREME_OK;
}

// ---- tests

#define TYPE_TEST(name, condition)               \
    CALLABLE(name) {                             \
        (void)r;                                 \
        const struct jinja_value *v = &given[0]; \
        *out = jinja_boolean(condition);         \
        return TRIREME_OK;                       \
    }
TYPE_TEST(test_defined, v->type != JINJA_UNDEFINED)
TYPE_TEST(test_undefined, v->type == JINJA_UNDEFINED)
TYPE_TEST(test_none, v->type == JINJA_NONE)
TYPE_TEST(test_boolean, v->type == JINJA_BOOLEAN)
TYPE_TEST(test_true, v->type == JINJA_BOOLEAN && v->boolean)
TYPE_TEST(test_false, v->type == JINJA_BOOLEAN && !v->boolean)
TYPE_TEST(test_integer, v->type == JINJA_INTEGER)
TYPE_TEST(test_float, v->type == JINJA_REAL)
TYPE_TEST(test_number, jinja_is_number(v))
TYPE_TEST(test_string, v->type == JINJA_STRING)
TYPE_TEST(test_mapping, v->type == JINJA_DICT)
// What is undefined counts as a sequence of nothing.
TYPE_TEST(test_sequence,
          v->type == JINJA_STRING || v->type == JINJA_LIST || v->type == JINJA_DICT || v->type == JINJA_UNDEFINED)

CALLABLE(test_odd) {
    int64_t number = 0;
    TRY(expect_integer(r, &given[0], INT64_MIN, INT64_MAX, &number));
    *out = jinja_boolean(number % 2 != 0);
    return TRIREME_OK;
}

CALLABLE(test_even) {
    TRY(test_odd(r, given, out));
    out->boolean = !out->boolean;
    return TRIREME_OK;
}

CALLABLE(test_eq) {
    return jinja_operate(r, OP_EQUAL, &given[0], &given[1], out);
}

CALLABLE(test_ne) {
    return jinja_operate(r, OP_UNEQUAL, &given[0], &given[1], out);
}

CALLABLE(test_lt) {
    return jinja_operate(r, OP_LESS, &given[0], &given[1], out);
}

CALLABLE(test_gt) {
    return jinja_operate(r, OP_GREATER, &given[0], &given[1], out);
}

CALLABLE(test_in) {
    return jinja_operate(r, OP_IN, &given[0], &given[1], out);
}

// ---- functions

CALLABLE(function_range) {
    int64_t part[3] = {0, 0, 1};
    const bool both = is_given(&given[2]);
    TRY(expect_integer(r, &given[1], -INT32_MAX, INT32_MAX, &part[both ? 0 : 1]));
    if (both)
        TRY(expect_integer(r, &given[2], -INT32_MAX, INT32_MAX, &part[1]));
    if (is_given(&given[3]))
        TRY(expect_integer(r, &given[3], -INT32_MAX, INT32_MAX, &part[2]));
    if (part[2] == 0)
        return jinja_refuse(r, "a range with a step of 0");
    const int64_t span = part[2] > 0 ? part[1] - part[0] : part[0] - part[1],
                  count = span > 0 ? divide_up(span, part[2] > 0 ? part[2] : -part[2]) : 0;
    if (count > 100000)
        return jinja_refuse(r, "a range of %" PRId64 " numbers, at most 100000 are supported", count);
    struct jinja_value *item = arena_add(&r->arena, (size_t)count * sizeof *item);
    TRY(jinja_work(r, (size_t)count));
    for (int64_t i = 0; i < count; i++)
        item[i] = jinja_integer(part[0] + i * part[2]);
    *out = jinja_items(item, (size_t)count);
    return TRIREME_OK;
}

CALLABLE(function_raise_exception) {
    char excerpt[JSON_EXCERPT_BYTES];
    struct jinja_value message;
    (void)out;
    TRY(string_of(r, &given[1], &message));
    return jinja_refuse(r, "the chat is refused: %s", json_excerpt_bytes(message.string, message.count, excerpt));
}

CALLABLE(function_strftime_now) {
    char format[100], text[200];
    const time_t now = time(NULL);
    struct tm parts;
    TRY(expect_string(r, &given[1], "strftime_now"));
    snprintf(format, sizeof format, "%.*s", (int)MIN(given[1].count, sizeof format - 1), given[1].string);
    localtime_r(&now, &parts);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    const size_t length = strftime(text, sizeof text, format, &parts);
#pragma GCC diagnostic pop
    struct text copy = {0};
    text_add_bytes(&copy, text, length);
    *out = jinja_take(r, &copy);
    return TRIREME_OK;
}

// ---- the tables

static const struct jinja_callable FILTERS[] = {
    {"abs", "", filter_abs},
    {"capitalize", "", any_capitalize},
    {"count", "", filter_length},
    {"d", "/default_value boolean", filter_default},
    {"default", "/default_value boolean", filter_default},
    {"dictsort", "", filter_dictsort},
    {"first", "", filter_first},
    {"indent", "/width first", filter_indent},
    {"int", "", filter_int},
    {"items", "", filter_items},
    {"join", "/d", filter_join},
    {"last", "", filter_last},
    {"length", "", filter_length},
    {"list", "", filter_list},
    {"lower", "", any_lower},
    {"map", "/filter attribute", filter_map},
    {"reject", "/test value", filter_reject},
    {"rejectattr", "attribute /test value", filter_rejectattr},
    {"replace", "old new /count", any_replace},
    {"reverse", "", filter_reverse},
    {"safe", "", filter_string},
    {"select", "/test value", filter_select},
    {"selectattr", "attribute /test value", filter_selectattr},
    {"string", "", filter_string},
    {"tojson", "/indent ensure_ascii separators sort_keys", filter_tojson},
    {"trim", "/chars", filter_trim},
    {"upper", "", any_upper},
};
static const struct jinja_callable TESTS[] = {
    {"boolean", "", test_boolean}, {"defined", "", test_defined},   {"eq", "other", test_eq},
    {"equalto", "other", test_eq}, {"even", "", test_even},         {"false", "", test_false},
    {"float", "", test_float},     {"gt", "other", test_gt},        {"in", "other", test_in},
    {"integer", "", test_integer}, {"iterable", "", test_sequence}, {"lt", "other", test_lt},
    {"mapping", "", test_mapping}, {"ne", "other", test_ne},        {"none", "", test_none},
    {"number", "", test_number},   {"odd", "", test_odd},           {"sequence", "", test_sequence},
    {"string", "", test_string},   {"true", "", test_true},         {"undefined", "", test_undefined},
};
static const struct jinja_callable FUNCTIONS[] = {
    {"raise_exception", "message", function_raise_exception},
    {"range", "start /stop step", function_range},
    {"strftime_now", "format", function_strftime_now},
};
static const struct jinja_callable METHODS[] = {
    {"capitalize", "", any_capitalize},
    {"endswith", "suffix", method_endswith},
    {"find", "sub", method_find},
    {"get", "key /default", method_get},
    {"items", "", method_items},
    {"join", "iterable", method_join},
    {"keys", "", method_keys},
    {"lower", "", any_lower},
    {"lstrip", "/chars", method_lstrip},
    {"replace", "old new /count", any_replace},
    {"rstrip", "/chars", method_rstrip},
    {"split", "/sep maxsplit", method_split},
    {"startswith", "prefix", method_startswith},
    {"strip", "/chars", method_strip},
    {"upper", "", any_upper},
    {"values", "", method_values},
};

static const struct jinja_callable *callable_find(const struct jinja_callable *table, size_t count,
                                                  struct jinja_word name) {
    for (size_t i = 0; i < count; i++)
        if (jinja_word_is(name, table[i].name))
            return &table[i];
    return NULL;
}

const struct jinja_callable *jinja_filter(struct jinja_word name) {
    return callable_find(FILTERS, ARRAY_LENGTH(FILTERS), name);
}

const struct jinja_callable *jinja_test(struct jinja_word name) {
    return callable_find(TESTS, ARRAY_LENGTH(TESTS), name);
}

const struct jinja_callable *jinja_function(struct jinja_word name) {
    return callable_find(FUNCTIONS, ARRAY_LENGTH(FUNCTIONS), name);
}

const struct jinja_callable *jinja_method(struct jinja_word name) {
    return callable_find(METHODS, ARRAY_LENGTH(METHODS), name);
}
