// A parser by recursive descent: a function for each level of precedence, the lowest first.
#include "chat/jinja_lex.h"

enum { DEPTH_MAX = 120, LENGTH_MAX = 1 << 20 };

struct parser {
    struct jinja *j;
    const struct jinja_token *at;
    int depth; // of expressions and blocks inside one another
    bool in_loop, in_macro;
    VEC(struct jinja_word) macros;        // their names
    VEC(const struct jinja_node *) calls; // of what is no function
    trireme_error *error;
};

static trireme_status parse_refuse(const struct parser *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static trireme_status parse_refuse(const struct parser *p, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *what = mem_vprintf(format, args);
    va_end(args);
    error_set(p->error, TRIREME_ERROR_USAGE, "%s line %d: %s", p->j->where, p->at->line, what);
    free(what);
    return TRIREME_ERROR_USAGE;
}

// The token that comes next, as a message may say it.
static const char *found_name(const struct parser *p, char buffer[JSON_EXCERPT_BYTES]) {
    switch (p->at->type) {
    case TOKEN_END:
        return "the end of the template";
    case TOKEN_DATA:
        return "text";
    default:
        return json_excerpt_bytes(p->at->word.text, MIN(p->at->word.length, 40), buffer);
    }
}

static trireme_status refuse_found(const struct parser *p, const char *expected) {
    char excerpt[JSON_EXCERPT_BYTES];
    return parse_refuse(p, "expected %s, found %s", expected, found_name(p, excerpt));
}

static trireme_status refuse_unsupported(const struct parser *p, const char *what, struct jinja_word name) {
    char excerpt[JSON_EXCERPT_BYTES];
    return parse_refuse(p, "the %s %s is not supported", what,
                        json_excerpt_bytes(name.text, MIN(name.length, 40), excerpt));
}

static trireme_status parse_deeper(struct parser *p) {
    return ++p->depth > DEPTH_MAX ? parse_refuse(p, "more than %d levels deep", DEPTH_MAX) : TRIREME_OK;
}

static bool sees_sign(const struct parser *p, const char *sign) {
    return p->at->type == TOKEN_SIGN && jinja_word_is(p->at->word, sign);
}

static bool sees_name(const struct parser *p, const char *name) {
    return p->at->type == TOKEN_NAME && jinja_word_is(p->at->word, name);
}

static bool pass_sign(struct parser *p, const char *sign) {
    const bool there = sees_sign(p, sign);
    p->at += there;
    return there;
}

static bool pass_name(struct parser *p, const char *name) {
    const bool there = sees_name(p, name);
    p->at += there;
    return there;
}

static trireme_status expect_sign(struct parser *p, const char *sign) {
    return pass_sign(p, sign) ? TRIREME_OK : refuse_found(p, sign);
}

static trireme_status expect_type(struct parser *p, enum jinja_token_type type, const char *what) {
    if (p->at->type != type)
        return refuse_found(p, what);
    p->at++;
    return TRIREME_OK;
}

static trireme_status expect_name(struct parser *p, struct jinja_word *out) {
    *out = p->at->word;
    return expect_type(p, TOKEN_NAME, "a name");
}

static struct jinja_node *node_add(struct parser *p, enum jinja_kind kind) {
    struct jinja_node *n = arena_add(&p->j->arena, sizeof *n);
    n->kind = kind;
    n->line = p->at->line;
    return n;
}

static void node_push(struct parser *p, struct jinja_node *n, struct jinja_node *item) {
    // A power of two is full.
    if ((n->count & (n->count - 1)) == 0) {
        struct jinja_node **bigger = arena_add(&p->j->arena, MAX(2 * n->count, 1) * sizeof *bigger);
        if (n->count)
            memcpy(bigger, n->item, n->count * sizeof *bigger);
        n->item = bigger;
    }
    n->item[n->count++] = item;
}

// ---- expressions

static trireme_status parse_expression(struct parser *p, struct jinja_node **out);

// Expressions with commas between them, up to a closing sign, which is passed. *comma: there was one.
static trireme_status parse_listed(struct parser *p, const char *closes, struct jinja_node *list, bool *comma) {
    *comma = false;
    while (!pass_sign(p, closes)) {
        struct jinja_node *item;
        TRY(parse_expression(p, &item));
        node_push(p, list, item);
        if (pass_sign(p, ",")) {
            *comma = true;
        } else {
            TRY(expect_sign(p, closes));
            break;
        }
    }
    return TRIREME_OK;
}

// Arguments in parentheses, of which the first was passed.
static trireme_status parse_arguments(struct parser *p, struct jinja_node *call) {
    while (!pass_sign(p, ")")) {
        struct jinja_node *item;
        if (sees_sign(p, "*") || sees_sign(p, "**"))
            return refuse_unsupported(p, "argument", p->at->word);
        if (p->at->type == TOKEN_NAME && p->at[1].type == TOKEN_SIGN && jinja_word_is(p->at[1].word, "=")) {
            item = node_add(p, NODE_KEYWORD);
            item->word = p->at->word;
            p->at += 2;
            TRY(parse_expression(p, &item->a));
        } else {
            TRY(parse_expression(p, &item));
            if (call->count && call->item[call->count - 1]->kind == NODE_KEYWORD)
                return parse_refuse(p, "an argument without a name comes after one with a name");
        }
        node_push(p, call, item);
        if (!pass_sign(p, ",")) {
            TRY(expect_sign(p, ")"));
            break;
        }
    }
    return TRIREME_OK;
}

// Puts arguments into the order of the parameters: afterwards `item` has one for each, NULL where it is not given.
static trireme_status arguments_bind(struct parser *p, struct jinja_node *call) {
    const char *at = call->callable->parameters;
    struct jinja_node *bound = node_add(p, NODE_LIST);
    size_t used = 0;
    bool optional = false;
    while (*at) {
        const bool slash = *at == '/';
        at += slash;
        optional |= slash;
        const struct jinja_word name = {at, strcspn(at, " ")};
        struct jinja_node *given = NULL;
        if (bound->count < call->count && call->item[bound->count]->kind != NODE_KEYWORD)
            given = call->item[bound->count];
        for (size_t i = 0; i < call->count && !given; i++)
            if (call->item[i]->kind == NODE_KEYWORD && call->item[i]->word.length == name.length &&
                memcmp(call->item[i]->word.text, name.text, name.length) == 0)
                given = call->item[i]->a;
        if (!given && !optional)
            return parse_refuse(p, "%s lacks its argument \"%.*s\"", call->callable->name, (int)name.length, name.text);
        used += given != NULL;
        node_push(p, bound, given);
        at += name.length;
        at += strspn(at, " ");
    }
    if (used < call->count) {
        const struct jinja_node *last = call->item[call->count - 1];
        if (last->kind == NODE_KEYWORD)
            return parse_refuse(p, "%s has an argument \"%.*s\" that is not supported, or there twice",
                                call->callable->name, (int)last->word.length, last->word.text);
        return parse_refuse(p, "%s has %zu arguments, supported are %zu", call->callable->name, call->count,
                            bound->count);
    }
    CHECK(bound->count < JINJA_ARGUMENTS);
    call->item = bound->item;
    call->count = bound->count;
    return TRIREME_OK;
}

static trireme_status parse_tuple(struct parser *p, struct jinja_node **out) {
    struct jinja_node *tuple = node_add(p, NODE_TUPLE);
    bool comma;
    TRY(parse_listed(p, ")", tuple, &comma));
    *out = tuple->count == 1 && !comma ? tuple->item[0] : tuple;
    return TRIREME_OK;
}

static trireme_status parse_dict(struct parser *p, struct jinja_node **out) {
    struct jinja_node *dict = node_add(p, NODE_DICT);
    while (!pass_sign(p, "}")) {
        struct jinja_node *key, *value;
        TRY(parse_expression(p, &key));
        TRY(expect_sign(p, ":"));
        TRY(parse_expression(p, &value));
        node_push(p, dict, key);
        node_push(p, dict, value);
        if (!pass_sign(p, ",")) {
            TRY(expect_sign(p, "}"));
            break;
        }
    }
    *out = dict;
    return TRIREME_OK;
}

static trireme_status parse_string(struct parser *p, struct jinja_node *out) {
    struct text all = {0};
    for (; p->at->type == TOKEN_STRING; p->at++)
        text_add_bytes(&all, p->at->value.string, p->at->value.count);
    char *copy = arena_add(&p->j->arena, all.length + 1);
    if (all.length)
        memcpy(copy, all.text, all.length);
    out->value = jinja_borrow(copy, all.length);
    text_release(&all);
    return TRIREME_OK;
}

static trireme_status parse_primary(struct parser *p, struct jinja_node **out) {
    static const struct {
        const char *word;
        struct jinja_value value;
    } WORDS[] = {{"true", {.type = JINJA_BOOLEAN, .boolean = true}},
                 {"True", {.type = JINJA_BOOLEAN, .boolean = true}},
                 {"false", {.type = JINJA_BOOLEAN}},
                 {"False", {.type = JINJA_BOOLEAN}},
                 {"none", {.type = JINJA_NONE}},
                 {"None", {.type = JINJA_NONE}}};
    struct jinja_node *n = *out = node_add(p, NODE_CONSTANT);
    bool comma;
    if (pass_sign(p, "("))
        return parse_tuple(p, out);
    if (pass_sign(p, "{"))
        return parse_dict(p, out);
    if (pass_sign(p, "[")) {
        n->kind = NODE_LIST;
        return parse_listed(p, "]", n, &comma);
    }
    if (p->at->type == TOKEN_STRING)
        return parse_string(p, n);
    if (p->at->type == TOKEN_NUMBER) {
        n->value = (p->at++)->value;
        return TRIREME_OK;
    }
    for (size_t i = 0; i < ARRAY_LENGTH(WORDS); i++)
        if (pass_name(p, WORDS[i].word)) {
            n->value = WORDS[i].value;
            return TRIREME_OK;
        }
    if (p->at->type != TOKEN_NAME)
        return refuse_found(p, "an expression");
    n->kind = NODE_NAME;
    n->word = (p->at++)->word;
    return TRIREME_OK;
}

static trireme_status parse_slice_part(struct parser *p, struct jinja_node **out) {
    *out = NULL;
    return sees_sign(p, ":") || sees_sign(p, "]") ? TRIREME_OK : parse_expression(p, out);
}

// What is in brackets after `of`, of which the first was passed.
static trireme_status parse_item(struct parser *p, struct jinja_node *of, struct jinja_node **out) {
    struct jinja_node *n = node_add(p, NODE_ITEM);
    n->a = of;
    TRY(parse_slice_part(p, &n->b));
    if (pass_sign(p, ":")) {
        n->kind = NODE_SLICE;
        TRY(parse_slice_part(p, &n->c));
        if (pass_sign(p, ":"))
            TRY(parse_slice_part(p, &n->d));
    }
    *out = n;
    return !n->b && n->kind == NODE_ITEM ? refuse_found(p, "an index") : expect_sign(p, "]");
}

// A call of `of`, whose first parenthesis was passed.
static trireme_status parse_call(struct parser *p, struct jinja_node *of, struct jinja_node **out) {
    struct jinja_node *n = node_add(p, NODE_CALL);
    n->a = of;
    *out = n;
    if (of->kind == NODE_MEMBER) {
        n->kind = NODE_METHOD;
        n->a = of->a;
        n->word = of->word;
        n->callable = jinja_method(of->word);
        if (!n->callable)
            return refuse_unsupported(p, "method", of->word);
    } else if (of->kind == NODE_NAME) {
        n->callable = jinja_function(of->word); // unless a macro has that name
    } else {
        return parse_refuse(p, "a call of something that has no name is not supported");
    }
    TRY(parse_arguments(p, n));
    if (n->callable)
        return arguments_bind(p, n);
    VEC_PUSH(&p->calls, n);
    return TRIREME_OK;
}

static trireme_status parse_postfix(struct parser *p, struct jinja_node **out) {
    for (;;) {
        if (pass_sign(p, ".")) {
            struct jinja_node *n = node_add(p, NODE_MEMBER);
            n->a = *out;
            TRY(expect_name(p, &n->word));
            *out = n;
        } else if (pass_sign(p, "[")) {
            TRY(parse_item(p, *out, out));
        } else if (pass_sign(p, "(")) {
            TRY(parse_call(p, *out, out));
        } else {
            return TRIREME_OK;
        }
    }
}

static trireme_status parse_filter(struct parser *p, struct jinja_node **out) {
    struct jinja_node *n = node_add(p, NODE_FILTER);
    n->a = *out;
    TRY(expect_name(p, &n->word));
    n->callable = jinja_filter(n->word);
    if (!n->callable)
        return refuse_unsupported(p, "filter", n->word);
    if (pass_sign(p, "("))
        TRY(parse_arguments(p, n));
    *out = n;
    return arguments_bind(p, n);
}

// A test takes one argument without parentheses, too.
static trireme_status parse_test(struct parser *p, struct jinja_node **out) {
    struct jinja_node *n = node_add(p, NODE_TEST), *argument;
    n->a = *out;
    const bool negated = pass_name(p, "not");
    TRY(expect_name(p, &n->word));
    n->callable = jinja_test(n->word);
    if (!n->callable)
        return refuse_unsupported(p, "test", n->word);
    const bool words = sees_name(p, "else") || sees_name(p, "or") || sees_name(p, "and") || sees_name(p, "is") ||
                       sees_name(p, "if") || sees_name(p, "not") || sees_name(p, "in");
    const enum jinja_token_type type = p->at->type;
    if (pass_sign(p, "(")) {
        TRY(parse_arguments(p, n));
    } else if ((type == TOKEN_NAME && !words) || type == TOKEN_STRING || type == TOKEN_NUMBER || sees_sign(p, "[") ||
               sees_sign(p, "{")) {
        TRY(parse_primary(p, &argument));
        TRY(parse_postfix(p, &argument));
        node_push(p, n, argument);
    }
    TRY(arguments_bind(p, n));
    *out = n;
    if (negated) {
        *out = node_add(p, NODE_NOT);
        (*out)->a = n;
    }
    return TRIREME_OK;
}

static trireme_status parse_filters(struct parser *p, struct jinja_node **out) {
    for (;;)
        if (pass_sign(p, "|"))
            TRY(parse_filter(p, out));
        else if (pass_name(p, "is"))
            TRY(parse_test(p, out));
        else
            return TRIREME_OK;
}

static trireme_status parse_unary(struct parser *p, bool filters, struct jinja_node **out) {
    if (sees_sign(p, "-") || sees_sign(p, "+")) {
        const bool negates = sees_sign(p, "-");
        p->at++;
        struct jinja_node *n = node_add(p, NODE_NEGATE);
        TRY(parse_deeper(p));
        TRY(parse_unary(p, false, &n->a));
        p->depth--;
        *out = negates ? n : n->a;
    } else {
        TRY(parse_primary(p, out));
    }
    TRY(parse_postfix(p, out));
    return filters ? parse_filters(p, out) : TRIREME_OK;
}

struct sign_level {
    const char *sign[4];
    enum jinja_operator op[4];
};
static const struct sign_level LEVELS[] = {
    {{"+", "-"}, {OP_ADD, OP_SUBTRACT}},
    {{"~"}, {OP_CONCATENATE}},
    {{"*", "//", "/", "%"}, {OP_MULTIPLY, OP_FLOOR, OP_DIVIDE, OP_MODULO}},
};

static trireme_status parse_level(struct parser *p, size_t level, struct jinja_node **out) {
    if (level == ARRAY_LENGTH(LEVELS))
        return parse_unary(p, true, out);
    TRY(parse_level(p, level + 1, out));
    for (;;) {
        size_t which = 0;
        while (which < 4 && LEVELS[level].sign[which] && !sees_sign(p, LEVELS[level].sign[which]))
            which++;
        if (which == 4 || !LEVELS[level].sign[which])
            return TRIREME_OK;
        struct jinja_node *n = node_add(p, NODE_OPERATE);
        p->at++;
        n->op = LEVELS[level].op[which];
        n->a = *out;
        TRY(parse_level(p, level + 1, &n->b));
        *out = n;
    }
}

// Passes an operator that compares.
static bool pass_comparison(struct parser *p, enum jinja_operator *op) {
    static const struct {
        const char *sign;
        enum jinja_operator op;
    } SIGNS[] = {{"==", OP_EQUAL},      {"!=", OP_UNEQUAL}, {"<", OP_LESS},
                 {"<=", OP_LESS_EQUAL}, {">", OP_GREATER},  {">=", OP_GREATER_EQUAL}};
    for (size_t i = 0; i < ARRAY_LENGTH(SIGNS); i++)
        if (pass_sign(p, SIGNS[i].sign)) {
            *op = SIGNS[i].op;
            return true;
        }
    if (sees_name(p, "not") && p->at[1].type == TOKEN_NAME && jinja_word_is(p->at[1].word, "in")) {
        p->at += 2;
        *op = OP_NOT_IN;
        return true;
    }
    *op = OP_IN;
    return pass_name(p, "in");
}

static trireme_status parse_comparison(struct parser *p, struct jinja_node **out) {
    struct jinja_node *all = node_add(p, NODE_COMPARE);
    TRY(parse_level(p, 0, out));
    node_push(p, all, *out);
    for (enum jinja_operator op; pass_comparison(p, &op);) {
        struct jinja_node *n = node_add(p, NODE_OPERATE);
        n->op = op;
        TRY(parse_level(p, 0, &n->a));
        node_push(p, all, n);
    }
    if (all->count > 1)
        *out = all;
    return TRIREME_OK;
}

static trireme_status parse_not(struct parser *p, struct jinja_node **out) {
    if (!pass_name(p, "not"))
        return parse_comparison(p, out);
    struct jinja_node *n = *out = node_add(p, NODE_NOT);
    TRY(parse_deeper(p));
    TRY(parse_not(p, &n->a));
    p->depth--;
    return TRIREME_OK;
}

static trireme_status parse_and(struct parser *p, struct jinja_node **out) {
    TRY(parse_not(p, out));
    while (pass_name(p, "and")) {
        struct jinja_node *n = node_add(p, NODE_AND);
        n->a = *out;
        TRY(parse_not(p, &n->b));
        *out = n;
    }
    return TRIREME_OK;
}

static trireme_status parse_or(struct parser *p, struct jinja_node **out) {
    TRY(parse_and(p, out));
    while (pass_name(p, "or")) {
        struct jinja_node *n = node_add(p, NODE_OR);
        n->a = *out;
        TRY(parse_and(p, &n->b));
        *out = n;
    }
    return TRIREME_OK;
}

static trireme_status parse_expression(struct parser *p, struct jinja_node **out) {
    TRY(parse_deeper(p));
    TRY(parse_or(p, out));
    while (pass_name(p, "if")) {
        struct jinja_node *n = node_add(p, NODE_CHOICE);
        n->a = *out;
        TRY(parse_or(p, &n->b));
        if (pass_name(p, "else"))
            TRY(parse_expression(p, &n->c));
        *out = n;
    }
    p->depth--;
    return TRIREME_OK;
}

// ---- statements

static trireme_status parse_body(struct parser *p, const char *ends, struct jinja_node **out);

static trireme_status expect_block_end(struct parser *p) {
    return expect_type(p, TOKEN_BLOCK_END, "%}");
}

// The names that a for or a set gives values to.
static trireme_status parse_targets(struct parser *p, struct jinja_node *n) {
    const bool encloses = pass_sign(p, "(");
    do {
        struct jinja_node *target = node_add(p, NODE_NAME);
        TRY(expect_name(p, &target->word));
        if (pass_sign(p, ".")) {
            target->kind = NODE_MEMBER;
            target->a = node_add(p, NODE_NAME);
            target->a->word = target->word;
            TRY(expect_name(p, &target->word));
        }
        node_push(p, n, target);
    } while (pass_sign(p, ","));
    return encloses ? expect_sign(p, ")") : TRIREME_OK;
}

static trireme_status parse_if(struct parser *p, struct jinja_node *n) {
    n->kind = NODE_IF;
    TRY(parse_expression(p, &n->a));
    TRY(expect_block_end(p));
    TRY(parse_body(p, "elif else endif", &n->b));
    if (pass_name(p, "elif")) {
        n->c = node_add(p, NODE_IF);
        TRY(parse_deeper(p));
        TRY(parse_if(p, n->c));
        p->depth--;
        return TRIREME_OK;
    }
    if (pass_name(p, "else")) {
        TRY(expect_block_end(p));
        TRY(parse_body(p, "endif", &n->c));
    }
    p->at++;
    return TRIREME_OK;
}

static trireme_status parse_for(struct parser *p, struct jinja_node *n) {
    n->kind = NODE_FOR;
    TRY(parse_targets(p, n));
    if (!pass_name(p, "in"))
        return refuse_found(p, "\"in\"");
    // Without what `if` begins, which here chooses elements.
    TRY(parse_or(p, &n->a));
    if (pass_name(p, "if"))
        TRY(parse_expression(p, &n->b));
    if (sees_name(p, "recursive"))
        return refuse_unsupported(p, "loop", p->at->word);
    TRY(expect_block_end(p));
    const bool outer = p->in_loop;
    p->in_loop = true;
    TRY(parse_body(p, "else endfor", &n->c));
    p->in_loop = outer;
    if (pass_name(p, "else")) {
        TRY(expect_block_end(p));
        TRY(parse_body(p, "endfor", &n->d));
    }
    p->at++;
    return TRIREME_OK;
}

// Expressions with commas between them are a tuple.
static trireme_status parse_values(struct parser *p, struct jinja_node **out) {
    struct jinja_node *tuple = node_add(p, NODE_TUPLE);
    TRY(parse_expression(p, out));
    if (!sees_sign(p, ","))
        return TRIREME_OK;
    node_push(p, tuple, *out);
    while (pass_sign(p, ",")) {
        TRY(parse_expression(p, out));
        node_push(p, tuple, *out);
    }
    *out = tuple;
    return TRIREME_OK;
}

static trireme_status parse_set(struct parser *p, struct jinja_node *n) {
    n->kind = NODE_SET;
    TRY(parse_targets(p, n));
    if (pass_sign(p, "="))
        return parse_values(p, &n->a);
    n->kind = NODE_SET_BLOCK;
    if (n->count != 1 || n->item[0]->kind != NODE_NAME || sees_sign(p, "|"))
        return refuse_found(p, "=");
    TRY(expect_block_end(p));
    const bool outer = p->in_macro;
    p->in_macro = true;
    TRY(parse_body(p, "endset", &n->a));
    p->in_macro = outer;
    p->at++;
    return TRIREME_OK;
}

static trireme_status parse_macro(struct parser *p, struct jinja_node *n) {
    n->kind = NODE_MACRO;
    TRY(expect_name(p, &n->word));
    VEC_PUSH(&p->macros, n->word);
    TRY(expect_sign(p, "("));
    while (!pass_sign(p, ")")) {
        struct jinja_node *parameter = node_add(p, NODE_KEYWORD);
        TRY(expect_name(p, &parameter->word));
        if (pass_sign(p, "="))
            TRY(parse_expression(p, &parameter->a));
        node_push(p, n, parameter);
        if (!pass_sign(p, ",")) {
            TRY(expect_sign(p, ")"));
            break;
        }
    }
    TRY(expect_block_end(p));
    const bool outer = p->in_macro, loop = p->in_loop;
    p->in_macro = true;
    p->in_loop = false;
    TRY(parse_body(p, "endmacro", &n->b));
    p->in_macro = outer;
    p->in_loop = loop;
    p->at++;
    return TRIREME_OK;
}

static trireme_status parse_generation(struct parser *p, struct jinja_node *n) {
    n->kind = NODE_GENERATION;
    if (p->in_macro)
        return parse_refuse(p, "generation inside of a macro, or of a block that is set, is not supported");
    p->j->marks_generation = true;
    TRY(expect_block_end(p));
    const bool loop = p->in_loop;
    p->in_loop = false;
    TRY(parse_body(p, "endgeneration", &n->a));
    p->in_loop = loop;
    p->at++;
    return TRIREME_OK;
}

static trireme_status parse_loop_control(struct parser *p, struct jinja_node *n) {
    n->kind = jinja_word_is(p->at[-1].word, "break") ? NODE_BREAK : NODE_CONTINUE;
    return p->in_loop ? TRIREME_OK : parse_refuse(p, "break and continue belong into a loop");
}

static trireme_status parse_statement(struct parser *p, struct jinja_node **out) {
    static const struct {
        const char *name;
        trireme_status (*parse)(struct parser *p, struct jinja_node *n);
    } STATEMENTS[] = {{"if", parse_if},
                      {"for", parse_for},
                      {"set", parse_set},
                      {"macro", parse_macro},
                      {"generation", parse_generation},
                      {"break", parse_loop_control},
                      {"continue", parse_loop_control}};
    const struct jinja_word word = p->at->word;
    *out = node_add(p, NODE_BODY);
    for (size_t i = 0; i < ARRAY_LENGTH(STATEMENTS); i++)
        if (pass_name(p, STATEMENTS[i].name)) {
            TRY(parse_deeper(p));
            TRY(STATEMENTS[i].parse(p, *out));
            p->depth--;
            return expect_block_end(p);
        }
    // One that ends or goes on with another than the statement that is open.
    const bool follows = (word.length > 3 && memcmp(word.text, "end", 3) == 0) || jinja_word_is(word, "else") ||
                         jinja_word_is(word, "elif");
    return p->at->type == TOKEN_NAME && !follows ? refuse_unsupported(p, "statement", word)
                                                 : refuse_found(p, "another statement");
}

// Parses up to one of the statements named in `ends`, which comes next then; "": the end of the template.
static trireme_status parse_body(struct parser *p, const char *ends, struct jinja_node **out) {
    struct jinja_node *body = *out = node_add(p, NODE_BODY);
    for (;;) {
        struct jinja_node *n = node_add(p, NODE_TEXT);
        if (p->at->type == TOKEN_END)
            return *ends ? parse_refuse(p, "the template ends where one of these was expected: %s", ends) : TRIREME_OK;
        if (p->at->type == TOKEN_DATA) {
            n->value = (p->at++)->value;
        } else if (p->at->type == TOKEN_VARIABLE) {
            p->at++;
            n->kind = NODE_PRINT;
            TRY(parse_values(p, &n->a));
            TRY(expect_type(p, TOKEN_VARIABLE_END, "}}"));
        } else {
            TRY(expect_type(p, TOKEN_BLOCK, "a statement"));
            char name[16];
            snprintf(name, sizeof name, "%.*s", (int)MIN(p->at->word.length, sizeof name - 1), p->at->word.text);
            if (p->at->type == TOKEN_NAME && *ends && text_lists(ends, name))
                return TRIREME_OK;
            TRY(parse_statement(p, &n));
        }
        node_push(p, body, n);
    }
}

// Refuses a call of what is neither a function nor a macro. namespace and dict take whatever they are given.
static trireme_status check_calls(const struct parser *p) {
    for (size_t i = 0; i < p->calls.count; i++) {
        const struct jinja_node *call = p->calls.item[i];
        const struct jinja_word name = call->a->word;
        bool known = jinja_word_is(name, "namespace") || jinja_word_is(name, "dict");
        for (size_t m = 0; m < p->macros.count && !known; m++)
            known =
                p->macros.item[m].length == name.length && memcmp(p->macros.item[m].text, name.text, name.length) == 0;
        char excerpt[JSON_EXCERPT_BYTES];
        if (!known)
            return error_set(p->error, TRIREME_ERROR_USAGE, "%s line %d: the function %s is not supported", p->j->where,
                             call->line, json_excerpt_bytes(name.text, MIN(name.length, 40), excerpt));
    }
    return TRIREME_OK;
}

trireme_status jinja_parse(const char *text, size_t length, const char *where, struct jinja **out,
                           trireme_error *error) {
    if (length > LENGTH_MAX)
        FAIL(TRIREME_ERROR_USAGE, "%s: a template of %zu bytes, at most %d are supported", where, length, LENGTH_MAX);
    if (memchr(text, '\0', length))
        FAIL(TRIREME_ERROR_USAGE, "%s: the template has a NUL byte", where);
    struct jinja *j = mem_alloc(sizeof *j);
    struct jinja_tokens tokens = {0};
    j->where = mem_strdup(where);
    trireme_status status = jinja_lex(text, length, where, &j->arena, &tokens, error);
    if (status == TRIREME_OK) {
        struct parser p = {.j = j, .at = tokens.item, .error = error};
        status = parse_body(&p, "", &j->body);
        if (status == TRIREME_OK)
            status = check_calls(&p);
        VEC_RELEASE(&p.macros);
        VEC_RELEASE(&p.calls);
    }
    VEC_RELEASE(&tokens);
    if (status == TRIREME_OK)
        *out = j;
    else
        jinja_free(j);
    return status;
}

void jinja_free(struct jinja *j) {
    if (!j)
        return;
    arena_release(&j->arena);
    free(j->where);
    free(j);
}

bool jinja_marks_generation(const struct jinja *j) {
    return j->marks_generation;
}
