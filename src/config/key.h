// Internal to config/: the table that keys.def becomes, looking keys up, and refusing those that are not there.
#ifndef CONFIG_KEY_H
#define CONFIG_KEY_H

#include "config/config.h"

enum key_type { KEY_INTEGER, KEY_REAL, KEY_SWITCH, KEY_CHOICE, KEY_TEXT, KEY_FRACTIONS };

struct key_bounds {
    double least, most; // of integers too: all bounds are below 2^53
    bool above_least, below_most;
};

struct key {
    const char *section, *name;
    enum key_type type;
    size_t offset;       // of its field in struct config
    const char *initial; // the default, as a user would write it
    const char *unit, *help, *synonyms;
    struct key_bounds bounds; // KEY_INTEGER, KEY_REAL
    const char *const *words; // KEY_CHOICE: what a user may write, by enum value; ends with NULL
    size_t count;             // KEY_FRACTIONS
    bool is_path;             // KEY_TEXT: any bytes, not UTF-8 alone
};

// The default of a key where another one of its section has that value.
struct key_default {
    const char *section, *name, *initial, *of, *word;
};

// A key has an effect only where key `of` has one of the words (keys.def).
struct key_condition {
    const char *section, *name, *of, *words;
};

// Which section is meant by the name of a key alone, where several have one: of an earlier turn.
enum section_turn {
    TURN_FIRST,
    TURN_LATER,   // of something that few runs have
    TURN_COMMAND, // it matters only to the command of its name
    TURNS
};
struct key_section {
    const char *name, *help;
    enum section_turn turn;
};

extern const struct key key_table[CONFIG_KEY_COUNT];
extern const struct key_section key_sections[];     // ends with a NULL name
extern const struct key_default key_defaults[];     // ends with a NULL name
extern const struct key_condition key_conditions[]; // ends with a NULL name

const struct key *key_find(const char *section, const char *name); // NULL: there is none
const struct key *key_find_full(const char *full);                 // "training.seq_len"
// The one that alone has this name among the sections of the first turn that has any.
const struct key *key_find_bare(const char *name);
// The same for a setting without a section. What matters to one command is not meant, nor what another answer is for.
const struct key *key_alone(const char *name);

enum { KEY_NAME = 64 }; // room for the name of a key, or a synonym
// Takes the next of a key's synonyms off *rest; false: there is none.
bool key_synonym_next(const char **rest, char out[KEY_NAME]);

const struct key_section *key_section_find(const char *name);

// Appends what values are accepted: "a whole number from 1 to 16777216 (tokens)".
void key_accepts(struct text *out, const struct key *key);

// TRIREME_ERROR_USAGE for a name that is no key. The message names our key for a known synonym, else one that is near,
// or the keys of the section, or says what is not supported. `section` is empty for a bare name. `value` is what was
// given, or NULL.
trireme_status key_refuse_unknown(const char *where, const char *section, const char *name, const char *value,
                                  trireme_error *error);
// The same for a name with the section before its first dot, if there is one.
trireme_status key_refuse_unknown_full(const char *where, const char *full, trireme_error *error);
trireme_status key_refuse_section(const char *where, const char *name, trireme_error *error);

// For messages: foreign text on one line, control characters and what is not UTF-8 escaped, cut when long.
#define KEY_EXCERPT 96
const char *key_excerpt(const char *text, char buffer[KEY_EXCERPT]);

#endif
