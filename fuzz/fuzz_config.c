// Configurations from hostile bytes. An even first byte: the rest is a YAML file; an odd one: its lines are the
// arguments of a command. What is accepted must print to a text that loads again and prints the same.
#include "config/config.h"

static char *print(const struct config *config) {
    struct text text = {0};
    config_print(&text, config);
    return text.text;
}

static trireme_status load(struct config *config, const uint8_t *data, size_t size, trireme_error *error) {
    if (data[0] % 2 == 0)
        return config_load_text(config, "fuzz.yaml", (const char *)data + 1, size - 1, NULL, 0, error);
    char *lines = mem_alloc(size), *argv[64], *rest = lines;
    memcpy(lines, data + 1, size - 1);
    int argc = 0;
    for (char *line; argc < 64 && (line = strsep(&rest, "\n"));)
        argv[argc++] = line;
    trireme_status status = config_load_arguments(config, NULL, data[0] & 2 ? "generate" : NULL, argc, argv, error);
    free(lines);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct config config, again;
    trireme_error error = {.status = TRIREME_OK};
    if (size == 0)
        return 0;
    trireme_status status = load(&config, data, size, &error);
    if (status != TRIREME_OK) {
        CHECK(error.status == status && error.message[0] && !strchr(error.message, '\n'));
        return 0;
    }
    char *first = print(&config);
    CHECK(config_load_text(&again, "printed.yaml", first, strlen(first), NULL, 0, &error) == TRIREME_OK);
    char *second = print(&again);
    CHECK(strcmp(first, second) == 0);
    free(first);
    free(second);
    config_release(&config);
    config_release(&again);
    return 0;
}
