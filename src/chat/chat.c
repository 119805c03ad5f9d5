#include "chat/chat.h"

#include "base/utf8.h"
#include "chat/chat_families.h"
#include "chat/jinja.h"
#include "tokenizer/added_tokens.h"

enum { TEMPLATE_BYTES_MAX = 1 << 20 };
// Of the texts that are rendered to tell the answers of one chat.
static const size_t RENDERED_MAX = (size_t)1 << 30;

struct chat_template {
    char *text;          // NULL: none
    struct jinja *jinja; // NULL: none
    char *bos, *eos;     // NULL: none
};

// The text of a token; NULL where there is none. The caller frees.
static char *token_text(const struct tokenizer *t, int32_t id) {
    const struct added_token *added = id >= 0 ? added_tokens_find_id(tokenizer_added(t), id) : NULL;
    const struct tokenizer_parts *parts = tokenizer_parts_of(t);
    if (added)
        return mem_strdup(added->content);
    if (id < 0 || !parts->tokens)
        return NULL;
    const struct token_bytes token = token_table_token(parts->tokens, id);
    return mem_printf("%.*s", (int)token.length, token.bytes);
}

#define EXPECTED_TEMPLATE "a file with one in Jinja, or one of "

// The template that is named, or the tokenizer's own; the caller frees. *out is NULL where there is none. *where: what
// it is, which the caller frees.
static trireme_status find_template(const struct tokenizer *t, const char *name, char **out, size_t *length,
                                    char **where, trireme_error *error) {
    const char *known = *name ? chat_family(name) : tokenizer_chat_template(t), *nearest = chat_family_nearest(name);
    char excerpt[JSON_EXCERPT_BYTES];
    if (known) {
        *where = *name ? mem_printf("the chat template %s", name) : mem_strdup("the tokenizer's chat template");
        *out = mem_strdup(known);
        *length = strlen(known);
    } else if (*name && file_missing(name)) {
        struct text families = {0};
        chat_families_list(&families);
        error_set(error, TRIREME_ERROR_USAGE, "there is no chat template %s%s%s%s: expected " EXPECTED_TEMPLATE "%s",
                  json_excerpt(name, excerpt), nearest ? " (did you mean " : "", nearest ? nearest : "",
                  nearest ? "?)" : "", families.text);
        text_release(&families);
        return TRIREME_ERROR_USAGE;
    } else if (*name) {
        TRY(file_read_named(name, TEMPLATE_BYTES_MAX, out, length, error));
        *where = mem_strdup(name);
    }
    return TRIREME_OK;
}

trireme_status chat_template_create(const struct tokenizer *t, const char *name, struct chat_template **out,
                                    trireme_error *error) {
    char *text = NULL, *where = NULL;
    size_t length = 0;
    struct jinja *jinja = NULL;
    TRY(find_template(t, name, &text, &length, &where, error));
    trireme_status status =
        !text || utf8_is_valid(text) ? TRIREME_OK : error_set(error, TRIREME_ERROR_USAGE, "%s: is not UTF-8", where);
    if (text && status == TRIREME_OK)
        status = jinja_parse(text, length, where, &jinja, error);
    free(where);
    if (status != TRIREME_OK) {
        free(text);
        return status;
    }
    struct chat_template *c = mem_alloc(sizeof *c);
    *c = (struct chat_template){text, jinja, token_text(t, tokenizer_bos(t)), token_text(t, tokenizer_eos(t))};
    *out = c;
    return TRIREME_OK;
}

void chat_template_free(struct chat_template *c) {
    if (!c)
        return;
    jinja_free(c->jinja);
    free(c->text);
    free(c->bos);
    free(c->eos);
    free(c);
}

const char *chat_template_text(const struct chat_template *c) {
    return c->text;
}

void chat_text_release(struct chat_text *out) {
    text_release(&out->text);
    VEC_RELEASE(&out->answers);
}

// ---- messages

