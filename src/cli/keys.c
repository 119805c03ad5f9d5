#include "cli/keys.h"

#include "base/json.h"

#include <errno.h>
#include <sys/stat.h>

// ---- values

static trireme_status refuse_value(const struct command_key *key, const char *given, trireme_error *error) {
    char excerpt[JSON_EXCERPT_BYTES];
    json_excerpt(given, excerpt);
    if (key->type >= COMMAND_KEY_TEXT)
        FAIL(TRIREME_ERROR_USAGE, "%s=%s: expected %s", key->name, excerpt, key->what);
    FAIL(TRIREME_ERROR_USAGE, "%s=%s: expected %s from %.15g to %.15g (%s)", key->name, excerpt,
         key->type == COMMAND_KEY_INTEGER ? "a whole number" : "a number", key->least, key->most, key->what);
}

static bool keys_read_value(const struct command_key *key, const char *text, struct command_value *value) {
    if (key->type >= COMMAND_KEY_TEXT)
        return *text;
    // Digits, a sign, a point and an exponent: neither blanks nor hexadecimal numbers, infinities or words.
    bool is_integer = key->type == COMMAND_KEY_INTEGER;
    if (!*text || text[strspn(text, is_integer ? "-0123456789" : "+-.0123456789eE")])
        return false;
    char *end;
    errno = 0;
    if (is_integer) {
        value->integer = strtoll(text, &end, 10);
        value->number = (double)value->integer;
    } else {
        value->number = strtod(text, &end);
    }
    return !*end && end > text && errno != ERANGE && value->number >= key->least && value->number <= key->most;
}

// ---- words

// "--name=value", "--name" with the value in the next word, or "name=value".
struct word {
    const char *name, *value; // value NULL: there is none
    size_t length;            // of the name
    size_t words;             // that it takes
};

static struct word word_split(char *const *words, size_t left) {
    const char *name = words[0] + (strncmp(words[0], "--", 2) == 0 ? 2 : 0), *equals = strchr(name, '=');
    if (equals)
        return (struct word){name, equals + 1, (size_t)(equals - name), 1};
    bool has_next = name > words[0] && left > 1;
    return (struct word){name, has_next ? words[1] : NULL, strlen(name), has_next ? 2 : 1};
}

static trireme_status keys_take(const struct word *word, const struct command_key *keys, size_t count,
                                struct command_value *values, bool *taken, trireme_error *error) {
    *taken = false;
    for (size_t i = 0; i < count; i++) {
        if (strlen(keys[i].name) != word->length || memcmp(keys[i].name, word->name, word->length) != 0)
            continue;
        if (!word->value)
            return refuse_value(&keys[i], "", error);
        bool several = keys[i].type == COMMAND_KEY_TEXTS;
        values[i].given = word->value;
        if (!keys_read_value(&keys[i], word->value, &values[i]))
            return refuse_value(&keys[i], word->value, error);
        if (several)
            VEC_PUSH(&values[i].all, word->value);
        *taken = true;
        return TRIREME_OK;
    }
    return TRIREME_OK;
}

// The folder that a path lies in; *name is its last part.
static bool stat_folder(const char *path, struct stat *folder, const char **name) {
    const char *slash = strrchr(path, '/');
    char *above = slash ? mem_printf("%.*s/", (int)(slash - path), path) : mem_strdup(".");
    bool found = stat(above, folder) == 0;
    free(above);
    *name = slash ? slash + 1 : path;
    return found;
}

static bool keys_same_node(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

bool same_file(const char *a, const char *b) {
    struct stat x, y;
    const char *name, *other;
    const bool first = stat(a, &x) == 0, second = stat(b, &y) == 0;
    if (first || second)
        return first && second && keys_same_node(&x, &y);
    return strcmp(a, b) == 0 || (stat_folder(a, &x, &name) && stat_folder(b, &y, &other) && keys_same_node(&x, &y) &&
                                 strcmp(name, other) == 0);
}

// Refuses two outputs that are one file, in which only what is written last would be left. A device or a pipe takes
// both.
static trireme_status check_outputs(const struct command_key *keys, size_t count, const struct command_value *values,
                                    trireme_error *error) {
    struct stat info;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < i; k++) {
            const char *a = values[k].given, *b = values[i].given;
            bool both = keys[i].type == COMMAND_KEY_OUTPUT && keys[k].type == COMMAND_KEY_OUTPUT && a && b;
            if (both && same_file(a, b) && (stat(a, &info) != 0 || S_ISREG(info.st_mode)))
                FAIL(TRIREME_ERROR_USAGE, "%s=%s and %s=%s are one file: each needs its own", keys[k].name, a,
                     keys[i].name, b);
        }
    return TRIREME_OK;
}

trireme_status command_keys_check_outputs(const struct command_key *keys, size_t count,
                                          const struct command_value *values, trireme_error *error) {
    for (size_t i = 0; i < count; i++)
        if (keys[i].type == COMMAND_KEY_OUTPUT && values[i].given)
            TRY(check_output(keys[i].name, values[i].given, error));
    return TRIREME_OK;
}

// Whether a word without dashes sets something: in a path, '=' stands after a slash.
static bool sets_something(const char *word) {
    const char *equals = strchr(word, '='), *slash = strchr(word, '/');
    return equals && (!slash || slash > equals);
}

