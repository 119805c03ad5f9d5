// Templates against what `transformers` renders (templates.jsonl, by tools/reference/chat_templates.py), what is
// refused by name, and the bounds of time and memory.
#include "base/clock.h"
#include "chat/jinja.h"
#include "support/test.h"

static trireme_status render(const char *template, const json_t *variables, struct jinja_output *out,
                             trireme_error *error) {
    struct jinja *j;
    trireme_status status = jinja_parse(template, strlen(template), "t.jinja", &j, error);
    if (status == TRIREME_OK) {
        status = jinja_render(j, variables, out, error);
        jinja_free(j);
    }
    return status;
}

static void check_line(const json_t *line) {
    struct jinja_output out = {0};
    trireme_error error = {0};
    const char *template = json_string_value(json_object_get(line, "template"));
    const json_t *text = json_object_get(line, "text"), *generation = json_object_get(line, "generation");
    trireme_status status = render(template, json_object_get(line, "variables"), &out, &error);
    if (!text) {
        if (status != TRIREME_ERROR_USAGE || strncmp(error.message, "t.jinja line ", 13) != 0)
            fail_msg("%s: not refused, or otherwise: %s", template, error.message);
        jinja_output_release(&out);
        return;
    }
    if (status != TRIREME_OK)
        fail_msg("%s: refused: %s", template, error.message);
    if (out.text.length != json_string_length(text) ||
        (out.text.length && memcmp(out.text.text, json_string_value(text), out.text.length) != 0))
        fail_msg("%s: rendered\n%s\nexpected\n%s", template, out.text.text, json_string_value(text));
    assert_int_equal(2 * out.generation.count, json_array_size(generation));
    for (size_t i = 0; i < out.generation.count; i++) {
        assert_int_equal(out.generation.item[i].begin, json_integer_value(json_array_get(generation, 2 * i)));
        assert_int_equal(out.generation.item[i].end, json_integer_value(json_array_get(generation, 2 * i + 1)));
    }
    jinja_output_release(&out);
}

static void test_templates(void **state) {
    (void)state;
    char *bytes;
    size_t length;
    int count = 0;
    trireme_error error;
    assert_int_equal(file_read(TRIREME_SOURCE "/tests/chat/templates.jsonl", 1 << 20, &bytes, &length, &error), 0);
    for (char *line = bytes, *end; (end = strchr(line, '\n')); line = end + 1, count++) {
        json_t *tree;
        assert_int_equal(json_parse(line, (size_t)(end - line), "templates.jsonl", &tree, &error), 0);
        check_line(tree);
        json_decref(tree);
    }
    assert_true(count > 30);
    free(bytes);
}

static void assert_refused(const char *template, const char *message) {
    struct jinja_output out = {0};
    trireme_error error = {0};
    json_t *variables = json_pack("{s:[{s:s}]}", "messages", "role", "user");
    assert_int_equal(render(template, variables, &out, &error), TRIREME_ERROR_USAGE);
    assert_string_equal(error.message, message);
    json_decref(variables);
    jinja_output_release(&out);
}

static void test_refused_by_name(void **state) {
    (void)state;
    assert_refused("a\n{% include 'x' %}", "t.jinja line 2: the statement \"include\" is not supported");
    assert_refused("{% for x in y %}{% if x %}\n{% endfor %}",
                   "t.jinja line 2: expected another statement, found \"endfor\"");
    assert_refused("{{ 'x' | batch(2) }}", "t.jinja line 1: the filter \"batch\" is not supported");
    assert_refused("{% if x is divisibleby 3 %}{% endif %}",
                   "t.jinja line 1: the test \"divisibleby\" is not supported");
    assert_refused("{{ x.format(1) }}", "t.jinja line 1: the method \"format\" is not supported");
    assert_refused("\n\n{{ lipsum() }}", "t.jinja line 3: the function \"lipsum\" is not supported");
    assert_refused("{{ x | tojson(default=1) }}",
                   "t.jinja line 1: tojson has an argument \"default\" that is not supported, or there twice");
    assert_refused("{{ x | trim('a', 'b') }}", "t.jinja line 1: trim has 2 arguments, supported are 1");
    assert_refused("{{ x | replace('a') }}", "t.jinja line 1: replace lacks its argument \"new\"");
    assert_refused("{% for x in y recursive %}{% endfor %}", "t.jinja line 1: the loop \"recursive\" is not supported");
    assert_refused("{% for x in messages %}{{ loop.depth }}{% endfor %}",
                   "t.jinja line 1: loop.depth is not supported");
    assert_refused("{% macro f() %}{% generation %}{% endgeneration %}{% endmacro %}",
                   "t.jinja line 1: generation inside of a macro, or of a block that is set, is not supported");
    assert_refused("{% if a %}x", "t.jinja line 1: the template ends where one of these was expected: elif else endif");
    assert_refused("{{ 'x }}", "t.jinja line 1: a string does not end: \"'x }}\"");
    assert_refused("{{ (1 }}", "t.jinja line 1: a bracket is closed that is not open: \"}}\"");
    assert_refused("{{ 1", "t.jinja line 1: {{ is not closed: \"\"");
    assert_refused("{{ 1 +\n}}", "t.jinja line 2: expected an expression, found \"}}\"");
    assert_refused("{{ messages[0].role.x.y }}", "t.jinja line 1: \"x\" is undefined");
    assert_refused("{{ messages + 1 }}", "t.jinja line 1: a list + an integer cannot be done");
    assert_refused("\n{{ raise_exception('no\ntools') }}", "t.jinja line 2: the chat is refused: \"no\\ntools\"");
}

// Loops, recursion and values that would take forever, or all memory.
static void test_bounds(void **state) {
    (void)state;
    const int64_t begin = clock_now();
    const char *const LONG[] = {
        "{% set a = range(100000) | list %}{% for i in a %}{% for j in a %}{{ i * j }}{% endfor %}{% endfor %}",
        "{% set ns = namespace(x='ab') %}{% for i in range(1000) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(1000) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        ("{% set ns = namespace(x='aaaa') %}{% for i in range(1000) %}{% set ns.x = ns.x.replace('a', ns.x) %}{% "
         "endfor %}"),
        "{{ 'a' * 9223372036854775807 }}",
        "{{ 'abcd' * 4611686018427387905 }}", // 4 bytes, if that overflows
    };
    const char *const DEEP[] = {
        "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
        "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
        ("{% set ns = namespace(x=[], y=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% set ns.y = [ns.y] "
         "%}{% endfor %}{{ ns.x == ns.y }}"),
        ("{% set ns = namespace(x={}) %}{% for i in range(100000) %}{% set ns.x = {'a': ns.x} %}{% endfor %}"
         "{{ ns.x | tojson }}"),
    };
    for (size_t i = 0; i < ARRAY_LENGTH(LONG); i++)
        assert_refused(LONG[i], "t.jinja line 1: rendering takes too long");
    for (size_t i = 0; i < ARRAY_LENGTH(DEEP); i++)
        assert_refused(DEEP[i], "t.jinja line 1: more than 300 levels deep");
    assert_refused("{{ ------------------------------------------------------------------------------------------------"
                   "-----------------------------------------------------------------------------1 }}",
                   "t.jinja line 1: more than 120 levels deep");
    assert_true(clock_now() - begin < 60000000000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_templates),
        cmocka_unit_test(test_refused_by_name),
        cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
