// trireme generate DIR --chat: a conversation.
#include "base/json.h"
#include "cli/command_generate.h"
#include "cli/standard_input.h"
#include "generate/conversation.h"

#include <unistd.h>

enum { MESSAGE_BYTES_MAX = 1 << 28 };

struct talk {
    const struct config *config;
    bool json, terminal;
    struct continuation continuation;
    struct conversation conversation;
    struct continuation_sink sink;
    struct text untold;
};

static trireme_status talk_add(void *user, size_t text, const char *bytes, size_t count, trireme_error *error) {
    struct talk *t = user;
    (void)text;
    if (t->json)
        return TRIREME_OK;
    text_add_bytes(&t->untold, bytes, count);
    return generate_tell(t->terminal, false, &t->untold, error);
}

static trireme_status talk_answer(struct talk *t, const char *message, size_t length, trireme_error *error) {
    const struct continued_text *a = &t->conversation.answer;
    TRY(conversation_answer(&t->conversation, message, length, &t->sink, error));
    if (t->json) {
        json_begin_object(&t->untold, NULL);
        json_add_text(&t->untold, "text", &a->said);
        json_add_string(&t->untold, "finish_reason", text_end_word(a->end));
        json_add_integer(&t->untold, "forgotten", a->forgotten);
        json_end_object(&t->untold);
    }
    text_add(&t->untold, "\n");
    return generate_tell(t->terminal && !t->json, true, &t->untold, error);
}

// Each line that is typed is a message, until the input ends.
static trireme_status talk_lines(struct talk *t, trireme_error *error) {
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    trireme_status status = TRIREME_OK;
    while (status == TRIREME_OK && !*t->sink.stop) {
        fputs("> ", stderr);
        if ((length = getline(&line, &room, stdin)) < 0)
            break;
        length -= length > 0 && line[length - 1] == '\n';
        if (strspn(line, " \t\r\n") < (size_t)length)
            status = talk_answer(t, line, (size_t)length, error);
    }
    fputs("\n", stderr);
    free(line);
    return status;
}

static trireme_status talk_whole_input(void *user, const char *message, size_t length, trireme_error *error) {
    length -= length > 0 && message[length - 1] == '\n';
    if (length == 0)
        FAIL(TRIREME_ERROR_USAGE, "there is no message; or give --prompt");
    return talk_answer(user, message, length, error);
}

static trireme_status talk(struct talk *t, const char *path, trireme_error *error) {
    const struct config_generate *c = &t->config->generate;
    if (*c->batch || c->samples > 1)
        return config_refuse(t->config, *c->batch ? "generate.batch" : "generate.samples", error,
                             "but --chat makes one text at a time");
    TRY(continuation_open(&t->continuation, t->config, path, error));
    TRY(conversation_open(&t->conversation, &t->continuation, error));
    if (*c->prompt)
        return talk_answer(t, c->prompt, strlen(c->prompt), error);
    return isatty(STDIN_FILENO) ? talk_lines(t, error)
                                : standard_input_whole(MESSAGE_BYTES_MAX, talk_whole_input, t, error);
}

trireme_status generate_chat(const struct arguments *a, const struct config *config, const atomic_bool *stop,
                             trireme_error *error) {
    struct talk t = {.config = config, .json = a->json, .terminal = isatty(STDOUT_FILENO)};
    t.sink = (struct continuation_sink){&t, talk_add, stop};
    trireme_status status = talk(&t, a->operands.item[0], error);
    conversation_release(&t.conversation);
    continuation_release(&t.continuation);
    text_release(&t.untold);
    return status;
}
