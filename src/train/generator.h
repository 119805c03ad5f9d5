// Continues token sequences with a trained model: decoding programs on the model's part of the state arena, and the
// choice of the next token.
#ifndef TRAIN_GENERATOR_H
#define TRAIN_GENERATOR_H

#include "config/config.h"
#include "data/tokenizer.h"

#include <stdatomic.h>

struct generator;

// Opens the model in `directory` (as checkpoint_resolve gives it) for a prompt of one token or more and all but the
// last of config->generate.max_new_tokens, which is chosen but not fed. Without `config->generate.cache` every token is
// computed from all before it. Of the model's tokens only those that the tokenizer has are chosen (NULL: all).
trireme_status generator_create(struct generator **out, const struct config *config, const char *directory,
                                const struct tokenizer *tokenizer, size_t prompt_tokens, trireme_error *error);
void generator_free(struct generator *generator);

// Feeds tokens, which stand after those fed before; at least one. Afterwards generator_choose may be called.
trireme_status generator_feed(struct generator *generator, const int32_t *tokens, size_t count, trireme_error *error);
// Chooses the next token by config->generate's temperature, top_k, top_p and seed: a pure function of these and all
// tokens fed. *end: it is the model's end-of-text.
int32_t generator_choose(struct generator *generator, bool *end);

// A text that a model continues. Zero-initialise; released by continuation_release, opened or not.
struct continuation {
    const struct config *config;
    char *directory;
    struct tokenizer *tokenizer;
    struct token_list prompt;
    struct generator *generator;
};
// Opens the model that `path` means (checkpoint_resolve) and lowers config->generate.max_new_tokens to what it has
// positions for, unless that was set.
// A model continues something: the prompt of length 0 is the end of a line.
trireme_status continuation_open(struct continuation *continuation, struct config *config, const char *path,
                                 const char *prompt, size_t length, trireme_error *error);
void continuation_release(struct continuation *continuation);

// Where tokens go: first those of the prompt, once the model was fed them, then each that was chosen.
struct continuation_sink {
    void *user;
    trireme_status (*add)(void *user, const int32_t *tokens, size_t count, trireme_error *error);
    const atomic_bool *stop; // the text ends once it is true
};
// Feeds the prompt and what is chosen after it, until max_new_tokens, the model's end of text (which is not told) or
// `stop`.
trireme_status continuation_run(const struct continuation *continuation, const struct continuation_sink *sink,
                                trireme_error *error);

#endif