// Sets the role and the content of a message as ShareGPT has it: "from" and "value".
static trireme_status message_set_sharegpt(json_t *message, size_t number, trireme_error *error) {
    static const struct {
        const char *from, *role;
    } ROLES[] = {{"human", "user"},          {"user", "user"},     {"gpt", "assistant"},
                 {"assistant", "assistant"}, {"system", "system"}, {"tool", "tool"}};
    const json_t *from = json_object_get(message, "from"), *value = json_object_get(message, "value");
    char excerpt[JSON_EXCERPT_BYTES];
    const char *role = NULL;
    for (size_t i = 0; i < ARRAY_LENGTH(ROLES) && json_is_string(from) && !role; i++)
        role = strcmp(ROLES[i].from, json_string_value(from)) == 0 ? ROLES[i].role : NULL;
    if (!role)
        FAIL(TRIREME_ERROR_USAGE, "message %zu is \"from\" %s: expected human, gpt, system or tool", number,
             json_excerpt_value(from, excerpt));
    if (!json_is_string(value))
        FAIL(TRIREME_ERROR_USAGE, "message %zu has a \"from\" and no text as its \"value\"", number);
    json_object_set_new(message, "role", json_string(role));
    json_object_set(message, "content", (json_t *)value);
    json_object_del(message, "from");
    json_object_del(message, "value");
    return TRIREME_OK;
}

// Copies what a message has to `copy`, without members that are null, and a reasoning under each of the names that it
// goes by.
static trireme_status message_normalize(const json_t *message, size_t number, json_t *copy, trireme_error *error) {
    static const char *const REASONING[] = {"reasoning_content", "thinking", "reasoning"};
    const char *key;
    json_t *value, *reasoning = NULL;
    char excerpt[JSON_EXCERPT_BYTES];
    json_object_foreach((json_t *)message, key, value) if (!json_is_null(value)) json_object_set(copy, key, value);
    if (!json_object_get(copy, "role") && json_object_get(copy, "from"))
        TRY(message_set_sharegpt(copy, number, error));
    if (!json_is_string(json_object_get(copy, "role")))
        FAIL(TRIREME_ERROR_USAGE, "message %zu is no object with a \"role\": %s", number,
             json_excerpt_value(message, excerpt));
    for (size_t k = 0; k < ARRAY_LENGTH(REASONING) && !reasoning; k++)
        reasoning = json_object_get(copy, REASONING[k]);
    if (reasoning && !json_object_get(copy, "thinking"))
        json_object_set(copy, "thinking", reasoning);
    if (reasoning)
        json_object_set(copy, "reasoning_content", reasoning);
    return TRIREME_OK;
}

// Messages as `transformers` gives them to a template. The caller frees *out.
static trireme_status messages_normalize(const json_t *messages, json_t **out, trireme_error *error) {
    const json_t *message;
    size_t i;
    json_t *all = json_array();
    json_array_foreach((json_t *)messages, i, message) {
        json_t *copy = json_object();
        json_array_append_new(all, copy);
        const trireme_status status = message_normalize(message, i + 1, copy, error);
        if (status != TRIREME_OK) {
            json_decref(all);
            return status;
        }
    }
    *out = all;
    return TRIREME_OK;
}

static bool is_assistant(const json_t *message) {
    return strcmp(json_string_value(json_object_get(message, "role")), "assistant") == 0;
}

// ---- rendering

struct rendering {
    const struct chat_template *template;
    json_t *messages;
    const json_t *tools;
    size_t rendered; // bytes so far
};

static void variables_set_text(json_t *variables, const char *name, const char *text) {
    if (text)
        json_object_set_new(variables, name, json_string(text));
}

// Renders the first messages.
static trireme_status render_first(struct rendering *r, size_t count, bool prompt, struct jinja_output *out,
                                   trireme_error *error) {
    json_t *variables = json_object(), *first = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append(first, json_array_get(r->messages, i));
    json_object_set_new(variables, "messages", first);
    json_object_set_new(variables, "tools", r->tools ? json_incref((json_t *)r->tools) : json_null());
    json_object_set_new(variables, "documents", json_null());
    json_object_set_new(variables, "add_generation_prompt", json_boolean(prompt));
    variables_set_text(variables, "bos_token", r->template->bos);
    variables_set_text(variables, "eos_token", r->template->eos);
    trireme_status status = jinja_render(r->template->jinja, variables, out, error);
    json_decref(variables);
    TRY(status);
    r->rendered += out->text.length;
    if (r->rendered > RENDERED_MAX)
        FAIL(TRIREME_ERROR_USAGE, "the chat is too long to tell its answers: use a template with {%% generation %%}");
    return TRIREME_OK;
}

