// Walks the tree. Names are looked up in scopes: the outermost one has the variables, a loop makes a scope for each
// element, a macro one for each call.
#include "chat/jinja_parts.h"

// Steps and bytes of one rendering. A chat of a million tokens takes about a tenth of it.
static const int64_t WORK_MAX = 400 * 1000 * 1000;
enum { DEPTH_MAX = 300 };

trireme_status jinja_refuse(const struct jinja_run *r, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *what = mem_vprintf(format, args);
    va_end(args);
    error_set(r->error, TRIREME_ERROR_USAGE, "%s line %d: %s", r->template->where, r->line, what);
    free(what);
    return TRIREME_ERROR_USAGE;
}

trireme_status jinja_work(struct jinja_run *r, size_t amount) {
    r->work -= (int64_t)MIN(amount, (size_t)INT64_MAX / 2);
    return r->work < 0 || r->arena.total > (size_t)WORK_MAX ? jinja_refuse(r, "rendering takes too long") : TRIREME_OK;
}

trireme_status jinja_enter(struct jinja_run *r) {
    return ++r->depth > DEPTH_MAX ? jinja_refuse(r, "more than %d levels deep", DEPTH_MAX) : TRIREME_OK;
}

// ---- scopes

static struct jinja_scope *scope_add(struct jinja_run *r, struct jinja_scope *above) {
    struct jinja_scope *scope = arena_add(&r->arena, sizeof *scope);
    scope->above = above;
    return scope;
}

static struct jinja_variable *scope_find(const struct jinja_scope *scope, struct jinja_word name) {
    struct jinja_variable *v = scope->first;
    while (v && (v->name.length != name.length || memcmp(v->name.text, name.text, name.length) != 0))
        v = v->next;
    return v;
}

static void scope_set(struct jinja_run *r, struct jinja_scope *scope, struct jinja_word name, struct jinja_value v) {
    struct jinja_variable *variable = scope_find(scope, name);
    if (!variable) {
        variable = arena_add(&r->arena, sizeof *variable);
        *variable = (struct jinja_variable){.name = name, .next = scope->first};
        scope->first = variable;
    }
    variable->value = v;
}

static struct jinja_value scope_get(const struct jinja_scope *scope, struct jinja_word name) {
    for (; scope; scope = scope->above) {
        const struct jinja_variable *v = scope_find(scope, name);
        if (v)
            return v->value;
    }
    if (jinja_function(name) || jinja_word_is(name, "namespace") || jinja_word_is(name, "dict"))
        return (struct jinja_value){.type = JINJA_CALLABLE};
    return (struct jinja_value){.type = JINJA_UNDEFINED, .string = name.text, .count = name.length};
}

// ---- expressions

static trireme_status evaluate(struct jinja_run *r, struct jinja_scope *scope, const struct jinja_node *n,
                               struct jinja_value *out);
static trireme_status execute(struct jinja_run *r, struct jinja_scope *scope, const struct jinja_node *n);

static trireme_status evaluate_all(struct jinja_run *r, struct jinja_scope *scope, const struct jinja_node *n,
                                   struct jinja_value *out) {
    struct jinja_value *item = arena_add(&r->arena, n->count * sizeof *item);
    for (size_t i = 0; i < n->count; i++)
        TRY(evaluate(r, scope, n->item[i], &item[i]));
    *out = jinja_items(item, n->count);
    out->tuple = n->kind == NODE_TUPLE;
    return TRIREME_OK;
}

static trireme_status member_set(struct jinja_run *r, struct jinja_member *member, size_t *count,
                                 struct jinja_value key, struct jinja_value value) {
    const struct jinja_value so_far = {.type = JINJA_DICT, .member = member, .count = *count}, *found;
    TRY(jinja_find(r, &so_far, &key, &found));
    if (found)
        *(struct jinja_value *)found = value;
    else
        member[(*count)++] = (struct jinja_member){key, value};
    return TRIREME_OK;
}

