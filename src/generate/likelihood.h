// How likely a model takes texts to be, with the rules of EleutherAI's lm-evaluation-harness (its class HFLM), so that
// scores are the same: https://github.com/EleutherAI/lm-evaluation-harness.
#ifndef GENERATE_LIKELIHOOD_H
#define GENERATE_LIKELIHOOD_H

#include "base/text.h"
#include "generate/decoding.h"
#include "tokenizer/encoder.h"
#include "tokenizer/tokenizer.h"

// Zero-initialise; likelihood_release releases it, whether it was opened or not.
struct likelihood {
    struct tokenizer *tokenizer;
    struct encoder *encoder;
    struct decoding decoding;
    int64_t context; // tokens that the model is given at once: training.seq_len if that was set, else its positions
    VEC(int32_t) fed;
    double *logits;               // [vocab_size]
    struct token_list whole, cut; // while a text is encoded
};

// Opens the model that `path` means (checkpoint_resolve). `config` must outlive it.
trireme_status likelihood_open(struct likelihood *likelihood, const struct config *config, const char *path,
                               trireme_error *error);
void likelihood_release(struct likelihood *likelihood);

// A sum of log-probabilities (nats), and whether each token was the likeliest.
struct likelihood_sum {
    double log;
    bool greedy;
};
// Of tokens [from, count) where those before them are given, at least one; of more tokens than the model can be given
// the last ones count, which must have all of these. What the call before had in common is not computed again.
trireme_status likelihood_of(struct likelihood *likelihood, const int32_t *tokens, size_t count, size_t from,
                             struct likelihood_sum *out, trireme_error *error);

// Of a text after another, which may be empty. Blanks at the end of the first belong to the second; both are encoded
// together, and cut where the first alone ends. After nothing comes the token that begins texts, or else the one that
// ends them.
trireme_status likelihood_after(struct likelihood *likelihood, const struct text *context, const struct text *text,
                                struct likelihood_sum *out, trireme_error *error);

// Of a whole text, token by token, behind the token of `likelihood_after`: in windows of `context` tokens, each of
// which begins with the last token of the one before; the last one with as many as fit.
struct text_likelihood {
    double log;
    int64_t tokens, bytes, words; // words: parts between blanks
};
trireme_status likelihood_of_text(struct likelihood *likelihood, const struct text *text, struct text_likelihood *out,
                                  trireme_error *error);

#endif