static size_t common_prefix(const struct text *a, const struct text *b) {
    const size_t most = MIN(a->length, b->length);
    size_t at = 0;
    while (at < most && a->text[at] == b->text[at])
        at++;
    return at;
}

// Gives message `number` another content. It is returned as it was: the caller puts it back.
static json_t *message_change(struct rendering *r, size_t number, const char *content) {
    json_t *message = json_incref(json_array_get(r->messages, number)), *changed = json_copy(message);
    json_object_set_new(changed, "content", json_string(content));
    json_array_set_new(r->messages, number, changed);
    return message;
}

// Where what comes before message `number` ends in `whole`, and an answer begins. As a rule that is where a prompt ends
// which is made of the messages before. Models that think have templates whose prompts begin a thought, which other
// answers lack: then it is where another content of the message shows.
static trireme_status find_begin(struct rendering *r, size_t number, const struct jinja_output *whole, size_t *out,
                                 trireme_error *error) {
    struct jinja_output part = {0};
    size_t least = 0;
    trireme_status status = render_first(r, number, true, &part, error);
    *out = part.text.length;
    if (status == TRIREME_OK && common_prefix(&part.text, &whole->text) < *out) {
        status = render_first(r, number, false, &part, error);
        least = part.text.length;
        bool same = status == TRIREME_OK && common_prefix(&part.text, &whole->text) == least;
        if (same) {
            json_t *message = message_change(r, number, "\x01");
            status = render_first(r, json_array_size(r->messages), false, &part, error);
            *out = common_prefix(&part.text, &whole->text);
            json_array_set_new(r->messages, number, message);
            same = *out >= least;
        }
        if (status == TRIREME_OK && !same)
            status = error_set(error, TRIREME_ERROR_USAGE,
                               "the template writes what comes before the answer in message %zu otherwise when more "
                               "follows, so that it cannot be told from the rest: use a template with "
                               "{%% generation %%}, or name its family with data.chat_template",
                               number + 1);
    }
    jinja_output_release(&part);
    return status;
}

// Where the answer ends that is message `number`, if `part`, the text of the messages up to it, is not how `whole`
// begins. A character more in its content shows where in both texts its content ends. What follows there in `part` ends
// the answer, as far as it follows in `whole`, too: of what is written at once, all or nothing.
static trireme_status find_end(struct rendering *r, size_t number, const struct jinja_output *whole,
                               const struct jinja_output *part, size_t *out, trireme_error *error) {
    const char *content = json_string_value(json_object_get(json_array_get(r->messages, number), "content")) ?: "";
    char *longer = mem_printf("%s\x01", content);
    json_t *message = message_change(r, number, longer);
    struct jinja_output other = {0};
    size_t in_whole = 0, in_part = 0;
    trireme_status status = render_first(r, json_array_size(r->messages), false, &other, error);
    if (status == TRIREME_OK) {
        in_whole = common_prefix(&other.text, &whole->text);
        status = render_first(r, number + 1, false, &other, error);
    }
    if (status == TRIREME_OK) {
        in_part = common_prefix(&other.text, &part->text);
        const struct text after = {.text = whole->text.text + in_whole, .length = whole->text.length - in_whole},
                          tail = {.text = part->text.text + in_part, .length = part->text.length - in_part};
        const size_t same = common_prefix(&after, &tail);
        *out = in_whole;
        for (size_t i = 0; i < whole->seams.count && whole->seams.item[i] <= in_whole + same; i++)
            *out = MAX(*out, whole->seams.item[i]);
        if (same == tail.length)
            *out = in_whole + same;
    }
    json_array_set_new(r->messages, number, message);
    free(longer);
    jinja_output_release(&other);
    return status;
}

