// The public functions refuse arguments that mean nothing, and take those that their header allows.
#include "support/checkpoint.h"
#include "support/sanitized.h"

#include "base/region.h"
#include "base/text.h"
#include "trireme.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define SMALL                                                                                                 \
    "model.family=llama", "model.hidden_size=16", "model.num_attention_heads=2", "model.num_hidden_layers=1", \
        "training.seq_len=16", "training.global_batch_size=2", "training.steps=1", "training.threads=1"

static bool take(void *user, const char *bytes, size_t count) {
    text_add_bytes(user, bytes, count);
    return true;
}

static void nothing_is_refused_in_words(void **state) {
    (void)state;
    static const char *const HOLE[] = {"generate.seed=1", NULL, "generate.top_k=2"};
    static const trireme_settings NONE_GIVEN = {NULL, NULL, 3}, WITH_HOLE = {NULL, HOLE, 3};
    const struct {
        const char *directory, *prompt;
        size_t length;
        const trireme_settings *settings;
        bool (*text)(void *, const char *, size_t);
        const char *message;
    } cases[] = {
        {NULL, "a", 1, NULL, take, "directory is NULL"},
        {"run", NULL, 1, NULL, take, "prompt is NULL, but its length is 1"},
        {"run", "a", 1, NULL, NULL, "text is NULL"},
        {"run", "a", 1, &NONE_GIVEN, take, "count is 3, but setting is NULL"},
        {"run", "a", 1, &WITH_HOLE, take, "setting[1] is NULL, expected \"section.key=value\""},
    };
    struct text out = {0};
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        trireme_error error;
        assert_refused(trireme_generate(cases[i].directory, cases[i].settings, cases[i].prompt, cases[i].length,
                                        cases[i].text, &out, &error),
                       TRIREME_ERROR_USAGE, &error, cases[i].message);
        if (cases[i].settings)
            assert_refused(trireme_train(cases[i].settings, NULL, NULL, NULL, &error), TRIREME_ERROR_USAGE, &error,
                           cases[i].message);
    }
    assert_int_equal(trireme_generate(NULL, NULL, NULL, 0, NULL, NULL, NULL), TRIREME_ERROR_USAGE);
    assert_null(out.text);
}

// Messages do not refer to a command line: there is none.
static void settings_are_named(void **state) {
    (void)state;
    static const struct {
        const char *setting[2], *message;
    } CASES[] = {
        {{"training.steps=0", NULL}, "settings: training.steps: given 0, accepts"},
        {{"training.stepps=1", NULL}, "settings: training.stepps: unknown key"},
        {{"training.steps", NULL}, "settings: training.steps: expected section.key=value"},
        {{"validation.freq=1", NULL}, "settings: validation.freq: given 1, but nothing is set apart"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        trireme_error error;
        const trireme_settings settings = {NULL, CASES[i].setting, CASES[i].setting[1] ? 2 : 1};
        assert_refused(trireme_train(&settings, NULL, NULL, NULL, &error), TRIREME_ERROR_USAGE, &error,
                       CASES[i].message);
    }
}

static void an_empty_prompt_is_the_end_of_a_line(void **state) {
    prepare_text(*state, "The quick brown fox\njumps over the lazy dog.\nThe quick brown fox\n");
    char *tokens = mem_printf("data.path=%s/tokens", (char *)*state), *run = mem_printf("%s/run", (char *)*state),
         *directory = mem_printf("run.directory=%s", run);
    const char *setting[] = {SMALL, "data.split=[1, 0]", tokens, directory};
    trireme_error error;
    assert_ok(trireme_train(&(trireme_settings){NULL, setting, ARRAY_LENGTH(setting)}, NULL, NULL, NULL, &error),
              &error);
    static const char *const PROMPT[] = {"\n", "", NULL};
    static const char *const choice[] = {"generate.temperature=0", "generate.max_new_tokens=4"};
    const trireme_settings settings = {NULL, choice, ARRAY_LENGTH(choice)};
    struct text out[ARRAY_LENGTH(PROMPT)] = {{0}};
    for (size_t i = 0; i < ARRAY_LENGTH(PROMPT); i++) {
        assert_ok(trireme_generate(run, &settings, PROMPT[i], i == 0, take, &out[i], &error), &error);
        assert_int_equal(out[i].length, 4);
        assert_memory_equal(out[i].text, out[0].text, 4);
    }
    for (size_t i = 0; i < ARRAY_LENGTH(PROMPT); i++)
        text_release(&out[i]);
    free(tokens);
    free(run);
    free(directory);
}

enum outcome { TRAINED, REFUSED_BY_CHECK, REFUSED_A_TABLE, OTHERWISE };

// Trains in a process that may have `more` bytes of data than now; returns how that ended.
static enum outcome train_within(const char *const *setting, size_t count, size_t more) {
    const pid_t child = fork();
    if (child == 0) {
        const size_t none = memory_mappable(), least = (size_t)1 << 40;
        struct rlimit limit = {least, least};
        setrlimit(RLIMIT_DATA, &limit);
        limit.rlim_cur = least - memory_mappable() + more;
        setrlimit(RLIMIT_DATA, &limit);
        trireme_error error;
        const trireme_status status =
            trireme_train(&(trireme_settings){NULL, setting, count}, NULL, NULL, NULL, &error);
        // A thread's stack is refused as a table is.
        const bool table = strstr(error.message, "out of memory") || strstr(error.message, "no memory for its stack");
        if (status != TRIREME_OK && status != TRIREME_ERROR_MEMORY && !table)
            fprintf(stderr, "%zu bytes more: %s\n", more, error.message);
        _exit(none != SIZE_MAX                 ? OTHERWISE
              : status == TRIREME_OK           ? TRAINED
              : table                          ? REFUSED_A_TABLE
              : status != TRIREME_ERROR_MEMORY ? OTHERWISE
                                               : REFUSED_BY_CHECK);
    }
    int ended;
    assert_int_equal(waitpid(child, &ended, 0), child);
    if (!WIFEXITED(ended))
        fail_msg("with %zu bytes more the process ended by signal %d", more, WTERMSIG(ended));
    return (enum outcome)WEXITSTATUS(ended);
}

// Whatever is refused its memory, arenas or a table, the program that called goes on.
static void out_of_memory_is_an_error(void **state) {
    if (SANITIZED)
        skip(); // they keep books of their own
    prepare_text(*state, "The quick brown fox\njumps over the lazy dog.\nThe quick brown fox\n");
    char *tokens = mem_printf("data.path=%s/tokens", (char *)*state),
         *directory = mem_printf("run.directory=%s/small", (char *)*state);
    const char *setting[] = {SMALL, "data.split=[1, 0]", "model.num_hidden_layers=400", tokens, directory};
    int seen[OTHERWISE + 1] = {0};
    for (size_t more = 8; more <= 512; more += more < 80 ? 6 : 32)
        seen[train_within(setting, ARRAY_LENGTH(setting), more << 20)]++;
    assert_int_equal(seen[OTHERWISE], 0);
    assert_true(seen[TRAINED] > 0 && seen[REFUSED_BY_CHECK] > 0 && seen[REFUSED_A_TABLE] > 0);
    free(tokens);
    free(directory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(out_of_memory_is_an_error), // first: a child has no threads of its parent
        cmocka_unit_test(nothing_is_refused_in_words),
        cmocka_unit_test(settings_are_named),
        IN_FOLDER(an_empty_prompt_is_the_end_of_a_line),
    };
    return cmocka_run_group_tests_name("api", tests, NULL, NULL);
}
