#include "tokenizer/pattern.h"

#include "tokenizer/text_work_parts.h"

struct pattern {
    struct text literal;           // where there is no expression
    struct expression *expression; // NULL: the literal
};

trireme_status pattern_create_regex(struct pattern **out, const char *regex, trireme_error *error) {
    struct pattern *p = mem_alloc(sizeof *p);
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