static trireme_status evaluate_dict(struct jinja_run *r, struct jinja_scope *scope, const struct jinja_node *n,
                                    struct jinja_value *out) {
    struct jinja_member *member = arena_add(&r->arena, n->count / 2 * sizeof *member);
    size_t count = 0;
    for (size_t i = 0; i < n->count; i += 2) {
        struct jinja_value key, value;
        TRY(evaluate(r, scope, n->item[i], &key));
        TRY(evaluate(r, scope, n->item[i + 1], &value));
        TRY(member_set(r, member, &count, key, value));
    }
    *out = (struct jinja_value){.type = JINJA_DICT, .member = member, .count = count};
    return TRIREME_OK;
}

// namespace(...) and dict(...), whose arguments are all named.
static trireme_status call_collection(struct jinja_run *r, struct jinja_scope *scope, const struct jinja_node *n,
                                      bool space, struct jinja_value *out) {
    struct jinja_member *member = arena_add(&r->arena, n->count * sizeof *member);
    struct jinja_scope *made = scope_add(r, NULL);
    size_t count = 0;
    for (size_t i = 0; i < n->count; i++) {
        struct jinja_value value;
        const struct jinja_word name = n->item[i]->word;
        if (n->item[i]->kind != NODE_KEYWORD)
            return jinja_refuse(r, "%s with an argument without a name is not supported", space ? "namespace" : "dict");
        TRY(evaluate(r, scope, n->item[i]->a, &value));
        if (space)
            scope_set(r, made, name, value);
        else
            TRY(member_set(r, member, &count, jinja_borrow(name.text, name.length), value));
    }
    *out = space ? (struct jinja_value){.type = JINJA_NAMESPACE, .space = made}
                 : (struct jinja_value){.type = JINJA_DICT, .member = member, .count = count};
    return TRIREME_OK;
}

// Executes a body, of whose text *out becomes the value.
static trireme_status capture(struct jinja_run *r, struct jinja_scope *scope, const struct jinja_node *body,
                              struct jinja_value *out) {
    struct text text = {0}, *to = r->to;
    struct jinja_output *output = r->out;
    r->to = &text;
    r->out = NULL;
    trireme_status status = execute(r, scope, body);
    r->to = to;
    r->out = output;
    *out = jinja_take(r, &text);
    return status;
}

static trireme_status call_macro(struct jinja_run *r, struct jinja_scope *scope, const struct jinja_node *call,
                                 const struct jinja_macro *macro, struct jinja_value *out) {
    const struct jinja_node *n = macro->node;
    struct jinja_scope *inside = scope_add(r, macro->scope);
    size_t used = 0;
    for (size_t i = 0; i < n->count; i++) {
        const struct jinja_node *parameter = n->item[i], *given = NULL;
        struct jinja_value value = {
            .type = JINJA_UNDEFINED, .string = parameter->word.text, .count = parameter->word.length};
        if (i < call->count && call->item[i]->kind != NODE_KEYWORD)
            given = call->item[i];
        for (size_t k = 0; k < call->count && !given; k++)
            if (call->item[k]->kind == NODE_KEYWORD && call->item[k]->word.length == parameter->word.length &&
                memcmp(call->item[k]->word.text, parameter->word.text, parameter->word.length) == 0)
                given = call->item[k]->a;
        used += given != NULL;
        if (given)
            TRY(evaluate(r, scope, given, &value));
        else if (parameter->a)
            TRY(evaluate(r, inside, parameter->a, &value));
        scope_set(r, inside, parameter->word, value);
    }
    if (used < call->count)
        return jinja_refuse(r, "the macro %.*s is given arguments that it does not have", (int)MIN(n->word.length, 40),
                            n->word.text);
    return capture(r, inside, n->b, out);
}