// Where the answer that is message `number` lies in `whole`. It ends where the text of the messages up to it ends
// (find_end).
static trireme_status find_answer(struct rendering *r, size_t number, const struct jinja_output *whole,
                                  struct jinja_output *part, struct chat_span *out, trireme_error *error) {
    size_t begin = 0;
    if (number > 0)
        TRY(find_begin(r, number, whole, &begin, error));
    size_t end = whole->text.length;
    if (number + 1 < json_array_size(r->messages)) {
        TRY(render_first(r, number + 1, false, part, error));
        end = common_prefix(&part->text, &whole->text);
        if (end < part->text.length)
            TRY(find_end(r, number, whole, part, &end, error));
    }
    if (end < begin)
        FAIL(TRIREME_ERROR_USAGE,
             "it cannot be told where the answer in message %zu ends: use a template with {%% generation %%}, or name "
             "its family with data.chat_template",
             number + 1);
    *out = (struct chat_span){begin, end};
    return TRIREME_OK;
}

static trireme_status find_answers(struct rendering *r, const struct jinja_output *whole, struct chat_text *out,
                                   trireme_error *error) {
    struct jinja_output part = {0};
    trireme_status status = TRIREME_OK;
    for (size_t i = 0; i < json_array_size(r->messages) && status == TRIREME_OK; i++) {
        struct chat_span span;
        if (!is_assistant(json_array_get(r->messages, i)))
            continue;
        status = find_answer(r, i, whole, &part, &span, error);
        if (status == TRIREME_OK && span.begin < span.end)
            VEC_PUSH(&out->answers, span);
    }
    jinja_output_release(&part);
    return status;
}

// Gives what was rendered to *out.
static void text_give(struct jinja_output *whole, struct chat_text *out) {
    text_release(&out->text);
    out->text = whole->text;
    whole->text = (struct text){0};
}

static trireme_status rendering_begin(struct rendering *r, const struct chat_template *c, const json_t *messages,
                                      const json_t *tools, struct chat_text *out, trireme_error *error) {
    *r = (struct rendering){.template = c, .tools = tools};
    out->text.length = out->answers.count = 0;
    out->document = false;
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        FAIL(TRIREME_ERROR_USAGE, "there is no message");
    if (!c->jinja) {
        struct text families = {0};
        chat_families_list(&families);
        error_set(error, TRIREME_ERROR_USAGE,
                  "the tokenizer has no chat template: name one with data.chat_template, " EXPECTED_TEMPLATE "%s",
                  families.text);
        text_release(&families);
        return TRIREME_ERROR_USAGE;
    }
    return messages_normalize(messages, &r->messages, error);
}

trireme_status chat_render(const struct chat_template *c, const json_t *messages, const json_t *tools, bool prompt,
                           struct chat_text *out, trireme_error *error) {
    struct rendering r;
    struct jinja_output whole = {0};
    TRY(rendering_begin(&r, c, messages, tools, out, error));
    trireme_status status = render_first(&r, json_array_size(r.messages), prompt, &whole, error);
    if (status == TRIREME_OK && !prompt && !jinja_marks_generation(c->jinja))
        status = find_answers(&r, &whole, out, error);
    for (size_t i = 0; i < whole.generation.count && status == TRIREME_OK && !prompt; i++) {
        const struct jinja_span span = whole.generation.item[i];
        VEC_PUSH(&out->answers, (struct chat_span){span.begin, span.end});
    }
    text_give(&whole, out);
    json_decref(r.messages);
    jinja_output_release(&whole);
    return status;
}

trireme_status chat_render_completion(const struct chat_template *c, const json_t *prompt, const json_t *completion,
                                      const json_t *tools, struct chat_text *out, trireme_error *error) {
    struct rendering r = {0};
    struct jinja_output whole = {0};
    size_t begin = 0;
    if (json_array_size(prompt) == 0 || json_array_size(completion) == 0)
        FAIL(TRIREME_ERROR_USAGE, "there is no message in \"%s\"", json_array_size(prompt) ? "completion" : "prompt");
    json_t *both = json_copy((json_t *)prompt);
    json_array_extend(both, (json_t *)completion);
    trireme_status status = rendering_begin(&r, c, both, tools, out, error);
    if (status == TRIREME_OK)
        status = render_first(&r, json_array_size(both), false, &whole, error);
    if (status == TRIREME_OK)
        status = find_begin(&r, json_array_size(prompt), &whole, &begin, error);
    if (status == TRIREME_OK && begin < whole.text.length)
        VEC_PUSH(&out->answers, (struct chat_span){begin, whole.text.length});
    text_give(&whole, out);
    jinja_output_release(&whole);
    json_decref(r.messages);
    json_decref(both);
    return status;
}