trireme_status command_keys_read(const struct arguments *a, const struct command_key *keys, size_t count,
                                 struct command_value *values, struct arguments *rest, trireme_error *error) {
    struct arguments left = {.command = a->command, .json = a->json, .help = a->help};
    trireme_status status = TRIREME_OK;
    bool taken;
    for (size_t i = 0; i < a->operands.count && status == TRIREME_OK; i++) {
        char *text = a->operands.item[i];
        if (!sets_something(text)) {
            VEC_PUSH(&left.operands, text);
            continue;
        }
        struct word word = word_split(&text, 1);
        status = keys_take(&word, keys, count, values, &taken, error);
        if (!taken)
            VEC_PUSH(&left.operands, text); // a file has that name
    }
    for (size_t i = 0; i < a->settings.count && status == TRIREME_OK;) {
        struct word word = word_split(&a->settings.item[i], a->settings.count - i);
        status = keys_take(&word, keys, count, values, &taken, error);
        for (size_t k = 0; k < word.words && !taken; k++)
            VEC_PUSH(&left.settings, a->settings.item[i + k]);
        i += word.words;
    }
    if (status == TRIREME_OK)
        status = check_outputs(keys, count, values, error);
    if (status == TRIREME_OK) {
        *rest = left;
    } else {
        arguments_release(&left);
        command_values_release(values, count);
    }
    return status;
}

void command_values_release(struct command_value *values, size_t count) {
    for (size_t i = 0; i < count; i++)
        VEC_RELEASE(&values[i].all);
}

void arguments_release(struct arguments *arguments) {
    VEC_RELEASE(&arguments->operands);
    VEC_RELEASE(&arguments->settings);
}

// The key that is meant by a name that is none: by a synonym, or misspelt. NULL: none.
static const struct command_key *key_meant(const struct command_key *keys, size_t count, const char *name) {
    enum { NAME_LEAST = 4 }; // shorter ones are near one another by chance
    size_t length = strlen(name), limit = MAX((size_t)1, length / 4) + 1;
    const struct command_key *nearest = NULL;
    for (size_t i = 0; i < count; i++) {
        if (text_lists(keys[i].synonyms, name))
            return &keys[i];
        size_t distance = length < NAME_LEAST ? limit : text_distance(name, keys[i].name);
        if (distance < limit) {
            limit = distance;
            nearest = &keys[i];
        }
    }
    return nearest;
}

static void list_keys(struct text *out, const struct command_key *keys, size_t count) {
    for (size_t i = 0; i < count; i++)
        text_add(out, "%s%s", i ? ", " : "", keys[i].name);
}

static trireme_status refuse_meant(const struct word *word, const char *name, const struct command_key *keys,
                                   size_t count, trireme_error *error) {
    const struct command_key *meant = config_names_key(name) ? NULL : key_meant(keys, count, name);
    char excerpt[JSON_EXCERPT_BYTES], given[JSON_EXCERPT_BYTES];
    json_excerpt(name, excerpt);
    if (meant)
        FAIL(TRIREME_ERROR_USAGE, "there is no key %s: did you mean %s= (%s)?", excerpt, meant->name, meant->what);
    if (config_names_key(name) || config_answers(name) || strchr(name, '.'))
        return TRIREME_OK;
    struct text own = {0};
    list_keys(&own, keys, count);
    error_set(error, TRIREME_ERROR_USAGE,
              "there is no key %s%s%s%s: its own keys are %s; `trireme help config` lists those of a "
              "configuration",
              excerpt, word->value ? " (given: " : "", word->value ? json_excerpt(word->value, given) : "",
              word->value ? ")" : "", own.text);
    text_release(&own);
    return TRIREME_ERROR_USAGE;
}

trireme_status command_keys_refuse_meant(const struct arguments *rest, const struct command_key *keys, size_t count,
                                         trireme_error *error) {
    trireme_status status = TRIREME_OK;
    for (size_t i = 0; i < rest->settings.count && status == TRIREME_OK;) {
        struct word word = word_split(&rest->settings.item[i], rest->settings.count - i);
        char *name = mem_printf("%.*s", (int)MIN(word.length, (size_t)64), word.name);
        status = refuse_meant(&word, name, keys, count, error);
        free(name);
        i += word.words;
    }
    return status;
}

trireme_status command_keys_refuse_rest(const struct arguments *rest, const struct command_key *keys, size_t count,
                                        const char *context, trireme_error *error) {
    char excerpt[JSON_EXCERPT_BYTES], value[JSON_EXCERPT_BYTES];
    if (rest->settings.count == 0 && rest->operands.count == 0)
        return TRIREME_OK;
    if (rest->settings.count == 0)
        FAIL(TRIREME_ERROR_USAGE, "unexpected %s %s", json_excerpt(rest->operands.item[0], excerpt), context);
    struct word word = word_split(rest->settings.item, rest->settings.count);
    char *name = mem_printf("%.*s", (int)MIN(word.length, (size_t)64), word.name);
    const struct command_key *meant = key_meant(keys, count, name);
    const char *nearest = meant ? meant->name : text_nearest(name, &keys[0].name, count, sizeof keys[0]);
    struct text all = {0};
    list_keys(&all, keys, count);
    json_excerpt(word.value ? word.value : "", value);
    error_set(error, TRIREME_ERROR_USAGE, "there is no key %s (given: %s) %s%s%s; there are: %s",
              json_excerpt(name, excerpt), value, context, nearest ? ": did you mean " : "", nearest ? nearest : "",
              all.text);
    text_release(&all);
    free(name);
    return TRIREME_ERROR_USAGE;
}
