// Continues token sequences with a trained model: decoding programs on the model's part of the state arena, and the
// choice of the next token.
#ifndef TRAIN_GENERATOR_H
#define TRAIN_GENERATOR_H

#include "config/config.h"
#include "data/tokenizer.h"

struct generator;

// Lowers config->generate.max_new_tokens to what the model in `directory` has positions for, unless it was set.
trireme_status generator_fit(struct config *config, const char *directory, size_t prompt_tokens, trireme_error *error);
// Opens the model in `directory` (as checkpoint_resolve gives it) for a prompt of one token or more and all but the
// last of config->generate.max_new_tokens, which is chosen but not fed. Without `config->generate.cache` every token is
// computed from all before it. Of the model's tokens only those that the tokenizer has are chosen (NULL: all).
trireme_status generator_create(struct generator **out, const struct config *config, const char *directory,
                                const struct tokenizer *tokenizer, size_t prompt_tokens, trireme_error *error);
void generator_free(struct generator *generator);
int64_t generator_vocab_size(const struct generator *generator);

// Feeds tokens, which stand after those fed before; at least one. Afterwards generator_choose may be called.
trireme_status generator_feed(struct generator *generator, const int32_t *tokens, size_t count, trireme_error *error);
// Chooses the next token by config->generate's temperature, top_k, top_p and seed: a pure function of these and all
// tokens fed. *end: it is the model's end-of-text.
int32_t generator_choose(struct generator *generator, bool *end);

// One choice among logits[count]: `uniform` in [0, 1). Temperature 0 takes the largest. `scratch` holds `count` of
// them.
struct token_weight {
    double weight;
    int32_t token;
};
int32_t token_choose(const double *logits, int32_t count, double temperature, int64_t top_k, double top_p,
                     double uniform, struct token_weight *scratch);

#endif
