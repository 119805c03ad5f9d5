// trireme tokenizer chat: chats, as `trireme prepare` reads them, as text and ids.
#include "base/json.h"
#include "chat/chat.h"
#include "cli/cli.h"
#include "cli/standard_input.h"

enum { LINE_MAX_BYTES = 1 << 28 };

struct chat_call {
    const struct arguments *arguments;
    const char *field; // of a line that is a text and no chat
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

// A line that is a text completes nothing.
static trireme_status chat_render_any(struct chat_call *c, const json_t *line, trireme_error *error) {
    json_t *text = json_object_get(line, c->field);
    if (!text)
        return chat_render_line(c->template, line, &c->text, error);
    if (!json_is_string(text))
        FAIL(TRIREME_ERROR_USAGE, "the field \"%s\" must be a string", c->field);
    json_t *completion = json_pack("{s:s, s:O}", "prompt", "", "completion", text);
    const trireme_status status = chat_render_line(c->template, completion, &c->text, error);
    json_decref(completion);
    return status;
}

static trireme_status chat_print(void *user, const char *line, size_t length, trireme_error *error) {
    struct chat_call *c = user;
    json_t *chat;
    size_t blank = 0;
    while (blank < length && (line[blank] == ' ' || line[blank] == '\t' || line[blank] == '\r'))
        blank++;
    if (blank == length)
        return TRIREME_OK;
    TRY(json_parse(line, length, "the line", &chat, error));
    trireme_status status = chat_render_any(c, chat, error);
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

trireme_status command_tokenizer_chat(const struct arguments *a, trireme_error *error) {
    struct config config;
    struct tokenizer *t = NULL;
    struct chat_call c = {.arguments = a};
    TRY(arguments_expect(a, 2, 2, error));
    TRY(arguments_config(a, NULL, &config, error));
    trireme_status status =
        config_expect(&config, "data.chat_template data.text_field tokenizer.pattern", "tokenizer chat", error);
    c.field = config.data.text_field;
    if (status == TRIREME_OK)
        status = arguments_tokenizer(a->operands.item[1], &config, &t, error);
    if (status == TRIREME_OK)
        status = chat_template_create(t, config.data.chat_template, &c.template, error);
    if (status == TRIREME_OK) {
        c.encoder = encoder_create(t);
        status = standard_input_lines(LINE_MAX_BYTES, chat_print, &c, error);
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
