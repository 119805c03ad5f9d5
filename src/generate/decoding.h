// A model that goes on with texts: runs decoding programs, which take tokens of one or more texts and leave their keys
// and values, or the states that they lead to, in a cache of each; and gives the logits of what may come next.
#ifndef GENERATE_DECODING_H
#define GENERATE_DECODING_H

#include "engine/engine.h"

// A program: how many tokens of each text it takes at once, and the logits of how many: of the last one of each text,
// or of all of the only text.
struct decoding_program {
    int64_t rows;
    bool all;
};

struct decoding {
    const struct config *config;
    struct model_config model;
    struct parallel plan;
    struct engine engine;
    int64_t texts, context; // context: tokens of a text that are seen at once
    int64_t rows;           // the most that a program takes
    bool cached;            // config->generate.cache
    int64_t *stands;        // [texts]: behind which token the last run of each ended
};

// Tokens of a text that are at positions [at, at + count), of which decoding_resume allows the first: those before them
// were given by earlier runs.
struct decoding_part {
    const int32_t *tokens;
    int64_t at, count;
};

// Opens the model in `directory` (as checkpoint_resolve gives it) for that many texts of `context` tokens each. Without
// a cache there is one program, for `context` tokens, whose parts begin at position 0. `config` must
// outlive it.
trireme_status decoding_open(struct decoding *decoding, const struct config *config, const char *directory,
                             int64_t texts, int64_t context, const struct decoding_program *programs, size_t count,
                             trireme_error *error);
// The position from which on a text must be given whose tokens before `at` are those that earlier runs were given: that
// one, or 0 where nothing of them is kept, or a state that has gone on with other tokens.
int64_t decoding_resume(const struct decoding *decoding, int64_t text, int64_t at);
// Takes any that was zeroed, opened or not.
void decoding_release(struct decoding *decoding);

// Runs a program on parts[texts], which fit into its rows; a part of no tokens stands where its text ends, and leaves
// the text as it is.
trireme_status decoding_run(struct decoding *decoding, size_t program, const struct decoding_part *parts,
                            trireme_error *error);
// Copies the logits that the program has left for the token after the last one of text `row`, or, where it has those of
// all rows, after row `row`, to out[model.vocab_size]. DIVERGED where they are not finite.
trireme_status decoding_logits(const struct decoding *decoding, size_t program, int64_t row, double *out,
                               trireme_error *error);

// Refuses tokens that the model does not have.
trireme_status decoding_check(const struct decoding *decoding, const int32_t *tokens, size_t count,
                              trireme_error *error);

#endif
