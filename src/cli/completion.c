// Both scripts have the same parts: words that may stand in a place, and, for a key, its values. They are made from the
// tables of commands and of their options, and from the help of the keys.
#include "cli/completion.h"

#include "base/json.h"
#include "cli/cli.h"
#include "sim/shipped.h"

// The next word of a command's operands, as `trireme help` shows them; NULL: there is none.
static const char *operand_next(const char **at, size_t *length) {
    static const char BETWEEN[] = " |[]";
    *at += strspn(*at, BETWEEN);
    const char *word = *at;
    *length = strcspn(word, BETWEEN);
    *at += *length;
    return *length ? word : NULL;
}

// The words that a command's operands say as they are, such as "program", and its own keys, such as "cluster=".
static void add_operands(const struct command *command, struct text *out) {
    static const char NAME[] = "abcdefghijklmnopqrstuvwxyz_";
    const char *at = command->operands;
    size_t length;
    for (const char *word; (word = operand_next(&at, &length)) != NULL;) {
        const size_t name = strspn(word, NAME);
        if (name == length || (name && word[name] == '='))
            text_add(out, " %.*s", (int)(name + (name < length)), word);
    }
}

static void add_commands(struct text *out) {
    for (size_t i = 0; i < command_count; i++)
        text_add(out, " %s", commands[i].name);
}

// Options of a command (NULL: of all) that are words alone.
static void add_flags(const char *command, struct text *out) {
    for (size_t i = 0; i < flag_count; i++) {
        const struct flag *f = &flags[i];
        if (f->word[1] == '-' && (command ? f->command && strcmp(f->command, command) == 0 : !f->command))
            text_add(out, " %s", f->word);
    }
}

// A key without its section, where that has the command's name; else NULL.
static const char *own_name(const json_t *key, const char *command) {
    const char *name = json_string_value(json_object_get(key, "key"));
    const size_t length = strlen(command);
    return strncmp(name, command, length) == 0 && name[length] == '.' ? name + length + 1 : NULL;
}

// Options and keys that are a command's own.
static void add_own(const json_t *root, const char *command, struct text *out) {
    size_t i;
    json_t *key;
    add_flags(command, out);
    json_array_foreach(json_object_get(root, "keys"), i, key) {
        const char *name = own_name(key, command);
        if (name)
            text_add(out, " --%s=", name);
    }
}

// A line for each command that has operands that are words, or options; `of`: what is in front of its name.
static void add_command_cases(const json_t *root, const char *of, struct text *out) {
    for (size_t i = 0; i < command_count; i++) {
        struct text words = {0}, own = {0};
        add_operands(&commands[i], &words);
        add_own(root, commands[i].name, &own);
        if (words.length + own.length > 0)
            text_add(out, "        %s%s) words='%s' own='%s' ;;\n", of, commands[i].name,
                     words.length ? words.text + 1 : "", own.length ? own.text + 1 : "");
        text_release(&words);
        text_release(&own);
    }
}

static json_t *read_keys(void) {
    struct text help = {0};
    json_t *root = NULL;
    CHECK(config_help(&help, NULL, true, NULL) == TRIREME_OK);
    CHECK(json_parse(help.text, help.length, "keys", &root, NULL) == TRIREME_OK);
    text_release(&help);
    return root;
}

static void add_keys(const json_t *root, struct text *out) {
    size_t i;
    json_t *key;
    json_array_foreach(json_object_get(root, "keys"), i, key)
        text_add(out, " --%s=", json_string_value(json_object_get(key, "key")));
}

// Appends the words by which a key's value may be given, if they are known.
static void add_values(const json_t *key, struct text *out) {
    static const char ONE_OF[] = "one of ";
    const char *type = json_string_value(json_object_get(key, "type")),
               *accepts = json_string_value(json_object_get(key, "accepts"));
    if (strcmp(type, "boolean") == 0)
        text_add(out, " true false");
    if (strcmp(type, "choice") != 0)
        return;
    CHECK(strncmp(accepts, ONE_OF, strlen(ONE_OF)) == 0);
    text_add(out, " ");
    for (const char *c = accepts + strlen(ONE_OF); *c; c++)
        if (*c != ',')
            text_add_bytes(out, c, 1);
}

// Whether a key is of the section of a command.
static bool is_own(const json_t *key) {
    for (size_t i = 0; i < command_count; i++)
        if (own_name(key, commands[i].name))
            return true;
    return false;
}

