#include "generate/prompts.h"

#include "base/json.h"

static void prompts_add(struct prompts *prompts, const char *bytes, size_t length) {
    struct text text = {0};
    text_add_bytes(&text, bytes, length);
    VEC_PUSH(prompts, text);
}

static trireme_status prompts_add_line(void *user, const struct file_line *line, trireme_error *error) {
    (void)error;
    prompts_add(user, line->text, line->length);
    return TRIREME_OK;
}

static trireme_status prompts_add_object(void *user, const struct file_line *line, trireme_error *error) {
    json_t *root;
    const char *prompt;
    TRY(json_parse(line->text, line->length, line->where, &root, error));
    trireme_status status = json_read_string(root, line->where, "prompt", JSON_REQUIRED, &prompt, error);
    if (status == TRIREME_OK)
        prompts_add(user, prompt, strlen(prompt));
    json_decref(root);
    return status;
}

trireme_status prompts_read(struct prompts *prompts, const struct config *config, trireme_error *error) {
    enum { LIMIT = 1 << 30 };
    const struct config_generate *c = &config->generate;
    if (!*c->batch) {
        prompts_add(prompts, c->prompt, strlen(c->prompt));
        return TRIREME_OK;
    }
    if (*c->prompt)
        return config_refuse(config, "generate.batch", error, "but there is generate.prompt, too: give one of them");
    TRY(file_each_line(c->batch, LIMIT, text_ends(c->batch, ".jsonl") ? prompts_add_object : prompts_add_line, prompts,
                       error));
    if (prompts->count == 0)
        FAIL(TRIREME_ERROR_USAGE, "%s: has no prompt", c->batch);
    return TRIREME_OK;
}

void prompts_release(struct prompts *prompts) {
    for (size_t i = 0; i < prompts->count; i++)
        text_release(&prompts->item[i]);
    VEC_RELEASE(prompts);
}
