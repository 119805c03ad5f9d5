// A value as it was given, and its way into and out of struct config. Internal to config/, except value_print_text,
// with which other YAML files are written.
#ifndef CONFIG_VALUE_H
#define CONFIG_VALUE_H

#include "config/key.h"

enum given_form { GIVEN_SCALAR, GIVEN_LIST, GIVEN_MAPPING };

struct given_word {
    char *text;
    bool quoted; // a text and never a number, a switch or nothing at all
};

// A scalar has one word, a list any number, a mapping none.
struct given {
    enum given_form form;
    VEC(struct given_word) words;
};

// Splits the text of a value outside of YAML: a text stands for itself, "[a, b]" is a list where the type is one.
void given_parse(struct given *out, enum key_type type, const char *text);
void given_release(struct given *given);
// Appends what was given, for a message: `1.5`, `the text "12"`, `a list of 3`, `nothing`.
void given_describe(struct text *out, const struct given *given);

// Sets the key's field, or refuses the value.
trireme_status value_set(struct config *config, const struct key *key, const char *where, const struct given *given,
                         trireme_error *error);
// Whether key `of` has one of the words.
bool value_condition_holds(const struct config *config, const struct key_condition *condition);
// To the default that the key has beside the values of other keys.
void value_set_default(struct config *config, const struct key *key);
// Appends the value as YAML: value_set of what is read back gives the same bits.
void value_write(struct text *out, const struct config *config, const struct key *key);
// The same for people, who read \xNN in place of bytes that are not UTF-8. Other values are other texts.
void value_print(struct text *out, const struct config *config, const struct key *key);
// Appends it as a member of a JSON object.
void value_add_json(struct text *out, const char *name, const struct config *config, const struct key *key);
// Appends a text as YAML: in quotes if some reader of YAML would take the plain word for anything else.
void value_print_text(struct text *out, const char *text);
// The field of a text key.
char **value_text(const struct config *config, const struct key *key);

#endif