static trireme_status evaluate_call(struct jinja_run *r, struct jinja_scope *scope, const struct jinja_node *n,
                                    struct jinja_value *out) {
    const struct jinja_word name = n->a->word;
    const struct jinja_value called = scope_get(scope, name);
    if (called.type == JINJA_CALLABLE)
        return call_collection(r, scope, n, jinja_word_is(name, "namespace"), out);
    if (called.type != JINJA_MACRO)
        return jinja_refuse(r, "%.*s is %s and cannot be called", (int)MIN(name.length, 40), name.text,
                            jinja_type_name(&called));
    return call_macro(r, scope, n, called.macro, out);
}

// A filter, a test, a method or a function of jinja_callables.c.
static trireme_status evaluate_callable(struct jinja_run *r, struct jinja_scope *scope, const struct jinja_node *n,
                                        struct jinja_value *out) {
    struct jinja_value given[JINJA_ARGUMENTS] = {0};
    if (n->kind != NODE_CALL)
        TRY(evaluate(r, scope, n->a, &given[0]));
    for (size_t i = 0; i < n->count; i++)
        if (n->item[i])
            TRY(evaluate(r, scope, n->item[i], &given[i + 1]));
    r->line = n->line;
    return n->callable->call(r, given, out);
}

static trireme_status evaluate_slice(struct jinja_run *r, struct jinja_scope *scope, const struct jinja_node *n,
                                     struct jinja_value *out) {
    const struct jinja_node *const nodes[3] = {n->b, n->c, n->d};
    struct jinja_value of, part[3] = {{.type = JINJA_NONE}, {.type = JINJA_NONE}, {.type = JINJA_NONE}};
    TRY(evaluate(r, scope, n->a, &of));
    for (int i = 0; i < 3; i++)
        if (nodes[i])
            TRY(evaluate(r, scope, nodes[i], &part[i]));
    return jinja_slice(r, &of, part, out);
}

static trireme_status evaluate_comparison(struct jinja_run *r, struct jinja_scope *scope, const struct jinja_node *n,
                                          struct jinja_value *out) {
    struct jinja_value before, next;
    TRY(evaluate(r, scope, n->item[0], &before));
    for (size_t i = 1; i < n->count; i++) {
        TRY(evaluate(r, scope, n->item[i]->a, &next));
        TRY(jinja_operate(r, n->item[i]->op, &before, &next, out));
        if (!out->boolean)
            break;
        before = next;
    }
    return TRIREME_OK;
}

static trireme_status evaluate_negation(struct jinja_run *r, const struct jinja_value *v, struct jinja_value *out) {
    const struct jinja_value zero = jinja_integer(0);
    if (v->type == JINJA_REAL) {
        *out = (struct jinja_value){.type = JINJA_REAL, .real = -v->real};
        return TRIREME_OK;
    }
    return jinja_operate(r, OP_SUBTRACT, &zero, v, out);
}

static trireme_status evaluate_kind(struct jinja_run *r, struct jinja_scope *scope, const struct jinja_node *n,
                                    struct jinja_value *out) {
    struct jinja_value a, b;
    switch (n->kind) {
    case NODE_CONSTANT:
        *out = n->value;
        return TRIREME_OK;
    case NODE_NAME:
        *out = scope_get(scope, n->word);
        return TRIREME_OK;
    case NODE_LIST:
    case NODE_TUPLE:
        return evaluate_all(r, scope, n, out);
    case NODE_DICT:
        return evaluate_dict(r, scope, n, out);
    case NODE_SLICE:
        return evaluate_slice(r, scope, n, out);
    case NODE_COMPARE:
        return evaluate_comparison(r, scope, n, out);
    case NODE_CALL:
        return n->callable ? evaluate_callable(r, scope, n, out) : evaluate_call(r, scope, n, out);
    case NODE_METHOD:
    case NODE_FILTER:
    case NODE_TEST:
        return evaluate_callable(r, scope, n, out);
    case NODE_CHOICE:
        TRY(evaluate(r, scope, n->b, &b));
        if (jinja_is_true(&b))
            return evaluate(r, scope, n->a, out);
        *out = (struct jinja_value){.type = JINJA_UNDEFINED, .string = "an if without else", .count = 18};
        return n->c ? evaluate(r, scope, n->c, out) : TRIREME_OK;
    default:
        break;
    }
    TRY(evaluate(r, scope, n->a, &a));
    switch (n->kind) {
    case NODE_MEMBER:
        return jinja_member(r, &a, n->word, out);
    case NODE_NOT:
        *out = jinja_boolean(!jinja_is_true(&a));
        return TRIREME_OK;
    case NODE_NEGATE:
        return evaluate_negation(r, &a, out);
    case NODE_AND:
    case NODE_OR:
        *out = a;
        return jinja_is_true(&a) == (n->kind == NODE_OR) ? TRIREME_OK : evaluate(r, scope, n->b, out);
    case NODE_ITEM:
        TRY(evaluate(r, scope, n->b, &b));
        return jinja_item(r, &a, &b, out);
    default:
        CHECK(n->kind == NODE_OPERATE);
        TRY(evaluate(r, scope, n->b, &b));
        return jinja_operate(r, n->op, &a, &b, out);
    }
}

