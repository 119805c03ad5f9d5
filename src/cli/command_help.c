// trireme help: commands, keys, and all that has a name.
#include "base/json.h"
#include "cli/cli.h"
#include "cli/completion.h"
#include "cli/exit_code.h"
#include "model/model.h"
#include "parallel/context_method.h"
#include "pipeline/schedule.h"
#include "sim/cluster.h"
#include "sim/shipped.h"

enum { OPERANDS_WIDTH = 36 };

static void help_overview(struct text *out) {
    text_add(out, "usage: trireme COMMAND ... [--section.key=value ...] [--json]\n\n");
    for (size_t i = 0; i < command_count; i++) {
        const struct command *c = &commands[i];
        bool is_long = strlen(c->operands) > OPERANDS_WIDTH;
        text_add(out, "  %-10s %-*s", c->name, OPERANDS_WIDTH, c->operands);
        text_add(out, is_long ? "\n%*s %s\n" : "%*s %s\n", is_long ? OPERANDS_WIDTH + 13 : 0, "", c->help);
    }
    text_add(out, "\nA setting may be written --section.key=value, --section.key value or section.key=value, without\n"
                  "the section where no other has a key of that name. Of several values the last counts.\n"
                  "trireme help config lists all keys, trireme help models, clusters and schedules what has a name,\n"
                  "trireme help context_parallel how ranks share sequences, trireme help exit_codes how commands end;\n"
                  "trireme --version tells which build this is; man trireme has more.\n");
}

// Describes a command. If a section of the configuration has its name, the keys of that section follow.
static void help_describe(const struct command *command, struct text *out) {
    bool bare = command->bare && strcmp(command->bare, ALL_OF_IT) == 0;
    text_add(out, "usage: trireme %s %s%s [--json]\n%s\n\n%s", command->name, command->operands,
             bare ? "" : " [--section.key=value ...]", command->help, command->details);
    struct text keys = {0};
    trireme_error none;
    if (config_help(&keys, command->name, false, &none) == TRIREME_OK)
        text_add(out, "\n%s", keys.text);
    text_release(&keys);
}

static trireme_status help_clusters(struct text *out, trireme_error *error) {
    struct op_table *ops = op_table_create();
    trireme_status status = clusters_help(out, ops, error);
    free(ops);
    return status;
}

static trireme_status help_schedules(struct text *out, trireme_error *error) {
    (void)error;
    schedules_help(out);
    return TRIREME_OK;
}

static trireme_status help_context_parallel(struct text *out, trireme_error *error) {
    (void)error;
    context_methods_help(out);
    return TRIREME_OK;
}

static trireme_status help_exit_codes(struct text *out, trireme_error *error) {
    (void)error;
    exit_codes_help(out);
    return TRIREME_OK;
}

// What is neither a command nor a key, and has no JSON.
static const struct list {
    const char *name;
    trireme_status (*print)(struct text *out, trireme_error *error);
} LISTS[] = {{"clusters", help_clusters},
             {"schedules", help_schedules},
             {"context_parallel", help_context_parallel},
             {"exit_codes", help_exit_codes}};

static const struct list *list_find(const char *name) {
    for (size_t i = 0; i < ARRAY_LENGTH(LISTS); i++)
        if (strcmp(LISTS[i].name, name) == 0)
            return &LISTS[i];
    return NULL;
}

// The list that has this name. NULL: none.
static const char *list_with(const char *name) {
    struct model_config model;
    trireme_error none;
    if (model_config_preset(&model, name, &none) == TRIREME_OK)
        return "models";
    for (const struct shipped_cluster *s = shipped_clusters; s->name; s++)
        if (strcmp(s->name, name) == 0)
            return "clusters";
    return schedule_kind(name) ? "schedules" : NULL;
}

// Refuses a topic that config_help has refused without an answer.
static trireme_status refuse_topic(const char *topic, trireme_error *error) {
    static const char *const WITH_JSON[] = {"config", "models"};
    const char *list = list_with(topic),
               *nearest = text_nearest(topic, &commands[0].name, command_count, sizeof commands[0]);
    if (!nearest)
        nearest = text_nearest(topic, WITH_JSON, ARRAY_LENGTH(WITH_JSON), sizeof WITH_JSON[0]);
    if (!nearest)
        nearest = text_nearest(topic, &LISTS[0].name, ARRAY_LENGTH(LISTS), sizeof LISTS[0]);
    char excerpt[JSON_EXCERPT_BYTES];
    if (list)
        FAIL(TRIREME_ERROR_USAGE, "there is no command or key %s, but it is in `trireme help %s`",
             json_excerpt(topic, excerpt), list);
    if (nearest)
        FAIL(TRIREME_ERROR_USAGE, "there is no command or key %s; did you mean %s? `trireme help` lists what there is",
             json_excerpt(topic, excerpt), nearest);
    return TRIREME_ERROR_USAGE;
}

static trireme_status help_completion(const struct arguments *a, trireme_error *error) {
    struct text out = {0};
    TRY(arguments_expect(a, 2, 2, error));
    if (!completion_add(a->operands.item[1], &out))
        FAIL(TRIREME_ERROR_USAGE, "help completion: for bash or zsh, not \"%s\"", a->operands.item[1]);
    const trireme_status status = print_text(&out, error);
    text_release(&out);
    return status;
}

trireme_status command_help(const struct arguments *a, trireme_error *error) {
    const char *topic = a->operands.count ? a->operands.item[0] : "";
    if (strcmp(topic, "completion") == 0)
        return help_completion(a, error);
    TRY(arguments_expect(a, 0, 1, error));
    struct text out = {0};
    trireme_status status = TRIREME_OK;
    const struct command *command = NULL;
    for (size_t i = 0; i < command_count; i++)
        if (strcmp(commands[i].name, topic) == 0)
            command = &commands[i];
    const struct list *list = list_find(topic);
    // A section of keys may have a command's name.
    const bool keys = a->json && command && config_help(&out, topic, true, error) == TRIREME_OK;
    if (a->json && !keys && (!*topic || command || list))
        FAIL(TRIREME_ERROR_USAGE, "help %s is text: leave --json out; help of configuration keys and models has JSON",
             *topic ? topic : "by itself");
    if (keys)
        command = NULL;
    else if (!*topic)
        help_overview(&out);
    else if (command)
        help_describe(command, &out);
    else if (strcmp(topic, "models") == 0 && a->json)
        model_presets_help_json(&out);
    else if (strcmp(topic, "models") == 0)
        model_presets_help(&out);
    else if (list)
        status = list->print(&out, error);
    else
        status = config_help(&out, strcmp(topic, "config") == 0 ? NULL : topic, a->json, error);
    if (status == TRIREME_ERROR_USAGE && !config_answers(topic))
        status = refuse_topic(topic, error);
    if (status == TRIREME_OK)
        status = print_text(&out, error);
    text_release(&out);
    return status;
}
