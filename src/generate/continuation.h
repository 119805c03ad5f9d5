// Texts that a model continues: prompts are encoded, tokens are chosen, and what they say is told as they come, until a
// text ends.
#ifndef GENERATE_CONTINUATION_H
#define GENERATE_CONTINUATION_H

#include "generate/generator.h"
#include "generate/stop_strings.h"
#include "tokenizer/token_stream.h"

#include <stdatomic.h>

enum text_end {
    TEXT_END_EOS,         // the model ended it
    TEXT_END_STOP,        // a stop string
    TEXT_END_LENGTH,      // max_new_tokens
    TEXT_END_INTERRUPTED, // *sink->stop
};
const char *text_end_word(enum text_end end); // "eos", "stop", "length", "interrupted"

// A text: the prompt, which the caller fills in, and what continuation_run has made of it.
struct continued_text {
    struct token_list prompt;
    size_t known;             // so many of its tokens are those that the text before this one in its place has
    int64_t sample;           // texts of one prompt have different random numbers for different samples
    struct token_list tokens; // chosen, those of a stop string included, not that which ends texts
    enum text_end end;
    struct text said;  // what was told of it
    int64_t forgotten; // tokens of prompt and text that its last one did not see
    struct token_stream stream;
    struct stop_gate gate;
};
void continued_text_release(struct continued_text *text);

// Zero-initialise; continuation_release releases it, whether it was opened or not.
struct continuation {
    const struct config *config;
    char *directory;
    int hold; // directory_hold of it
    struct tokenizer *tokenizer;
    struct stop_strings stops;
    struct generator *generator;
};
// Opens tokenizer and directory of the model that `path` means (checkpoint_resolve).
trireme_status continuation_open(struct continuation *continuation, const struct config *config, const char *path,
                                 trireme_error *error);
// Appends a prompt's tokens, with those that the tokenizer puts before a text. A prompt without any becomes the end of
// a line, since a model needs something to continue.
trireme_status continuation_encode(const struct continuation *continuation, const char *prompt, size_t length,
                                   struct token_list *out, trireme_error *error);
// Loads the model, for that many texts side by side, whose prompts have `longest` tokens at most.
trireme_status continuation_load(struct continuation *continuation, size_t texts, size_t longest, trireme_error *error);
void continuation_release(struct continuation *continuation);

// Where the text goes, piece by piece: whole characters where it is UTF-8, without prompt and stop strings.
struct continuation_sink {
    void *user;
    trireme_status (*add)(void *user, size_t text, const char *bytes, size_t count, trireme_error *error);
    const atomic_bool *stop; // all texts end once it is true
};
// Continues texts[count], at most as many as it was loaded for, side by side.
trireme_status continuation_run(const struct continuation *continuation, struct continued_text *texts, size_t count,
                                const struct continuation_sink *sink, trireme_error *error);

#endif