static trireme_status evaluate(struct jinja_run *r, struct jinja_scope *scope, const struct jinja_node *n,
                               struct jinja_value *out) {
    r->line = n->line;
    TRY(jinja_work(r, 1));
    TRY(jinja_enter(r));
    TRY(evaluate_kind(r, scope, n, out));
    r->depth--;
    return TRIREME_OK;
}

// ---- statements

// Gives a value to a name, to a member of a namespace, or its elements to several.
static trireme_status assign(struct jinja_run *r, struct jinja_scope *scope, const struct jinja_node *n,
                             const struct jinja_value *v) {
    const struct jinja_value *item = v;
    size_t count = 1;
    if (n->count > 1)
        TRY(jinja_elements(r, v, &item, &count));
    if (count != n->count)
        return jinja_refuse(r, "%zu values for %zu names", count, n->count);
    for (size_t i = 0; i < count; i++) {
        const struct jinja_node *target = n->item[i];
        struct jinja_scope *to = scope;
        if (target->kind == NODE_MEMBER) {
            const struct jinja_value of = scope_get(scope, target->a->word);
            if (of.type != JINJA_NAMESPACE)
                return jinja_refuse(r, "a member of %s cannot be set", jinja_type_name(&of));
            to = of.space;
        }
        scope_set(r, to, target->word, item[i]);
    }
    return TRIREME_OK;
}

// What a for goes through: the elements, of which a condition may choose some.
static trireme_status loop_elements(struct jinja_run *r, struct jinja_scope *scope, const struct jinja_node *n,
                                    struct jinja_loop *loop) {
    struct jinja_value of, chosen;
    TRY(evaluate(r, scope, n->a, &of));
    TRY(jinja_elements(r, &of, &loop->item, &loop->count));
    if (!n->b)
        return TRIREME_OK;
    struct jinja_value *item = arena_add(&r->arena, loop->count * sizeof *item);
    size_t count = 0;
    for (size_t i = 0; i < loop->count; i++) {
        struct jinja_scope *inside = scope_add(r, scope);
        TRY(assign(r, inside, n, &loop->item[i]));
        TRY(evaluate(r, inside, n->b, &chosen));
        if (jinja_is_true(&chosen))
            item[count++] = loop->item[i];
    }
    loop->item = item;
    loop->count = count;
    return TRIREME_OK;
}

static trireme_status execute_for(struct jinja_run *r, struct jinja_scope *scope, const struct jinja_node *n) {
    static const struct jinja_word LOOP = {"loop", 4};
    struct jinja_loop *loop = arena_add(&r->arena, sizeof *loop);
    TRY(loop_elements(r, scope, n, loop));
    for (; loop->index < loop->count; loop->index++) {
        struct jinja_scope *inside = scope_add(r, scope);
        scope_set(r, inside, LOOP, (struct jinja_value){.type = JINJA_LOOP, .loop = loop});
        TRY(assign(r, inside, n, &loop->item[loop->index]));
        TRY(execute(r, inside, n->c));
        const bool breaks = r->flow == FLOW_BREAK;
        r->flow = FLOW_ON;
        if (breaks)
            break;
    }
    return loop->count || !n->d ? TRIREME_OK : execute(r, scope, n->d);
}

