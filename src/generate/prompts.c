#include "generate/prompts.h"

#include "base/json.h"

static void prompts_add(struct prompts *prompts, const char *bytes, size_t length) {
    struct text text = {0};
    text_add_bytes(&text, bytes, length);
    VEC_PUSH(prompts, text);
}

static trireme_status prompts_add_object(struct prompts *prompts, const char *line, size_t length, const char *where,
                                         trireme_error *error) {
    json_t *root;
    const char *prompt;
    TRY(json_parse(line, length, where, &root, error));
    trireme_status status = json_read_string(root, where, "prompt", JSON_REQUIRED, &prompt, error);
    if (status == TRIREME_OK)
        prompts_add(prompts, prompt, strlen(prompt));
    json_decref(root);
    return status;
}

static trireme_status prompts_read_lines(struct prompts *prompts, const char *path, const char *bytes, size_t length,
                                         trireme_error *error) {
    const bool objects = text_ends(path, ".jsonl");
    size_t number = 0;
    for (const char *line = bytes, *end = bytes + length; line < end; number++) {
        const char *stop = memchr(line, '\n', (size_t)(end - line)) ?: end;
        size_t count = (size_t)(stop - line);
        count -= count > 0 && line[count - 1] == '\r';
        if (strspn(line, " \t\r") < count) { // the file ends with a NUL
            char *where = mem_printf("%s:%zu", path, number + 1);
            trireme_status status = TRIREME_OK;
            if (objects)
                status = prompts_add_object(prompts, line, count, where, error);
            else
                prompts_add(prompts, line, count);
            free(where);
            TRY(status);
        }
        line = stop + 1;
    }
    if (prompts->count == 0)
        FAIL(TRIREME_ERROR_USAGE, "%s: has no prompt", path);
    return TRIREME_OK;
}

trireme_status prompts_read(struct prompts *prompts, const struct config *config, trireme_error *error) {
    enum { LIMIT = 1 << 30 };
    const struct config_generate *c = &config->generate;
    char *bytes;
    size_t length;
    if (!*c->batch) {
        prompts_add(prompts, c->prompt, strlen(c->prompt));
        return TRIREME_OK;
    }
    if (*c->prompt)
        return config_refuse(config, "generate.batch", error, "but there is generate.prompt, too: give one of them");
    TRY(file_read_named(c->batch, LIMIT, &bytes, &length, error));
    trireme_status status = prompts_read_lines(prompts, c->batch, bytes, length, error);
    free(bytes);
    return status;
}

void prompts_release(struct prompts *prompts) {
    for (size_t i = 0; i < prompts->count; i++)
        text_release(&prompts->item[i]);
    VEC_RELEASE(prompts);
}
