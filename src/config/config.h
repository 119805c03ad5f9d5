// config/: what a user may set: one table of keys (keys.def) and everything made from it. Includes only base/.
//
// A configuration is read from a YAML file (sections, and under them keys with a scalar or a flow list) and from
// overrides on the command line. What names a file may hold any bytes, in YAML as !!binary where it is not UTF-8; all
// other texts are UTF-8. Every key has a default, so a loaded configuration is complete. Whatever is unknown, of the
// wrong type, out of range or given twice is refused (TRIREME_ERROR_USAGE) with file and line, key, what was given,
// what is accepted and the nearest known key. Values are checked alone here, and together only where one rule needs no
// other folder; whoever finds a further conflict reports it by config_refuse, so that the message says where the value
// came from.
#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H

#include "base/base.h"
#include "base/text.h"

// Enums, by their tags in keys.def: enum config_dtype { CONFIG_DTYPE_F32, ... }.
#define ENUM(tag, values) enum tag { values };
#define VALUE(constant, word) constant,
#include "config/keys.def"
// What a user writes for each: config_dtype_word(CONFIG_DTYPE_BF16) is "bf16".
#define ENUM(tag, values) const char *tag##_word(enum tag value);
#include "config/keys.def"

enum {
    CONFIG_KEY_COUNT = 0
#define INTEGER(...) +1
#define REAL(...) +1
#define SWITCH(...) +1
#define CHOICE(...) +1
#define TEXT(...) +1
#define FRACTIONS(...) +1
#include "config/keys.def"
};

// struct config_training training, ... with one field per key: config.training.seq_len.
// Texts are owned by the configuration and never NULL; an empty one means "not given".
struct config {
#define SECTION(tag, section, help) struct tag {
// clang-format off
#define END(section) } section;
// clang-format on
#define INTEGER(section, name, ...) int64_t name;
#define REAL(section, name, ...) double name;
#define SWITCH(section, name, ...) bool name;
#define CHOICE(section, name, tag, ...) enum tag name;
#define TEXT(section, name, ...) char *name;
#define FRACTIONS(section, name, count, ...) double name[count];
#include "config/keys.def"
    char *origin[CONFIG_KEY_COUNT]; // "run.yaml:12", "settings"; NULL where the default holds. See config_origin.
};

// Reads `path` (NULL: defaults alone), then applies `count` overrides "section.key=value". Text values of overrides are
// taken as they are, without YAML's quoting; lists are written as in YAML: data.split=[0.9, 0.1].
// The caller releases *out.
trireme_status config_load(struct config *out, const char *path, const char *const *overrides, size_t count,
                           trireme_error *error);
// The same from memory; `name` stands for the file in messages.
trireme_status config_load_text(struct config *out, const char *name, const char *yaml, size_t length,
                                const char *const *overrides, size_t count, trireme_error *error);
// The same with overrides as they stand on a command line: --section.key=value, --section.key value, section.key=value.
// Of a key that is set several times the last value counts. A key may be given by its name alone where no other section
// has one of that name (those of keys.def's LATER_SECTION do not count beside others), or where the section `own` has
// (NULL: none), which is then meant: --seed with "generate". Keys of one command's section need the latter. argv[0] is
// the first override, argv[argc - 1] the last.
trireme_status config_load_arguments(struct config *out, const char *path, const char *own, int argc, char *const *argv,
                                     trireme_error *error);
void config_copy(struct config *out, const struct config *config);
void config_release(struct config *config);

// Appends the configuration as YAML that loads to the same values, each key with its unit and help as a comment.
void config_print(struct text *out, const struct config *config);

// Where a value came from: "run.yaml:12", "command line" (config_load_arguments), "settings" (other overrides) or
// "default". An unknown key is a bug.
const char *config_origin(const struct config *config, const char *key);
// Whether a key has this name, with its section or without it.
bool config_names_key(const char *name);
// Whether the refusal of this name, which is no key, can name the key that is meant or say why there is none.
bool config_answers(const char *name);
// Whether the user set it.
bool config_is_set(const struct config *config, const char *key);
// Appends the value of a key as it would be written in a file, but for bytes that are not UTF-8, which become \xNN.
void config_print_value(struct text *out, const struct config *config, const char *key);
// The same as a member `name` of a JSON object: a number, true or false, a text (json_add_path), or an array of
// numbers.
void config_add_value(struct text *out, const char *name, const struct config *config, const char *key);
// Refuses a key that was set but is not among the `keys`, the only ones that `reader` reads. They are words such as
// "run.directory", or "run.*" for all keys of a section.
trireme_status config_expect(const struct config *config, const char *keys, const char *reader, trireme_error *error);
// Calls `differs` for each key whose values differ, which are given as they would be written in a file.
void config_compare(const struct config *a, const struct config *b,
                    void (*differs)(void *user, const char *section, const char *name, const char *a, const char *b),
                    void *user);
// Appends "optimizer.lr 0.001 (before: 0.01), ..." for all keys of the sections whose values differ.
void config_differences(const struct config *config, const struct config *before, const char *sections,
                        struct text *out);
// Whether the user set one of the `keys`, written as for config_expect.
bool config_sets_any(const struct config *config, const char *keys);
// Appends "optimizer.momentum 0.5 (optimizer.name is adamw), ..." for the keys that were set to something else than
// their defaults, but beside the values of others have no effect.
void config_without_effect(const struct config *config, struct text *out);
// Sets a key, whatever set it before; `origin` is what config_origin then says.
trireme_status config_set(struct config *config, const char *key, const char *value, const char *origin,
                          trireme_error *error);
// Gives a key its default back, as if nobody had set it.
void config_forget(struct config *config, const char *key);
// Refuses the value of a key: "run.yaml:12: training.seq_len: given 2048, " and then the format's text; of one that
// nobody set "training.seq_len: by default 1024, ".
trireme_status config_refuse(const struct config *config, const char *key, trireme_error *error, const char *format,
                             ...) __attribute__((format(printf, 4, 5)));

// Keys with default, unit, accepted values and help: all (topic NULL), those of a section, or one ("section.key"). For
// people, or as one JSON object whose array "keys" has objects with the members key, type, default, accepts, unit, help
// and synonyms (an array). An unknown topic is refused as config_load would.
trireme_status config_help(struct text *out, const char *topic, bool json, trireme_error *error);

#endif