static void add_seam(struct jinja_run *r) {
    if (r->out)
        VEC_PUSH(&r->out->seams, r->out->text.length);
}

static trireme_status execute_generation(struct jinja_run *r, struct jinja_scope *scope, const struct jinja_node *n) {
    const size_t begin = r->out->text.length;
    TRY(execute(r, scope_add(r, scope), n->a));
    VEC_PUSH(&r->out->generation, (struct jinja_span){begin, r->out->text.length});
    return TRIREME_OK;
}

static trireme_status execute_kind(struct jinja_run *r, struct jinja_scope *scope, const struct jinja_node *n) {
    struct jinja_value v;
    struct jinja_macro *macro;
    switch (n->kind) {
    case NODE_BODY:
        for (size_t i = 0; i < n->count && r->flow == FLOW_ON; i++)
            TRY(execute(r, scope, n->item[i]));
        return TRIREME_OK;
    case NODE_TEXT:
        TRY(jinja_print(r, &n->value, r->to));
        add_seam(r);
        return TRIREME_OK;
    case NODE_PRINT:
        TRY(evaluate(r, scope, n->a, &v));
        TRY(jinja_print(r, &v, r->to));
        add_seam(r);
        return TRIREME_OK;
    case NODE_IF:
        TRY(evaluate(r, scope, n->a, &v));
        if (jinja_is_true(&v))
            return execute(r, scope, n->b);
        return n->c ? execute(r, scope, n->c) : TRIREME_OK;
    case NODE_FOR:
        return execute_for(r, scope, n);
    case NODE_SET:
        TRY(evaluate(r, scope, n->a, &v));
        return assign(r, scope, n, &v);
    case NODE_SET_BLOCK:
        TRY(capture(r, scope_add(r, scope), n->a, &v));
        return assign(r, scope, n, &v);
    case NODE_MACRO:
        macro = arena_add(&r->arena, sizeof *macro);
        *macro = (struct jinja_macro){n, scope};
        scope_set(r, scope, n->word, (struct jinja_value){.type = JINJA_MACRO, .macro = macro});
        return TRIREME_OK;
    case NODE_GENERATION:
        return execute_generation(r, scope, n);
    default:
        r->flow = n->kind == NODE_BREAK ? FLOW_BREAK : FLOW_CONTINUE;
        return TRIREME_OK;
    }
}

static trireme_status execute(struct jinja_run *r, struct jinja_scope *scope, const struct jinja_node *n) {
    r->line = n->line;
    TRY(jinja_work(r, 1));
    TRY(jinja_enter(r));
    TRY(execute_kind(r, scope, n));
    r->depth--;
    return TRIREME_OK;
}

trireme_status jinja_render(const struct jinja *j, const json_t *variables, struct jinja_output *out,
                            trireme_error *error) {
    struct jinja_run r = {.template = j, .error = error, .to = &out->text, .out = out, .work = WORK_MAX, .line = 1};
    struct jinja_scope *scope = scope_add(&r, NULL);
    const char *key;
    json_t *value;
    out->text.length = out->generation.count = out->seams.count = 0;
    trireme_status status = TRIREME_OK;
    json_object_foreach((json_t *)variables, key, value) if (status == TRIREME_OK) {
        struct jinja_value v;
        status = jinja_of_json(&r, value, &v);
        scope_set(&r, scope, (struct jinja_word){key, strlen(key)}, v);
    }
    // Macros and what is set do not change the variables, but hide them.
    if (status == TRIREME_OK)
        status = execute(&r, scope_add(&r, scope), j->body);
    arena_release(&r.arena);
    return status;
}

void jinja_output_release(struct jinja_output *out) {
    text_release(&out->text);
    VEC_RELEASE(&out->generation);
    VEC_RELEASE(&out->seams);
}
