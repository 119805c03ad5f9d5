// tokenizer.json is read in two ways. Vocabulary and merges are nearly all of it, hundreds of thousands of short
// strings: they are found in the text and read where they stand. The rest is small, and becomes a tree.
#include "tokenizer/tokenizer_parts.h"

#include "base/json_line.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>

// A position in the text of a value that is known to be JSON.
struct parts_reader {
    const char *file; // where the whole text begins
    const char *at, *end;
    const char *where, *member;
    struct text buffer; // of a string that has escapes
    trireme_error *error;
};

static trireme_status parts_refuse(const struct parts_reader *r, const char *problem) {
    error_set(r->error, TRIREME_ERROR_CORRUPT, "%s: byte %zu: \"%s\": %s", r->where, (size_t)(r->at - r->file),
              r->member, problem);
    return TRIREME_ERROR_CORRUPT;
}

static char parts_peek(struct parts_reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
        r->at++;
    return r->at < r->end ? *r->at : '\0';
}

static bool parts_take(struct parts_reader *r, char c) {
    const bool there = parts_peek(r) == c;
    r->at += there;
    return there;
}

// The bytes that the string there stands for, borrowed until the next call.
static trireme_status parts_read_string(struct parts_reader *r, struct token_bytes *out) {
    if (parts_peek(r) != '"')
        return parts_refuse(r, "expected a string");
    const char *begin = r->at + 1, *end = begin;
    bool escapes = false;
    while (*end != '"') {
        escapes |= *end == '\\' || (unsigned char)*end < 0x20;
        end += *end == '\\' ? 2 : 1;
    }
    struct json_part part = {begin - 1, (size_t)(end - begin) + 2};
    *out = (struct token_bytes){begin, (uint32_t)(end - begin)};
    if (escapes) {
        char piece[256];
        trireme_status status = json_string_check(part, r->at - r->file, r->error);
        if (status != TRIREME_OK)
            return error_prefix(r->error, status, "%s", r->where);
        r->buffer.length = 0;
        for (size_t n; (n = json_string_read(&part, piece, sizeof piece)) > 0;)
            text_add_bytes(&r->buffer, piece, n);
        *out = (struct token_bytes){r->buffer.text ? r->buffer.text : "", (uint32_t)r->buffer.length};
    }
    r->at = end + 1;
    return TRIREME_OK;
}

static trireme_status parts_read_id(struct parts_reader *r, int32_t *out) {
    int64_t id = 0;
    parts_peek(r);
    const char *begin = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9' && id < INT32_MAX)
        id = 10 * id + (*r->at++ - '0');
    const char next = r->at < r->end ? *r->at : ',';
    if (r->at == begin || id >= INT32_MAX || (next >= '0' && next <= '9') || strchr(".eE", next))
        return parts_refuse(r, "expected an id, an integer below 2^31 - 1");
    *out = (int32_t)id;
    return TRIREME_OK;
}

// Adds a digit to a significand; false where it has no room, and all digits from there on count as 0.
static bool significand_add(uint64_t *significand, char digit) {
    uint64_t more;
    if (__builtin_mul_overflow(*significand, 10, &more) || __builtin_add_overflow(more, (uint64_t)(digit - '0'), &more))
        return false;
    *significand = more;
    return true;
}

static double power_of_ten(int64_t exponent) {
    char text[24];
    snprintf(text, sizeof text, "1e%lld", (long long)exponent);
    return strtod(text, NULL);
}

// significand * 10^exponent, rounded as serde_json does.
static double scale_significand(uint64_t significand, int64_t exponent) {
    enum { STEP = 308 };
    double value = (double)significand;
    for (; exponent < -STEP && value != 0; exponent += STEP)
        value /= power_of_ten(STEP);
    if (value == 0)
        return 0;
    return exponent < 0 ? value / power_of_ten(-exponent) : value * power_of_ten(MIN(exponent, STEP + 1));
}

