// chat/: what a chat becomes for a model: one text, by the model's chat template, and which parts of it are answers.
// May include base/ and tokenizer/.
//
//   jinja            the language in which templates are written: parsed, and rendered
//   chat_families    templates that have names
//   chat             messages -> text, tokens, and which tokens are answers
#ifndef CHAT_CHAT_H
#define CHAT_CHAT_H

#include "tokenizer/encoder.h"

struct chat_template;

// `name`: a family's name (chat_families.h), a file with a template in Jinja, or "": the tokenizer's own template;
// where it has none, only texts can be rendered. USAGE where the name is unknown, or the template has something in it
// that is not supported: named, with its line. The caller frees *out. Threads may share it.
trireme_status chat_template_create(const struct tokenizer *t, const char *name, struct chat_template **out,
                                    trireme_error *error);
void chat_template_free(struct chat_template *c);
// It as it is written; NULL: there is none.
const char *chat_template_text(const struct chat_template *c);

// A part of a text, in bytes.
struct chat_span {
    size_t begin, end;
};

// Zero-initialise; chat_text_release frees.
struct chat_text {
    struct text text;
    VEC(struct chat_span) answers; // in order
    bool document;                 // begins and ends as the tokenizer has it for documents; the end is an answer, too
};
void chat_text_release(struct chat_text *out);

// Renders `messages`, an array of objects with "role" and "content" as `transformers` takes them, or with "from" and
// "value" as ShareGPT has them; *out is emptied first. `prompt`: the text ends where the next answer begins
// (add_generation_prompt), and its answers are not told. `tools` may be NULL. What answers are, a template says by
// {% generation %}; of others it is what a message of the assistant adds to the prompt before it, or, where that begins
// a thought which the message lacks, to the messages; refused (USAGE) where the template writes these otherwise then.
// USAGE, too: there is no message, the template refuses them, or they are too long.
trireme_status chat_render(const struct chat_template *c, const json_t *messages, const json_t *tools, bool prompt,
                           struct chat_text *out, trireme_error *error);
// The same for a prompt and its completion, two arrays of messages: all of the completion is the answer.
trireme_status chat_render_completion(const struct chat_template *c, const json_t *prompt, const json_t *completion,
                                      const json_t *tools, struct chat_text *out, trireme_error *error);

// Renders what a line of a .jsonl has: "messages" or, as ShareGPT calls them, "conversations", perhaps with "tools"; or
// "prompt" and "completion", which are both arrays of messages or both text, which stands there as it is.
trireme_status chat_render_line(const struct chat_template *c, const json_t *line, struct chat_text *out,
                                trireme_error *error);

// Tokens, and of each whether any of its text is an answer. Zero-initialise; chat_tokens_release frees.
struct chat_tokens {
    struct token_list tokens;
    VEC(bool) answer; // of each token
    VEC(struct encoder_place) places;
};
// Empties *out, and fills it with the tokens of a text: none are added to what a template has written.
trireme_status chat_encode(struct encoder *e, const struct chat_text *text, struct chat_tokens *out,
                           trireme_error *error);
void chat_tokens_release(struct chat_tokens *out);

#endif
