// Continues token sequences with a trained model: runs decoding programs on the model's part of the state arena, and
// chooses the next token.
#ifndef GENERATE_GENERATOR_H
#define GENERATE_GENERATOR_H

#include "config/config.h"
#include "tokenizer/tokenizer.h"

#include <stdatomic.h>

struct generator;

// Opens the model in `directory` (as checkpoint_resolve gives it), with room for a prompt of `prompt_tokens` tokens, 1
// or more, and for config->generate.max_new_tokens but the last, which is chosen and not fed. Without
// config->generate.cache every token is computed from all tokens before it. Only tokens that the tokenizer has are
// chosen (NULL: all of the model's).
trireme_status generator_create(struct generator **out, const struct config *config, const char *directory,
                                const struct tokenizer *tokenizer, size_t prompt_tokens, trireme_error *error);
void generator_free(struct generator *generator);

// Feeds at least one token; they follow the tokens that were fed before. Afterwards generator_choose may be called.
trireme_status generator_feed(struct generator *generator, const int32_t *tokens, size_t count, trireme_error *error);
// Chooses the next token by config->generate's temperature, top_k, top_p and seed: a pure function of these and all
// tokens fed. Sets *end to whether the token is the model's end of text.
int32_t generator_choose(struct generator *generator, bool *end);

// A text that a model continues. Zero-initialise; continuation_release releases it, whether it was opened or not.
struct continuation {
    const struct config *config;
    char *directory;
    struct tokenizer *tokenizer;
    struct token_list prompt;
    struct generator *generator;
    bool lowered; // config->generate.max_new_tokens is what the model has positions for
};
// Opens the model that `path` means (checkpoint_resolve), and lowers config->generate.max_new_tokens to what the model
// has positions for, unless the user set it. A prompt of length 0 becomes the end of a line, since a model needs
// something to continue.
trireme_status continuation_open(struct continuation *continuation, struct config *config, const char *path,
                                 const char *prompt, size_t length, trireme_error *error);
void continuation_release(struct continuation *continuation);

// Where tokens go: first those of the prompt, once they were fed to the model, then each chosen token.
struct continuation_sink {
    void *user;
    trireme_status (*add)(void *user, const int32_t *tokens, size_t count, trireme_error *error);
    const atomic_bool *stop; // the text ends once it is true
};
// Feeds the prompt and the tokens chosen after it, until max_new_tokens, the model's end of text (which is not passed
// on) or `stop`.
trireme_status continuation_run(const struct continuation *continuation, const struct continuation_sink *sink,
                                trireme_error *error);

#endif
