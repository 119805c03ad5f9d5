// Continues token sequences with a trained model: one text, or several side by side, of which each token reads the
// model's weights once for all.
#ifndef GENERATE_GENERATOR_H
#define GENERATE_GENERATOR_H

#include "config/config.h"
#include "tokenizer/tokenizer.h"

struct generator;

// Opens the model in `directory` (as checkpoint_resolve gives it) for `texts` texts, each of which sees its last
// `context` tokens; the model's positions and config->generate.context_length may make that fewer. Without
// config->generate.cache every token is computed from all tokens that it sees. Only tokens that the tokenizer has are
// chosen (NULL: all of the model's). `config` must outlive it.
//
// A text that sees all that it can goes on with the later half of it, read again as a new beginning, behind the token
// with which the tokenizer begins texts, if it began with that.
trireme_status generator_create(struct generator **out, const struct config *config, const char *directory,
                                const struct tokenizer *tokenizer, int64_t texts, int64_t context,
                                trireme_error *error);
void generator_free(struct generator *generator);
// Tokens that a text sees at most.
int64_t generator_context(const struct generator *generator);

// Begins text `text` anew. Texts of different `sample` have different random numbers.
void generator_begin(struct generator *generator, int64_t text, int64_t sample);
// Adds tokens to a text; generator_run computes what was added. USAGE for a token that the model does not have.
trireme_status generator_add(struct generator *generator, int64_t text, const int32_t *tokens, size_t count,
                             trireme_error *error);
trireme_status generator_run(struct generator *generator, trireme_error *error);
// Makes a token end texts.
void generator_end_with(struct generator *generator, int32_t token);
// How many of the text's tokens it no longer sees.
int64_t generator_forgotten(const struct generator *generator, int64_t text);
// Chooses the next token of a text, of which generator_run has computed all, by config->generate (token_choice.h): a
// pure function of that, the text and its sample. Sets *end to whether the token ends texts: it is one of the
// eos_token_id of config.json or generation_config.json, or the tokenizer's.
int32_t generator_choose(struct generator *generator, int64_t text, bool *end);

#endif
