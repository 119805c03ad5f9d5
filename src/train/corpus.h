// The tokens of a run: token files, the tokenizer that made them, the sampler over them.
#ifndef TRAIN_CORPUS_H
#define TRAIN_CORPUS_H

#include "config/config.h"
#include "data/manifest.h"
#include "data/sampler.h"
#include "train/engine.h"

struct corpus {
    struct token_set *set, *validation_set;             // the second only with data.validation_path
    struct tokenizer *tokenizer, *validation_tokenizer; // NULL for token files that name none
    struct sampler train, validation;
    bool has_validation;
};

// Opens config->data.
// The samplers are made by corpus_sample, once the model's vocabulary is known.
trireme_status corpus_open(struct corpus *corpus, const struct config *config, trireme_error *error);
trireme_status corpus_sample(struct corpus *corpus, const struct config *config, int64_t vocab_size, bool evaluate_only,
                             trireme_error *error);
void corpus_close(struct corpus *corpus);
// Tokens that the tokenizer knows; 0 without one.
int64_t corpus_vocab_size(const struct corpus *corpus);
// Refuses tokens that are not those of the model in `directory` (empty: of none), where both say whose they are.
trireme_status corpus_check_model(const struct corpus *corpus, const struct config *config, const char *directory,
                                  trireme_error *error);
// Size and a hash, in words, by which tokens can be told from others; of a corpus above 64M tokens a sample is hashed.
trireme_status corpus_identify(const struct token_set *set, struct text *out, trireme_error *error);
// CORRUPT where somebody has written into a file of the training data since it was opened, and what corpus_identify
// says is no longer the end of `identity`.
trireme_status corpus_check_unchanged(const struct corpus *corpus, const char *identity, trireme_error *error);

// Fills the inputs of the engine's programs with global batch `step` (from 0).
trireme_status corpus_fill_train(const struct corpus *corpus, struct engine *engine, int64_t step,
                                 trireme_error *error);

struct corpus_loss {
    double loss; // nats per target
    int64_t targets;
    int64_t text_bytes; // that the targets of this rank stand for; 0 without a tokenizer
};
// Told before each batch how many of `total` are done. What it fails with ends the validation, on all ranks alike:
// TRIREME_ERROR_INTERRUPTED where it is to stop.
typedef trireme_status corpus_goes_on(void *user, int64_t done, int64_t total, trireme_error *error);
// Mean loss over the first `batches` global batches of the validation part (0: all of them).
trireme_status corpus_validate(const struct corpus *corpus, struct engine *engine, int64_t batches,
                               struct corpus_loss *out, corpus_goes_on *goes_on, void *user, trireme_error *error);

#endif