// Not the nearest number, but the one that `tokenizers` reads, which may be its neighbour: sums of scores decide
// between ways that are equally good but for rounding.
static trireme_status parts_read_score(struct parts_reader *r, double *out) {
    uint64_t significand = 0;
    int64_t exponent = 0, given = 0;
    bool fits = true, point = false, any = false;
    parts_peek(r);
    const bool negative = r->at < r->end && *r->at == '-';
    r->at += negative;
    for (; r->at < r->end && (*r->at == '.' || (*r->at >= '0' && *r->at <= '9')); r->at++) {
        if (*r->at == '.') {
            point = true;
            continue;
        }
        any = true;
        fits = fits && significand_add(&significand, *r->at);
        exponent += point ? -fits : !fits;
    }
    if (r->at < r->end && (*r->at == 'e' || *r->at == 'E')) {
        r->at++;
        const bool below = *r->at == '-';
        for (r->at += below || *r->at == '+'; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++)
            given = MIN(10 * given + (*r->at - '0'), INT32_MAX);
        exponent += below ? -given : given;
    }
    const double score = scale_significand(significand, exponent);
    if (!any || !isfinite(score))
        return parts_refuse(r, "expected a score, a finite number");
    *out = negative ? -score : score;
    return TRIREME_OK;
}

static trireme_status parts_add_token(struct parts_reader *r, struct tokenizer_parts *p, struct token_bytes token,
                                      int32_t id) {
    bool added;
    trireme_status status = token_table_add(p->tokens, token.bytes, token.length, id, &added, r->error);
    if (status != TRIREME_OK)
        return error_prefix(r->error, TRIREME_ERROR_CORRUPT, "%s: byte %zu: \"%s\"", r->where,
                            (size_t)(r->at - r->file), r->member);
    char excerpt[JSON_EXCERPT_BYTES], problem[JSON_EXCERPT_BYTES + 80];
    if (added)
        return TRIREME_OK;
    snprintf(problem, sizeof problem, "the token %s, or its id %d, is there twice",
             json_excerpt_bytes(token.bytes, token.length, excerpt), id);
    return parts_refuse(r, problem);
}

// {"token": id, ...}
static trireme_status parts_read_vocab(struct parts_reader *r, struct tokenizer_parts *p) {
    parts_take(r, '{');
    if (parts_take(r, '}'))
        return TRIREME_OK;
    do {
        struct token_bytes token;
        int32_t id;
        TRY(parts_read_string(r, &token));
        parts_take(r, ':');
        TRY(parts_read_id(r, &id));
        TRY(parts_add_token(r, p, token, id));
    } while (parts_take(r, ','));
    return TRIREME_OK;
}

// [["token", score], ...]
static trireme_status parts_read_scored(struct parts_reader *r, struct tokenizer_parts *p) {
    parts_take(r, '[');
    if (parts_take(r, ']'))
        return TRIREME_OK;
    do {
        struct token_bytes token;
        double score;
        if (!parts_take(r, '['))
            return parts_refuse(r, "expected a pair of a token and its score");
        TRY(parts_read_string(r, &token));
        if (!parts_take(r, ','))
            return parts_refuse(r, "expected a pair of a token and its score");
        TRY(parts_add_token(r, p, token, (int32_t)p->scores.count));
        TRY(parts_read_score(r, &score));
        VEC_PUSH(&p->scores, score);
        if (!parts_take(r, ']'))
            return parts_refuse(r, "expected a pair of a token and its score");
    } while (parts_take(r, ','));
    return TRIREME_OK;
}

static trireme_status parts_find_token(struct parts_reader *r, const struct tokenizer_parts *p, const char *bytes,
                                       size_t length, int32_t *out) {
    char excerpt[JSON_EXCERPT_BYTES], problem[JSON_EXCERPT_BYTES + 80];
    *out = token_table_find(p->tokens, bytes, length);
    if (*out >= 0)
        return TRIREME_OK;
    snprintf(problem, sizeof problem, "%s of a merge is not in the vocabulary",
             json_excerpt_bytes(bytes, length, excerpt));
    return parts_refuse(r, problem);
}

// A merge as one string: two tokens with a space between.
static trireme_status parts_read_joined(struct parts_reader *r, const struct tokenizer_parts *p,
                                        struct token_merge *out, bool *is_merge) {
    static const char VERSION[] = "#version"; // of old files, as their first merge
    struct token_bytes both;
    TRY(parts_read_string(r, &both));
    *is_merge = both.length < sizeof VERSION - 1 || memcmp(both.bytes, VERSION, sizeof VERSION - 1) != 0;
    if (!*is_merge)
        return TRIREME_OK;
    const char *space = memchr(both.bytes, ' ', both.length), *end = both.bytes + both.length;
    if (!space || memchr(space + 1, ' ', (size_t)(end - space - 1)))
        return parts_refuse(r, "expected two tokens with one space between");
    TRY(parts_find_token(r, p, both.bytes, (size_t)(space - both.bytes), &out->left));
    return parts_find_token(r, p, space + 1, (size_t)(end - space - 1), &out->right);
}