// A text and what completes it.
static void render_texts(const json_t *prompt, const json_t *completion, struct chat_text *out) {
    out->text.length = out->answers.count = 0;
    out->document = true;
    text_add_bytes(&out->text, json_string_value(prompt), json_string_length(prompt));
    text_add_bytes(&out->text, json_string_value(completion), json_string_length(completion));
    VEC_PUSH(&out->answers, (struct chat_span){json_string_length(prompt), out->text.length});
}

// A member of a line; NULL where there is none, or a null.
static const json_t *line_member(const json_t *line, const char *key) {
    const json_t *value = json_object_get(line, key);
    return json_is_null(value) ? NULL : value;
}

static trireme_status render_line(const struct chat_template *c, const json_t *line, const json_t *tools,
                                  struct chat_text *out, trireme_error *error) {
    static const char *const NAMES[] = {"messages", "conversations"};
    const json_t *prompt = line_member(line, "prompt"), *completion = line_member(line, "completion");
    char excerpt[JSON_EXCERPT_BYTES];
    for (size_t i = 0; i < ARRAY_LENGTH(NAMES); i++) {
        const json_t *messages = line_member(line, NAMES[i]);
        if (json_is_array(messages))
            return chat_render(c, messages, tools, false, out, error);
        if (messages)
            FAIL(TRIREME_ERROR_USAGE, "\"%s\" must be an array, found %s", NAMES[i],
                 json_excerpt_value(messages, excerpt));
    }
    if (json_is_string(prompt) && json_is_string(completion)) {
        render_texts(prompt, completion, out);
        return TRIREME_OK;
    }
    if (json_is_array(prompt) && json_is_array(completion))
        return chat_render_completion(c, prompt, completion, tools, out, error);
    FAIL(TRIREME_ERROR_USAGE,
         "expected \"messages\", \"conversations\", or \"prompt\" and \"completion\", both text or both messages");
}

trireme_status chat_render_line(const struct chat_template *c, const json_t *line, struct chat_text *out,
                                trireme_error *error) {
    const json_t *tools = line_member(line, "tools");
    char excerpt[JSON_EXCERPT_BYTES];
    json_t *parsed = NULL;
    // Tables of data have them as JSON in a text.
    if (json_is_string(tools))
        TRY(json_parse(json_string_value(tools), json_string_length(tools), "\"tools\"", &parsed, error));
    tools = parsed ? parsed : tools;
    const trireme_status status = !tools || json_is_array(tools)
                                      ? render_line(c, line, tools, out, error)
                                      : error_set(error, TRIREME_ERROR_USAGE, "\"tools\" must be an array, found %s",
                                                  json_excerpt_value(tools, excerpt));
    json_decref(parsed);
    return status;
}

// ---- tokens

trireme_status chat_encode(struct encoder *e, const struct chat_text *text, struct chat_tokens *out,
                           trireme_error *error) {
    out->tokens.count = out->answer.count = out->places.count = 0;
    for (size_t i = 0; i < text->answers.count; i++) {
        VEC_PUSH(&out->places, (struct encoder_place){.at = text->answers.item[i].begin});
        VEC_PUSH(&out->places, (struct encoder_place){.at = text->answers.item[i].end});
    }
    TRY(encoder_encode_places(e, text->text.text ? text->text.text : "", text->text.length,
                              text->document ? ENCODER_DOCUMENT : ENCODER_TEXT_ALONE, out->places.item,
                              out->places.count, &out->tokens, error));
    VEC_RESERVE(&out->answer, out->tokens.count);
    out->answer.count = out->tokens.count;
    for (size_t i = 0; i < out->answer.count; i++)
        out->answer.item[i] = false;
    for (size_t i = 0; i < out->places.count; i += 2)
        for (size_t k = out->places.item[i].ended;
             k < (text->document ? out->answer.count : out->places.item[i + 1].begun); k++)
            out->answer.item[k] = true;
    return TRIREME_OK;
}

void chat_tokens_release(struct chat_tokens *out) {
    VEC_RELEASE(&out->tokens);
    VEC_RELEASE(&out->answer);
    VEC_RELEASE(&out->places);
}
