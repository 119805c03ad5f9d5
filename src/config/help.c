// Prints configurations as files, and the help of keys as text and as JSON.
#include "base/json.h"
#include "config/value.h"

// A key is `name: value`, padded to the column where its comment begins.
enum { COMMENT_COLUMN = 40 };

static void key_print(struct text *out, const struct config *config, const struct key *key) {
    size_t begin = out->length;
    text_add(out, "  %s: ", key->name);
    value_write(out, config, key);
    size_t width = out->length - begin;
    text_add(out, "%*s# ", width < COMMENT_COLUMN ? (int)(COMMENT_COLUMN - width) : 1, "");
    if (key->type == KEY_CHOICE)
        for (const char *const *word = key->words; *word; word++)
            text_add(out, "%s%s%s", word == key->words ? "[" : " | ", *word, word[1] ? "" : "] ");
    else if (*key->unit)
        text_add(out, "[%s] ", key->unit);
    text_add(out, "%s\n", key->help);
}

void config_print(struct text *out, const struct config *config) {
    for (const struct key_section *section = key_sections; section->name; section++) {
        text_add(out, "%s# %s\n%s:\n", section == key_sections ? "" : "\n", section->help, section->name);
        for (size_t i = 0; i < CONFIG_KEY_COUNT; i++)
            if (strcmp(key_table[i].section, section->name) == 0)
                key_print(out, config, &key_table[i]);
    }
}

// The default as it stands in YAML, and those beside the values of other keys.
// Whether two rows give the same key the same value.
static bool default_alike(const struct key_default *a, const struct key_default *b) {
    return strcmp(a->section, b->section) == 0 && strcmp(a->name, b->name) == 0 &&
           strcmp(a->initial, b->initial) == 0 && strcmp(a->of, b->of) == 0;
}

// "none, or sgd where outer.method is diloco or co2": each value once, with all the words that it is for.
static void initial_print(struct text *out, const struct key *key) {
    bool empty = key->type == KEY_TEXT && !*key->initial;
    text_add(out, "%s", empty ? "\"\"" : key->initial);
    for (const struct key_default *d = key_defaults; d->name; d++) {
        bool said = false;
        for (const struct key_default *before = key_defaults; before < d; before++)
            said |= default_alike(before, d);
        if (said || strcmp(d->section, key->section) != 0 || strcmp(d->name, key->name) != 0)
            continue;
        text_add(out, ", or %s where %s.%s is %s", d->initial, d->section, d->of, d->word);
        for (const struct key_default *more = d + 1; more->name; more++)
            if (default_alike(more, d))
                text_add(out, " or %s", more->word);
    }
}

static void key_help(struct text *out, const struct key *key) {
    text_add(out, "  %s.%s: ", key->section, key->name);
    initial_print(out, key);
    text_add(out, "\n      %s\n      accepts ", key->help);
    key_accepts(out, key);
    text_add(out, "\n");
}

static void synonyms_add_json(struct text *out, const struct key *key) {
    json_begin_array(out, "synonyms");
    char synonym[KEY_NAME];
    for (const char *rest = key->synonyms; key_synonym_next(&rest, synonym);)
        json_add_string(out, NULL, synonym);
    json_end_array(out);
}

static void key_add_json(struct text *out, const struct key *key) {
    static const char *const TYPES[] = {
        [KEY_INTEGER] = "integer", [KEY_REAL] = "number", [KEY_SWITCH] = "boolean",
        [KEY_CHOICE] = "choice",   [KEY_TEXT] = "text",   [KEY_FRACTIONS] = "fractions"};
    char *full = mem_printf("%s.%s", key->section, key->name);
    struct text accepts = {0};
    key_accepts(&accepts, key);
    json_begin_object(out, NULL);
    json_add_string(out, "key", full);
    json_add_string(out, "type", TYPES[key->type]);
    json_add_string(out, "default", key->initial);
    json_add_string(out, "accepts", accepts.text);
    json_add_string(out, "unit", key->unit);
    json_add_string(out, "help", key->help);
    synonyms_add_json(out, key);
    json_end_object(out);
    text_release(&accepts);
    free(full);
}

// The keys of a topic, *count of them from *first on: the whole table (NULL), one section, or one key. False: none.
static bool topic_find(const char *topic, size_t *first, size_t *count) {
    *first = *count = 0;
    const struct key *one = topic ? key_find_full(topic) : NULL;
    if (topic && !one && !key_section_find(topic))
        one = key_find_bare(topic);
    for (size_t i = 0; i < CONFIG_KEY_COUNT; i++) {
        if (topic && strcmp(key_table[i].section, topic) != 0 && &key_table[i] != one)
            continue;
        if (*count == 0)
            *first = i;
        ++*count;
    }
    return *count > 0;
}

trireme_status config_help(struct text *out, const char *topic, bool json, trireme_error *error) {
    size_t first, count;
    if (!topic_find(topic, &first, &count))
        return key_refuse_unknown_full("", topic, error);
    if (json) {
        json_begin_object(out, NULL);
        json_begin_array(out, "keys");
    }
    bool sections = !topic || key_section_find(topic);
    for (size_t i = first; i < first + count; i++) {
        const struct key *key = &key_table[i];
        const char *before = i > first ? key_table[i - 1].section : "";
        if (json)
            key_add_json(out, key);
        else if (sections && strcmp(before, key->section) != 0)
            text_add(out, "%s%s: %s\n", i > first ? "\n" : "", key->section, key_section_find(key->section)->help);
        if (!json)
            key_help(out, key);
    }
    if (json) {
        json_end_array(out);
        json_end_object(out);
        text_add(out, "\n");
    }
    return TRIREME_OK;
}
