// A conversation with a model: messages become a prompt by the model's chat template (chat/chat.h), and what the model
// answers becomes a message.
#ifndef GENERATE_CONVERSATION_H
#define GENERATE_CONVERSATION_H

#include "chat/chat.h"
#include "generate/continuation.h"

#include <jansson.h>

// Zero-initialise; conversation_release releases it, whether it was opened or not.
struct conversation {
    struct continuation *continuation;
    struct chat_template *template;
    struct encoder *encoder;
    json_t *messages;
    struct token_list seen; // that the model has been given
    struct chat_text text;
    struct chat_tokens tokens;
    struct continued_text answer; // the last one
};

// For a continuation that is open, which it loads and which must outlive it. The template is config's
// generate.chat_template, or the tokenizer's own: USAGE where there is none. generate.system becomes the first message.
// An answer ends with what the template puts behind answers, too. The model sees as many tokens as it has positions,
// but where generate.context_length is not set no more than 4096 and an answer.
trireme_status conversation_open(struct conversation *conversation, struct continuation *continuation,
                                 trireme_error *error);
// Adds a message of the user and answers it; conversation->answer is what came of it. What the model has seen before is
// not computed again where the template leaves it as it was.
trireme_status conversation_answer(struct conversation *conversation, const char *message, size_t length,
                                   const struct continuation_sink *sink, trireme_error *error);
void conversation_release(struct conversation *conversation);

#endif
