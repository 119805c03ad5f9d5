#include "generate/conversation.h"

#include "base/json.h"
#include "tokenizer/added_tokens.h"

// What is not UTF-8 of a message becomes U+FFFD.
static void conversation_add(struct conversation *c, const char *role, const char *content, size_t length) {
    struct text text = {0};
    text_add_utf8(&text, content, length);
    json_t *message = json_pack("{s:s, s:s%}", "role", role, "content", text.text ? text.text : "", text.length);
    json_array_append_new(c->messages, message);
    text_release(&text);
}

// Makes what follows an answer in a chat end texts: the first added token of it, and, as a string, what comes before.
static trireme_status conversation_end_with(struct conversation *c, const char *behind, trireme_error *error) {
    const struct added_tokens *added = tokenizer_added(c->continuation->tokenizer);
    const struct added_token *token = NULL;
    struct token_list tokens = {0};
    size_t length = strlen(behind);
    trireme_status status = encoder_encode(c->encoder, behind, length, ENCODER_TEXT_ALONE, &tokens, error);
    for (size_t i = 0; i < tokens.count && !token; i++)
        token = added_tokens_find_id(added, tokens.item[i]);
    VEC_RELEASE(&tokens);
    TRY(status);
    if (token) {
        const char *begin = strstr(behind, token->content);
        length = begin ? (size_t)(begin - behind) : 0;
        generator_end_with(c->continuation->generator, token->id);
    }
    while (length > 0 && strchr(" \n", behind[length - 1]))
        length--;
    if (length > 0)
        stop_strings_add(&c->continuation->stops, behind, length);
    return TRIREME_OK;
}

// Adds what the template puts behind an answer to what ends a text.
static trireme_status conversation_find_end(struct conversation *c, trireme_error *error) {
    static const char ANSWER[] = "ANSWER";
    json_t *messages = json_deep_copy(c->messages);
    json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "user", "content", "QUESTION"));
    json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "assistant", "content", ANSWER));
    trireme_status status = chat_render(c->template, messages, NULL, false, &c->text, error);
    json_decref(messages);
    TRY(status);
    const char *from = c->text.text.text, *last = NULL;
    for (const char *at = from; (at = strstr(at, ANSWER)); at++)
        last = at + sizeof ANSWER - 1;
    return last ? conversation_end_with(c, last, error) : TRIREME_OK;
}

trireme_status conversation_open(struct conversation *c, struct continuation *continuation, trireme_error *error) {
    enum { SEEN = 4096 };
    const struct config_generate *how = &continuation->config->generate;
    *c = (struct conversation){.continuation = continuation, .messages = json_array()};
    if (!*how->chat_template && !tokenizer_chat_template(continuation->tokenizer))
        return config_refuse(continuation->config, "generate.chat_template", error,
                             "but the model's tokenizer has no chat template: give one, such as chatml");
    TRY(chat_template_create(continuation->tokenizer, how->chat_template, &c->template, error));
    c->encoder = encoder_create(continuation->tokenizer);
    if (*how->system)
        conversation_add(c, "system", how->system, strlen(how->system));
    TRY(continuation_load(continuation, 1, how->context_length > 0 ? (size_t)how->context_length : SEEN, error));
    return conversation_find_end(c, error);
}

// Makes the messages the prompt of the next answer.
static trireme_status conversation_prompt(struct conversation *c, trireme_error *error) {
    TRY(chat_render(c->template, c->messages, NULL, true, &c->text, error));
    TRY(chat_encode(c->encoder, &c->text, &c->tokens, error));
    const struct token_list *tokens = &c->tokens.tokens;
    const bool goes_on =
        c->seen.count < tokens->count &&
        (c->seen.count == 0 || memcmp(c->seen.item, tokens->item, c->seen.count * sizeof *tokens->item) == 0);
    continued_text_release(&c->answer);
    c->answer = (struct continued_text){.known = goes_on ? c->seen.count : 0};
    token_list_append(&c->answer.prompt, tokens->item, tokens->count);
    return TRIREME_OK;
}

trireme_status conversation_answer(struct conversation *c, const char *message, size_t length,
                                   const struct continuation_sink *sink, trireme_error *error) {
    conversation_add(c, "user", message, length);
    TRY(conversation_prompt(c, error));
    TRY(continuation_run(c->continuation, &c->answer, 1, sink, error));
    const struct continued_text *a = &c->answer;
    // The last token of a text that did not end by itself was not given to the model.
    const bool unseen = (a->end == TEXT_END_LENGTH || a->end == TEXT_END_STOP) && a->tokens.count > 0;
    c->seen.count = 0;
    token_list_append(&c->seen, a->prompt.item, a->prompt.count);
    token_list_append(&c->seen, a->tokens.item, a->tokens.count - unseen);
    conversation_add(c, "assistant", a->said.text, a->said.length);
    return TRIREME_OK;
}

void conversation_release(struct conversation *c) {
    json_decref(c->messages);
    encoder_free(c->encoder);
    chat_template_free(c->template);
    VEC_RELEASE(&c->seen);
    chat_text_release(&c->text);
    chat_tokens_release(&c->tokens);
    continued_text_release(&c->answer);
    *c = (struct conversation){0};
}
