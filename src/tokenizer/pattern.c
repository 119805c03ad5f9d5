#include "tokenizer/pattern.h"

#include "tokenizer/split_patterns.h"
#include "tokenizer/text_work_parts.h"
#include "tokenizer/unicode.h"

struct pattern {
    struct text literal;           // where there is no expression
    struct expression *expression; // NULL: the literal
    bool parts_words;              // the expression does
};

trireme_status pattern_create_regex(struct pattern **out, const char *regex, trireme_error *error) {
    struct pattern *p = mem_alloc(sizeof *p);
    p->parts_words = split_pattern_name(regex);
    trireme_status status = expression_create(&p->expression, regex, strlen(regex), error);
    if (status == TRIREME_OK)
        *out = p;
    else
        free(p);
    return status;
}

trireme_status pattern_create(struct pattern **out, const json_t *description, const char *where,
                              trireme_error *error) {
    const json_t *literal = json_object_get(description, "String"), *regex = json_object_get(description, "Regex");
    if (json_object_size(description) != 1 || !(json_is_string(literal) || json_is_string(regex)))
        FAIL(TRIREME_ERROR_USAGE, "%s: \"pattern\" must be an object with \"String\" or \"Regex\", which is a string",
             where);
    // An empty text matches between all characters, as an empty expression does.
    if (literal && *json_string_value(literal)) {
        struct pattern *p = mem_alloc(sizeof *p);
        text_add_bytes(&p->literal, json_string_value(literal), json_string_length(literal));
        *out = p;
        return TRIREME_OK;
    }
    trireme_status status = pattern_create_regex(out, json_string_value(literal ? literal : regex), error);
    return status == TRIREME_OK ? status : error_prefix(error, status, "%s", where);
}

void pattern_free(struct pattern *p) {
    if (!p)
        return;
    text_release(&p->literal);
    expression_free(p->expression);
    free(p);
}

bool pattern_is_character(const struct pattern *p) {
    size_t bytes;
    return !p->expression && (unicode_decode(p->literal.text, &bytes), bytes == p->literal.length);
}

// Letters in all versions of Unicode that utf8proc and PCRE2 may know.
static bool is_old_letter(uint32_t code) {
    return (code < 0x600 || (code >= 0x3041 && code <= 0x30FA) || (code >= 0x4E00 && code <= 0x9FA5) ||
            (code >= 0xAC00 && code <= 0xD7A3)) &&
           unicode_is(unicode_categories(), code, UNICODE_LETTERS);
}

// No match of the known patterns has a letter with a space or a line end behind it; they look behind nowhere, and ahead
// but from white space. So a match ends at the letter, the next begins behind it, and neither knows of the other.
enum pattern_seam pattern_seam(const struct pattern *p, uint32_t left, uint32_t right) {
    size_t bytes;
    if (p->expression)
        return p->parts_words && is_old_letter(left) && (right == ' ' || right == '\n') ? SEAM_BOTH : SEAM_UNKNOWN;
    const uint32_t first = unicode_decode(p->literal.text, &bytes);
    if (bytes == p->literal.length)
        return left == first ? (right == first ? SEAM_BOTH : SEAM_LEFT) : right == first ? SEAM_RIGHT : SEAM_WITHIN;
    for (size_t at = 0; at < p->literal.length; at += bytes)
        if (unicode_decode(p->literal.text + at, &bytes) == right)
            return SEAM_UNKNOWN;
    return SEAM_WITHIN;
}

trireme_status pattern_find(const struct pattern *p, struct text_work *work, const char *text, size_t length,
                            struct spans *out, trireme_error *error) {
    if (p->expression) {
        if (!work->matching)
            work->matching = expression_memory_create();
        return expression_find(p->expression, work->matching, text, length, out, error);
    }
    spans_find_literal(text, length, p->literal.text, p->literal.length, out);
    return TRIREME_OK;
}