// Lines for keys that have named values, which come after a command and a dot: first in full, or where the name alone
// means them after their own command, then by their names.
static void add_value_cases(const json_t *root, struct text *out) {
    size_t i;
    json_t *key;
    for (int full = 1; full >= 0; full--)
        json_array_foreach(json_object_get(root, "keys"), i, key) {
            const char *name = json_string_value(json_object_get(key, "key"));
            struct text values = {0};
            add_values(key, &values);
            if (values.length && full)
                text_add(out, "        *.%s%s%s", name, is_own(key) ? "|" : "", is_own(key) ? name : "");
            else if (values.length)
                text_add(out, "        *%s", strchr(name, '.'));
            if (values.length)
                text_add(out, ") words='%s' ;;\n", values.text + 1);
            text_release(&values);
        }
    text_add(out, "        *.cluster) words='");
    for (const struct shipped_cluster *s = shipped_clusters; s->name; s++)
        text_add(out, "%s%s", s > shipped_clusters ? " " : "", s->name);
    text_add(out, "' ;;\n");
}

// In bash, '=' ends a word that is completed, so the whole word is taken from the line.
static const char BASH_BEGIN[] = "# bash completion for trireme: made by `trireme help completion bash`\n"
                                 "_trireme() {\n"
                                 "    local line=${COMP_LINE:0:COMP_POINT} word words= own= key\n"
                                 "    word=${line##*[[:space:]]}\n"
                                 "    COMPREPLY=()\n"
                                 "    if [[ $word == *=* ]]; then\n"
                                 "        key=${word%%=*} word=${word#*=}\n"
                                 "        case ${COMP_WORDS[1]}.${key#--} in\n",
                  BASH_COMMANDS[] = "        esac\n"
                                    "        COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
                                    "        return\n"
                                    "    fi\n"
                                    "    case $COMP_CWORD-${COMP_WORDS[1]} in\n"
                                    "        1-*) words='",
                  BASH_KEYS[] = "    esac\n"
                                "    [[ $word != -* ]] || words=$own'",
                  BASH_END[] = "'\n"
                               "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
                               "    [[ ${COMPREPLY[0]} != *= ]] || compopt -o nospace\n"
                               "}\n"
                               "complete -o default -F _trireme trireme\n";

static const char ZSH_BEGIN[] = "#compdef trireme\n"
                                "# zsh completion for trireme: made by `trireme help completion zsh`\n"
                                "_trireme() {\n"
                                "    local word=${words[CURRENT]} command=${words[2]} own= key words=\n"
                                "    if [[ $word == *=* ]]; then\n"
                                "        key=${word%%=*}\n"
                                "        compset -P '*='\n"
                                "        case $command.${key#--} in\n",
                  ZSH_COMMANDS[] = "        esac\n"
                                   "        if [[ -n $words ]]; then compadd -- ${=words}; else _files; fi\n"
                                   "        return\n"
                                   "    fi\n"
                                   "    (( CURRENT > 2 )) || command=\n"
                                   "    case $command in\n"
                                   "        '') words='",
                  ZSH_KEYS[] = "    esac\n"
                               "    [[ $word != -* ]] || words=$own'",
                  ZSH_END[] = "'\n"
                              "    compadd -- ${${=words}:#*=}\n"
                              "    compadd -S '' -- ${(M)${=words}:#*=}\n"
                              "    [[ $word == -* || -z $command ]] || _files\n"
                              "}\n"
                              "_trireme \"$@\"\n";

static const struct completion_shell {
    const char *name, *begin, *commands, *keys, *end;
    const char *of; // a command's case, in front of its name
} SHELLS[] = {
    {"bash", BASH_BEGIN, BASH_COMMANDS, BASH_KEYS, BASH_END, "*-"},
    {"zsh", ZSH_BEGIN, ZSH_COMMANDS, ZSH_KEYS, ZSH_END, ""},
};

bool completion_add(const char *shell, struct text *out) {
    const struct completion_shell *s = NULL;
    for (size_t i = 0; i < ARRAY_LENGTH(SHELLS); i++)
        if (strcmp(SHELLS[i].name, shell) == 0)
            s = &SHELLS[i];
    if (!s)
        return false;
    json_t *keys = read_keys();
    struct text list = {0};
    text_add(out, "%s", s->begin);
    add_value_cases(keys, out);
    add_commands(&list);
    text_add(out, "%s%s' ;;\n", s->commands, list.text + 1);
    add_command_cases(keys, s->of, out);
    list.length = 0;
    add_flags(NULL, &list);
    add_keys(keys, &list);
    text_add(out, "%s%s%s", s->keys, list.text, s->end);
    text_release(&list);
    json_decref(keys);
    return true;
}