static trireme_status parts_read_pair(struct parts_reader *r, const struct tokenizer_parts *p,
                                      struct token_merge *out) {
    int32_t *const to[] = {&out->left, &out->right};
    for (int i = 0; i < 2; i++) {
        struct token_bytes token;
        if (!parts_take(r, i ? ',' : '['))
            return parts_refuse(r, "expected a pair of tokens");
        TRY(parts_read_string(r, &token));
        TRY(parts_find_token(r, p, token.bytes, token.length, to[i]));
    }
    return parts_take(r, ']') ? TRIREME_OK : parts_refuse(r, "expected a pair of tokens");
}

static trireme_status parts_read_merges(struct parts_reader *r, struct tokenizer_parts *p) {
    if (!parts_take(r, '['))
        return parts_refuse(r, "expected an array");
    if (parts_take(r, ']'))
        return TRIREME_OK;
    const bool joined = parts_peek(r) == '"';
    do {
        struct token_merge merge;
        bool is_merge = true;
        TRY(joined ? parts_read_joined(r, p, &merge, &is_merge) : parts_read_pair(r, p, &merge));
        if (is_merge)
            VEC_PUSH(&p->merges, merge);
    } while (parts_take(r, ','));
    return TRIREME_OK;
}

// ---- the rest

// Finds members of an object inside the text, each at most once.
static trireme_status parts_find(const char *text, struct json_part object, const char *where,
                                 struct json_wanted *wanted, size_t count, trireme_error *error) {
    trireme_status status =
        json_line_find_members(object.text, object.length, object.text - text, wanted, count, error);
    if (status != TRIREME_OK)
        return error_prefix(error, status, "%s", where);
    for (size_t i = 0; i < count; i++)
        if (wanted[i].found > 1)
            FAIL(TRIREME_ERROR_CORRUPT, "%s: \"%s\" is there twice", where, wanted[i].key);
    return TRIREME_OK;
}

// Adds text [begin, end) but for what `part` of it holds: that becomes null, and keeps its line ends, so that messages
// name the right lines.
static const char *parts_leave_out(struct text *out, const char *begin, struct json_part part) {
    if (!part.text)
        return begin;
    text_add_bytes(out, begin, (size_t)(part.text - begin));
    text_add_bytes(out, "null", 4);
    const char *end = part.text + part.length;
    for (const char *at = part.text; (at = memchr(at, '\n', (size_t)(end - at))); at++)
        text_add_bytes(out, "\n", 1);
    return end;
}

static trireme_status parts_describe(struct tokenizer_parts *p, const char *text, size_t length, const char *where,
                                     struct json_part vocab, struct json_part merges, trireme_error *error) {
    struct text rest = {0};
    const bool ordered = vocab.text < merges.text;
    const char *at = parts_leave_out(&rest, text, ordered ? vocab : merges);
    at = parts_leave_out(&rest, at, ordered ? merges : vocab);
    text_add_bytes(&rest, at, (size_t)(text + length - at));
    trireme_status status = json_parse(rest.text, rest.length, where, &p->description, error);
    text_release(&rest);
    TRY(status);
    json_t *model = json_object_get(p->description, "model");
    json_object_del(model, "vocab");
    json_object_del(model, "merges");
    return TRIREME_OK;
}

