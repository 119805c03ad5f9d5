// trireme tokenizer chat: chats, as `trireme prepare` reads them, as text and ids.
#include "base/json.h"
#include "chat/chat.h"
#include "cli/cli.h"

#include <errno.h>

enum { LINE_MAX_BYTES = 1 << 28 };

struct chat_call {
    const struct arguments *arguments;
    struct chat_template *template;
    struct encoder *encoder;
    struct chat_text text;
    struct chat_tokens tokens;
    struct text out;
};

static void chat_print_json(struct chat_call *c) {
    json_begin_object(&c->out, NULL);
    json_add_text(&c->out, "text", &c->text.text);
    json_begin_array(&c->out, "ids");
    for (size_t i = 0; i < c->tokens.tokens.count; i++)
        json_add_integer(&c->out, NULL, c->tokens.tokens.item[i]);
    json_end_array(&c->out);
    json_begin_array(&c->out, "answers");
    for (size_t i = 0; i < c->tokens.answer.count; i++)
        json_add_integer(&c->out, NULL, c->tokens.answer.item[i]);
    json_end_array(&c->out);
    json_end_object(&c->out);
}

static trireme_status chat_print(struct chat_call *c, const char *line, size_t length, trireme_error *error) {
    json_t *chat;
    TRY(json_parse(line, length, "the line", &chat, error));
    trireme_status status = chat_render_line(c->template, chat, &c->text, error);
    json_decref(chat);
    if (status == TRIREME_OK && c->arguments->json)
        status = chat_encode(c->encoder, &c->text, &c->tokens, error);
    TRY(status);
    if (c->arguments->json)
        chat_print_json(c);
    else
        text_add_bytes(&c->out, c->text.text.text, c->text.text.length);
    text_add(&c->out, "\n");
    status = print_text(&c->out, error);
    c->out.length = 0;
    return status;
}

static trireme_status chat_read(struct chat_call *c, trireme_error *error) {
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    trireme_status status = TRIREME_OK;
    errno = 0;
    for (int64_t number = 1; status == TRIREME_OK && (length = getline(&line, &room, stdin)) >= 0; number++) {
        const bool blank = line[strspn(line, " \t\r\n")] == '\0';
        if (length > LINE_MAX_BYTES)
            status = error_set(error, TRIREME_ERROR_USAGE, "is longer than %d bytes", LINE_MAX_BYTES);
        else if (!blank)
            status = chat_print(c, line, (size_t)length, error);
        if (status != TRIREME_OK && status != TRIREME_ERROR_IO)
            error_prefix(error, status, "standard input line %lld", (long long)number);
        errno = 0;
    }
    if (status == TRIREME_OK && errno)
        status = error_set(error, TRIREME_ERROR_IO, "standard input: cannot read: %s", strerror(errno));
    free(line);
    return status;
}

trireme_status command_tokenizer_chat(const struct arguments *a, trireme_error *error) {
    struct config config;
    struct tokenizer *t = NULL;
    struct chat_call c = {.arguments = a};
    TRY(arguments_expect(a, 2, 2, error));
    TRY(arguments_config(a, NULL, &config, error));
    trireme_status status = config_expect(&config, "data.chat_template", "tokenizer chat", error);
    if (status == TRIREME_OK)
        status = tokenizer_load(a->operands.item[1], &t, error);
    if (status == TRIREME_OK)
        status = chat_template_create(t, config.data.chat_template, &c.template, error);
    if (status == TRIREME_OK) {
        c.encoder = encoder_create(t);
        status = chat_read(&c, error);
    }
    encoder_free(c.encoder);
    chat_text_release(&c.text);
    chat_tokens_release(&c.tokens);
    text_release(&c.out);
    chat_template_free(c.template);
    tokenizer_free(t);
    config_release(&config);
    return status;
}
