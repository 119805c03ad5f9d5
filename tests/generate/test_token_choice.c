// The chances of tokens are those of transformers' logits processors (choices.jsonl, tools/reference/token_choices.py).
#include "support/checkpoint.h"

#include "base/json.h"
#include "generate/token_choice.h"

#include <math.h>

enum { MOST = 32 };

static size_t numbers_of(const json_t *list, double out[MOST]) {
    assert_in_range(json_array_size(list), 1, MOST);
    for (size_t i = 0; i < json_array_size(list); i++)
        out[i] = json_number_value(json_array_get(list, i));
    return json_array_size(list);
}

static void set_number(const json_t *line, const char *key, double *out) {
    if (json_object_get(line, key))
        *out = json_number_value(json_object_get(line, key));
}

static void check_line(const json_t *line, int number) {
    struct config_generate how = {.temperature = 1, .top_p = 1, .repetition_penalty = 1};
    double logits[MOST], expected[MOST], seen[MOST], made[MOST] = {0}, total = 0;
    bool has[MOST] = {false};
    const size_t count = numbers_of(json_object_get(line, "logits"), logits),
                 tokens = numbers_of(json_object_get(line, "seen"), seen);
    assert_int_equal(numbers_of(json_object_get(line, "chances"), expected), count);
    how.top_k = json_integer_value(json_object_get(line, "top_k"));
    set_number(line, "temperature", &how.temperature);
    set_number(line, "top_p", &how.top_p);
    set_number(line, "min_p", &how.min_p);
    set_number(line, "repetition_penalty", &how.repetition_penalty);
    for (size_t i = 0; i < tokens; i++)
        has[(int)seen[i]] = true;
    struct token_chances chances = {0};
    token_chances_make(&chances, &how, logits, (int32_t)count, has);
    for (size_t i = 0; i < chances.count; i++)
        total += chances.item[i].weight;
    for (size_t i = 0; i < chances.count; i++)
        made[chances.item[i].token] += chances.item[i].weight / total;
    for (size_t i = 0; i < count; i++)
        if (fabs(made[i] - expected[i]) > 1e-12)
            fail_msg("line %d, token %zu: %.15g, expected %.15g", number, i, made[i], expected[i]);
    // Each is taken as often as it is likely.
    enum { DRAWS = 2000 };
    double taken[MOST] = {0};
    for (int i = 0; i < DRAWS; i++)
        taken[token_chances_take(&chances, (i + 0.5) / DRAWS)] += 1.0 / DRAWS;
    for (size_t i = 0; i < count; i++)
        assert_true(fabs(taken[i] - expected[i]) < 1.5 / DRAWS);
    token_chances_release(&chances);
}

static void test_chances(void **state) {
    (void)state;
    char *text;
    size_t length;
    trireme_error error = {0};
    int number = 0;
    assert_ok(file_read(TRIREME_SOURCE "/tests/generate/choices.jsonl", 1 << 20, &text, &length, &error), &error);
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        json_t *tree;
        assert_ok(json_parse(line, (size_t)(end - line), "choices.jsonl", &tree, &error), &error);
        check_line(tree, ++number);
        json_decref(tree);
    }
    assert_int_equal(number, 60);
    free(text);
}

// Temperature 0 takes the likeliest, of equals the first, after the penalty.
static void test_greedy(void **state) {
    (void)state;
    struct config_generate how = {.top_k = 3, .top_p = 0.9, .repetition_penalty = 1};
    struct token_chances chances = {0};
    const double logits[] = {1, 3, 2, 3, -1};
    const bool none[5] = {false}, second[5] = {false, true};
    token_chances_make(&chances, &how, logits, 5, none);
    assert_true(chances.count == 1 && token_chances_take(&chances, 0.999) == 1);
    how.repetition_penalty = 1.1;
    token_chances_make(&chances, &how, logits, 5, second);
    assert_true(chances.count == 1 && token_chances_take(&chances, 0) == 3);
    token_chances_release(&chances);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chances), cmocka_unit_test(test_greedy)};
    return cmocka_run_group_tests_name("token choice", tests, NULL, NULL);
}