static trireme_status parts_read(struct tokenizer_parts *p, const char *text, size_t length, const char *where,
                                 trireme_error *error) {
    struct utf8_checker utf8 = {0};
    if (!utf8_check(&utf8, text, length) || !utf8_finish(&utf8))
        FAIL(TRIREME_ERROR_CORRUPT, "%s: byte %" PRId64 ": not UTF-8", where, utf8.start);
    const struct json_part whole = {text, length};
    struct json_wanted top = {.key = "model"}, inside[] = {{.key = "vocab"}, {.key = "merges"}};
    TRY(parts_find(text, whole, where, &top, 1, error));
    const struct json_part model = top.value;
    if (!model.text || *model.text != '{')
        FAIL(TRIREME_ERROR_CORRUPT, "%s: \"model\" is %s: it must be an object", where,
             model.text ? "of another kind" : "missing");
    TRY(parts_find(text, model, where, inside, ARRAY_LENGTH(inside), error));
    const struct json_part vocab = inside[0].value, merges = inside[1].value;
    TRY(parts_describe(p, text, length, where, vocab, merges, error));
    if (!vocab.text || !strchr("{[", *vocab.text))
        return TRIREME_OK; // of a kind that is refused by its name
    struct parts_reader r = {.file = text, .where = where, .error = error};
    r.member = "model.vocab", r.at = vocab.text, r.end = vocab.text + vocab.length;
    trireme_status status = *vocab.text == '{' ? parts_read_vocab(&r, p) : parts_read_scored(&r, p);
    if (status == TRIREME_OK && merges.text) {
        r.member = "model.merges", r.at = merges.text, r.end = merges.text + merges.length;
        status = parts_read_merges(&r, p);
    }
    text_release(&r.buffer);
    return status;
}

trireme_status tokenizer_parts_parse(struct tokenizer_parts *out, const char *text, size_t length, const char *where,
                                     trireme_error *error) {
    struct tokenizer_parts parts = {.tokens = token_table_create()};
    const size_t mark = utf8_mark(text, length);
    trireme_status status = parts_read(&parts, text + mark, length - mark, where, error);
    if (status != TRIREME_OK)
        tokenizer_parts_release(&parts);
    else
        *out = parts;
    return status;
}

void tokenizer_parts_release(struct tokenizer_parts *parts) {
    json_decref(parts->description);
    token_table_free(parts->tokens);
    VEC_RELEASE(&parts->merges);
    VEC_RELEASE(&parts->ranks);
    VEC_RELEASE(&parts->scores);
    free(parts->bos);
    free(parts->eos);
    *parts = (struct tokenizer_parts){0};
}

// ---- writing

// json_add_text puts a comma before what does not begin a line, an object or an array.
static void parts_write_token(struct text *out, struct token_bytes token) {
    const struct text value = {.text = (char *)token.bytes, .length = token.length};
    json_add_text(out, NULL, &value);
}

static void parts_write_vocab(const struct tokenizer_parts *p, struct text *out) {
    const bool scored = p->scores.count > 0;
    const char *between = "\n";
    text_add(out, "\"vocab\":%s", scored ? "[" : "{");
    for (int32_t id = 0; id < token_table_size(p->tokens); id++) {
        const struct token_bytes token = token_table_token(p->tokens, id);
        if (!token.bytes)
            continue;
        text_add(out, "%s%s", between, scored ? "[" : "");
        parts_write_token(out, token);
        if (scored) {
            json_add_number(out, NULL, isinf(p->scores.item[id]) ? 0 : p->scores.item[id]);
            text_add(out, "]");
        } else {
            text_add(out, ":%d", id);
        }
        between = ",\n";
    }
    text_add(out, scored ? "\n]" : "\n}");
}

static void parts_write_merges(const struct tokenizer_parts *p, struct text *out) {
    text_add(out, ",\n\"merges\":[");
    for (size_t i = 0; i < p->merges.count; i++) {
        text_add(out, i ? ",\n[" : "\n[");
        parts_write_token(out, token_table_token(p->tokens, p->merges.item[i].left));
        parts_write_token(out, token_table_token(p->tokens, p->merges.item[i].right));
        text_add(out, "]");
    }
    text_add(out, "\n]");
}

// Members of an object, one a line, each with a comma after it.
static void parts_write_members(const json_t *object, const char *but, struct text *out) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        if (but && strcmp(key, but) == 0)
            continue;
        json_add_value(out, key, value);
        text_add(out, ",\n");
    }
}

void tokenizer_parts_write(const struct tokenizer_parts *parts, struct text *out) {
    text_add(out, "{\n");
    parts_write_members(parts->description, "model", out);
    text_add(out, "\"model\":{\n");
    parts_write_members(json_object_get(parts->description, "model"), NULL, out);
    parts_write_vocab(parts, out);
    if (parts->scores.count == 0)
        parts_write_merges(parts, out);
    text_add(out, "\n}\n}\n");
}
